//! Converts the state of the graph service for readers. The reverse conversion does not exist, because readers use the
//! messages.

use super::clock::Clock;
use super::field;
use super::texts::{cut_node, text};
use crate::admin::v1beta1::{Executor, GetStatusResponse, InconsistentReads, Obstacle, UntrueReports};
use crate::graph::v1beta1::list_coverage_response::{Collection, State};
use crate::graph::v1beta1::{Collecting, Node, NodeState};
use crate::r#type::v1beta1::{GroupResource, ResponseMeta};
use crate::work::v1beta1::ExecutorIdentity;
use engine::coverage;
use engine::evidence::Presence;
use engine::object::{Facts, Name, ResourceVersion};
use engine::time::Time;
use engine::view::{
    BlockerView, CollectionStatus, ExecutorView, GuardView, LISTED_MAX, NodeView, Status, TroubleView, UntrueView,
};

same_names!(engine::view::Collecting => Collecting { Queued, Held, Leased });
same_names!(coverage::State => State { Listing, Synced, Stale, Failed, Ignored });

impl From<NodeView> for Node {
    fn from(node: NodeView) -> Self {
        let mut node = Node {
            state: node_state(&node).into(),
            evidence: Some(super::query::evidence_of(&node.object, &node.presence)),
            resource_version: text(node.resource_version()),
            r#ref: Some(node.object.into()),
            delete_time: delete_time(&node.facts),
            finalizers: node.facts.finalizers.iter().map(Name::to_string).collect(),
            deleting_dependents: node.facts.deletes_dependents(),
            orphaning_dependents: node.facts.orphans_dependents(),
            owner_references: node.facts.owners.into_iter().map(Into::into).collect(),
            owner_count: count(node.owners),
            finalizer_count: count(node.finalizers),
            labels: Default::default(),
            annotations: Default::default(),
            dependent_count: count(node.dependents),
            blocking_dependent_count: count(node.blocking_dependents),
            collecting: node.collecting.map(Collecting::from).unwrap_or_default().into(),
        };
        cut_node(&mut node);
        node
    }
}

/// The state of an object.
pub fn node_state(node: &NodeView) -> NodeState {
    match node.presence {
        Presence::Observed { .. } if node.facts.terminating => NodeState::Terminating,
        Presence::Observed { .. } => NodeState::Live,
        // Its collection does not show it, even if a read found it.
        Presence::Virtual { .. } | Presence::Read { .. } => NodeState::Virtual,
        Presence::Absent(_) => NodeState::Gone,
    }
}

