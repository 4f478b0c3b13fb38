//! The executor's half of the lease protocol.
//!
//! ```text
//! Waiting     the time to the next attempt runs                                        -> Connecting
//! Connecting  the shell opens a stream                                                 -> Greeting, Waiting
//! Greeting    hello sent                                                               -> Active, Waiting
//! Active      leases come, are started, are reported; heartbeats; perhaps on its leave -> Waiting
//! Over        drained, or told for good that it is not wanted
//! ```
//!
//! The session outlives its streams: it ends a TTL after the *send* of the last heartbeat (or hello) that was acknowledged. Between two
//! streams started attempts go on and their reports wait; nothing is started, because nobody could be told. At the session's end
//! buffered leases are void and started ones are cancelled.
//!
//! Terms: the highest number of the election that the last accepted welcome named is kept, and what carries a lower one is handed back.
//! A welcome may name another election (the Lease was deleted, the demo restarted): hello and refusals have settled by then that both
//! sides mean the same cluster. Leases of the former election are then forgotten, not returned: lease ids are unique in one election
//! only.

use crate::jitter::Jitter;
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

/// A stream that is neither open nor refused after this time is given up.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// The same, of the first attempt after a session: the network is known to work.
const RECONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A hello that is not answered for this long was in vain: a process that stands still accepts connections, and says nothing.
const WELCOME_LIMIT_MIN: Duration = Duration::from_millis(750);
/// After so many silences in a row the limit doubles with each further one. Until then a new leader has been elected, and no wait at the
/// address of the old one delays it for long.
const IMPATIENT_SILENCES: u32 = 3;
/// The limit doubles up to this: a graph service that is only slow is heard in the end.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);
/// Without a session for so long, the known term counts no more: whoever led in an earlier one has given up by then, and the election's
/// Lease may have been restored together with the store.
const TERM_FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// Reports kept for the leader's acknowledgement. Only an executor that finds no leader for long comes near.
const REPORTS_MAX: usize = 10_000;

/// Who this executor is and how much it does at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Stable name, normally the pod.
    pub executor: Name,
    /// Unique per process start.
    pub incarnation: Name,
    pub version: String,
    /// uid of namespace kube-system, read with the executor's own credentials.
    pub cluster_uid: Name,
    /// Attempts under way at once. The window is twice that.
    pub concurrency: Concurrency,
    pub kinds: Vec<ActionKind>,
    /// What the stream to the leader may speak.
    pub protocols: Protocols,
    /// Bounds of the jittered wait between two connection attempts.
    pub reconnect_min: Duration,
    pub reconnect_max: Duration,
}

/// How many attempts are under way at once; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// So many, however the API server answers.
    Fixed(u32),
    /// As many as the API server answers without making them wait, and no more than this.
    Adaptive { max: u32 },
}

/// A fact for the session. Streams are not numbered: after [`Output::Disconnect`] and after [`Output::Connect`] the shell passes nothing
/// on that comes from an earlier stream.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "each is handled at once, and nearly every one is a report or a message")]
pub enum Input {
    /// The stream asked for by [`Output::Connect`] is open for writing.
    Connected,
    /// The leader sent this.
    Message(ToExecutor),
    /// The stream ended, or could not be opened.
    Disconnected {
        /// Where the peer says the leader is.
        leader_endpoint: Option<String>,
        /// Set when the peer refused this executor by name: some refusals are final.
        refusal: Option<Refusal>,
        why: String,
    },
    /// An attempt started by [`Output::Start`] has ended. `report.term`, `report.attempt` and `report.item` are those of the lease.
    Finished(WorkReport),
    /// An attempt under way sent its write so many times more than once. Told before its [`Input::Finished`].
    WroteAgain { times: u32 },
    /// The check asked for by [`Output::CheckCredentials`] has ended: the API server knows who asks, or why it could not be told so.
    CredentialsChecked(Result<(), String>),
    /// Asked to stop: hand back what was not started, finish the rest, then [`Output::Exit`].
    Drain { reason: String, deadline: Duration },
}

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a stream: to `endpoint` if given, else to the next configured address.
    Connect {
        endpoint: Option<String>,
    },
    /// Close the stream, or give up opening it, after what was sent has gone out. [`Input::Disconnected`] need not follow, and must not
    /// once the next `Connect` has been seen.
    Disconnect,
    Send(ToLeader),
    /// Begin an attempt. The `Started` message has been sent before this output.
    Start(WorkLease),
    /// No retry, and nothing that is not yet sent, for this attempt: it ends with `Abandoned`, or with what was under way. It may have
    /// ended already, with [`Input::Finished`] on its way.
    Cancel(LeaseId),
    /// No write may leave at or after this instant. Sent whenever it moves; before the first, none may leave.
    WritesEnd(Time),
    /// One cheap read at the API server, to learn whether it accepts the credentials again. Answered by [`Input::CredentialsChecked`].
    CheckCredentials,
    /// The session is over.
    Exit(Exit),
    Event(Event),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Drained, everything handed back or reported.
    Drained,
    /// The drain's deadline came first, or the leader takes no more from this executor; this many leases were neither reported nor
    /// returned.
    DrainTimedOut { outstanding: u32 },
    /// A newer process runs under this executor's name.
    Superseded,
    /// The graph service belongs to another cluster.
    OtherCluster { ours: Name, theirs: Name },
    /// The graph service speaks only these protocols.
    ProtocolUnsupported { min: u32, max: u32 },
}

