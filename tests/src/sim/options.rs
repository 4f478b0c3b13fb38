//! The options of a world: its size, the actions of its users, and its faults. A seed gives all of them.

use super::perils::{Peril, Perils};
use crate::random::Random;
use engine::work::{PROTOCOL, Protocols};

/// The chances of the faults. A chance of zero turns a fault off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub leaders: usize,
    pub executors: usize,
    pub concurrency: u32,
    pub objects: u64,
    pub operations: u64,
    /// The length of the phase with users and faults.
    pub span_s: u64,
    pub net_ms: u64,
    pub api_ms: u64,
    pub watch_ms: u64,
    /// The kind with a slow watch. The value is the number of kinds if no watch is slow.
    pub slow_kind: usize,
    pub slow_ms: u64,
    /// How the API server serves the kind that is not watched: 0 means lists only, 1 means single reads only.
    pub unwatched: u64,
    pub aggregated: bool,
    /// The maximum error of each clock, per mille. Two clocks with half of this difference would break the election.
    pub clock_skew: u64,
    /// An executor of another cluster tries to take part.
    pub stranger: bool,
    /// Other clients write all the time, so the revision of the store moves.
    pub busy_store: bool,
    /// A restored store continues above every earlier revision, as after `etcdutl --bump-revision`.
    pub bumped: bool,
    /// The maximum number of writes per second of all executors together; 0 for no limit.
    pub cap: u32,
    /// Half of all processes run the next release. Each start draws the release again.
    pub upgrade: bool,
    /// Users create protections and gates.
    pub guards: bool,
    /// A planted bug, which no seed draws: no leader is notified of a watch that ends too early.
    pub deaf: bool,
    pub faults: Faults,
    pub users: Users,
    pub perils: Perils,
}

/// Chances per thousand, for each occasion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub stream_breaks: u64,
    pub message_stalls: u64,
    pub watch_drops: u64,
    pub transport: u64,
    pub expired: u64,
    pub list_failures: u64,
    pub probe_failures: u64,
    pub false_not_found: u64,
    pub server_errors: u64,
    pub throttled: u64,
    pub forbidden: u64,
    pub webhook: u64,
    pub lost_answers: u64,
    pub slow_requests: u64,
    pub executor_crashes: u64,
    pub leader_crashes: u64,
    pub pauses: u64,
    pub hidden_kinds: u64,
    pub relists: u64,
    pub lags: u64,
    pub duplicates: u64,
    pub lease_failures: u64,
    pub lease_cuts: u64,
    pub handovers: u64,
    pub rewinds: u64,
    pub refusals: u64,
    pub drains: u64,
    pub expired_credentials: u64,
}

/// The chances in per cent that a user does more than to create and delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    pub wrong_references: u64,
    pub late_dependents: u64,
    pub cycles: u64,
    pub foreign_finalizers: u64,
    pub holds: u64,
    pub second_deletes: u64,
    pub reparenting: u64,
    pub definitions: u64,
    pub bursts: u64,
}

impl Options {
    /// Draws the options of a seed. About three of five seeds turn off a given fault.
    pub fn draw(seed: u64) -> Options {
        Options::draw_with(seed, &Peril::ALL)
    }

