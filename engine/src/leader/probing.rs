//! Questions to the API server, and the barrier, which causes most of them.

use super::intake::Source;
use super::{CheckBy, Event, Leader, Output, Probe, ProbeAnswer, ProbeId, asking, audit};
use crate::barrier::Wanted;
use crate::coverage::KindId;
use crate::follow::Failure;
use crate::graph::NodeId;
use crate::object::{Name, ResourceVersion, Uid};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The purpose of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Asks, after a broken connection, whether the store is still at or past this position.
    Suspect(KindId, ResourceVersion),
    /// Asks the same for one aggregated collection. The doubt holds only decisions that depend on this collection.
    Doubt(KindId, ResourceVersion),
    /// Asks, after a store rewind, whether reads are consistent with each other.
    Settle(KindId, ResourceVersion),
    /// Asks whether the API server counts as many objects as the graph. `again` is true when the previous count
    /// differed.
    Audit {
        kind: KindId,
        again: bool,
    },
    BarrierPosition(KindId),
    BarrierNamespace(KindId, Name),
    /// Asks whether the object of this node exists.
    Existence {
        kind: KindId,
        node: NodeId,
        uid: Uid,
        by: CheckBy,
    },
    /// Asks whether the object matches a report.
    Claim {
        kind: KindId,
        uid: Uid,
    },
    /// Asks whether this collection keeps up with the main store.
    Store(KindId),
    /// Ignores the answer, because the history or the barrier round of the probe has ended.
    Stale,
}

/// A probe that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) purpose: Purpose,
    /// The versions that were known when the probe was sent.
    pub(super) known: KnownVersions,
}

/// The highest versions known of a collection and of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownVersions {
    pub(super) own: Option<ResourceVersion>,
    pub(super) store: Option<ResourceVersion>,
    /// The version of the main store, even if the collection is in another store.
    pub(super) main: Option<ResourceVersion>,
}

/// The state of all questions to the API server.
#[derive(Debug, Default)]
pub(super) struct Prober {
    under_way: BTreeMap<ProbeId, Asked>,
    last: u64,
    questions: asking::Questions,
    /// True if [`super::Timer::Stores`] is set.
    comparing: bool,
    /// Audit counts by collection that wait until the watch reaches their version.
    counts: BTreeMap<KindId, audit::Count>,
    /// The time of the next audit of each collection.
    audits: BTreeMap<KindId, Time>,
}

impl Prober {
    /// Begins a probe. `known` is the knowledge about the collection at this time.
    pub(super) fn begin(&mut self, purpose: Purpose, known: KnownVersions) -> ProbeId {
        self.last += 1;
        let probe = ProbeId(self.last);
        self.begin_question(probe, purpose, known);
        probe
    }

    pub(super) fn end(&mut self, probe: ProbeId) -> Option<Asked> {
        self.under_way.remove(&probe)
    }

