//! Proofs of an owner's absence, and the questions that lead to them. They replace upstream's `absentOwnerCache`.
//!
//! A 404 alone is never proof. An owner that its collection does not show is checked in steps that depend on the
//! owner's kind. An answer that finds the owner ends the inquiry. An error repeats the step.

use crate::object::{Access, Backend, ResourceVersion, ServedKind, Uid};
use crate::time::Time;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// The form of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckBy {
    /// A consistent metadata list by name.
    List,
    /// One GET.
    Read,
}

/// A proof that an owner is absent. It is bound to the uid and to the history of the store. There are exactly these
/// four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The watch of a synced collection sent DELETED for this uid.
    WatchDeleted { resource_version: ResourceVersion },
    /// A consistent list by name lacks the uid. Its position is not before any known position of the owner's store.
    Listed { resource_version: ResourceVersion },
    /// The last observed state of the CRD says that its instances were deleted.
    TypeEmptied { crd: Uid },
    /// A kind without the list verb: two reads, two minutes apart, each with a NotFound that names this object. If a
    /// read had found the object, four such reads.
    ReadTwice,
}

impl Proof {
    /// All words for logs and labels.
    pub const WORDS: [&'static str; 4] = ["watch_deleted", "listed", "type_emptied", "read_twice"];

    /// The position in the owner's collection at which it was absent, if the proof has one.
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

/// How a node is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A list or watch of the object's collection showed it at this version, or a read while nothing newer was known.
    Observed { resource_version: ResourceVersion },
    /// Known only from references. Upstream calls this a virtual node. Its reads fail if it is unreadable.
    Virtual { unreadable: bool },
    /// A read found the object at this version, although its collection has not shown it.
    Read { position: ResourceVersion },
    /// Proven absent.
    Absent(Proof),
}

/// Delay before a new virtual owner of a synced collection is checked. The owner's own event usually arrives within
/// this time.
const SETTLE: Duration = Duration::from_millis(250);
/// Delay between two reads of a kind without list.
const BETWEEN_READS: Duration = Duration::from_secs(120);
/// Delay between the two rounds of a collection whose positions are not comparable.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(10);
/// Delay between two lists that must agree.
const BETWEEN_LISTS: Duration = Duration::from_secs(5);
/// The same delay if the collection's own list and watch already lack the owner.
const BETWEEN_LISTS_OF_LISTED: Duration = Duration::from_secs(1);
/// Maximum number of lists, or of reads, that must agree.
const LISTS_MAX: usize = 12;
/// Delay before an unwatched owner is checked again. Doubles each time.
const AGAIN_MIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// One question of an inquiry, sent `after` the previous answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) by: CheckBy,
    after: Duration,
    /// Sent over another connection than the previous question.
    pub(crate) fresh: bool,
}

/// A step without a delay.
const fn at_once(by: CheckBy) -> Step {
    Step { by, after: Duration::ZERO, fresh: false }
}

/// A step whose answer must agree with the previous answers.
const fn again(by: CheckBy, after: Duration) -> Step {
    Step { by, after, fresh: true }
}

const LIST: Step = at_once(CheckBy::List);
const READ: Step = at_once(CheckBy::Read);
const LISTS: &[Step; LISTS_MAX] = &{
    let mut lists = [again(CheckBy::List, BETWEEN_LISTS); LISTS_MAX];
    lists[0] = LIST;
    lists
};
const LISTS_OF_LISTED: &[Step] = &[LIST, again(CheckBy::List, BETWEEN_LISTS_OF_LISTED)];
const LIST_READ: &[Step] = &[LIST, again(CheckBy::Read, BETWEEN_LISTS_OF_LISTED)];
const LIST_READ_TWICE: &[Step] = &[LIST, READ, again(CheckBy::List, BETWEEN_ROUNDS), READ];
const TWO_LISTS_READ: &[Step] = &[LIST, again(CheckBy::List, BETWEEN_LISTS), READ];
const READ_ONCE: &[Step] = &[READ];
const READS: &[Step; LISTS_MAX] = &{
    let mut reads = [again(CheckBy::Read, BETWEEN_READS); LISTS_MAX];
    reads[0] = READ;
    reads
};

/// The circumstances of an inquiry, besides the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) kind: &'a ServedKind,
    /// The collection is complete, or was complete when its watch was lost. So the owner's absence from it counts as
    /// the first of the required answers.
    pub(crate) listed: bool,
    /// The number of recent contradictions in answers about its collection.
    pub(crate) contradictions: u32,
}

