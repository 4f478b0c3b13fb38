//! The write rate of executors, regardless of their number.

use super::fleet::Fleet;
use super::*;
use crate::pace::Rate;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

const SECOND: Duration = Duration::from_secs(1);

fn capped(writes_per_second: u32) -> Fleet {
    Fleet::new(Policy { max_writes_per_second: Some(Rate::per_second(writes_per_second)), ..Policy::default() })
}

/// Returns the maximum number of writes that started within one second.
fn busiest_second(fleet: &Fleet) -> usize {
    let mut window = VecDeque::new();
    let mut most = 0;
    for &(at, _) in &fleet.starts {
        window.push_back(at);
        while window.front().is_some_and(|&first| at.since(first) >= SECOND) {
            window.pop_front();
        }
        most = most.max(window.len());
    }
    most
}

#[test]
fn however_many_executors_there_are_they_write_what_is_allowed() {
    for executors in 1..=8 {
        for cap in [5, 100] {
            let mut fleet = capped(cap);
            (0..executors).for_each(|_| {
                fleet.join(4);
            });
            let cap = cap as usize;
            fleet.garbage(25 * cap);
            fleet.run(20 * SECOND);
            let in_ten = fleet.started_within(10 * SECOND);
            let told = format!("{executors} executors: {in_ten} in ten seconds at {cap}/s");
            assert!(in_ten <= 10 * cap + executors, "{told}");
            assert!(in_ten >= 10 * cap * 95 / 100, "{told}");
            let most = busiest_second(&fleet);
            assert!(most <= cap + cap / 10 + executors, "{executors} executors: {most} in one second at {cap}/s");
        }
    }
}

#[test]
fn shares_follow_executors_that_come_and_go() {
    let mut fleet = capped(80);
    fleet.garbage(8_000);
    for executors in 1..=8 {
        fleet.join(4);
        fleet.run(5 * SECOND);
        let in_four = fleet.started_within(4 * SECOND);
        assert!((300..=328).contains(&in_four), "{executors} executors: {in_four} in four seconds");
    }
    for executors in (1..8).rev() {
        fleet.kill(executors);
        fleet.run(5 * SECOND);
        let in_four = fleet.started_within(4 * SECOND);
        assert!((300..=328).contains(&in_four), "{executors} executors are left: {in_four} in four seconds");
    }
    assert!(busiest_second(&fleet) <= 96, "{}", busiest_second(&fleet));
}

#[test]
fn who_has_nothing_to_do_leaves_its_share_to_who_has() {
    let mut fleet = capped(50);
    (0..8).for_each(|_| {
        fleet.join(1);
    });
    fleet.run(3 * SECOND);
    // Seven executors close their windows and take no more work.
    for at in 1..8 {
        let stream = StreamId(at);
        fleet.input(Input::Message { stream, message: ToLeader::Window { max_outstanding: 0 } });
    }
    fleet.garbage(1_000);
    fleet.run(12 * SECOND);
    // Writes one at a time, each of 20 ms and a round trip, are slower than the limit of all executors.
    assert!(fleet.started_within(10 * SECOND) > 300, "{}", fleet.started_within(10 * SECOND));
    assert_eq!(fleet.started_by(0), fleet.starts.len());
}

#[test]
fn a_push_back_slows_all_executors_down_and_they_recover_step_by_step() {
    for executors in [1, 4, 8] {
        let mut fleet = Fleet::new(Policy::default());
        (0..executors).for_each(|_| {
            fleet.join(4);
        });
        // The server accepts forty writes a second for this minute, and all writes after it.
        let (mut second, mut taken) = (0, 0);
        fleet.server = Box::new(move |now| {
            let this = now.since_origin().as_secs();
            if this != second {
                (second, taken) = (this, 0);
            }
            taken += 1;
            if this < 60 && taken > 40 { Outcome::Throttled } else { Outcome::Done }
        });
        fleet.garbage(6_000);
        fleet.run(60 * SECOND);
        let (done, tried) = (fleet.done, fleet.starts.len());
        let told = format!("{executors} executors: {done} of {tried} tries were taken in a minute");
        assert!(done >= 60 * 40 / 3, "{told}");
        assert!(tried - done <= 60 * 10, "{told}");
        let before = fleet.starts.len();
        fleet.run(30 * SECOND);
        let free = fleet.starts.len() - before;
        assert!(free > 30 * 40 * 2, "{executors} executors: {free} in the half minute after");
    }
}

#[test]
fn readers_see_how_far_a_collection_is_slowed_down() {
    let mut fleet = Fleet::new(Policy::default());
    fleet.server = Box::new(|_| Outcome::Throttled);
    fleet.join(4);
    fleet.garbage(100);
    fleet.run(SECOND / 2);
    let (blockers, _) = fleet.leader.queries().blockers(10);
    assert_eq!((&*blockers[0].what, blockers[0].next_probe), ("throttled: configmaps, slowed to 5.0/s", None));
    assert_eq!(blockers[0].items, 100, "what was not started is taken back");
}

#[test]
fn the_counts_of_collections_without_recent_writes_are_forgotten() {
    let mut bench = Bench::synced();
    for number in 0..5000 {
        bench.leader.cx.now = bench.leader.cx.now + SECOND / 100;
        let resource = format!("resource-{number}").as_str().into();
        bench.leader.dispatcher.meter(&bench.leader.cx, &GroupResource { group: "example.com".into(), resource });
        assert!(bench.leader.dispatcher.metered() <= 1024);
    }
}
