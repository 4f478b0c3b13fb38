//! The stream to the leader: connection, hello, heartbeats, reconnection and end.

use super::{
    CONNECT_LIMIT, Drain, Event, Exit, IMPATIENT_SILENCES, Leaving, Link, Output, RECONNECT_LIMIT, Session, Stream,
    TERM_FORGOTTEN_AFTER, WELCOME_LIMIT, WELCOME_LIMIT_MIN,
};
use crate::time::Time;
use crate::work::{GoAwayCause, HeldLease, Hello, Origin, Refusal, SessionNumber, Term, ToExecutor, ToLeader, Welcome};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum number of consecutive addresses from peers to follow before the configured addresses are tried again.
const HINTS_MAX: u32 = 3;
/// Minimum time between two connection attempts, even if the configuration allows less.
const RECONNECT_FLOOR: Duration = Duration::from_millis(1);
/// Waits are spread over at least this many times the minimum wait, because all executors notice a dead leader at the
/// same time.
const SPREAD_MIN: u32 = 5;
/// Maximum number of unacknowledged heartbeats. The session ends long before.
const HEARTBEATS_MAX: usize = 64;
/// Bounds of the interval that a leader may ask for. Other values are clamped.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(100);
const SESSION_TTL_MAX: Duration = Duration::from_mins(5);
const RECONNECT_AFTER_MAX: Duration = Duration::from_mins(1);
const CLOSE_AFTER_MAX: Duration = Duration::from_secs(10);
/// Maximum number of finished attempts in a hello. The newest ones are named. The others are reported as well.
const HELD_REPORTS_MAX: usize = 1_000;

impl Stream {
    pub(super) fn next_deadline(&self) -> Time {
        let leave_at = self
            .leaving
            .as_ref()
            .map(|leaving| if leaving.may_go { leaving.close_at } else { leaving.reconnect_at.min(leaving.close_at) });
        leave_at.map_or(self.heartbeat_at, |at| at.min(self.heartbeat_at))
    }
}

impl Session {
    /// Time for a connection.
    fn connect_limit(&self) -> Duration {
        let first = if self.first.is_some() { RECONNECT_LIMIT } else { CONNECT_LIMIT };
        first.saturating_mul(1 << self.silences.min(8)).min(CONNECT_LIMIT)
    }

    /// Time for the answer to a hello.
    pub(super) fn welcome_limit(&self) -> Duration {
        let doublings = self.silences.saturating_sub(IMPATIENT_SILENCES).min(8);
        WELCOME_LIMIT_MIN.saturating_mul(1 << doublings).min(WELCOME_LIMIT)
    }

    pub(super) fn advance_link(&mut self, now: Time) {
        let (connect_limit, welcome_limit) = (self.connect_limit(), self.welcome_limit());
        match &mut self.link {
            Link::Waiting { retry_at, endpoint } if now >= *retry_at => {
                let endpoint = endpoint.take();
                self.link = Link::Connecting { give_up_at: Some(now + connect_limit) };
                self.outputs.push_back(Output::Connect { endpoint });
            }
            Link::Connecting { give_up_at: Some(at) } if now >= *at => {
                self.silences = self.silences.saturating_add(1);
                self.hang_up(now, format!("no connection within {connect_limit:?}"));
            }
            Link::Connecting { give_up_at: at @ None } => *at = Some(now + connect_limit),
            Link::Greeting { hello_sent } if now >= *hello_sent + welcome_limit => {
                self.unwelcomed(now, format!("no welcome within {welcome_limit:?}"));
            }
            Link::Active(stream) if now >= stream.heartbeat_at => self.beat(now),
            Link::Waiting { .. } | Link::Connecting { .. } | Link::Greeting { .. } | Link::Active(_) | Link::Over => {}
        }
    }

