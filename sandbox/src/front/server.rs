//! The server: one model, everybody who waits for its changes, and the seams for tests.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::{Attempt, Fault, FaultAnswer, FaultId, Faults};
use crate::model::{GroupResource, Model, Now};

/// How often a quiet watch gets a bookmark unless said otherwise; as the real server does.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// An in-memory Kubernetes API server. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    model: Mutex<Model>,
    /// One sender for each collection that somebody has watched.
    changes: Mutex<HashMap<GroupResource, watch::Sender<()>>>,
    commands: watch::Sender<Commands>,
    faults: Mutex<Faults>,
    /// Metadata is served as protobuf to those who want it.
    protobuf: AtomicBool,
    requests: Mutex<BTreeMap<RequestCount, u64>>,
    /// The wall clock and the runtime's clock at the same moment: from then on the latter counts, so that a paused
    /// runtime has a paused server.
    started: (Duration, Instant),
}

/// What all open watches are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) bookmark_interval: Duration,
    /// How many bookmarks were asked for by [`Server::send_bookmarks`].
    pub(crate) bookmarks: u64,
    /// How often watches were cut by [`Server::disconnect_watches`].
    pub(crate) disconnects: u64,
}

/// What requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `DELETE`, `DELETECOLLECTION`.
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    /// The HTTP status code.
    pub code: u16,
}

/// Told when the listener that a request came through is shutting down.
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

    /// Lends the model out, then does what follows from changes: controllers' steps, and waking the watches.
    pub fn with_model<R>(&self, borrow: impl FnOnce(&mut Model) -> R) -> R {
        self.write(|model, _| borrow(model))
    }

    /// The time on the server's clock.
    pub fn now(&self) -> Now {
        let (wall, at) = self.shared.started;
        Now(milliseconds(wall + at.elapsed()))
    }

    /// How often a quiet watch that allows bookmarks gets one.
    pub fn set_bookmark_interval(&self, interval: Duration) {
        self.shared.commands.send_modify(|commands| commands.bookmark_interval = interval);
    }

    /// Sends a bookmark on every watch that allows them, now.
    pub fn send_bookmarks(&self) {
        self.shared.commands.send_modify(|commands| commands.bookmarks += 1);
    }

    /// Ends every open watch without a word, as a broken connection does.
    pub fn disconnect_watches(&self) {
        self.shared.commands.send_modify(|commands| commands.disconnects += 1);
    }

    /// Forgets the watch history up to now: whoever resumes from an older version gets 410.
    pub fn compact(&self) {
        self.with_model(|model| model.compact(model.revision()));
    }

    /// Whether metadata is served as protobuf to those who ask for it; it is, unless said otherwise. Some servers know JSON alone.
    pub fn speak_protobuf(&self, yes: bool) {
        self.shared.protobuf.store(yes, Ordering::Relaxed);
    }

    pub(crate) fn speaks_protobuf(&self) -> bool {
        self.shared.protobuf.load(Ordering::Relaxed)
    }

    /// From now on answers the requests that a fault matches in its own way.
    pub fn inject(&self, fault: Fault) -> FaultId {
        lock(&self.shared.faults).add(fault)
    }

    /// Takes a fault back.
    pub fn lift(&self, id: FaultId) {
        lock(&self.shared.faults).remove(id);
    }

    /// How many requests were answered, by what they asked for and how they ended.
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

    /// Ready whenever the collection may have changed since the last look.
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

/// A panic elsewhere leaves the data as consistent as single assignments are; there is nothing better to do than go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
