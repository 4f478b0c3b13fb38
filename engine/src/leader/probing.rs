//! Questions to the API server: after doubt about the store's history, and for the barrier.

use super::{Event, Leader, Output, Probe, ProbeAnswer, ProbeId, Purpose, Timer};
use crate::barrier::Wanted;
use crate::coverage::{KindId, State};
use crate::graph::Presence;
use crate::object::{Name, Object, ResourceVersion, Uid};
use crate::queue::Place;
use crate::work::RevokeMode;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Between two questions where the store stands while nothing is granted.
const SUSPECT_AGAIN: Duration = Duration::from_millis(500);

impl Leader {
    fn probe(&mut self, kind: KindId, namespace: Option<Name>, limit: Option<u32>, purpose: Purpose) {
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
        match purpose {
            Purpose::Suspect(kind, position) => self.suspect_answered(kind, &position, answer),
            Purpose::BarrierPosition(kind) => self.position_answered(kind, answer),
            Purpose::BarrierNamespace(kind, namespace) => self.namespace_answered(kind, &namespace, answer),
        }
    }

    /// A connection to the API server broke: what comes next may be another server, or another history.
    pub(super) fn suspect(&mut self, kind: KindId) {
        if self.suspect.is_some() || self.term.is_none() {
            return;
        }
        self.suspect = Some(kind);
        self.event(Event::GrantsStopped {
            why: String::from("a watch connection broke; asking where the store stands"),
        });
        self.recall_unstarted("a watch connection broke");
        self.ask_suspect();
    }

    /// Asks a collection whose position is known where the store stands.
    pub(super) fn ask_suspect(&mut self) {
        let Some(last) = self.suspect else { return };
        let usable = |kind: &crate::coverage::Kind| {
            kind.is_watched() && !kind.is_aggregated() && kind.position.is_some() && kind.state != State::Failed
        };
        let mut candidates: Vec<KindId> =
            self.coverage.served().filter(|(_, kind)| usable(kind)).map(|(id, _)| id).collect();
        candidates.sort();
        // Another one each time, so that one broken collection does not hold up everything.
        let next = candidates.iter().copied().find(|&id| id > last).or(candidates.first().copied());
        match next.and_then(|kind| Some((kind, self.coverage.kind(kind).position.clone()?))) {
            Some((kind, position)) => {
                self.suspect = Some(kind);
                self.probe(kind, None, Some(1), Purpose::Suspect(kind, position));
            }
            // Nothing is known of the store that it could contradict.
            None => self.clear_suspect(),
        }
    }

    /// `position` is the collection's as of the question: while the answer was on its way, the watch may have gone past it.
    fn suspect_answered(&mut self, kind: KindId, position: &ResourceVersion, answer: Result<ProbeAnswer, String>) {
        match answer {
            Ok(answer) if answer.resource_version.is_before(position) => {
                self.clear_suspect();
                self.rewind(
                    kind,
                    format!("the store stands at {}, after {position} was seen", answer.resource_version),
                );
            }
            Ok(answer) if answer.resource_version.reached(position) => self.clear_suspect(),
            // No answer, or none that compares: ask another.
            Ok(_) | Err(_) => self.timers.set(self.now + SUSPECT_AGAIN, Timer::Suspect),
        }
    }

    fn clear_suspect(&mut self) {
        if self.suspect.take().is_some() && self.rewound.is_empty() {
            self.event(Event::GrantsResumed);
        }
    }

    /// The store's history is another one than the graph was built from: everything that rests on the old one is void.
    pub(super) fn rewind(&mut self, kind: KindId, why: String) {
        let Some(served) = &self.coverage.kind(kind).served else { return };
        let collection = served.group_resource.clone();
        let everything = !self.coverage.kind(kind).is_aggregated();
        self.event(Event::Rewound { collection, why });
        let touched: Vec<KindId> = self
            .coverage
            .served()
            .filter(|&(id, other)| other.is_watched() && (id == kind || (everything && !other.is_aggregated())))
            .map(|(id, _)| id)
            .collect();
        for &id in &touched {
            self.coverage.kind_mut(id).rewound = true;
            self.relist(id, "the store's history changed");
        }
        if everything {
            self.rewound.extend(touched.iter().copied());
            self.event(Event::GrantsStopped { why: String::from("the store's history changed") });
        }
        self.restart_barrier();
        self.writes.clear();
        for (id, presence) in self.graph.iter().map(|(id, node)| (id, node.presence.clone())).collect::<Vec<_>>() {
            let of = self.graph.node(id).at.kind;
            let void = touched.contains(&of) || (everything && !self.coverage.kind(of).is_aggregated());
            if void && matches!(presence, Presence::Absent(_) | Presence::Read { .. }) {
                self.inquiries.remove(&id);
                self.graph.set_unobserved(id, Presence::Virtual { unreadable: false });
                self.mark_dependents(id);
            }
            self.mark(id);
        }
        self.void_items();
    }

