//! The whole graph as a stream: a chunk is made when the one before has been taken.

use super::{Filter, STEP, Shared};
use engine::leader::Scan;
use futures::stream::{self, BoxStream, StreamExt};
use proto::graph::v1alpha1::export_graph_response::{Chunk, Footer, Header, Part};
use proto::graph::v1alpha1::{Edge, ExportGraphResponse, Node};
use std::sync::Arc;
use tonic::Status;

/// Where an export is.
enum Stage {
    Header,
    Chunks(Scan),
    End,
}

struct Export {
    shared: Arc<Shared>,
    include: Option<Filter>,
    stage: Stage,
    sent: Footer,
}

/// Header, chunks, footer.
pub(super) fn stream(
    shared: Arc<Shared>,
    include: Option<Filter>,
) -> BoxStream<'static, Result<ExportGraphResponse, Status>> {
    let export = Export { shared, include, stage: Stage::Header, sent: Footer::default() };
    let part = |part: Part| Ok(ExportGraphResponse { part: Some(part) });
    stream::unfold(export, async |mut export| export.next().map(|part| (part, export))).map(part).boxed()
}

impl Export {
    fn next(&mut self) -> Option<Part> {
        match &mut self.stage {
            Stage::Header => {
                self.stage = Stage::Chunks(Scan::default());
                let status = self.shared.reader.with(engine::leader::Leader::status);
                let (node_estimate, edge_estimate) = (status.nodes as u64, status.edges as u64);
                Some(Part::Header(Header { meta: Some(self.shared.meta()), node_estimate, edge_estimate }))
            }
            Stage::Chunks(scan) => loop {
                let Some(found) = self.shared.reader.with(|leader| scan.export(leader, STEP)) else {
                    self.stage = Stage::End;
                    return Some(Part::Footer(self.sent));
                };
                let mut chunk = Chunk::default();
                let admitted = |filter: &Filter, object: &engine::object::ObjectRef| filter.admits(object);
                for (node, edges) in found {
                    if self.include.as_ref().is_none_or(|filter| admitted(filter, &node.object)) {
                        chunk.nodes.push(Node::from(node));
                        chunk.edges.extend(edges.into_iter().map(Edge::from));
                    }
                }
                if !chunk.nodes.is_empty() {
                    self.sent.node_count += chunk.nodes.len() as u64;
                    self.sent.edge_count += chunk.edges.len() as u64;
                    return Some(Part::Chunk(chunk));
                }
            },
            Stage::End => None,
        }
    }
}
