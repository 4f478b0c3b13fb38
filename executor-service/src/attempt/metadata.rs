//! Objects and lists as the API server's JSON shows them, reduced to metadata.

use engine::attempt;
use engine::object::{Facts, HOLD_ANNOTATION, Name, OwnerReference, ResourceVersion, Uid};
use engine::work::Sighting;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;

/// An object as one answer showed it, with its references as they were written.
pub(crate) type Live = attempt::Live<Value>;
type Reference = attempt::Reference<Value>;

/// A metadata list of one name.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Never empty.
    pub(crate) resource_version: String,
    pub(crate) items: Vec<ListedItem>,
}

/// One item of a list.
#[derive(Debug)]
pub(crate) struct ListedItem {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// `None` where the item carries no uid.
    pub(crate) live: Option<Live>,
}

#[derive(Deserialize)]
struct WrittenObject {
    kind: String,
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenList {
    kind: String,
    metadata: WrittenListMetadata,
    // Present but null is how some servers write an empty list; not there at all is something else than a list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<WrittenItem>>,
}

#[derive(Deserialize)]
struct WrittenItem {
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
    #[serde(default)]
    remaining_item_count: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
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

/// Reads one object. `None` for a Status, for anything that is no object, and for an object without a uid.
pub(crate) fn parse_object(body: &[u8]) -> Option<Live> {
    object(serde_json::from_slice(body).ok()?)
}

/// The same, of an object that was read as JSON.
pub fn object_of(value: &Value) -> Option<Live> {
    object(WrittenObject::deserialize(value).ok()?)
}

fn object(written: WrittenObject) -> Option<Live> {
    if written.kind == "Status" {
        return None;
    }
    live(written.metadata)
}

/// Reads a complete list. `None` for anything else: another kind, no position, or a part of a longer list.
pub(crate) fn parse_list(body: &[u8]) -> Option<Listed> {
    let written: WrittenList = serde_json::from_slice(body).ok()?;
    let partial = !written.metadata.continue_token.is_empty()
        || written.metadata.remaining_item_count.is_some_and(|remaining| remaining > 0);
    if partial || !written.kind.ends_with("List") || written.metadata.resource_version.is_empty() {
        return None;
    }
    let items = written.items.unwrap_or_default().into_iter().map(|item| ListedItem {
        name: item.metadata.name.clone(),
        namespace: item.metadata.namespace.clone(),
        live: live(item.metadata),
    });
    Some(Listed { resource_version: written.metadata.resource_version, items: items.collect() })
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
