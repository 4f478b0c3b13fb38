//! TYPE/NAME as in kubectl, resolved with discovery and the caller's rights.

use super::ending::Problem;
use super::session::Session;
use crate::failure;
use crate::name::{command, quoted};
use anyhow::Context as _;
use engine::object::in_group;
use http::{Request, StatusCode, header::ACCEPT};
use kube::api::ListParams;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use kube_api::path::{collection_path, is_encodable_segment, query_value};
use kube_api::{Answer, call, media};
use proto::r#type::v1beta1::{GroupResource, ObjectRef};
use runtime::cause::innermost;
use runtime::visible::line;
use serde::Deserialize;

#[cfg(test)]
mod tests;

const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Minimum similarity of two names for a spelling suggestion.
const ALIKE: f64 = 0.8;

/// One version of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    pub(super) singular: String,
    pub(super) kind: String,
    pub(super) short_names: Vec<String>,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
}

impl Served {
    /// `/apis/apps/v1/namespaces/shop/deployments`; `namespace` is empty for all.
    pub(super) fn collection(&self, namespace: &str) -> String {
        collection_path(&self.group, &self.version, &self.resource, namespace)
    }

    /// The resource without its version.
    pub(super) fn group_resource(&self) -> engine::object::GroupResource {
        engine::object::GroupResource { group: self.group.as_str().into(), resource: self.resource.as_str().into() }
    }

    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }

    fn is_of(&self, place: &str) -> bool {
        place.is_empty()
            || place == self.group
            || place == format!("{}.{}", self.version, self.group).trim_end_matches('.')
    }

    fn is_called(&self, name: &str) -> bool {
        name == self.resource || name == self.singular || name == self.kind.to_lowercase()
    }
}

/// All types that the API server serves: the core group first, versions by preference.
#[derive(Clone, Debug)]
pub(super) struct Catalogue(pub(super) Vec<Served>);

impl Catalogue {
    /// Reads discovery with two requests.
    pub(super) async fn ask(session: &Session) -> Result<Catalogue, Problem> {
        let client = &session.cluster.client;
        let asked =
            async { tokio::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated()) };
        let within = session.connection.request_timeout;
        let Ok(answers) = tokio::time::timeout(within, asked).await else {
            return Err(Problem::TimedOut(format!(
                "{} did not answer a discovery request within {within:?}",
                session.cluster.url
            )));
        };
        let (core, named) = answers.map_err(|error| {
            let url = &session.cluster.url;
            if let kube::Error::Api(status) = &error {
                return Problem::sentence(format!("{url} refuses discovery: {}", failure::refusal(status)));
            }
            let why = innermost(&error);
            Problem::sentence(if matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)) {
                format!("{url} cannot be reached: {why}")
            } else {
                format!("{url} has no aggregated discovery (Kubernetes 1.26 or later is required): {why}")
            })
        })?;
        Ok(Catalogue(core.items.into_iter().chain(named.items).flat_map(resources).collect()))
    }

    /// The resource of a TYPE, TYPE.GROUP or TYPE.VERSION.GROUP. The error is a sentence.
    pub(super) fn find(&self, wanted: &str) -> Result<&Served, String> {
        let lower = wanted.to_lowercase();
        let (name, place) = lower.split_once('.').unwrap_or((&lower, ""));
        let of_place = || self.0.iter().filter(|served| served.is_of(place));
        let found = of_place().find(|served| served.is_called(name));
        let found = found.or_else(|| of_place().find(|served| served.short_names.iter().any(|short| short == name)));
        found.ok_or_else(|| match self.alike(name) {
            Some(alike) => format!("the server has no resource type {wanted:?}; did you mean {alike:?}?"),
            None => format!("the server has no resource type {wanted:?}; kubectl api-resources lists the types"),
        })
    }

    /// The resource of an apiVersion and a kind.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Served> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.0.iter().find(|served| (&*served.group, &*served.version, &*served.kind) == (group, version, kind))
    }

    fn alike(&self, name: &str) -> Option<&str> {
        let names =
            self.0.iter().flat_map(|served| [&*served.singular, &*served.resource]).filter(|name| !name.is_empty());
        let rated = names.map(|known| (strsim::jaro_winkler(name, known), known));
        rated.filter(|(rate, _)| *rate >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
    }
}

