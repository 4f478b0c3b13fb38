//! Custom resource definitions: objects that add and remove types.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clock::Now;
use super::error::{ApiError, Cause};
use super::kinds::{DefaultPolicy, GroupResource, NameRule, StatusRule, Type, version_order};
use super::metadata::{self, Object};
use super::options::DeleteOptions;
use super::store::{Event, ObjectKey};
use super::{Change, Model};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const RESOURCE: &str = "customresourcedefinitions";
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Maximum number of versions of one definition.
const VERSIONS_MAX: usize = 64;

pub(crate) fn definitions() -> GroupResource {
    GroupResource::new(GROUP, RESOURCE)
}

/// Sets the defaults of the real server, checks the fields that the type table needs, and accepts the names at once.
pub(crate) fn prepare(of: &Type, now: Now, object: &mut Object) -> Result<(), ApiError> {
    fill_names(object);
    check(of, object)?;
    let at = now.timestamp();
    let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message });
    let conditions = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    let storage = storage_version(object).unwrap_or_default();
    let names = object["spec"]["names"].clone();
    object.insert(
        "status".to_owned(),
        json!({ "acceptedNames": names, "conditions": conditions, "storedVersions": [storage] }),
    );
    Ok(())
}

/// Checks immutable fields, and applies the consequences of changes.
pub(crate) fn check_update(of: &Type, _now: Now, old: &Object, object: &mut Object) -> Result<(), ApiError> {
    fill_names(object);
    check(of, object)?;
    let mut causes = Vec::new();
    for field in ["/group", "/scope", "/names/plural", "/names/kind"] {
        if old["spec"].pointer(field) != object["spec"].pointer(field) {
            let name = format!("spec{}", field.replace('/', "."));
            causes.push(Cause::invalid(name, "", "field is immutable"));
        }
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid(of, metadata::name(old), causes));
    }
    let storage = storage_version(object).map(Value::from).unwrap_or_default();
    if let Some(stored) = object.get_mut("status").and_then(|status| status.get_mut("storedVersions")?.as_array_mut())
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    Ok(())
}

