//! `grpc.health.v1`: the health of each service. Work, the decision log and gates are served only by the leader, so
//! that clients with health checking find it.

use super::Shared;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proto::admin::v1beta1::admin_service_server::SERVICE_NAME as ADMIN;
use proto::decision::v1beta1::decision_service_server::SERVICE_NAME as DECISION;
use proto::decision::v1beta1::gate_service_server::SERVICE_NAME as GATE;
use proto::graph::v1beta1::graph_service_server::SERVICE_NAME as GRAPH;
use proto::work::v1beta1::work_service_server::SERVICE_NAME as WORK;
use runtime::shutdown::Shutdown;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_check_response::ServingStatus as WireStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

/// Maximum delay between readiness and reported health.
const INTERVAL: Duration = Duration::from_millis(500);
/// The name of the whole server.
const SERVER: &str = "";

/// The health service. As the protocol requires, a watch of an unknown service is not an error.
pub(super) fn service(reporter: HealthReporter, shutdown: Shutdown) -> HealthServer<Watched> {
    HealthServer::new(Watched { inner: HealthService::from_health_reporter(reporter), shutdown })
}

/// See [`service`].
#[derive(Debug)]
pub(super) struct Watched {
    inner: HealthService,
    shutdown: Shutdown,
}

#[tonic::async_trait]
impl Health for Watched {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.inner.check(request).await
    }

    /// The set of services never changes, so an unknown service stays unknown.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        match self.inner.watch(request).await {
            Ok(known) => Ok(known.map(|stream| stream.boxed())),
            Err(status) if status.code() == Code::NotFound => {
                let unknown = HealthCheckResponse { status: WireStatus::ServiceUnknown.into() };
                let shutdown = self.shutdown.clone();
                let end = futures::stream::once(async move { shutdown.requested().await }).filter_map(async |()| None);
                Ok(Response::new(futures::stream::iter([Ok(unknown)]).chain(end).boxed()))
            }
            Err(status) => Err(status),
        }
    }
}

/// Updates the reported health. After a request to stop, no service is serving.
pub(super) async fn follow(reporter: HealthReporter, shared: Arc<Shared>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut leadership = shared.leadership.clone();
    let mut told = BTreeMap::new();
    loop {
        let open = !shutdown.is_requested();
        let ready = open && shared.health.is_ready();
        let leading = open && leadership.borrow_and_update().leading;
        let serves =
            [(SERVER, ready), (GRAPH, ready), (ADMIN, open), (WORK, leading), (DECISION, leading), (GATE, leading)];
        for (service, serves) in serves {
            // Only changed values are set, because the reporter notifies watchers even of an unchanged value.
            if told.insert(service, serves) != Some(serves) {
                let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
                reporter.set_service_status(service, status).await;
            }
        }
        if !open {
            return Ok(());
        }
        tokio::select! {
            () = shutdown.requested() => {}
            // After the end of the election, only the interval wakes this task.
            Ok(()) = leadership.changed() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
