//! An executor: the engine's session, and a shell that carries out attempts and keeps a stream.

use super::attempt::{Answer, Attempt, Refused, Request};
use super::world::{Happening, MS, S, Stream, World};
use engine::object::Name;
use engine::session::{Config, Exit, Input, Output, Session};
use engine::time::Time;
use engine::work::{ActionKind, LeaseId, Refusal, ToExecutor, ToLeader, WorkLease, WorkReport};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) struct Executor {
    session: Option<Session>,
    pub(super) incarnation: u64,
    origin: u64,
    tick_at: Option<u64>,
    pub(super) paused_until: u64,
    stream: Option<u64>,
    /// Numbers attempts to connect; only the last one counts.
    dial: u64,
    next_replica: usize,
    writes_end: Time,
    attempts: BTreeMap<LeaseId, (Attempt, u64)>,
    requests: u64,
    /// Until then the API server does not accept its credentials.
    stranger_until: u64,
    /// Reports on their way to the session.
    finished: BTreeMap<LeaseId, WorkReport>,
}

impl Executor {
    pub(super) fn new(origin: u64) -> Executor {
        Executor {
            session: None,
            incarnation: 0,
            origin,
            tick_at: None,
            paused_until: 0,
            stream: None,
            dial: 0,
            next_replica: 0,
            writes_end: Time::ZERO,
            attempts: BTreeMap::new(),
            requests: 0,
            stranger_until: 0,
            finished: BTreeMap::new(),
        }
    }

    fn local(&self, now: u64) -> Time {
        Time::from_origin(Duration::from_nanos(now + self.origin))
    }
}

/// The client gives up on an answer.
const REQUEST_LIMIT: u64 = 30 * S;

impl World {
    pub(super) fn executor_start(&mut self, at: usize) {
        let seed = self.chaos.next();
        let concurrency = self.options.concurrency;
        let executor = &mut self.executors[at];
        executor.incarnation += 1;
        let config = Config {
            executor: Name::from(format!("executor-{at}")),
            incarnation: Name::from(format!("{at}-{}", executor.incarnation)),
            version: String::from("simulated"),
            cluster_uid: Name::from("cluster"),
            concurrency,
            kinds: ActionKind::ALL.to_vec(),
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(5),
        };
        executor.session = Some(Session::new(config, seed));
        executor.tick_at = None;
        executor.stream = None;
        executor.writes_end = Time::ZERO;
        executor.attempts.clear();
        executor.finished.clear();
        self.note(|| format!("executor {at} starts"));
        self.drain_session(at);
    }

    pub(super) fn executor_crash(&mut self, at: usize) {
        if self.executors[at].session.take().is_none() {
            return;
        }
        self.note(|| format!("executor {at} crashes"));
        self.executors[at].attempts.clear();
        if let Some(stream) = self.executors[at].stream.take() {
            self.break_stream(stream);
        }
        let back = self.chaos.between(S / 10, 20 * S);
        self.after(back, Happening::ExecutorStart { executor: at });
    }

    fn is_incarnation(&self, at: usize, incarnation: u64) -> bool {
        self.executors[at].incarnation == incarnation && self.executors[at].session.is_some()
    }

    fn tell_session(&mut self, at: usize, input: Input) {
        self.note(|| format!("executor {at} <- {input:?}"));
        let now = self.now;
        let executor = &mut self.executors[at];
        let local = executor.local(now);
        let Some(session) = &mut executor.session else { return };
        session.handle(local, input);
        self.drain_session(at);
    }

    pub(super) fn executor_tick(&mut self, at: usize, incarnation: u64) {
        if !self.is_incarnation(at, incarnation) || self.executors[at].tick_at.is_none_or(|due| due > self.now) {
            return;
        }
        let now = self.now;
        let executor = &mut self.executors[at];
        executor.tick_at = None;
        let local = executor.local(now);
        let Some(session) = &mut executor.session else { return };
        session.tick(local);
        self.drain_session(at);
    }

