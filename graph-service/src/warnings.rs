//! Posts Kubernetes events on dependents with invalid, restored or too many references, on guards, on objects that
//! guards hold, and on the roots of finished cascades.

use engine::object::{Digest, ObjectRef, OwnerReference, REFERENCES_MAX, ResourceVersion, clip};
use http::Method;
use kube_api::path::collection_path;
use kube_api::{call, media, request};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::Instant;

#[cfg(test)]
mod tests;
mod writer;

/// Maximum number of waiting events. Further ones are only logged and counted.
pub(crate) const QUEUE_MAX: usize = 1024;
const COMPONENT: &str = "ownergraph";
/// Namespace of the events of cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";
const POST_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// Delay between two posts, so that a user with a thousand invalid references does not flood the API server.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval of log lines about failed posts.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// Maximum lengths that the API server allows.
const MESSAGE_MAX_BYTES: usize = 1024;
const NAME_MAX_BYTES: usize = 200;

/// A Kubernetes event for the user of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// A reference to a namespaced owner in another namespace.
    OwnerInOtherNamespace {
        dependent: ObjectRef,
        reference: OwnerReference,
    },
    /// A reference to an owner that orphaned the object was restored at this version.
    Readopted {
        dependent: ObjectRef,
        resource_version: ResourceVersion,
        owner: ObjectRef,
        /// The field manager that wrote the reference, if known.
        writer: Option<String>,
    },
    /// An object has more references than the collector reads.
    TooManyReferences {
        object: ObjectRef,
        count: u32,
    },
    About(About),
}

/// An event of a guard, of an object that a guard holds, or of the root of a finished cascade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) object: ObjectRef,
    pub(crate) reason: &'static str,
    pub(crate) is_warning: bool,
    pub(crate) message: String,
}

impl Warning {
    fn object(&self) -> &ObjectRef {
        match self {
            Warning::OwnerInOtherNamespace { dependent: object, .. }
            | Warning::Readopted { dependent: object, .. }
            | Warning::TooManyReferences { object, .. }
            | Warning::About(About { object, .. }) => object,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            // The same reason as upstream.
            Warning::OwnerInOtherNamespace { .. } => "OwnerRefInvalidNamespace",
            Warning::Readopted { .. } => "OwnerReferenceReadopted",
            Warning::TooManyReferences { .. } => "TooManyOwnerReferences",
            Warning::About(about) => about.reason,
        }
    }

    fn message(&self) -> String {
        match self {
            Warning::OwnerInOtherNamespace { dependent, reference } => format!(
                "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
                reference.api_version,
                reference.kind,
                dependent.namespace,
                reference.name,
                reference.uid,
                dependent.namespace
            ),
            Warning::Readopted { owner, writer, .. } => {
                let writer = writer.as_deref().map_or_else(
                    || "an unknown field manager".to_owned(),
                    |writer| format!("field manager {writer:?}"),
                );
                format!(
                    "{writer} restored the reference to {} {} (uid {}), which orphaned this object and is gone. The collector removes the reference again, within an hour after the owner went",
                    owner.kind,
                    clip(&owner.name, NAME_MAX_BYTES),
                    owner.uid
                )
            }
            Warning::TooManyReferences { count, .. } => format!(
                "The object has {count} owner references; the garbage collector reads at most {REFERENCES_MAX}, or 512 KiB of text. It does not collect the object until some references are removed"
            ),
            Warning::About(about) => about.message.clone(),
        }
    }

    fn kind(&self) -> &'static str {
        let is_normal = matches!(self, Warning::About(About { is_warning: false, .. }));
        if is_normal { "Normal" } else { "Warning" }
    }

    /// The digest of the subject of the warning: short, and the same after a restart.
    fn digest(&self) -> u64 {
        let text = match self {
            Warning::OwnerInOtherNamespace { dependent, reference } => format!("{} {}", dependent.uid, reference.uid),
            Warning::Readopted { dependent, owner, .. } => format!("{} {} again", dependent.uid, owner.uid),
            Warning::TooManyReferences { object, .. } => format!("{} references", object.uid),
            Warning::About(About { object, reason, message, .. }) => format!("{} {reason} {message}", object.uid),
        };
        Digest::of(text.bytes())
    }
}

