//! A graph that this process lists itself. It runs the graph service in this process. The service never leads, so it
//! writes nothing.
//!
//! The answers are the same as those of a graph service, because the code is the same. They contain only the objects
//! that the caller may list, and are given as soon as every list has ended. Nothing asks the API server about owners
//! that no list shows: only a leader does.

use super::ending::Problem;
use super::naming::{Catalogue, listing};
use super::rights;
use super::session::Session;
use crate::remote;
use anyhow::Context as _;
use executor_service::{Channel, connect_over};
use futures::StreamExt as _;
use graph_service::{Access, Config, Connection, Edges, Election, ReaderThreads};
use kube_api::cluster_uid;
use prometheus_client::registry::Registry;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::list_coverage_response::{Collection, State};
use proto::r#type::v1beta1::GroupResource;
use runtime::shutdown::Shutdown;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// The host in requests. It is never resolved.
const HERE: &str = "localhost:7450";
const PIPE_BYTES: usize = 1 << 20;
/// Maximum time for all first lists.
const LISTED_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Resources that are not watched. The graph service does not watch them by default either.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// The service of this process. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Direct {
    _task: JoinSet<anyhow::Result<()>>,
}

/// Starts the service, and waits until every collection is listed or has failed.
pub(super) async fn start(session: &mut Session) -> Result<(Channel, Direct), Problem> {
    let catalogue = Catalogue::ask(session).await?;
    let ignored = |group: &str, resource: &str| IGNORED.contains(&(group, resource));
    let watched = catalogue.0.iter().filter(|served| ["list", "watch", "delete"].iter().all(|verb| served.can(verb)));
    let expected: BTreeSet<(String, String)> = watched
        .map(|served| (served.group.clone(), served.resource.clone()))
        .filter(|(group, resource)| !ignored(group, resource))
        .collect();
    if !session.is_file() {
        let name = session.cluster.name.clone();
        let missing = format!("no ownergraph service in context {name:?}; ");
        let missing = if session.connection.direct { "" } else { &missing };
        session.note(&format!("{missing}listing {} resource types directly (slow)", expected.len()));
    }
    let (cluster, narrowed) = rights::narrowed(&session.cluster, &catalogue, session.namespace());
    cluster_uid(&cluster.client).await.context("the cluster cannot be listed")?;

    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let config = Config {
        mode: engine::leader::Mode::Observe,
        replica: "here".to_owned(),
        advertise: String::new(),
        ignore: IGNORED.iter().map(|&(group, resource)| resource_of(group, resource)).collect(),
        policy: engine::leader::Policy::default(),
        decision_log: None,
        protocols: engine::work::Protocols::OURS,
        web_origins: Vec::new(),
        traces: None,
        record: None,
        flags: graph_service::Flags::default(),
    };
    let edges = Edges {
        grpc: futures::stream::iter([Ok(Connection::new(far))]).chain(futures::stream::pending()).boxed(),
        admin: None,
        tls: None,
        registry: Registry::default(),
        cluster,
        election: Election::Never,
        access: Access::Open,
        readers: ReaderThreads::Shared,
        audit: graph_service::AuditSources::default(),
        observer: None,
        progress: false,
    };
    let mut task = JoinSet::new();
    task.spawn(graph_service::serve(config, edges, Shutdown::new()));
    let channel = connect_over(HERE, near).await.map(Channel::from);
    let channel = channel.map_err(|why| Problem::sentence(format!("the graph of this process: {why}")))?;
    let listed = tokio::time::timeout(LISTED_WITHIN, until_listed(channel.clone(), &expected));
    let Ok(listed) = listed.await else {
        return Err(Problem::TimedOut(format!("not every resource type was listed within {LISTED_WITHIN:?}")));
    };
    for what in listed? {
        session.missed(what);
    }
    if narrowed.count() > 0 {
        let (count, namespace) = (narrowed.count(), session.namespace().to_owned());
        session.missed(format!(
            "{count} resource types are listed in namespace {namespace} only: these credentials may not list the others"
        ));
    }
    Ok((channel, Direct { _task: task }))
}

fn resource_of(group: &str, resource: &str) -> engine::object::GroupResource {
    engine::object::GroupResource { group: group.into(), resource: resource.into() }
}

/// The collections that could not be listed, after all lists have ended.
async fn until_listed(channel: Channel, expected: &BTreeSet<(String, String)>) -> anyhow::Result<Vec<String>> {
    let mut graph = GraphServiceClient::new(channel);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let collections = loop {
        looks.tick().await;
        let collections = remote::collections(&mut graph).await?.into_inner();
        let waits = |collection: &&Collection| matches!(collection.state(), State::Listing | State::Unspecified);
        let known: BTreeSet<(String, String)> =
            collections.iter().filter(|collection| !waits(collection)).filter_map(key).collect();
        if known.is_superset(expected) {
            break collections;
        }
    };
    let failed = collections.iter().filter(|collection| matches!(collection.state(), State::Failed | State::Stale));
    let failed = failed.filter_map(|of| Some((of.group_resource.clone()?, of.error.as_str()))).collect::<Vec<_>>();
    Ok(unlisted(&failed))
}

/// One line for each collection that cannot be listed, or one for all of them if these are many.
fn unlisted(failed: &[(GroupResource, &str)]) -> Vec<String> {
    let names: Vec<GroupResource> = failed.iter().map(|(name, _)| name.clone()).collect();
    match failed {
        [(_, why), _, _, _, ..] => {
            vec![format!(
                "{} resource types cannot be listed: {}; the first answer: {why}",
                names.len(),
                listing(&names)
            )]
        }
        few => few
            .iter()
            .map(|(name, why)| format!("{} cannot be listed: {why}", listing(std::slice::from_ref(name))))
            .collect(),
    }
}

fn key(collection: &Collection) -> Option<(String, String)> {
    let of = collection.group_resource.as_ref()?;
    Some((of.group.clone(), of.resource.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refused_collections_take_one_line() {
        let of = |resource: &str| GroupResource { group: "apps".to_owned(), resource: resource.to_owned() };
        let failed = ["a", "b", "c", "d"].map(|resource| (of(resource), "403"));
        assert_eq!(unlisted(&failed[..2]), ["a.apps cannot be listed: 403", "b.apps cannot be listed: 403"]);
        let all = "4 resource types cannot be listed: a.apps, b.apps, c.apps, d.apps; the first answer: 403";
        assert_eq!(unlisted(&failed), [all]);
    }
}
