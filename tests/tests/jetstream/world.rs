//! Two graph services, of which the first leads, two executors, and their cascades.

use super::audited::Deletion;
use anyhow::{Context, ensure};
use kube::Client;
use proto::decision::v1beta1::ListDecisionsRequest;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tests::controlplane::{Binaries, ControlPlane, Options, require};
use tests::embedded::Api;
use tests::load::{configmaps, count, delete, families, list, until};
use tests::nats::Nats;
use tests::process::Directory;
use tests::replicas::{Held, Replicas, held};
use tests::service::Programs;
use tests::subscriber::{Subscriber, connect, patiently};
use tokio::sync::{Mutex, SemaphorePermit};

pub(crate) const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(600);
const LEASES: [&str; 6] = ["--lease-duration", "8s", "--renew-deadline", "6s", "--retry-period", "1s"];
const OWNERS: usize = 10;
const AUDIT_LOG: &str = "audit.log";
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [delete]
  resources: [{ group: '', resources: [configmaps] }]
- level: None
";
/// The number of looks at a log that has not grown.
const STILL: usize = 10;

/// The cluster with the objects.
enum Plane {
    Embedded(Api),
    Real(ControlPlane),
}

impl Plane {
    fn kubeconfig(&self) -> &Path {
        match self {
            Plane::Embedded(api) => &api.kubeconfig,
            Plane::Real(plane) => plane.kubeconfig(),
        }
    }
}

pub(crate) struct World {
    plane: Plane,
    pub(crate) client: Client,
    pub(crate) nats: Option<Nats>,
    pub(crate) replicas: Replicas,
    maps: String,
    directory: Directory,
    _turn: SemaphorePermit<'static>,
}

impl World {
    /// Starts a world. `nats` keeps the decision log, if it is given.
    pub(crate) async fn start(nats: Option<Nats>, flags: &[&str]) -> anyhow::Result<World> {
        let turn = crate::turn().await?;
        let directory = Directory::create()?;
        let (plane, client) = match std::env::var_os("JETSTREAM_CONTROLPLANE").and_then(|_| require()) {
            Some(binaries) => {
                let plane = ControlPlane::start(&binaries).await?;
                let client = plane.client().await?;
                (Plane::Real(plane), client)
            }
            None => {
                let api = Api::start(directory.path()).await?;
                let client = api.client.clone();
                (Plane::Embedded(api), client)
            }
        };
        World::on(plane, client, nats, flags, directory, turn).await
    }

