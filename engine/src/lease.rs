//! Sessions of executors, and their leases.
//!
//! Heartbeats keep a session alive, and streams do not: streams come and go. The executor counts from the *send* of a
//! heartbeat, the leader from its *receipt* plus one interval, so the executor always gives up first.

use crate::decision::Grounds;
use crate::lies::Process;
use crate::object::{Name, ResourceVersion, Uid};
use crate::pace::Rate;
use crate::scope::Target;
use crate::time::Time;
use crate::work::{ActionKind, Hello, LeaseId, Origin, Term};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// One stream of an executor. The caller numbers streams and never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamId(pub u64);

/// Maximum number of sessions.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Maximum number of leases of one executor.
pub(crate) const WINDOW_MAX: u32 = 1024;
/// An executor with a share of the writes holds as many leases as it may start in this time.
const GRANTED_AHEAD: Duration = Duration::from_secs(5);
/// Minimum number of leases that such an executor may hold.
const GRANTED_AHEAD_MIN: usize = 2;
/// Maximum number of leases of one process, a power of two. At ten thousand a second they last three years.
const LEASES_MAX: u64 = 1 << 40;
/// Maximum number of ended incarnations that are remembered in order to refuse them.
const RETIRED_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) executor: Name,
    pub(crate) incarnation: Name,
    pub(crate) origin: Origin,
    /// Term and number of this incarnation's first session.
    pub(crate) first: (u64, u64),
    pub(crate) version: String,
    pub(crate) stream: Option<StreamId>,
    pub(crate) kinds: Vec<ActionKind>,
    pub(crate) window: u32,
    pub(crate) last_heard: Time,
    pub(crate) draining: bool,
    /// The API server refused the executor's credentials at the last attempt.
    pub(crate) unauthenticated: bool,
    pub(crate) leases: BTreeSet<LeaseId>,
    /// Leases that are not started.
    pub(crate) unstarted: usize,
    /// Expired leases that other executors got, and that this executor has not reported. The executor may still carry
    /// them out, so they keep their place in the window.
    pub(crate) overdue: BTreeSet<LeaseId>,
    /// Leases that were stopped, and whose end the executor has not reported. A Stop may be lost with a stream.
    pub(crate) stopped: BTreeSet<LeaseId>,
    /// Reported leases of earlier terms.
    pub(crate) late: BTreeSet<LeaseId>,
    /// The executor's last share of the writes; `None` if it has none.
    pub(crate) share: Option<Rate>,
    /// Until this time the executor held all or nearly all leases of its window.
    pub(crate) busy_until: Time,
}

impl Session {
    /// The process of the session.
    pub(crate) fn process(&self) -> Process {
        let (executor, incarnation) = (self.executor.clone(), self.incarnation.clone());
        Process { executor, incarnation, origin: self.origin.clone() }
    }

    /// The number of leases it may still be granted.
    pub(crate) fn room(&self) -> usize {
        if !self.takes_work() {
            return 0;
        }
        let room = (self.window.min(WINDOW_MAX) as usize).saturating_sub(self.leases.len() + self.overdue.len());
        // A lease that the share allows to start only much later stays free for other executors.
        let soon = self.share.map_or(usize::MAX, |share| share.writes_in(GRANTED_AHEAD).max(GRANTED_AHEAD_MIN));
        room.min(soon.saturating_sub(self.unstarted))
    }

    /// The number of leases that the executor would start at once. Executors offer a window of twice their concurrency.
    pub(crate) fn free_slots(&self) -> usize {
        let slots = self.window.min(WINDOW_MAX).div_ceil(2) as usize;
        self.room().min(slots.saturating_sub(self.leases.len() + self.overdue.len()))
    }

    /// Whether the executor accepts work, now or when its window has room.
    fn takes_work(&self) -> bool {
        !self.draining && self.stream.is_some() && self.window > 0
    }

