//! Taking one finalizer off an object.

use super::references::merge_patch;
use super::{Attempt, CONFLICT_RETRIES_MAX, Ending, Step, Written};
use crate::server::Verb;
use engine::work::Outcome;
use serde_json::{Value, json};

impl Attempt<'_> {
    /// Reads, then merges the list of the others at exactly the version that was read.
    pub(super) async fn remove_finalizer(&self, finalizer: &str) -> Step<Ending> {
        let mut live = self.read_target().await?;
        let mut retries = 0;
        loop {
            if !live.finalizers.iter().any(|name| name == finalizer) {
                return Ok(Ending::seen(Outcome::Unchanged, "the finalizer is not there", live));
            }
            if self.preconditions()?.must_be_terminating && !live.sighting.facts.terminating {
                return Ok(Ending::seen(Outcome::Conflict, "the object is not being deleted", live));
            }
            let rest: Vec<&String> = live.finalizers.iter().filter(|name| *name != finalizer).collect();
            let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
            let version = live.sighting.resource_version.clone();
            let patch = merge_patch(self, &version, "finalizers", rest)?;
            let refused = match self.write(Verb::Patch, patch).await? {
                Written::Accepted(reading, observed) => {
                    // Taking the last finalizer removes the object, and the answer shows it at the version it was removed at: there
                    // is no later one to wait for.
                    let observed = observed.filter(|seen| seen.resource_version != version);
                    return Ok(Ending { observed, ..Ending::from(reading) });
                }
                Written::Conflict(reading) => reading,
                Written::UnknownPatch(reading) => return Ok(Ending::from(reading)),
                Written::Refused(reading) => return self.after_refusal(reading).await,
            };
            live = self.after_conflict(refused, &version).await?;
            if retries == CONFLICT_RETRIES_MAX {
                return Ok(Ending::seen(Outcome::Conflict, "the object changes faster than it can be patched", live));
            }
            retries += 1;
        }
    }
}
