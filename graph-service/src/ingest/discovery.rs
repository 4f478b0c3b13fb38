//! Derives the served kinds from discovery documents and APIServices.
//!
//! Pure: a [`Document`] in, a [`View`] out. Stale, failing or unreadable parts make their group *suspect*. A suspect
//! group can add to what is known, and removes nothing.

use engine::object::{Access, Backend, GroupResource, Name, ServedKind, clip};
use kube_api::discovery::{Document, Group, Resource};
use kube_api::path::is_path_segment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Most bytes of a foreign text in an error.
const REASON_MAX_BYTES: usize = 200;
/// Groups that the API server serves from its own store. Used only if the APIServices cannot be read.
const BUILT_IN_GROUPS: [&str; 24] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
    "extensions",
];

/// The content of the APIServices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Services {
    /// The APIServices cannot be read now. Holds the groups of custom resource definitions, and the last known
    /// APIServices as in `Known`.
    Unreadable { declared_groups: BTreeSet<Name>, known: BTreeMap<(Name, Name), bool> },
    /// All APIServices with a service, by group and version, and whether they are available. Empty if the server has
    /// none.
    Known(BTreeMap<(Name, Name), bool>),
}

/// The served kinds, one version for each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) kinds: BTreeMap<GroupResource, ServedKind>,
    /// Groups that may be incomplete, and why.
    pub(crate) suspects: BTreeMap<Name, String>,
    /// Group versions that the document describes.
    pub(crate) shown: BTreeSet<(Name, Name)>,
    /// Group versions that exist without a description, and why. The version is empty if the document does not name it.
    pub(crate) blank: BTreeMap<(Name, Name), String>,
    /// Why the view may lack groups.
    pub(crate) incomplete: Option<String>,
}

impl View {
    /// The kinds of `document`. Fails without any: an API server always serves some.
    pub(crate) fn new(
        document: &Document,
        services: &Services,
        ignored: &BTreeSet<GroupResource>,
    ) -> Result<View, String> {
        let mut view = View { incomplete: document.incomplete.clone(), ..View::default() };
        for group in &document.groups {
            if !(group.name.is_empty() || is_path_segment(&group.name)) {
                continue;
            }
            let name: Name = Arc::from(group.name.as_str());
            if let Some(why) = suspicion(group) {
                if group.versions.is_empty() {
                    view.blank.insert((name.clone(), Arc::from("")), why.clone());
                }
                view.suspects.insert(name.clone(), why);
            }
            for version in &group.versions {
                let of = (name.clone(), Arc::from(version.name.as_str()));
                if version.fresh || !version.resources.is_empty() {
                    view.shown.insert(of);
                } else {
                    view.blank.insert(of, format!("version {} is stale", clip(&version.name, REASON_MAX_BYTES)));
                }
                let backend = services.backend(&group.name, &version.name);
                let resources = version.resources.iter().filter(|resource| is_path_segment(&resource.name));
                for resource in resources.filter(|_| is_path_segment(&version.name)) {
                    let key = GroupResource { group: name.clone(), resource: Arc::from(resource.name.as_str()) };
                    let Some(access) = access(resource, ignored.contains(&key)) else { continue };
                    // Only a current version may say that a kind cannot be listed: this is a ground for proofs.
                    if let Some(served) = view.kinds.get_mut(&key) {
                        let is_same = served.backend == backend
                            && served.namespaced == resource.namespaced
                            && *served.kind == *resource.kind;
                        served.split |= !is_same;
                        served.other_versions.push(Arc::from(version.name.as_str()));
                        continue;
                    }
                    if access == Access::ReadOnly && !version.fresh {
                        continue;
                    }
                    let served = ServedKind {
                        group_resource: key.clone(),
                        kind: Arc::from(resource.kind.as_str()),
                        version: Arc::from(version.name.as_str()),
                        other_versions: Vec::new(),
                        split: false,
                        namespaced: resource.namespaced,
                        access,
                        backend,
                        deletable: resource.can("delete"),
                        names: resource.names.iter().map(|name| Arc::from(name.to_lowercase())).collect(),
                    };
                    view.kinds.insert(key, served);
                }
            }
        }
        services.suspect(document, &mut view);
        if view.kinds.is_empty() { Err("discovery shows no resource at all".to_owned()) } else { Ok(view) }
    }
}

fn suspicion(group: &Group) -> Option<String> {
    if group.suspect.is_some() {
        return group.suspect.clone();
    }
    if group.versions.is_empty() {
        return Some("it has no versions".to_owned());
    }
    let stale = group.versions.iter().find(|version| !version.fresh)?;
    Some(format!("version {} is stale", clip(&stale.name, REASON_MAX_BYTES)))
}

impl Services {
    fn backend(&self, group: &str, version: &str) -> Backend {
        let known = |services: &BTreeMap<_, _>| services.contains_key(&(Arc::from(group), Arc::from(version)));
        let aggregated = match self {
            Services::Unreadable { declared_groups, known: services } => {
                known(services) || !BUILT_IN_GROUPS.contains(&group) && !declared_groups.contains(group)
            }
            Services::Known(services) => known(services),
        };
        if aggregated { Backend::Aggregated } else { Backend::Main }
    }

    /// A document may omit the groups of a server that is down.
    fn suspect(&self, document: &Document, view: &mut View) {
        let (Services::Known(services) | Services::Unreadable { known: services, .. }) = self;
        for ((group, version), available) in services {
            let shown = document
                .groups
                .iter()
                .any(|shown| shown.name == **group && shown.versions.iter().any(|shown| shown.name == **version));
            let why = || format!("APIService {version}.{group} is not available");
            if !available || !shown {
                view.suspects.entry(group.clone()).or_insert_with(why);
            }
            let of = (group.clone(), version.clone());
            if !view.shown.contains(&of) {
                // The group without versions is this one.
                view.blank.remove(&(group.clone(), Arc::from("")));
                view.blank.insert(of, why());
            }
        }
    }
}

fn access(resource: &Resource, ignored: bool) -> Option<Access> {
    if resource.can("list") {
        let watched = resource.can("watch") && resource.can("delete") && !ignored;
        Some(if watched { Access::Watched } else { Access::Listed })
    } else {
        resource.can("get").then_some(Access::ReadOnly)
    }
}
