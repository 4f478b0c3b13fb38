//! The graph service watches the metadata of all objects, keeps the owner-reference graph, decides what is garbage, and
//! leases the work to executors. The engine makes the decisions; this crate does the I/O around it.
//!
//! In reading order:
//!
//! * `app`: the service as one call
//! * [`options`]: its flags
//! * `driver`: the one task that owns the engine
//! * `messages`: the messages between tasks
//! * `ingest`: lists and watches, as facts for the engine
//! * `election`: a Kubernetes Lease, as terms for the engine
//! * `expression`: conditions in the Common Expression Language
//! * `gates`: policy engines
//! * `grpc`: the API for executors and readers
//! * `guards`: the resources of guards
//! * `decisions`: the decision log
//! * `render`, `metrics`: events of the engine as log lines and metrics
//! * `threads`: the threads that write the streams of readers
//! * `traces`: events of the engine as spans of cascades
//! * `warnings`: Kubernetes events about invalid references
//! * `audit`: the audit log of the API server, as inputs of the engine
//! * [`Flags`]: the flags as text, for bug reports
//! * `recorder`: the inputs of the engine in files
//! * `readiness`, `dot`: the answers of the admin server, and the progress of the start
//! * `fuzzing`: entry points for fuzzing the readers of foreign bytes

mod app;
mod audit;
mod clock;
mod decisions;
mod dot;
mod driver;
mod election;
mod expression;
mod flags;
#[doc(hidden)]
pub mod fuzzing;
mod gates;
mod grpc;
mod guards;
mod ingest;
mod messages;
mod metrics;
pub mod options;
mod readiness;
mod recorder;
mod render;
mod threads;
mod traces;
mod warnings;

pub use app::{Config, Edges, Election, serve};
pub use audit::{AuditSources, AuditWebhook};
pub use decisions::{JetStream, Server};
pub use election::LeaseOptions;
pub use flags::Flags;
pub use grpc::access::{Access, Reviewed};
pub use grpc::connection::{Connection, Incoming, accept, accept_tls};
pub use grpc::web::Origin;
pub use metrics::described;
pub use recorder::Settings as RecordSettings;
pub use render::Observer;
pub use threads::ReaderThreads;
