//! Reads of the graph, on every replica.

use super::{Shared, status};
use engine::leader::Leader;
use engine::object::Uid;
use engine::view::{NodeView, PresenceView};
use proto::graph::v1alpha1::graph_service_server::GraphService;
use proto::graph::v1alpha1::{GetObjectRequest, GetObjectResponse, ListCoverageRequest, ListCoverageResponse};
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Debug)]
pub(super) struct Graph {
    shared: Arc<Shared>,
}

impl Graph {
    pub(super) fn new(shared: Arc<Shared>) -> Graph {
        Graph { shared }
    }
}

#[tonic::async_trait]
impl GraphService for Graph {
    async fn get_object(&self, request: Request<GetObjectRequest>) -> Result<Response<GetObjectResponse>, Status> {
        let uid = request.into_inner().r#ref.map(|object| object.uid).unwrap_or_default();
        let uid = Uid::parse(&uid).ok_or_else(|| status::bad_field("ref.uid", "is empty"))?;
        let nodes = self.shared.reader.with(|leader| leader.nodes(&uid));
        let node = best_known(nodes).ok_or_else(|| status::object_not_found(&uid))?;
        Ok(Response::new(GetObjectResponse { node: Some(node.into()), meta: Some(self.shared.meta()) }))
    }

    async fn list_coverage(
        &self,
        _request: Request<ListCoverageRequest>,
    ) -> Result<Response<ListCoverageResponse>, Status> {
        let collections = self.shared.reader.with(Leader::collections);
        let meta = self.shared.meta_of(&collections);
        let clock = self.shared.wire_clock();
        let collections = collections.into_iter().map(|status| proto::convert::collection(status, clock)).collect();
        Ok(Response::new(ListCoverageResponse { collections, meta: Some(meta) }))
    }
}

/// Where references contradict each other about a uid, the object that was observed counts before those only claimed.
fn best_known(nodes: Vec<NodeView>) -> Option<NodeView> {
    nodes.into_iter().min_by_key(|node| match node.presence {
        PresenceView::Observed => 0,
        PresenceView::Virtual => 1,
        PresenceView::Absent => 2,
    })
}
