//! A replica that never leads, and the time of operations on it.

use engine::guard::{Guard, GuardId, GuardKind, Recorded, Rule};
use engine::leader::{Config, GuardList, Input, Leader, Mode, Output, Policy};
use engine::object::{Name, ResourceVersion, Uid};
use engine::scope::{Filter, Labelled, Requirement, Scope, Test};
use engine::selectors::Table;
use engine::time::Time;
use std::sync::Arc;
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

/// Lets a replica know this many Protections. Half of them name namespaces or kinds; the others ask for a label that
/// most objects have, with different values, or for labels and annotations that few objects have. Returns the
/// selectors.
#[allow(dead_code, reason = "some benchmarks have no guards")]
pub(crate) fn guard(leader: &mut Leader, guards: usize) -> Arc<Table> {
    let guards = (0..guards).map(|number| {
        let requirement = |of, key: &str, test| Requirement { of, key: key.into(), test };
        let value = || vec![Name::from(format!("value-{number}"))];
        let any = Filter::default();
        let filter = match number % 10 {
            0..4 => Filter { namespaces: vec![format!("guarded-{number}").into()], ..any },
            4 => Filter { names: value(), ..any },
            5 | 6 => Filter { marks: vec![requirement(Labelled::Label, "example.com/team", Test::In(value()))], ..any },
            7 => Filter { marks: vec![requirement(Labelled::Label, "app", Test::In(value()))], ..any },
            8 => {
                let key = format!("example.com/keep-{number}");
                Filter { marks: vec![requirement(Labelled::Label, &key, Test::Exists)], ..any }
            }
            _ => Filter {
                marks: vec![requirement(Labelled::Annotation, "helm.sh/resource-policy", Test::In(value()))],
                ..any
            },
        };
        Guard {
            id: GuardId { kind: GuardKind::Protection, name: format!("guard-{number}").into() },
            uid: Uid::parse(&format!("guard-{number}")).expect("it is not empty"),
            resource_version: ResourceVersion::parse("1"),
            generation: 1,
            scope: Scope { targets: vec![filter] },
            reason: String::from("a benchmark"),
            actor: String::new(),
            created: Duration::ZERO,
            lifetime: None,
            elapsed: Duration::ZERO,
            read_at: Duration::ZERO,
            recorded: Recorded::default(),
            problem: String::new(),
            rule: Rule::Hold,
        }
    });
    let list = GuardList { position: ResourceVersion::parse("1"), guards: guards.collect(), more: false };
    leader.handle(Time::ZERO, Input::GuardsListed { kind: GuardKind::Protection, list });
    let mut table = Arc::default();
    while let Some(output) = leader.poll() {
        if let Output::Selectors(next) = output {
            table = next;
        }
    }
    table
}
