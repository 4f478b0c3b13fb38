//! An executor: the engine's session, with a client that carries out attempts and keeps a stream.

use super::attempt::{Answer, Refused, Request};
use super::clock::Clock;
use super::kinds::{STORED, UNWATCHED, by_resource};
use super::law::{self, Fate, Judge};
use super::stream::is_behind;
use super::world::{Happening, MS, S, World};
use engine::attempt::{self, Attempts, RequestId};
use engine::object::{Name, ResourceVersion, Uid};
use engine::session::{Config, Exit, Input, Output, Session};
use engine::time::Time;
use engine::work::{ActionKind, LeaseId, Term, WorkLease, WorkReport};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) struct Executor {
    session: Option<Session>,
    pub(super) incarnation: u64,
    clock: Clock,
    /// The executor belongs to another cluster.
    pub(super) stranger: bool,
    tick_at: Option<u64>,
    pub(super) paused_until: u64,
    pub(super) stream: Option<u64>,
    /// The newest term that the executor has heard of from a leader.
    pub(super) newest: Option<Term>,
    /// The number of the current attempt to connect. An earlier attempt counts no more.
    pub(super) dial: u64,
    pub(super) next_replica: usize,
    attempts: Attempts<Value>,
    /// The leases in flight.
    grounds: BTreeMap<LeaseId, Ground>,
    /// No write leaves at or after this time.
    writes_end: Option<Time>,
    /// The requests of attempts, by number.
    asked: BTreeMap<u64, RequestId>,
    requests: u64,
    /// The reads of attempts: the object, the time of the request and the time of the answer.
    reads: Vec<(Uid, u64, u64)>,
    /// The reads in flight: the object and the time of the request.
    reading: BTreeMap<u64, (Uid, u64)>,
    /// The API server refuses the credentials of the executor before this time.
    refused_until: u64,
    /// The reports in flight to the session.
    finished: BTreeMap<LeaseId, WorkReport>,
}

/// A lease in flight: the facts that its write rests on, and the fate of the write.
struct Ground {
    /// The version at which the lease was decided.
    decided_at: ResourceVersion,
    /// The owners that wait for the deletion of the target.
    owners: Vec<Uid>,
    ends: Time,
    cancelled: bool,
    fate: Fate,
}

impl Executor {
    pub(super) fn new(clock: Clock, stranger: bool) -> Executor {
        Executor {
            session: None,
            incarnation: 0,
            clock,
            stranger,
            tick_at: None,
            paused_until: 0,
            stream: None,
            newest: None,
            dial: 0,
            next_replica: 0,
            attempts: Attempts::default(),
            grounds: BTreeMap::new(),
            writes_end: None,
            asked: BTreeMap::new(),
            requests: 0,
            reads: Vec::new(),
            reading: BTreeMap::new(),
            refused_until: 0,
            finished: BTreeMap::new(),
        }
    }

    fn local(&self, now: u64) -> Time {
        self.clock.local(now)
    }

    fn forget_attempts(&mut self) {
        self.attempts = Attempts::default();
        self.grounds.clear();
        self.writes_end = None;
        self.asked.clear();
        self.reads.clear();
        self.reading.clear();
    }

    /// Returns the reason why a write of this lease may not leave any more.
    fn must_not_write(&self, now: u64, lease: LeaseId) -> Option<&'static str> {
        let (local, ground) = (self.local(now), self.grounds.get(&lease)?);
        if ground.cancelled {
            return Some("after the leader has cancelled it");
        }
        if local >= ground.ends {
            return Some("after its execution limit");
        }
        self.writes_end.is_none_or(|end| local >= end).then_some("after the end of its session")
    }

    /// Returns the time of the oldest owner check that the DELETE of this lease may rest on. An owner may stop waiting
    /// after its check. A check counts for one second, or for nine quarters of its duration if that is longer. The
    /// limit allows a quarter more, because the clock of the executor may be slow.
    fn checked_since(&self, now: u64, lease: LeaseId) -> Option<u64> {
        let owners = &self.grounds.get(&lease)?.owners;
        let counts = |&&(ref uid, asked, answered): &&(Uid, u64, u64)| {
            owners.contains(uid) && now <= asked + ((answered - asked) * 9 / 4).max(S) * 5 / 4
        };
        self.reads.iter().filter(counts).map(|&(_, asked, _)| asked).min()
    }
}

/// The time after which a session ends with all its leases, even if the executor does not answer the recall. It is the
/// TTL of the session plus the delay of one message.
const FORMER_LEASES_END: u64 = 70 * S;
/// The client gives up an answer after this time.
const REQUEST_LIMIT: u64 = 30 * S;
/// No write rests on an owner check that is older than this.
const READS_COUNT: u64 = 80 * S;

