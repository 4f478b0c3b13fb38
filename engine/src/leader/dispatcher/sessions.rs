//! Sessions of executors, and the leases that the leader takes back from them.

use super::super::context::Context;
use super::super::{Event, StreamId, Timer};
use super::Dispatcher;
use super::LeaseEnd;
use crate::late_writes::Ended;
use crate::leader::Output;
use crate::lease::WINDOW_MAX;
use crate::lease::{Lease, Retired, SESSIONS_MAX, Session, SessionId, first_session};
use crate::lies::Process;
use crate::object::Name;
use crate::object::ResourceVersion;
use crate::object::Uid;
use crate::queue::{Item, ItemState};
use crate::time::Time;
use crate::work::ReportResult;
use crate::work::{BATCH_MAX_ENTRIES, Hello, LeaseId, Origin, Protocols, Refusal, RevokeMode, Term, ToExecutor};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time after a recall before the target is granted to another executor.
const REGRANT_AFTER: Duration = Duration::from_secs(5);

/// Time beyond the execution limit of a started lease within which the report may arrive.
const LIMIT_GRACE: Duration = Duration::from_secs(5);

/// Maximum number of executor refusals that are reported in one term.
const REFUSED_TOLD_MAX: usize = 256;

/// Time after which a grant that was not started is recalled.
const RECALL_AFTER: Duration = Duration::from_secs(15);
/// Maximum number of stopped leases without a report that one session remembers. A session holds far fewer leases.
/// Beyond the bound, a Stop is sent only once.
const STOPPED_MAX: usize = 65_536;
/// Maximum number of leases of earlier terms that one session may report. An executor holds fewer leases.
const LATE_MAX: usize = 4096;

impl Dispatcher {
    pub(in crate::leader) fn process_of(&self, session: Option<SessionId>) -> Option<Process> {
        self.leases.session(session?).map(Session::process)
    }

    /// Returns the next session in turn that can start a grant at once, or else one that has room. A session with
    /// overdue leases receives grants only if all sessions have overdue leases, because it would delay the same items
    /// again.
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

    /// Takes leases back from their sessions.
    pub(in crate::leader) fn revoke(&mut self, cx: &mut Context, leases: &[LeaseId], mode: RevokeMode, reason: &str) {
        let mut by_session: BTreeMap<SessionId, Vec<LeaseId>> = BTreeMap::new();
        for &id in leases {
            let recallable = |lease: &&Lease| mode == RevokeMode::Stop || lease.started.is_none();
            if let Some(lease) = self.leases.get(id).filter(recallable) {
                by_session.entry(lease.session).or_default().push(id);
            }
        }
        for (session, leases) in by_session {
            if let Some(session) = self.leases.session_mut(session).filter(|_| mode == RevokeMode::Stop) {
                let room = STOPPED_MAX.saturating_sub(session.stopped.len());
                session.stopped.extend(leases.iter().take(room));
            }
            let stream = self.leases.session(session).and_then(|session| session.stream);
            send_revoke(cx, stream, &leases, mode, reason);
        }
    }

