//! The one task that owns the session. It passes facts in and carries effects out.

use crate::attempt::{Attempts, Ended};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::peers::{Peers, Target};
use crate::stream::{self, End, Ends, Inbound};
use crate::traces::Traces;
use engine::session::{Event, Exit, Input, Output, Session};
use engine::time::Time;
use engine::work::{LeaseId, ReturnCause, ToLeader, WorkLease, WorkReturn};
use proto::convert::Received;
use runtime::clock::Clock;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time from the request to stop to the end. It is below the 30 s that Kubernetes grants a pod.
const DRAIN_WITHIN: Duration = Duration::from_secs(25);
/// Maximum pause between two turns. After a longer one the driver counts as stopped.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of streams. One is open; earlier ones may still be closing.
const STREAMS_MAX: usize = 16;
/// Interval of warnings about a continuing failure. In between it is logged at debug.
const WARN_EVERY: Duration = Duration::from_secs(30);
const CREDENTIALS_REFUSED: &str = "the API server refuses this executor's credentials; the executor accepts no work until the API server accepts them";
/// Maximum number of distinct failures to remember.
const WARNINGS_MAX: usize = 32;

/// A session and its connections.
pub(crate) struct Driver {
    clock: Clock,
    session: Session,
    attempts: Attempts,
    peers: Peers,
    stream: Option<Ends>,
    /// Whether the peer has sent anything on the stream.
    heard: bool,
    /// Raised with every stream, so that the end of an older stream is ignored.
    stream_number: u64,
    streams: Jobs<u64, End>,
    /// The check of the credentials, at most one.
    checks: Jobs<(), Result<(), String>>,
    health: Arc<Health>,
    metrics: Metrics,
    /// `None` without traces.
    traces: Option<Traces>,
    /// Warnings since the last session, and the time of the last one.
    warned: BTreeMap<String, Time>,
}

impl Driver {
    pub(crate) fn new(
        clock: Clock,
        session: Session,
        attempts: Attempts,
        peers: Peers,
        health: Arc<Health>,
        metrics: Metrics,
    ) -> Driver {
        Driver {
            clock,
            session,
            attempts,
            peers,
            stream: None,
            heard: false,
            stream_number: 0,
            streams: Jobs::new(STREAMS_MAX),
            checks: Jobs::new(1),
            health,
            metrics,
            traces: None,
            warned: BTreeMap::new(),
        }
    }

    /// Adds traces to the driver.
    pub(crate) fn traced(self, traces: Option<Traces>) -> Driver {
        Driver { traces, ..self }
    }

    /// Runs the session to its end.
    pub(crate) async fn run(mut self, shutdown: Shutdown) -> Exit {
        let mut asked_to_stop = false;
        loop {
            self.session.tick(self.clock.now());
            if let Some(exit) = self.carry_out() {
                self.health.turned(self.clock.now(), self.session.status());
                return exit;
            }
            let now = self.clock.now();
            self.health.turned(now, self.session.status());
            let latest = now + TURN_WITHIN;
            let wake = self.session.next_deadline().map_or(latest, |deadline| deadline.min(latest));
            tokio::select! {
                biased;
                () = shutdown.requested(), if !asked_to_stop => {
                    asked_to_stop = true;
                    let drain = Input::Drain { reason: "the executor is stopping".to_owned(), deadline: DRAIN_WITHIN };
                    self.session.handle(self.clock.now(), drain);
                }
                (number, end) = self.streams.next() => self.stream_ended(number, end),
                inbound = next(&mut self.stream) => {
                    self.received(inbound);
                    // This comes first. A received message may recall a lease that would start now.
                    tokio::task::yield_now().await;
                    self.receive_ready();
                }
                ended = self.attempts.next() => self.attempts_ended(ended),
                ((), end) = self.checks.next() => self.check_ended(end),
                () = tokio::time::sleep_until(self.clock.instant(wake)) => {}
            }
        }
    }

