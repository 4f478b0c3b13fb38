//! Items that guards hold, and the time from which no held write can still arrive at the API server.

use super::super::context::Context;
use super::super::marking::unmatched;
use super::super::{Event, Timer};
use super::Dispatcher;
use super::sessions::send_revoke;
use crate::coverage::Coverage;
use crate::guard::{Guard, GuardId, GuardKind, HeldBy};
use crate::hold::{Entry, Hold, Holds, Taken};
use crate::late_writes::Writers;
use crate::lease::{Lease, Session, SessionId};
use crate::object::Uid;
use crate::queue::{Draft, Item};
use crate::scope::{Filter, Scope, Target};
use crate::time::Time;
use crate::work::{Hello, LeaseId, RevokeMode};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// Time for which a request may be in transit after it was sent in time.
pub(in crate::leader) const REQUEST_WITHIN: Duration = Duration::from_secs(30);

impl Dispatcher {
    /// Forgets a deleted guard. Returns true if it held something or could.
    pub(in crate::leader) fn drop_guard(&mut self, cx: &mut Context, id: &GuardId, uid: &Uid) -> bool {
        let Some(entry) = self.queue.holds_mut().remove(id, uid) else { return false };
        if !entry.over {
            cx.event(Event::GuardEnded { id: id.clone(), why: "deleted" });
        }
        !entry.over
    }

    /// Ends a guard whose lifetime has passed. Returns false if it has not.
    pub(in crate::leader) fn end_guard(&mut self, cx: &mut Context, id: &GuardId) -> bool {
        let now = cx.now;
        let is_due = |entry: &&mut Entry| !entry.over && entry.until.is_some_and(|until| until <= now);
        let Some(entry) = self.queue.holds_mut().get_mut(id).filter(is_due) else { return false };
        entry.over = true;
        cx.event(Event::GuardEnded { id: id.clone(), why: "its lifetime has passed" });
        true
    }

    /// Recomputes the hold of each item.
    pub(in crate::leader) fn rehold(&mut self, find: impl Fn(&Holds, &Draft) -> Option<Hold>) {
        self.queue.rehold(find);
    }

    /// Records that the labels of a namespace changed. If a write there can leave, guards whose scope depends on such
    /// labels may not be effective any more. Returns whether a write there can leave.
    pub(in crate::leader) fn namespace_changed(&mut self, cx: &Context, name: &str) -> bool {
        let filter = Filter { namespaces: alloc::vec![name.into()], ..Filter::default() };
        let has_writers = self.writers_of(&Scope { targets: alloc::vec![filter] }, cx.now).count() > 0;
        if has_writers {
            self.queue.holds_mut().reset_effective(cx.now, Entry::selects_namespaces);
        }
        has_writers
    }

    /// The leases at places that a guard in force may cover, if `is_held` says so of their targets.
    pub(in crate::leader) fn pressed_leases(&self, is_held: impl Fn(&Uid) -> bool) -> Vec<LeaseId> {
        let pressed = |lease: &Lease| {
            lease.destroys.as_ref().is_some_and(|place| self.queue.holds().is_pressed(place)) && is_held(&lease.target)
        };
        self.leases.iter().filter(|(_, lease)| pressed(lease)).map(|(id, _)| id).collect()
    }

    /// Stops these leases, and late writes whose scope is unknown.
    pub(in crate::leader) fn press(&mut self, cx: &mut Context, leases: &[LeaseId]) {
        self.revoke(cx, leases, RevokeMode::Stop, "held");
        for session in self.leases.sessions().map(|(id, _)| id).collect::<Vec<_>>() {
            self.stop_late_writes_of(cx, session);
        }
    }

    /// Stops the leases that a reconnecting executor still reports and that guards hold now, or that were stopped
    /// before. The earlier stream may have lost the Stop.
    pub(in crate::leader) fn stop_held_of(&mut self, cx: &mut Context, session: SessionId, hello: &Hello) {
        let again = self.stop_again(cx, session, hello);
        let in_scope = |id: &LeaseId, lease: &Lease| {
            lease.session == session
                && !again.contains(id)
                && lease.destroys.as_ref().is_some_and(|place| self.queue.holds().is_pressed(place))
        };
        let leases: Vec<LeaseId> =
            self.leases.iter().filter(|(id, lease)| in_scope(id, lease)).map(|(id, _)| id).collect();
        self.revoke(cx, &leases, RevokeMode::Stop, "held");
        self.stop_late_writes_of(cx, session);
    }

    /// Stops leases that were stopped before. Returns all of them.
    fn stop_again(&mut self, cx: &mut Context, id: SessionId, hello: &Hello) -> BTreeSet<LeaseId> {
        let Some(session) = self.leases.session_mut(id) else { return BTreeSet::new() };
        let held: BTreeSet<LeaseId> = hello.held.iter().map(|held| held.lease).collect();
        session.stopped.retain(|lease| held.contains(lease));
        let (stream, stopped) = (session.stream, session.stopped.clone());
        let leases = stopped.iter().copied().collect::<Vec<_>>();
        send_revoke(cx, stream, &leases, RevokeMode::Stop, "stopped before the connection broke");
        stopped
    }

