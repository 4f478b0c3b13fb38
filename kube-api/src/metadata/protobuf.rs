//! Reads Kubernetes protobuf: an envelope with metadata, scanned in place without allocation.
//!
//! Unused fields are skipped by their length, so managed fields cost only their bytes. Repeated occurrences of a field
//! count as in protobuf: the last text or number wins, and messages are merged.

use super::wire::{Field, Fields, Malformed};
use super::{INITIAL_EVENTS_END, REASON_MAX_BYTES};
use crate::media;
use crate::status::{Status, StatusCause, StatusDetails};
use engine::object::{HOLD_ANNOTATION, clip};
use engine::scope::Labelled;
use engine::selectors::Matcher;

/// The prefix of each object.
const MAGIC: &[u8] = b"k8s\0";
/// The tags of an entry of a map: fields 1 and 2, of bytes.
const KEY: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;
/// The fields of labels and annotations in the metadata of an object.
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
/// The wire type of bytes.
const BYTES: u32 = 2;
/// The group of the metadata types. Other groups use the same field numbers for other fields.
const GROUP: &str = "meta.k8s.io/";
const OBJECT: &str = "PartialObjectMetadata";
const LIST: &str = "PartialObjectMetadataList";

/// The metadata of an object, borrowed from the answer. Missing texts are empty.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub resource_version: &'a str,
    /// Seconds since the Unix epoch. A time without content is Go's zero time, which is `null` in JSON, and counts as
    /// absent.
    pub deletion_seconds: Option<i64>,
    /// The hold annotation is present.
    pub hold: bool,
    /// The annotation at the end of a watch-list's initial events is present.
    pub ends_initial_events: bool,
    /// Labels and annotations.
    marks: Repeated<'a>,
    owners: Repeated<'a>,
    finalizers: Repeated<'a>,
}

/// One entry of `metadata.ownerReferences`. Missing texts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of a `PartialObjectMetadata` without its envelope.
    ///
    /// # Errors
    /// The bytes are not protobuf, or a text is not UTF-8. Owner references and finalizers are checked when
    /// they are read.
    pub fn scan(object: &'a [u8]) -> Result<Metadata<'a>, Malformed> {
        let mut fields = MetadataFields::new(object);
        let mut found = Metadata {
            name: "",
            namespace: "",
            uid: "",
            resource_version: "",
            deletion_seconds: None,
            hold: false,
            ends_initial_events: false,
            marks: Repeated::none(fields),
            owners: Repeated::none(fields),
            finalizers: Repeated::none(fields),
        };
        loop {
            let here = fields;
            let Some(field) = fields.next()? else { return Ok(found) };
            match field.number {
                1 => found.name = field.text()?,
                3 => found.namespace = field.text()?,
                5 => found.uid = field.text()?,
                6 => found.resource_version = field.text()?,
                9 => found.delete(field)?,
                LABELS => found.marks.add(here),
                ANNOTATIONS => {
                    found.annotate(field)?;
                    found.marks.add(here);
                }
                13 => {
                    field.bytes()?;
                    found.owners.add(here);
                }
                14 => {
                    field.bytes()?;
                    found.finalizers.add(here);
                }
                _ => {}
            }
        }
    }

    fn delete(&mut self, field: Field<'a>) -> Result<(), Malformed> {
        let mut time = field.message()?;
        if field.bytes()?.is_empty() {
            return Ok(());
        }
        let mut seconds = self.deletion_seconds.unwrap_or(0);
        while let Some(field) = time.next()? {
            match field.number {
                1 => seconds = field.int64()?,
                2 => drop(field.int32()?),
                _ => {}
            }
        }
        self.deletion_seconds = Some(seconds);
        Ok(())
    }

    fn annotate(&mut self, field: Field<'a>) -> Result<(), Malformed> {
        let (key, _) = entry(field)?;
        self.hold |= key == HOLD_ANNOTATION.as_bytes();
        self.ends_initial_events |= key == INITIAL_EVENTS_END.as_bytes();
        Ok(())
    }

    /// Gives the labels and annotations to `matcher`.
    pub(super) fn mark(&self, matcher: &mut Matcher) -> Result<(), Malformed> {
        let Repeated { from: mut fields, mut count } = self.marks;
        // Separate from `fields`, because two words fit in registers.
        let mut rest = fields.metadata.rest();
        while count > 0 {
            let (of, (key, value)) = if let Some((of, entry, after)) = plain_entry(rest) {
                rest = after;
                (of, entry)
            } else {
                fields.metadata = Fields::new(rest);
                let Some(field) = fields.next()? else { break };
                rest = fields.metadata.rest();
                let of = match field.number {
                    LABELS => Labelled::Label,
                    ANNOTATIONS => Labelled::Annotation,
                    _ => continue,
                };
                (of, entry(field)?)
            };
            count -= 1;
            if matcher.may_want(key, value) {
                give(matcher, of, key, value)?;
            }
        }
        Ok(())
    }

    /// `metadata.ownerReferences`, in order.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = Result<Owner<'a>, Malformed>> + use<'a> {
        Entries { repeated: self.owners, number: 13, read: owner }
    }

    /// `metadata.finalizers`, in order.
    pub fn finalizers(&self) -> impl ExactSizeIterator<Item = Result<&'a str, Malformed>> + use<'a> {
        Entries { repeated: self.finalizers, number: 14, read: Field::text }
    }
}

