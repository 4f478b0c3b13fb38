//! Tasks with owners. Only this module spawns, so that no task dies unnoticed.
//!
//! [`Tasks`] holds the long-running tasks of a process. A failed one ends the process. [`Jobs`] holds a bounded number
//! of short or replaceable tasks. Their owner handles their ends.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::shutdown::Shutdown;

/// The background tasks of a process. Dropping it aborts them all.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    /// Only for lookups; lists are sorted by name.
    known: HashMap<Id, Known>,
}

/// Why [`Tasks::run`] did not end regularly.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("task {name} failed: {cause:#}")]
    Failed { name: String, cause: anyhow::Error },
    #[error("task {name} panicked: {message}")]
    Panicked { name: String, message: String },
    #[error("still running {} s after the request to stop: {}", .grace.as_secs_f64(), .names.join(", "))]
    TooSlow { grace: Duration, names: Vec<String> },
}

impl Tasks {
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Spawns a task that ends by itself, soon after the request to stop at the latest. An error or a panic of the task
    /// ends the process.
    pub fn spawn<F>(&mut self, name: impl Into<String>, future: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.keep(name.into(), true, future);
    }

    /// Spawns a task that no other task waits for (signals, the admin server). The task is aborted when all others have
    /// ended. An error or a panic of the task ends the process.
    pub fn spawn_until_end<F>(&mut self, name: impl Into<String>, future: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.keep(name.into(), false, future);
    }

    /// Waits for the tasks. The first failed task makes the others stop through `shutdown`. After any request to stop
    /// they have `grace` to end; then they are aborted. Returns the first error.
    pub async fn run(mut self, shutdown: &Shutdown, grace: Duration) -> Result<(), TaskError> {
        let mut first_failure = None;
        let stopped = async {
            shutdown.requested().await;
            tokio::time::sleep(grace).await;
        };
        tokio::pin!(stopped);
        while self.known.values().any(|known| known.waited_for) {
            let ended = tokio::select! {
                ended = self.next_end() => ended,
                () = &mut stopped => {
                    let late = self.too_slow(grace);
                    // The aborted tasks are not awaited, because a task that ignored the request may ignore the abort,
                    // too.
                    self.set.abort_all();
                    return Err(keep_first(first_failure, late));
                }
            };
            if let Err(error) = ended {
                shutdown.request();
                first_failure = Some(keep_first(first_failure, error));
            }
        }
        self.set.shutdown().await;
        first_failure.map_or(Ok(()), Err)
    }

    fn keep<F>(&mut self, name: String, waited_for: bool, future: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let id = self.set.spawn(future).id();
        self.known.insert(id, Known { name, waited_for });
    }

    /// The end of any task. Pending if there is none.
    async fn next_end(&mut self) -> Result<(), TaskError> {
        let Some(end) = self.set.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = match &end {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let name = self.known.remove(&id).expect("every task is known until it has been joined").name;
        match end {
            Ok((_, Ok(()))) => {
                tracing::debug!(task = name, "task ended");
                Ok(())
            }
            Ok((_, Err(cause))) => Err(TaskError::Failed { name, cause }),
            Err(error) => Err(TaskError::Panicked { name, message: panic_message(error) }),
        }
    }

    fn too_slow(&self, grace: Duration) -> TaskError {
        let mut names: Vec<String> =
            self.known.values().filter(|known| known.waited_for).map(|known| known.name.clone()).collect();
        names.sort();
        TaskError::TooSlow { grace, names }
    }
}

/// A bounded number of tasks, each with a key. Dropping the set aborts them all.
#[derive(Debug)]
pub struct Jobs<K, T> {
    set: JoinSet<T>,
    /// Only for lookups, never listed.
    running: HashMap<Id, (K, AbortHandle)>,
    limit: usize,
}

/// How a job ended.
#[derive(Debug, PartialEq, Eq)]
pub enum JobEnd<T> {
    Done(T),
    /// By [`Jobs::abort`].
    Aborted,
    Panicked(String),
}

impl<K: PartialEq + Send, T: Send + 'static> Jobs<K, T> {
    /// Creates an empty set. `limit` is the maximum number of concurrent jobs, at least one.
    pub fn new(limit: usize) -> Jobs<K, T> {
        assert!(limit > 0, "a set of jobs needs room for at least one");
        Jobs { set: JoinSet::new(), running: HashMap::new(), limit }
    }

    pub fn has_room(&self) -> bool {
        self.running.len() < self.limit
    }

    pub fn len(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts a job. Check [`Jobs::has_room`] first.
    pub fn spawn<F>(&mut self, key: K, future: F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        assert!(self.has_room(), "the caller must check for room before it starts a job: {} already run", self.limit);
        let handle = self.set.spawn(future);
        self.running.insert(handle.id(), (key, handle));
    }

    /// Stops the jobs of this key. [`Jobs::next`] returns them as [`JobEnd::Aborted`], unless they ended before.
    pub fn abort(&mut self, key: &K) {
        for (running, handle) in self.running.values() {
            if running == key {
                handle.abort();
            }
        }
    }

    /// The next ended job. Pending while there is none, for use in a `select`. Cancel safe.
    pub async fn next(&mut self) -> (K, JobEnd<T>) {
        let Some(end) = self.set.join_next_with_id().await else {
            return std::future::pending().await;
        };
        self.ended(end)
    }

    /// The next ended job, if there is one already.
    pub fn try_next(&mut self) -> Option<(K, JobEnd<T>)> {
        let end = self.set.try_join_next_with_id()?;
        Some(self.ended(end))
    }

    fn ended(&mut self, end: Result<(Id, T), JoinError>) -> (K, JobEnd<T>) {
        let (id, end) = match end {
            Ok((id, value)) => (id, JobEnd::Done(value)),
            Err(error) if error.is_cancelled() => (error.id(), JobEnd::Aborted),
            Err(error) => (error.id(), JobEnd::Panicked(panic_message(error))),
        };
        let (key, _) = self.running.remove(&id).expect("every job is known until it has been joined");
        (key, end)
    }
}

#[derive(Debug)]
struct Known {
    name: String,
    waited_for: bool,
}

/// Keeps the first error as the result of the process, and logs the others.
fn keep_first(first: Option<TaskError>, error: TaskError) -> TaskError {
    match first {
        None => error,
        Some(first) => {
            tracing::warn!(%error, "another failure while stopping");
            first
        }
    }
}

fn panic_message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => payload.downcast::<&'static str>().map_or("no message".to_owned(), |text| text.to_string()),
        },
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