    fn drain_session(&mut self, at: usize) {
        loop {
            let Some(session) = &mut self.executors[at].session else { return };
            let Some(output) = session.poll() else { break };
            self.session_output(at, output);
        }
        let executor = &mut self.executors[at];
        let Some(next) = executor.session.as_ref().and_then(|session| session.next_deadline()) else { return };
        let origin = Duration::from_nanos(executor.origin);
        let due = u64::try_from(next.since_origin().saturating_sub(origin).as_nanos()).unwrap_or(u64::MAX);
        if executor.tick_at.is_none_or(|known| due < known) {
            executor.tick_at = Some(due);
            let incarnation = executor.incarnation;
            self.at(due, Happening::ExecutorTick { executor: at, incarnation });
        }
    }

    fn session_output(&mut self, at: usize, output: Output) {
        match output {
            Output::Connect { endpoint } => self.dial(at, endpoint),
            Output::Disconnect => self.hang_up(at),
            Output::Send(message) => {
                if let Some(stream) = self.executors[at].stream {
                    self.send_to_leader(stream, message);
                }
            }
            Output::Start(lease) => self.start(at, lease),
            Output::Cancel(lease) => {
                if let Some((attempt, _)) = self.executors[at].attempts.get(&lease) {
                    attempt.port.borrow_mut().cancelled = true;
                }
            }
            Output::WritesEnd(end) => {
                let executor = &mut self.executors[at];
                executor.writes_end = end;
                for (attempt, _) in executor.attempts.values() {
                    attempt.port.borrow_mut().writes_end = end;
                }
            }
            Output::CheckCredentials => {
                let incarnation = self.executors[at].incarnation;
                let delay = self.api.delay(self.options.api_ms);
                self.after(delay, Happening::CredentialsChecked { executor: at, incarnation });
            }
            Output::Exit(exit) => self.exit(at, &exit),
            Output::Event(event) => self.note(|| format!("executor {at} event {event:?}")),
        }
    }

    fn exit(&mut self, at: usize, exit: &Exit) {
        self.note(|| format!("executor {at} exits: {exit:?}"));
        match exit {
            Exit::OtherCluster { .. } | Exit::ProtocolUnsupported { .. } => {
                self.violate(format!("executor {at} exits with {exit:?}"));
            }
            Exit::Drained | Exit::DrainTimedOut { .. } | Exit::Superseded => self.executor_crash(at),
        }
    }

    // The stream.

    fn dial(&mut self, at: usize, endpoint: Option<String>) {
        let replicas = self.replicas.len();
        let executor = &mut self.executors[at];
        executor.dial += 1;
        executor.stream = None;
        let replica = endpoint.and_then(|endpoint| endpoint.parse::<usize>().ok()).unwrap_or_else(|| {
            executor.next_replica = (executor.next_replica + 1) % replicas;
            executor.next_replica
        });
        let (incarnation, dial) = (executor.incarnation, executor.dial);
        let delay = self.net.delay(self.options.net_ms);
        self.after(delay, Happening::Dialled { executor: at, incarnation, dial, replica });
    }

    pub(super) fn dialled(&mut self, at: usize, incarnation: u64, dial: u64, replica: usize) {
        if !self.is_incarnation(at, incarnation) || self.executors[at].dial != dial {
            return;
        }
        if self.replicas[replica].leader.is_none() {
            let why = String::from("connection refused");
            return self.tell_session(at, Input::Disconnected { leader_endpoint: None, refusal: None, why });
        }
        self.last_stream += 1;
        let stream = Stream {
            replica,
            epoch: self.replicas[replica].epoch,
            executor: at,
            incarnation,
            open_at_leader: true,
            open_at_executor: true,
            to_leader_at: self.now,
            to_executor_at: self.now,
        };
        self.streams.insert(self.last_stream, stream);
        self.executors[at].stream = Some(self.last_stream);
        self.tell_session(at, Input::Connected);
    }

    fn hang_up(&mut self, at: usize) {
        self.executors[at].dial += 1;
        let Some(id) = self.executors[at].stream.take() else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.open_at_executor = false;
        let last = stream.to_leader_at;
        // A connection that broke is found dead by the other side alone.
        let arrives = if last == u64::MAX { self.now + 20 * S } else { last + MS };
        self.at(arrives, Happening::LeaderSideEnds { stream: id });
    }

