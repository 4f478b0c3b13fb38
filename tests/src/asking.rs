//! Measures the latency of a graph service's answers about a large world on a real API server, during deletions.

use crate::bench::Samples;
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, count, delete, families};
use crate::service::{Fleet, Programs};
use anyhow::{Context, ensure};
use kube::Client;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{
    ExplainObjectRequest, GetObjectRequest, ListDependentsRequest, PreviewDeletionRequest, PreviewDeletionResponse,
};
use proto::r#type::v1beta1::ObjectRef;
use std::fmt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;

/// The dependents of an ordinary owner. They fill one page.
const FAMILY: usize = 100;
/// The dependents of the owner in the preview.
const TREE: usize = 10_000;
const ASKED: usize = 2_000;
const PREVIEWED: usize = 20;

/// The measurement.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub objects: usize,
    /// The first page of 100 dependents, at rest: of an owner with 100 dependents, and of an owner with 10 000.
    pub page_of_few: Samples,
    pub page_of_many: Samples,
    /// The latency of the answers, in ms.
    pub get: Samples,
    pub dependents: Samples,
    pub explain: Samples,
    /// The latency of the first page, which needs the whole plan.
    pub preview: Samples,
    /// The objects that were deleted during the measurement.
    pub collected: usize,
    /// The upper bound of the longest round of the engine, by the service's own histogram.
    pub round_below: f64,
}

/// Builds a world of about this many objects, and measures the answers about it.
pub async fn run(binaries: &Binaries, programs: &Programs, objects: usize) -> anyhow::Result<Figures> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, "world").await?;
    load::namespace(&client, "busy").await?;
    let maps = configmaps("world");
    let owners = objects.saturating_sub(TREE) / (FAMILY + 1);
    families(&client, "world", "o", owners, FAMILY).await?;
    let root = families(&client, "world", "tree", 1, TREE.min(objects)).await?;
    let objects = count(&client, &maps).await?;
    let fleet = Fleet::start(programs, plane.kubeconfig(), 1).await?;
    fleet.until_known(objects).await?;

    let channel = Channel::from_shared(format!("http://{}", fleet.grpc()))?.connect().await?;
    let ask = GraphServiceClient::new(channel).max_decoding_message_size(16 << 20);
    let page_of_few = first_pages(&ask, "o-0").await?;
    let page_of_many = first_pages(&ask, &root[0]).await?;
    let mut busy = JoinSet::new();
    busy.spawn(keep_busy(client.clone()));
    let before = rounds(&fleet).await?;
    let mut figures = asked(&ask, owners).await?;
    (figures.objects, figures.page_of_few, figures.page_of_many) = (objects, page_of_few, page_of_many);
    let uid = uid_of(&client, &maps, &root[0]).await?;
    figures.preview = preview(&ask, &uid, TREE.min(objects)).await?;
    let after = rounds(&fleet).await?;
    busy.abort_all();
    figures.collected = fleet.graph.total("ownergraph_objects_removed_total").await? as usize;
    let slower = |below: &f64| after.iter().zip(&before).any(|(now, then)| now.0 > *below && now.1 - then.1 > 0.0);
    figures.round_below = after.iter().map(|bucket| bucket.0).find(|below| !slower(below)).unwrap_or(f64::INFINITY);
    ensure!(figures.collected > 0, "nothing was deleted while it was asked");
    Ok(figures)
}

/// Creates and deletes families until the caller stops it.
async fn keep_busy(client: Client) -> anyhow::Result<()> {
    let maps = configmaps("busy");
    for round in 0_u64.. {
        let owners = families(&client, "busy", &format!("b{round}"), 4, 25).await?;
        for owner in owners {
            delete(&client, &format!("{maps}/{owner}"), "Background").await?;
        }
    }
    Ok(())
}

fn at(name: String) -> Option<ObjectRef> {
    let (kind, resource) = ("ConfigMap".to_owned(), "configmaps".to_owned());
    Some(ObjectRef { kind, resource, namespace: "world".to_owned(), name, ..ObjectRef::default() })
}

