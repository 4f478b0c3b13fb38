//! The status in words.

use super::Searched;
use crate::counted::counted;
use crate::kubectl::naming::shown;
use crate::kubectl::{guards, parity, pausing};
use engine::object::in_group;
use proto::admin::v1beta1::decision_log_status::State as LogState;
use proto::admin::v1beta1::{DecisionLogStatus, GetStatusResponse, Guard, Obstacle, UntrueReports};
use proto::graph::v1beta1::list_coverage_response::{Collection, State};
use proto::r#type::v1beta1::{GroupResource, ReplicaRole};
use runtime::visible;
use std::fmt::Write as _;

/// Time after which the loop counts as stopped. `/livez` has the same limit.
const LOOP_STANDS_STILL_S: i64 = 30;
/// Age from which ready work counts as stalled. An executor with capacity gets work within moments.
const STALLED_S: i64 = 30;
/// Number of attempts from which a decision counts as stalled.
const FAILS_OFTEN: u32 = 5;
/// Maximum length of text from outside in one line.
const WHY_MAX: usize = 300;

fn role(status: &GetStatusResponse) -> &'static str {
    match status.meta.as_ref().map_or(ReplicaRole::Unspecified, |meta| meta.role()) {
        ReplicaRole::Leader => "leads",
        ReplicaRole::Standby => "stands by",
        ReplicaRole::Syncing => "is syncing",
        ReplicaRole::Unspecified => "is there",
    }
}

fn in_words(state: State) -> &'static str {
    match state {
        State::Synced => "synced",
        State::Listing => "listing",
        State::Stale => "stale",
        State::Failed => "failed",
        State::Ignored => "ignored",
        State::Unspecified => "unknown",
    }
}

fn name(of: &GroupResource) -> String {
    in_group(&of.resource, &of.group)
}

/// The number of collections in each state. Collections that are ignored by configuration are left out.
fn counts(collections: &[Collection]) -> String {
    let states = [State::Synced, State::Listing, State::Stale, State::Failed, State::Unspecified];
    let count = |state: State| (state, collections.iter().filter(|collection| collection.state() == state).count());
    let counted: Vec<String> = states
        .into_iter()
        .map(count)
        .filter(|(state, count)| *state == State::Synced || *count > 0)
        .map(|(state, count)| format!("{count} {}", in_words(state)))
        .collect();
    counted.join(", ")
}

/// The storage of the decision log, and its state.
pub(super) fn of_log(log: &DecisionLogStatus) -> String {
    let mut text = match (log.state(), log.required) {
        (LogState::InMemory, _) => "in the leader's memory".to_owned(),
        (LogState::Connecting, _) => "on JetStream, not connected yet".to_owned(),
        (LogState::Writing, _) => "on JetStream".to_owned(),
        (LogState::CatchingUp, _) => "on JetStream, which is catching up".to_owned(),
        (LogState::Away, true) => "on JetStream, which is unreachable; grants are suspended".to_owned(),
        (LogState::Away, false) => "on JetStream, which is unreachable; grants continue".to_owned(),
        (LogState::Unspecified, _) => "in a state that this version does not know".to_owned(),
    };
    // Writing to a string does not fail.
    if !log.problem.is_empty() {
        let _infallible = write!(text, " ({})", log.problem);
    }
    if let (Some(oldest), Some(newest)) = (&log.oldest, &log.newest) {
        let _infallible = match newest.sequence < oldest.sequence {
            true => write!(text, ", no events yet"),
            false => write!(text, ", positions {} to {}", oldest.sequence, newest.sequence),
        };
    }
    if log.waiting_events > 0 {
        let _infallible = write!(text, ", {} wait", log.waiting_events);
    }
    if log.lost_events > 0 {
        let _infallible = write!(text, ", {} lost", log.lost_events);
    }
    text
}

/// Whether the collector makes progress. An error is a finding. The text about a stall is that of the alert.
pub(super) fn of_progress(status: &GetStatusResponse) -> Result<String, String> {
    let seconds = |of: &Option<prost_types::Duration>| of.as_ref().map_or(0, |of| of.seconds);
    let (idle, stalled) = (seconds(&status.loop_idle), seconds(&status.stalled_for));
    if status.loop_idle.is_none() {
        return Ok("not reported by this version of the graph service".to_owned());
    }
    if idle > LOOP_STANDS_STILL_S {
        return Err(format!("STOPPED: the collector's loop has made no progress for {idle} s"));
    }
    if stalled >= STALLED_S {
        return Err(format!("STALLED: work is ready, but no attempt ended and nothing was withdrawn for {stalled} s"));
    }
    let oldest = |of: &Option<prost_types::Duration>, what: &str| {
        of.as_ref().map(|of| format!(", the oldest {what} for {} s", of.seconds))
    };
    if let Some(worst) = status.obstacles.iter().max_by_key(|obstacle| obstacle.attempts)
        && worst.attempts >= FAILS_OFTEN
    {
        let object = worst.object.as_ref().map(shown).unwrap_or_default();
        return Err(format!("FAILING: {} of {object} was tried {} times: {}", worst.what, worst.attempts, worst.why));
    }
    let has_ready = status.oldest_queued_age.is_some() && status.queued_items > status.held_items;
    if status.executors == 0 && status.term.is_some() && has_ready {
        return Err("STOPPED: work is ready, and no executor is connected".to_owned());
    }
    let idle = || if status.queued_items == 0 { ", nothing waits" } else { ", nothing is ready" };
    let waits = oldest(&status.oldest_queued_age, "decision waits").unwrap_or_else(|| idle().to_owned());
    let held = oldest(&status.oldest_held_age, "is held").unwrap_or_default();
    Ok(format!("the loop makes progress{waits}{held}"))
}

