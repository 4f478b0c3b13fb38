//! The Kubernetes Events about an object, for its card.

use crate::kubectl::ending::Problem;
use crate::kubectl::naming::refusal;
use crate::kubectl::reviews;
use crate::kubectl::session::Session;
use anyhow::Context as _;
use http::{Method, StatusCode};
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube_api::path::{collection_path, query_value};
use kube_api::{media, request};
use serde::Deserialize;
use serde_json::{Value, json};

/// The number of Events that are read. Those of one object are few, because equal ones are counted in one.
const READ_MAX: usize = 500;
/// The number of Events that the card shows.
const SHOWN_MAX: usize = 20;
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// The namespace of Events about objects of cluster scope.
const OF_THE_CLUSTER: &str = "default";

#[derive(Deserialize)]
pub(super) struct About {
    /// Empty for cluster scope.
    pub(super) namespace: String,
    pub(super) uid: String,
}

/// The newest Events about an object, the newest first.
///
/// # Errors
/// The caller may not list Events there, or the API server does not answer.
pub(super) async fn about(session: &Session, about: &About) -> Result<Value, Problem> {
    let namespace = if about.namespace.is_empty() { OF_THE_CLUSTER } else { &about.namespace };
    let path = collection_path("", "v1", "events", &query_value(namespace));
    let uid = query_value(&about.uid);
    let path = format!("{path}?fieldSelector=involvedObject.uid%3D{uid}&limit={READ_MAX}");
    let request = request(Method::GET, &path, media::JSON, &Value::Null).context("the path of Events is not valid")?;
    let answer = reviews::authenticated(session, request, ANSWER_MAX_BYTES).await?;
    if answer.status != StatusCode::OK {
        return Err(Problem::sentence(format!("the Events cannot be listed: {}", refusal(&answer))));
    }
    let list: List<Event> =
        serde_json::from_slice(&answer.body).context("the API server's answer is no list of Events")?;
    let is_cut = list.metadata.continue_.is_some_and(|token| !token.is_empty());
    let mut events = list.items;
    events.sort_by_key(|event| std::cmp::Reverse(last(event)));
    let more = is_cut || events.len() > SHOWN_MAX;
    let shown: Vec<Value> = events.into_iter().take(SHOWN_MAX).map(shown).collect();
    Ok(json!({ "events": shown, "more": more }))
}

/// The time at which the event was last seen.
fn last(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let of_series = series.or(event.event_time.as_ref()).map(|time| time.0);
    of_series.max(event.last_timestamp.as_ref().map(|time| time.0))
}

fn shown(event: Event) -> Value {
    let time = last(&event).map(|time| time.to_string());
    let of_series = event.series.and_then(|series| series.count);
    let source = event.source.and_then(|source| source.component);
    json!({
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "count": of_series.or(event.count).unwrap_or(1),
        "by": event.reporting_component.filter(|name| !name.is_empty()).or(source),
        "time": time,
    })
}
