//! Handling of guards: the sets of guards, the work that they hold and stop, and the time from which they are
//! effective.

use super::holding::Holding;
use super::{Event, GuardAnswer, GuardList, GuardRead, Leader, Output, Timer};
use crate::guard::{Guard, GuardId, GuardKind, Rule};
use crate::hold::Taken;
use crate::object::{ResourceVersion, Uid};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time between two attempts to read all guards of a kind while their set is unknown.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Time between two reads of all guards of a kind while their watch is lost.
const READ_INSTEAD: Duration = Duration::from_secs(2);
/// Number of waiting effects above which no further hold changes are reported.
const TOLD_AT_ONCE: usize = 1000;

impl Leader {
    /// Returns the judge of holds.
    pub(super) fn holding(&self) -> Holding<'_> {
        Holding { cx: &self.cx, world: &self.world, holds: self.dispatcher.queue().holds() }
    }

    /// Reads the scopes of all guards again after a change of the served resources. The names in scopes may have
    /// another meaning.
    pub(super) fn read_scopes_again(&mut self) {
        let changed = self.dispatcher.read_scopes_again(&self.cx, self.world.coverage());
        for id in &changed {
            self.report_guard(id);
        }
        if !changed.is_empty() {
            self.judge_selected();
            self.press();
        }
        self.match_anew();
    }

    fn report_guard(&mut self, id: &GuardId) {
        let Some(entry) = self.dispatcher.queue().holds().get(id) else { return };
        let event = Event::GuardTaken {
            id: id.clone(),
            uid: entry.guard.uid.clone(),
            scope: entry.meaning.scope.clone(),
            reason: entry.guard.reason.clone(),
            actor: entry.guard.actor.clone(),
            problem: entry.problem(),
            lasts: entry.until.map(|until| until.since(self.cx.now)),
        };
        self.cx.event(event);
    }

    /// Begins a term. The leader reads all guards, because executors of earlier terms may still write.
    pub(super) fn begin_guards(&mut self) {
        self.dispatcher.begin_guards(&mut self.cx);
        for kind in GuardKind::ALL {
            self.guards.of_mut(kind).begin_term();
            self.doubt_guards(kind, "the leader has not read them yet");
        }
        self.rehold();
    }

    /// Discards the versions of guards, which belong to another history.
    pub(super) fn forget_guard_versions(&mut self) {
        self.dispatcher.forget_guard_versions();
        for kind in GuardKind::ALL {
            self.guards.of_mut(kind).forget_versions();
            self.doubt_guards(kind, "the store was rewound");
        }
        self.rehold();
    }

    fn doubt_guards(&mut self, kind: GuardKind, why: &str) {
        self.guards.of_mut(kind).set_doubt(why);
        if self.cx.term.is_some() {
            self.dispatcher.set_unknown(kind, true);
            self.ask_guards(kind);
        }
    }

    fn ask_guards(&mut self, kind: GuardKind) {
        if let Some(read) = self.guards.of_mut(kind).begin_read() {
            self.cx.outputs.push_back(Output::ReadGuards(read));
        }
    }

    pub(super) fn guard_read_due(&mut self, kind: GuardKind) {
        let wanted = self.dispatcher.queue().holds().is_unknown(kind) || self.guards.of(kind).needs_reads();
        if wanted && self.cx.term.is_some() {
            self.ask_guards(kind);
        }
    }

    pub(super) fn guards_read(&mut self, read: GuardRead, answer: Result<GuardAnswer, String>) {
        // A list that was requested before the current knowledge says nothing.
        let GuardRead { kind, .. } = read;
        if !self.guards.of_mut(kind).end_read(read) {
            return;
        }
        match answer {
            Ok(GuardAnswer::NotServed) => {
                self.guards.of_mut(kind).not_served();
                let nothing = GuardList { position: ResourceVersion::parse(""), guards: Vec::new(), more: false };
                self.replace_guards(kind, nothing);
                self.guards_confirmed(kind);
            }
            Ok(GuardAnswer::Served(list)) => {
                let too_many = self.dispatcher.queue().holds().has_too_many(kind);
                if !self.guards.of(kind).has_reached(&list.position) || too_many {
                    self.replace_guards(kind, list);
                }
                self.guards_confirmed(kind);
            }
            Err(why) => self.guards_unread(kind, why),
        }
    }

    fn guards_confirmed(&mut self, kind: GuardKind) {
        let was_reported = self.guards.of_mut(kind).confirm(self.cx.now);
        if self.dispatcher.set_unknown(kind, false) {
            self.recall_all(kind);
            self.rehold();
        }
        if was_reported {
            self.cx.event(Event::GuardsKnown { kind });
        }
        if self.guards.of(kind).needs_reads() {
            self.cx.timers.set(self.cx.now + READ_INSTEAD, Timer::GuardRead(kind));
        }
    }

    /// Takes over what earlier leaders have written to the status of guards.
    fn recall_all(&mut self, kind: GuardKind) {
        if kind == GuardKind::Budget {
            let ids = self.dispatcher.queue().holds().asking().map(|entry| entry.guard.id.clone());
            for id in ids.filter(|id| id.kind == kind).collect::<Vec<_>>() {
                self.recall_spent(&id);
            }
        }
    }

    fn guards_unread(&mut self, kind: GuardKind, why: String) {
        let unknown = self.dispatcher.queue().holds().is_unknown(kind);
        self.cx.timers.set(self.cx.now + if unknown { READ_AGAIN } else { READ_INSTEAD }, Timer::GuardRead(kind));
        if !unknown && self.guards.of(kind).is_recent(self.cx.now) {
            return;
        }
        if self.guards.of_mut(kind).report_doubt(&why) {
            self.cx.event(Event::GuardsUnknown { kind, why });
        }
        if self.dispatcher.set_unknown(kind, true) {
            self.rehold();
        }
    }

    /// Handles the list with which the watch of a kind of guards begins.
    pub(super) fn guards_listed(&mut self, kind: GuardKind, list: GuardList) {
        self.guards.of_mut(kind).followed(Some(list.position.clone()));
        self.replace_guards(kind, list);
    }

    /// Records that the watch of a kind of guards is lost. Lists replace the watch until it resumes.
    pub(super) fn guards_lost(&mut self, kind: GuardKind, error: String) {
        self.guards.of_mut(kind).lose(self.cx.now, error);
        if self.cx.term.is_some() {
            self.ask_guards(kind);
        }
    }

    /// Handles a list of all guards of a kind. Guards that are newer than the list remain.
    fn replace_guards(&mut self, kind: GuardKind, list: GuardList) {
        let listed: BTreeSet<&Uid> = list.guards.iter().map(|guard| &guard.uid).collect();
        let gone = |guard: &Guard| {
            let missing = !listed.contains(&guard.uid) && !list.position.is_before(&guard.resource_version);
            (missing && guard.id.kind == kind).then(|| (guard.id.clone(), guard.uid.clone()))
        };
        let gone: Vec<(GuardId, Uid)> =
            self.dispatcher.queue().holds().guards().filter_map(|entry| gone(&entry.guard)).collect();
        let mut changed = false;
        for (id, uid) in gone {
            if self.dispatcher.drop_guard(&mut self.cx, &id, &uid) {
                self.reconsider(&id);
                changed = true;
            }
        }
        let mut more = list.more;
        for guard in list.guards.into_iter().filter(|guard| guard.id.kind == kind) {
            match self.take_guard(guard) {
                Taken::New | Taken::Rescoped => changed = true,
                Taken::NoRoom => more = true,
                Taken::Moved | Taken::Same => {}
            }
        }
        changed |= self.dispatcher.set_too_many(kind, more);
        if more {
            // A guard may have gone after the list was taken.
            self.guards.of_mut(kind).leave_out();
            self.cx.timers.set(self.cx.now + READ_INSTEAD, Timer::GuardRead(kind));
        }
        if changed {
            self.press();
        }
    }

    /// Handles a guard from the watch or from the answer to its creation.
    pub(super) fn guard_seen(&mut self, guard: Guard) {
        let kind = guard.id.kind;
        match self.take_guard(guard) {
            Taken::New | Taken::Rescoped => self.press(),
            Taken::NoRoom => {
                self.guards.of_mut(kind).leave_out();
                if self.dispatcher.set_too_many(kind, true) {
                    self.press();
                }
            }
            Taken::Moved | Taken::Same => {}
        }
    }

    pub(super) fn guard_gone(&mut self, id: &GuardId, uid: &Uid) {
        if self.dispatcher.drop_guard(&mut self.cx, id, uid) {
            self.reconsider(id);
            self.rehold();
        }
        if self.dispatcher.queue().holds().has_too_many(id.kind) && self.cx.term.is_some() {
            self.ask_guards(id.kind);
        }
    }

    pub(super) fn guard_end_due(&mut self, id: &GuardId) {
        if self.dispatcher.end_guard(&mut self.cx, id) {
            self.reconsider(id);
            self.rehold();
        }
    }

    fn take_guard(&mut self, guard: Guard) -> Taken {
        let id = guard.id.clone();
        let bypass = self.bypass_of(&id);
        let taken = self.dispatcher.take_guard(&mut self.cx, guard, self.world.coverage());
        if matches!(taken, Taken::New | Taken::Rescoped) {
            self.report_guard(&id);
            if let Some(new) = self.bypass_of(&id).filter(|new| bypass.as_ref() != Some(new)) {
                self.cx.event(new);
            }
            if taken == Taken::New {
                self.recall_spent(&id);
            }
            self.reconsider(&id);
            self.judge_selected();
            self.match_anew();
        }
        taken
    }

    /// Returns the event about the bypass of a gate, if it has one.
    fn bypass_of(&self, id: &GuardId) -> Option<Event> {
        let Rule::Gate(gate) = &self.dispatcher.queue().holds().get(id)?.guard.rule else { return None };
        (!gate.bypass_until.is_zero()).then(|| Event::GateBypassed {
            id: id.clone(),
            until: gate.bypass_until,
            reason: gate.bypass.clone(),
            actor: gate.bypass_by.clone(),
        })
    }

    /// Judges decisions again that depend on labels now: they need another digest.
    fn judge_selected(&mut self) {
        let holds = self.dispatcher.queue().holds();
        let queue = self.dispatcher.queue();
        let depends = |uid: &&Uid| {
            let item = queue.get(uid).filter(|item| item.draft.destroys);
            let place = item.and_then(|item| self.world.place(&item.draft.target));
            place.is_some_and(|place| holds.depends_on_labels(&place))
        };
        for uid in queue.uids().filter(depends).cloned().collect::<Vec<_>>() {
            self.world.mark_uid(&uid);
        }
    }

    /// Recomputes the hold of each item.
    pub(super) fn rehold(&mut self) {
        let (cx, world) = (&self.cx, &self.world);
        self.dispatcher.rehold(|holds, draft| Holding { cx, world, holds }.first(draft));
    }

    /// Applies changed guards: items wait or are released, and leases are stopped.
    pub(super) fn press(&mut self) {
        self.rehold();
        let held = |holding: &Holding<'_>, uid: &Uid| {
            self.dispatcher.queue().get(uid).is_none_or(|item| holding.first(&item.draft).is_some())
        };
        let holding = self.holding();
        let covered = self.dispatcher.pressed_leases(|uid| held(&holding, uid));
        self.dispatcher.press(&mut self.cx, &covered);
    }

    /// Reports decisions that guards begin or cease to hold.
    pub(super) fn tell_held(&mut self) {
        if self.cx.term.is_none() {
            return;
        }
        while let Some((item, by)) = self.dispatcher.next_held_news() {
            let (target, action, draft) = (item.draft.target.clone(), item.draft.action.kind(), item.draft.clone());
            self.tell_decided(&draft.target.uid);
            let grounds = self.world.grounds_now(&self.cx, &draft);
            self.cx.event(Event::Held { target, action, by, grounds });
            if self.cx.outputs.len() >= TOLD_AT_ONCE {
                return;
            }
        }
    }
}
