//! Reads from discovery documents what an API server serves.
//!
//! Pure: bytes in, a [`View`] out. Stale, failing or unreadable parts make their group *suspect*. A suspect group can
//! add to what is known, and removes nothing.

use engine::object::{Access, Backend, GroupResource, Name, ServedKind, clip};
use kube_api::path::is_path_segment;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Most bytes of a foreign text in an error.
const REASON_MAX_BYTES: usize = 200;
/// Most names of a resource besides its own, and the longest of them.
const NAMES_MAX: usize = 16;
const NAME_MAX_BYTES: usize = 253;

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

/// Groups in the order of the documents, each with its versions by preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) groups: Vec<Group>,
    /// Why the document may lack groups.
    pub(crate) incomplete: Option<String>,
}

impl Document {
    /// The preferred version of a resource that can be listed and watched.
    pub(crate) fn version_of(&self, group: &str, resource: &str) -> Option<&str> {
        let versions = self.groups.iter().filter(|shown| shown.name == group).flat_map(|group| &group.versions);
        let mut having = versions.filter(|version| {
            let of_that_name = version.resources.iter().filter(|shown| shown.name == resource);
            of_that_name.into_iter().any(|shown| shown.can("list") && shown.can("watch"))
        });
        having.next().map(|version| version.name.as_str())
    }
}

/// A group of a discovery document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
    /// Why the group may be incomplete.
    pub(crate) suspect: Option<String>,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// The server declares this version to be current.
    pub(crate) fresh: bool,
    pub(crate) resources: Vec<Resource>,
}

/// A resource of a version, without subresources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    /// The singular and the short names.
    pub(crate) names: Vec<String>,
}

/// The content of the APIServices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Services {
    /// The APIServices cannot be read. Holds the groups of custom resource definitions.
    Unreadable { declared_groups: BTreeSet<Name> },
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
                    let Some(access) = resource.access(ignored.contains(&key)) else { continue };
                    // Only a current version may say that a kind cannot be listed: this is a ground for proofs.
                    if view.kinds.contains_key(&key) || (access == Access::ReadOnly && !version.fresh) {
                        continue;
                    }
                    let served = ServedKind {
                        group_resource: key.clone(),
                        kind: Arc::from(resource.kind.as_str()),
                        version: Arc::from(version.name.as_str()),
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
        let aggregated = match self {
            Services::Unreadable { declared_groups } => {
                !BUILT_IN_GROUPS.contains(&group) && !declared_groups.contains(group)
            }
            Services::Known(services) => services.contains_key(&(Arc::from(group), Arc::from(version))),
        };
        if aggregated { Backend::Aggregated } else { Backend::Main }
    }

    /// A document may omit the groups of a server that is down.
    fn suspect(&self, document: &Document, view: &mut View) {
        let Services::Known(services) = self else { return };
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

impl Resource {
    fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }

    fn access(&self, ignored: bool) -> Option<Access> {
        if self.can("list") {
            let watched = self.can("watch") && self.can("delete") && !ignored;
            Some(if watched { Access::Watched } else { Access::Listed })
        } else {
            self.can("get").then_some(Access::ReadOnly)
        }
    }
}

/// The content of one discovery document.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The server has aggregated discovery: the document is complete.
    Aggregated(Document),
    /// Without aggregated discovery: the versions of the core group.
    CoreVersions(Vec<String>),
    /// Without aggregated discovery: the groups, with their versions by preference.
    GroupVersions(Vec<(String, Vec<String>)>),
}

/// Reads the answer to `GET /api` or `GET /apis`. The error is a sentence without its subject.
pub(crate) fn answer(body: &[u8]) -> Result<Answer, String> {
    let unreadable = |error: serde_json::Error| format!("is not a discovery document: {error}");
    let typed: RawTyped = serde_json::from_slice(body).map_err(unreadable)?;
    match typed.kind.as_str() {
        "APIGroupDiscoveryList" => {
            let list: RawGroups<'_> = serde_json::from_slice(body).map_err(unreadable)?;
            Ok(Answer::Aggregated(aggregated(&list.items.unwrap_or_default())))
        }
        "APIVersions" => {
            let list: RawCoreVersions = serde_json::from_slice(body).map_err(unreadable)?;
            Ok(Answer::CoreVersions(list.versions))
        }
        "APIGroupList" => {
            let list: RawGroupVersions = serde_json::from_slice(body).map_err(unreadable)?;
            Ok(Answer::GroupVersions(list.groups.into_iter().map(RawGroupVersion::by_preference).collect()))
        }
        other => Err(format!("is of kind {:?} instead of a discovery document", clip(other, REASON_MAX_BYTES))),
    }
}

