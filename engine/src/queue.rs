//! What is decided and not yet done: one item per target uid, in fair order, each failure with its own way of waiting.

use crate::hold::{self, Hold, Holds};
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
mod invariants;
mod lanes;
#[cfg(test)]
mod tests;

pub(crate) use blocked::{Blocker, Obstacle, PROBE_EVERY, Row};

/// Entries of the lanes that may be out of date, beyond one per item.
const LANES_SPARE: usize = 1024;

/// Where an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    /// Decided, but never to be granted: the mode is observe.
    Observed,
    Held(Hold),
    Backoff {
        until: Time,
        why: Delay,
    },
    Behind(Blocker),
    Leased(LeaseId),
}

/// Why an item waits for a moment although nothing holds it and it stands behind nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Its last attempt failed; [`Item::trouble`] says how.
    Failed,
    /// This refuses the item, although it let others pass.
    Refused(Blocker),
    /// No executor takes such work.
    NoTaker,
    /// The object has changed since it was refused.
    Moved,
    /// It was carried out a moment ago, and has been undone so often in a row.
    Undone { times: u32 },
}

/// How the last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) outcome: Outcome,
    /// What the API server or the executor said, cut to [`TROUBLE_MAX_BYTES`].
    pub(crate) message: Box<str>,
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let colon = if self.message.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.outcome.as_str(), self.message)
    }
}

/// Longest message of a failed attempt that is kept.
const TROUBLE_MAX_BYTES: usize = 200;

/// What a decision asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) target: ObjectRef,
    pub(crate) action: Action,
    pub(crate) preconditions: Preconditions,
    pub(crate) read_first: bool,
    /// It deletes its target, or parts it from an owner that orphans it: what a pause is about.
    pub(crate) destroys: bool,
}

