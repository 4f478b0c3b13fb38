//! Everything of this crate that reads bytes from outside, one function each, for those who try what it makes of any bytes. What is wrong
//! with them has to be said, in a sentence of bounded length; nothing panics.

use crate::{decisions, grpc, ingest};

/// Documents of discovery, of either form.
pub fn discovery(bytes: &[u8]) {
    ingest::fuzzing::discovery(bytes);
}

/// A custom resource definition, an APIService, a Pause.
pub fn definitions(bytes: &[u8]) {
    ingest::fuzzing::definitions(bytes);
}

/// Expressions and filters.
pub fn filters(bytes: &[u8]) {
    grpc::fuzzing::filters(bytes);
}

/// Tokens of pages, of streams and of freshness.
pub fn tokens(bytes: &[u8]) {
    grpc::fuzzing::tokens(bytes);
}

/// A message of the shared log of decisions.
pub fn log_entry(bytes: &[u8]) {
    decisions::fuzzing::log_entry(bytes);
}