fn resources(group: APIGroupDiscovery) -> Vec<Served> {
    let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
    let of = |version: &str, raw: APIResourceDiscovery| Served {
        group: name.clone(),
        version: version.to_owned(),
        resource: raw.resource.unwrap_or_default(),
        singular: raw.singular_resource.unwrap_or_default(),
        kind: raw.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
        short_names: raw.short_names,
        namespaced: raw.scope.as_deref() == Some("Namespaced"),
        verbs: raw.verbs,
    };
    let versions = group.versions.into_iter();
    let served = versions.flat_map(|version| {
        let name = version.version.unwrap_or_default();
        version.resources.into_iter().map(|raw| of(&name, raw)).collect::<Vec<_>>()
    });
    served.filter(|served| !served.kind.is_empty() && !served.resource.is_empty()).collect()
}

/// The result of a read of an object's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    There {
        uid: String,
        resource_version: String,
    },
    Absent,
    /// The reason as text.
    Unreadable(String),
}

/// An object named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) served: Served,
    /// Empty for cluster scope.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) found: Found,
}

impl Named {
    /// The object by uid if it exists, else by address, because the graph keeps recently deleted objects.
    pub(super) fn reference(&self) -> ObjectRef {
        let Served { group, version, resource, kind, .. } = self.served.clone();
        let uid = match &self.found {
            Found::There { uid, .. } => uid.clone(),
            Found::Absent | Found::Unreadable(_) => String::new(),
        };
        ObjectRef { group, version, resource, kind, namespace: self.namespace.clone(), name: self.name.clone(), uid }
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.served.collection(&self.namespace), query_value(&self.name))
    }
}

/// `Pod shop/web`.
pub(super) fn shown(object: &ObjectRef) -> String {
    let slash = if object.namespace.is_empty() { "" } else { "/" };
    line(&format!("{} {}{slash}{}", object.kind, object.namespace, object.name)).into_owned()
}

/// `pod/web`, or `deployment.apps/web`.
pub(super) fn by_type(object: &ObjectRef) -> String {
    line(&format!("{}/{}", in_group(&object.kind.to_lowercase(), &object.group), object.name)).into_owned()
}

/// [`by_type`] of each object, one a line.
pub(super) fn lines_by_type<'o>(objects: impl IntoIterator<Item = Option<&'o ObjectRef>>) -> String {
    objects.into_iter().map(|object| format!("{}\n", by_type(&object.cloned().unwrap_or_default()))).collect()
}

/// The flag ` -n shop`, or nothing for cluster scope.
pub(super) fn place(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" -n {}", quoted(namespace)) }
}

/// The command line of a query about an object.
pub(super) fn command_about(query: &str, object: &ObjectRef) -> String {
    format!("{} {query} {}{}", command(), quoted(&by_type(object)), place(&object.namespace))
}

/// `pods, deployments.apps`.
pub(super) fn listing(collections: &[GroupResource]) -> String {
    collections.iter().map(|of| in_group(&of.resource, &of.group)).collect::<Vec<_>>().join(", ")
}

impl Session {
    /// Adds these collections to the list of missing information, if there are any.
    pub(super) fn lacks(&mut self, unsynced: &[GroupResource]) {
        if !unsynced.is_empty() {
            self.missed(format!("the graph is incomplete: {}", listing(unsynced)));
        }
    }
}

/// Splits `TYPE NAME...` and `TYPE/NAME...` into pairs. The error is a sentence.
pub(super) fn pairs(words: &[String]) -> Result<Vec<(String, String)>, String> {
    let split = |word: &String| word.split_once('/').map(|(of, name)| (of.to_owned(), name.to_owned()));
    let pairs: Vec<(String, String)> = match words {
        [] => return Err("an object is missing; name it as TYPE/NAME".to_owned()),
        [first, ..] if first.contains('/') => words
            .iter()
            .map(|word| split(word).ok_or_else(|| format!("{word:?} is not TYPE/NAME like the other arguments")))
            .collect::<Result<_, _>>()?,
        [only] => return Err(format!("{only:?} is only a type; name an object as {only}/NAME")),
        [of, names @ ..] => match names.iter().find(|name| name.contains('/')) {
            Some(name) => return Err(format!("{name:?} contains a type, but {of:?} already is the type")),
            None => names.iter().map(|name| (of.clone(), name.clone())).collect(),
        },
    };
    match pairs.iter().find(|(of, name)| of.is_empty() || !is_name(name)) {
        Some((of, name)) => Err(format!("{of}/{name} is not TYPE/NAME")),
        None => Ok(pairs),
    }
}

