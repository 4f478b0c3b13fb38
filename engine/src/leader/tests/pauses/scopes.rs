//! The scope of a pause: kinds by the names that users write, namespaces, and their contents.

use super::*;
use crate::scope::OwnerScope;

/// Serves Deployments, ReplicaSets, Pods and PersistentVolumeClaims, with their short names.
fn serve_workloads(bench: &mut Bench) {
    let rows: [(&str, &str, &str, &[&str]); 5] = [
        ("apps", "deployments", "Deployment", &["deployment", "deploy"]),
        ("apps", "replicasets", "ReplicaSet", &["replicaset", "rs"]),
        ("", "pods", "Pod", &["pod", "po"]),
        ("", "persistentvolumeclaims", "PersistentVolumeClaim", &["persistentvolumeclaim", "pvc"]),
        ("example.com", "rollouts", "Rollout", &["rollout", "ro"]),
    ];
    for (group, resource, kind, names) in rows {
        let group_resource = GroupResource { group: group.into(), resource: resource.into() };
        let names = names.iter().map(|&name| name.into()).collect();
        bench.input(Input::KindServed(ServedKind { group_resource, kind: kind.into(), names, ..served("configmaps") }));
    }
}

/// Parses a resource as `kubectl` and the flags do: RESOURCE, or RESOURCE.GROUP, with or without a version.
fn written(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource { group: group.into(), resource: resource.into() }
}

#[test]
fn a_kind_is_held_in_each_spelling_and_an_unknown_one_holds_everything() {
    let spellings = [
        ("replicasets.apps", "apps", "replicasets"),
        ("replicasets", "apps", "replicasets"),
        ("replicaset", "apps", "replicasets"),
        ("ReplicaSet", "apps", "replicasets"),
        ("ReplicaSets.apps", "apps", "replicasets"),
        ("rs", "apps", "replicasets"),
        ("rs.apps", "apps", "replicasets"),
        ("RS", "apps", "replicasets"),
        ("deploy", "apps", "deployments"),
        ("deployment", "apps", "deployments"),
        ("deploy.apps", "apps", "deployments"),
        ("deployments.v1.apps", "apps", "deployments"),
        ("deploy.v1beta1.apps", "apps", "deployments"),
        ("Deployment.v1.apps", "apps", "deployments"),
        ("pods", "", "pods"),
        ("pod", "", "pods"),
        ("Pod", "", "pods"),
        ("po", "", "pods"),
        ("pods.v1", "", "pods"),
        ("pvc", "", "persistentvolumeclaims"),
        ("PersistentVolumeClaim", "", "persistentvolumeclaims"),
        ("rollout", "example.com", "rollouts"),
        ("ro.example.com", "example.com", "rollouts"),
    ];
    for (spelling, group, resource) in spellings {
        let mut bench = Bench::synced();
        serve_workloads(&mut bench);
        let scope = Scope {
            targets: vec![Filter { resources: vec![written(spelling)], namespaces: vec![], ..Filter::default() }],
        };
        let canonical = GroupResource { group: group.into(), resource: resource.into() };
        let wanted =
            Scope { targets: vec![Filter { resources: vec![canonical], namespaces: vec![], ..Filter::default() }] };
        assert_eq!(bench.leader.queries().resolve_scope(&scope), Ok(wanted.clone()), "{spelling}");
        bench.input(Input::GuardSeen(Guard { scope, ..pause("p", 110) }));
        let view = &bench.leader.queries().guards()[0];
        assert_eq!((&view.scope, view.problem.as_str()), (&wanted, ""), "{spelling}");
    }
    for spelling in ["nonsense", "deploy.extensions", "rs.v1", "pods.apps", "podz"] {
        let mut bench = Bench::synced();
        serve_workloads(&mut bench);
        let scope = Scope {
            targets: vec![Filter { resources: vec![written(spelling)], namespaces: vec![], ..Filter::default() }],
        };
        let refused = bench.leader.queries().resolve_scope(&scope).unwrap_err();
        assert!(refused.contains(&written(spelling).to_string()), "{refused}");
        bench.input(Input::GuardSeen(Guard { scope, ..pause("p", 110) }));
        let view = &bench.leader.queries().guards()[0];
        assert_eq!(view.scope, Scope::default(), "{spelling}: what cannot be read holds everything");
        assert!(view.problem.contains("holds everything"), "{}", view.problem);
    }
}

#[test]
fn a_pause_of_a_kind_that_comes_later_holds_everything_until_then_and_that_kind_afterwards() {
    let mut bench = Bench::cascade(1, 10);
    let lease = bench.take("d0");
    bench.report(&lease, Outcome::Done);
    let scope =
        Scope { targets: vec![Filter { resources: vec![written("ro")], namespaces: vec![], ..Filter::default() }] };
    bench.input(Input::GuardSeen(Guard { scope, ..pause("p", 110) }));
    bench.seen("configmaps", object("configmaps", "late", 112).owned_by("things", "o"));
    assert_eq!(bench.grants(), Vec::<String>::new(), "everything is held");
    serve_workloads(&mut bench);
    assert_eq!(bench.leader.queries().guards()[0].problem, "");
    assert_eq!(bench.grants(), ["delete(Background) late"], "ConfigMaps are none of it");
    bench.input(Input::KindUnserved(written("rollouts.example.com")));
    assert_eq!(bench.leader.queries().guards()[0].problem, "", "what a name meant, it goes on to mean");
}

