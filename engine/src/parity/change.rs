//! The entries that wait to be matched: open decisions, and changes.

use super::audited::AuditedVerb;
use super::class::{Actor, Class};
use crate::object::{Name, ObjectRef, ResourceVersion, Uid};
use crate::time::Time;
use crate::verdict::Standing;
use crate::view::EdgeView;
use crate::work::ActionKind;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A decision that waits for its change.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) action: ActionKind,
    /// The owners whose references it removes.
    pub(crate) removes: Arc<[Uid]>,
    /// The decision orphans the dependents of the object, or removes the finalizer of an orphaning owner.
    pub(crate) orphans: bool,
    pub(crate) since: Time,
    /// The decision follows from a change of the object itself, and not of an owner.
    pub(crate) is_own_change: bool,
    /// The decision removes the finalizer of an owner that still has dependents to wait for.
    pub(crate) is_premature: bool,
    /// The decision counts as withdrawn.
    pub(super) is_withdrawn: bool,
    /// The disagreement that reports it, once the wait is over.
    pub(super) late: Option<Late>,
}

/// A disagreement that reports an open decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(super) number: u64,
    pub(super) class: Class,
    pub(super) at: Time,
}

impl Open {
    /// A new decision. `removes` are the owners whose references it removes.
    pub(crate) fn new(action: ActionKind, removes: Arc<[Uid]>, since: Time) -> Open {
        Open {
            action,
            removes,
            orphans: false,
            since,
            is_own_change: false,
            is_premature: false,
            is_withdrawn: false,
            late: None,
        }
    }

    /// Whether a change carries the decision out, or a part of it: a collector may remove references one owner at a
    /// time. Deletions in background and in foreground delete the same objects, and count as the same.
    pub(crate) fn covers(&self, deed: &Deed) -> bool {
        let is_part = || deed.removed.iter().all(|uid| self.removes.contains(uid));
        self.action == deed.action
            && deed.orphans.is_none_or(|orphans| orphans == self.orphans)
            && (deed.action != ActionKind::RemoveOwnerReferences || is_part())
    }
}

/// The effect of a change on its object.
#[derive(Debug)]
pub(crate) struct Deed {
    pub(crate) action: ActionKind,
    /// The owners whose references it removes.
    pub(crate) removed: Vec<Uid>,
    /// As in [`Open`]; `None` if the facts do not show it.
    pub(crate) orphans: Option<bool>,
}

/// A change that looks like one of a collector.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) target: ObjectRef,
    pub(crate) deed: Deed,
    pub(crate) at: Time,
    /// The version that shows the change; `None` if a list without the object shows it.
    pub(crate) version: Option<ResourceVersion>,
    /// The version of the object before.
    pub(crate) before: Option<ResourceVersion>,
    /// The references before the change, at most [`super::OWNERS_MAX`].
    pub(crate) owners: Vec<Owner>,
    pub(crate) owner_count: usize,
    /// The decision about the object at the time of the change.
    pub(crate) decided: Option<Open>,
    /// The change carries this decision out.
    pub(crate) follows: bool,
    /// The object was not judged yet, or facts were missing.
    pub(crate) was_undecided: bool,
    pub(crate) was_held: bool,
    pub(crate) was_terminating: bool,
    /// A collector would orphan the dependents of the object as this change does, or does not.
    pub(crate) is_by_rule: bool,
    /// Another change removed references of the object within [`super::YOUNG`] before.
    pub(crate) shed_before: bool,
    /// Another change added references to the object within [`super::YOUNG`] before.
    pub(crate) grown_before: bool,
    /// The deletion of the object began within [`super::YOUNG`] before.
    pub(crate) marked_before: bool,
    /// Of a removed finalizer: dependents that the finalizer waits for, and that are older than the last change of the
    /// object before. At most [`super::OWNERS_MAX`].
    pub(crate) awaited: Vec<Uid>,
    /// The request that made the change, once the audit log has it.
    pub(crate) audited: Option<Author>,
}

/// A request of the audit log that made a change.
#[derive(Debug)]
pub(crate) struct Author {
    pub(crate) actor: Actor,
    pub(crate) verb: AuditedVerb,
    pub(super) user: Name,
    /// The audit id.
    pub(super) id: Name,
}

impl Change {
    /// Whether nothing but its user can make a followed decision something other than agreed.
    pub(super) fn is_plain(&self) -> bool {
        self.owner_count <= self.owners.len() && !self.decided.as_ref().is_some_and(|open| open.is_premature)
    }
}

/// A reference of a changed object.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) view: EdgeView,
    pub(crate) standing: Standing,
    /// The standing from an owner event that arrives after the change, but has a lower version than the change.
    pub(crate) later: Option<Standing>,
    /// The change removes the reference.
    pub(crate) removed: bool,
    /// The owner stopped to wait for its dependents shortly before the change.
    pub(crate) waited: bool,
}
