//! Sessions of executors, and the leases that are taken back from them.

use super::super::context::Context;
use super::super::{Event, StreamId, Timer};
use super::Dispatcher;
use super::LeaseEnd;
use crate::leader::Output;
use crate::lease::WINDOW_MAX;
use crate::lease::{Lease, Retired, SESSIONS_MAX, Session, SessionId, first_session};
use crate::lies::Process;
use crate::object::Name;
use crate::object::ResourceVersion;
use crate::queue::Place;
use crate::time::Time;
use crate::work::ReportResult;
use crate::work::{BATCH_MAX_ENTRIES, Hello, LeaseId, Origin, Protocols, Refusal, RevokeMode, Term, ToExecutor};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// and after so much longer granted elsewhere.
const REGRANT_AFTER: Duration = Duration::from_secs(5);

/// What a started lease may take beyond its execution limit, for the report to arrive.
const LIMIT_GRACE: Duration = Duration::from_secs(5);

/// Refusals of executors that are told of in one term.
const REFUSED_TOLD_MAX: usize = 256;

/// A grant that was not started for so long is recalled.
const RECALL_AFTER: Duration = Duration::from_secs(15);
/// Leases of earlier terms that one session may report. An executor holds fewer.
const LATE_MAX: usize = 4096;

impl Dispatcher {
    pub(in crate::leader) fn process_of(&self, session: Option<SessionId>) -> Option<Process> {
        self.leases.session(session?).map(Session::process)
    }

    /// The next session after the last one served that would begin at once what it is given, or else has room. One that sits on what it
    /// was given gets more only where there is no other: it would keep the same items from being done once again.
    pub(in crate::leader) fn next_session(&mut self) -> Option<SessionId> {
        let choosy = self.leases.sessions().any(|(_, session)| session.is_in_time());
        let roomy =
            |&(_, session): &(SessionId, &Session)| session.room() > 0 && (!choosy || session.overdue.is_empty());
        let turn = self.turn;
        let part = |after: bool| self.leases.sessions().filter(roomy).filter(move |&(id, _)| (id > turn) == after);
        let in_turn = || part(true).chain(part(false));
        let (id, _) = in_turn().find(|(_, session)| session.free_slots() > 0).or_else(|| in_turn().next())?;
        self.turn = id;
        Some(id)
    }

    /// Takes leases back from whoever holds them.
    pub(in crate::leader) fn revoke(&mut self, cx: &mut Context, leases: &[LeaseId], mode: RevokeMode, reason: &str) {
        let mut by_session: BTreeMap<SessionId, Vec<LeaseId>> = BTreeMap::new();
        for &id in leases {
            let recallable = |lease: &&Lease| mode == RevokeMode::Stop || lease.started.is_none();
            if let Some(lease) = self.leases.get(id).filter(recallable) {
                by_session.entry(lease.session).or_default().push(id);
            }
        }
        for (session, leases) in by_session {
            let Some(stream) = self.leases.session(session).and_then(|session| session.stream) else {
                continue;
            };
            for batch in leases.chunks(BATCH_MAX_ENTRIES) {
                cx.send(stream, ToExecutor::Revoke { leases: batch.to_vec(), mode, reason: String::from(reason) });
            }
        }
    }

    /// Stops every attempt that destroys something, and takes back what is not started: a write that waits for its connection may reach
    /// another server than the one whose watch it was decided by.
    pub(in crate::leader) fn stop_destroying(&mut self, cx: &mut Context, reason: &str) {
        let (destroying, other): (Vec<_>, Vec<_>) = self.leases.iter().partition(|(_, lease)| lease.destroys.is_some());
        let ids = |leases: Vec<(LeaseId, &Lease)>| leases.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let (destroying, other) = (ids(destroying), ids(other));
        self.revoke(cx, &destroying, RevokeMode::Stop, reason);
        self.revoke(cx, &other, RevokeMode::IfNotStarted, reason);
    }

    pub(in crate::leader) fn recall_unstarted(&mut self, cx: &mut Context, reason: &str) {
        let unstarted = self.leases.unstarted();
        self.revoke(cx, &unstarted, RevokeMode::IfNotStarted, reason);
    }

    pub(in crate::leader) fn tell_refusal(&mut self, cx: &mut Context, executor: &Name, refusal: &Refusal) {
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
        if self.refused.len() < REFUSED_TOLD_MAX && self.refused.insert((executor.clone(), why)) {
            cx.event(Event::ExecutorRefused { executor: executor.clone(), why });
        }
    }

