//! Streams the whole graph. A chunk is sent only after the reader has taken the previous one.

use super::{Filter, STEP, Shared, Visibility};
use crate::grpc::access::redact;
use crate::grpc::followers::{Reader, Stop};
use crate::grpc::pages::{BYTES_MAX, ENTRY_BYTES};
use crate::grpc::status;
use engine::leader::Scan;
use engine::view::{EdgeView, NodeView};
use prost::Message as _;
use proto::graph::v1beta1::export_graph_response::{Chunk, Footer, Header, Part};
use proto::graph::v1beta1::{Edge, ExportGraphResponse, Node};
use proto::r#type::v1beta1::ResponseMeta;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::Status;

/// The progress of an export.
enum Stage {
    Header(ResponseMeta),
    Chunks(Scan),
    End,
}

/// The export of one graph.
pub(super) struct Export {
    shared: Arc<Shared>,
    include: Option<Filter>,
    visibility: Visibility,
    stage: Stage,
    /// Read, and not sent yet.
    waiting: VecDeque<(Option<Node>, VecDeque<Edge>)>,
    sent: Footer,
}

impl Export {
    pub(super) fn of(
        shared: Arc<Shared>,
        include: Option<Filter>,
        visibility: Visibility,
        meta: ResponseMeta,
    ) -> Export {
        let stage = Stage::Header(meta);
        Export { shared, include, visibility, stage, waiting: VecDeque::new(), sent: Footer::default() }
    }

    /// Sends header, chunks and footer.
    pub(super) async fn run(mut self, reader: Reader<ExportGraphResponse>) -> Result<(), Status> {
        let shared = Arc::clone(&self.shared);
        let send_all = async {
            while let Some(part) = self.next().await {
                let sent = reader.send(ExportGraphResponse { part: Some(part) }).await;
                sent.map_err(|why| Stop::untaken(why, status::slow_export_reader))?;
            }
            Ok(())
        };
        reader.export(&shared.shutdown, send_all).await
    }

    async fn next(&mut self) -> Option<Part> {
        loop {
            match &mut self.stage {
                Stage::Header(meta) => {
                    let meta = Some(std::mem::take(meta));
                    self.stage = Stage::Chunks(Scan::default());
                    let status = self.shared.reader.with(|queries| queries.status());
                    let (node_estimate, edge_estimate) = match self.visibility.sees_everything() {
                        true => (status.nodes as u64, status.edges as u64),
                        false => (0, 0),
                    };
                    return Some(Part::Header(Header { meta, node_estimate, edge_estimate }));
                }
                Stage::Chunks(_) if !self.waiting.is_empty() => return Some(Part::Chunk(self.chunk())),
                Stage::Chunks(scan) => match self.shared.reader.with(|queries| scan.export(queries, STEP)) {
                    Some(found) => {
                        let admitted = |node: &NodeView| {
                            self.visibility.sees(&node.object.namespace)
                                && self.include.as_ref().is_none_or(|filter| filter.admits(node))
                        };
                        let admitted = found.into_iter().filter(|(node, _)| admitted(node));
                        let whole = |(node, edges): (NodeView, Vec<EdgeView>)| {
                            let mut edges: Vec<Edge> = edges.into_iter().map(Edge::from).collect();
                            redact::edges(&self.visibility, &mut edges);
                            (Some(Node::from(node)), VecDeque::from(edges))
                        };
                        self.waiting.extend(admitted.map(whole));
                        // Lets other tasks run although the filter admits few objects.
                        tokio::task::yield_now().await;
                    }
                    None => {
                        self.stage = Stage::End;
                        return Some(Part::Footer(self.sent));
                    }
                },
                Stage::End => return None,
            }
        }
    }

    /// Takes waiting entries, as many as fit into one message.
    fn chunk(&mut self) -> Chunk {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        while let Some((node, edges)) = self.waiting.front_mut() {
            // One object may have more references than a chunk holds. The node is in the chunk with its first
            // references.
            bytes += node.as_ref().map_or(0, |node| node.encoded_len() + ENTRY_BYTES);
            if bytes > BYTES_MAX && (!chunk.nodes.is_empty() || !chunk.edges.is_empty()) {
                break;
            }
            chunk.nodes.extend(node.take());
            while let Some(edge) = edges.front() {
                bytes += edge.encoded_len() + ENTRY_BYTES;
                if bytes > BYTES_MAX && (!chunk.nodes.is_empty() || !chunk.edges.is_empty()) {
                    break;
                }
                chunk.edges.extend(edges.pop_front());
            }
            if !edges.is_empty() {
                break;
            }
            self.waiting.pop_front();
        }
        self.sent.node_count += chunk.nodes.len() as u64;
        self.sent.edge_count += chunk.edges.len() as u64;
        chunk
    }
}
