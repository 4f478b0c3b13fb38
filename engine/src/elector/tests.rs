use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

mod random;

fn config(identity: &str) -> Config {
    Config {
        identity: identity.to_string(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn render(output: &Output) -> String {
    match output {
        Output::Get { .. } => "get".to_string(),
        Output::Put { write, .. } => {
            let on = match &write.resource_version {
                Some(version) => format!("on {version}"),
                None => "create".to_string(),
            };
            let acquire = if write.acquire { " acquire" } else { "" };
            format!("put {on} {:?} {} {:?}{acquire}", write.holder, write.transitions, write.duration)
        }
        Output::Gained(term) => format!("gained {}/{}", term.election, term.number),
        Output::Lost { why } => format!("lost {why}"),
        Output::Follows { holder, term } => format!("follows {holder} {}/{}", term.election, term.number),
        Output::Released => "released".to_string(),
        Output::Failed { what, .. } => format!("failed {what}"),
    }
}

/// `UID VERSION HOLDER NUMBER`. `-` means no holder. After an `@` in the version: the renew time.
fn record(text: &str) -> LeaseRecord {
    let [uid, version, holder, number] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("record {text:?}") };
    let (version, renewed) = version.split_once('@').unwrap_or((version, ""));
    LeaseRecord {
        uid: Name::from(uid),
        resource_version: ResourceVersion::parse(version),
        holder: if holder == "-" { String::new() } else { holder.to_string() },
        transitions: number.parse().expect("a number"),
        duration: Duration::from_secs(if holder == "-" { 1 } else { 15 }),
        renewed: renewed.to_string(),
    }
}

fn input(text: &str, call: CallId) -> Option<Input> {
    let put = |answer| Some(Input::Put { call, answer });
    match text.split_once(' ').unwrap_or((text, "")) {
        ("tick", _) => None,
        ("release", _) => Some(Input::Release),
        ("changed", _) => Some(Input::Changed),
        ("reached", term) => {
            let (election, number) = term.split_once('/').expect("ELECTION/NUMBER");
            Some(Input::Reached(Term { election: election.into(), number: number.parse().expect("a number") }))
        }
        ("got", "none") => Some(Input::Got { call, answer: Ok(None) }),
        ("got", "error") => Some(Input::Got { call, answer: Err("503".to_string()) }),
        ("got", text) => Some(Input::Got { call, answer: Ok(Some(record(text))) }),
        ("put", "conflict") => put(Err(PutError::Conflict)),
        ("put", "failed") => put(Err(PutError::Failed("timeout".to_string()))),
        ("put", text) => put(Ok(record(text))),
        _ => panic!("input {text:?}"),
    }
}

/// Runs lines of `MILLISECONDS | input | expected outputs`. An input that starts with `late` answers the call before
/// the last one.
fn check(script: &str) {
    let mut elector = Elector::new(config("me"), 1);
    let mut calls = Vec::from([CallId(0)]);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let [at, fact, expected] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("line {line:?}")
        };
        let now = Time::from_origin(Duration::from_millis(at.parse().expect("a time")));
        let (fact, back) = fact.strip_prefix("late ").map_or((fact, 1), |fact| (fact, 2));
        match input(fact, calls[calls.len().saturating_sub(back)]) {
            None => elector.tick(now),
            Some(input) => elector.handle(now, input),
        }
        let mut got = Vec::new();
        while let Some(output) = elector.poll() {
            if let Output::Get { call } | Output::Put { call, .. } = &output {
                calls.push(*call);
            }
            got.push(render(&output));
        }
        assert_eq!(got.join(", "), expected, "after {line:?}");
        if let Some(deadline) = elector.next_deadline() {
            assert!(deadline > now, "a deadline in the past after {line:?}");
        }
    }
}

#[test]
fn creates_the_lease_and_renews_it() {
    check(
        r#"
        0    | tick             | get
        5    | got none         | put create "me" 1 15s acquire
        9    | put L 1 me 1     | gained L/1
        2004 | tick             |
        2005 | tick             | put on 1 "me" 1 15s
        2009 | put L 2 me 1     |
        4005 | tick             | put on 2 "me" 1 15s
        "#,
    );
}