    /// Whether this executor is let in, and what its stream speaks then.
    pub(in crate::leader) fn admit(&mut self, cx: &Context, hello: &Hello) -> Result<u32, Refusal> {
        let Some(term) = cx.term.clone().filter(|_| !cx.stopping) else { return Err(Refusal::NotLeader) };
        if hello.cluster_uid != cx.config.cluster_uid {
            let (ours, theirs) = (cx.config.cluster_uid.clone(), hello.cluster_uid.clone());
            return Err(Refusal::OtherCluster { ours, theirs });
        }
        let (ours, theirs) =
            (cx.config.protocols, Protocols { oldest: hello.min_protocol, newest: hello.max_protocol });
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
        let holder = self.leases.of_executor(&hello.executor).and_then(|id| self.leases.session(id));
        if hello.origin != Origin::Process && holder.is_some_and(|holder| holder.origin != hello.origin) {
            return Err(Refusal::NameTaken);
        }
        let process = Process {
            executor: hello.executor.clone(),
            incarnation: hello.incarnation.clone(),
            origin: hello.origin.clone(),
        };
        if let Some(retry_in) = self.lies.refused_for(cx.now, &process) {
            return Err(Refusal::Untrusted { retry_in });
        }
        match self.leases.retired(&process) {
            Some(Retired::Superseded) => return Err(Refusal::Superseded),
            Some(Retired::Drained) => return Err(Refusal::Drained),
            None => {}
        }
        if self.is_superseded(&term, hello) {
            return Err(Refusal::Superseded);
        }
        if self.leases.session_count() >= SESSIONS_MAX && self.leases.of_executor(&hello.executor).is_none() {
            return Err(Refusal::TooManySessions { max: SESSIONS_MAX });
        }
        Ok(protocol)
    }

    /// Whether an earlier leader let the present holder of this name in after the one who says hello.
    pub(in crate::leader) fn is_superseded(&self, term: &Term, hello: &Hello) -> bool {
        let holder = self.leases.of_executor(&hello.executor).and_then(|id| self.leases.session(id));
        // Of two callers the one is no later process of the other.
        let is_other = |holder: &&Session| holder.incarnation != hello.incarnation && holder.origin == hello.origin;
        let other = holder.filter(is_other);
        match (other, first_session(term, hello)) {
            (Some(other), Some(first)) => first < other.first,
            // A process that never had a session is the newest there is.
            (Some(_), None) | (None, _) => false,
        }
    }

    pub(in crate::leader) fn arm_session(&mut self, cx: &mut Context, id: SessionId) {
        let Some(session) = self.leases.session(id) else { return };
        let end = session.last_heard + cx.config.session_ttl + cx.config.heartbeat_interval;
        cx.timers.set(end, Timer::Session(id));
    }

    pub(in crate::leader) fn heartbeat(&mut self, cx: &mut Context, stream: StreamId, id: SessionId, sequence: u64) {
        let Some(session) = self.leases.session_mut(id) else { return };
        session.last_heard = cx.now;
        let Some(term) = cx.term.clone() else { return };
        cx.send(stream, ToExecutor::HeartbeatAck { sequence, session_ttl: cx.config.session_ttl, term });
        self.renew_share(cx, id);
    }

    pub(in crate::leader) fn started(&mut self, cx: &mut Context, session: SessionId, leases: &[LeaseId]) {
        for &id in leases {
            let now = cx.now;
            if !self.leases.start(now, session, id) {
                continue;
            }
            let Some(target) = self.leases.get(id).map(|lease| lease.target.clone()) else { continue };
            if let Some(item) = self.queue.get_mut(&target) {
                item.attempts += 1;
            }
            cx.timers.set_after(now, cx.config.execution_limit + LIMIT_GRACE, Timer::Limit(id));
        }
    }

    pub(in crate::leader) fn drain(&mut self, cx: &mut Context, stream: StreamId, id: SessionId) {
        let Some(session) = self.leases.session_mut(id) else { return };
        session.draining = true;
        let outstanding = u32::try_from(session.leases.len()).unwrap_or(u32::MAX);
        if outstanding > 0 {
            cx.send(stream, ToExecutor::DrainAck { outstanding });
        }
        self.drained(cx, stream, id);
    }

    /// Lets a draining executor go once nothing is outstanding.
    pub(in crate::leader) fn drained(&mut self, cx: &mut Context, stream: StreamId, id: SessionId) {
        let Some(session) = self.leases.session(id).filter(|session| session.draining && session.leases.is_empty())
        else {
            return;
        };
        let (executor, process) = (session.executor.clone(), session.process());
        cx.send(stream, ToExecutor::DrainAck { outstanding: 0 });
        self.leases.retire(process, Retired::Drained);
        if let Some((session, _)) = self.leases.close(id) {
            self.note_departure(cx, id, &session, core::iter::empty());
        }
        cx.event(Event::SessionEnded { executor, why: "drained", leases: 0 });
    }

    pub(in crate::leader) fn recall_due(&mut self, cx: &mut Context, id: LeaseId) {
        if self.leases.get(id).is_some_and(|lease| lease.started.is_none()) {
            self.revoke(cx, &[id], RevokeMode::IfNotStarted, "not started in time");
            cx.timers.set_after(cx.now, REGRANT_AFTER, Timer::Regrant(id));
        }
    }

    /// A term begins, whose log and whose events have told of nothing yet.
    pub(in crate::leader) fn begin_term(&mut self) {
        self.refused.clear();
        self.queue.forget_told();
    }

    /// A session begins.
    pub(in crate::leader) fn open(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        term: &Term,
        hello: &Hello,
    ) -> SessionId {
        let id = self.leases.open(cx.now, stream, term, hello);
        self.arm_session(cx, id);
        id
    }