/// The definition after its first DELETE.
pub(crate) fn mark(now: Now, old: &Arc<Object>) -> Object {
    let mut object = Object::clone(old);
    metadata::set(&mut object, "deletionTimestamp", now.timestamp());
    let mut finalizers: Vec<String> = metadata::finalizers(old).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    metadata::set_finalizers(&mut object, &finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_terminating(now, &mut object, "True", "InstanceDeletionPending", message);
    object
}

fn set_terminating(now: Now, object: &mut Object, status: &str, reason: &str, message: &str) {
    let condition = json!({
        "type": "Terminating", "status": status, "lastTransitionTime": now.timestamp(),
        "reason": reason, "message": message,
    });
    let status = object.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|known| known["type"] == "Terminating") {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    status["conditions"] = Value::Array(conditions);
}

fn fill_names(object: &mut Object) {
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if !spec["names"].is_object() {
        return;
    }
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if spec["names"]["singular"].as_str().is_none_or(str::is_empty) {
        spec["names"]["singular"] = Value::from(kind.to_lowercase());
    }
    if spec["names"]["listKind"].as_str().is_none_or(str::is_empty) {
        spec["names"]["listKind"] = Value::from(format!("{kind}List"));
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({ "strategy": "None" });
    }
}

fn check(of: &Type, object: &Object) -> Result<(), ApiError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let text = |path: &str| spec.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let name = metadata::name(object);
    let mut causes = Vec::new();
    for field in ["/group", "/names/plural", "/names/kind"] {
        if text(field).is_empty() {
            causes.push(Cause::required(format!("spec{}", field.replace('/', ".")), "must be set"));
        }
    }
    if !text("/group").contains('.') {
        causes.push(Cause::invalid("spec.group", text("/group"), "should be a domain with at least one dot"));
    }
    if text("/group").ends_with(".k8s.io") && super::kinds::built_ins().any(|known| known.group == text("/group")) {
        causes.push(Cause::invalid("spec.group", text("/group"), "is served by the server itself"));
    }
    if name != format!("{}.{}", text("/names/plural"), text("/group")) {
        causes.push(Cause::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if !matches!(text("/scope"), "Namespaced" | "Cluster") {
        causes.push(Cause::invalid("spec.scope", text("/scope"), "must be \"Cluster\" or \"Namespaced\""));
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.len() > VERSIONS_MAX {
        causes.push(Cause::invalid("spec.versions", "", "too many versions"));
    }
    if versions.iter().any(|version| version["name"].as_str().is_none_or(str::is_empty)) {
        causes.push(Cause::required("spec.versions", "every version must have a name"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        causes.push(Cause::invalid("spec.versions", "", "must have exactly one version marked as storage version"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(of, name, causes)) }
}

fn storage_version(object: &Object) -> Option<String> {
    let versions = object.get("spec")?["versions"].as_array()?;
    let storage = versions.iter().find(|version| version["storage"] == true)?;
    storage["name"].as_str().map(str::to_owned)
}

/// The type of a definition; `None` if no version of it is served.
fn type_of(definition: &Object) -> Option<Type> {
    let spec = definition.get("spec")?;
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().map(|list| list.iter().map(text).collect()).unwrap_or_default();
    let mut versions: Vec<&Value> =
        spec["versions"].as_array()?.iter().filter(|version| version["served"] == true).collect();
    versions.sort_by(|a, b| version_order(&text(&a["name"]), &text(&b["name"])));
    let preferred = versions.first()?;
    let has_status = !preferred["subresources"]["status"].is_null();
    Some(Type {
        group: text(&spec["group"]),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        versions: versions.iter().map(|version| text(&version["name"])).collect(),
        storage_version: storage_version(definition)?,
        namespaced: spec["scope"] == "Namespaced",
        custom: true,
        graceful: false,
        default_policy: DefaultPolicy::Background,
        returns_deleted: false,
        generation: true,
        status: if has_status { StatusRule::Subresource } else { StatusRule::Plain },
        names: NameRule::Subdomain,
        pod_spec: "",
        merge_keys: &[],
        selectable: &[],
    })
}

impl Model {
    /// Deletes the instances of terminating definitions, and removes definitions without instances. Returns whether any
    /// definition made a step.
    pub(super) fn finalize_definitions(&mut self, now: Now) -> bool {
        let mut progress = false;
        for (name, swept) in self.terminating_definitions.clone() {
            let Some((plural, group)) = name.split_once('.') else { continue };
            let (key, instances) = (ObjectKey::new("", &name), GroupResource::new(group, plural));
            if !swept {
                self.terminating_definitions.insert(name.clone(), true);
                if let Some(old) = self.store.get(&definitions(), &key) {
                    let mut object = Object::clone(old);
                    let message = "CustomResource deletion is in progress";
                    set_terminating(now, &mut object, "True", "InstanceDeletionInProgress", message);
                    self.put(now, &definitions(), key.clone(), object);
                }
                self.sweep(now, &instances, None, &DeleteOptions::default());
                progress = true;
            }
            let empty = self.store.collection(&instances).is_none_or(|collection| collection.objects.is_empty());
            if empty {
                progress |= self.release_definition(now, &key);
            }
        }
        progress
    }

    /// Like the real server, writes the last condition and removes the finalizer in one update. Without other
    /// finalizers that update is the removal, and no client sees the condition.
    fn release_definition(&mut self, now: Now, key: &ObjectKey) -> bool {
        let Some(old) = self.store.get(&definitions(), key) else { return false };
        let mut finalizers: Vec<String> = metadata::finalizers(old).into_iter().map(str::to_owned).collect();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            return false;
        }
        finalizers.retain(|name| name != FINALIZER);
        if finalizers.is_empty() {
            self.erase(now, &definitions(), key);
            return true;
        }
        let mut object = Object::clone(old);
        metadata::set_finalizers(&mut object, &finalizers);
        set_terminating(now, &mut object, "False", "InstanceDeletionCompleted", "removed all instances");
        self.put(now, &definitions(), key.clone(), object);
        true
    }

    /// Applies a change of a definition: its type is added, changed or removed.
    pub(crate) fn note_definition(&mut self, _now: Now, event: &Event) {
        let Some((plural, group)) = event.key.name.split_once('.') else { return };
        let instances = GroupResource::new(group, plural);
        let gone = event.change == Change::Deleted;
        if gone {
            self.terminating_definitions.remove(&event.key.name);
            self.store.close(&instances);
        } else if metadata::is_terminating(&event.object) {
            self.terminating_definitions.entry(event.key.name.clone()).or_insert(false);
        }
        let of = if gone { None } else { type_of(&event.object) };
        let changed = match of {
            Some(of) => {
                self.store.open(instances.clone());
                let versions = of.versions.clone();
                let before = self.types.insert(instances.clone(), Arc::new(of));
                before.is_none_or(|before| before.versions != versions)
            }
            None => self.types.remove(&instances).is_some(),
        };
        if changed {
            self.aggregation_is_stale = true;
            self.touched.insert(instances);
        }
    }
}
