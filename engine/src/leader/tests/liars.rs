//! An executor with untrue reports. One untrue report stops no grants and causes no list. Untrue reports are counted,
//! and ten of them end the session.

use super::*;
use crate::lies::LIES_MAX;

/// Creates a bench in which `things/o` is in foreground deletion and waits for `configmaps/a`, and `configmaps/b` is to
/// be released.
fn bench() -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
    bench
}

/// Answers every question about a single object with the state of the API server.
fn truth(bench: &mut Bench) {
    let there = |name: &str| match name {
        "a" => Some(object("configmaps", "a", 102).blocking("things", "o")),
        "o" => Some(object("things", "o", 103).terminating("foregroundDeletion")),
        _ => None,
    };
    for _ in 0..100 {
        bench.pass(Duration::from_millis(500));
        let asked = core::mem::take(&mut bench.probes);
        for probe in asked {
            let objects: Vec<Object> = probe.object.iter().filter_map(|named| there(&named.name)).collect();
            let answer = ProbeAnswer { resource_version: version(110), objects, complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
    }
}

fn untrue(bench: &Bench) -> Vec<&'static str> {
    let field = |event: &Event| {
        let Event::Untrue { field, .. } = event else { return None };
        Some(*field)
    };
    bench.events.iter().filter_map(field).collect()
}

fn sighting(name: &str, at: &str, facts: Facts) -> Sighting {
    Sighting { uid: uid(name), resource_version: ResourceVersion::parse(at), facts }
}

type Lie = (&'static str, &'static str, fn(&WorkLease, &mut WorkReport));

fn owner_of(lease: &WorkLease) -> ObjectRef {
    let Action::Delete { owner_checks, .. } = &lease.item.action else { panic!("{lease:?}") };
    owner_checks[0].clone()
}

fn found(lease: &WorkLease, report: &mut WorkReport, outcome: Outcome, result: CheckResult) {
    report.outcome = outcome;
    report.findings = vec![Finding { owner: owner_of(lease), result }];
}

const LIES: &[Lie] = &[
    ("a version far in the future", "observed", |_, report| {
        report.outcome = Outcome::Conflict;
        report.observed = Some(sighting("a", "99999999999", Facts::default()));
    }),
    ("a version a little in the future", "observed", |_, report| {
        report.observed = Some(sighting("a", "150", Facts::default()));
    }),
    ("a version of the past", "observed", |_, report| {
        report.outcome = Outcome::Conflict;
        report.observed = Some(sighting("a", "7", Facts::default()));
    }),
    ("a version that is none", "observed", |_, report| {
        report.observed = Some(sighting("a", "latest", Facts::default()));
    }),
    ("a version of another object", "observed", |_, report| {
        report.observed = Some(sighting("a", "104", Facts::default()));
    }),
    ("no references at the version that is known", "observed", |_, report| {
        report.observed = Some(sighting("a", "102", Facts::default()));
    }),
    ("a deletion that orphans", "observed", |_, report| {
        let facts = object("configmaps", "a", 102).blocking("things", "o").terminating("orphan").facts;
        report.observed = Some(sighting("a", "102", facts));
    }),
    ("another object", "observed", |_, report| report.observed = Some(sighting("b", "150", Facts::default()))),
    ("a delete that was not sent", "outcome", |_, report| report.outcome = Outcome::Done),
    ("a target that is gone", "outcome", |_, report| report.outcome = Outcome::Gone),
    ("a name that is another's", "outcome", |_, report| report.outcome = Outcome::Replaced),
    ("success without a request", "outcome", |_, report| report.api_calls = 0),
    ("an owner that lives", "findings", |lease, report| {
        let alive = sighting("o", "150", Facts::default());
        found(lease, report, Outcome::OwnerExists, CheckResult::Exists(alive));
    }),
    ("an owner that lives, at the known version", "findings", |lease, report| {
        let alive = sighting("o", "103", Facts::default());
        found(lease, report, Outcome::OwnerExists, CheckResult::Exists(alive));
    }),
    ("an owner that orphans", "findings", |lease, report| {
        let facts = object("things", "o", 150).terminating("orphan").facts;
        found(lease, report, Outcome::OwnerExists, CheckResult::Exists(sighting("o", "99999999999", facts)));
    }),
    ("an owner of another uid", "findings", |lease, report| {
        let other = sighting("p", "104", Facts::default());
        found(lease, report, Outcome::OwnerExists, CheckResult::Exists(other));
    }),
    ("an owner that is gone", "findings", |lease, report| {
        found(lease, report, Outcome::Conflict, CheckResult::Absent);
    }),
    ("an owner whose name is another's", "findings", |lease, report| {
        found(lease, report, Outcome::Conflict, CheckResult::OtherUid);
    }),
    ("an owner that the lease did not ask to check", "findings", |lease, report| {
        let owner = ObjectRef { uid: uid("x"), name: "x".into(), ..owner_of(lease) };
        report.outcome = Outcome::Conflict;
        report.findings = vec![Finding { owner, result: CheckResult::Absent }];
    }),
    ("a lease that was never granted", "lease_id", |_, report| report.lease.number += 1000),
    ("another item", "item_id", |_, report| report.item += 1),
    ("another attempt", "attempt", |_, report| report.attempt += 7),
    ("a status that is none", "http_status", |_, report| report.http_status = 999),
    ("more calls than there can be", "api_calls", |_, report| report.api_calls = u32::MAX),
    ("a time that is none", "execution_time", |_, report| report.execution_time = Duration::MAX),
];

#[test]
fn a_lie_in_any_field_stops_nothing_and_is_counted() {
    for (what, field, lie) in LIES {
        let mut bench = bench();
        let lease = bench.take("a");
        bench.report_with(&lease, |report| lie(&lease, report));
        assert_eq!(bench.leader.queries().status().stopped, None, "{what}");
        truth(&mut bench);
        assert_eq!(untrue(&bench).first(), Some(field), "{what}: {:?}", untrue(&bench));
        assert!(bench.leader.queries().executors()[0].untrue_reports > 0, "{what}");
        let stopped = |event: &&Event| {
            matches!(event, Event::GrantsStopped { .. } | Event::Rewound { .. } | Event::Inconsistent { .. })
        };
        assert_eq!(bench.events.iter().find(stopped), None, "{what}");
        assert_eq!(bench.relists, [], "{what}");
        assert!(!bench.events.iter().any(|event| matches!(event, Event::Prevented { .. })), "{what}");
        let a = &bench.leader.queries().nodes(&uid("a"))[0];
        assert_eq!(
            (a.resource_version().cloned(), a.facts.owners.len(), a.facts.terminating),
            (Some(version(102)), 1, false),
            "{what}"
        );
        // True reports are still processed.
        bench.seen("nodes", object("nodes", "n", 111));
        bench.seen("configmaps", object("configmaps", "c", 112).owned_by("nodes", "n"));
        bench.granted.clear();
        bench.deleted("nodes", "n", 113);
        assert_eq!(bench.grants(), ["delete(Background) c"], "{what}");
    }
}

#[test]
fn texts_of_a_report_and_waits_are_bounded_and_no_lies() {
    let mut bench = bench();
    let lease = bench.take("a");
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::Throttled;
        report.retry_after = Some(Duration::from_secs(86_400));
        report.webhook = Some("evil\n".to_string());
        report.message = "evil\n".to_string();
        report.status_reason = "evil\n".to_string();
    });
    bench.granted.clear();
    bench.pass(Duration::from_secs(31));
    assert_eq!(bench.grants(), ["delete(Background) a if o waits"], "no item waits for a day");
    assert_eq!(untrue(&bench), [] as [&str; 0]);
}

