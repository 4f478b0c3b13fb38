//! The gRPC server: work for executors, questions for policy engines, reads for clients, health and reflection.

use crate::decisions::DecisionLog;
use crate::driver::Reader;
use crate::gates::Router;
use crate::guards::press::Press;
use crate::messages::Leadership;
use crate::messages::SessionInput;
use crate::metrics::Metrics;
use crate::readiness::Health;
use crate::recorder::Recorded;
use crate::threads::ReaderThreads;
use access::guard::GuardLayer;
use access::{Authenticator, Visibility};
use bounds::Bounded;
use connection::Incoming;
use deadline::DeadlineLayer;
use door::DoorLayer;
use engine::view::CollectionStatus;
use freshness::{About, Freshness};
use http::Response;
use proto::admin::v1beta1::admin_service_server::AdminServiceServer;
use proto::decision::v1beta1::gate_service_server::GateServiceServer;
use proto::graph::v1beta1::graph_service_server::GraphServiceServer;
use proto::r#type::v1beta1::{ConsistencyToken, ReplicaRole, ResponseMeta};
use proto::work::v1beta1::work_service_server::WorkServiceServer;
use runtime::clock::Clock;
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
use web::Origins;

pub(crate) mod access;
mod admin;
mod bounds;
pub(crate) mod connection;
mod deadline;
mod decisions;
mod door;
mod filter;
mod followers;
pub(crate) mod freshness;
pub(crate) mod fuzzing;
mod gates;
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
pub(crate) mod web;
mod work;

/// Bound of the queue of executors' messages. It has room for the messages of all streams, so that one stream cannot
/// fill the queue for another.
pub(crate) const SESSION_QUEUE_MAX: usize = work::STREAMS_MAX * (work::MESSAGES_WAITING_MAX + 2);

/// Window of one stream. A stream that its reader does not read must not use up the window of its connection.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const STREAMS_PER_CONNECTION_MAX: u32 = 256;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of all headers of a request. It allows the longest accepted token, and longer ones that are refused
/// with a reason.
const HEADERS_MAX_BYTES: u32 = 64 * 1024;
/// Maximum size of a message. Every message of this API is far smaller.
const MESSAGE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of long reads at once.
const LONG_READS_MAX: usize = 4;
/// Time span over which clients reconnect whose streams end at the same time.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time for connections to close after a request to stop. It is below the limit of the whole process.
const CLOSE_WITHIN: Duration = Duration::from_secs(7);

/// The age at which a stream is renewed: `about`, plus or minus a tenth, so that streams that opened together do not
/// close together.
fn renewal_age(about: Duration) -> Duration {
    spread(about - about / 10, about / 5)
}

/// A random time between `from` and `from + width`.
fn spread(from: Duration, width: Duration) -> Duration {
    // Without random numbers the times are not spread.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    from + width.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// The delay before a client reconnects whose stream ends.
fn reconnect_after() -> Option<prost_types::Duration> {
    spread(Duration::ZERO, RECONNECT_WITHIN).try_into().ok()
}

/// Runs work that blocks or takes long, and needs no graph, on a thread of its own, away from the driver.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_cancelled) => status::stopping(),
    })
}

/// The state that all services read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) reader: Reader,
    pub(crate) sessions: mpsc::Sender<SessionInput>,
    pub(crate) decisions: DecisionLog,
    /// The questions to policy engines.
    pub(crate) gates: Router,
    /// Ends all streams.
    pub(crate) shutdown: Shutdown,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) cluster_uid: String,
    pub(crate) replica: String,
    pub(crate) freshness: Freshness,
    /// Permits for long reads; see [`long_reads`].
    pub(crate) long_reads: Semaphore,
    /// Authenticates callers. `None` if callers are not authenticated.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    /// The configuration of this process as JSON, without secrets.
    pub(crate) configuration: String,
    /// The recording of this process; `None` if it records nothing.
    pub(crate) recorded: Option<Recorded>,
}