    pub(super) fn connected(&mut self, now: Time) {
        if !matches!(self.link, Link::Connecting { .. }) {
            self.reject("connected without a request");
            return;
        }
        self.link = Link::Greeting { hello_sent: now };
        if self.lapsed.is_some_and(|lapsed| now.since(lapsed) >= TERM_FORGOTTEN_AFTER) {
            self.term = None;
        }
        let hello = Hello {
            executor: self.config.executor.clone(),
            incarnation: self.config.incarnation.clone(),
            min_protocol: self.config.protocols.oldest,
            max_protocol: self.config.protocols.newest,
            kinds: self.config.kinds.clone(),
            window: self.offered_window(),
            held: self.held(),
            known_term: self.term.clone(),
            first_session: self.first.clone(),
            version: self.config.version.clone(),
            cluster_uid: self.config.cluster_uid.clone(),
            origin: Origin::default(),
        };
        self.outputs.push_back(Output::Send(ToLeader::Hello(hello)));
    }

    pub(super) fn message(&mut self, now: Time, message: ToExecutor) {
        match (&self.link, message) {
            (Link::Greeting { hello_sent }, ToExecutor::Welcome(welcome)) => {
                let hello_sent = *hello_sent;
                self.welcome(now, hello_sent, welcome);
            }
            (
                Link::Greeting { .. } | Link::Active(_),
                ToExecutor::GoAway { cause, leader_endpoint, reconnect_after, close_after },
            ) => self.sent_away(now, cause, leader_endpoint, reconnect_after, close_after),
            (Link::Active(_), ToExecutor::HeartbeatAck { sequence, session_ttl, term }) => {
                self.heartbeat_acknowledged(sequence, session_ttl, term);
            }
            (Link::Active(_), ToExecutor::Grant { leases }) => self.granted(leases),
            (Link::Active(_), ToExecutor::ReportAck { results }) => self.acknowledged(&results),
            (Link::Active(_), ToExecutor::Throttle { max_writes_per_second, valid_for }) => {
                self.throttled(now, max_writes_per_second, valid_for);
            }
            (Link::Active(_), ToExecutor::Revoke { leases, mode, .. }) => self.revoked(&leases, mode),
            (Link::Active(_), ToExecutor::DrainAck { outstanding }) => match &mut self.drain {
                Some(drain) => drain.acknowledged = outstanding == 0,
                None => self.reject("the leader acknowledged a drain that was not requested"),
            },
            (_, message) => self.reject(format!("unexpected message: {}", name(&message))),
        }
    }

    pub(super) fn disconnected(
        &mut self,
        now: Time,
        leader_endpoint: Option<String>,
        refusal: Option<Refusal>,
        why: String,
    ) {
        match refusal {
            Some(Refusal::Superseded) => return self.refused_for_good(now, Exit::Superseded),
            Some(Refusal::OtherCluster { ours, theirs }) => {
                // The refusal may have the two uids in either order. The uid of the other cluster is the one that
                // differs from this executor's.
                let own = self.config.cluster_uid.clone();
                let theirs = if ours == own { theirs } else { ours };
                return self.refused_for_good(now, Exit::OtherCluster { ours: own, theirs });
            }
            Some(Refusal::ProtocolUnsupported { min, max }) => {
                return self.refused_for_good(now, Exit::ProtocolUnsupported { min, max });
            }
            Some(Refusal::Drained) => {
                // The leader releases an incarnation when it has nothing outstanding. Only the leader's last message
                // was lost.
                self.reports.clear();
                self.unsent.clear();
                self.returns.clear();
                if let Some(drain) = &mut self.drain {
                    drain.refused = true;
                }
            }
            // The graph service is reachable and will soon have a leader, so the waits stay short.
            Some(Refusal::NotLeader) => {
                self.retries = self.retries.min(1);
                self.silences = 0;
            }
            Some(
                Refusal::TermStale { .. }
                | Refusal::OutOfTurn
                | Refusal::NameTaken
                | Refusal::Untrusted { .. }
                | Refusal::TooManySessions { .. },
            )
            | None => {}
        }
        match &mut self.link {
            Link::Active(Stream { leaving: Some(leaving), .. }) => {
                let (endpoint, not_before) = (leaving.endpoint.take(), leaving.reconnect_at);
                self.wait(now, why, endpoint.or(leader_endpoint), Some(not_before));
            }
            Link::Active(_) | Link::Connecting { .. } | Link::Greeting { .. } => {
                self.wait(now, why, leader_endpoint, None)
            }
            Link::Waiting { .. } | Link::Over => {}
        }
    }

