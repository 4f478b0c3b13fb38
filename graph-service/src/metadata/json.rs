//! Kubernetes metadata as JSON: read in place, checked, turned into the engine's objects.
//!
//! Whatever is not surely an object of the collection is refused with a reason and left out, never guessed at: an object that the
//! graph does not hold is never deleted. That goes for a single bad owner reference too. Validation at the API server forbids one
//! without a uid, so it only comes from a server that does not validate; dropping just the entry would make a dependent look like
//! one that nobody owns, or that only its dead owners own.

use engine::object::{Facts, HOLD_ANNOTATION, Name, Object, OwnerReference, ResourceVersion, Uid, clip};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Names kept for sharing, at most; beyond that sharing begins anew.
const NAMES_MAX: usize = 16_384;
/// Of a text from outside that goes into a reason.
const REASON_MAX_BYTES: usize = 200;
/// Marks the bookmark after which a watch-list goes on as a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// Empty where the server gives none.
    pub(crate) resource_version: String,
    /// Where the list goes on, if it does.
    pub(crate) continues: Option<String>,
    /// Objects beyond this page, where the server counts them.
    pub(crate) remaining: Option<u64>,
    pub(crate) items: Vec<&'a RawValue>,
}

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    Added(&'a RawValue),
    Modified(&'a RawValue),
    Deleted(&'a RawValue),
    /// `ends_list`: everything before belongs to the list that a watch-list begins with.
    Bookmark {
        resource_version: ResourceVersion,
        ends_list: bool,
    },
    /// The server gives up this watch. A `Status`, usually.
    Error(&'a RawValue),
}

/// Reads a page. The error is a sentence without its subject.
pub(crate) fn page(body: &[u8]) -> Result<Page<'_>, String> {
    let list: RawList<'_> = serde_json::from_slice(body).map_err(|error| format!("is no list: {error}"))?;
    // A page that merely looks empty would remove every object of the collection.
    if !list.kind.0.ends_with("List") {
        return Err(format!("is no list but of kind {:?}", clip(&list.kind.0, REASON_MAX_BYTES)));
    }
    let items: Option<Vec<&RawValue>> =
        serde_json::from_str(list.items.get()).map_err(|error| format!("is a list without items: {error}"))?;
    Ok(Page {
        resource_version: list.metadata.resource_version.map(|text| text.0.into_owned()).unwrap_or_default(),
        continues: list.metadata.continues.map(|text| text.0.into_owned()).filter(|token| !token.is_empty()),
        remaining: list.metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
        items: items.unwrap_or_default(),
    })
}

/// Reads a line of a watch. The error is a sentence without its subject.
pub(crate) fn event(line: &[u8]) -> Result<Event<'_>, String> {
    let event: RawEvent<'_> = serde_json::from_slice(line).map_err(|error| format!("is no watch event: {error}"))?;
    Ok(match &*event.kind.0 {
        "ADDED" => Event::Added(event.object),
        "MODIFIED" => Event::Modified(event.object),
        "DELETED" => Event::Deleted(event.object),
        "ERROR" => Event::Error(event.object),
        "BOOKMARK" => {
            let bookmark: RawBookmark<'_> =
                serde_json::from_str(event.object.get()).map_err(|error| format!("is no bookmark: {error}"))?;
            if bookmark.metadata.resource_version.0.is_empty() {
                return Err("is a bookmark without a resourceVersion".to_owned());
            }
            Event::Bookmark {
                resource_version: ResourceVersion::parse(&bookmark.metadata.resource_version.0),
                ends_list: bookmark.metadata.annotations.initial_events_end,
            }
        }
        other => return Err(format!("is a watch event of the unknown type {:?}", clip(other, REASON_MAX_BYTES))),
    })
}

/// The version an item carries, however broken the rest of it is.
pub(crate) fn resource_version(item: &RawValue) -> Option<ResourceVersion> {
    let object: RawVersioned<'_> = serde_json::from_str(item.get()).ok()?;
    let text = object.metadata.resource_version.0;
    (!text.is_empty()).then(|| ResourceVersion::parse(&text))
}

/// Decodes the objects of one collection, sharing the names that repeat in it.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Where it is not known, an object may have a namespace or not.
    namespaced: Option<bool>,
    names: HashSet<Name>,
}

impl Decoder {
    pub(crate) fn new(namespaced: Option<bool>) -> Decoder {
        Decoder { namespaced, names: HashSet::new() }
    }

