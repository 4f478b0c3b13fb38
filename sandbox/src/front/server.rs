//! The server: one model, its watchers, and hooks for tests.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::{Attempt, Fault, FaultAnswer, FaultId, Faults};
use crate::model::{GroupResource, Model, Now};

/// Interval of bookmarks on a quiet watch, as in the real server.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// An in-memory Kubernetes API server. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    model: Mutex<Model>,
    /// One sender for each watched collection.
    changes: Mutex<HashMap<GroupResource, watch::Sender<()>>>,
    commands: watch::Sender<Commands>,
    faults: Mutex<Faults>,
    /// Metadata is served as protobuf on request.
    protobuf: AtomicBool,
    requests: Mutex<BTreeMap<RequestCount, u64>>,
    /// The wall clock and the runtime's clock at the same moment. Afterwards only the latter counts, so that a paused
    /// runtime pauses the server.
    started: (Duration, Instant),
}

/// Notices to all open watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) bookmark_interval: Duration,
    /// The number of calls of [`Server::send_bookmarks`].
    pub(crate) bookmarks: u64,
    /// The number of calls of [`Server::disconnect_watches`].
    pub(crate) disconnects: u64,
}

/// The key of the request counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `DELETE`, `DELETECOLLECTION`.
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    /// The HTTP status code.
    pub code: u16,
}

/// Notified when the listener of a request shuts down.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(pub(crate) watch::Receiver<bool>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// An empty cluster whose uids follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let commands = Commands { bookmark_interval: BOOKMARK_INTERVAL, bookmarks: 0, disconnects: 0 };
        Self {
            shared: Arc::new(Shared {
                model: Mutex::new(Model::new(seed, Now(milliseconds(wall)))),
                changes: Mutex::default(),
                commands: watch::Sender::new(commands),
                faults: Mutex::default(),
                protobuf: AtomicBool::new(true),
                requests: Mutex::default(),
                started: (wall, Instant::now()),
            }),
        }
    }

    /// Lends the model out, then runs the steps of controllers and wakes the watches.
    pub fn with_model<R>(&self, borrow: impl FnOnce(&mut Model) -> R) -> R {
        self.write(|model, _| borrow(model))
    }

    /// The time on the server's clock.
    pub fn now(&self) -> Now {
        let (wall, at) = self.shared.started;
        Now(milliseconds(wall + at.elapsed()))
    }

    /// Sets the interval of bookmarks on a quiet watch.
    pub fn set_bookmark_interval(&self, interval: Duration) {
        self.shared.commands.send_modify(|commands| commands.bookmark_interval = interval);
    }

    /// Sends a bookmark now on every watch that allows them.
    pub fn send_bookmarks(&self) {
        self.shared.commands.send_modify(|commands| commands.bookmarks += 1);
    }

    /// Ends all open watches without a final event, like a broken connection.
    pub fn disconnect_watches(&self) {
        self.shared.commands.send_modify(|commands| commands.disconnects += 1);
    }

    /// Forgets the watch history up to now: a watch from an older version gets 410.
    pub fn compact(&self) {
        self.with_model(|model| model.compact(model.revision()));
    }

    /// Whether metadata is served as protobuf on request (default: yes). Some servers support only JSON.
    pub fn speak_protobuf(&self, yes: bool) {
        self.shared.protobuf.store(yes, Ordering::Relaxed);
    }

    pub(crate) fn speaks_protobuf(&self) -> bool {
        self.shared.protobuf.load(Ordering::Relaxed)
    }

    /// Answers matching requests with a fault from now on.
    pub fn inject(&self, fault: Fault) -> FaultId {
        lock(&self.shared.faults).add(fault)
    }

    /// Lifts a fault.
    pub fn lift(&self, id: FaultId) {
        lock(&self.shared.faults).remove(id);
    }

    /// The number of requests, by target and result.
    pub fn requests(&self) -> BTreeMap<RequestCount, u64> {
        lock(&self.shared.requests).clone()
    }

    pub(crate) fn read<R>(&self, borrow: impl FnOnce(&Model) -> R) -> R {
        borrow(&lock(&self.shared.model))
    }

    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut Model, Now) -> R) -> R {
        let now = self.now();
        let (result, touched) = {
            let mut model = lock(&self.shared.model);
            let result = change(&mut model, now);
            model.settle(now);
            (result, model.take_touched())
        };
        let changes = lock(&self.shared.changes);
        for resource in &touched {
            if let Some(sender) = changes.get(resource) {
                sender.send_replace(());
            }
        }
        result
    }

    /// Ready when the collection may have changed since the last look.
    pub(crate) fn changes(&self, resource: &GroupResource) -> watch::Receiver<()> {
        lock(&self.shared.changes).entry(resource.clone()).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    pub(crate) fn commands(&self) -> watch::Receiver<Commands> {
        self.shared.commands.subscribe()
    }

    pub(crate) fn faults(&self, attempt: &Attempt<'_>) -> Vec<FaultAnswer> {
        lock(&self.shared.faults).answers(attempt)
    }

    pub(crate) fn count(&self, request: RequestCount) {
        *lock(&self.shared.requests).entry(request).or_default() += 1;
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// After a panic elsewhere the data is consistent, because each change is a single assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
