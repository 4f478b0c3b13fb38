//! The times at which a replica can know of a restore.

use super::{Collection, Line};
use crate::sim::kinds::PODS;
use crate::sim::options::{Faults, Options};
use crate::sim::rewind::Former;
use crate::sim::truth::Truth;
use crate::sim::world::{S, World};

/// The replica of the test. It follows pods.
const AT: usize = 0;

/// A replica that watches pods in a store without faults.
struct Bench {
    world: World,
    epoch: u64,
}

impl Bench {
    /// With `deaf`, the client reports no early end to the leader.
    fn watching(deaf: bool) -> Bench {
        let calm = Options { faults: Faults::default(), aggregated: false, deaf, ..Options::draw_with(1, &[]) };
        let mut world = World::new(1, &calm, false);
        world.replica_start(AT);
        let epoch = world.replicas[AT].epoch;
        world.discovery(AT, epoch);
        let mut bench = Bench { world, epoch };
        bench.watches();
        bench
    }

    fn pods(&self) -> &Collection {
        &self.world.replicas[AT].collections[PODS]
    }

    /// Hands over the list, until the watch is open.
    fn watches(&mut self) {
        while !matches!(&self.pods().line, Line::Stream(stream) if stream.ends_list.is_none()) {
            let generation = self.pods().generation;
            if matches!(self.pods().line, Line::Stream(_)) {
                self.world.deliver(AT, PODS, usize::MAX);
            } else {
                self.world.list_step(AT, self.epoch, PODS, generation);
            }
        }
    }

    /// Moves the clock to this many seconds before the limit of the watch.
    fn wait_until(&mut self, before: u64) {
        let limit = self.world.replicas[AT].clock.world(self.pods().limit);
        self.world.now = limit - before * S;
    }

    /// The store is restored, and the client finds that its watch has ended.
    fn restored(&mut self, clean: bool) {
        let truth = std::mem::replace(&mut self.world.server.truth, Truth::new());
        self.world.formers.push(Former { truth, ended: self.world.now, shared_through: 0 });
        let pods = &mut self.world.replicas[AT].collections[PODS];
        let generation = pods.cut(clean).expect("the watch is open");
        self.world.broken(AT, self.epoch, PODS, generation);
    }

    /// Returns whether the judge holds that the leader can know of the restore.
    fn may_know(&self) -> bool {
        self.world.replicas[AT].history() == self.world.history()
    }
}

#[test]
fn a_watch_that_a_restore_ends_at_its_limit_tells_nothing_of_the_restore() {
    for (before, clean, told) in
        [(30, true, true), (3, true, true), (1, true, false), (0, true, false), (30, false, true), (0, false, true)]
    {
        let mut bench = Bench::watching(false);
        bench.wait_until(before);
        bench.restored(clean);
        assert_eq!(bench.may_know(), told, "{before} s before its limit, clean: {clean}");
    }
}

#[test]
fn a_client_that_hides_an_early_end_does_not_excuse_its_leader() {
    let mut bench = Bench::watching(true);
    bench.wait_until(30);
    bench.restored(true);
    assert!(bench.may_know());
}
