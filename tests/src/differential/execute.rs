//! Runs many programs side by side on one fresh control plane with one collector.

use super::end::{Change, End, Writes, end_at};
use super::generate::PHASES;
use super::record::Record;
use super::user::{User, changes};
use super::world::{Program, Step};
use crate::controlplane::{Binaries, CollectorOptions, ControlPlane, UpstreamCollector};
use crate::load::{create, get, until};
use crate::process::Directory;
use crate::service::{Programs, Service};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use kube::Client;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// The time without writes that ends a phase.
const QUIET_BETWEEN: Duration = Duration::from_millis(1_500);
/// The time without writes that ends a run. It is longer than the five seconds of our collector's probe.
const QUIET_AT_THE_END: Duration = Duration::from_millis(6_500);
/// The time without writes after upstream's restart. Upstream then judges everything at once.
const QUIET_AFTER_RESTART: Duration = Duration::from_secs(3);
/// The maximum time for which a collector may write while no other client writes. More time means a loop.
const QUIET_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
pub(super) const SOON: Duration = Duration::from_secs(60);

/// The client limits of upstream, so high that they have no effect.
pub(super) const REQUESTS_PER_SECOND: u32 = 5_000;

/// The collector under test.
#[derive(Clone, Copy, Debug)]
pub enum Collector<'a> {
    Ours(&'a Programs),
    Upstream(Pace),
}

/// The speed of upstream's collector in relation to the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Full speed.
    Free,
    /// One worker.
    OneWorker,
    /// The collector pauses while users write, and then judges the result, as on a slow machine.
    UsersFirst,
    /// The same, with one worker.
    UsersFirstOneWorker,
    /// Users wait after each operation for its result, as with a collector on a fast machine.
    CollectorFirst,
}

impl Pace {
    fn lets_users_go_first(self) -> bool {
        matches!(self, Pace::UsersFirst | Pace::UsersFirstOneWorker)
    }

    fn workers(self) -> Option<u32> {
        matches!(self, Pace::OneWorker | Pace::UsersFirstOneWorker).then_some(1)
    }
}

/// The time for which users wait for the collector.
const USERS_WAIT: Duration = Duration::from_millis(600);

/// The result of one seed.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The objects at each quiet moment. The last of these states is the end.
    pub ends: Vec<End>,
    /// The revision of the last write before each quiet moment.
    pub quiet_at: Vec<u64>,
    pub changes: Vec<Change>,
    pub by_user: Writes,
    /// The result of each operation.
    pub outcomes: Vec<String>,
    /// For upstream only: the end before its restart, if the restart changed it. Upstream judges an object again on few
    /// occasions. A restart makes it judge everything that it put off.
    pub before_restart: Option<End>,
}

impl Course {
    pub fn end(&self) -> &End {
        self.ends.last().expect("it was quiet at the end")
    }
}

/// Runs the programs. Returns the course of each of them, by seed.
pub(super) async fn execute(
    binaries: &Binaries,
    collector: Collector<'_>,
    programs: &[Program],
) -> anyhow::Result<BTreeMap<u64, Course>> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    crd(&client, "widgets", "Widget", "Namespaced").await?;
    crd(&client, "realms", "Realm", "Cluster").await?;
    let wait = match collector {
        Collector::Upstream(Pace::CollectorFirst) => USERS_WAIT,
        Collector::Upstream(_) | Collector::Ours(_) => Duration::ZERO,
    };
    let mut record = Record::begin(&client).await?;
    let mut users: Vec<User<'_>> = programs.iter().map(|program| User::new(program, client.clone(), wait)).collect();
    try_join_all(users.iter().map(User::make_namespaces)).await?;
    perform(&mut users, |program| if program.early { &program.build } else { &[] }).await?;
    let running = Running::start(&plane, collector).await?;
    let mut revisions = Vec::new();
    for round in 0..PHASES + 2 {
        running.stand_still()?;
        perform(&mut users, |program| match round {
            0 if program.early => &[],
            0 => &program.build,
            1 => &program.cycles,
            later => &program.phases[later - 2],
        })
        .await?;
        running.go_on()?;
        revisions.push(quiet(&mut record, QUIET_BETWEEN).await?);
    }
    let settled = quiet(&mut record, QUIET_AT_THE_END).await?;
    if let Collector::Upstream(_) = collector {
        drop(running);
        let _second = Running::start(&plane, collector).await?;
        revisions.push(quiet(&mut record, QUIET_AFTER_RESTART).await?);
    } else {
        revisions.push(settled);
    }
    record.ensure_whole(&client).await?;
    let events = record.events();
    let course = |user: User<'_>| -> anyhow::Result<(u64, Course)> {
        let changes = changes(&user, &events)?;
        let ends: Vec<End> = revisions.iter().map(|&revision| end_at(&changes, revision)).collect();
        let before_restart = Some(end_at(&changes, settled)).filter(|before| ends.last() != Some(before));
        let (quiet_at, by_user, outcomes) = (revisions.clone(), user.writes, user.outcomes);
        Ok((user.program.seed, Course { ends, quiet_at, changes, by_user, outcomes, before_restart }))
    };
    users.into_iter().map(course).collect()
}

