//! The ends of decisions, and the events about them.

#![expect(clippy::wildcard_enum_match_arm, reason = "each test picks the few events that it is about")]

use super::*;
use crate::guard::HeldBy;
use crate::work::{LeaseId, ReportResult};

/// Returns the decision, causes and owners of each reported step, by phase.
fn told(bench: &Bench, of: &str) -> Vec<(&'static str, u64, usize, usize)> {
    let step = |event: &Event| {
        let (phase, target, grounds) = match event {
            Event::Decided { target, grounds: Some(grounds), .. } => ("decided", target, grounds),
            Event::Granted { target, grounds, .. } => ("granted", target, grounds),
            Event::Attempted { end, .. } => ("attempted", &end.target, &end.grounds),
            Event::Withdrawn { target, grounds, .. } => ("withdrawn", target, grounds),
            Event::Held { target, grounds, by: Some(_), .. } => ("held", target, grounds),
            Event::Held { target, grounds, by: None, .. } => ("released", target, grounds),
            Event::ReportedLate { end, .. } if end.outcome.is_success() => ("late", &end.target, &end.grounds),
            Event::ReportedLate { end, .. } => ("late failure", &end.target, &end.grounds),
            Event::Confirmed { target, grounds, .. } => ("confirmed", target, grounds),
            Event::AwaitingFinalizers { target, grounds, .. } => ("awaiting", target, grounds),
            _ => return None,
        };
        let told = (phase, grounds.decision, grounds.causes.len(), grounds.owners.len());
        (*target.name == *of).then_some(told)
    };
    bench.events.iter().filter_map(step).collect()
}

fn phases(bench: &Bench, of: &str) -> Vec<&'static str> {
    told(bench, of).into_iter().map(|(phase, ..)| phase).collect()
}

/// Creates a dependent of an absent owner, and returns the lease of its deletion.
fn leased() -> (Bench, WorkLease) {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    (bench, lease)
}

#[test]
fn what_an_attempt_came_to_is_told_with_what_it_rested_on_however_fast_the_watch_was() {
    for outcome in [Outcome::Done, Outcome::Conflict, Outcome::Invalid] {
        let (mut bench, lease) = leased();
        bench.deleted("configmaps", "a", 104);
        bench.report(&lease, outcome);
        let told = told(&bench, "a");
        let id = told[0].1;
        let step = |phase| (phase, id, 1, 1);
        assert_eq!(told[..3], [step("decided"), step("granted"), step("attempted")], "{outcome:?}");
    }
}

#[test]
fn what_a_replica_decided_before_its_term_is_told_in_it_before_its_first_step() {
    let mut bench = Bench::synced();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    assert!(phases(&bench, "a").is_empty(), "a replica that does not lead tells of nothing");
    bench.input(Input::TermGained(term(2)));
    bench.answer_reads(&Ok(GuardAnswer::NotServed));
    bench.hello(STREAM, hello("e1", "i1"));
    bench.take("a");
    let told = told(&bench, "a");
    assert_eq!(told, [("decided", told[0].1, 1, 1), ("granted", told[0].1, 1, 1)]);
    let again = |event: &&Event| matches!(event, Event::Decided { repeated: true, .. });
    assert_eq!(bench.events.iter().filter(again).count(), 1);
}

#[test]
fn of_very_many_owners_a_lease_keeps_a_few() {
    let mut bench = Bench::synced();
    let names: Vec<String> = (0..50).map(|number| format!("o{number}")).collect();
    let mut owned = object("configmaps", "a", 102);
    for name in &names {
        bench.seen("things", object("things", name, 101));
        owned = owned.owned_by("things", name);
    }
    bench.seen("configmaps", owned);
    for name in &names {
        bench.deleted("things", name, 103);
    }
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Done);
    let of_attempt = |event: &Event| match event {
        Event::Attempted { end: AttemptEnd { grounds, .. }, .. } => {
            Some((grounds.owners.len(), grounds.owner_count, grounds.causes.len(), grounds.cause_count))
        }
        _ => None,
    };
    assert_eq!(bench.events.iter().find_map(of_attempt), Some((20, 50, 20, 50)));
}

#[test]
fn a_decision_that_no_longer_holds_says_what_it_rested_on() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    let told = told(&bench, "a");
    let id = told[0].1;
    assert_eq!(told, [("decided", id, 1, 1), ("withdrawn", id, 1, 1)]);
}

