//! Carries out the schedule.

use super::schedule::{Fault, Kind, Place, Victim};
use crate::link::{Link, Wire};
use crate::load::until;
use crate::replicas::{Member, Replicas, executor_name, held};
use anyhow::ensure;
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time limit of a stop. A process drains for at most 25 s.
const STOPS_WITHIN: Duration = Duration::from_secs(45);

/// All processes and connections that can be disturbed.
pub(super) struct Deployment {
    pub(super) replicas: Replicas,
    /// The links to the API server, one for each graph service and one for each executor.
    pub(super) graph_wires: Vec<Link>,
    pub(super) executor_wires: Vec<Link>,
    pub(super) client: Client,
}

/// The performed action.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) by_kind: BTreeMap<Kind, usize>,
    /// The faults whose target was faulty already. The leader may be such a target.
    pub(super) skipped: usize,
    pub(super) journal: Vec<String>,
}

/// Starts and ends faults, until the last fault is over.
pub(super) async fn carry_out(deployment: &mut Deployment, faults: &[Fault], done: &mut Done) -> anyhow::Result<()> {
    let mut moments: Vec<(Duration, bool, usize)> = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        moments.push((fault.at, false, number));
        moments.push((fault.ends(), true, number));
    }
    moments.sort_unstable();
    let begun = Instant::now();
    let mut faulty: BTreeSet<Place> = BTreeSet::new();
    let mut places: BTreeMap<usize, Place> = BTreeMap::new();
    for (at, is_end, number) in moments {
        sleep_until(begun + at).await;
        let fault = &faults[number];
        let note = |what: &str, place: Place| {
            format!("{:>6.1} s  {what} {place}: {}", begun.elapsed().as_secs_f64(), fault.kind)
        };
        if is_end {
            if let Some(place) = places.remove(&number) {
                mend(deployment, fault, place).await?;
                faulty.remove(&place);
                done.journal.push(note("mended", place));
            }
            continue;
        }
        match found(deployment, fault.victim).await? {
            Some(place) if faulty.insert(place) => {
                break_it(deployment, fault.kind, place).await?;
                places.insert(number, place);
                *done.by_kind.entry(fault.kind).or_default() += 1;
                done.journal.push(note("broken", place));
            }
            Some(_) | None => done.skipped += 1,
        }
    }
    Ok(())
}

/// Returns the target of the fault, or `None` if no replica leads.
async fn found(deployment: &Deployment, victim: Victim) -> anyhow::Result<Option<Place>> {
    if let Victim::Place(place) = victim {
        return Ok(Some(place));
    }
    let leader = held(&deployment.client).await?.holder;
    Ok(leader.map(|graph| match victim {
        Victim::Leader => Place::Graph(graph),
        Victim::LeaderToApi => Place::GraphToApi(graph),
        Victim::ExecutorToLeader { executor } => Place::ExecutorToGraph { executor, graph },
        Victim::Place(place) => place,
    }))
}

async fn break_it(deployment: &Deployment, kind: Kind, place: Place) -> anyhow::Result<()> {
    match kind {
        Kind::Kill => deployment.process(place)?.service()?.process.kill(),
        Kind::Pause => deployment.process(place)?.service()?.process.pause(),
        Kind::Terminate => {
            // A process without any output may not handle signals yet.
            let process = &deployment.process(place)?.service()?.process;
            let output = || async { Ok(process.output()) };
            until("it runs", STOPS_WITHIN, output, |output| !output.is_empty()).await?;
            process.terminate()
        }
        Kind::Hold => deployment.set(place, Wire::Held),
        Kind::Cut => deployment.set(place, Wire::Cut),
    }
}

async fn mend(deployment: &mut Deployment, fault: &Fault, place: Place) -> anyhow::Result<()> {
    match fault.kind {
        Kind::Kill => deployment.again(place, fault.renamed),
        Kind::Pause => deployment.process(place)?.service()?.process.resume(),
        Kind::Terminate => {
            let process = &mut deployment.process_mut(place)?.service_mut()?.process;
            let code = process.ended(STOPS_WITHIN).await?;
            ensure!(code == 0, "{place} was asked to stop and ended with {code}; {}", process.log_tail());
            deployment.again(place, fault.renamed)
        }
        Kind::Hold | Kind::Cut => deployment.set(place, Wire::Open),
    }
}

impl Deployment {
    fn process(&self, place: Place) -> anyhow::Result<&Member> {
        match place {
            Place::Graph(graph) | Place::GraphToApi(graph) => Ok(&self.replicas.graphs[graph]),
            Place::Executor(executor) | Place::ExecutorToApi(executor) | Place::ExecutorToGraph { executor, .. } => {
                Ok(&self.replicas.executors[executor])
            }
        }
    }

    fn process_mut(&mut self, place: Place) -> anyhow::Result<&mut Member> {
        match place {
            Place::Graph(graph) | Place::GraphToApi(graph) => Ok(&mut self.replicas.graphs[graph]),
            Place::Executor(executor) | Place::ExecutorToApi(executor) | Place::ExecutorToGraph { executor, .. } => {
                Ok(&mut self.replicas.executors[executor])
            }
        }
    }

    /// A graph service keeps its name, because the name is its address. An executor may return with another name.
    fn again(&mut self, place: Place, renamed: bool) -> anyhow::Result<()> {
        let is_executor = matches!(place, Place::Executor(_));
        self.process_mut(place)?.start(renamed && is_executor)
    }

    fn set(&self, place: Place, wire: Wire) -> anyhow::Result<()> {
        match place {
            Place::GraphToApi(graph) => self.graph_wires[graph].set("", wire),
            Place::ExecutorToApi(executor) => self.executor_wires[executor].set("", wire),
            Place::ExecutorToGraph { executor, graph } => {
                self.replicas.gates[graph].set(&executor_name(executor), wire);
            }
            Place::Graph(_) | Place::Executor(_) => anyhow::bail!("{place} is no wire"),
        }
        Ok(())
    }
}
