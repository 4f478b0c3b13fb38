//! The shared barrier: whether every collection has shown what existed before an owner's deletion mark.
//!
//! One round serves all owners that asked before it began. For each collection, a consistent `limit=1` list returns the
//! position of the store. A watch that has reached this position has shown everything. A quiet watch moves only by one
//! bookmark a minute. If a watch does not reach the position soon, or cannot be trusted, consistent lists of the
//! owners' namespaces replace it for this round.
//!
//! A round ends with its last position. Each namespace then waits for its own lists only, so a list that hangs delays no
//! other namespace. At most one list of a collection in a namespace is in flight.
//!
//! ```text
//! requested  by an owner in deletion                                -> open
//! open       in a round, or with open lists                         -> passed, resting (a list failed)
//! resting    for a moment                                           -> requested
//! ```

use crate::coverage::KindId;
use crate::object::{Name, ResourceVersion};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// How long a watch may take to reach the position of the store before the collection is listed.
const PATIENCE: Duration = Duration::from_millis(250);
/// Delay after a start or a change of history. The first lists usually end within this time.
const AFTER_RESET: Duration = Duration::from_millis(500);
/// Delay of a namespace after one of its lists failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The stage of one collection in the round.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// The position of the store was requested.
    Asked,
    /// The position of the store, and how long the watch may take to reach it.
    Behind { position: ResourceVersion, until: Time },
}

/// A list that the round needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Position(KindId),
    /// The empty namespace stands for all.
    Namespace(KindId, Name),
}

/// The round whose positions are not all reached.
#[derive(Debug)]
struct Round {
    scopes: BTreeSet<Name>,
    stages: BTreeMap<KindId, Stage>,
}

/// The state of a namespace that has not passed its round.
#[derive(Debug)]
enum Scope {
    Open {
        round: u64,
        /// The collections that are being listed.
        lists: BTreeSet<KindId>,
        failed: bool,
        /// An owner that asked later needs a later round.
        again: bool,
    },
    Resting {
        until: Time,
    },
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
    /// each, the flags say whether it is namespaced, and whether its watch can be trusted. Returns the required lists.
    pub(crate) fn begin(&mut self, now: Time, kinds: impl Iterator<Item = (KindId, bool, bool)>) -> Vec<Wanted> {
        if !self.is_due(now) {
            return Vec::new();
        }
        self.begun += 1;
        self.changed = true;
        let scopes = mem::take(&mut self.next);
        for scope in &scopes {
            let open = Scope::Open { round: self.begun, lists: BTreeSet::new(), failed: false, again: false };
            self.scopes.insert(scope.clone(), open);
        }
        let mut wanted = Vec::new();
        let mut stages = BTreeMap::new();
        // Dependents of a namespaced owner are in the owner's namespace.
        let cluster_scoped_too = scopes.contains("");
        for (kind, _, believed) in kinds.filter(|&(_, namespaced, _)| namespaced || cluster_scoped_too) {
            if believed {
                wanted.push(Wanted::Position(kind));
                stages.insert(kind, Stage::Asked);
            } else {
                wanted.extend(list(&mut self.scopes, &scopes, kind));
            }
        }
        self.round = Some(Round { scopes, stages });
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
        if reached { Vec::new() } else { list(&mut self.scopes, &round.scopes, kind).collect() }
    }

    /// Records that the watch of a collection has reached `position`.
    pub(crate) fn advanced(&mut self, kind: KindId, position: &ResourceVersion) {
        if let Some(round) = &mut self.round
            && let Some(Stage::Behind { position: wanted, .. }) = round.stages.get(&kind)
            && position.reached(wanted)
        {
            round.stages.remove(&kind);
        }
    }

    /// Ends the wait for watches that were too slow.
    pub(crate) fn tick(&mut self, now: Time) -> Vec<Wanted> {
        let Some(round) = &mut self.round else { return Vec::new() };
        let is_slow = |_: &KindId, stage: &mut Stage| matches!(stage, Stage::Behind { until, .. } if *until <= now);
        let slow = round.stages.extract_if(.., is_slow);
        slow.flat_map(|(kind, _)| list(&mut self.scopes, &round.scopes, kind).collect::<Vec<_>>()).collect()
    }

    /// Records that a namespace of a collection was listed, or that its list failed.
    pub(crate) fn listed(&mut self, kind: KindId, namespace: &Name, ok: bool) {
        let Some(Scope::Open { lists, failed, .. }) = self.scopes.get_mut(namespace) else { return };
        if lists.remove(&kind) {
            *failed |= !ok;
            self.changed = true;
        }
    }

    /// Ends the round if all its positions are reached. Returns the namespaces that have passed since the last call, by
    /// the number of their round.
    pub(crate) fn end(&mut self, now: Time) -> BTreeMap<u64, BTreeSet<Name>> {
        let mut passed: BTreeMap<u64, BTreeSet<Name>> = BTreeMap::new();
        self.changed |= self.round.take_if(|round| round.stages.is_empty()).is_some();
        if !mem::take(&mut self.changed) && self.rested.is_none_or(|rested| now < rested) {
            return passed;
        }
        let in_round = |scope: &Name| self.round.as_ref().is_some_and(|round| round.scopes.contains(scope));
        let (next, rested) = (&mut self.next, &mut self.rested);
        *rested = None;
        self.scopes.retain(|name, scope| {
            if let Scope::Open { lists, failed: true, .. } = scope
                && lists.is_empty()
                && !in_round(name)
            {
                *scope = Scope::Resting { until: now + AFTER_FAILURE };
            }
            match scope {
                Scope::Open { lists, .. } if !lists.is_empty() || in_round(name) => true,
                Scope::Open { round, again, .. } => {
                    if *again {
                        next.insert(name.clone());
                    }
                    passed.entry(*round).or_default().insert(name.clone());
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
        for (&number, namespaces) in &passed {
            self.passed.extend(namespaces.iter().map(|namespace| (namespace.clone(), number)));
        }
        passed
    }

    /// Drops the current round and all results. The next request starts a new round.
    pub(crate) fn reset(&mut self, now: Time) {
        *self = Barrier { begun: self.begun, not_before: now + AFTER_RESET, ..Barrier::default() };
    }

    /// Records that this collection is no longer served. It has no objects to show.
    pub(crate) fn unserved(&mut self, kind: KindId) {
        if let Some(round) = &mut self.round {
            round.stages.remove(&kind);
        }
        for scope in self.scopes.values_mut() {
            if let Scope::Open { lists, .. } = scope {
                self.changed |= lists.remove(&kind);
            }
        }
    }
}

/// Opens the lists of a collection in these namespaces. A cluster-scoped owner can have dependents in all namespaces.
fn list<'a>(
    open: &'a mut BTreeMap<Name, Scope>,
    scopes: &'a BTreeSet<Name>,
    kind: KindId,
) -> impl Iterator<Item = Wanted> + 'a {
    scopes.iter().map(move |scope| {
        if let Some(Scope::Open { lists, .. }) = open.get_mut(scope) {
            lists.insert(kind);
        }
        Wanted::Namespace(kind, scope.clone())
    })
}