/// Permits for walks, plans, searches and reads of the log. Calls without a permit wait.
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

    /// Why a stream ends without an error, and when its client calls again.
    fn going_away(&self) -> (String, Option<prost_types::Duration>) {
        let reason = if self.shutdown.is_requested() { "this replica is stopping" } else { "the stream is renewed" };
        (reason.to_owned(), reconnect_after())
    }

    /// Returns the objects that the caller may see. A call that did not pass the authenticator sees nothing, if there
    /// is an authenticator.
    fn visibility(&self, extensions: &Extensions) -> Result<Visibility, Status> {
        match (&self.authenticator, extensions.get::<Visibility>()) {
            (_, Some(visibility)) => Ok(visibility.clone()),
            (None, None) => Ok(Visibility::default()),
            (Some(_), None) => Err(status::credentials_missing("")),
        }
    }

    /// Metadata of an answer that may contain objects of any collection. Call this before reading the objects, so that
    /// the answer is at least as fresh as the metadata says. Never call it while holding the reader's lock, because it
    /// takes that lock.
    fn meta(&self) -> ResponseMeta {
        self.meta_about(&About::Everything)
    }

    /// Metadata of an answer about these collections.
    fn meta_about(&self, about: &About) -> ResponseMeta {
        let positions = self.freshness.now();
        self.meta_of(&self.reader.with(|queries| queries.collections()), positions.token(about))
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

/// Adds reasons to answers.
type Reasons = MapResponseLayer<fn(Response<Body>) -> Response<Body>>;

/// The layers outside of the guard. They check that a request is a gRPC call, translate a call of gRPC-Web into one,
/// and add the reason and the deadline to its answer.
type Outermost = Stack<DeadlineLayer, Stack<Reasons, DoorLayer>>;

/// The layers before the services. Only calls that pass the guard have spans, so that unauthenticated clients can
/// neither fill the queue of spans nor write into it.
fn before_services(
    authenticator: Option<Arc<Authenticator>>,
    recorder: Option<Recorder>,
    origins: Origins,
) -> Stack<spans::Calls, Stack<GuardLayer, Outermost>> {
    let reasons: Reasons = MapResponseLayer::new(reasons::complete);
    let outermost = Stack::new(DeadlineLayer, Stack::new(reasons, DoorLayer(origins)));
    Stack::new(spans::Calls::new(recorder), Stack::new(GuardLayer(authenticator), outermost))
}

/// Starts the server and its tasks. It ends after `shutdown` is requested and every stream has ended, or after
/// [`CLOSE_WITHIN`].
pub(crate) fn start(
    incoming: Incoming,
    shared: Arc<Shared>,
    press: Press,
    recorder: Option<Recorder>,
    origins: Origins,
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
        let before = before_services(shared.authenticator.clone(), recorder, origins.clone());
        let graph = GraphServiceServer::new(graph::Graph::new(Arc::clone(&shared), followers.clone()));
        let answers = decisions::Decisions::new(Arc::clone(&shared), followers.clone());
        let decisions = decisions::watching::Watching::new(answers);
        let gates = GateServiceServer::new(gates::Gates::new(Arc::clone(&shared)));
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
            // Browsers use HTTP/2 only over TLS.
            .accept_http1(origins.are_given())
            .layer(before)
            .add_service(WorkServiceServer::new(work).max_decoding_message_size(MESSAGE_MAX_BYTES))
            .add_service(Bounded::new(
                graph
                    .max_decoding_message_size(MESSAGE_MAX_BYTES)
                    .accept_compressed(CompressionEncoding::Gzip)
                    .send_compressed(CompressionEncoding::Gzip),
            ))
            .add_service(Bounded::new(decisions))
            .add_service(gates.max_decoding_message_size(MESSAGE_MAX_BYTES))
            .add_service(Bounded::new(admin.max_decoding_message_size(MESSAGE_MAX_BYTES)))
            .add_service(health)
            .add_service(reflection.v1())
            .add_service(reflection.v1alpha())
            .serve_with_incoming_shutdown(incoming, async move { stop.requested().await });
        // The library waits for open connections without a limit. One peer could keep the process from ending.
        let limit = async {
            shutdown.requested().await;
            tokio::time::sleep(CLOSE_WITHIN).await;
        };
        tokio::select! {
            ended = server => ended?,
            () = limit => tracing::info!("closing connections that are still open"),
        }
        Ok(())
    });
}
