//! Tests of the times at which the next leader gets the counts.

use super::*;
use crate::parity::TOLD_AFTER;

/// A minute is not over.
const SOON: Duration = Duration::from_secs(5);

impl Bench {
    /// The agreed decisions in each event with the counts.
    fn told(&self) -> Vec<u64> {
        let agreed = |event: &Event| {
            let Event::Compared(view) = event else { return None };
            Some(view.counts.agreed)
        };
        self.events.iter().filter_map(agreed).collect()
    }

    /// An earlier leader has counted this many agreed decisions.
    fn inherits(&mut self, agreed: u64) {
        let mut counts = alloc::boxed::Box::new(Counts::default());
        counts.agreed = agreed;
        self.input(Input::ComparedBefore { counts, lasted: Duration::from_secs(1000) });
    }
}

#[test]
fn a_leader_counts_on_from_the_log() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    bench.pass(Duration::from_secs(59));
    assert_eq!(bench.told().len(), 0);
    bench.pass(A_MOMENT);
    assert_eq!(bench.told().len(), 1);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.told().len(), 1, "nothing new is told");

    let mut next = family();
    let mut counts = alloc::boxed::Box::new(bench.counts());
    counts.theirs_first = 7;
    next.input(Input::ComparedBefore { counts, lasted: Duration::from_secs(1000) });
    next.deleted("things", "o", 103);
    next.deleted("configmaps", "a", 104);
    let view = next.leader.queries().parity(None).unwrap();
    assert_eq!((view.counts.agreed, view.counts.theirs_first, view.before), (2, 7, Duration::from_secs(1000)));
    let recent = next.leader.queries().parity(Some(Duration::from_secs(3600))).unwrap();
    assert_eq!((recent.counts.agreed, recent.before), (1, Duration::ZERO), "a window has only this term");
}

#[test]
fn the_counts_of_earlier_leaders_stay_among_the_newest_events_of_a_large_cascade() {
    let mut bench = observing();
    bench.inherits(7);
    bench.seen("things", object("things", "o", 101));
    for number in 0..TOLD_AFTER as u64 + 100 {
        bench.seen("configmaps", object("configmaps", &format!("a{number}"), 102 + number).owned_by("things", "o"));
    }
    bench.events.clear();
    bench.deleted("things", "o", 100_000);
    assert_eq!(bench.told(), [7], "once, although nothing is compared yet");
    let is_told = |event: &Event| matches!(event, Event::Compared(_));
    let place = bench.events.iter().position(is_told).expect("it is told");
    assert!(place <= TOLD_AFTER && bench.events.len() > TOLD_AFTER, "{place} of {}", bench.events.len());
}

#[test]
fn a_leader_that_stops_tells_what_it_counted_since() {
    let mut bench = family();
    bench.inherits(7);
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    bench.pass(SOON);
    assert_eq!(bench.told(), [] as [u64; 0]);
    bench.input(Input::Stop);
    assert_eq!(bench.told(), [8]);
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.input(Input::Stop);
    bench.pass(Duration::from_secs(120));
    assert_eq!(bench.told(), [8], "a leader without a term tells nothing");
}

#[test]
fn counts_that_may_lack_those_of_earlier_leaders_do_not_hide_them() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    bench.pass(SOON);
    bench.input(Input::Stop);
    assert_eq!(bench.told(), [] as [u64; 0], "the decision log may not be read yet");
}