    /// Discards the answers of a barrier round that was reset. Such an answer says nothing about later objects.
    pub(super) fn void_rounds(&mut self) {
        for asked in self.under_way.values_mut() {
            if matches!(asked.purpose, Purpose::BarrierPosition(_) | Purpose::BarrierNamespace(..)) {
                asked.purpose = Purpose::Stale;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> &BTreeMap<ProbeId, Asked> {
        &self.under_way
    }

    pub(super) fn questions(&self) -> &asking::Questions {
        &self.questions
    }

    pub(super) fn questions_mut(&mut self) -> &mut asking::Questions {
        &mut self.questions
    }

    /// Returns the next question about a single object. The question takes the number of the next probe.
    pub(super) fn next_question(&mut self, now: Time) -> Option<(ProbeId, KindId, NodeId)> {
        let (kind, node) = self.questions.next(now, ProbeId(self.last + 1))?;
        self.last += 1;
        Some((ProbeId(self.last), kind, node))
    }

    /// Begins a probe whose number is taken already.
    pub(super) fn begin_question(&mut self, probe: ProbeId, purpose: Purpose, known: KnownVersions) {
        self.under_way.insert(probe, Asked { purpose, known });
    }

    /// Sets the time of the next audit of a collection. An earlier setting is replaced.
    pub(super) fn set_audit(&mut self, kind: KindId, at: Time) {
        self.audits.insert(kind, at);
    }

    /// Returns whether the audit of a collection is due. An audit that is due is removed.
    pub(super) fn take_audit(&mut self, now: Time, kind: KindId) -> bool {
        let is_due = self.audits.get(&kind).is_some_and(|&at| at <= now);
        if is_due {
            self.audits.remove(&kind);
        }
        is_due
    }

    /// Stores an audit count until the watch reaches its version.
    pub(super) fn keep_count(&mut self, kind: KindId, count: audit::Count) {
        self.counts.insert(kind, count);
    }

    /// Returns the audit count of a collection if a watch that resumes at this version has shown all changes up to the
    /// count.
    pub(super) fn take_count(&mut self, kind: KindId, version: &ResourceVersion) -> Option<audit::Count> {
        self.counts.get(&kind).filter(|count| count.is_before(version))?;
        self.counts.remove(&kind)
    }

    pub(super) fn forget_count(&mut self, kind: KindId) {
        self.counts.remove(&kind);
    }

    /// Schedules a comparison of stores. Returns false if one is already scheduled.
    pub(super) fn compare_soon(&mut self) -> bool {
        !core::mem::replace(&mut self.comparing, true)
    }

    pub(super) fn comparing_begins(&mut self) {
        self.comparing = false;
    }

    /// Discards the answers about these collections, because the questions belong to a lost history.
    pub(super) fn void(&mut self, kinds: &[KindId]) {
        for asked in self.under_way.values_mut() {
            let is_stale = match &asked.purpose {
                Purpose::Suspect(of, _)
                | Purpose::Doubt(of, _)
                | Purpose::Settle(of, _)
                | Purpose::Store(of)
                | Purpose::Audit { kind: of, .. } => kinds.contains(of),
                // The answer to a question about a single object frees its slot. Barrier rounds begin again.
                Purpose::Existence { .. } | Purpose::Claim { .. } => false,
                Purpose::BarrierPosition(_) | Purpose::BarrierNamespace(..) | Purpose::Stale => false,
            };
            if is_stale {
                asked.purpose = Purpose::Stale;
            }
        }
        self.questions.void();
    }
}

impl Leader {
    pub(super) fn probe(&mut self, kind: KindId, namespace: Option<Name>, limit: Option<u32>, purpose: Purpose) {
        let Some(served) = self.world.coverage().kind(kind).served() else { return };
        let collection = served.group_resource.clone();
        let namespace = namespace.filter(|namespace| served.namespaced && !namespace.is_empty());
        let (kind_name, version) = (served.kind.clone(), served.version.clone());
        // Another connection can reach another server, which shows whether only one server answered from an earlier
        // state.
        let fresh = matches!(purpose, Purpose::Suspect(..) | Purpose::Doubt(..)) && self.history.wants_other_servers();
        let id = self.prober.begin(purpose, self.world.known(kind));
        let probe = Probe { id, collection, kind: kind_name, version, namespace, limit, object: None, fresh };
        self.cx.outputs.push_back(Output::Probe(probe));
    }

    pub(super) fn probed(&mut self, probe: ProbeId, answer: Result<ProbeAnswer, Failure>) {
        let Some(Asked { purpose, known }) = self.prober.end(probe) else {
            return self.cx.event(Event::Rejected { why: format!("answer to unknown probe {}", probe.0) });
        };
        let of = match &purpose {
            Purpose::Suspect(kind, _)
            | Purpose::Doubt(kind, _)
            | Purpose::Settle(kind, _)
            | Purpose::Audit { kind, .. }
            | Purpose::BarrierPosition(kind)
            | Purpose::BarrierNamespace(kind, _)
            | Purpose::Existence { kind, by: CheckBy::List, .. }
            | Purpose::Claim { kind, .. }
            | Purpose::Store(kind) => Some(*kind),
            Purpose::Existence { by: CheckBy::Read, .. } | Purpose::Stale => None,
        };
        let ordered = of.is_some_and(|kind| self.world.has_order(kind, &known, &purpose));
        let answer = answer.and_then(|answer| match &answer.resource_version {
            version if ordered && !version.is_ordered() => {
                let why = format!("a list has the version {version:?}, which has no order");
                Err(Failure::senseless(why))
            }
            _ => Ok(answer),
        });
        if let Purpose::Existence { kind, node, uid, by } = purpose {
            return self.existence_answered(probe, (kind, node), (uid, by), &known, answer);
        }
        if let Purpose::Claim { kind, uid } = purpose {
            return self.claim_answered(probe, (kind, uid), &known, answer);
        }
        let answer = answer.map_err(|failure| failure.sentence);
        let answer = match &purpose {
            Purpose::Audit { kind, .. } | Purpose::BarrierPosition(kind) | Purpose::BarrierNamespace(kind, _) => {
                answer.and_then(|answer| self.of_the_present(*kind, &known, answer))
            }
            Purpose::Suspect(..)
            | Purpose::Doubt(..)
            | Purpose::Settle(..)
            | Purpose::Existence { .. }
            | Purpose::Claim { .. }
            | Purpose::Store(_)
            | Purpose::Stale => answer,
        };
        if let Ok(answer) = &answer
            && let Purpose::Audit { kind, .. } | Purpose::BarrierPosition(kind) | Purpose::BarrierNamespace(kind, _) =
                &purpose
            && self.leapt(*kind, &answer.resource_version)
        {
            return;
        }
        match purpose {
            Purpose::Suspect(kind, position) => self.suspect_answered(kind, &position, &known, answer),
            Purpose::Doubt(kind, position) => self.doubt_answered(kind, &position, answer),
            Purpose::Settle(kind, position) => self.settle_answered(kind, &position, &known, answer),
            Purpose::Audit { kind, again } => self.audit_answered(kind, again, answer),
            Purpose::BarrierPosition(kind) => self.position_answered(kind, answer),
            Purpose::BarrierNamespace(kind, namespace) => self.namespace_answered(kind, &namespace, answer),
            Purpose::Store(kind) => self.store_answered(kind, &known, answer),
            Purpose::Existence { .. } | Purpose::Claim { .. } | Purpose::Stale => {}
        }
    }

    /// Returns the answer if it describes the current state. The version of a consistent list is at or past the
    /// position of the store that was known when the list was requested. Any other list comes from a lagging server or
    /// another history, and says nothing.
    pub(super) fn of_the_present(
        &mut self,
        kind: KindId,
        known: &KnownVersions,
        answer: ProbeAnswer,
    ) -> Result<ProbeAnswer, String> {
        let version = &answer.resource_version;
        let is_before = |known: &Option<ResourceVersion>| known.as_ref().is_some_and(|known| version.is_before(known));
        let entry = self.world.coverage().kind(kind);
        if !is_before(&known.store) {
            return Ok(answer);
        }
        let seen = known.store.as_ref().map(ToString::to_string).unwrap_or_default();
        let why = format!("a list returned version {version}, which is before the known version {seen}");
        if !is_before(&known.own) && entry.is_listed() {
            if !entry.keeps_up() {
                // The collection may have a separate store. The comparison of stores decides.
                return Err(why);
            }
            self.compare_stores();
        }
        self.contradicted(kind, why.clone());
        Err(why)
    }

    /// Restarts the barrier. No round is carried over; components that wait for a round request a new one.
    pub(super) fn restart_barrier(&mut self) {
        self.barrier.reset(self.cx.now);
        self.prober.void_rounds();
        for namespace in self.world.forget_rounds() {
            let round = self.barrier.request(&namespace);
            self.world.remember_orphaned_longer(&namespace, round);
        }
    }

    /// Returns whether barrier rounds may proceed. They stop while the position of the store is in doubt.
    pub(super) fn may_turn_barrier(&self) -> bool {
        self.cx.term.is_some() && !self.history.is_suspect() && !self.history.is_rewound()
    }

    /// Begins and ends barrier rounds.
    pub(super) fn turn_barrier(&mut self) {
        if !self.may_turn_barrier() {
            return;
        }
        for (number, namespaces) in self.barrier.end(self.cx.now) {
            self.world.round_passed(&mut self.cx, &namespaces, number);
        }
        if !self.barrier.is_due(self.cx.now) {
            return;
        }
        let watched = |(id, kind): (KindId, &crate::coverage::Kind)| {
            let believed = kind.is_followed();
            let matters = kind.is_watched() && (!kind.is_uncertain() || self.cx.may_hide_dependents(kind));
            matters.then_some((id, kind.namespaced() == Some(true), believed))
        };
        let kinds: Vec<_> = self.world.coverage().served().filter_map(watched).collect();
        let wanted = self.barrier.begin(self.cx.now, kinds.into_iter());
        self.ask(wanted);
    }

    pub(super) fn ask(&mut self, wanted: Vec<Wanted>) {
        for want in wanted {
            match want {
                Wanted::Position(kind) => self.probe(kind, None, Some(1), Purpose::BarrierPosition(kind)),
                Wanted::Namespace(kind, namespace) => {
                    let purpose = Purpose::BarrierNamespace(kind, namespace.clone());
                    self.probe(kind, Some(namespace), None, purpose);
                }
            }
        }
    }

    fn position_answered(&mut self, kind: KindId, answer: Result<ProbeAnswer, String>) {
        let (position, reached) = match answer {
            Ok(answer) => {
                let reached = self.world.coverage().kind(kind).has_reached(&answer.resource_version);
                let version = answer.resource_version.clone();
                // The answer contained all objects, usually none.
                let merged = answer.complete && self.merge(kind, answer);
                (Some(version), reached || merged)
            }
            Err(_) => (None, false),
        };
        let wanted = self.barrier.positioned(self.cx.now, kind, position, reached);
        self.ask(wanted);
    }

    fn namespace_answered(&mut self, kind: KindId, namespace: &Name, answer: Result<ProbeAnswer, String>) {
        let ok = match answer {
            Ok(answer) => answer.complete && self.merge(kind, answer),
            Err(_) => false,
        };
        self.barrier.listed(kind, namespace, ok);
    }

    /// Handles the objects of a consistent list that the watch of the collection has not shown yet and that concern
    /// owners in deletion. Returns false if the watch has overtaken the list, because the list may then show deleted or
    /// outdated objects.
    fn merge(&mut self, kind: KindId, answer: ProbeAnswer) -> bool {
        let entry = self.world.coverage().kind(kind);
        // The watch of the collection has ended since the request.
        if !entry.is_watched() {
            return false;
        }
        // The watch is newer than the list. An object that is missing in the graph was deleted since.
        if !entry.is_uncertain() && entry.has_reached(&answer.resource_version) {
            return true;
        }
        let overtaken = entry.high().is_some_and(|high| answer.resource_version.is_before(high));
        if overtaken && answer.objects.iter().any(|object| self.history.has_gone(&object.uid, kind)) {
            return false;
        }
        for object in answer.objects {
            if self.world.concerns_deletion(&object) {
                self.take_in(kind, object, Source::Ahead);
            }
        }
        true
    }
}
