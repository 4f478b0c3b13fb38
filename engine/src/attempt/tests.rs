//! The machine with scripted answers. `W` is a number: references are returned unread.

use super::*;
use crate::jitter::Rng;
use crate::object::{Facts, Name};
use crate::work::{Action, FindingResult, Preconditions, Term, WorkItem};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

mod checks;
mod property;

type Machine = Attempts<u32>;

fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        group: Name::from(""),
        version: Name::from("v1"),
        resource: Name::from("configmaps"),
        kind: Name::from("ConfigMap"),
        namespace: Name::from("default"),
        name: Name::from(name),
        uid: Uid::parse(name).unwrap(),
    }
}

fn entry(uid: &str, block: Option<bool>) -> OwnerReference {
    OwnerReference {
        api_version: Name::from("v1"),
        kind: Name::from("ConfigMap"),
        name: Name::from(uid),
        uid: Uid::parse(uid).unwrap(),
        controller: None,
        block_owner_deletion: block,
    }
}

/// The facts of the decisions: one blocking reference to `o`.
fn facts() -> Facts {
    Facts { owners: Box::new([entry("o", Some(true))]), ..Facts::default() }
}

fn lease(number: u64, action: Action) -> WorkLease {
    WorkLease {
        id: LeaseId { term: 1, number },
        term: Term { election: Name::from("election"), number: 1 },
        item: WorkItem {
            id: number,
            target: object(&format!("c{number}")),
            preconditions: Preconditions {
                resource_version: ResourceVersion::parse("5"),
                facts_digest: facts().digest(),
                must_be_terminating: false,
            },
            action,
            read_first: false,
            generation: 1,
        },
        attempt: 1,
        execution_limit: Duration::from_secs(60),
        previous_attempt_ambiguous: false,
        traceparent: None,
    }
}

fn delete(number: u64, owners: &[&str]) -> WorkLease {
    let owner_checks = owners.iter().map(|name| object(name)).collect();
    lease(number, Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks })
}

fn machine() -> Machine {
    let mut machine = Machine::default();
    machine.set_writes_end(at(3_600_000));
    machine
}

fn live(uid: &str, version: &str, facts: Facts) -> Live<u32> {
    let references =
        facts.owners.iter().zip(0..).map(|(entry, written)| Reference { written, entry: Some(entry.clone()) });
    let references = references.collect();
    let sighting = Sighting { uid: Uid::parse(uid).unwrap(), resource_version: ResourceVersion::parse(version), facts };
    Live { sighting, references }
}

fn reply(code: u16, object: Option<Live<u32>>) -> Answer<u32> {
    Ok(Reply {
        code,
        retry_after: None,
        audit_id: String::new(),
        status: None,
        not_found: (code == 404).then_some(NotFound::ThisObject),
        object: object.map(Box::new),
        excerpt: String::new(),
    })
}

fn shows(uid: &str, version: &str) -> Answer<u32> {
    reply(200, Some(live(uid, version, facts())))
}

fn waiting(uid: &str) -> Answer<u32> {
    let facts =
        Facts { finalizers: Box::new([Name::from("foregroundDeletion")]), terminating: true, ..Facts::default() };
    reply(200, Some(live(uid, "9", facts)))
}

fn failure(kind: FailureKind) -> Answer<u32> {
    Err(Failure { kind, cause: "broken".to_owned() })
}

/// One effect as text.
fn word(output: &Output<u32>) -> String {
    match output {
        Output::Ask { request: Request::Get(object), .. } => format!("get {}", object.name),
        Output::Ask { request: Request::Delete { target, version, .. }, .. } => {
            format!("delete {} at {version}", target.name)
        }
        Output::Ask { request: Request::Patch { patch, .. }, .. } => match patch {
            Patch::DropReferences { uids } => format!("drop {}", uids.len()),
            Patch::UnblockReferences { version, references } => format!("unblock {references:?} at {version}"),
            Patch::ReplaceReferences { version, list } => {
                let list: Vec<_> = list.iter().map(|entry| (entry.written, entry.unblock)).collect();
                format!("references {list:?} at {version}")
            }
            Patch::DropFinalizer { version, finalizer } => format!("drop {finalizer} at {version}"),
            Patch::ReplaceFinalizers { version, list } => format!("finalizers {list:?} at {version}"),
            Patch::RemoveReferencesAt { version, places } => format!("remove {places:?} at {version}"),
            Patch::UnblockReferencesAt { version, places } => format!("unblock places {places:?} at {version}"),
        },
        Output::Withdraw(_) => "withdraw".to_owned(),
        Output::Ended { report, .. } => format!("{:?}", report.outcome),
    }
}