impl World {
    pub(super) fn executor_start(&mut self, at: usize) {
        let seed = self.chaos.next();
        let (concurrency, protocols) = (self.options.concurrency, self.options.protocols_of(seed));
        let executor = &mut self.executors[at];
        executor.incarnation += 1;
        let config = Config {
            executor: Name::from(format!("executor-{at}")),
            incarnation: Name::from(format!("{at}-{}", executor.incarnation)),
            version: String::from("simulated"),
            cluster_uid: Name::from(if executor.stranger { "another cluster" } else { "cluster" }),
            concurrency: engine::session::Concurrency::Fixed(concurrency),
            kinds: ActionKind::ALL.to_vec(),
            protocols,
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(5),
        };
        executor.session = Some(Session::new(config, seed));
        executor.tick_at = None;
        executor.newest = None;
        executor.stream = None;
        executor.forget_attempts();
        executor.finished.clear();
        self.note(|| format!("executor {at} starts"));
        self.drain_session(at);
    }

    pub(super) fn executor_crash(&mut self, at: usize) {
        if self.executors[at].session.take().is_none() {
            return;
        }
        self.note(|| format!("executor {at} crashes"));
        self.executors[at].forget_attempts();
        if let Some(stream) = self.executors[at].stream.take() {
            self.break_stream(stream);
        }
        let back = self.chaos.between(S / 10, 20 * S);
        self.after(back, Happening::ExecutorStart { executor: at });
    }

    /// Asks the process to stop. The process stops in its own time.
    pub(super) fn executor_drains(&mut self, at: usize) {
        let deadline = Duration::from_secs(self.chaos.between(1, 30));
        self.tell_session(at, Input::Drain { reason: String::from("asked to stop"), deadline });
    }

    pub(super) fn is_incarnation(&self, at: usize, incarnation: u64) -> bool {
        self.executors[at].incarnation == incarnation && self.executors[at].session.is_some()
    }

