//! Pauses: which there are, what they hold and stop, and when nothing of what they hold can be written any more.

use super::{Event, Leader, Output, PauseAnswer, PauseList, PauseRead, Timer};
use crate::coverage::State;
use crate::hold::meaning::resolved;
use crate::hold::{Hold, Pause, Scope, Taken};
use crate::late_writes::Writers;
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::plan::Brake;
use crate::time::Time;
use crate::view::PauseView;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Between two tries to read all pauses while it is not known which there are,
const READ_AGAIN: Duration = Duration::from_secs(1);
/// and while their watch is lost.
const READ_INSTEAD: Duration = Duration::from_secs(2);
/// Effects that wait before more decisions are told of that a pause holds or lets go.
const TOLD_AT_ONCE: usize = 1000;
/// What was known so long ago is not known any more.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// How this replica comes to know of pauses.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Up to here the watch has shown them.
    position: Option<ResourceVersion>,
    /// Why the watch does not follow, while it does not.
    lost: Option<String>,
    /// The consistent list under way.
    reading: Option<PauseRead>,
    last_read: u64,
    /// When it was certain last that all are known.
    confirmed: Time,
    /// Why it is not known which there are.
    doubt: String,
    /// Somebody was told of the doubt.
    told: bool,
    /// One was left out since the read under way began.
    left_out: bool,
}

/// What holds decisions back.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    pub(super) watch: Watch,
}

impl Leader {
    /// All pauses by name, those that are over included.
    pub fn pauses(&self) -> Vec<PauseView> {
        let view = |entry: &crate::hold::Entry| {
            let writers = if entry.effective || entry.over {
                Writers::default()
            } else {
                self.dispatcher.writers(&entry.meaning.scope)
            };
            PauseView {
                name: entry.pause.name.clone(),
                uid: entry.pause.uid.clone(),
                scope: entry.meaning.scope.clone(),
                reason: entry.pause.reason.clone(),
                actor: entry.pause.actor.clone(),
                created: entry.pause.created,
                lifetime: entry.pause.lifetime,
                until: entry.until,
                over: entry.over,
                effective: entry.effective && !entry.over && self.cx.term.is_some(),
                sessions_remaining: if self.cx.term.is_some() { writers.count() } else { 0 },
                pending: if entry.effective || entry.over { String::new() } else { self.pending(&writers) },
                held: self.dispatcher.queue.held_by(&Hold::Pause(entry.pause.name.clone())).len(),
                problem: entry.problem(),
            }
        };
        self.dispatcher.queue.holds.pauses().map(view).collect()
    }

    /// Why everything that destroys is held beside what pauses say, if it is.
    pub(super) fn pauses_unknown(&self) -> Option<String> {
        if self.dispatcher.queue.holds.is_unknown() {
            return Some(format!("it is not known which pauses there are: {}", self.pauses.watch.doubt));
        }
        let max = crate::hold::PAUSES_MAX;
        self.dispatcher.queue.holds.has_too_many().then(|| format!("there are more than {max} pauses; delete some"))
    }

    /// A scope as somebody asks for it, with the names that the API server knows. The error says what in it matches nothing, in a sentence.
    pub fn resolve_scope(&self, scope: &Scope) -> Result<Scope, String> {
        let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
        let synced =
            self.world.coverage.find(&namespaces).filter(|&id| self.world.coverage.kind(id).state == State::Synced);
        let has_namespace = |name: &Name| {
            synced?;
            let there = self.uids_at("", "Namespace", "", name, 1);
            Some(
                there
                    .iter()
                    .any(|uid| self.world.best_known(uid).is_some_and(|id| self.world.graph.node(id).is_observed())),
            )
        };
        resolved(scope, &self.world.coverage, has_namespace)
    }

    /// What a name of a kind means, as people write it: see [`Leader::resolve_scope`].
    pub fn resources_called(&self, name: &GroupResource) -> Vec<GroupResource> {
        self.world.coverage.called(name)
    }

