//! The part of OpenAPI that makes kubectl leave field validation to the server.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::answer::json_value;
use crate::model::{ApiError, Model, Reason, Type};

/// `/openapi/v2`. Clients ask for protobuf; this server has only a little JSON.
pub(crate) fn v2(model: &Model) -> Response {
    let mut definitions = Map::new();
    for of in model.types() {
        for version in &of.versions {
            let name = format!("{}.{version}.{}", if of.group.is_empty() { "core" } else { &of.group }, of.kind);
            definitions.insert(name, schema(of, version));
        }
    }
    let document = json!({
        "swagger": "2.0", "info": info(), "paths": {}, "definitions": definitions,
    });
    json_value(StatusCode::OK, &document)
}

/// `/openapi/v3`: the paths of the documents of all versions.
pub(crate) fn v3(model: &Model) -> Response {
    let mut paths = Map::new();
    let versions: BTreeSet<String> =
        model.types().flat_map(|of| of.versions.iter().map(|version| root(&of.group, version))).collect();
    for path in versions {
        paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}") }));
    }
    json_value(StatusCode::OK, &json!({ "paths": paths }))
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`. Objects are not described. Their paths accept the
/// parameter `fieldValidation`, which tells kubectl not to validate by itself.
///
/// # Errors
/// 404 for a version that is not served.
pub(crate) fn v3_document(model: &Model, path: &str) -> Result<Response, ApiError> {
    let served = |of: &&Arc<Type>| of.versions.iter().any(|version| root(&of.group, version) == path);
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for of in model.types().filter(served) {
        let version = path.rsplit('/').next().unwrap_or_default();
        let scope = if of.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{path}{scope}/{}", of.plural);
        let kind = json!({ "group": of.group, "version": version, "kind": of.kind });
        let operation = |action: &str| {
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind, "responses": {},
                "parameters": [{ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } }],
            })
        };
        paths.insert(format!("{collection}/{{name}}"), json!({ "patch": operation("patch"), "put": operation("put") }));
        paths.insert(collection, json!({ "post": operation("post") }));
        schemas.insert(format!("{}.{}", path.replace('/', "."), of.kind), schema(of, version));
    }
    if paths.is_empty() {
        return Err(ApiError { reason: Reason::GroupNotServed, ..model.not_served("") });
    }
    let document = json!({
        "openapi": "3.0.0", "info": info(), "paths": paths, "components": { "schemas": schemas },
    });
    Ok(json_value(StatusCode::OK, &document))
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": "v1.36" })
}

fn schema(of: &Type, version: &str) -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [{ "group": of.group, "version": version, "kind": of.kind }],
    })
}
