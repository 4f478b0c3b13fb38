//! TLS between services: certificates that are checked at the start and swapped while the process runs.

mod identity;

pub use identity::{Peer, PeerCertificate};
