//! Fixtures for tests of the services: a leader with a few Secrets.

use super::access::Authenticator;
use super::freshness::Freshness;
use super::{Shared, long_reads};
use crate::decisions::DecisionLog;
use crate::driver::{Heartbeat, Reader};
use crate::ingest::questions::{Questions, Texts};
use crate::messages::Leadership;
use crate::metrics::Metrics;
use crate::readiness::Health;
use engine::leader::{Config, GuardAnswer, Input, Leader, Mode, Output, Policy};
use engine::object::{Access, Backend, Facts, GroupResource, Object, OwnerReference, ResourceVersion, ServedKind, Uid};
use engine::time::Time;
use prometheus_client::registry::Registry;
use runtime::clock::Clock;
use runtime::metrics::Book;
use runtime::shutdown::Shutdown;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::Status;
use tonic_types::StatusExt as _;

pub(crate) fn config(mode: Mode) -> Config {
    Config {
        mode,
        cluster_uid: "cluster".into(),
        endpoint: "127.0.0.1:7450".to_owned(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(30),
        stale_after: Duration::from_secs(30),
        policy: Policy::default(),
        protocols: engine::work::Protocols::OURS,
    }
}

pub(super) fn secrets() -> GroupResource {
    GroupResource { group: "".into(), resource: "secrets".into() }
}

pub(super) fn uid_of(name: &str) -> Uid {
    Uid::parse(&format!("uid-{name}")).unwrap()
}

/// A Secret at version 5.
pub(super) fn secret(name: &str, owners: &[&str]) -> Object {
    let owner = |name: &&str| OwnerReference {
        api_version: "v1".into(),
        kind: "Secret".into(),
        name: (*name).into(),
        uid: uid_of(name),
        controller: None,
        block_owner_deletion: Some(true),
    };
    Object {
        marks: Default::default(),
        uid: uid_of(name),
        namespace: "shop".into(),
        name: name.into(),
        resource_version: ResourceVersion::parse("5"),
        facts: Facts { owners: owners.iter().map(owner).collect(), ..Facts::default() },
    }
}

/// The collection with these objects, and then without `gone`, one of them.
pub(super) fn facts(objects: Vec<Object>, gone: &str) -> Vec<Input> {
    let collection = secrets();
    let served = ServedKind {
        group_resource: collection.clone(),
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
    let mut facts = vec![Input::KindServed(served), Input::ListBegun { collection: collection.clone(), selectors: 0 }];
    facts.extend(objects.into_iter().map(|object| Input::Listed { collection: collection.clone(), object }));
    facts.push(Input::ListEnded { collection: collection.clone(), resource_version: ResourceVersion::parse("10") });
    let went = Object { resource_version: ResourceVersion::parse("11"), ..secret(gone, &[]) };
    facts.push(Input::Deleted { collection, object: went });
    facts
}

/// Gives these inputs to a leader in a cluster without guards, and lets the time pass in which another collector
/// follows its decisions.
pub(super) fn disagree(leader: &mut Leader, inputs: Vec<Input>) {
    for input in inputs {
        leader.handle(Time::ZERO, input);
        while let Some(output) = leader.poll() {
            if let Output::ReadGuards(read) = output {
                leader.handle(Time::ZERO, Input::GuardsRead { read, answer: Ok(GuardAnswer::NotServed) });
            }
        }
    }
    leader.tick(Time::from_origin(Duration::from_secs(31)));
    while leader.poll().is_some() {}
}

/// The shared state of `replica-a`.
pub(super) fn shared(leader: Leader, decisions: DecisionLog, leadership: watch::Receiver<Leadership>) -> Arc<Shared> {
    gated(leader, decisions, leadership, None)
}

/// The shared state behind an authenticator.
pub(super) fn gated(
    leader: Leader,
    decisions: DecisionLog,
    leadership: watch::Receiver<Leadership>,
    authenticator: Option<Arc<Authenticator>>,
) -> Arc<Shared> {
    let clock = Clock::start();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut Book::new(&mut registry));
    let (sessions, _closed) = mpsc::channel(1);
    let reader = Reader::of(leader);
    let questions = Questions {
        stand: Box::new(|_, _| Box::pin(async { Err("the test has no API server".to_owned()) })),
        last: Box::new(|_| Box::pin(async { Err("the test has no API server".to_owned()) })),
        texts: Box::new(|object| {
            let label = ("name".to_owned(), object.name.to_string());
            Box::pin(async { Ok(Some(Texts { labels: [label].into(), ..Texts::default() })) })
        }),
    };
    Arc::new(Shared {
        freshness: Freshness::new(reader.clone(), "cluster".to_owned(), questions),
        reader,
        sessions,
        decisions,
        gates: crate::gates::Router::new(metrics.gates.clone()).0,
        shutdown: Shutdown::new(),
        leadership,
        health: Health::new(clock, Heartbeat::default(), registry, metrics.clone()),
        metrics,
        clock,
        cluster_uid: "cluster".to_owned(),
        replica: "replica-a".to_owned(),
        long_reads: long_reads(),
        authenticator,
        configuration: "{}".to_owned(),
        recorded: None,
    })
}

/// The reason of a failed call.
pub(super) fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}
