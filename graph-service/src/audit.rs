//! Requests from the audit log of the API server, as inputs of the engine in mode `observe`: who deleted or changed
//! what.
//!
//! | Source | What goes wrong | What follows |
//! |---|---|---|
//! | both | An event is not readable | It is counted. The first one is logged |
//! | both | An event arrives again | It does not count. The last [`SEEN_MAX`] events are known |
//! | [`follower`] | The queue of facts is full | The reader waits |
//! | [`webhook`] | The queue of facts is full | The answer is 429. The API server sends the events again |
//! | [`follower`] | This replica does not lead | The events do not count. The leader reads its own file |
//! | [`webhook`] | This replica does not lead | The answer is 503. The API server sends the events again |

use crate::clock::wire;
use crate::messages::Leadership;
use crate::metrics::audit::AuditMetrics;
use anyhow::Context as _;
use engine::leader::Input;
use engine::parity::Audited;
use engine::time::Time;
use event::{Found, Reading};
use follower::{Follower, Line};
use prost_types::Timestamp;
use runtime::clock::Clock;
use runtime::tasks::Tasks;
use runtime::tls::{ServerTls, TokenFile};
use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

mod event;
mod follower;
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
mod webhook;

/// Pause between two looks at the end of the file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of events that are remembered, so that each counts once although both sources have it, or the API
/// server sends it again.
const SEEN_MAX: usize = 4096;

/// Where audit events come from.
#[derive(Debug, Default)]
pub struct AuditSources {
    /// The file that the API server writes.
    pub log: Option<PathBuf>,
    pub webhook: Option<AuditWebhook>,
}

/// A receiver for the audit webhook of the API server.
#[derive(Debug)]
pub struct AuditWebhook {
    pub listener: TcpListener,
    /// The token that senders must present. `None`: senders need no token.
    pub token: Option<TokenFile>,
}

/// Starts a task for each source.
pub(crate) fn start(
    sources: AuditSources,
    tls: Option<Arc<ServerTls>>,
    facts: &mpsc::Sender<Input>,
    leadership: &watch::Receiver<Leadership>,
    metrics: &AuditMetrics,
    clock: Clock,
    tasks: &mut Tasks,
) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let inlet = |source: String| Inlet::new(source, facts.clone(), Arc::clone(&seen), metrics.clone(), clock);
    if let Some(path) = sources.log {
        let inlet = inlet(format!("--audit-log {}", path.display()));
        tasks.spawn_until_end("audit log", follow(Follower::new(path), inlet));
    }
    if let Some(receiver) = sources.webhook {
        let inlet = inlet("--audit-webhook".to_owned());
        tasks.spawn_until_end("audit webhook", webhook::serve(receiver, tls, inlet, leadership.clone()));
    }
}

