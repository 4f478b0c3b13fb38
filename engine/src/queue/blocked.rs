//! Blockers of many items: the items behind each, and the next one to probe.

use super::{ItemState, Queue, Trouble};
use crate::coverage::KindId;
use crate::object::{GroupResource, Name, Uid};
use crate::time::Time;
use crate::work::ActionKind;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Bound;
use core::time::Duration;

/// Interval of probes of a blocker.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Interval of probes of one row, for any number of blockers in the row.
const PROBE_ROW_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of concurrent probes of a row while probes succeed.
const PROBES_MAX: usize = 64;
/// Maximum number of items that one blocker may refuse individually. Further items share a probe.
const ALONE_MAX: usize = 1000;
/// Delay from a change of RBAC rules to a probe. The API server itself needs time to see the change.
const RULES_SETTLE: Duration = Duration::from_secs(1);

/// A cause that blocks many items. They share one probe, whose success releases them all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocker {
    /// The position of the collection is not known yet. There are no probes. The leader asks the collection instead.
    InDoubt { kind: KindId, collection: GroupResource },
    /// The executor lacks this right in this namespace.
    Forbidden { collection: GroupResource, namespace: Name, action: ActionKind },
    /// A webhook or policy refuses or fails.
    Webhook { name: String },
    /// The API server throttles. There are no probes. Items behind this blocker are released gradually.
    Throttled { collection: GroupResource },
}

/// Blockers that probably appear and vanish together, and therefore take turns at probes. A missing rule is usually
/// missing in every namespace, and thousands of namespaces must not cause thousands of probes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Forbidden { collection: GroupResource, action: ActionKind },
    Alone(Blocker),
}

impl Blocker {
    fn row(&self) -> Row {
        match self {
            Blocker::Forbidden { collection, action, .. } => {
                Row::Forbidden { collection: collection.clone(), action: *action }
            }
            Blocker::InDoubt { .. } | Blocker::Webhook { .. } | Blocker::Throttled { .. } => Row::Alone(self.clone()),
        }
    }

    /// Whether the leader probes the blockers of this row.
    fn is_probed(&self) -> bool {
        !matches!(self, Blocker::InDoubt { .. } | Blocker::Throttled { .. })
    }

    /// The word for labels.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Blocker::InDoubt { .. } => "in_doubt",
            Blocker::Forbidden { .. } => "forbidden",
            Blocker::Webhook { .. } => "webhook",
            Blocker::Throttled { .. } => "throttled",
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Forbidden { collection, namespace, action } if namespace.is_empty() => {
                write!(f, "forbidden: {} of {collection}", action.as_str())
            }
            Blocker::Forbidden { collection, namespace, action } => {
                write!(f, "forbidden: {} of {collection} in namespace {namespace}", action.as_str())
            }
            Blocker::InDoubt { collection, .. } => write!(f, "in_doubt: {collection}"),
            Blocker::Webhook { name } => write!(f, "webhook: {name}"),
            Blocker::Throttled { collection } => write!(f, "throttled: {collection}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Blocked {
    /// The lane and position of each item behind the blocker. A newer decision may concern other coordinates of the
    /// same uid.
    members: BTreeMap<Uid, (Name, u64)>,
    /// Items behind the blocker by lane, in the order of arrival, so that no namespace waits for another. A returned
    /// probe goes to the end. No lane is empty.
    lanes: BTreeMap<Name, BTreeMap<u64, Uid>>,
    last_arrival: u64,
    since: Time,
    /// The result of the last attempt that the blocker refused.
    said: Option<Box<Trouble>>,
    /// Its position in its row.
    turn: i64,
    /// The lane that was released last.
    lane: Name,
}

impl Blocked {
    fn enter(&mut self, lane: Name, uid: Uid) {
        self.leave(&uid);
        self.last_arrival += 1;
        self.members.insert(uid.clone(), (lane.clone(), self.last_arrival));
        self.lanes.entry(lane).or_default().insert(self.last_arrival, uid);
    }

