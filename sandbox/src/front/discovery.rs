//! Discovery in the aggregated form, and in the older form of three levels.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{json_bytes, json_value, typed};
use super::media::Form;
use crate::model::{ApiError, Model, StatusRule, Type, api_version, version_order};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The versions of one group, the preferred one first, each with its types. `None` for a version whose backend is down.
type Versions = Vec<(String, Option<Vec<Arc<Type>>>)>;

/// `/api` and `/apis`.
pub(crate) fn root(model: &Model, core: bool, form: Form) -> Response {
    let groups = groups(model);
    let mut wanted = groups.iter().filter(|(group, _)| group.is_empty() == core);
    if form == Form::Discovery {
        let items: Vec<Value> = wanted.map(|(group, versions)| aggregated_group(group, versions)).collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        });
        return typed(StatusCode::OK, AGGREGATED, list.to_string().into_bytes());
    }
    if core {
        let versions: Vec<&str> =
            wanted.next().map(|(_, versions)| versions.iter().map(|(v, _)| v.as_str()).collect()).unwrap_or_default();
        let list = json!({ "kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": [] });
        return json_value(StatusCode::OK, &list);
    }
    let groups: Vec<Value> = wanted.map(|(group, versions)| group_value(group, versions)).collect();
    json_value(StatusCode::OK, &json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
}

/// `/apis/GROUP`.
///
/// # Errors
/// The plain 404 for a group that is not served.
pub(crate) fn group(model: &Model, name: &str) -> Result<Response, ApiError> {
    let groups = groups(model);
    let versions = groups.get(name).ok_or_else(ApiError::group_not_served)?;
    let mut value = group_value(name, versions);
    value["kind"] = Value::from("APIGroup");
    value["apiVersion"] = Value::from("v1");
    Ok(json_value(StatusCode::OK, &value))
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
///
/// # Errors
/// 404 for a version that is not served.
pub(crate) fn version(model: &Model, group: &str, version: &str) -> Result<Response, ApiError> {
    let types = types_of(model, group, version);
    if types.is_empty() {
        return Err(model.not_served(group));
    }
    let mut resources = Vec::new();
    for of in types {
        let mut resource = json!({
            "name": of.plural, "singularName": of.singular, "namespaced": of.namespaced, "kind": of.kind,
            "verbs": verbs(&of),
        });
        if !of.short_names.is_empty() {
            resource["shortNames"] = json!(of.short_names);
        }
        if !of.categories.is_empty() {
            resource["categories"] = json!(of.categories);
        }
        resources.push(resource);
        if of.status == StatusRule::Subresource {
            resources.push(json!({
                "name": format!("{}/status", of.plural), "singularName": "", "namespaced": of.namespaced,
                "kind": of.kind, "verbs": STATUS_VERBS,
            }));
        }
    }
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
        "resources": resources,
    });
    Ok(json_bytes(StatusCode::OK, list.to_string().into_bytes()))
}

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

fn verbs(of: &Type) -> &'static [&'static str] {
    if of.group.is_empty() && of.plural == "namespaces" { NAMESPACE_VERBS } else { VERBS }
}

fn groups(model: &Model) -> BTreeMap<String, Versions> {
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for of in model.types() {
        let versions = served.entry(of.group.clone()).or_default();
        for version in &of.versions {
            if !versions.contains(version) {
                versions.push(version.clone());
            }
        }
    }
    let mut down: Vec<(String, String)> = Vec::new();
    for (group, version) in model.aggregated() {
        let versions = served.entry(group.to_owned()).or_default();
        if !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
        }
        down.push((group.to_owned(), version.to_owned()));
    }
    let mut groups = BTreeMap::new();
    for (group, mut versions) in served {
        versions.sort_by(|a, b| version_order(a, b));
        let with_types = versions.into_iter().map(|version| {
            let is_down = down.iter().any(|(g, v)| *g == group && *v == version);
            let types = (!is_down).then(|| types_of(model, &group, &version));
            (version, types)
        });
        groups.insert(group.clone(), with_types.collect());
    }
    groups
}

fn types_of(model: &Model, group: &str, version: &str) -> Vec<Arc<Type>> {
    let serves = |of: &&Arc<Type>| of.group == group && of.versions.iter().any(|known| known == version);
    model.types().filter(serves).cloned().collect()
}

fn group_value(group: &str, versions: &Versions) -> Value {
    let version = |version: &String| json!({ "groupVersion": api_version(group, version), "version": version });
    let all: Vec<Value> = versions.iter().map(|(name, _)| version(name)).collect();
    let preferred = versions.first().map(|(name, _)| version(name));
    json!({ "name": group, "versions": all, "preferredVersion": preferred })
}

fn aggregated_group(group: &str, versions: &Versions) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, types)| match types {
            None => json!({ "version": version, "freshness": "Stale" }),
            Some(types) => {
                let resources: Vec<Value> = types.iter().map(|of| aggregated_resource(of, version)).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            }
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn aggregated_resource(of: &Type, version: &str) -> Value {
    // The real server sets group and version here only for custom resources.
    let kind = if of.custom {
        json!({ "group": of.group, "version": version, "kind": of.kind })
    } else {
        json!({ "group": "", "version": "", "kind": of.kind })
    };
    let mut resource = json!({
        "resource": of.plural, "responseKind": kind, "scope": if of.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": of.singular, "verbs": verbs(of),
    });
    if !of.short_names.is_empty() {
        resource["shortNames"] = json!(of.short_names);
    }
    if !of.categories.is_empty() {
        resource["categories"] = json!(of.categories);
    }
    if of.status == StatusRule::Subresource {
        resource["subresources"] = json!([{ "subresource": "status", "responseKind": kind, "verbs": STATUS_VERBS }]);
    }
    resource
}