    fn refused_for_good(&mut self, now: Time, exit: Exit) {
        // The stream is already closed.
        self.link = Link::Over;
        self.exit(now, exit);
    }

    /// Leaves after the leader has asked for it, once the reports are acknowledged or the time for them is over.
    pub(super) fn leave(&mut self, now: Time) {
        let settled = self.reports.is_empty() && self.returns.is_empty();
        let Link::Active(Stream { leaving: Some(leaving), .. }) = &mut self.link else { return };
        leaving.may_go |= now >= leaving.reconnect_at;
        if now >= leaving.close_at || (leaving.may_go && settled) {
            let (endpoint, not_before) = (leaving.endpoint.take(), leaving.reconnect_at);
            self.outputs.push_back(Output::Disconnect);
            self.wait(now, String::from("the leader asked the executor to leave"), endpoint, Some(not_before));
        }
    }

    /// No answer to a hello came in time. Closes the stream, and connects again soon, to another address if there is
    /// one.
    fn unwelcomed(&mut self, now: Time, why: String) {
        self.silences = self.silences.saturating_add(1);
        self.retries = 0;
        self.outputs.push_back(Output::Disconnect);
        self.wait(now, why, None, Some(now));
    }

    pub(super) fn hang_up(&mut self, now: Time, why: String) {
        self.outputs.push_back(Output::Disconnect);
        self.wait(now, why, None, None);
    }

    pub(super) fn exit(&mut self, now: Time, exit: Exit) {
        self.cancel_started();
        if self.writes_end.is_some_and(|end| end > now) {
            self.outputs.push_back(Output::WritesEnd(now));
        }
        self.writes_end = None;
        match self.link {
            Link::Connecting { .. } | Link::Greeting { .. } | Link::Active(_) => {
                self.outputs.push_back(Output::Disconnect)
            }
            Link::Waiting { .. } | Link::Over => {}
        }
        self.link = Link::Over;
        self.outputs.push_back(Output::Exit(exit));
    }

    pub(super) fn drain(&mut self, now: Time, reason: String, deadline: Duration) {
        let ends = now + deadline;
        if let Some(drain) = &mut self.drain {
            drain.deadline = drain.deadline.min(ends);
            return;
        }
        self.drain = Some(Drain { reason, deadline: ends, acknowledged: false, refused: false });
        self.send_drain(now);
        self.hand_back_buffered();
    }

    /// The deadline of the drain has passed.
    pub(super) fn end_drain(&mut self, now: Time) {
        let outstanding = self.started.len() + self.reports.len() + self.worthwhile_returns();
        self.exit(
            now,
            match u32::try_from(outstanding).unwrap_or(u32::MAX) {
                0 => Exit::Drained,
                outstanding => Exit::DrainTimedOut { outstanding },
            },
        );
    }

    pub(super) fn finish_drain(&mut self, now: Time) {
        let Some(drain) = &self.drain else { return };
        if !self.started.is_empty() || !self.buffered.is_empty() {
            return;
        }
        let over = match &self.link {
            Link::Active(_) => drain.acknowledged && self.reports.is_empty(),
            // The leader may be granting already, so the answer to the hello is awaited.
            Link::Greeting { .. } => false,
            Link::Waiting { .. } | Link::Connecting { .. } => {
                drain.refused || (self.reports.is_empty() && self.worthwhile_returns() == 0)
            }
            Link::Over => false,
        };
        if over {
            self.end_drain(now);
        }
    }