#[test]
fn a_decision_that_another_one_replaces_ends() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", object("configmaps", "a", 104).owned_by("things", "o").with_finalizer("orphan"));
    let told = told(&bench, "a");
    let (first, second) = (told[0].1, told[2].1);
    assert_eq!(told, [("decided", first, 1, 1), ("withdrawn", first, 1, 1), ("decided", second, 1, 1)]);
    assert_ne!(first, second);
}

#[test]
fn a_decision_that_is_overtaken_while_an_executor_has_it_ends_when_it_comes_back() {
    let (mut bench, lease) = leased();
    bench.deleted("configmaps", "a", 104);
    let returned = WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
    bench.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
    assert_eq!(phases(&bench, "a"), ["decided", "granted", "withdrawn"]);
    assert_eq!(told(&bench, "a")[2].3, 1, "with what it rested on");
}

#[test]
fn what_a_store_that_went_back_makes_void_ends() {
    let mut bench = Bench::synced();
    for name in ["o", "p"] {
        bench.seen("things", object("things", name, 101));
    }
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let _held = bench.take("a");
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "p"));
    bench.deleted("things", "p", 105);
    bench.list("things", 50, vec![]);
    assert_eq!((phases(&bench, "a").last(), phases(&bench, "b").last()), (Some(&"withdrawn"), Some(&"withdrawn")));
}

fn confirmed_at(bench: &Bench) -> Vec<Option<ResourceVersion>> {
    let version = |event: &Event| match event {
        Event::Confirmed { resource_version, .. } => Some(resource_version.clone()),
        _ => None,
    };
    bench.events.iter().filter_map(version).collect()
}

#[test]
fn a_deletion_is_confirmed_with_the_version_of_its_deleted_whichever_comes_first() {
    for watch_first in [false, true] {
        let (mut bench, lease) = leased();
        if watch_first {
            bench.deleted("configmaps", "a", 104);
        }
        bench.report(&lease, Outcome::Done);
        if !watch_first {
            assert_eq!(phases(&bench, "a"), ["decided", "granted", "attempted"]);
            bench.deleted("configmaps", "a", 104);
        }
        assert_eq!(phases(&bench, "a"), ["decided", "granted", "attempted", "confirmed"], "{watch_first}");
        assert_eq!(confirmed_at(&bench), [Some(version(104))]);
        let told = told(&bench, "a");
        assert_eq!((told[3].1, told[3].2), (told[0].1, 1), "the same decision, with its causes");
    }
}

#[test]
fn what_a_list_lacks_after_our_delete_is_confirmed_without_a_version() {
    let (mut bench, lease) = leased();
    bench.report(&lease, Outcome::Done);
    bench.list("configmaps", 200, vec![]);
    assert_eq!(confirmed_at(&bench), [None]);
}

#[test]
fn a_kind_that_is_not_served_any_more_confirms_nothing() {
    let (mut bench, lease) = leased();
    bench.report(&lease, Outcome::Done);
    let unwatched = ServedKind { access: Access::Listed, ..served("configmaps") };
    bench.input(Input::KindServed(unwatched));
    assert_eq!(phases(&bench, "a"), ["decided", "granted", "attempted"]);
}

#[test]
fn patches_end_with_their_success() {
    let mut bench = Bench::synced();
    for name in ["o", "p"] {
        bench.seen("things", object("things", name, 101));
    }
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o").owned_by("things", "p"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Done);
    bench.deleted("configmaps", "a", 104);
    assert_eq!(phases(&bench, "a"), ["decided", "granted", "attempted"]);
}

#[test]
fn finalizers_of_others_that_hold_what_we_delete_are_told_once() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let held = |rv| object("configmaps", "a", rv).owned_by("things", "o");
    bench.seen("configmaps", held(102).with_finalizer("example.com/f"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Done);
    for rv in [104, 105] {
        bench.seen("configmaps", held(rv).terminating("example.com/f").with_finalizer(FOREGROUND));
    }
    bench.deleted("configmaps", "a", 106);
    assert_eq!(phases(&bench, "a"), ["decided", "granted", "attempted", "awaiting", "confirmed"]);
    let names = |event: &Event| match event {
        Event::AwaitingFinalizers { finalizers, resource_version, .. } => {
            Some((finalizers.clone(), resource_version.clone()))
        }
        _ => None,
    };
    let told = bench.events.iter().find_map(names);
    assert_eq!(told, Some((vec!["example.com/f".into()], version(104))));
}

