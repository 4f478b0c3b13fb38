//! Finds the writer of a reference in `metadata.managedFields`.

use super::{ANSWER_MAX_BYTES, POST_WITHIN, Warning};
use engine::object::{ObjectRef, ResourceVersion, Uid, clip};
use http::{Request, StatusCode};
use kube_api::path::{collection_path, name_selector};
use kube_api::{call, media};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a field manager's name at the API server.
const WRITER_MAX_BYTES: usize = 128;

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    managed_fields: Vec<Managed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    fields_v1: Value,
}

/// Adds the writer to a warning about a restored reference. The reference and its managed field may be gone by now, so
/// the call reads the object at the version of the warning.
pub(super) async fn find(client: &kube::Client, warning: &mut Warning) {
    let Warning::Readopted { dependent, resource_version, owner, writer } = warning else { return };
    match read(client, dependent, resource_version).await {
        Ok(body) => *writer = writer_of(&body, dependent, &owner.uid),
        Err(why) => tracing::debug!(object = %dependent, why, "cannot read the writer of a reference"),
    }
    if let Some(writer) = writer {
        tracing::warn!(%dependent, uid = %dependent.uid, %owner, owner_uid = %owner.uid, writer, "a field manager restored a reference to an owner that orphaned the object");
    }
}

async fn read(client: &kube::Client, object: &ObjectRef, at: &ResourceVersion) -> Result<Vec<u8>, String> {
    let uri = uri(object, at);
    let request = Request::get(&uri)
        .header("accept", media::METADATA_LIST)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let answer = call(client, request, ANSWER_MAX_BYTES, POST_WITHIN).await.map_err(|error| error.to_string())?;
    match answer.status {
        StatusCode::OK => Ok(answer.body.to_vec()),
        status => Err(format!("the API server answers {} to {uri}", status.as_u16())),
    }
}

/// Uses a list of one name, because the API server then reads only one key.
fn uri(object: &ObjectRef, at: &ResourceVersion) -> String {
    let path = collection_path(&object.group, &object.version, &object.resource, &object.namespace);
    format!("{path}?fieldSelector={}&resourceVersion={at}&resourceVersionMatch=Exact", name_selector(&object.name))
}

/// The manager that last wrote the reference.
fn writer_of(body: &[u8], object: &ObjectRef, owner: &Uid) -> Option<String> {
    let list: List = serde_json::from_slice(body).ok()?;
    let item = list.items.into_iter().find(|item| Uid::parse(&item.metadata.uid).as_ref() == Some(&object.uid))?;
    let key = format!("k:{{\"uid\":\"{owner}\"}}");
    let wrote = |managed: &Managed| managed.fields_v1["f:metadata"]["f:ownerReferences"].get(&key).is_some();
    let last = item.metadata.managed_fields.into_iter().filter(wrote).max_by(|a, b| a.time.cmp(&b.time))?;
    Some(clip(&last.manager, WRITER_MAX_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> ObjectRef {
        ObjectRef {
            group: "apps".into(),
            version: "v1".into(),
            resource: "replicasets".into(),
            kind: "ReplicaSet".into(),
            namespace: "shop".into(),
            name: "a,b".into(),
            uid: Uid::parse("d").unwrap(),
        }
    }

    #[test]
    fn the_object_is_asked_for_as_it_was() {
        assert_eq!(
            uri(&object(), &ResourceVersion::parse("107")),
            "/apis/apps/v1/namespaces/shop/replicasets?fieldSelector=metadata.name%3Da%5C%2Cb&resourceVersion=107\
             &resourceVersionMatch=Exact"
        );
    }

    #[test]
    fn who_wrote_the_reference_last_is_named() {
        let owner = Uid::parse("o").unwrap();
        let entry = |manager: &str, time: &str, uid: &str| {
            let mut owners = json!({});
            owners[format!("k:{{\"uid\":\"{uid}\"}}")] = json!({});
            json!({ "manager": manager, "operation": "Update", "time": time,
                "fieldsV1": { "f:metadata": { "f:ownerReferences": owners } } })
        };
        let list = |uid: &str, managed: Value| {
            json!({ "items": [{ "metadata": { "uid": uid, "managedFields": managed } }] }).to_string().into_bytes()
        };
        let managed = json!([
            entry("early", "2026-11-23T10:00:00Z", "o"),
            entry("late", "2026-11-23T11:00:00Z", "o"),
            entry("of-another", "2026-11-23T12:00:00Z", "p"),
            { "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": {} } }
        ]);
        assert_eq!(writer_of(&list("d", managed.clone()), &object(), &owner).as_deref(), Some("late"));
        assert_eq!(writer_of(&list("another", managed), &object(), &owner), None);
        for body in ["", "{}", "[]", "{\"items\":[]}", "{\"items\":[{\"metadata\":{\"uid\":\"d\"}}]}"] {
            assert_eq!(writer_of(body.as_bytes(), &object(), &owner), None, "{body}");
        }
    }
}
