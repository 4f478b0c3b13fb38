//! Upstream's garbage collector, for comparisons.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use tokio::fs;
use tokio::time::{Instant, interval};

use super::{Binaries, Process};

const SYNCED_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The log line after all informers have synced. No other sign shows this. The health endpoint is ready long before.
const SYNCED: &str = "all resource monitors have synced";
/// The log line if some informers have not synced within upstream's own 30 s.
const UNSYNCED: &str = "not all resource monitors could be synced";

/// The options in which kube-controller-manager differs from its defaults (20 requests/s with bursts of 30, 20
/// workers).
#[derive(Debug, Clone, Default)]
pub struct CollectorOptions {
    /// `--kube-api-qps` and `--kube-api-burst`, in requests per second.
    pub requests_per_second: Option<u32>,
    /// `--concurrent-gc-syncs`, for the queue of deletions and for the queue of orphans.
    pub workers: Option<u32>,
    /// The kubeconfig. Without it, upstream connects directly as `admin`.
    pub kubeconfig: Option<PathBuf>,
    /// True if the start does not wait for collections that cannot be listed.
    pub begins_unsynced: bool,
    /// Further flags, after ours.
    pub flags: Vec<String>,
}

/// A running kube-controller-manager whose only controller is the garbage collector. Dropping it kills it.
#[derive(Debug)]
pub struct UpstreamCollector {
    process: Process,
}

impl UpstreamCollector {
    pub(super) async fn start(
        binaries: &Binaries,
        directory: &Path,
        kubeconfig: &Path,
        options: &CollectorOptions,
    ) -> anyhow::Result<Self> {
        let mut flags = vec![
            format!("--kubeconfig={}", options.kubeconfig.as_deref().unwrap_or(kubeconfig).display()),
            "--controllers=garbage-collector-controller".to_owned(),
            "--leader-elect=false".to_owned(),
            // The process serves nothing, so it needs no port.
            "--secure-port=0".to_owned(),
        ];
        if let Some(rate) = options.requests_per_second {
            flags.extend([format!("--kube-api-qps={rate}"), format!("--kube-api-burst={rate}")]);
        }
        flags.extend(options.workers.map(|workers| format!("--concurrent-gc-syncs={workers}")));
        flags.extend(options.flags.iter().cloned());

        // The test searches the log, and a second collector must not find the lines of the first one.
        let name = format!("kube-controller-manager-{}", uuid::Uuid::new_v4().simple());
        let mut process = Process::spawn(&name, directory, &binaries.program("kube-controller-manager"), &flags)?;
        until_synced(&mut process, options.begins_unsynced).await?;
        Ok(Self { process })
    }

    /// The process, for its pid, its log, and pauses.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

async fn until_synced(process: &mut Process, or_not: bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + SYNCED_WITHIN;
    let mut ticks = interval(POLL_EVERY);
    loop {
        ticks.tick().await;
        let begun = |log: String| log.contains(SYNCED) || (or_not && log.contains(UNSYNCED));
        if fs::read_to_string(process.log()).await.is_ok_and(begun) {
            return Ok(());
        }
        if let Some(status) = process.exited()? {
            bail!("kube-controller-manager ended while starting, {status}; {}", process.log_tail());
        }
        if Instant::now() >= deadline {
            bail!("kube-controller-manager has not synced in {SYNCED_WITHIN:?}; {}", process.log_tail());
        }
    }
}
