//! `cargo bench -p ownergraph-engine --bench queries`: how long queries lock a graph of a million objects.
//! `OBJECTS=n` sets the number.
//!
//! As in the graph service, the graph is borrowed in steps. A decision waits for at most the longest of them.

use engine::leader::{CycleSearch, DependentsOptions, DependentsWalk, Input, Leader, Planning, Scan};
use engine::object::{
    Access, Backend, Facts, GroupResource, Name, Object, OwnerReference, ResourceVersion, ServedKind, Uid,
};
use engine::plan::PlanOptions;
use replica::{handle, timed};
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

#[path = "shared/replica.rs"]
mod replica;

const OBJECTS: usize = 1_000_000;
/// Dependents of an ordinary owner.
const FAMILY: usize = 100;
/// Objects below the root that is previewed.
const TREE: usize = 10_000;
/// Dependents of the one owner that has very many.
const CROWD: usize = 100_000;
/// The steps of the graph service: for expensive objects, for cheap ones, and for a stream of changes.
const STEP: usize = 500;
const SCAN_STEP: usize = 10_000;
const WATCH_STEP: usize = 250;
/// Questions of each small kind.
const ASKED: usize = 20_000;

fn main() -> io::Result<()> {
    // `cargo test --benches` also starts benchmarks, which must not take time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let objects: usize = std::env::var("OBJECTS").map_or(OBJECTS, |text| text.parse().expect("OBJECTS is a number"));
    assert!(
        objects >= 2 * (TREE + CROWD),
        "OBJECTS is {objects}, and the tree and the crowd alone have {}",
        TREE + CROWD
    );
    let mut out = io::stderr().lock();
    let begun = Instant::now();
    let (mut leader, families) = world(objects);
    let status = leader.queries().status();
    writeln!(out, "{} objects, {} references, listed in {:.1?}", status.nodes, status.edges, begun.elapsed())?;
    writeln!(out, "{:<34}{:>10}{:>10}{:>10}{:>14}", "", "p50", "p99", "longest", "longest hold")?;
    small(&mut leader, families, &mut out)?;
    large(&leader, &mut out)
}

/// Times of one kind of question, and its longest lock of the graph.
#[derive(Debug, Default)]
struct Times {
    whole: Vec<Duration>,
    hold: Duration,
}

impl Times {
    /// One lock of the graph.
    fn held<T>(&mut self, look: impl FnOnce() -> T) -> T {
        let (seen, held) = timed(|| black_box(look()));
        self.hold = self.hold.max(held);
        seen
    }

    fn asked<T>(&mut self, ask: impl FnOnce(&mut Times) -> T) -> T {
        let (answer, took) = timed(|| ask(self));
        self.whole.push(took);
        answer
    }

    fn tell(mut self, what: &str, out: &mut impl Write) -> io::Result<()> {
        self.whole.sort_unstable();
        let at = |percent: usize| self.whole[(self.whole.len() * percent / 100).min(self.whole.len() - 1)];
        let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
        writeln!(out, "{what:<34}{:>10}{:>10}{:>10}{:>14}", ms(at(50)), ms(at(99)), ms(at(100)), ms(self.hold))
    }
}

/// Questions about one object, while others change.
fn small(leader: &mut Leader, families: usize, out: &mut impl Write) -> io::Result<()> {
    let (mut get, mut find, mut dependents, mut explain, mut change) =
        (Times::default(), Times::default(), Times::default(), Times::default(), Times::default());
    for number in 0..ASKED {
        let owner = (number * 7919) % families;
        let child = uid(&format!("f{owner}-{}", number % FAMILY));
        assert_eq!(get.asked(|times| times.held(|| leader.queries().nodes(&child))).len(), 1);
        let name = format!("f{owner}-{}", number % FAMILY);
        assert_eq!(
            find.asked(|times| times.held(|| leader.queries().uids_at("", "Secret", "shop", &name, 10))).len(),
            1
        );
        assert!(explain.asked(|times| times.held(|| leader.queries().explain(&child))).is_some());
        let found = dependents.asked(|times| walk(leader, &format!("f{owner}"), 1, times));
        assert_eq!(found, FAMILY);
        // A child is written again.
        let version = OBJECTS + number;
        let name = format!("f{owner}-{}", (number + 1) % FAMILY);
        let object = object(&name, Some(&format!("f{owner}")), version);
        let seen = Input::Seen { collection: collection(), object };
        change.asked(|times| times.held(|| handle(leader, seen)));
    }
    get.tell("GetObject", out)?;
    find.tell("(an address looked up)", out)?;
    dependents.tell("ListDependents of 100", out)?;
    explain.tell("ExplainObject", out)?;
    change.tell("(a change of an object)", out)
}

