//! Reads audit events of the API server: group `audit.k8s.io`, version `v1`, as JSON. Foreign bytes.
//!
//! An event counts if it is about an answered request that deletes or changes objects, with or without success. A dry
//! run has no effect and does not count. Its mark is in the query, or in the body of a deletion, which events have from
//! level `Request` on.

use crate::messages::FACT_QUEUE_MAX;
use engine::object::{GroupResource, ResourceVersion, Uid, clip};
use engine::parity::{Audited, AuditedVerb, USER_MAX};
use engine::time::Time;
use prost_types::Timestamp;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

const VERSION: &str = "audit.k8s.io/v1";
/// Maximum number of events of a list. The API server sends up to 400, unless --audit-webhook-batch-max-size says
/// otherwise.
pub(super) const EVENTS_MAX: usize = 4096;
const _: () = assert!(EVENTS_MAX <= FACT_QUEUE_MAX, "the empty queue has room for each list");
/// Maximum length of an audit id, in bytes. A client may choose the id of its request.
const ID_MAX: usize = 64;
/// Maximum length of each part of an address, and of a uid, in bytes. An event with a longer one does not count.
const PART_MAX: usize = 1024;
/// Maximum length of a reason, in bytes.
const REASON_MAX: usize = 512;

/// The account of the garbage collector, with `--use-service-account-credentials` of kube-controller-manager.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// The user of all controllers without that flag. The user agent of a controller ends with its name.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const COLLECTOR_AGENT: &str = "/generic-garbage-collector";

/// The content of an event, `None` if it does not count, or the reason why it is not readable.
pub(super) type Reading = Result<Option<Found>, String>;

/// An event that counts.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    /// Its time is zero.
    pub(super) audited: Audited,
    /// When the API server had answered, by the clock of the API server.
    pub(super) stage_time: Option<Timestamp>,
}

/// Reads one line of an audit log.
pub(super) fn line(text: &[u8]) -> Reading {
    let event: Event<'_> = serde_json::from_slice(text).map_err(|error| unread("the line", &error))?;
    ensure_kind(("Event", &event.kind), &event.api_version)?;
    Ok(event.audited())
}

/// Reads the body of a request of the audit webhook as its events. [`item`] reads each of them, so that one that is not
/// readable does not affect the others.
pub(super) fn list(body: &[u8]) -> Result<Items<'_>, String> {
    let list: EventList<'_> = serde_json::from_slice(body).map_err(|error| unread("the body", &error))?;
    ensure_kind(("EventList", &list.kind), &list.api_version)?;
    Ok(list.items)
}

pub(super) fn item(event: &RawValue) -> Reading {
    let event: Event<'_> = serde_json::from_str(event.get()).map_err(|error| unread("the item", &error))?;
    Ok(event.audited())
}

fn unread(what: &str, error: &serde_json::Error) -> String {
    clip(&format!("{what} is not JSON of {VERSION}: {error}"), REASON_MAX)
}

fn ensure_kind((wanted, kind): (&str, &str), version: &str) -> Result<(), String> {
    if kind == wanted && version == VERSION {
        return Ok(());
    }
    let (kind, version) = (clip(kind, ID_MAX), clip(version, ID_MAX));
    Err(format!("kind {kind:?} of {version:?} is not {wanted} of {VERSION}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventList<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    items: Items<'a>,
}

/// The items of a list. A body may have millions of them, so only the first ones are kept.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    /// At most [`EVENTS_MAX`].
    pub(super) kept: Vec<&'a RawValue>,
    /// The number of those that are not kept.
    pub(super) more: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Items<'a>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<'de>, A::Error> {
                let mut items = Items::default();
                while items.kept.len() < EVENTS_MAX
                    && let Some(item) = list.next_element()?
                {
                    items.kept.push(item);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    items.more += 1;
                }
                Ok(items)
            }
        }
        from.deserialize_seq(Reader)
    }
}

