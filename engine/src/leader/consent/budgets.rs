//! Budgets: how many deletions each budget has seen in its window.
//!
//! A deletion counts when its lease is granted, and for as long as its write may take effect; then when an executor
//! reports that the deletion was carried out, or when the collection shows that an object with an open decision went.
//! Standbys see only the last, and only of decisions that need no answer of a question. So a replica reads the window
//! of the earlier leader in the status of the budget when it first sees the budget, and when it begins to lead.

use crate::guard::{Budget, GuardId, Limit, OnExceeded, Recorded, Spending};
use crate::object::{GroupResource, Uid};
use crate::plan;
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// The number of parts of a window. A deletion leaves the window with its part.
const PARTS: u32 = 60;

/// Maximum number of entries about one window that readers get. The newest ones remain.
const SPENDINGS_MAX: usize = 600;

/// Maximum of a recorded count, far above all true ones: the sum of a million of them does not overflow.
const RECORDED_MAX: u64 = 1 << 40;

/// The windows of all budgets.
#[derive(Debug, Default)]
pub(super) struct Budgets(BTreeMap<GuardId, Spent>);

/// The deletions of one budget.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// The oldest first.
    parts: VecDeque<Part>,
    /// The targets of leases.
    leased: BTreeMap<Uid, GroupResource>,
    /// The value of the field when the window last began.
    count_from: Duration,
    /// An event has reported that the budget is exhausted.
    pub(super) exceeded: bool,
}

/// The deletions of one part of a window.
#[derive(Debug)]
struct Part {
    /// When it began, since 1970.
    since: Duration,
    /// When the next part may begin.
    open_until: Time,
    /// When it leaves the window.
    until: Time,
    counts: BTreeMap<GroupResource, u64>,
}

impl Budgets {
    pub(super) fn get(&self, id: &GuardId) -> Option<&Spent> {
        self.0.get(id)
    }

    /// Returns the window of a budget as it is now.
    pub(super) fn at(&mut self, now: Time, id: &GuardId, budget: &Budget) -> &mut Spent {
        let spent = self.0.entry(id.clone()).or_default();
        if budget.count_from > spent.count_from {
            // A person has approved what follows. An earlier time approves nothing.
            *spent =
                Spent { count_from: budget.count_from, leased: core::mem::take(&mut spent.leased), ..Spent::default() };
        }
        spent.trim(now);
        spent
    }

    /// Takes over the window that an earlier leader has recorded. Deletions that this replica has counted itself do not
    /// count twice. `calendar` is the present time since 1970; zero if it is unknown, and then the recorded deletions
    /// count as new.
    pub(super) fn recall(
        &mut self,
        (now, calendar): (Time, Duration),
        id: &GuardId,
        budget: &Budget,
        recorded: &Recorded,
    ) {
        let spent = self.at(now, id, budget);
        if budget.on_exceeded == OnExceeded::Approve {
            spent.exceeded |= recorded.exceeded_from.is_some_and(|from| budget.count_from <= from);
        }
        let until = |since: Duration| {
            let age = if calendar.is_zero() { Duration::ZERO } else { calendar.saturating_sub(since) };
            now + part(budget.window).saturating_add(budget.window).saturating_sub(age)
        };
        let counts = |of: &&Spending| of.since >= budget.count_from && until(of.since) > now;
        let mut deletions: Vec<&Spending> = recorded.deletions.iter().filter(counts).collect();
        deletions.sort_by_key(|of| of.since);
        let mut missing: BTreeMap<&GroupResource, u64> = BTreeMap::new();
        for Spending { collection, count, .. } in &deletions {
            *missing.entry(collection).or_default() += count.min(&RECORDED_MAX);
        }
        for (collection, missing) in &mut missing {
            *missing = missing.saturating_sub(spent.gone(collection));
        }
        // The newest ones are missing: they stay in the window for longest.
        for Spending { since, collection, count } in deletions.into_iter().rev() {
            let Some(missing) = missing.get_mut(collection).filter(|missing| **missing > 0) else { continue };
            let count = (*missing).min(*count);
            *missing -= count;
            let counts = BTreeMap::from([(collection.clone(), count)]);
            spent.parts.push_back(Part { since: *since, open_until: now, until: until(*since), counts });
        }
        spent.parts.make_contiguous().sort_by_key(|part| part.until);
    }

    /// The window of a budget as it is now, for a plan.
    pub(super) fn window(&self, now: Time, id: &GuardId, budget: &Budget) -> plan::Window {
        let Some(spent) = self.0.get(id) else {
            return plan::Window { limit: Some(budget.limit), spent: BTreeMap::new() };
        };
        let waits = budget.on_exceeded == OnExceeded::Approve && spent.exceeded;
        let is_closed = waits && budget.count_from <= spent.count_from;
        plan::Window { limit: (!is_closed).then_some(budget.limit), spent: spent.spent(now, budget) }
    }