/// `metadata.deletionTimestamp`, if known.
pub fn delete_time(facts: &Facts) -> Option<prost_types::Timestamp> {
    let seconds = i64::from(u32::from(facts.deletion_time?));
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

/// One collection of `ListCoverage`.
pub fn collection(status: CollectionStatus, clock: Clock) -> Collection {
    Collection {
        group_resource: Some(status.kind.group_resource.into()),
        state: State::from(status.state).into(),
        resource_version: text(status.position.as_ref()),
        progress_time: status.progress.map(|time| clock.timestamp(time)),
        object_count: status.objects as u64,
        comparable: status.position.as_ref().is_some_and(ResourceVersion::is_ordered),
        error: status.error,
    }
}

/// The collections for `ResponseMeta` that should be synced, but are not.
pub fn unsynced(collections: &[CollectionStatus]) -> (Vec<GroupResource>, u32) {
    let missing = |status: &&CollectionStatus| match status.state {
        coverage::State::Listing | coverage::State::Stale | coverage::State::Failed => true,
        coverage::State::Synced | coverage::State::Ignored => false,
    };
    let all = collections.iter().filter(missing);
    let count = u32::try_from(all.clone().count()).unwrap_or(u32::MAX);
    (all.take(LISTED_MAX).map(|status| status.kind.group_resource.clone().into()).collect(), count)
}

/// The maximum time since any followed collection had an event, a bookmark or a list, for `ResponseMeta`. Collections
/// that were never listed are reported as unsynced instead.
pub fn lag(collections: &[CollectionStatus], now: Time) -> Option<prost_types::Duration> {
    let followed = collections.iter().filter(|status| status.state != coverage::State::Ignored);
    let oldest = followed.filter_map(|status| status.progress).min()?;
    Some(field::encode_duration(now.since(oldest)))
}

/// One executor of `ListExecutors`.
pub fn executor(view: ExecutorView, clock: Clock) -> Executor {
    Executor {
        identity: Some(ExecutorIdentity {
            executor: view.executor.to_string(),
            incarnation: view.incarnation.to_string(),
        }),
        version: view.version,
        window: view.window,
        started: count(view.started),
        buffered: count(view.buffered),
        heartbeat_time: Some(clock.timestamp(view.last_heard)),
        draining: view.draining,
        connected: view.connected,
        untrue_reports: view.untrue_reports,
    }
}

/// The answer of `GetStatus`. `leader` is the holder of the election Lease or empty. Cluster and unsynced collections
/// from `meta` are repeated at the top level. The caller adds the build, the decision log and the loop.
pub fn status(
    status: Status,
    pauses: Vec<GuardView>,
    clock: Clock,
    leader: &str,
    meta: ResponseMeta,
) -> GetStatusResponse {
    let undecided = status.undecided.into_iter();
    let age = |since: Option<Time>| Some(field::encode_duration(clock.now.since(since?)));
    GetStatusResponse {
        cluster_uid: meta.cluster_uid.clone(),
        version: String::new(),
        term: status.term.map(Into::into),
        leader: String::from(leader),
        node_count: status.nodes as u64,
        edge_count: status.edges as u64,
        virtual_node_count: status.virtual_nodes as u64,
        queued_items: status.queued as u64,
        leased_items: status.leased as u64,
        oldest_queued_age: age(status.oldest_pending.into_iter().chain(status.oldest_held).min()),
        oldest_held_age: age(status.oldest_held),
        pauses: pauses.into_iter().map(|view| super::pause(view, clock)).collect(),
        unsynced: meta.unsynced.clone(),
        executors: count(status.sessions),
        meta: Some(meta),
        backing_off_items: status.backing_off as u64,
        undecided_counts: undecided.map(|(cause, dependents)| (cause.as_str().into(), dependents as u64)).collect(),
        too_many_references: status.excessive.into_iter().map(Into::into).collect(),
        grants_stopped: status.stopped.unwrap_or_default(),
        held_items: status.held as u64,
        pauses_unknown: status.guards_unknown.unwrap_or_default(),
        decision_log: None,
        stalled_for: None,
        loop_idle: None,
        inconsistent_reads: status
            .inconsistent
            .into_iter()
            .map(|(collection, detail)| InconsistentReads { group_resource: Some(collection.into()), detail })
            .collect(),
        kept_apart: status.kept_apart.into_iter().map(Into::into).collect(),
        unverified_owners: (status.questions.waiting + status.questions.under_way) as u64,
        obstacles: Vec::new(),
        more_obstacles: 0,
        more_pauses: 0,
        untrue_reports: status.untrue.into_iter().map(untrue).collect(),
        commit: String::new(),
        observes: status.observes,
    }
}

/// A blocker of many decisions.
pub fn obstacle(view: BlockerView, clock: Clock) -> Obstacle {
    Obstacle {
        what: view.what,
        items: view.items as u64,
        why: view.said,
        since_time: Some(clock.timestamp(view.since)),
        object: None,
        attempts: 0,
    }
}

/// A single waiting decision.
pub fn trouble(view: TroubleView, clock: Clock) -> Obstacle {
    Obstacle {
        what: view.action.as_str().into(),
        items: 1,
        why: view.why,
        since_time: Some(clock.timestamp(view.since)),
        object: Some(view.object.into()),
        attempts: view.attempts,
    }
}

fn untrue(view: UntrueView) -> UntrueReports {
    UntrueReports {
        identity: Some(ExecutorIdentity {
            executor: view.executor.to_string(),
            incarnation: view.incarnation.to_string(),
        }),
        count: view.reports,
        refused_for: view.refused_for.map(field::encode_duration),
    }
}

/// Saturates at the largest number.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
