//! Whether the store's history is still the one that the graph was built from, and whether the graph is still what the store holds.

use super::closing::Left;
use super::{Event, KnownVersions, Leader, OnStoreRewind, ProbeAnswer, Purpose, Timer};
use crate::coverage::{Contradiction, KindId, State};
use crate::graph::Presence;
use crate::jitter::Jitter;
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::queue::{Blocker, Place};
use crate::recent::Recent;
use crate::work::RevokeMode;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Between two questions where the store stands while nothing is granted.
const SUSPECT_AGAIN: Duration = Duration::from_millis(500);
/// The same to a collection that cannot be listed, on which little rests.
const DOUBT_AGAIN: Duration = Duration::from_secs(5);
/// Questions to one collection before another one is asked.
const ASK_EACH: u32 = 3;
/// After a store went back: between two reads,
const SETTLE_EVERY: Duration = Duration::from_secs(5);
/// of which so many in a row have to fit together: a minute.
const SETTLED_AFTER: u32 = 12;
/// uids that are remembered as deleted.
pub(super) const GONE_MAX: usize = 65_536;
/// Answers in a row that have to agree after some that contradicted each other.
const AGREE_AFTER: u32 = 3;

/// Why it has to be asked where the store stands.
#[derive(Debug)]
pub(super) struct Suspicion {
    /// So many questions have been asked.
    asked: u32,
    /// So many more answers have to agree.
    wanted: u32,
    /// One of several servers may have answered from the past.
    of_answers: bool,
    /// So many answers in a row stood before what the main store was seen at.
    behind: u32,
    why: &'static str,
}

/// The store went back, and everything is listed again: what the reads since have shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settling {
    /// So many in a row fit together.
    fitted: u32,
    /// So many in a row stood before what was seen since.
    behind: u32,
}

/// Whether the graph is of the history that the store has.
#[derive(Debug)]
pub(super) struct History {
    /// Nothing is granted until the store is known to stand where it did.
    pub(super) suspicion: Option<Suspicion>,
    /// So often a store went back.
    pub(super) histories: u64,
    /// The store went back: nothing is granted until these are listed again,
    pub(super) rewound: BTreeSet<KindId>,
    /// and so many reads in a row have fitted together.
    pub(super) settling: Option<Settling>,
    /// Why the process that runs the leader wants nothing granted.
    pub(super) withheld: Option<String>,
    /// uids whose DELETED was seen last, by collection: one that is seen again there is of another history.
    pub(super) gone: Recent<KindId>,
    /// A collection has been in doubt since all owners in deletion were judged last.
    pub(super) blind: bool,
    /// The first round of the barrier that began after a connection broke last.
    pub(super) barrier_from: u64,
}

impl History {
    pub(super) fn new(secrets: &mut Jitter) -> History {
        History {
            suspicion: None,
            histories: 0,
            rewound: BTreeSet::new(),
            settling: None,
            withheld: None,
            gone: Recent::new(GONE_MAX, secrets.next()),
            blind: false,
            barrier_from: 0,
        }
    }
}

impl Suspicion {
    /// Whether another connection may show more.
    pub(super) fn is_of_answers(&self) -> bool {
        self.of_answers
    }

    pub(super) fn why(&self) -> &'static str {
        self.why
    }
}

impl Leader {
    /// A watch ended other than by its own time: what comes next may be another server, or another history.
    pub(super) fn suspect(&mut self) {
        self.suspect_for(Suspicion {
            asked: 0,
            wanted: 1,
            of_answers: false,
            behind: 0,
            why: "a connection broke, or a watch ended before its time",
        });
    }

    /// The connection of a list broke, which says as much as that of a watch, where something is known that could be contradicted.
    pub(super) fn list_broke(&mut self) {
        if !self.world.witnesses().is_empty() {
            self.suspect();
        }
    }

    fn suspect_for(&mut self, new: Suspicion) {
        if let Some(suspicion) = &mut self.history.suspicion {
            suspicion.wanted = suspicion.wanted.max(new.wanted);
            suspicion.of_answers |= new.of_answers;
            return;
        }
        let why = new.why;
        self.history.suspicion = Some(new);
        self.cx.event(Event::GrantsStopped { why: format!("{why}; asking where the store stands") });
        self.dispatcher.stop_destroying(&mut self.cx, why);
        self.ask_suspect();
    }