    /// Returns the `countFrom` of a window that was exceeded.
    pub(super) fn exceeded_from(&self, id: &GuardId) -> Option<Duration> {
        self.get(id).filter(|spent| spent.exceeded).map(|spent| spent.count_from)
    }

    /// Forgets budgets that do not exist any more.
    pub(super) fn retain(&mut self, exists: impl Fn(&GuardId) -> bool) {
        self.0.retain(|id, _| exists(id));
    }

    /// Ends the lease of a target in all budgets. Returns true if one of them has room again.
    pub(super) fn release(&mut self, uid: &Uid) -> bool {
        self.0.values_mut().fold(false, |any, spent| spent.leased.remove(uid).is_some() | any)
    }
}

impl Spent {
    /// Forgets what has left the window.
    pub(super) fn trim(&mut self, now: Time) {
        while self.parts.front().is_some_and(|part| part.until <= now) {
            self.parts.pop_front();
        }
    }

    /// Whether one more deletion of this collection is within the budget. `size` is the number of objects in the
    /// collection.
    pub(super) fn has_room(&self, budget: &Budget, collection: &GroupResource, size: u64) -> bool {
        let room = match budget.limit {
            Limit::Objects(_) => budget.limit.room(self.count(None), 0, size),
            Limit::Percent(_) => budget.limit.room(self.count(Some(collection)), self.gone(collection), size),
        };
        room > 0
    }

    /// Whether a lease of this target counts.
    pub(super) fn counts(&self, uid: &Uid) -> bool {
        self.leased.contains_key(uid)
    }

    fn gone(&self, collection: &GroupResource) -> u64 {
        self.parts.iter().filter_map(|part| part.counts.get(collection)).sum()
    }

    /// The deletions in the window that ends now, by collection.
    fn spent(&self, now: Time, budget: &Budget) -> BTreeMap<GroupResource, plan::Spent> {
        let mut spent: BTreeMap<GroupResource, plan::Spent> = BTreeMap::new();
        for of in self.leased.values() {
            spent.entry(of.clone()).or_default().leased += 1;
        }
        let is_new = budget.count_from > self.count_from;
        let counts = |part: &&Part| !is_new && part.until > now;
        for (of, count) in self.parts.iter().filter(counts).flat_map(|part| &part.counts) {
            spent.entry(of.clone()).or_default().gone += count;
        }
        spent
    }

    /// The deletions of the window, of one collection or of all.
    pub(super) fn count(&self, collection: Option<&GroupResource>) -> u64 {
        let is_it = |of: &GroupResource| collection.is_none_or(|collection| collection == of);
        let gone: u64 =
            self.parts.iter().flat_map(|part| &part.counts).filter(|(of, _)| is_it(of)).map(|(_, count)| count).sum();
        gone + self.leased.values().filter(|of| is_it(of)).count() as u64
    }

    pub(super) fn lease(&mut self, uid: &Uid, collection: GroupResource) {
        self.leased.insert(uid.clone(), collection);
    }

    /// Counts a deletion that was carried out. `calendar` is the time since 1970, for people and for the next leader.
    pub(super) fn spend(
        &mut self,
        (now, calendar): (Time, Duration),
        window: Duration,
        uid: &Uid,
        collection: GroupResource,
    ) {
        self.leased.remove(uid);
        match self.parts.back_mut().filter(|part| now < part.open_until) {
            Some(part) => *part.counts.entry(collection).or_default() += 1,
            None => self.parts.push_back(Part {
                since: calendar,
                open_until: now + part(window),
                until: now + part(window).saturating_add(window),
                counts: BTreeMap::from([(collection, 1)]),
            }),
        }
    }

    /// The time at which the oldest part leaves the window.
    pub(super) fn next(&self) -> Option<Time> {
        self.parts.front().map(|part| part.until)
    }

    /// The deletions of the window, the oldest first.
    pub(super) fn spendings(&self) -> Vec<Spending> {
        let of_part = |part: &Part| {
            let (since, counts) = (part.since, part.counts.clone());
            counts.into_iter().map(move |(collection, count)| Spending { since, collection, count })
        };
        let mut all: Vec<Spending> = self.parts.iter().flat_map(of_part).collect();
        all.drain(..all.len().saturating_sub(SPENDINGS_MAX));
        all
    }
}

fn part(window: Duration) -> Duration {
    (window / PARTS).max(Duration::from_millis(1))
}