/// The key and the value of an entry of a map.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// Gives an entry to `matcher` that may change the marks. Few entries do, and the loop over all is quicker without it.
#[cold]
fn give(matcher: &mut Matcher, of: Labelled, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
    if let Some(key) = matcher.wants(of, key) {
        matcher.take(key, std::str::from_utf8(value).map_err(|_| Malformed::NotUtf8(2))?);
    }
    Ok(())
}

/// The label or annotation at the begin of the rest of a metadata message, and what follows it, if all of it is short.
/// Nearly all are.
#[inline]
fn plain_entry(rest: &[u8]) -> Option<(Labelled, Entry<'_>, &[u8])> {
    let [tag, length @ 0..0x80, KEY, key_length, rest @ ..] = rest else { return None };
    let of = match u32::from(*tag) {
        tag if tag == (LABELS << 3 | BYTES) => Labelled::Label,
        tag if tag == (ANNOTATIONS << 3 | BYTES) => Labelled::Annotation,
        _ => return None,
    };
    let (key, [VALUE, value_length, rest @ ..]) = rest.split_at_checked(usize::from(*key_length))? else {
        return None;
    };
    // The entry has nothing else, so that both lengths are below its own, and each takes one byte.
    if usize::from(*key_length) + usize::from(*value_length) + 4 != usize::from(*length) {
        return None;
    }
    let (value, rest) = rest.split_at_checked(usize::from(*value_length))?;
    Some((of, (key, value), rest))
}

/// A short key, a short value, and nothing else.
#[inline]
fn short_entry(bytes: &[u8]) -> Option<Entry<'_>> {
    let [KEY, length @ 0..0x80, rest @ ..] = bytes else { return None };
    let (key, [VALUE, length @ 0..0x80, value @ ..]) = rest.split_at_checked(usize::from(*length))? else {
        return None;
    };
    (value.len() == usize::from(*length)).then_some((key, value))
}

