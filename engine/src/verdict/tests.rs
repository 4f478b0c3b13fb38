//! Small worlds as text, and the verdict on each object.
//!
//! One object on each line: `kind name [state…] [-> owner…]`. `thing` and `map` are namespaced, `node` is not. States:
//! `foreground`, `orphan` (terminating with that finalizer), `terminating`, `held`, `gone` (proven absent),
//! `wants-orphan`, `wants-foreground` (the finalizer without the deletion mark). An owner is `kind/name`, with `!` for
//! a blocking reference; `kind` may be `unknown`.

use super::*;
use crate::evidence::Proof;
use crate::graph::Coordinates;
use crate::jitter::Rng;
use crate::object::{
    Access, Backend, FOREGROUND_FINALIZER, GroupResource, Name, ORPHAN_FINALIZER, Object, ResourceVersion, ServedKind,
    Uid,
};
use crate::object::{Facts, OwnerReference};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};

const KINDS: [(&str, &str, bool); 3] = [("thing", "Thing", true), ("map", "Map", true), ("node", "Node", false)];

fn served(word: &str) -> Option<ServedKind> {
    let (resource, kind, namespaced) = KINDS.into_iter().find(|(resource, ..)| *resource == word)?;
    Some(ServedKind {
        group_resource: GroupResource { group: "".into(), resource: resource.into() },
        kind: kind.into(),
        version: "v1".into(),
        other_versions: Vec::new(),
        split: false,
        namespaced,
        access: Access::Watched,
        backend: Backend::Main,
        deletable: true,
        names: Default::default(),
    })
}

#[derive(Clone, Debug)]
struct Line {
    kind: String,
    object: Object,
    gone: bool,
}

fn parse(line: &str) -> Line {
    let (head, owners) = line.split_once(" -> ").unwrap_or((line, ""));
    let mut words = head.split_whitespace();
    let (kind, name) = (words.next().unwrap(), words.next().unwrap());
    let mut facts = Facts::default();
    let mut gone = false;
    let mut finalizers: Vec<Name> = Vec::new();
    for state in words {
        facts.terminating |= matches!(state, "foreground" | "orphan" | "terminating");
        match state {
            "foreground" | "wants-foreground" => finalizers.push(FOREGROUND_FINALIZER.into()),
            "orphan" | "wants-orphan" => finalizers.push(ORPHAN_FINALIZER.into()),
            "terminating" => finalizers.push("example.com/wait".into()),
            "held" => facts.hold = true,
            "gone" => gone = true,
            other => panic!("no state {other}"),
        }
    }
    facts.finalizers = finalizers.into();
    facts.owners = owners
        .split_whitespace()
        .map(|owner| {
            let (kind, name) = owner.trim_end_matches('!').split_once('/').unwrap();
            OwnerReference {
                api_version: "v1".into(),
                kind: served(kind).map_or_else(|| "Unknown".into(), |served| served.kind),
                name: name.into(),
                uid: Uid::parse(name).unwrap(),
                controller: None,
                block_owner_deletion: owner.ends_with('!').then_some(true),
            }
        })
        .collect();
    let namespace = if kind == "node" { "" } else { "ns" };
    let object = Object {
        marks: Default::default(),
        uid: Uid::parse(name).unwrap(),
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion::parse("1"),
        facts,
    };
    Line { kind: kind.to_string(), object, gone }
}