/// Posts waiting events until the senders are gone. If the event exists, its count is raised. Without a client, mode
/// observe, the events are dropped: the log has what matters of them.
pub(crate) async fn post(
    client: Option<kube::Client>,
    mut waiting: mpsc::Receiver<Warning>,
    host: String,
) -> anyhow::Result<()> {
    let mut told: Option<Instant> = None;
    while let Some(mut warning) = waiting.recv().await {
        let Some(client) = &client else { continue };
        writer::find(client, &mut warning).await;
        let event = event(&warning, &host, SystemTime::now());
        if let Err(why) = post_one(client, &event).await {
            // A failure usually affects many events, so only one of them is logged.
            if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                tracing::warn!(object = %warning.object(), why, "cannot post an Event; check the right to create events");
                told = Some(Instant::now());
            } else {
                tracing::debug!(object = %warning.object(), why, "cannot post an Event; check the right to create events");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn post_one(client: &kube::Client, event: &Value) -> Result<(), String> {
    let text = |field: &str| event["metadata"][field].as_str().unwrap_or_default().to_owned();
    let collection = collection_path("", "v1", "events", &text("namespace"));
    let (status, answer) = send(client, Method::POST, &collection, event).await?;
    if status == 201 {
        return Ok(());
    }
    if status != 409 {
        return Err(format!("the API server answers {status}: {}", said(&answer)));
    }
    let path = format!("{collection}/{}", text("name"));
    let (status, before) = send(client, Method::GET, &path, &Value::Null).await?;
    if status != 200 {
        return Err(format!("the API server answers {status} to a read of the existing Event: {}", said(&before)));
    }
    let count = before["count"].as_i64().unwrap_or(1).saturating_add(1);
    let more = json!({ "count": count, "lastTimestamp": event["lastTimestamp"] });
    let (status, answer) = send(client, Method::PATCH, &path, &more).await?;
    if status == 200 {
        return Ok(());
    }
    Err(format!("the API server answers {status} to an update of the Event's count: {}", said(&answer)))
}

/// The message of the API server in a refusal. It names the missing right.
fn said(answer: &Value) -> String {
    clip(answer["message"].as_str().unwrap_or_default(), MESSAGE_MAX_BYTES)
}

async fn send(client: &kube::Client, method: Method, path: &str, body: &Value) -> Result<(u16, Value), String> {
    let request = request(method, path, media::JSON, body).map_err(|error| error.to_string())?;
    let answer = call(client, request, ANSWER_MAX_BYTES, POST_WITHIN).await.map_err(|error| error.to_string())?;
    Ok((answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or(Value::Null)))
}

/// The Event object. Its name is derived from the subject, so that a second one finds the first.
fn event(warning: &Warning, host: &str, now: SystemTime) -> Value {
    let object = warning.object();
    let namespace = if object.namespace.is_empty() { DEFAULT_NAMESPACE } else { &object.namespace };
    let api_version = if object.group.is_empty() {
        object.version.to_string()
    } else {
        format!("{}/{}", object.group, object.version)
    };
    let name = format!("{}.{:016x}", clip(&object.name, NAME_MAX_BYTES), warning.digest());
    let time = timestamp(now);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": {
            "apiVersion": api_version,
            "kind": &*object.kind,
            "namespace": &*object.namespace,
            "name": &*object.name,
            "uid": object.uid.to_string(),
        },
        "type": warning.kind(),
        "reason": warning.reason(),
        "message": clip(&warning.message(), MESSAGE_MAX_BYTES),
        "source": { "component": COMPONENT, "host": host },
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// RFC 3339 in whole seconds, as in `metav1.Time`.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or(0);
    k8s_openapi::jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
