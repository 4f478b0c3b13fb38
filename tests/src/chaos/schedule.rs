//! The schedule of faults. A seed determines all of it before the run, so a seed replays it.

use crate::random::Random;
use std::fmt;
use std::time::Duration;

/// The maximum numbers of faulty graph services and of faulty executors at a time.
const GRAPHS_FAULTY_MAX: usize = 2;
const EXECUTORS_FAULTY_MAX: usize = 2;
/// The time for which a leader keeps a silent executor: its session and one heartbeat.
const SESSION: Duration = Duration::from_secs(20);

/// The deployment under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) graphs: usize,
    pub(super) executors: usize,
    /// The durations of the election.
    pub(super) lease_duration: Duration,
}

/// One process, or two processes with the connection between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Graph(usize),
    Executor(usize),
    GraphToApi(usize),
    ExecutorToApi(usize),
    ExecutorToGraph { executor: usize, graph: usize },
}

/// The place of the fault. The leader is found when the fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Place(Place),
    Leader,
    LeaderToApi,
    ExecutorToLeader { executor: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL, and a new process after some time.
    Kill,
    /// SIGSTOP for longer than every lease, and then SIGCONT.
    Pause,
    /// SIGTERM, and a new process after the end of the old one.
    Terminate,
    /// A partition. Nothing arrives until its end, and then everything arrives.
    Hold,
    /// A partition that breaks connections and refuses new ones.
    Cut,
}

/// A fault, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) kind: Kind,
    pub(super) victim: Victim,
    /// An executor restarts with another name.
    pub(super) renamed: bool,
}

impl Fault {
    pub(super) fn ends(&self) -> Duration {
        self.at + self.lasts
    }
}

/// Draws the faults in the order of their beginnings. All of them end within `total`.
pub(super) fn draw(seed: u64, shape: Shape, total: Duration) -> Vec<Fault> {
    let mut draw = Random::new(seed, 0);
    let mut faults: Vec<Fault> = Vec::new();
    let mut at = Duration::from_secs(2);
    while at < total {
        let fault = one(&mut draw, shape, at);
        if fault.ends() <= total && fits(&faults, &fault) {
            faults.push(fault);
        }
        at += millis(&mut draw, 500, 3_000);
    }
    faults
}

fn fits(faults: &[Fault], new: &Fault) -> bool {
    let under_way: Vec<&Fault> = faults.iter().filter(|fault| fault.ends() > new.at).collect();
    let graphs = under_way.iter().filter(|fault| fault.victim.is_of_graph()).count();
    let full = if new.victim.is_of_graph() {
        graphs >= GRAPHS_FAULTY_MAX
    } else {
        under_way.len() - graphs >= EXECUTORS_FAULTY_MAX
    };
    !full && under_way.iter().all(|fault| fault.victim != new.victim)
}

fn one(draw: &mut Random, shape: Shape, at: Duration) -> Fault {
    let kind =
        draw.weighted(&[(30, Kind::Kill), (15, Kind::Pause), (20, Kind::Terminate), (20, Kind::Hold), (15, Kind::Cut)]);
    let (graph, executor) = (draw.index(shape.graphs), draw.index(shape.executors));
    let victim = match kind {
        Kind::Kill | Kind::Pause | Kind::Terminate => draw.weighted(&[
            (30, Victim::Leader),
            (25, Victim::Place(Place::Graph(graph))),
            (45, Victim::Place(Place::Executor(executor))),
        ]),
        Kind::Hold | Kind::Cut => draw.weighted(&[
            (25, Victim::LeaderToApi),
            (15, Victim::Place(Place::GraphToApi(graph))),
            (20, Victim::Place(Place::ExecutorToApi(executor))),
            (25, Victim::ExecutorToLeader { executor }),
            (15, Victim::Place(Place::ExecutorToGraph { executor, graph })),
        ]),
    };
    let longest = if victim.is_of_graph() { shape.lease_duration } else { SESSION };
    let lasts = match kind {
        Kind::Kill | Kind::Terminate => millis(draw, 300, 6_000),
        Kind::Pause => longest + millis(draw, 1_000, 4_000),
        Kind::Hold if draw.percent(40) => longest + millis(draw, 500, 3_000),
        Kind::Hold | Kind::Cut => millis(draw, 500, 8_000),
    };
    Fault { at, lasts, kind, victim, renamed: draw.percent(50) }
}

fn millis(draw: &mut Random, low: u64, high: u64) -> Duration {
    Duration::from_millis(draw.between(low, high))
}

impl Victim {
    fn is_of_graph(&self) -> bool {
        match self {
            Victim::Leader | Victim::LeaderToApi | Victim::Place(Place::Graph(_) | Place::GraphToApi(_)) => true,
            Victim::ExecutorToLeader { .. }
            | Victim::Place(Place::Executor(_) | Place::ExecutorToApi(_) | Place::ExecutorToGraph { .. }) => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Kill => "SIGKILL",
            Kind::Pause => "SIGSTOP",
            Kind::Terminate => "SIGTERM",
            Kind::Hold => "held wire",
            Kind::Cut => "cut wire",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Graph(graph) => write!(f, "graph-{graph}"),
            Place::Executor(executor) => write!(f, "executor-{executor}"),
            Place::GraphToApi(graph) => write!(f, "graph-{graph} to the API server"),
            Place::ExecutorToApi(executor) => write!(f, "executor-{executor} to the API server"),
            Place::ExecutorToGraph { executor, graph } => write!(f, "executor-{executor} to graph-{graph}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { graphs: 3, executors: 4, lease_duration: Duration::from_secs(6) };

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let total = Duration::from_secs(60);
        assert_eq!(draw(7, SHAPE, total), draw(7, SHAPE, total));
        assert_ne!(draw(7, SHAPE, total), draw(8, SHAPE, total));
    }

    #[test]
    fn few_are_faulty_at_a_time_and_all_is_over_in_time() {
        for seed in 0..50 {
            let total = Duration::from_secs(300);
            let faults = draw(seed, SHAPE, total);
            assert!(faults.len() >= 50, "seed {seed}: {} faults", faults.len());
            for fault in &faults {
                let at_once = faults.iter().filter(|other| other.at <= fault.at && other.ends() > fault.at);
                let (graphs, executors): (Vec<&Fault>, Vec<&Fault>) =
                    at_once.partition(|other| other.victim.is_of_graph());
                assert!(graphs.len() <= GRAPHS_FAULTY_MAX, "seed {seed}: {graphs:?}");
                assert!(executors.len() <= EXECUTORS_FAULTY_MAX, "seed {seed}: {executors:?}");
                assert!(fault.ends() <= total, "seed {seed}: {fault:?}");
            }
        }
    }
}
