//! DELETE under preconditions, after its owner checks.

use super::{ACCEPT, Attempt, CONFLICT_RETRIES_MAX, Ending, Step, Written, request};
use crate::attempt::metadata::Live;
use crate::server::Verb;
use engine::object::{ObjectRef, ResourceVersion};
use engine::work::{Outcome, PropagationPolicy};
use serde_json::json;

impl Attempt<'_> {
    /// One DELETE where nothing moved; after a conflict another one only while everything the decision rested on is as it was.
    pub(super) async fn delete(&self, policy: PropagationPolicy, owner_checks: &[ObjectRef]) -> Step<Ending> {
        let mut version = self.preconditions()?.resource_version.clone();
        if self.reads_first() {
            let live = self.read_target().await?;
            if live.sighting.facts.terminating {
                return Ok(Ending::seen(Outcome::Unchanged, "the object is being deleted already", live));
            }
            version = self.still_as_decided(live)?;
        }
        let mut retries = 0;
        loop {
            self.check_owners(owner_checks).await?;
            // Nothing waits between the owner checks and the write: they are at most a second old when it leaves.
            let refused = match self.write(Verb::Delete, self.delete_request(policy, &version)?).await? {
                Written::Accepted(reading, observed) => return Ok(Ending { observed, ..Ending::from(reading) }),
                Written::Conflict(reading) => reading,
                Written::UnknownPatch(reading) | Written::Refused(reading) => return Ok(Ending::from(reading)),
            };
            let live = self.after_conflict(refused, &version).await?;
            if live.sighting.facts.terminating {
                return Ok(Ending::seen(Outcome::Conflict, "the object is being deleted by now", live));
            }
            if !live.sighting.resource_version.reached(&version) {
                return Ok(Ending::seen(Outcome::Conflict, "the object's version does not follow the known one", live));
            }
            if retries == CONFLICT_RETRIES_MAX {
                return Ok(Ending::seen(Outcome::Conflict, "the object changes faster than it can be deleted", live));
            }
            retries += 1;
            version = self.still_as_decided(live)?;
        }
    }

    /// The version to delete at, where the object still shows what the decision rested on.
    fn still_as_decided(&self, live: Live) -> Step<ResourceVersion> {
        if live.sighting.facts.digest() == self.preconditions()?.facts_digest {
            return Ok(live.sighting.resource_version);
        }
        Err(Box::new(Ending::seen(Outcome::Conflict, "the object is not what the decision rested on", live)))
    }

    fn delete_request(&self, policy: PropagationPolicy, version: &ResourceVersion) -> Step<http::Request<Vec<u8>>> {
        let policy = match policy {
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
            PropagationPolicy::Orphan => "Orphan",
        };
        let body = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": self.target().uid.to_string(), "resourceVersion": version.to_string()},
            "propagationPolicy": policy,
        });
        let path = self.path()?;
        Ok(request(http::Method::DELETE, path, ACCEPT, Some("application/json"), body.to_string().into_bytes()))
    }
}