#[test]
fn the_term_after_a_restored_lease_is_above_all_known_ones() {
    // A follower has seen term 7, and then the Lease of a backup.
    check(
        r#"
        0     | tick           | get
        5     | got L 7 you 7  | follows you L/7
        2300  | tick           | get
        2305  | got L 3 - 3    | put on 3 "me" 8 15s acquire
        2309  | put L 8 me 8   | gained L/8
        "#,
    );
    // Another process reports the term. The same number in another Lease says nothing.
    check(
        r#"
        0     | reached L/7    | get
        5     | got L 3 - 3    | put on 3 "me" 8 15s acquire
        9     | put L 4 me 8   | gained L/8
        "#,
    );
    check(
        r#"
        0     | reached K/7    | get
        5     | got L 3 - 3    | put on 3 "me" 4 15s acquire
        9     | put L 4 me 4   | gained L/4
        10    | reached K/7    |
        11    | reached L/3    |
        "#,
    );
    // No number follows the largest one. It does not stand in the way once someone has lowered it in the Lease.
    check(
        r#"
        0     | tick                | get
        5     | got L 3 - 2147483647 | put on 3 "me" 2147483648 15s acquire
        9     | put failed          | failed acquire the Lease
        2500  | tick                | get
        2505  | got L 4 - 3         | put on 4 "me" 4 15s acquire
        "#,
    );
}

#[test]
fn a_leader_whose_term_was_used_before_ends_it_and_takes_a_later_one() {
    for used in [4, 7] {
        check(&format!(
            r#"
            0     | tick             | get
            5     | got L 3 - 3      | put on 3 "me" 4 15s acquire
            9     | put L 4 me 4     | gained L/4
            20    | reached L/{used} | lost the election was in term {used} before, so the Lease is that of a restored store
            2500  | tick             | get
            2505  | got L 4 me 4     |
            5000  | tick             | get
            5005  | got L 4 me 4     |
            15009 | tick             | get
            15010 | got L 4 me 4     | put on 4 "me" {next} 15s acquire
            15011 | put L 5 me {next} | gained L/{next}
            "#,
            next = used + 1
        ));
    }
}

#[test]
fn a_used_term_that_is_reported_while_it_is_acquired_ends_at_once() {
    check(
        r#"
        0     | tick         | get
        5     | got L 3 - 3  | put on 3 "me" 4 15s acquire
        7     | reached L/7  |
        9     | put L 4 me 4 | gained L/4, lost the election was in term 7 before, so the Lease is that of a restored store
        2500  | tick         | get
        2505  | got L 4 me 4 |
        15009 | tick         | get
        15010 | got L 4 me 4 | put on 4 "me" 8 15s acquire
        15011 | put L 5 me 8 | gained L/8
        "#,
    );
}

#[test]
fn takes_a_released_lease_under_the_next_number() {
    check(
        r#"
        0 | tick         | get
        5 | got L 7 - 3  | put on 7 "me" 4 15s acquire
        9 | put L 8 me 4 | gained L/4
        "#,
    );
}

#[test]
fn takes_a_lease_that_stood_still_for_its_duration_on_our_clock() {
    check(
        r#"
        0     | tick          | get
        1000  | got L 7 you 3 | follows you L/3
        3400  | tick          | get
        4000  | got L 8 you 3 |
        6400  | tick          | get
        18999 | tick          | failed read the Lease
        21400 | tick          | get
        21400 | got L 8 you 3 | put on 8 "me" 4 15s acquire
        21410 | put L 9 me 4  | gained L/4
        "#,
    );
    check(
        r#"
        0     | tick          | get
        0     | got L 8 you 3 | follows you L/3
        14000 | tick          | get
        14000 | got L 8 you 3 |
        14999 | tick          |
        15000 | tick          | get
        15000 | got L 9 you 3 |
        "#,
    );
}

#[test]
fn a_version_that_comes_again_after_the_store_was_restored_is_another_record() {
    for again in ["8@later you 3", "8 her 3"] {
        check(&format!(
            r#"
            0     | tick            | get
            0     | got L 8 you 3   | follows you L/3
            14000 | tick            | get
            14000 | got L {again}   | {}
            15000 | tick            |
            16400 | tick            | get
            16400 | got L {again}   |
            "#,
            if again.ends_with("her 3") { "follows her L/3" } else { "" },
        ));
    }
}