    /// Draws the options of a seed with the given perils in place of the usual ones.
    pub fn draw_with(seed: u64, perils: &[Peril]) -> Options {
        let mut random = Random::new(seed, 1);
        let calm = random.once_in(6);
        let mut maybe = |most: u64| {
            let on = random.percent(45) && !calm;
            let chance = random.between(1, most);
            if on { chance } else { 0 }
        };
        let faults = Faults {
            stream_breaks: maybe(30),
            message_stalls: maybe(10),
            watch_drops: maybe(120),
            transport: maybe(300),
            expired: maybe(400),
            list_failures: maybe(400),
            probe_failures: maybe(400),
            false_not_found: maybe(300),
            server_errors: maybe(200),
            throttled: maybe(200),
            forbidden: maybe(200),
            webhook: maybe(200),
            lost_answers: maybe(200),
            slow_requests: maybe(100),
            executor_crashes: maybe(40),
            leader_crashes: maybe(25),
            pauses: maybe(25),
            hidden_kinds: maybe(40),
            relists: maybe(40),
            lags: maybe(30),
            duplicates: maybe(100),
            lease_failures: maybe(200),
            lease_cuts: maybe(40),
            handovers: maybe(20),
            rewinds: maybe(40),
            refusals: maybe(40),
            drains: maybe(20),
            expired_credentials: maybe(30),
        };
        let mut share = |most: u64| if random.percent(60) { random.between(1, most) } else { 0 };
        let users = Users {
            wrong_references: share(30),
            late_dependents: share(40),
            cycles: share(20),
            foreign_finalizers: share(30),
            holds: share(10),
            second_deletes: share(30),
            reparenting: share(40),
            definitions: share(4),
            bursts: share(30),
        };
        Options {
            leaders: [1, 1, 1, 2, 3][random.index(5)],
            executors: [1, 1, 2, 3, 5][random.index(5)],
            concurrency: [1, 2, 4, 16][random.index(4)],
            objects: random.between(2, 30),
            operations: random.between(5, 120),
            span_s: [5, 20, 60, 200][random.index(4)],
            net_ms: [1, 5, 50, 500][random.index(4)],
            api_ms: [1, 5, 50, 400][random.index(4)],
            watch_ms: [1, 10, 100, 1500][random.index(4)],
            slow_kind: random.index(13),
            slow_ms: [500, 3_000, 10_000][random.index(3)],
            unwatched: random.below(2),
            aggregated: random.once_in(3),
            clock_skew: [0, 20, 100, 100, 190][random.index(5)],
            stranger: random.once_in(4),
            busy_store: random.percent(30),
            bumped: random.percent(50),
            cap: [0, 0, 0, 20, 200][random.index(5)],
            faults,
            users,
            upgrade: random.percent(30),
            guards: Random::new(seed, 13).percent(30),
            deaf: false,
            perils: Perils::draw(seed, perils),
        }
    }

    /// Returns the protocol versions of a process that starts with this seed.
    pub(super) fn protocols_of(&self, seed: u64) -> Protocols {
        if self.upgrade && seed & 1 == 1 { Protocols::of_release(PROTOCOL + 1) } else { Protocols::OURS }
    }

    /// Returns simpler options to try after a failure, the simplest first.
    pub fn simpler(&self) -> Vec<Options> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Options)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            if simpler != *self && !all.contains(&simpler) {
                all.push(simpler);
            }
        };
        with(&|options| options.faults = Faults::default());
        with(&|options| options.operations /= 2);
        with(&|options| options.objects /= 2);
        with(&|options| options.operations = options.operations * 3 / 4);
        with(&|options| options.operations = options.operations.saturating_sub(1));
        with(&|options| options.objects = options.objects.saturating_sub(1));
        with(&|options| options.leaders = 1);
        with(&|options| options.executors = 1);
        with(&|options| options.concurrency = 1);
        with(&|options| options.slow_kind = 100);
        with(&|options| options.aggregated = false);
        with(&|options| options.cap = 0);
        with(&|options| options.net_ms = 1);
        with(&|options| options.api_ms = 1);
        with(&|options| options.watch_ms = 1);
        with(&|options| options.clock_skew = 0);
        with(&|options| options.stranger = false);
        with(&|options| options.busy_store = false);
        with(&|options| options.upgrade = false);
        for perils in self.perils.simpler() {
            with(&|options| options.perils = perils.clone());
        }
        for at in 0..Faults::default().chances().len() {
            with(&|options| *options.faults.chances()[at] = 0);
        }
        for at in 0..Users::default().shares().len() {
            with(&|options| *options.users.shares()[at] = 0);
        }
        all
    }
}

impl Faults {
    fn chances(&mut self) -> [&mut u64; 28] {
        [
            &mut self.stream_breaks,
            &mut self.message_stalls,
            &mut self.watch_drops,
            &mut self.transport,
            &mut self.expired,
            &mut self.list_failures,
            &mut self.probe_failures,
            &mut self.false_not_found,
            &mut self.server_errors,
            &mut self.throttled,
            &mut self.forbidden,
            &mut self.webhook,
            &mut self.lost_answers,
            &mut self.slow_requests,
            &mut self.executor_crashes,
            &mut self.leader_crashes,
            &mut self.pauses,
            &mut self.hidden_kinds,
            &mut self.relists,
            &mut self.lags,
            &mut self.duplicates,
            &mut self.lease_failures,
            &mut self.lease_cuts,
            &mut self.handovers,
            &mut self.rewinds,
            &mut self.refusals,
            &mut self.drains,
            &mut self.expired_credentials,
        ]
    }
}

impl Users {
    fn shares(&mut self) -> [&mut u64; 9] {
        [
            &mut self.wrong_references,
            &mut self.late_dependents,
            &mut self.cycles,
            &mut self.foreign_finalizers,
            &mut self.holds,
            &mut self.second_deletes,
            &mut self.reparenting,
            &mut self.definitions,
            &mut self.bursts,
        ]
    }
}