/// Builds the world in the order of its lines, and returns each object's verdict.
fn judge(lines: &[Line], kinds_first: bool) -> BTreeMap<String, String> {
    let mut coverage = Coverage::default();
    let mut graph = Graph::new(false, 7);
    let serve = |coverage: &mut Coverage, graph: &mut Graph| {
        for (word, ..) in KINDS {
            let id = coverage.serve(Time::ZERO, served(word).unwrap());
            coverage.end_list(Time::ZERO, id, ResourceVersion::parse("1"));
            for owner in graph.unobserved(id).collect::<Vec<_>>() {
                if graph.get(owner).is_some() {
                    graph.relink_dependents(coverage, owner);
                }
            }
        }
    };
    if kinds_first {
        serve(&mut coverage, &mut graph);
    }
    let mut names = Vec::new();
    for line in lines.iter().filter(|line| !line.gone) {
        let kind = coverage.kind_id("", &served(&line.kind).unwrap().kind);
        let (id, _) = graph.upsert(&mut coverage, kind, 1, line.object.clone());
        names.push((line.object.name.to_string(), id));
        graph.take_dropped();
    }
    if !kinds_first {
        serve(&mut coverage, &mut graph);
    }
    for line in lines.iter().filter(|line| line.gone) {
        let kind = coverage.kind_id("", &served(&line.kind).unwrap().kind);
        let at = Coordinates { kind, namespace: line.object.namespace.clone(), name: line.object.name.clone() };
        if let Some(id) = graph.find(&line.object.uid, &at) {
            let proof = Proof::WatchDeleted { resource_version: ResourceVersion::parse("2") };
            graph.set_absent(id, proof);
        }
    }
    graph.find_knots();
    names.into_iter().map(|(name, id)| (name, describe(&graph, &verdict(&graph, &coverage, id), id))).collect()
}

fn describe(graph: &Graph, verdict: &Verdict, id: NodeId) -> String {
    let owners = graph.node(id).facts().unwrap().owners;
    let names = |places: &[usize]| -> String {
        places.iter().map(|&at| format!(" {}", owners[at].name)).collect::<Vec<_>>().concat()
    };
    let dropping = |drop: &[usize]| if drop.is_empty() { String::new() } else { format!(", drops{}", names(drop)) };
    match verdict {
        Verdict::NotObserved => "not observed".to_string(),
        Verdict::Unowned => "unowned".to_string(),
        Verdict::Kept { drop } => format!("kept{}", dropping(drop)),
        Verdict::Undecided(why) => format!("undecided: {}", why.as_str()),
        Verdict::Held(_) => "held".to_string(),
        Verdict::Terminating { drop } => format!("terminating{}", dropping(drop)),
        Verdict::Foreground { blocking, drop, unblock } => {
            let unblock = if unblock.is_empty() { String::new() } else { format!(", unblocks{}", names(unblock)) };
            format!("foreground, {blocking} block{}{unblock}", dropping(drop))
        }
        Verdict::Orphaning { dependents, drop } => format!("orphaning, {dependents} left{}", dropping(drop)),
        Verdict::Collectable(how) => {
            let policy = format!("{:?}", how.propagation_policy).to_lowercase();
            let waiting =
                if how.waiting.is_empty() { String::new() } else { format!(" if{} waits", names(&how.waiting)) };
            let unblock =
                if how.unblock.is_empty() { String::new() } else { format!(", unblocks{}", names(&how.unblock)) };
            format!("goes, {policy}{waiting}{unblock}")
        }
    }
}

/// The world, followed by one line `name: verdict` for each relevant object. Every order of the lines must give the
/// same verdicts.
fn check(world: &str, expected: &str) {
    let lines: Vec<Line> = world.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect();
    let expected: BTreeMap<String, String> = expected
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(name, verdict)| (name.to_string(), verdict.to_string()))
        .collect();
    for seed in 0..24_u64 {
        let mut random = Rng::new(seed);
        let mut shuffled = lines.clone();
        for at in (1..shuffled.len()).rev() {
            let other = usize::try_from(random.next() % (at as u64 + 1)).unwrap();
            shuffled.swap(at, other);
        }
        let found = judge(&shuffled, seed % 2 == 0);
        for (name, verdict) in &expected {
            assert_eq!(found.get(name), Some(verdict), "{name}, seed {seed}, in\n{world}");
        }
    }
}