#[test]
fn a_follower_that_is_told_of_a_change_looks_at_once() {
    check(
        r#"
        0   | tick          | get
        5   | got L 7 you 3 | follows you L/3
        100 | changed       | get
        105 | got L 8 - 3   | put on 8 "me" 4 15s acquire
        109 | put L 9 me 4  | gained L/4
        "#,
    );
    // A change during a call may be newer than its answer.
    check(
        r#"
        0   | tick          | get
        1   | changed       |
        5   | got L 7 you 3 | follows you L/3, get
        6   | got L 8 - 3   | put on 8 "me" 4 15s acquire
        7   | changed       |
        8   | put conflict  | get
        9   | got L 9 her 4 | follows her L/4
        10  | tick          |
        "#,
    );
    // Its own writes are changes, too: a leader keeps its pace, and a releasing process needs no hint.
    check_leader(
        r#"
        2001 | put L 9 me 1 |
        2002 | changed      |
        4000 | tick         | put on 9 "me" 1 15s
        4001 | changed      |
        4002 | put L 10 me 1 |
        4003 | release      | lost released, put on 10 "" 1 1s
        4004 | changed      |
        4005 | put L 11 - 1 | released
        "#,
    );
}

#[test]
fn a_lost_race_is_no_failure() {
    check(
        r#"
        0    | tick          | get
        5    | got L 7 - 3   | put on 7 "me" 4 15s acquire
        9    | put conflict  |
        2409 | tick          | get
        2410 | got L 8 you 4 | follows you L/4
        "#,
    );
}

#[test]
fn its_own_name_alone_is_no_leadership() {
    check(
        r#"
        0     | tick          | get
        5     | got L 7 me 3  |
        2405  | tick          | get
        2406  | got L 7 me 3  |
        15006 | tick          | get
        15007 | got L 7 me 3  | put on 7 "me" 4 15s acquire
        "#,
    );
}

#[test]
fn an_acquisition_whose_answer_was_lost_counts_from_its_send() {
    check(
        r#"
        0     | tick          | get
        100   | got L 7 - 3   | put on 7 "me" 4 15s acquire
        3000  | put failed    | failed acquire the Lease
        5400  | tick          | get
        5500  | got L 8 me 4  | gained L/4, put on 8 "me" 4 15s
        10099 | tick          |
        10100 | tick          | lost the Lease could not be renewed in time
        "#,
    );
    // A late view is not certain: the next acquisition has another number.
    check(
        r#"
        0     | tick          | get
        100   | got L 7 - 3   | put on 7 "me" 4 15s acquire
        10100 | tick          | failed acquire the Lease
        12500 | tick          | get
        12600 | got L 8 me 4  |
        27600 | tick          | get
        27601 | got L 8 me 4  | put on 8 "me" 5 15s acquire
        "#,
    );
    // Two sends with one number: the first of them may be the accepted one.
    check(
        r#"
        0     | tick          | get
        100   | got L 7 - 3   | put on 7 "me" 4 15s acquire
        3000  | put failed    | failed acquire the Lease
        5400  | tick          | get
        5500  | got L 7 - 3   | put on 7 "me" 4 15s acquire
        6000  | put conflict  |
        8400  | tick          | get
        8500  | got L 8 me 4  | gained L/4, put on 8 "me" 4 15s
        10100 | tick          | lost the Lease could not be renewed in time
        "#,
    );
}

const LEADS: &str = r#"
    0    | tick             | get
    0    | got L 7 - 0      | put on 7 "me" 1 15s acquire
    0    | put L 8 me 1     | gained L/1
    2000 | tick             | put on 8 "me" 1 15s
"#;

fn check_leader(script: &str) {
    check(&format!("{LEADS}{script}"));
}

#[test]
fn leads_until_the_send_of_the_last_accepted_renewal_is_too_old() {
    check_leader(
        r#"
        2900  | put L 9 me 1 |
        4000  | tick         | put on 9 "me" 1 15s
        5000  | put failed   | failed renew the Lease
        7400  | tick         | put on 9 "me" 1 15s
        11999 | tick         |
        12000 | tick         | lost the Lease could not be renewed in time
        12001 | put L 10 me 1 |
        14400 | tick         | get
        14401 | got L 10 me 1 |
        27001 | tick         | get
        27002 | got L 10 me 1 | put on 10 "me" 2 15s acquire
        27003 | put L 11 me 2 | gained L/2
        "#,
    );
}

