//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::error::{ApiError, Reason};

/// Maximum number of operations in one JSON patch, as in the real server.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum number of bytes that `copy` operations may add, so that a short patch cannot double an object thirty times.
const COPIED_MAX_BYTES: usize = 3 * 1024 * 1024;

/// RFC 7386: maps are merged, null removes, anything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902: all operations or none.
pub(crate) fn apply_operations(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Some(operations) = patch.as_array() else {
        return Err(ApiError::bad_request("error decoding patch: a JSON patch is a list of operations"));
    };
    if !operations.iter().all(Value::is_object) {
        return Err(ApiError::bad_request("error decoding patch: an operation is an object"));
    }
    if operations.len() > OPERATIONS_MAX {
        let message = format!("the allowed maximum operations in a JSON patch is {OPERATIONS_MAX}");
        return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
    }
    let mut copied = 0;
    for operation in operations {
        apply_operation(target, operation, &mut copied).ok_or_else(rejected)?;
    }
    Ok(())
}

/// The real server's message for a patch that cannot be applied.
fn rejected() -> ApiError {
    ApiError::new(Reason::Invalid, "the server rejected our request due to an error in our request")
}

fn apply_operation(target: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let path = operation["path"].as_str()?;
    let from = || operation["from"].as_str();
    match operation["op"].as_str()? {
        "add" => add(target, path, operation.get("value")?.clone()),
        "remove" => remove(target, path).map(drop),
        "replace" => replace(target, path, operation.get("value")?.clone()),
        "move" => {
            let value = remove(target, from()?)?;
            add(target, path, value)
        }
        "copy" => {
            let value = find(target, from()?)?.clone();
            *copied += value.to_string().len();
            (*copied <= COPIED_MAX_BYTES).then_some(())?;
            add(target, path, value)
        }
        "test" => {
            let expected = operation.get("value").unwrap_or(&Value::Null);
            let actual = find(target, path).map_or(Value::Null, |value| value.clone());
            (actual == *expected).then_some(())
        }
        _ => None,
    }
}

fn find<'a>(target: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    target.pointer_mut(path)
}

/// The parent of a pointer's target, and the last token unescaped.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((target.pointer_mut(parent)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = parent(target, path)?;
    if let Some(map) = parent.as_object_mut() {
        map.insert(last, value);
        return Some(());
    }
    let list = parent.as_array_mut()?;
    let index = if last == "-" { list.len() } else { index(&last)? };
    (index <= list.len()).then(|| list.insert(index, value))
}

/// In a map this also adds a missing key, as in the real server's library.
fn replace(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if let Some(known) = target.pointer_mut(path) {
        *known = value;
        return Some(());
    }
    let (parent, last) = parent(target, path)?;
    parent.as_object_mut()?.insert(last, value);
    Some(())
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = parent(target, path)?;
    if let Some(map) = parent.as_object_mut() {
        return map.remove(&last);
    }
    let list = parent.as_array_mut()?;
    let index = index(&last)?;
    (index < list.len()).then(|| list.remove(index))
}

fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with(['0', '+']);
    canonical.then(|| token.parse().ok()).flatten()
}