    fn leave(&mut self, uid: &Uid) {
        if let Some((lane, arrival)) = self.members.remove(uid)
            && let Some(members) = self.lanes.get_mut(&lane)
        {
            members.remove(&arrival);
            if members.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// The first member of the next lane.
    fn next(&mut self) -> Option<Uid> {
        let after = self.lanes.range((Bound::Excluded(self.lane.clone()), Bound::Unbounded)).next();
        let (lane, members) = after.or(self.lanes.first_key_value())?;
        let (_, uid) = members.first_key_value()?;
        let (lane, uid) = (lane.clone(), uid.clone());
        self.lane = lane;
        Some(uid)
    }
}

#[derive(Debug)]
struct Turns {
    /// All blockers of the row; the one probed last is at the end.
    order: BTreeMap<i64, Blocker>,
    first_turn: i64,
    last_turn: i64,
    /// Blockers with a probe in progress.
    probing: BTreeMap<Blocker, Uid>,
    /// The number of concurrent probes. Each success doubles it, so that the leader quickly finds a rule that returns
    /// in all namespaces. A failure resets it to one.
    at_once: usize,
    due: Time,
}

/// A blocker, for readers.
#[derive(Debug)]
pub(crate) struct Obstacle<'a> {
    pub(crate) blocker: &'a Blocker,
    pub(crate) items: usize,
    pub(crate) since: Time,
    /// The result of the last attempt that the blocker refused.
    pub(crate) said: Option<&'a Trouble>,
    /// The time of the next probe of the blocker's row, and whether a probe is in progress. `None` without probes.
    pub(crate) due: Option<Time>,
    pub(crate) probing: bool,
}

#[derive(Debug, Default)]
pub(super) struct Blockers {
    blocked: BTreeMap<Blocker, Blocked>,
    rows: BTreeMap<Row, Turns>,
    /// Items in progress, with the blocker that they probe.
    probes: BTreeMap<Uid, Blocker>,
    /// Items released from a blocker that still exists.
    pub(super) released: BTreeSet<Uid>,
    /// Items that the blocker refuses individually while others pass. No set is empty.
    alone: BTreeMap<Blocker, BTreeSet<Uid>>,
}

impl Blockers {
    pub(super) fn is_empty(&self) -> bool {
        self.blocked.is_empty()
    }

    /// Whether this item may be attempted although its blocker is known.
    pub(super) fn may_pass(&self, uid: &Uid) -> bool {
        self.probes.contains_key(uid) || self.released.contains(uid)
    }

    pub(super) fn knows(&self, blocker: &Blocker) -> bool {
        self.blocked.contains_key(blocker)
    }

    /// The number of items behind any blocker.
    pub(super) fn members(&self) -> usize {
        self.blocked.values().map(|blocked| blocked.members.len()).sum()
    }

    pub(super) fn leave(&mut self, blocker: &Blocker, uid: &Uid) {
        if let Some(blocked) = self.blocked.get_mut(blocker) {
            blocked.leave(uid);
        }
    }

    /// The number of items that a blocker refuses individually.
    pub(super) fn loners(&self) -> usize {
        self.alone.values().map(BTreeSet::len).sum()
    }

    pub(super) fn stands_alone(&mut self, blocker: Blocker, uid: Uid) {
        self.alone.entry(blocker).or_default().insert(uid);
    }

    pub(super) fn joins_others(&mut self, blocker: &Blocker, uid: &Uid) {
        if let Some(alone) = self.alone.get_mut(blocker) {
            alone.remove(uid);
            if alone.is_empty() {
                self.alone.remove(blocker);
            }
        }
    }

    /// The blocker must be known.
    pub(super) fn enter(&mut self, blocker: &Blocker, lane: Name, uid: Uid) {
        self.is_no_probe(&uid);
        if let Some(blocked) = self.blocked.get_mut(blocker) {
            blocked.enter(lane, uid);
        }
    }

    pub(super) fn is_probe(&self, uid: &Uid) -> bool {
        self.probes.contains_key(uid)
    }

    /// Records that the item is no longer a probe. Returns the blocker that it probed.
    pub(super) fn is_no_probe(&mut self, uid: &Uid) -> Option<Blocker> {
        let blocker = self.probes.remove(uid)?;
        if let Some(turns) = self.rows.get_mut(&blocker.row()) {
            turns.probing.remove(&blocker);
        }
        Some(blocker)
    }

    fn forget(&mut self, blocker: &Blocker) -> Option<Blocked> {
        let blocked = self.blocked.remove(blocker)?;
        let row = blocker.row();
        if let Some(turns) = self.rows.get_mut(&row) {
            turns.order.remove(&blocked.turn);
            if let Some(probe) = turns.probing.remove(blocker) {
                self.probes.remove(&probe);
            }
            if turns.order.is_empty() {
                self.rows.remove(&row);
            }
        }
        Some(blocked)
    }

