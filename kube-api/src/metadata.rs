//! Reads Kubernetes metadata from JSON or protobuf, checks it, and turns it into objects of the engine.
//!
//! An object that is not certainly a valid object of its collection is refused with a reason and left out. This is
//! safe, because the collector never deletes an object that the graph does not hold. One invalid owner reference is
//! enough to refuse the object. API servers validate references, so one without a uid comes from an aggregated server
//! without validation. Dropping only that reference could make a dependent look unowned, or owned by dead owners only.
//!
//! Public for benchmarks.

mod json;
mod protobuf;
mod wire;

#[cfg(test)]
mod tests;

pub use protobuf::{Metadata, Objects, Owner};
pub use wire::Malformed;

use crate::media;
use crate::status::Status;
use engine::marks::Marks;
use engine::object::{Facts, Name, Object, OwnerReference, ResourceVersion, Uid, clip};
use engine::selectors::Matcher;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

pub use protobuf::status as protobuf_status;

/// Maximum number of names to share. Beyond this, sharing starts again.
const NAMES_MAX: usize = 16_384;
/// Number of slots for recent names, a power of two.
const RECENT: usize = 64;
/// Maximum number of bytes of text from outside in an error.
const REASON_MAX_BYTES: usize = 200;
/// Annotation of the bookmark at the end of the initial events of a watch-list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One object on each line of a watch.
    Json,
    /// One object in each frame of a watch.
    Protobuf,
}

impl Encoding {
    /// The encoding of a `Content-Type`. `None` for any other media type, because the answer may be a page of a proxy.
    pub fn of(content_type: &str) -> Option<Encoding> {
        let is = |known: &str| media::media_type(content_type).eq_ignore_ascii_case(known);
        if is(media::PROTOBUF) { Some(Encoding::Protobuf) } else { is(media::JSON).then_some(Encoding::Json) }
    }

    /// The name of the unit that holds one event, for errors.
    pub fn piece(self) -> &'static str {
        match self {
            Encoding::Json => "a line",
            Encoding::Protobuf => "a frame",
        }
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    /// The claimed type of the list: a list of objects, or of their metadata.
    api_version: String,
    kind: String,
    /// Empty if the server sends none.
    pub resource_version: String,
    /// The continue token, if there are more pages.
    pub continues: Option<String>,
    /// Objects after this page, if the server counts them.
    pub remaining: Option<u64>,
    pub items: Items<'a>,
}

impl Page<'_> {
    /// Whether the claimed type is a list of this group and kind.
    pub fn check(&self, group: &str, kind: &str) -> Result<(), String> {
        is_of(&self.api_version, &self.kind, group, kind, "List")
    }
}

/// Whether the claimed type of an object is this group and kind. The error is a sentence without its subject.
pub fn check_kind(object: &RawValue, group: &str, kind: &str) -> Result<(), String> {
    let (api_version, of) = json::types(object)?;
    is_of(&api_version, &of, group, kind, "")
}

fn is_of(api_version: &str, of: &str, group: &str, kind: &str, suffix: &str) -> Result<(), String> {
    let said = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let plain = of.strip_suffix(suffix);
    let fits = match plain {
        Some("PartialObjectMetadata") => said == "meta.k8s.io",
        Some(of) => of == kind && said == group,
        None => false,
    };
    let clipped = |text: &str| clip(text, REASON_MAX_BYTES);
    if fits { Ok(()) } else { Err(format!("has kind {:?} and apiVersion {:?}", clipped(of), clipped(api_version))) }
}

/// The objects of a page, in order.
#[derive(Debug)]
pub struct Items<'a>(ItemsForm<'a>);

#[derive(Debug)]
enum ItemsForm<'a> {
    Json(std::vec::IntoIter<&'a RawValue>),
    Protobuf(Objects<'a>),
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        match &mut self.0 {
            ItemsForm::Json(items) => items.next().map(Item::Json),
            ItemsForm::Protobuf(objects) => objects.next().map(|object| Item::Protobuf(Metadata::scan(object))),
        }
    }
}

/// An undecoded object. [`Decoder::object`] says whether the collector can use it.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    Json(&'a RawValue),
    Protobuf(Result<Metadata<'a>, Malformed>),
}

