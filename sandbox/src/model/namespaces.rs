//! Namespaces: deleted only after their content is gone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Model;
use super::clock::Now;
use super::kinds::GroupResource;
use super::metadata::{self, FOREGROUND, ORPHAN, Object};
use super::options::{DeleteOptions, Policy};
use super::store::{Event, ObjectKey};

const FINALIZER: &str = "kubernetes";

pub(crate) fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}

/// The defaults of a new namespace: the finalizer in its spec, a phase, a label with its name.
pub(crate) fn prepare(object: &mut Object) {
    object.insert("spec".to_owned(), json!({ "finalizers": [FINALIZER] }));
    object.insert("status".to_owned(), json!({ "phase": "Active" }));
    let name = metadata::name(object).to_owned();
    let mut labels = metadata::value(object, "labels").cloned().unwrap_or_else(|| json!({}));
    labels["kubernetes.io/metadata.name"] = Value::from(name);
    metadata::set(object, "labels", labels);
}

/// Whether the spec has no finalizer left: the content is gone.
pub(crate) fn is_empty(object: &Object) -> bool {
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    finalizers.is_none_or(Vec::is_empty)
}

/// Only the finalizing step changes the finalizers in the spec; updates do not.
pub(crate) fn keep_finalizers(old: &Object, object: &mut Object) {
    let kept = old.get("spec").cloned().unwrap_or_else(|| json!({}));
    object.insert("spec".to_owned(), kept);
}

/// Whether a DELETE only marks the namespace, because it still has content.
pub(crate) fn begins_or_waits(object: &Object) -> bool {
    !metadata::is_terminating(object) || !is_empty(object)
}

/// The terminating namespace. The GC finalizers follow only the first DELETE.
pub(crate) fn mark(now: Now, old: &Arc<Object>, options: &DeleteOptions) -> Object {
    let mut object = Object::clone(old);
    if metadata::is_terminating(old) {
        return object;
    }
    metadata::set(&mut object, "deletionTimestamp", now.timestamp());
    object.insert("status".to_owned(), json!({ "phase": "Terminating" }));
    let carried: Vec<String> = metadata::finalizers(old).into_iter().map(str::to_owned).collect();
    let wants = |finalizer: &str, policy: Policy, flag: Option<bool>| match (options.propagation_policy, flag) {
        (Some(asked), _) => asked == policy,
        (None, Some(flag)) => flag,
        (None, None) => carried.iter().any(|name| name == finalizer),
    };
    let orphan = wants(ORPHAN, Policy::Orphan, options.orphan_dependents);
    let foreground = wants(FOREGROUND, Policy::Foreground, options.orphan_dependents.map(|_| false));
    let mut finalizers: Vec<String> =
        carried.iter().filter(|name| *name != ORPHAN && *name != FOREGROUND).cloned().collect();
    finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
    finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
    metadata::set_finalizers(&mut object, &finalizers);
    object
}

impl Model {
    /// Deletes the content of terminating namespaces in background, and removes empty ones. Returns whether any
    /// namespace made a step.
    pub(super) fn finalize_namespaces(&mut self, now: Now) -> bool {
        let mut progress = false;
        for (name, swept) in self.terminating_namespaces.clone() {
            if !swept {
                self.terminating_namespaces.insert(name.clone(), true);
                self.sweep_namespace(now, &name);
                progress = true;
            }
            let has_content = |resource: &GroupResource| {
                let collection = self.store.collection(resource);
                collection.is_some_and(|collection| collection.objects_in(Some(&name)).next().is_some())
            };
            let occupied = self.types.iter().any(|(resource, of)| of.namespaced && has_content(resource));
            if !occupied {
                progress |= self.release_namespace(now, &name);
            }
        }
        progress
    }

    fn sweep_namespace(&mut self, now: Now, namespace: &str) {
        let namespaced = self.types.iter().filter(|(_, of)| of.namespaced);
        let resources: Vec<GroupResource> = namespaced.map(|(resource, _)| resource.clone()).collect();
        let options = DeleteOptions { propagation_policy: Some(Policy::Background), ..DeleteOptions::default() };
        for resource in resources {
            self.sweep(now, &resource, Some(namespace), &options);
        }
    }

    /// Deletes the objects of a collection, in one namespace or in all, except terminating ones.
    pub(crate) fn sweep(
        &mut self,
        now: Now,
        resource: &GroupResource,
        namespace: Option<&str>,
        options: &DeleteOptions,
    ) {
        let Some(collection) = self.store.collection(resource) else { return };
        let living = collection.objects_in(namespace).filter(|(_, object)| !metadata::is_terminating(object));
        let keys: Vec<ObjectKey> = living.map(|(key, _)| key.clone()).collect();
        for key in keys {
            // A hidden type refuses. Its objects remain, and block the namespace.
            drop(self.delete(now, resource, &key, options));
        }
    }

    /// Removes the finalizer from the spec. The namespace goes unless other finalizers hold it.
    fn release_namespace(&mut self, now: Now, name: &str) -> bool {
        let key = ObjectKey::new("", name);
        let Some(old) = self.store.get(&namespaces(), &key).filter(|old| !is_empty(old)).cloned() else {
            return false;
        };
        if metadata::finalizers(&old).is_empty() {
            self.erase(now, &namespaces(), &key);
        } else {
            let mut object = Object::clone(&old);
            object.insert("spec".to_owned(), json!({}));
            self.put(now, &namespaces(), key, object);
        }
        true
    }

    pub(crate) fn note_namespace(&mut self, event: &Event) {
        let gone = event.change == super::Change::Deleted;
        if gone {
            self.terminating_namespaces.remove(&event.key.name);
        } else if metadata::is_terminating(&event.object) {
            self.terminating_namespaces.entry(event.key.name.clone()).or_insert(false);
        }
    }
}