    /// Puts the blocker at the end of its row. True if the row is new.
    fn line_up(&mut self, now: Time, blocker: Blocker, due: Time) -> bool {
        let row = blocker.row();
        let new = !self.rows.contains_key(&row);
        let turns = self.rows.entry(row).or_insert_with(|| Turns {
            order: BTreeMap::new(),
            first_turn: 0,
            last_turn: 0,
            probing: BTreeMap::new(),
            at_once: 1,
            due,
        });
        turns.last_turn += 1;
        let turn = turns.last_turn;
        turns.order.insert(turn, blocker.clone());
        let (members, lanes) = (BTreeMap::new(), BTreeMap::new());
        let blocked = Blocked { members, lanes, last_arrival: 0, since: now, said: None, turn, lane: Name::default() };
        self.blocked.insert(blocker, blocked);
        new
    }
}

impl Queue {
    /// Whether this item is refused individually, because others passed the blocker after the item's first refusal. It
    /// then waits alone, so that no other item waits behind the same cause. `looks` means that the blocker decides by
    /// the object.
    pub(crate) fn is_refused_alone(&mut self, uid: &Uid, blocker: &Blocker, looks: bool) -> bool {
        let room = self.blockers.alone.get(blocker).is_none_or(|alone| alone.len() < ALONE_MAX);
        let Some(item) = self.get_mut(uid) else { return false };
        // The failures of a webhook are random, and do not depend on the object.
        item.apart &= looks || !matches!(blocker, Blocker::Webhook { .. });
        room && item.apart && item.met.as_ref() == Some(blocker)
    }

    /// Puts an item behind a blocker. Returns the row if its first probe needs a timer, for `now + wait`.
    pub(crate) fn block(&mut self, now: Time, uid: &Uid, blocker: Blocker, wait: Duration) -> Option<Row> {
        if self.blockers.is_no_probe(uid).is_some_and(|tried| tried == blocker)
            && let Some(turns) = self.blockers.rows.get_mut(&blocker.row())
        {
            turns.at_once = 1;
        }
        // Throttled items never pass the blocker by themselves. The blocker releases them.
        if let Some(item) = self.get_mut(uid).filter(|_| !matches!(blocker, Blocker::Throttled { .. })) {
            item.met = Some(blocker.clone());
            item.apart = false;
        }
        let row = blocker.row();
        let new = !self.blockers.knows(&blocker) && self.blockers.line_up(now, blocker.clone(), now + wait);
        let said = self.get(uid).and_then(|item| item.trouble.clone());
        if let Some(blocked) = self.blockers.blocked.get_mut(&blocker) {
            blocked.said = said;
        }
        self.place(uid, ItemState::Behind(blocker));
        new.then_some(row)
    }

    /// Whether the probe of a row is due. Only the row's own timer counts.
    pub(crate) fn is_due(&self, row: &Row, now: Time) -> bool {
        self.blockers.rows.get(row).is_some_and(|turns| turns.due <= now)
    }

    /// Probes a row whose timer is due. One item of each of the next blockers in turn becomes a probe, unless enough
    /// probes are in progress. Returns the time of the next probe, which needs a timer; `None` if the row is empty.
    pub(crate) fn probe(&mut self, row: &Row, now: Time) -> Option<Time> {
        self.drop_empty(row);
        loop {
            let turns = self.blockers.rows.get_mut(row)?;
            let free = turns.probing.len() < turns.at_once;
            let next = turns.order.iter().find(|(_, blocker)| !turns.probing.contains_key(blocker));
            let Some((turn, blocker)) = next.filter(|_| free).map(|(turn, blocker)| (*turn, blocker.clone())) else {
                let apart = PROBE_EVERY / u32::try_from(turns.order.len()).unwrap_or(u32::MAX).max(1);
                turns.due = now + apart.max(PROBE_ROW_EVERY);
                return Some(turns.due);
            };
            turns.order.remove(&turn);
            turns.last_turn += 1;
            turns.order.insert(turns.last_turn, blocker.clone());
            let last_turn = turns.last_turn;
            let blocked = self.blockers.blocked.get_mut(&blocker)?;
            blocked.turn = last_turn;
            let uid = blocked.next()?;
            self.leave_state(&uid);
            self.enter_state(&uid, ItemState::Ready);
            if let Some(turns) = self.blockers.rows.get_mut(row) {
                turns.probing.insert(blocker.clone(), uid.clone());
            }
            self.blockers.probes.insert(uid, blocker);
        }
    }

    /// Drops blockers of a row that have neither items nor a probe.
    fn drop_empty(&mut self, row: &Row) {
        let Some(turns) = self.blockers.rows.get(row) else { return };
        let empty = |blocker: &&Blocker| {
            !turns.probing.contains_key(*blocker)
                && self.blockers.blocked.get(*blocker).is_none_or(|blocked| blocked.members.is_empty())
        };
        let empty: Vec<Blocker> = turns.order.values().filter(empty).cloned().collect();
        for blocker in empty {
            self.blockers.forget(&blocker);
        }
    }

