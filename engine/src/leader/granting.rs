//! Sessions, grants and reports: the exchange between the queue and the executors.

use super::dispatcher::LeaseEnd;
use super::{Event, Leader, Mode, Output, StreamId};
use crate::lease::{Lease, Session, SessionId, WINDOW_MAX};
use crate::object::Uid;
use crate::queue::{Delay, Item, ItemState};
use crate::work::{
    ActionKind, BATCH_MAX_ENTRIES, GoAwayCause, Hello, LeaseId, Refusal, ReturnCause, Term, ToExecutor, ToLeader,
    Welcome, WorkItem, WorkLease, WorkReturn,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time for which the leader accepts reports on a stream after it asked the executor to leave.
const CLOSE_AFTER: Duration = Duration::from_secs(5);
/// Time per executor over which executors that were asked to leave spread their reconnects.
const RECONNECT_SPREAD_EACH: Duration = Duration::from_millis(10);
/// Maximum time over which executors that were asked to leave spread their reconnects.
const RECONNECT_SPREAD_MAX: Duration = Duration::from_secs(2);
/// Time for which an item waits for another executor, after one executor reported that it does not support the item.
const NO_TAKER: Duration = Duration::from_secs(5);
/// Wait of an item whose object cannot be judged yet.
const UNJUDGED: Duration = Duration::from_secs(1);

impl Leader {
    pub(super) fn term_gained(&mut self, term: Term) {
        self.cx.term = Some(term.clone());
        self.cx.leader_endpoint.clear();
        self.dispatcher.begin_term();
        self.begin_guards();
        self.restart_barrier();
        self.world.mark_deletions();
        self.world.mark_untold();
        self.cx.event(Event::TermGained(term));
        self.begin_comparison();
    }

    pub(super) fn term_lost(&mut self, leader_endpoint: String) {
        self.cx.leader_endpoint = leader_endpoint;
        self.ledger.forget_inherited();
        if self.cx.term.take().is_some() {
            self.send_all_away(GoAwayCause::LeaderChanged);
            self.cx.event(Event::TermLost);
            self.end_all_questions();
        }
    }

    pub(super) fn stop(&mut self) {
        self.cx.stopping = true;
        self.tell_counts(true);
        self.send_all_away(GoAwayCause::ShuttingDown);
    }

    fn send_all_away(&mut self, cause: GoAwayCause) {
        let sessions: Vec<SessionId> = self.dispatcher.leases().sessions().map(|(id, _)| id).collect();
        let each = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        let spread = RECONNECT_SPREAD_EACH.saturating_mul(each).min(RECONNECT_SPREAD_MAX);
        for id in sessions {
            self.end_session(id, "sent away", Some((cause, spread)));
        }
    }

    /// Returns whether any grants are permitted.
    pub(super) fn may_grant(&self) -> bool {
        self.cx.term.is_some() && !self.cx.stopping && self.history.may_grant()
    }

    /// Grants ready items to executors with room, one to each in turn.
    pub(super) fn grant(&mut self) {
        let Some(term) = self.cx.term.clone().filter(|_| self.may_grant()) else { return };
        self.end_doubts();
        let mut grants: BTreeMap<SessionId, Vec<WorkLease>> = BTreeMap::new();
        while self.dispatcher.queue().has_ready() {
            let Some(session) = self.dispatcher.next_session() else { break };
            let Some(uid) = self.dispatcher.next_ready() else { break };
            if let Some(lease) = self.lease(&term, session, &uid) {
                grants.entry(session).or_default().push(lease);
            }
        }
        // Shares are sent first, so that executors can start the grants at once.
        self.dispatcher.shares_for(&mut self.cx, grants.keys());
        for (session, leases) in grants {
            let Some(stream) = self.dispatcher.leases().session(session).and_then(|session| session.stream) else {
                continue;
            };
            let mut leases = leases.into_iter().peekable();
            while leases.peek().is_some() {
                let leases = leases.by_ref().take(BATCH_MAX_ENTRIES).collect();
                self.cx.send(stream, ToExecutor::Grant { leases });
            }
        }
    }

    /// Judges owners in foreground deletion again whose dependents have joined a refusal. They do not wait for such
    /// work.
    pub(super) fn free_owners(&mut self) {
        for uid in self.dispatcher.take_refused() {
            self.world.mark_deleting_owners(&uid);
        }
    }

    fn lease(&mut self, term: &Term, session: SessionId, uid: &Uid) -> Option<WorkLease> {
        // The target is judged again, because facts may have arrived since the decision.
        let removes_finalizer = |item: &Item| item.draft.action.kind() == ActionKind::RemoveFinalizer;
        let anew = self.history.is_blind() && self.dispatcher.queue().get(uid).is_some_and(removes_finalizer);
        for id in self.world.graph().by_uid(uid).collect::<Vec<_>>() {
            if anew {
                self.world.mark(id);
            }
            self.judge(id);
        }
        if self.is_unjudged(uid) {
            self.dispatcher.backoff(&mut self.cx, uid, UNJUDGED, Delay::Unjudged);
            self.world.mark_deleting_owners(uid);
            return None;
        }
        // Checks the guards in force again, because facts may have changed since the decision.
        let hold = self.dispatcher.queue().get(uid).and_then(|item| self.holding().first(&item.draft));
        self.dispatcher.set_hold(uid, hold);
        if self.dispatcher.queue().get(uid).is_some_and(|item| item.state == ItemState::Ready)
            && let Some(hold) = self.unconsented(uid)
        {
            self.dispatcher.hold(uid, hold);
            return None;
        }
        let item = self.dispatcher.queue().get(uid).filter(|item| item.state == ItemState::Ready)?;
        let kind = item.draft.action.kind();
        let id = self.world.graph().primary(uid);
        if let Some(doubtful) = id.and_then(|id| self.world.rests_on_doubt(id)) {
            self.await_certainty(uid, doubtful);
            return None;
        }
        assert!(self.cx.config.mode == Mode::Enforce, "no item becomes ready in mode observe");
        if !self.dispatcher.leases().session(session).is_some_and(|session| session.kinds.contains(&kind)) {
            self.dispatcher.backoff(&mut self.cx, uid, NO_TAKER, Delay::NoTaker);
            self.world.mark_deleting_owners(uid);
            return None;
        }
        let destroys = self.world.place(&item.draft.target).filter(|_| item.draft.destroys);
        let attempt = item.attempts + 1;
        let work = WorkItem {
            id: item.id,
            target: item.draft.target.clone(),
            preconditions: item.draft.preconditions.clone(),
            action: item.draft.action.clone(),
            read_first: item.draft.read_first,
            generation: item.generation,
        };
        let ambiguous = item.ambiguous;
        self.tell_decided(uid);
        let item = self.dispatcher.queue().get(uid)?;
        let grounds = self.world.grounds_now(&self.cx, &item.draft);
        let executor = self.dispatcher.leases().session(session)?.executor.clone();
        let (of, target) = (work.id, work.target.clone());
        let kept = grounds.clone();
        self.cx.event(Event::Granted { item: of, target, action: kind, executor, attempt, grounds });
        let lease = Lease {
            session,
            target: uid.clone(),
            destroys,
            item: work.id,
            attempt,
            granted: self.cx.now,
            started: None,
            recalled: false,
            gone: None,
            grounds: kept,
        };
        self.take_consent(uid);
        let id = self.dispatcher.grant(&mut self.cx, term.number, lease);
        Some(WorkLease {
            id,
            term: term.clone(),
            item: work,
            attempt,
            execution_limit: self.cx.config.execution_limit,
            previous_attempt_ambiguous: ambiguous,
            traceparent: None,
        })
    }

    pub(super) fn message(&mut self, stream: StreamId, message: ToLeader) {
        match (message, self.dispatcher.leases().of_stream(stream)) {
            (ToLeader::Hello(hello), None) => self.hello(stream, &hello),
            (ToLeader::Hello(_), Some(_)) => {
                self.dispatcher.detach(stream);
                self.cx.outputs.push_back(Output::Refuse { stream, refusal: Refusal::OutOfTurn });
            }
            // The session has ended. The report is still useful, and the executor may forget it.
            (ToLeader::Reports { reports, .. }, None) => self.reports(stream, None, reports),
            // The executor sent the message before it could know that its session ended. Its stream is closed or closes
            // soon.
            (_, None) => {}
            (ToLeader::Heartbeat { sequence, .. }, Some(session)) => {
                self.dispatcher.heartbeat(&mut self.cx, stream, session, sequence)
            }
            (ToLeader::Window { max_outstanding }, Some(session)) => {
                self.dispatcher.set_window(session, max_outstanding);
            }
            (ToLeader::Started { leases }, Some(session)) => self.dispatcher.started(&mut self.cx, session, &leases),
            (ToLeader::Reports { reports, returns }, Some(session)) => {
                self.returns(session, &returns);
                if !reports.is_empty() {
                    self.reports(stream, Some(session), reports);
                }
                self.dispatcher.drained(&mut self.cx, stream, session);
            }
            (ToLeader::Drain { .. }, Some(session)) => self.dispatcher.drain(&mut self.cx, stream, session),
        }
    }

    fn hello(&mut self, stream: StreamId, hello: &Hello) {
        let protocol = match self.dispatcher.admit(&self.cx, hello) {
            Ok(protocol) => protocol,
            Err(refusal) => {
                self.dispatcher.tell_refusal(&mut self.cx, &hello.executor, &refusal);
                return self.cx.outputs.push_back(Output::Refuse { stream, refusal });
            }
        };
        let Some(term) = self.cx.term.clone() else { return };
        let known = self.dispatcher.leases().of_executor(&hello.executor);
        let is_same = |session: &Session| session.incarnation == hello.incarnation && session.origin == hello.origin;
        let same = known.filter(|&id| self.dispatcher.leases().session(id).is_some_and(is_same));
        if let Some(old) = known.filter(|_| same.is_none()) {
            self.supersede(old);
        }
        let session = match same {
            Some(id) => {
                self.dispatcher.attach(&mut self.cx, id, stream, hello);
                id
            }
            None => self.dispatcher.open(&mut self.cx, stream, &term, hello),
        };
        let (adopted, dropped) = self.adopt(session, &term, hello);
        let welcome = Welcome {
            session: session.0,
            term,
            protocol,
            session_ttl: self.cx.config.session_ttl,
            heartbeat_interval: self.cx.config.heartbeat_interval,
            adopted,
            dropped,
            max_window: WINDOW_MAX,
        };
        self.cx.send(stream, ToExecutor::Welcome(welcome));
        self.dispatcher.stop_held_of(&mut self.cx, session, hello);
        self.cx.event(Event::SessionOpened {
            executor: hello.executor.clone(),
            version: hello.version.clone(),
            protocol,
        });
        self.dispatcher.welcome_share(&mut self.cx, session, stream);
        let may_grant = self.may_grant();
        self.dispatcher.balance(&mut self.cx, may_grant);
    }

    fn supersede(&mut self, old: SessionId) {
        self.dispatcher.retire(old);
        self.end_session(old, "superseded", Some((GoAwayCause::Superseded, Duration::ZERO)));
    }

    /// Divides the leases that an executor reports into valid and invalid ones. Leases that the executor does not
    /// report never arrived.
    fn adopt(&mut self, session: SessionId, term: &Term, hello: &Hello) -> (Vec<LeaseId>, Vec<LeaseId>) {
        let ours = |id: LeaseId| self.dispatcher.leases().get(id).is_some_and(|lease| lease.session == session);
        let (adopted, dropped): (Vec<_>, Vec<_>) =
            hello.held.iter().partition(|held| held.term == *term && ours(held.lease));
        let adopted: Vec<LeaseId> = adopted.into_iter().map(|held| held.lease).collect();
        let dropped = dropped.into_iter().map(|held| held.lease).collect();
        let started: Vec<LeaseId> = hello
            .held
            .iter()
            .filter(|held| held.started && adopted.contains(&held.lease))
            .map(|held| held.lease)
            .collect();
        self.dispatcher.started(&mut self.cx, session, &started);
        let known: BTreeSet<LeaseId> = adopted.iter().copied().collect();
        self.dispatcher.note_held(session, hello, &known);
        let lost: Vec<LeaseId> = self
            .dispatcher
            .leases()
            .session(session)
            .map_or_else(Vec::new, |session| session.leases.difference(&known).copied().collect());
        for id in lost {
            if let Some(lease) = self.dispatcher.end_lease(id) {
                self.requeue(&lease);
            }
        }
        (adopted, dropped)
    }

    pub(super) fn session_due(&mut self, id: SessionId) {
        let Some(session) = self.dispatcher.leases().session(id) else { return };
        let silent = self.cx.now.since(session.last_heard);
        if silent < self.cx.config.session_ttl + self.cx.config.heartbeat_interval {
            return self.dispatcher.arm_session(&mut self.cx, id);
        }
        self.end_session(id, "no heartbeat", None);
    }

    /// Ends a session. `send_away` contains the reason that the executor gets, and the time span over which such
    /// executors reconnect.
    pub(super) fn end_session(&mut self, id: SessionId, why: &'static str, send_away: Option<(GoAwayCause, Duration)>) {
        let Some((session, leases)) = self.dispatcher.close(id) else { return };
        self.dispatcher.note_departure(&mut self.cx, id, &session, leases.iter().map(|(_, lease)| lease));
        for (_, lease) in &leases {
            self.requeue(lease);
        }
        if let Some(stream) = session.stream {
            if let Some((cause, spread)) = send_away {
                let message = ToExecutor::GoAway {
                    cause,
                    leader_endpoint: self.cx.leader_endpoint.clone(),
                    reconnect_after: self.cx.jitter.between(Duration::ZERO, spread),
                    close_after: CLOSE_AFTER,
                };
                self.cx.send(stream, message);
            } else {
                self.cx.outputs.push_back(Output::Close { stream });
            }
        }
        self.cx.event(Event::SessionEnded { executor: session.executor, why, leases: leases.len() });
        self.dispatcher.divide_soon(&mut self.cx);
    }

    /// Judges again the item of a lease that ended without a report, and queues it. If the lease was started, its write
    /// may have taken effect.
    pub(super) fn requeue(&mut self, lease: &Lease) {
        let end = self.dispatcher.lease_ended(lease);
        self.refund(&lease.target);
        match end {
            None => return,
            Some(LeaseEnd::Ready) => {}
            Some(LeaseEnd::Overtaken) => self.drop_overtaken(lease),
        }
        self.world.mark_uid(&lease.target);
        self.world.mark_deleting_owners(&lease.target);
    }

    fn returns(&mut self, session: SessionId, returns: &[WorkReturn]) {
        for returned in returns {
            self.dispatcher.settle(session, returned.lease);
            // An attempt that is returned has sent no write.
            let _no_write = self.dispatcher.end_late_write(session, returned.lease);
            if self.dispatcher.leases().get(returned.lease).is_none_or(|lease| lease.session != session) {
                continue;
            }
            let Some(lease) = self.dispatcher.end_lease(returned.lease) else { continue };
            match returned.cause {
                ReturnCause::NotStarted | ReturnCause::SessionLapsed => self.requeue(&lease),
                ReturnCause::KindUnsupported => {
                    self.dispatcher.is_unsupported(session, &lease);
                    self.requeue(&lease);
                }
                ReturnCause::TermStale => {
                    self.cx
                        .event(Event::Rejected { why: String::from("an executor knows a newer leader than this one") });
                    self.requeue(&lease);
                }
            }
        }
    }

    pub(super) fn regrant_due(&mut self, id: LeaseId) {
        if self.dispatcher.leases().get(id).is_some_and(|lease| lease.started.is_none())
            && let Some(lease) = self.dispatcher.give_up_overdue(id)
        {
            self.requeue(&lease);
        }
    }

    pub(super) fn limit_due(&mut self, id: LeaseId) {
        if let Some(lease) = self.dispatcher.give_up_overdue(id) {
            self.requeue(&lease);
        }
    }
}