fn entry(field: Field<'_>) -> Result<Entry<'_>, Malformed> {
    let bytes = field.bytes()?;
    if let Some(entry) = short_entry(bytes) {
        return Ok(entry);
    }
    let (mut entry, mut key, mut value): (_, &[u8], &[u8]) = (field.message()?, b"", b"");
    while let Some(field) = entry.next()? {
        match field.number {
            1 => key = field.bytes()?,
            2 => value = field.bytes()?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn owner(field: Field<'_>) -> Result<Owner<'_>, Malformed> {
    let mut fields = field.message()?;
    let mut owner = Owner::default();
    while let Some(field) = fields.next()? {
        match field.number {
            1 => owner.kind = field.text()?,
            3 => owner.name = field.text()?,
            4 => owner.uid = field.text()?,
            5 => owner.api_version = field.text()?,
            6 => owner.controller = Some(field.bool()?),
            7 => owner.block_owner_deletion = Some(field.bool()?),
            _ => {}
        }
    }
    Ok(owner)
}

/// The fields of an object's metadata, at any depth of the object.
#[derive(Clone, Copy, Debug)]
struct MetadataFields<'a> {
    object: Fields<'a>,
    metadata: Fields<'a>,
}

impl<'a> MetadataFields<'a> {
    fn new(object: &'a [u8]) -> MetadataFields<'a> {
        MetadataFields { object: Fields::new(object), metadata: Fields::new(&[]) }
    }

    fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        loop {
            if let Some(field) = self.metadata.next()? {
                return Ok(Some(field));
            }
            match self.object.next()? {
                None => return Ok(None),
                Some(field) if field.number == 1 => self.metadata = field.message()?,
                Some(_) => {}
            }
        }
    }
}

/// The position of a repeated field, and the number of its entries.
#[derive(Clone, Copy, Debug)]
struct Repeated<'a> {
    from: MetadataFields<'a>,
    count: usize,
}

impl<'a> Repeated<'a> {
    fn none(anywhere: MetadataFields<'a>) -> Repeated<'a> {
        Repeated { from: anywhere, count: 0 }
    }

    fn add(&mut self, at: MetadataFields<'a>) {
        if self.count == 0 {
            self.from = at;
        }
        self.count += 1;
    }
}

/// The entries of a counted repeated field.
struct Entries<'a, T> {
    repeated: Repeated<'a>,
    number: u32,
    read: fn(Field<'a>) -> Result<T, Malformed>,
}

impl<T> Iterator for Entries<'_, T> {
    type Item = Result<T, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.repeated.count = self.repeated.count.checked_sub(1)?;
        loop {
            match self.repeated.from.next() {
                Ok(Some(field)) if field.number == self.number => return Some((self.read)(field)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(malformed) => return Some(Err(malformed)),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.repeated.count, Some(self.repeated.count))
    }
}

impl<T> ExactSizeIterator for Entries<'_, T> {}

/// The head of a page, and its objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    pub(super) resource_version: &'a str,
    pub(super) continues: &'a str,
    pub(super) remaining: Option<i64>,
    pub(super) objects: Objects<'a>,
}

/// The rest of the objects of a page.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    list: Fields<'a>,
}

impl<'a> Iterator for Objects<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // The list was read to its end before, so it has no errors here.
        while let Ok(Some(field)) = self.list.next() {
            if field.number == 2 {
                return field.bytes().ok();
            }
        }
        None
    }
}

/// Reads a page. The error is a sentence without its subject.
pub(super) fn page(body: &[u8]) -> Result<Page<'_>, String> {
    let malformed = |why: Malformed| format!("is not a list: {why}");
    let envelope = envelope(body).map_err(|why| format!("is not a list: {why}"))?;
    // The kind is checked, because a page that only looks empty would remove all objects of the collection.
    if !envelope.is(LIST) {
        return Err(format!("is of kind {:?} instead of a list of metadata", clip(envelope.kind, REASON_MAX_BYTES)));
    }
    let mut list = Fields::new(envelope.raw);
    let objects = Objects { list };
    let mut page = Page { resource_version: "", continues: "", remaining: None, objects };
    let mut has_metadata = false;
    while let Some(field) = list.next().map_err(malformed)? {
        match field.number {
            1 => {
                has_metadata = true;
                page.read_metadata(field).map_err(malformed)?;
            }
            2 => drop(field.bytes().map_err(malformed)?),
            _ => {}
        }
    }
    if has_metadata { Ok(page) } else { Err("is not a list: it has no metadata".to_owned()) }
}