const FOREGROUND: &str = crate::object::FOREGROUND_FINALIZER;

#[test]
fn an_attempt_without_an_answer_whose_object_goes_is_confirmed() {
    let (mut bench, lease) = leased();
    bench.report(&lease, Outcome::Ambiguous);
    bench.granted.clear();
    bench.deleted("configmaps", "a", 104);
    bench.pass(Duration::from_secs(60));
    let last = phases(&bench, "a").last().copied();
    assert_eq!(last, Some("confirmed"));
    assert!(bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us);
}

/// Creates a leader that takes over with the same watch state as the first leader, which had one lease.
fn taken_over() -> (Bench, WorkLease) {
    let (_, lease) = leased();
    let mut next = Bench::configured(config(), 8);
    next.input(Input::TermGained(term(2)));
    next.answer_reads(&Ok(GuardAnswer::NotServed));
    for resource in ["configmaps", "nodes", "things"] {
        next.serve(resource);
        next.list(resource, 100, vec![]);
    }
    next.seen("things", object("things", "o", 101));
    next.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    next.deleted("things", "o", 103);
    (next, lease)
}

fn late(bench: &mut Bench, reports: Vec<WorkReport>) -> Vec<ReportResult> {
    bench.sent.clear();
    bench.message(STREAM, ToLeader::Reports { reports, returns: vec![] });
    let results = |message: &(StreamId, ToExecutor)| match &message.1 {
        ToExecutor::ReportAck { results } => Some(results.iter().map(|(_, result)| *result).collect()),
        _ => None,
    };
    bench.sent.iter().find_map(results).unwrap_or_default()
}

fn logged(lease: &WorkLease, step: LoggedStep) -> Logged {
    let item = &lease.item;
    Logged { target: item.target.clone(), action: item.action.kind(), decision: item.decision(), step }
}

#[test]
fn a_report_of_an_earlier_term_ends_its_decision_in_the_log_of_the_next_leader() {
    let (mut bench, lease) = taken_over();
    bench.deleted("configmaps", "a", 104);
    bench.hello(STREAM, hello("e1", "i1"));
    assert!(!bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us);
    assert_eq!(late(&mut bench, vec![done(&lease)]), [ReportResult::AcceptedLate]);
    assert!(phases(&bench, "a").ends_with(&["late", "confirmed"]), "{:?}", phases(&bench, "a"));
    assert_eq!(told(&bench, "a").last().unwrap().1, lease.item.decision());
    assert!(bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us);
    let before = bench.events.len();
    assert_eq!(late(&mut bench, vec![done(&lease)]), [ReportResult::AcceptedLate], "sent again");
    assert_eq!(bench.events.len(), before, "and told once");
}

#[test]
fn a_late_report_about_what_is_still_there_proves_nothing_of_it() {
    let (mut bench, lease) = taken_over();
    bench.hello(STREAM, hello("e1", "i1"));
    let again = bench.take("a");
    assert_eq!(late(&mut bench, vec![done(&lease)]), [ReportResult::AcceptedLate]);
    assert!(bench.leader.queries().tombstone(&uid("a")).is_none());
    bench.report(&again, Outcome::Gone);
    bench.deleted("configmaps", "a", 104);
    assert!(bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us, "by the DELETE of the earlier term");
    assert_eq!(confirmed_at(&bench), [Some(version(104))]);
}

#[test]
fn late_reports_count_only_from_a_session_of_an_earlier_term_of_this_election_and_only_so_many() {
    let (mut bench, lease) = taken_over();
    assert_eq!(late(&mut bench, vec![done(&lease)]), [ReportResult::Unknown], "without a session");
    bench.hello(STREAM, hello("e1", "i1"));
    let of = |term: Term| WorkReport { lease: LeaseId { term: term.number, number: 1 }, term, ..done(&lease) };
    let other = Term { election: "another".into(), number: 1 };
    let unlike = WorkReport { lease: LeaseId { term: 7, number: 1 }, ..done(&lease) };
    let silent = WorkReport { about: None, ..done(&lease) };
    for report in [of(other), of(term(3)), unlike, silent] {
        assert_eq!(late(&mut bench, vec![report.clone()]), [ReportResult::Unknown], "{report:?}");
    }
    let many = |number| WorkReport { lease: LeaseId { term: 1, number }, ..done(&lease) };
    let results = late(&mut bench, (0..5000).map(many).collect());
    let accepted = results.iter().filter(|&&result| result == ReportResult::AcceptedLate).count();
    assert_eq!((accepted, results.len()), (4096, 5000));
}

