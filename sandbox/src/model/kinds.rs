//! The table of served types.

use std::fmt;

/// The identity of a collection. All versions of a resource share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: String,
    /// The plural, as in URLs.
    pub resource: String,
}

impl GroupResource {
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// The effect of a deletion without a propagation policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPolicy {
    Background,
    Orphan,
    /// The GC finalizers are never set, whatever the request says.
    Unsupported,
}

/// The valid names of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, 253 characters.
    Subdomain,
    /// DNS-1123 label, 63 characters.
    Label,
    /// Any single path segment.
    PathSegment,
}

/// How `status` is separated from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRule {
    /// No status subresource: `status` is an ordinary field.
    Plain,
    /// Written only through `/status`.
    Subresource,
}

/// One served resource.
#[derive(Debug, Clone)]
pub struct Type {
    pub group: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// Served versions, the preferred one first. Never empty.
    pub versions: Vec<String>,
    /// The version of stored objects.
    pub storage_version: String,
    pub namespaced: bool,
    /// Defined by a CustomResourceDefinition.
    pub custom: bool,
    /// Deleted in two steps with a grace period, like pods.
    pub graceful: bool,
    pub default_policy: DefaultPolicy,
    /// Answers a completed DELETE with the object instead of a Status.
    pub returns_deleted: bool,
    /// `metadata.generation` counts changes of the spec.
    pub generation: bool,
    pub status: StatusRule,
    pub names: NameRule,
    /// The path of a PodSpec (`spec.template.spec`); empty if there is none.
    pub pod_spec: &'static str,
    /// Lists with a merge key, besides those of metadata, conditions and the PodSpec: path and key.
    pub merge_keys: &'static [(&'static str, &'static str)],
    /// Fields for a fieldSelector besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
}

impl Type {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// `deployments.apps`, `pods`: the name of the resource in messages.
    pub fn qualified(&self) -> String {
        self.group_resource().to_string()
    }

    pub fn storage_api_version(&self) -> String {
        api_version(&self.group, &self.storage_version)
    }
}

/// `apps/v1`, `v1`.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A row of the table below.
fn row(group: &str, kind: &str, plural: &str) -> Type {
    Type {
        group: group.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        versions: vec!["v1".to_owned()],
        storage_version: "v1".to_owned(),
        namespaced: true,
        custom: false,
        graceful: false,
        default_policy: DefaultPolicy::Background,
        returns_deleted: false,
        generation: false,
        status: StatusRule::Plain,
        names: NameRule::Subdomain,
        pod_spec: "",
        merge_keys: &[],
        selectable: &[],
    }
}

