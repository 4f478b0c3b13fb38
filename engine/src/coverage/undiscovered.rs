//! Resources that exist and are missing in discovery.

use crate::object::{GroupResource, Name};
use alloc::string::String;

/// Stands in the place of a resource name for all resources of the group.
pub const ALL_RESOURCES: &str = "*";

/// A group, or one of its resources, whose definition exists and that discovery has not shown yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Undiscovered {
    pub group: Name,
    /// `None` if the resources of the group are unknown.
    pub resource: Option<Name>,
    /// The reason as text.
    pub why: String,
}

impl Undiscovered {
    /// Returns the group and resource as a collection. The resource is [`ALL_RESOURCES`] if the resources of the group
    /// are unknown.
    pub fn group_resource(&self) -> GroupResource {
        let resource = self.resource.clone().unwrap_or_else(|| Name::from(ALL_RESOURCES));
        GroupResource { group: self.group.clone(), resource }
    }

    /// Whether both name the same, regardless of the reason.
    pub fn is_same(&self, other: &Undiscovered) -> bool {
        self.group == other.group && self.resource == other.resource
    }
}

impl core::fmt::Display for Undiscovered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.group_resource().fmt(f)
    }
}
