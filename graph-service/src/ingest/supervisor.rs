//! Starts and ends the collections. It repeats discovery on request and at an interval, and runs one task for each
//! collection. Upstream does this in `Sync` and `resyncMonitors`.

use super::collection::Collection;
use super::definitions::{Crd, Definition, Definitions, Service, Watcher};
use super::discovery::View;
use super::fetch;
use super::follow::{self, Source};
use super::known::{CONFIRM_AFTER, Change, Known};
use super::{Clients, Config, Outlets, PAGE_SIZE, Shared, guards};
use crate::gates::Router;
use crate::messages::Control;
use engine::guard::GuardKind;
use engine::jitter::{Backoff, Rng};
use engine::leader::{Input, Undiscovered};
use engine::object::{GroupResource, ServedKind};
use kube_api::discovery::Document;
use kube_api::media;
use kube_api::path::collection_path;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};

#[cfg(test)]
mod tests;

/// Maximum number of collections and definitions to follow.
const JOBS_MAX: usize = 20_000;
/// Maximum number of concurrent lists. A list that takes longer than a moment no longer counts.
const LISTS_MAX: usize = 8;
/// Interval of discovery.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
const _: () = assert!(CONFIRM_AFTER.as_secs() < POLL_INTERVAL.as_secs());
/// Delay before a requested discovery, because several requests usually come together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Retries while discovery lags behind the definitions: minimum delay, maximum delay, and number.
const LAG_MIN: Duration = Duration::from_millis(200);
const LAG_MAX: Duration = Duration::from_secs(2);
const LAG_TRIES_MAX: u32 = 20;
/// Maximum time for a collection whose kind is gone to read the last events of its watch.
const DRAIN_MAX: Duration = Duration::from_secs(3);
/// Bounds of the delay after a failed discovery.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Maximum time that the first view waits for the definitions. They say which server answers for a kind.
const DEFINITIONS_WITHIN: Duration = Duration::from_secs(5);

/// Runs discovery and the collections until a request to stop, or until the receiver of facts is gone.
pub(crate) async fn run(
    clients: Clients,
    config: Config,
    outlets: Outlets,
    shared: Arc<Shared>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Outlets { inputs, control, gates } = outlets;
    let now = Instant::now();
    let mut supervisor = Supervisor {
        turns: Arc::new(Semaphore::new(LISTS_MAX)),
        backoff: Backoff::new(BACKOFF_MIN, BACKOFF_MAX, config.seed),
        clients,
        inputs,
        control,
        gates,
        shared,
        definitions: Arc::new(Definitions::default()),
        unserved: Arc::new(Notify::new()),
        known: Known::default(),
        undiscovered: Vec::new(),
        jobs: Jobs::new(JOBS_MAX),
        paged: BTreeMap::new(),
        leave: BTreeMap::new(),
        leaving: BTreeMap::new(),
        discovered: None,
        due: Some(now),
        hurried: false,
        running: BTreeSet::new(),
        lag: (LAG_MIN, 0),
        definitions_by: None,
        seeds: Rng::new(config.seed),
        config,
    };
    loop {
        match supervisor.turn(&shutdown).await? {
            Turn::Next => {}
            Turn::End => return Ok(()),
        }
    }
}

/// A running task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Discovery,
    Crds,
    Services,
    Guards(GuardKind),
    Collection(GroupResource),
}

#[derive(Debug)]
enum Done {
    Discovered(Result<Document, String>),
    /// The receiver of facts is gone.
    Followed,
}

enum Turn {
    Next,
    End,
}