    /// What is served has changed, and with it what the names in scopes mean.
    pub(super) fn read_scopes_again(&mut self) {
        let changed = self.dispatcher.queue.holds.read_again(&self.world.coverage);
        for name in &changed {
            self.dispatcher.queue.unhold(&Hold::Pause(name.clone()));
            if let Some(entry) = self.dispatcher.queue.holds.get(name) {
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
        }
        if !changed.is_empty() {
            self.dispatcher.press(&mut self.cx);
        }
    }

    /// What holds an item, for readers: `pauses/NAME: REASON`, or why it is not known which pauses there are.
    pub(super) fn hold_text(&self, hold: &Hold) -> String {
        match hold {
            Hold::Pause(name) => {
                let reason = self.dispatcher.queue.holds.get(name).map_or("", |entry| &entry.pause.reason);
                format!("pauses/{name}: {reason}")
            }
            Hold::Unknown | Hold::TooMany => self.pauses_unknown().unwrap_or_default(),
        }
    }

    /// What holds back what destroys, the first by name first.
    pub(super) fn brakes(&self) -> Vec<Brake> {
        let standing = self.dispatcher.queue.holds.pauses().filter(|entry| !entry.over);
        let brake = |entry: &crate::hold::Entry| Brake {
            scope: entry.meaning.scope.clone(),
            words: self.hold_text(&Hold::Pause(entry.pause.name.clone())),
            until: Some(entry.until),
        };
        let unknown = self.pauses_unknown().map(|words| Brake { scope: Scope::default(), words, until: None });
        standing.map(brake).chain(unknown).collect()
    }

    fn pending(&self, writers: &Writers) -> String {
        if self.cx.term.is_none() {
            return String::from("this replica does not lead; the leader obeys as soon as it sees the pause");
        }
        let mut parts = Vec::new();
        if !writers.sessions.is_empty() {
            parts.push(format!("{} executors have not ended what they had begun", writers.sessions.len()));
        }
        if writers.departed > 0 {
            parts.push(format!("{} executors went without a word", writers.departed));
        }
        if writers.earlier_terms {
            parts.push(String::from("executors of an earlier leader may not know of it"));
        }
        parts.join(", ")
    }

    /// A term begins: which pauses there are is asked for, and executors of earlier terms may still write.
    pub(super) fn begin_pauses(&mut self) {
        self.dispatcher.queue.holds.reset_effective();
        let until = self.cx.now
            + self.cx.config.session_ttl
            + self.cx.config.heartbeat_interval
            + super::dispatcher::holds::REQUEST_WITHIN;
        self.dispatcher.late_writes.begin_term(until);
        self.cx.timers.set(until, Timer::LateWrites);
        self.pauses.watch.reading = None;
        self.doubt_pauses("they are being asked for");
    }

    /// The versions of another history say nothing about this one's.
    pub(super) fn forget_pause_versions(&mut self) {
        self.pauses.watch.position = None;
        self.pauses.watch.reading = None;
        self.dispatcher.queue.holds.forget_versions();
        self.doubt_pauses("the store's history changed");
    }

    fn doubt_pauses(&mut self, why: &str) {
        self.pauses.watch.doubt = String::from(why);
        if self.cx.term.is_some() {
            if self.dispatcher.queue.holds.set_unknown(true) {
                self.dispatcher.queue.hold_ready();
            }
            self.ask_pauses();
        }
    }

    fn ask_pauses(&mut self) {
        if self.pauses.watch.reading.is_some() {
            return;
        }
        self.pauses.watch.last_read += 1;
        let read = PauseRead(self.pauses.watch.last_read);
        self.pauses.watch.reading = Some(read);
        self.pauses.watch.left_out = false;
        self.cx.outputs.push_back(Output::ReadPauses(read));
    }

    pub(super) fn pause_read_due(&mut self) {
        let wanted =
            self.dispatcher.queue.holds.is_unknown() || self.pauses.watch.lost.is_some() || self.pauses.watch.left_out;
        if wanted && self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    pub(super) fn pauses_read(&mut self, read: PauseRead, answer: Result<PauseAnswer, String>) {
        if self.pauses.watch.reading != Some(read) {
            // Asked before what is known now.
            return;
        }
        self.pauses.watch.reading = None;
        match answer {
            Ok(PauseAnswer::NotServed) => {
                self.pauses.watch.lost = None;
                self.pauses.watch.position = None;
                let nothing = PauseList { position: ResourceVersion::parse(""), pauses: Vec::new(), more: false };
                self.replace_pauses(nothing);
                self.pauses_confirmed();
            }
            Ok(PauseAnswer::Served(list)) => {
                let seen = self.pauses.watch.position.as_ref().is_some_and(|position| position.reached(&list.position));
                if !seen || self.dispatcher.queue.holds.has_too_many() {
                    self.replace_pauses(list);
                }
                self.pauses_confirmed();
            }
            Err(why) => self.pauses_unread(why),
        }
    }

    fn pauses_confirmed(&mut self) {
        self.pauses.watch.confirmed = self.cx.now;
        if self.dispatcher.queue.holds.set_unknown(false) {
            self.dispatcher.queue.unhold(&Hold::Unknown);
        }
        if core::mem::take(&mut self.pauses.watch.told) {
            self.cx.event(Event::PausesKnown);
        }
        if self.pauses.watch.left_out || self.pauses.watch.lost.is_some() {
            self.cx.timers.set(self.cx.now + READ_INSTEAD, Timer::PauseRead);
        }
    }

    fn pauses_unread(&mut self, why: String) {
        let unknown = self.dispatcher.queue.holds.is_unknown();
        self.cx.timers.set(self.cx.now + if unknown { READ_AGAIN } else { READ_INSTEAD }, Timer::PauseRead);
        if !unknown && self.cx.now.since(self.pauses.watch.confirmed) < KNOWN_FOR {
            return;
        }
        if !self.pauses.watch.told || self.pauses.watch.doubt != why {
            self.pauses.watch.told = true;
            self.cx.event(Event::PausesUnknown { why: why.clone() });
        }
        self.pauses.watch.doubt = why;
        if self.dispatcher.queue.holds.set_unknown(true) {
            self.dispatcher.queue.hold_ready();
        }
    }

    /// The watch has begun anew, with a list of all.
    pub(super) fn pauses_listed(&mut self, list: PauseList) {
        self.pauses.watch.lost = None;
        self.pauses.watch.position = Some(list.position.clone());
        self.replace_pauses(list);
    }

    /// The watch follows.
    pub(super) fn pauses_followed(&mut self, position: Option<ResourceVersion>) {
        self.pauses.watch.lost = None;
        if position.is_some() {
            self.pauses.watch.position = position;
        }
    }

    /// The watch does not follow: lists take its place until it does.
    pub(super) fn pauses_lost(&mut self, error: String) {
        if self.pauses.watch.lost.replace(error).is_none() {
            self.pauses.watch.confirmed = self.cx.now;
        }
        if self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    /// Takes a list of all. What is newer than the list stays.
    fn replace_pauses(&mut self, list: PauseList) {
        let listed: BTreeSet<&Uid> = list.pauses.iter().map(|pause| &pause.uid).collect();
        let gone = |pause: &Pause| {
            let missing = !listed.contains(&pause.uid) && !list.position.is_before(&pause.resource_version);
            missing.then(|| (pause.name.clone(), pause.uid.clone()))
        };
        let gone: Vec<(Name, Uid)> =
            self.dispatcher.queue.holds.pauses().filter_map(|entry| gone(&entry.pause)).collect();
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
        if self.dispatcher.queue.holds.set_too_many(more) && !more {
            self.dispatcher.queue.unhold(&Hold::TooMany);
        }
        if pressed || more {
            self.dispatcher.press(&mut self.cx);
        }
    }

    /// A pause as its watch, or whoever wrote it, shows it.
    pub(super) fn pause_seen(&mut self, pause: Pause) {
        match self.take_pause(pause) {
            Taken::New | Taken::Rescoped => self.dispatcher.press(&mut self.cx),
            Taken::NoRoom => {
                self.pauses.watch.left_out = true;
                if self.dispatcher.queue.holds.set_too_many(true) {
                    self.dispatcher.press(&mut self.cx);
                }
            }
            Taken::Moved | Taken::Same => {}
        }
    }

    pub(super) fn pause_gone(&mut self, name: &Name, uid: &Uid) {
        self.dispatcher.drop_pause(&mut self.cx, name, uid);
        if self.dispatcher.queue.holds.has_too_many() && self.cx.term.is_some() {
            self.ask_pauses();
        }
    }

    fn take_pause(&mut self, pause: Pause) -> Taken {
        let name = pause.name.clone();
        let replaced = self.dispatcher.queue.holds.get(&name).is_some_and(|entry| entry.pause.uid != pause.uid);
        let taken = self.dispatcher.queue.holds.take(self.cx.now, pause, &self.world.coverage);
        if replaced || taken == Taken::Rescoped {
            self.dispatcher.queue.unhold(&Hold::Pause(name.clone()));
        }
        let Some(entry) = self.dispatcher.queue.holds.get(&name) else { return taken };
        match taken {
            Taken::New | Taken::Rescoped => {
                let event = Event::PauseTaken {
                    name: name.clone(),
                    scope: entry.meaning.scope.clone(),
                    reason: entry.pause.reason.clone(),
                    actor: entry.pause.actor.clone(),
                    problem: entry.problem(),
                    lasts: entry.until.since(self.cx.now),
                };
                self.cx.timers.set(entry.until, Timer::PauseEnd(name));
                self.cx.event(event);
            }
            Taken::Moved => self.cx.timers.set(entry.until, Timer::PauseEnd(name)),
            Taken::Same | Taken::NoRoom => {}
        }
        taken
    }

    /// Tells which decisions pauses hold from now on, and which not any more.
    pub(super) fn tell_held(&mut self) {
        if self.cx.term.is_none() {
            return;
        }
        while let Some((item, pause)) = self.dispatcher.queue.next_held_news() {
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
