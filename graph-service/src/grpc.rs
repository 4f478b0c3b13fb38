//! The gRPC front: work for executors, reads for everybody, health and reflection.

use crate::clock::Clock;
use crate::decisions::DecisionLog;
use crate::driver::Reader;
use crate::messages::Leadership;
use crate::messages::SessionInput;
use crate::metrics::Metrics;
use crate::pauses::press::Press;
use crate::readiness::Health;
use crate::threads::ReaderThreads;
use access::guard::GuardLayer;
use access::{Authenticator, Visibility};
use bounds::Bounded;
use connection::Incoming;
use deadline::DeadlineLayer;
use door::DoorLayer;
use engine::leader::Leader;
use engine::view::CollectionStatus;
use freshness::{About, Freshness};
use http::Response;
use proto::admin::v1beta1::admin_service_server::AdminServiceServer;
use proto::graph::v1beta1::graph_service_server::GraphServiceServer;
use proto::r#type::v1beta1::{ConsistencyToken, ReplicaRole, ResponseMeta};
use proto::work::v1beta1::work_service_server::WorkServiceServer;
use runtime::shutdown::Shutdown;
use runtime::tasks::Tasks;
use runtime::traces::Recorder;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::{Extensions, Status};
use tonic_health::server::HealthReporter;
use tower::layer::util::Stack;
use tower::util::MapResponseLayer;

pub(crate) mod access;
mod admin;
mod bounds;
pub(crate) mod connection;
mod deadline;
mod decisions;
mod door;
mod expression;
mod filter;
mod followers;
pub(crate) mod freshness;
pub(crate) mod fuzzing;
mod graph;
mod health;
mod names;
mod pages;
mod reasons;
mod reflection;
mod rights;
#[cfg(test)]
pub(crate) mod small_world;
mod spans;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod work;

/// Waiting messages of all executors together: what their streams may have waiting, so that one can never use up another's room.
pub(crate) const SESSION_QUEUE_MAX: usize = work::STREAMS_MAX * (work::MESSAGES_WAITING_MAX + 2);

/// One stream nobody reads must not use up the connection's window.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const STREAMS_PER_CONNECTION_MAX: u32 = 256;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Of a request, together. Room for the longest token and for what is longer, which is refused with a reason.
const HEADERS_MAX_BYTES: u32 = 64 * 1024;
/// Above what any message of ours needs by far.
const MESSAGE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Reads that look at much, at once.
const LONG_READS_MAX: usize = 4;
/// How long connections may take to close once a stop was asked for. Below the limit of the whole process.
const CLOSE_WITHIN: Duration = Duration::from_secs(7);

/// A stream's age at its renewal: give or take a tenth, so that those that came together do not leave together.
fn renewal_age(about: Duration) -> Duration {
    spread(about - about / 10, about / 5)
}

/// Somewhere in the time that begins after `from` and lasts for `width`.
fn spread(from: Duration, width: Duration) -> Duration {
    // Without randomness there is no spread, which hurts nobody.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    from + width.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// What the services answer from.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) reader: Reader,
    pub(crate) sessions: mpsc::Sender<SessionInput>,
    pub(crate) decisions: DecisionLog,
    /// Streams come to their end when this is asked for.
    pub(crate) shutdown: Shutdown,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) cluster_uid: String,
    pub(crate) replica: String,
    pub(crate) freshness: Freshness,
    /// Turns of reads that look at much; see [`long_reads`].
    pub(crate) long_reads: Semaphore,
    /// Whom calls have to pass; nothing where callers are not told apart.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
}

/// Walks, plans, searches and looks through the log at once; more wait for their turn.
pub(crate) fn long_reads() -> Semaphore {
    Semaphore::new(LONG_READS_MAX)
}

