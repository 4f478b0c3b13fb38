//! The executor's side of the lease protocol.
//!
//! ```text
//! Waiting     the time to the next attempt runs                                        -> Connecting
//! Connecting  the caller opens a stream                                                 -> Greeting, Waiting
//! Greeting    hello sent                                                               -> Active, Waiting
//! Active      leases come, are started, are reported; heartbeats                       -> Waiting
//! Over        drained, or refused for good
//! ```
//!
//! The session outlives its streams. It ends one TTL after the *send* of the last acknowledged heartbeat (or hello).
//! Between two streams, started attempts continue and their reports wait. The executor starts no attempt, because it
//! could not report the start. At the end of the session, buffered leases are void and started ones are cancelled.
//!
//! Terms: the session keeps the highest term number that an accepted welcome named for this election, and returns
//! leases of lower terms. A welcome may name another election, because the Lease was deleted or the demo restarted. The
//! hello has already ensured that both sides belong to the same cluster. Leases of the former election are then
//! forgotten and not returned, because lease ids are unique only within one election.

use crate::jitter::Rng;
use crate::object::{GroupResource, Name};
use crate::time::Time;
use crate::work::{
    ActionKind, GoAwayCause, LeaseId, Protocols, Refusal, SessionNumber, Term, ToExecutor, ToLeader, WorkLease,
    WorkReport, WorkReturn,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use concurrency_limit::ConcurrencyLimit;
use core::fmt;
use core::time::Duration;
use credentials::Unaccepted;
use pacing::Share;

mod concurrency_limit;
mod credentials;
mod leases;
mod pacing;
mod stream;
#[cfg(test)]
mod tests;

/// Maximum time for a stream to open or be refused.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Maximum time for the first attempt after a session to open a stream. It is shorter, because the network is known to
/// work.
const RECONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Minimum time to wait for the answer to a hello. A suspended process accepts connections and does not answer.
const WELCOME_LIMIT_MIN: Duration = Duration::from_millis(750);
/// Number of consecutive missing answers after which the limit doubles with each further one. By then a new leader has
/// been elected, so no wait at the old leader's address delays the executor for long.
const IMPATIENT_SILENCES: u32 = 3;
/// Maximum of the doubled limit. It is long enough for the answer of a slow graph service.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);
/// Time without a session after which the known term no longer counts. An earlier leader has given up by then, and the
/// election's Lease may have been restored together with the store.
const TERM_FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// Maximum number of unacknowledged reports. Only an executor that has no leader for a long time gets near it.
const REPORTS_MAX: usize = 10_000;

/// The identity of this executor, and its concurrency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Stable name, normally the pod.
    pub executor: Name,
    /// Unique for each start of a process.
    pub incarnation: Name,
    pub version: String,
    /// Uid of namespace kube-system, read with the executor's own credentials.
    pub cluster_uid: Name,
    /// Maximum number of attempts in progress. The window is twice that number.
    pub concurrency: Concurrency,
    pub kinds: Vec<ActionKind>,
    /// Supported versions of the protocol.
    pub protocols: Protocols,
    /// Bounds of the jittered wait between two connection attempts.
    pub reconnect_min: Duration,
    pub reconnect_max: Duration,
}

/// The number of attempts in progress; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// This number, regardless of the API server's answers.
    Fixed(u32),
    /// As many as the API server answers without delay, and at most this number.
    Adaptive { max: u32 },
}