    /// Records that an attempt of this item passed every blocker except `met`. The blocker that it probed is gone, and
    /// so is the one that refused it before. That releases all items behind them. Returns the row if it has other
    /// blockers, which are then probed at once. `carried_out` means that the attempt succeeded.
    pub(crate) fn passed(&mut self, now: Time, uid: &Uid, met: Option<&Blocker>, carried_out: bool) -> Option<Row> {
        let probed = self.blockers.probes.get(uid).cloned();
        let before = self.get_mut(uid).and_then(|item| item.met.take_if(|before| carried_out && Some(&*before) != met));
        let mut hurried = None;
        let before = before.filter(|before| Some(before) != probed.as_ref());
        for blocker in [before, probed].into_iter().flatten().filter(|blocker| Some(blocker) != met) {
            self.let_others_try(&blocker);
            self.lift(&blocker);
            let row = blocker.row();
            if let Some(turns) = self.blockers.rows.get_mut(&row) {
                turns.at_once = turns.at_once.saturating_mul(2).min(PROBES_MAX);
                turns.due = now;
                hurried = Some(row);
            }
        }
        hurried
    }

    /// Releases the items behind this blocker, and those that it refuses individually, because another item passed it.
    /// A further refusal is individual.
    fn let_others_try(&mut self, blocker: &Blocker) {
        let members = self.blockers.blocked.get(blocker).into_iter().flat_map(|blocked| blocked.members.keys());
        for uid in members.cloned().collect::<Vec<_>>() {
            if let Some(item) = self.get_mut(&uid) {
                item.apart = item.met.as_ref() == Some(blocker);
            }
        }
        for uid in self.blockers.alone.get(blocker).into_iter().flatten().cloned().collect::<Vec<_>>() {
            self.make_ready(&uid);
        }
    }

    /// Releases everything behind a blocker.
    pub(crate) fn lift(&mut self, blocker: &Blocker) {
        let Some(blocked) = self.blockers.forget(blocker) else { return };
        for uid in blocked.members.into_keys() {
            self.wake(&uid);
        }
    }

    /// Releases up to `most` items behind a blocker, one lane after the other. The blocker remains.
    pub(crate) fn release(&mut self, blocker: &Blocker, most: usize) {
        for _ in 0..most {
            let Some(blocked) = self.blockers.blocked.get_mut(blocker) else { return };
            let Some(uid) = blocked.next() else { return };
            self.leave_state(&uid);
            self.enter_state(&uid, ItemState::Ready);
            self.blockers.released.insert(uid);
        }
    }

    /// Adds a blocker that no item has met yet.
    pub(crate) fn raise(&mut self, now: Time, blocker: Blocker) {
        if !self.blockers.knows(&blocker) {
            self.blockers.line_up(now, blocker, now);
        }
    }

    /// Collections whose position items wait for.
    pub(crate) fn doubts(&self) -> Vec<(KindId, Blocker)> {
        // They are first in the order.
        let doubt = |blocker: &Blocker| {
            let Blocker::InDoubt { kind, .. } = blocker else { return None };
            Some((*kind, blocker.clone()))
        };
        self.blockers.blocked.keys().map_while(doubt).collect()
    }

    /// The number of items behind a blocker.
    pub(crate) fn behind(&self, blocker: &Blocker) -> usize {
        self.blockers.blocked.get(blocker).map_or(0, |blocked| blocked.members.len())
    }

    /// Schedules early probes of forbidden items after a change of the RBAC rules of a namespace (`None`: of the
    /// cluster). Returns the rows with the times of their timers.
    pub(crate) fn rules_changed(&mut self, now: Time, namespace: Option<&Name>) -> Vec<(Row, Time)> {
        let due = now + RULES_SETTLE;
        let mut hurried = Vec::new();
        for (row, turns) in &mut self.blockers.rows {
            let Row::Forbidden { collection, action } = row else { continue };
            if let Some(namespace) = namespace {
                let (collection, namespace) = (collection.clone(), namespace.clone());
                let blocker = Blocker::Forbidden { collection, namespace, action: *action };
                let Some(blocked) = self.blockers.blocked.get_mut(&blocker) else { continue };
                // Moves the blocker to the front of the row.
                turns.order.remove(&blocked.turn);
                turns.first_turn -= 1;
                blocked.turn = turns.first_turn;
                turns.order.insert(blocked.turn, blocker);
            }
            if turns.due > due {
                turns.due = due;
                hurried.push((row.clone(), due));
            }
        }
        hurried
    }

    /// Whether anything is known to be forbidden.
    pub(crate) fn is_anything_forbidden(&self) -> bool {
        // Forbidden rows are first in the order.
        matches!(self.blockers.rows.first_key_value(), Some((Row::Forbidden { .. }, _)))
    }

    /// All blockers, in no particular order.
    pub(crate) fn obstacles(&self) -> impl Iterator<Item = Obstacle<'_>> {
        self.blockers.blocked.iter().map(|(blocker, blocked)| {
            let turns = self.blockers.rows.get(&blocker.row());
            Obstacle {
                blocker,
                items: blocked.members.len(),
                since: blocked.since,
                said: blocked.said.as_deref(),
                due: turns.map(|turns| turns.due).filter(|_| blocker.is_probed()),
                probing: turns.is_some_and(|turns| turns.probing.contains_key(blocker)),
            }
        })
    }
}
