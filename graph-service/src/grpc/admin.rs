//! The state of the collector, on every replica.

use super::Shared;
use engine::leader::Leader;
use proto::admin::v1alpha1::admin_service_server::AdminService;
use proto::admin::v1alpha1::{GetStatusRequest, GetStatusResponse, ListExecutorsRequest, ListExecutorsResponse};
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Debug)]
pub(super) struct Admin {
    shared: Arc<Shared>,
}

impl Admin {
    pub(super) fn new(shared: Arc<Shared>) -> Admin {
        Admin { shared }
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn get_status(&self, _request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        let (status, collections) = self.shared.reader.with(|leader| (leader.status(), leader.collections()));
        let meta = self.shared.meta_of(&collections);
        let leader = self.shared.leadership().holder.unwrap_or_default();
        let now = self.shared.clock.now();
        Ok(Response::new(proto::convert::status(status, now, env!("CARGO_PKG_VERSION"), &leader, meta)))
    }

    async fn list_executors(
        &self,
        _request: Request<ListExecutorsRequest>,
    ) -> Result<Response<ListExecutorsResponse>, Status> {
        let executors = self.shared.reader.with(Leader::executors);
        let clock = self.shared.wire_clock();
        let executors = executors.into_iter().map(|view| proto::convert::executor(view, clock)).collect();
        Ok(Response::new(ListExecutorsResponse { executors, meta: Some(self.shared.meta()) }))
    }
}