fn drain(machine: &mut Machine) -> Vec<Output<u32>> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn words(outputs: &[Output<u32>]) -> Vec<String> {
    outputs.iter().map(word).collect()
}

/// The id of the only request in `outputs`.
fn asked(outputs: &[Output<u32>]) -> RequestId {
    let mut ids = outputs.iter().filter_map(|output| match output {
        Output::Ask { id, .. } => Some(*id),
        Output::Withdraw(_) | Output::Ended { .. } => None,
    });
    let id = ids.next().expect("something is asked");
    assert!(ids.next().is_none(), "one thing is asked: {:?}", words(outputs));
    id
}

/// Answers each request at once, and allows every write. Returns the requests and the report.
fn play(lease: WorkLease, answers: Vec<Answer<u32>>) -> (Vec<String>, WorkReport) {
    let mut machine = machine();
    machine.start(at(0), lease);
    let (mut told, mut answers) = (Vec::new(), answers.into_iter());
    loop {
        let outputs = drain(&mut machine);
        told.extend(words(&outputs));
        if let Some(Output::Ended { report, .. }) = outputs.last() {
            told.pop();
            assert!(answers.next().is_none(), "the script is not at its end: {told:?}");
            assert_eq!(report.api_calls as usize, told.len());
            assert!(machine.attempts.is_empty());
            return (told, report.clone());
        }
        let id = asked(&outputs);
        let is_write = !told.last().unwrap().starts_with("get");
        assert!(!is_write || machine.leaves(at(0), id), "{told:?}");
        machine.answered(at(0), id, answers.next().unwrap_or_else(|| panic!("no answer left: {told:?}")));
    }
}

