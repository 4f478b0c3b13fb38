//! Counts allocations while reading a watch: none for the scan, and for an object only those that the object keeps.
//!
//! A test binary of its own, because the counting allocator is global.

#[path = "../../kube-api/src/metadata/tests/generate.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod generate;
#[path = "../../kube-api/src/metadata/tests/oracle.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod oracle;
#[path = "../benches/data/pods.rs"]
mod pods;

use engine::leader::{Config, Input, Leader, Mode, Policy};
use engine::object::{Access, Backend, GroupResource, ResourceVersion, ServedKind};
use engine::time::Time;
use generate::Draw;
use kube_api::metadata::{Decoder, Encoding, Event, Item, event};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Write as _, stdout};
use std::time::Duration;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const EVENTS: usize = 1_000;

/// The same objects for each `from`, at versions that begin with it.
fn frames(from: usize) -> Vec<Vec<u8>> {
    let mut draw = Draw::new(1);
    let owners: Vec<String> = (0..EVENTS / 10).map(|_| draw.uid()).collect();
    let pod = |number: usize, draw: &mut Draw| pods::pod(draw, number, &owners[number / 10], from + number);
    (0..EVENTS).map(|number| oracle::event(&json!({ "type": "MODIFIED", "object": pod(number, &mut draw) }))).collect()
}

fn item(frame: &[u8]) -> Item<'_> {
    match event(Encoding::Protobuf, frame) {
        Ok(Event::Modified(item)) => item,
        other => panic!("{other:?}"),
    }
}

/// Allocations for each event, after the caches are filled.
fn counted(before: &[Vec<u8>], frames: &[Vec<u8>], mut each: impl FnMut(&[u8])) -> f64 {
    before.iter().for_each(|frame| each(frame));
    let region = Region::new(COUNTING);
    frames.iter().for_each(|frame| each(frame));
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / frames.len() as f64
}

fn leader() -> Leader {
    let config = Config {
        mode: Mode::Enforce,
        cluster_uid: "cluster".into(),
        endpoint: "here:1".to_owned(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(30),
        stale_after: Duration::from_secs(30),
        protocols: engine::work::Protocols::OURS,
        policy: Policy::default(),
    };
    let mut leader = Leader::new(config, 1);
    let collection = pods();
    leader.handle(
        Time::ZERO,
        Input::KindServed(ServedKind {
            group_resource: collection.clone(),
            kind: "Pod".into(),
            version: "v1".into(),
            other_versions: Vec::new(),
            split: false,
            namespaced: true,
            access: Access::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Default::default(),
        }),
    );
    leader.handle(Time::ZERO, Input::ListBegun { collection: collection.clone(), selectors: 0 });
    leader.handle(Time::ZERO, Input::ListEnded { collection, resource_version: ResourceVersion::parse("1") });
    leader
}

fn pods() -> GroupResource {
    GroupResource { group: "".into(), resource: "pods".into() }
}

#[test]
fn the_scan_allocates_nothing_and_an_object_what_it_keeps() {
    let (before, frames) = (frames(10_000), frames(20_000));
    let scan = counted(&before, &frames, |frame| {
        let Item::Protobuf(Ok(metadata)) = item(frame) else { panic!("it is protobuf") };
        assert!(metadata.owners().all(|owner| owner.is_ok()) && metadata.finalizers().all(|name| name.is_ok()));
    });
    let mut decoder = Decoder::new(Some(true));
    let mut kept = 0;
    let object = counted(&before, &frames, |frame| {
        let object = decoder.object(&item(frame)).unwrap();
        // Its name, its references and its finalizers. Every other name is shared.
        kept += 1 + usize::from(!object.facts.owners.is_empty()) + usize::from(!object.facts.finalizers.is_empty());
    });
    let (mut leader, collection) = (leader(), pods());
    let applied = counted(&before, &frames, |frame| {
        let object = decoder.object(&item(frame)).unwrap();
        leader.handle(Time::ZERO, Input::Seen { collection: collection.clone(), object });
        while leader.poll().is_some() {}
    });
    writeln!(stdout(), "allocations per event: scan {scan}, object {object}, object and graph {applied}").unwrap();
    assert_eq!(scan, 0.0);
    assert_eq!(object, kept as f64 / (2 * EVENTS) as f64);
}
