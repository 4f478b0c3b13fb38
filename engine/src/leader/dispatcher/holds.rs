//! Items that pauses hold, and the time from which no held write can still arrive at the API server.

use super::super::context::Context;
use super::super::{Event, Timer};
use super::Dispatcher;
use crate::coverage::Coverage;
use crate::hold::Hold;
use crate::hold::{Pause, Taken};
use crate::late_writes::Writers;
use crate::lease::{Lease, Session, SessionId};
use crate::object::{Name, Uid};
use crate::queue::Item;
use crate::scope::Scope;
use crate::work::{BATCH_MAX_ENTRIES, Hello, LeaseId, RevokeMode, ToExecutor};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time for which a request may be in transit after it was sent in time.
pub(in crate::leader) const REQUEST_WITHIN: Duration = Duration::from_secs(30);

impl Dispatcher {
    pub(in crate::leader) fn drop_pause(&mut self, cx: &mut Context, name: &Name, uid: &Uid) {
        let Some(entry) = self.queue.holds_mut().remove(name, uid) else { return };
        if !entry.over {
            self.queue.unhold(&Hold::Pause(name.clone()));
            cx.event(Event::PauseEnded { name: name.clone(), why: "deleted" });
        }
    }

    pub(in crate::leader) fn pause_end_due(&mut self, cx: &mut Context, name: &Name) {
        let now = cx.now;
        let Some(entry) = self.queue.holds_mut().get_mut(name).filter(|entry| !entry.over && entry.until <= now) else {
            return;
        };
        entry.over = true;
        self.queue.unhold(&Hold::Pause(name.clone()));
        cx.event(Event::PauseEnded { name: name.clone(), why: "its lifetime has passed" });
    }

    /// Applies additional holds: ready items wait, and leases are stopped.
    pub(in crate::leader) fn press(&mut self, cx: &mut Context) {
        self.queue.hold_ready();
        let in_scope =
            |lease: &Lease| lease.destroys.as_ref().is_some_and(|place| self.queue.holds().is_pressed(place));
        let leases: Vec<LeaseId> = self.leases.iter().filter(|(_, lease)| in_scope(lease)).map(|(id, _)| id).collect();
        self.revoke(cx, &leases, RevokeMode::Stop, "paused");
        for session in self.leases.sessions().map(|(id, _)| id).collect::<Vec<_>>() {
            self.stop_late_writes_of(cx, session);
        }
    }

    /// Stops the held leases that a reconnecting executor still reports.
    pub(in crate::leader) fn stop_held_of(&mut self, cx: &mut Context, session: SessionId) {
        let in_scope = |lease: &Lease| {
            lease.session == session
                && lease.destroys.as_ref().is_some_and(|place| self.queue.holds().is_pressed(place))
        };
        let leases: Vec<LeaseId> = self.leases.iter().filter(|(_, lease)| in_scope(lease)).map(|(id, _)| id).collect();
        self.revoke(cx, &leases, RevokeMode::Stop, "paused");
        self.stop_late_writes_of(cx, session);
    }

    /// Stops the late writes of a session. Leases of another term, and leases that this leader gave up, have no known
    /// scope. Stopping a lease outside the scope only costs one more attempt.
    pub(in crate::leader) fn stop_late_writes_of(&mut self, cx: &mut Context, session: SessionId) {
        if !self.queue.holds().are_pressed() {
            return;
        }
        let Some(stream) = self.leases.session(session).and_then(|session| session.stream) else { return };
        for batch in self.late_writes.of_session(session).chunks(BATCH_MAX_ENTRIES) {
            let reason = String::from("paused");
            cx.send(stream, ToExecutor::Revoke { leases: batch.to_vec(), mode: RevokeMode::Stop, reason });
        }
    }

    /// Records the leases that an executor reports besides the adopted ones.
    pub(in crate::leader) fn note_held(&mut self, id: SessionId, hello: &Hello, adopted: &BTreeSet<LeaseId>) {
        let held = hello.held.iter().map(|held| held.lease).collect();
        let begun = hello.held.iter().filter(|held| held.started && !adopted.contains(&held.lease));
        let begun = begun.map(|held| held.lease).collect();
        if let Some(session) = self.leases.session(id) {
            self.late_writes.hello(id, session, &held, begun);
        }
    }

