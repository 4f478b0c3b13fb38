//! One world: the API server, replicas, executors and users, on one thread in virtual time.

use super::attempt::{Answer, Request};
use super::clock::Clock;
use super::election::Lease;
use super::engines::Engines;
use super::executor::Executor;
use super::guards::Guards;
use super::kinds::{KINDS, PODS, STORED};
use super::law::{self, Shown};
use super::options::Options;
use super::perils::Perilous;
use super::preview::{Previewed, Stage};
use super::recorded::Recorded;
use super::replica::Replica;
use super::rewind::{Backup, Former};
use super::server::Server;
use super::tally::Tally;
use super::truth::{Actor, Life};
use super::users;
use crate::random::Random;
use engine::elector::{self, CallId, LeaseWrite};
use engine::guard::{Answered, GuardKind};
use engine::leader::{self, GuardRead, Probe, ProbeAnswer, ProbeId};
use engine::object::{OwnerReference, Uid};
use engine::work::{LeaseId, Refusal, ToExecutor, ToLeader};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;
/// The time that the collector has for the remaining work after users and faults have ended.
const CALM_S: u64 = 40 * 60;
/// The maximum number of steps at one instant. More steps mean an endless loop.
const STEPS_AT_ONCE_MAX: u64 = 20_000;
const STEPS_MAX: u64 = 3_000_000;

/// An occurrence at some time.
#[derive(Debug)]
pub(super) enum Happening {
    ReplicaTick { replica: usize, epoch: u64 },
    ReplicaStart { replica: usize },
    Discovery { replica: usize, epoch: u64 },
    ListStep { replica: usize, epoch: u64, kind: usize, generation: u64 },
    Pump { replica: usize, epoch: u64, kind: usize, generation: u64 },
    Broken { replica: usize, epoch: u64, kind: usize, generation: u64 },
    PodEnds { pod: Uid },
    Relist { replica: usize, epoch: u64, kind: usize },
    Bookmark { replica: usize, epoch: u64, kind: usize, generation: u64 },
    WatchEnds { replica: usize, epoch: u64, kind: usize, generation: u64 },
    FollowTick { replica: usize, epoch: u64, kind: usize },
    ProbeArrives { replica: usize, epoch: u64, probe: Probe },
    ProbeAnswered { replica: usize, epoch: u64, probe: ProbeId, answer: Result<ProbeAnswer, String> },
    GuardsRead { replica: usize, epoch: u64, read: GuardRead, fails: bool },
    ElectorTick { replica: usize, epoch: u64 },
    LeaseCall { replica: usize, epoch: u64, call: CallId, write: Option<LeaseWrite> },
    LeaseAnswered { replica: usize, epoch: u64, answer: elector::Input },
    TermTold { replica: usize, epoch: u64, input: Box<leader::Input> },
    Released { replica: usize, epoch: u64 },
    ExecutorStart { executor: usize },
    ExecutorTick { executor: usize, incarnation: u64 },
    CredentialsChecked { executor: usize, incarnation: u64 },
    Dialled { executor: usize, incarnation: u64, dial: u64, replica: usize },
    ToLeader { stream: u64, message: ToLeader },
    SentAgain { executor: usize, incarnation: u64, message: ToLeader },
    ToExecutor { stream: u64, message: ToExecutor },
    LeaderSideEnds { stream: u64 },
    ExecutorSideEnds { stream: u64, refusal: Option<Refusal> },
    Connected { executor: usize, incarnation: u64, lease: LeaseId, number: u64, request: Request },
    RequestArrives { executor: usize, incarnation: u64, lease: LeaseId, number: u64, sent: u64, request: Request },
    Answered { executor: usize, incarnation: u64, lease: LeaseId, number: u64, answer: Answer },
    UserActs,
    GuardActs,
    GuardShown { replica: usize, epoch: u64, input: Box<leader::Input> },
    GuardsListed { replica: usize, epoch: u64, kind: GuardKind },
    GateAnswers { replica: usize, epoch: u64, target: Uid, answered: Box<Answered> },
    EngineSays { replica: usize, epoch: u64, input: Box<leader::Input> },
    UserLoses { owner: Uid },
    ReAdd { uid: Uid, references: Vec<OwnerReference> },
    Crowd { step: u8 },
    Chaos,
    Calm,
    Look,
}

/// The stream between an executor and a replica.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) replica: usize,
    pub(super) epoch: u64,
    pub(super) executor: usize,
    pub(super) incarnation: u64,
    pub(super) open_at_leader: bool,
    pub(super) open_at_executor: bool,
    /// The arrival time of the last message in each direction.
    pub(super) to_leader_at: u64,
    pub(super) to_executor_at: u64,
}