    /// Whether the executor finishes its leases in time.
    pub(crate) fn is_in_time(&self) -> bool {
        self.takes_work() && self.overdue.is_empty()
    }
}

/// Term and number of the first session in a hello, if they are comparable with those of this leader. A higher term, or
/// one of another election, belongs to a lost history.
pub(crate) fn first_session(term: &Term, hello: &Hello) -> Option<(u64, u64)> {
    let first = hello.first_session.as_ref()?;
    let comparable = first.term.election == term.election && first.term.number <= term.number;
    comparable.then_some((first.term.number, first.number))
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) session: SessionId,
    pub(crate) target: Uid,
    /// The place of the lease's write, if the write is destructive.
    pub(crate) destroys: Option<Target>,
    pub(crate) item: u64,
    pub(crate) attempt: u32,
    pub(crate) granted: Time,
    pub(crate) started: Option<Time>,
    /// A recall was sent.
    pub(crate) recalled: bool,
    /// The watch has shown that the target is gone. The version is that of its DELETED event, if there was one.
    pub(crate) gone: Option<Option<ResourceVersion>>,
    /// The grounds of the decision at the time of the grant.
    pub(crate) grounds: Box<Grounds>,
}

/// Why an incarnation is not admitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    Superseded,
    Drained,
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    sessions: BTreeMap<SessionId, Session>,
    by_executor: BTreeMap<Name, SessionId>,
    by_stream: BTreeMap<StreamId, SessionId>,
    leases: BTreeMap<LeaseId, Lease>,
    retired: VecDeque<(Process, Retired)>,
    last_session: u64,
    last_lease: u64,
}

impl Leases {
    /// Starts without leases. Their numbers are in a range of this process, because a restored store repeats terms, and
    /// a report from the lost history must not name a lease of this process.
    pub(crate) fn new(seed: u64) -> Leases {
        Leases { last_lease: seed & !(LEASES_MAX - 1), ..Leases::default() }
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(&id, session)| (id, session))
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn of_stream(&self, stream: StreamId) -> Option<SessionId> {
        self.by_stream.get(&stream).copied()
    }

    pub(crate) fn of_executor(&self, executor: &str) -> Option<SessionId> {
        self.by_executor.get(executor).copied()
    }

    pub(crate) fn retired(&self, process: &Process) -> Option<Retired> {
        self.retired.iter().find(|(retired, _)| retired == process).map(|&(_, why)| why)
    }

    pub(crate) fn retire(&mut self, process: Process, why: Retired) {
        if self.retired.len() == RETIRED_MAX {
            self.retired.pop_front();
        }
        self.retired.push_back((process, why));
    }

    /// Opens a session on a stream.
    pub(crate) fn open(&mut self, now: Time, stream: StreamId, term: &Term, hello: &Hello) -> SessionId {
        self.last_session += 1;
        let id = SessionId(self.last_session);
        self.by_executor.insert(hello.executor.clone(), id);
        self.by_stream.insert(stream, id);
        let session = Session {
            executor: hello.executor.clone(),
            incarnation: hello.incarnation.clone(),
            origin: hello.origin.clone(),
            first: first_session(term, hello).unwrap_or((term.number, id.0)),
            version: hello.version.clone(),
            stream: Some(stream),
            kinds: hello.kinds.clone(),
            window: hello.window,
            last_heard: now,
            draining: false,
            unauthenticated: false,
            leases: BTreeSet::new(),
            overdue: BTreeSet::new(),
            stopped: BTreeSet::new(),
            late: BTreeSet::new(),
            unstarted: 0,
            share: None,
            busy_until: Time::ZERO,
        };
        self.sessions.insert(id, session);
        id
    }

    /// Moves a session to a new stream. Returns the old one.
    pub(crate) fn attach(&mut self, now: Time, id: SessionId, stream: StreamId) -> Option<StreamId> {
        let session = self.sessions.get_mut(&id)?;
        session.last_heard = now;
        // Leases in the hello that the welcome does not adopt count neither here nor at the executor.
        session.overdue.clear();
        session.share = None;
        let old = session.stream.replace(stream);
        if let Some(old) = old {
            self.by_stream.remove(&old);
        }
        self.by_stream.insert(stream, id);
        old
    }