    /// The object in `item`, or why it is none that the collector can use.
    pub(crate) fn object(&mut self, item: &RawValue) -> Result<Object, String> {
        let object: RawObject<'_> =
            serde_json::from_str(item.get()).map_err(|error| format!("an object that cannot be read: {error}"))?;
        let metadata = object.metadata;
        let namespace = metadata.namespace.as_ref().map_or("", |text| &*text.0);
        let refused = |why: &str| {
            let name = metadata.name.as_ref().map_or("", |text| &*text.0);
            Err(format!(
                "object {:?} in namespace {:?}: {why}",
                clip(name, REASON_MAX_BYTES),
                clip(namespace, REASON_MAX_BYTES)
            ))
        };
        let Some(name) = metadata.name.as_ref().filter(|name| !name.0.is_empty()) else {
            return refused("no name");
        };
        let Some(uid) = metadata.uid.as_ref().and_then(|uid| Uid::parse(&uid.0)) else {
            return refused("no uid");
        };
        let Some(version) = metadata.resource_version.as_ref().filter(|version| !version.0.is_empty()) else {
            return refused("no resourceVersion");
        };
        match self.namespaced {
            Some(true) if namespace.is_empty() => return refused("no namespace"),
            Some(false) if !namespace.is_empty() => return refused("a namespace, in a cluster-scoped collection"),
            Some(_) | None => {}
        }
        let raw = metadata.owner_references.as_deref().unwrap_or_default();
        let Some(owners) = raw.iter().map(|raw| self.owner(raw)).collect::<Option<Box<[OwnerReference]>>>() else {
            return refused("an owner reference without apiVersion, kind, name or uid");
        };
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        Ok(Object {
            uid,
            namespace: self.shared(namespace),
            name: Arc::from(&*name.0),
            resource_version: ResourceVersion::parse(&version.0),
            facts: Facts {
                owners,
                finalizers: finalizers.iter().map(|name| self.shared(&name.0)).collect(),
                terminating: metadata.deletion_timestamp.is_some(),
                hold: metadata.annotations.is_some_and(|annotations| annotations.hold),
                deletion_time: metadata.deletion_timestamp.and_then(seconds),
            },
        })
    }

    fn owner(&mut self, raw: &RawOwner<'_>) -> Option<OwnerReference> {
        let uid = Uid::parse(&raw.uid.0)?;
        if raw.api_version.0.is_empty() || raw.kind.0.is_empty() || raw.name.0.is_empty() {
            return None;
        }
        Some(OwnerReference {
            api_version: self.shared(&raw.api_version.0),
            kind: self.shared(&raw.kind.0),
            name: self.shared(&raw.name.0),
            uid,
            controller: raw.controller,
            block_owner_deletion: raw.block_owner_deletion,
        })
    }

    fn shared(&mut self, text: &str) -> Name {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let name: Name = Arc::from(text);
        self.names.insert(name.clone());
        name
    }
}

/// A time of Kubernetes in seconds of the Unix epoch. One that cannot be read is not known; that it is there is what counts.
fn seconds(time: &RawValue) -> Option<NonZeroU32> {
    let time: prost_types::Timestamp = time.get().trim_matches('"').parse().ok()?;
    NonZeroU32::new(u32::try_from(time.seconds).ok()?)
}

/// Text that is borrowed unless it has escapes. A newtype, because serde borrows a `Cow` only where it is a field of its own.
#[derive(Debug, serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct RawList<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    metadata: RawListMetadata<'a>,
    /// Raw, so that the key must be there, and may hold `null`: so Go writes an empty slice.
    #[serde(borrow)]
    items: &'a RawValue,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawListMetadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
    #[serde(borrow, rename = "continue")]
    continues: Option<Text<'a>>,
    remaining_item_count: Option<i64>,
}

#[derive(serde::Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(serde::Deserialize)]
struct RawBookmark<'a> {
    #[serde(borrow)]
    metadata: RawBookmarkMetadata<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBookmarkMetadata<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(default, deserialize_with = "or_default")]
    annotations: Annotations,
}

#[derive(serde::Deserialize)]
struct RawVersioned<'a> {
    #[serde(borrow)]
    metadata: RawVersion<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawVersion<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
}

#[derive(serde::Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
    #[serde(borrow)]
    deletion_timestamp: Option<&'a RawValue>,
    annotations: Option<Annotations>,
    #[serde(borrow)]
    owner_references: Option<Vec<RawOwner<'a>>>,
    #[serde(borrow)]
    finalizers: Option<Vec<Text<'a>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

fn or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
    Ok(Option::<Annotations>::deserialize(deserializer)?.unwrap_or_default())
}

/// Which of the annotations that mean something to us are there. Values can be large, and are passed over.
#[derive(Clone, Copy, Debug, Default)]
struct Annotations {
    hold: bool,
    initial_events_end: bool,
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut found = Annotations::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            map.next_value::<IgnoredAny>()?;
            found.hold |= key.0 == HOLD_ANNOTATION;
            found.initial_events_end |= key.0 == INITIAL_EVENTS_END;
        }
        Ok(found)
    }
}