#[test]
fn what_the_log_shows_as_given_out_when_its_object_goes_went_by_us() {
    for gone_before in [false, true] {
        let (mut bench, lease) = taken_over();
        if gone_before {
            bench.deleted("configmaps", "a", 104);
        }
        bench.input(Input::OpenAtTermStart(vec![logged(&lease, LoggedStep::Leased)]));
        if !gone_before {
            bench.deleted("configmaps", "a", 104);
        }
        assert!(bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us, "at once");
        assert_eq!(confirmed_at(&bench), [], "its executor may still report");
        bench.pass(Duration::from_secs(61));
        assert_eq!(confirmed_at(&bench).len(), 1, "{gone_before}");
        assert_eq!(phases(&bench, "a").last(), Some(&"confirmed"));
        bench.pass(Duration::from_secs(300));
        assert_eq!(confirmed_at(&bench).len(), 1);
    }
}

#[test]
fn a_report_in_time_ends_what_the_log_left_open() {
    let (mut bench, lease) = taken_over();
    bench.input(Input::OpenAtTermStart(vec![logged(&lease, LoggedStep::Leased)]));
    bench.deleted("configmaps", "a", 104);
    bench.hello(STREAM, hello("e1", "i1"));
    assert_eq!(late(&mut bench, vec![done(&lease)]), [ReportResult::AcceptedLate]);
    bench.pass(Duration::from_secs(300));
    assert_eq!(phases(&bench, "a"), ["decided", "late", "confirmed"]);
    assert_eq!(confirmed_at(&bench), [Some(version(104))]);
}

#[test]
fn what_the_next_leader_decides_otherwise_is_superseded_and_what_it_decides_too_goes_on() {
    let (mut bench, lease) = taken_over();
    let other = Logged { decision: 7, ..logged(&lease, LoggedStep::Leased) };
    let gone = ObjectRef { uid: uid("z"), name: "z".into(), ..lease.item.target.clone() };
    let never_given = Logged { target: gone, ..logged(&lease, LoggedStep::Waiting) };
    bench.input(Input::OpenAtTermStart(vec![other, never_given]));
    bench.pass(Duration::from_secs(61));
    assert_eq!(told(&bench, "a")[1..], [("withdrawn", 7, 1, 0)]);
    assert_eq!(phases(&bench, "z"), ["withdrawn"]);

    let (mut bench, lease) = taken_over();
    bench.input(Input::OpenAtTermStart(vec![logged(&lease, LoggedStep::Leased)]));
    bench.pass(Duration::from_secs(61));
    assert_eq!(phases(&bench, "a"), ["decided"]);
}

#[test]
fn a_deletion_that_an_earlier_leader_saw_accepted_is_confirmed_by_the_next() {
    let (mut bench, lease) = taken_over();
    bench.input(Input::OpenAtTermStart(vec![logged(&lease, LoggedStep::Accepted)]));
    bench.seen("configmaps", object("configmaps", "a", 104).owned_by("things", "o").terminating("example.com/f"));
    bench.pass(Duration::from_secs(61));
    bench.deleted("configmaps", "a", 105);
    assert_eq!(phases(&bench, "a"), ["decided", "awaiting", "withdrawn", "confirmed"]);
    assert_eq!(confirmed_at(&bench), [Some(version(105))]);
    assert!(bench.leader.queries().tombstone(&uid("a")).unwrap().caused_by_us);
}

#[test]
fn what_the_log_left_open_is_closed_in_steps() {
    let (mut bench, lease) = taken_over();
    let one = |number: u64| {
        let target = ObjectRef { uid: uid(&format!("z{number}")), name: "z".into(), ..lease.item.target.clone() };
        Logged { target, ..logged(&lease, LoggedStep::Leased) }
    };
    bench.input(Input::OpenAtTermStart((0..2500).map(one).collect()));
    bench.pass(Duration::from_secs(61));
    assert_eq!(confirmed_at(&bench).len(), 2500);
    assert!(bench.leader.next_deadline().is_none_or(|at| at > bench.now + Duration::from_secs(1)));
}

