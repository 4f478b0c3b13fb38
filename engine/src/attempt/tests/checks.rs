//! Owner checks: the age of answers, sharing, and reports.

use super::*;

fn orphaning(uid: &str) -> Answer<u32> {
    let facts = Facts { finalizers: Box::new([Name::from("orphan")]), terminating: true, ..Facts::default() };
    reply(200, Some(live(uid, "9", facts)))
}

fn reads(outputs: &[Output<u32>]) -> Vec<(RequestId, String)> {
    let read = |output: &Output<u32>| match output {
        Output::Ask { id, request: Request::Get(object), .. } => Some((*id, object.name.to_string())),
        Output::Ask { .. } | Output::Withdraw(_) | Output::Ended { .. } => None,
    };
    outputs.iter().filter_map(read).collect()
}

#[test]
fn an_answer_is_good_for_a_second_or_for_nine_quarters_of_the_time_it_takes() {
    for (took, leaves_at, is_good) in [
        (0, 999, true),
        (0, 1_000, false),
        (300, 999, true),
        (300, 1_000, false),
        (480, 1_079, true),
        (480, 1_080, false),
        (2_000, 4_499, true),
        (2_000, 4_500, false),
        (20_000, 44_999, true),
        (20_000, 45_000, false),
        (28_000, 59_999, true),
    ] {
        let mut machine = machine();
        machine.start(at(0), delete(1, &["o"]));
        let read = asked(&drain(&mut machine));
        machine.answered(at(took), read, waiting("o"));
        let outputs = drain(&mut machine);
        assert_eq!(words(&outputs), ["delete c1 at 5"]);
        assert_eq!(machine.leaves(at(leaves_at), asked(&outputs)), is_good, "{took} ms, {leaves_at} ms");
        let then: &[&str] = if is_good { &[] } else { &["withdraw", "get o"] };
        assert_eq!(words(&drain(&mut machine)), then);
    }
}

#[test]
fn a_write_that_is_held_up_goes_on_after_another_look_at_its_owner() {
    let mut machine = machine();
    machine.start(at(0), delete(1, &["o"]));
    let read = asked(&drain(&mut machine));
    machine.answered(at(10), read, waiting("o"));
    let write = asked(&drain(&mut machine));
    assert!(!machine.leaves(at(5_000), write));
    let read = asked(&drain(&mut machine));
    machine.answered(at(5_010), read, waiting("o"));
    let outputs = drain(&mut machine);
    assert!(machine.leaves(at(5_020), asked(&outputs)), "{:?}", words(&outputs));
    machine.answered(at(5_030), asked(&outputs), reply(200, None));
    let ended = drain(&mut machine);
    let Some(Output::Ended { report, writes, .. }) = ended.first() else { panic!("{ended:?}") };
    assert_eq!((report.outcome, report.api_calls, *writes), (Outcome::Done, 3, 1));
}

#[test]
fn connections_that_always_come_too_late_are_named_in_the_report() {
    let mut machine = machine();
    machine.start(at(0), WorkLease { execution_limit: Duration::from_secs(3600), ..delete(1, &["o"]) });
    let mut now = 0;
    let message = loop {
        let outputs = drain(&mut machine);
        if let Some(Output::Ended { report, .. }) = outputs.last() {
            assert_eq!(report.outcome, Outcome::Transient);
            break report.message.clone();
        }
        assert!(now < 200_000, "it goes on for ever: {:?}", words(&outputs));
        now += 5_000;
        match reads(&outputs).first() {
            Some((read, _)) => {
                machine.answered(at(now), *read, waiting("o"));
                now += 11_000;
            }
            None => assert!(!machine.leaves(at(now), asked(&outputs))),
        }
    };
    assert!(message.contains("accepts no connection in time"), "{message}");
}

#[test]
fn each_owner_is_read_once_for_all_who_ask_and_however_often_it_is_named() {
    let mut machine = machine();
    machine.start(at(0), delete(1, &["o", "o", "p"]));
    machine.start(at(0), delete(2, &["p", "o"]));
    let outputs = drain(&mut machine);
    assert_eq!(words(&outputs), ["get o", "get p"]);
    for (id, name) in reads(&outputs) {
        machine.answered(at(100), id, waiting(&name));
    }
    assert_eq!(words(&drain(&mut machine)), ["delete c1 at 5", "delete c2 at 5"]);
    machine.start(at(999), delete(3, &["o"]));
    assert_eq!(words(&drain(&mut machine)), ["delete c3 at 5"]);
    machine.start(at(1_000), delete(4, &["o"]));
    assert_eq!(words(&drain(&mut machine)), ["get o"]);
}

