//! The graph service: watches every object's metadata, keeps the owner-reference graph, decides what is garbage, and leases the work to
//! executors. The deciding is the engine's; this is the shell around it.
//!
//! In reading order:
//!
//! * `app`: the service as one call
//! * [`options`]: its flags
//! * `driver`: the one task that owns the engine
//! * `messages`: what the tasks send each other
//! * `ingest`: lists and watches, as facts for the engine
//! * [`metadata`]: what they bring, as JSON or protobuf
//! * `election`: a Kubernetes Lease, as terms for the engine
//! * `grpc`: executors and readers
//! * `pauses`: the brake, as resources of the cluster
//! * `decisions`: the log of what was decided
//! * `render`, `metrics`: what the engine says, as lines and numbers
//! * `threads`: where the streams of readers are written
//! * `traces`: what the engine says, as spans of what belongs together
//! * `warnings`: Kubernetes events about references that cannot be right
//! * `readiness`, `dot`: what the admin server answers, and how far the start has come
//! * `fuzzing`: what reads bytes from outside, for those who try what it makes of any

mod app;
mod clock;
mod decisions;
mod dot;
mod driver;
mod election;
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod ingest;
mod messages;
pub mod metadata;
mod metrics;
pub mod options;
mod pauses;
mod readiness;
mod render;
mod threads;
mod traces;
mod warnings;

pub use app::{Config, Edges, Election, serve};
pub use decisions::{JetStream, Server};
pub use election::LeaseOptions;
pub use grpc::access::Access;
pub use grpc::connection::{Connection, Incoming, accept, accept_tls};
pub use metrics::described;
pub use render::Observer;
pub use threads::ReaderThreads;