impl<'a> Item<'a> {
    /// The object as JSON, for callers that requested JSON and need more than metadata.
    pub fn json(self) -> Result<&'a RawValue, String> {
        match self {
            Item::Json(item) => Ok(item),
            Item::Protobuf(_) => Err("the object is in protobuf, which was not requested".to_owned()),
        }
    }

    /// The selectors that match the object. A matcher without selectors reads nothing.
    ///
    /// # Errors
    /// The labels or annotations are not readable, so the marks are unknown.
    pub fn marks(&self, matcher: &mut Matcher) -> Result<Marks, String> {
        if matcher.table().is_empty() {
            return Ok(Marks::default());
        }
        let read = match self {
            Item::Json(item) => json::mark(item, matcher).map_err(unreadable),
            Item::Protobuf(Ok(metadata)) => metadata.mark(matcher).map_err(unreadable),
            Item::Protobuf(Err(malformed)) => Err(unreadable(malformed)),
        };
        // Also after an error, so that the matcher is ready for the next object.
        let marks = matcher.finish();
        read.map(|()| marks)
    }

    /// The version of the object, if it is readable. The rest may be malformed.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        match self {
            Item::Json(item) => json::resource_version(item),
            Item::Protobuf(Ok(metadata)) if !metadata.resource_version.is_empty() => {
                Some(ResourceVersion::parse(metadata.resource_version))
            }
            Item::Protobuf(_) => None,
        }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub enum Event<'a> {
    Added(Item<'a>),
    Modified(Item<'a>),
    Deleted(Item<'a>),
    /// `ends_list`: all events before belong to the initial list of a watch-list.
    Bookmark {
        resource_version: ResourceVersion,
        ends_list: bool,
    },
    /// The server ends this watch. The `Status` is empty without a readable reason.
    Error(Status),
}

/// Reads a page.
///
/// # Errors
/// A sentence without its subject.
pub fn page(encoding: Encoding, body: &[u8]) -> Result<Page<'_>, String> {
    match encoding {
        Encoding::Json => json::page(body),
        Encoding::Protobuf => {
            let page = protobuf::page(body)?;
            Ok(Page {
                // The envelope has this type.
                api_version: "meta.k8s.io/v1".to_owned(),
                kind: "PartialObjectMetadataList".to_owned(),
                resource_version: page.resource_version.to_owned(),
                continues: (!page.continues.is_empty()).then(|| page.continues.to_owned()),
                remaining: page.remaining.and_then(|count| u64::try_from(count).ok()),
                items: Items(ItemsForm::Protobuf(page.objects)),
            })
        }
    }
}

/// Reads a line or frame of a watch.
///
/// # Errors
/// A sentence without its subject.
pub fn event(encoding: Encoding, piece: &[u8]) -> Result<Event<'_>, String> {
    match encoding {
        Encoding::Json => json::event(piece),
        Encoding::Protobuf => {
            let event = protobuf::event(piece)?;
            let item = || event.object().map(|object| Item::Protobuf(Metadata::scan(object)));
            Ok(match event.kind {
                "ADDED" => Event::Added(item()?),
                "MODIFIED" => Event::Modified(item()?),
                "DELETED" => Event::Deleted(item()?),
                "ERROR" => Event::Error(event.status().unwrap_or_default()),
                "BOOKMARK" => {
                    let metadata =
                        Metadata::scan(event.object()?).map_err(|error| format!("is not a bookmark: {error}"))?;
                    bookmark(metadata.resource_version, metadata.ends_initial_events)?
                }
                other => return Err(unknown_type(other)),
            })
        }
    }
}

fn bookmark(resource_version: &str, ends_list: bool) -> Result<Event<'static>, String> {
    if resource_version.is_empty() {
        return Err("is a bookmark without a resourceVersion".to_owned());
    }
    Ok(Event::Bookmark { resource_version: ResourceVersion::parse(resource_version), ends_list })
}

fn unknown_type(kind: &str) -> String {
    format!("is a watch event of the unknown type {:?}", clip(kind, REASON_MAX_BYTES))
}

/// The content of an object in both encodings, without owners and finalizers. Missing texts are empty.
struct Said<'t> {
    name: &'t str,
    namespace: &'t str,
    uid: &'t str,
    resource_version: &'t str,
    terminating: bool,
    deletion_time: Option<NonZeroU32>,
    hold: bool,
}

/// Decodes the objects of one collection, and shares repeated names.
#[derive(Debug)]
pub struct Decoder {
    /// `None`: unknown, so an object may have a namespace or not.
    namespaced: Option<bool>,
    names: HashSet<Name>,
    /// Recently used names, each in its slot. Consecutive objects of a watch repeat names, which this finds without a
    /// search.
    recent: [Option<Name>; RECENT],
}