    /// Rounds are not carried over: whoever waits for one asks again.
    pub(super) fn restart_barrier(&mut self) {
        self.barrier.reset(self.now);
        for round in self.deletions.values_mut() {
            *round = None;
        }
        for (uid, namespace) in self.graph.gone_orphaned() {
            let round = self.barrier.request(&namespace);
            self.graph.remember_orphaned(&uid, round);
        }
    }

    /// Nothing decided so far is carried out.
    fn void_items(&mut self) {
        let leases: Vec<_> = self
            .queue
            .uids()
            .filter_map(|uid| match self.queue.get(uid)?.place {
                Place::Leased(lease) => Some(lease),
                Place::Ready | Place::Observed | Place::Backoff { .. } | Place::Behind(_) => None,
            })
            .collect();
        self.revoke(&leases, RevokeMode::Stop, "the store's history changed");
        for lease in leases {
            self.leases.end(lease);
        }
        for uid in self.queue.uids().cloned().collect::<Vec<Uid>>() {
            self.queue.remove(&uid);
        }
    }

    /// A collection of the new history is known.
    pub(super) fn relisted(&mut self, kind: KindId) {
        if self.rewound.remove(&kind) && self.rewound.is_empty() && self.suspect.is_none() {
            self.event(Event::GrantsResumed);
        }
    }

    /// Whether rounds of the barrier go on: not while it is unknown where the store stands.
    pub(super) fn may_turn_barrier(&self) -> bool {
        self.term.is_some() && self.suspect.is_none() && self.rewound.is_empty()
    }

    /// Begins and ends rounds of the barrier.
    pub(super) fn turn_barrier(&mut self) {
        if !self.may_turn_barrier() {
            return;
        }
        if let Some((number, namespaces)) = self.barrier.end(self.now) {
            for namespace in &namespaces {
                self.graph.forget_orphaned(namespace, number);
            }
            self.mark_deletions();
        }
        if !self.barrier.is_due(self.now) {
            return;
        }
        let watched = |(id, kind): (KindId, &crate::coverage::Kind)| {
            let believed = kind.state == State::Synced && kind.lost.is_none();
            kind.is_watched().then_some((id, kind.namespaced() == Some(true), believed))
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
                // All there is was in the answer: usually nothing.
                let complete = answer.complete;
                let version = answer.resource_version.clone();
                if complete {
                    self.merge(kind, answer);
                }
                (Some(version), reached || complete)
            }
            Err(_) => (None, false),
        };
        let wanted = self.barrier.positioned(self.now, kind, position, reached);
        self.ask(wanted);
    }

    fn namespace_answered(&mut self, kind: KindId, namespace: &Name, answer: Result<ProbeAnswer, String>) {
        let ok = match answer {
            Ok(answer) if answer.complete => {
                self.merge(kind, answer);
                true
            }
            Ok(_) | Err(_) => false,
        };
        self.barrier.listed(kind, namespace, ok);
    }

    /// Takes from a consistent list what its collection's watch has not shown yet, as far as owners in deletion are concerned.
    fn merge(&mut self, kind: KindId, answer: ProbeAnswer) {
        let entry = self.coverage.kind(kind);
        // What the watch has shown is newer: an object missing from the graph has gone since.
        if !entry.is_unseen() && entry.position.as_ref().is_some_and(|at| at.reached(&answer.resource_version)) {
            return;
        }
        for object in answer.objects {
            if self.concerns_deletion(&object) {
                self.take_in(kind, object, false);
            }
        }
    }

    fn concerns_deletion(&self, object: &Object) -> bool {
        let in_deletion = |id: &crate::graph::NodeId| self.deletions.contains_key(id);
        // One that orphaned its dependents and is gone may have no node any more: nothing was known to refer to it.
        object
            .facts
            .owners
            .iter()
            .any(|owner| self.graph.has_orphaned(&owner.uid) || self.graph.by_uid(&owner.uid).iter().any(in_deletion))
    }
}
