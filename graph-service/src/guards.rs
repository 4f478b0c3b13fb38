//! The resources of guards: pauses, protections, budgets, approvals and gates. This module reads and writes them; the
//! engine applies them.
//!
//! In reading order: `resource` (a guard from its resource), `status` (its status), `keeper` (writes statuses, and
//! deletes expired pauses), `press` (creates and deletes a Pause for a caller, and bypasses a gate), `orders` (carries
//! out what the engine orders). `ingest::guards` follows the resources.

pub(crate) mod keeper;
pub(crate) mod orders;
pub(crate) mod press;
pub(crate) mod resource;
pub(crate) mod status;

use engine::guard::GuardKind;
use engine::hold::GROUP;
use engine::object::Uid;
use k8s_openapi::jiff::fmt::rfc2822;
use kube_api::Answer;
use serde_json::{Value, json};
use std::time::Duration;

/// The version of guards that is read and written.
pub(crate) const VERSION: &str = "v1alpha1";

/// The path of the collection at the API server.
pub(crate) fn path(kind: GuardKind) -> String {
    format!("/apis/{GROUP}/{VERSION}/{}", kind.plural())
}

/// The name of the CustomResourceDefinition.
pub(crate) fn definition(kind: GuardKind) -> String {
    format!("{}.{GROUP}", kind.plural())
}

/// The body of a request to delete the object with this uid.
fn deletion_of(uid: &Uid) -> Value {
    json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": uid.to_string() } })
}

/// Largest answer about one guard.
const ANSWER_MAX_BYTES: usize = 4 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The time of an answer since 1970, from the header `Date`.
pub(crate) fn date(answer: &Answer) -> Option<Duration> {
    let seconds = rfc2822::DateTimeParser::new().parse_timestamp(answer.date.as_ref()?).ok()?.as_second();
    u64::try_from(seconds).ok().map(Duration::from_secs)
}
