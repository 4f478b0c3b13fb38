//! Incidents of real clusters, each as one sequence of events.

use super::*;

/// Advances the time with an executor that ends each attempt at once with `report`. Returns the number of attempts.
pub(super) fn work(bench: &mut Bench, span: Duration, report: impl Fn(&WorkLease) -> WorkReport) -> usize {
    let end = bench.now + span;
    let mut attempts = 0;
    loop {
        for lease in core::mem::take(&mut bench.granted) {
            attempts += 1;
            assert!(attempts < 100_000, "a hot loop");
            let report = report(&lease);
            bench.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
            bench.message(STREAM, ToLeader::Reports { reports: vec![report], returns: vec![] });
        }
        bench.sent.clear();
        match bench.leader.next_deadline().filter(|&at| at <= end) {
            _ if !bench.granted.is_empty() => {}
            Some(at) => bench.pass(at.since(bench.now)),
            None => break bench.pass(end.since(bench.now)),
        }
    }
    attempts
}

pub(super) fn ended(lease: &WorkLease, outcome: Outcome) -> WorkReport {
    WorkReport { outcome, ..done(lease) }
}

/// Returns every order of `0..n`.
pub(super) fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let with_last = |order: Vec<usize>| (0..n).map(move |at| [&order[..at], &[n - 1], &order[at..]].concat());
    orders(n - 1).into_iter().flat_map(with_last).collect()
}

#[test]
fn a_server_that_does_not_know_the_kind_yet_causes_no_deletion() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    // One of two servers is outdated. The kind is present or absent, depending on the server that answers.
    for round in 0..20 {
        bench.input(Input::KindUnserved(collection("things")));
        bench.pass(Duration::from_secs(30));
        bench.serve("things");
        bench.input(Input::ListBegun { collection: collection("things"), selectors: 0 });
        bench.input(Input::ListFailed {
            collection: collection("things"),
            error: "404 page not found".to_string(),
            broke: false,
        });
        let answer =
            [FindingResult::KindUnresolved, FindingResult::Absent(None), FindingResult::Failed][round % 3].clone();
        for _ in 0..30 {
            bench.pass(Duration::from_secs(1));
            bench.found_if_asked("o", &answer);
            assert_eq!(bench.grants(), NOTHING);
        }
    }
    bench.list("things", 200, vec![object("things", "o", 101)]);
    bench.pass(Duration::from_secs(600));
    assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]));
    bench.deleted("things", "o", 201);
    assert_eq!(bench.grants(), ["delete(Background) a"], "only the watch is believed");
}

#[test]
fn what_discovery_no_longer_shows_stays_in_the_graph_until_it_shows_it_again() {
    let mut bench = Bench::synced();
    for name in ["o", "p"] {
        bench.seen("things", object("things", name, 101));
    }
    bench.seen("configmaps", object("configmaps", "of-o", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "of-p", 103).owned_by("things", "p"));
    let before = bench.leader.queries().status();
    bench.input(Input::KindUnserved(collection("things")));
    bench.pass(Duration::from_secs(7200));
    let after = bench.leader.queries().status();
    assert_eq!((after.nodes, after.edges), (before.nodes, before.edges));
    assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![(Undecided::OwnerKindUnresolved, 2)]));
    bench.serve("things");
    bench.list("things", 120, vec![object("things", "o", 101)]);
    bench.found_again("p", FindingResult::Absent(Some(version(121))));
    assert_eq!(bench.grants(), ["delete(Background) of-p"], "what was missed meanwhile is noticed");
}

