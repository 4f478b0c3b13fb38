//! The end of a leader, in every way: which replica leads next and when, and what the former leader can still do.

use anyhow::{Context, ensure};
use kube::Client;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tests::controlplane::ControlPlane;
use tests::load::{self, configmaps, count, delete, families, until};
use tests::proxy::Proxy;
use tests::replicas::{Held, Replicas, held};
use tests::stage::Stage;
use tokio::time::{Instant, interval};

const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(180);
/// The budget: the lease duration of 18 s, and two seconds more.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(20);
/// The maximum time from the beginning of the next term to the first grant. Executors search for the leader within two
/// seconds. The rest is for a busy machine.
const FOUND_WITHIN: Duration = Duration::from_secs(5);
/// The owners and dependents of one cascade.
const OWNERS: usize = 20;
const DEPENDENTS: usize = 150;

/// The lists of a standby, by collection.
#[derive(Clone, Debug, Default)]
struct Lists(Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>);

impl Lists {
    /// Records the lists that go through a proxy, without single reads, watches and writes.
    fn note(&self, method: &http::Method, path: &str, query: &str) {
        let is_resource = path.starts_with("/api/v1/") || path.starts_with("/apis/");
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let after_version = if parts.first() == Some(&"api") { 2 } else { 3 };
        let rest = &parts[after_version.min(parts.len())..];
        // The path is `COLLECTION` or `namespaces/NAME/COLLECTION`. A fourth part would be the name of an object.
        let is_collection = rest.len() == 1 || (rest.len() == 3 && rest[0] == "namespaces");
        if *method != http::Method::GET || !is_resource || !is_collection || query.contains("watch=") {
            return;
        }
        let kind = if query.contains("fieldSelector=metadata.name") {
            "of one name"
        } else if query.split('&').any(|part| part == "limit=1") {
            "of limit=1"
        } else if let ["pauses" | "protections" | "budgets" | "approvals" | "gates"] = *rest {
            // A new leader must know the guards before it deletes anything. They are few, and are not part of the
            // graph.
            "of guards"
        } else {
            "of a collection"
        };
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.entry(kind).or_default().push(format!("{path}?{query}"));
    }

    fn take(&self) -> BTreeMap<&'static str, Vec<String>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct World {
    plane: ControlPlane,
    client: Client,
    replicas: Replicas,
    /// The proxies are dropped last, because the processes use them.
    proxies: Vec<(Proxy, Lists)>,
}

impl World {
    /// Starts three graph services, each behind a proxy that records its lists, and two executors. Graph service 0
    /// leads.
    async fn start() -> anyhow::Result<Option<World>> {
        let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(None) };
        let mut replicas = Replicas::new(&programs, 3).await?;
        let mut proxies = Vec::new();
        for graph in 0..3 {
            let directory = replicas.directory().join(format!("proxy-{graph}"));
            std::fs::create_dir(&directory)?;
            let proxy = Proxy::start(plane.client().await?, &directory).await?;
            let lists = Lists::default();
            let noting = lists.clone();
            proxy.lie(move |parts| {
                noting.note(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
                None
            });
            replicas.add_graph(proxy.kubeconfig(), &[])?;
            proxies.push((proxy, lists));
            if graph == 0 {
                replicas.ready().await?;
                until("the first leads", SOON, || held(&client), |held| held.holder == Some(0)).await?;
            }
        }
        let kubeconfig: PathBuf = plane.kubeconfig().to_owned();
        for _ in 0..2 {
            replicas.add_executor(&kubeconfig, &[])?;
        }
        replicas.ready().await?;
        Ok(Some(World { plane, client, replicas, proxies }))
    }

