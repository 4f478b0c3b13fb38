//! Compares the model with the cases of the real server's own unit tests, and with its observed answers.

use serde_json::{Value, json};

use super::*;

mod collections;
mod deletion;
mod patches;

const NOW: Now = Now(1_800_000_000_000);
const LATER: Now = Now(1_800_000_100_000);

/// A model with shorthands.
struct World {
    model: Model,
}

impl World {
    fn new() -> Self {
        Self { model: Model::new(7, NOW) }
    }

    fn create(&mut self, resource: &GroupResource, object: Value) -> Result<Written, ApiError> {
        let namespace = if resource.resource.contains("namespaces") || resource.resource.contains("custom") {
            ""
        } else {
            "default"
        };
        self.model.create(NOW, resource, namespace, map(object), &WriteOptions::default())
    }

    fn made(&mut self, resource: &GroupResource, metadata: Value) -> Arc<Object> {
        self.create(resource, json!({ "metadata": metadata })).unwrap().object
    }

    fn get(&self, resource: &GroupResource, name: &str) -> Result<Arc<Object>, ApiError> {
        self.model.get(resource, "default", name)
    }

    fn delete(&mut self, resource: &GroupResource, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.model.delete(NOW, resource, &key(name), options)
    }

    fn merge(&mut self, resource: &GroupResource, name: &str, patch: Value) -> Result<Written, ApiError> {
        self.model.patch(NOW, resource, &key(name), &Patch::Merge(patch), &WriteOptions::default())
    }

    fn update(&mut self, resource: &GroupResource, object: Value) -> Result<Written, ApiError> {
        let object = map(object);
        let key = key(name(&object));
        self.model.update(NOW, resource, &key, object, &WriteOptions::default())
    }

    /// The changes of a collection after a revision, one line each.
    fn changes(&self, resource: &GroupResource, after: u64) -> Vec<String> {
        let events = self.model.events_since(resource, None, after, 1000).unwrap();
        events.iter().map(|event| format!("{:?} {} {}", event.change, event.key.name, event.revision)).collect()
    }
}

fn map(value: Value) -> Object {
    value.as_object().unwrap().clone()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn configmaps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn controllers() -> GroupResource {
    GroupResource::new("", "replicationcontrollers")
}

fn widgets() -> GroupResource {
    GroupResource::new("example.com", "widgets")
}

fn widget_definition() -> Value {
    json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [
                { "name": "v1alpha1", "served": true, "storage": false },
                { "name": "v1", "served": true, "storage": true },
            ],
        },
    })
}
