//! `cargo bench -p graph-service --bench graph`: the bytes and the time of a graph of a million objects. `OBJECTS=n`
//! sets the number; ten million need 3 GiB. `GUARDS=n` has this many Protections with label selectors. `JSON=FILE`
//! writes the bytes for each object and the longest batch to that file.
//!
//! The objects have the shape of Deployments: nine of fourteen have an owner. They arrive in a random order, so half of
//! the dependents precede their owner. Each input goes through the whole machine of a replica that does not lead,
//! including the verdict.

use engine::jitter::Rng;
use engine::leader::{Input, Leader};
use engine::object::{
    Access, Backend, Facts, GroupResource, Name, Object, OwnerReference, ResourceVersion, ServedKind, Uid,
};
use engine::scope::Labelled;
use engine::selectors::{Matcher, Table};
use engine::time::Time;
use replica::{guard, handle, timed};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

#[path = "../../engine/benches/shared/replica.rs"]
mod replica;

/// The allocator of the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 1_000_000;
const BATCH: usize = 1_000;
const NAMESPACES: usize = 2_000;
/// The objects of one application: kind, the place of the owner among them, name.
const APPLICATION: [(usize, Option<usize>, &str); 14] = [
    (0, None, ""),
    (1, Some(0), "-6d4cf56db6"),
    (1, Some(0), "-7f9c8d5b4a"),
    (1, Some(0), "-85bdb9c9f7"),
    (2, Some(1), "-6d4cf56db6-2xk8q"),
    (2, Some(1), "-6d4cf56db6-p9d4m"),
    (2, Some(1), "-6d4cf56db6-vw7zt"),
    (2, Some(2), "-7f9c8d5b4a-hk2lp"),
    (2, Some(3), "-85bdb9c9f7-qq8rs"),
    (3, None, ""),
    (4, Some(9), "-x8k2p"),
    (5, None, "-settings"),
    (6, None, "-credentials"),
    (7, None, ""),
];
const KINDS: [(&str, &str, &str, &str); 8] = [
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "pods", "Pod"),
    ("", "v1", "services", "Service"),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "secrets", "Secret"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
];

fn main() -> io::Result<()> {
    // `cargo test --benches` also starts benchmarks, which must not take time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let (objects, guards) = (number("OBJECTS", OBJECTS), number("GUARDS", 0));
    let mut out = io::stderr().lock();
    let applications = objects.div_ceil(APPLICATION.len());
    let objects = applications * APPLICATION.len();
    let order = shuffled(objects);
    let by_application = shuffled(applications);
    let mut leader = leader();
    let before = resident();
    let table = guard(&mut leader, guards);
    let selectors = table.generation();
    let mut names = Names::new(table);
    writeln!(out, "{objects} objects, {:<20}{:>12}{:>16}{:>16}", "", "inputs/s", "worst batch", "bytes/object")?;
    let tell = |out: &mut dyn Write, what: &str, ran: &Ran| {
        let (rate, worst) = (ran.inputs as f64 / ran.took.as_secs_f64(), ran.worst.as_secs_f64() * 1e3);
        let bytes = resident().saturating_sub(before) as f64 / objects as f64;
        writeln!(out, "{what:<36}{rate:>12.0}{worst:>13.1} ms{bytes:>16.0}")
    };

    for kind in KINDS {
        handle(&mut leader, Input::ListBegun { collection: collection(kind), selectors });
    }
    let listed = order.iter().map(|&number| {
        let (collection, object) = names.object(number as usize, 1);
        Input::Listed { collection, object }
    });
    let ran = run(&mut leader, listed);
    tell(&mut out, "listed", &ran)?;
    let bytes = resident().saturating_sub(before) as f64 / objects as f64;
    let mut worst = ran.worst;
    for kind in KINDS {
        let resource_version = ResourceVersion::parse("2");
        handle(&mut leader, Input::ListEnded { collection: collection(kind), resource_version });
    }
    let seen = order.iter().map(|&number| {
        let (collection, object) = names.object(number as usize, 3);
        Input::Seen { collection, object }
    });
    let ran = run(&mut leader, seen);
    tell(&mut out, "seen again, with nothing new", &ran)?;
    worst = worst.max(ran.worst);
    // One application after the other: owners first, then their dependents.
    let ends = by_application.iter().flat_map(|&application| {
        let first = application as usize * APPLICATION.len();
        first..first + APPLICATION.len()
    });
    let deleted = ends.map(|number| {
        let (collection, object) = names.object(number, 4);
        Input::Deleted { collection, object }
    });
    let ran = run(&mut leader, deleted);
    tell(&mut out, "deleted, owners first", &ran)?;
    worst = worst.max(ran.worst);
    let again = order.iter().map(|&number| {
        let (collection, object) = names.object(number as usize + objects, 5);
        Input::Seen { collection, object }
    });
    let ran = run(&mut leader, again);
    tell(&mut out, "others in their place", &ran)?;
    worst = worst.max(ran.worst);
    let status = leader.queries().status();
    writeln!(out, "in the end {} nodes, {} references", status.nodes, status.edges)?;
    let Some(path) = std::env::var_os("JSON") else { return Ok(()) };
    // Cargo runs benchmarks in the directory of their crate.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    // The engine has no library to write this.
    let worst = worst.as_secs_f64() * 1e3;
    let json = format!(
        r#"{{"bench":"graph","objects":{objects},"guards":{guards},"bytesPerObject":{bytes:.1},"worstBatchMillis":{worst:.3}}}"#
    );
    std::fs::write(path, json + "\n")
}

