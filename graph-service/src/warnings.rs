//! Kubernetes events about references that cannot be right, on the object that has them.

use engine::object::{ObjectRef, OwnerReference, clip};
use http::{Method, Request};
use runtime::kubernetes::call;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Events that wait to be posted; beyond that they are dropped, and only logged and counted.
pub(crate) const QUEUE_MAX: usize = 1024;
/// The reason that upstream gives too (semantics of `OwnerRefInvalidNamespace`).
const REASON: &str = "OwnerRefInvalidNamespace";
const COMPONENT: &str = "ownergraph";
/// Cluster-scoped objects have their events here.
const DEFAULT_NAMESPACE: &str = "default";
const POST_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// Between two posts: a tenant who writes a thousand bad references is not to flood the API server.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two lines about Events that could not be posted.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The API server's own limits.
const MESSAGE_MAX_BYTES: usize = 1024;
const NAME_MAX_BYTES: usize = 200;

/// A reference to a namespaced owner that is in another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) dependent: ObjectRef,
    pub(crate) reference: OwnerReference,
}

/// Posts what waits, until nobody can add to it any more. An event that exists already is counted up instead.
pub(crate) async fn post(
    client: kube::Client,
    mut waiting: mpsc::Receiver<Warning>,
    host: String,
) -> anyhow::Result<()> {
    let mut told: Option<Instant> = None;
    while let Some(warning) = waiting.recv().await {
        let event = event(&warning, &host, SystemTime::now());
        if let Err(why) = post_one(&client, &event).await {
            // One refused Event is followed by many like it.
            if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                tracing::warn!(dependent = %warning.dependent, why, "an Event could not be posted");
                told = Some(Instant::now());
            } else {
                tracing::debug!(dependent = %warning.dependent, why, "an Event could not be posted");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn post_one(client: &kube::Client, event: &Value) -> Result<(), String> {
    let text = |field: &str| event["metadata"][field].as_str().unwrap_or_default().to_owned();
    let collection = format!("/api/v1/namespaces/{}/events", text("namespace"));
    let (status, answer) = send(client, Method::POST, &collection, "application/json", event).await?;
    if status == 201 {
        return Ok(());
    }
    if status != 409 {
        return Err(format!("the API server answers {status}: {}", said(&answer)));
    }
    let path = format!("{collection}/{}", text("name"));
    let (status, before) = send(client, Method::GET, &path, "application/json", &Value::Null).await?;
    if status != 200 {
        return Err(format!("the API server answers {status} to a read of the Event that is there: {}", said(&before)));
    }
    let count = before["count"].as_i64().unwrap_or(1).saturating_add(1);
    let more = json!({ "count": count, "lastTimestamp": event["lastTimestamp"] });
    let (status, answer) = send(client, Method::PATCH, &path, "application/merge-patch+json", &more).await?;
    if status == 200 {
        return Ok(());
    }
    Err(format!("the API server answers {status} to counting the Event up: {}", said(&answer)))
}

/// The API server's own words in a refusal; they name the right that is missing.
fn said(answer: &Value) -> String {
    clip(answer["message"].as_str().unwrap_or_default(), MESSAGE_MAX_BYTES)
}

async fn send(
    client: &kube::Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<(u16, Value), String> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("accept", "application/json")
        .body(body)
        .map_err(|error| error.to_string())?;
    let answer = call(client, request, ANSWER_MAX_BYTES, POST_WITHIN).await.map_err(|error| error.to_string())?;
    Ok((answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or(Value::Null)))
}

/// The event as an object. Its name says which reference of which object it is about, so that a second one finds the first.
fn event(warning: &Warning, host: &str, now: SystemTime) -> Value {
    let Warning { dependent, reference } = warning;
    let namespace = if dependent.namespace.is_empty() { DEFAULT_NAMESPACE } else { &dependent.namespace };
    let api_version = if dependent.group.is_empty() {
        dependent.version.to_string()
    } else {
        format!("{}/{}", dependent.group, dependent.version)
    };
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
        reference.api_version, reference.kind, dependent.namespace, reference.name, reference.uid, dependent.namespace
    );
    let name = format!("{}.{:016x}", clip(&dependent.name, NAME_MAX_BYTES), digest(warning));
    let time = timestamp(now);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": {
            "apiVersion": api_version,
            "kind": &*dependent.kind,
            "namespace": &*dependent.namespace,
            "name": &*dependent.name,
            "uid": dependent.uid.to_string(),
        },
        "type": "Warning",
        "reason": REASON,
        "message": clip(&message, MESSAGE_MAX_BYTES),
        "source": { "component": COMPONENT, "host": host },
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// FNV-1a over the two uids: short, and the same after a restart.
fn digest(warning: &Warning) -> u64 {
    let text = format!("{} {}", warning.dependent.uid, warning.reference.uid);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// RFC 3339 in whole seconds, as `metav1.Time` is written.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or(0);
    k8s_openapi::jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
