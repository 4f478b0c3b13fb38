//! What is there to be served and is not shown by discovery.

use crate::object::{GroupResource, Name};
use alloc::string::String;

/// In the place of a resource: each resource of the group.
pub const ALL_RESOURCES: &str = "*";

/// A group, or one resource of it, that is there to be served, as its definition says, and that discovery has not shown yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undiscovered {
    pub group: Name,
    /// `None` where the resources of the group are not known.
    pub resource: Option<Name>,
    /// In words.
    pub why: String,
}

impl Undiscovered {
    /// As a collection. The resource is [`ALL_RESOURCES`] where those of the group are not known.
    pub fn group_resource(&self) -> GroupResource {
        let resource = self.resource.clone().unwrap_or_else(|| Name::from(ALL_RESOURCES));
        GroupResource { group: self.group.clone(), resource }
    }

    /// Whether both are about the same, for whatever reason.
    pub fn is_same(&self, other: &Undiscovered) -> bool {
        self.group == other.group && self.resource == other.resource
    }
}

impl core::fmt::Display for Undiscovered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.group_resource().fmt(f)
    }
}
