//! What readers have the API server asked.

use engine::object::{GroupResource, Name, ObjectRef, ResourceVersion, Uid};
use futures::future::BoxFuture;
use std::collections::BTreeMap;

/// Where a collection stands by the API server's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) position: ResourceVersion,
    /// Everything that is in it, where that is little.
    pub(crate) objects: Option<Vec<(Uid, ResourceVersion)>>,
}

/// Asks the API server where a collection, of this version on the wire, stands.
pub(crate) type AskStand = Box<dyn Fn(GroupResource, Name) -> BoxFuture<'static, Result<Stand, String>> + Send + Sync>;

/// From where to where a collection is watched for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) collection: GroupResource,
    /// The version on the wire.
    pub(crate) version: Name,
    pub(crate) from: ResourceVersion,
    pub(crate) to: ResourceVersion,
}

/// Asks the API server for the last change within a span, which is `from` where there was none.
pub(crate) type AskLast = Box<dyn Fn(Span) -> BoxFuture<'static, Result<ResourceVersion, String>> + Send + Sync>;

/// What an object's metadata says beside what the graph keeps of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Asks the API server for the texts of an object; `None` where it is not there any more.
pub(crate) type AskTexts = Box<dyn Fn(ObjectRef) -> BoxFuture<'static, Result<Option<Texts>, String>> + Send + Sync>;

/// What the API server is asked.
pub(crate) struct Questions {
    pub(crate) stand: AskStand,
    pub(crate) last: AskLast,
    pub(crate) texts: AskTexts,
}
