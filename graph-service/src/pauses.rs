//! Pause resources of the cluster. This module reads and writes them; the engine applies them.
//!
//! In reading order: `resource` (the form of a Pause), `press` (creates and deletes one for a caller), `keeper` (writes
//! their status and deletes expired ones). `ingest::pauses` follows them.

pub(crate) mod keeper;
pub(crate) mod orders;
pub(crate) mod press;
pub(crate) mod resource;

use engine::guard::GuardKind;
use std::time::Duration;

/// The collection's path at the API server.
pub(crate) fn path(kind: GuardKind) -> String {
    format!("/apis/ownergraph.dev/v1alpha1/{}", kind.plural())
}

/// The name of the CustomResourceDefinition.
pub(crate) fn definition(kind: GuardKind) -> String {
    format!("{}.{}", kind.plural(), engine::hold::GROUP)
}

/// The path of the collection of pauses.
pub(crate) const PATH: &str = "/apis/ownergraph.dev/v1alpha1/pauses";
/// Plural name of the resource.
pub(crate) const RESOURCE: &str = "pauses";
/// Name of the CustomResourceDefinition.
pub(crate) const DEFINITION: &str = "pauses.ownergraph.dev";

/// Largest answer about one pause.
const ANSWER_MAX_BYTES: usize = 4 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