/// Reads the answer to `GET /api/VERSION` or `GET /apis/GROUP/VERSION` of a server without aggregated discovery.
pub(crate) fn resources(body: &[u8]) -> Result<Vec<Resource>, String> {
    let list: RawResources =
        serde_json::from_slice(body).map_err(|error| format!("is not a resource list: {error}"))?;
    if list.kind != "APIResourceList" {
        return Err(format!("is of kind {:?} instead of a resource list", clip(&list.kind, REASON_MAX_BYTES)));
    }
    let resources = list.resources.unwrap_or_default().into_iter();
    Ok(resources
        .filter(|resource| !resource.name.is_empty() && !resource.name.contains('/') && !resource.kind.is_empty())
        .map(|raw| Resource {
            name: raw.name,
            kind: raw.kind,
            namespaced: raw.namespaced,
            verbs: raw.verbs.unwrap_or_default(),
            names: names(raw.singular_name, raw.short_names),
        })
        .collect())
}

fn aggregated(items: &[&RawValue]) -> Document {
    let mut document = Document::default();
    for item in items {
        match serde_json::from_str::<RawGroup>(item.get()) {
            Ok(group) => document.groups.push(group.read()),
            Err(error) => {
                // With a readable name, only this group is suspect.
                let why = format!("its discovery cannot be read: {error}");
                match serde_json::from_str::<RawNamed>(item.get()) {
                    Ok(named) => {
                        let name = named.metadata.name.unwrap_or_default();
                        document.groups.push(Group { name, versions: Vec::new(), suspect: Some(why) });
                    }
                    Err(_) => document.incomplete = Some(format!("a group of the discovery document: {why}")),
                }
            }
        }
    }
    if document.groups.is_empty() {
        document.incomplete = Some("a discovery document is empty".to_owned());
    }
    document
}

#[derive(Deserialize)]
struct RawTyped {
    kind: String,
}

#[derive(Deserialize)]
struct RawGroups<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct RawNamed {
    metadata: RawName,
}

#[derive(Deserialize)]
struct RawName {
    name: Option<String>,
}

#[derive(Deserialize)]
struct RawGroup {
    metadata: RawName,
    versions: Option<Vec<RawVersion>>,
}

#[derive(Deserialize)]
struct RawVersion {
    version: String,
    freshness: Option<String>,
    resources: Option<Vec<RawResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource {
    resource: String,
    response_kind: Option<RawKind>,
    scope: String,
    verbs: Option<Vec<String>>,
    singular_resource: Option<String>,
    short_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawKind {
    kind: String,
}

impl RawGroup {
    fn read(self) -> Group {
        let versions = self.versions.unwrap_or_default().into_iter().map(RawVersion::read).collect();
        Group { name: self.metadata.name.unwrap_or_default(), versions, suspect: None }
    }
}

impl RawVersion {
    fn read(self) -> Version {
        let resources = self.resources.unwrap_or_default().into_iter();
        Version {
            name: self.version,
            fresh: self.freshness.as_deref() == Some("Current"),
            resources: resources
                .filter_map(|raw| {
                    let kind = raw.response_kind?.kind;
                    (!kind.is_empty() && !raw.resource.is_empty()).then(|| Resource {
                        name: raw.resource,
                        kind,
                        namespaced: raw.scope == "Namespaced",
                        verbs: raw.verbs.unwrap_or_default(),
                        names: names(raw.singular_resource, raw.short_names),
                    })
                })
                .collect(),
        }
    }
}

#[derive(Deserialize)]
struct RawCoreVersions {
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct RawGroupVersions {
    groups: Vec<RawGroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawGroupVersion {
    name: String,
    versions: Vec<RawVersionName>,
    preferred_version: Option<RawVersionName>,
}

#[derive(Deserialize)]
struct RawVersionName {
    version: String,
}

impl RawGroupVersion {
    fn by_preference(self) -> (String, Vec<String>) {
        let preferred = self.preferred_version.map(|preferred| preferred.version);
        let mut versions: Vec<String> = self.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        (self.name, versions)
    }
}

#[derive(Deserialize)]
struct RawResources {
    kind: String,
    resources: Option<Vec<RawLegacyResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLegacyResource {
    name: String,
    #[serde(default)]
    namespaced: bool,
    kind: String,
    verbs: Option<Vec<String>>,
    singular_name: Option<String>,
    short_names: Option<Vec<String>>,
}

/// The singular and short names. Their number is bounded, because a server may send any.
fn names(singular: Option<String>, short: Option<Vec<String>>) -> Vec<String> {
    let all = singular.into_iter().chain(short.unwrap_or_default());
    all.filter(|name| !name.is_empty() && name.len() <= NAME_MAX_BYTES).take(NAMES_MAX).collect()
}
