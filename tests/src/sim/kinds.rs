//! The kinds of a simulated world, and the decoder of its objects.

use engine::object::{self, Facts, HOLD_ANNOTATION, Name, OwnerReference, ResourceVersion, Uid};
use sandbox::model::{self, GroupResource};
use serde_json::Value;

/// One kind of the world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) version: &'static str,
    pub(super) namespaced: bool,
    pub(super) custom: bool,
    /// The kind whose objects this kind shows under another group, with the same uids.
    pub(super) shows: Option<usize>,
}

const fn kind(group: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { group, kind, plural, version: "v1", namespaced, custom: false, shows: None }
}

const fn custom(kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { group: "example.com", kind, plural, version: "v1", namespaced, custom: true, shows: None }
}

const fn mirror(shows: usize, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "mirror.example.com",
        kind,
        plural,
        version: "v1",
        namespaced: true,
        custom: false,
        shows: Some(shows),
    }
}

pub(super) const KINDS: [Kind; 12] = [
    kind("", "ConfigMap", "configmaps", true),
    kind("", "Secret", "secrets", true),
    kind("batch", "Job", "jobs", true),
    kind("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
    custom("Thing", "things", true),
    custom("Widget", "widgets", true),
    custom("Planet", "planets", false),
    kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false),
    kind("rbac.authorization.k8s.io", "Role", "roles", true),
    kind("networking.k8s.io", "Ingress", "ingresses", true),
    kind("", "Pod", "pods", true),
    mirror(MIRRORED, "ConfigMap", "configmaps"),
];

/// The kind whose objects a second group may show too.
pub(super) const MIRRORED: usize = 0;
pub(super) const DEFINITIONS: usize = 7;
/// The kind that is not watched. Its objects are only owners.
pub(super) const UNWATCHED: usize = 8;
/// The kind that may be behind an APIService.
pub(super) const AGGREGATED: usize = 9;
/// The kind whose deletion has two steps, with a grace period.
pub(super) const PODS: usize = 10;
/// The second group for the objects of [`MIRRORED`], if it is served. It has a watch of its own.
pub(super) const MIRROR: usize = 11;
/// The kinds under which objects are stored.
pub(super) const STORED: usize = 11;
pub(super) const NAMESPACES: [&str; 2] = ["default", "kube-public"];

impl Kind {
    /// The resource under which the objects of this kind are stored.
    pub(super) fn resource(&self) -> GroupResource {
        match self.shows {
            Some(shown) => KINDS[shown].resource(),
            None => GroupResource::new(self.group, self.plural),
        }
    }

    /// The name of the kind.
    pub(super) fn key(&self) -> object::GroupResource {
        object::GroupResource { group: Name::from(self.group), resource: Name::from(self.plural) }
    }

    pub(super) fn api_version(&self) -> String {
        model::api_version(self.group, self.version)
    }
}

pub(super) fn by_resource(group: &str, plural: &str) -> Option<usize> {
    KINDS.iter().position(|kind| kind.group == group && kind.plural == plural)
}

pub(super) fn by_kind(group: &str, name: &str) -> Option<usize> {
    KINDS.iter().position(|kind| kind.group == group && kind.kind == name)
}

/// Returns the kind under which the objects of this kind are stored.
pub(super) fn stored(kind: usize) -> usize {
    KINDS[kind].shows.unwrap_or(kind)
}

/// Returns the facts that the collector reads from a stored object.
pub(super) fn observe(stored: &model::Object) -> object::Object {
    let metadata = &stored["metadata"];
    let owners = metadata["ownerReferences"].as_array().map(|list| list.iter().filter_map(reference).collect());
    let hold = metadata["annotations"].as_object().is_some_and(|all| all.contains_key(HOLD_ANNOTATION));
    let mut facts = Facts {
        owners: owners.unwrap_or_default(),
        excess: None,
        finalizers: model::finalizers(stored).into_iter().map(Name::from).collect(),
        terminating: model::is_terminating(stored),
        hold,
        deletion_time: None,
    };
    facts.bound();
    object::Object {
        marks: Default::default(),
        uid: Uid::parse(model::uid(stored)).expect("the model gives every object a uid"),
        namespace: Name::from(model::namespace(stored)),
        name: Name::from(model::name(stored)),
        resource_version: ResourceVersion::parse(model::text(stored, "resourceVersion")),
        facts,
    }
}

fn reference(value: &Value) -> Option<OwnerReference> {
    let text = |field: &str| Some(Name::from(value[field].as_str()?));
    Some(OwnerReference {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: Uid::parse(value["uid"].as_str()?)?,
        controller: value["controller"].as_bool(),
        block_owner_deletion: value["blockOwnerDeletion"].as_bool(),
    })
}