#[test]
fn an_owner_whose_dependents_are_of_a_kind_that_went_waits_for_it_and_says_so() {
    for (finalizer, ends) in [("orphan", "remove o from a"), ("foregroundDeletion", "delete(Background) a if o waits")]
    {
        let mut bench = Bench::synced();
        bench.seen("configmaps", object("configmaps", "a", 101).blocking("things", "o"));
        bench.input(Input::KindUnserved(collection("configmaps")));
        bench.seen("things", object("things", "o", 102).terminating(finalizer));
        bench.pass(Duration::from_secs(7200));
        assert_eq!(
            (bench.grants(), bench.undecided()),
            (vec![], vec![(Undecided::DependentsUnseen, 1)]),
            "{finalizer}"
        );
        let told = bench.leader.queries().explain(&uid("o")).unwrap();
        let why = "no API server serves ConfigMap any more";
        assert!(told.reasons.iter().any(|reason| reason.detail == why), "{:?}", told.reasons);
        bench.serve("configmaps");
        bench.list("configmaps", 120, vec![object("configmaps", "a", 101).blocking("things", "o")]);
        assert_eq!((bench.grants(), bench.undecided()), (vec![ends.to_string()], vec![]));
    }
}

#[test]
fn a_child_that_finds_the_successor_of_its_owner_outlives_the_proof_against_the_owner() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    assert_eq!(lease.item.preconditions.resource_version, version(102), "the DELETE will lose");
    bench.seen("things", Object { uid: uid("successor"), ..object("things", "o", 104) });
    let mut again = object("configmaps", "a", 105).owned_by("things", "successor");
    again.facts.owners[0].name = "o".into();
    let sighting = Sighting { uid: uid("a"), resource_version: version(105), facts: again.facts.clone() };
    // The executor's second check, and the watch a moment after it.
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::Conflict;
        report.observed = Some(sighting);
    });
    bench.seen("configmaps", again);
    bench.pass(Duration::from_secs(600));
    assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]));
}

#[test]
fn a_copy_in_another_namespace_goes_alone_in_every_order_of_events() {
    let in_namespace = |object: Object, namespace: &str| Object { namespace: namespace.into(), ..object };
    let facts = [
        ("things", in_namespace(object("things", "o", 90), "a")),
        ("configmaps", in_namespace(object("configmaps", "original", 91).owned_by("things", "o"), "a")),
        ("configmaps", in_namespace(object("configmaps", "copy", 92).owned_by("things", "o"), "b")),
    ];
    for (order, hold, restart) in orders(3).iter().flat_map(|order| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(hold, restart)| (order, hold, restart))
    }) {
        let mut bench = Bench::bare();
        *bench.leader.world.graph_mut() = Graph::new(hold, 7);
        for resource in ["configmaps", "things"] {
            bench.serve(resource);
        }
        // After a restart the first lists show all objects; otherwise the watches do.
        if restart {
            for &at in order {
                let (resource, _) = facts[at];
                let all = facts.iter().filter(|(of, _)| *of == resource).map(|(_, object)| object.clone());
                bench.list(resource, 100, all.collect());
            }
        } else {
            bench.list("configmaps", 80, vec![]);
            bench.list("things", 80, vec![]);
            for (rv, &at) in (90..).zip(order) {
                bench.seen(facts[at].0, Object { resource_version: version(rv), ..facts[at].1.clone() });
            }
        }
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.questions(), ["o by List"], "{order:?}, hold {hold}, restart {restart}");
        let asked = bench.probes.iter().find(|probe| probe.object.is_some());
        let at = asked.and_then(|probe| probe.namespace.as_deref());
        assert_eq!(at, Some("b"), "the owner is looked for where its dependent is");
        bench.found_again("o", FindingResult::Absent(Some(version(110))));
        let expected: &[&str] = if hold { &[] } else { &["delete(Background) copy"] };
        bench.pass(Duration::from_secs(5));
        assert_eq!(bench.grants(), expected, "{order:?}, hold {hold}, restart {restart}");
        let told = |event: &&Event| matches!(event, Event::OwnerInOtherNamespace { .. });
        assert_eq!(bench.events.iter().filter(told).count(), 1, "{order:?}, hold {hold}, restart {restart}");
    }
}

