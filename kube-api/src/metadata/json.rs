//! Reads metadata as JSON in parts. Unused fields are not parsed.

use super::{
    Event, INITIAL_EVENTS_END, Item, Items, ItemsForm, Owner, Page, REASON_MAX_BYTES, Said, bookmark, since_epoch,
    unknown_type,
};
use engine::object::{HOLD_ANNOTATION, ResourceVersion, clip};
use engine::scope::Labelled;
use engine::selectors::Matcher;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

/// Reads a page. The error is a sentence without its subject.
pub(super) fn page(body: &[u8]) -> Result<Page<'_>, String> {
    let list: RawList<'_> = serde_json::from_slice(body).map_err(|error| format!("is not a list: {error}"))?;
    // The kind is checked, because a page that only looks empty would remove all objects of the collection.
    if !list.kind.0.ends_with("List") {
        return Err(format!("is of kind {:?} instead of a list", clip(&list.kind.0, REASON_MAX_BYTES)));
    }
    let items: Option<Vec<&RawValue>> =
        serde_json::from_str(list.items.get()).map_err(|error| format!("is a list without items: {error}"))?;
    Ok(Page {
        api_version: list.api_version.map(|text| text.0.into_owned()).unwrap_or_default(),
        kind: list.kind.0.into_owned(),
        resource_version: list.metadata.resource_version.map(|text| text.0.into_owned()).unwrap_or_default(),
        continues: list.metadata.continues.map(|text| text.0.into_owned()).filter(|token| !token.is_empty()),
        remaining: list.metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
        items: Items(ItemsForm::Json(items.unwrap_or_default().into_iter())),
    })
}

/// Reads a line of a watch. The error is a sentence without its subject.
pub(super) fn event(line: &[u8]) -> Result<Event<'_>, String> {
    let event: RawEvent<'_> = serde_json::from_slice(line).map_err(|error| format!("is not a watch event: {error}"))?;
    let item = Item::Json(event.object);
    Ok(match &*event.kind.0 {
        "ADDED" => Event::Added(item),
        "MODIFIED" => Event::Modified(item),
        "DELETED" => Event::Deleted(item),
        "ERROR" => Event::Error(serde_json::from_str(event.object.get()).unwrap_or_default()),
        "BOOKMARK" => {
            let read: RawBookmark<'_> =
                serde_json::from_str(event.object.get()).map_err(|error| format!("is not a bookmark: {error}"))?;
            bookmark(&read.metadata.resource_version.0, read.metadata.annotations.initial_events_end)?
        }
        other => return Err(unknown_type(other)),
    })
}

/// The version of an item, if it is readable. The rest may be malformed.
pub(super) fn resource_version(item: &RawValue) -> Option<ResourceVersion> {
    let object: RawVersioned<'_> = serde_json::from_str(item.get()).ok()?;
    let text = object.metadata.resource_version.0;
    (!text.is_empty()).then(|| ResourceVersion::parse(&text))
}

/// The `apiVersion` and `kind` of an object.
pub(super) fn types(object: &RawValue) -> Result<(String, String), String> {
    let typed: RawTyped<'_> =
        serde_json::from_str(object.get()).map_err(|error| format!("is not an object: {error}"))?;
    Ok((typed.api_version.0.into_owned(), typed.kind.0.into_owned()))
}

/// Reads the fields that the collector needs.
pub(super) fn read(item: &RawValue) -> Result<Read<'_>, serde_json::Error> {
    serde_json::from_str(item.get()).map(|RawObject { metadata }| Read(metadata))
}

/// Gives the labels and annotations to `matcher`. Only values of wanted keys are parsed.
pub(super) fn mark(item: &RawValue, matcher: &mut Matcher) -> Result<(), serde_json::Error> {
    let RawMarked { metadata } = serde_json::from_str(item.get())?;
    for (of, map) in [(Labelled::Label, metadata.labels), (Labelled::Annotation, metadata.annotations)] {
        if let Some(map) = map {
            serde_json::Deserializer::from_str(map.get()).deserialize_map(MarksVisitor { of, matcher })?;
        }
    }
    Ok(())
}

/// An object's metadata.
pub(super) struct Read<'a>(RawMetadata<'a>);

impl Read<'_> {
    pub(super) fn said(&self) -> Said<'_> {
        Said {
            name: text(&self.0.name),
            namespace: text(&self.0.namespace),
            uid: text(&self.0.uid),
            resource_version: text(&self.0.resource_version),
            terminating: self.0.deletion_timestamp.is_some(),
            deletion_time: self.0.deletion_timestamp.and_then(seconds),
            hold: self.0.annotations.is_some_and(|annotations| annotations.hold),
        }
    }

    pub(super) fn owners(&self) -> impl ExactSizeIterator<Item = Owner<'_>> {
        self.0.owner_references.as_deref().unwrap_or_default().iter().map(|owner| Owner {
            api_version: &owner.api_version.0,
            kind: &owner.kind.0,
            name: &owner.name.0,
            uid: &owner.uid.0,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    }

    pub(super) fn finalizers(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.finalizers.as_deref().unwrap_or_default().iter().map(|name| &*name.0)
    }
}

fn text<'t>(text: &'t Option<Text<'_>>) -> &'t str {
    text.as_ref().map_or("", |text| &text.0)
}

/// A Kubernetes time as seconds since the Unix epoch. An unreadable time is unknown; the field's presence still counts.
fn seconds(time: &RawValue) -> Option<NonZeroU32> {
    let time: prost_types::Timestamp = time.get().trim_matches('"').parse().ok()?;
    since_epoch(time.seconds)
}

/// Text that is borrowed unless it has escapes. It is a newtype, because serde borrows a `Cow` only as a separate
/// field.
#[derive(Debug, serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct RawTyped<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
}

#[derive(serde::Deserialize)]
struct RawList<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow, rename = "apiVersion")]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: RawListMetadata<'a>,
    /// Raw, because the key is required, and its value may be `null`, which is an empty slice in Go.
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
struct RawMarked<'a> {
    #[serde(borrow)]
    metadata: RawMarks<'a>,
}

#[derive(serde::Deserialize)]
struct RawMarks<'a> {
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
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

/// The presence of annotations that the collector knows. Their values can be large, and are not parsed.
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

/// Gives the entries of a map to a matcher.
struct MarksVisitor<'m> {
    of: Labelled,
    matcher: &'m mut Matcher,
}

impl<'de> Visitor<'de> for MarksVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if let Some(key) = self.matcher.wants(self.of, key.0.as_bytes()) {
                // Go reads `null` as an empty text.
                let value = map.next_value::<Option<Text<'de>>>()?;
                self.matcher.take(key, text(&value));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}
