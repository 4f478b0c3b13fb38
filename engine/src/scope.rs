//! Scopes of guards: which objects a guard is about.

use crate::object::{GroupResource, Name, ObjectRef, Uid};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

#[cfg(test)]
mod tests;

/// The scope of a pause: everything that one of the filters matches, or everything without filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Scope {
    pub targets: Vec<Filter>,
}

/// Conditions that must all hold. An empty condition always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Filter {
    pub resources: Vec<GroupResource>,
    /// Cluster-scoped objects are in no namespace.
    pub namespaces: Vec<Name>,
    pub names: Vec<Name>,
    /// Requirements on the labels and annotations of the object; all must hold.
    pub marks: Vec<Requirement>,
    /// Requirements on the labels of its namespace; all must hold. Cluster-scoped objects are in none.
    pub namespace_marks: Vec<Requirement>,
    /// The object itself, and all objects below it.
    pub owner: Option<OwnerScope>,
}

/// A requirement on one label or annotation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Requirement {
    pub of: Labelled,
    pub key: Name,
    pub test: Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Labelled {
    Label,
    Annotation,
}

/// The tests of label selectors, and one for annotations that list words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Test {
    In(Vec<Name>),
    /// True also without the key.
    NotIn(Vec<Name>),
    Exists,
    DoesNotExist,
    /// The value is a list with commas, and has this word.
    Lists(Name),
}

/// The root of a subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnerScope {
    pub resource: GroupResource,
    /// Empty for cluster scope.
    pub namespace: Name,
    pub name: Name,
    /// `None`: any object with this name, in the past and in the future.
    pub uid: Option<Uid>,
}

/// Objects that a policy engine names. All conditions must hold; an empty condition always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Objects {
    pub resources: BTreeSet<GroupResource>,
    /// Cluster-scoped objects are in no namespace.
    pub namespaces: BTreeSet<Name>,
    pub uids: BTreeSet<Uid>,
}

impl Objects {
    /// Whether the object meets all conditions. An object whose kind is not served may be of any resource of its group.
    pub fn has(&self, object: &ObjectRef) -> bool {
        let is_of = |known: &GroupResource| {
            *known.group == *object.group && (object.resource.is_empty() || *known.resource == *object.resource)
        };
        (self.resources.is_empty() || self.resources.iter().any(is_of))
            && (self.namespaces.is_empty() || self.namespaces.contains(&object.namespace))
            && (self.uids.is_empty() || self.uids.contains(&object.uid))
    }

    /// The number of conditions; at least 1.
    pub fn conditions(&self) -> usize {
        (self.resources.len() + self.namespaces.len() + self.uids.len()).max(1)
    }
}

/// The place of a write's target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// `None` if several groups serve the target: it may be in scope by each of them.
    pub(crate) collection: Option<GroupResource>,
    pub(crate) namespace: Name,
}

impl Scope {
    /// Whether a write at this place may be in scope: the conditions about other things than the place count as met.
    pub fn may_cover(&self, group: &str, resource: &str, namespace: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|filter| filter.may_cover(group, resource, namespace))
    }

    pub(crate) fn covers_target(&self, place: &Target) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|filter| filter.may_cover_target(place))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.targets.is_empty() {
            return f.write_str("everything");
        }
        for (at, filter) in self.targets.iter().enumerate() {
            write!(f, "{}{filter}", if at > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Filter::default() {
            return f.write_str("everything");
        }
        let mut gap = "";
        let mut part = |f: &mut fmt::Formatter<'_>, word: &str, parts: &[String]| {
            if parts.is_empty() {
                return Ok(());
            }
            let space = if word.is_empty() { "" } else { " " };
            let comma = if word.ends_with("with") { ", " } else { "," };
            write!(f, "{gap}{word}{space}{}", parts.join(comma))?;
            gap = " ";
            Ok(())
        };
        let all = |of: &[Requirement]| -> Vec<String> { of.iter().map(ToString::to_string).collect() };
        part(f, "", &self.resources.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        part(f, "in", &self.namespaces.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        part(f, "named", &self.names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        part(f, "with", &all(&self.marks))?;
        part(f, "in namespaces with", &all(&self.namespace_marks))?;
        let owner = self.owner.as_ref().map(ToString::to_string);
        part(f, "below", &owner.into_iter().collect::<Vec<_>>())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.of {
            Labelled::Label => self.key.to_string(),
            Labelled::Annotation => format!("annotation {}", self.key),
        };
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::Lists(word) => write!(f, "{key} listing {word}"),
        }
    }
}

impl fmt::Display for OwnerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.resource, self.namespace, self.name)
    }
}

impl OwnerScope {
    /// Whether this object is the root of the subtree. An owner whose kind is not served has no resource. Then it may
    /// be the root, because a guard must outlive the definition of its owner.
    pub(crate) fn is(&self, object: &ObjectRef) -> bool {
        *self.resource.group == *object.group
            && (object.resource.is_empty() || *self.resource.resource == *object.resource)
            && *self.namespace == *object.namespace
            && *self.name == *object.name
            && self.uid.as_ref().is_none_or(|uid| *uid == object.uid)
    }
}

impl Filter {
    pub(crate) fn may_cover(&self, group: &str, resource: &str, namespace: &str) -> bool {
        let collection = |known: &GroupResource| *known.group == *group && *known.resource == *resource;
        (self.resources.is_empty() || self.resources.iter().any(collection)) && self.may_cover_namespace(namespace)
    }

    pub(crate) fn may_cover_target(&self, place: &Target) -> bool {
        match &place.collection {
            Some(of) => self.may_cover(&of.group, &of.resource, &place.namespace),
            None => self.may_cover_namespace(&place.namespace),
        }
    }

    fn may_cover_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|known| **known == *namespace)
    }
}