#[test]
fn each_action_asks_for_what_its_answers_call_for() {
    let owner = || vec![Uid::parse("o").unwrap()];
    let remove = |entries| Action::RemoveOwnerReferences { owner_uids: owner(), entries, owner_checks: vec![] };
    let unblock = || Action::UnblockOwnerReferences { entries: vec![entry("o", Some(true))] };
    let finalizer = || Action::RemoveFinalizer { finalizer: Name::from("foregroundDeletion") };
    let orphan = || Action::RemoveFinalizer { finalizer: Name::from("orphan") };
    let first = |action| WorkLease { previous_attempt_ambiguous: true, ..lease(1, action) };
    let theirs = |action| {
        let lease = lease(1, action);
        WorkLease { item: WorkItem { read_first: true, ..lease.item }, ..lease }
    };
    let empty = || reply(200, Some(live("c1", "6", Facts::default())));
    let finalized = |version| {
        let finalizers = ["a", "foregroundDeletion", "orphan"].map(Name::from);
        reply(200, Some(live("c1", version, Facts { finalizers: Box::new(finalizers), ..Facts::default() })))
    };
    let delete = || Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: vec![] };
    let ok = || reply(200, None);
    type Case<'a> = (WorkLease, Vec<Answer<u32>>, &'a [&'a str], Outcome);
    let cases: Vec<Case<'_>> = vec![
        (lease(1, delete()), vec![ok()], &["delete c1 at 5"], Outcome::Done),
        (lease(1, delete()), vec![reply(404, None)], &["delete c1 at 5"], Outcome::Gone),
        (lease(1, delete()), vec![failure(FailureKind::NoAnswer)], &["delete c1 at 5"], Outcome::Ambiguous),
        (lease(1, delete()), vec![failure(FailureKind::NotSent)], &["delete c1 at 5"], Outcome::Transient),
        (
            lease(1, delete()),
            vec![reply(409, None), shows("c1", "7"), ok()],
            &["delete c1 at 5", "get c1", "delete c1 at 7"],
            Outcome::Done,
        ),
        (
            lease(1, delete()),
            vec![reply(409, None), shows("c1", "5")],
            &["delete c1 at 5", "get c1"],
            Outcome::AdmissionFailed,
        ),
        (lease(1, delete()), vec![reply(409, None), empty()], &["delete c1 at 5", "get c1"], Outcome::Conflict),
        (first(delete()), vec![shows("c1", "8"), ok()], &["get c1", "delete c1 at 8"], Outcome::Done),
        (first(delete()), vec![shows("x", "8")], &["get c1"], Outcome::Replaced),
        (first(delete()), vec![empty()], &["get c1"], Outcome::Conflict),
        (lease(1, remove(vec![])), vec![shows("c1", "6")], &["drop 1"], Outcome::Done),
        (lease(1, remove(vec![])), vec![shows("c1", "5")], &["drop 1"], Outcome::Unchanged),
        (
            lease(1, remove(vec![])),
            vec![reply(415, None), shows("c1", "6"), reply(409, None), shows("c1", "7"), ok()],
            &["drop 1", "get c1", "references [] at 6", "get c1", "references [] at 7"],
            Outcome::Done,
        ),
        (lease(1, remove(vec![])), vec![reply(422, None), empty()], &["drop 1", "get c1"], Outcome::Invalid),
        (
            lease(1, remove(vec![entry("p", None)])),
            vec![shows("c1", "6"), reply(422, None), shows("c1", "7"), ok()],
            &["get c1", "remove [0] at 6", "get c1", "remove [0] at 7"],
            Outcome::Done,
        ),
        (first(remove(vec![])), vec![empty()], &["get c1"], Outcome::Unchanged),
        (lease(1, unblock()), vec![shows("c1", "6"), ok()], &["get c1", "unblock [0] at 6"], Outcome::Done),
        (
            lease(1, unblock()),
            vec![shows("c1", "6"), reply(415, None), ok()],
            &["get c1", "unblock [0] at 6", "references [(0, true)] at 6"],
            Outcome::Done,
        ),
        (lease(1, unblock()), vec![empty()], &["get c1"], Outcome::Unchanged),
        (
            lease(1, finalizer()),
            vec![reply(415, None), finalized("6"), ok()],
            &["drop foregroundDeletion at 5", "get c1", "finalizers [\"a\", \"orphan\"] at 6"],
            Outcome::Done,
        ),
        (lease(1, finalizer()), vec![shows("c1", "6")], &["drop foregroundDeletion at 5"], Outcome::Done),
        (
            lease(1, finalizer()),
            vec![reply(409, None), finalized("6"), ok()],
            &["drop foregroundDeletion at 5", "get c1", "finalizers [\"a\", \"orphan\"] at 6"],
            Outcome::Done,
        ),
        (
            lease(1, finalizer()),
            vec![reply(409, None), finalized("5")],
            &["drop foregroundDeletion at 5", "get c1"],
            Outcome::AdmissionFailed,
        ),
        (
            lease(1, finalizer()),
            vec![reply(409, None), shows("c1", "6")],
            &["drop foregroundDeletion at 5", "get c1"],
            Outcome::Unchanged,
        ),
        (
            lease(1, finalizer()),
            vec![finalized("6"), finalized("6"), ok()],
            &["drop foregroundDeletion at 5", "get c1", "finalizers [\"a\", \"orphan\"] at 6"],
            Outcome::Done,
        ),
        (
            lease(1, finalizer()),
            vec![reply(422, None), finalized("5"), reply(422, None), finalized("7")],
            &["drop foregroundDeletion at 5", "get c1", "finalizers [\"a\", \"orphan\"] at 5", "get c1"],
            Outcome::Invalid,
        ),
        (
            first(finalizer()),
            vec![finalized("6"), ok()],
            &["get c1", "finalizers [\"a\", \"orphan\"] at 6"],
            Outcome::Done,
        ),
        (first(finalizer()), vec![shows("c1", "6")], &["get c1"], Outcome::Unchanged),
        (
            lease(1, orphan()),
            vec![reply(415, None), finalized("5"), ok()],
            &["drop orphan at 5", "get c1", "finalizers [\"a\", \"foregroundDeletion\"] at 5"],
            Outcome::Done,
        ),
        (
            lease(1, orphan()),
            vec![reply(415, None), finalized("6")],
            &["drop orphan at 5", "get c1"],
            Outcome::Conflict,
        ),
        (
            lease(1, orphan()),
            vec![reply(409, None), finalized("6")],
            &["drop orphan at 5", "get c1"],
            Outcome::Conflict,
        ),
        (first(orphan()), vec![finalized("6")], &["get c1"], Outcome::Conflict),
        (first(orphan()), vec![shows("c1", "6")], &["get c1"], Outcome::Unchanged),
        (lease(1, delete()), vec![failure(FailureKind::NoCredentials)], &["delete c1 at 5"], Outcome::Unauthenticated),
        (lease(1, delete()), vec![reply(401, None)], &["delete c1 at 5"], Outcome::Unauthenticated),
        (theirs(delete()), vec![failure(FailureKind::NoCredentials)], &["get c1"], Outcome::Unauthenticated),
        (theirs(delete()), vec![reply(401, None)], &["get c1"], Outcome::Transient),
    ];
    for (lease, answers, expected, outcome) in cases {
        let action = lease.item.action.kind();
        let (told, report) = play(lease, answers);
        assert_eq!((told.join(", "), report.outcome), (expected.join(", "), outcome), "{action:?}");
    }
}

