//! `cargo bench -p ownergraph-engine --bench references`: the cost of a tenant's objects with very many
//! references for others.
//!
//! Ten such objects arrive at the same moment as the beginning of another cascade of three objects. The benchmark
//! measures a count above the limit, with which an object is kept, and the largest one below it, where each reference
//! leads to an unknown owner of its own.

use engine::leader::{Event, Input, Leader, Output};
use engine::object::{
    Access, Backend, Facts, GroupResource, Name, Object, OwnerReference, REFERENCES_MAX, ResourceVersion, ServedKind,
    Uid,
};
use engine::time::Time;
use replica::{handle, timed};
use std::io::{self, Write};
use std::time::Duration;

#[path = "shared/replica.rs"]
mod replica;

/// Objects of the tenant.
const HEAVY: usize = 10;
/// Cascades to measure, one after the other.
const CASCADES: usize = 20;

fn main() -> io::Result<()> {
    // `cargo test --benches` also starts benchmarks, which must not take time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut out = io::stderr().lock();
    writeln!(
        out,
        "{:<44}{:>12}{:>14}{:>10}",
        "ten objects beside a cascade of three", "cascade", "longest round", "memory"
    )?;
    for (what, references, same) in [
        ("none", 0, false),
        ("20,000 references each", 20_000, false),
        ("5,000 references each", REFERENCES_MAX, false),
        ("5,000 references each, all of one uid", REFERENCES_MAX, true),
        ("50,000 equal references each", 50_000, true),
    ] {
        let equal = references == 50_000;
        let mut world = World::new();
        let before = resident();
        let heavy: Vec<Object> = (0..HEAVY).map(|number| heavy(number, references, same, equal)).collect();
        let mut cascades: Vec<Duration> = (0..CASCADES).map(|number| world.cascade(number, &heavy)).collect();
        drop(heavy);
        cascades.sort_unstable();
        let memory = resident().saturating_sub(before) as f64 / 1e6;
        let longest = world.longest;
        writeln!(out, "{what:<44}{:>12.1?}{longest:>14.1?}{memory:>7.1} MB", cascades[CASCADES - 1])?;
    }
    Ok(())
}

struct World {
    leader: Leader,
    version: u64,
    longest: Duration,
}

impl World {
    fn new() -> World {
        let mut world = World { leader: replica::leader(), version: 100, longest: Duration::ZERO };
        for resource in ["configmaps", "widgets"] {
            handle(&mut world.leader, Input::KindServed(served(resource)));
            handle(&mut world.leader, Input::ListBegun { collection: collection(resource), selectors: 0 });
            let resource_version = ResourceVersion::parse("100");
            handle(&mut world.leader, Input::ListEnded { collection: collection(resource), resource_version });
        }
        world
    }

    /// The time from the deletion of the root to the last of three decisions, with the tenant's objects arriving at the
    /// same moment.
    fn cascade(&mut self, number: usize, heavy: &[Object]) -> Duration {
        let names: Vec<String> =
            ["root", "middle", "leaf", "last"].iter().map(|name| format!("{name}{number}")).collect();
        for (at, name) in names.iter().enumerate() {
            let owner = at.checked_sub(1).map(|above| reference(&names[above], &names[above]));
            self.seen(name, "ns", owner.into_iter().collect());
        }
        self.poll();
        for object in heavy {
            self.version += 1;
            let resource_version = ResourceVersion::parse(&self.version.to_string());
            let object = Object { resource_version, ..object.clone() };
            self.leader.handle(Time::ZERO, Input::Seen { collection: collection("configmaps"), object });
        }
        let mut whole = Duration::ZERO;
        for (at, name) in names.iter().enumerate().take(3) {
            self.version += 1;
            let object = object(name, "ns", self.version, Vec::new());
            self.leader.handle(Time::ZERO, Input::Deleted { collection: collection("configmaps"), object });
            let (decided, took) = timed(|| self.poll());
            assert!(decided.contains(&names[at + 1]), "{} is decided", names[at + 1]);
            self.longest = self.longest.max(took);
            whole += took;
        }
        whole
    }

    fn seen(&mut self, name: &str, namespace: &str, owners: Vec<OwnerReference>) {
        self.version += 1;
        let object = object(name, namespace, self.version, owners);
        self.leader.handle(Time::ZERO, Input::Seen { collection: collection("configmaps"), object });
    }

    /// Names of the decided objects.
    fn poll(&mut self) -> Vec<String> {
        let mut decided = Vec::new();
        while let Some(output) = self.leader.poll() {
            if let Output::Event(Event::Decided { target, .. }) = output {
                decided.push(target.name.to_string());
            }
        }
        decided
    }
}

fn heavy(number: usize, references: usize, same: bool, equal: bool) -> Object {
    let owner = |at: usize| {
        let uid = if same { "claimed".to_owned() } else { format!("{number}-{at}") };
        reference(&if equal { "ghost".to_owned() } else { format!("ghost{at}") }, &uid)
    };
    object(&format!("heavy{number}"), "tenant", 0, (0..references).map(owner).collect())
}

fn reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: name.into(),
        uid: Uid::parse(uid).expect("it is not empty"),
        controller: None,
        block_owner_deletion: None,
    }
}

fn object(name: &str, namespace: &str, version: u64, owners: Vec<OwnerReference>) -> Object {
    Object {
        marks: Default::default(),
        uid: Uid::parse(name).expect("it is not empty"),
        namespace: namespace.into(),
        name: Name::from(name),
        resource_version: ResourceVersion::parse(&version.to_string()),
        facts: Facts { owners: owners.into(), ..Facts::default() },
    }
}

fn served(resource: &str) -> ServedKind {
    let (group, kind) = if resource == "widgets" { ("example.com", "Widget") } else { ("", "ConfigMap") };
    ServedKind {
        group_resource: GroupResource { group: group.into(), resource: resource.into() },
        kind: kind.into(),
        version: "v1".into(),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        access: Access::Watched,
        backend: Backend::Main,
        deletable: true,
        names: Vec::new(),
    }
}

fn collection(resource: &str) -> GroupResource {
    served(resource).group_resource
}

/// Resident bytes of this process, on Linux.
fn resident() -> usize {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    told.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}
