//! Distribution of grants when executors come and go.

use super::fleet::Fleet;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn fleet(executors: usize, concurrency: u32, attempt: Duration) -> Fleet {
    let mut fleet = Fleet::new(Policy::default());
    fleet.attempt = attempt;
    (0..executors).for_each(|_| {
        fleet.join(concurrency);
    });
    fleet.run(SECOND);
    fleet
}

#[test]
fn who_comes_new_gets_at_once_what_others_have_not_begun() {
    let mut fleet = fleet(1, 4, 10 * SECOND);
    fleet.garbage(8);
    fleet.run(SECOND);
    assert_eq!(fleet.starts.len(), 4, "the other half of the window waits");
    fleet.join(3);
    fleet.run(SECOND / 20);
    assert_eq!((fleet.started_by(1), fleet.revoked), (3, 3), "as many as it can begin");
    fleet.join(8);
    fleet.run(SECOND / 20);
    assert_eq!((fleet.started_by(2), fleet.revoked), (1, 4));
    fleet.run(30 * SECOND);
    assert_eq!((fleet.done, fleet.starts.len()), (8, 8), "each is done once");
}

#[test]
fn who_is_through_takes_over_from_who_is_slow() {
    let mut fleet = fleet(2, 2, 20 * SECOND);
    fleet.garbage(8);
    fleet.run(SECOND);
    assert_eq!((fleet.started_by(0), fleet.started_by(1)), (2, 2));
    // A third executor with slots for all waiting grants is faster than both.
    fleet.attempt = SECOND / 10;
    fleet.join(2);
    fleet.run(2 * SECOND);
    assert_eq!((fleet.started_by(2), fleet.done), (4, 4));
}

#[test]
fn nothing_is_recalled_where_all_are_busy_and_in_time() {
    let mut fleet = fleet(5, 4, SECOND / 50);
    fleet.garbage(2_000);
    fleet.run(5 * SECOND);
    assert_eq!((fleet.done, fleet.revoked), (2_000, 0));
}

#[test]
fn few_items_are_spread_over_all_who_can_begin_them() {
    let mut fleet = fleet(8, 4, SECOND);
    fleet.garbage(32);
    fleet.run(SECOND / 2);
    assert_eq!(fleet.starts.len(), 32, "nothing waits behind anything");
}

#[test]
fn throughput_grows_with_the_executors() {
    let done_with = |executors| {
        let mut fleet = fleet(executors, 4, SECOND / 20);
        fleet.garbage(10_000);
        fleet.run(10 * SECOND);
        fleet.done
    };
    let (one, eight) = (done_with(1), done_with(8));
    assert!(one > 700 && eight >= 7 * one, "{one} alone, {eight} by eight");
}
