//! Reads the metadata of objects from the API server's JSON.

use engine::attempt;
use engine::object::{Facts, HOLD_ANNOTATION, Name, OwnerReference, ResourceVersion, Uid};
use engine::work::Sighting;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;

/// An object in one answer, with its references as they were written.
pub type Live = attempt::Live<Value>;
type Reference = attempt::Reference<Value>;

#[derive(Deserialize)]
struct WrittenObject {
    kind: String,
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<Value>>,
    annotations: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenReference {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

/// Reads one object. `None` for a Status, for any other non-object, and for an object without a uid.
pub fn parse_object(body: &[u8]) -> Option<Live> {
    let written: WrittenObject = serde_json::from_slice(body).ok()?;
    if written.kind == "Status" {
        return None;
    }
    live(written.metadata)
}

fn live(written: WrittenMetadata) -> Option<Live> {
    let uid = Uid::parse(&written.uid)?;
    let references: Vec<Reference> = written.owner_references.unwrap_or_default().into_iter().map(reference).collect();
    let finalizers = written.finalizers.unwrap_or_default();
    let mut facts = Facts {
        excess: None,
        owners: references.iter().filter_map(|reference| reference.entry.clone()).collect(),
        finalizers: finalizers.iter().map(|name| Name::from(name.as_str())).collect(),
        terminating: written.deletion_timestamp.is_some(),
        hold: written.annotations.is_some_and(|all| all.contains_key(HOLD_ANNOTATION)),
        deletion_time: None,
    };
    facts.bound();
    let resource_version = ResourceVersion::parse(&written.resource_version);
    Some(Live { sighting: Sighting { uid, resource_version, facts }, references })
}

fn reference(written: Value) -> Reference {
    let entry = WrittenReference::deserialize(&written).ok().and_then(|read| {
        Some(OwnerReference {
            // The API server requires a uid in every entry.
            uid: Uid::parse(&read.uid)?,
            api_version: Name::from(read.api_version),
            kind: Name::from(read.kind),
            name: Name::from(read.name),
            controller: read.controller,
            block_owner_deletion: read.block_owner_deletion,
        })
    });
    Reference { written, entry }
}