/// The items of a list have no kind and no version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "auditID")]
    audit_id: Cow<'a, str>,
    #[serde(borrow, default)]
    stage: Cow<'a, str>,
    #[serde(borrow, default)]
    stage_timestamp: Cow<'a, str>,
    #[serde(borrow, default)]
    verb: Cow<'a, str>,
    #[serde(borrow, default, rename = "requestURI")]
    request_uri: Cow<'a, str>,
    #[serde(borrow, default)]
    user: User<'a>,
    #[serde(borrow)]
    impersonated_user: Option<User<'a>>,
    #[serde(borrow, default)]
    user_agent: Cow<'a, str>,
    #[serde(borrow)]
    object_ref: Option<ObjectRef<'a>>,
    #[serde(borrow, default)]
    response_status: Status<'a>,
    // Any JSON: the body of a JSON patch is a list.
    #[serde(borrow)]
    request_object: Option<&'a RawValue>,
    #[serde(borrow)]
    response_object: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct User<'a> {
    #[serde(borrow, default)]
    username: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef<'a> {
    #[serde(borrow, default)]
    api_group: Cow<'a, str>,
    #[serde(borrow, default)]
    resource: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
struct Status<'a> {
    #[serde(default)]
    code: i64,
    #[serde(borrow, default)]
    details: Identity<'a>,
}

/// The uid in metadata, in preconditions, or in the details of a status. The version counts in metadata.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

/// An object, the options of a deletion, or a status.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow, default)]
    metadata: Identity<'a>,
    #[serde(borrow, default)]
    preconditions: Identity<'a>,
    #[serde(borrow, default)]
    details: Identity<'a>,
    // Only their number counts, and values of this type take no memory.
    #[serde(default)]
    dry_run: Vec<IgnoredAny>,
}

impl<'a> Body<'a> {
    fn of(body: Option<&'a RawValue>) -> Body<'a> {
        body.and_then(|body| serde_json::from_str(body.get()).ok()).unwrap_or_default()
    }
}

impl Event<'_> {
    fn audited(&self) -> Option<Found> {
        let verb = match &*self.verb {
            "delete" => AuditedVerb::Delete,
            "deletecollection" => AuditedVerb::DeleteCollection,
            "update" | "patch" => AuditedVerb::Change,
            _ => return None,
        };
        let of = self.object_ref.as_ref()?;
        let is_about_objects = !of.resource.is_empty() && of.subresource.is_empty();
        if self.stage != "ResponseComplete" || !is_about_objects || is_dry_run(&self.request_uri) {
            return None;
        }
        let (request, response) = (Body::of(self.request_object), Body::of(self.response_object));
        // The API server gives a Namespace itself as namespace, and the name in a selector as the name of a collection.
        let is_namespace = of.api_group.is_empty() && of.resource == "namespaces";
        let namespace = if is_namespace { "" } else { &of.namespace };
        let name = if verb == AuditedVerb::DeleteCollection { "" } else { &of.name };
        let is_named = verb == AuditedVerb::DeleteCollection || !name.is_empty();
        let is_known = [&of.api_group, &of.resource, namespace, name].iter().all(|part| part.len() <= PART_MAX);
        if !request.dry_run.is_empty() || !is_named || !is_known {
            return None;
        }
        let uids = [
            &of.uid,
            &response.metadata.uid,
            &response.details.uid,
            &self.response_status.details.uid,
            &request.preconditions.uid,
            &request.metadata.uid,
        ];
        let user = &self.impersonated_user.as_ref().unwrap_or(&self.user).username;
        let audited = Audited {
            verb,
            collection: GroupResource { group: (&*of.api_group).into(), resource: (&*of.resource).into() },
            namespace: namespace.into(),
            name: name.into(),
            uid: uids.into_iter().filter(|uid| uid.len() <= PART_MAX).find_map(|uid| Uid::parse(uid)),
            resource_version: Some(response.metadata.resource_version)
                .filter(|version| !version.is_empty() && version.len() <= PART_MAX)
                .map(|version| ResourceVersion::parse(&version)),
            at: Time::ZERO,
            user: clip(user, USER_MAX).into(),
            by_collector: is_collector(user, &self.user_agent),
            status: u16::try_from(self.response_status.code).unwrap_or_default(),
            id: clip(&self.audit_id, ID_MAX).into(),
        };
        Some(Found { audited, stage_time: self.stage_timestamp.parse().ok() })
    }
}

fn is_collector(user: &str, agent: &str) -> bool {
    user == COLLECTOR || (user == CONTROLLER_MANAGER && agent.ends_with(COLLECTOR_AGENT))
}

fn is_dry_run(uri: &str) -> bool {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|pair| pair.strip_prefix("dryRun=").is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests;
