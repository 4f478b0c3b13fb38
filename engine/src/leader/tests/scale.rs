//! Very wide graphs, very deep graphs, and very many objects.

use super::*;

extern crate std;

/// Carries out each grant at once, and shows each result in the watch at once.
fn carry_out(bench: &mut Bench, rv: &mut u64) -> usize {
    let mut widest = 0;
    let mut attempts = 0;
    while !bench.granted.is_empty() {
        widest = widest.max(bench.granted.len());
        for lease in core::mem::take(&mut bench.granted) {
            *rv += 1;
            attempts += 1;
            answer(bench, &lease, *rv);
        }
        bench.sent.clear();
        bench.events.clear();
    }
    assert!(widest <= WINDOW, "{widest} leases at once");
    attempts
}

const WINDOW: usize = 1000;

/// Applies the lease to the object in the graph.
fn answer(bench: &mut Bench, lease: &WorkLease, rv: u64) {
    let target = lease.item.target.clone();
    let view = bench.leader.queries().nodes(&target.uid).remove(0);
    let resource = &*target.resource;
    let mut now = Object {
        marks: Default::default(),
        uid: target.uid.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        resource_version: version(rv),
        facts: view.facts,
    };
    let finalizers = |now: &mut Object, keep: &dyn Fn(&str) -> bool| {
        now.facts.finalizers = now.facts.finalizers.iter().filter(|finalizer| keep(finalizer)).cloned().collect();
    };
    match &lease.item.action {
        Action::Delete { propagation_policy, .. } => {
            now.facts.terminating = true;
            if *propagation_policy == crate::work::PropagationPolicy::Foreground {
                now = now.with_finalizer("foregroundDeletion");
            }
        }
        Action::RemoveFinalizer { finalizer } => finalizers(&mut now, &|other| *other != **finalizer),
        Action::RemoveOwnerReferences { owner_uids, .. } => {
            let left = now.facts.owners.iter().filter(|owner| !owner_uids.contains(&owner.uid));
            now.facts.owners = left.cloned().collect();
        }
        Action::UnblockOwnerReferences { .. } => panic!("unexpected: {lease:?}"),
    }
    let gone = now.facts.terminating && now.facts.finalizers.is_empty();
    let sighting = Sighting { uid: now.uid.clone(), resource_version: version(rv), facts: now.facts.clone() };
    bench.report_with(lease, |report| report.observed = (!gone).then_some(sighting));
    if gone { bench.deleted(resource, &target.name, rv) } else { bench.seen(resource, now) }
}

/// Returns the number of dependents of one owner. A million by request:
/// `WIDTH=1000000 cargo test --release -p ownergraph-engine very_many`.
fn width() -> u64 {
    std::env::var("WIDTH").ok().and_then(|width| width.parse().ok()).unwrap_or(5_000)
}

#[test]
fn one_owner_of_very_many_is_worked_off_a_window_at_a_time() {
    let width = width();
    for (policy, blocks) in [("", true), ("foregroundDeletion", true), ("foregroundDeletion", false), ("orphan", true)]
    {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("things", object("things", "o", 101));
        let mut rv = 101;
        for number in 0..width {
            rv += 1;
            let dependent = object("configmaps", &number.to_string(), rv);
            let owned = if blocks { dependent.blocking("things", "o") } else { dependent.owned_by("things", "o") };
            bench.seen("configmaps", owned);
        }
        rv += 1;
        match policy {
            "" => bench.deleted("things", "o", rv),
            finalizer => bench.seen("things", object("things", "o", rv).terminating(finalizer)),
        }
        assert_eq!(bench.granted.len(), WINDOW);
        let mut attempts = carry_out(&mut bench, &mut rv);
        bench.answer_probes(rv, &[]);
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(rv, &[]);
        attempts += carry_out(&mut bench, &mut rv);
        let finalizers = usize::from(!policy.is_empty());
        assert_eq!(attempts, usize::try_from(width).unwrap() + finalizers, "one each, {policy}");
        let left = if policy == "orphan" { usize::try_from(width).unwrap() } else { 0 };
        let status = bench.leader.queries().status();
        assert_eq!((status.nodes, status.edges, status.queued, status.leased), (left, 0, 0, 0), "{policy}");
    }
}

const DEPTH: u64 = 10_000;

#[test]
fn a_chain_of_ten_thousand_ends_without_recursion() {
    for policy in ["", "foregroundDeletion"] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "0", 101));
        let mut rv = 101;
        for number in 1..=DEPTH {
            rv += 1;
            let owner = if number == 1 { "things" } else { "configmaps" };
            let link = object("configmaps", &number.to_string(), rv).blocking(owner, &(number - 1).to_string());
            bench.seen("configmaps", link);
        }
        rv += 1;
        match policy {
            "" => bench.deleted("things", "0", rv),
            finalizer => bench.seen("things", object("things", "0", rv).terminating(finalizer)),
        }
        let attempts = carry_out(&mut bench, &mut rv);
        // Each object needs one DELETE on the way down. Each object except the leaf needs the removal of a finalizer on
        // the way up.
        let expected = if policy.is_empty() { DEPTH } else { 2 * DEPTH };
        assert_eq!(attempts, usize::try_from(expected).unwrap(), "{policy}");
        assert_eq!(bench.leader.queries().status().nodes, 0, "{policy}");
    }
}