/// A fact for the session. Streams are not numbered: after [`Output::Disconnect`] and [`Output::Connect`] the caller
/// drops input of earlier streams.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "each is handled at once, and nearly every one is a report or a message")]
pub enum Input {
    /// The stream of [`Output::Connect`] is open for writing.
    Connected,
    /// A message of the leader.
    Message(ToExecutor),
    /// The stream ended, or could not be opened.
    Disconnected {
        /// The address of the leader, if the peer named it.
        leader_endpoint: Option<String>,
        /// Set if the peer refused this executor; some refusals are final.
        refusal: Option<Refusal>,
        why: String,
    },
    /// An attempt of [`Output::Start`] has ended. `report.term`, `report.attempt` and `report.item` are those of the
    /// lease.
    Finished(WorkReport),
    /// An attempt in progress has repeated its write this number of times. Comes before its [`Input::Finished`].
    WroteAgain { times: u32 },
    /// The check of [`Output::CheckCredentials`] has ended. `Ok` means that the API server accepts the credentials.
    CredentialsChecked(Result<(), String>),
    /// A request to stop: return unstarted leases, finish the rest, then [`Output::Exit`].
    Drain { reason: String, deadline: Duration },
}

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a stream: to `endpoint` if given, else to the next configured address.
    Connect {
        endpoint: Option<String>,
    },
    /// Close the stream, or stop opening it, after sending pending messages. [`Input::Disconnected`] need not follow,
    /// and must not after the next `Connect`.
    Disconnect,
    Send(ToLeader),
    /// Start an attempt. The `Started` message precedes this output.
    Start(WorkLease),
    /// For this attempt, send no further request. The attempt ends with `Abandoned`, or with the result of the request
    /// in flight. It may have ended already, with [`Input::Finished`] pending.
    Cancel(LeaseId),
    /// No write may be sent at or after this instant. Sent whenever it moves. Before the first one no write may be
    /// sent.
    WritesEnd(Time),
    /// Read once from the API server, at low cost, to find out whether it accepts the credentials again. Answered by
    /// [`Input::CredentialsChecked`].
    CheckCredentials,
    /// The session is over.
    Exit(Exit),
    Event(Event),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Drained: everything is returned or reported.
    Drained,
    /// The deadline of the drain has passed, or the leader accepts no more reports. `outstanding` leases were neither
    /// reported nor returned.
    DrainTimedOut { outstanding: u32 },
    /// A newer process has this executor's name.
    Superseded,
    /// The graph service belongs to another cluster.
    OtherCluster { ours: Name, theirs: Name },
    /// The graph service supports only these protocols.
    ProtocolUnsupported { min: u32, max: u32 },
}

/// An event for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session is open.
    Welcomed { term: Term, protocol: u32, adopted: usize, dropped: usize },
    /// The stream is gone. The next attempt follows after `retry_in`.
    Lost { why: String, retry_in: Duration },
    /// The leader asked this executor to connect to another address.
    SentAway { cause: GoAwayCause },
    /// No heartbeat was acknowledged in time: nothing is written until a new session opens.
    Lapsed,
    /// A grant of a deposed leader was returned.
    StaleTerm { lease: LeaseId, term: Term },
    /// The leader did not renew this executor's share of the write rate in time. The executor writes at a reduced rate
    /// until the leader renews the share.
    ShareLapsed,
    /// The API server refuses this executor's credentials. The executor accepts no work until a check succeeds. The
    /// next check follows after `check_in`.
    CredentialsRefused { why: String, check_in: Duration },
    /// The API server accepts the credentials again.
    CredentialsAccepted { refused_for: Duration },
    /// An invalid message was ignored.
    Rejected { why: String },
}

/// The state of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Connecting,
    Greeting,
    /// Welcomed at this instant.
    Active {
        since: Time,
    },
    Over,
}

/// The numbers of the session, for readiness and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    /// The newest term known.
    pub term: Option<Term>,
    pub started: usize,
    pub buffered: usize,
    /// Maximum number of attempts in progress.
    pub concurrency: usize,
    /// Reports that the leader has not acknowledged.
    pub unacknowledged: usize,
    pub draining: bool,
    /// The time since which the API server refuses this executor's credentials. The executor accepts no work during
    /// that time.
    pub credentials_refused: Option<Time>,
}

