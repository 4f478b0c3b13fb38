//! `grpc.health.v1`: which services answer. Work, and the log of decisions, are the leader's alone, so that clients with health checking
//! find it.

use super::Shared;
use proto::admin::v1beta1::admin_service_server::SERVICE_NAME as ADMIN;
use proto::decision::v1beta1::decision_service_server::SERVICE_NAME as DECISION;
use proto::graph::v1beta1::graph_service_server::SERVICE_NAME as GRAPH;
use proto::work::v1beta1::work_service_server::SERVICE_NAME as WORK;
use runtime::shutdown::Shutdown;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// How soon health follows readiness.
const INTERVAL: Duration = Duration::from_millis(500);
/// The name that stands for the whole server.
const SERVER: &str = "";

/// Keeps the reported health true. Nothing is reported as serving any more once a stop was asked for.
pub(super) async fn follow(reporter: HealthReporter, shared: Arc<Shared>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut leadership = shared.leadership.clone();
    let mut told = BTreeMap::new();
    loop {
        let open = !shutdown.is_requested();
        let ready = open && shared.health.is_ready();
        let leading = open && leadership.borrow_and_update().leading;
        for (service, serves) in [(SERVER, ready), (GRAPH, ready), (ADMIN, open), (WORK, leading), (DECISION, leading)]
        {
            // Whoever watches is sent whatever is set, changed or not.
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
            // An election that has ended changes nothing any more; the interval goes on.
            Ok(()) = leadership.changed() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