/// The knowledge about an unobserved owner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inquiry {
    /// Consecutive steps with the answer "absent".
    done: usize,
    /// The inquiry sends no question before this time.
    pub(crate) not_before: Time,
    /// The watch has sent DELETED at this version. Only the direct read is missing.
    deleted: Option<ResourceVersion>,
    /// Whether the returned positions could be ordered.
    ordered: bool,
    /// Position of the last list without the owner.
    listed: Option<ResourceVersion>,
    /// Position of its store when the owner was last found.
    shown: Option<ResourceVersion>,
    /// How often the owner was found in a row.
    found: u32,
}

/// The consequence of an answer "absent".
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Absence {
    /// More answers are needed.
    Open,
    Proven(Proof),
    /// The answer contradicts this version, at which the owner was shown before.
    Contradicts(ResourceVersion),
}

impl Inquiry {
    /// An inquiry about a newly named owner.
    pub(crate) fn new(now: Time) -> Inquiry {
        let not_before = now + SETTLE;
        Inquiry { done: 0, not_before, deleted: None, ordered: true, listed: None, shown: None, found: 0 }
    }

    /// An inquiry after a DELETED that is not proof by itself.
    pub(crate) fn after_deleted(now: Time, version: ResourceVersion) -> Inquiry {
        Inquiry { deleted: Some(version), ..Inquiry::new(now).at_once(now) }
    }

    /// Makes the next question due at once.
    pub(crate) fn at_once(mut self, now: Time) -> Inquiry {
        self.not_before = now;
        self
    }

    /// Makes the next question due at once, unless it is already in progress.
    pub(crate) fn hurry(&mut self, now: Time) {
        if self.done == 0 {
            self.not_before = self.not_before.min(now);
        }
    }

    /// Discards the answers so far.
    pub(crate) fn begin_anew(&mut self) {
        self.done = 0;
        self.listed = None;
    }

    fn steps(&self, ground: Ground<'_>) -> &'static [Step] {
        let doubts = if ground.contradictions > 0 { 2 * ground.contradictions as usize } else { 0 };
        let lists = 1 + usize::from(!ground.listed) + 2 * usize::from(self.shown.is_some()) + doubts;
        match (ground.kind.access, ground.kind.backend) {
            (Access::Watched | Access::Listed, Backend::Main) if lists == 1 && self.deleted.is_none() => {
                LISTS_OF_LISTED
            }
            (Access::Watched | Access::Listed, Backend::Main) => &LISTS[..lists.min(LISTS_MAX)],
            (Access::Watched | Access::Listed, Backend::Aggregated) if self.deleted.is_some() => READ_ONCE,
            (Access::Watched | Access::Listed, Backend::Aggregated) if !self.ordered => LIST_READ_TWICE,
            (Access::Watched | Access::Listed, Backend::Aggregated) if lists > 1 => TWO_LISTS_READ,
            (Access::Watched | Access::Listed, Backend::Aggregated) => LIST_READ,
            // A 404 has no version, so a server with an older copy of the store cannot be recognized by it.
            (Access::ReadOnly, Backend::Main | Backend::Aggregated) => &READS[..lists.clamp(2, LISTS_MAX)],
        }
    }

    /// The next question.
    pub(crate) fn next(&self, ground: Ground<'_>) -> Step {
        let steps = self.steps(ground);
        steps[self.done.min(steps.len() - 1)]
    }

    /// Handles the answer "absent"; for a list, at `version`.
    pub(crate) fn absent(&mut self, now: Time, ground: Ground<'_>, version: Option<&ResourceVersion>) -> Absence {
        if let Some(version) = version {
            if let Some(shown) = &self.shown
                && version.is_ordered()
                && !shown.is_before(version)
            {
                return Absence::Contradicts(shown.clone());
            }
            self.ordered &= version.is_ordered();
            self.listed = Some(version.clone());
        }
        self.found = 0;
        self.done += 1;
        let steps = self.steps(ground);
        if let Some(step) = steps.get(self.done) {
            self.not_before = now + step.after;
            return Absence::Open;
        }
        let proof = match (&self.deleted, ground.kind.access) {
            (Some(deleted), _) => Some(Proof::WatchDeleted { resource_version: deleted.clone() }),
            (None, Access::ReadOnly) => Some(Proof::ReadTwice),
            (None, Access::Watched | Access::Listed) => {
                self.listed.clone().map(|resource_version| Proof::Listed { resource_version })
            }
        };
        proof.map_or(Absence::Open, Absence::Proven)
    }

    /// Handles the answer "found" at `version`: starts the inquiry again, with growing delays. Returns the position of
    /// an earlier answer without the owner, if there was one.
    pub(crate) fn found(&mut self, now: Time, version: &ResourceVersion) -> Option<ResourceVersion> {
        self.done = 0;
        self.deleted = None;
        self.shown = Some(version.clone());
        let wait = AGAIN_MIN.saturating_mul(1 << self.found.min(10)).min(AGAIN_MAX);
        self.found = self.found.saturating_add(1);
        self.not_before = now + wait;
        self.listed.take()
    }
}
