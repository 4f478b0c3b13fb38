//! The threads that write streams for readers. They run at a lower priority than the collector.

use anyhow::Context as _;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Runtime};

/// The `nice` value of these threads.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The threads that write the streams of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderThreads {
    /// The runtime of the service. Tests use it, because they control its clock.
    #[default]
    Shared,
    /// This many separate threads of low priority.
    Own(NonZeroUsize),
}

impl ReaderThreads {
    /// One thread for each processor except one, and at least one.
    pub fn of_machine() -> ReaderThreads {
        let others = available_parallelism().map_or(1, NonZeroUsize::get).saturating_sub(1);
        ReaderThreads::Own(NonZeroUsize::new(others).unwrap_or(NonZeroUsize::MIN))
    }

    /// Runs `work`, with all tasks that it spawns, on these threads.
    pub(crate) async fn run<F>(self, work: F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        match self {
            ReaderThreads::Shared => work.await,
            ReaderThreads::Own(count) => {
                let runtime = Builder::new_multi_thread()
                    .worker_threads(count.get())
                    .thread_name("readers")
                    .on_thread_start(step_back)
                    .enable_all()
                    .build();
                let runtime = Owned(Some(runtime.context("the threads for readers cannot be started")?));
                match &runtime.0 {
                    Some(threads) => threads.spawn(work).await.context("a task that writes for readers panicked")?,
                    None => Ok(()),
                }
            }
        }
    }
}

/// Lowers the priority of this thread, and of threads that it starts later. If the process lacks the right, the thread
/// keeps its priority.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of a thread; the thread keeps its priority");
    }
}

/// A runtime that can be dropped inside another one, because it does not wait for its threads.
struct Owned(Option<Runtime>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn readers_have_threads_of_their_own_that_step_back() {
        let (told, name) = mpsc::channel();
        let work = async move {
            let priority = rustix::process::getpriority_process(None)?;
            told.send((std::thread::current().name().map(str::to_owned), priority))?;
            Ok(())
        };
        let before = rustix::process::getpriority_process(None).unwrap();
        ReaderThreads::Own(NonZeroUsize::MIN).run(work).await.unwrap();
        let expected = (before + NICE).min(19);
        let (name, priority) = name.recv().unwrap();
        assert_eq!(name.as_deref(), Some("readers"));
        assert!(priority == NICE || priority == expected, "{priority}");
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), before, "the others go on as they were");
    }

    #[tokio::test]
    async fn what_fails_there_fails_here() {
        let failed = ReaderThreads::of_machine().run(async { anyhow::bail!("no") }).await;
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert!(ReaderThreads::of_machine().run(async { panic!("no") }).await.is_err());
        ReaderThreads::Shared.run(async { Ok(()) }).await.unwrap();
    }
}