    /// Removes the stream of a session. The session stays.
    pub(crate) fn detach(&mut self, stream: StreamId) -> Option<SessionId> {
        let id = self.by_stream.remove(&stream)?;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.stream = None;
            session.share = None;
        }
        Some(id)
    }

    /// Ends a session. Returns it with its leases.
    pub(crate) fn close(&mut self, id: SessionId) -> Option<(Session, Vec<(LeaseId, Lease)>)> {
        let session = self.sessions.remove(&id)?;
        if self.by_executor.get(&session.executor) == Some(&id) {
            self.by_executor.remove(&session.executor);
        }
        if let Some(stream) = session.stream {
            self.by_stream.remove(&stream);
        }
        let leases = session.leases.iter().filter_map(|lease| Some((*lease, self.leases.remove(lease)?))).collect();
        Some((session, leases))
    }

    /// Adds an unstarted lease to a session.
    pub(crate) fn grant(&mut self, term: u64, lease: Lease) -> LeaseId {
        self.last_lease += 1;
        let id = LeaseId { term, number: self.last_lease };
        if let Some(holder) = self.sessions.get_mut(&lease.session) {
            holder.leases.insert(id);
            holder.unstarted += 1;
        }
        self.leases.insert(id, lease);
        id
    }

    pub(crate) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.leases.get_mut(&id)
    }

    /// Whether this session cannot have had the lease, because another executor holds it or it was never granted.
    /// Numbers of another range belong to another process.
    pub(crate) fn is_foreign(&self, session: Option<SessionId>, id: LeaseId) -> bool {
        let of_ours = |number: u64| number & !(LEASES_MAX - 1) == self.last_lease & !(LEASES_MAX - 1);
        let executor = |id: SessionId| self.sessions.get(&id).map(|session| &session.executor);
        let holder = self.leases.get(&id).map(|lease| lease.session);
        let is_of_another = holder.is_some_and(|holder| executor(holder) != session.and_then(executor));
        is_of_another || (of_ours(id.number) && id.number > self.last_lease)
    }

    /// A lease of this session was started. False if it does not exist or was started before.
    pub(crate) fn start(&mut self, now: Time, session: SessionId, id: LeaseId) -> bool {
        let lease = self.leases.get_mut(&id).filter(|lease| lease.session == session && lease.started.is_none());
        let Some(lease) = lease else { return false };
        lease.started = Some(now);
        if let Some(holder) = self.sessions.get_mut(&session) {
            holder.unstarted -= 1;
        }
        true
    }

    /// Ends a lease.
    pub(crate) fn end(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        if let Some(session) = self.sessions.get_mut(&lease.session) {
            session.leases.remove(&id);
            session.unstarted -= usize::from(lease.started.is_none());
        }
        Some(lease)
    }

    /// Ends an overdue lease.
    pub(crate) fn end_overdue(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.end(id)?;
        if let Some(session) = self.sessions.get_mut(&lease.session) {
            session.overdue.insert(id);
        }
        Some(lease)
    }

    /// Records that the executor has finished a lease, whichever executor holds it now.
    pub(crate) fn settle(&mut self, session: SessionId, id: LeaseId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.overdue.remove(&id);
        }
    }

    /// Every lease, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.leases.iter().map(|(&id, lease)| (id, lease))
    }

    pub(crate) fn has_unstarted(&self) -> bool {
        self.sessions.values().any(|session| session.unstarted > 0)
    }

    /// Every unstarted lease.
    pub(crate) fn unstarted(&self) -> Vec<LeaseId> {
        self.leases.iter().filter(|(_, lease)| lease.started.is_none()).map(|(&id, _)| id).collect()
    }
}
