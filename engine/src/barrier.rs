//! The shared barrier: whether every collection has shown what existed before an owner's deletion mark.
//!
//! One round serves all owners that asked before it began. For each collection, a consistent `limit=1` list returns the
//! position of the store. A watch that has reached this position has shown everything. A quiet watch moves only by one
//! bookmark a minute. If a watch does not reach the position soon, or cannot be trusted, consistent lists of the
//! owners' namespaces replace it for this round. Such a list counts until the watch reaches the position after all.
//!
//! A round ends with its last position. Each namespace then waits for its own lists only, so a list that hangs delays
//! no other namespace. At most [`LISTS_MAX`] lists are in flight; the others wait for them.
//!
//! ```text
//! requested  by an owner in deletion                                -> open
//! open       in a round, or with open lists                         -> passed, resting (a list failed)
//! resting    longer after each failure                              -> requested
//! ```

use crate::coverage::KindId;
use crate::object::{Name, ResourceVersion};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// How long a watch may take to reach the position of the store before the collection is listed.
const PATIENCE: Duration = Duration::from_millis(250);
/// Delay after a start or a change of history. The first lists usually end within this time.
const AFTER_RESET: Duration = Duration::from_millis(500);
/// Delay of a namespace after one of its lists failed. Each further failure doubles the delay.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// Number of times that the delay doubles.
const DOUBLINGS_MAX: u32 = 4;
/// Maximum number of lists in flight. A list can return as many objects as a collection has.
const LISTS_MAX: usize = 128;
/// Maximum number of namespaces whose last round is remembered. A forgotten namespace needs another round.
const PASSED_MAX: usize = 4096;

/// The stage of one collection in the round.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// The position of the store was requested.
    Asked,
    /// The position of the store, and how long the watch may take to reach it.
    Behind { position: ResourceVersion, until: Time },
}

/// A request that the barrier needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Position(KindId),
    List(List),
}

/// A consistent list of a collection in a namespace, for one round. The oldest round comes first, namespace by
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct List {
    round: u64,
    /// The empty namespace stands for all.
    pub(crate) namespace: Name,
    pub(crate) kind: KindId,
}

/// The round whose positions are not all reached.
#[derive(Debug)]
struct Round {
    scopes: BTreeSet<Name>,
    stages: BTreeMap<KindId, Stage>,
    /// Dependents of a namespaced owner are in the owner's namespace, so these kinds count for other owners only.
    cluster_scoped: BTreeSet<KindId>,
}

/// The state of a namespace that has not passed its round.
#[derive(Debug)]
enum Scope {
    Open {
        round: u64,
        /// The collections that are being listed, with the position at which the watch replaces the list.
        lists: BTreeMap<KindId, Option<ResourceVersion>>,
        failed: bool,
        /// An owner that asked later needs a later round.
        again: bool,
    },
    Resting {
        until: Time,
    },
}

/// The failed lists of a namespace since it last passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) since: Time,
    /// The collection whose list failed last, and the reason.
    pub(crate) kind: KindId,
    pub(crate) why: String,
    times: u32,
}

/// The namespaces whose owners have news.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The namespaces that have passed, by the number of their round.
    pub(crate) passed: BTreeMap<u64, BTreeSet<Name>>,
    /// A namespace has a failed list, and had none before.
    pub(crate) failed: bool,
}

/// Rounds are numbered from 1. A request has passed once a round with its number or a higher one has succeeded for its
/// namespace.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    begun: u64,
    round: Option<Round>,
    /// Namespaces of owners that wait for the next round. None of them is in `scopes`.
    next: BTreeSet<Name>,
    scopes: BTreeMap<Name, Scope>,
    /// Lists that wait for a place in flight.
    waiting: BTreeSet<List>,
    in_flight: BTreeSet<List>,
    /// The lowest position at which the watch of a collection replaces a list.
    replaced_at: BTreeMap<KindId, ResourceVersion>,
    failing: BTreeMap<Name, Failing>,
    /// A namespace may have passed, or may rest.
    changed: bool,
    /// When the next namespace has rested.
    rested: Option<Time>,
    /// The last successful round for each namespace.
    passed: BTreeMap<Name, u64>,
    not_before: Time,
}

impl Barrier {
    /// The number of the next round.
    pub(crate) fn next_round(&self) -> u64 {
        self.begun + 1
    }

    /// Requests proof that every collection has shown what exists now for owners of `namespace` (empty:
    /// cluster-scoped). Returns the number of the first round that can give the proof.
    pub(crate) fn request(&mut self, namespace: &Name) -> u64 {
        match self.scopes.get_mut(namespace) {
            Some(Scope::Open { again, .. }) => *again = true,
            Some(Scope::Resting { .. }) => {}
            None => {
                self.next.insert(namespace.clone());
            }
        }
        self.begun + 1
    }

