//! Shutdown: one value that any task can wait for and any task can trigger.

use tokio_util::sync::CancellationToken;

/// The request to stop. Clones share it. A request cannot be withdrawn.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Asks all holders of a clone to finish their work and return.
    pub fn request(&self) {
        self.token.cancel();
    }

    /// Resolves when the stop is requested, at once if it already was. Cancel safe.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Turns the first SIGTERM or SIGINT into a request. The second ends the process with the exit status of that
    /// signal (143 or 130). The future never returns. It fails if the handlers cannot be installed.
    ///
    /// The call itself installs the handlers, so a signal before the first poll is not lost. Call this before anything
    /// else, because a signal without a handler kills the process, and the first process of a container ignores it.
    pub fn on_signals(self) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
        let listening = Signals::listen();
        async move {
            let mut signals = listening?;
            let first = signals.next().await;
            tracing::info!(signal = first.name, "finishing current work; a second signal aborts");
            self.request();
            let second = signals.next().await;
            tracing::warn!(signal = second.name, "aborting");
            abort(second.exit_code)
        }
    }
}

struct Signal {
    name: &'static str,
    /// 128 + the signal's number.
    exit_code: i32,
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        use anyhow::Context;
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal { name: "SIGTERM", exit_code: 143 },
            _ = self.interrupt.recv() => Signal { name: "SIGINT", exit_code: 130 },
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without handlers no signal arrives.
            std::future::pending::<()>().await;
        }
        Signal { name: "Ctrl-C", exit_code: 130 }
    }
}

#[expect(clippy::disallowed_methods, reason = "the second signal ends the process at once, without dropping values")]
fn abort(exit_code: i32) -> ! {
    std::process::exit(exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_signal_before_anybody_waits_for_it_is_not_lost() {
        let shutdown = Shutdown::new();
        let signals = shutdown.clone().on_signals();
        let own = std::process::id().to_string();
        let sent = std::process::Command::new("sh").args(["-c", "kill -TERM $0", &own]).status().unwrap();
        assert!(sent.success());
        tokio::select! {
            () = shutdown.requested() => {}
            ended = signals => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn a_request_reaches_every_clone_and_stays() {
        let shutdown = Shutdown::new();
        let clone = shutdown.clone();
        assert!(!clone.is_requested());
        shutdown.request();
        clone.requested().await;
        clone.requested().await;
        assert!(shutdown.is_requested());
    }
}