/// Questions that read many objects.
fn large(leader: &Leader, out: &mut impl Write) -> io::Result<()> {
    let mut previews = Times::default();
    for _ in 0..20 {
        let entries = previews.asked(|times| preview(leader, "tree", times));
        assert_eq!(entries, TREE + 1);
    }
    previews.tell("PreviewDeletion of 10 000", out)?;
    let mut crowd = Times::default();
    for _ in 0..5 {
        assert_eq!(crowd.asked(|times| walk(leader, "crowd", 1, times)), CROWD);
    }
    crowd.tell("ListDependents of 100 000", out)?;
    let mut previews = Times::default();
    for _ in 0..3 {
        previews.asked(|times| preview(leader, "crowd", times));
    }
    previews.tell("PreviewDeletion of 100 000", out)?;
    let (mut stuck, mut cycles, mut export, mut follow) =
        (Times::default(), Times::default(), Times::default(), Times::default());
    let mut scan = Scan::default();
    stuck.asked(|times| while times.held(|| scan.stuck(&leader.queries(), STEP)).is_some() {});
    stuck.tell("FindStuckObjects", out)?;
    let mut search = CycleSearch::new(false);
    cycles.asked(|times| while !times.held(|| search.step(&leader.queries(), SCAN_STEP)) {});
    cycles.tell("FindCycles, its look at the graph", out)?;
    let mut scan = Scan::default();
    export.asked(|times| while times.held(|| scan.export(&leader.queries(), STEP)).is_some() {});
    export.tell("ExportGraph", out)?;
    follow.asked(|times| {
        let mut next = Some(0);
        while let Some(place) = next {
            let (uids, rest) = times.held(|| leader.queries().uids_from(place, STEP));
            next = rest;
            for step in uids.chunks(WATCH_STEP) {
                times.held(|| step.iter().filter_map(|uid| leader.queries().linked(uid)).count());
            }
        }
    });
    follow.tell("WatchDependents of everything", out)
}

fn walk(leader: &Leader, from: &str, max_depth: u32, times: &mut Times) -> usize {
    let options = DependentsOptions { max_depth, blocking_only: false, max_objects: 200_000 };
    let mut walk = DependentsWalk::new(uid(from), options);
    let mut all = 0;
    while let Some(found) = times.held(|| walk.step(&leader.queries(), STEP, usize::MAX)) {
        all += found.len();
    }
    all
}

fn preview(leader: &Leader, target: &str, times: &mut Times) -> usize {
    let mut planning = Planning::new(PlanOptions {
        targets: vec![uid(target)],
        propagation_policy: None,
        assume_gone: Vec::new(),
        ignore_holds: false,
        max_objects: 200_000,
    });
    while !times.held(|| planning.step(&leader.queries(), STEP)) {}
    let frame = times.held(|| leader.queries().frame());
    planning.finish(frame).entries.len()
}

/// Families of one owner and a hundred dependents; a tree of a hundred branches; an owner with many dependents. Returns
/// the number of families as well.
fn world(objects: usize) -> (Leader, usize) {
    let mut leader = replica::leader();
    let served = ServedKind {
        group_resource: collection(),
        kind: "Secret".into(),
        version: "v1".into(),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        access: Access::Watched,
        backend: Backend::Main,
        deletable: true,
        names: Default::default(),
    };
    handle(&mut leader, Input::KindServed(served));
    handle(&mut leader, Input::ListBegun { collection: collection(), selectors: 0 });
    let families = objects.saturating_sub(TREE + CROWD) / (FAMILY + 1);
    let mut listed = |name: &str, owner: Option<&str>| {
        let object = object(name, owner, 5);
        handle(&mut leader, Input::Listed { collection: collection(), object });
    };
    for family in 0..families {
        let owner = format!("f{family}");
        listed(&owner, None);
        (0..FAMILY).for_each(|child| listed(&format!("{owner}-{child}"), Some(&owner)));
    }
    listed("tree", None);
    for branch in 0..100 {
        let owner = format!("tree-{branch}");
        listed(&owner, Some("tree"));
        (1..TREE / 100).for_each(|leaf| listed(&format!("{owner}-{leaf}"), Some(&owner)));
    }
    listed("crowd", None);
    (0..CROWD).for_each(|one| listed(&format!("crowd-{one}"), Some("crowd")));
    let resource_version = ResourceVersion::parse("10");
    handle(&mut leader, Input::ListEnded { collection: collection(), resource_version });
    (leader, families)
}

fn collection() -> GroupResource {
    GroupResource { group: "".into(), resource: "secrets".into() }
}

/// As long as a real uid, and in the packed form.
fn uid(name: &str) -> Uid {
    let step =
        |digest: u128, byte: u8| (digest ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    let digest = format!("{:032x}", name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step));
    let parts = [&digest[..8], &digest[8..12], &digest[12..16], &digest[16..20], &digest[20..]];
    Uid::parse(&parts.join("-")).expect("it is not empty")
}

fn object(name: &str, owner: Option<&str>, version: usize) -> Object {
    let reference = |owner: &str| OwnerReference {
        api_version: "v1".into(),
        kind: "Secret".into(),
        name: Name::from(owner),
        uid: uid(owner),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Object {
        marks: Default::default(),
        uid: uid(name),
        namespace: "shop".into(),
        name: name.into(),
        resource_version: ResourceVersion::parse(&version.to_string()),
        facts: Facts { owners: owner.into_iter().map(reference).collect(), ..Facts::default() },
    }
}
