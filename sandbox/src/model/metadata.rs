//! Reads and writes `metadata` of an object in plain JSON.

use serde_json::{Map, Value};

use super::clock;
use super::error::ApiError;

/// A stored object: JSON with `apiVersion`, `kind` and `metadata`.
pub type Object = Map<String, Value>;

/// The finalizer of a deletion that orphans the dependents.
pub const ORPHAN: &str = "orphan";
/// The finalizer of a deletion that waits for the dependents.
pub const FOREGROUND: &str = "foregroundDeletion";

/// A text field of `metadata`; empty when it is absent.
pub fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    value(object, field).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Object) -> &str {
    text(object, "name")
}

pub fn namespace(object: &Object) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Object) -> &str {
    text(object, "uid")
}

/// The object's resourceVersion as a number; 0 if it is absent or not a number.
pub fn revision(object: &Object) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or(0)
}

pub fn finalizers(object: &Object) -> Vec<&str> {
    let list = value(object, "finalizers").and_then(Value::as_array);
    list.map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Whether the object is terminating.
pub fn is_terminating(object: &Object) -> bool {
    value(object, "deletionTimestamp").is_some()
}

pub(crate) fn value<'a>(object: &'a Object, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.as_object()?.get(field)
}

pub(crate) fn deletion_seconds(object: &Object) -> Option<i64> {
    clock::parse_timestamp(text(object, "deletionTimestamp"))
}

pub(crate) fn grace_seconds(object: &Object) -> Option<i64> {
    value(object, "deletionGracePeriodSeconds").and_then(Value::as_i64)
}

pub(crate) fn generation(object: &Object) -> i64 {
    value(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn set(object: &mut Object, field: &str, value: impl Into<Value>) {
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(field.to_owned(), value.into());
    }
}

pub(crate) fn unset(object: &mut Object, field: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

/// Copies the field from `from` to `to`, or removes it.
pub(crate) fn carry_over(from: &Object, to: &mut Object, field: &str) {
    match value(from, field) {
        Some(value) => set(to, field, value.clone()),
        None => unset(to, field),
    }
}

pub(crate) fn set_finalizers(object: &mut Object, finalizers: &[String]) {
    if finalizers.is_empty() {
        unset(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers.to_vec());
    }
}

/// The type of a `metadata` field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Number,
    Texts,
    TextMap,
    References,
}

const FIELDS: &[(&str, Shape)] = &[
    ("name", Shape::Text),
    ("generateName", Shape::Text),
    ("namespace", Shape::Text),
    ("uid", Shape::Text),
    ("resourceVersion", Shape::Text),
    ("generation", Shape::Number),
    ("creationTimestamp", Shape::Text),
    ("deletionTimestamp", Shape::Text),
    ("deletionGracePeriodSeconds", Shape::Number),
    ("labels", Shape::TextMap),
    ("annotations", Shape::TextMap),
    ("finalizers", Shape::Texts),
    ("ownerReferences", Shape::References),
];

const REFERENCE_TEXTS: &[&str] = &["apiVersion", "kind", "name", "uid"];
const REFERENCE_FLAGS: &[&str] = &["controller", "blockOwnerDeletion"];

/// Normalizes `metadata`, as decoding into `ObjectMeta` and encoding would: without unknown fields, nulls, empty lists
/// and empty maps. Wrong types are a 400. managedFields are dropped.
pub(crate) fn normalize(object: &mut Object) -> Result<(), ApiError> {
    let Some(metadata) = object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut() else {
        return Err(undecodable("metadata", "an object"));
    };
    let mut given = std::mem::take(metadata);
    for &(field, shape) in FIELDS {
        let Some(value) = given.remove(field).filter(|value| !value.is_null()) else { continue };
        if let Some(value) = typed(field, shape, value)? {
            metadata.insert(field.to_owned(), value);
        }
    }
    Ok(())
}

/// The value in canonical form; `None` if it is empty.
fn typed(field: &str, shape: Shape, value: Value) -> Result<Option<Value>, ApiError> {
    match shape {
        Shape::Text => {
            let text = value.as_str().ok_or_else(|| undecodable(field, "a string"))?;
            Ok((!text.is_empty()).then_some(value))
        }
        Shape::Number => {
            value.as_i64().ok_or_else(|| undecodable(field, "an integer"))?;
            Ok(Some(value))
        }
        Shape::Texts => {
            let list = value.as_array().ok_or_else(|| undecodable(field, "a list of strings"))?;
            if !list.iter().all(Value::is_string) {
                return Err(undecodable(field, "a list of strings"));
            }
            Ok((!list.is_empty()).then_some(value))
        }
        Shape::TextMap => {
            let map = value.as_object().ok_or_else(|| undecodable(field, "a map of strings"))?;
            if !map.values().all(Value::is_string) {
                return Err(undecodable(field, "a map of strings"));
            }
            Ok((!map.is_empty()).then_some(value))
        }
        Shape::References => {
            let list = value.as_array().ok_or_else(|| undecodable(field, "a list"))?;
            let list = list.iter().map(reference).collect::<Result<Vec<_>, _>>()?;
            Ok((!list.is_empty()).then_some(Value::Array(list)))
        }
    }
}

/// One owner reference with its six fields. Like the real encoding, the four texts are always present.
fn reference(given: &Value) -> Result<Value, ApiError> {
    let given = given.as_object().ok_or_else(|| undecodable("ownerReferences", "a list of objects"))?;
    let mut reference = Map::new();
    for &field in REFERENCE_TEXTS {
        let text = match given.get(field).filter(|value| !value.is_null()) {
            Some(value) => value.as_str().ok_or_else(|| undecodable(field, "a string"))?,
            None => "",
        };
        reference.insert(field.to_owned(), Value::from(text));
    }
    for &field in REFERENCE_FLAGS {
        let Some(value) = given.get(field).filter(|value| !value.is_null()) else { continue };
        let flag = value.as_bool().ok_or_else(|| undecodable(field, "a boolean"))?;
        reference.insert(field.to_owned(), Value::from(flag));
    }
    Ok(Value::Object(reference))
}

fn undecodable(field: &str, wanted: &str) -> ApiError {
    ApiError::bad_request(format!("the object cannot be decoded: metadata field \"{field}\" must be {wanted}"))
}