/// A cause that blocks decisions.
fn of_obstacle(obstacle: &Obstacle) -> String {
    let why: String = obstacle.why.chars().take(WHY_MAX).collect();
    let colon = if why.is_empty() { "" } else { ": " };
    match &obstacle.object {
        Some(object) => {
            format!("{} of {}, tried {} times{colon}{why}", obstacle.what, shown(object), obstacle.attempts)
        }
        None => format!("{} behind {}{colon}{why}", obstacle.items, obstacle.what),
    }
}

/// An executor that sent wrong reports.
fn of_untrue(liar: &UntrueReports) -> String {
    let of = liar.identity.clone().unwrap_or_default();
    let refused = liar.refused_for.as_ref().map(|left| format!(", refused for another {} s", left.seconds));
    let (name, refused) = (of.executor, refused.unwrap_or_default());
    format!("{} reports of executor {name} (process {}){refused}", liar.count, of.incarnation)
}

pub(super) fn lines(
    status: &GetStatusResponse,
    guards: Option<&[Guard]>,
    collections: &[Collection],
    searched: Searched,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        // Writing to a string does not fail.
        let _infallible = writeln!(text, "{name:<11} {}", visible::line(&what));
    };
    let meta = status.meta.clone().unwrap_or_default();
    let term = meta.term.map_or_else(String::new, |term| format!(", term {}", term.number));
    line("replica", format!("{} {}{term}, version {}", meta.replica, role(status), status.version));
    line("progress", of_progress(status).unwrap_or_else(|finding| finding));
    line("graph", format!("{}, {}", counted(status.node_count, "object"), counted(status.edge_count, "reference")));
    let (queued, held, retrying) = (status.queued_items, status.held_items, status.backing_off_items);
    line(
        "queue",
        format!("{queued} waiting, of these {held} held and {retrying} retrying; {} leased", status.leased_items),
    );
    if searched.observed.is_some_and(|count| count > 0) {
        line("mode", "observe: decisions are published, and not carried out".to_owned());
    }
    if let Some(numbers) = &searched.parity {
        line("parity", parity::summary(numbers));
    }
    if let Some(annotated) = searched.annotated.filter(|count| *count > 0) {
        line(
            "annotated",
            format!("{annotated} to be deleted, but held by the annotation {}", engine::object::HOLD_ANNOTATION),
        );
    }
    for (at, obstacle) in status.obstacles.iter().enumerate() {
        line(if at == 0 { "blocked" } else { "" }, of_obstacle(obstacle));
    }
    if status.more_obstacles > 0 {
        line("", format!("and {} more", status.more_obstacles));
    }
    line("executors", status.executors.to_string());
    for liar in &status.untrue_reports {
        line("UNTRUE", of_untrue(liar));
    }
    if !status.grants_stopped.is_empty() {
        line("stopped", status.grants_stopped.clone());
    }
    if !status.pauses_unknown.is_empty() {
        line("held", format!("all destructive actions: {}", status.pauses_unknown));
    }
    for reads in &status.inconsistent_reads {
        let of = reads.group_resource.clone().unwrap_or_default();
        line("INCONSISTENT", format!("reads of {}: {}", name(&of), reads.detail));
    }
    if status.unverified_owners > 0 {
        let owners = counted(status.unverified_owners, "owner");
        line("asking", format!("the API server for {owners} that no list has shown"));
    }
    for of in &status.kept_apart {
        line(
            "apart",
            format!(
                "the resourceVersions of {} do not match those of other collections: if it has a separate etcd, add it to --separate-stores",
                name(of)
            ),
        );
    }
    if let Some(log) = &status.decision_log {
        line("decisions", of_log(log));
    }
    line("collections", counts(collections));
    for collection in collections {
        if !matches!(collection.state(), State::Synced | State::Ignored) {
            let error = if collection.error.is_empty() { String::new() } else { format!(": {}", collection.error) };
            let of = collection.group_resource.clone().unwrap_or_default();
            line("", format!("{} is {}{error}", name(&of), in_words(collection.state())));
        }
    }
    if let Some(guards) = guards {
        if guards.is_empty() {
            line("guards", "none".to_owned());
            return text;
        }
        text.push('\n');
        text.push_str(&guards::table(guards));
        for remark in guards::remarks(guards) {
            let _infallible = writeln!(text, "{}", visible::line(&remark));
        }
        return text;
    }
    if status.pauses.is_empty() {
        line("pauses", "none".to_owned());
        return text;
    }
    text.push('\n');
    text.push_str(&pausing::table(&status.pauses));
    for pause in &status.pauses {
        for (what, why) in [("not effective yet", &pause.pending), ("wrong", &pause.problem)] {
            if !why.is_empty() {
                let _infallible = writeln!(text, "{}", visible::line(&format!("{}: {what}: {why}", pause.name)));
            }
        }
    }
    text
}