#[test]
fn what_is_not_there_is_no_scope() {
    let mut bench = Bench::synced();
    serve_workloads(&mut bench);
    let scope = |resources: &[&str], namespaces: &[&str]| {
        let resources = resources.iter().map(|name| written(name)).collect();
        let namespaces = namespaces.iter().map(|&name| name.into()).collect();
        Scope { targets: vec![Filter { resources, namespaces, ..Filter::default() }] }
    };
    assert!(
        bench.leader.queries().resolve_scope(&scope(&["po"], &["typo"])).is_ok(),
        "which namespaces there are is not known"
    );
    bench.serve("namespaces");
    bench.list("namespaces", 120, vec![object("namespaces", "ns", 90)]);
    assert!(bench.leader.queries().resolve_scope(&scope(&["po"], &["ns"])).is_ok());
    assert!(bench.leader.queries().resolve_scope(&scope(&["po"], &["typo"])).unwrap_err().contains("namespace typo"));
    assert!(
        bench.leader.queries().resolve_scope(&scope(&["nodes"], &["ns"])).unwrap_err().contains("are cluster-scoped")
    );
    let unknown = Bench::without_executor();
    assert!(unknown.leader.queries().resolve_scope(&scope(&["po"], &["ns"])).is_ok(), "nothing is known yet");
}

#[test]
fn an_owner_that_is_not_there_is_no_scope() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let below = |resource: &str, namespace: &str, name: &str, uid: Option<Uid>| {
        let owner = OwnerScope { resource: written(resource), namespace: namespace.into(), name: name.into(), uid };
        Scope { targets: vec![Filter { owner: Some(owner), ..Filter::default() }] }
    };
    let resolved = |scope: &Scope| bench.leader.queries().resolve_scope(scope);
    let there = resolved(&below("Thing", "ns", "o", None)).unwrap();
    assert_eq!(there, below("things.example.com", "ns", "o", None), "the resource has its name at the API server");
    assert!(resolved(&below("Thing", "ns", "o", Some(uid("o")))).is_ok());
    for absent in [
        below("Thing", "ns", "p", None),
        below("Thing", "", "o", None),
        below("Thing", "ns", "o", Some(uid("p"))),
        below("nodes", "", "o", None),
    ] {
        assert!(resolved(&absent).unwrap_err().contains("does not exist"), "{absent:?}");
    }
    assert!(resolved(&below("typo", "ns", "o", None)).unwrap_err().contains("names typo"));
}

#[test]
fn an_owner_that_is_gone_is_a_scope_by_its_uid() {
    for has_dependent in [true, false] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        if has_dependent {
            bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        }
        bench.deleted("things", "o", 103);
        let resolved = |uid: Option<Uid>| {
            let resource = written("things.example.com");
            let owner = Some(OwnerScope { resource, namespace: "ns".into(), name: "o".into(), uid });
            let scope = Scope { targets: vec![Filter { owner, ..Filter::default() }] };
            bench.leader.queries().resolve_scope(&scope)
        };
        assert!(resolved(None).unwrap_err().contains("does not exist"), "another object may get the name");
        assert!(resolved(Some(uid("other"))).unwrap_err().contains("does not exist"));
        assert!(resolved(Some(uid("o"))).is_ok(), "its cascade may go on: {has_dependent}");
    }
}

#[test]
fn a_scope_holds_what_is_in_it() {
    let covered = |edit: fn(Guard) -> Guard| {
        let mut bench = Bench::cascade(0, 100);
        bench.press(edit(pause("p", 1)));
        bench.seen("things", object("things", "o2", 110));
        bench.seen("configmaps", object("configmaps", "a", 111).owned_by("things", "o2"));
        bench.seen("things", object("things", "b", 112).owned_by("things", "o2"));
        bench.seen("nodes", object("nodes", "n1", 113));
        bench.seen("nodes", object("nodes", "n2", 114).owned_by("nodes", "n1"));
        bench.deleted("things", "o2", 115);
        bench.deleted("nodes", "n1", 116);
        let granted = bench.grants();
        granted.iter().map(|grant| grant.rsplit(' ').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(covered(|pause| pause), NOTHING);
    assert_eq!(covered(|pause| of_resources(&["configmaps"], pause)), ["b", "n2"]);
    assert_eq!(covered(|pause| of_namespace("ns", pause)), ["n2"], "cluster-scoped objects are in no namespace");
    assert_eq!(covered(|pause| of_namespace("other", pause)), ["a", "b", "n2"]);
    assert_eq!(covered(|pause| of_resources(&["nodes"], of_resources(&["things"], pause))), ["a"], "either will do");
    let both = |mut pause: Guard| {
        let things = vec![collection("things")];
        pause.scope.targets.push(Filter { resources: things, namespaces: vec!["other".into()], ..Filter::default() });
        pause
    };
    assert_eq!(covered(both), ["a", "b", "n2"], "both conditions of one filter have to be met");
}
