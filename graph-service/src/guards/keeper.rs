//! Writes the status of guards while this replica leads, and deletes pauses some time after their end.

use super::status::{Phase, State, status};
use super::{ANSWER_MAX_BYTES, ANSWER_WITHIN, deletion_of, path};
use crate::driver::Reader;
use bytes::Bytes;
use engine::guard::{GuardId, GuardKind, Recorded};
use engine::leader::Coverings;
use engine::object::Uid;
use engine::view::{GuardUsage, GuardView};
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube_api::{call, media, request};
use runtime::clock::Clock;
use runtime::shutdown::Shutdown;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

#[cfg(test)]
mod tests;

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Delay after a failed write.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long an expired pause stays visible.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Time between two counts of the objects that guards cover.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// How long one look counts.
const COUNT_FOR: Duration = Duration::from_millis(100);
/// Number of slots of the graph that one step of a count visits.
const COUNT_STEP: usize = 1000;

/// Keeps the status of guards until a request to stop.
pub(crate) async fn run(client: kube::Client, reader: Reader, clock: Clock, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut keeper = Keeper::new(client, reader, clock);
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
    /// The last written status, by the uid of the guard.
    written: BTreeMap<Uid, Value>,
    /// The number of objects that each guard covered at the last count.
    covers: BTreeMap<GuardId, u64>,
    counting: Option<Coverings>,
    count_at: Instant,
    not_before: Instant,
    /// The last logged failure.
    told: String,
}

impl Keeper {
    fn new(client: kube::Client, reader: Reader, clock: Clock) -> Keeper {
        Keeper {
            client,
            reader,
            clock,
            written: BTreeMap::new(),
            covers: BTreeMap::new(),
            counting: None,
            count_at: Instant::now(),
            not_before: Instant::now(),
            told: String::new(),
        }
    }

    async fn look(&mut self) {
        let guards = self.reader.with(|queries| queries.status().term.map(|_| queries.guards()));
        let Some(guards) = guards else {
            // Another leader may write in the meantime.
            self.written.clear();
            return;
        };
        self.count(&guards).await;
        if Instant::now() < self.not_before {
            return;
        }
        self.written.retain(|uid, _| guards.iter().any(|view| view.uid == *uid));
        for view in guards.iter().filter(|view| view.known) {
            if let Err(why) = self.keep(view).await {
                if self.told != why {
                    tracing::warn!(guard = %view.id, why, "cannot write the status of a guard");
                    self.told = why;
                }
                self.not_before = Instant::now() + AGAIN_AFTER;
                return;
            }
        }
    }

    /// Counts the objects in scope, a few steps at a time. A new guard is counted at once.
    async fn count(&mut self, guards: &[GuardView]) {
        let is_new = guards.iter().any(|view| !self.covers.contains_key(&view.id));
        if guards.is_empty() || (self.counting.is_none() && !is_new && Instant::now() < self.count_at) {
            return;
        }
        let mut counting = self.counting.take().unwrap_or_default();
        let until = Instant::now() + COUNT_FOR;
        while Instant::now() < until {
            if self.reader.with(|queries| counting.step(queries, COUNT_STEP)) {
                self.covers = guards.iter().map(|view| (view.id.clone(), counting.of(&view.id))).collect();
                self.count_at = Instant::now() + COUNT_EVERY;
                return;
            }
            tokio::task::yield_now().await;
        }
        self.counting = Some(counting);
    }

    async fn keep(&mut self, view: &GuardView) -> Result<(), String> {
        let guard = format!("{}/{}", path(view.id.kind), view.id.name);
        let is_old = view.over && view.until.is_some_and(|until| self.clock.age(until) >= KEPT_FOR);
        if is_old && view.id.kind == GuardKind::Pause {
            let stored = self.stored(&guard, view).await?;
            // A user may have extended the pause, and the watch has yet to show that.
            if stored["metadata"]["generation"] == view.generation {
                let mut options = deletion_of(&view.uid);
                options["preconditions"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
                self.send(Method::DELETE, &guard, &options).await?;
            }
            return Ok(());
        }
        let (now, state) = (Timestamp::now(), state(view, self.covers.get(&view.id).copied()));
        let next = match self.written.get(&view.uid) {
            Some(written) => {
                let next = status(&state, written, now);
                if next == *written {
                    return Ok(());
                }
                next
            }
            // An earlier leader may have written the conditions.
            None => status(&state, &self.stored(&guard, view).await?["status"], now),
        };
        let patch = json!({ "metadata": { "uid": view.uid.to_string() }, "status": next });
        self.send(Method::PATCH, &format!("{guard}/status"), &patch).await?;
        self.written.insert(view.uid.clone(), next);
        Ok(())
    }

    /// A guard as the API server has it; null if it has none with this uid.
    async fn stored(&self, guard: &str, view: &GuardView) -> Result<Value, String> {
        let body = self.send(Method::GET, guard, &Value::Null).await?;
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_it = object["metadata"]["uid"] == view.uid.to_string();
        Ok(if is_it { object } else { Value::Null })
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Bytes, String> {
        let what = format!("{method} {path}");
        let accept = if method == Method::GET { media::JSON } else { media::METADATA };
        let request = request(method, path, accept, body).map_err(|error| error.to_string())?;
        let answer =
            call(&self.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await.map_err(|error| error.to_string())?;
        // If the request fails because the guard is gone or another one has its name, the watch reports that next.
        if answer.status.is_success() || matches!(answer.status.as_u16(), 404 | 409) {
            return Ok(answer.body);
        }
        Err(format!("{what}: {}", answer.refusal()))
    }
}

fn state(view: &GuardView, covers: Option<u64>) -> State {
    let (mut recorded, mut approved) = (Recorded::default(), Vec::new());
    match &view.usage {
        GuardUsage::Budget { exceeded_from, window, .. } => {
            recorded = Recorded { deletions: window.clone(), exceeded_from: *exceeded_from };
        }
        GuardUsage::Approval { accepted, inherited, .. } => {
            let accepted = accepted.iter().map(|cascade| (cascade.root.uid.clone(), cascade.digest));
            approved = inherited.iter().cloned().chain(accepted).collect();
        }
        GuardUsage::Standing | GuardUsage::Gate { .. } => {}
    }
    let written = !view.created.is_zero();
    State {
        kind: view.id.kind,
        generation: view.generation,
        phase: match (view.over, view.effective) {
            (true, _) => Phase::Expired,
            (false, true) => Phase::Effective,
            (false, false) => Phase::Pending,
        },
        pending: view.pending.clone(),
        problem: view.problem.clone(),
        scope: view.scope.clone(),
        covers,
        held: view.held as u64,
        recorded,
        approved,
        expires: view.lifetime.filter(|_| written).map(|lifetime| view.created + lifetime),
    }
}
