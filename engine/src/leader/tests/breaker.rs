//! The built-in breaker: a mass deletion that nothing explains, and churn that it must not stop.

use super::*;

const OBJECTS: usize = 1500;

impl Bench {
    /// Creates a leader that knows this many owners with one dependent each.
    fn with_families(owners: usize) -> Bench {
        let mut bench = Bench::without_executor();
        bench.hello(STREAM, Hello { window: 100, ..hello("e1", "i1") });
        for resource in ["configmaps", "nodes", "things"] {
            bench.serve(resource);
            bench.list(resource, 100, vec![]);
        }
        for number in 0..owners {
            bench.seen("things", object("things", &format!("o{number}"), 101));
        }
        for number in 0..owners {
            let owner = format!("o{number}");
            bench.seen("configmaps", object("configmaps", &format!("d{number}"), 102).owned_by("things", &owner));
        }
        bench.granted.clear();
        bench
    }

    /// Lists the owners anew, without the first `hidden` of them, as a conversion would that hides them.
    fn hide(&mut self, owners: usize, hidden: usize, rv: u64) {
        let shown = (hidden..owners).map(|number| object("things", &format!("o{number}"), 101));
        self.list("things", rv, shown.collect());
    }

    /// Answers questions, and carries out what is granted, for two seconds. Returns the number of deletions.
    fn carry_out_all(&mut self, mut rv: u64) -> usize {
        let mut gone = 0;
        // Questions are asked a few at a time.
        for _ in 0..200 {
            self.pass(Duration::from_millis(10));
            rv += 1;
            for probe in core::mem::take(&mut self.probes) {
                let answer =
                    ProbeAnswer { resource_version: version(rv), objects: Vec::new(), complete: true, remaining: None };
                self.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
            }
            for lease in core::mem::take(&mut self.granted) {
                self.report(&lease, Outcome::Done);
                rv += 1;
                self.deleted("configmaps", &lease.item.target.name, rv);
                gone += 1;
            }
        }
        gone
    }

    fn opened(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::BreakerOpened { .. })).count()
    }
}

#[test]
fn a_conversion_that_hides_owners_is_stopped_before_a_twentieth_went() {
    let mut bench = Bench::with_families(OBJECTS);
    bench.hide(OBJECTS, OBJECTS, 300);
    bench.pass(Duration::from_secs(1));
    let gone = bench.carry_out_all(1000);
    assert!(gone <= OBJECTS / 20, "{gone} of {OBJECTS} went");
    bench.pass(Duration::from_secs(30));
    assert_eq!(
        (bench.opened(), bench.pauses_wanted.len(), bench.granted.len()),
        (1, 1, 0),
        "{:?}",
        bench.pauses_wanted
    );
    bench.pass(Duration::from_secs(60));
    assert_eq!((bench.opened(), bench.pauses_wanted.len()), (1, 2), "a Pause that was not seen is wanted again");
    // The Pause comes, a person looks, and ends it.
    let pause = crate::guard::Guard { actor: "breaker/configmaps".to_string(), ..pauses::pause("b", 1) };
    bench.input(Input::GuardSeen(pause));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.granted.len(), 0);
    bench.input(Input::GuardGone { id: pauses::pause_id("b"), uid: uid("uid-b") });
    bench.pass(Duration::from_secs(1));
    assert_eq!(gone + bench.carry_out_all(5000), OBJECTS, "the person has let them go");
}

#[test]
fn a_tenth_of_a_collection_waits_until_its_number_is_known() {
    let mut bench = Bench::with_families(OBJECTS);
    bench.hide(OBJECTS, OBJECTS / 10, 300);
    bench.pass(Duration::from_secs(1));
    let gone = bench.carry_out_all(1000);
    assert!(gone < OBJECTS / 10, "{gone}");
    bench.pass(Duration::from_secs(11));
    assert_eq!((gone + bench.carry_out_all(5000), bench.opened()), (OBJECTS / 10, 0));
}

#[test]
fn deletions_that_the_watch_shows_are_never_stopped() {
    let mut bench = Bench::with_families(OBJECTS);
    for number in 0..OBJECTS {
        bench.deleted("things", &format!("o{number}"), 300 + number as u64);
    }
    assert_eq!((bench.carry_out_all(5000), bench.opened()), (OBJECTS, 0));
}

#[test]
fn a_small_collection_is_never_stopped() {
    let mut bench = Bench::with_families(300);
    bench.hide(300, 300, 300);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.carry_out_all(1000), bench.opened()), (300, 0));
}
