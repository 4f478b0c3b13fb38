//! The API server as a client sees it: finding it, building clients for it, and asking it in a way that keeps the kinds of failure apart.
//!
//! Requests are raw, because the answers that matter here (which kind of 404, whether a request was sent at all, what
//! stands in a header) do not survive a typed client.

mod access;
mod call;
mod client;
mod frames;
mod gate;
mod lines;
pub mod media;
mod overrides;
pub mod path;
mod request;
mod status;

pub use access::{Access, AccessError, AccessFlags};
pub use call::{Answer, BodyStream, CallError, Opened, call, open_stream};
pub use client::{Cluster, ClusterUidError, REQUESTS_PER_CONNECTION, cluster_uid, connect};
pub use frames::Frames;
pub use gate::{Gate, Gated, Withheld, gated};
pub use lines::Lines;
pub use overrides::Overrides;
pub use request::request;
pub use status::{NotFound, Status, StatusCause, StatusDetails, classify_not_found, parse_status};
