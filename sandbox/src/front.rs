//! The HTTP front of the model, for kubectl and Kubernetes clients.

mod answer;
mod discovery;
mod encode;
mod fault;
mod media;
mod objects;
mod openapi;
mod protobuf;
mod query;
mod reviews;
mod route;
mod server;
mod serving;
mod style;
mod table;
mod watch;

#[cfg(test)]
mod tests;

pub use fault::{Attempt, Fault, FaultAnswer, FaultId};
pub use server::{RequestCount, Server};
