//! Fuzz entry points: one function for each reader of foreign bytes in this crate. A reader reports bad input in a
//! sentence of bounded length, and never panics.

use crate::{audit, decisions, gates, grpc, ingest};

/// Discovery documents of either form.
pub fn discovery(bytes: &[u8]) {
    ingest::fuzzing::discovery(bytes);
}

/// A CustomResourceDefinition, an APIService, a Pause.
pub fn definitions(bytes: &[u8]) {
    ingest::fuzzing::definitions(bytes);
}

/// Expressions and filters.
pub fn filters(bytes: &[u8]) {
    grpc::fuzzing::filters(bytes);
}

/// Page tokens, resume tokens and consistency tokens.
pub fn tokens(bytes: &[u8]) {
    grpc::fuzzing::tokens(bytes);
}

/// A message of the shared decision log.
pub fn log_entry(bytes: &[u8]) {
    decisions::fuzzing::log_entry(bytes);
}

/// The answer of a webhook, and the spec of a Gate.
pub fn gates(bytes: &[u8]) {
    gates::fuzzing::gates(bytes);
}

/// Audit events of the API server, in a file or from its webhook.
pub fn audit(bytes: &[u8]) {
    audit::fuzzing::audit(bytes);
}