    fn welcome(&mut self, now: Time, hello_sent: Time, welcome: Welcome) {
        if let Some(why) = self.unacceptable(&welcome) {
            self.reject(why.clone());
            self.hang_up(now, why);
            return;
        }
        let Welcome { session, term, protocol, session_ttl, heartbeat_interval, adopted, dropped, max_window } =
            welcome;
        let session_ttl = session_ttl.min(SESSION_TTL_MAX);
        let heartbeat_interval = heartbeat_interval.min(session_ttl / 2).max(HEARTBEAT_INTERVAL_MIN);
        let window =
            self.config.concurrency.most().saturating_mul(2).min(usize::try_from(max_window).unwrap_or(usize::MAX));
        self.link = Link::Active(Stream {
            protocol,
            since: now,
            heartbeat_interval,
            heartbeat_at: now + heartbeat_interval,
            last_sequence: 0,
            heartbeats: VecDeque::new(),
            window,
            leaving: None,
        });
        self.emit(Event::Welcomed { term: term.clone(), protocol, adopted: adopted.len(), dropped: dropped.len() });
        self.carry_share();
        self.reclaim(&term, adopted);
        self.first.get_or_insert_with(|| SessionNumber { term: term.clone(), number: session });
        self.term = Some(term);
        self.lapsed = None;
        self.silences = 0;
        self.set_writes_end(hello_sent + session_ttl);
        self.send_drain(now);
        self.flush_at = Some(now);
    }

    fn unacceptable(&self, welcome: &Welcome) -> Option<String> {
        if !self.config.protocols.includes(welcome.protocol) {
            return Some(format!("the leader chose protocol {}, which was not offered", welcome.protocol));
        }
        if welcome.session_ttl.is_zero() || welcome.heartbeat_interval.is_zero() {
            return Some(String::from("the leader sent a session_ttl of zero"));
        }
        match &self.term {
            Some(known) if known.election == welcome.term.election && welcome.term.number < known.number => {
                Some(format!("term {} has ended: a newer term {} is known", welcome.term.number, known.number))
            }
            Some(_) | None => None,
        }
    }

    fn heartbeat_acknowledged(&mut self, sequence: u64, session_ttl: Duration, term: Term) {
        if let Some(known) = &self.term
            && (known.election != term.election || term.number < known.number)
        {
            self.reject(format!("the leader acknowledged a heartbeat of term {}", term.number));
            return;
        }
        self.raise_term(term);
        let Link::Active(stream) = &mut self.link else { return };
        let sent = stream.heartbeats.iter().find(|(number, _)| *number == sequence).map(|(_, sent)| *sent);
        match sent {
            Some(sent) => {
                stream.heartbeats.retain(|(number, _)| *number > sequence);
                self.retries = 0;
                self.hints_followed = 0;
                self.set_writes_end(sent + session_ttl.min(SESSION_TTL_MAX));
            }
            None => self.reject(format!("the leader acknowledged the unknown heartbeat {sequence}")),
        }
    }

    fn set_writes_end(&mut self, end: Time) {
        if self.writes_end != Some(end) {
            self.writes_end = Some(end);
            self.outputs.push_back(Output::WritesEnd(end));
        }
    }

    fn sent_away(
        &mut self,
        now: Time,
        cause: GoAwayCause,
        leader_endpoint: String,
        reconnect_after: Duration,
        close_after: Duration,
    ) {
        self.emit(Event::SentAway { cause });
        match cause {
            GoAwayCause::Superseded => return self.exit(now, Exit::Superseded),
            GoAwayCause::LeaderChanged
            | GoAwayCause::ShuttingDown
            | GoAwayCause::SessionAge
            | GoAwayCause::ProtocolError => {}
        }
        let reconnect_at = now + reconnect_after.min(RECONNECT_AFTER_MAX);
        let endpoint = if leader_endpoint.is_empty() { None } else { Some(leader_endpoint) };
        match &mut self.link {
            Link::Active(stream) if stream.leaving.is_none() => {
                let close_at = now + close_after.min(CLOSE_AFTER_MAX);
                stream.leaving = Some(Leaving { reconnect_at, may_go: false, close_at, endpoint });
            }
            Link::Active(_) => self.reject("the leader asked the executor to leave twice"),
            Link::Waiting { .. } | Link::Connecting { .. } | Link::Greeting { .. } | Link::Over => {
                self.outputs.push_back(Output::Disconnect);
                self.wait(now, String::from("the leader asked the executor to leave"), endpoint, Some(reconnect_at));
            }
        }
    }