/// Sends untrue reports until the executor is ordered to leave. Returns their number.
fn lie_on(bench: &mut Bench) -> u32 {
    let mut told = 0;
    while bench.refused.is_empty() {
        let lease = bench.granted.pop().unwrap_or_else(|| panic!("nothing granted after {told} lies"));
        bench.report_with(&lease, |report| {
            report.outcome = Outcome::Conflict;
            report.http_status = 999;
        });
        told += 1;
        bench.pass(Duration::from_secs(1));
    }
    told
}

#[test]
fn after_ten_lies_an_executor_is_sent_away_and_its_work_done_by_another() {
    let mut bench = bench();
    assert_eq!(lie_on(&mut bench), LIES_MAX);
    assert!(matches!(&bench.refused[..], [Refusal::Untrusted { .. }]), "{:?}", bench.refused);
    assert_eq!(bench.leader.queries().executors(), []);
    let last = bench.events.iter().rev().find(|event| matches!(event, Event::Untrue { .. }));
    assert!(matches!(last, Some(Event::Untrue { count: LIES_MAX, refused: true, .. })), "{last:?}");
    bench.granted.clear();
    bench.hello(STREAM, hello("e1", "i1"));
    assert!(matches!(bench.refused.pop(), Some(Refusal::Untrusted { .. })));
    assert_eq!(bench.grants(), NOTHING);
    bench.hello(StreamId(2), hello("e2", "i"));
    assert_eq!(bench.grants(), ["delete(Background) a if o waits"]);
    bench.refused.clear();
    bench.pass(Duration::from_secs(600));
    bench.hello(StreamId(3), hello("e1", "i1"));
    assert_eq!((bench.refused.len(), bench.leader.queries().executors().last().unwrap().untrue_reports), (0, 0));
}