    /// Stops the late writes of a session. Leases of another term, and leases that this leader gave up, have no known
    /// scope. Stopping a lease outside the scope only costs one more attempt.
    pub(in crate::leader) fn stop_late_writes_of(&mut self, cx: &mut Context, session: SessionId) {
        if !self.queue.holds().are_pressed() {
            return;
        }
        let stream = self.leases.session(session).and_then(|session| session.stream);
        send_revoke(cx, stream, &self.late_writes.of_session(session), RevokeMode::Stop, "held");
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

    /// Records that a write to this place got no answer: it may be in transit, also when its executor has ended it.
    pub(in crate::leader) fn unanswered(&mut self, cx: &mut Context, place: Option<Target>) {
        let until = cx.now + REQUEST_WITHIN;
        self.late_writes.unanswered(place, until);
        cx.timers.set(until, Timer::LateWrites);
    }

    pub(in crate::leader) fn late_writes_due(&mut self, cx: &Context) {
        self.late_writes.tick(cx.now);
    }

    /// The possible writers in the scope of a guard. Whatever was granted since the leader took the guard is out of its
    /// scope.
    pub(in crate::leader) fn writers(&self, entry: &Entry) -> Writers {
        self.writers_of(&entry.meaning.scope, entry.since)
    }

    /// The possible writers in a scope whose leases were granted until this time.
    fn writers_of(&self, scope: &Scope, granted: Time) -> Writers {
        let mut writers = self.late_writes.writers(scope);
        let counts = |lease: &Lease| {
            lease.granted <= granted && lease.destroys.as_ref().is_some_and(|place| scope.covers_target(place))
        };
        writers.sessions.extend(self.leases.iter().filter(|(_, lease)| counts(lease)).map(|(_, lease)| lease.session));
        writers
    }

    /// Finds guards that have become effective.
    pub(in crate::leader) fn settle_guards(&mut self, cx: &mut Context, coverage: &Coverage) {
        if cx.term.is_none() {
            return;
        }
        let pending = self.queue.holds().guards().filter(|entry| !entry.over && !entry.effective);
        let quiet = pending.filter(|entry| unmatched(entry, coverage).is_empty() && self.writers(entry).count() == 0);
        for id in quiet.map(|entry| entry.guard.id.clone()).collect::<Vec<_>>() {
            if let Some(entry) = self.queue.holds_mut().get_mut(&id) {
                entry.effective = true;
            }
            cx.event(Event::GuardEffective { id });
        }
    }

    /// Begins a term. Executors of earlier terms may still write, so the leader determines again which guards are
    /// effective.
    pub(in crate::leader) fn begin_guards(&mut self, cx: &mut Context) {
        self.queue.holds_mut().reset_effective(cx.now, |_| true);
        let until = cx.now + cx.config.session_ttl + cx.config.heartbeat_interval + REQUEST_WITHIN;
        self.late_writes.begin_term(until);
        cx.timers.set(until, Timer::LateWrites);
    }

    pub(in crate::leader) fn forget_guard_versions(&mut self) {
        self.queue.holds_mut().forget_versions();
    }

    /// Records whether the guards of a kind are unknown. Returns true if that changed; the caller then calls
    /// [`Dispatcher::rehold`].
    pub(in crate::leader) fn set_unknown(&mut self, kind: GuardKind, unknown: bool) -> bool {
        self.queue.holds_mut().set_unknown(kind, unknown)
    }

    /// Records whether there are more guards of a kind than the leader can keep. Returns true if that changed.
    pub(in crate::leader) fn set_too_many(&mut self, kind: GuardKind, too_many: bool) -> bool {
        self.queue.holds_mut().set_too_many(kind, too_many)
    }

    /// Reads the scopes again after a change of the served resources. Returns the guards whose scope has another
    /// meaning now.
    pub(in crate::leader) fn read_scopes_again(&mut self, cx: &Context, coverage: &Coverage) -> Vec<GuardId> {
        self.queue.holds_mut().read_again(cx.now, coverage)
    }

    /// Stores the current state of a guard, and sets the timer of its end.
    pub(in crate::leader) fn take_guard(&mut self, cx: &mut Context, guard: Guard, coverage: &Coverage) -> Taken {
        let id = guard.id.clone();
        let taken = self.queue.holds_mut().take(cx.now, guard, coverage);
        let until = self.queue.holds().get(&id).and_then(|entry| entry.until);
        if let (Some(until), Taken::New | Taken::Rescoped | Taken::Moved) = (until, taken) {
            cx.timers.set(until, Timer::GuardEnd(id));
        }
        taken
    }

    /// Returns the next item whose hold changed and is not reported yet, with what holds the item.
    pub(in crate::leader) fn next_held_news(&mut self) -> Option<(&Item, Option<HeldBy>)> {
        self.queue.next_held_news()
    }
}
