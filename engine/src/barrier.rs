//! The shared barrier: whether every collection has shown what existed before an owner's deletion mark.
//!
//! One round serves all owners that asked before it began. For each collection, a consistent `limit=1` list returns the
//! position of the store. A watch that has reached this position has shown everything. A quiet watch moves only by one
//! bookmark a minute. If a watch does not reach the position soon, or cannot be trusted, consistent lists of the
//! owners' namespaces replace it for this round.

use crate::coverage::KindId;
use crate::object::{Name, ResourceVersion};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

#[cfg(test)]
mod tests;

/// How long a watch may take to reach the position of the store before the collection is listed.
const PATIENCE: Duration = Duration::from_millis(250);
/// Delay after a start or a change of history. The first lists usually end within this time.
const AFTER_RESET: Duration = Duration::from_millis(500);
/// Delay after a round in which a list failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The stage of one collection in the round.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// The position of the store was requested.
    Asked,
    /// The position of the store, and how long the watch may take to reach it.
    Behind { position: ResourceVersion, until: Time },
    /// These namespaces are being listed.
    Listing(BTreeSet<Name>),
}

/// A list that the round needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Position(KindId),
    /// The empty namespace stands for all.
    Namespace(KindId, Name),
}

#[derive(Debug)]
struct Round {
    scopes: BTreeSet<Name>,
    stages: BTreeMap<KindId, Stage>,
    /// Namespaces whose list failed.
    failed: BTreeSet<(KindId, Name)>,
}

/// Rounds are numbered from 1. A request has passed once a round with its number or a higher one has succeeded for its
/// namespace.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    begun: u64,
    round: Option<Round>,
    /// Namespaces of owners that wait for the next round.
    next: BTreeSet<Name>,
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
    /// cluster-scoped). Returns the number of the round that gives the proof.
    pub(crate) fn request(&mut self, namespace: &Name) -> u64 {
        self.next.insert(namespace.clone());
        self.begun + 1
    }

    /// Whether round `number` or a higher one has succeeded for `namespace`. Repeats a request that has neither passed
    /// nor is in progress.
    pub(crate) fn has_passed(&mut self, namespace: &Name, number: u64) -> bool {
        if self.passed.get(namespace).is_some_and(|&passed| passed >= number) {
            return true;
        }
        let on_its_way =
            self.round.as_ref().is_some_and(|round| self.begun >= number && round.scopes.contains(namespace));
        if !on_its_way {
            self.next.insert(namespace.clone());
        }
        false
    }

    /// Whether `begin` would start a round.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.round.is_none() && !self.next.is_empty() && now >= self.not_before
    }

    /// Starts the next round if one is requested and none is in progress. `kinds` are the watched collections. For
    /// each, the flags say whether it is namespaced, and whether its watch can be trusted. Returns the required lists.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        kinds: impl Iterator<Item = (KindId, bool, bool)>,
    ) -> alloc::vec::Vec<Wanted> {
        if !self.is_due(now) {
            return alloc::vec::Vec::new();
        }
        self.begun += 1;
        let scopes = core::mem::take(&mut self.next);
        let mut wanted = alloc::vec::Vec::new();
        let mut stages = BTreeMap::new();
        // Dependents of a namespaced owner are in the owner's namespace.
        let cluster_scoped_too = scopes.contains("");
        for (kind, _, believed) in kinds.filter(|&(_, namespaced, _)| namespaced || cluster_scoped_too) {
            if believed {
                wanted.push(Wanted::Position(kind));
                stages.insert(kind, Stage::Asked);
            } else {
                wanted.extend(namespaces(kind, &scopes));
                stages.insert(kind, Stage::Listing(scopes.clone()));
            }
        }
        self.round = Some(Round { scopes, stages, failed: BTreeSet::new() });
        wanted
    }

    /// When the next round may start, if one is requested and none is in progress; or when the wait for a watch ends.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.round {
            None => (!self.next.is_empty()).then_some(self.not_before),
            Some(round) => round
                .stages
                .values()
                .filter_map(|stage| match stage {
                    Stage::Behind { until, .. } => Some(*until),
                    Stage::Asked | Stage::Listing(_) => None,
                })
                .min(),
        }
    }

    /// Takes the position of the store; `None` if the request failed. `reached` says that the watch is already there,
    /// or that the collection is empty.
    pub(crate) fn positioned(
        &mut self,
        now: Time,
        kind: KindId,
        position: Option<ResourceVersion>,
        reached: bool,
    ) -> alloc::vec::Vec<Wanted> {
        let Some(round) = &mut self.round else { return alloc::vec::Vec::new() };
        if round.stages.get(&kind) != Some(&Stage::Asked) {
            return alloc::vec::Vec::new();
        }
        match position {
            _ if reached => {
                round.stages.remove(&kind);
                alloc::vec::Vec::new()
            }
            Some(position) if position.is_ordered() => {
                round.stages.insert(kind, Stage::Behind { position, until: now + PATIENCE });
                alloc::vec::Vec::new()
            }
            Some(_) | None => {
                round.stages.insert(kind, Stage::Listing(round.scopes.clone()));
                namespaces(kind, &round.scopes).collect()
            }
        }
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
    pub(crate) fn tick(&mut self, now: Time) -> alloc::vec::Vec<Wanted> {
        let Some(round) = &mut self.round else { return alloc::vec::Vec::new() };
        let mut wanted = alloc::vec::Vec::new();
        for (&kind, stage) in &mut round.stages {
            if matches!(stage, Stage::Behind { until, .. } if *until <= now) {
                *stage = Stage::Listing(round.scopes.clone());
                wanted.extend(namespaces(kind, &round.scopes));
            }
        }
        wanted
    }

    /// Records that a namespace of a collection was listed, or that its list failed.
    pub(crate) fn listed(&mut self, kind: KindId, namespace: &Name, ok: bool) {
        let Some(round) = &mut self.round else { return };
        let Some(Stage::Listing(open)) = round.stages.get_mut(&kind) else { return };
        if !open.remove(namespace) {
            return;
        }
        if open.is_empty() {
            round.stages.remove(&kind);
        }
        if !ok {
            round.failed.insert((kind, namespace.clone()));
        }
    }

    /// Ends the round if none of its lists is open. Returns its number and the namespaces for which it succeeded.
    pub(crate) fn end(&mut self, now: Time) -> Option<(u64, BTreeSet<Name>)> {
        if !self.round.as_ref().is_some_and(|round| round.stages.is_empty()) {
            return None;
        }
        let round = self.round.take()?;
        let failed: BTreeSet<&Name> = round.failed.iter().map(|(_, namespace)| namespace).collect();
        if !failed.is_empty() {
            self.not_before = now + AFTER_FAILURE;
        }
        let well: BTreeSet<Name> = round.scopes.iter().filter(|scope| !failed.contains(scope)).cloned().collect();
        for namespace in &well {
            self.passed.insert(namespace.clone(), self.begun);
        }
        self.next.extend(failed.into_iter().cloned());
        Some((self.begun, well))
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
    }
}

/// A cluster-scoped owner can have dependents in all namespaces.
fn namespaces(kind: KindId, scopes: &BTreeSet<Name>) -> impl Iterator<Item = Wanted> + '_ {
    scopes.iter().map(move |scope| Wanted::Namespace(kind, scope.clone()))
}