struct Supervisor {
    clients: Clients,
    config: Config,
    inputs: mpsc::Sender<Input>,
    /// The queue for guards. The driver handles it before all other facts.
    control: mpsc::Sender<Control>,
    gates: Router,
    shared: Arc<Shared>,
    definitions: Arc<Definitions>,
    /// Notified of a 404 of a collection.
    unserved: Arc<Notify>,
    known: Known,
    /// The last list that the engine got.
    undiscovered: Vec<Undiscovered>,
    jobs: Jobs<Job, Done>,
    /// The keys of `jobs`.
    running: BTreeSet<Job>,
    turns: Arc<Semaphore>,
    /// Whether the server supports watch-lists of a collection; set if not.
    paged: BTreeMap<GroupResource, Arc<AtomicBool>>,
    /// Tells the task of a collection that its kind is gone.
    leave: BTreeMap<GroupResource, Arc<AtomicBool>>,
    /// Collections whose kind is gone, and the time until which they may continue. The engine learns of the removal
    /// when they have ended.
    leaving: BTreeMap<GroupResource, Instant>,
    /// A result of discovery that arrived while the supervisor waited for the end of another job.
    discovered: Option<Result<Document, String>>,
    /// The time of the next discovery; `None` while it runs.
    due: Option<Instant>,
    /// Another discovery was requested while one was running. The running one may have started too early.
    hurried: bool,
    /// Delay and number of retries of a lagging discovery.
    lag: (Duration, u32),
    /// The time at which the first view stops waiting for the definitions.
    definitions_by: Option<Instant>,
    backoff: Backoff,
    seeds: Rng,
}

impl Supervisor {
    async fn turn(&mut self, shutdown: &Shutdown) -> anyhow::Result<Turn> {
        if let Some(result) = self.discovered.take() {
            return self.digest(result).await;
        }
        let due = self.due;
        let drained_by = self.leaving.values().min().copied();
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(Turn::End),
            (job, end) = self.jobs.next() => return self.bury(job, end).await,
            () = self.shared.wanted.notified() => return self.relist().await,
            () = self.definitions.changed.notified() => self.hurry(),
            () = self.unserved.notified() => self.hurry(),
            () = sleep_until(drained_by.unwrap_or_else(Instant::now)), if drained_by.is_some() => {
                let now = Instant::now();
                let late: Vec<GroupResource> =
                    self.leaving.iter().filter(|(_, by)| **by <= now).map(|(key, _)| key.clone()).collect();
                for key in late {
                    self.end(Job::Collection(key)).await?;
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                self.due = None;
                let clients = self.clients.clone();
                self.spawn(Job::Discovery, async move { Done::Discovered(fetch::document(&clients).await) });
            }
        }
        Ok(Turn::Next)
    }

    /// Requests discovery soon.
    fn hurry(&mut self) {
        self.lag = (LAG_MIN, 0);
        let soon = Instant::now() + self.debounce();
        self.hurried = self.due.is_none();
        self.due = self.due.map(|due| due.min(soon));
    }

    /// The delay of a requested discovery. Changes usually come together. Before the first view, only the definitions
    /// cause a delay.
    fn debounce(&self) -> Duration {
        let awaited = !self.shared.state().status.discovered && self.definitions.are_settled();
        if awaited { Duration::ZERO } else { DEBOUNCE }
    }

    async fn relist(&mut self) -> anyhow::Result<Turn> {
        let wanted = std::mem::take(&mut self.shared.state().relists);
        for (collection, why) in wanted {
            let Some(served) = self.known.get(&collection).cloned() else { continue };
            tracing::info!(%collection, why, "listing the collection again");
            if let Turn::End = self.apply(Change::Restart(served)).await? {
                return Ok(Turn::End);
            }
        }
        Ok(Turn::Next)
    }

