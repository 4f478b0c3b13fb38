//! Decisions that are not carried out yet: one item for each target uid, in fair order, with a rule for the wait after
//! each kind of failure. The queue replaces upstream's `attemptToDelete` and `attemptToOrphan`.

use crate::guard::HeldBy;
use crate::hold::{Hold, Holds};
use crate::object::{Name, ObjectRef, Uid, clip};
use crate::time::Time;
use crate::view::{Waiting, Waits};
use crate::work::{Action, LeaseId, Outcome, Preconditions};
use ages::Ages;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use blocked::Blockers;
use core::ops::Bound;
use lanes::Lanes;

mod ages;
mod blocked;
mod held;
mod invariants;
mod lanes;
#[cfg(test)]
mod tests;

pub(crate) use blocked::{Blocker, Obstacle, PROBE_EVERY, Row};

/// Maximum number of outdated entries of the per-namespace queues (lanes), beyond one for each item. A lane has the
/// ready items of one namespace.
const LANES_SPARE: usize = 1024;

/// The state of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemState {
    Ready,
    /// Decided, and never granted: the mode is observe.
    Observed,
    Held(Hold),
    Backoff {
        until: Time,
        why: Delay,
    },
    Behind(Blocker),
    Leased(LeaseId),
}

/// Why an item waits for some time, without a hold and without a blocker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Its last attempt failed; [`Item::trouble`] has the error.
    Failed,
    /// This blocker refuses the item, although other items passed.
    Refused(Blocker),
    /// No executor accepts such work.
    NoTaker,
    /// The object has changed since an attempt was refused.
    Moved,
    /// The object cannot be judged yet: a watch or an answer is awaited. The decision may be outdated.
    Unjudged,
    /// The item was just carried out, and another client has undone it this often in a row.
    Undone { times: u32 },
}

/// The failure of the last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) outcome: Outcome,
    /// The message of the API server or the executor, cut to [`TROUBLE_MAX_BYTES`].
    pub(crate) message: Box<str>,
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let colon = if self.message.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.outcome.as_str(), self.message)
    }
}

/// Longest kept message of a failed attempt.
const TROUBLE_MAX_BYTES: usize = 200;

/// The content of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) target: ObjectRef,
    pub(crate) action: Action,
    pub(crate) preconditions: Preconditions,
    pub(crate) read_first: bool,
    /// True if the action deletes the target or removes a reference to an orphaning owner. Guards hold such items.
    pub(crate) destroys: bool,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: u64,
    pub(crate) draft: Draft,
    /// The root of its cascade, as known when the item was created.
    root: Option<Uid>,
    pub(crate) generation: u64,
    pub(crate) state: ItemState,
    pub(crate) decided: Time,
    /// The number of started deliveries.
    pub(crate) attempts: u32,
    /// Consecutive failures of a kind with growing delays.
    pub(crate) failures: u32,
    /// Consecutive refusals as invalid.
    pub(crate) invalid: u32,
    /// An attempt without an answer may have been applied.
    pub(crate) ambiguous: bool,
    /// The decision was withdrawn or replaced after the lease was granted.
    pub(crate) overtaken: bool,
    /// An event of this term has reported the decision.
    pub(crate) reported: bool,
    /// The hold of guards in force, or of the object itself.
    hold: Option<Hold>,
    /// The hold that the last event reported.
    pub(crate) reported_held: Option<HeldBy>,
    pub(crate) trouble: Option<Box<Trouble>>,
    /// The blocker that refused the item last.
    met: Option<Blocker>,
    /// The last blocker of the item has let others pass since. A further refusal concerns this item alone.
    apart: bool,
}

impl Item {
    /// Stores the failure of an attempt.
    pub(crate) fn note_trouble(&mut self, outcome: Outcome, message: &str) {
        let message = clip(message, TROUBLE_MAX_BYTES).into();
        self.trouble = Some(Box::new(Trouble { outcome, message }));
    }

    /// The blockers that would apply to this item.
    fn blockers(&self) -> impl Iterator<Item = Blocker> {
        let target = &self.draft.target;
        let (collection, namespace, action) =
            (target.group_resource(), target.namespace.clone(), self.draft.action.kind());
        let forbidden = Blocker::Forbidden { collection: collection.clone(), namespace, action };
        [forbidden, Blocker::Throttled { collection }].into_iter()
    }

    /// The root of its cascade, if known.
    pub(crate) fn root(&self) -> Option<&Uid> {
        self.root.as_ref()
    }

