//! Questions about the position of the store after a broken connection, an early end of a watch, or contradicting
//! answers.

use super::history::{AGREE_AFTER, Agreement};
use super::{Event, KnownVersions, Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::{KindId, State};
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::queue::Blocker;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// Time between two questions about the position of the store while all grants are withheld.
const SUSPECT_AGAIN: Duration = Duration::from_millis(500);
/// Time between two questions to a collection in doubt that cannot be listed. Few decisions depend on such a
/// collection.
const DOUBT_AGAIN: Duration = Duration::from_secs(5);

impl Leader {
    /// Suspects the connection after a watch ended early. The next connection may reach another server, or another
    /// history.
    pub(super) fn suspect(&mut self) {
        if let Some(why) = self.history.suspect_connection() {
            self.stop_granting(why);
        }
    }

    /// Suspects the connection after the connection of a list broke. The suspicion matters only if the leader knows
    /// something that another history could contradict.
    pub(super) fn list_broke(&mut self) {
        if !self.world.witnesses().is_empty() {
            self.suspect();
        }
    }

    /// Records that answers about a collection contradict each other. The leader grants nothing that depends on the
    /// store until more answers agree. Proofs from lists of single names of the collection become void.
    pub(super) fn contradicted(&mut self, kind: KindId, why: String) {
        self.world.contradicted(&mut self.cx, kind, why);
        if self.world.coverage().kind(kind).is_aggregated() {
            self.doubt(kind);
        } else if let Some(why) = self.history.suspect_answers() {
            self.stop_granting(why);
        }
    }

    fn stop_granting(&mut self, why: &'static str) {
        self.cx.event(Event::GrantsStopped { why: format!("{why}; reading the position of the store again") });
        self.dispatcher.stop_destroying(&mut self.cx, why);
        self.ask_suspect();
    }

    /// Asks for the position of the store. The first question goes to the collection with the highest known version,
    /// because a rewound store loses its latest versions. Further questions go to other collections in turn, so that
    /// one broken collection does not block the leader.
    pub(super) fn ask_suspect(&mut self) {
        let Some(next) = self.history.next_witness() else { return };
        let witnesses = self.world.witnesses();
        match next.checked_rem(witnesses.len()).map(|at| witnesses[at].0) {
            Some(kind) => {
                self.history.asked();
                self.probe(kind, None, Some(1), Purpose::Suspect);
            }
            // The leader knows nothing about the store that an answer could contradict.
            None => self.clear_suspicion(),
        }
    }

    /// Handles an answer about the position of the store. The watch of the collection may have passed the known
    /// versions since the question was sent.
    pub(super) fn suspect_answered(
        &mut self,
        kind: KindId,
        known: &KnownVersions,
        answer: Result<ProbeAnswer, String>,
    ) {
        let Some(position) = &known.own else { return };
        match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.went_back(kind, "the store", &answer.resource_version, position);
                // The kind may no longer be served.
                if self.history.is_suspect() {
                    self.suspect_later();
                }
            }
            Ok(answer) if answer.resource_version.reached(position) => {
                // Collections with a higher known version have not answered. Decisions that depend on these collections
                // wait for their answers.
                for (other, high) in self.world.witnesses() {
                    if other != kind && position.is_before(&high) {
                        self.doubt(other);
                    }
                }
                // The question may be older than the knowledge of the unserved kinds. A second question decides.
                if self.world.doubt_unserved(&answer.resource_version) {
                    self.doubt(kind);
                }
                self.agreed(kind, &answer.resource_version, known);
            }
            // The question failed, or the versions are not comparable. Another collection is asked.
            Ok(_) | Err(_) => self.suspect_later(),
        }
    }

    /// Rewinds to an answer that is before the known version. `what` is the subject of the reason.
    fn went_back(&mut self, kind: KindId, what: &str, version: &ResourceVersion, known: &ResourceVersion) {
        self.rewind(kind, format!("{what} is at version {version}, which is before the known version {known}"));
    }

    fn suspect_later(&mut self) {
        self.cx.timers.set(self.cx.now + SUSPECT_AGAIN, Timer::Suspect);
    }

    /// Counts an answer that agrees. The store was rewound if enough answers show the main store before its known
    /// position at the time of the question.
    fn agreed(&mut self, kind: KindId, version: &ResourceVersion, known: &KnownVersions) {
        let entry = self.world.coverage().kind(kind);
        let is_of_main = entry.is_in_main_store() && !entry.is_rewound();
        // An unfinished list or a write may have shown the main store at a higher version than any collection has.
        let ahead = known.store.as_ref().filter(|seen| is_of_main && version.is_before(seen));
        match (self.history.agree(ahead.is_some()), ahead) {
            (Some(Agreement::WentBack), Some(seen)) => {
                let why = format!(
                    "{AGREE_AFTER} consecutive lists returned version {version} or lower, which is before the known version {seen}"
                );
                self.rewind(kind, why);
            }
            (Some(Agreement::WentBack | Agreement::More), _) => self.suspect_later(),
            (Some(Agreement::Outdated), _) => self.ask_suspect(),
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

    /// Handles the version of an answer. Returns true if the version lies so far ahead that the store was restored with
    /// its revision raised past all earlier revisions.
    pub(super) fn leapt(&mut self, kind: KindId, version: &ResourceVersion) -> bool {
        let now = self.cx.now;
        let entry = self.world.coverage().kind(kind);
        let leapt = entry.leaps(now, version) && !entry.is_rewound();
        if leapt {
            self.rewind(kind, format!("the store is at version {version}, far past all known versions"));
        } else {
            self.world.raise(now, kind, version);
        }
        leapt
    }

    /// Withholds all grants for the process that runs the leader, or permits grants again.
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

    /// Puts a collection in doubt after its connection broke. Decisions that depend on the collection wait.
    pub(super) fn doubt(&mut self, kind: KindId) {
        if !self.world.coverage().kind(kind).is_doubtful() {
            self.world.set_doubtful(kind, true);
            self.history.blinded(self.barrier.next_round());
            self.ask_doubt(kind);
        }
    }

    pub(super) fn ask_doubt(&mut self, kind: KindId) {
        let entry = self.world.coverage().kind(kind);
        if entry.served().is_none() {
            return;
        }
        if entry.high().is_some() && entry.is_doubtful() && entry.is_watched() {
            self.probe(kind, None, Some(1), Purpose::Doubt);
        } else {
            self.world.set_doubtful(kind, false);
        }
    }

    pub(super) fn doubt_answered(&mut self, kind: KindId, known: &KnownVersions, answer: Result<ProbeAnswer, String>) {
        let Some(position) = &known.own else { return };
        match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.went_back(kind, "it", &answer.resource_version, position);
            }
            // The versions are not comparable, so any answer ends the doubt.
            Ok(answer) => {
                self.world.set_doubtful(kind, false);
                if !self.history.is_suspect() && !self.world.coverage().kind(kind).is_aggregated() {
                    self.world.trust_unserved(&answer.resource_version);
                }
            }
            Err(_) => {
                let failed = self.world.coverage().kind(kind).state() == State::Failed;
                let wait = if failed { DOUBT_AGAIN } else { SUSPECT_AGAIN };
                self.cx.timers.set(self.cx.now + wait, Timer::Doubt(kind));
            }
        }
    }

    /// Makes an item wait until the position of a collection in doubt is known.
    pub(super) fn await_certainty(&mut self, uid: &Uid, kind: KindId) {
        let entry = self.world.coverage().kind(kind);
        let unserved = || GroupResource { group: entry.group.clone(), resource: entry.kind.clone() };
        let collection = entry.served().map_or_else(unserved, |served| served.group_resource.clone());
        let blocker = Blocker::InDoubt { kind, collection };
        self.dispatcher.put_behind(&self.cx, uid, blocker);
    }

    /// Releases the items that waited for collections that are no longer in doubt.
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