    /// Starts a world on a real control plane with an audit log of deletions.
    pub(crate) async fn audited(binaries: &Binaries, nats: Nats, flags: &[&str]) -> anyhow::Result<World> {
        let turn = crate::turn().await?;
        let directory = Directory::create()?;
        let policy = directory.path().join("policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY)?;
        let log = directory.path().join(AUDIT_LOG);
        let apiserver_flags =
            vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
        let plane = ControlPlane::start_with(binaries, Options { apiserver_flags, ..Options::default() }).await?;
        let client = plane.client().await?;
        World::on(Plane::Real(plane), client, Some(nats), flags, directory, turn).await
    }

    /// Returns the deletions in the API server's audit log that name a uid.
    pub(crate) fn deletions(&self) -> anyhow::Result<Vec<Deletion>> {
        let log = std::fs::read_to_string(self.directory.path().join(AUDIT_LOG))?;
        log.lines().map(Deletion::read).filter_map(Result::transpose).collect()
    }

    async fn on(
        plane: Plane,
        client: Client,
        nats: Option<Nats>,
        flags: &[&str],
        directory: Directory,
        turn: SemaphorePermit<'static>,
    ) -> anyhow::Result<World> {
        let programs = Programs::build()?;
        let mut replicas = Replicas::new(&programs, 2).await?;
        let url = nats.as_ref().map(Nats::url);
        let log: Vec<&str> = url.iter().flat_map(|url| ["--decision-log", url]).collect();
        let flags = [&LEASES, flags, &log].concat();
        for graph in 0..2 {
            replicas.add_graph(plane.kubeconfig(), &flags)?;
            if graph == 0 {
                replicas.ready().await?;
                until("the first leads", SOON, || held(&client), |held| held.holder == Some(0)).await?;
            }
        }
        for _ in 0..2 {
            replicas.add_executor(plane.kubeconfig(), &[])?;
        }
        replicas.ready().await?;
        let maps = configmaps("default");
        Ok(World { plane, client, nats, replicas, maps, directory, _turn: turn })
    }

    pub(crate) fn server(&self, graph: usize) -> String {
        self.replicas.grpc(graph).to_owned()
    }

    /// Deletes owners with this many dependents. Returns the uids of the dependents.
    pub(crate) async fn cascade(&self, prefix: &str, dependents: usize) -> anyhow::Result<BTreeSet<String>> {
        let (owners, uids) = self.families(prefix, dependents).await?;
        self.delete(&owners).await?;
        Ok(uids)
    }

    /// Creates owners with this many dependents in total. Returns the names of the owners and the uids of the
    /// dependents.
    pub(crate) async fn families(
        &self,
        prefix: &str,
        dependents: usize,
    ) -> anyhow::Result<(Vec<String>, BTreeSet<String>)> {
        let owners = families(&self.client, "default", prefix, OWNERS, dependents / OWNERS).await?;
        let uids = self.dependents().await?;
        ensure!(uids.len() == dependents, "{} of {dependents} were created", uids.len());
        Ok((owners, uids))
    }

    /// Deletes owners in background.
    pub(crate) async fn delete(&self, owners: &[String]) -> anyhow::Result<()> {
        for owner in owners {
            delete(&self.client, &format!("{}/{owner}", self.maps), "Background").await?;
        }
        Ok(())
    }

    /// Returns the uids of all objects.
    pub(crate) async fn dependents(&self) -> anyhow::Result<BTreeSet<String>> {
        let uid = |object: &serde_json::Value| {
            let is_dependent = object["metadata"]["ownerReferences"].is_array();
            object["metadata"]["uid"].as_str().filter(|_| is_dependent).map(str::to_owned)
        };
        Ok(list(&self.client, self.maps.as_str()).await?.iter().filter_map(uid).collect())
    }

    pub(crate) async fn left(&self) -> anyhow::Result<usize> {
        count(&self.client, &self.maps).await
    }

    pub(crate) async fn all_gone(&self) -> anyhow::Result<()> {
        until("the cascade ends", CASCADE_WITHIN, || self.left(), |left| *left == 0).await.map(|_| ())
    }

    pub(crate) async fn kill(&mut self, graph: usize) -> anyhow::Result<()> {
        let process = &mut self.replicas.graphs[graph].service_mut()?.process;
        process.kill()?;
        process.ended(SOON).await.map(|_| ())
    }

    pub(crate) async fn leads(&self, held_by: Held) -> anyhow::Result<()> {
        until("another leads", SOON, || held(&self.client), |held| *held == held_by).await.map(|_| ())
    }

    /// Returns the index of the leading replica.
    pub(crate) async fn leader(&self) -> anyhow::Result<usize> {
        held(&self.client).await?.holder.context("a replica leads")
    }

    /// Kills the leader, which is the first replica, and restarts it when the second replica leads.
    pub(crate) async fn change_leader(&mut self) -> anyhow::Result<()> {
        self.kill(0).await?;
        ensure!(self.left().await? > 0, "the cascade ended before its leader was killed");
        self.leads(Held { holder: Some(1), term: 2 }).await?;
        self.replicas.graphs[0].start(false)
    }

    pub(crate) fn nats_mut(&mut self) -> anyhow::Result<&mut Nats> {
        self.nats.as_mut().context("this log is in memory")
    }

    /// Waits until the leader has no work and nothing to write. Returns the end of the log, by the stream, or in memory
    /// by the leader.
    pub(crate) async fn head(&self, leader: usize) -> anyhow::Result<u64> {
        let last = Mutex::new(Vec::<u64>::new());
        let look = || async {
            let leader_has = &self.replicas.graphs[leader];
            let mut open = 0.0;
            for gauge in ["ownergraph_queue_items", "ownergraph_leases", "ownergraph_decision_log_waiting"] {
                open += leader_has.service()?.total(gauge).await?;
            }
            let end = match &self.nats {
                Some(nats) => nats.last_sequence().await?,
                None => self.newest(leader).await?,
            };
            let mut last = last.lock().await;
            last.push(end);
            let is_still = last.iter().rev().take(STILL).filter(|before| **before == end).count() == STILL;
            Ok((end, open, is_still))
        };
        Ok(until("nothing is done and written any more", SOON, look, |look| look.1 == 0.0 && look.2).await?.0)
    }

    /// Returns the newest position by this replica.
    pub(crate) async fn newest(&self, graph: usize) -> anyhow::Result<u64> {
        let ask =
            || async { connect(&self.server(graph)).await?.list_decisions(ListDecisionsRequest::default()).await };
        let newest = patiently(ask).await?.into_inner().events.into_iter().next().and_then(|event| event.position);
        Ok(newest.map_or(0, |position| position.sequence))
    }

    /// Lets a subscriber read from this replica up to a position.
    pub(crate) async fn read(&self, subscriber: &mut Subscriber, graph: usize, head: u64) -> anyhow::Result<()> {
        while subscriber.sequence() < head {
            subscriber.live(&self.server(graph), 1, true).await?;
        }
        Ok(())
    }

    /// Returns the replica's own status.
    pub(crate) async fn readyz(&self, graph: usize) -> anyhow::Result<String> {
        Ok(self.replicas.graphs[graph].service()?.get("/readyz?verbose").await?.1)
    }

    /// Waits until a replica reports this text.
    pub(crate) async fn says(&self, graph: usize, what: &str) -> anyhow::Result<()> {
        until(what, SOON, || self.readyz(graph), |text| text.contains(what)).await.map(|_| ())
    }

    /// Returns a gauge or counter of the first replica.
    pub(crate) async fn metric(&self, prefix: &str) -> anyhow::Result<f64> {
        self.replicas.graphs[0].metric(prefix).await
    }

    /// Returns the number of requests with this verb so far.
    pub(crate) fn deletes(&self) -> anyhow::Result<u64> {
        let Plane::Embedded(api) = &self.plane else { anyhow::bail!("only the sandbox counts requests so") };
        let requests = api.server.requests();
        Ok(requests.into_iter().filter(|(request, _)| request.verb == "DELETE").map(|(_, count)| count).sum())
    }
}