#[test]
fn a_kind_that_knows_no_strategic_merge_is_remembered() {
    let mut machine = machine();
    let remove = |number| {
        let owner_uids = vec![Uid::parse("o").unwrap()];
        lease(number, Action::RemoveOwnerReferences { owner_uids, entries: vec![], owner_checks: vec![] })
    };
    machine.start(at(0), remove(1));
    let id = asked(&drain(&mut machine));
    assert!(machine.leaves(at(0), id));
    machine.answered(at(0), id, reply(415, None));
    assert_eq!(words(&drain(&mut machine)), ["get c1"]);
    machine.start(at(0), remove(2));
    assert_eq!(words(&drain(&mut machine)), ["get c2"]);
}

#[test]
fn a_cancel_gives_up_what_has_not_left_and_waits_for_what_has() {
    let id = LeaseId { term: 1, number: 1 };
    let mut waits = machine();
    waits.start(at(0), delete(1, &[]));
    let write = asked(&drain(&mut waits));
    waits.cancel(at(1), id);
    assert_eq!(words(&drain(&mut waits)), ["withdraw", "Abandoned"]);
    assert!(!waits.leaves(at(2), write));
    waits.answered(at(3), write, reply(200, None));
    assert_eq!(words(&drain(&mut waits)), [""; 0]);

    let mut left = machine();
    left.start(at(0), delete(1, &[]));
    let write = asked(&drain(&mut left));
    assert!(left.leaves(at(1), write));
    left.cancel(at(2), id);
    assert_eq!(words(&drain(&mut left)), [""; 0]);
    left.answered(at(3), write, reply(409, None));
    assert_eq!(words(&drain(&mut left)), ["Abandoned"]);
}

#[test]
fn a_write_that_waits_for_its_connection_too_long_stays() {
    for (writes_end, limit, leaves) in [(1_000, 60_000, false), (60_000, 1_000, false), (60_000, 60_000, true)] {
        let mut machine = machine();
        machine.set_writes_end(at(writes_end));
        machine.start(at(0), WorkLease { execution_limit: Duration::from_millis(limit), ..delete(1, &[]) });
        let write = asked(&drain(&mut machine));
        assert_eq!(machine.leaves(at(1_000), write), leaves);
        let expected: &[&str] = if leaves { &[] } else { &["withdraw", "Abandoned"] };
        assert_eq!(words(&drain(&mut machine)), expected);
    }
}

