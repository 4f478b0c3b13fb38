//! Blockers that delay many items at once.

use super::*;
use crate::view::ReasonCode;

/// Creates dependents of an absent owner, one in each of these namespaces. All are granted.
fn with_dependents_in(namespaces: &[&str]) -> Bench {
    let mut bench = Bench::synced();
    bench.serve("roles");
    bench.list("roles", 100, vec![]);
    bench.seen("nodes", object("nodes", "o", 101));
    for (namespace, rv) in namespaces.iter().zip(102..) {
        let dependent = object("configmaps", namespace, rv).owned_by("nodes", "o");
        bench.seen("configmaps", Object { namespace: (*namespace).into(), ..dependent });
    }
    bench.deleted("nodes", "o", 150);
    bench
}

fn blocked_with(namespaces: &[&str], outcome: Outcome) -> Bench {
    let mut bench = with_dependents_in(namespaces);
    for namespace in namespaces {
        let lease = bench.take(namespace);
        bench.report_with(&lease, |report| {
            report.outcome = outcome;
            report.http_status = 403;
            report.webhook = Some("w".to_string());
        });
    }
    bench
}

fn in_namespace(resource: &str, namespace: &str, name: &str, rv: u64) -> Object {
    Object { namespace: namespace.into(), ..object(resource, name, rv) }
}

#[test]
fn readers_see_what_stands_in_the_way() {
    let mut bench = blocked_with(&["a", "b"], Outcome::Forbidden);
    bench.seen("configmaps", in_namespace("configmaps", "b", "b2", 160).owned_by("nodes", "o"));
    let (blockers, more) = bench.leader.queries().blockers(10);
    let seen: Vec<_> = blockers.iter().map(|blocker| (&*blocker.what, blocker.items, blocker.probing)).collect();
    let expected = [
        ("forbidden: delete of configmaps in namespace b", 2, false),
        ("forbidden: delete of configmaps in namespace a", 1, false),
    ];
    assert_eq!((&*seen, more), (&expected[..], 0));
    assert_eq!(blockers[0].next_probe, Some(Time::from_origin(Duration::from_secs(5))));
    assert_eq!(bench.leader.queries().blockers(1).1, 1, "a list that is cut says so");
    bench.pass(Duration::from_secs(5));
    assert!(bench.leader.queries().blockers(10).0.iter().any(|blocker| blocker.probing));
}

#[test]
fn a_rule_that_appears_is_noticed_before_its_namespace_would_have_its_turn() {
    let namespaces: Vec<String> = (0..20).map(|number| format!("ns{number:02}")).collect();
    let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    let mut bench = blocked_with(&namespaces, Outcome::Forbidden);
    bench.pass(Duration::from_secs(1));
    bench.seen("roles", in_namespace("roles", "ns17", "r", 160));
    bench.pass(Duration::from_secs(1));
    let lease = bench.take("ns17");
    bench.report(&lease, Outcome::Done);
    // The other namespaces are probed too, because the rule may apply to them.
    assert_eq!(bench.grants().len(), 2);
}

#[test]
fn a_probe_without_an_answer_releases_no_item() {
    let mut bench = blocked_with(&["a", "b", "c"], Outcome::AdmissionFailed);
    bench.pass(Duration::from_secs(5));
    let lease = bench.take("a");
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::Transient;
        report.http_status = 0;
    });
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.leader.queries().blockers(10).0.len(), 1);
    bench.pass(Duration::from_secs(5));
    let lease = bench.granted.remove(0);
    bench.report(&lease, Outcome::Done);
    assert_eq!(bench.grants().len(), 2, "one success wakes the others");
}

#[test]
fn an_object_that_a_webhook_refused_is_tried_again_when_it_changes() {
    let mut bench = blocked_with(&["a", "b"], Outcome::AdmissionDenied);
    for rv in 160..170 {
        bench.seen("configmaps", in_namespace("configmaps", "b", "b", rv).owned_by("nodes", "o"));
    }
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) b"], "once, however often it changed");
}

#[test]
fn questions_that_fail_hold_up_questions_alone() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("configmaps", "gone"));
    bench.pass(Duration::from_secs(1));
    bench.found("gone", FindingResult::Failed);
    bench.seen("things", object("things", "o", 102));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o"));
    bench.deleted("things", "o", 104);
    assert_eq!(bench.grants(), ["delete(Background) b"]);
}

