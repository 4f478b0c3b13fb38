//! Writes the status of pauses while this replica leads, and deletes pauses some time after their end.

use super::press::status_patch;
use super::{ANSWER_MAX_BYTES, ANSWER_WITHIN, PATH, resource};
use crate::driver::Reader;
use bytes::Bytes;
use engine::guard::GuardKind;
use engine::object::Uid;
use engine::view::GuardView;
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube_api::{call, media, request};
use runtime::clock::Clock;
use runtime::shutdown::Shutdown;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Delay after a failed write.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long an expired pause stays visible.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Keeps the status of pauses until a request to stop.
pub(crate) async fn run(client: kube::Client, reader: Reader, clock: Clock, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut keeper =
        Keeper { client, reader, clock, written: BTreeMap::new(), not_before: Instant::now(), told: String::new() };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            _ = looks.tick() => keeper.look().await,
        }
    }
}

struct Keeper {
    client: kube::Client,
    reader: Reader,
    clock: Clock,
    /// The last written status, by the uid of the pause.
    written: BTreeMap<Uid, Value>,
    not_before: Instant,
    /// The last logged failure.
    told: String,
}

impl Keeper {
    async fn look(&mut self) {
        let pauses = self.reader.with(|queries| queries.status().term.map(|_| queries.guards_of(GuardKind::Pause)));
        let Some(pauses) = pauses else {
            // Another leader may write in the meantime.
            self.written.clear();
            return;
        };
        if Instant::now() < self.not_before {
            return;
        }
        self.written.retain(|uid, _| pauses.iter().any(|view| view.uid == *uid));
        for view in &pauses {
            if let Err(why) = self.keep(view).await {
                if self.told != why {
                    tracing::warn!(pause = %view.id.name, why, "cannot write the status of a pause");
                    self.told = why;
                }
                self.not_before = Instant::now() + AGAIN_AFTER;
                return;
            }
        }
    }

    async fn keep(&mut self, view: &GuardView) -> Result<(), String> {
        let name = &view.id.name;
        if view.over && view.until.is_some_and(|until| self.clock.age(until) >= KEPT_FOR) {
            let options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": view.uid.to_string() },
            });
            return self.send(Method::DELETE, &format!("{PATH}/{name}"), &options).await.map(drop);
        }
        let now = Timestamp::now();
        let status = match self.written.get(&view.uid) {
            Some(written) => {
                let status = resource::status(view, written, now);
                if status == *written {
                    return Ok(());
                }
                status
            }
            // An earlier leader may have written the conditions.
            None => resource::status(view, &self.stored(view).await?, now),
        };
        let patch = status_patch(&view.uid, &status);
        self.send(Method::PATCH, &format!("{PATH}/{name}/status"), &patch).await?;
        self.written.insert(view.uid.clone(), status);
        Ok(())
    }

    /// The status of a pause at the API server; null if there is none.
    async fn stored(&self, view: &GuardView) -> Result<Value, String> {
        let body = self.send(Method::GET, &format!("{PATH}/{}", view.id.name), &Value::Null).await?;
        let mut pause: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_it = pause["metadata"]["uid"] == view.uid.to_string();
        Ok(if is_it { pause["status"].take() } else { Value::Null })
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Bytes, String> {
        let what = format!("{method} {path}");
        let accept = if method == Method::GET { media::JSON } else { media::METADATA };
        let request = request(method, path, accept, body).map_err(|error| error.to_string())?;
        let answer =
            call(&self.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await.map_err(|error| error.to_string())?;
        // If the request fails because the pause is gone or another one has its name, the watch reports that next.
        if answer.status.is_success() || matches!(answer.status.as_u16(), 404 | 409) {
            return Ok(answer.body);
        }
        Err(format!("{what}: {}", answer.refusal()))
    }
}