    /// A session goes on over another stream.
    pub(in crate::leader) fn attach(&mut self, cx: &mut Context, id: SessionId, stream: StreamId, hello: &Hello) {
        if let Some(old) = self.leases.attach(cx.now, id, stream) {
            cx.outputs.push_back(Output::Close { stream: old });
        }
        if let Some(session) = self.leases.session_mut(id) {
            session.window = hello.window.min(WINDOW_MAX);
            session.kinds = hello.kinds.clone();
        }
    }

    /// A stream is closed. True if it was a session's.
    pub(in crate::leader) fn detach(&mut self, stream: StreamId) -> bool {
        self.leases.detach(stream).is_some()
    }

    pub(in crate::leader) fn set_window(&mut self, id: SessionId, window: u32) {
        if let Some(session) = self.leases.session_mut(id) {
            session.window = window.min(WINDOW_MAX);
        }
    }

    /// The process of a session is not let in again.
    pub(in crate::leader) fn retire(&mut self, id: SessionId) {
        if let Some(process) = self.leases.session(id).map(Session::process) {
            self.leases.retire(process, Retired::Superseded);
        }
    }

    pub(in crate::leader) fn close(&mut self, id: SessionId) -> Option<(Session, Vec<(LeaseId, Lease)>)> {
        self.leases.close(id)
    }

    /// Leases an item that is ready.
    pub(in crate::leader) fn grant(&mut self, cx: &mut Context, term: u64, lease: Lease) -> LeaseId {
        let target = lease.target.clone();
        let id = self.leases.grant(term, lease);
        self.queue.place(&target, Place::Leased(id));
        if let Some(item) = self.queue.get_mut(&target) {
            item.overtaken = false;
        }
        cx.timers.set_after(cx.now, RECALL_AFTER, Timer::Recall(id));
        self.balance_later(cx);
        id
    }

    pub(in crate::leader) fn end_lease(&mut self, id: LeaseId) -> Option<Lease> {
        self.leases.end(id)
    }

    /// Ends a lease whose write may still land.
    pub(in crate::leader) fn give_up(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.end(id)?;
        self.late_writes.give_up(id, &lease);
        Some(lease)
    }

    /// As [`Dispatcher::give_up`], where its executor is late with it.
    pub(in crate::leader) fn give_up_overdue(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.end_overdue(id)?;
        self.late_writes.give_up(id, &lease);
        Some(lease)
    }

    /// An executor has said what became of a lease that it was late with.
    pub(in crate::leader) fn settle(&mut self, session: SessionId, lease: LeaseId) {
        self.leases.settle(session, lease);
    }

    /// An executor has said that nothing more of this lease is on its way.
    pub(in crate::leader) fn end_late_write(&mut self, session: SessionId, lease: LeaseId) {
        self.late_writes.ended(session, lease);
    }

    /// A lease has ended without a report. `None` if its item has gone.
    pub(in crate::leader) fn lease_ended(&mut self, lease: &Lease) -> Option<LeaseEnd> {
        let item = self.queue.get_mut(&lease.target).filter(|item| item.id == lease.item)?;
        item.ambiguous |= lease.started.is_some();
        if item.overtaken {
            return Some(LeaseEnd::Overtaken);
        }
        self.queue.make_ready(&lease.target);
        Some(LeaseEnd::Ready)
    }

    /// The watch has shown that the target of a lease has gone; with the version of its DELETED, where that was one.
    pub(in crate::leader) fn target_gone(&mut self, id: LeaseId, deleted: Option<ResourceVersion>) {
        if let Some(lease) = self.leases.get_mut(id) {
            lease.gone = Some(deleted);
        }
    }

    /// An executor does not do work of this kind.
    pub(in crate::leader) fn is_unsupported(&mut self, session: SessionId, lease: &Lease) {
        let kind = self.queue.get(&lease.target).map(|item| item.draft.action.kind());
        if let Some(session) = self.leases.session_mut(session) {
            session.kinds.retain(|&supported| Some(supported) != kind);
        }
    }

    /// Counts a report of a lease of an earlier term. Gives the executor, or the answer where the report says nothing new.
    pub(in crate::leader) fn report_late(&mut self, session: SessionId, lease: LeaseId) -> Result<Name, ReportResult> {
        let session = self.leases.session_mut(session).ok_or(ReportResult::Unknown)?;
        if session.late.contains(&lease) {
            return Err(ReportResult::AcceptedLate);
        }
        if session.late.len() >= LATE_MAX {
            return Err(ReportResult::Unknown);
        }
        session.late.insert(lease);
        Ok(session.executor.clone())
    }

    /// A report of this process is not true. Gives how many were not lately, and whether it is the first about this field.
    pub(in crate::leader) fn note_lie(&mut self, now: Time, process: &Process, field: &'static str) -> (u32, bool) {
        self.lies.note(now, process, field)
    }

    /// For how long this process is not let in, because its reports were not true.
    pub(in crate::leader) fn refused_for(&mut self, now: Time, process: &Process) -> Option<Duration> {
        self.lies.refused_for(now, process)
    }
}