#[test]
fn a_cluster_scoped_dependent_of_a_namespaced_owner_stays_in_every_order_of_events() {
    let events: [&dyn Fn(&mut Bench); 3] = [
        &|bench| bench.seen("things", object("things", "o", 101)),
        &|bench| bench.seen("nodes", object("nodes", "n", 101).owned_by("things", "o")),
        &|bench| bench.deleted("things", "o", 102),
    ];
    for order in orders(3) {
        // The owner cannot be deleted before its creation.
        if order.iter().position(|&at| at == 2) < order.iter().position(|&at| at == 0) {
            continue;
        }
        let mut bench = Bench::synced();
        for at in order {
            events[at](&mut bench);
            bench.pass(Duration::from_secs(600));
            assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]));
        }
    }
}

#[test]
fn a_hundred_thousand_references_to_kinds_that_never_were_cost_nothing_per_second() {
    let mut bench = Bench::synced();
    let strange = |number: u64| {
        let mut object = object("configmaps", &format!("s{number}"), 101 + number).owned_by("things", "x");
        object.facts.owners[0].kind = format!("Kind{number}").into();
        object.facts.owners[0].uid = uid(&format!("x{number}"));
        Object { namespace: "tenant".into(), ..object }
    };
    let number = 100_000;
    for at in 0..number {
        bench.seen("configmaps", strange(at));
    }
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 100_000)]);
    bench.seen("things", object("things", "o", 101));
    // The waits from the beginning of the term are over by then.
    bench.pass(Duration::from_secs(60));
    bench.events.clear();
    let mut beats = 0;
    let end = bench.now + Duration::from_secs(1800);
    while let Some(at) = bench.leader.next_deadline().filter(|&at| at <= end) {
        bench.pass(at.since(bench.now));
        beats += 1;
    }
    assert!(beats <= 1800 / 20, "{beats} deadlines, more than the session's own");
    assert_eq!((bench.grants(), bench.events.len()), (vec![], 0), "half an hour without a word");
    // No other item waits behind them.
    bench.seen("configmaps", object("configmaps", "a", 200_102).owned_by("things", "o"));
    bench.deleted("things", "o", 102);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_reference_into_a_strangers_namespace_changes_nothing_there_and_comes_to_the_same_whatever_is_there() {
    type Stranger = Option<fn(Object) -> Object>;
    let strangers: [Stranger; 4] = [
        None,
        Some(|object| object),
        Some(|object| object.terminating("foregroundDeletion")),
        Some(|object| object.terminating("orphan")),
    ];
    for (which, stranger) in strangers.into_iter().enumerate() {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        let theirs = |object: Object| Object { namespace: "private".into(), ..object };
        if let Some(state) = stranger {
            bench.seen("configmaps", theirs(object("configmaps", "child", 101).owned_by("things", "p")));
            bench.seen("things", theirs(object("things", "p", 102)));
            bench.seen("things", theirs(state(object("things", "p", 103))));
        }
        let before: Vec<WorkLease> = core::mem::take(&mut bench.granted);
        bench.seen("configmaps", object("configmaps", "hostile", 104).blocking("things", "p"));
        bench.pass(Duration::from_millis(250));
        bench.granted.retain(|lease| &*lease.item.target.namespace == "ns");
        assert_eq!((bench.granted.len(), bench.questions().len()), (0, 1), "stranger {which}");
        bench.found_again("p", FindingResult::Absent(Some(version(110))));
        bench.granted.retain(|lease| &*lease.item.target.namespace == "ns");
        assert_eq!(bench.grants(), ["delete(Background) hostile"], "stranger {which}");
        // The actions on the other client's objects are the same as before, and nothing blocks them.
        for lease in before {
            assert_eq!(&*lease.item.target.namespace, "private");
            bench.report(&lease, Outcome::Done);
        }
        if which == 2 {
            bench.input(Input::Deleted {
                collection: collection("configmaps"),
                object: theirs(object("configmaps", "child", 105)),
            });
            assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of p"]);
        }
    }
}
