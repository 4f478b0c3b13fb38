//! `export`: the whole graph, a snapshot of it, or a bundle.

use super::bundle;
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Export, Format};
use super::naming::{lines_by_type, listing};
use super::narrow::Narrow;
use super::picture;
use super::service::{Need, Service};
use super::session::Session;
use super::snapshot::Exported;
use super::snapshot::{Header, Snapshot};
use crate::counted::counted;
use anyhow::Context as _;
use proto::r#type::v1beta1::GroupResource;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

const FORMATS: [Format; 6] = [Format::Ndjson, Format::Json, Format::Yaml, Format::Dot, Format::Mermaid, Format::Name];

pub(super) async fn run(mut flags: Export) -> Answered {
    if let Some(file) = flags.bundle.take() {
        return Box::pin(bundle::run(flags, file)).await;
    }
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    if let Some(path) = flags.snapshot {
        return snapshot(&mut session, &mut service, &path).await;
    }
    let mut all = service.export(session.include()).await?;
    session.lacks(&all.unsynced);
    Narrow::of(&flags.selectors, flags.ages).retain(&mut session, &mut all.nodes, |node| Some(node)).await;
    let kept: BTreeSet<&str> = all.nodes.iter().filter_map(|node| Some(node.r#ref.as_ref()?.uid.as_str())).collect();
    all.edges.retain(|edge| kept.contains(edge.dependent_uid.as_str()));
    write(&session, &all)?;
    session.note(&format!("{}, {}", counted(all.nodes.len(), "object"), counted(all.edges.len(), "reference")));
    Ok(Ending::Fine)
}

/// Writes the graph of the whole cluster into a file.
async fn snapshot(session: &mut Session, service: &mut Service, path: &Path) -> Answered {
    // The list of complete collections is requested first. A collection that becomes complete during the export may
    // lack objects, and must not count as complete.
    let covered = service.covered().await?;
    let all = service.export(Vec::new()).await?;
    if !all.unsynced.is_empty() {
        session.missed(format!(
            "not in the snapshot, because these collections are incomplete: {}",
            listing(&all.unsynced)
        ));
    }
    let client = &session.cluster.client;
    let asked =
        async { tokio::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated()) };
    let asked = tokio::time::timeout(session.connection.request_timeout, asked).await;
    let asked = asked.map_err(|_| {
        Problem::TimedOut(format!("{} did not answer a discovery request in time", session.cluster.url))
    })?;
    let (core, groups) =
        asked.with_context(|| format!("{} did not answer a discovery request", session.cluster.url))?;
    let mut now = prost_types::Timestamp::from(SystemTime::now());
    now.nanos = 0;
    let header = Header {
        server: session.cluster.url.clone(),
        cluster_uid: all.cluster_uid.clone(),
        namespace: session.namespace().to_owned(),
        collections: covered
            .into_iter()
            .filter(|of| !all.unsynced.contains(of))
            .map(|GroupResource { group, resource }| (group, resource))
            .collect(),
        ..Header::new(now.to_string(), core, groups)
    };
    let snapshot = Snapshot::of(header, &all);
    let size = snapshot.write(path)?;
    let Header { objects, collections, .. } = &snapshot.header;
    let (objects, collections) = (counted(*objects, "object"), counted(collections.len(), "collection"));
    session.note(&format!("{}: {objects} of {collections}, {size} bytes", path.display()));
    Ok(Ending::Fine)
}

fn write(session: &Session, all: &Exported) -> Result<(), Problem> {
    let (nodes, edges): (Vec<_>, Vec<_>) = (all.nodes.iter().collect(), all.edges.iter().collect());
    match session.format {
        Format::Json | Format::Yaml => {
            let schema = Schema::load()?;
            let document = Document::new(Kind::Graph).with("nodes", schema.values("Node", &all.nodes)?);
            session.print_document(document.with("edges", schema.values("Edge", &all.edges)?))
        }
        Format::Dot => session.print(&picture::dot(&nodes, &edges)),
        Format::Mermaid => session.print(&picture::mermaid(&nodes, &edges)),
        Format::Name => session.print(&lines_by_type(nodes.iter().map(|node| node.r#ref.as_ref()))),
        Format::Ndjson | Format::Table | Format::Wide | Format::Tree | Format::Html => {
            session.print(&Schema::load()?.lines("Node", &all.nodes)?)
        }
    }
}
