//! Questions to the API server, and the barrier, which asks most of them.

use super::intake::Source;
use super::{Event, Leader, Output, Probe, ProbeAnswer, ProbeId, Purpose};
use crate::barrier::Wanted;
use crate::coverage::{KindId, State};
use crate::object::{Name, Object};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Leader {
    pub(super) fn probe(&mut self, kind: KindId, namespace: Option<Name>, limit: Option<u32>, purpose: Purpose) {
        let Some(served) = &self.coverage.kind(kind).served else { return };
        self.last_probe += 1;
        let id = ProbeId(self.last_probe);
        let collection = served.group_resource.clone();
        let namespace = namespace.filter(|namespace| served.namespaced && !namespace.is_empty());
        let probe = Probe { id, collection, version: served.version.clone(), namespace, limit };
        self.probes.insert(id, purpose);
        self.outputs.push_back(Output::Probe(probe));
    }

    pub(super) fn probed(&mut self, probe: ProbeId, answer: Result<ProbeAnswer, String>) {
        let Some(purpose) = self.probes.remove(&probe) else {
            return self.event(Event::Rejected { why: format!("an answer to probe {}, which nobody asked", probe.0) });
        };
        if let Ok(answer) = &answer
            && let Purpose::Audit { kind, .. } | Purpose::BarrierPosition(kind) | Purpose::BarrierNamespace(kind, _) =
                &purpose
            && self.leapt(*kind, &answer.resource_version)
        {
            return;
        }
        match purpose {
            Purpose::Suspect(kind, position) => self.suspect_answered(kind, &position, answer),
            Purpose::Doubt(kind, position) => self.doubt_answered(kind, &position, answer),
            Purpose::Settle(kind, position) => self.settle_answered(kind, &position, answer),
            Purpose::Audit { kind, again } => self.audit_answered(kind, again, answer),
            Purpose::BarrierPosition(kind) => self.position_answered(kind, answer),
            Purpose::BarrierNamespace(kind, namespace) => self.namespace_answered(kind, &namespace, answer),
            Purpose::Void => {}
        }
    }

    /// Rounds are not carried over: whoever waits for one asks again.
    pub(super) fn restart_barrier(&mut self) {
        self.barrier.reset(self.now);
        // An answer to a question of an earlier round says nothing of what came after it was asked.
        for purpose in self.probes.values_mut() {
            if matches!(purpose, Purpose::BarrierPosition(_) | Purpose::BarrierNamespace(..)) {
                *purpose = Purpose::Void;
            }
        }
        for round in self.deletions.values_mut() {
            *round = None;
        }
        for namespace in self.graph.namespaces_of_gone_orphaned() {
            let round = self.barrier.request(&namespace);
            self.graph.remember_orphaned_longer(&namespace, round);
        }
    }

    /// Whether rounds of the barrier go on: not while it is unknown where the store stands.
    pub(super) fn may_turn_barrier(&self) -> bool {
        self.term.is_some() && self.suspect.is_none() && !self.is_rewound()
    }

    /// Begins and ends rounds of the barrier.
    pub(super) fn turn_barrier(&mut self) {
        if !self.may_turn_barrier() {
            return;
        }
        if let Some((number, namespaces)) = self.barrier.end(self.now) {
            self.graph.forget_orphaned(&namespaces, number);
            self.mark_deletions();
        }
        if !self.barrier.is_due(self.now) {
            return;
        }
        let watched = |(id, kind): (KindId, &crate::coverage::Kind)| {
            let believed = kind.state == State::Synced && kind.lost.is_none() && !kind.is_in_doubt();
            let matters = kind.is_watched() && (!kind.is_uncertain() || self.may_hide_dependents(kind));
            matters.then_some((id, kind.namespaced() == Some(true), believed))
        };
        let kinds: Vec<_> = self.coverage.served().filter_map(watched).collect();
        let wanted = self.barrier.begin(self.now, kinds.into_iter());
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
                let position = &self.coverage.kind(kind).position;
                let reached = position.as_ref().is_some_and(|position| position.reached(&answer.resource_version));
                let version = answer.resource_version.clone();
                // All there is was in the answer: usually nothing.
                let merged = answer.complete && self.merge(kind, answer);
                (Some(version), reached || merged)
            }
            Err(_) => (None, false),
        };
        let wanted = self.barrier.positioned(self.now, kind, position, reached);
        self.ask(wanted);
    }

    fn namespace_answered(&mut self, kind: KindId, namespace: &Name, answer: Result<ProbeAnswer, String>) {
        let ok = match answer {
            Ok(answer) => answer.complete && self.merge(kind, answer),
            Err(_) => false,
        };
        self.barrier.listed(kind, namespace, ok);
    }

    /// Takes from a consistent list what its collection's watch has not shown yet, as far as owners in deletion are concerned. False if
    /// the list was overtaken: it shows what has gone since, and what else it shows may be as old.
    fn merge(&mut self, kind: KindId, answer: ProbeAnswer) -> bool {
        let entry = self.coverage.kind(kind);
        // What the watch has shown is newer: an object missing from the graph has gone since.
        if !entry.is_uncertain() && entry.position.as_ref().is_some_and(|at| at.reached(&answer.resource_version)) {
            return true;
        }
        let overtaken = entry.high.as_ref().is_some_and(|(high, _)| answer.resource_version.is_before(high));
        if overtaken && answer.objects.iter().any(|object| self.has_gone(&object.uid, kind)) {
            return false;
        }
        for object in answer.objects {
            if self.concerns_deletion(&object) {
                self.take_in(kind, object, Source::Ahead);
            }
        }
        true
    }

    fn concerns_deletion(&self, object: &Object) -> bool {
        let in_deletion = |id: crate::graph::NodeId| self.deletions.contains_key(&id);
        // One that orphaned its dependents and is gone may have no node any more: nothing was known to refer to it.
        object
            .facts
            .owners
            .iter()
            .any(|owner| self.graph.has_orphaned(&owner.uid) || self.graph.by_uid(&owner.uid).any(in_deletion))
    }
}