    /// Answers about a collection cannot all be true: nothing that rests on its store is granted until more of them agree, and what its
    /// lists of single names have proven counts no more.
    pub(super) fn contradicted(&mut self, kind: KindId, why: String) {
        let now = self.cx.now;
        let entry = self.world.coverage.kind_mut(kind);
        let before = entry
            .contradiction
            .take()
            .filter(|before| now.since(before.last) < super::world::doubt::CONTRADICTION_COUNTS);
        let is_fresh = before.as_ref().is_none_or(|before| now.since(before.last) >= SUSPECT_AGAIN);
        let count = before.map_or(1, |before| before.count.saturating_add(1));
        entry.contradiction = Some(Contradiction { why: why.clone(), count, last: now });
        if count == 1 {
            self.cx.timers.set(now + super::world::doubt::CONTRADICTION_COUNTS, Timer::Contradiction(kind));
        }
        let (aggregated, collection) =
            (entry.is_aggregated(), entry.served.as_ref().map(|served| &served.group_resource));
        if let Some(collection) = collection.cloned() {
            self.cx.event(Event::Inconsistent { collection, why });
        }
        if is_fresh {
            self.world.void_lists(&self.cx, kind);
        }
        if aggregated {
            return self.doubt(kind);
        }
        let why = "answers of the API server contradict each other";
        self.suspect_for(Suspicion { asked: 0, wanted: AGREE_AFTER, of_answers: true, behind: 0, why });
    }

    /// Asks where the store stands: the collection that was seen furthest, since all that a store has lost lies behind what it has
    /// kept; in turn another one, so that one broken collection does not hold up everything.
    pub(super) fn ask_suspect(&mut self) {
        let Some(asked) = self.history.suspicion.as_ref().map(|suspicion| suspicion.asked) else { return };
        let candidates = self.world.witnesses();
        let next = (asked / ASK_EACH) as usize;
        match next.checked_rem(candidates.len()).map(|at| candidates[at].clone()) {
            Some((kind, high)) => {
                if let Some(suspicion) = &mut self.history.suspicion {
                    suspicion.asked = asked.saturating_add(1);
                }
                self.probe(kind, None, Some(1), Purpose::Suspect(kind, high));
            }
            // Nothing is known of the store that it could contradict.
            None => self.clear_suspect(),
        }
    }