#[test]
fn a_write_without_an_answer_is_ambiguous_only_if_it_has_left() {
    for (leaves, outcome) in [(true, "Ambiguous"), (false, "Transient")] {
        let mut machine = machine();
        machine.start(at(0), delete(1, &[]));
        let write = asked(&drain(&mut machine));
        assert!(!leaves || machine.leaves(at(1), write));
        machine.answered(at(30_000), write, failure(FailureKind::NoAnswer));
        assert_eq!(words(&drain(&mut machine)), [outcome]);
    }
}

#[test]
fn a_report_names_the_write_in_the_audit_log_and_no_read() {
    let audited = |answer: Answer<u32>, id: &str| answer.map(|reply| Reply { audit_id: id.to_owned(), ..reply });
    let (_, report) = play(delete(1, &[]), vec![audited(shows("t", "6"), "4f\n-\u{e9}1 2")]);
    assert_eq!((report.outcome, report.audit_id.as_str()), (Outcome::Done, "4f-12"));
    let (_, report) = play(delete(1, &[]), vec![audited(reply(403, None), &"x".repeat(100))]);
    assert_eq!((report.outcome, report.audit_id.len()), (Outcome::Forbidden, 64));
    let (asked, report) = play(delete(1, &["o"]), vec![audited(shows("o", "9"), "of-a-read")]);
    assert_eq!((asked.len(), report.outcome, report.audit_id.as_str()), (1, Outcome::OwnerExists, ""), "{asked:?}");
}

#[test]
fn a_decision_beyond_the_facts_is_not_sent_again_after_a_conflict() {
    for read_first in [false, true] {
        let mut lease = delete(1, &[]);
        lease.item.preconditions.facts_digest = facts().digest_beyond_facts();
        lease.item.read_first = read_first;
        let script = if read_first { vec![shows("c1", "8")] } else { vec![reply(409, None), shows("c1", "8")] };
        let wanted: &[&str] = if read_first { &["get c1"] } else { &["delete c1 at 5", "get c1"] };
        let (asked, report) = play(lease, script);
        assert_eq!((asked.join(", "), report.outcome), (wanted.join(", "), Outcome::Conflict), "{report:?}");
        assert_eq!(report.observed.map(|seen| seen.facts), Some(facts()), "the report has the facts");
    }
}

#[test]
fn a_decision_beyond_the_facts_is_sent_to_the_version_that_was_judged() {
    for is_ambiguous in [false, true] {
        let mut lease = delete(1, &[]);
        lease.item.preconditions.facts_digest = facts().digest_beyond_facts();
        lease.item.read_first = !is_ambiguous;
        lease.previous_attempt_ambiguous = is_ambiguous;
        let (asked, report) = play(lease, vec![shows("c1", "5"), shows("c1", "5")]);
        assert_eq!(
            (asked.join(", ").as_str(), report.outcome),
            ("get c1, delete c1 at 5", Outcome::Done),
            "{report:?}"
        );
    }
}

#[test]
fn a_target_that_must_be_read_first_is_read_again_when_the_write_has_waited() {
    let mut machine = machine();
    let mut lease = delete(1, &[]);
    lease.item.read_first = true;
    machine.start(at(0), lease);
    let mut outputs = drain(&mut machine);
    for round in 0..=ROUNDS_MAX {
        let now = u64::from(round) * 5_000;
        assert_eq!(words(&outputs).last().unwrap(), "get c1", "{round}");
        let Some(Output::Ask { id, .. }) = outputs.last() else { panic!("{outputs:?}") };
        machine.answered(at(now), *id, shows("c1", "5"));
        let write = asked(&drain(&mut machine));
        assert!(!machine.leaves(at(now + 5_000), write), "{round}");
        outputs = drain(&mut machine);
    }
    assert_eq!(words(&outputs), ["withdraw", "Transient"]);

    let mut lease = delete(2, &[]);
    lease.item.read_first = true;
    machine.start(at(100_000), lease);
    let read = asked(&drain(&mut machine));
    machine.answered(at(102_000), read, shows("c2", "5"));
    let write = asked(&drain(&mut machine));
    assert!(machine.leaves(at(105_999), write), "three times as long as the read took");
}
