//! The executor service: leases work from the graph service and carries it out at the API server, with its own
//! credentials.
//!
//! The executor has no state and decides nothing. In reading order:
//!
//! * `options`: the flags
//! * `app`: [`serve`], from edges to exit
//! * `driver`: the one task that owns the session machine of the engine
//! * `address`, `peers`: addresses of graph services
//! * `dial`: connections to them
//! * `stream`: one gRPC stream to a graph service
//! * `attempt`: leases as requests to the API server; the engine decides on each request
//! * `answer`: parsed answers of the API server
//! * `fuzzing`: entry points for fuzzing the readers of foreign bytes
//! * `server`, `health`, `metrics`: used by the modules above

mod address;
mod answer;
mod app;
mod attempt;
mod dial;
mod driver;
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod metrics;
mod options;
mod peers;
#[cfg(test)]
mod scripted;
mod server;
mod stream;
mod traces;

pub use address::is_loopback;
pub use app::{Edges, Exit, StartError, serve};
#[doc(hidden)]
pub use attempt::request::{PatchForm, patch_body};
pub use dial::{Channel, Connector, connect_over, connect_through, dial, endpoint};
pub use engine::session::Concurrency;
pub use metrics::{Metrics, described};
pub use options::{BadOptions, ConcurrencyOptions, Config, Options};
pub use peers::Resolver;