#[test]
fn one_solid_owner_keeps_and_what_is_dead_is_dropped() {
    check(
        "thing o
         thing dead gone
         thing leaving foreground
         thing busy terminating
         map alone
         map kept -> thing/o
         map mixed -> thing/dead thing/o thing/leaving!
         map busy-owner -> thing/busy",
        "alone: unowned
         kept: kept
         mixed: kept, drops dead leaving
         busy-owner: kept",
    );
}

#[test]
fn without_a_solid_owner_the_unverified_one_decides_before_the_dead() {
    check(
        "thing dead gone
         map nobody-knows -> thing/never
         map both -> thing/dead thing/never
         map no-such-kind -> thing/dead unknown/x
         map but-kept -> unknown/x thing/o thing/dead
         thing o",
        "nobody-knows: undecided: owner_unverified
         both: undecided: owner_unverified
         no-such-kind: undecided: owner_kind_unresolved
         but-kept: kept, drops dead",
    );
}

#[test]
fn an_object_goes_by_the_policy_its_own_finalizers_ask_for() {
    check(
        "thing dead gone
         map plain -> thing/dead
         map orphaning wants-orphan -> thing/dead
         map waiting wants-foreground -> thing/dead
         map held held -> thing/dead
         map going terminating -> thing/dead",
        "plain: goes, background
         orphaning: goes, orphan
         waiting: goes, foreground
         held: held
         going: terminating",
    );
}

#[test]
fn under_a_waiting_owner_inner_nodes_go_in_foreground_and_leaves_in_background() {
    check(
        "thing root foreground
         map inner -> thing/root!
         map leaf -> map/inner!
         map free -> thing/root",
        "root: foreground, 1 block
         inner: goes, foreground if root waits
         leaf: kept
         free: goes, background if root waits",
    );
}

#[test]
fn only_references_inside_a_real_cycle_are_unblocked() {
    check(
        "map a foreground -> map/c!
         map b -> map/a!
         map c -> map/b!",
        "b: goes, foreground if a waits",
    );
    check(
        "map a foreground -> map/c!
         map b foreground -> map/a!
         map c -> map/b!
         map tail -> map/b!",
        "c: goes, foreground if b waits, unblocks b
         b: foreground, 2 block
         tail: goes, background if b waits",
    );
    check(
        "map a foreground -> map/c!
         map b foreground -> map/a!
         map c foreground -> map/b!",
        "a: foreground, 1 block, unblocks c
         b: foreground, 1 block
         c: foreground, 1 block",
    );
    check("map self foreground -> map/self!", "self: foreground, 1 block, unblocks self");
    check(
        "thing root foreground
         map left -> thing/root!
         map right -> thing/root! map/left
         map below -> map/right!",
        "left: goes, foreground if root waits
         right: kept, drops root",
    );
    check(
        "map a foreground -> map/b
         map b -> map/a!",
        "b: goes, foreground if a waits",
    );
}

#[test]
fn orphaning_owners_take_the_reference_and_not_the_life() {
    check(
        "thing o orphan
         thing dead gone
         map a -> thing/o!
         map b terminating -> thing/o
         map c -> thing/o thing/dead",
        "o: orphaning, 3 left
         a: kept, drops o
         b: terminating, drops o
         c: kept, drops o dead",
    );
    check(
        "thing o orphan
         map asked -> thing/o thing/never
         map unservable -> thing/o unknown/x
         map solid -> thing/o thing/never thing/other
         thing other",
        "o: orphaning, 3 left
         asked: undecided: owner_unverified
         unservable: kept, drops o
         solid: kept, drops o",
    );
}

#[test]
fn a_cluster_scoped_object_never_goes_for_a_namespaced_owner() {
    check(
        "thing dead gone
         node n -> thing/dead
         node m -> node/lost thing/dead
         node lost gone
         node o -> node/lost
         map p -> node/lost",
        "n: kept
         m: kept
         o: goes, background
         p: goes, background",
    );
}