    /// Stops all destructive attempts, and recalls grants that are not started. A write that waits for a connection may
    /// reach another server than the server whose watch led to the decision.
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
            // The executor knows a newer leader, or contacted a replica that does not lead. Both cases are normal.
            Refusal::NotLeader | Refusal::TermStale { .. } | Refusal::Drained => return,
            Refusal::OtherCluster { .. } => "the executor belongs to another cluster",
            Refusal::ProtocolUnsupported { .. } => "no common protocol version",
            Refusal::Superseded => "superseded by a newer process of the same name",
            Refusal::OutOfTurn => "the first message was not a hello, or a second hello arrived",
            Refusal::NameTaken => "another caller holds this executor name",
            Refusal::Untrusted { .. } => "the executor sent untrue reports",
            Refusal::TooManySessions { .. } => "too many sessions",
        };
        if self.refused.len() < REFUSED_TOLD_MAX && self.refused.insert((executor.clone(), why)) {
            cx.event(Event::ExecutorRefused { executor: executor.clone(), why });
        }
    }

    /// Decides whether an executor is admitted. Returns the protocol version of its stream.
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
        // A session reserves its executor name. Executors of this process take precedence over all others.
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

    /// Returns whether the current holder of this name is newer than the executor that says hello, because an earlier
    /// leader admitted the holder after it.
    pub(in crate::leader) fn is_superseded(&self, term: &Term, hello: &Hello) -> bool {
        let holder = self.leases.of_executor(&hello.executor).and_then(|id| self.leases.session(id));
        // Processes of different callers cannot be ordered.
        let is_other = |holder: &&Session| holder.incarnation != hello.incarnation && holder.origin == hello.origin;
        let other = holder.filter(is_other);
        match (other, first_session(term, hello)) {
            (Some(other), Some(first)) => first < other.first,
            // A process that never had a session is the newest process.
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

    /// Lets a draining executor leave once no lease is outstanding.
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

    /// Begins a term. No event of this term has reported a refusal yet.
    pub(in crate::leader) fn begin_term(&mut self) {
        self.refused.clear();
        self.queue.forget_reported();
    }

    /// Opens a session.
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

    /// Resumes a session on another stream.
    pub(in crate::leader) fn attach(&mut self, cx: &mut Context, id: SessionId, stream: StreamId, hello: &Hello) {
        if let Some(old) = self.leases.attach(cx.now, id, stream) {
            cx.outputs.push_back(Output::Close { stream: old });
        }
        if let Some(session) = self.leases.session_mut(id) {
            session.window = hello.window.min(WINDOW_MAX);
            session.kinds = hello.kinds.clone();
        }
    }

    /// Closes a stream. Returns true if the stream belonged to a session.
    pub(in crate::leader) fn detach(&mut self, stream: StreamId) -> bool {
        self.leases.detach(stream).is_some()
    }

    pub(in crate::leader) fn set_window(&mut self, id: SessionId, window: u32) {
        if let Some(session) = self.leases.session_mut(id) {
            session.window = window.min(WINDOW_MAX);
        }
    }

    /// Refuses the process of a session from now on.
    pub(in crate::leader) fn retire(&mut self, id: SessionId) {
        if let Some(process) = self.leases.session(id).map(Session::process) {
            self.leases.retire(process, Retired::Superseded);
        }
    }

    pub(in crate::leader) fn close(&mut self, id: SessionId) -> Option<(Session, Vec<(LeaseId, Lease)>)> {
        self.leases.close(id)
    }

    /// Leases a ready item.
    pub(in crate::leader) fn grant(&mut self, cx: &mut Context, term: u64, lease: Lease) -> LeaseId {
        let target = lease.target.clone();
        let id = self.leases.grant(term, lease);
        self.queue.place(&target, ItemState::Leased(id));
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

    /// Ends a lease whose write may still arrive at the API server.
    pub(in crate::leader) fn give_up(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.end(id)?;
        self.late_writes.give_up(id, &lease);
        Some(lease)
    }

    /// Does the same as [`Dispatcher::give_up`] for a lease whose executor is late.
    pub(in crate::leader) fn give_up_overdue(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.end_overdue(id)?;
        self.late_writes.give_up(id, &lease);
        Some(lease)
    }

    /// Records that an executor has reported the end of an overdue lease.
    pub(in crate::leader) fn settle(&mut self, session: SessionId, lease: LeaseId) {
        self.leases.settle(session, lease);
    }

    /// Records that an executor has ended its attempt of this lease.
    pub(in crate::leader) fn end_late_write(&mut self, session: SessionId, lease: LeaseId) -> Ended {
        if let Some(session) = self.leases.session_mut(session) {
            session.stopped.remove(&lease);
        }
        self.late_writes.ended(session, lease)
    }

    /// Ends a lease without a report. Returns `None` if its item is gone.
    pub(in crate::leader) fn lease_ended(&mut self, lease: &Lease) -> Option<LeaseEnd> {
        let item = self.queue.get_mut(&lease.target).filter(|item| item.id == lease.item)?;
        item.ambiguous |= lease.started.is_some();
        if item.overtaken {
            return Some(LeaseEnd::Overtaken);
        }
        self.queue.make_ready(&lease.target);
        Some(LeaseEnd::Ready)
    }

    /// Records that the watch has shown the deletion of the target of a lease. `deleted` is the version of the DELETED
    /// event, if there was one.
    pub(in crate::leader) fn target_gone(&mut self, id: LeaseId, deleted: Option<ResourceVersion>) {
        if let Some(lease) = self.leases.get_mut(id) {
            lease.gone = Some(deleted);
        }
    }

    /// Records that another group also serves the target of a lease. Returns true if that is new to a destructive lease.
    pub(in crate::leader) fn note_mirror(&mut self, now: Time, target: &Uid) -> bool {
        let lease = self.queue.get(target).and_then(Item::lease).and_then(|id| self.leases.get_mut(id));
        let Some(place) = lease.and_then(|lease| lease.destroys.as_mut()) else { return false };
        let is_new = place.collection.take().is_some();
        if is_new {
            // The write may be in the scope of guards that are effective.
            let place = place.clone();
            self.queue.holds_mut().reset_effective(now, |entry| entry.meaning.scope.covers_target(&place));
        }
        is_new
    }

    /// Records that an executor does not support this kind of work.
    pub(in crate::leader) fn is_unsupported(&mut self, session: SessionId, lease: &Lease) {
        let kind = self.queue.get(&lease.target).map(|item| item.draft.action.kind());
        if let Some(session) = self.leases.session_mut(session) {
            session.kinds.retain(|&supported| Some(supported) != kind);
        }
    }

    /// Counts a report about a lease of an earlier term. Returns the executor, or the answer if the report contains
    /// nothing new.
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

    /// Records an untrue report of this process. Returns the number of recent untrue reports, and whether this one is
    /// the first about the field.
    pub(in crate::leader) fn note_lie(&mut self, now: Time, process: &Process, field: &'static str) -> (u32, bool) {
        self.lies.note(now, process, field)
    }

    /// Returns how long this process is refused because of untrue reports.
    pub(in crate::leader) fn refused_for(&mut self, now: Time, process: &Process) -> Option<Duration> {
        self.lies.refused_for(now, process)
    }
}

/// Takes these leases back over a stream, in batches. Does nothing without a stream.
pub(super) fn send_revoke(
    cx: &mut Context,
    stream: Option<StreamId>,
    leases: &[LeaseId],
    mode: RevokeMode,
    reason: &str,
) {
    let Some(stream) = stream else { return };
    for batch in leases.chunks(BATCH_MAX_ENTRIES) {
        cx.send(stream, ToExecutor::Revoke { leases: batch.to_vec(), mode, reason: String::from(reason) });
    }
}
