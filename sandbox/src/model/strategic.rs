//! Strategic merge patch: lists with a merge key are merged item by item.

use serde_json::{Map, Value};

use super::error::{ApiError, Reason};
use super::kinds::{COMMON_MERGE_KEYS, MERGED_SETS, POD_SPEC_MERGE_KEYS, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_SET: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch to an object of a built-in type.
pub(crate) fn apply(of: &Type, target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let (Some(target), Some(patch)) = (target.as_object_mut(), patch.as_object()) else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch is an object"));
    };
    merge_map(of, target, patch, "")
}

fn merge_map(
    of: &Type,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    path: &str,
) -> Result<(), ApiError> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = patch.clone();
            target.remove(DIRECTIVE);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(other)),
    }
    retain_keys(target, patch)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM_SET) {
            remove_from_set(target, list, value);
        }
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let inner = join(path, key);
        if value.is_null() {
            target.remove(key);
        } else if let Some(fields) = value.as_object() {
            let slot = target.entry(key.as_str()).or_insert(Value::Null);
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            if let Some(slot) = slot.as_object_mut() {
                merge_map(of, slot, fields, &inner)?;
            }
        } else if let Some(items) = value.as_array() {
            let slot = target.entry(key.as_str()).or_insert(Value::Null);
            let mut list = slot.as_array_mut().map(std::mem::take).unwrap_or_default();
            merge_list(of, &mut list, items, &inner)?;
            *slot = Value::Array(list);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
    for (key, order) in patch {
        if let Some(list) = key.strip_prefix(ELEMENT_ORDER) {
            put_in_order(of, target, list, order, &join(path, list));
        }
    }
    Ok(())
}

fn merge_list(of: &Type, target: &mut Vec<Value>, patch: &[Value], path: &str) -> Result<(), ApiError> {
    if MERGED_SETS.contains(&path) {
        for item in patch {
            if !target.contains(item) {
                target.push(item.clone());
            }
        }
        return Ok(());
    }
    let Some(merge_key) = merge_key(of, path) else {
        *target = patch.to_vec();
        return Ok(());
    };
    if patch.iter().any(|item| item[DIRECTIVE] == "replace") {
        target.clear();
    }
    for item in patch {
        let Some(fields) = item.as_object() else {
            return Err(ApiError::bad_request(format!("expected an object in the patch of {path}")));
        };
        match fields.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            Some("replace") if fields.len() == 1 => continue,
            Some("delete") => {
                let key = key_of(fields, merge_key, path)?;
                target.retain(|candidate| candidate[merge_key] != *key);
                continue;
            }
            None | Some("merge" | "replace") => {}
            Some(other) => return Err(unknown_directive(other)),
        }
        let key = key_of(fields, merge_key, path)?;
        let known = target.iter_mut().find(|candidate| candidate[merge_key] == *key);
        if let Some(known) = known.and_then(Value::as_object_mut) {
            merge_map(of, known, fields, path)?;
        } else {
            let mut fresh = Map::new();
            merge_map(of, &mut fresh, fields, path)?;
            target.push(Value::Object(fresh));
        }
    }
    Ok(())
}

/// The merge key of the list at `path`; `None` if the list is replaced as a whole.
fn merge_key(of: &Type, path: &str) -> Option<&'static str> {
    let find = |keys: &'static [(&'static str, &'static str)], path: &str| {
        keys.iter().find(|(list, _)| *list == path).map(|(_, key)| *key)
    };
    let in_pod_spec = || {
        let rest = path.strip_prefix(of.pod_spec).filter(|_| !of.pod_spec.is_empty())?;
        find(POD_SPEC_MERGE_KEYS, rest.strip_prefix('.')?)
    };
    find(of.merge_keys, path).or_else(|| find(COMMON_MERGE_KEYS, path)).or_else(in_pod_spec)
}

fn key_of<'a>(item: &'a Map<String, Value>, merge_key: &str, path: &str) -> Result<&'a Value, ApiError> {
    item.get(merge_key).ok_or_else(|| {
        // The real server has no reason for this one either.
        let message = format!("an item of {path} does not contain declared merge key: {merge_key}");
        ApiError::new(Reason::InternalError, message)
    })
}

fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let retained = retained.as_array().ok_or_else(|| ApiError::bad_request("$retainKeys must be a list"))?;
    target.retain(|key, _| retained.iter().any(|kept| kept == key.as_str()));
    Ok(())
}

fn remove_from_set(target: &mut Map<String, Value>, list: &str, removed: &Value) {
    let Some(removed) = removed.as_array() else { return };
    if let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| !removed.contains(item));
    }
}

/// Items in the order list take each other's places in its sequence. Other items stay where they are.
fn put_in_order(of: &Type, target: &mut Map<String, Value>, list: &str, order: &Value, path: &str) {
    let (Some(order), Some(items)) = (order.as_array(), target.get_mut(list).and_then(Value::as_array_mut)) else {
        return;
    };
    let merge_key = merge_key(of, path);
    let rank = |item: &Value| match merge_key {
        Some(key) => order.iter().position(|wanted| wanted[key] == item[key]),
        None => order.iter().position(|wanted| wanted == item),
    };
    let places: Vec<usize> = (0..items.len()).filter(|&at| rank(&items[at]).is_some()).collect();
    let mut named: Vec<Value> = places.iter().map(|&at| items[at].clone()).collect();
    named.sort_by_key(rank);
    for (place, item) in places.into_iter().zip(named) {
        items[place] = item;
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn unknown_directive(directive: &str) -> ApiError {
    ApiError::new(Reason::InternalError, format!("unknown strategic merge directive $patch: {directive}"))
}
