//! Converts requests of the engine to HTTP.

use crate::metrics::Verb;
use engine::attempt::{Failure, FailureKind, Patch, Request};
use engine::object::{ObjectRef, ResourceVersion, clip};
use engine::work::PropagationPolicy;
use kube_api::media;
use kube_api::path::object_path;
use serde_json::{Map, Value, json};

/// The content type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    StrategicMerge,
    Merge,
    Json,
}

impl PatchForm {
    fn content_type(self) -> &'static str {
        match self {
            PatchForm::StrategicMerge => "application/strategic-merge-patch+json",
            PatchForm::Merge => media::MERGE_PATCH,
            PatchForm::Json => "application/json-patch+json",
        }
    }
}

/// The HTTP request. Returns an error if its object has no path.
pub(super) fn http(request: &Request<Value>) -> Result<(Verb, http::Request<Vec<u8>>), Failure> {
    let ObjectRef { group, version, resource, namespace, name, .. } = request.object();
    let path = object_path(group, version, resource, namespace, name).ok_or_else(|| unaddressable(request.object()))?;
    Ok(match request {
        Request::Get(_) => (Verb::Get, build(http::Method::GET, path, None, Vec::new())),
        Request::Delete { target, version, policy } => {
            let body = delete_options(target, version, *policy).to_string().into_bytes();
            (Verb::Delete, build(http::Method::DELETE, path, Some(media::JSON), body))
        }
        Request::Patch { target, patch } => {
            let (form, body) = patch_body(target, patch);
            let body = body.to_string().into_bytes();
            (Verb::Patch, build(http::Method::PATCH, path, Some(form.content_type()), body))
        }
    })
}

fn unaddressable(object: &ObjectRef) -> Failure {
    let cause = format!(
        "{} {:?} in namespace {:?} has no path at the API server: names must be non-empty, of bounded length, and without '/' and '%'",
        object.group_resource(),
        clip(&object.name, 253),
        clip(&object.namespace, 253)
    );
    Failure { kind: FailureKind::Unaddressable, cause }
}

fn delete_options(target: &ObjectRef, version: &ResourceVersion, policy: PropagationPolicy) -> Value {
    let policy = match policy {
        PropagationPolicy::Background => "Background",
        PropagationPolicy::Foreground => "Foreground",
        PropagationPolicy::Orphan => "Orphan",
    };
    json!({
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": target.uid.to_string(), "resourceVersion": version.to_string()},
        "propagationPolicy": policy,
    })
}

/// A patch of `target`, with its uid and, if the patch has one, its version as preconditions.
pub fn patch_body(target: &ObjectRef, patch: &Patch<Value>) -> (PatchForm, Value) {
    match patch {
        Patch::DropReferences { uids } => {
            let list = uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid.to_string()})).collect();
            (PatchForm::StrategicMerge, metadata(target, None, "ownerReferences", list))
        }
        Patch::UnblockReferences { version, references } => {
            let list = references.iter().map(unblocked).collect();
            (PatchForm::StrategicMerge, metadata(target, Some(version), "ownerReferences", list))
        }
        Patch::ReplaceReferences { version, list } => {
            let list = list.iter().map(|entry| match entry.unblock {
                true => unblocked(&entry.written),
                false => entry.written.clone(),
            });
            let list = or_null(list.collect());
            (PatchForm::Merge, metadata(target, Some(version), "ownerReferences", list))
        }
        Patch::DropFinalizer { version, finalizer } => {
            let list = json!([finalizer.to_string()]);
            let body = metadata(target, Some(version), "$deleteFromPrimitiveList/finalizers", list);
            (PatchForm::StrategicMerge, body)
        }
        Patch::ReplaceFinalizers { version, list } => {
            let list = or_null(list.iter().map(|name| Value::from(name.as_str())).collect());
            (PatchForm::Merge, metadata(target, Some(version), "finalizers", list))
        }
        Patch::RemoveReferencesAt { version, places } => {
            let remove = |at| json!({"op": "remove", "path": format!("/metadata/ownerReferences/{at}")});
            (PatchForm::Json, operations(target, version, places, remove))
        }
        Patch::UnblockReferencesAt { version, places } => {
            let unblock = |at| {
                let path = format!("/metadata/ownerReferences/{at}/blockOwnerDeletion");
                json!({"op": "replace", "path": path, "value": false})
            };
            (PatchForm::Json, operations(target, version, places, unblock))
        }
    }
}

fn metadata(target: &ObjectRef, version: Option<&ResourceVersion>, field: &str, list: Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), Value::String(target.uid.to_string()));
    if let Some(version) = version {
        metadata.insert("resourceVersion".to_owned(), Value::String(version.to_string()));
    }
    metadata.insert(field.to_owned(), list);
    json!({ "metadata": metadata })
}

fn operations(
    target: &ObjectRef,
    version: &ResourceVersion,
    places: &[usize],
    change: impl Fn(usize) -> Value,
) -> Value {
    let mut all = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": target.uid.to_string()}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version.to_string()}),
    ];
    all.extend(places.iter().map(|&at| change(at)));
    Value::Array(all)
}

fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}

fn unblocked(reference: &Value) -> Value {
    let mut written = reference.clone();
    if let Value::Object(fields) = &mut written {
        fields.insert("blockOwnerDeletion".to_owned(), Value::Bool(false));
    }
    written
}

fn build(
    method: http::Method,
    path: String,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    // The path contains only unreserved characters, escapes and separators, and has a bounded length.
    *request.uri_mut() = path.try_into().expect("an encoded path is a URI");
    // The executor needs only metadata in answers.
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(media::METADATA));
    if let Some(content_type) = content_type {
        request.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    }
    request
}