    /// Handles the end of a stream. The session follows an address from a peer at once, and keeps a time from the
    /// leader. After any other end it backs off.
    fn wait(&mut self, now: Time, why: String, hint: Option<String>, not_before: Option<Time>) {
        let mut endpoint = hint.filter(|hint| !hint.is_empty());
        let welcome_wait = not_before.map_or(Duration::ZERO, |at| at.since(now));
        let shortest = self.config.reconnect_min.max(RECONNECT_FLOOR);
        let extra = if endpoint.is_some() && self.hints_followed < HINTS_MAX {
            self.hints_followed += 1;
            self.jitter.between(RECONNECT_FLOOR, shortest)
        } else if not_before.is_some() && self.retries == 0 && endpoint.is_none() {
            self.jitter.between(RECONNECT_FLOOR, shortest)
        } else {
            if endpoint.take().is_some() {
                self.hints_followed = 0;
            }
            let ceiling = shortest.saturating_mul((2 << self.retries.min(20)).max(SPREAD_MIN));
            self.retries = self.retries.saturating_add(1);
            self.jitter.between(shortest, ceiling.min(self.config.reconnect_max))
        };
        let retry_in = welcome_wait.saturating_add(extra);
        self.link = Link::Waiting { retry_at: now + retry_in, endpoint };
        self.flush_at = None;
        if let Some(drain) = &mut self.drain {
            drain.acknowledged = false;
        }
        self.emit(Event::Lost { why, retry_in });
    }

    fn beat(&mut self, now: Time) {
        let (started, buffered) = (self.started.len(), self.buffered.len());
        let Link::Active(stream) = &mut self.link else { return };
        stream.last_sequence += 1;
        stream.heartbeat_at = now + stream.heartbeat_interval;
        stream.heartbeats.push_back((stream.last_sequence, now));
        if stream.heartbeats.len() > HEARTBEATS_MAX {
            stream.heartbeats.pop_front();
        }
        let heartbeat = ToLeader::Heartbeat {
            sequence: stream.last_sequence,
            started: u32::try_from(started).unwrap_or(u32::MAX),
            buffered: u32::try_from(buffered).unwrap_or(u32::MAX),
        };
        self.outputs.push_back(Output::Send(heartbeat));
        if self.window_moved {
            self.send_window();
        }
    }

    fn send_drain(&mut self, now: Time) {
        if let (Some(drain), Link::Active(_)) = (&self.drain, &self.link) {
            let (reason, deadline) = (drain.reason.clone(), drain.deadline.since(now));
            self.outputs.push_back(Output::Send(ToLeader::Drain { reason, deadline }));
        }
    }

    pub(super) fn window(&self) -> usize {
        self.concurrency().saturating_mul(2)
    }

    /// The leases that the leader must not grant to others: buffered, started, and finished without an acknowledgement.
    fn held(&self) -> Vec<HeldLease> {
        let buffered = self.buffered.iter().map(|lease| HeldLease {
            lease: lease.id,
            item: lease.item.id,
            term: lease.term.clone(),
            started: false,
        });
        let started = self.started.iter().map(|(&lease, started)| HeldLease {
            lease,
            item: started.item,
            term: started.term.clone(),
            started: true,
        });
        let finished = self.reports.values().rev().take(HELD_REPORTS_MAX).map(|report| HeldLease {
            lease: report.lease,
            item: report.item,
            term: report.term.clone(),
            started: true,
        });
        buffered.chain(started).chain(finished).collect()
    }
}

fn name(message: &ToExecutor) -> &'static str {
    match message {
        ToExecutor::Welcome(_) => "a welcome",
        ToExecutor::HeartbeatAck { .. } => "the acknowledgement of a heartbeat",
        ToExecutor::Grant { .. } => "a grant",
        ToExecutor::ReportAck { .. } => "the acknowledgement of a report",
        ToExecutor::Revoke { .. } => "a revocation",
        ToExecutor::Throttle { .. } => "a share of the writes",
        ToExecutor::DrainAck { .. } => "the acknowledgement of a drain",
        ToExecutor::GoAway { .. } => "a farewell",
    }
}