    /// Starts a cascade in its own namespace, and returns when half of it is gone.
    async fn half_a_cascade(&self, space: &str) -> anyhow::Result<String> {
        load::namespace(&self.client, space).await?;
        let maps = configmaps(space);
        for owner in families(&self.client, space, "o", OWNERS, DEPENDENTS).await? {
            delete(&self.client, &format!("{maps}/{owner}"), "Background").await?;
        }
        let half = OWNERS * DEPENDENTS / 2;
        until("half of it is gone", CASCADE_WITHIN, || count(&self.client, &maps), |left| *left <= half).await?;
        Ok(maps)
    }

    /// Returns the time until another graph service has granted a lease, and that service.
    async fn first_grant_after(&self, gone: usize, begun: Instant) -> anyhow::Result<(usize, Duration)> {
        let mut looks = interval(Duration::from_millis(10));
        while begun.elapsed() < SOON {
            looks.tick().await;
            for (number, graph) in self.replicas.graphs.iter().enumerate().filter(|(number, _)| *number != gone) {
                let leases = graph.metric("ownergraph_leases ").await?;
                if leases > 0.0 || graph.metric("ownergraph_attempts_total").await? > 0.0 {
                    return Ok((number, begun.elapsed()));
                }
            }
        }
        anyhow::bail!("no leader granted anything in {SOON:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_standby_goes_on_at_once_and_lists_nothing_again() -> anyhow::Result<()> {
    let _turn = crate::every_turn().await?;
    let Some(mut world) = World::start().await? else { return Ok(()) };
    for (number, how) in ["SIGTERM", "SIGSTOP", "SIGKILL"].into_iter().enumerate() {
        let maps = world.half_a_cascade(&how.to_lowercase()).await?;
        let leader = held(&world.client).await?.holder.context("one of ours leads")?;
        for (_, lists) in &world.proxies {
            lists.take();
        }
        let before = world.plane.server_metrics().await?;
        let process = &world.replicas.graphs[leader].service()?.process;
        let mut begun = Instant::now();
        match how {
            "SIGTERM" => process.terminate()?,
            // The kernel still accepts connections for a paused process.
            "SIGSTOP" => {
                process.pause()?;
                let another = |held: &Held| held.holder.is_some_and(|holder| holder != leader);
                until("another leads", SOON, || held(&world.client), another).await?;
                begun = Instant::now();
            }
            _ => process.kill()?,
        }
        let (next, took) = world.first_grant_after(leader, begun).await?;
        let left = count(&world.client, &maps).await?;
        until("the cascade ends", CASCADE_WITHIN, || count(&world.client, &maps), |left| *left == 0).await?;
        let ended = begun.elapsed();
        let lists = world.proxies[next].1.take();
        let counts: BTreeMap<_, _> = lists.iter().map(|(kind, lists)| (*kind, lists.len())).collect();
        let server = world.plane.server_metrics().await?.since(&before);
        eprintln!(
            "{how}: graph-{next} granted {took:.2?} later, with {left} objects left; all gone after {ended:.1?}; lists: {counts:?}; \
             the API server counted {} lists in all, the test's own among them",
            server.total(|request| request.verb == "LIST"),
        );
        ensure!(!lists.contains_key("of a collection"), "listed again on takeover: {:?}", lists["of a collection"]);
        let guards = lists.get("of guards").map_or(0, Vec::len);
        ensure!(guards >= 5, "it went on without knowing which guards there are: {guards} lists");
        ensure!(left > 0, "there was nothing left to take over");
        ensure!(took < TAKEOVER_WITHIN, "{how}: the first grant came {took:?} later");
        ensure!(held(&world.client).await?.term == number as u64 + 2, "one term each");
        match how {
            "SIGTERM" => {
                ensure!(took < Duration::from_secs(5), "a clean hand-over took {took:?}");
            }
            "SIGSTOP" => {
                ensure!(took < FOUND_WITHIN, "the executors found the new leader {took:?} after it led");
            }
            _ => continue,
        }
        // The counts of a new process begin at zero.
        world.replicas.graphs[leader].start(false)?;
        world.replicas.ready().await?;
    }
    Ok(())
}