/// One executor's session with the leader.
#[derive(Debug)]
pub struct Session {
    config: Config,
    jitter: Rng,
    outputs: VecDeque<Output>,
    link: Link,
    /// Connection attempts since the last acknowledged heartbeat, and the number of consecutive attempts at an address
    /// that a peer named.
    retries: u32,
    /// Consecutive attempts without any answer in time.
    silences: u32,
    hints_followed: u32,
    /// The first session.
    first: Option<SessionNumber>,
    term: Option<Term>,
    writes_end: Option<Time>,
    /// When the last session ended without a successor.
    lapsed: Option<Time>,
    /// Granted and not started; at most the window.
    buffered: VecDeque<WorkLease>,
    started: BTreeMap<LeaseId, Started>,
    returns: VecDeque<Returned>,
    /// Unacknowledged reports. Ids grow with time, so the first is the oldest.
    reports: BTreeMap<LeaseId, WorkReport>,
    /// Reports that were not sent on this stream.
    unsent: VecDeque<LeaseId>,
    flush_at: Option<Time>,
    drain: Option<Drain>,
    unaccepted: Option<Unaccepted>,
    /// The window has changed since the hello. Heartbeats then repeat the window, so that a delayed message has no
    /// lasting effect.
    window_moved: bool,
    /// `None`: no limit.
    share: Option<Share>,
    /// The time of an input whose consequences are not settled yet.
    unsettled: Option<Time>,
    /// `None`: the concurrency is always the maximum.
    limit: Option<ConcurrencyLimit>,
}

#[derive(Debug)]
enum Link {
    Waiting {
        retry_at: Time,
        endpoint: Option<String>,
    },
    Connecting {
        /// `None` until the first call, because `new` has no time.
        give_up_at: Option<Time>,
    },
    Greeting {
        hello_sent: Time,
    },
    Active(Stream),
    Over,
}

#[derive(Debug)]
struct Stream {
    since: Time,
    heartbeat_interval: Duration,
    heartbeat_at: Time,
    last_sequence: u64,
    /// Sequence and send time of unacknowledged heartbeats.
    heartbeats: VecDeque<(u64, Time)>,
    window: usize,
    protocol: u32,
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    reconnect_at: Time,
    /// `reconnect_at` has passed: only pending acknowledgements keep the stream open.
    may_go: bool,
    close_at: Time,
    endpoint: Option<String>,
}

#[derive(Debug)]
struct Started {
    since: Time,
    collection: GroupResource,
    item: u64,
    term: Term,
    /// [`Output::Cancel`] was sent.
    cancelled: bool,
    /// The leader of this session counts the attempt against the window.
    counted: bool,
}

#[derive(Debug)]
struct Returned {
    election: Name,
    entry: WorkReturn,
}

#[derive(Debug)]
struct Drain {
    reason: String,
    deadline: Time,
    /// The leader confirmed on this stream that nothing is outstanding.
    acknowledged: bool,
    /// The leader does not admit this executor again.
    refused: bool,
}

impl Concurrency {
    /// The largest number.
    pub fn most(self) -> usize {
        let (Concurrency::Fixed(most) | Concurrency::Adaptive { max: most }) = self;
        usize::try_from(most).unwrap_or(usize::MAX).max(1)
    }
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Concurrency::Fixed(count) => write!(f, "{count}"),
            Concurrency::Adaptive { max } => write!(f, "up to {max}"),
        }
    }
}

impl Session {
    /// A session that requests its first stream at once. The seed is for jitter.
    pub fn new(config: Config, seed: u64) -> Session {
        Session {
            limit: match config.concurrency {
                Concurrency::Fixed(_) => None,
                Concurrency::Adaptive { .. } => Some(ConcurrencyLimit::new(config.concurrency.most())),
            },
            config,
            jitter: Rng::new(seed),
            outputs: VecDeque::from([Output::Connect { endpoint: None }]),
            link: Link::Connecting { give_up_at: None },
            retries: 0,
            silences: 0,
            hints_followed: 0,
            first: None,
            term: None,
            writes_end: None,
            lapsed: None,
            buffered: VecDeque::new(),
            started: BTreeMap::new(),
            returns: VecDeque::new(),
            reports: BTreeMap::new(),
            unsent: VecDeque::new(),
            flush_at: None,
            drain: None,
            unaccepted: None,
            window_moved: false,
            share: None,
            unsettled: None,
        }
    }

