//! Objects with contents: namespaces, and definitions with their instances. The contents have no owner reference to
//! them. Controllers of the API server delete the contents first.

use crate::coverage::{Coverage, Kind, KindId, State};
use crate::object::{GroupResource, Name};

/// The finalizer in `spec.finalizers` of a namespace until it is empty. It stands for the namespace controller.
pub(crate) const NAMESPACE_FINALIZER: &str = "kubernetes";
/// The finalizer of a definition until its instances are gone.
pub(crate) const DEFINITION_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Events own nothing, block nothing, and are not watched by default. No plan and no explanation depends on them.
const EVENTS: [&str; 2] = ["", "events.k8s.io"];

/// A container of objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Container {
    Namespace(Name),
    Instances(GroupResource),
}

impl Container {
    /// The container that an object of this kind and name is, if any.
    pub(crate) fn of(kind: &Kind, name: &str) -> Option<Container> {
        match (&*kind.group, &*kind.kind) {
            ("", "Namespace") => Some(Container::Namespace(Name::from(name))),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let (resource, group) = name.split_once('.')?;
                Some(Container::Instances(GroupResource { group: group.into(), resource: resource.into() }))
            }
            _ => None,
        }
    }

    /// The finalizer that holds the object while it has contents.
    pub(crate) fn finalizer(&self) -> &'static str {
        match self {
            Container::Namespace(_) => NAMESPACE_FINALIZER,
            Container::Instances(_) => DEFINITION_FINALIZER,
        }
    }

    /// Whether the container holds objects of this kind in this namespace.
    pub(crate) fn holds(&self, kind: &Kind, namespace: &str) -> bool {
        match self {
            Container::Namespace(name) => **name == *namespace && !namespace.is_empty(),
            Container::Instances(of) => kind.served().is_some_and(|served| served.group_resource == *of),
        }
    }

    /// Collections that the graph does not show and that may hold contents of this container.
    pub(crate) fn unseen<'c>(&'c self, coverage: &'c Coverage) -> impl Iterator<Item = KindId> + 'c {
        let may_hide = |kind: &Kind| {
            let Some(served) = kind.served() else { return false };
            let at = &served.group_resource;
            let is_event = *at.resource == *"events" && EVENTS.contains(&&*at.group);
            let concerns = match self {
                Container::Namespace(_) => served.namespaced && served.deletable,
                Container::Instances(of) => at == of,
            };
            let seen = kind.is_synced() && !kind.is_doubtful();
            concerns && !seen && !(is_event && kind.state() == State::Ignored)
        };
        coverage.served().filter(move |(_, kind)| may_hide(kind)).map(|(id, _)| id)
    }
}