    /// The lease under which the item is.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        match self.state {
            ItemState::Leased(lease) => Some(lease),
            ItemState::Ready
            | ItemState::Observed
            | ItemState::Held(_)
            | ItemState::Backoff { .. }
            | ItemState::Behind(_) => None,
        }
    }

    fn lane(&self) -> Name {
        let target = &self.draft.target;
        if target.namespace.is_empty() { target.resource.clone() } else { target.namespace.clone() }
    }
}

/// The result of adding a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    New,
    /// A waiting decision was replaced.
    Replaced,
    /// Nothing new, or only a newer version of the same facts.
    Same,
    /// Only a newer version of the same facts; a webhook that refuses the object may decide differently now.
    Moved,
    /// An older decision is in progress under this lease.
    Leased(LeaseId),
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Boxed, because items are large and a growing tree moves its entries.
    items: BTreeMap<Uid, Box<Item>>,
    by_id: BTreeMap<u64, Uid>,
    /// Ready uids; entries may be outdated.
    lanes: Lanes,
    blockers: Blockers,
    holds: Holds,
    /// Held uids by their hold.
    held: BTreeMap<Hold, BTreeSet<Uid>>,
    /// Items in a backoff of their own, by the number of attempts.
    troubled: BTreeSet<(u32, Uid)>,
    /// Items whose guard has changed. Entries may be outdated.
    held_news: BTreeSet<Uid>,
    /// Items that went behind a blocker without an attempt. The leader takes them before its next effect.
    refused: Vec<Uid>,
    ages: Ages,
    last_id: u64,
    leased: usize,
    waiting: usize,
}

