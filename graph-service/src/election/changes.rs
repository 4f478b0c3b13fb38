//! Watches the election Lease, so that a replica notices a released Lease at once.
//!
//! The watch is only a hint. Its content is not used. Each event leads to a read. Without the watch, the elector reads
//! at its interval.

use super::LeaseOptions;
use super::lease::{GROUP, RESOURCE};
use engine::jitter::Backoff;
use http::Method;
use kube::Client;
use kube_api::path::{collection_path, name_selector};
use kube_api::{CallError, Lines, Opened, media, open_stream, request};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Maximum size of an event. An event of this Lease has less than 1 KiB.
const LINE_MAX_BYTES: usize = 256 * 1024;
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// Timeout of the watch on the server, so that a dead watch is replaced.
const WATCH_FOR_S: u32 = 60;
/// Bounds of the wait before a broken or refused watch is opened again.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Notifies of each write to the Lease, for as long as it is polled.
pub(crate) async fn follow(
    client: Client,
    options: LeaseOptions,
    changes: Arc<Notify>,
    seed: u64,
) -> anyhow::Result<()> {
    let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX, seed);
    loop {
        if let Err(why) = watch(&client, &options, &changes, &mut backoff).await {
            tracing::debug!(why, "cannot watch the election Lease; this replica reads the Lease every retry period");
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

async fn watch(client: &Client, options: &LeaseOptions, changes: &Notify, backoff: &mut Backoff) -> Result<(), String> {
    let LeaseOptions { namespace, name, .. } = options;
    let leases = collection_path(GROUP, "v1", RESOURCE, namespace);
    let uri = format!("{leases}?watch=true&fieldSelector={}&timeoutSeconds={WATCH_FOR_S}", name_selector(name));
    let request = request(Method::GET, &uri, media::JSON, &Value::Null).map_err(|error| error.to_string())?;
    let sentence = |error: CallError| error.to_string();
    let mut lines = match open_stream(client, request, OPEN_WITHIN).await.map_err(sentence)? {
        Opened::Streaming { body, .. } => Lines::new(body, LINE_MAX_BYTES),
        Opened::Refused(answer) => return Err(format!("the API server answers {}", answer.status.as_u16())),
    };
    // The first event shows the current Lease, so that no change is missed between two watches.
    while lines.next().await.map_err(sentence)?.is_some() {
        backoff.reset();
        changes.notify_one();
    }
    Ok(())
}