impl Draft {
    /// Where it destroys something that a pause may keep.
    pub(crate) fn destroys_at(&self) -> Option<hold::Place> {
        let target = &self.target;
        let counts = self.destroys && !hold::is_exempt(&target.group, &target.resource);
        counts.then(|| hold::Place { collection: target.group_resource(), namespace: target.namespace.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: u64,
    pub(crate) draft: Draft,
    /// Where the cascade began that this is part of, as it was known when the item came.
    root: Option<Uid>,
    pub(crate) generation: u64,
    pub(crate) place: Place,
    pub(crate) decided: Time,
    /// Deliveries that were started.
    pub(crate) attempts: u32,
    /// In a row, of the kind that waits longer each time.
    pub(crate) failures: u32,
    /// In a row, refused as invalid.
    pub(crate) invalid: u32,
    /// An attempt may have landed without an answer.
    pub(crate) ambiguous: bool,
    /// Since it was leased, the decision was taken back or replaced.
    pub(crate) overtaken: bool,
    /// An event of this term tells of the decision.
    pub(crate) told: bool,
    /// It was told that a pause holds it.
    pub(crate) told_held: bool,
    pub(crate) trouble: Option<Box<Trouble>>,
    /// The blocker that refused it last.
    met: Option<Blocker>,
    /// What refused it last has let others pass since: another refusal is for this item alone.
    apart: bool,
}

impl Item {
    /// Keeps how an attempt failed.
    pub(crate) fn note_trouble(&mut self, outcome: Outcome, message: &str) {
        let message = clip(message, TROUBLE_MAX_BYTES).into();
        self.trouble = Some(Box::new(Trouble { outcome, message }));
    }

    /// The blockers that this item would meet, if there are any of these names.
    fn blockers(&self) -> impl Iterator<Item = Blocker> {
        let target = &self.draft.target;
        let (collection, namespace, action) =
            (target.group_resource(), target.namespace.clone(), self.draft.action.kind());
        let forbidden = Blocker::Forbidden { collection: collection.clone(), namespace, action };
        [forbidden, Blocker::Throttled { collection }].into_iter()
    }

    /// A pause holds it, whose name is known.
    fn is_paused(&self) -> bool {
        matches!(self.place, Place::Held(Hold::Pause(_)))
    }

    fn lane(&self) -> Name {
        let target = &self.draft.target;
        if target.namespace.is_empty() { target.resource.clone() } else { target.namespace.clone() }
    }
}

/// What became of a decision given to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    New,
    /// A decision that was waiting was replaced.
    Replaced,
    /// Nothing new, or only a newer version of the same facts.
    Same,
    /// Only a newer version of the same facts, but what refuses this object may see it differently now.
    Moved,
    /// An older decision is being carried out under this lease.
    Leased(LeaseId),
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Boxed: entries move when a tree of this size grows, and an item is large.
    items: BTreeMap<Uid, Box<Item>>,
    by_id: BTreeMap<u64, Uid>,
    /// Ready uids; may name items that are not ready any more.
    lanes: Lanes,
    blockers: Blockers,
    pub(crate) holds: Holds,
    /// Held uids by what holds them.
    held: BTreeMap<Hold, BTreeSet<Uid>>,
    /// Items that wait for another try of their own, by how often they were tried.
    troubled: BTreeSet<(u32, Uid)>,
    /// Items that a pause holds now and did not before, or the other way round. Some may be gone, or be as they were again.
    held_news: BTreeSet<Uid>,
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

    /// Items in backoff or behind a blocker.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Held items, in all.
    pub(crate) fn held(&self) -> usize {
        self.held.values().map(BTreeSet::len).sum()
    }

    /// Whether anything holds this item now, although it is ready.
    pub(crate) fn is_held(&self, uid: &Uid) -> bool {
        self.items.get(uid).is_some_and(|item| item.place == Place::Ready && hold_on(&self.holds, item).is_some())
    }

    /// What this holds, by uid.
    pub(crate) fn held_by(&self, hold: &Hold) -> impl ExactSizeIterator<Item = &Uid> {
        const NONE: &BTreeSet<Uid> = &BTreeSet::new();
        self.held.get(hold).unwrap_or(NONE).iter()
    }

    /// The next item of which it is to be told whether a pause holds it; with the pause that does.
    pub(crate) fn next_held_news(&mut self) -> Option<(&Item, Option<Name>)> {
        loop {
            let uid = self.held_news.pop_first()?;
            let Some(item) = self.items.get_mut(&uid).filter(|item| item.told_held != item.is_paused()) else {
                continue;
            };
            item.told_held = !item.told_held;
            let pause = match &item.place {
                Place::Held(Hold::Pause(name)) => Some(name.clone()),
                Place::Held(Hold::Unknown | Hold::TooMany)
                | Place::Ready
                | Place::Observed
                | Place::Backoff { .. }
                | Place::Behind(_)
                | Place::Leased(_) => None,
            };
            return self.items.get(&uid).map(|item| (item.as_ref(), pause));
        }
    }

    /// A term begins, whose log has told of nothing yet.
    pub(crate) fn forget_told(&mut self) {
        self.held_news = self.items.iter().filter(|(_, item)| item.is_paused()).map(|(uid, _)| uid.clone()).collect();
        self.items.values_mut().for_each(|item| (item.told, item.told_held) = (false, false));
    }

    /// Items that wait for another try of their own, those that were tried most often first.
    pub(crate) fn troubled(&self) -> impl Iterator<Item = &Item> {
        self.troubled.iter().rev().filter_map(|(_, uid)| self.get(uid))
    }

    pub(crate) fn troubled_count(&self) -> usize {
        self.troubled.len()
    }

    /// How much waits where, and for how long.
    pub(crate) fn waits(&self, now: Time) -> [Waits; Waiting::ALL.len()] {
        self.ages.of(now)
    }

    /// Takes a decision, with where its cascade began. `observe` keeps it from ever being granted.
    pub(crate) fn put(&mut self, now: Time, draft: Draft, root: Option<Uid>, observe: bool) -> Put {
        let uid = draft.target.uid.clone();
        let Some(item) = self.items.get_mut(&uid) else {
            self.last_id += 1;
            let id = self.last_id;
            let place = if observe { Place::Observed } else { Place::Backoff { until: now, why: Delay::Failed } };
            let item = Item {
                id,
                draft,
                root,
                generation: 1,
                place,
                decided: now,
                attempts: 0,
                failures: 0,
                invalid: 0,
                ambiguous: false,
                overtaken: false,
                told: false,
                told_held: false,
                trouble: None,
                met: None,
                apart: false,
            };
            self.waiting += usize::from(!observe);
            self.by_id.insert(id, uid.clone());
            self.ages.enter(now, &item.place);
            self.items.insert(uid.clone(), Box::new(item));
            if !observe {
                self.make_ready(&uid);
            }
            return Put::New;
        };
        if let Place::Leased(lease) = item.place {
            item.overtaken = item.draft != draft;
            return if item.overtaken { Put::Leased(lease) } else { Put::Same };
        }
        let same = item.draft.action == draft.action
            && item.draft.preconditions.facts_digest == draft.preconditions.facts_digest;
        let moved = item.draft.preconditions != draft.preconditions;
        item.draft = draft;
        // What was about to be granted, or was held, may be the other now.
        if matches!(item.place, Place::Ready | Place::Held(_)) && hold_on(&self.holds, item) != held_place(item) {
            self.make_ready(&uid);
        }
        let Some(item) = self.items.get_mut(&uid) else { return Put::Same };
        if same {
            return if moved && is_refused(&item.place) { Put::Moved } else { Put::Same };
        }
        item.generation += 1;
        item.told = false;
        item.failures = 0;
        item.invalid = 0;
        item.trouble = None;
        item.apart = false;
        let looked_at = |blocker: &Blocker| matches!(blocker, Blocker::Webhook { .. } | Blocker::InDoubt { .. });
        if matches!(&item.place, Place::Backoff { .. }) || matches!(&item.place, Place::Behind(at) if looked_at(at)) {
            self.make_ready(&uid);
        }
        Put::Replaced
    }

    /// Takes a decision back. A leased item stays until its lease ends; its lease is given. `Ok` gives the item that was dropped.
    pub(crate) fn withdraw(&mut self, uid: &Uid) -> Result<Option<Item>, LeaseId> {
        match self.items.get_mut(uid) {
            None => Ok(None),
            Some(item) => {
                if let Place::Leased(lease) = item.place {
                    item.overtaken = true;
                    return Err(lease);
                }
                Ok(self.remove(uid))
            }
        }
    }

    /// Drops an item wherever it is.
    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<Item> {
        self.leave_place(uid);
        self.blockers.is_no_probe(uid);
        self.blockers.released.remove(uid);
        self.held_news.remove(uid);
        let item = self.items.remove(uid)?;
        self.by_id.remove(&item.id);
        self.ages.leave(item.decided, &item.place);
        self.sweep_lanes();
        Some(*item)
    }

    /// Moves an item to where it waits, or makes it ready.
    pub(crate) fn place(&mut self, uid: &Uid, place: Place) {
        if !self.items.contains_key(uid) {
            return;
        }
        match place {
            Place::Ready => self.make_ready(uid),
            // Held or not is asked first, so that nothing held stands where others wait for its try.
            Place::Behind(_) if self.items.get(uid).is_some_and(|item| hold_on(&self.holds, item).is_some()) => {
                self.make_ready(uid);
            }
            Place::Observed | Place::Held(_) | Place::Backoff { .. } | Place::Behind(_) | Place::Leased(_) => {
                self.leave_place(uid);
                self.enter_place(uid, place);
            }
        }
    }

    /// Ready, unless something holds this item, or a blocker that it would meet is known.
    pub(crate) fn make_ready(&mut self, uid: &Uid) {
        let Some(item) = self.items.get(uid) else { return };
        let hold = hold_on(&self.holds, item);
        let known = self.met_by(item);
        self.leave_place(uid);
        match (hold, known) {
            (Some(hold), _) => self.enter_place(uid, Place::Held(hold)),
            (None, Some(blocker)) => self.enter_place(uid, Place::Behind(blocker)),
            (None, None) => self.enter_place(uid, Place::Ready),
        }
    }

    /// Something holds more than before: what may not be granted any more becomes held. Also behind a blocker, where others must not
    /// wait for the try of an item that may not try.
    pub(crate) fn hold_ready(&mut self) {
        let holds = |item: &&Item| {
            matches!(item.place, Place::Ready | Place::Behind(_)) && hold_on(&self.holds, item).is_some()
        };
        let uids: Vec<Uid> =
            self.items.values().map(Box::as_ref).filter(holds).map(|item| item.draft.target.uid.clone()).collect();
        for uid in uids {
            self.make_ready(&uid);
        }
    }

    /// This holds less than before, or nothing: what it held is looked at anew.
    pub(crate) fn unhold(&mut self, hold: &Hold) {
        let Some(uids) = self.held.remove(hold) else { return };
        for uid in uids {
            self.make_ready(&uid);
        }
    }

    fn met_by(&self, item: &Item) -> Option<Blocker> {
        if self.blockers.is_empty() {
            return None;
        }
        item.blockers().find(|blocker| self.blockers.knows(blocker))
    }

    /// Back from somebody who did not try: at once for the next one. The probe of a blocker goes on being that.
    pub(crate) fn give_back(&mut self, uid: &Uid) {
        let held = self.items.get(uid).is_some_and(|item| hold_on(&self.holds, item).is_some());
        if self.blockers.is_probe(uid) && !held {
            self.leave_place(uid);
            return self.enter_place(uid, Place::Ready);
        }
        self.make_ready(uid);
    }

    fn leave_place(&mut self, uid: &Uid) {
        let Some(item) = self.items.get(uid) else { return };
        match &item.place {
            // The lanes are cleaned when their turn comes.
            Place::Ready | Place::Observed => {}
            Place::Held(hold) => {
                if let Some(held) = self.held.get_mut(hold) {
                    held.remove(uid);
                    if held.is_empty() {
                        self.held.remove(hold);
                    }
                }
            }
            Place::Backoff { why, .. } => {
                self.waiting -= 1;
                self.troubled.remove(&(tries(item, why), uid.clone()));
                if let Delay::Refused(blocker) = why {
                    self.blockers.joins_others(blocker, uid);
                }
            }
            Place::Leased(_) => self.leased -= 1,
            Place::Behind(blocker) => {
                self.waiting -= 1;
                self.blockers.leave(blocker, uid);
            }
        }
    }

    fn enter_place(&mut self, uid: &Uid, place: Place) {
        let Some(item) = self.items.get_mut(uid) else { return };
        self.blockers.released.remove(uid);
        let lane = item.lane();
        self.ages.leave(item.decided, &item.place);
        self.ages.enter(item.decided, &place);
        item.place = place.clone();
        if item.told_held != item.is_paused() {
            self.held_news.insert(uid.clone());
        }
        match place {
            Place::Observed => {}
            Place::Ready => {
                self.lanes.push(&lane, &item.root, uid.clone());
                self.sweep_lanes();
            }
            Place::Held(hold) => {
                // The next of those it tried for has its turn.
                self.blockers.is_no_probe(uid);
                self.held.entry(hold).or_default().insert(uid.clone());
            }
            Place::Backoff { why, .. } => {
                self.waiting += 1;
                let tries = tries(item, &why);
                if tries > 0 {
                    self.troubled.insert((tries, uid.clone()));
                }
                if let Delay::Refused(blocker) = why {
                    self.blockers.stands_alone(blocker, uid.clone());
                }
            }
            Place::Leased(_) => self.leased += 1,
            Place::Behind(blocker) => {
                self.waiting += 1;
                self.blockers.enter(&blocker, lane, uid.clone());
            }
        }
    }

    /// Takes out of the lanes what is not ready any more: where nothing is granted, no lane ever has its turn.
    fn sweep_lanes(&mut self) {
        if self.lanes.len() <= LANES_SPARE + 2 * self.items.len() {
            return;
        }
        let items = &self.items;
        let mut seen = BTreeSet::new();
        let is_ready = |uid: &Uid| items.get(uid).is_some_and(|item| item.place == Place::Ready);
        self.lanes.retain(|uid| is_ready(uid) && seen.insert(uid.clone()));
    }

    /// The next ready item in turn. It stays ready until it is placed elsewhere, but is not given again.
    pub(crate) fn pop(&mut self) -> Option<Uid> {
        let mut lanes = core::mem::take(&mut self.lanes);
        let mut blocked = Vec::new();
        let next = lanes.pop(|uid| {
            let Some(item) = self.items.get(uid).filter(|item| item.place == Place::Ready) else { return false };
            // It was ready before anybody met what stands in its way.
            let blocker = self.met_by(item).filter(|_| !self.blockers.may_pass(uid));
            let passes = blocker.is_none();
            blocked.extend(blocker.map(|blocker| (uid.clone(), blocker)));
            passes
        });
        self.lanes = lanes;
        for (uid, blocker) in blocked {
            // A lane may name an item twice: it was ready before, and became so again.
            if self.items.get(&uid).is_some_and(|item| item.place == Place::Ready) {
                self.enter_place(&uid, Place::Behind(blocker));
            }
        }
        next
    }

    /// Whether `pop` may give anything.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Ready after what it stood behind has gone with all its notes.
    fn wake(&mut self, uid: &Uid) {
        self.waiting -= 1;
        if let Some(item) = self.items.get_mut(uid) {
            self.ages.leave(item.decided, &item.place);
            item.place = Place::Observed;
            self.ages.enter(item.decided, &item.place);
        }
        self.make_ready(uid);
    }

    /// The uids with an item that come after this one, or all, in order.
    pub(crate) fn uids_after(&self, after: Option<&Uid>) -> impl Iterator<Item = &Uid> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.items.range((start, Bound::Unbounded)).map(|(uid, _)| uid)
    }

    /// Every uid with an item, in order.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.items.keys()
    }
}

/// How often an item was tried that waits so.
fn tries(item: &Item, why: &Delay) -> u32 {
    match why {
        Delay::Undone { times } => item.attempts.max(*times),
        Delay::Failed | Delay::Refused(_) | Delay::NoTaker | Delay::Moved => item.attempts,
    }
}

/// Whether something that looks at the object itself refuses it.
fn is_refused(place: &Place) -> bool {
    match place {
        Place::Behind(blocker) | Place::Backoff { why: Delay::Refused(blocker), .. } => {
            matches!(blocker, Blocker::Webhook { .. })
        }
        Place::Ready | Place::Observed | Place::Held(_) | Place::Backoff { .. } | Place::Leased(_) => false,
    }
}

fn hold_on(holds: &Holds, item: &Item) -> Option<Hold> {
    let target = &item.draft.target;
    if item.draft.destroys { holds.find(&target.group, &target.resource, &target.namespace) } else { None }
}

/// What the item's place says that it is held by.
fn held_place(item: &Item) -> Option<Hold> {
    match &item.place {
        Place::Held(hold) => Some(hold.clone()),
        Place::Ready | Place::Observed | Place::Backoff { .. } | Place::Behind(_) | Place::Leased(_) => None,
    }
}
