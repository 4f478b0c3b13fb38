//! Kinds that are no longer served, no longer watched, or served in another scope. Their former objects cause no action
//! and prove nothing.

use super::*;

fn lose(bench: &mut Bench, resource: &str) {
    bench.input(Input::KindUnserved(collection(resource)));
}

/// Creates configmap `a` and its mirror in another group, whose owner `o` is deleted after `between`.
fn mirrored_dependent(between: fn(&mut Bench)) -> Bench {
    let mut bench = Bench::synced();
    bench.serve("mirrors");
    bench.list("mirrors", 100, vec![]);
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("mirrors", object("mirrors", "a", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    between(&mut bench);
    bench.deleted("things", "o", 103);
    bench
}

#[test]
fn where_the_group_that_was_seen_first_goes_the_other_one_acts() {
    let mut bench = mirrored_dependent(|bench| lose(bench, "mirrors"));
    let lease = bench.take("a");
    assert_eq!(&*lease.item.target.resource, "configmaps");
    bench.report(&lease, Outcome::Done);
    bench.deleted("configmaps", "a", 104);
    assert_eq!(bench.leader.queries().status().nodes, 0, "no node of the lost group is left over");
}

#[test]
fn the_same_where_the_other_group_shows_the_object_only_after_that() {
    let mut bench = Bench::synced();
    bench.serve("mirrors");
    bench.list("mirrors", 100, vec![]);
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("mirrors", object("mirrors", "a", 102).owned_by("things", "o"));
    lose(&mut bench, "mirrors");
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    assert_eq!(&*bench.take("a").item.target.resource, "configmaps");
}

#[test]
fn an_owner_whose_kind_is_no_longer_watched_is_checked_and_keeps_no_dependent_by_itself() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.input(Input::KindServed(ServedKind { access: Access::Listed, ..served("things") }));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.undecided(), [(Undecided::OwnerUnverified, 1)]);
    assert_eq!((bench.questions(), bench.grants()), (vec!["o by List".to_string()], vec![]));
}

#[test]
fn a_dependent_of_a_kind_that_is_watched_no_more_is_not_written_to() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.input(Input::KindServed(ServedKind { access: Access::Listed, ..served("configmaps") }));
    bench.deleted("things", "o", 103);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.grants(), bench.leader.queries().status().nodes), (vec![], 0));
}

#[test]
fn a_collection_that_is_watched_no_more_shows_nothing() {
    let mut bench = Bench::with_failed_list();
    assert!(bench.probes.iter().any(|probe| probe.collection == collection("configmaps")));
    bench.input(Input::KindServed(ServedKind { access: Access::Listed, ..served("configmaps") }));
    let dependent = object("configmaps", "a", 101).blocking("things", "o");
    bench.answer_probes(101, &[("configmaps", dependent.clone())]);
    bench.list("configmaps", 102, vec![dependent.clone()]);
    bench.seen("configmaps", dependent);
    assert_eq!(bench.leader.queries().status().nodes, 1);
    assert_eq!(bench.leader.queries().reached(&collection("configmaps")).unwrap().position, None);
}

/// Resolves the reference of `dependent` to `o` of kind `resource`. Then the kind is served in the other scope, and
/// listed without `o`.
fn scope_changes(resource: &str, dependent: Object, of: &str) -> Bench {
    let mut bench = Bench::synced();
    bench.seen(resource, object(resource, "o", 101));
    bench.seen(of, dependent);
    bench.input(Input::KindServed(ServedKind { namespaced: !served(resource).namespaced, ..served(resource) }));
    bench.list(resource, 110, vec![]);
    bench.pass(Duration::from_secs(1));
    bench
}

/// Returns the namespace of the question about `o`.
fn asked_in(bench: &Bench) -> Option<Name> {
    let is_about_it = |probe: &&Probe| probe.object.as_ref().is_some_and(|object| &*object.name == "o");
    bench.probes.iter().find(is_about_it).expect("the owner is asked for").namespace.clone()
}

#[test]
fn an_owner_is_looked_for_in_the_scope_that_its_kind_has_now() {
    let bench = scope_changes("things", object("configmaps", "a", 102).owned_by("things", "o"), "configmaps");
    assert_eq!(asked_in(&bench), None, "of cluster scope now");
    let bench = scope_changes("nodes", object("configmaps", "a", 102).owned_by("nodes", "o"), "configmaps");
    let namespace = object("configmaps", "a", 0).namespace;
    assert_eq!(asked_in(&bench), Some(namespace), "in the dependent's namespace now");
}
