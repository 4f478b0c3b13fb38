//! Pauses in a plan. They hold the collector's deletions. They do not hold deletions by users and by controllers of the
//! API server.

use crate::coverage::Kind;
use crate::hold::is_exempt;
use crate::scope::Scope;
use crate::time::Time;
use alloc::string::String;

/// An active pause, or unreadable pauses.
#[derive(Clone, Debug)]
pub(crate) struct Brake {
    pub(crate) scope: Scope,
    /// Text for people.
    pub(crate) words: String,
    pub(crate) until: Option<Time>,
}

/// The first brake that holds an object of this kind and namespace.
pub(super) fn brake<'b>(brakes: &'b [Brake], kind: &Kind, namespace: &str) -> Option<&'b Brake> {
    let at = &kind.served()?.group_resource;
    if is_exempt(&at.group, &at.resource) {
        return None;
    }
    brakes.iter().find(|brake| brake.scope.covers(&at.group, &at.resource, namespace))
}
