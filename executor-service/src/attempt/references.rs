//! Patches of `metadata.ownerReferences`.

use super::metadata::{Live, Reference};
use super::{ACCEPT, Attempt, CONFLICT_RETRIES_MAX, Ending, Step, Written, request};
use crate::server::Verb;
use engine::object::{OwnerReference, ResourceVersion, Uid};
use engine::work::Outcome;
use http::Request;
use serde_json::{Value, json};

const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

impl Attempt<'_> {
    /// Drops all entries of `owner_uids`, and exactly `entries`.
    ///
    /// A strategic merge patch names the uids alone and needs neither a read nor a version; it drops every entry of a uid, so where
    /// single entries are meant, or the kind knows no such patch, the list is read and written back at the version it was read at.
    pub(super) async fn remove_references(&self, owner_uids: &[Uid], entries: &[OwnerReference]) -> Step<Ending> {
        let known_version = &self.preconditions()?.resource_version;
        let goes = |reference: &Reference| is_meant(reference, owner_uids, entries);
        let mut known = None;
        if self.reads_first() {
            let live = self.read_target().await?;
            if !live.references.iter().any(goes) {
                return Ok(Ending::seen(Outcome::Unchanged, "the references are not there", live));
            }
            if live.sighting.facts.digest() != self.preconditions()?.facts_digest {
                return Ok(Ending::seen(Outcome::Conflict, "the object is not what the decision rested on", live));
            }
            known = Some(live);
        }
        if !entries.is_empty() {
            return self.rewrite(known, false, goes, |live| remove_by_index(self, live, &goes)).await;
        }
        if self.bench.knows_strategic_merge(&self.target().group_resource()) {
            match self.write(Verb::Patch, remove_by_uid(self, owner_uids)?).await? {
                Written::Accepted(reading, observed) => {
                    // A write that changes nothing leaves the version as it is.
                    let moved = observed.as_ref().is_none_or(|seen| seen.resource_version != *known_version);
                    let outcome = if moved { Outcome::Done } else { Outcome::Unchanged };
                    return Ok(Ending { outcome, observed, ..Ending::from(reading) });
                }
                Written::Conflict(reading) => {
                    let live = self.after_conflict(reading, known_version).await?;
                    return Ok(Ending::seen(
                        Outcome::Conflict,
                        "the API server answers 409 to a patch without a version",
                        live,
                    ));
                }
                Written::Refused(reading) => return self.after_refusal(reading).await,
                Written::UnknownPatch(_) => self.bench.remember_merge_only(self.target().group_resource()),
            }
        }
        self.rewrite(known, false, goes, |live| {
            let rest = live.references.iter().filter(|&reference| !goes(reference));
            replace_list(self, live, rest.map(|reference| reference.written.clone()).collect())
        })
        .await
    }

    /// Sets `blockOwnerDeletion` to false on exactly `entries`.
    ///
    /// Always after a read: a merge by uid would add an entry back that is gone, and it cannot tell two entries of one uid apart.
    pub(super) async fn unblock_references(&self, entries: &[OwnerReference]) -> Step<Ending> {
        let mut live = self.read_target().await?;
        let blocks = |reference: &Reference| {
            reference.entry.as_ref().is_some_and(|entry| entry.blocks() && entries.contains(entry))
        };
        if !live.references.iter().any(blocks) {
            return Ok(Ending::seen(Outcome::Unchanged, "no entry blocks", live));
        }
        if live.sighting.facts.digest() != self.preconditions()?.facts_digest {
            return Ok(Ending::seen(Outcome::Conflict, "the object is not what the decision rested on", live));
        }
        let shared =
            live.references.iter().filter(|&reference| blocks(reference)).any(|reference| shares_uid(&live, reference));
        if shared {
            return self.rewrite(Some(live), true, blocks, |live| unblock_by_index(self, live, &blocks)).await;
        }
        if self.bench.knows_strategic_merge(&self.target().group_resource()) {
            match self.write(Verb::Patch, unblock_by_uid(self, &live, &blocks)?).await? {
                Written::Accepted(reading, observed) => return Ok(Ending { observed, ..Ending::from(reading) }),
                Written::Conflict(reading) => {
                    live = self.after_conflict(reading, &live.sighting.resource_version).await?
                }
                Written::Refused(reading) => return self.after_refusal(reading).await,
                Written::UnknownPatch(_) => self.bench.remember_merge_only(self.target().group_resource()),
            }
        }
        self.rewrite(Some(live), true, blocks, |live| {
            let list = live.references.iter().map(|reference| match blocks(reference) {
                true => unblocked(reference),
                false => reference.written.clone(),
            });
            replace_list(self, live, list.collect())
        })
        .await
    }

    /// Reads (where `known` is not at hand), writes at that version, and begins again after a lost race. An owner's absence is for
    /// ever, so a removal goes on whatever else has changed; what `rests_on_facts` ends there.
    async fn rewrite(
        &self,
        known: Option<Live>,
        rests_on_facts: bool,
        is_meant: impl Fn(&Reference) -> bool,
        patch: impl Fn(&Live) -> Step<Request<Vec<u8>>>,
    ) -> Step<Ending> {
        let mut live = match known {
            Some(live) => live,
            None => self.read_target().await?,
        };
        let mut retries = 0;
        loop {
            if !live.references.iter().any(&is_meant) {
                return Ok(Ending::seen(Outcome::Unchanged, "the references are as they should be", live));
            }
            if rests_on_facts && live.sighting.facts.digest() != self.preconditions()?.facts_digest {
                return Ok(Ending::seen(Outcome::Conflict, "the object is not what the decision rested on", live));
            }
            let version = live.sighting.resource_version.clone();
            live = match self.write(Verb::Patch, patch(&live)?).await? {
                Written::Accepted(reading, observed) => return Ok(Ending { observed, ..Ending::from(reading) }),
                Written::UnknownPatch(reading) => return Ok(Ending::from(reading)),
                Written::Conflict(reading) => self.after_conflict(reading, &version).await?,
                // A failed test of a JSON Patch is a 422 as well.
                Written::Refused(reading) => {
                    let fresh = self.read_target().await?;
                    if fresh.sighting.resource_version == version {
                        return Ok(Ending { observed: Some(fresh.sighting), ..Ending::from(reading) });
                    }
                    fresh
                }
            };
            if retries == CONFLICT_RETRIES_MAX {
                return Ok(Ending::seen(Outcome::Conflict, "the object changes faster than it can be patched", live));
            }
            retries += 1;
        }
    }
}