    /// Absorbs the result of discovery.
    async fn digest(&mut self, result: Result<Document, String>) -> anyhow::Result<Turn> {
        let view = result.and_then(|document| {
            self.follow_definitions(&document);
            View::new(&document, &self.definitions.services(), &self.config.ignored)
        });
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                let delay = self.backoff.next_delay();
                tracing::warn!(error, retry_in_s = delay.as_secs_f64(), "discovery failed");
                self.due = Some(Instant::now() + delay);
                self.hurried = false;
                self.report(Some(error), None);
                return Ok(Turn::Next);
            }
        };
        self.backoff.reset();
        let now = Instant::now();
        let by = *self.definitions_by.get_or_insert(now + DEFINITIONS_WITHIN);
        if !self.shared.state().status.discovered && !self.definitions.are_settled() && now < by {
            // The first list of the definitions requests the next discovery at once.
            self.due = Some(if std::mem::take(&mut self.hurried) { now + self.debounce() } else { by });
            return Ok(Turn::Next);
        }
        let declared = self.definitions.declared();
        let changes = self.known.absorb(&view, &declared, now);
        let undiscovered = self.known.undiscovered(&view, &declared, &self.config.ignored);
        self.definitions.prune(&self.known);
        let next = self.next_look(&view);
        self.due = Some(now + if std::mem::take(&mut self.hurried) { next.min(DEBOUNCE) } else { next });
        // The engine learns about hidden groups before it learns about new kinds. It learns about new kinds before a
        // group stops being hidden.
        let is_left = |entry: &&Undiscovered| !undiscovered.iter().any(|new| new.is_same(entry));
        let both = self.undiscovered.iter().filter(is_left).chain(&undiscovered).cloned().collect();
        if let Turn::End = self.tell_undiscovered(both).await {
            return Ok(Turn::End);
        }
        for change in changes {
            if let Turn::End = self.apply(change).await? {
                return Ok(Turn::End);
            }
        }
        if let Turn::End = self.tell_undiscovered(undiscovered).await {
            return Ok(Turn::End);
        }
        // This comes last, because the service can become ready only after the engine knows the collections.
        self.report(None, Some(&view));
        Ok(Turn::Next)
    }

    async fn tell_undiscovered(&mut self, mut all: Vec<Undiscovered>) -> Turn {
        all.sort();
        if all == self.undiscovered {
            return Turn::Next;
        }
        self.undiscovered.clone_from(&all);
        self.send(Input::Undiscovered(all)).await
    }

    /// The time until the next discovery.
    fn next_look(&mut self, view: &View) -> Duration {
        if let Some(why) = self.definitions.unmet(view) {
            let (delay, tries) = self.lag;
            if tries < LAG_TRIES_MAX {
                tracing::debug!(why, "repeating discovery");
                self.lag = ((delay * 2).min(LAG_MAX), tries + 1);
                return delay;
            }
        }
        let confirms = self.known.awaits_confirmation();
        if confirms { CONFIRM_AFTER } else { POLL_INTERVAL }
    }

    fn report(&self, error: Option<String>, view: Option<&View>) {
        let mut state = self.shared.state();
        if let Some(view) = view {
            state.status.discovered = true;
            state.status.groups = view.suspects.clone();
        }
        let groups = state.status.groups.iter().map(|(group, why)| format!("group {group:?}: {why}"));
        let mut problems: Vec<String> = error.iter().cloned().chain(groups).collect();
        problems.extend(view.and_then(|view| view.incomplete.clone()));
        problems.extend(self.definitions.errors());
        state.status.problems = problems;
        state.status.error = error;
    }

    async fn apply(&mut self, change: Change) -> anyhow::Result<Turn> {
        tracing::debug!(?change, "discovery");
        match change {
            Change::Stop(key) => self.end(Job::Collection(key)).await?,
            Change::Served(served) => {
                // The kind returned before its task had ended.
                if self.leaving.contains_key(&served.group_resource) {
                    self.end(Job::Collection(served.group_resource.clone())).await?;
                }
                if let Some(kind) = guards::kind_of(&served.group_resource) {
                    self.follow_guards(kind, &served.group_resource);
                }
                return Ok(self.send(Input::KindServed(served)).await);
            }
            Change::Unserved(key) => {
                if let Some(kind) = guards::kind_of(&key) {
                    self.end(Job::Guards(kind)).await?;
                    let error = format!("{key} is no longer served");
                    self.order(Input::GuardsLost { kind, error }).await;
                }
                if !self.running.contains(&Job::Collection(key.clone())) {
                    return Ok(self.send(Input::KindUnserved(key)).await);
                }
                if let Some(leave) = self.leave.get(&key) {
                    leave.store(true, Ordering::Relaxed);
                }
                self.leaving.insert(key, Instant::now() + DRAIN_MAX);
            }
            Change::Restart(served) => {
                self.end(Job::Collection(served.group_resource.clone())).await?;
                if let Some(kind) = guards::kind_of(&served.group_resource) {
                    self.end(Job::Guards(kind)).await?;
                    self.follow_guards(kind, &served.group_resource);
                }
                self.collect(&served);
            }
            Change::Start(served) => self.collect(&served),
        }
        Ok(Turn::Next)
    }

    async fn send(&self, input: Input) -> Turn {
        if self.inputs.send(input).await.is_ok() { Turn::Next } else { Turn::End }
    }

    async fn order(&self, input: Input) {
        // Fails if the driver has ended, which the next fact shows.
        let _ended = self.control.send(Control::Input(input)).await;
    }

    fn spawn(&mut self, job: Job, future: impl Future<Output = Done> + Send + 'static) {
        if !self.jobs.has_room() {
            tracing::error!(?job, limit = JOBS_MAX, "too many collections; this collection is not watched");
            return;
        }
        self.running.insert(job.clone());
        self.jobs.spawn(job, future);
    }

    /// Handles the end of a job.
    async fn bury(&mut self, job: Job, end: JobEnd<Done>) -> anyhow::Result<Turn> {
        self.running.remove(&job);
        match end {
            JobEnd::Done(Done::Discovered(result)) => self.discovered = Some(result),
            JobEnd::Done(Done::Followed) | JobEnd::Aborted => {}
            JobEnd::Panicked(message) => anyhow::bail!("{job:?} panicked: {message}"),
        }
        if let Job::Collection(key) = job {
            self.leave.remove(&key);
            if self.leaving.remove(&key).is_some() {
                self.paged.remove(&key);
                return Ok(self.send(Input::KindUnserved(key)).await);
            }
        }
        Ok(if self.inputs.is_closed() { Turn::End } else { Turn::Next })
    }

    /// Ends a job and waits for it. Does nothing if the job does not run.
    async fn end(&mut self, wanted: Job) -> anyhow::Result<()> {
        self.jobs.abort(&wanted);
        while self.running.contains(&wanted) {
            let (job, end) = self.jobs.next().await;
            // If the receiver is gone, the next fact shows it again.
            self.bury(job, end).await?;
        }
        Ok(())
    }

    fn collect(&mut self, served: &ServedKind) {
        let key = served.group_resource.clone();
        let source = self.source(&key, &served.version, media::METADATA_LIST_PROTOBUF, media::METADATA_PROTOBUF);
        let leave = Arc::new(AtomicBool::new(false));
        self.leave.insert(key.clone(), leave.clone());
        let (inputs, unserved) = (self.inputs.clone(), self.unserved.clone());
        let selectors = self.shared.selectors.subscribe();
        let mut sink = Collection::new(served, inputs, unserved, leave, selectors);
        self.spawn(Job::Collection(key), async move {
            follow::follow(source, &mut sink).await;
            Done::Followed
        });
    }

    fn source(&mut self, key: &GroupResource, version: &str, list: &'static str, watch: &'static str) -> Source {
        Source {
            clients: self.clients.clone(),
            name: key.to_string(),
            path: collection_path(&key.group, version, &key.resource, ""),
            accept_list: list,
            accept_watch: watch,
            page_size: PAGE_SIZE,
            turns: self.turns.clone(),
            paged: self.paged.entry(key.clone()).or_default().clone(),
            seed: self.seeds.next(),
        }
    }

    /// Follows a kind of guards in full at the one version that this build reads. Their metadata is followed like that
    /// of other objects.
    fn follow_guards(&mut self, kind: GuardKind, key: &GroupResource) {
        if self.running.contains(&Job::Guards(kind)) {
            return;
        }
        let mut source = self.source(key, crate::guards::VERSION, media::JSON, media::JSON);
        source.name = format!("{key} (whole)");
        let mut sink = guards::Follower::new(kind, self.clients.clone(), self.control.clone(), self.gates.clone());
        self.spawn(Job::Guards(kind), async move {
            follow::follow(source, &mut sink).await;
            Done::Followed
        });
    }

    /// Follows the definitions as soon as they are served.
    fn follow_definitions(&mut self, document: &Document) {
        self.follow_definition::<Crd>(Job::Crds, document);
        self.follow_definition::<Service>(Job::Services, document);
    }

    fn follow_definition<T: Definition>(&mut self, job: Job, document: &Document) {
        if self.running.contains(&job) {
            return;
        }
        let (group, resource) = T::RESOURCE;
        let Some(version) = document.version_of(group, resource) else {
            // A complete discovery without definitions.
            if document.incomplete.is_none() {
                self.definitions.are_not_served::<T>();
            }
            return;
        };
        let key = GroupResource { group: Arc::from(group), resource: Arc::from(resource) };
        let mut source = self.source(&key, version, media::JSON, media::JSON);
        source.name = format!("{key} (whole)");
        let mut sink: Watcher<T> = Watcher::new(self.definitions.clone(), self.inputs.clone());
        self.spawn(job, async move {
            follow::follow(source, &mut sink).await;
            Done::Followed
        });
    }
}