/// Something an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session is open.
    Welcomed { term: Term, protocol: u32, adopted: usize, dropped: usize },
    /// The stream is gone; another attempt comes after `retry_in`.
    Lost { why: String, retry_in: Duration },
    /// The leader asked this executor to go elsewhere.
    SentAway { cause: GoAwayCause },
    /// No heartbeat was acknowledged in time: nothing more is written until a new session opens.
    Lapsed,
    /// A grant of a deposed leader was handed back.
    StaleTerm { lease: LeaseId, term: Term },
    /// The leader did not renew this executor's share of the writes in time: it writes little until it does.
    ShareLapsed,
    /// The API server does not accept this executor's credentials: it takes no work until a check, the next after `check_in`, succeeds.
    CredentialsRefused { why: String, check_in: Duration },
    /// It accepts them again.
    CredentialsAccepted { refused_for: Duration },
    /// A message that makes no sense here was ignored.
    Rejected { why: String },
}

/// Where the stream stands.
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

/// The session in numbers, for readiness and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub phase: Phase,
    /// The newest term known.
    pub term: Option<Term>,
    /// As the last [`Output::WritesEnd`]; `None` where no session is valid.
    pub writes_end: Option<Time>,
    pub started: usize,
    pub buffered: usize,
    /// Attempts that may be under way.
    pub concurrency: usize,
    /// Reports that the leader has not acknowledged.
    pub unacknowledged: usize,
    pub draining: bool,
    /// Since when the API server has not accepted this executor's credentials; no work is taken meanwhile.
    pub credentials_refused: Option<Time>,
}

/// One executor's session with whoever leads.
#[derive(Debug)]
pub struct Session {
    config: Config,
    jitter: Jitter,
    outputs: VecDeque<Output>,
    link: Link,
    /// Attempts to connect since a heartbeat was last acknowledged, and hints followed in a row.
    retries: u32,
    /// Attempts in a row in which nothing at all was heard of the other end in time.
    silences: u32,
    hints_followed: u32,
    /// The first session there was.
    first: Option<SessionNumber>,
    term: Option<Term>,
    writes_end: Option<Time>,
    /// When the last session ended without another one.
    lapsed: Option<Time>,
    /// Granted, not started; at most the window.
    buffered: VecDeque<WorkLease>,
    started: BTreeMap<LeaseId, Started>,
    returns: VecDeque<Returned>,
    /// Not acknowledged; ids grow with time, so the first is the oldest.
    reports: BTreeMap<LeaseId, WorkReport>,
    /// Those of `reports` that were not sent on this stream.
    unsent: VecDeque<LeaseId>,
    flush_at: Option<Time>,
    drain: Option<Drain>,
    unaccepted: Option<Unaccepted>,
    /// A window other than the first was offered: from then on heartbeats repeat it, so that one that arrives late does not last.
    window_moved: bool,
    /// `None`: nobody limits this executor.
    share: Option<Share>,
    /// When something last came in, as long as what follows from it is not done.
    unsettled: Option<Time>,
    /// `None`: as many attempts as there may be at most, always.
    limit: Option<ConcurrencyLimit>,
}

#[derive(Debug)]
enum Link {
    Waiting {
        retry_at: Time,
        endpoint: Option<String>,
    },
    Connecting {
        /// `None` until the first call, as `new` knows no time.
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
    /// Sequence and send time of heartbeats that are not acknowledged.
    heartbeats: VecDeque<(u64, Time)>,
    window: usize,
    protocol: u32,
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    reconnect_at: Time,
    /// `reconnect_at` has passed: only acknowledgements keep the stream open.
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
    /// The leader of this session counts it against the window.
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
    /// The leader said on this stream that nothing is outstanding.
    acknowledged: bool,
    /// The leader does not take this executor back.
    refused: bool,
}

impl Concurrency {
    /// The bound.
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
    /// A session that asks for its first stream at once. The seed serves jitter.
    pub fn new(config: Config, seed: u64) -> Session {
        Session {
            limit: match config.concurrency {
                Concurrency::Fixed(_) => None,
                Concurrency::Adaptive { .. } => Some(ConcurrencyLimit::new(config.concurrency.most())),
            },
            config,
            jitter: Jitter::new(seed),
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

    /// Takes a fact. Poll afterwards, or after several: a lease that is granted and recalled in between is never started.
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

    /// Does what is due. Poll afterwards.
    pub fn tick(&mut self, now: Time) {
        self.expire(now);
        self.advance_link(now);
        if !matches!(self.link, Link::Over) {
            self.check_credentials(now);
        }
        self.grow(now);
        self.unsettled = Some(now);
    }

    /// When [`Session::tick`] is wanted next.
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

    /// The next effect; to be drained to `None` after every `handle` and `tick`, or after several of one instant, and once after `new`.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty()
            && let Some(now) = self.unsettled.take()
        {
            self.settle(now);
        }
        self.outputs.pop_front()
    }

    /// The session in numbers.
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
            writes_end: self.writes_end,
            started: self.started.len(),
            buffered: self.buffered.len(),
            concurrency: self.concurrency(),
            unacknowledged: self.reports.len(),
            draining: self.drain.is_some(),
            credentials_refused: self.unaccepted.as_ref().map(|unaccepted| unaccepted.since),
        }
    }

    /// What time takes away, whatever comes in at this instant.
    fn expire(&mut self, now: Time) {
        if self.drain.as_ref().is_some_and(|drain| now >= drain.deadline) {
            self.end_drain(now);
        }
        if self.writes_end.is_some_and(|end| now >= end) {
            self.lapse(now);
        }
        self.expire_share(now);
    }

    /// What follows from any change: starts, messages to send, the end.
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
