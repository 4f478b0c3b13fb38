//! Pauses as resources of the cluster: read and written here, believed and obeyed by the engine.
//!
//! In reading order: `resource` (what a Pause looks like), `press` (creating and deleting one for a caller), `keeper` (their status,
//! and their end). Who follows them is `ingest::pauses`.

pub(crate) mod keeper;
pub(crate) mod press;
pub(crate) mod resource;

use std::time::Duration;

/// The collection's path at the API server.
pub(crate) const PATH: &str = "/apis/ownergraph.dev/v1alpha1/pauses";
/// Plural name of the resource.
pub(crate) const RESOURCE: &str = "pauses";
/// Name of the definition, and how people call the resource.
pub(crate) const DEFINITION: &str = "pauses.ownergraph.dev";

/// Largest answer about one pause.
const ANSWER_MAX_BYTES: usize = 4 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