/// A merge patch of one list in the metadata, guarded by uid and version.
pub(super) fn merge_patch(
    attempt: &Attempt<'_>,
    version: &ResourceVersion,
    field: &str,
    list: Value,
) -> Step<Request<Vec<u8>>> {
    let mut metadata = guard(attempt, Some(version));
    metadata.insert(field.to_owned(), list);
    patch(attempt, MERGE_PATCH, &json!({ "metadata": metadata }))
}

fn is_meant(reference: &Reference, owner_uids: &[Uid], entries: &[OwnerReference]) -> bool {
    reference.entry.as_ref().is_some_and(|entry| owner_uids.contains(&entry.uid) || entries.contains(entry))
}

fn shares_uid(live: &Live, reference: &Reference) -> bool {
    let uid = reference.entry.as_ref().map(|entry| &entry.uid);
    live.references.iter().filter(|other| other.entry.as_ref().map(|entry| &entry.uid) == uid).count() > 1
}

fn unblocked(reference: &Reference) -> Value {
    let mut written = reference.written.clone();
    written["blockOwnerDeletion"] = Value::Bool(false);
    written
}

fn remove_by_uid(attempt: &Attempt<'_>, owner_uids: &[Uid]) -> Step<Request<Vec<u8>>> {
    let mut metadata = guard(attempt, None);
    let dropped: Vec<Value> =
        owner_uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid.to_string()})).collect();
    metadata.insert("ownerReferences".to_owned(), Value::Array(dropped));
    patch(attempt, STRATEGIC_MERGE_PATCH, &json!({ "metadata": metadata }))
}

fn unblock_by_uid(attempt: &Attempt<'_>, live: &Live, blocks: &dyn Fn(&Reference) -> bool) -> Step<Request<Vec<u8>>> {
    let mut metadata = guard(attempt, Some(&live.sighting.resource_version));
    let entries = live.references.iter().filter(|reference| blocks(reference)).map(unblocked).collect();
    metadata.insert("ownerReferences".to_owned(), Value::Array(entries));
    patch(attempt, STRATEGIC_MERGE_PATCH, &json!({ "metadata": metadata }))
}

fn replace_list(attempt: &Attempt<'_>, live: &Live, list: Vec<Value>) -> Step<Request<Vec<u8>>> {
    let list = if list.is_empty() { Value::Null } else { Value::Array(list) };
    merge_patch(attempt, &live.sighting.resource_version, "ownerReferences", list)
}

fn remove_by_index(attempt: &Attempt<'_>, live: &Live, goes: &dyn Fn(&Reference) -> bool) -> Step<Request<Vec<u8>>> {
    // From the back, so that what is removed moves nothing that is still to be removed.
    let removals = live.references.iter().enumerate().rev().filter(|(_, reference)| goes(reference));
    let operations = removals.map(|(at, _)| json!({"op": "remove", "path": format!("/metadata/ownerReferences/{at}")}));
    json_patch(attempt, live, operations.collect())
}

fn unblock_by_index(attempt: &Attempt<'_>, live: &Live, blocks: &dyn Fn(&Reference) -> bool) -> Step<Request<Vec<u8>>> {
    let blocking = live.references.iter().enumerate().filter(|(_, reference)| blocks(reference));
    let operations = blocking.map(|(at, _)| {
        json!({"op": "replace", "path": format!("/metadata/ownerReferences/{at}/blockOwnerDeletion"), "value": false})
    });
    json_patch(attempt, live, operations.collect())
}

fn json_patch(attempt: &Attempt<'_>, live: &Live, operations: Vec<Value>) -> Step<Request<Vec<u8>>> {
    let mut all = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": attempt.target().uid.to_string()}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": live.sighting.resource_version.to_string()}),
    ];
    all.extend(operations);
    patch(attempt, JSON_PATCH, &Value::Array(all))
}

/// The uid, and where it counts the version: the server refuses the patch where they are others.
fn guard(attempt: &Attempt<'_>, version: Option<&ResourceVersion>) -> serde_json::Map<String, Value> {
    let mut metadata = serde_json::Map::new();
    metadata.insert("uid".to_owned(), Value::String(attempt.target().uid.to_string()));
    if let Some(version) = version {
        metadata.insert("resourceVersion".to_owned(), Value::String(version.to_string()));
    }
    metadata
}

fn patch(attempt: &Attempt<'_>, content_type: &'static str, body: &Value) -> Step<Request<Vec<u8>>> {
    let path = attempt.path()?;
    Ok(request(http::Method::PATCH, path, ACCEPT, Some(content_type), body.to_string().into_bytes()))
}