    pub(super) fn tell_session(&mut self, at: usize, input: Input) {
        self.note(|| format!("executor {at} <- {input:?}"));
        let now = self.now;
        let executor = &mut self.executors[at];
        let local = executor.local(now);
        let Some(session) = &mut executor.session else { return };
        let is_message = matches!(input, Input::Message(_));
        session.handle(local, input);
        if is_message {
            // The driver of a real executor also handles all other inputs of this instant before an attempt starts.
            executor.tick_at = Some(now);
            let incarnation = executor.incarnation;
            return self.after(0, Happening::ExecutorTick { executor: at, incarnation });
        }
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
        let due = executor.clock.world(next);
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
                let now = self.now;
                let executor = &mut self.executors[at];
                if let Some(ground) = executor.grounds.get_mut(&lease) {
                    ground.cancelled = true;
                }
                let local = executor.local(now);
                executor.attempts.cancel(local, lease);
                self.drain_attempts(at);
            }
            Output::WritesEnd(end) => {
                self.executors[at].writes_end = Some(end);
                self.executors[at].attempts.set_writes_end(end);
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
            Exit::OtherCluster { .. } if self.executors[at].stranger => {
                self.tally.happened("stranger refused");
                self.executor_crash(at);
            }
            Exit::OtherCluster { .. } | Exit::ProtocolUnsupported { .. } => {
                self.violate(format!("executor {at} exits with {exit:?}"));
            }
            Exit::Drained | Exit::DrainTimedOut { .. } | Exit::Superseded => self.executor_crash(at),
        }
    }

    // The attempts.

    fn start(&mut self, at: usize, lease: WorkLease) {
        let now = self.now;
        let executor = &mut self.executors[at];
        if executor.newest.as_ref().is_some_and(|known| is_behind(&lease.term, known)) {
            let (term, known) = (lease.term.number, executor.newest.clone());
            return self.violate(format!("executor {at} starts a lease of term {term} after it heard of {known:?}"));
        }
        let id = lease.id;
        if executor.stranger {
            return self.violate(format!("executor {at} of another cluster was given lease {id}"));
        }
        let local = executor.local(now);
        let decided_at = lease.item.preconditions.resource_version.clone();
        let owners = lease.item.action.owner_checks().iter().map(|owner| owner.uid.clone()).collect();
        let ends = local + lease.execution_limit;
        executor.grounds.insert(id, Ground { decided_at, owners, ends, cancelled: false, fate: Fate::default() });
        executor.attempts.start(local, lease);
        self.drain_attempts(at);
    }

    /// Carries out the outputs of the attempts.
    fn drain_attempts(&mut self, at: usize) {
        while let Some(output) = self.executors[at].attempts.poll() {
            let executor = &mut self.executors[at];
            match output {
                attempt::Output::Ask { id, lease, request } => {
                    let decided_at = executor.grounds.get(&lease).map(|ground| ground.decided_at.clone());
                    executor.requests += 1;
                    let number = executor.requests;
                    executor.asked.insert(number, id);
                    if let attempt::Request::Get(object) = &request {
                        executor.reading.insert(number, (object.uid.clone(), self.now));
                    }
                    self.connect(at, lease, number, Request::of(request, decided_at));
                }
                attempt::Output::Withdraw(id) => executor.asked.retain(|_, asked| *asked != id),
                attempt::Output::Ended { lease, report, .. } => {
                    let Some(ground) = executor.grounds.remove(&lease.id) else {
                        return self.violate(format!("executor {at} ends lease {} twice", lease.id));
                    };
                    if let Err(why) = law::report(&report, ground.fate) {
                        return self.violate(format!("executor {at}, lease {}: {why}", lease.id));
                    }
                    self.report(at, report);
                }
            }
        }
    }

    /// Drains the outputs of the session, and then reports the ends of attempts to it.
    fn report(&mut self, at: usize, report: WorkReport) {
        let (incarnation, lease) = (self.executors[at].incarnation, report.lease);
        self.note(|| format!("executor {at} ends {lease}: {:?} {:?}", report.outcome, report.findings));
        let answer = Answer::Nothing;
        self.after(0, Happening::Answered { executor: at, incarnation, lease, number: u64::MAX, answer });
        self.executors[at].finished.insert(lease, report);
    }

    /// Makes the connection of a request. Most requests do not wait for it.
    fn connect(&mut self, at: usize, lease: LeaseId, number: u64, request: Request) {
        let incarnation = self.executors[at].incarnation;
        let slow = !self.calm && self.connections.below(1000) < self.options.faults.slow_requests;
        if !slow || !request.is_write() {
            return self.connected(at, incarnation, lease, number, request);
        }
        self.tally.fault("slow connection");
        let delay = self.connections.between(S / 10, 10 * S);
        self.after(delay, Happening::Connected { executor: at, incarnation, lease, number, request });
    }

    /// Checks a write immediately before it leaves.
    pub(super) fn connected(&mut self, at: usize, incarnation: u64, lease: LeaseId, number: u64, mut request: Request) {
        if !self.is_incarnation(at, incarnation) {
            return;
        }
        let now = self.now;
        let executor = &mut self.executors[at];
        let Some(&id) = executor.asked.get(&number) else { return };
        if request.is_write() && !executor.attempts.leaves(executor.local(now), id) {
            self.tally.happened("write withheld");
            return self.drain_attempts(at);
        }
        if request.is_write()
            && let Some(why) = executor.must_not_write(now, lease)
        {
            return self.violate(format!("executor {at} sends a write of lease {lease} {why}"));
        }
        if let Request::Delete { checked, .. } = &mut request {
            *checked = executor.checked_since(now, lease);
        }
        self.send(at, lease, number, request);
    }

    fn send(&mut self, at: usize, lease: LeaseId, number: u64, request: Request) {
        let incarnation = self.executors[at].incarnation;
        self.note(|| format!("executor {at} {lease} sends {request:?}"));
        let mut delay = self.api.delay(self.options.api_ms) + self.slowness();
        if self.strikes("slow request", self.options.faults.slow_requests) {
            delay += self.chaos.between(S, 50 * S);
        }
        if delay >= REQUEST_LIMIT {
            let answer = Answer::Nothing;
            self.after(REQUEST_LIMIT, Happening::Answered { executor: at, incarnation, lease, number, answer });
        }
        let sent = self.now;
        self.after(delay, Happening::RequestArrives { executor: at, incarnation, lease, number, sent, request });
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
        let is_write = request.is_write();
        // A restore ends all requests in flight. They do not arrive, or they arrive after the restore.
        let broken = self.formers.last().is_some_and(|former| sent < former.ended) && self.chaos.percent(50);
        if broken {
            let answer = Answer::Nothing;
            return self.after(MS, Happening::Answered { executor: at, incarnation, lease, number, answer });
        }
        let answer = match self.refused(at, request, is_write) {
            Some(refused) => Answer::Refused(refused),
            None => {
                let Some(shown) = self.grants.get(&lease) else { return };
                let told = self.replicas[shown.replica].told.get(shown.history);
                let current = told.is_none_or(|told| sent <= told + FORMER_LEASES_END);
                let former = self.formers.get(shown.history).filter(|_| current);
                match self.server.serve(self.now, sent, request, Judge { shown, former }) {
                    Ok(answer) => answer,
                    Err(why) => return self.violate(format!("executor {at}, lease {lease}: {why}")),
                }
            }
        };
        if let (Answer::Accepted(_), Request::Delete { target, .. }) = (&answer, request)
            && let Err(why) = self.guard_law(target)
        {
            return self.violate(format!("executor {at}, lease {lease}: {why}"));
        }
        if let Answer::Accepted(_) = answer {
            if let Some(ground) = self.executors[at].grounds.get_mut(&lease) {
                ground.fate.accepted = true;
            }
            *self.tally.writes.entry(request.name()).or_default() += 1;
        }
        self.note(|| format!("server answers {lease} {request:?}: {answer:?}"));
        if is_write {
            self.spread();
        }
        let lost = self.strikes("lost answer", faults.lost_answers);
        let answer = if lost { Answer::Nothing } else { answer };
        let arrives = self.now + self.answer_delay();
        // The client ignores an answer that arrives after the limit.
        let answer = if arrives < sent + REQUEST_LIMIT { answer } else { Answer::Nothing };
        let arrives = arrives.min(sent + REQUEST_LIMIT);
        self.at(arrives, Happening::Answered { executor: at, incarnation, lease, number, answer });
    }

    /// The time for which an answer is in flight. The state that it shows may be out of date when it arrives.
    pub(super) fn answer_delay(&mut self) -> u64 {
        let delay = self.api.delay(self.options.api_ms);
        if self.strikes("late answer", self.options.faults.slow_requests) {
            return delay + self.chaos.between(S / 10, 35 * S);
        }
        delay
    }

    /// Draws a fault that answers in place of the server.
    fn refused(&mut self, at: usize, request: &Request, is_write: bool) -> Option<Refused> {
        if let Some(refused) = self.peril_refuses(request) {
            return Some(refused);
        }
        let faults = self.options.faults.clone();
        let plain = |code: u16| Refused { code, ..Refused::default() };
        if self.strikes("credentials expired", faults.expired_credentials) {
            self.executors[at].refused_until = self.now + self.chaos.between(S / 10, 20 * S);
        }
        if self.now < self.executors[at].refused_until {
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
        if is_write && self.strikes("refusal", faults.refusals) {
            let code = [400, 405, 422, 422][self.chaos.index(4)];
            return Some(plain(code));
        }
        if is_write && self.strikes("webhook", faults.webhook) {
            let webhook_broken = self.chaos.percent(50);
            let webhook = Some(String::from("webhook.example.com"));
            return Some(Refused { webhook, webhook_broken, ..plain(if webhook_broken { 500 } else { 403 }) });
        }
        if self.is_cold(request) {
            *self.tally.shapes.entry("of a whole kind").or_default() += 1;
            return Some(plain(404));
        }
        if self.strikes("false 404", faults.false_not_found) {
            // The answer is well-formed only while the server lies. Otherwise the answer says that the kind is not
            // served.
            let lies = self.now < self.lying_until;
            let shape = self.chaos.index(4);
            let shapes = ["plain text", "an empty Status", "a Status about another", "well-formed"];
            let shape = if lies { 3 } else { shape.min(2) };
            *self.tally.shapes.entry(shapes[shape]).or_default() += 1;
            return Some(Refused { names_object: shape == 3, ..plain(404) });
        }
        None
    }

    /// Returns whether a handler that is still starting, or a proxy in front of it, knows nothing of a kind. This state
    /// lasts longer than two questions do.
    pub(super) fn perhaps_cold(&mut self) {
        if self.cold.is_some_and(|(_, until)| self.now < until) {
            return;
        }
        if self.strikes("cold handler", self.options.faults.false_not_found / 10) {
            // For a kind without lists, reads are the only evidence.
            let kind = if self.chaos.percent(50) { UNWATCHED } else { self.chaos.index(STORED) };
            self.cold = Some((kind, self.now + self.chaos.between(S, 300 * S)));
        }
    }

    fn is_cold(&self, request: &Request) -> bool {
        let object = request.object();
        let kind = by_resource(&object.group, &object.resource);
        self.cold.is_some_and(|(cold, until)| self.now < until && kind == Some(cold))
    }

    pub(super) fn credentials_checked(&mut self, at: usize, incarnation: u64) {
        if self.is_incarnation(at, incarnation) {
            let refused = self.now < self.executors[at].refused_until;
            let result = if refused { Err(String::from("401")) } else { Ok(()) };
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
        let now = self.now;
        let executor = &mut self.executors[at];
        if let Some(id) = executor.asked.remove(&number) {
            let read = executor.reading.remove(&number);
            let was_read = read.is_some();
            if let Some((uid, asked)) = read {
                executor.reads.retain(|&(_, asked, _)| now < asked + READS_COUNT);
                executor.reads.push((uid, asked, now));
            }
            if let (Answer::Nothing, false, Some(ground)) = (&answer, was_read, executor.grounds.get_mut(&lease)) {
                ground.fate.unanswered = true;
            }
            let local = executor.local(now);
            executor.attempts.answered(local, id, answer.told());
            self.drain_attempts(at);
        }
    }
}