#[test]
fn a_failed_read_is_not_kept_for_longer_than_a_second() {
    let mut machine = machine();
    machine.start(at(0), delete(1, &["o"]));
    let read = asked(&drain(&mut machine));
    machine.answered(at(30_000), read, failure(FailureKind::NoAnswer));
    assert_eq!(words(&drain(&mut machine)), ["Transient"]);
    machine.start(at(30_001), delete(2, &["o"]));
    assert_eq!(words(&drain(&mut machine)), ["get o"]);
}

/// Answers the reads of a slow server until the DELETE of `lease` is asked for. Returns the time and the DELETE.
fn read_slowly(machine: &mut Machine, lease: WorkLease, mut now: u64) -> (u64, RequestId) {
    machine.start(at(now), lease);
    loop {
        let outputs = drain(machine);
        let reads = reads(&outputs);
        if reads.is_empty() {
            return (now, asked(&outputs));
        }
        // Each batch takes between 1.8 and 2.2 seconds.
        for (number, (id, name)) in (0..).zip(&reads) {
            machine.answered(at(now + 1_800 + 400 * number / CHECKS_MAX as u64), *id, waiting(name));
        }
        now += 2_200;
    }
}

#[test]
fn a_slow_server_delays_a_delete_with_more_owners_than_are_read_at_once() {
    let names: Vec<String> = (0..2 * CHECKS_MAX + 1).map(|number| format!("o{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut machine = machine();
    let (now, write) = read_slowly(&mut machine, delete(1, &names), 0);
    assert_eq!(now, 3 * 2_200, "each owner is read once");
    assert!(machine.leaves(at(now + 1_000), write));
}

#[test]
fn a_slow_server_delays_a_delete_whose_owners_others_have_just_read() {
    let names: Vec<String> = (0..CHECKS_MAX).map(|number| format!("o{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut machine = machine();
    let (now, _) = read_slowly(&mut machine, delete(1, &names[..20]), 0);
    // The shared answers are too old when the other ones come, and the other way round.
    let (then, write) = read_slowly(&mut machine, delete(2, &names), now);
    assert_eq!(then, now + 2 * 2_200);
    assert!(machine.leaves(at(then + 1_000), write));
}

#[test]
fn a_report_holds_no_more_findings_than_a_message_takes_and_the_living_first() {
    let names: Vec<String> = (0..120).map(|number| format!("o{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut machine = machine();
    machine.start(at(0), delete(1, &[&names[..], &names[..]].concat()));
    let mut asked = 0;
    let report = loop {
        let outputs = drain(&mut machine);
        if let Some(Output::Ended { report, .. }) = outputs.last() {
            break report.clone();
        }
        let reads = reads(&outputs);
        assert!(reads.len() <= CHECKS_MAX, "{} reads at once", reads.len());
        asked += reads.len();
        for (at_once, (id, name)) in reads.into_iter().enumerate() {
            // In the first round all owners are gone except the last one.
            let answer = if at_once + 1 == CHECKS_MAX { orphaning(&name) } else { reply(404, None) };
            machine.answered(at(10), id, answer);
        }
    };
    assert_eq!((report.outcome, report.findings.len()), (Outcome::OwnerExists, CHECKS_MAX));
    assert!(matches!(report.findings[0].result, FindingResult::Exists(_)), "{:?}", report.findings[0]);
    assert!(asked <= names.len(), "{asked} reads of {} owners", names.len());
}

#[test]
fn a_report_about_owners_with_many_references_fits_into_a_message() {
    let names: Vec<String> = (0..CHECKS_MAX).map(|number| format!("o{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut machine = machine();
    machine.start(at(0), delete(1, &names));
    let owners = (0..1_500).map(|number| entry(&format!("{number}{}", "x".repeat(100)), None)).collect();
    let facts = Facts { owners, ..Facts::default() };
    for (id, name) in reads(&drain(&mut machine)) {
        machine.answered(at(10), id, reply(200, Some(live(&name, "9", facts.clone()))));
    }
    let outputs = drain(&mut machine);
    let Some(Output::Ended { report, .. }) = outputs.last() else { panic!("{outputs:?}") };
    assert_eq!(report.outcome, Outcome::OwnerExists);
    let bytes = |finding: &crate::work::Finding| match &finding.result {
        FindingResult::Exists(sighting) => sighting.facts.reference_bytes(),
        FindingResult::Absent | FindingResult::OtherUid => 0,
    };
    let bytes: Vec<usize> = report.findings.iter().map(bytes).collect();
    assert!(!bytes.is_empty() && bytes.iter().sum::<usize>() <= 2 * crate::object::REFERENCES_MAX_BYTES, "{bytes:?}");
}
