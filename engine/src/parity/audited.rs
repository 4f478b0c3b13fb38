//! Requests from the API server's audit log.

use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::time::Time;

/// Maximum length of a user name, in bytes. The reader of the log truncates longer names.
pub const USER_MAX: usize = 128;

/// An answered request that deletes or changes objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Audited {
    pub verb: AuditedVerb,
    pub collection: GroupResource,
    /// Empty for a cluster-scoped object, and for a deletion of a collection in all namespaces.
    pub namespace: Name,
    /// Empty for a deletion of a collection.
    pub name: Name,
    /// The uid of the object, if the log has the uid.
    pub uid: Option<Uid>,
    /// The version of the object after the request, if the log has the answer.
    pub resource_version: Option<ResourceVersion>,
    /// When the API server had answered.
    pub at: Time,
    /// The user, at most [`USER_MAX`] bytes.
    pub user: Name,
    /// The request is one of the garbage collector of kube-controller-manager.
    pub by_collector: bool,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The audit id of the request, at most 64 bytes.
    pub id: Name,
}

/// The kind of an audited request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AuditedVerb {
    Delete,
    DeleteCollection,
    /// An update or a patch of an object.
    Change,
}
