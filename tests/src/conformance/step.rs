//! The words that cases are written in.

use serde_json::{Value, json};

/// What the API server calls a kind, and where its objects live.
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

/// The group of every custom kind here.
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
/// Its group serves v1 too, and prefers v2.
pub const AUTOSCALER: Kind = namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
pub const ROLE: Kind = namespaced("rbac.authorization.k8s.io/v1", "Role", "roles");
/// Ignored by every collector.
pub const EVENT: Kind = namespaced("v1", "Event", "events");
pub const NODE: Kind = cluster("v1", "Node", "nodes");
pub const VOLUME: Kind = cluster("v1", "PersistentVolume", "persistentvolumes");
/// Served from the start of every world, for all cases.
pub const WIDGET: Kind = namespaced(CUSTOM, "Widget", "widgets");
/// As above, cluster-scoped.
pub const CLUSTER_WIDGET: Kind = cluster(CUSTOM, "ClusterWidget", "clusterwidgets");
/// A custom kind of one case.
pub const fn own_kind(kind: &'static str, plural: &'static str) -> Kind {
    namespaced(CUSTOM, kind, plural)
}

impl Kind {
    /// `/api/v1/namespaces/NAMESPACE/configmaps`; the namespace is left out where the kind has none.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let (version, plural) = (self.api_version, self.plural);
        if self.namespaced {
            format!("/{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{root}/{version}/{plural}")
        }
    }

    /// The least that a real API server takes, without metadata.
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

/// Which of a case's two namespaces; objects of cluster-scoped kinds carry the first one's name in theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    A,
    B,
}

/// An object that a case creates. `local` names it within the case and, unless [`Object::named`] says otherwise, for the server.
#[derive(Debug, Clone)]
pub struct Object {
    pub local: &'static str,
    pub kind: Kind,
    pub name: &'static str,
    pub space: Space,
    pub owners: Vec<Reference>,
    pub finalizers: Vec<&'static str>,
    /// Merged into the body; `"$namespace"` in it stands for the object's.
    pub more: Value,
}

/// An object of a kind, in the first namespace.
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

/// An ownerReference. What it does not say is taken from the object whose uid it carries.
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

/// A reference to an object of the case, without `blockOwnerDeletion`.
pub fn to(local: &'static str) -> Reference {
    Reference { uid_of: local, api_version: None, kind: None, name: None, block: None, controller: None }
}

/// A reference to an object that never was: its uid belongs to `name`, so that two such references share it.
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

/// What a DELETE says about dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Nothing: the kind's default.
    Unset,
    Background,
    Foreground,
    Orphan,
    /// The older `orphanDependents`.
    OrphanDependents(bool),
    /// Nothing about dependents, and no grace.
    Force,
}

impl Policy {
    /// The options as the body of a DELETE.
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

/// What is true of one object, or of the collector.
#[derive(Debug, Clone)]
pub enum Expect {
    Absent(&'static str),
    Present(&'static str),
    /// There, and not in deletion.
    Alive(&'static str),
    /// There, and in deletion.
    Terminating(&'static str),
    /// There, with references to exactly these, in this order.
    Owners(&'static str, Vec<&'static str>),
    /// There, with exactly these finalizers.
    Finalizers(&'static str, Vec<&'static str>),
    /// No reference of the object blocks its owner's deletion.
    Unblocked(&'static str),
    /// An Event of this reason about the object.
    Event(&'static str, &'static str),
    /// The collector's detailed readiness names this.
    Readiness(&'static str),
    /// The collector's graph draws this uid no more.
    Forgotten(&'static str),
    /// Asked for the first, the collector draws exactly the second.
    Component(Vec<&'static str>, Vec<&'static str>),
}

/// One thing that happens in a case.
#[derive(Debug, Clone)]
pub enum Step {
    Create(Object),
    /// A merge patch.
    Patch(&'static str, Value),
    Delete(&'static str, Policy),
    /// Waits until all of it is so.
    Until(Vec<Expect>),
    /// All of it is so at this moment.
    Now(Vec<Expect>),
    /// Waits until all of it is so, and it stays so after the collector has done other work in the namespace and was left alone.
    Stays(Vec<Expect>),
    /// Writes the object over and over until it is gone.
    Churn(&'static str),
    /// Brings a custom kind into service.
    Define(Kind),
    /// Deletes the definition of a custom kind.
    Undefine(Kind),
    /// From now on the kind's objects cannot be listed where there are any.
    Break(Kind),
    /// Takes that back.
    Mend(Kind),
}

/// When a case's objects are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Twice: once before the collector starts, once while it runs.
    Twice,
    /// While it runs.
    Live,
    /// Before it starts, with a collector of its own and no other case beside it.
    Alone,
}

/// A scenario and how it has to end.
#[derive(Debug, Clone)]
pub struct Case {
    /// Of the tests of upstream that this is a translation of; empty where upstream has none.
    pub ids: &'static [&'static str],
    /// Lower-case words joined by dashes, at most 40 characters: part of the namespaces' names.
    pub name: &'static str,
    pub runs: Runs,
    /// More flags for the collector; only for a case that has one of its own.
    pub flags: &'static [&'static str],
    /// What is there before the collector has a say in it.
    pub setup: Vec<Step>,
    pub steps: Vec<Step>,
}

/// A case that runs twice.
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
    /// For cases in which the collector must have seen the setup.
    pub fn live(mut self) -> Case {
        self.runs = Runs::Live;
        self
    }

    /// For cases about what an administrator decides: a collector of its own, started with these flags when the setup is there.
    pub fn alone(mut self, flags: &'static [&'static str]) -> Case {
        self.runs = Runs::Alone;
        self.flags = flags;
        self
    }
}

/// The value with a word in it replaced.
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

/// Lays one object over another.
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