    /// `position` is how far the collection had been seen at the question: while the answer was on its way, its watch may have gone past.
    pub(super) fn suspect_answered(
        &mut self,
        kind: KindId,
        position: &ResourceVersion,
        known: &KnownVersions,
        answer: Result<ProbeAnswer, String>,
    ) {
        match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.rewind(
                    kind,
                    format!("the store stands at {}, after {position} was seen", answer.resource_version),
                );
                // The kind may have ceased to be served since it was asked.
                if self.history.suspicion.is_some() {
                    self.cx.timers.set(self.cx.now + SUSPECT_AGAIN, Timer::Suspect);
                }
            }
            Ok(answer) if answer.resource_version.reached(position) => {
                // Those seen further have not answered: what rests on them waits until they do.
                for (other, high) in self.world.witnesses() {
                    if other != kind && position.is_before(&high) {
                        self.doubt(other);
                    }
                }
                // The question may be older than what was seen of those: a second one tells.
                if self.world.doubt_unserved(&answer.resource_version) {
                    self.doubt(kind);
                }
                self.agreed(kind, &answer.resource_version, known);
            }
            // No answer, or none that compares: ask another.
            Ok(_) | Err(_) => self.cx.timers.set(self.cx.now + SUSPECT_AGAIN, Timer::Suspect),
        }
    }

    /// Takes in that an answer shows a store at this version. True if it lies so far ahead that the store was restored, and told to go
    /// on behind all that it had ever been at.
    pub(super) fn leapt(&mut self, kind: KindId, version: &ResourceVersion) -> bool {
        let now = self.cx.now;
        let entry = self.world.coverage.kind_mut(kind);
        let leapt = entry.leaps(now, version) && entry.rewound.is_none();
        if leapt {
            self.rewind(kind, format!("the store stands at {version}, far past all that was seen"));
        } else {
            self.world.coverage.raise(now, kind, version);
        }
        leapt
    }

    /// Whoever runs the leader wants nothing granted, or allows it again.
    pub(super) fn withhold(&mut self, why: Option<String>) {
        match why {
            Some(why) => {
                let known = self.history.withheld.replace(why.clone());
                if known.is_none() {
                    self.dispatcher.recall_unstarted(&mut self.cx, &why);
                }
                if known.as_ref() != Some(&why) {
                    self.cx.event(Event::GrantsStopped { why });
                }
            }
            None if self.history.withheld.take().is_some() && !self.is_stopped_by_doubt() => {
                self.cx.event(Event::GrantsResumed)
            }
            None => {}
        }
    }

    /// One more answer of those that are wanted. Where as many agree that the main store stands before what it was known to stand at when
    /// they were asked for, it went back.
    fn agreed(&mut self, kind: KindId, version: &ResourceVersion, known: &KnownVersions) {
        let entry = self.world.coverage.kind(kind);
        let is_of_main = entry.is_in_main_store() && entry.rewound.is_none();
        // A list that never ended, or a write, may have shown it further than any collection stands.
        let ahead = known.store.clone().filter(|seen| is_of_main && version.is_before(seen));
        let Some(suspicion) = &mut self.history.suspicion else { return };
        suspicion.behind = if ahead.is_some() && suspicion.of_answers { suspicion.behind + 1 } else { 0 };
        if let Some(seen) = ahead.filter(|_| suspicion.behind >= AGREE_AFTER) {
            self.rewind(
                kind,
                format!("{AGREE_AFTER} lists in a row stand at {version} or before, after {seen} was seen"),
            );
        } else if suspicion.wanted > 1 {
            suspicion.wanted -= 1;
            self.cx.timers.set(self.cx.now + SUSPECT_AGAIN, Timer::Suspect);
        } else {
            self.clear_suspect();
        }
    }

    fn clear_suspect(&mut self) {
        if self.history.suspicion.take().is_some() {
            self.doubt_ended();
        }
    }

    /// Whether it is in doubt that the graph is of the history which the store has.
    pub(super) fn is_stopped_by_doubt(&self) -> bool {
        self.history.suspicion.is_some() || self.is_rewound()
    }

    fn doubt_ended(&mut self) {
        if !self.is_stopped_by_doubt() && self.history.withheld.is_none() {
            self.cx.event(Event::GrantsResumed);
        }
    }

    /// The store's history is another one than the graph was built from: everything that rests on the old one is void.
    pub(super) fn rewind(&mut self, kind: KindId, why: String) {
        let Some(served) = &self.world.coverage.kind(kind).served else { return };
        let collection = served.group_resource.clone();
        let everything = !self.world.coverage.kind(kind).is_aggregated();
        self.cx.event(Event::Rewound { collection, why });
        self.history.histories += 1;
        let touched: Vec<KindId> = self
            .world
            .coverage
            .served()
            // Behind an APIService there may be the same store: what is kept elsewhere is only listed once more.
            .filter(|&(id, other)| other.is_watched() && (id == kind || everything))
            .map(|(id, _)| id)
            .collect();
        for &id in &touched {
            self.world.relist(&mut self.cx, id, "the store's history changed");
        }
        // What is not served now may be again: it is of the other history too.
        for id in self.world.coverage.ids() {
            let entry = self.world.coverage.kind_mut(id);
            if id == kind || everything {
                // A collection that is only asked has no list that a new one replaces.
                entry.rewound = (entry.served.is_none() || entry.is_watched()).then_some(entry.list);
                entry.high = None;
                entry.floor = None;
                entry.doubtful = false;
            }
        }
        for asked in self.prober.under_way.values_mut() {
            let concerned = match &asked.purpose {
                Purpose::Suspect(of, _)
                | Purpose::Doubt(of, _)
                | Purpose::Settle(of, _)
                | Purpose::Store(of)
                | Purpose::Audit { kind: of, .. } => touched.contains(of),
                // Answers to questions about single objects have to give their places back: they are not awaited any more.
                Purpose::Existence { .. } | Purpose::Claim { .. } => false,
                Purpose::BarrierPosition(_) | Purpose::BarrierNamespace(..) | Purpose::Void => false,
            };
            if concerned {
                asked.purpose = Purpose::Void;
            }
        }
        self.prober.questions.void();
        if everything {
            self.world.coverage.forget_main_store();
            self.history.suspicion = None;
            self.forget_pause_versions();
            self.history.rewound.extend(touched.iter().copied());
            self.history.settling = None;
            self.cx.event(Event::GrantsStopped { why: String::from("the store's history changed") });
        }
        self.history.blind = true;
        self.restart_barrier();
        self.ledger.writes.clear();
        self.forget_claims();
        self.ledger.accepted_deletes.clear();
        self.void_inherited();
        self.history.gone.clear();
        self.world.emptied.clear();
        self.world.remember_former(&mut self.cx);
        self.world.former.lose(self.cx.now);
        self.world.graph.lose_orphaned();
        for (id, told) in self.world.graph.iter().map(|(id, node)| (id, node.is_told())).collect::<Vec<_>>() {
            let of = self.world.graph.node(id).kind();
            let void = everything || touched.contains(&of);
            if void && told {
                self.world.inquiries.remove(&id);
                self.world.graph.set_unobserved(id, Presence::Virtual { unreadable: false });
                self.world.mark_dependents(id);
            }
            self.world.mark(id);
        }
        self.void_items();
    }

    /// Nothing decided so far is carried out.
    fn void_items(&mut self) {
        let leases: Vec<_> = self
            .dispatcher
            .queue
            .uids()
            .filter_map(|uid| match self.dispatcher.queue.get(uid)?.place {
                Place::Leased(lease) => Some(lease),
                Place::Ready | Place::Observed | Place::Held(_) | Place::Backoff { .. } | Place::Behind(_) => None,
            })
            .collect();
        self.dispatcher.revoke(&mut self.cx, &leases, RevokeMode::Stop, "the store's history changed");
        for id in leases {
            if let Some(lease) = self.dispatcher.leases.end(id) {
                self.dispatcher.late_writes.give_up(id, &lease);
                self.drop_item(&lease.target, lease.grounds);
            }
        }
        for uid in self.dispatcher.queue.uids().cloned().collect::<Vec<Uid>>() {
            let Some(item) = self.dispatcher.queue.get(&uid) else { continue };
            let grounds = self.world.grounds_now(&self.cx, &item.draft);
            self.drop_item(&uid, grounds);
        }
    }

    /// A collection of the new history is known, or cannot be.
    pub(super) fn relisted(&mut self, kind: KindId) {
        if self.history.rewound.remove(&kind) && self.history.rewound.is_empty() {
            self.history.settling = Some(Settling::default());
            if self.cx.config.policy.on_store_rewind == OnStoreRewind::Continue {
                self.cx.timers.set(self.cx.now + SETTLE_EVERY, Timer::Settle);
            }
        }
    }

    /// The store went back, and it is not yet clear that what is known now fits together.
    pub(super) fn is_rewound(&self) -> bool {
        !self.history.rewound.is_empty() || self.history.settling.is_some()
    }

    /// Reads one collection after the other, until enough answers in a row have fitted.
    pub(super) fn ask_settle(&mut self) {
        let Some(Settling { fitted, .. }) = self.history.settling else { return };
        let candidates = self.world.witnesses();
        let at = usize::try_from(fitted).unwrap_or(0).checked_rem(candidates.len());
        match at.map(|at| candidates[at].clone()) {
            Some((kind, high)) => self.probe(kind, None, Some(1), Purpose::Settle(kind, high)),
            None => self.cx.timers.set(self.cx.now + SETTLE_EVERY, Timer::Settle),
        }
    }

    pub(super) fn settle_answered(
        &mut self,
        kind: KindId,
        position: &ResourceVersion,
        known: &KnownVersions,
        answer: Result<ProbeAnswer, String>,
    ) {
        let Some(Settling { fitted, behind }) = self.history.settling else { return };
        let is_behind = |version: &ResourceVersion| known.store.as_ref().is_some_and(|seen| version.is_before(seen));
        let (fitted, behind) = match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.rewind(kind, format!("the store stands at {} again", answer.resource_version));
                if self.history.settling.is_none() {
                    return;
                }
                // The kind has ceased to be served since it was asked: the others tell.
                (0, 0)
            }
            // A server lags, or what was seen further on was of the history before.
            Ok(answer) if is_behind(&answer.resource_version) => (0, behind + 1),
            Ok(_) => (fitted + 1, 0),
            Err(_) => (0, behind),
        };
        if behind >= AGREE_AFTER {
            return self.rewind(kind, format!("{AGREE_AFTER} lists in a row stand before what was seen since"));
        }
        if fitted < SETTLED_AFTER {
            self.history.settling = Some(Settling { fitted, behind });
            self.cx.timers.set(self.cx.now + SETTLE_EVERY, Timer::Settle);
            return;
        }
        self.history.settling = None;
        self.forget_unserved();
        self.doubt_ended();
    }

    /// Objects of a kind that the new history does not serve are known from the old one alone: without this they would hold their owners'
    /// deletion for ever. From here on they count as little as they do after a restart.
    fn forget_unserved(&mut self) {
        let lost: Vec<KindId> = self
            .world
            .coverage
            .ids()
            .filter(|&id| {
                self.world.coverage.kind(id).served.is_none() && self.world.coverage.kind(id).rewound.is_some()
            })
            .collect();
        for id in lost.into_iter().flat_map(|kind| self.world.nodes_of(kind)).collect::<Vec<_>>() {
            // One that only another of this kind referred to goes with that one.
            if self.world.graph.get(id).is_some_and(|node| node.is_observed()) {
                self.take_out(id, None, Left::Sight);
            }
        }
    }

    /// Remembers a uid whose DELETED was seen: seen again, it is of another history.
    pub(super) fn remember_gone(&mut self, uid: Uid, kind: KindId) {
        // One that is told twice takes no second place.
        if !self.has_gone(&uid, kind) {
            self.history.gone.put(uid, kind);
        }
    }

    /// Whether this uid was deleted in this collection before.
    pub(super) fn has_gone(&self, uid: &Uid, kind: KindId) -> bool {
        self.history.gone.get(uid) == Some(&kind)
    }

    /// The connection to a collection broke: what rests on it waits.
    pub(super) fn doubt(&mut self, kind: KindId) {
        if !self.world.coverage.kind(kind).doubtful {
            self.world.coverage.kind_mut(kind).doubtful = true;
            self.history.blind = true;
            self.history.barrier_from = self.prober.barrier.next_round();
            self.ask_doubt(kind);
        }
    }

    pub(super) fn ask_doubt(&mut self, kind: KindId) {
        let entry = self.world.coverage.kind(kind);
        if entry.served.is_none() {
            return;
        }
        match entry.high.clone().filter(|_| entry.doubtful && entry.is_watched()) {
            Some((high, _)) => self.probe(kind, None, Some(1), Purpose::Doubt(kind, high)),
            None => self.world.coverage.kind_mut(kind).doubtful = false,
        }
    }

    pub(super) fn doubt_answered(
        &mut self,
        kind: KindId,
        position: &ResourceVersion,
        answer: Result<ProbeAnswer, String>,
    ) {
        match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.rewind(kind, format!("it stands at {}, after {position} was seen", answer.resource_version));
            }
            // Where versions do not compare, an answer is all there is to be had.
            Ok(answer) => {
                self.world.coverage.kind_mut(kind).doubtful = false;
                if self.history.suspicion.is_none() && !self.world.coverage.kind(kind).is_aggregated() {
                    self.world.trust_unserved(&answer.resource_version);
                }
            }
            Err(_) => {
                let failed = self.world.coverage.kind(kind).state == State::Failed;
                let wait = if failed { DOUBT_AGAIN } else { SUSPECT_AGAIN };
                self.cx.timers.set(self.cx.now + wait, Timer::Doubt(kind));
            }
        }
    }

    /// Puts an item behind a collection that has to say where it stands.
    pub(super) fn await_certainty(&mut self, uid: &Uid, kind: KindId) {
        let entry = self.world.coverage.kind(kind);
        let unserved = || GroupResource { group: entry.group.clone(), resource: entry.kind.clone() };
        let collection = entry.served.as_ref().map_or_else(unserved, |served| served.group_resource.clone());
        let blocker = Blocker::InDoubt { kind, collection };
        self.dispatcher.queue.raise(self.cx.now, blocker.clone());
        self.dispatcher.queue.place(uid, Place::Behind(blocker));
    }

    /// Lets go what stood behind a collection that is in doubt no more.
    pub(super) fn end_doubts(&mut self) {
        for (kind, blocker) in self.dispatcher.queue.doubts() {
            if !self.world.coverage.kind(kind).is_in_doubt() {
                self.dispatcher.queue.lift(&blocker);
            }
        }
        if self.history.blind && !self.world.coverage.served().any(|(_, kind)| kind.is_watched() && kind.is_in_doubt())
        {
            self.history.blind = false;
            self.world.mark_deletions();
        }
    }
}
