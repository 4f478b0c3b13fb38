//! Sessions, grants, reports: everything between the queue and the executors.

use super::{Event, Leader, Mode, Output, StreamId, Timer};
use crate::lease::{Lease, Retired, SESSIONS_MAX, Session, SessionId, WINDOW_MAX, first_session};
use crate::lies::Process;
use crate::object::{Name, Uid};
use crate::queue::{Delay, Item, Place};
use crate::work::{
    ActionKind, BATCH_MAX_ENTRIES, GoAwayCause, Hello, LeaseId, Origin, Protocols, Refusal, ReturnCause, RevokeMode,
    Term, ToExecutor, ToLeader, Welcome, WorkItem, WorkLease, WorkReturn,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// A grant that was not started for so long is recalled,
const RECALL_AFTER: Duration = Duration::from_secs(15);
/// and after so much longer granted elsewhere.
const REGRANT_AFTER: Duration = Duration::from_secs(5);
/// What a started lease may take beyond its execution limit, for the report to arrive.
const LIMIT_GRACE: Duration = Duration::from_secs(5);
/// How long reports are still taken on a stream that was sent away.
const CLOSE_AFTER: Duration = Duration::from_secs(5);
/// Executors that are sent away come back spread over this span for each of them,
const RECONNECT_SPREAD_EACH: Duration = Duration::from_millis(10);
/// and over no more than this: few need not wait for one another.
const RECONNECT_SPREAD_MAX: Duration = Duration::from_secs(2);
/// Refusals of executors that are told of in one term.
const REFUSED_TOLD_MAX: usize = 256;
/// An item that an executor cannot do waits for another one.
const NO_TAKER: Duration = Duration::from_secs(5);

impl Leader {
    pub(super) fn term_gained(&mut self, term: Term) {
        self.cx.term = Some(term.clone());
        self.dispatcher.refused.clear();
        self.dispatcher.queue.forget_told();
        self.begin_pauses();
        self.restart_barrier();
        self.world.mark_deletions();
        self.cx.event(Event::TermGained(term));
    }

    pub(super) fn term_lost(&mut self, leader_endpoint: String) {
        self.cx.leader_endpoint = leader_endpoint;
        self.ledger.inherited = super::closing::Inheritance::default();
        if self.cx.term.take().is_some() {
            self.send_all_away(GoAwayCause::LeaderChanged);
            self.cx.event(Event::TermLost);
        }
    }

    pub(super) fn stop(&mut self) {
        self.cx.stopping = true;
        self.send_all_away(GoAwayCause::ShuttingDown);
    }

    fn send_all_away(&mut self, cause: GoAwayCause) {
        let sessions: Vec<SessionId> = self.dispatcher.leases.sessions().map(|(id, _)| id).collect();
        let each = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        let spread = RECONNECT_SPREAD_EACH.saturating_mul(each).min(RECONNECT_SPREAD_MAX);
        for id in sessions {
            self.end_session(id, "sent away", Some((cause, spread)));
        }
    }

    /// Whether anything may be granted.
    pub(super) fn may_grant(&self) -> bool {
        self.cx.term.is_some() && !self.cx.stopping && !self.is_stopped_by_doubt() && self.history.withheld.is_none()
    }

    /// Gives ready items to executors with room, one each in turn.
    pub(super) fn grant(&mut self) {
        let Some(term) = self.cx.term.clone().filter(|_| self.may_grant()) else { return };
        self.end_doubts();
        let mut grants: BTreeMap<SessionId, Vec<WorkLease>> = BTreeMap::new();
        while self.dispatcher.queue.has_ready() {
            let Some(session) = self.next_session() else { break };
            let Some(uid) = self.dispatcher.queue.pop() else { break };
            if let Some(lease) = self.lease(&term, session, &uid) {
                grants.entry(session).or_default().push(lease);
            }
        }
        // Shares first: what is granted may then start at once.
        self.shares_for(grants.keys());
        for (session, leases) in grants {
            let Some(stream) = self.dispatcher.leases.session(session).and_then(|session| session.stream) else {
                continue;
            };
            let mut leases = leases.into_iter().peekable();
            while leases.peek().is_some() {
                let leases = leases.by_ref().take(BATCH_MAX_ENTRIES).collect();
                self.cx.send(stream, ToExecutor::Grant { leases });
            }
        }
    }

    /// The next session after the last one served that would begin at once what it is given, or else has room. One that sits on what it
    /// was given gets more only where there is no other: it would keep the same items from being done once again.
    fn next_session(&mut self) -> Option<SessionId> {
        let choosy = self.dispatcher.leases.sessions().any(|(_, session)| session.is_in_time());
        let roomy =
            |&(_, session): &(SessionId, &Session)| session.room() > 0 && (!choosy || session.overdue.is_empty());
        let turn = self.dispatcher.turn;
        let part =
            |after: bool| self.dispatcher.leases.sessions().filter(roomy).filter(move |&(id, _)| (id > turn) == after);
        let in_turn = || part(true).chain(part(false));
        let (id, _) = in_turn().find(|(_, session)| session.free_slots() > 0).or_else(|| in_turn().next())?;
        self.dispatcher.turn = id;
        Some(id)
    }

    fn lease(&mut self, term: &Term, session: SessionId, uid: &Uid) -> Option<WorkLease> {
        // Facts that came since the decision count.
        let removes_finalizer = |item: &Item| item.draft.action.kind() == ActionKind::RemoveFinalizer;
        let anew = self.history.blind && self.dispatcher.queue.get(uid).is_some_and(removes_finalizer);
        for id in self.world.graph.by_uid(uid).collect::<Vec<_>>() {
            if anew {
                self.world.mark(id);
            }
            self.judge(id);
        }
        // The last word before a grant: whatever made the item ready, what is held is not granted.
        if self.dispatcher.queue.is_held(uid) {
            self.dispatcher.queue.make_ready(uid);
            return None;
        }
        let item = self.dispatcher.queue.get(uid).filter(|item| item.place == Place::Ready)?;
        let kind = item.draft.action.kind();
        let id = self.world.graph.primary(uid);
        if let Some(doubtful) = id.and_then(|id| self.world.rests_on_doubt(id)) {
            self.await_certainty(uid, doubtful);
            return None;
        }
        assert!(self.cx.config.mode == Mode::Enforce, "in observe nothing becomes ready");
        if !self.dispatcher.leases.session(session).is_some_and(|session| session.kinds.contains(&kind)) {
            self.backoff(uid, NO_TAKER, Delay::NoTaker);
            return None;
        }
        let destroys = item.draft.destroys_at();
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
        let item = self.dispatcher.queue.get(uid)?;
        let grounds = self.world.grounds_now(&self.cx, &item.draft);
        let executor = self.dispatcher.leases.session(session)?.executor.clone();
        let (of, target) = (work.id, work.target.clone());
        let kept = super::world::reasons::kept(&grounds);
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
        let id = self.dispatcher.leases.grant(term.number, lease);
        self.dispatcher.queue.place(uid, Place::Leased(id));
        if let Some(item) = self.dispatcher.queue.get_mut(uid) {
            item.overtaken = false;
        }
        self.cx.timers.set_after(self.cx.now, RECALL_AFTER, Timer::Recall(id));
        self.balance_later();
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

    /// Takes leases back from whoever holds them.
    pub(super) fn revoke(&mut self, leases: &[LeaseId], mode: RevokeMode, reason: &str) {
        let mut by_session: BTreeMap<SessionId, Vec<LeaseId>> = BTreeMap::new();
        for &id in leases {
            let recallable = |lease: &&Lease| mode == RevokeMode::Stop || lease.started.is_none();
            if let Some(lease) = self.dispatcher.leases.get(id).filter(recallable) {
                by_session.entry(lease.session).or_default().push(id);
            }
        }
        for (session, leases) in by_session {
            let Some(stream) = self.dispatcher.leases.session(session).and_then(|session| session.stream) else {
                continue;
            };
            for batch in leases.chunks(BATCH_MAX_ENTRIES) {
                self.cx.send(stream, ToExecutor::Revoke { leases: batch.to_vec(), mode, reason: String::from(reason) });
            }
        }
    }

    /// Stops every attempt that destroys something, and takes back what is not started: a write that waits for its connection may reach
    /// another server than the one whose watch it was decided by.
    pub(super) fn stop_destroying(&mut self, reason: &str) {
        let (destroying, other): (Vec<_>, Vec<_>) =
            self.dispatcher.leases.iter().partition(|(_, lease)| lease.destroys.is_some());
        let ids = |leases: Vec<(LeaseId, &Lease)>| leases.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let (destroying, other) = (ids(destroying), ids(other));
        self.revoke(&destroying, RevokeMode::Stop, reason);
        self.revoke(&other, RevokeMode::IfNotStarted, reason);
    }

    pub(super) fn recall_unstarted(&mut self, reason: &str) {
        let unstarted = self.dispatcher.leases.unstarted();
        self.revoke(&unstarted, RevokeMode::IfNotStarted, reason);
    }

    pub(super) fn message(&mut self, stream: StreamId, message: ToLeader) {
        match (message, self.dispatcher.leases.of_stream(stream)) {
            (ToLeader::Hello(hello), None) => self.hello(stream, &hello),
            (ToLeader::Hello(_), Some(_)) => {
                self.dispatcher.leases.detach(stream);
                self.cx.outputs.push_back(Output::Refuse { stream, refusal: Refusal::OutOfTurn });
            }
            // The session has ended; what was seen at the API server is still of use, and the executor may forget it.
            (ToLeader::Reports { reports, .. }, None) => self.reports(stream, None, reports),
            // Sent before the executor could know that its session has ended: its stream is closed, or about to be.
            (_, None) => {}
            (ToLeader::Heartbeat { sequence, .. }, Some(session)) => self.heartbeat(stream, session, sequence),
            (ToLeader::Window { max_outstanding }, Some(session)) => {
                if let Some(session) = self.dispatcher.leases.session_mut(session) {
                    session.window = max_outstanding.min(WINDOW_MAX);
                }
            }
            (ToLeader::Started { leases }, Some(session)) => self.started(session, &leases),
            (ToLeader::Reports { reports, returns }, Some(session)) => {
                self.returns(session, &returns);
                if !reports.is_empty() {
                    self.reports(stream, Some(session), reports);
                }
                self.drained(stream, session);
            }
            (ToLeader::Drain { .. }, Some(session)) => self.drain(stream, session),
        }
    }

    fn hello(&mut self, stream: StreamId, hello: &Hello) {
        let protocol = match self.admit(hello) {
            Ok(protocol) => protocol,
            Err(refusal) => {
                self.tell_refusal(&hello.executor, &refusal);
                return self.cx.outputs.push_back(Output::Refuse { stream, refusal });
            }
        };
        let Some(term) = self.cx.term.clone() else { return };
        let known = self.dispatcher.leases.of_executor(&hello.executor);
        let is_same = |session: &Session| session.incarnation == hello.incarnation && session.origin == hello.origin;
        let same = known.filter(|&id| self.dispatcher.leases.session(id).is_some_and(is_same));
        if let Some(old) = known.filter(|_| same.is_none()) {
            self.supersede(old);
        }
        let session = match same {
            Some(id) => {
                if let Some(old) = self.dispatcher.leases.attach(self.cx.now, id, stream) {
                    self.cx.outputs.push_back(Output::Close { stream: old });
                }
                if let Some(session) = self.dispatcher.leases.session_mut(id) {
                    session.window = hello.window.min(WINDOW_MAX);
                    session.kinds = hello.kinds.clone();
                }
                id
            }
            None => {
                let id = self.dispatcher.leases.open(self.cx.now, stream, &term, hello);
                self.arm_session(id);
                id
            }
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
        self.stop_held_of(session);
        self.cx.event(Event::SessionOpened {
            executor: hello.executor.clone(),
            version: hello.version.clone(),
            protocol,
        });
        self.welcome_share(session, stream);
        self.balance();
    }

    fn tell_refusal(&mut self, executor: &Name, refusal: &Refusal) {
        let why = match refusal {
            // It knows a newer leader, or asks one that does not lead: nothing is wrong with it.
            Refusal::NotLeader | Refusal::TermStale { .. } | Refusal::Drained => return,
            Refusal::OtherCluster { .. } => "of another cluster",
            Refusal::ProtocolUnsupported { .. } => "speaks no common protocol",
            Refusal::Superseded => "superseded by a newer process of its name",
            Refusal::OutOfTurn => "spoke out of turn",
            Refusal::NameTaken => "its name belongs to another caller",
            Refusal::Untrusted { .. } => "its reports were not true",
            Refusal::TooManySessions { .. } => "too many sessions",
        };
        if self.dispatcher.refused.len() < REFUSED_TOLD_MAX && self.dispatcher.refused.insert((executor.clone(), why)) {
            self.cx.event(Event::ExecutorRefused { executor: executor.clone(), why });
        }
    }

    /// Whether this executor is let in, and what its stream speaks then.
    fn admit(&mut self, hello: &Hello) -> Result<u32, Refusal> {
        let Some(term) = self.cx.term.clone().filter(|_| !self.cx.stopping) else { return Err(Refusal::NotLeader) };
        if hello.cluster_uid != self.cx.config.cluster_uid {
            let (ours, theirs) = (self.cx.config.cluster_uid.clone(), hello.cluster_uid.clone());
            return Err(Refusal::OtherCluster { ours, theirs });
        }
        let (ours, theirs) =
            (self.cx.config.protocols, Protocols { oldest: hello.min_protocol, newest: hello.max_protocol });
        let Some(protocol) = ours.common(theirs) else {
            return Err(Refusal::ProtocolUnsupported { min: ours.oldest, max: ours.newest });
        };
        if let Some(known) = hello.known_term.as_ref()
            && known.election == term.election
            && known.number > term.number
        {
            return Err(Refusal::TermStale { known: known.clone() });
        }
        // A name is its caller's as long as there is a session. The executors of this process come before all others.
        let holder =
            self.dispatcher.leases.of_executor(&hello.executor).and_then(|id| self.dispatcher.leases.session(id));
        if hello.origin != Origin::Process && holder.is_some_and(|holder| holder.origin != hello.origin) {
            return Err(Refusal::NameTaken);
        }
        let process = Process {
            executor: hello.executor.clone(),
            incarnation: hello.incarnation.clone(),
            origin: hello.origin.clone(),
        };
        if let Some(retry_in) = self.dispatcher.lies.refused_for(self.cx.now, &process) {
            return Err(Refusal::Untrusted { retry_in });
        }
        match self.dispatcher.leases.retired(&process) {
            Some(Retired::Superseded) => return Err(Refusal::Superseded),
            Some(Retired::Drained) => return Err(Refusal::Drained),
            None => {}
        }
        if self.is_superseded(&term, hello) {
            return Err(Refusal::Superseded);
        }
        if self.dispatcher.leases.session_count() >= SESSIONS_MAX
            && self.dispatcher.leases.of_executor(&hello.executor).is_none()
        {
            return Err(Refusal::TooManySessions { max: SESSIONS_MAX });
        }
        Ok(protocol)
    }

    /// Whether an earlier leader let the present holder of this name in after the one who says hello.
    fn is_superseded(&self, term: &Term, hello: &Hello) -> bool {
        let holder =
            self.dispatcher.leases.of_executor(&hello.executor).and_then(|id| self.dispatcher.leases.session(id));
        // Of two callers the one is no later process of the other.
        let is_other = |holder: &&Session| holder.incarnation != hello.incarnation && holder.origin == hello.origin;
        let other = holder.filter(is_other);
        match (other, first_session(term, hello)) {
            (Some(other), Some(first)) => first < other.first,
            // A process that never had a session is the newest there is.
            (Some(_), None) | (None, _) => false,
        }
    }

    fn supersede(&mut self, old: SessionId) {
        if let Some(session) = self.dispatcher.leases.session(old) {
            let process = session.process();
            self.dispatcher.leases.retire(process, Retired::Superseded);
        }
        self.end_session(old, "superseded", Some((GoAwayCause::Superseded, Duration::ZERO)));
    }

    /// Sorts what an executor still holds into what stays valid and what does not. Leases it does not know of never arrived.
    fn adopt(&mut self, session: SessionId, term: &Term, hello: &Hello) -> (Vec<LeaseId>, Vec<LeaseId>) {
        let ours = |id: LeaseId| self.dispatcher.leases.get(id).is_some_and(|lease| lease.session == session);
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
        self.started(session, &started);
        let known: BTreeSet<LeaseId> = adopted.iter().copied().collect();
        self.note_held(session, hello, &known);
        let lost: Vec<LeaseId> = self
            .dispatcher
            .leases
            .session(session)
            .map_or_else(Vec::new, |session| session.leases.difference(&known).copied().collect());
        for id in lost {
            if let Some(lease) = self.dispatcher.leases.end(id) {
                self.requeue(&lease);
            }
        }
        (adopted, dropped)
    }

    fn arm_session(&mut self, id: SessionId) {
        let Some(session) = self.dispatcher.leases.session(id) else { return };
        let end = session.last_heard + self.cx.config.session_ttl + self.cx.config.heartbeat_interval;
        self.cx.timers.set(end, Timer::Session(id));
    }

    pub(super) fn session_due(&mut self, id: SessionId) {
        let Some(session) = self.dispatcher.leases.session(id) else { return };
        let silent = self.cx.now.since(session.last_heard);
        if silent < self.cx.config.session_ttl + self.cx.config.heartbeat_interval {
            return self.arm_session(id);
        }
        self.end_session(id, "no heartbeat", None);
    }

    /// `send_away`: why, and over which span of time those who share that fate come back.
    pub(super) fn end_session(&mut self, id: SessionId, why: &'static str, send_away: Option<(GoAwayCause, Duration)>) {
        let Some((session, leases)) = self.dispatcher.leases.close(id) else { return };
        self.note_departure(id, &session, leases.iter().map(|(_, lease)| lease));
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
        self.divide_soon();
    }

    /// A lease ended without a report: its item is judged and granted again; if it was started, the write may have landed.
    pub(super) fn requeue(&mut self, lease: &Lease) {
        let Some(item) = self.dispatcher.queue.get_mut(&lease.target).filter(|item| item.id == lease.item) else {
            return;
        };
        item.ambiguous |= lease.started.is_some();
        let dropped = item.overtaken;
        if dropped {
            self.drop_overtaken(lease);
        } else {
            self.dispatcher.queue.make_ready(&lease.target);
        }
        self.world.mark_uid(&lease.target);
        self.world.mark_deleting_owners(&lease.target);
    }

    fn heartbeat(&mut self, stream: StreamId, id: SessionId, sequence: u64) {
        let Some(session) = self.dispatcher.leases.session_mut(id) else { return };
        session.last_heard = self.cx.now;
        let Some(term) = self.cx.term.clone() else { return };
        self.cx.send(stream, ToExecutor::HeartbeatAck { sequence, session_ttl: self.cx.config.session_ttl, term });
        self.renew_share(id);
    }

    fn started(&mut self, session: SessionId, leases: &[LeaseId]) {
        for &id in leases {
            let now = self.cx.now;
            if !self.dispatcher.leases.start(now, session, id) {
                continue;
            }
            let Some(target) = self.dispatcher.leases.get(id).map(|lease| lease.target.clone()) else { continue };
            if let Some(item) = self.dispatcher.queue.get_mut(&target) {
                item.attempts += 1;
            }
            self.cx.timers.set_after(now, self.cx.config.execution_limit + LIMIT_GRACE, Timer::Limit(id));
        }
    }

    fn returns(&mut self, session: SessionId, returns: &[WorkReturn]) {
        for returned in returns {
            self.dispatcher.leases.settle(session, returned.lease);
            self.dispatcher.late_writes.ended(session, returned.lease);
            if self.dispatcher.leases.get(returned.lease).is_none_or(|lease| lease.session != session) {
                continue;
            }
            let Some(lease) = self.dispatcher.leases.end(returned.lease) else { continue };
            match returned.cause {
                ReturnCause::NotStarted | ReturnCause::SessionLapsed => self.requeue(&lease),
                ReturnCause::KindUnsupported => {
                    let kind = self.dispatcher.queue.get(&lease.target).map(|item| item.draft.action.kind());
                    if let Some(session) = self.dispatcher.leases.session_mut(session) {
                        session.kinds.retain(|&supported| Some(supported) != kind);
                    }
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

    fn drain(&mut self, stream: StreamId, id: SessionId) {
        let Some(session) = self.dispatcher.leases.session_mut(id) else { return };
        session.draining = true;
        let outstanding = u32::try_from(session.leases.len()).unwrap_or(u32::MAX);
        if outstanding > 0 {
            self.cx.send(stream, ToExecutor::DrainAck { outstanding });
        }
        self.drained(stream, id);
    }

    /// Lets a draining executor go once nothing is outstanding.
    fn drained(&mut self, stream: StreamId, id: SessionId) {
        let Some(session) =
            self.dispatcher.leases.session(id).filter(|session| session.draining && session.leases.is_empty())
        else {
            return;
        };
        let (executor, process) = (session.executor.clone(), session.process());
        self.cx.send(stream, ToExecutor::DrainAck { outstanding: 0 });
        self.dispatcher.leases.retire(process, Retired::Drained);
        if let Some((session, _)) = self.dispatcher.leases.close(id) {
            self.note_departure(id, &session, core::iter::empty());
        }
        self.cx.event(Event::SessionEnded { executor, why: "drained", leases: 0 });
    }

    pub(super) fn recall_due(&mut self, id: LeaseId) {
        if self.dispatcher.leases.get(id).is_some_and(|lease| lease.started.is_none()) {
            self.revoke(&[id], RevokeMode::IfNotStarted, "not started in time");
            self.cx.timers.set_after(self.cx.now, REGRANT_AFTER, Timer::Regrant(id));
        }
    }

    pub(super) fn regrant_due(&mut self, id: LeaseId) {
        if self.dispatcher.leases.get(id).is_some_and(|lease| lease.started.is_none())
            && let Some(lease) = self.dispatcher.leases.end_overdue(id)
        {
            self.dispatcher.late_writes.give_up(id, &lease);
            self.requeue(&lease);
        }
    }

    pub(super) fn limit_due(&mut self, id: LeaseId) {
        if let Some(lease) = self.dispatcher.leases.end_overdue(id) {
            self.dispatcher.late_writes.give_up(id, &lease);
            self.requeue(&lease);
        }
    }
}
