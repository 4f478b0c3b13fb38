//! The Lease's own watch: a hint to look at once, so that nobody waits for the next round after a hand-over.
//!
//! Nothing rests on it. What it shows is not read, a read follows; while it is broken, the rounds go on.

use super::LeaseOptions;
use engine::jitter::Backoff;
use http::{Request, header};
use kube::Client;
use runtime::kubernetes::{CallError, Lines, Opened, open_stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Largest event that is read; one of ours has under 1 KiB.
const LINE_MAX_BYTES: usize = 256 * 1024;
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// The server ends the watch after so long, so that one which has died unseen is replaced.
const WATCH_FOR_S: u32 = 60;
/// Waits before a watch that broke, or was refused, is opened again.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Notifies of every write to the Lease, as long as it is polled.
pub(crate) async fn follow(
    client: Client,
    options: LeaseOptions,
    changes: Arc<Notify>,
    seed: u64,
) -> anyhow::Result<()> {
    let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX, seed);
    loop {
        if let Err(why) = watch(&client, &options, &changes, &mut backoff).await {
            tracing::debug!(why, "the election Lease is not watched, only read now and then");
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

async fn watch(client: &Client, options: &LeaseOptions, changes: &Notify, backoff: &mut Backoff) -> Result<(), String> {
    let LeaseOptions { namespace, name, .. } = options;
    let uri = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds={WATCH_FOR_S}"
    );
    let request = Request::get(uri).header(header::ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let sentence = |error: CallError| error.to_string();
    let mut lines = match open_stream(client, request, OPEN_WITHIN).await.map_err(sentence)? {
        Opened::Streaming { body, .. } => Lines::new(body, LINE_MAX_BYTES),
        Opened::Refused(answer) => return Err(format!("the API server answers {}", answer.status.as_u16())),
    };
    // The first event shows the Lease as it is, whatever was missed since the last watch.
    while lines.next().await.map_err(sentence)?.is_some() {
        backoff.reset();
        changes.notify_one();
    }
    Ok(())
}