#[test]
fn leases_of_an_executor_that_is_sent_away_are_recalled() {
    let mut bench = bench();
    bench.seen("nodes", object("nodes", "n", 111));
    bench.seen("configmaps", object("configmaps", "c", 112).owned_by("nodes", "n"));
    bench.deleted("nodes", "n", 113);
    let kept = bench.take("c");
    lie_on(&mut bench);
    let stops = |(_, message): &(StreamId, ToExecutor)| matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } if leases.contains(&kept.id));
    assert!(bench.sent.iter().any(stops));
    bench.granted.clear();
    bench.hello(StreamId(2), hello("e2", "i"));
    assert!(bench.grants().contains(&"delete(Background) c".to_string()));
}

#[test]
fn an_executor_that_is_ahead_of_the_watch_costs_nothing_and_is_no_liar() {
    let mut bench = bench();
    let lease = bench.take("a");
    let now = object("configmaps", "a", 107).blocking("things", "o").terminating("foregroundDeletion");
    let seen =
        Sighting { uid: now.uid.clone(), resource_version: now.resource_version.clone(), facts: now.facts.clone() };
    bench.report_with(&lease, |report| report.observed = Some(seen));
    assert_eq!((bench.questions().len(), bench.grants().len()), (0, 0));
    let verdict = bench.leader.queries().explain(&uid("a")).unwrap().verdict;
    assert_eq!(verdict, crate::view::VerdictView::InProgress);
    bench.seen("configmaps", now);
    bench.pass(Duration::from_secs(10));
    assert_eq!((bench.questions(), untrue(&bench)), (vec![], vec![]));
}

#[test]
fn a_server_that_lags_makes_no_liar_of_an_executor() {
    let mut bench = bench();
    let lease = bench.take("a");
    let now = object("configmaps", "a", 107).blocking("things", "o").terminating("foregroundDeletion");
    let seen =
        Sighting { uid: now.uid.clone(), resource_version: now.resource_version.clone(), facts: now.facts.clone() };
    bench.report_with(&lease, |report| report.observed = Some(seen.clone()));
    bench.pass(Duration::from_secs(2));
    let before = object("configmaps", "a", 102).blocking("things", "o");
    let before = Sighting { uid: before.uid, resource_version: before.resource_version, facts: before.facts };
    bench.found("a", FindingResult::Exists(before));
    assert_eq!(bench.leader.queries().nodes(&uid("a"))[0].resource_version(), Some(&version(102)));
    bench.pass(Duration::from_millis(500));
    assert!(bench.probes.iter().any(|probe| probe.object.is_some() && probe.fresh), "by another connection");
    bench.found("a", FindingResult::Exists(seen));
    assert_eq!(bench.leader.queries().nodes(&uid("a"))[0].resource_version(), Some(&version(107)));
    assert_eq!(untrue(&bench), [] as [&str; 0]);
}
