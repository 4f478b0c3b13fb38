//! Discovery documents: the groups, versions and resources that an API server serves.
//!
//! Pure: bytes in, values out. A part that cannot be read makes only its group suspect, because one bad group must not
//! hide the others.

use engine::object::clip;
use serde::Deserialize;
use serde_json::value::RawValue;

#[cfg(test)]
mod tests;

/// Most bytes of a foreign text in an error.
const REASON_MAX_BYTES: usize = 200;
/// Most names of a resource besides its own, and the longest of them.
const NAMES_MAX: usize = 16;
const NAME_MAX_BYTES: usize = 253;

/// Groups in the order of the documents, each with its versions by preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    pub groups: Vec<Group>,
    /// Why the document may lack groups.
    pub incomplete: Option<String>,
}

impl Document {
    /// The preferred version of a resource that can be listed and watched.
    pub fn version_of(&self, group: &str, resource: &str) -> Option<&str> {
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
pub struct Group {
    pub name: String,
    pub versions: Vec<Version>,
    /// Why the group may be incomplete.
    pub suspect: Option<String>,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub name: String,
    /// The server declares this version to be current.
    pub fresh: bool,
    pub resources: Vec<Resource>,
}

/// A resource of a version, without subresources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// The singular and the short names.
    pub names: Vec<String>,
}

impl Resource {
    /// Whether the server lists this verb.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }
}

/// The content of one discovery document.
#[derive(Debug)]
pub enum Answer {
    /// The server has aggregated discovery: the document is complete.
    Aggregated(Document),
    /// Without aggregated discovery: the versions of the core group.
    CoreVersions(Vec<String>),
    /// Without aggregated discovery: the groups, with their versions by preference.
    GroupVersions(Vec<(String, Vec<String>)>),
}

/// Reads the answer to `GET /api` or `GET /apis`. The error is a sentence without its subject.
pub fn answer(body: &[u8]) -> Result<Answer, String> {
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
pub fn resources(body: &[u8]) -> Result<Vec<Resource>, String> {
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
