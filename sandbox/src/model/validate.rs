//! Validates the metadata that matters to a garbage collector and its users.

use serde_json::Value;
use std::collections::HashSet;

use super::error::{ApiError, Cause};
use super::kinds::{NameRule, Type};
use super::metadata::{self, FOREGROUND, ORPHAN, Object};

const SUBDOMAIN_MAX_BYTES: usize = 253;
const LABEL_MAX_BYTES: usize = 63;
const PLAIN_FINALIZERS: &[&str] = &["kubernetes", ORPHAN, FOREGROUND];

/// All checks of a creation. The name is set by now.
pub(crate) fn on_create(of: &Type, object: &Object) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let name = metadata::name(object);
    if let Some(why) = wrong_name(of.names, name) {
        causes.push(Cause::invalid("metadata.name", name, why));
    }
    common(of, object, &mut causes);
    refuse(of, name, causes)
}

/// All checks of an update against the stored object.
pub(crate) fn on_update(of: &Type, old: &Object, new: &Object) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let immutable =
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in immutable {
        if metadata::value(old, field) != metadata::value(new, field) {
            let value = metadata::value(new, field).map(shown).unwrap_or_default();
            causes.push(Cause::invalid(format!("metadata.{field}"), &value, "field is immutable"));
        }
    }
    common(of, new, &mut causes);
    if metadata::is_terminating(old) {
        let known = metadata::finalizers(old);
        let added: Vec<&str> = metadata::finalizers(new).into_iter().filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    refuse(of, metadata::name(old), causes)
}

fn refuse(of: &Type, name: &str, causes: Vec<Cause>) -> Result<(), ApiError> {
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(of, name, causes)) }
}

fn common(of: &Type, object: &Object, causes: &mut Vec<Cause>) {
    labels(object, causes);
    owner_references(object, causes);
    finalizers(of, object, causes);
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn labels(object: &Object, causes: &mut Vec<Cause>) {
    let Some(labels) = metadata::value(object, "labels").and_then(Value::as_object) else { return };
    for (key, value) in labels {
        if !is_qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", key, "must be a qualified name"));
        }
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty() && !is_name_part(value) {
            causes.push(Cause::invalid("metadata.labels", value, "must be a valid label value"));
        }
    }
}

fn owner_references(object: &Object, causes: &mut Vec<Cause>) {
    let Some(references) = metadata::value(object, "ownerReferences").and_then(Value::as_array) else { return };
    let text = |reference: &Value, field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let mut controller: Option<String> = None;
    let at = "metadata.ownerReferences";
    for reference in references {
        let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
        let (name, uid) = (text(reference, "name"), text(reference, "uid"));
        if version_of(&api_version).is_none() {
            causes.push(Cause::invalid(format!("{at}.apiVersion"), &api_version, "version must not be empty"));
        }
        for (field, value) in [("kind", &kind), ("name", &name), ("uid", &uid)] {
            if value.is_empty() {
                causes.push(Cause::invalid(format!("{at}.{field}"), "", "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            causes.push(Cause::invalid(at, &name, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if reference["controller"].as_bool() == Some(true) {
            let this = format!("{kind}/{name}");
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                causes.push(Cause::invalid("metadata.ownerReferences", &this, &why));
            } else {
                controller = Some(this);
            }
        }
    }
}

/// The version of an apiVersion; `None` if it is neither `version` nor `group/version`.
fn version_of(api_version: &str) -> Option<&str> {
    let version = match api_version.split_once('/') {
        Some((_, version)) => version,
        None => api_version,
    };
    (!version.is_empty() && !version.contains('/')).then_some(version)
}

fn finalizers(of: &Type, object: &Object, causes: &mut Vec<Cause>) {
    let finalizers = metadata::finalizers(object);
    for (index, name) in finalizers.iter().enumerate() {
        let field = || format!("metadata.finalizers[{index}]");
        if !is_qualified_name(name) {
            causes.push(Cause::invalid(field(), name, "name part must be a qualified name"));
        } else if !of.custom && !name.contains('/') && !PLAIN_FINALIZERS.contains(name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(field(), name, why));
        }
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &finalizers.join(","), why));
    }
}

fn wrong_name(rule: NameRule, name: &str) -> Option<&'static str> {
    match rule {
        NameRule::Subdomain => (!is_subdomain(name)).then_some(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
        ),
        NameRule::Label => (!is_label(name)).then_some(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character",
        ),
        NameRule::PathSegment => {
            let wrong = matches!(name, "." | "..") || name.contains(['/', '%']);
            wrong.then_some("may not be '.' or '..' and may not contain '/' or '%'")
        }
    }
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let ends = !text.starts_with('-') && !text.ends_with('-');
    inner && ends && !text.is_empty() && text.len() <= LABEL_MAX_BYTES
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let inner = part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= SUBDOMAIN_MAX_BYTES && text.split('.').all(part)
}

/// `example.com/name` or `name`.
fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let inner = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    inner && end(text.bytes().next()) && end(text.bytes().next_back()) && text.len() <= LABEL_MAX_BYTES
}

/// Drops duplicate owner references. Returns the warning for the client, if any were dropped.
pub(crate) fn drop_duplicate_references(object: &mut Object) -> Option<String> {
    let references = metadata::value(object, "ownerReferences")?.as_array()?;
    let mut kept: HashSet<&Value> = HashSet::with_capacity(references.len());
    let (unique, repeated): (Vec<&Value>, Vec<&Value>) =
        references.iter().partition(|&reference| kept.insert(reference));
    if repeated.is_empty() {
        return None;
    }
    let unique: Vec<Value> = unique.into_iter().cloned().collect();
    let repeated: Vec<&str> = repeated.iter().map(|one| one["uid"].as_str().unwrap_or_default()).collect();
    let warning = format!(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(",")
    );
    metadata::set(object, "ownerReferences", unique);
    Some(warning)
}