impl<'a> Page<'a> {
    fn read_metadata(&mut self, field: Field<'a>) -> Result<(), Malformed> {
        let mut metadata = field.message()?;
        while let Some(field) = metadata.next()? {
            match field.number {
                2 => self.resource_version = field.text()?,
                3 => self.continues = field.text()?,
                4 => self.remaining = Some(field.int64()?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// One frame of a watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: &'a str,
    object: &'a [u8],
}

/// Reads a frame. The error is a sentence without its subject.
pub(super) fn event(frame: &[u8]) -> Result<Event<'_>, String> {
    let malformed = |why: Malformed| format!("is not a watch event: {why}");
    let mut event = Event { kind: "", object: &[] };
    let mut fields = Fields::new(frame);
    while let Some(field) = fields.next().map_err(malformed)? {
        match field.number {
            1 => event.kind = field.text().map_err(malformed)?,
            2 => {
                let mut object = field.message().map_err(malformed)?;
                while let Some(field) = object.next().map_err(malformed)? {
                    if field.number == 1 {
                        event.object = field.bytes().map_err(malformed)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(event)
}

impl<'a> Event<'a> {
    /// The event's object, without its envelope.
    pub(super) fn object(&self) -> Result<&'a [u8], String> {
        let envelope = envelope(self.object).map_err(|why| format!("is not a watch event: its object {why}"))?;
        if envelope.is(OBJECT) {
            return Ok(envelope.raw);
        }
        Err(format!("is a watch event of kind {:?} instead of metadata", clip(envelope.kind, REASON_MAX_BYTES)))
    }

    /// The event's `Status`, if it is one.
    pub(super) fn status(&self) -> Option<Status> {
        status(self.object)
    }
}

struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

impl Envelope<'_> {
    fn is(&self, kind: &str) -> bool {
        self.kind == kind && self.api_version.starts_with(GROUP)
    }
}

/// `runtime.Unknown`. The error is a sentence without its subject.
fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, String> {
    let Some(unknown) = bytes.strip_prefix(MAGIC) else {
        return Err("does not begin with the prefix of Kubernetes protobuf".to_owned());
    };
    let malformed = |why: Malformed| why.to_string();
    let (mut api_version, mut kind, mut raw) = ("", "", None);
    let (mut encoding, mut content_type) = ("", "");
    let mut fields = Fields::new(unknown);
    while let Some(field) = fields.next().map_err(malformed)? {
        match field.number {
            1 => {
                let mut names = field.message().map_err(malformed)?;
                while let Some(field) = names.next().map_err(malformed)? {
                    match field.number {
                        1 => api_version = field.text().map_err(malformed)?,
                        2 => kind = field.text().map_err(malformed)?,
                        _ => {}
                    }
                }
            }
            2 => raw = Some(field.bytes().map_err(malformed)?),
            3 => encoding = field.text().map_err(malformed)?,
            4 => content_type = field.text().map_err(malformed)?,
            _ => {}
        }
    }
    if !encoding.is_empty() || !matches!(content_type, "" | media::PROTOBUF) {
        return Err("is wrapped in another encoding".to_owned());
    }
    let raw = raw.ok_or_else(|| "is an empty envelope".to_owned())?;
    Ok(Envelope { api_version, kind, raw })
}

/// The `Status` in its envelope, if it is one.
pub fn status(bytes: &[u8]) -> Option<Status> {
    let envelope = envelope(bytes).ok()?;
    if envelope.kind != "Status" || envelope.api_version != "v1" {
        return None;
    }
    read_status(envelope.raw).ok().flatten()
}

/// `None` if a number is out of range.
fn read_status(raw: &[u8]) -> Result<Option<Status>, Malformed> {
    let mut status = Status::default();
    let mut fields = Fields::new(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            2 => status.status = field.text()?.to_owned(),
            3 => status.message = field.text()?.to_owned(),
            4 => status.reason = field.text()?.to_owned(),
            5 => {
                let Some(()) = read_details(field, status.details.get_or_insert_default())? else { return Ok(None) };
            }
            6 => match u16::try_from(field.int32()?) {
                Ok(code) => status.code = code,
                Err(_) => return Ok(None),
            },
            _ => {}
        }
    }
    Ok(Some(status))
}

fn read_details(field: Field<'_>, details: &mut StatusDetails) -> Result<Option<()>, Malformed> {
    let mut fields = field.message()?;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => details.name = field.text()?.to_owned(),
            2 => details.group = field.text()?.to_owned(),
            3 => details.kind = field.text()?.to_owned(),
            4 => details.causes.push(cause(field)?),
            5 => match u32::try_from(field.int32()?) {
                Ok(seconds) => details.retry_after_seconds = seconds,
                Err(_) => return Ok(None),
            },
            6 => details.uid = field.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(Some(()))
}

fn cause(field: Field<'_>) -> Result<StatusCause, Malformed> {
    let mut cause = StatusCause::default();
    let mut fields = field.message()?;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => cause.reason = field.text()?.to_owned(),
            2 => cause.message = field.text()?.to_owned(),
            3 => cause.field = field.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(cause)
}
