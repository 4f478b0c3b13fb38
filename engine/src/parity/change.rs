//! What waits to be matched: open decisions, and changes.

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
    pub(crate) since: Time,
    /// It follows from a change of the object itself, and not of an owner.
    pub(crate) is_own_change: bool,
    /// It counts as withdrawn.
    pub(super) is_withdrawn: bool,
    /// The disagreement that reports it, once the wait is over, and its class.
    pub(super) late: Option<(u64, Class)>,
}

impl Open {
    /// A new decision. `removes` are the owners whose references it removes.
    pub(crate) fn new(action: ActionKind, removes: Arc<[Uid]>, since: Time, is_own_change: bool) -> Open {
        Open { action, removes, since, is_own_change, is_withdrawn: false, late: None }
    }

    /// Whether a change carries the decision out, or a part of it: a collector may remove references one owner at a
    /// time.
    pub(crate) fn covers(&self, action: ActionKind, removed: &[Uid]) -> bool {
        let is_part = || removed.iter().all(|uid| self.removes.contains(uid));
        self.action == action && (action != ActionKind::RemoveOwnerReferences || is_part())
    }
}

/// A change that looks like one of a collector.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) target: ObjectRef,
    pub(crate) action: ActionKind,
    pub(crate) at: Time,
    /// The version that shows the change; `None` if a list without the object shows it.
    pub(crate) version: Option<ResourceVersion>,
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
    /// Another change removed references of the object within [`super::YOUNG`] before.
    pub(crate) shed_before: bool,
    /// Each owner that lives stopped to wait for its dependents shortly before.
    pub(crate) waited_before: bool,
    /// Who made the change, with the name of the user and the audit id, once the audit log says so.
    pub(crate) audited: Option<(Actor, Name, Name)>,
}

/// A reference of a changed object.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) view: EdgeView,
    pub(crate) standing: Standing,
    /// The standing that the owner takes after the change was seen, and before its version.
    pub(crate) later: Option<Standing>,
    /// The change removes the reference.
    pub(crate) removed: bool,
}

/// The owners whose references a change removes.
pub(crate) fn removed_uids(owners: &[Owner]) -> Vec<Uid> {
    owners.iter().filter(|owner| owner.removed).map(|owner| owner.view.reference.uid.clone()).collect()
}