    /// Whether round `number` or a higher one has succeeded for `namespace`. Repeats a request that has neither passed
    /// nor is in progress.
    pub(crate) fn has_passed(&mut self, namespace: &Name, number: u64) -> bool {
        if self.passed.get(namespace).is_some_and(|&passed| passed >= number) {
            return true;
        }
        let is_open = |scope: &Scope| matches!(scope, Scope::Open { round, .. } if *round >= number);
        if !self.scopes.get(namespace).is_some_and(is_open) {
            self.request(namespace);
        }
        false
    }

    /// Whether `begin` would start a round.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.round.is_none() && !self.next.is_empty() && now >= self.not_before
    }

    /// Starts the next round if one is requested and none is in progress. `kinds` are the watched collections. For
    /// each, the flags say whether it is namespaced, and whether its watch can be trusted.
    pub(crate) fn begin(&mut self, now: Time, kinds: impl Iterator<Item = (KindId, bool, bool)>) -> Vec<Wanted> {
        if !self.is_due(now) {
            return Vec::new();
        }
        self.begun += 1;
        self.changed = true;
        let scopes = mem::take(&mut self.next);
        for scope in &scopes {
            let open = Scope::Open { round: self.begun, lists: BTreeMap::new(), failed: false, again: false };
            self.scopes.insert(scope.clone(), open);
        }
        let all = scopes.contains("");
        let mut round = Round { scopes, stages: BTreeMap::new(), cluster_scoped: BTreeSet::new() };
        let (mut wanted, mut unbelieved) = (Vec::new(), Vec::new());
        for (kind, namespaced, believed) in kinds.filter(|&(_, namespaced, _)| namespaced || all) {
            if !namespaced {
                round.cluster_scoped.insert(kind);
            }
            if believed {
                wanted.push(Wanted::Position(kind));
                round.stages.insert(kind, Stage::Asked);
            } else {
                unbelieved.push(kind);
            }
        }
        self.round = Some(round);
        for kind in unbelieved {
            self.list(kind, None);
        }
        wanted.extend(self.lists());
        wanted
    }

    /// When the next round may start, if one is requested and none is in progress; when a namespace has rested; or when
    /// the wait for a watch ends.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let next = match &self.round {
            None => (!self.next.is_empty()).then_some(self.not_before),
            Some(round) => round
                .stages
                .values()
                .filter_map(|stage| match stage {
                    Stage::Behind { until, .. } => Some(*until),
                    Stage::Asked => None,
                })
                .min(),
        };
        next.into_iter().chain(self.rested).min()
    }

    /// Takes the position of the store; `None` if the request failed. `reached` says that the watch is already there,
    /// or that the collection is empty.
    pub(crate) fn positioned(
        &mut self,
        now: Time,
        kind: KindId,
        position: Option<ResourceVersion>,
        reached: bool,
    ) -> Vec<Wanted> {
        let Some(round) = &mut self.round else { return Vec::new() };
        if round.stages.get(&kind) != Some(&Stage::Asked) {
            return Vec::new();
        }
        if let Some(position) = position.filter(|position| !reached && position.is_ordered()) {
            round.stages.insert(kind, Stage::Behind { position, until: now + PATIENCE });
            return Vec::new();
        }
        round.stages.remove(&kind);
        if !reached {
            self.list(kind, None);
        }
        self.lists()
    }

    /// Records that the watch of a collection has reached `position`.
    pub(crate) fn advanced(&mut self, kind: KindId, position: &ResourceVersion) {
        if let Some(round) = &mut self.round
            && let Some(Stage::Behind { position: wanted, .. }) = round.stages.get(&kind)
            && position.reached(wanted)
        {
            round.stages.remove(&kind);
        }
        if !self.replaced_at.get(&kind).is_some_and(|lowest| position.reached(lowest)) {
            return;
        }
        let mut lowest: Option<&ResourceVersion> = None;
        for scope in self.scopes.values_mut() {
            let Scope::Open { lists, .. } = scope else { continue };
            self.changed |= lists
                .extract_if(kind..=kind, |_, wanted| wanted.as_ref().is_some_and(|wanted| position.reached(wanted)))
                .next()
                .is_some();
            if let Some(Some(wanted)) = lists.get(&kind)
                && lowest.is_none_or(|lowest| wanted.is_before(lowest))
            {
                lowest = Some(wanted);
            }
        }
        match lowest.cloned() {
            Some(lowest) => self.replaced_at.insert(kind, lowest),
            None => self.replaced_at.remove(&kind),
        };
    }

    /// Ends the wait for watches that were too slow.
    pub(crate) fn tick(&mut self, now: Time) -> Vec<Wanted> {
        let Some(round) = &mut self.round else { return Vec::new() };
        let is_slow = |_: &KindId, stage: &mut Stage| matches!(stage, Stage::Behind { until, .. } if *until <= now);
        let slow: Vec<_> = round.stages.extract_if(.., is_slow).collect();
        for (kind, stage) in slow {
            if let Stage::Behind { position, .. } = stage {
                self.list(kind, Some(position));
            }
        }
        self.lists()
    }

    /// Opens the lists of a collection in the namespaces of the round. A cluster-scoped owner can have dependents in
    /// all namespaces.
    fn list(&mut self, kind: KindId, position: Option<ResourceVersion>) {
        let Some(round) = &self.round else { return };
        let cluster_scoped = round.cluster_scoped.contains(&kind);
        for namespace in round.scopes.iter().filter(|scope| !cluster_scoped || scope.is_empty()) {
            if let Some(Scope::Open { lists, .. }) = self.scopes.get_mut(namespace) {
                lists.insert(kind, position.clone());
                self.waiting.insert(List { round: self.begun, namespace: namespace.clone(), kind });
            }
        }
        if let Some(position) = position {
            self.replaced_at.entry(kind).or_insert(position);
        }
    }

    /// Returns the lists for which there are places in flight.
    fn lists(&mut self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        while self.in_flight.len() < LISTS_MAX
            && let Some(list) = self.waiting.pop_first()
        {
            // The watch can have replaced the list, and the kind can have gone.
            if self.open_list(&list).is_some() {
                self.in_flight.insert(list.clone());
                wanted.push(Wanted::List(list));
            }
        }
        wanted
    }

    /// Returns the open lists of the namespace, and whether one has failed, if they contain this list.
    fn open_list(&mut self, list: &List) -> Option<(&mut BTreeMap<KindId, Option<ResourceVersion>>, &mut bool)> {
        match self.scopes.get_mut(&list.namespace)? {
            Scope::Open { round, lists, failed, .. } => {
                (*round == list.round && lists.contains_key(&list.kind)).then_some((lists, failed))
            }
            Scope::Resting { .. } => None,
        }
    }

    /// Takes the result of a list. Returns the lists that can follow.
    pub(crate) fn listed(&mut self, now: Time, list: &List, result: Result<(), String>) -> Vec<Wanted> {
        self.in_flight.remove(list);
        if let Some((lists, failed)) = self.open_list(list) {
            lists.remove(&list.kind);
            *failed |= result.is_err();
            self.changed = true;
            if let Err(why) = result {
                let first = Failing { since: now, kind: list.kind, why: String::new(), times: 0 };
                let failing = self.failing.entry(list.namespace.clone()).or_insert(first);
                (failing.kind, failing.why) = (list.kind, why);
            }
        }
        self.lists()
    }

    /// Returns the failed lists of a namespace, if the namespace has not passed since.
    pub(crate) fn failing(&self, namespace: &Name) -> Option<&Failing> {
        self.failing.get(namespace)
    }

    /// Ends the round if all its positions are reached. Returns the namespaces that have passed or failed since the
    /// last call.
    pub(crate) fn end(&mut self, now: Time) -> News {
        let mut news = News::default();
        self.changed |= self.round.take_if(|round| round.stages.is_empty()).is_some();
        if !mem::take(&mut self.changed) && self.rested.is_none_or(|rested| now < rested) {
            return news;
        }
        let in_round = |scope: &Name| self.round.as_ref().is_some_and(|round| round.scopes.contains(scope));
        let (next, rested, failing) = (&mut self.next, &mut self.rested, &mut self.failing);
        *rested = None;
        self.scopes.retain(|name, scope| {
            if let Scope::Open { lists, failed: true, .. } = scope
                && lists.is_empty()
                && !in_round(name)
            {
                let times = failing.get_mut(name).map_or(0, |failing| {
                    failing.times += 1;
                    failing.times - 1
                });
                news.failed |= times == 0;
                *scope = Scope::Resting { until: now + AFTER_FAILURE * (1 << times.min(DOUBLINGS_MAX)) };
            }
            match scope {
                Scope::Open { lists, .. } if !lists.is_empty() || in_round(name) => true,
                Scope::Open { round, again, .. } => {
                    if *again {
                        next.insert(name.clone());
                    }
                    failing.remove(name);
                    news.passed.entry(*round).or_default().insert(name.clone());
                    false
                }
                Scope::Resting { until } if *until <= now => {
                    next.insert(name.clone());
                    false
                }
                Scope::Resting { until } => {
                    *rested = Some(rested.map_or(*until, |rested| rested.min(*until)));
                    true
                }
            }
        });
        if self.passed.len() > PASSED_MAX {
            self.passed.clear();
        }
        for (&number, namespaces) in &news.passed {
            self.passed.extend(namespaces.iter().map(|namespace| (namespace.clone(), number)));
        }
        news
    }

    /// Drops the current round and all results. The next request starts a new round.
    pub(crate) fn reset(&mut self, now: Time) {
        *self = Barrier { begun: self.begun, not_before: now + AFTER_RESET, ..Barrier::default() };
    }

    /// Records that this collection is no longer served. It has no objects to show.
    pub(crate) fn unserved(&mut self, kind: KindId) {
        self.in_flight.retain(|list| list.kind != kind);
        if let Some(round) = &mut self.round {
            round.stages.remove(&kind);
        }
        for scope in self.scopes.values_mut() {
            if let Scope::Open { lists, .. } = scope {
                self.changed |= lists.remove(&kind).is_some();
            }
        }
    }
}