async fn first_pages(ask: &GraphServiceClient<Channel>, owner: &str) -> anyhow::Result<Samples> {
    let mut times = Samples::default();
    for _ in 0..ASKED {
        let request = ListDependentsRequest { r#ref: at(owner.to_owned()), ..ListDependentsRequest::default() };
        let begun = Instant::now();
        let answer = ask.clone().list_dependents(request).await?.into_inner();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.dependents.len() == FAMILY, "{} dependents of {owner}", answer.dependents.len());
    }
    Ok(times)
}

async fn asked(ask: &GraphServiceClient<Channel>, owners: usize) -> anyhow::Result<Figures> {
    let (mut get, mut dependents, mut explain) = (Samples::default(), Samples::default(), Samples::default());
    for number in 0..ASKED {
        let owner = (number * 7919) % owners.max(1);
        let child = format!("o-{owner}-{}", number % FAMILY);
        let begun = Instant::now();
        ask.clone().get_object(GetObjectRequest { r#ref: at(child.clone()), ..Default::default() }).await?;
        get.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let request = ListDependentsRequest { r#ref: at(format!("o-{owner}")), ..ListDependentsRequest::default() };
        let answer = ask.clone().list_dependents(request).await?.into_inner();
        dependents.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.dependents.len() == FAMILY, "{} dependents of o-{owner}", answer.dependents.len());
        let begun = Instant::now();
        ask.clone().explain_object(ExplainObjectRequest { r#ref: at(child), ..Default::default() }).await?;
        explain.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Figures { get, dependents, explain, ..Figures::default() })
}

async fn preview(ask: &GraphServiceClient<Channel>, uid: &str, tree: usize) -> anyhow::Result<Samples> {
    let mut times = Samples::default();
    for _ in 0..PREVIEWED {
        let targets = vec![ObjectRef { uid: uid.to_owned(), ..ObjectRef::default() }];
        let request = PreviewDeletionRequest { targets, ..PreviewDeletionRequest::default() };
        let begun = Instant::now();
        let answer: PreviewDeletionResponse = ask.clone().preview_deletion(request).await?.into_inner();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let planned: u64 = answer.totals.iter().map(|total| total.count).sum();
        ensure!(planned > tree as u64, "the plan is of {:?}", answer.totals);
    }
    Ok(times)
}

async fn uid_of(client: &Client, maps: &str, name: &str) -> anyhow::Result<String> {
    let object = load::get(client, format!("{maps}/{name}")).await?.with_context(|| format!("{name} is gone"))?;
    object["metadata"]["uid"].as_str().map(str::to_owned).context("an object has a uid")
}

/// The rounds of the engine by duration: the upper bound of each bucket in seconds, and the rounds in that bucket
/// alone.
async fn rounds(fleet: &Fleet) -> anyhow::Result<Vec<(f64, f64)>> {
    let (_, metrics) = fleet.graph.get("/metrics").await?;
    let mut below = 0.0;
    let mut buckets = Vec::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix("ownergraph_round_duration_seconds_bucket{le=\"") else { continue };
        let (bound, count) = rest.split_once("\"} ").context("a bucket's bound and count")?;
        let (bound, count): (f64, f64) = (bound.parse().unwrap_or(f64::INFINITY), count.parse()?);
        buckets.push((bound, count - below));
        below = count;
    }
    Ok(buckets)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} objects, {} collected meanwhile", self.objects, self.collected)?;
        let rows = [
            ("First page of 100, at rest", &self.page_of_few),
            ("First page of 10 000, at rest", &self.page_of_many),
            ("GetObject", &self.get),
            ("ListDependents of 100", &self.dependents),
            ("ExplainObject", &self.explain),
            ("PreviewDeletion of 10 000", &self.preview),
        ];
        for (what, times) in rows {
            let [p50, p99, most] = [50, 99, 100].map(|percent| times.percentile(percent));
            writeln!(f, "{what:<30} p50 {p50:7.2} ms   p99 {p99:7.2} ms   longest {most:7.2} ms")?;
        }
        writeln!(f, "no round of the engine took {:.1} ms", self.round_below * 1e3)
    }
}
