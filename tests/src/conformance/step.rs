//! The vocabulary of the cases.

use serde_json::{Value, json};

/// The API server's names for a kind, and the place of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true }
}

const fn cluster(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: false }
}

/// The group of every custom kind in the cases.
pub const GROUP: &str = "conformance.example.com";
const CUSTOM: &str = "conformance.example.com/v1";

pub const CONFIGMAP: Kind = namespaced("v1", "ConfigMap", "configmaps");
pub const SECRET: Kind = namespaced("v1", "Secret", "secrets");
pub const POD: Kind = namespaced("v1", "Pod", "pods");
pub const RC: Kind = namespaced("v1", "ReplicationController", "replicationcontrollers");
pub const DEPLOYMENT: Kind = namespaced("apps/v1", "Deployment", "deployments");
pub const REPLICASET: Kind = namespaced("apps/v1", "ReplicaSet", "replicasets");
pub const JOB: Kind = namespaced("batch/v1", "Job", "jobs");
pub const CRONJOB: Kind = namespaced("batch/v1", "CronJob", "cronjobs");
/// The group serves v1 too, and prefers v2.
pub const AUTOSCALER: Kind = namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
pub const ROLE: Kind = namespaced("rbac.authorization.k8s.io/v1", "Role", "roles");
/// Every collector ignores the kind.
pub const EVENT: Kind = namespaced("v1", "Event", "events");
pub const NODE: Kind = cluster("v1", "Node", "nodes");
pub const VOLUME: Kind = cluster("v1", "PersistentVolume", "persistentvolumes");
/// A custom kind that every world serves from its start, for all cases.
pub const WIDGET: Kind = namespaced(CUSTOM, "Widget", "widgets");
/// A cluster-scoped kind of this sort.
pub const CLUSTER_WIDGET: Kind = cluster(CUSTOM, "ClusterWidget", "clusterwidgets");
/// A custom kind of a single case.
pub const fn own_kind(kind: &'static str, plural: &'static str) -> Kind {
    namespaced(CUSTOM, kind, plural)
}

impl Kind {
    /// The path of the collection, such as `/api/v1/namespaces/NAMESPACE/configmaps`. A cluster-scoped kind has no
    /// namespace in it.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let (version, plural) = (self.api_version, self.plural);
        if self.namespaced {
            format!("/{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{root}/{version}/{plural}")
        }
    }

    /// The minimum that a real API server accepts, without metadata.
    pub fn body(&self) -> Value {
        let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "only", "image": "none" }] });
        let mut always = pod.clone();
        always["restartPolicy"] = json!("Always");
        let labels = json!({ "app": "conformance" });
        let template = |spec: &Value| json!({ "metadata": { "labels": labels }, "spec": spec });
        let mut object = match self.kind {
            "Pod" => json!({ "spec": pod }),
            "ReplicationController" => {
                json!({ "spec": { "replicas": 0, "selector": labels, "template": template(&always) } })
            }
            "ReplicaSet" | "Deployment" => {
                json!({ "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": template(&always) } })
            }
            "Job" => json!({ "spec": { "template": { "spec": pod } } }),
            "CronJob" => {
                json!({ "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": { "spec": pod } } } } })
            }
            "HorizontalPodAutoscaler" => {
                let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "none" });
                json!({ "spec": { "maxReplicas": 2, "scaleTargetRef": target } })
            }
            "PersistentVolume" => json!({ "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/nowhere" },
            } }),
            _ => json!({}),
        };
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        object
    }
}

/// One of a case's two namespaces. The name of a cluster-scoped object contains the name of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    A,
    B,
}

/// An object that a case creates. `local` is its name in the case, and also its name at the server unless
/// [`Object::named`] sets another one.
#[derive(Debug, Clone)]
pub struct Object {
    pub local: &'static str,
    pub kind: Kind,
    pub name: &'static str,
    pub space: Space,
    pub owners: Vec<Reference>,
    pub finalizers: Vec<&'static str>,
    /// Fields on top of the minimum. `"$namespace"` stands for the object's namespace.
    pub more: Value,
}

/// Returns an object of a kind, in the first namespace.
pub fn object(kind: Kind, local: &'static str) -> Object {
    Object { local, kind, name: local, space: Space::A, owners: vec![], finalizers: vec![], more: Value::Null }
}

impl Object {
    pub fn owned(mut self, by: Reference) -> Object {
        self.owners.push(by);
        self
    }

    pub fn in_b(mut self) -> Object {
        self.space = Space::B;
        self
    }

    pub fn named(mut self, name: &'static str) -> Object {
        self.name = name;
        self
    }

    pub fn finalizer(mut self, finalizer: &'static str) -> Object {
        self.finalizers.push(finalizer);
        self
    }

    pub fn with(mut self, more: Value) -> Object {
        self.more = more;
        self
    }
}

/// An ownerReference. The object with its uid gives all fields that it does not set.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The local name of an object that exists at that step, or a word for a uid that no object has.
    pub uid_of: &'static str,
    pub api_version: Option<&'static str>,
    pub kind: Option<Kind>,
    pub name: Option<&'static str>,
    pub block: Option<bool>,
    pub controller: Option<bool>,
}

/// Returns a reference to an object of the case, without `blockOwnerDeletion`.
pub fn to(local: &'static str) -> Reference {
    Reference { uid_of: local, api_version: None, kind: None, name: None, block: None, controller: None }
}

/// Returns a reference to an object that never existed. `name` determines its uid, so two such references can share it.
pub fn missing(kind: Kind, name: &'static str) -> Reference {
    Reference { kind: Some(kind), name: Some(name), ..to(name) }
}

