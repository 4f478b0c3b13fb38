//! The built-in breaker: it stops a mass deletion that nothing explains, before much of a collection went.
//!
//! A deletion is explained if the watch has shown what caused it: a DELETED event of an owner, the deletion mark of an
//! owner, or the end of a definition. It is unexplained if lists alone lack its owners, and this replica had seen one
//! of them: a conversion that hides owners, a proxy that cuts lists and a restored backup look like this. Owners that
//! were gone before the replica began to watch are an ordinary backlog. One owner with a large share of the collection
//! is a root that explains it.
//!
//! | State | Meaning | Ends |
//! |---|---|---|
//! | closed | Few unexplained deletions | at [`SLOW_PERCENT`] of the collection |
//! | settling | Further unexplained deletions wait | after [`SETTLED_AFTER`] without a new one, or at [`MASS_PERCENT`] |
//! | open | A Pause of the collection is wanted | when the Pause has been seen and has ended |
//! | passed | The deletions are few, or a person has let them go | after [`WINDOW`] |

use super::budgets::Spent;
use crate::guard::BREAKER_AUTHOR;
use crate::object::{GroupResource, Uid};
use crate::time::Time;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// Collections of at most this size are never stopped.
const SIZE_MIN: u64 = 1000;
/// The share of a collection above which unexplained deletions wait until their number is known.
pub(super) const SLOW_PERCENT: u64 = 3;
/// The share of a collection above which unexplained deletions are a mass deletion.
const MASS_PERCENT: u64 = 30;
/// The time in which deletions count.
pub(super) const WINDOW: Duration = Duration::from_secs(300);
/// The number of unexplained deletions is known when it has not grown for this time.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Time between two looks at that number.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of prevented wrong deletions in a window.
const PREVENTED_MAX: usize = 10;
/// Lifetime of the Pause.
pub(super) const PAUSE_FOR: Duration = Duration::from_secs(3600);
/// A Pause that was not seen within this time is wanted again.
pub(super) const PAUSE_AGAIN: Duration = Duration::from_secs(60);

/// The breakers of all collections.
#[derive(Debug, Default)]
pub(super) struct Breaker(BTreeMap<GroupResource, Collection>);

#[derive(Debug, Default)]
struct Collection {
    spent: Spent,
    state: State,
    prevented: alloc::collections::VecDeque<Time>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Settling {
        /// The last time at which a new item began to wait.
        grew: Time,
    },
    Open {
        /// The Pause has been seen.
        paused: bool,
    },
    Passed {
        until: Time,
    },
}

/// The consequence for an unexplained deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Pass,
    /// Hold it as the first one: look at their number from now on.
    Settle,
    Hold,
}

/// The consequence when the number of unexplained deletions may be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Not yet: look again at this time.
    At(Time),
    Release,
    /// A mass deletion of this share in percent.
    Mass {
        percent: u64,
    },
    /// The wanted Pause has not been seen: want it again.
    Unpaused,
    Nothing,
}

impl Breaker {
    /// Decides about one more unexplained deletion in a collection of this size.
    pub(super) fn decide(&mut self, now: Time, of: &GroupResource, size: u64) -> Follows {
        let collection = self.0.entry(of.clone()).or_default();
        collection.spent.trim(now);
        if let State::Passed { until } = collection.state
            && until <= now
        {
            collection.state = State::Closed;
        }
        let spent = collection.spent.count(None);
        let size = size + spent;
        match collection.state {
            State::Passed { .. } => Follows::Pass,
            _ if size <= SIZE_MIN => Follows::Pass,
            State::Closed if (spent + 1) * 100 <= size * SLOW_PERCENT => Follows::Pass,
            State::Closed => {
                collection.state = State::Settling { grew: now };
                Follows::Settle
            }
            State::Settling { .. } => {
                collection.state = State::Settling { grew: now };
                Follows::Hold
            }
            State::Open { .. } => Follows::Hold,
        }
    }

    /// Counts an unexplained deletion that is granted.
    pub(super) fn spend(&mut self, now: Time, of: &GroupResource, uid: &Uid) {
        if let Some(collection) = self.0.get_mut(of) {
            collection.spent.spend((now, Duration::ZERO), WINDOW, uid, of.clone());
        }
    }

    /// Looks whether the number of unexplained deletions is known; `held` of them wait.
    pub(super) fn settle(&mut self, now: Time, of: &GroupResource, size: u64, held: u64) -> Settled {
        let Some(collection) = self.0.get_mut(of) else { return Settled::Nothing };
        let grew = match collection.state {
            State::Settling { grew } => grew,
            State::Open { paused: false } => return Settled::Unpaused,
            State::Open { paused: true } | State::Closed | State::Passed { .. } => return Settled::Nothing,
        };
        let spent = collection.spent.count(None);
        let percent = (spent + held) * 100 / (size + spent).max(1);
        if percent > MASS_PERCENT {
            collection.state = State::Open { paused: false };
            return Settled::Mass { percent };
        }
        if now < grew + SETTLED_AFTER {
            return Settled::At(now + LOOK_EVERY);
        }
        collection.state = State::Passed { until: now + WINDOW };
        Settled::Release
    }

    /// Records that the Pause of a collection has been seen, by its author.
    pub(super) fn paused(&mut self, author: &str) {
        for (_, collection) in self.named(author) {
            if let State::Open { paused } = &mut collection.state {
                *paused = true;
            }
        }
    }

    /// Records that the Pause of a collection has ended: a person has looked. Returns the collections.
    pub(super) fn resumed(&mut self, now: Time, author: &str) -> alloc::vec::Vec<GroupResource> {
        let mut resumed = alloc::vec::Vec::new();
        for (of, collection) in self.named(author) {
            if collection.state == (State::Open { paused: true }) {
                collection.state = State::Passed { until: now + WINDOW };
                resumed.push(of.clone());
            }
        }
        resumed
    }

    fn named(&mut self, author: &str) -> impl Iterator<Item = (&GroupResource, &mut Collection)> {
        let name = author.strip_prefix(BREAKER_AUTHOR).map(alloc::string::String::from);
        self.0.iter_mut().filter(move |(of, _)| name.as_ref().is_some_and(|name| alloc::format!("{of}") == *name))
    }

    /// Counts a prevented wrong deletion. Returns their number if there are too many, once for a window.
    pub(super) fn prevented(&mut self, now: Time, of: &GroupResource) -> Option<usize> {
        let prevented = &mut self.0.entry(of.clone()).or_default().prevented;
        prevented.push_back(now);
        while prevented.front().is_some_and(|&at| at + WINDOW <= now) {
            prevented.pop_front();
        }
        let count = prevented.len();
        if count > PREVENTED_MAX {
            prevented.clear();
        }
        (count > PREVENTED_MAX).then_some(count)
    }
}