    /// Carries out the outputs of the session. Returns how it ended, if it has.
    fn carry_out(&mut self) -> Option<Exit> {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Connect { endpoint } => self.connect(endpoint),
                Output::Disconnect => {
                    if !self.heard {
                        self.note_silence();
                    }
                    self.disconnect();
                }
                Output::Send(message) => self.send(message),
                Output::Start(lease) => self.start(lease),
                Output::Cancel(lease) => self.attempts.cancel(lease),
                Output::WritesEnd(end) => self.attempts.set_writes_end(end),
                Output::CheckCredentials => self.checks.spawn((), self.attempts.check_credentials()),
                Output::Exit(exit) => return Some(exit),
                Output::Event(event) => self.render(event),
            }
        }
        None
    }

    fn connect(&mut self, endpoint: Option<String>) {
        self.disconnect();
        let now = self.clock.now();
        // A replica may name the former leader until there is a new one.
        let hint = endpoint.filter(|address| !self.peers.is_silent(now, address));
        let (text, target) = match hint {
            Some(address) => (address.clone(), self.peers.hinted(&address)),
            None => {
                let (text, target) = self.peers.next(now);
                (text, Ok(target))
            }
        };
        self.health.connecting(&text);
        if let Err(why) = target.and_then(|target| self.open(target)) {
            self.lost(End::because(why));
        }
    }

    fn open(&mut self, target: Target) -> Result<(), String> {
        if !self.streams.has_room() {
            return Err("too many earlier streams have not ended yet".to_owned());
        }
        let (ends, keeping) = stream::open(self.peers.connector.clone(), target);
        self.stream_number += 1;
        self.stream = Some(ends);
        self.heard = false;
        self.streams.spawn(self.stream_number, keeping);
        Ok(())
    }

    fn disconnect(&mut self) {
        if self.stream.take().is_some() {
            self.streams.abort(&self.stream_number);
        }
    }

    /// Records that the peer did not answer in time.
    fn note_silence(&mut self) {
        if let Some(address) = self.stream.as_ref().and_then(|ends| ends.address.get()) {
            self.peers.went_silent(self.clock.now(), address);
        }
    }

    /// Records that the peer has answered.
    fn note_answer(&mut self) {
        if !self.heard
            && let Some(address) = self.stream.as_ref().and_then(|ends| ends.address.get())
        {
            self.peers.answered(address);
        }
        self.heard = true;
    }

    fn send(&mut self, message: ToLeader) {
        if let Some(traces) = &mut self.traces {
            traces.said(&message);
        }
        let Some(ends) = &self.stream else { return };
        for request in proto::batch::requests(message) {
            if ends.outbound.try_send(request).is_err() {
                // Either the peer has stopped reading, or the stream has ended. Close it in both cases.
                self.disconnect();
                self.lost(End::because("the graph service does not read its stream".to_owned()));
                return;
            }
        }
    }

    fn start(&mut self, lease: WorkLease) {
        let follow = self.traces.as_mut().and_then(|traces| traces.started(&lease));
        self.attempts.start(lease, follow);
    }

    /// Answers usually come several at a time. All are taken before the next step.
    fn attempts_ended(&mut self, ended: Ended) {
        self.attempt_ended(ended);
        while let Some(ended) = self.attempts.try_next() {
            self.attempt_ended(ended);
        }
    }

    fn attempt_ended(&mut self, Ended { lease, report, writes }: Ended) {
        if writes > 1 {
            self.session.handle(self.clock.now(), Input::WroteAgain { times: writes - 1 });
        }
        self.metrics.ended(lease.item.action.kind(), &report);
        let followed = self.traces.as_mut().and_then(|traces| traces.ended(&lease, &report));
        let _logged = followed.map(|context| context.entered().entered());
        tracing::debug!(
            lease = %lease.id,
            target = %lease.item.target,
            action = lease.item.action.kind().as_str(),
            outcome = report.outcome.as_str(),
            status = report.http_status,
            answer = report.message,
            "attempt ended"
        );
        self.session.handle(self.clock.now(), Input::Finished(report));
    }

    fn check_ended(&mut self, end: JobEnd<Result<(), String>>) {
        let result = match end {
            JobEnd::Done(result) => result,
            JobEnd::Aborted => Err("the check was aborted".to_owned()),
            JobEnd::Panicked(why) => {
                tracing::error!(why, "the check of the credentials panicked");
                Err(format!("the check panicked: {why}"))
            }
        };
        self.session.handle(self.clock.now(), Input::CredentialsChecked(result));
    }

    fn received(&mut self, inbound: Inbound) {
        let now = self.clock.now();
        match inbound {
            Inbound::Connected => self.session.handle(now, Input::Connected),
            Inbound::Message(Received { message, unknown_actions }) => {
                self.note_answer();
                if let Some(traces) = &mut self.traces {
                    traces.heard(&message);
                }
                self.session.handle(now, Input::Message(message));
                self.hand_back(unknown_actions);
            }
            Inbound::Unknown => {
                self.metrics.rejected_messages.inc();
                tracing::debug!("ignored a message of an unknown kind");
            }
        }
    }

    /// Takes the received messages: at most as many as the channel holds.
    fn receive_ready(&mut self) {
        for _ in 0..stream::INBOUND_MAX {
            let Some(inbound) = self.stream.as_mut().and_then(|ends| ends.inbound.try_recv().ok()) else { return };
            self.received(inbound);
        }
    }

    /// Returns leases whose action this build does not know. They never reach the session.
    fn hand_back(&mut self, leases: Vec<LeaseId>) {
        if leases.is_empty() {
            return;
        }
        let cause = ReturnCause::KindUnsupported;
        let returns = leases.into_iter().map(|lease| WorkReturn { lease, cause }).collect();
        self.send(ToLeader::Reports { reports: Vec::new(), returns });
    }

    fn stream_ended(&mut self, number: u64, end: JobEnd<End>) {
        if number != self.stream_number || self.stream.is_none() {
            return;
        }
        let end = match end {
            JobEnd::Done(end) => end,
            JobEnd::Aborted => End::because("the stream was aborted".to_owned()),
            JobEnd::Panicked(why) => {
                tracing::error!(why, "the reader of a stream panicked");
                End::because(format!("the reader of the stream panicked: {why}"))
            }
        };
        // The messages that were read before the end come first.
        self.receive_ready();
        if end.refusal.is_some() {
            self.note_answer();
        }
        self.stream = None;
        self.lost(end);
    }

    fn lost(&mut self, End { leader_endpoint, refusal, why }: End) {
        self.metrics.connect_failures.inc();
        self.session.handle(self.clock.now(), Input::Disconnected { leader_endpoint, refusal, why });
    }

    /// Whether the last warning of this failure is old enough that another one may follow.
    fn is_news(&mut self, now: Time, why: String) -> bool {
        if self.warned.get(&why).is_some_and(|&at| now.since(at) < WARN_EVERY) {
            return false;
        }
        if self.warned.len() >= WARNINGS_MAX {
            self.warned.clear();
        }
        self.warned.insert(why, now);
        true
    }

    /// The only function that renders events of the session as log lines, metrics and readiness.
    fn render(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Welcomed { term, protocol, adopted, dropped } => {
                self.warned.clear();
                tracing::info!(term = term.number, protocol, adopted, dropped, "session open");
            }
            Event::Lost { why, retry_in } => {
                self.health.failed(now, &why);
                let retry_in_ms = retry_in.as_millis();
                if self.is_news(now, why.clone()) {
                    tracing::warn!(why, retry_in_ms, "no stream to the graph service");
                } else {
                    tracing::debug!(why, retry_in_ms, "no stream to the graph service");
                }
            }
            Event::ShareLapsed => {
                self.metrics.shares_lapsed.inc();
                tracing::info!(
                    "the leader did not renew this executor's share of the write rate in time; the executor writes at a reduced rate until the leader renews the share"
                );
            }
            Event::CredentialsRefused { why, check_in } => {
                self.metrics.credentials_refused.inc();
                self.health.credentials(Some(why.clone()));
                let check_in_ms = check_in.as_millis();
                if self.is_news(now, CREDENTIALS_REFUSED.to_owned()) {
                    tracing::warn!(why, check_in_ms, "{CREDENTIALS_REFUSED}");
                } else {
                    tracing::debug!(why, check_in_ms, "{CREDENTIALS_REFUSED}");
                }
            }
            Event::CredentialsAccepted { refused_for } => {
                self.health.credentials(None);
                tracing::info!(refused_for_s = refused_for.as_secs(), "the API server accepts the credentials again");
            }
            Event::SentAway { cause } => tracing::info!(?cause, "the graph service asks this executor to reconnect"),
            Event::Lapsed => {
                self.note_silence();
                self.metrics.lapses.inc();
                self.health.failed(now, "heartbeats were not acknowledged in time");
                tracing::warn!(
                    "heartbeats were not acknowledged in time; this executor writes nothing until a new session opens"
                );
            }
            Event::StaleTerm { lease, term } => {
                self.metrics.stale_terms.inc();
                tracing::warn!(%lease, term = term.number, "returned a grant of a deposed leader");
            }
            Event::Rejected { why } => {
                self.metrics.rejected_messages.inc();
                self.health.failed(now, &why);
                tracing::warn!(why, "ignored a message of the graph service");
            }
        }
    }
}

/// The next event of the stream. Pending without one and after the last one: the job reports the end.
async fn next(stream: &mut Option<Ends>) -> Inbound {
    if let Some(ends) = stream
        && let Some(inbound) = ends.inbound.recv().await
    {
        return inbound;
    }
    std::future::pending().await
}
