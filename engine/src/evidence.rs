//! Why an owner is believed absent, and what has to be asked until it may be.
//!
//! A 404 alone is never proof. An owner that its collection does not show is asked for by the steps that its kind demands, one after
//! the other; an answer that finds it ends the inquiry, an error repeats the step.

use crate::object::{Access, Backend, ResourceVersion, ServedKind, Uid};
use crate::time::Time;
use crate::work::CheckBy;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// Proof that an owner is absent, bound to its uid and to the store history it was made in. There are these four and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The watch of a synced collection delivered DELETED for this uid.
    WatchDeleted { resource_version: ResourceVersion },
    /// A consistent list of that one name lacks the uid, at a position not before the collection's last known one.
    Listed { resource_version: ResourceVersion },
    /// The CRD's last observed state says that its instances were deleted.
    TypeEmptied { crd: Uid },
    /// A kind without the list verb: two reads two minutes apart, each a NotFound that names this object.
    ReadTwice,
}

impl Proof {
    /// The words for logs and labels, all of them.
    pub const WORDS: [&'static str; 4] = ["watch_deleted", "listed", "type_emptied", "read_twice"];

    /// The position in the owner's collection at which it was absent, where the proof has one.
    pub fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Proof::WatchDeleted { resource_version } | Proof::Listed { resource_version } => Some(resource_version),
            Proof::TypeEmptied { .. } | Proof::ReadTwice => None,
        }
    }

    /// The word for logs and labels.
    pub fn as_str(&self) -> &'static str {
        match self {
            Proof::WatchDeleted { .. } => "watch_deleted",
            Proof::Listed { .. } => "listed",
            Proof::TypeEmptied { .. } => "type_emptied",
            Proof::ReadTwice => "read_twice",
        }
    }
}

/// How long a new virtual owner of a synced collection is left alone: its own event is usually just behind its dependent's.
const SETTLE: Duration = Duration::from_millis(250);
/// Between the two reads of a kind without list.
const BETWEEN_READS: Duration = Duration::from_secs(120);
/// Between the two rounds of a collection whose positions do not compare.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(10);
/// An owner that nobody watches is looked up again after this, doubling.
const AGAIN_MIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// One question of an inquiry, `after` the answer before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) by: CheckBy,
    after: Duration,
}

const fn list(after: Duration) -> Step {
    Step { by: CheckBy::List, after }
}

const fn read(after: Duration) -> Step {
    Step { by: CheckBy::Read, after }
}

const LIST: &[Step] = &[list(Duration::ZERO)];
const LIST_READ: &[Step] = &[list(Duration::ZERO), read(Duration::ZERO)];
const LIST_READ_TWICE: &[Step] =
    &[list(Duration::ZERO), read(Duration::ZERO), list(BETWEEN_ROUNDS), read(Duration::ZERO)];
const READ: &[Step] = &[read(Duration::ZERO)];
const READ_TWICE: &[Step] = &[read(Duration::ZERO), read(BETWEEN_READS)];

/// What is known of an owner so far that nobody shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inquiry {
    /// Steps answered "not there" in a row.
    done: usize,
    /// Nothing is asked before.
    pub(crate) not_before: Time,
    /// The watch has said DELETED; only the live read is missing.
    deleted: Option<ResourceVersion>,
    /// Whether the positions that came back could be ordered.
    ordered: bool,
    /// Position of the last list that lacked the owner.
    listed: Option<ResourceVersion>,
    /// Times in a row that the owner was found.
    found: u32,
}

impl Inquiry {
    /// An inquiry about an owner that has just been heard of.
    pub(crate) fn new(now: Time) -> Inquiry {
        Inquiry { done: 0, not_before: now + SETTLE, deleted: None, ordered: true, listed: None, found: 0 }
    }

    /// An inquiry after a DELETED that is not proof by itself.
    pub(crate) fn after_deleted(now: Time, version: ResourceVersion) -> Inquiry {
        Inquiry { done: 0, not_before: now, deleted: Some(version), ordered: true, listed: None, found: 0 }
    }

    /// Asks as soon as may be.
    pub(crate) fn at_once(mut self, now: Time) -> Inquiry {
        self.not_before = now;
        self
    }

    /// Asks as soon as may be, unless it is under way already.
    pub(crate) fn hurry(&mut self, now: Time) {
        if self.done == 0 {
            self.not_before = self.not_before.min(now);
        }
    }

    fn steps(&self, kind: &ServedKind) -> &'static [Step] {
        match (kind.access, kind.backend) {
            (Access::Watched | Access::Listed, Backend::Main) => LIST,
            (Access::Watched | Access::Listed, Backend::Aggregated) if self.deleted.is_some() => READ,
            (Access::Watched | Access::Listed, Backend::Aggregated) if self.ordered => LIST_READ,
            (Access::Watched | Access::Listed, Backend::Aggregated) => LIST_READ_TWICE,
            (Access::ReadOnly, Backend::Main | Backend::Aggregated) => READ_TWICE,
        }
    }

    /// What to ask next.
    pub(crate) fn next(&self, kind: &ServedKind) -> Step {
        let steps = self.steps(kind);
        steps[self.done.min(steps.len() - 1)]
    }

    /// The step was answered "not there", a list at `version`. Gives the proof once all steps are.
    pub(crate) fn absent(&mut self, now: Time, kind: &ServedKind, version: Option<&ResourceVersion>) -> Option<Proof> {
        if let Some(version) = version {
            self.ordered &= version.is_ordered();
            self.listed = Some(version.clone());
        }
        self.found = 0;
        self.done += 1;
        let steps = self.steps(kind);
        if let Some(step) = steps.get(self.done) {
            self.not_before = now + step.after;
            return None;
        }
        match (&self.deleted, kind.access) {
            (Some(deleted), _) => Some(Proof::WatchDeleted { resource_version: deleted.clone() }),
            (None, Access::ReadOnly) => Some(Proof::ReadTwice),
            (None, Access::Watched | Access::Listed) => {
                self.listed.clone().map(|resource_version| Proof::Listed { resource_version })
            }
        }
    }

    /// The owner was found: start over, later each time.
    pub(crate) fn found(&mut self, now: Time) {
        self.done = 0;
        self.deleted = None;
        self.listed = None;
        let wait = AGAIN_MIN.saturating_mul(1 << self.found.min(10)).min(AGAIN_MAX);
        self.found = self.found.saturating_add(1);
        self.not_before = now + wait;
    }
}
