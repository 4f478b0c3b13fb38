//! An in-memory Kubernetes API server for demonstrations, tests and simulations.
//!
//! [`model::Model`] is the server as a pure state machine. [`Server`] serves it over HTTP for kubectl and any
//! Kubernetes client, on a socket or in the same process.

mod front;
mod kubeconfig;
pub mod model;

pub use front::{Attempt, Fault, FaultAnswer, FaultId, RequestCount, Server};
pub use kubeconfig::write_kubeconfig;
