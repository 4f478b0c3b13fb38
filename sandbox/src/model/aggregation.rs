//! APIServices: one for each version that is served here, and those with a backend.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Model;
use super::clock::Now;
use super::kinds::GroupResource;
use super::metadata::{self, Object};
use super::options::WriteOptions;
use super::store::ObjectKey;

pub(crate) const GROUP: &str = "apiregistration.k8s.io";
pub(crate) const RESOURCE: &str = "apiservices";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

pub(crate) fn services() -> GroupResource {
    GroupResource::new(GROUP, RESOURCE)
}

/// The status of a new APIService. There are no backends here, so an APIService with a backend is not available.
pub(crate) fn prepare(now: Now, object: &mut Object) {
    let service = object.get("spec").map(|spec| spec["service"].clone()).unwrap_or_default();
    let at = now.timestamp();
    let condition = if service.is_null() {
        let message = "Local APIServices are always available";
        json!({ "type": "Available", "status": "True", "lastTransitionTime": at, "reason": "Local", "message": message })
    } else {
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        let message = format!("service/{} in \"{}\" is not present", text("name"), text("namespace"));
        json!({
            "type": "Available", "status": "False", "lastTransitionTime": at,
            "reason": "ServiceNotFound", "message": message,
        })
    };
    object.insert("status".to_owned(), json!({ "conditions": [condition] }));
}

impl Model {
    /// The versions of APIServices with a backend, as (group, version). None of them answers.
    pub fn aggregated(&self) -> impl Iterator<Item = (&str, &str)> {
        let spec = |object: &'_ Object, field: &str| object.get("spec").is_some_and(|spec| !spec[field].is_null());
        self.objects_of_services().filter(move |object| spec(object, "service")).filter_map(|object| {
            let spec = object.get("spec")?;
            Some((spec["group"].as_str()?, spec["version"].as_str()?))
        })
    }

    fn objects_of_services(&self) -> impl Iterator<Item = &Object> {
        let collection = self.store.collection(&services());
        collection.into_iter().flat_map(|collection| collection.objects.values()).map(AsRef::as_ref)
    }

    /// Creates missing APIServices, and removes those of versions that are no longer served.
    pub(crate) fn refresh_aggregation(&mut self, now: Now) {
        if !std::mem::take(&mut self.aggregation_is_stale) {
            return;
        }
        let mut served: BTreeMap<String, (String, String, bool)> = BTreeMap::new();
        for of in self.types() {
            for version in &of.versions {
                let name = format!("{version}.{}", of.group);
                served.insert(name, (of.group.clone(), version.clone(), of.custom));
            }
        }
        let automanaged = |object: &&Object| {
            metadata::value(object, "labels").is_some_and(|labels| labels.get(AUTOMANAGED).is_some())
        };
        let mine = self.objects_of_services().filter(automanaged);
        let obsolete: Vec<String> =
            mine.map(metadata::name).filter(|name| !served.contains_key(*name)).map(str::to_owned).collect();
        for name in obsolete {
            self.erase(now, &services(), &ObjectKey::new("", &name));
        }
        for (name, (group, version, custom)) in served {
            if self.store.get(&services(), &ObjectKey::new("", &name)).is_none() {
                self.register(now, &name, &group, &version, custom);
            }
        }
        self.aggregation_is_stale = false;
    }

    fn register(&mut self, now: Now, name: &str, group: &str, version: &str, custom: bool) {
        let (managed, group_priority, version_priority) =
            if custom { ("true", 1000, 100) } else { ("onstart", 17_000, 15) };
        let service = json!({
            "metadata": { "name": name, "labels": { AUTOMANAGED: managed } },
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
            },
        });
        let Value::Object(service) = service else { return };
        // Fails only while APIServices themselves are hidden. The next change tries again.
        drop(self.create(now, &services(), "", service, &WriteOptions::default()));
    }
}
