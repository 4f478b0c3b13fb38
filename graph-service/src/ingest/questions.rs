//! Questions of readers to the API server.

use engine::object::{GroupResource, Name, ObjectRef, ResourceVersion, Uid};
use futures::future::BoxFuture;
use std::collections::BTreeMap;

/// The position of a collection according to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) position: ResourceVersion,
    /// All objects, if there are few.
    pub(crate) objects: Option<Vec<(Uid, ResourceVersion)>>,
}

/// Asks the API server for the position of a collection in this API version.
pub(crate) type AskStand = Box<dyn Fn(GroupResource, Name) -> BoxFuture<'static, Result<Stand, String>> + Send + Sync>;

/// A span of versions of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) collection: GroupResource,
    /// The API version.
    pub(crate) version: Name,
    pub(crate) from: ResourceVersion,
    pub(crate) to: ResourceVersion,
}

/// Asks the API server for the last change within a span; `from` if there is none.
pub(crate) type AskLast = Box<dyn Fn(Span) -> BoxFuture<'static, Result<ResourceVersion, String>> + Send + Sync>;

/// Metadata of an object that the graph does not keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Asks the API server for the texts of an object; `None` if it is gone.
pub(crate) type AskTexts = Box<dyn Fn(ObjectRef) -> BoxFuture<'static, Result<Option<Texts>, String>> + Send + Sync>;

/// The questions to the API server.
pub(crate) struct Questions {
    pub(crate) stand: AskStand,
    pub(crate) last: AskLast,
    pub(crate) texts: AskTexts,
}
