//! Reads the API server: discovery, one list and watch for each collection, definitions in full, and consistent lists
//! on request. Upstream's counterparts are `monitors`, `Sync` and `resyncMonitors`.
//!
//! Each collection has a task of its own, and its errors affect no other collection. The facts of a collection arrive
//! in order. The queue of facts is bounded; a full queue slows lists and watches down.
//!
//! In reading order: `request` (raw requests and their errors), `discovery` and `fetch` (documents to a view), `known`
//! (changes between views), `follow` (list and watch), `collection` and `definitions` (their results), `supervisor`
//! (the running collections), `probe` (questions of the engine), `questions` (questions of readers), `existence`
//! (questions about one object), `guards` (the objects of guards).

use crate::gates::Router;
use crate::messages::Control;
use engine::guard::GuardKind;
use engine::leader::{GuardRead, Input, Probe, ProbeId};
use engine::object::{GroupResource, Name};
use engine::selectors::Table;
use kube::Client;
use questions::Questions;
use runtime::shutdown::Shutdown;
use runtime::tasks::Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc, watch};

mod collection;
mod definitions;
mod discovery;
mod existence;
mod fetch;
mod follow;
pub(crate) mod fuzzing;
mod guards;
mod known;
mod probe;
pub(crate) mod questions;
pub(crate) mod request;
#[cfg(test)]
mod scripted;
mod supervisor;

/// Objects on one page of a list.
const PAGE_SIZE: u32 = 500;

/// Settings of the administrator.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Resources that are never watched. Their objects can still be owners.
    pub(crate) ignored: BTreeSet<GroupResource>,
    /// The seed of jitter.
    pub(crate) seed: u64,
}

/// Clients of the API server. Each has its own connections and queues, so that no list waits for watches.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) lists: Client,
    pub(crate) watches: Client,
    /// Opens a new connection for each request, for questions that need another connection.
    pub(crate) fresh: Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// The state of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Discovery has succeeded once.
    pub(crate) discovered: bool,
    /// The error of the last attempt, if it failed.
    pub(crate) error: Option<String>,
    /// Groups whose information may be outdated, and why.
    pub(crate) groups: BTreeMap<Name, String>,
    /// All problems, one sentence each: the error, the groups, and definitions that cannot be followed.
    pub(crate) problems: Vec<String>,
}

/// The receivers of facts.
#[derive(Clone, Debug)]
pub(crate) struct Outlets {
    pub(crate) inputs: mpsc::Sender<Input>,
    /// Of guards. The driver handles them before all other facts.
    pub(crate) control: mpsc::Sender<Control>,
    /// Of the policy engines of gates.
    pub(crate) gates: Router,
}

/// Starts the tasks. They end at a request to stop, or when a receiver is gone.
pub(crate) fn start(
    clients: Clients,
    config: Config,
    outlets: Outlets,
    shutdown: &Shutdown,
    tasks: &mut Tasks,
) -> Handle {
    let (probes, probe_queue) = mpsc::channel(probe::QUEUE_MAX);
    let (refusals, refusal_queue) = mpsc::channel(probe::REFUSALS_MAX);
    let shared = Arc::new(Shared::default());
    let queues = probe::Queues { probes: probe_queue, refusals: refusal_queue };
    let prober = probe::run(clients.clone(), PAGE_SIZE, queues, outlets.inputs.clone(), shutdown.clone());
    tasks.spawn("probes", prober);
    let guards = GuardKind::ALL.map(|kind| {
        let (reads, questions) = mpsc::channel(guards::QUEUE_MAX);
        tasks.spawn_until_end(kind.plural(), guards::answer(clients.clone(), questions, outlets.control.clone()));
        reads
    });
    tasks.spawn("collections", supervisor::run(clients, config, outlets, shared.clone(), shutdown.clone()));
    Handle { shared, probes, refusals, guards }
}

/// Questions of readers about freshness.
pub(crate) fn questions(clients: Clients) -> Questions {
    let (lists, reads) = (clients.clone(), clients.clone());
    Questions {
        stand: Box::new(move |collection, version| Box::pin(probe::stand(lists.clone(), collection, version))),
        texts: Box::new(move |object| Box::pin(probe::texts(reads.clone(), object))),
        last: Box::new(move |span| Box::pin(probe::last(clients.clone(), span))),
    }
}

/// Sends requests to the running tasks. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
    probes: mpsc::Sender<Probe>,
    refusals: mpsc::Sender<ProbeId>,
    /// By kind.
    guards: [mpsc::Sender<GuardRead>; GuardKind::ALL.len()],
}

impl Handle {
    /// Sends a probe. The answer is an [`Input::Probed`], which is an error if too many probes wait.
    pub(crate) fn probe(&self, probe: Probe) {
        let id = probe.id;
        // A closed queue means that the process ends.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.probes.try_send(probe)
            && self.refusals.try_send(id).is_err()
        {
            tracing::error!(probe = id.0, "too many probes wait; dropped one without an answer");
        }
    }

    /// Reads all guards of a kind. The answer is an [`Input::GuardsRead`], unless another request follows.
    pub(crate) fn read_guards(&self, read: GuardRead) {
        if let Err(mpsc::error::TrySendError::Full(read)) = self.guards[read.kind as usize].try_send(read) {
            tracing::error!(kind = read.kind.as_kind(), "dropped a read of guards without an answer");
        }
    }

    /// Ends the collection's watch and lists the collection again. Several requests for one collection count as one.
    pub(crate) fn relist(&self, collection: GroupResource, why: String) {
        self.shared.state().relists.entry(collection).or_insert(why);
        self.shared.wanted.notify_one();
    }

    /// Matches the objects of lists that begin from now on with these selectors.
    pub(crate) fn select(&self, table: Arc<Table>) {
        self.shared.selectors.send_replace(table);
    }

    /// The state of discovery.
    pub(crate) fn status(&self) -> Status {
        let state = self.shared.state();
        state.status.clone()
    }
}

/// State that handles and supervisor share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<SharedState>,
    /// Notified of new relists.
    wanted: Notify,
    selectors: watch::Sender<Arc<Table>>,
}

#[derive(Debug, Default)]
struct SharedState {
    /// Bounded by the number of collections.
    relists: BTreeMap<GroupResource, String>,
    status: Status,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, SharedState> {
        // Each change of the state is one assignment, so a poisoned lock is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