impl Decoder {
    pub fn new(namespaced: Option<bool>) -> Decoder {
        Decoder { namespaced, names: HashSet::new(), recent: [const { None }; RECENT] }
    }

    /// The object in `item`.
    ///
    /// # Errors
    /// Why the collector cannot use the object.
    pub fn object(&mut self, item: &Item<'_>) -> Result<Object, String> {
        match item {
            Item::Json(item) => {
                let read = json::read(item).map_err(unreadable)?;
                self.build(&read.said(), read.owners().map(Ok), read.finalizers().map(Ok))
            }
            Item::Protobuf(Ok(metadata)) => {
                let said = Said {
                    name: metadata.name,
                    namespace: metadata.namespace,
                    uid: metadata.uid,
                    resource_version: metadata.resource_version,
                    terminating: metadata.deletion_seconds.is_some(),
                    deletion_time: metadata.deletion_seconds.and_then(since_epoch),
                    hold: metadata.hold,
                };
                self.build(&said, metadata.owners(), metadata.finalizers())
            }
            Item::Protobuf(Err(malformed)) => Err(unreadable(malformed)),
        }
    }

    fn build<'t>(
        &mut self,
        said: &Said<'_>,
        owners: impl ExactSizeIterator<Item = Result<Owner<'t>, Malformed>>,
        finalizers: impl ExactSizeIterator<Item = Result<&'t str, Malformed>>,
    ) -> Result<Object, String> {
        let refused = |why: &str| {
            let (name, namespace) = (clip(said.name, REASON_MAX_BYTES), clip(said.namespace, REASON_MAX_BYTES));
            Err(format!("object {name:?} in namespace {namespace:?}: {why}"))
        };
        if said.name.is_empty() {
            return refused("no name");
        }
        let Some(uid) = Uid::parse(said.uid) else { return refused("no uid") };
        if said.resource_version.is_empty() {
            return refused("no resourceVersion");
        }
        match self.namespaced {
            Some(true) if said.namespace.is_empty() => return refused("no namespace"),
            Some(false) if !said.namespace.is_empty() => {
                return refused("the object has a namespace, but its kind is cluster-scoped");
            }
            Some(_) | None => {}
        }
        // Allocated at its exact size, because the object keeps it.
        let mut kept_owners = Vec::with_capacity(owners.len());
        for owner in owners {
            let Some(owner) = self.owner(&owner.map_err(unreadable)?) else {
                return refused("an owner reference has no apiVersion, kind, name or uid");
            };
            kept_owners.push(owner);
        }
        let mut kept_finalizers = Vec::with_capacity(finalizers.len());
        for finalizer in finalizers {
            kept_finalizers.push(self.shared(finalizer.map_err(unreadable)?));
        }
        Ok(Object {
            marks: Default::default(),
            uid,
            namespace: self.shared(said.namespace),
            name: Arc::from(said.name),
            resource_version: ResourceVersion::parse(said.resource_version),
            facts: Facts {
                owners: kept_owners.into_boxed_slice(),
                excess: None,
                finalizers: kept_finalizers.into_boxed_slice(),
                terminating: said.terminating,
                hold: said.hold,
                deletion_time: said.deletion_time,
            },
        })
    }

    fn owner(&mut self, owner: &Owner<'_>) -> Option<OwnerReference> {
        let uid = Uid::parse(owner.uid)?;
        if owner.api_version.is_empty() || owner.kind.is_empty() || owner.name.is_empty() {
            return None;
        }
        Some(OwnerReference {
            api_version: self.shared(owner.api_version),
            kind: self.shared(owner.kind),
            name: self.shared(owner.name),
            uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    }

    fn shared(&mut self, text: &str) -> Name {
        let place = place(text);
        if let Some(name) = self.recent[place].as_ref().filter(|name| ***name == *text) {
            return name.clone();
        }
        let name = self.searched(text);
        self.recent[place] = Some(name.clone());
        name
    }

    fn searched(&mut self, text: &str) -> Name {
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

/// The slot of a name. Names that collide are found by the slow search.
fn place(text: &str) -> usize {
    let bytes = text.as_bytes();
    let last = bytes.iter().rev().take(2).fold(0, |word, &byte| word * 31 + usize::from(byte));
    (bytes.len() + last) % RECENT
}

fn unreadable(error: impl fmt::Display) -> String {
    format!("cannot read an object: {error}")
}

/// Seconds since the Unix epoch, within the range of Kubernetes times.
fn since_epoch(seconds: i64) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(seconds).ok()?)
}