/// Whether a text is a valid name in a path. Names of RBAC objects may have any character but these.
pub(super) fn is_name(text: &str) -> bool {
    is_encodable_segment(text) && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Returns the named objects. Each needs one read of its metadata.
pub(super) async fn resolve(session: &mut Session, words: &[String]) -> Result<Vec<Named>, Problem> {
    let pairs = pairs(words).map_err(Problem::sentence)?;
    if session.searched().is_none() {
        return Err(Problem::sentence(
            "--all-namespaces does not go with the name of an object; give its namespace with -n",
        ));
    }
    let catalogue = Catalogue::ask(session).await?;
    let mut all = Vec::new();
    for (of, name) in pairs {
        let served = catalogue.find(&of).map_err(Problem::sentence)?.clone();
        let namespace = if served.namespaced { session.namespace().to_owned() } else { String::new() };
        all.push(look(session, served, namespace, name).await?);
    }
    Ok(all)
}

/// An object, with one read of its metadata.
pub(super) async fn look(
    session: &mut Session,
    served: Served,
    namespace: String,
    name: String,
) -> Result<Named, Problem> {
    let mut named = Named { served, namespace, name, found: Found::Absent };
    named.found = read(session, &named).await?;
    if let Found::Unreadable(why) = &named.found {
        let what = shown(&named.reference());
        session.missed(format!(
            "{what} cannot be read with these credentials ({why}); looking it up in the graph by its name"
        ));
    }
    Ok(named)
}

/// The object of a command that takes exactly one.
pub(super) async fn resolve_one(session: &mut Session, words: &[String]) -> Result<Named, Problem> {
    let mut all = resolve(session, words).await?;
    match all.len() {
        1 => Ok(all.remove(0)),
        more => Err(Problem::sentence(format!("name exactly one object, not {more}"))),
    }
}

/// The identity and the version of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

/// Some objects of a collection.
pub(super) struct Page {
    pub(super) objects: Vec<Metadata>,
    /// Whether the collection has more objects than requested.
    pub(super) goes_on: bool,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    /// `None` where the server finds nothing.
    items: Option<Vec<Object>>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue", default)]
    next: String,
}

/// One page of a collection, by one request. `namespace` is empty for all.
pub(super) async fn list(
    session: &Session,
    served: &Served,
    namespace: &str,
    wanted: &ListParams,
) -> Result<Page, Problem> {
    let what = format!("{} in {namespace:?}", served.resource);
    let request = kube::core::Request::new(served.collection(namespace)).list_metadata(wanted);
    let request = request.with_context(|| format!("the request for {what} is not valid"))?;
    let within = session.connection.request_timeout;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, within).await;
    let answer = answer.with_context(|| format!("{} cannot be reached", session.cluster.url))?;
    if answer.status != StatusCode::OK {
        return Err(Problem::sentence(format!("{what} cannot be listed: {}", refusal(&answer))));
    }
    let list: List =
        serde_json::from_slice(&answer.body).with_context(|| format!("the answer for {what} is not a list"))?;
    let objects = list.items.unwrap_or_default().into_iter().map(|item| item.metadata).collect();
    Ok(Page { objects, goes_on: !list.metadata.next.is_empty() })
}

/// The refusal of a server, as a sentence.
pub(super) fn refusal(answer: &Answer) -> String {
    Some(answer.message()).filter(|message| !message.is_empty()).unwrap_or_else(|| answer.status.to_string())
}

/// Reads the object that has the name now.
pub(super) async fn read(session: &Session, named: &Named) -> Result<Found, Problem> {
    let request = Request::get(named.path())
        .header(ACCEPT, media::METADATA)
        .body(Vec::new())
        .context("the name is not valid in a path")?;
    let within = session.connection.request_timeout;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, within).await;
    let answer = answer.with_context(|| format!("{} cannot be reached", session.cluster.url))?;
    match answer.status {
        StatusCode::OK => {
            let object: Object =
                serde_json::from_slice(&answer.body).context("the API server's answer is not an object")?;
            let Metadata { uid, resource_version, .. } = object.metadata;
            Ok(Found::There { uid, resource_version })
        }
        StatusCode::NOT_FOUND => Ok(Found::Absent),
        _ => Ok(Found::Unreadable(refusal(&answer))),
    }
}
