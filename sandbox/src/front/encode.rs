//! Encodes metadata, lists, statuses and watch events as Kubernetes protobuf.
//!
//! Like the real server, it always writes fields of Go values, and fields of Go pointers only if they are set.

use serde_json::Value;

use super::protobuf::MAGIC;
use crate::model::{Object, parse_timestamp};

/// The media type of objects and lists.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of watches.
pub(crate) const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The fields of a message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, value: &Value) {
        self.bytes(field, value.as_str().unwrap_or_default().as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// Negative numbers are written in two's complement.
    fn number(&mut self, field: u64, number: i64) {
        self.varint(field << 3);
        self.varint(number.cast_unsigned());
    }

    fn pointer_number(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_i64() {
            self.number(field, number);
        }
    }

    fn pointer_flag(&mut self, field: u64, value: &Value) {
        if let Some(flag) = value.as_bool() {
            self.number(field, i64::from(flag));
        }
    }

    fn texts(&mut self, field: u64, value: &Value) {
        for text in value.as_array().into_iter().flatten() {
            self.text(field, text);
        }
    }

    fn text_map(&mut self, field: u64, value: &Value) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let mut entry = Message::default();
            entry.bytes(1, key.as_bytes());
            entry.text(2, value);
            self.message(field, &entry);
        }
    }

    fn time(&mut self, field: u64, value: &Value) {
        if let Some(seconds) = value.as_str().and_then(parse_timestamp) {
            let mut time = Message::default();
            time.number(1, seconds);
            time.number(2, 0);
            self.message(field, &time);
        }
    }
}

fn owner_reference(reference: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &reference["kind"]);
    message.text(3, &reference["name"]);
    message.text(4, &reference["uid"]);
    message.text(5, &reference["apiVersion"]);
    message.pointer_flag(6, &reference["controller"]);
    message.pointer_flag(7, &reference["blockOwnerDeletion"]);
    message
}

/// A PartialObjectMetadata.
fn partial(metadata: &Value) -> Message {
    let mut inner = Message::default();
    inner.text(1, &metadata["name"]);
    inner.text(2, &metadata["generateName"]);
    inner.text(3, &metadata["namespace"]);
    inner.bytes(4, b"");
    inner.text(5, &metadata["uid"]);
    inner.text(6, &metadata["resourceVersion"]);
    inner.number(7, metadata["generation"].as_i64().unwrap_or(0));
    if metadata["creationTimestamp"].is_string() {
        inner.time(8, &metadata["creationTimestamp"]);
    } else {
        inner.bytes(8, b"");
    }
    inner.time(9, &metadata["deletionTimestamp"]);
    inner.pointer_number(10, &metadata["deletionGracePeriodSeconds"]);
    inner.text_map(11, &metadata["labels"]);
    inner.text_map(12, &metadata["annotations"]);
    for reference in metadata["ownerReferences"].as_array().into_iter().flatten() {
        inner.message(13, &owner_reference(reference));
    }
    inner.texts(14, &metadata["finalizers"]);
    let mut object = Message::default();
    object.message(1, &inner);
    object
}

fn enveloped(api_version: &str, kind: &str, raw: &Message) -> Vec<u8> {
    let (mut names, mut unknown) = (Message::default(), Message(MAGIC.to_vec()));
    names.bytes(1, api_version.as_bytes());
    names.bytes(2, kind.as_bytes());
    unknown.message(1, &names);
    unknown.message(2, raw);
    unknown.bytes(3, b"");
    unknown.bytes(4, b"");
    unknown.0
}

/// The metadata of an object.
pub(crate) fn metadata(object: &Object) -> Vec<u8> {
    bare_metadata(object.get("metadata").unwrap_or(&Value::Null))
}

/// An object of which only the metadata is given.
pub(crate) fn bare_metadata(metadata: &Value) -> Vec<u8> {
    enveloped("meta.k8s.io/v1", "PartialObjectMetadata", &partial(metadata))
}

/// A list of objects' metadata, with its own list metadata.
pub(crate) fn list<'a>(head: &Value, objects: impl Iterator<Item = &'a Object>) -> Vec<u8> {
    let (mut metadata, mut list) = (Message::default(), Message::default());
    metadata.bytes(1, b"");
    metadata.text(2, &head["resourceVersion"]);
    metadata.text(3, &head["continue"]);
    metadata.pointer_number(4, &head["remainingItemCount"]);
    list.message(1, &metadata);
    for object in objects {
        list.message(2, &partial(object.get("metadata").unwrap_or(&Value::Null)));
    }
    enveloped("meta.k8s.io/v1", "PartialObjectMetadataList", &list)
}

/// A Status.
pub(crate) fn status(status: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.message(1, &Message::default());
    message.text(2, &status["status"]);
    message.text(3, &status["message"]);
    message.text(4, &status["reason"]);
    let given = &status["details"];
    if given.is_object() {
        let mut details = Message::default();
        details.text(1, &given["name"]);
        details.text(2, &given["group"]);
        details.text(3, &given["kind"]);
        for given in given["causes"].as_array().into_iter().flatten() {
            let mut cause = Message::default();
            cause.text(1, &given["reason"]);
            cause.text(2, &given["message"]);
            cause.text(3, &given["field"]);
            details.message(4, &cause);
        }
        details.number(5, given["retryAfterSeconds"].as_i64().unwrap_or(0));
        details.text(6, &given["uid"]);
        message.message(5, &details);
    }
    message.number(6, status["code"].as_i64().unwrap_or(0));
    enveloped("v1", "Status", &message)
}

/// A frame of a watch: its length in four bytes, then the event.
pub(crate) fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    let (mut raw, mut event) = (Message::default(), Message::default());
    raw.bytes(1, object);
    event.bytes(1, kind.as_bytes());
    event.message(2, &raw);
    let length = u32::try_from(event.0.len()).expect("no object is as large as four gigabytes");
    [length.to_be_bytes().to_vec(), event.0].concat()
}