#[test]
fn owners_that_cannot_be_read_do_not_keep_a_new_one_of_their_kind_from_its_turn() {
    let mut bench = Bench::synced();
    for (at, name) in ["one", "two", "three"].into_iter().enumerate() {
        bench.seen("configmaps", object("configmaps", &format!("of-{name}"), 101 + at as u64).owned_by("things", name));
    }
    let fail = |bench: &mut Bench| {
        for probe in core::mem::take(&mut bench.probes) {
            match probe.object.as_ref().is_some_and(|object| &*object.name == "new") {
                true => bench.probes.push(probe),
                false => bench.input(Input::Probed { probe: probe.id, answer: Err(Failure::transport("500".into())) }),
            }
        }
    };
    for _ in 0..60 {
        bench.pass(Duration::from_secs(1));
        fail(&mut bench);
    }
    bench.seen("configmaps", object("configmaps", "a", 110).owned_by("things", "new"));
    for _ in 0..20 {
        bench.pass(Duration::from_secs(1));
        fail(&mut bench);
    }
    assert_eq!(bench.questions().len(), 1, "each of the others fails every five seconds, and so does the server");
}

/// Creates dependents in namespaces a, b and z. A policy denies the one in a, and the webhook fails for the others.
fn one_denied_among_failures() -> Bench {
    let mut bench = with_dependents_in(&["a", "b", "z"]);
    for (namespace, outcome) in
        [("a", Outcome::AdmissionDenied), ("b", Outcome::AdmissionFailed), ("z", Outcome::AdmissionFailed)]
    {
        refuse(&mut bench, namespace, outcome);
    }
    bench
}

fn refuse(bench: &mut Bench, target: &str, outcome: Outcome) {
    let lease = bench.take(target);
    bench.report_with(&lease, |report| {
        report.outcome = outcome;
        report.http_status = 403;
        report.webhook = Some("w".to_string());
        report.message = format!("policy says no to {target}");
    });
}

#[test]
fn an_object_that_a_policy_denies_does_not_keep_those_behind_the_same_webhook_from_their_turn() {
    let mut bench = one_denied_among_failures();
    bench.pass(Duration::from_secs(5));
    refuse(&mut bench, "a", Outcome::AdmissionDenied);
    bench.pass(Duration::from_secs(5));
    let lease = bench.take("b");
    bench.report(&lease, Outcome::Done);
    assert_eq!(bench.grants(), ["delete(Background) a", "delete(Background) z"], "one success wakes all");
}

#[test]
fn an_object_that_is_denied_where_others_pass_is_tried_alone_and_less_and_less_often() {
    let mut bench = one_denied_among_failures();
    bench.pass(Duration::from_secs(5));
    refuse(&mut bench, "a", Outcome::AdmissionDenied);
    bench.pass(Duration::from_secs(5));
    let lease = bench.take("b");
    bench.report(&lease, Outcome::Done);
    refuse(&mut bench, "a", Outcome::AdmissionDenied);
    refuse(&mut bench, "z", Outcome::AdmissionFailed);
    assert_eq!(bench.leader.queries().blockers(10).0[0].items, 1, "only z stands behind the webhook");
    let reason = bench.leader.queries().explain(&uid("a")).unwrap().reasons.remove(0);
    assert_eq!(reason.code, ReasonCode::AdmissionDenied);
    assert_eq!(reason.detail, "refused by w, which accepts other objects: admission_denied: policy says no to a");
    let mut tries = 0;
    for _ in 0..3600 {
        bench.pass(Duration::from_secs(1));
        for lease in core::mem::take(&mut bench.granted) {
            let outcome =
                if lease.item.target.uid == uid("a") { Outcome::AdmissionDenied } else { Outcome::AdmissionFailed };
            tries += usize::from(outcome == Outcome::AdmissionDenied);
            bench.report_with(&lease, |report| {
                report.outcome = outcome;
                report.http_status = 500;
                report.webhook = Some("w".to_string());
            });
        }
    }
    assert!((12..=40).contains(&tries), "{tries} tries in an hour");
}