/// Reads the file until the driver has ended.
async fn follow(mut follower: Follower, inlet: Inlet) -> anyhow::Result<()> {
    loop {
        let look = move || {
            let step = follower.step();
            let mut batch = Batch::default();
            step.lines.iter().for_each(|line| batch.take(read(line)));
            (follower, batch, step.more)
        };
        let (back, batch, more) = tokio::task::spawn_blocking(look).await.context("the audit log was not read")?;
        follower = back;
        if inlet.send(batch).await.is_err() {
            return Ok(());
        }
        if !more {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn read(line: &Line) -> Reading {
    let too_long = || format!("the line has more than {} bytes", follower::LINE_MAX);
    line.as_ref().map_or_else(|| Err(too_long()), |line| event::line(line))
}

/// Events that were read together.
#[derive(Debug, Default)]
struct Batch {
    used: Vec<Found>,
    irrelevant: usize,
    unreadable: usize,
    /// Why the first one of them is not readable.
    why: Option<String>,
}

impl Batch {
    fn take(&mut self, reading: Reading) {
        match reading {
            Ok(Some(found)) => self.used.push(found),
            Ok(None) => self.irrelevant += 1,
            Err(why) => {
                self.unreadable += 1;
                self.why.get_or_insert(why);
            }
        }
    }
}

/// Why events have not become inputs.
#[derive(Debug, PartialEq, Eq)]
enum NoRoom {
    Full,
    /// The driver has ended.
    Closed,
}

/// Where the events of one source become inputs.
#[derive(Debug)]
struct Inlet {
    /// The source, for the log.
    source: String,
    facts: mpsc::Sender<Input>,
    seen: Arc<Mutex<Seen>>,
    metrics: AuditMetrics,
    clock: Clock,
    /// An event that is not readable has been logged.
    is_said: AtomicBool,
}

impl Inlet {
    fn new(
        source: String,
        facts: mpsc::Sender<Input>,
        seen: Arc<Mutex<Seen>>,
        metrics: AuditMetrics,
        clock: Clock,
    ) -> Inlet {
        Inlet { source, facts, seen, metrics, clock, is_said: AtomicBool::new(false) }
    }

    /// Waits for room.
    async fn send(&self, batch: Batch) -> Result<(), NoRoom> {
        self.count(&batch);
        for found in batch.used {
            if let Some(input) = self.input(found) {
                self.facts.send(input).await.map_err(|_| NoRoom::Closed)?;
            }
        }
        Ok(())
    }

    /// Takes all events or none, without waiting.
    fn offer(&self, batch: Batch) -> Result<(), NoRoom> {
        let room = self.facts.try_reserve_many(batch.used.len()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => NoRoom::Full,
            mpsc::error::TrySendError::Closed(()) => NoRoom::Closed,
        })?;
        self.count(&batch);
        let inputs: Vec<Input> = batch.used.into_iter().filter_map(|found| self.input(found)).collect();
        inputs.into_iter().zip(room).for_each(|(input, place)| place.send(input));
        Ok(())
    }

    /// The input of an event that is new.
    fn input(&self, Found { audited, stage_time }: Found) -> Option<Input> {
        let is_new = self.seen.lock().unwrap_or_else(PoisonError::into_inner).is_new(&audited);
        if is_new {
            self.metrics.used.inc();
        } else {
            self.metrics.irrelevant.inc();
        }
        let at = self.time_of(stage_time);
        is_new.then(|| Input::Audited(Box::new(Audited { at, ..audited })))
    }

    /// The time of an event, by the clock of the API server. Without one, or with one in the future: now.
    fn time_of(&self, stage_time: Option<Timestamp>) -> Time {
        let clock = wire(self.clock);
        let stage_time = stage_time.and_then(|time| time.try_into().ok());
        let age = stage_time.and_then(|time| clock.calendar.duration_since(time).ok()).unwrap_or_default();
        Time::from_origin(clock.now.since_origin().saturating_sub(age))
    }

    fn count(&self, batch: &Batch) {
        self.metrics.irrelevant.inc_by(batch.irrelevant as u64);
        self.metrics.unreadable.inc_by(batch.unreadable as u64);
        if let Some(why) = &batch.why
            && !self.is_said.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                source = self.source,
                why,
                "passed over an audit event that is not readable, and only counts further ones; give the log of kube-apiserver, with --audit-log-format=json"
            );
        }
    }
}

/// The last events, as hashes with a secret key.
#[derive(Debug, Default)]
struct Seen {
    keys: RandomState,
    order: VecDeque<u64>,
    known: HashSet<u64>,
}

impl Seen {
    /// Whether the event is not among the last ones. A client may choose one audit id for several requests, so the
    /// request counts, too.
    fn is_new(&mut self, audited: &Audited) -> bool {
        let Audited { verb, collection, namespace, name, user, status, id, .. } = audited;
        let verb = std::mem::discriminant(verb);
        let hash = self.keys.hash_one((id, verb, collection, namespace, name, user, status));
        if !self.known.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > SEEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