impl Queue {
    pub(crate) fn get(&self, uid: &Uid) -> Option<&Item> {
        self.items.get(uid).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut Item> {
        self.items.get_mut(uid).map(Box::as_mut)
    }

    pub(crate) fn uid_of(&self, id: u64) -> Option<&Uid> {
        self.by_id.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn leased(&self) -> usize {
        self.leased
    }

    /// The number of items in backoff or behind a blocker.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Starts a new term, whose log has reported no decision yet.
    pub(crate) fn forget_reported(&mut self) {
        self.held_news =
            self.items.iter().filter(|(_, item)| item.held_by().is_some()).map(|(uid, _)| uid.clone()).collect();
        self.items.values_mut().for_each(|item| (item.reported, item.reported_held) = (false, None));
    }

    /// Items that wait for a retry of their own, those with the most attempts first.
    pub(crate) fn troubled(&self) -> impl Iterator<Item = &Item> {
        self.troubled.iter().rev().filter_map(|(_, uid)| self.get(uid))
    }

    pub(crate) fn troubled_count(&self) -> usize {
        self.troubled.len()
    }

    /// The number and age of waiting items, by state.
    pub(crate) fn waits(&self, now: Time) -> [Waits; Waiting::ALL.len()] {
        self.ages.of(now)
    }

    /// Adds a decision, with the hold of guards in force and the root of its cascade. `observe` means that the item is
    /// never granted.
    pub(crate) fn put(&mut self, now: Time, draft: Draft, hold: Option<Hold>, root: Option<Uid>, observe: bool) -> Put {
        let uid = draft.target.uid.clone();
        let Some(item) = self.items.get_mut(&uid) else {
            self.last_id += 1;
            let id = self.last_id;
            let state =
                if observe { ItemState::Observed } else { ItemState::Backoff { until: now, why: Delay::Failed } };
            let item = Item {
                id,
                draft,
                root,
                generation: 1,
                state,
                decided: now,
                attempts: 0,
                failures: 0,
                invalid: 0,
                ambiguous: false,
                overtaken: false,
                reported: false,
                hold,
                reported_held: None,
                trouble: None,
                met: None,
                apart: false,
            };
            self.waiting += usize::from(!observe);
            self.by_id.insert(id, uid.clone());
            self.ages.enter(now, &item.state);
            self.held_news.extend(item.held_by().map(|_| uid.clone()));
            self.items.insert(uid.clone(), Box::new(item));
            if !observe {
                self.make_ready(&uid);
            }
            return Put::New;
        };
        if let Some(lease) = item.lease() {
            // A reference may have become invalid by what happened to another object.
            item.overtaken = item.draft != draft || hold.as_ref().is_some_and(Hold::is_own);
            return if item.overtaken { Put::Leased(lease) } else { Put::Same };
        }
        let same = item.draft.action == draft.action
            && item.draft.preconditions.facts_digest == draft.preconditions.facts_digest;
        let moved = item.draft.preconditions != draft.preconditions;
        item.draft = draft;
        self.set_hold(&uid, hold);
        let Some(item) = self.items.get_mut(&uid) else { return Put::Same };
        if same {
            return if moved && is_refused(&item.state) { Put::Moved } else { Put::Same };
        }
        item.generation += 1;
        item.reported = false;
        item.failures = 0;
        item.invalid = 0;
        item.trouble = None;
        item.apart = false;
        let looked_at = |blocker: &Blocker| matches!(blocker, Blocker::Webhook { .. } | Blocker::InDoubt { .. });
        // Approvals, gates and budgets are asked again after the facts change.
        let asked = matches!(item.state, ItemState::Held(_)) && item.hold.is_none();
        if asked
            || matches!(&item.state, ItemState::Backoff { .. })
            || matches!(&item.state, ItemState::Behind(at) if looked_at(at))
        {
            self.make_ready(&uid);
        }
        Put::Replaced
    }

    /// Withdraws a decision. A leased item stays until its lease ends; the error is its lease. `Ok` has the dropped
    /// item.
    pub(crate) fn withdraw(&mut self, uid: &Uid) -> Result<Option<Item>, LeaseId> {
        match self.items.get_mut(uid) {
            None => Ok(None),
            Some(item) => {
                if let Some(lease) = item.lease() {
                    item.overtaken = true;
                    return Err(lease);
                }
                Ok(self.remove(uid))
            }
        }
    }

    /// Removes an item in any state.
    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Item> {
        self.leave_state(uid);
        self.blockers.is_no_probe(uid);
        self.blockers.released.remove(uid);
        self.held_news.remove(uid);
        let item = self.items.remove(uid)?;
        self.by_id.remove(&item.id);
        self.ages.leave(item.decided, &item.state);
        self.sweep_lanes();
        Some(*item)
    }

    /// Moves an item to a waiting state, or makes it ready.
    pub(crate) fn place(&mut self, uid: &Uid, state: ItemState) {
        if !self.items.contains_key(uid) {
            return;
        }
        match state {
            ItemState::Ready => self.make_ready(uid),
            // Holds are checked first, because a held item must not be the one whose attempt probes a blocker.
            ItemState::Behind(_) if self.items.get(uid).is_some_and(|item| item.hold.is_some()) => {
                self.make_ready(uid);
            }
            ItemState::Observed
            | ItemState::Held(_)
            | ItemState::Backoff { .. }
            | ItemState::Behind(_)
            | ItemState::Leased(_) => {
                self.leave_state(uid);
                self.enter_state(uid, state);
            }
        }
    }

    /// Makes an item ready, unless a hold or a known blocker applies.
    pub(crate) fn make_ready(&mut self, uid: &Uid) {
        let Some(item) = self.items.get(uid) else { return };
        let hold = item.hold.clone();
        let known = self.met_by(item);
        self.leave_state(uid);
        match (hold, known) {
            (Some(hold), _) => self.enter_state(uid, ItemState::Held(hold)),
            (None, Some(blocker)) => self.enter_state(uid, ItemState::Behind(blocker)),
            (None, None) => self.enter_state(uid, ItemState::Ready),
        }
    }

    fn met_by(&self, item: &Item) -> Option<Blocker> {
        if self.blockers.is_empty() {
            return None;
        }
        item.blockers().find(|blocker| self.blockers.knows(blocker))
    }

    /// An executor returned the item without an attempt: it is ready at once. A probe of a blocker stays a probe.
    pub(crate) fn give_back(&mut self, uid: &Uid) {
        let held = self.items.get(uid).is_some_and(|item| item.hold.is_some());
        if self.blockers.is_probe(uid) && !held {
            self.leave_state(uid);
            return self.enter_state(uid, ItemState::Ready);
        }
        self.make_ready(uid);
    }

    fn leave_state(&mut self, uid: &Uid) {
        let Some(item) = self.items.get(uid) else { return };
        match &item.state {
            // The lanes drop outdated entries when their turn comes.
            ItemState::Ready | ItemState::Observed => {}
            ItemState::Held(hold) => {
                if let Some(held) = self.held.get_mut(hold) {
                    held.remove(uid);
                    if held.is_empty() {
                        self.held.remove(hold);
                    }
                }
            }
            ItemState::Backoff { why, .. } => {
                self.waiting -= 1;
                self.troubled.remove(&(tries(item, why), uid.clone()));
                if let Delay::Refused(blocker) = why {
                    self.blockers.joins_others(blocker, uid);
                }
            }
            ItemState::Leased(_) => self.leased -= 1,
            ItemState::Behind(blocker) => {
                self.waiting -= 1;
                self.blockers.leave(blocker, uid);
            }
        }
    }

    fn enter_state(&mut self, uid: &Uid, place: ItemState) {
        let Some(item) = self.items.get_mut(uid) else { return };
        self.blockers.released.remove(uid);
        let lane = item.lane();
        self.ages.leave(item.decided, &item.state);
        self.ages.enter(item.decided, &place);
        if matches!((&item.state, &place), (ItemState::Ready | ItemState::Held(_), ItemState::Behind(_))) {
            self.refused.push(uid.clone());
        }
        item.state = place.clone();
        if item.reported_held != item.held_by() {
            self.held_news.insert(uid.clone());
        }
        match place {
            ItemState::Observed => {}
            ItemState::Ready => {
                self.lanes.push(&lane, &item.root, uid.clone());
                self.sweep_lanes();
            }
            ItemState::Held(hold) => {
                // The next item behind the same blocker becomes the probe.
                self.blockers.is_no_probe(uid);
                self.held.entry(hold).or_default().insert(uid.clone());
            }
            ItemState::Backoff { why, .. } => {
                self.waiting += 1;
                let tries = tries(item, &why);
                if tries > 0 {
                    self.troubled.insert((tries, uid.clone()));
                }
                match why {
                    Delay::Refused(blocker) => self.blockers.stands_alone(blocker, uid.clone()),
                    // It makes no attempt for a while, so another item behind the same blocker becomes the probe.
                    Delay::Unjudged => drop(self.blockers.is_no_probe(uid)),
                    Delay::Failed | Delay::NoTaker | Delay::Moved | Delay::Undone { .. } => {}
                }
            }
            ItemState::Leased(_) => self.leased += 1,
            ItemState::Behind(blocker) => {
                self.waiting += 1;
                self.blockers.enter(&blocker, lane, uid.clone());
            }
        }
    }

    /// Removes outdated entries from the lanes. While nothing is granted, no lane has a turn and drops them.
    fn sweep_lanes(&mut self) {
        if self.lanes.len() <= LANES_SPARE + 2 * self.items.len() {
            return;
        }
        let items = &self.items;
        let mut seen = BTreeSet::new();
        let is_ready = |uid: &Uid| items.get(uid).is_some_and(|item| item.state == ItemState::Ready);
        self.lanes.retain(|uid| is_ready(uid) && seen.insert(uid.clone()));
    }

    /// The next ready item in turn. The item stays ready until it is placed, and `pop` does not return it again.
    pub(crate) fn pop(&mut self) -> Option<Uid> {
        let mut lanes = core::mem::take(&mut self.lanes);
        let mut blocked = Vec::new();
        let next = lanes.pop(|uid| {
            let Some(item) = self.items.get(uid).filter(|item| item.state == ItemState::Ready) else { return false };
            // The item became ready before its blocker was known.
            let blocker = self.met_by(item).filter(|_| !self.blockers.may_pass(uid));
            let passes = blocker.is_none();
            blocked.extend(blocker.map(|blocker| (uid.clone(), blocker)));
            passes
        });
        self.lanes = lanes;
        for (uid, blocker) in blocked {
            // A lane may have an item twice if it became ready again.
            if self.items.get(&uid).is_some_and(|item| item.state == ItemState::Ready) {
                self.enter_state(&uid, ItemState::Behind(blocker));
            }
        }
        next
    }

    /// Takes the items that went behind a blocker without an attempt, since the last call.
    pub(crate) fn take_refused(&mut self) -> Vec<Uid> {
        core::mem::take(&mut self.refused)
    }

    /// Whether `pop` may return an item.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Makes an item ready after its blocker is gone, and clears its failures.
    fn wake(&mut self, uid: &Uid) {
        self.waiting -= 1;
        if let Some(item) = self.items.get_mut(uid) {
            self.ages.leave(item.decided, &item.state);
            item.state = ItemState::Observed;
            self.ages.enter(item.decided, &item.state);
        }
        self.make_ready(uid);
    }

    /// The uids of items after this one, or all, in order.
    pub(crate) fn uids_after(&self, after: Option<&Uid>) -> impl Iterator<Item = &Uid> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.items.range((start, Bound::Unbounded)).map(|(uid, _)| uid)
    }

    /// The uids of all items, in order.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.items.keys()
    }
}

/// The number of attempts of an item that waits with this delay.
fn tries(item: &Item, why: &Delay) -> u32 {
    match why {
        Delay::Undone { times } => item.attempts.max(*times),
        Delay::Failed | Delay::Refused(_) | Delay::NoTaker | Delay::Moved | Delay::Unjudged => item.attempts,
    }
}

/// Whether the API server refuses the object itself.
fn is_refused(place: &ItemState) -> bool {
    match place {
        ItemState::Behind(blocker) | ItemState::Backoff { why: Delay::Refused(blocker), .. } => {
            matches!(blocker, Blocker::Webhook { .. })
        }
        ItemState::Ready
        | ItemState::Observed
        | ItemState::Held(_)
        | ItemState::Backoff { .. }
        | ItemState::Leased(_) => false,
    }
}