pub(super) struct World {
    pub(super) options: Options,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    pub(super) net: Random,
    pub(super) api: Random,
    pub(super) user: Random,
    pub(super) chaos: Random,
    /// The random numbers of the time for which executors wait for connections.
    pub(super) connections: Random,
    pub(super) guards: Guards,
    pub(super) engines: Engines,
    pub(super) server: Server,
    pub(super) replicas: Vec<Replica>,
    pub(super) executors: Vec<Executor>,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) last_stream: u64,
    pub(super) lease: Lease,
    /// After a restore, the Lease may be wrong before this time.
    pub(super) lease_forged_until: u64,
    pub(super) backup: Option<Backup>,
    /// The former histories of the store.
    pub(super) formers: Vec<Former>,
    pub(super) perilous: Perilous,
    /// The pods in their grace period.
    dying: BTreeSet<Uid>,
    pub(super) calm: bool,
    /// Reads may answer falsely before this time.
    pub(super) lying_until: u64,
    /// A kind for which every request gets a bare 404, and the end of that time.
    pub(super) cold: Option<(usize, u64)>,
    /// The state that each granted lease rests on.
    pub(super) grants: BTreeMap<LeaseId, Shown>,
    pub(super) tally: Tally,
    trace: Option<Vec<String>>,
    pub(super) recorded: Option<Recorded>,
    pub(super) violation: Option<String>,
    done: bool,
    calm_since: u64,
    still_for: u64,
    pub(super) preview: Stage,
    pub(super) previewed: Previewed,
}

impl World {
    pub(super) fn new(seed: u64, options: &Options, trace: bool) -> World {
        let mut world = World {
            options: options.clone(),
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            net: Random::new(seed, 2),
            api: Random::new(seed, 3),
            user: Random::new(seed, 4),
            chaos: Random::new(seed, 5),
            connections: Random::new(seed, 12),
            guards: Guards::new(seed),
            engines: Engines::new(seed),
            server: Server::new(seed),
            replicas: Vec::new(),
            executors: Vec::new(),
            streams: BTreeMap::new(),
            last_stream: 0,
            lease: Lease::default(),
            lease_forged_until: 0,
            backup: None,
            formers: Vec::new(),
            perilous: Perilous::new(seed, options),
            dying: BTreeSet::new(),
            calm: false,
            lying_until: 0,
            cold: None,
            grants: BTreeMap::new(),
            tally: Tally::default(),
            trace: trace.then(Vec::new),
            recorded: None,
            violation: None,
            done: false,
            calm_since: 0,
            still_for: 0,
            preview: Stage::Never,
            previewed: Previewed::default(),
        };
        world.people();
        world
    }

    /// The numbers of objects and processes, and the program of the users.
    fn people(&mut self) {
        for _ in 0..self.options.objects {
            let done = users::create(&mut self.server, 0, &mut self.user, &self.options.users);
            self.note(|| format!("user {done}"));
            self.server.commit(0, Actor::User);
        }
        self.set_perils_up();
        for replica in 0..self.options.leaders {
            let clock = Clock::draw(&mut self.net, self.options.clock_skew);
            self.replicas.push(Replica::new(clock));
            let at = if replica == 0 { 0 } else { self.net.between(0, 5 * S) };
            self.at(at, Happening::ReplicaStart { replica });
        }
        for executor in 0..self.options.executors + usize::from(self.options.stranger) {
            let clock = Clock::draw(&mut self.net, self.options.clock_skew);
            self.executors.push(Executor::new(clock, executor == self.options.executors));
            let at = self.net.between(0, 3 * S);
            self.at(at, Happening::ExecutorStart { executor });
        }
        let span = self.options.span_s * S;
        for _ in 0..self.options.operations {
            let at = self.user.between(0, span);
            self.at(at, Happening::UserActs);
        }
        let mut at = 0;
        while at < span {
            at += self.chaos.between(S / 4, S);
            self.at(at, Happening::Chaos);
        }
        self.plan_guards(span);
        self.at(span, Happening::Calm);
    }

