//! The built-in breaker: a mass deletion that nothing explains, and churn that it must not stop.

use super::*;
use alloc::collections::BTreeSet;

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

    /// Lists the owners again, without the first `hidden` of them, as a conversion would that hides them.
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

/// A cluster with owners that have one dependent each.
struct Day {
    bench: Bench,
    rv: u64,
    /// The owners that exist, each with its namespace.
    owners: Vec<(Name, Name)>,
    made: usize,
    /// The dependents that are gone.
    gone: BTreeSet<Name>,
}

impl Day {
    fn begin() -> Day {
        let mut day =
            Day { bench: Bench::with_families(0), rv: 1000, owners: Vec::new(), made: 0, gone: BTreeSet::new() };
        day.create("ns", OBJECTS);
        day
    }

    fn object(&mut self, resource: &str, namespace: &Name, name: &str) -> Object {
        self.rv += 1;
        Object { namespace: namespace.clone(), ..object(resource, name, self.rv) }
    }

    fn create(&mut self, namespace: &str, families: usize) {
        let namespace = Name::from(namespace);
        for _ in 0..families {
            let name = format!("o{}", self.made);
            self.made += 1;
            let owner = self.object("things", &namespace, &name);
            self.bench.seen("things", owner);
            let dependent = self.object("configmaps", &namespace, &format!("d-{name}")).owned_by("things", &name);
            self.bench.seen("configmaps", dependent);
            self.owners.push((namespace.clone(), name.into()));
        }
    }

    /// Deletes the oldest owners.
    fn delete(&mut self, count: usize) {
        for (namespace, name) in self.owners.drain(..count).collect::<Vec<_>>() {
            let object = self.object("things", &namespace, &name);
            self.bench.input(Input::Deleted { collection: collection("things"), object });
        }
    }

    /// Deletes all of a namespace, as its controller does: the dependents of the one half go first.
    fn delete_namespace(&mut self, of: &str) {
        let of = Name::from(of);
        let (gone, left) = core::mem::take(&mut self.owners).into_iter().partition(|(namespace, _)| *namespace == of);
        self.owners = left;
        for (number, (namespace, name)) in gone.into_iter().enumerate() {
            let owner = self.object("things", &namespace, &name);
            let dependent = self.object("configmaps", &namespace, &format!("d-{name}"));
            let mut both = [("things", owner), ("configmaps", dependent)];
            both.rotate_left(number % 2);
            for (resource, object) in both {
                self.bench.input(Input::Deleted { collection: collection(resource), object });
            }
            self.gone.insert(format!("d-{name}").into());
        }
    }

    /// The watch of the owners has expired. Meanwhile, some of them were deleted.
    fn expire(&mut self, deleted: usize) {
        self.owners.drain(..deleted);
        let owners = self.owners.clone();
        let shown = owners.iter().map(|(namespace, name)| self.object("things", namespace, name)).collect();
        self.rv += 1;
        self.bench.list("things", self.rv, shown);
    }

    /// Carries out what is granted for a minute.
    fn minute(&mut self) {
        let end = self.bench.now + Duration::from_secs(60);
        loop {
            for probe in core::mem::take(&mut self.bench.probes) {
                self.rv += 1;
                let resource_version = version(self.rv);
                let answer = ProbeAnswer { resource_version, objects: Vec::new(), complete: true, remaining: None };
                self.bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
            }
            let granted = core::mem::take(&mut self.bench.granted);
            for lease in &granted {
                let target = &lease.item.target;
                if !self.gone.insert(target.name.clone()) {
                    self.bench.report(lease, Outcome::Gone);
                    continue;
                }
                self.bench.report(lease, Outcome::Done);
                let object = self.object("configmaps", &target.namespace, &target.name);
                self.bench.input(Input::Deleted { collection: collection("configmaps"), object });
            }
            if granted.is_empty() && self.bench.now >= end {
                break;
            }
            let step = if granted.is_empty() { Duration::from_secs(5) } else { Duration::from_millis(10) };
            self.bench.pass(step);
        }
        for resource in ["configmaps", "nodes", "things"] {
            self.rv += 1;
            self.bench.bookmark(resource, self.rv);
        }
        self.bench.events.retain(|event| matches!(event, Event::BreakerOpened { .. }));
        self.bench.sent.clear();
    }
}

#[test]
fn a_day_of_ordinary_churn_opens_nothing() {
    let mut day = Day::begin();
    for minute in 0..24 * 60 {
        // Every two hours, all owners have been replaced once.
        let replaced = OBJECTS / 120;
        day.create("ns", replaced);
        day.delete(replaced);
        match minute {
            _ if minute % 60 == 30 => day.expire(OBJECTS / 100),
            _ if minute % 240 == 100 => day.create("team", OBJECTS),
            _ if minute % 240 == 120 => day.delete_namespace("team"),
            700 => day.create("batch", 10_000),
            // A user deletes all owners.
            720 => day.delete(day.owners.len()),
            722 => day.create("ns", OBJECTS),
            _ => {}
        }
        day.minute();
        assert_eq!(day.bench.opened(), 0, "minute {minute}");
    }
    day.minute();
    let (gone, pauses) = (day.gone.len(), day.bench.pauses_wanted.len());
    assert_eq!((day.made - day.owners.len(), pauses), (gone, 0), "everything went in time");
    assert!(gone > 30_000, "{gone}");
}