    /// Takes a fact. Poll afterwards. If several facts come before a poll, a lease that is granted and recalled in
    /// between is never started.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.expire(now);
        if matches!(self.link, Link::Over) {
            return;
        }
        match input {
            Input::Connected => self.connected(now),
            Input::Message(message) => self.message(now, message),
            Input::Disconnected { leader_endpoint, refusal, why } => {
                self.disconnected(now, leader_endpoint, refusal, why)
            }
            Input::Finished(report) => self.finished(now, report),
            Input::WroteAgain { times } => self.wrote_again(times),
            Input::CredentialsChecked(result) => self.credentials_checked(now, result),
            Input::Drain { reason, deadline } => self.drain(now, reason, deadline),
        }
        self.advance_link(now);
        self.unsettled = Some(now);
    }

    /// Handles deadlines. Poll afterwards.
    pub fn tick(&mut self, now: Time) {
        self.expire(now);
        self.advance_link(now);
        if !matches!(self.link, Link::Over) {
            self.check_credentials(now);
        }
        self.grow(now);
        self.unsettled = Some(now);
    }

    /// When to call [`Session::tick`] next.
    pub fn next_deadline(&self) -> Option<Time> {
        let link = match &self.link {
            Link::Waiting { retry_at, .. } => Some(*retry_at),
            Link::Connecting { give_up_at } => *give_up_at,
            Link::Greeting { hello_sent } => Some(*hello_sent + self.welcome_limit()),
            Link::Active(stream) => Some(stream.next_deadline()),
            Link::Over => return None,
        };
        let drain = self.drain.as_ref().map(|drain| drain.deadline);
        let check = self.unaccepted.as_ref().and_then(|unaccepted| unaccepted.check_at);
        let share = self.share.as_ref().and_then(Share::next_deadline);
        let growth = self.limit.as_ref().and_then(ConcurrencyLimit::next_deadline);
        [link, drain, self.writes_end, self.flush_at, check, share, growth].into_iter().flatten().min()
    }

    /// The next effect. Drain to `None` after every `handle` and `tick`, or after several at one instant, and once
    /// after `new`.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty()
            && let Some(now) = self.unsettled.take()
        {
            self.settle(now);
        }
        self.outputs.pop_front()
    }

    /// The numbers of the session.
    pub fn status(&self) -> Status {
        Status {
            phase: match &self.link {
                Link::Waiting { .. } => Phase::Waiting,
                Link::Connecting { .. } => Phase::Connecting,
                Link::Greeting { .. } => Phase::Greeting,
                Link::Active(stream) => Phase::Active { since: stream.since },
                Link::Over => Phase::Over,
            },
            term: self.term.clone(),
            started: self.started.len(),
            buffered: self.buffered.len(),
            concurrency: self.concurrency(),
            unacknowledged: self.reports.len(),
            draining: self.drain.is_some(),
            credentials_refused: self.unaccepted.as_ref().map(|unaccepted| unaccepted.since),
        }
    }

    /// Applies the passage of time before any input.
    fn expire(&mut self, now: Time) {
        if self.drain.as_ref().is_some_and(|drain| now >= drain.deadline) {
            self.end_drain(now);
        }
        if self.writes_end.is_some_and(|end| now >= end) {
            self.lapse(now);
        }
        self.expire_share(now);
    }

    /// Applies the consequences of any change: starts, messages, the end.
    fn settle(&mut self, now: Time) {
        self.start_what_fits(now);
        self.flush(now);
        self.leave(now);
        self.finish_drain(now);
    }

    fn emit(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn reject(&mut self, why: impl Into<String>) {
        self.emit(Event::Rejected { why: why.into() });
    }
}