impl Reference {
    pub fn blocking(mut self) -> Reference {
        self.block = Some(true);
        self
    }

    pub fn not_blocking(mut self) -> Reference {
        self.block = Some(false);
        self
    }

    pub fn controller(mut self) -> Reference {
        self.controller = Some(true);
        self
    }

    pub fn kind(mut self, kind: Kind) -> Reference {
        self.kind = Some(kind);
        self
    }

    pub fn version(mut self, api_version: &'static str) -> Reference {
        self.api_version = Some(api_version);
        self
    }

    pub fn named(mut self, name: &'static str) -> Reference {
        self.name = Some(name);
        self
    }

    pub fn uid(mut self, of: &'static str) -> Reference {
        self.uid_of = of;
        self
    }
}

/// The propagation policy of a DELETE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// No policy, so the default of the kind applies.
    Unset,
    Background,
    Foreground,
    Orphan,
    /// The older field `orphanDependents`.
    OrphanDependents(bool),
    /// No policy, and no grace period.
    Force,
}

impl Policy {
    /// Returns the options as the body of a DELETE.
    pub fn options(self) -> Value {
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        match self {
            Policy::Unset => {}
            Policy::Background => options["propagationPolicy"] = json!("Background"),
            Policy::Foreground => options["propagationPolicy"] = json!("Foreground"),
            Policy::Orphan => options["propagationPolicy"] = json!("Orphan"),
            Policy::Force => options["gracePeriodSeconds"] = json!(0),
            Policy::OrphanDependents(orphan) => options["orphanDependents"] = json!(orphan),
        }
        options
    }
}

/// A condition on one object, or on the collector.
#[derive(Debug, Clone)]
pub enum Expect {
    Absent(&'static str),
    Present(&'static str),
    /// The object exists and is not in deletion.
    Alive(&'static str),
    /// The object exists and is in deletion.
    Terminating(&'static str),
    /// The object exists, with references to exactly these owners in this order.
    Owners(&'static str, Vec<&'static str>),
    /// The object exists, with exactly these finalizers.
    Finalizers(&'static str, Vec<&'static str>),
    /// No reference of the object blocks the deletion of its owner.
    Unblocked(&'static str),
    /// There is an Event with this reason about the object.
    Event(&'static str, &'static str),
    /// The collector's detailed readiness contains this text.
    Readiness(&'static str),
    /// The collector's graph does not contain this uid any more.
    Forgotten(&'static str),
    /// The collector's graph around the first object has exactly the second ones.
    Component(Vec<&'static str>, Vec<&'static str>),
}

/// One step of a case.
#[derive(Debug, Clone)]
pub enum Step {
    Create(Object),
    /// Sends a merge patch.
    Patch(&'static str, Value),
    Delete(&'static str, Policy),
    /// Waits until all conditions hold.
    Until(Vec<Expect>),
    /// Checks that all conditions hold now.
    Now(Vec<Expect>),
    /// Waits until all conditions hold. Checks that they still hold after the collector has done other work in the
    /// namespace and has had time.
    Stays(Vec<Expect>),
    /// Writes the object repeatedly until it is gone.
    Churn(&'static str),
    /// Defines a custom kind.
    Define(Kind),
    /// Deletes the definition of a custom kind.
    Undefine(Kind),
    /// Makes lists of the kind fail in every namespace with objects.
    Break(Kind),
    /// Makes these lists succeed again.
    Mend(Kind),
}

/// The time at which the objects of a case are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The case runs twice: its objects are created before the collector starts, and while it runs.
    Twice,
    /// While the collector runs.
    Live,
    /// Before the collector starts. The case has its own collector, and no other case runs.
    Alone,
}

/// A scenario and its end.
#[derive(Debug, Clone)]
pub struct Case {
    /// The ids of upstream's tests that the case translates. The list is empty for a case without a counterpart.
    pub ids: &'static [&'static str],
    /// Lower-case words with dashes between them, at most 40 characters. They are part of the namespaces' names.
    pub name: &'static str,
    pub runs: Runs,
    /// Additional flags of the collector. Only a case with its own collector has some.
    pub flags: &'static [&'static str],
    /// The objects that exist before the collector acts.
    pub setup: Vec<Step>,
    pub steps: Vec<Step>,
}

/// Returns a case that runs twice.
pub fn case(
    ids: &'static [&'static str],
    name: &'static str,
    setup: impl IntoIterator<Item = Object>,
    steps: impl IntoIterator<Item = Step>,
) -> Case {
    let setup = setup.into_iter().map(Step::Create).collect();
    Case { ids, name, runs: Runs::Twice, flags: &[], setup, steps: steps.into_iter().collect() }
}

impl Case {
    /// Returns a case in which the collector must have seen the setup.
    pub fn live(mut self) -> Case {
        self.runs = Runs::Live;
        self
    }

    /// Returns a case about a choice of the administrator. Its own collector starts with these flags after the setup.
    pub fn alone(mut self, flags: &'static [&'static str]) -> Case {
        self.runs = Runs::Alone;
        self.flags = flags;
        self
    }
}

/// Returns the value with another text in place of a word.
pub(super) fn replace(value: &Value, word: &str, by: &str) -> Value {
    match value {
        Value::String(text) if text == word => json!(by),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), replace(value, word, by))).collect())
        }
        Value::Array(items) => items.iter().map(|item| replace(item, word, by)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Puts the fields of one object over those of another.
pub(super) fn merge(base: &mut Value, over: &Value) {
    match over {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                merge(&mut base[name.as_str()], value);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => *base = over.clone(),
    }
}
