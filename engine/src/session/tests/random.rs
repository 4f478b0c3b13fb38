//! A session with a small leader that loses streams and terms and ends sessions. The test checks every effect.

use super::super::*;
use super::script::{config, delete, input, lease, report, term};
use crate::work::{Action, Outcome, PROTOCOL, ReportResult, RevokeMode, Welcome};
use alloc::collections::BTreeSet;
use alloc::string::ToString;

/// Microseconds with faults; then a drain, which must succeed.
const FAULTS_END: u64 = 120_000_000;
const RUN_END: u64 = 240_000_000;
const TTL: Duration = Duration::from_secs(15);
const BEAT: Duration = Duration::from_secs(5);
const EVENTS_MAX: u64 = 400_000;

enum Happening {
    Tick,
    /// To the session, on this stream.
    Input(u64, Input),
    Finish(LeaseId),
    /// The end of a check of the credentials.
    Checked,
    /// To the leader, on this stream.
    Message(u64, ToLeader),
    LeaderActs,
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Granted,
    /// Reached the session.
    Delivered,
    Started,
    Finished,
    Returned,
}

struct World {
    seed: u64,
    random: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    queued: u64,
    events: u64,

    session: Session,
    concurrency: u32,
    /// The newest stream. Input of other streams is dropped, as the caller promises.
    stream: u64,
    open: bool,
    frozen_until: u64,
    writes_end: Time,
    /// The end of the session in this model, counted from the sends below.
    valid_until: Time,
    lapses: bool,
    /// The API server refuses the credentials.
    stranger: bool,
    hello_sent: Time,
    heartbeats: BTreeMap<u64, Time>,
    newest_term: u64,
    announced: BTreeSet<LeaseId>,
    /// Adopted or granted on this stream, and not recalled.
    startable: BTreeSet<LeaseId>,
    running: BTreeSet<LeaseId>,
    cancelled: BTreeSet<LeaseId>,
    reported: BTreeSet<LeaseId>,
    fates: BTreeMap<LeaseId, Fate>,
    exit: Option<Exit>,
    ended_on_stream: bool,