#[test]
fn what_a_pause_holds_and_lets_go_is_told_for_each_decision() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    assert_eq!(phases(&bench, "a"), ["decided"]);
    bench.input(Input::GuardSeen(pauses::pause("p", 1)));
    assert_eq!(phases(&bench, "a"), ["decided", "held"]);
    let names = |event: &Event| matches!(event, Event::Held { by: Some(HeldBy::Guard(id)), .. } if *id.name == *"p");
    assert!(bench.events.iter().any(names));
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "o"));
    assert_eq!(phases(&bench, "b"), ["decided", "held"], "what is decided meanwhile too");
    bench.input(Input::GuardGone { id: pauses::pause_id("p"), uid: uid("uid-p") });
    assert_eq!(phases(&bench, "a"), ["decided", "held", "released"]);
    assert_eq!(told(&bench, "a")[2].3, 1, "with what it rests on");
    bench.input(Input::GuardSeen(pauses::pause("q", 2)));
    bench.deleted("configmaps", "b", 105);
    assert_eq!(phases(&bench, "b"), ["decided", "held", "released", "held", "withdrawn"]);
}

#[test]
fn a_new_term_tells_again_what_is_held_and_its_beginning_holds_nothing_by_a_pause() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.input(Input::TermGained(term(2)));
    bench.answer_reads(&Ok(GuardAnswer::NotServed));
    assert_eq!(phases(&bench, "a"), ["decided"]);
    bench.input(Input::GuardSeen(pauses::pause("p", 1)));
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.input(Input::TermGained(term(3)));
    let list = GuardList { position: version(9), guards: vec![pauses::pause("p", 1)], more: false };
    bench.answer_reads(&Ok(GuardAnswer::Served(list)));
    assert_eq!(phases(&bench, "a"), ["decided", "decided", "held", "decided", "held"]);
}

#[test]
fn an_executor_that_is_refused_is_told_of_once_for_each_reason() {
    let mut bench = Bench::synced();
    let foreign = Hello { cluster_uid: "another".into(), ..hello("x", "i") };
    for stream in 2..5 {
        bench.hello(StreamId(stream), foreign.clone());
    }
    for number in 0..1000_u64 {
        let executor = format!("x{number}");
        bench.hello(StreamId(10 + number), Hello { executor: executor.as_str().into(), ..foreign.clone() });
    }
    let refused = bench.events.iter().filter(|event| matches!(event, Event::ExecutorRefused { .. })).count();
    let of_x = |event: &&Event| matches!(event, Event::ExecutorRefused { executor, .. } if **executor == *"x");
    assert_eq!((refused, bench.events.iter().filter(of_x).count()), (256, 1));
}

#[test]
fn what_began_a_cascade_is_told_with_its_deletion_mark_and_version() {
    let mut bench = Bench::synced();
    let mut root = object("things", "root", 101).with_finalizer("example.com/f");
    bench.seen("things", root.clone());
    bench.seen("configmaps", object("configmaps", "mid", 102).owned_by("things", "root"));
    bench.seen("configmaps", object("configmaps", "leaf", 103).owned_by("configmaps", "mid"));
    root.facts.terminating = true;
    root.facts.deletion_time = core::num::NonZeroU32::new(1000);
    root.resource_version = version(104);
    bench.seen("things", root);
    bench.deleted("things", "root", 105);
    let lease = bench.take("mid");
    bench.report(&lease, Outcome::Done);
    bench.deleted("configmaps", "mid", 106);
    let root_of = |event: &Event| match event {
        Event::Granted { target, grounds, .. } => Some((target.name.to_string(), grounds.root.clone())),
        _ => None,
    };
    let roots: Vec<_> = bench.events.iter().filter_map(root_of).collect();
    let marks = RootMarks { resource_version: Some(version(105)), deletion_time: core::num::NonZeroU32::new(1000) };
    assert_eq!(roots, [("mid".to_string(), marks.clone()), ("leaf".to_string(), marks)]);
}
