//! The API server as facts: discovery, one list and watch per collection, definitions in full, and consistent lists on request.
//!
//! Nothing waits for all: each collection is a task of its own, and what one of them meets stays with it. A collection's facts arrive
//! in order; the queue of facts is bounded, and a full one slows lists and watches down.
//!
//! In reading order: `request` (raw requests, failures as sentences), `discovery` and `fetch` (documents to a
//! view), `known` (views over time to changes), `follow` (list and watch, for ever), `collection` and `definitions` (what follows from it),
//! `supervisor` (which collections run), `probe` (questions of the engine), `questions` (those of readers), `existence` (those about one object), `pauses` (which pauses there are).

use crate::messages::Control;
use engine::leader::{Input, PauseRead, Probe, ProbeId};
use engine::object::{GroupResource, Name};
use kube::Client;
use questions::Questions;
use runtime::shutdown::Shutdown;
use runtime::tasks::Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

mod collection;
mod definitions;
mod discovery;
mod existence;
mod fetch;
mod follow;
pub(crate) mod fuzzing;
mod known;
mod pauses;
mod probe;
pub(crate) mod questions;
pub(crate) mod request;
#[cfg(test)]
mod scripted;
mod supervisor;

/// What the administrator decides.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Never watched; their objects can still be owners.
    pub(crate) ignored: BTreeSet<GroupResource>,
    /// Between two discoveries that nothing else asked for.
    pub(crate) poll_interval: Duration,
    /// Objects per page, where a collection is listed in pages.
    pub(crate) page_size: u32,
    /// Lists at a time. One that takes longer than a moment no longer counts.
    pub(crate) list_concurrency: usize,
    /// For jitter.
    pub(crate) seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        let events = |group: &str| GroupResource { group: Arc::from(group), resource: Arc::from("events") };
        Config {
            ignored: BTreeSet::from([events(""), events("events.k8s.io")]),
            poll_interval: Duration::from_secs(30),
            page_size: 500,
            list_concurrency: 8,
            seed: 0,
        }
    }
}

/// The API server, by clients with connections and queues of their own, so that no list waits behind the watches.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) lists: Client,
    pub(crate) watches: Client,
    /// For questions over a connection of their own: none of its requests leaves one behind.
    pub(crate) fresh: Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// How discovery stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// It has succeeded once.
    pub(crate) discovered: bool,
    /// Why the last attempt failed, if it did.
    pub(crate) error: Option<String>,
    /// Groups of which what is known may be old, and why.
    pub(crate) groups: BTreeMap<Name, String>,
    /// All that is wrong, one sentence each: the error, the groups, and definitions that cannot be followed.
    pub(crate) problems: Vec<String>,
}

/// Entry into the module.
#[derive(Debug)]
pub(crate) struct Ingest;

impl Ingest {
    /// Starts the tasks. Facts go to `inputs`, and those about pauses to `control`, until the stop is asked for or the receiver is gone.
    pub(crate) fn start(
        clients: Clients,
        config: Config,
        inputs: mpsc::Sender<Input>,
        control: mpsc::Sender<Control>,
        shutdown: &Shutdown,
        tasks: &mut Tasks,
    ) -> Handle {
        let (probes, probe_queue) = mpsc::channel(probe::QUEUE_MAX);
        let (refusals, refusal_queue) = mpsc::channel(probe::REFUSALS_MAX);
        let shared = Arc::new(Shared::default());
        let queues = probe::Queues { probes: probe_queue, refusals: refusal_queue };
        let prober = probe::run(clients.clone(), config.page_size, queues, inputs.clone(), shutdown.clone());
        tasks.spawn("probes", prober);
        let (pauses, questions) = mpsc::channel(pauses::QUEUE_MAX);
        tasks.spawn_until_end("pauses", pauses::answer(clients.clone(), questions, control.clone()));
        let supervisor = supervisor::run(clients, config, inputs, control, shared.clone(), shutdown.clone());
        tasks.spawn("collections", supervisor);
        Handle { shared, probes, refusals, pauses }
    }
}

/// What readers ask who want to know how fresh the graph is.
pub(crate) fn questions(clients: Clients) -> Questions {
    let (lists, reads) = (clients.clone(), clients.clone());
    Questions {
        stand: Box::new(move |collection, version| Box::pin(probe::stand(lists.clone(), collection, version))),
        texts: Box::new(move |object| Box::pin(probe::texts(reads.clone(), object))),
        last: Box::new(move |span| Box::pin(probe::last(clients.clone(), span))),
    }
}

/// Asks the running tasks for something. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
    probes: mpsc::Sender<Probe>,
    refusals: mpsc::Sender<ProbeId>,
    pauses: mpsc::Sender<PauseRead>,
}

impl Handle {
    /// Answered by [`Input::Probed`], with an error where too many are waiting.
    pub(crate) fn probe(&self, probe: Probe) {
        let id = probe.id;
        // A closed queue means that the process ends, and nobody waits for the answer.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.probes.try_send(probe)
            && self.refusals.try_send(id).is_err()
        {
            tracing::error!(probe = id.0, "a probe was dropped without an answer");
        }
    }

    /// Answered by [`Input::PausesRead`], unless another question follows.
    pub(crate) fn read_pauses(&self, read: PauseRead) {
        if let Err(mpsc::error::TrySendError::Full(read)) = self.pauses.try_send(read) {
            tracing::error!(read = read.0, "a question which pauses there are was dropped without an answer");
        }
    }

    /// Throws the collection's watch away and lists it anew. Several wishes for one collection are one.
    pub(crate) fn relist(&self, collection: GroupResource, why: String) {
        self.shared.state().relists.entry(collection).or_insert(why);
        self.shared.wanted.notify_one();
    }

    /// How discovery stands.
    pub(crate) fn status(&self) -> Status {
        let state = self.shared.state();
        state.status.clone()
    }
}

/// Between the handles and the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<SharedState>,
    /// Notified when there are relists to do.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct SharedState {
    /// Bounded by the number of collections.
    relists: BTreeMap<GroupResource, String>,
    status: Status,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, SharedState> {
        // Each change of the state is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
