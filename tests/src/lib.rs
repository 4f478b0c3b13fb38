//! The tests that need more than one crate, and what they share.

pub mod conformance;
pub mod controlplane;
pub mod differential;
pub mod embedded;
pub mod load;
pub mod process;
pub mod proxy;
pub mod service;
pub mod sim;
pub mod wire;