#[test]
fn a_refused_renewal_is_looked_into_at_once() {
    check_leader(
        r#"
        2001 | put conflict  | get
        2002 | got L 9 you 2 | lost the Lease is held by "you" in term 2, follows you L/2
        "#,
    );
    check_leader(
        r#"
        2001 | put conflict  | get
        2002 | got L 9 me 1  | put on 9 "me" 1 15s
        2003 | put conflict  |
        4403 | tick          | get
        4404 | got L 10 me 1 | put on 10 "me" 1 15s
        4405 | put L 11 me 1 |
        6404 | tick          | put on 11 "me" 1 15s
        "#,
    );
    check_leader(
        r#"
        2001 | put conflict  | get
        2002 | got error     | failed read the Lease
        4402 | tick          | get
        4403 | got none      | lost the Lease was deleted
        6803 | tick          | get
        6803 | got none      | put create "me" 1 15s acquire
        6804 | put M 20 me 1 | gained M/1
        "#,
    );
    check_leader(
        r#"
        2001 | put conflict  | get
        2002 | got M 9 me 1  | lost the Lease was deleted and created again
        "#,
    );
}

#[test]
fn answers_of_calls_given_up_are_ignored() {
    check_leader(
        r#"
        2001  | put L 9 me 1      |
        4000  | tick              | put on 9 "me" 1 15s
        12001 | tick              | lost the Lease could not be renewed in time
        14000 | tick              | failed renew the Lease
        16400 | tick              | get
        16401 | late put L 10 me 1 |
        16402 | put L 10 me 1     |
        16403 | got L 10 me 1     |
        16404 | got L 10 you 9    |
        "#,
    );
}

#[test]
fn says_lost_before_it_gives_the_lease_back() {
    check_leader(
        r#"
        2001 | put L 9 me 1 |
        2002 | release      | lost released, put on 9 "" 1 1s
        2003 | release      |
        2004 | put L 10 - 1 | released
        9999 | tick         |
        9999 | release      |
        "#,
    );
    check_leader(
        r#"
        2001 | release      | lost released
        2002 | put L 9 me 1 | put on 9 "" 1 1s
        2003 | put conflict | get
        2004 | got L 10 me 1 | put on 10 "" 1 1s
        2005 | put conflict | released
        "#,
    );
    check_leader(
        r#"
        2001  | release     | lost released
        2002  | put failed  | failed renew the Lease, put on 8 "" 1 1s
        12002 | tick        | failed release the Lease, released
        "#,
    );
    check_leader(
        r#"
        2001 | release       | lost released
        2002 | put conflict  | get
        2003 | got L 9 you 2 | released
        "#,
    );
}

#[test]
fn a_follower_is_released_when_its_call_is_answered() {
    check(
        r#"
        0    | tick          | get
        1    | release       |
        2    | got L 7 - 3   | released
        "#,
    );
    check(
        r#"
        0    | tick          | get
        1    | got L 7 - 3   | put on 7 "me" 4 15s acquire
        2    | release       |
        3    | put L 8 me 4  | put on 8 "" 4 1s
        4    | put L 9 - 4   | released
        "#,
    );
    check(
        r#"
        0    | tick          | get
        1    | got L 7 you 3 | follows you L/3
        2    | release       | released
        "#,
    );
}

#[test]
fn durations_that_allow_two_leaders_are_refused() {
    let wrong = |change: fn(&mut Config)| {
        let mut config = config("me");
        change(&mut config);
        config.check().expect_err("refused")
    };
    assert_eq!(config("me").check(), Ok(()));
    for (change, word) in [
        ((|c| c.identity.clear()) as fn(&mut Config), "identity"),
        (|c| c.retry_period = Duration::ZERO, "zero"),
        (|c| c.lease_duration = Duration::from_millis(10_500), "whole seconds"),
        (|c| c.lease_duration = Duration::from_secs(10), "lease duration"),
        (|c| c.renew_deadline = Duration::from_millis(2_400), "1.2 times"),
    ] {
        let why = wrong(change);
        assert!(why.contains(word), "{why}");
    }
}