#[derive(Debug, Default)]
struct Ran {
    inputs: usize,
    took: Duration,
    worst: Duration,
}

/// Handles all inputs in batches. Their creation is not measured.
fn run(leader: &mut Leader, inputs: impl Iterator<Item = Input>) -> Ran {
    let mut ran = Ran::default();
    let mut inputs = inputs.peekable();
    while inputs.peek().is_some() {
        let batch: Vec<Input> = inputs.by_ref().take(BATCH).collect();
        ran.inputs += batch.len();
        let ((), took) = timed(|| {
            leader.prefetch(&batch);
            batch.into_iter().for_each(|input| leader.handle(Time::ZERO, input));
            while leader.poll().is_some() {}
        });
        ran.took += took;
        ran.worst = ran.worst.max(took);
    }
    ran
}

/// Resident bytes of this process.
fn resident() -> usize {
    let told = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or_default() * 1024
}

fn leader() -> Leader {
    let mut leader = replica::leader();
    for (group, version, resource, kind) in KINDS {
        let served = ServedKind {
            group_resource: GroupResource { group: group.into(), resource: resource.into() },
            kind: kind.into(),
            version: version.into(),
            other_versions: Vec::new(),
            split: false,
            namespaced: true,
            access: Access::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Default::default(),
        };
        handle(&mut leader, Input::KindServed(served));
    }
    leader
}

fn collection((group, _, resource, _): (&str, &str, &str, &str)) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

/// Names that objects share, as in a decoder.
struct Names {
    namespaces: Vec<Name>,
    collections: Vec<GroupResource>,
    kinds: Vec<(Name, Name)>,
    matcher: Matcher,
}

impl Names {
    fn new(table: Arc<Table>) -> Names {
        let api_version = |group: &str, version: &str| {
            Name::from(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") })
        };
        Names {
            namespaces: (0..NAMESPACES).map(|number| Name::from(format!("team-{number}"))).collect(),
            collections: KINDS.into_iter().map(collection).collect(),
            kinds: KINDS
                .into_iter()
                .map(|(group, version, _, kind)| (api_version(group, version), kind.into()))
                .collect(),
            matcher: Matcher::new(table),
        }
    }

    fn object(&mut self, number: usize, version: u64) -> (GroupResource, Object) {
        let (application, place) = (number / APPLICATION.len(), number % APPLICATION.len());
        let (app, team) = (format!("value-{}", application % NAMESPACES), if place < 4 { "shop" } else { "value-5" });
        for (key, value) in [("app", &*app), ("example.com/team", team)] {
            if let Some(key) = self.matcher.wants(Labelled::Label, key) {
                self.matcher.take(key, value);
            }
        }
        let (kind, owner, _) = APPLICATION[place];
        let reference = |place: usize| {
            let (api_version, kind) = &self.kinds[APPLICATION[place].0];
            OwnerReference {
                api_version: api_version.clone(),
                kind: kind.clone(),
                name: name(application, place),
                uid: uid(number - number % APPLICATION.len() + place),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }
        };
        let object = Object {
            marks: self.matcher.finish(),
            uid: uid(number),
            namespace: self.namespaces[application % NAMESPACES].clone(),
            name: name(application, place),
            resource_version: ResourceVersion::parse(&version.to_string()),
            facts: Facts { owners: owner.into_iter().map(reference).collect(), ..Facts::default() },
        };
        (self.collections[kind].clone(), object)
    }
}

fn name(application: usize, place: usize) -> Name {
    Name::from(format!("application-{application:06}{}", APPLICATION[place].2))
}

/// As random as a real uid.
fn uid(number: usize) -> Uid {
    let (high, low) = (mixed(number as u64), mixed(!(number as u64)));
    let text = format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    );
    Uid::parse(&text).expect("it is not empty")
}

fn mixed(number: u64) -> u64 {
    Rng::new(number).next()
}

/// The numbers below `count` in a random and reproducible order.
fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(count).expect("fewer than 2^32 objects")).collect();
    for at in (1..count).rev() {
        order.swap(at, mixed(at as u64) as usize % (at + 1));
    }
    order
}
