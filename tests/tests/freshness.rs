//! Read your writes. A reader that asks for a recent write gets its result, and a follower sees each object come and
//! go.

use anyhow::{Context, ensure};
use kube::Client;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::watch_dependents_response::{ChangeType, Event};
use proto::graph::v1beta1::{
    GetObjectRequest, ListDependentsRequest, WaitForFreshnessRequest, WatchDependentsRequest, WatchDependentsResponse,
};
use proto::r#type::v1beta1::consistency::Requirement;
use proto::r#type::v1beta1::{Consistency, GroupResource, ObjectRef, ResourceVersionBound, ResourceVersionBounds};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tests::controlplane::{ControlPlane, require};
use tests::embedded::Api;
use tests::load::{self, configmap, configmaps, create, delete, reference_to};
use tests::process::Directory;
use tests::service::{Fleet, Programs};
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tonic::transport::Channel;

const SOON: Duration = Duration::from_secs(30);
const CHILDREN: usize = 20;

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn of(uid: &str) -> Option<ObjectRef> {
    Some(ObjectRef { uid: uid.to_owned(), ..ObjectRef::default() })
}

fn freshness(requirement: Requirement) -> Option<Consistency> {
    let max_wait = Some(prost_types::Duration { seconds: 10, nanos: 0 });
    Some(Consistency { requirement: Some(requirement), max_wait })
}

/// Returns the dependents of the owner by name, as the messages of a stream show them.
async fn follow(
    stream: &mut Streaming<WatchDependentsResponse>,
    seen: &mut BTreeSet<String>,
    until: impl Fn(&BTreeSet<String>) -> bool,
) -> anyhow::Result<()> {
    while !until(seen) {
        let message = timeout(SOON, stream.message()).await.with_context(|| format!("{seen:?} for too long"))??;
        let Some(Event::Batch(batch)) = message.context("the stream goes on")?.event else { continue };
        for change in batch.changes {
            let gone = change.r#type() == ChangeType::Removed;
            let object = change.node.and_then(|node| node.r#ref).context("a change is of an object")?;
            let changed = if gone { seen.remove(&object.name) } else { seen.insert(object.name) };
            ensure!(changed || change.r#type == ChangeType::Changed as i32, "told of once");
        }
    }
    Ok(())
}

async fn read_your_writes(programs: &Programs, client: &Client, kubeconfig: &Path) -> anyhow::Result<()> {
    let fleet = Fleet::start(programs, kubeconfig, 1).await?;
    let channel = Channel::from_shared(format!("http://{}", fleet.grpc()))?.connect().await?;
    let mut graph = GraphServiceClient::new(channel);
    load::namespace(client, "fresh").await?;
    let maps = configmaps("fresh");
    let owner = create(client, &maps, &configmap("owner", &[])).await?;
    let mut token = None;
    for number in 0..CHILDREN {
        let child = create(client, &maps, &configmap(&format!("child-{number}"), &[reference_to(&owner)])).await?;
        let bound = ResourceVersionBound {
            group_resource: Some(GroupResource { group: String::new(), resource: "configmaps".to_owned() }),
            resource_version: text(&child, "resourceVersion").to_owned(),
        };
        let consistency = match number % 2 {
            0 => freshness(Requirement::Latest(true)),
            _ => freshness(Requirement::AtLeast(ResourceVersionBounds { bounds: vec![bound] })),
        };
        if number % 2 == 1 {
            let request = GetObjectRequest {
                r#ref: of(text(&child, "uid")),
                consistency: consistency.clone(),
                ..Default::default()
            };
            let found = graph.get_object(request).await?.into_inner();
            token = found.meta.and_then(|meta| meta.as_of);
        }
        let request = ListDependentsRequest { r#ref: of(text(&owner, "uid")), consistency, ..Default::default() };
        let found = graph.list_dependents(request).await?.into_inner();
        ensure!(found.dependents.len() == number + 1, "{} of {}", found.dependents.len(), number + 1);
    }
    let begun = Instant::now();
    for requirement in [Requirement::AtLeastAsFresh(token.context("a token came")?), Requirement::Latest(true)] {
        graph.wait_for_freshness(WaitForFreshnessRequest { consistency: freshness(requirement) }).await?;
    }
    ensure!(begun.elapsed() < SOON, "{:?}", begun.elapsed());

    let request = WatchDependentsRequest { r#ref: of(text(&owner, "uid")), ..Default::default() };
    let mut stream = graph.watch_dependents(request).await?.into_inner();
    let mut seen = BTreeSet::new();
    follow(&mut stream, &mut seen, |seen| seen.len() == CHILDREN).await?;
    create(client, &maps, &configmap("late", &[reference_to(&owner)])).await?;
    follow(&mut stream, &mut seen, |seen| seen.contains("late")).await?;
    delete(client, &format!("{maps}/owner"), "Background").await?;
    follow(&mut stream, &mut seen, BTreeSet::is_empty).await
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_read_on_the_sandbox() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    read_your_writes(&Programs::build()?, &api.client, &api.kubeconfig).await
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_read_on_a_real_api_server() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    read_your_writes(&Programs::build()?, &plane.client().await?, plane.kubeconfig()).await
}
