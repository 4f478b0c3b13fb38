//! `ownergraph status`: the collector in a few lines.

use crate::args::StatusOutput;
use crate::failure::Failure;
use crate::pausing;
use crate::remote::{self, Admin, Reach};
use crate::table;
use anyhow::Context as _;
use proto::admin::v1alpha1::{GetStatusRequest, GetStatusResponse};
use proto::r#type::v1alpha1::ReplicaRole;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Asks, and prints the answer: the leader's where it can be reached, else that of whoever was asked.
pub(crate) async fn run(way: &impl Reach, output: StatusOutput) -> Result<(), Failure> {
    let mut admin = Admin::new(way.any().await?);
    let mut status = remote::within(admin.get_status(GetStatusRequest {})).await?;
    let meta = status.meta.clone().unwrap_or_default();
    if meta.role() != ReplicaRole::Leader
        && let Some(leader) = way.at(&meta.leader_endpoint).await
        && let Ok(known) = remote::within(Admin::new(leader).get_status(GetStatusRequest {})).await
    {
        status = known;
    }
    let text = match output {
        StatusOutput::Table => lines(&status),
        StatusOutput::Json => format!("{:#}\n", as_json(&status)),
    };
    io::stdout().write_all(text.as_bytes()).context("stdout cannot be written")?;
    Ok(())
}

fn role(status: &GetStatusResponse) -> &'static str {
    match status.meta.as_ref().map_or(ReplicaRole::Unspecified, |meta| meta.role()) {
        ReplicaRole::Leader => "leads",
        ReplicaRole::Standby => "stands by",
        ReplicaRole::Syncing => "is syncing",
        ReplicaRole::Unspecified => "is there",
    }
}

fn lines(status: &GetStatusResponse) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        // Writing to a string does not fail.
        let _infallible = writeln!(text, "{name:<10} {what}");
    };
    let meta = status.meta.clone().unwrap_or_default();
    let term = meta.term.map_or_else(String::new, |term| format!(", term {}", term.number));
    line("replica", format!("{} {}{term}, version {}", meta.replica, role(status), status.version));
    line("graph", format!("{} objects, {} references", status.node_count, status.edge_count));
    let (queued, held, retrying) = (status.queued_items, status.held_items, status.backing_off_items);
    line(
        "queue",
        format!("{queued} waiting, of these {held} held and {retrying} retrying; {} under way", status.leased_items),
    );
    line("executors", status.executors.to_string());
    if !status.grants_stopped.is_empty() {
        line("stopped", status.grants_stopped.clone());
    }
    if !status.pauses_unknown.is_empty() {
        line("held", format!("everything that destroys: {}", status.pauses_unknown));
    }
    if !status.unsynced.is_empty() {
        line("unsynced", format!("{} collections", status.unsynced.len()));
    }
    if status.pauses.is_empty() {
        line("pauses", "none".to_owned());
        return text;
    }
    text.push('\n');
    text.push_str(&table::of_pauses(&status.pauses));
    for pause in &status.pauses {
        for (what, why) in [("not effective yet", &pause.pending), ("wrong", &pause.problem)] {
            if !why.is_empty() {
                let _infallible = writeln!(text, "{}: {what}: {why}", pause.name);
            }
        }
    }
    text
}

fn as_json(status: &GetStatusResponse) -> serde_json::Value {
    let unsynced: Vec<_> =
        status.unsynced.iter().map(|at| json!({ "group": at.group, "resource": at.resource })).collect();
    json!({
        "apiVersion": "ownergraph.admin.v1alpha1",
        "kind": "Status",
        "clusterUid": status.cluster_uid,
        "version": status.version,
        "leader": status.leader,
        "replica": status.meta.as_ref().map(|meta| meta.replica.clone()),
        "role": role(status),
        "term": status.term.as_ref().map(|term| term.number),
        "nodeCount": status.node_count,
        "edgeCount": status.edge_count,
        "virtualNodeCount": status.virtual_node_count,
        "queuedItems": status.queued_items,
        "heldItems": status.held_items,
        "backingOffItems": status.backing_off_items,
        "leasedItems": status.leased_items,
        "executors": status.executors,
        "undecidedCounts": status.undecided_counts,
        "unsynced": unsynced,
        "grantsStopped": status.grants_stopped,
        "pausesUnknown": status.pauses_unknown,
        "pauses": status.pauses.iter().map(pausing::as_json).collect::<Vec<_>>(),
    })
}
