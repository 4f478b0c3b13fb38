//! `export`: the whole graph.

use super::document::{self, Document, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Export, Format};
use super::naming::by_type;
use super::narrow::Narrow;
use super::picture;
use super::questions::{Exported, listing, within_namespace};
use super::service::{Need, Service};
use super::session::Session;
use std::collections::BTreeSet;

const FORMATS: [Format; 6] = [Format::Ndjson, Format::Json, Format::Yaml, Format::Dot, Format::Mermaid, Format::Name];

pub(super) async fn run(flags: Export) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let mut all = service.export(within_namespace(session.namespace(), flags.scope.all_namespaces)).await?;
    if !all.unsynced.is_empty() {
        session.missed(format!("not all is seen: {}", listing(&all.unsynced)));
    }
    Narrow::of(&flags.selectors, flags.ages).retain(&mut session, &mut all.nodes, |node| Some(node)).await;
    let kept: BTreeSet<&str> = all.nodes.iter().filter_map(|node| Some(node.r#ref.as_ref()?.uid.as_str())).collect();
    all.edges.retain(|edge| kept.contains(edge.dependent_uid.as_str()));
    write(&session, &all)?;
    session.note(&format!("{} objects, {} references", all.nodes.len(), all.edges.len()));
    Ok(Ending::Fine)
}

fn write(session: &Session, all: &Exported) -> Result<(), Problem> {
    let (nodes, edges): (Vec<_>, Vec<_>) = (all.nodes.iter().collect(), all.edges.iter().collect());
    match session.format {
        Format::Json | Format::Yaml => {
            let schema = Schema::load()?;
            let document = Document::new("GraphExport").with("nodes", schema.values("Node", &all.nodes)?);
            session.print_document(document.with("edges", schema.values("Edge", &all.edges)?))
        }
        Format::Dot => session.print(&picture::dot(&nodes, &edges)),
        Format::Mermaid => session.print(&picture::mermaid(&nodes, &edges)),
        Format::Name => {
            let name = |node: &&proto::graph::v1alpha1::Node| {
                format!("{}\n", by_type(&node.r#ref.clone().unwrap_or_default()))
            };
            session.print(&nodes.iter().map(name).collect::<String>())
        }
        Format::Ndjson | Format::Table | Format::Wide | Format::Tree => {
            let schema = Schema::load()?;
            let lines = all.nodes.iter().map(|node| schema.value("Node", node).map(|value| document::line(&value)));
            session.print(&lines.collect::<Result<String, _>>()?)
        }
    }
}
