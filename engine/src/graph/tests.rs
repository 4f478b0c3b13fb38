//! The graph against the definition of what it should hold.

use super::*;
use crate::jitter::Jitter;
use crate::object::ServedKind;
use crate::object::{Access, Backend, GroupResource};
use crate::time::Time;
use alloc::format;

/// After every step: d is among o's dependents exactly as often as d's references lead to o, counts agree, and nothing unused stays.
fn check(graph: &Graph, seed: u64, step: usize) {
    let mut edges = 0;
    let mut expected: BTreeMap<NodeId, Vec<(NodeId, bool)>> = BTreeMap::new();
    for (id, node) in graph.iter() {
        let facts = node.facts().map_or(&[][..], |facts| &facts.owners);
        let owners: Vec<NodeId> = node.owners().collect();
        assert_eq!(owners.len(), facts.len(), "seed {seed} step {step}");
        edges += owners.len();
        for (owner, reference) in owners.into_iter().zip(facts) {
            assert_eq!(graph.node(owner).uid, reference.uid, "seed {seed} step {step}");
            assert_eq!(graph.node(owner).at.name, reference.name, "seed {seed} step {step}");
            expected.entry(owner).or_default().push((id, reference.blocks()));
        }
    }
    assert_eq!(edges, graph.edge_count(), "seed {seed} step {step}");
    for (id, node) in graph.iter() {
        let mut known: Vec<NodeId> = node.dependents().collect();
        let wanted = expected.remove(&id).unwrap_or_default();
        let blocking = wanted.iter().filter(|(_, blocks)| *blocks).count();
        let mut wanted: Vec<NodeId> = wanted.into_iter().map(|(id, _)| id).collect();
        known.sort();
        wanted.sort();
        assert_eq!(known, wanted, "seed {seed} step {step}");
        assert_eq!(node.blocking_count(), blocking, "seed {seed} step {step}");
        assert!(node.observed().is_some() || !known.is_empty(), "seed {seed} step {step}: an unused node stayed");
        assert!(graph.by_uid(&node.uid).contains(&id), "seed {seed} step {step}");
    }
}

/// After every step the graph holds what a list of objects holds: these observed, and besides only what they refer to.
fn compare(graph: &Graph, naive: &BTreeMap<Uid, Object>, kind: KindId, seed: u64, step: usize) {
    let mut expected: BTreeMap<(Uid, Name), (bool, Vec<Name>)> = BTreeMap::new();
    for object in naive.values() {
        let own = expected.entry((object.uid.clone(), object.name.clone())).or_default();
        own.0 = true;
        for owner in object.facts.owners.iter() {
            let to = expected.entry((owner.uid.clone(), owner.name.clone())).or_default();
            to.1.push(object.name.clone());
        }
    }
    assert_eq!(graph.len(), expected.len(), "seed {seed} step {step}");
    assert_eq!(graph.unobserved_count(), expected.len() - naive.len(), "seed {seed} step {step}");
    for ((uid, name), (observed, mut dependents)) in expected {
        let at = Coordinates { kind, namespace: "ns".into(), name };
        let id = graph.find(&uid, &at).unwrap_or_else(|| panic!("seed {seed} step {step}: no {at:?}"));
        assert_eq!(graph.node(id).observed().is_some(), observed, "seed {seed} step {step}");
        let mut known: Vec<Name> = graph.node(id).dependents().map(|of| graph.node(of).at.name.clone()).collect();
        known.sort();
        dependents.sort();
        assert_eq!(known, dependents, "seed {seed} step {step}");
    }
}

#[test]
fn edges_are_the_same_from_both_ends_after_any_history() {
    for seed in 0..200 {
        let mut random = Jitter::new(seed);
        let mut coverage = Coverage::default();
        let kind = coverage.serve(
            Time::ZERO,
            ServedKind {
                group_resource: GroupResource { group: "".into(), resource: "things".into() },
                kind: "Thing".into(),
                version: "v1".into(),
                namespaced: true,
                access: Access::Watched,
                backend: Backend::Main,
            },
        );
        let mut graph = Graph::default();
        let mut naive = BTreeMap::new();
        let name = |number: u64| Name::from(format!("n{number}"));
        for step in 0..100 {
            let which = random.next() % 8;
            let uid = Uid::parse(&name(which)).expect("a name is not empty");
            let at = Coordinates { kind, namespace: "ns".into(), name: name(which) };
            if random.next().is_multiple_of(3) {
                if let Some(id) = graph.find(&uid, &at).filter(|&id| graph.node(id).observed().is_some()) {
                    graph.remove(id, None);
                    naive.remove(&uid);
                }
            } else {
                let owners = (0..random.next() % 4).map(|_| {
                    let owner = random.next() % 8;
                    // Now and then another name for the same uid.
                    let shown = if random.next().is_multiple_of(5) { owner + 10 } else { owner };
                    OwnerReference {
                        api_version: "v1".into(),
                        kind: "Thing".into(),
                        name: name(shown),
                        uid: Uid::parse(&name(owner)).expect("a name is not empty"),
                        controller: None,
                        block_owner_deletion: (random.next().is_multiple_of(2)).then_some(true),
                    }
                });
                let facts = Facts { owners: owners.collect(), ..Facts::default() };
                let resource_version = ResourceVersion::parse("1");
                let object = Object { uid, namespace: "ns".into(), name: name(which), resource_version, facts };
                naive.insert(object.uid.clone(), object.clone());
                graph.upsert(&mut coverage, kind, 1, object);
            }
            check(&graph, seed, step);
            compare(&graph, &naive, kind, seed, step);
            graph.take_dropped();
        }
    }
}
