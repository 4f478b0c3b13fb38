//! The tests that need more than one crate, and what they share.

pub mod asking;
pub mod bench;
pub mod cascade;
pub mod chaos;
pub mod conformance;
pub mod contender;
pub mod controlplane;
pub mod differential;
mod draw;
pub mod embedded;
pub mod link;
pub mod load;
pub mod nats;
pub mod neighbours;
pub mod process;
pub mod proxy;
pub mod reader;
pub mod reference;
pub mod replicas;
pub mod scaling;
pub mod scenarios;
pub mod service;
pub mod sim;
pub mod start;
pub mod subscriber;
pub mod usage;
pub mod wire;