    number: u64,
    granted: u64,
    welcomed: Option<u64>,
    draining: bool,
    heard: u64,
    /// The leases that the leader counts against the window.
    outstanding: BTreeSet<LeaseId>,
    last_arrival: [u64; 2],
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Rng::new(seed);
        let concurrency = 1 + u32::try_from(random.next() % 6).expect("small");
        let mut config = config();
        config.concurrency = if seed.is_multiple_of(2) {
            Concurrency::Fixed(concurrency)
        } else {
            Concurrency::Adaptive { max: concurrency }
        };
        let mut world = World {
            seed,
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            events: 0,
            session: Session::new(config, random.next()),
            random,
            concurrency,
            stream: 0,
            open: false,
            frozen_until: 0,
            writes_end: Time::ZERO,
            valid_until: Time::ZERO,
            lapses: false,
            stranger: false,
            hello_sent: Time::ZERO,
            heartbeats: BTreeMap::new(),
            newest_term: 0,
            announced: BTreeSet::new(),
            startable: BTreeSet::new(),
            running: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            reported: BTreeSet::new(),
            fates: BTreeMap::new(),
            exit: None,
            ended_on_stream: false,
            number: 1,
            granted: 0,
            welcomed: None,
            draining: false,
            heard: 0,
            outstanding: BTreeSet::new(),
            last_arrival: [0; 2],
        };
        world.perform();
        world.later(0, Happening::LeaderActs);
        world.later(FAULTS_END, Happening::Drain);
        world
    }

    fn time(&self) -> Time {
        Time::from_origin(Duration::from_micros(self.now))
    }

    fn later(&mut self, delay: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + delay, self.queued), happening);
    }

    fn chance(&mut self, permille: u64) -> bool {
        self.now < FAULTS_END && self.random.next() % 1_000 < permille
    }

    /// Delivers in order in each direction. A stalled network delays everything behind it.
    fn carry(&mut self, direction: usize, happening: Happening) {
        let most = if self.chance(3) { 20_000_000 } else { 20_000 };
        let arrival = (self.now + self.random.next() % most).max(self.last_arrival[direction]);
        self.last_arrival[direction] = arrival;
        self.later(arrival - self.now, happening);
    }

    fn run(&mut self) {
        while self.exit.is_none() {
            let Some(((at, _), happening)) = self.queue.pop_first() else { break };
            self.now = at;
            self.events += 1;
            assert!(self.events < EVENTS_MAX, "seed {}: a busy loop at {at} us", self.seed);
            assert!(at < RUN_END, "seed {}: no end: {:?}", self.seed, self.session);
            self.happen(happening);
        }
        assert_eq!(self.exit, Some(Exit::Drained), "seed {}", self.seed);
        assert!(self.running.is_empty(), "seed {}", self.seed);
        for (id, fate) in &self.fates {
            let settled = match fate {
                // Lost in transit, or returned on a broken stream: the leader has given it to another executor by the
                // next welcome, or by its expiry if the session ended.
                Fate::Granted | Fate::Delivered => !self.outstanding.contains(id) || !self.ended_on_stream,
                Fate::Finished => self.reported.contains(id),
                Fate::Returned => true,
                Fate::Started => false,
            };
            assert!(settled, "seed {}: lease {id} ended as {fate:?}", self.seed);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let for_session = match happening {
            Happening::Message(stream, message) => {
                if stream == self.stream && self.open {
                    self.leader_hears(message);
                }
                return;
            }
            Happening::LeaderActs => return self.leader_acts(),
            for_session @ (Happening::Tick
            | Happening::Input(..)
            | Happening::Finish(_)
            | Happening::Checked
            | Happening::Drain) => for_session,
        };
        if self.now < self.frozen_until {
            return self.later(self.frozen_until - self.now, for_session);
        }
        if self.chance(1) {
            self.frozen_until = self.now + self.random.next() % 25_000_000;
        }
        let input = match for_session {
            Happening::Tick => None,
            Happening::Input(stream, _) if stream != self.stream => return,
            Happening::Input(_, Input::Message(_)) if !self.open => return,
            Happening::Input(_, input) => Some(input),
            Happening::Finish(id) if self.running.remove(&id) => {
                self.fates.insert(id, Fate::Finished);
                let outcome = if self.chance(20) { Outcome::Unauthenticated } else { Outcome::Done };
                Some(Input::Finished(WorkReport { outcome, ..report(id, term(id.term)) }))
            }
            Happening::Checked => {
                let why = self.chance(500).then(|| "401".to_string());
                Some(Input::CredentialsChecked(why.map_or(Ok(()), Err)))
            }
            Happening::Finish(_) | Happening::Message(..) | Happening::LeaderActs => return,
            Happening::Drain => Some(Input::Drain { reason: "end".to_string(), deadline: Duration::from_secs(60) }),
        };
        // An acknowledgement at the end or after it is too late.
        self.lapses = self.time() >= self.valid_until;
        match input {
            None => self.session.tick(self.time()),
            Some(input) => {
                self.note(&input);
                self.session.handle(self.time(), input);
            }
        }
        self.perform();
    }

    /// The knowledge that the session gains by this input.
    fn note(&mut self, input: &Input) {
        match input {
            Input::Message(ToExecutor::Welcome(welcome)) if self.session.status().phase == Phase::Greeting => {
                self.newest_term = self.newest_term.max(welcome.term.number);
                self.valid_until = self.hello_sent + TTL;
                self.startable = welcome.adopted.iter().copied().collect();
            }
            Input::Message(ToExecutor::HeartbeatAck { sequence, term, .. }) if term.number >= self.newest_term => {
                self.newest_term = term.number;
                if let Some(sent) = self.heartbeats.get(sequence)
                    && !self.lapses
                {
                    self.valid_until = *sent + TTL;
                }
            }
            Input::Message(ToExecutor::Grant { leases }) => {
                for lease in leases {
                    self.newest_term = self.newest_term.max(lease.term.number);
                    self.fates.insert(lease.id, Fate::Delivered);
                    self.startable.insert(lease.id);
                }
            }
            Input::Message(ToExecutor::Revoke { leases, .. }) => {
                for id in leases {
                    self.startable.remove(id);
                }
            }
            Input::Disconnected { .. } => self.open = false,
            Input::Connected
            | Input::Message(_)
            | Input::Finished(_)
            | Input::CredentialsChecked(_)
            | Input::WroteAgain { .. }
            | Input::Drain { .. } => {}
        }
    }

    fn perform(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Connect { .. } => self.connect(),
                Output::Disconnect => {
                    self.ended_on_stream = self.welcomed == Some(self.stream);
                    self.open = false;
                }
                Output::Send(message) => {
                    assert!(self.open, "seed {}: {message:?} without a stream", self.seed);
                    self.check_sent(&message);
                    let stream = self.stream;
                    self.carry(0, Happening::Message(stream, message));
                }
                Output::Start(lease) => self.start(&lease),
                Output::Cancel(id) => {
                    let fate = self.fates.get(&id);
                    assert!(matches!(fate, Some(Fate::Started | Fate::Finished)), "seed {}: cancels {id}", self.seed);
                    self.cancelled.insert(id);
                    let wait = self.random.next() % 1_000_000;
                    self.later(wait, Happening::Finish(id));
                }
                Output::WritesEnd(end) => {
                    let end_known = end == self.valid_until || end == self.time();
                    assert!(end_known, "seed {}: writes end {end}, not {}", self.seed, self.valid_until);
                    self.writes_end = end;
                }
                Output::CheckCredentials => {
                    assert!(self.stranger, "seed {}: a check without a reason", self.seed);
                    let wait = self.random.next() % 100_000;
                    self.later(wait, Happening::Checked);
                }
                Output::Exit(exit) => self.exit = Some(exit),
                Output::Event(Event::CredentialsRefused { .. }) => self.stranger = true,
                Output::Event(Event::CredentialsAccepted { .. }) => self.stranger = false,
                Output::Event(Event::Lost { .. }) => self.ended_on_stream = false,
                Output::Event(Event::Lapsed) => {
                    assert!(self.lapses, "seed {}: lapsed too early", self.seed);
                    self.startable.clear();
                }
                Output::Event(
                    Event::Welcomed { .. }
                    | Event::ShareLapsed
                    | Event::SentAway { .. }
                    | Event::StaleTerm { .. }
                    | Event::Rejected { .. },
                ) => {}
            }
        }
        if self.time() >= self.writes_end {
            assert!(self.running.is_subset(&self.cancelled), "seed {}: goes on after the session's end", self.seed);
        }
        if let Some(deadline) = self.session.next_deadline() {
            let micros = u64::try_from(deadline.since(self.time()).as_nanos().div_ceil(1_000)).expect("near");
            self.later(micros, Happening::Tick);
        }
    }

    fn connect(&mut self) {
        self.stream += 1;
        let stream = self.stream;
        self.last_arrival = [self.now; 2];
        let refused = self.chance(300);
        self.open = !refused;
        let input = if refused {
            Input::Disconnected { leader_endpoint: None, refusal: None, why: "refused".to_string() }
        } else {
            Input::Connected
        };
        self.later(1_000, Happening::Input(stream, input));
    }

    fn start(&mut self, lease: &WorkLease) {
        let seed = self.seed;
        assert!(!self.stranger, "seed {seed}: {} starts as a stranger", lease.id);
        assert!(self.time() < self.writes_end, "seed {seed}: {} starts after the session's end", lease.id);
        assert_eq!(lease.term.number, self.newest_term, "seed {seed}: {} starts in an old term", lease.id);
        assert!(self.startable.remove(&lease.id), "seed {seed}: {} starts though it is void", lease.id);
        assert!(self.announced.remove(&lease.id), "seed {seed}: {} starts unannounced", lease.id);
        assert_eq!(self.fates.insert(lease.id, Fate::Started), Some(Fate::Delivered), "seed {seed}: {}", lease.id);
        self.running.insert(lease.id);
        assert!(self.running.len() <= self.concurrency as usize, "seed {seed}: too many at once");
        let work = if self.chance(20) { 20_000_000 } else { 50_000 };
        let work = self.random.next() % work;
        self.later(work, Happening::Finish(lease.id));
    }

    fn check_sent(&mut self, message: &ToLeader) {
        match message {
            ToLeader::Started { leases } => self.announced.extend(leases.iter().copied()),
            ToLeader::Reports { reports, returns } => {
                assert!((1..=100).contains(&(reports.len() + returns.len())), "seed {}", self.seed);
                for report in reports {
                    assert_eq!(self.fates.get(&report.lease), Some(&Fate::Finished), "seed {}", self.seed);
                }
                for entry in returns {
                    let before = self.fates.insert(entry.lease, Fate::Returned);
                    assert_eq!(before, Some(Fate::Delivered), "seed {}: {} returned", self.seed, entry.lease);
                }
            }
            ToLeader::Hello(hello) => {
                self.hello_sent = self.time();
                self.heartbeats.clear();
                let void = hello.held.iter().find(|held| !held.started && !self.startable.contains(&held.lease));
                assert_eq!(void, None, "seed {}", self.seed);
            }
            ToLeader::Heartbeat { sequence, .. } => {
                self.heartbeats.insert(*sequence, self.time());
            }
            ToLeader::Window { .. } | ToLeader::Drain { .. } => {}
        }
    }

    fn say(&mut self, message: ToExecutor) {
        let stream = self.stream;
        self.carry(1, Happening::Input(stream, Input::Message(message)));
    }

    fn leader_hears(&mut self, message: ToLeader) {
        self.heard = self.now;
        match message {
            ToLeader::Hello(hello) => {
                let held: BTreeSet<LeaseId> = hello.held.iter().map(|held| held.lease).collect();
                let adopted: Vec<LeaseId> = self.outstanding.intersection(&held).copied().collect();
                let dropped = held.difference(&self.outstanding).copied().collect();
                self.outstanding = adopted.iter().copied().collect();
                self.welcomed = Some(self.stream);
                self.draining = false;
                let session_ttl = TTL;
                let term = term(self.number);
                self.say(ToExecutor::Welcome(Welcome {
                    session: 1,
                    term,
                    protocol: PROTOCOL,
                    session_ttl,
                    heartbeat_interval: BEAT,
                    adopted,
                    dropped,
                    max_window: 8,
                }));
            }
            ToLeader::Heartbeat { sequence, .. } => {
                let term = term(self.number);
                if !self.chance(200) {
                    self.say(ToExecutor::HeartbeatAck { sequence, session_ttl: TTL, term });
                }
            }
            ToLeader::Reports { reports, returns } => {
                for entry in returns {
                    self.outstanding.remove(&entry.lease);
                }
                let results: Vec<_> = reports.iter().map(|report| (report.lease, ReportResult::Accepted)).collect();
                for (id, _) in &results {
                    self.outstanding.remove(id);
                    self.reported.insert(*id);
                }
                if self.chance(100) {
                    self.break_stream();
                    return;
                }
                self.say(ToExecutor::ReportAck { results });
                self.say_if_drained();
            }
            ToLeader::Drain { .. } => {
                self.draining = true;
                let outstanding = u32::try_from(self.outstanding.len()).expect("small");
                self.say(ToExecutor::DrainAck { outstanding });
            }
            ToLeader::Started { .. } | ToLeader::Window { .. } => {}
        }
    }

    fn say_if_drained(&mut self) {
        if self.draining && self.outstanding.is_empty() {
            self.say(ToExecutor::DrainAck { outstanding: 0 });
        }
    }

    fn leader_acts(&mut self) {
        let pause = 1_000 + self.random.next() % 40_000;
        self.later(pause, Happening::LeaderActs);
        if self.now > self.heard + 20_000_000 {
            self.outstanding.clear();
        }
        if self.chance(2) {
            // Another leader, which does not know the old one's leases; or the same one again, on the same stream.
            self.number += 1;
            self.outstanding.clear();
            if self.random.next().is_multiple_of(2) {
                self.welcomed = None;
                self.break_stream();
            }
            return;
        }
        if self.welcomed != Some(self.stream) || !self.open || self.draining {
            return;
        }
        match self.random.next() % 1_000 {
            0..20 if self.now < FAULTS_END => self.nonsense(),
            20..24 if self.now < FAULTS_END => self.break_stream(),
            24..28 if self.now < FAULTS_END => {
                let reconnect_after = Duration::from_millis(self.random.next() % 2_000);
                let close_after = Duration::from_millis(self.random.next() % 8_000);
                let leader_endpoint =
                    if self.random.next().is_multiple_of(2) { String::new() } else { "b:1".to_string() };
                let cause = GoAwayCause::SessionAge;
                self.say(ToExecutor::GoAway { cause, leader_endpoint, reconnect_after, close_after });
                self.welcomed = None;
            }
            28..80 => {
                let leases = self.outstanding.iter().copied().take(3).collect();
                let mode =
                    if self.random.next().is_multiple_of(2) { RevokeMode::IfNotStarted } else { RevokeMode::Stop };
                self.say(ToExecutor::Revoke { leases, mode, reason: String::new() });
            }
            _ => self.grant(),
        }
    }

    fn grant(&mut self) {
        let window = (2 * self.concurrency as usize).min(8);
        let most = window.saturating_sub(self.outstanding.len());
        let mut leases = Vec::new();
        for _ in 0..most {
            self.granted += 1;
            let id = LeaseId { term: self.number, number: self.granted };
            self.outstanding.insert(id);
            self.fates.insert(id, Fate::Granted);
            let action = if self.random.next().is_multiple_of(20) {
                Action::UnblockOwnerReferences { entries: Vec::new() }
            } else {
                delete()
            };
            leases.push(lease(id, term(self.number), action));
        }
        if !leases.is_empty() {
            self.say(ToExecutor::Grant { leases });
        }
    }

    /// Invalid messages must be survived.
    fn nonsense(&mut self) {
        let unknown = LeaseId { term: 0, number: u64::MAX };
        let message = match self.random.next() % 6 {
            0 => ToExecutor::DrainAck { outstanding: 7 },
            1 => ToExecutor::ReportAck { results: Vec::from([(unknown, ReportResult::Unknown)]) },
            2 => ToExecutor::HeartbeatAck { sequence: u64::MAX, session_ttl: Duration::MAX, term: term(self.number) },
            3 => ToExecutor::Revoke { leases: Vec::from([unknown]), mode: RevokeMode::Stop, reason: String::new() },
            4 => ToExecutor::HeartbeatAck { sequence: 1, session_ttl: Duration::MAX, term: term(0) },
            _ => input("welcome L/1")
                .and_then(|input| match input {
                    Input::Message(message) => Some(message),
                    Input::Connected
                    | Input::Disconnected { .. }
                    | Input::Finished(_)
                    | Input::CredentialsChecked(_)
                    | Input::WroteAgain { .. }
                    | Input::Drain { .. } => None,
                })
                .expect("a message"),
        };
        self.say(message);
    }

    fn break_stream(&mut self) {
        if self.open {
            let stream = self.stream;
            let input = Input::Disconnected { leader_endpoint: None, refusal: None, why: "reset".to_string() };
            self.later(self.random.clone().next() % 50_000, Happening::Input(stream, input));
            self.welcomed = None;
        }
    }
}

#[test]
fn every_lease_ends_once_and_nothing_starts_out_of_turn() {
    for seed in 0..100 {
        World::new(seed).run();
    }
}
