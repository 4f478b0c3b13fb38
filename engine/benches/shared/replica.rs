//! A replica that never leads, and the time of operations on it.

use engine::leader::{Config, Input, Leader, Mode, Policy};
use engine::time::Time;
use std::time::{Duration, Instant};

pub(crate) fn leader() -> Leader {
    let config = Config {
        mode: Mode::Observe,
        cluster_uid: "cluster".into(),
        endpoint: String::new(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(30),
        stale_after: Duration::from_secs(30),
        policy: Policy::default(),
        protocols: engine::work::Protocols::OURS,
    };
    Leader::new(config, 7)
}

pub(crate) fn handle(leader: &mut Leader, input: Input) {
    leader.handle(Time::ZERO, input);
    while leader.poll().is_some() {}
}

/// The duration of `work`, without the time that this thread waited for a processor.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (waited_before, begun) = (waited(), Instant::now());
    let done = work();
    let took = begun.elapsed();
    (done, took.saturating_sub(waited().saturating_sub(waited_before)))
}

/// How long this thread has waited for a processor so far, on Linux.
fn waited() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(told.split(' ').nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}