    /// Records the leases of a session that ended without a report of its executor about them.
    pub(in crate::leader) fn note_departure<'a>(
        &mut self,
        cx: &mut Context,
        id: SessionId,
        session: &Session,
        leases: impl Iterator<Item = &'a Lease>,
    ) {
        let may_send = session.last_heard + cx.config.session_ttl + cx.config.heartbeat_interval;
        let until = cx.now.max(may_send) + REQUEST_WITHIN;
        self.late_writes.session_ended(id, session, leases, until);
        cx.timers.set(until, Timer::LateWrites);
    }

    pub(in crate::leader) fn late_writes_due(&mut self, cx: &Context) {
        self.late_writes.tick(cx.now);
    }

    pub(in crate::leader) fn writers(&self, scope: &Scope) -> Writers {
        let mut writers = self.late_writes.writers(scope);
        let in_scope = |lease: &Lease| lease.destroys.as_ref().is_some_and(|place| scope.covers_target(place));
        writers
            .sessions
            .extend(self.leases.iter().filter(|(_, lease)| in_scope(lease)).map(|(_, lease)| lease.session));
        writers
    }

    /// Finds pauses that have become effective.
    pub(in crate::leader) fn settle_pauses(&mut self, cx: &mut Context) {
        if cx.term.is_none() {
            return;
        }
        let pending = self.queue.holds().pauses().filter(|entry| !entry.over && !entry.effective);
        let quiet = pending.filter(|entry| self.writers(&entry.meaning.scope).count() == 0);
        for name in quiet.map(|entry| entry.pause.name.clone()).collect::<Vec<_>>() {
            if let Some(entry) = self.queue.holds_mut().get_mut(&name) {
                entry.effective = true;
            }
            cx.event(Event::PauseEffective { name });
        }
    }

    /// Begins a term. Executors of earlier terms may still write, so the leader determines again which pauses are
    /// effective.
    pub(in crate::leader) fn begin_pauses(&mut self, cx: &mut Context) {
        self.queue.holds_mut().reset_effective();
        let until = cx.now + cx.config.session_ttl + cx.config.heartbeat_interval + REQUEST_WITHIN;
        self.late_writes.begin_term(until);
        cx.timers.set(until, Timer::LateWrites);
    }

    pub(in crate::leader) fn forget_pause_versions(&mut self) {
        self.queue.holds_mut().forget_versions();
    }

    /// Holds all destructive actions, because the set of pauses is unknown.
    pub(in crate::leader) fn hold_all(&mut self) {
        if self.queue.holds_mut().set_unknown(true) {
            self.queue.hold_ready();
        }
    }

    /// Ends the hold of all destructive actions, because the set of pauses is known.
    pub(in crate::leader) fn pauses_known(&mut self) {
        if self.queue.holds_mut().set_unknown(false) {
            self.queue.unhold(&Hold::Unknown);
        }
    }

    /// Records whether there are more pauses than the leader can keep. Returns true if the value changed.
    pub(in crate::leader) fn set_too_many(&mut self, too_many: bool) -> bool {
        let is_news = self.queue.holds_mut().set_too_many(too_many);
        if is_news && !too_many {
            self.queue.unhold(&Hold::TooMany);
        }
        is_news
    }

    /// Reads the scopes again after a change of the served resources. Returns the pauses whose scope has another
    /// meaning now.
    pub(in crate::leader) fn read_scopes_again(&mut self, coverage: &Coverage) -> Vec<Name> {
        let changed = self.queue.holds_mut().read_again(coverage);
        for name in &changed {
            self.queue.unhold(&Hold::Pause(name.clone()));
        }
        changed
    }

    /// Stores the current state of a pause, and sets the timer of its end.
    pub(in crate::leader) fn take_pause(&mut self, cx: &mut Context, pause: Pause, coverage: &Coverage) -> Taken {
        let name = pause.name.clone();
        let replaced = self.queue.holds().get(&name).is_some_and(|entry| entry.pause.uid != pause.uid);
        let taken = self.queue.holds_mut().take(cx.now, pause, coverage);
        if replaced || taken == Taken::Rescoped {
            self.queue.unhold(&Hold::Pause(name.clone()));
        }
        if let (Some(entry), Taken::New | Taken::Rescoped | Taken::Moved) = (self.queue.holds().get(&name), taken) {
            cx.timers.set(entry.until, Timer::PauseEnd(name));
        }
        taken
    }

    /// Returns the next item whose hold changed and is not reported yet, with the pause that holds the item.
    pub(in crate::leader) fn next_held_news(&mut self) -> Option<(&Item, Option<Name>)> {
        self.queue.next_held_news()
    }
}
