//! Handling of pauses: the set of pauses, the work that they hold and stop, and the time from which they are effective.

use super::{Event, Leader, Output, PauseAnswer, PauseList, PauseRead, Timer};
use crate::hold::{Pause, Taken};
use crate::object::{Name, ResourceVersion, Uid};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time between two attempts to read all pauses while the set of pauses is unknown.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Time between two reads of all pauses while their watch is lost.
const READ_INSTEAD: Duration = Duration::from_secs(2);
/// Number of waiting effects above which no further hold changes are reported.
const TOLD_AT_ONCE: usize = 1000;
impl Leader {
    /// Reads the scopes of all pauses again after a change of the served resources. The names in scopes may have
    /// another meaning.
    pub(super) fn read_scopes_again(&mut self) {
        let changed = self.dispatcher.read_scopes_again(self.world.coverage());
        for name in &changed {
            self.report_pause(name);
        }
        if !changed.is_empty() {
            self.dispatcher.press(&mut self.cx);
        }
    }

    fn report_pause(&mut self, name: &Name) {
        let Some(entry) = self.dispatcher.queue().holds().get(name) else { return };
        let event = Event::PauseTaken {
            name: name.clone(),
            scope: entry.meaning.scope.clone(),
            reason: entry.pause.reason.clone(),
            actor: entry.pause.actor.clone(),
            problem: entry.problem(),
            lasts: entry.until.since(self.cx.now),
        };
        self.cx.event(event);
    }

    /// Begins a term. The leader reads all pauses, because executors of earlier terms may still write.
    pub(super) fn begin_pauses(&mut self) {
        self.dispatcher.begin_pauses(&mut self.cx);
        self.pauses.begin_term();
        self.doubt_pauses("the leader has not read them yet");
    }

    /// Discards the versions of pauses, which belong to another history.
    pub(super) fn forget_pause_versions(&mut self) {
        self.pauses.forget_versions();
        self.dispatcher.forget_pause_versions();
        self.doubt_pauses("the store was rewound");
    }

    fn doubt_pauses(&mut self, why: &str) {
        self.pauses.set_doubt(why);
        if self.cx.term.is_some() {
            self.dispatcher.hold_all();
            self.ask_pauses();
        }
    }

    fn ask_pauses(&mut self) {
        if let Some(read) = self.pauses.begin_read() {
            self.cx.outputs.push_back(Output::ReadPauses(read));
        }
    }

    pub(super) fn pause_read_due(&mut self) {
        let wanted = self.dispatcher.queue().holds().is_unknown() || self.pauses.needs_reads();
        if wanted && self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    pub(super) fn pauses_read(&mut self, read: PauseRead, answer: Result<PauseAnswer, String>) {
        // A list that was requested before the current knowledge says nothing.
        if !self.pauses.end_read(read) {
            return;
        }
        match answer {
            Ok(PauseAnswer::NotServed) => {
                self.pauses.not_served();
                let nothing = PauseList { position: ResourceVersion::parse(""), pauses: Vec::new(), more: false };
                self.replace_pauses(nothing);
                self.pauses_confirmed();
            }
            Ok(PauseAnswer::Served(list)) => {
                if !self.pauses.has_reached(&list.position) || self.dispatcher.queue().holds().has_too_many() {
                    self.replace_pauses(list);
                }
                self.pauses_confirmed();
            }
            Err(why) => self.pauses_unread(why),
        }
    }

    fn pauses_confirmed(&mut self) {
        let was_reported = self.pauses.confirm(self.cx.now);
        self.dispatcher.pauses_known();
        if was_reported {
            self.cx.event(Event::PausesKnown);
        }
        if self.pauses.needs_reads() {
            self.cx.timers.set(self.cx.now + READ_INSTEAD, Timer::PauseRead);
        }
    }

    fn pauses_unread(&mut self, why: String) {
        let unknown = self.dispatcher.queue().holds().is_unknown();
        self.cx.timers.set(self.cx.now + if unknown { READ_AGAIN } else { READ_INSTEAD }, Timer::PauseRead);
        if !unknown && self.pauses.is_recent(self.cx.now) {
            return;
        }
        if self.pauses.report_doubt(&why) {
            self.cx.event(Event::PausesUnknown { why });
        }
        self.dispatcher.hold_all();
    }

    /// Handles the list with which the watch of pauses begins.
    pub(super) fn pauses_listed(&mut self, list: PauseList) {
        self.pauses.followed(Some(list.position.clone()));
        self.replace_pauses(list);
    }

    /// Records that the watch of pauses is lost. Lists replace the watch until it resumes.
    pub(super) fn pauses_lost(&mut self, error: String) {
        self.pauses.lose(self.cx.now, error);
        if self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    /// Handles a list of all pauses. Pauses that are newer than the list remain.
    fn replace_pauses(&mut self, list: PauseList) {
        let listed: BTreeSet<&Uid> = list.pauses.iter().map(|pause| &pause.uid).collect();
        let gone = |pause: &Pause| {
            let missing = !listed.contains(&pause.uid) && !list.position.is_before(&pause.resource_version);
            missing.then(|| (pause.name.clone(), pause.uid.clone()))
        };
        let gone: Vec<(Name, Uid)> =
            self.dispatcher.queue().holds().pauses().filter_map(|entry| gone(&entry.pause)).collect();
        for (name, uid) in gone {
            self.dispatcher.drop_pause(&mut self.cx, &name, &uid);
        }
        let mut more = list.more;
        let mut pressed = false;
        for pause in list.pauses {
            match self.take_pause(pause) {
                Taken::New | Taken::Rescoped => pressed = true,
                Taken::NoRoom => more = true,
                Taken::Moved | Taken::Same => {}
            }
        }
        self.dispatcher.set_too_many(more);
        if pressed || more {
            self.dispatcher.press(&mut self.cx);
        }
    }

    /// Handles a pause from the watch or from the answer to its creation.
    pub(super) fn pause_seen(&mut self, pause: Pause) {
        match self.take_pause(pause) {
            Taken::New | Taken::Rescoped => self.dispatcher.press(&mut self.cx),
            Taken::NoRoom => {
                self.pauses.leave_out();
                if self.dispatcher.set_too_many(true) {
                    self.dispatcher.press(&mut self.cx);
                }
            }
            Taken::Moved | Taken::Same => {}
        }
    }

    pub(super) fn pause_gone(&mut self, name: &Name, uid: &Uid) {
        self.dispatcher.drop_pause(&mut self.cx, name, uid);
        if self.dispatcher.queue().holds().has_too_many() && self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    fn take_pause(&mut self, pause: Pause) -> Taken {
        let name = pause.name.clone();
        let taken = self.dispatcher.take_pause(&mut self.cx, pause, self.world.coverage());
        if matches!(taken, Taken::New | Taken::Rescoped) {
            self.report_pause(&name);
        }
        taken
    }

    /// Reports decisions that pauses begin or cease to hold.
    pub(super) fn tell_held(&mut self) {
        if self.cx.term.is_none() {
            return;
        }
        while let Some((item, pause)) = self.dispatcher.next_held_news() {
            let (target, action, draft) = (item.draft.target.clone(), item.draft.action.kind(), item.draft.clone());
            self.tell_decided(&draft.target.uid);
            let grounds = self.world.grounds_now(&self.cx, &draft);
            self.cx.event(Event::Held { target, action, pause, grounds });
            if self.cx.outputs.len() >= TOLD_AT_ONCE {
                return;
            }
        }
    }
}
