//! Questions to the API server, and the barrier, which causes most of them.

use super::intake::Source;
use super::{CheckBy, Event, Leader, ProbeAnswer, ProbeId, asking, audit};
use crate::barrier::{List, Wanted};
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
    /// Asks, after a broken connection, whether the store is still at or past the known position.
    Suspect,
    /// Asks the same for one aggregated collection. The doubt holds only decisions that depend on this collection.
    Doubt,
    /// Asks, after a store rewind, whether reads are consistent with each other.
    Settle,
    /// Asks whether the API server counts as many objects as the graph. `again` is true when the previous count
    /// differed.
    Audit {
        again: bool,
    },
    BarrierPosition,
    BarrierList(List),
    /// Asks whether the object of this node exists.
    Existence {
        node: NodeId,
        uid: Uid,
        by: CheckBy,
    },
    /// Asks whether the object matches a report.
    Claim {
        uid: Uid,
    },
    /// Asks whether the collection keeps up with the main store.
    Store,
}

impl Purpose {
    /// Returns whether only an answer that describes the current state counts.
    fn is_of_the_present(&self) -> bool {
        match self {
            Purpose::Audit { .. } | Purpose::BarrierPosition | Purpose::BarrierList(_) => true,
            Purpose::Suspect | Purpose::Doubt | Purpose::Settle | Purpose::Store => false,
            // The handlers of these answers decide themselves.
            Purpose::Existence { .. } | Purpose::Claim { .. } => false,
        }
    }
}

/// A probe that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) kind: KindId,
    /// `None` if the answer is ignored, because the history or the barrier round of the probe has ended.
    pub(super) purpose: Option<Purpose>,
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
    pub(super) fn begin(&mut self, kind: KindId, purpose: Purpose, known: KnownVersions) -> ProbeId {
        self.last += 1;
        let probe = ProbeId(self.last);
        self.begin_question(probe, kind, purpose, known);
        probe
    }

    pub(super) fn end(&mut self, probe: ProbeId) -> Option<Asked> {
        self.under_way.remove(&probe)
    }

    /// Discards the answers of a barrier round that was reset. Such an answer says nothing about later objects.
    pub(super) fn void_rounds(&mut self) {
        for asked in self.under_way.values_mut() {
            asked.purpose.take_if(|of| matches!(of, Purpose::BarrierPosition | Purpose::BarrierList(_)));
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
    pub(super) fn begin_question(&mut self, probe: ProbeId, kind: KindId, purpose: Purpose, known: KnownVersions) {
        self.under_way.insert(probe, Asked { kind, purpose: Some(purpose), known });
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
        for asked in self.under_way.values_mut().filter(|asked| kinds.contains(&asked.kind)) {
            asked.purpose.take_if(|of| match of {
                Purpose::Suspect | Purpose::Doubt | Purpose::Settle | Purpose::Store | Purpose::Audit { .. } => true,
                // The answer to a question about a single object frees its slot. Barrier rounds begin again.
                Purpose::Existence { .. } | Purpose::Claim { .. } => false,
                Purpose::BarrierPosition | Purpose::BarrierList(_) => false,
            });
        }
        self.questions.void();
    }
}

impl Leader {
    pub(super) fn probe(&mut self, kind: KindId, namespace: Option<Name>, limit: Option<u32>, purpose: Purpose) {
        let Some(served) = self.world.coverage().kind(kind).served() else { return };
        let namespace = namespace.filter(|_| served.namespaced);
        // Another connection can reach another server, which shows whether only one server answered from an earlier
        // state.
        let fresh = matches!(purpose, Purpose::Suspect | Purpose::Doubt) && self.history.wants_other_servers();
        let id = self.prober.begin(kind, purpose, self.world.known(kind));
        self.cx.probe(id, served, namespace, limit, None, fresh);
    }

    pub(super) fn probed(&mut self, probe: ProbeId, answer: Result<ProbeAnswer, Failure>) {
        let Some(Asked { kind, purpose, known }) = self.prober.end(probe) else {
            return self.cx.event(Event::Rejected { why: format!("answer to unknown probe {}", probe.0) });
        };
        let Some(purpose) = purpose else { return };
        let is_list = !matches!(purpose, Purpose::Existence { by: CheckBy::Read, .. });
        let ordered = is_list && self.world.has_order(kind, &known, &purpose);
        let answer = answer.and_then(|answer| match &answer.resource_version {
            version if ordered && !version.is_ordered() => {
                let why = format!("a list has the version {version:?}, which has no order");
                Err(Failure::senseless(why))
            }
            _ => Ok(answer),
        });
        if let Purpose::Existence { node, uid, by } = purpose {
            return self.existence_answered(probe, (kind, node), (uid, by), &known, answer);
        }
        if let Purpose::Claim { uid } = purpose {
            return self.claim_answered(probe, (kind, uid), &known, answer);
        }
        let mut answer = answer.map_err(|failure| failure.sentence);
        if purpose.is_of_the_present() {
            answer = answer.and_then(|answer| self.of_the_present(kind, &known, answer));
            if answer.as_ref().is_ok_and(|answer| self.leapt(kind, &answer.resource_version)) {
                return;
            }
        }
        match purpose {
            Purpose::Suspect => self.suspect_answered(kind, &known, answer),
            Purpose::Doubt => self.doubt_answered(kind, &known, answer),
            Purpose::Settle => self.settle_answered(kind, &known, answer),
            Purpose::Audit { again } => self.audit_answered(kind, again, answer),
            Purpose::BarrierPosition => self.position_answered(kind, answer),
            Purpose::BarrierList(list) => self.list_answered(&list, answer),
            Purpose::Store => self.store_answered(kind, &known, answer),
            Purpose::Existence { .. } | Purpose::Claim { .. } => {}
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
        let news = self.barrier.end(self.cx.now);
        for (number, namespaces) in news.passed {
            self.world.round_passed(&mut self.cx, &namespaces, number);
        }
        if news.failed {
            self.world.mark_deletions();
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
                Wanted::Position(kind) => self.probe(kind, None, Some(1), Purpose::BarrierPosition),
                Wanted::List(list) => {
                    let (kind, namespace) = (list.kind, list.namespace.clone());
                    self.probe(kind, Some(namespace), None, Purpose::BarrierList(list));
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

    fn list_answered(&mut self, list: &List, answer: Result<ProbeAnswer, String>) {
        let result = answer.and_then(|answer| match answer.complete {
            true if self.merge(list.kind, answer) => Ok(()),
            true => Err(String::from("the watch has overtaken the list")),
            false => Err(String::from("the list is not complete")),
        });
        let wanted = self.barrier.listed(self.cx.now, list, result);
        self.ask(wanted);
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
