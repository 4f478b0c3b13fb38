//! The Kubernetes messages that the collector reads, for prost. The scan is compared with them.
//!
//! Annotations and times are left raw, because the collector reads only parts of them.

use prost::Message;
use serde_json::Value;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEvent {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) raw: Option<Vec<u8>>,
    #[prost(string, tag = "3")]
    pub(crate) content_encoding: String,
    #[prost(string, tag = "4")]
    pub(crate) content_type: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(crate) api_version: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) items: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(crate) resource_version: String,
    #[prost(string, tag = "3")]
    pub(crate) continues: String,
    #[prost(int64, optional, tag = "4")]
    pub(crate) remaining_item_count: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialObjectMetadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) uid: String,
    #[prost(string, tag = "6")]
    pub(crate) resource_version: String,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(crate) deletion_timestamp: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) annotations: Vec<Entry>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    pub(crate) finalizers: Vec<String>,
}

/// An entry of a map of texts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub(crate) seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OwnerReference {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) uid: String,
    #[prost(string, tag = "5")]
    pub(crate) api_version: String,
    #[prost(bool, optional, tag = "6")]
    pub(crate) controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(crate) block_owner_deletion: Option<bool>,
}

/// Parts of an object that the collector does not read.
#[derive(Clone, PartialEq, Message)]
struct Unread {
    #[prost(message, optional, tag = "1")]
    metadata: Option<UnreadMeta>,
}

#[derive(Clone, PartialEq, Message)]
struct UnreadMeta {
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, repeated, tag = "11")]
    labels: Vec<Entry>,
    #[prost(bytes = "vec", repeated, tag = "17")]
    managed_fields: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(int32, tag = "6")]
    code: i32,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn entries(value: &Value) -> Vec<Entry> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| Entry { key: key.clone().into_bytes(), value: text(value).into_bytes() }).collect()
}

fn time(value: &Value) -> Option<Time> {
    let time: prost_types::Timestamp = value.as_str()?.parse().ok()?;
    Some(Time { seconds: Some(time.seconds), nanos: Some(time.nanos) })
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The object of this JSON, whose fields have the right types.
pub(crate) fn object(json: &Value) -> Vec<u8> {
    let metadata = &json["metadata"];
    let read = ObjectMeta {
        name: text(&metadata["name"]),
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        deletion_timestamp: time(&metadata["deletionTimestamp"]).iter().map(Message::encode_to_vec).collect(),
        annotations: entries(&metadata["annotations"]),
        owner_references: array(&metadata["ownerReferences"])
            .map(|reference| OwnerReference {
                kind: text(&reference["kind"]),
                name: text(&reference["name"]),
                uid: text(&reference["uid"]),
                api_version: text(&reference["apiVersion"]),
                controller: reference["controller"].as_bool(),
                block_owner_deletion: reference["blockOwnerDeletion"].as_bool(),
            })
            .collect(),
        finalizers: array(&metadata["finalizers"]).map(text).collect(),
    };
    let unread = UnreadMeta {
        generate_name: text(&metadata["generateName"]),
        generation: metadata["generation"].as_i64().unwrap_or_default(),
        creation_timestamp: time(&metadata["creationTimestamp"]),
        labels: entries(&metadata["labels"]),
        managed_fields: array(&metadata["managedFields"]).map(|entry| entry.to_string().into_bytes()).collect(),
    };
    // Two concatenated messages of one type are one message.
    let mut bytes = PartialObjectMetadata { metadata: Some(read) }.encode_to_vec();
    Unread { metadata: Some(unread) }.encode(&mut bytes).expect("there is room in memory");
    // In one piece, as servers write it.
    let whole = join_metadata(&bytes);
    let mut object = Vec::new();
    prost::encoding::bytes::encode(1, &whole, &mut object);
    object
}

/// The contents of all fields 1, concatenated.
fn join_metadata(object: &[u8]) -> Vec<u8> {
    #[derive(Clone, PartialEq, Message)]
    struct Parts {
        #[prost(bytes = "vec", repeated, tag = "1")]
        metadata: Vec<Vec<u8>>,
    }
    Parts::decode(object).expect("it was written here").metadata.concat()
}

/// In an envelope.
pub(crate) fn enveloped(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    let unknown = Unknown { type_meta: Some(type_meta), raw: Some(raw), ..Unknown::default() };
    [b"k8s\0".to_vec(), unknown.encode_to_vec()].concat()
}

/// An event of a watch, from the line that a JSON watch has for it; without its length.
pub(crate) fn event(line: &Value) -> Vec<u8> {
    let (kind, json) = (text(&line["type"]), &line["object"]);
    let raw = if kind == "ERROR" {
        let code = json["code"].as_i64().and_then(|code| code.try_into().ok()).unwrap_or_default();
        let (status, message, reason) = (text(&json["status"]), text(&json["message"]), text(&json["reason"]));
        enveloped("v1", "Status", Status { status, message, reason, code }.encode_to_vec())
    } else {
        enveloped("meta.k8s.io/v1", "PartialObjectMetadata", object(json))
    };
    WatchEvent { kind, object: Some(RawExtension { raw }) }.encode_to_vec()
}

/// A page, from the JSON for it.
pub(crate) fn page(json: &Value) -> Vec<u8> {
    let metadata = ListMeta {
        resource_version: text(&json["metadata"]["resourceVersion"]),
        continues: text(&json["metadata"]["continue"]),
        remaining_item_count: json["metadata"]["remainingItemCount"].as_i64(),
    };
    let list = List { metadata: Some(metadata), items: array(&json["items"]).map(object).collect() };
    enveloped("meta.k8s.io/v1", "PartialObjectMetadataList", list.encode_to_vec())
}