impl Shared {
    async fn long_read(&self) -> Result<SemaphorePermit<'_>, Status> {
        self.long_reads.acquire().await.map_err(|_closed| status::stopping())
    }

    fn leadership(&self) -> Leadership {
        self.leadership.borrow().clone()
    }

    /// What the caller of a call may see. A call that did not pass the authenticator, where there is one, sees nothing.
    fn visibility(&self, extensions: &Extensions) -> Result<Visibility, Status> {
        match (&self.authenticator, extensions.get::<Visibility>()) {
            (_, Some(visibility)) => Ok(visibility.clone()),
            (None, None) => Ok(Visibility::default()),
            (Some(_), None) => Err(status::credentials_missing("")),
        }
    }

    /// Of an answer that could have found something anywhere. To be asked before what the answer is read from, so that it is at least as
    /// fresh as this says. Must not be called under the reader's lock: it takes it itself.
    fn meta(&self) -> ResponseMeta {
        self.meta_about(&About::Everything)
    }

    /// Of an answer about these collections.
    fn meta_about(&self, about: &About) -> ResponseMeta {
        let positions = self.freshness.now();
        self.meta_of(&self.reader.with(Leader::collections), positions.token(about))
    }

    fn meta_of(&self, collections: &[CollectionStatus], as_of: ConsistencyToken) -> ResponseMeta {
        let leadership = self.leadership();
        let role = match leadership.leading {
            true => ReplicaRole::Leader,
            false if self.health.is_ready() => ReplicaRole::Standby,
            false => ReplicaRole::Syncing,
        };
        let (unsynced, unsynced_count) = proto::convert::unsynced(collections);
        ResponseMeta {
            replica: self.replica.clone(),
            role: role.into(),
            term: leadership.term.map(Into::into),
            leader_endpoint: leadership.endpoint,
            lag: proto::convert::lag(collections, self.clock.now()),
            unsynced,
            unsynced_count,
            cluster_uid: self.cluster_uid.clone(),
            as_of: Some(as_of),
        }
    }
}

/// Where answers get their reasons.
type Reasons = MapResponseLayer<fn(Response<Body>) -> Response<Body>>;

/// Outside of the guard: whether it is a call at all, and its answer's reasons and end.
type Outermost = Stack<DeadlineLayer, Stack<Reasons, DoorLayer>>;

/// What calls pass on their way to the services. Only those that the guard has let through have spans: strangers must not be able to fill
/// the queue of spans, nor to say what is written into it.
fn before_services(
    authenticator: Option<Arc<Authenticator>>,
    recorder: Option<Recorder>,
) -> Stack<spans::Calls, Stack<GuardLayer, Outermost>> {
    let reasons: Reasons = MapResponseLayer::new(reasons::complete);
    let outermost = Stack::new(DeadlineLayer, Stack::new(reasons, DoorLayer));
    Stack::new(spans::Calls::new(recorder), Stack::new(GuardLayer(authenticator), outermost))
}

/// Spawns the server and what belongs to it. It ends when `shutdown` was requested and every stream has ended, or soon after.
pub(crate) fn start(
    incoming: Incoming,
    shared: Arc<Shared>,
    press: Press,
    recorder: Option<Recorder>,
    (threads, shutdown): (ReaderThreads, Shutdown),
    tasks: &mut Tasks,
) {
    let (readers, work) = work::Work::new(Arc::clone(&shared));
    tasks.spawn_until_end("stream readers", readers.run());
    let (writers, followers) = followers::Followers::new();
    tasks.spawn_until_end("stream writers", threads.run(writers.run()));
    let reporter = HealthReporter::new();
    let health = health::service(reporter.clone(), shutdown.clone());
    tasks.spawn_until_end("grpc health", health::follow(reporter, Arc::clone(&shared), shutdown.clone()));
    tasks.spawn("grpc", async move {
        let reflection = reflection::Reflection::of(&[
            proto::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ])?;
        let before = before_services(shared.authenticator.clone(), recorder);
        let graph = GraphServiceServer::new(graph::Graph::new(Arc::clone(&shared), followers.clone()));
        let answers = decisions::Decisions::new(Arc::clone(&shared), followers.clone());
        let decisions = decisions::watching::Watching::new(answers);
        let admin = AdminServiceServer::new(admin::Admin::new(shared, press, followers));
        let stop = shutdown.clone();
        let server = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
            .http2_max_header_list_size(HEADERS_MAX_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .max_connection_age(2 * work::STREAM_AGE)
            .layer(before)
            .add_service(WorkServiceServer::new(work).max_decoding_message_size(MESSAGE_MAX_BYTES))
            .add_service(Bounded::new(
                graph
                    .max_decoding_message_size(MESSAGE_MAX_BYTES)
                    .accept_compressed(CompressionEncoding::Gzip)
                    .send_compressed(CompressionEncoding::Gzip),
            ))
            .add_service(Bounded::new(decisions))
            .add_service(Bounded::new(admin.max_decoding_message_size(MESSAGE_MAX_BYTES)))
            .add_service(health)
            .add_service(reflection.v1())
            .add_service(reflection.v1alpha())
            .serve_with_incoming_shutdown(incoming, async move { stop.requested().await });
        // The library's own end has no limit: one peer that keeps its connection open would hold the process.
        let limit = async {
            shutdown.requested().await;
            tokio::time::sleep(CLOSE_WITHIN).await;
        };
        tokio::select! {
            ended = server => ended?,
            () = limit => tracing::info!("connections that did not close in time are cut"),
        }
        Ok(())
    });
}