    /// Runs the world to its end. `Err` describes a violation.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let (mut instant, mut at_once) = (0, 0);
        while !self.done {
            let Some(((at, _), happening)) = self.queue.pop_first() else {
                return Err(String::from("nothing will ever happen again"));
            };
            self.now = self.now.max(at);
            at_once = if instant == self.now { at_once + 1 } else { 0 };
            instant = self.now;
            self.tally.steps += 1;
            if at_once > STEPS_AT_ONCE_MAX {
                return Err(format!("runs in circles: {happening:?}"));
            }
            if self.tally.steps > STEPS_MAX {
                return Err(String::from("takes too many steps"));
            }
            if let Some(until) = self.paused(&happening) {
                self.at(until, happening);
                continue;
            }
            self.happen(happening);
            self.follow_perils();
            self.check_one_leader();
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ReplicaTick { replica, epoch } => self.replica_tick(replica, epoch),
            Happening::ReplicaStart { replica } => self.replica_start(replica),
            Happening::Discovery { replica, epoch } => self.discovery(replica, epoch),
            Happening::ListStep { replica, epoch, kind, generation } => {
                self.list_step(replica, epoch, kind, generation)
            }
            Happening::Pump { replica, epoch, kind, generation } => self.pump(replica, epoch, kind, generation),
            Happening::Broken { replica, epoch, kind, generation } => self.broken(replica, epoch, kind, generation),
            Happening::Relist { replica, epoch, kind } => self.relist_now(replica, epoch, kind),
            Happening::PodEnds { pod } => self.pod_ends(&pod),
            Happening::Bookmark { replica, epoch, kind, generation } => self.bookmark(replica, epoch, kind, generation),
            Happening::WatchEnds { replica, epoch, kind, generation } => {
                self.watch_ends(replica, epoch, kind, generation);
            }
            Happening::FollowTick { replica, epoch, kind } => self.follow_tick(replica, epoch, kind),
            Happening::ProbeArrives { replica, epoch, probe } => self.probe_arrives(replica, epoch, &probe),
            Happening::GuardsRead { replica, epoch, read, fails } => self.pauses_read(replica, epoch, read, fails),
            Happening::ProbeAnswered { replica, epoch, probe, answer } => {
                self.probe_answered(replica, epoch, probe, answer);
            }
            Happening::ElectorTick { replica, epoch } => self.elector_tick(replica, epoch),
            Happening::LeaseCall { replica, epoch, call, write } => self.lease_arrives(replica, epoch, call, write),
            Happening::LeaseAnswered { replica, epoch, answer } => self.lease_answered(replica, epoch, answer),
            Happening::TermTold { replica, epoch, input } => self.term_told_now(replica, epoch, *input),
            Happening::Released { replica, epoch } => self.released(replica, epoch),
            Happening::ExecutorStart { executor } => self.executor_start(executor),
            Happening::ExecutorTick { executor, incarnation } => self.executor_tick(executor, incarnation),
            Happening::CredentialsChecked { executor, incarnation } => self.credentials_checked(executor, incarnation),
            Happening::Dialled { executor, incarnation, dial, replica } => {
                self.dialled(executor, incarnation, dial, replica);
            }
            Happening::ToLeader { stream, message } => self.leader_hears(stream, message),
            Happening::SentAgain { executor, incarnation, message } => self.sent_again(executor, incarnation, message),
            Happening::ToExecutor { stream, message } => self.executor_hears(stream, message),
            Happening::LeaderSideEnds { stream } => self.leader_side_ends(stream),
            Happening::ExecutorSideEnds { stream, refusal } => self.executor_side_ends(stream, refusal),
            Happening::Connected { executor, incarnation, lease, number, request } => {
                self.connected(executor, incarnation, lease, number, request);
            }
            Happening::RequestArrives { executor, incarnation, lease, number, sent, request } => {
                self.request_arrives(executor, incarnation, lease, number, sent, &request);
            }
            Happening::Answered { executor, incarnation, lease, number, answer } => {
                self.answered(executor, incarnation, lease, number, answer);
            }
            Happening::UserActs => self.user_acts(),
            Happening::UserLoses { owner } => self.user_loses(&owner),
            Happening::ReAdd { uid, references } => self.readd(&uid, &references),
            Happening::Crowd { step } => self.crowd(step),
            Happening::Chaos => self.make_chaos(),
            Happening::GuardActs => self.guard_acts(),
            Happening::GuardShown { replica, epoch, input } => self.guard_shown(replica, epoch, *input),
            Happening::GuardsListed { replica, epoch, kind } => self.guards_listed(replica, epoch, kind),
            Happening::GateAnswers { replica, epoch, target, answered } => {
                self.gate_answers(replica, epoch, target, *answered);
            }
            Happening::EngineSays { replica, epoch, input } => self.engine_says(replica, epoch, *input),
            Happening::Calm => self.calm_down(),
            Happening::Look => self.look(),
        }
    }

    pub(super) fn at(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    pub(super) fn after(&mut self, delay: u64, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now as f64 / S as f64, line()));
        }
    }

    pub(super) fn traces(&self) -> bool {
        self.trace.is_some()
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(super) fn violate(&mut self, why: String) {
        self.violation.get_or_insert(why);
    }

    /// Draws a fault with this chance per thousand, and counts it if it occurs.
    pub(super) fn strikes(&mut self, name: &'static str, per_mille: u64) -> bool {
        if self.calm || per_mille == 0 {
            return false;
        }
        let strikes = self.chaos.below(1000) < per_mille;
        if strikes {
            self.tally.fault(name);
        }
        strikes
    }

    /// Returns the end of the pause of the processes that the happening concerns.
    fn paused(&self, happening: &Happening) -> Option<u64> {
        let replica = |at: usize| self.replicas[at].paused_until;
        let executor = |at: usize| self.executors[at].paused_until;
        let until = match happening {
            Happening::ReplicaTick { replica: at, .. }
            | Happening::Discovery { replica: at, .. }
            | Happening::ListStep { replica: at, .. }
            | Happening::Pump { replica: at, .. }
            | Happening::Broken { replica: at, .. }
            | Happening::Relist { replica: at, .. }
            | Happening::Bookmark { replica: at, .. }
            | Happening::WatchEnds { replica: at, .. }
            | Happening::FollowTick { replica: at, .. }
            | Happening::ProbeAnswered { replica: at, .. }
            | Happening::ElectorTick { replica: at, .. }
            | Happening::LeaseAnswered { replica: at, .. }
            | Happening::Released { replica: at, .. }
            | Happening::GuardsRead { replica: at, .. }
            | Happening::GuardShown { replica: at, .. }
            | Happening::GuardsListed { replica: at, .. }
            | Happening::GateAnswers { replica: at, .. }
            | Happening::EngineSays { replica: at, .. }
            | Happening::TermTold { replica: at, .. } => replica(*at),
            Happening::ExecutorTick { executor: at, .. }
            | Happening::CredentialsChecked { executor: at, .. }
            | Happening::Answered { executor: at, .. }
            | Happening::Connected { executor: at, .. }
            | Happening::SentAgain { executor: at, .. }
            | Happening::Dialled { executor: at, .. } => executor(*at),
            Happening::ToLeader { stream, .. } | Happening::LeaderSideEnds { stream } => {
                replica(self.streams.get(stream)?.replica)
            }
            Happening::ToExecutor { stream, .. } | Happening::ExecutorSideEnds { stream, .. } => {
                executor(self.streams.get(stream)?.executor)
            }
            Happening::ReplicaStart { .. }
            | Happening::ProbeArrives { .. }
            | Happening::LeaseCall { .. }
            | Happening::PodEnds { .. }
            | Happening::ExecutorStart { .. }
            | Happening::RequestArrives { .. }
            | Happening::UserActs
            | Happening::UserLoses { .. }
            | Happening::ReAdd { .. }
            | Happening::Crowd { .. }
            | Happening::Chaos
            | Happening::GuardActs
            | Happening::Calm
            | Happening::Look => 0,
        };
        (until > self.now).then_some(until)
    }

    fn user_acts(&mut self) {
        let done = users::act(&mut self.server, self.now, &mut self.user, &self.options.users);
        self.note(|| format!("user {done}"));
        self.tally.operations += 1;
        self.server.commit(self.now, Actor::User);
        self.spread();
    }

    fn make_chaos(&mut self) {
        let faults = self.options.faults.clone();
        if self.calm {
            return;
        }
        for at in 0..self.executors.len() {
            if self.strikes("executor crash", faults.executor_crashes) {
                self.executor_crash(at);
            }
            if self.executors[at].paused_until <= self.now && self.strikes("executor stop", faults.drains) {
                self.executor_drains(at);
            }
            // A process that is paused already would receive its messages in another order.
            if self.executors[at].paused_until <= self.now && self.strikes("executor pause", faults.pauses) {
                let until = self.now + self.chaos.between(S, 90 * S);
                self.note(|| format!("executor {at} is stopped until {}s", until / S));
                self.executors[at].paused_until = until;
            }
        }
        for at in 0..self.replicas.len() {
            if self.strikes("replica crash", faults.leader_crashes) {
                self.replica_crash(at);
            }
            if self.replicas[at].paused_until <= self.now && self.strikes("replica pause", faults.pauses / 2) {
                let until = self.now + self.chaos.between(S, 90 * S);
                self.note(|| format!("replica {at} is stopped until {}s", until / S));
                self.replicas[at].paused_until = until;
            }
            if self.strikes("lag", faults.lags) {
                self.replicas[at].lags_until = self.now + self.chaos.between(S, 60 * S);
            }
            if self.strikes("replica stop", faults.handovers) {
                self.hand_over(at);
            }
            if self.strikes("lease cut", faults.lease_cuts) {
                let until = self.now + self.chaos.between(5 * S, 40 * S);
                if let Some(candidate) = &mut self.replicas[at].candidate {
                    candidate.cut_until = until;
                }
            }
        }
        if self.strikes("backup or restore", faults.rewinds) {
            self.back_up_or_restore();
        }
        if self.strikes("stream break", faults.stream_breaks * 2) {
            let open: Vec<u64> =
                self.streams.iter().filter(|(_, stream)| stream.open_at_executor).map(|(&id, _)| id).collect();
            if let Some(&stream) = self.chaos.pick(&open) {
                self.break_stream(stream);
            }
        }
        if self.strikes("kind hidden", faults.hidden_kinds) {
            let kind = self.chaos.index(3);
            let served = self.server.truth.served[kind];
            self.note(|| format!("{} is {}", KINDS[kind].plural, if served { "hidden" } else { "served again" }));
            self.server.model.set_served(&KINDS[kind].resource(), !served);
            self.server.commit(self.now, Actor::User);
            self.spread();
        }
        // This fault occurs once. It is shorter than the time between the two reads that prove an absence for a kind
        // without lists.
        if self.lying_until == 0 && self.strikes("lying reads", faults.false_not_found / 10) {
            self.lying_until = self.now + self.chaos.between(S, 60 * S);
        }
        self.perhaps_cold();
        self.make_perils();
        for replica in 0..self.replicas.len() {
            if self.strikes("relist", faults.relists) {
                let kind = self.chaos.index(STORED);
                self.relist(replica, kind);
            }
        }
    }

    /// Removes pods after their grace period, as a kubelet does.
    pub(super) fn end_pods(&mut self) {
        let ends = |life: &&Life| life.kind == PODS && life.exists() && life.facts().terminating;
        let dying: Vec<Uid> =
            self.server.truth.lives.values().filter(ends).map(|life| life.object.uid.clone()).collect();
        for pod in dying {
            if self.dying.insert(pod.clone()) {
                let grace = self.api.between(S, 20 * S);
                self.after(grace, Happening::PodEnds { pod });
            }
        }
    }

    fn pod_ends(&mut self, pod: &Uid) {
        self.dying.remove(pod);
        let found = self.server.truth.lives.get(pod);
        if let Some(life) = found.filter(|life| life.exists() && life.facts().terminating).cloned() {
            let done = self.server.end_pod(self.now, &life);
            self.note(|| format!("kubelet ends {}: {done}", life.named()));
            self.server.commit(self.now, Actor::User);
            self.spread();
        }
    }

    /// Ends faults and users, and starts every process that is down.
    fn calm_down(&mut self) {
        self.note(|| String::from("users and faults stop"));
        self.calm = true;
        self.calm_since = self.now;
        self.lying_until = 0;
        self.cold = None;
        self.calm_perils();
        self.calm_guards();
        for replica in &mut self.replicas {
            replica.lags_until = 0;
            if let Some(candidate) = &mut replica.candidate {
                candidate.cut_until = 0;
            }
        }
        for kind in KINDS {
            self.server.model.set_served(&kind.resource(), true);
        }
        self.server.commit(self.now, Actor::User);
        if self.user.percent(70) {
            users::let_go(&mut self.server, self.now);
            self.server.commit(self.now, Actor::User);
        }
        self.spread();
        self.after(S, Happening::Look);
    }

    /// Returns whether the world is at rest and all work is done.
    fn look(&mut self) {
        let left = law::unfinished(&self.server.truth, self.now);
        if !left.is_empty() {
            self.still_for = 0;
            if self.now > self.calm_since + CALM_S * S {
                let status: Vec<_> = self
                    .replicas
                    .iter()
                    .filter_map(|replica| Some(replica.leader.as_ref()?.queries().status()))
                    .collect();
                self.violate(format!(
                    "after {CALM_S} quiet seconds {} things are left: {left:#?}\n{status:?}",
                    left.len()
                ));
                return;
            }
            return self.after(5 * S, Happening::Look);
        }
        // The fixpoint must last, and every replica must see it.
        self.still_for += 1;
        if self.still_for < 40 {
            return self.after(5 * S, Happening::Look);
        }
        for at in 0..self.replicas.len() {
            self.compare_graph(at);
        }
        if self.goes_on() {
            (self.still_for, self.calm_since) = (0, self.now);
            return;
        }
        self.tally.calm_s += (self.now - self.calm_since) / S;
        self.done = true;
    }
}