    /// The connection is lost: each side learns of it in its own time, and what was on its way may or may not arrive.
    pub(super) fn break_stream(&mut self, id: u64) {
        self.note(|| format!("stream {id} breaks"));
        let far = if self.chaos.once_in(4) { 30 * S } else { S };
        let leader = self.chaos.between(0, far);
        let executor = self.chaos.between(0, far);
        let lost_at_leader = self.chaos.percent(50);
        if let Some(stream) = self.streams.get_mut(&id)
            && lost_at_leader
        {
            // Nothing sent from now on arrives.
            stream.to_leader_at = u64::MAX;
            stream.to_executor_at = u64::MAX;
        }
        self.after(leader, Happening::LeaderSideEnds { stream: id });
        self.after(executor, Happening::ExecutorSideEnds { stream: id, refusal: None });
    }

    fn message_delay(&mut self) -> u64 {
        let delay = self.net.delay(self.options.net_ms);
        if self.strikes("message stall", self.options.faults.message_stalls) {
            return delay + self.chaos.between(S, 40 * S);
        }
        delay
    }

    fn send_to_leader(&mut self, id: u64, message: ToLeader) {
        self.note(|| format!("stream {id} -> leader {message:?}"));
        let delay = self.message_delay();
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.to_leader_at < u64::MAX) else { return };
        stream.to_leader_at = stream.to_leader_at.max(now + delay);
        let at = stream.to_leader_at;
        self.at(at, Happening::ToLeader { stream: id, message });
    }

    pub(super) fn send_to_executor(&mut self, id: u64, message: ToExecutor) {
        let delay = self.message_delay();
        let now = self.now;
        let open = |stream: &&mut Stream| stream.open_at_leader && stream.to_executor_at < u64::MAX;
        let Some(stream) = self.streams.get_mut(&id).filter(open) else { return };
        stream.to_executor_at = stream.to_executor_at.max(now + delay);
        let at = stream.to_executor_at;
        self.at(at, Happening::ToExecutor { stream: id, message });
    }

    fn stream_of(&self, id: u64) -> Option<usize> {
        let stream = self.streams.get(&id).filter(|stream| stream.open_at_executor)?;
        let at = stream.executor;
        let same = self.is_incarnation(at, stream.incarnation) && self.executors[at].stream == Some(id);
        same.then_some(at)
    }

    pub(super) fn executor_hears(&mut self, id: u64, message: ToExecutor) {
        if let Some(at) = self.stream_of(id) {
            self.tell_session(at, Input::Message(message));
        }
    }

    pub(super) fn executor_side_ends(&mut self, id: u64, refusal: Option<Refusal>) {
        let at = self.stream_of(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.open_at_executor = false;
        }
        let Some(at) = at else { return };
        self.executors[at].stream = None;
        let hint = refusal.as_ref().and(self.holder).map(|holder| holder.to_string());
        let why = String::from("the stream ended");
        self.tell_session(at, Input::Disconnected { leader_endpoint: hint, refusal, why });
    }

    // Attempts.

    fn start(&mut self, at: usize, lease: WorkLease) {
        let now = self.now;
        let executor = &mut self.executors[at];
        let id = lease.id;
        let attempt = Attempt::new(lease, executor.local(now), executor.writes_end);
        executor.attempts.insert(id, (attempt, 0));
        self.step_attempt(at, id);
    }

    fn step_attempt(&mut self, at: usize, id: LeaseId) {
        let now = self.now;
        let executor = &mut self.executors[at];
        let local = executor.local(now);
        let writes_end = executor.writes_end;
        let incarnation = executor.incarnation;
        let Some((attempt, number)) = executor.attempts.get_mut(&id) else { return };
        {
            let mut port = attempt.port.borrow_mut();
            port.now = local;
            port.writes_end = writes_end;
        }
        if let Some(report) = attempt.step() {
            executor.attempts.remove(&id);
            self.note(|| format!("executor {at} ends {id}: {:?} {:?}", report.outcome, report.findings));
            // The session is told once it has given all its outputs.
            self.after(
                0,
                Happening::Answered { executor: at, incarnation, lease: id, number: u64::MAX, answer: Answer::Nothing },
            );
            self.executors[at].finished.insert(id, report);
            return;
        }
        let request = attempt.port.borrow_mut().request.take();
        executor.requests += 1;
        *number = executor.requests;
        let number = *number;
        let Some(request) = request else { return };
        self.note(|| format!("executor {at} {id} sends {request:?}"));
        let mut delay = self.api.delay(self.options.api_ms);
        if self.strikes("slow request", self.options.faults.slow_requests) {
            delay += self.chaos.between(S, 50 * S);
        }
        if delay >= REQUEST_LIMIT {
            let answer = Answer::Nothing;
            self.after(REQUEST_LIMIT, Happening::Answered { executor: at, incarnation, lease: id, number, answer });
        }
        let sent = self.now;
        self.after(delay, Happening::RequestArrives { executor: at, incarnation, lease: id, number, sent, request });
    }

    pub(super) fn request_arrives(
        &mut self,
        at: usize,
        incarnation: u64,
        lease: LeaseId,
        number: u64,
        sent: u64,
        request: &Request,
    ) {
        let faults = self.options.faults.clone();
        let is_write = matches!(request, Request::Delete { .. } | Request::Patch { .. });
        let answer = match self.refused(at, request, is_write) {
            Some(refused) => Answer::Refused(refused),
            None => {
                let Some(shown) = self.grants.get(&lease) else { return };
                match self.server.serve(self.now, sent, request, shown) {
                    Ok(answer) => answer,
                    Err(why) => return self.violate(format!("executor {at}, lease {lease}: {why}")),
                }
            }
        };
        self.note(|| format!("server answers {lease} {request:?}: {answer:?}"));
        if is_write {
            self.spread();
        }
        let lost = self.strikes("lost answer", faults.lost_answers);
        let answer = if lost { Answer::Nothing } else { answer };
        let delay = self.api.delay(self.options.api_ms);
        self.after(delay, Happening::Answered { executor: at, incarnation, lease, number, answer });
    }

    /// What stands between a request and the server's own answer.
    fn refused(&mut self, at: usize, request: &Request, is_write: bool) -> Option<Refused> {
        let faults = self.options.faults.clone();
        let plain = |code: u16| Refused { code, ..Refused::default() };
        if self.strikes("credentials expired", faults.strangers) {
            self.executors[at].stranger_until = self.now + self.chaos.between(S / 10, 20 * S);
        }
        if self.now < self.executors[at].stranger_until {
            return Some(plain(401));
        }
        if self.strikes("server error", faults.server_errors) {
            return Some(plain(500));
        }
        if self.strikes("throttled", faults.throttled) {
            let retry_after = self.chaos.percent(50).then(|| Duration::from_secs(self.chaos.below(5)));
            return Some(Refused { retry_after, ..plain(429) });
        }
        if self.strikes("forbidden", faults.forbidden) {
            return Some(plain(403));
        }
        if is_write && self.strikes("webhook", faults.webhook) {
            let webhook_broken = self.chaos.percent(50);
            let webhook = Some(String::from("webhook.example.com"));
            return Some(Refused { webhook, webhook_broken, ..plain(if webhook_broken { 500 } else { 403 }) });
        }
        if !is_write && self.strikes("false 404", faults.false_not_found) {
            // Named only while the server lies; otherwise the kind itself seems not to be served.
            let names_object = self.now < self.lying_until && matches!(request, Request::Get(_));
            return Some(Refused { names_object, ..plain(404) });
        }
        None
    }

    pub(super) fn credentials_checked(&mut self, at: usize, incarnation: u64) {
        if self.is_incarnation(at, incarnation) {
            let stranger = self.now < self.executors[at].stranger_until;
            let result = if stranger { Err(String::from("401")) } else { Ok(()) };
            self.tell_session(at, Input::CredentialsChecked(result));
        }
    }

    pub(super) fn answered(&mut self, at: usize, incarnation: u64, lease: LeaseId, number: u64, answer: Answer) {
        if !self.is_incarnation(at, incarnation) {
            return;
        }
        if number == u64::MAX {
            if let Some(report) = self.executors[at].finished.remove(&lease) {
                self.tell_session(at, Input::Finished(report));
            }
            return;
        }
        let Some((attempt, wanted)) = self.executors[at].attempts.get_mut(&lease) else { return };
        if *wanted != number {
            return;
        }
        attempt.port.borrow_mut().answer = Some(answer);
        self.step_attempt(at, lease);
    }
}
