//! Compares the graph with the definition of its content.

use super::*;
use crate::evidence::Presence;
use crate::jitter::Rng;
use crate::object::{Access, Backend, GroupResource};
use crate::object::{Facts, OwnerReference, ServedKind};
use crate::time::Time;
use alloc::format;
use core::num::NonZeroU32;

/// After every step: d is among o's dependents once for each of d's references to o, counts agree, and nothing unused
/// stays.
fn check(graph: &Graph, seed: u64, step: usize) {
    let mut edges = 0;
    let mut expected: BTreeMap<NodeId, Vec<(NodeId, bool)>> = BTreeMap::new();
    for (id, node) in graph.iter() {
        edges += node.owners().len();
        for reference in node.references() {
            expected.entry(reference.owner()).or_default().push((id, reference.blocks()));
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
        assert!(node.is_observed() || !known.is_empty(), "seed {seed} step {step}: an unused node stayed");
        assert_eq!(graph.by_uid(&node.uid()).filter(|&other| other == id).count(), 1, "seed {seed} step {step}");
    }
}

/// After every step the graph holds exactly these observed objects, and the objects that they refer to.
fn compare(graph: &Graph, naive: &BTreeMap<Uid, Object>, kind: KindId, seed: u64, step: usize) {
    let mut expected: BTreeMap<(Uid, Name), (bool, Vec<Name>)> = BTreeMap::new();
    for object in naive.values() {
        let own = expected.entry((object.uid.clone(), object.name.clone())).or_default();
        own.0 = true;
        let at = Coordinates { kind, namespace: "ns".into(), name: object.name.clone() };
        let id = graph.find(&object.uid, &at).expect("an object is in the graph");
        let shown = Presence::Observed { resource_version: object.resource_version.clone() };
        let node = graph.node(id);
        assert_eq!(node.presence(), shown, "seed {seed} step {step}");
        assert_eq!((node.facts().as_ref(), node.list()), (Some(&object.facts), Some(1)), "seed {seed} step {step}");
        for owner in object.facts.owners.iter() {
            let to = expected.entry((owner.uid.clone(), owner.name.clone())).or_default();
            to.1.push(object.name.clone());
        }
    }
    assert_eq!(graph.inconsistency(), None, "seed {seed} step {step}");
    assert_eq!(graph.len(), expected.len(), "seed {seed} step {step}");
    assert_eq!(graph.unobserved_count(), expected.len() - naive.len(), "seed {seed} step {step}");
    for ((uid, name), (observed, mut dependents)) in expected {
        let at = Coordinates { kind, namespace: "ns".into(), name };
        let id = graph.find(&uid, &at).unwrap_or_else(|| panic!("seed {seed} step {step}: no {at:?}"));
        assert_eq!(graph.node(id).is_observed(), observed, "seed {seed} step {step}");
        let mut known: Vec<Name> = graph.node(id).dependents().map(|of| Name::from(graph.node(of).name())).collect();
        known.sort();
        dependents.sort();
        assert_eq!(known, dependents, "seed {seed} step {step}");
    }
}

#[test]
fn edges_are_the_same_from_both_ends_after_any_history() {
    for seed in 0..200 {
        let mut random = Rng::new(seed);
        let mut coverage = Coverage::default();
        let kind = coverage.serve(
            Time::ZERO,
            ServedKind {
                group_resource: GroupResource { group: "".into(), resource: "things".into() },
                kind: "Thing".into(),
                version: "v1".into(),
                other_versions: Vec::new(),
                split: false,
                namespaced: true,
                access: Access::Watched,
                backend: Backend::Main,
                deletable: true,
                names: Default::default(),
            },
        );
        let mut graph = Graph::new(false, seed);
        let mut naive = BTreeMap::new();
        // One of them longer than Kubernetes allows.
        let name = |number: u64| Name::from(if number == 3 { "n".repeat(300) } else { format!("n{number}") });
        // Every other one in canonical form.
        let uid = |number: u64| {
            let text = format!("{number:08x}-0000-4000-8000-000000000000");
            Uid::parse(if number.is_multiple_of(2) { &text } else { &text[..8] }).expect("it is not empty")
        };
        for step in 0..100 {
            let which = random.next() % 8;
            let its = uid(which);
            let at = Coordinates { kind, namespace: "ns".into(), name: name(which) };
            if random.next().is_multiple_of(3) {
                if let Some(id) = graph.find(&its, &at).filter(|&id| graph.node(id).is_observed()) {
                    graph.remove(id, None);
                    naive.remove(&its);
                }
            } else {
                let owners = (0..random.next() % 4).map(|_| {
                    let owner = random.next() % 8;
                    // Sometimes another name for the same uid.
                    let shown = if random.next().is_multiple_of(5) { owner + 10 } else { owner };
                    OwnerReference {
                        api_version: "v1".into(),
                        kind: "Thing".into(),
                        name: name(shown),
                        uid: uid(owner),
                        controller: [None, Some(false), Some(true)][(random.next() % 3) as usize],
                        block_owner_deletion: (random.next().is_multiple_of(2)).then_some(true),
                    }
                });
                let owners = owners.collect();
                let finalizers = (0..random.next() % 3).map(|number| ["a", "orphan", "b"][number as usize].into());
                let facts = Facts {
                    owners,
                    finalizers: finalizers.collect(),
                    terminating: random.next().is_multiple_of(2),
                    hold: random.next().is_multiple_of(2),
                    excess: None,
                    deletion_time: NonZeroU32::new(random.next() as u32 % 3),
                };
                let version = ["1", "18446744073709551616", "", "01", "77"][(random.next() % 5) as usize];
                let resource_version = ResourceVersion::parse(version);
                let object = Object {
                    uid: its,
                    namespace: "ns".into(),
                    name: name(which),
                    resource_version,
                    facts,
                    marks: Default::default(),
                };
                let uids = object.facts.owners.iter().map(|owner| &owner.uid).chain([&object.uid]);
                let there = uids.filter(|uid| graph.by_uid(uid).next().is_some()).count();
                let fetched = graph.fetch([(kind, &object)].into_iter());
                // With such small secrets, some hashes collide.
                assert!(fetched >= there, "seed {seed} step {step}: {fetched} of {there}");
                naive.insert(object.uid.clone(), object.clone());
                graph.upsert(&mut coverage, kind, 1, object);
            }
            check(&graph, seed, step);
            compare(&graph, &naive, kind, seed, step);
            graph.take_dropped();
        }
        for id in graph.iter().filter(|(_, node)| node.is_observed()).map(|(id, _)| id).collect::<Vec<_>>() {
            graph.remove(id, None);
        }
        let kept = [
            graph.places.len(),
            graph.kinds.len(),
            graph.finalizers.len(),
            graph.uids.len(),
            graph.versions.len() + graph.deletion_times.len(),
        ];
        assert_eq!((graph.take_dropped().is_empty(), graph.len(), kept), (false, 0, [0; 5]), "seed {seed}");
    }
}
