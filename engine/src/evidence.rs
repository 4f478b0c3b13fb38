//! Why an owner is believed absent, and what has to be asked until it may be.
//!
//! A 404 alone is never proof. An owner that its collection does not show is asked for by the steps that its kind demands, one after
//! the other; an answer that finds it ends the inquiry, an error repeats the step.

use crate::object::{Access, Backend, ResourceVersion, ServedKind, Uid};
use crate::time::Time;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// How an object is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckBy {
    /// A consistent metadata list of that one name.
    List,
    /// One GET.
    Read,
}

/// Proof that an owner is absent, bound to its uid and to the store history it was made in. There are these four and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The watch of a synced collection delivered DELETED for this uid.
    WatchDeleted { resource_version: ResourceVersion },
    /// A consistent list of that one name lacks the uid, at a position not before anything that was known of its store.
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
/// Between two lists that have to agree.
const BETWEEN_LISTS: Duration = Duration::from_secs(5);
/// The same, where the collection's own list and watch are the first thing that speaks for absence.
const BETWEEN_LISTS_OF_LISTED: Duration = Duration::from_secs(1);
/// Lists that have to agree, at most.
const LISTS_MAX: usize = 12;
/// An owner that nobody watches is looked up again after this, doubling.
const AGAIN_MIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// One question of an inquiry, `after` the answer before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) by: CheckBy,
    after: Duration,
    /// Over another connection than the answer before it.
    pub(crate) fresh: bool,
}

/// Follows at once.
const fn at_once(by: CheckBy) -> Step {
    Step { by, after: Duration::ZERO, fresh: false }
}

/// One answer more that has to agree with those before it.
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
const READ_TWICE: &[Step] = &[READ, again(CheckBy::Read, BETWEEN_READS)];

/// What an inquiry is about, apart from the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) kind: &'a ServedKind,
    /// Its collection is complete, or was when its watch was lost: that the owner is not in it is the first thing that speaks for its
    /// absence.
    pub(crate) listed: bool,
    /// So often answers about its collection contradicted each other lately.
    pub(crate) contradictions: u32,
}

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
    /// Where its store stood when the owner was found last.
    shown: Option<ResourceVersion>,
    /// Times in a row that the owner was found.
    found: u32,
}

/// What an answer "not there" comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Absence {
    /// It takes more.
    Open,
    Proven(Proof),
    /// The owner was shown at this version, and nothing that came after it can be in an answer at that one.
    Contradicts(ResourceVersion),
}

impl Inquiry {
    /// An inquiry about an owner that has just been heard of.
    pub(crate) fn new(now: Time) -> Inquiry {
        let not_before = now + SETTLE;
        Inquiry { done: 0, not_before, deleted: None, ordered: true, listed: None, shown: None, found: 0 }
    }

    /// An inquiry after a DELETED that is not proof by itself.
    pub(crate) fn after_deleted(now: Time, version: ResourceVersion) -> Inquiry {
        Inquiry { deleted: Some(version), ..Inquiry::new(now).at_once(now) }
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

    /// What was gathered so far counts no more.
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
            (Access::ReadOnly, Backend::Main | Backend::Aggregated) => READ_TWICE,
        }
    }

    /// What to ask next.
    pub(crate) fn next(&self, ground: Ground<'_>) -> Step {
        let steps = self.steps(ground);
        steps[self.done.min(steps.len() - 1)]
    }

    /// The step was answered "not there", a list at `version`.
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

    /// The owner was found by an answer at `version`: start over, later each time. Gives the position of the answer that it was absent by
    /// before, if it was.
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
