//! Access to the API server: credentials, clients, and requests that distinguish kinds of failure.
//!
//! Requests are raw, because typed clients lose details that matter here: the kind of a 404, whether a request was sent
//! at all, headers.

mod access;
mod call;
mod client;
pub mod discovery;
mod frames;
mod gate;
mod lines;
mod live;
pub mod media;
pub mod metadata;
mod overrides;
pub mod path;
mod proxy;
mod request;
mod shown;
mod status;
mod trust;

pub use access::{Access, AccessError, AccessFlags};
pub use call::{Answer, BodyStream, CallError, Opened, call, open_stream};
pub use client::{Cluster, ClusterUidError, REQUESTS_PER_CONNECTION, await_cluster_uid, cluster_uid, connect};
pub use frames::Frames;
pub use gate::{Gate, Gated, Withheld, gated};
pub use lines::Lines;
pub use live::{Live, parse_object};
pub use overrides::Overrides;
pub use request::request;
pub use shown::Shown;
pub use status::{NotFound, Status, StatusCause, StatusDetails, classify_not_found, parse_status};