impl Type {
    fn short(mut self, short_names: &[&str]) -> Self {
        self.short_names = short_names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn in_all(mut self) -> Self {
        self.categories = vec!["all".to_owned()];
        self
    }

    /// A type with a status subresource.
    fn status(mut self) -> Self {
        self.status = StatusRule::Subresource;
        self
    }

    fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    fn policy(mut self, policy: DefaultPolicy) -> Self {
        self.default_policy = policy;
        self
    }

    fn names(mut self, names: NameRule) -> Self {
        self.names = names;
        self
    }

    fn pod_spec(mut self, path: &'static str) -> Self {
        self.pod_spec = path;
        self
    }

    fn merge_keys(mut self, keys: &'static [(&'static str, &'static str)]) -> Self {
        self.merge_keys = keys;
        self
    }

    fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    fn versions(mut self, versions: &[&str]) -> Self {
        self.versions = versions.iter().map(|&version| version.to_owned()).collect();
        self.storage_version = versions[0].to_owned();
        self
    }

    fn graceful(mut self) -> Self {
        self.graceful = true;
        self
    }
}

const TEMPLATE: &str = "spec.template.spec";
const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const RBAC: &str = "rbac.authorization.k8s.io";
const WEBHOOKS: &[(&str, &str)] = &[("webhooks", "name")];
const POD_STATUS: &[(&str, &str)] = &[("status.podIPs", "ip"), ("status.hostIPs", "ip")];

/// The types of every server.
pub(crate) fn built_ins() -> impl Iterator<Item = Type> {
    [
        row("", "Namespace", "namespaces")
            .short(&["ns"])
            .cluster()
            .status()
            .names(NameRule::Label)
            .selectable(&["status.phase", "name"]),
        row("", "Pod", "pods")
            .short(&["po"])
            .in_all()
            .status()
            .generation()
            .graceful()
            .returns_deleted()
            .pod_spec("spec")
            .merge_keys(POD_STATUS)
            .selectable(POD_FIELDS),
        row("", "ConfigMap", "configmaps").short(&["cm"]),
        row("", "Secret", "secrets").selectable(&["type"]),
        row("", "Service", "services")
            .short(&["svc"])
            .in_all()
            .status()
            .returns_deleted()
            .names(NameRule::Label)
            .merge_keys(&[("spec.ports", "port")])
            .selectable(&["spec.clusterIP", "spec.type"]),
        row("", "Endpoints", "endpoints").short(&["ep"]),
        row("", "ServiceAccount", "serviceaccounts")
            .short(&["sa"])
            .returns_deleted()
            .merge_keys(&[("secrets", "name")]),
        row("", "PersistentVolume", "persistentvolumes").short(&["pv"]).cluster().status().returns_deleted(),
        row("", "PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status().returns_deleted(),
        row("", "Node", "nodes")
            .short(&["no"])
            .cluster()
            .status()
            .merge_keys(&[("status.addresses", "type")])
            .selectable(&["spec.unschedulable"]),
        row("", "ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .in_all()
            .status()
            .generation()
            .policy(DefaultPolicy::Orphan)
            .pod_spec(TEMPLATE)
            .selectable(&["status.replicas"]),
        row("", "Event", "events").short(&["ev"]).policy(DefaultPolicy::Unsupported).selectable(EVENT_FIELDS),
        row("apps", "Deployment", "deployments").short(&["deploy"]).in_all().status().generation().pod_spec(TEMPLATE),
        row("apps", "ReplicaSet", "replicasets").short(&["rs"]).in_all().status().generation().pod_spec(TEMPLATE),
        row("apps", "StatefulSet", "statefulsets").short(&["sts"]).in_all().status().generation().pod_spec(TEMPLATE),
        row("apps", "DaemonSet", "daemonsets").short(&["ds"]).in_all().status().generation().pod_spec(TEMPLATE),
        row("apps", "ControllerRevision", "controllerrevisions"),
        row("batch", "Job", "jobs")
            .in_all()
            .status()
            .generation()
            .policy(DefaultPolicy::Orphan)
            .pod_spec(TEMPLATE)
            .selectable(&["status.successful"]),
        row("batch", "CronJob", "cronjobs")
            .short(&["cj"])
            .in_all()
            .status()
            .generation()
            .pod_spec("spec.jobTemplate.spec.template.spec"),
        row(RBAC, "Role", "roles").names(NameRule::PathSegment),
        row(RBAC, "RoleBinding", "rolebindings").names(NameRule::PathSegment),
        row(RBAC, "ClusterRole", "clusterroles").cluster().names(NameRule::PathSegment),
        row(RBAC, "ClusterRoleBinding", "clusterrolebindings").cluster().names(NameRule::PathSegment),
        row("coordination.k8s.io", "Lease", "leases"),
        row("networking.k8s.io", "Ingress", "ingresses").short(&["ing"]).status().generation(),
        row("networking.k8s.io", "NetworkPolicy", "networkpolicies").short(&["netpol"]).generation(),
        row("discovery.k8s.io", "EndpointSlice", "endpointslices").generation(),
        row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
            .short(&["crd", "crds"])
            .cluster()
            .status()
            .generation(),
        row("apiregistration.k8s.io", "APIService", "apiservices").cluster().status().names(NameRule::PathSegment),
        row("policy", "PodDisruptionBudget", "poddisruptionbudgets").short(&["pdb"]).status().generation(),
        row("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .versions(&["v2", "v1"])
            .short(&["hpa"])
            .in_all()
            .status(),
        row("storage.k8s.io", "StorageClass", "storageclasses").short(&["sc"]).cluster().returns_deleted(),
        row("scheduling.k8s.io", "PriorityClass", "priorityclasses").short(&["pc"]).cluster().generation(),
        row("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .cluster()
            .generation()
            .merge_keys(WEBHOOKS),
        row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .cluster()
            .generation()
            .merge_keys(WEBHOOKS),
    ]
    .into_iter()
}

/// Lists inside a PodSpec that have a merge key, relative to it.
pub(crate) const POD_SPEC_MERGE_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("containers.env", "name"),
    ("containers.ports", "containerPort"),
    ("containers.volumeDevices", "devicePath"),
    ("containers.volumeMounts", "mountPath"),
    ("ephemeralContainers", "name"),
    ("ephemeralContainers.env", "name"),
    ("ephemeralContainers.ports", "containerPort"),
    ("ephemeralContainers.volumeDevices", "devicePath"),
    ("ephemeralContainers.volumeMounts", "mountPath"),
    ("hostAliases", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("initContainers.env", "name"),
    ("initContainers.ports", "containerPort"),
    ("initContainers.volumeDevices", "devicePath"),
    ("initContainers.volumeMounts", "mountPath"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumes", "name"),
];

/// Lists with a merge key that every built-in type has.
pub(crate) const COMMON_MERGE_KEYS: &[(&str, &str)] =
    &[("metadata.ownerReferences", "uid"), ("status.conditions", "type")];

/// Lists of primitives that are merged as sets.
pub(crate) const MERGED_SETS: &[&str] = &["metadata.finalizers"];

/// The order in which Kubernetes prefers versions: stable before beta before alpha, then the higher number. Names that
/// are not versions come last, in alphabetical order. The preferred one sorts first.
pub(crate) fn version_order(a: &str, b: &str) -> std::cmp::Ordering {
    let rank = |version: &str| {
        let numbers = parse_version(version);
        (numbers.is_none(), std::cmp::Reverse(numbers))
    };
    rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
}

/// `v2beta1` as (maturity, major, minor); maturity 2 is stable.
fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    for (mark, maturity) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(mark) {
            return Some((maturity, major.parse().ok()?, minor.parse().ok()?));
        }
    }
    Some((2, rest.parse().ok()?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_does() {
        let mut versions = ["foo1", "v1alpha1", "v10", "v2beta1", "v1", "v11beta2", "v3beta1", "foo10", "v2"];
        versions.sort_by(|a, b| version_order(a, b));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v2beta1", "v1alpha1", "foo1", "foo10"]);
    }

    #[test]
    fn the_table_names_every_resource_once() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in built_ins() {
            assert!(seen.insert(kind.group_resource()), "{}", kind.qualified());
        }
    }
}
