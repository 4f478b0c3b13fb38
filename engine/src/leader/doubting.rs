//! Asks where the store stands when a connection broke, a watch ended before its time, or answers contradict each other.

use super::history::{AGREE_AFTER, Agreement};
use super::{Event, KnownVersions, Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::{KindId, State};
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::queue::Blocker;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// Between two questions where the store stands while nothing is granted.
const SUSPECT_AGAIN: Duration = Duration::from_millis(500);
/// Between two questions to a collection that cannot be listed, on which little rests.
const DOUBT_AGAIN: Duration = Duration::from_secs(5);

impl Leader {
    /// A watch ended other than by its own time: what comes next may be another server, or another history.
    pub(super) fn suspect(&mut self) {
        if let Some(why) = self.history.suspect_connection() {
            self.stop_granting(why);
        }
    }

    /// The connection of a list broke, which says as much as that of a watch, where something is known that could be contradicted.
    pub(super) fn list_broke(&mut self) {
        if !self.world.witnesses().is_empty() {
            self.suspect();
        }
    }

    /// Answers about a collection cannot all be true: nothing that rests on its store is granted until more of them agree, and what its
    /// lists of single names have proven counts no more.
    pub(super) fn contradicted(&mut self, kind: KindId, why: String) {
        self.world.contradicted(&mut self.cx, kind, why);
        if self.world.coverage().kind(kind).is_aggregated() {
            self.doubt(kind);
        } else if let Some(why) = self.history.suspect_answers() {
            self.stop_granting(why);
        }
    }

    fn stop_granting(&mut self, why: &'static str) {
        self.cx.event(Event::GrantsStopped { why: format!("{why}; asking where the store stands") });
        self.dispatcher.stop_destroying(&mut self.cx, why);
        self.ask_suspect();
    }

    /// Asks where the store stands: the collection that was seen furthest, since all that a store has lost lies behind what it has
    /// kept; in turn another one, so that one broken collection does not hold up everything.
    pub(super) fn ask_suspect(&mut self) {
        let Some(next) = self.history.next_witness() else { return };
        let witnesses = self.world.witnesses();
        match next.checked_rem(witnesses.len()).map(|at| witnesses[at].clone()) {
            Some((kind, high)) => {
                self.history.asked();
                self.probe(kind, None, Some(1), Purpose::Suspect(kind, high));
            }
            // Nothing is known of the store that it could contradict.
            None => self.clear_suspicion(),
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
                if self.history.is_suspect() {
                    self.suspect_later();
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
            Ok(_) | Err(_) => self.suspect_later(),
        }
    }

    fn suspect_later(&mut self) {
        self.cx.timers.set(self.cx.now + SUSPECT_AGAIN, Timer::Suspect);
    }

    /// One more answer of those that are wanted. Where as many agree that the main store stands before what it was known to stand at when
    /// they were asked for, it went back.
    fn agreed(&mut self, kind: KindId, version: &ResourceVersion, known: &KnownVersions) {
        let entry = self.world.coverage().kind(kind);
        let is_of_main = entry.is_in_main_store() && entry.rewound.is_none();
        // A list that never ended, or a write, may have shown it further than any collection stands.
        let ahead = known.store.as_ref().filter(|seen| is_of_main && version.is_before(seen));
        match (self.history.agree(ahead.is_some()), ahead) {
            (Some(Agreement::WentBack), Some(seen)) => {
                let why = format!("{AGREE_AFTER} lists in a row stand at {version} or before, after {seen} was seen");
                self.rewind(kind, why);
            }
            (Some(Agreement::WentBack | Agreement::More), _) => self.suspect_later(),
            (Some(Agreement::Enough), _) => self.clear_suspicion(),
            (None, _) => {}
        }
    }

    fn clear_suspicion(&mut self) {
        if self.history.clear() {
            self.doubt_ended();
        }
    }

    pub(super) fn doubt_ended(&mut self) {
        if self.history.may_grant() {
            self.cx.event(Event::GrantsResumed);
        }
    }

    /// Takes in that an answer shows a store at this version. True if it lies so far ahead that the store was restored, and told to go
    /// on behind all that it had ever been at.
    pub(super) fn leapt(&mut self, kind: KindId, version: &ResourceVersion) -> bool {
        let now = self.cx.now;
        let entry = self.world.coverage().kind(kind);
        let leapt = entry.leaps(now, version) && entry.rewound.is_none();
        if leapt {
            self.rewind(kind, format!("the store stands at {version}, far past all that was seen"));
        } else {
            self.world.raise(now, kind, version);
        }
        leapt
    }

    /// The process that runs the leader wants nothing granted, or allows grants again.
    pub(super) fn withhold(&mut self, why: Option<String>) {
        match why {
            Some(why) => {
                let known = self.history.withhold(why.clone());
                if known.is_none() {
                    self.dispatcher.recall_unstarted(&mut self.cx, &why);
                }
                if known.as_ref() != Some(&why) {
                    self.cx.event(Event::GrantsStopped { why });
                }
            }
            None if self.history.allow() && !self.history.is_in_doubt() => self.cx.event(Event::GrantsResumed),
            None => {}
        }
    }

    /// The connection to a collection broke: what rests on it waits.
    pub(super) fn doubt(&mut self, kind: KindId) {
        if !self.world.coverage().kind(kind).doubtful {
            self.world.set_doubtful(kind, true);
            self.history.blinded(self.barrier.next_round());
            self.ask_doubt(kind);
        }
    }

    pub(super) fn ask_doubt(&mut self, kind: KindId) {
        let entry = self.world.coverage().kind(kind);
        if entry.served.is_none() {
            return;
        }
        match entry.high.clone().filter(|_| entry.doubtful && entry.is_watched()) {
            Some((high, _)) => self.probe(kind, None, Some(1), Purpose::Doubt(kind, high)),
            None => self.world.set_doubtful(kind, false),
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
                self.world.set_doubtful(kind, false);
                if !self.history.is_suspect() && !self.world.coverage().kind(kind).is_aggregated() {
                    self.world.trust_unserved(&answer.resource_version);
                }
            }
            Err(_) => {
                let failed = self.world.coverage().kind(kind).state == State::Failed;
                let wait = if failed { DOUBT_AGAIN } else { SUSPECT_AGAIN };
                self.cx.timers.set(self.cx.now + wait, Timer::Doubt(kind));
            }
        }
    }

    /// Puts an item behind a collection that has to say where it stands.
    pub(super) fn await_certainty(&mut self, uid: &Uid, kind: KindId) {
        let entry = self.world.coverage().kind(kind);
        let unserved = || GroupResource { group: entry.group.clone(), resource: entry.kind.clone() };
        let collection = entry.served.as_ref().map_or_else(unserved, |served| served.group_resource.clone());
        let blocker = Blocker::InDoubt { kind, collection };
        self.dispatcher.put_behind(&self.cx, uid, blocker);
    }

    /// Lets go what stood behind a collection that is in doubt no more.
    pub(super) fn end_doubts(&mut self) {
        for (kind, blocker) in self.dispatcher.queue().doubts() {
            if !self.world.coverage().kind(kind).is_in_doubt() {
                self.dispatcher.lift(&blocker);
            }
        }
        if self.history.is_blind() && !self.world.is_any_watched_kind_in_doubt() {
            self.history.sees_again();
            self.world.mark_deletions();
        }
    }
}
