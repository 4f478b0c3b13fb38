//! Guards in a plan. They hold the collector's deletions. They do not hold deletions by users and by controllers of the
//! API server.

use crate::time::Time;
use alloc::string::String;

/// A guard in force, or guards that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Brake {
    /// Text for people: the guard and its reason.
    pub(crate) words: String,
    pub(crate) reason: String,
    pub(crate) until: Option<Time>,
}