/// A running collector. Dropping it ends it.
enum Running {
    Ours { _service: Service, _directory: Directory },
    Upstream { collector: UpstreamCollector, pace: Pace },
}

impl Running {
    async fn start(plane: &ControlPlane, collector: Collector<'_>) -> anyhow::Result<Running> {
        match collector {
            Collector::Upstream(pace) => {
                let (requests_per_second, workers) = (Some(REQUESTS_PER_SECOND), pace.workers());
                let options = CollectorOptions { requests_per_second, workers, ..CollectorOptions::default() };
                Ok(Running::Upstream { collector: plane.start_upstream_collector(&options).await?, pace })
            }
            Collector::Ours(programs) => {
                let directory = Directory::create()?;
                let kubeconfig = plane.kubeconfig().display().to_string();
                let arguments = ["collect", "--kubeconfig", &kubeconfig];
                let mut service = Service::start(programs, "ownergraph", "collect", directory.path(), &arguments)?;
                service.ready().await?;
                Ok(Running::Ours { _service: service, _directory: directory })
            }
        }
    }

    /// Returns the collector if it pauses for the users.
    fn patient(&self) -> Option<&UpstreamCollector> {
        match self {
            Running::Upstream { collector, pace } => pace.lets_users_go_first().then_some(collector),
            Running::Ours { .. } => None,
        }
    }

    fn stand_still(&self) -> anyhow::Result<()> {
        self.patient().map_or(Ok(()), |collector| collector.process().pause())
    }

    fn go_on(&self) -> anyhow::Result<()> {
        self.patient().map_or(Ok(()), |collector| collector.process().resume())
    }
}

/// Runs all users at once, each with the steps of its own program.
pub(super) async fn perform<'a>(
    users: &mut [User<'a>],
    steps: impl Fn(&'a Program) -> &'a [Step],
) -> anyhow::Result<()> {
    let all = users.iter_mut().map(|user| {
        let steps = steps(user.program);
        user.perform(steps)
    });
    try_join_all(all).await.map(|_| ())
}

/// Waits until there is no write for this time. Returns the revision of the last write.
async fn quiet(record: &mut Record, wanted: Duration) -> anyhow::Result<u64> {
    let begun = Instant::now();
    let mut ticks = interval(LOOK_EVERY);
    while begun.elapsed() < wanted || record.quiet_for()? < wanted {
        ticks.tick().await;
        ensure!(begun.elapsed() < QUIET_WITHIN, "writes did not stop within {QUIET_WITHIN:?}");
    }
    Ok(record.events().last().map_or(0, |event| event.revision))
}

pub(super) async fn crd(client: &Client, plural: &str, kind: &str, scope: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com", "scope": scope,
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &object).await?;
    let collection = format!("/apis/example.com/v1/{plural}");
    // While the API server prepares the storage, a new kind answers 404, and then 429.
    let ask = || async { Ok(get(client, collection.as_str()).await.ok().flatten()) };
    until("the kind is served", SOON, ask, Option::is_some).await.context("a custom resource definition")?;
    Ok(())
}
