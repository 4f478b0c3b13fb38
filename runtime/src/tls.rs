//! TLS between services: certificates that are checked at the start and swapped while the process runs.
//!
//! A server reads its files every few seconds, a caller whenever it opens a connection; what they say counts for connections that begin
//! from then on, and those that exist live on. What can go wrong:
//!
//! * *At the start* a file is missing or no PEM, a certificate has expired or is not valid yet, a key belongs to another certificate, a
//!   file of authorities is empty: one sentence that names flag and file, and the process does not start.
//! * *Later* the same keeps what was good before. Files that are written one after the other do not fit for a moment, so it is said when
//!   it lasts for two looks, and then once.
//! * *A handshake* is refused, takes too long, or is none. A server counts it by reason and says it once a minute for each; a caller is
//!   told in a sentence what is wrong with which certificate. In TLS 1.3 a caller learns only when it reads that its certificate was
//!   refused: a server lets it read that before it closes.
//!
//! Sessions are never taken up again: that would skip the check of a certificate that has ended meanwhile.
//!
//! In reading order: `flags`, `files`, `identity`, `server`, `caller`, `token`, `reasons`, `metrics`.

mod caller;
pub(crate) mod files;
mod flags;
mod identity;
mod metrics;
mod reasons;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod token;

pub use caller::{Caller, Complaint, Secured};
pub use files::BadTls;
pub use flags::{CallerFlags, ServerFlags};
pub use identity::{Peer, PeerCertificate};
pub use metrics::{TlsMetrics, described};
pub use server::{Accepted, Protocol, ServerTls};
