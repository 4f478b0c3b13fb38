//! Pauses, as far as a plan is concerned: they hold what the collector destroys, and neither a person nor the controllers of the API server.

use crate::coverage::Kind;
use crate::hold::{Scope, is_exempt};
use crate::time::Time;
use alloc::string::String;

/// A pause that stands; or that it is not known which pauses there are.
#[derive(Clone, Debug)]
pub(crate) struct Brake {
    pub(crate) scope: Scope,
    /// For people.
    pub(crate) words: String,
    pub(crate) until: Option<Time>,
}

/// The first that holds an object of this kind and namespace.
pub(super) fn brake<'b>(brakes: &'b [Brake], kind: &Kind, namespace: &str) -> Option<&'b Brake> {
    let at = &kind.served.as_ref()?.group_resource;
    if is_exempt(&at.group, &at.resource) {
        return None;
    }
    brakes.iter().find(|brake| brake.scope.covers(&at.group, &at.resource, namespace))
}