#[test]
fn an_item_that_gets_through_without_being_the_probe_wakes_the_others() {
    let mut bench = blocked_with(&["a", "b", "c"], Outcome::AdmissionFailed);
    bench.seen("configmaps", in_namespace("configmaps", "b", "b", 160).owned_by("nodes", "o"));
    bench.pass(Duration::from_secs(1));
    let lease = bench.take("b");
    bench.report(&lease, Outcome::Done);
    assert_eq!(bench.grants(), ["delete(Background) a", "delete(Background) c"]);
}

#[test]
fn what_failed_most_often_comes_first_with_what_was_said_last() {
    let mut bench = with_dependents_in(&["a", "b"]);
    let mut tries = 0;
    while tries < 13 {
        for lease in core::mem::take(&mut bench.granted) {
            let target = lease.item.target.name.clone();
            tries += usize::from(&*target == "b");
            bench.report_with(&lease, |report| match &*target {
                "a" => report.outcome = Outcome::Unsupported,
                _ => {
                    (report.outcome, report.message) = (Outcome::Transient, "the server answers too slowly".to_string())
                }
            });
        }
        bench.pass(Duration::from_secs(1));
    }
    let (troubles, more) = bench.leader.queries().troubles(1);
    assert_eq!((&*troubles[0].object.name, troubles[0].attempts, more), ("b", 13, 1));
    assert_eq!(troubles[0].why, "attempt 13 failed: transient: the server answers too slowly");
    let (blockers, _) = one_denied_among_failures().leader.queries().blockers(1);
    assert_eq!(blockers[0].said, "admission_failed: policy says no to z");
}

#[test]
fn owners_do_not_wait_for_dependents_that_join_a_refusal_without_an_attempt() {
    let mut bench = Bench::synced();
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 1 } });
    for owner in ["o1", "o2", "o3"] {
        let dependent = object("configmaps", &format!("of-{owner}"), 102).owned_by("things", owner);
        bench.seen("things", object("things", owner, 101));
        bench.seen("configmaps", dependent);
    }
    for (owner, rv) in ["o1", "o2", "o3"].into_iter().zip(103..) {
        bench.seen("things", object("things", owner, rv).terminating("foregroundDeletion"));
    }
    let lease = bench.granted.remove(0);
    bench.report_with(&lease, |report| (report.outcome, report.http_status) = (Outcome::Forbidden, 403));
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 100 } });
    let freed: Vec<String> = bench.grants().into_iter().filter(|grant| grant.starts_with("remove finalizer")).collect();
    assert_eq!(freed.len(), 3, "{freed:?}");
}

#[test]
fn owners_do_not_wait_for_dependents_that_a_pause_releases_into_a_refusal() {
    let mut bench = Bench::synced();
    bench.input(Input::GuardSeen(pauses::of_resources(&["jobs"], pauses::pause("p", 1))));
    bench.serve("jobs");
    bench.list("jobs", 100, vec![]);
    for (owner, rv) in [("o1", 101), ("o2", 102)] {
        bench.seen("things", object("things", owner, rv));
        bench.seen("jobs", object("jobs", &format!("of-{owner}"), rv).owned_by("things", owner));
    }
    bench.seen("things", object("things", "o1", 103).terminating("foregroundDeletion"));
    bench.input(Input::GuardGone { id: pauses::pause_id("p"), uid: uid("uid-p") });
    let lease = bench.take("of-o1");
    bench.input(Input::GuardSeen(pauses::of_resources(&["jobs"], pauses::pause("p", 2))));
    bench.seen("things", object("things", "o2", 104).terminating("foregroundDeletion"));
    bench.report_with(&lease, |report| (report.outcome, report.http_status) = (Outcome::Forbidden, 403));
    bench.grants();
    bench.input(Input::GuardGone { id: pauses::pause_id("p"), uid: uid("uid-p") });
    let freed = ["remove finalizer foregroundDeletion of o1", "remove finalizer foregroundDeletion of o2"];
    assert_eq!(bench.grants(), freed);
}

#[test]
fn a_probe_that_another_server_refuses_releases_no_item() {
    let mut bench = blocked_with(&["a", "b", "c"], Outcome::AdmissionFailed);
    bench.pass(Duration::from_secs(5));
    let lease = bench.take("a");
    bench.report_with(&lease, |report| (report.outcome, report.http_status) = (Outcome::Transient, 401));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.leader.queries().blockers(10).0.len(), 1);
}
