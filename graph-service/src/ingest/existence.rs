//! Asks whether one object exists. Returns the API server's answer without a conclusion.

use super::Clients;
use super::request::{self, Failure};
use engine::leader::{CheckBy, Named, Probe, ProbeAnswer};
use engine::object::{Object, ResourceVersion};
use kube_api::media;
use kube_api::metadata::{self, Decoder, Encoding, Item};
use kube_api::path::{URI_MAX_BYTES, collection_path, is_encodable_segment, name_selector, object_path, query_value};
use kube_api::{NotFound, classify_not_found};
use serde_json::value::RawValue;

#[cfg(test)]
mod tests;

/// Asks about one object.
pub(super) async fn answer(clients: &Clients, probe: &Probe, named: &Named) -> Result<ProbeAnswer, Failure> {
    let what = match (&probe.namespace, named.by) {
        (Some(namespace), CheckBy::List) => {
            format!("list {} {:?} in namespace {namespace:?}", probe.collection, named.name)
        }
        (None, CheckBy::List) => format!("list {} {:?}", probe.collection, named.name),
        (Some(namespace), CheckBy::Read) => {
            format!("get {} {:?} in namespace {namespace:?}", probe.collection, named.name)
        }
        (None, CheckBy::Read) => format!("get {} {:?}", probe.collection, named.name),
    };
    let Some(uri) = uri(probe, named) else {
        return Err(Failure::senseless(format!("{what}: the name is not valid in a request")));
    };
    let senseless = |why: String| Failure::senseless(format!("{what}: {why}"));
    let object = match named.by {
        CheckBy::List => {
            let page = request::one(clients, &what, &uri, media::METADATA_LIST_PROTOBUF, probe.fresh).await?;
            let page = request::page_of(&page, &probe.collection.group, &probe.kind).map_err(senseless)?;
            if page.continues.is_some() || page.remaining.is_some_and(|remaining| remaining > 0) {
                return Err(senseless("the list is incomplete".to_owned()));
            }
            let resource_version = ResourceVersion::parse(&page.resource_version);
            let mut items = page.items;
            let (item, more) = (items.next(), items.next().is_some());
            let object = item.map(|item| decode(probe, &item)).transpose().map_err(senseless)?;
            if more || object.as_ref().is_some_and(|object| !is_asked_for(probe, named, object)) {
                return Err(senseless(
                    "the list contains other objects: the server ignores field selectors".to_owned(),
                ));
            }
            return Ok(found(resource_version, object));
        }
        CheckBy::Read => request::any(clients, &what, &uri, media::METADATA, probe.fresh).await?,
    };
    if classify_not_found(&object, &probe.collection.group, &probe.collection.resource, &named.name)
        == Some(NotFound::ThisObject)
    {
        return Ok(found(ResourceVersion::parse(""), None));
    }
    let object = request::accepted(&what, object)?;
    if request::encoding(&object.content_type).map_err(senseless)? != Encoding::Json {
        return Err(senseless("the answer is not JSON, as requested".to_owned()));
    }
    let raw: &RawValue = serde_json::from_slice(&object.body)
        .map_err(|error| senseless(format!("the answer is not an object: {error}")))?;
    metadata::check_kind(raw, &probe.collection.group, &probe.kind).map_err(senseless)?;
    let object = decode(probe, &Item::Json(raw)).map_err(senseless)?;
    if !is_asked_for(probe, named, &object) {
        return Err(senseless("the answer contains another object".to_owned()));
    }
    Ok(found(object.resource_version.clone(), Some(object)))
}

fn decode(probe: &Probe, item: &Item<'_>) -> Result<Object, String> {
    Decoder::new(Some(probe.namespace.is_some())).object(item)
}

fn is_asked_for(probe: &Probe, named: &Named, object: &Object) -> bool {
    object.name == named.name && *object.namespace == *probe.namespace.as_deref().unwrap_or_default()
}

fn found(resource_version: ResourceVersion, object: Option<Object>) -> ProbeAnswer {
    ProbeAnswer { resource_version, objects: object.into_iter().collect(), complete: true, remaining: None }
}

/// The URI of the object. `None` if the coordinates are not a valid path, or are too long.
fn uri(probe: &Probe, named: &Named) -> Option<String> {
    let (group, version, resource) = (&*probe.collection.group, &*probe.version, &*probe.collection.resource);
    if named.name.is_empty() || probe.namespace.as_deref().is_some_and(|namespace| !is_encodable_segment(namespace)) {
        return None;
    }
    let namespace = probe.namespace.as_deref().unwrap_or_default();
    let collection = match named.by {
        CheckBy::Read => return object_path(group, version, resource, namespace, &named.name),
        CheckBy::List => collection_path(group, version, resource, &query_value(namespace)),
    };
    // Without resourceVersion the server answers from the latest state.
    let uri = format!("{collection}?fieldSelector={}", name_selector(&named.name));
    (uri.len() <= URI_MAX_BYTES).then_some(uri)
}
