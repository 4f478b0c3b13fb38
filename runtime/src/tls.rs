//! TLS between services: certificates are checked at the start and reloaded while the process runs.
//!
//! A server reads its files every few seconds, a caller at each new connection. New content applies to new connections,
//! and existing ones continue. These errors can occur:
//!
//! * *At the start*: a file is missing or not PEM, a certificate has expired or is not valid yet, a key belongs to
//!   another certificate, a file of authorities is empty. The process does not start, and prints one sentence that
//!   names flag and file.
//! * *While running*: after any of these, the earlier certificates stay in use. Files that are written one after the
//!   other do not match for a moment, so the error is logged once, and only if two consecutive reads fail.
//! * *In a handshake*: the peer refuses it, it takes too long, or the peer does not use TLS. A server counts the
//!   failure by reason, and logs each reason once a minute. A caller gets a sentence about the certificate. In TLS 1.3
//!   a caller learns of a refused certificate only by reading, so a server lets the caller read before it closes.
//!
//! Sessions are never resumed, because a resumed session would not check whether the certificate has expired.
//!
//! In reading order: `flags`, `files`, `identity`, `server`, `caller`, `connector`, `token`, `reasons`, `metrics`.

mod caller;
mod connector;
pub(crate) mod files;
mod flags;
mod identity;
mod metrics;
mod reasons;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod token;

pub use caller::{Caller, Complaint, Foreign, Held, Secured};
pub use connector::Connector;
pub use files::BadTls;
pub use flags::{CallerFlags, ServerFlags};
pub use identity::{Peer, PeerCertificate};
pub use metrics::{TlsMetrics, described};
pub use server::{Accepted, Protocol, ServerTls};
pub use token::TokenFile;
