//! Collections whose lists stand elsewhere than those of the others, because of a separate etcd or another server.

use super::*;

/// A version past all positions of a test's store.
const FAR: u64 = 9_007_199_254_740_991;

/// Creates a bench in which configmaps, nodes and things share a store at 451, and jobs stand at `jobs`. Configmap `a`
/// is owned by job `j`, configmap `b` by thing `o`, and job `k` by thing `p`. None of these owners is visible.
fn apart(jobs: u64, policy: Policy) -> Bench {
    let mut bench = Bench::bare();
    bench.leader.cx.config.policy = policy;
    for resource in ["configmaps", "nodes", "things", "jobs"] {
        bench.serve(resource);
    }
    bench.list("nodes", 451, vec![]);
    bench.list("things", 451, vec![]);
    bench.list("jobs", jobs, vec![object("jobs", "k", jobs.min(450)).owned_by("things", "p")]);
    let maps = [("a", 440, "jobs", "j"), ("b", 441, "things", "o")];
    let maps = maps.map(|(name, at, kind, owner)| object("configmaps", name, at).owned_by(kind, owner));
    bench.list("configmaps", 451, maps.to_vec());
    bench
}

/// Answers all questions for `seconds`: jobs stand at `jobs`, all other collections stand at `others`, and no owner
/// exists.
fn answers(bench: &mut Bench, seconds: u64, jobs: u64, others: u64) {
    for _ in 0..seconds {
        bench.pass(Duration::from_secs(1));
        bench.answer_reads(&Ok(GuardAnswer::NotServed));
        for probe in bench.other_probes() {
            let at = if probe.collection == collection("jobs") { jobs } else { others };
            let answer =
                ProbeAnswer { resource_version: version(at), objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
        bench.found_if_asked("j", &FindingResult::Absent(Some(version(jobs))));
        for owner in ["o", "p"] {
            bench.found_if_asked(owner, &FindingResult::Absent(Some(version(others))));
        }
    }
}

fn granted(bench: &mut Bench) -> Vec<String> {
    let mut grants = bench.grants();
    grants.sort();
    grants.dedup();
    grants
}

fn kept_apart(bench: &Bench) -> Vec<GroupResource> {
    bench.leader.queries().status().kept_apart
}

fn separate() -> Policy {
    Policy { separate_stores: vec![collection("jobs")], ..Policy::default() }
}

fn rewinds(bench: &Bench) -> usize {
    bench.events.iter().filter(|event| matches!(event, Event::Rewound { .. })).count()
}

#[test]
fn a_collection_whose_every_answer_is_from_another_time_proves_no_owner_absent() {
    for jobs in [1, 20, 439, 450, FAR] {
        let mut bench = apart(jobs, Policy::default());
        answers(&mut bench, 600, jobs, 460);
        let grants = granted(&mut bench);
        assert!(!grants.iter().any(|grant| grant.ends_with(" a")), "at {jobs}: {grants:?}");
        assert!(grants.iter().any(|grant| grant.ends_with(" b")), "at {jobs}, the others go on: {grants:?}");
        assert_eq!(kept_apart(&bench), [collection("jobs")], "at {jobs}");
        assert_eq!(rewinds(&bench), 0, "at {jobs}");
        let unanswered = bench.leader.queries().status().questions.unanswered;
        assert!(unanswered.iter().any(|of| of.collection == collection("jobs")), "at {jobs}: {unanswered:?}");
    }
}

#[test]
fn an_object_of_a_collection_that_stands_ahead_is_not_deleted_because_of_a_list_from_behind() {
    let mut bench = apart(900, Policy::default());
    answers(&mut bench, 600, 900, 460);
    let grants = granted(&mut bench);
    assert!(grants.iter().any(|grant| grant.ends_with(" b")), "{grants:?}");
    assert!(!grants.iter().any(|grant| grant.ends_with(" k")), "{grants:?}");
    assert_eq!(kept_apart(&bench), [collection("jobs")]);
}

#[test]
fn a_collection_that_the_administrator_names_is_compared_with_itself() {
    for jobs in [20, 900] {
        let mut bench = apart(jobs, separate());
        answers(&mut bench, 30, jobs, 460);
        let all = ["delete(Background) a", "delete(Background) b", "delete(Background) k"];
        assert_eq!(granted(&mut bench), all, "at {jobs}");
        assert_eq!(kept_apart(&bench), []);
        assert_eq!(rewinds(&bench), 0);
    }
    // The position is not before the version that the collection itself has shown.
    let mut bench = apart(20, separate());
    bench.pass(Duration::from_secs(1));
    bench.found("j", FindingResult::Absent(Some(version(19))));
    assert_eq!(bench.undecided(), [(Undecided::OwnerUnverified, 2), (Undecided::OwnerUnreadable, 1)]);
}

#[test]
fn a_deletion_of_what_a_collection_apart_has_never_shown_proves_nothing() {
    let mut bench = apart(20, Policy::default());
    for at in [21, 22] {
        bench.deleted("jobs", "j", at);
        answers(&mut bench, 120, at, 460);
        assert!(!granted(&mut bench).iter().any(|grant| grant.ends_with(" a")), "at {at}");
    }
    // A deletion of an object that the collection itself has shown counts there.
    bench.seen("jobs", object("jobs", "l", 23));
    bench.seen("configmaps", object("configmaps", "c", 461).owned_by("jobs", "l"));
    bench.deleted("jobs", "l", 24);
    assert_eq!(granted(&mut bench), ["delete(Background) c"]);
}

#[test]
fn a_collection_that_goes_along_with_the_others_again_is_believed_again() {
    let mut bench = apart(20, Policy::default());
    answers(&mut bench, 120, 20, 460);
    assert_eq!(kept_apart(&bench), [collection("jobs")]);
    // The collection passes the position of the others and continues by itself.
    bench.bookmark("nodes", 470);
    answers(&mut bench, 120, 700, 470);
    assert_eq!(kept_apart(&bench), [collection("jobs")]);
    for at in 701..713 {
        bench.bookmark("nodes", at);
        answers(&mut bench, 10, at + 1, at + 1);
    }
    assert_eq!(kept_apart(&bench), []);
    assert_eq!(granted(&mut bench), ["delete(Background) a", "delete(Background) b", "delete(Background) k"]);
}

#[test]
fn where_most_collections_are_far_ahead_of_the_one_that_was_listed_first_it_is_that_one_which_stands_apart() {
    let mut bench = Bench::bare();
    for resource in ["configmaps", "nodes", "things", "jobs"] {
        bench.serve(resource);
    }
    bench.list("jobs", 20, vec![]);
    let of_things = object("configmaps", "a", FAR).owned_by("things", "o");
    for (resource, objects) in [("nodes", vec![]), ("things", vec![]), ("configmaps", vec![of_things])] {
        bench.list(resource, FAR, objects);
    }
    answers(&mut bench, 300, 20, FAR);
    assert_eq!(kept_apart(&bench), [collection("jobs")]);
    assert_eq!(granted(&mut bench), ["delete(Background) a"]);
}

#[test]
fn a_store_that_stands_before_what_only_a_list_that_failed_has_shown_went_back() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.serve("jobs");
    bench.input(Input::ListBegun { collection: collection("jobs"), selectors: 0 });
    bench.input(Input::Listed { collection: collection("jobs"), object: object("jobs", "j", 1096) });
    bench.input(Input::ListFailed { collection: collection("jobs"), error: "500".to_string(), broke: false });
    // The store is restored, and stands past all known versions of the other collections.
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    for at in 0..10 {
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(102 + at, &[]);
    }
    assert_eq!(rewinds(&bench), 1);
}
