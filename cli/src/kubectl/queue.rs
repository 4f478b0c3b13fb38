//! `queue`: counts of decisions that are not carried out yet.

use super::columns::{Cell, columns, now, span};
use super::decisions::record::Record;
use super::decisions::stream::{Follow, Next};
use super::document::{Document, Kind};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Group, Queue};
use super::guards::{self, Waiting};
use super::naming::{lines_by_type, shown};
use super::service::{Need, Service};
use super::session::Session;
use crate::counted::are;
use engine::object::in_group;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::{DecisionEvent, DecisionFilter, EventEncoding, Phase};
use proto::graph::v1beta1::find_stuck_objects_response::Stuck;
use proto::graph::v1beta1::reason::Code;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Yaml, Format::Name];

pub(super) async fn run(flags: Queue) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let service = Service::connect(&mut session, Need::Leader).await?;
    let filter = |target| DecisionFilter { targets: vec![target], ..Default::default() };
    let filters = session.include().into_iter().map(filter).collect();
    let mut follow = Follow::new(service, Start::OpenThenFollow(true), filters, EventEncoding::Native);
    let open = open(&mut session, &mut follow).await?;
    let mut service = Service::connect(&mut session, Need::Leader).await?;
    let (stuck, _unsynced) = service.stuck(session.include(), Duration::ZERO).await?;
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document(&open, flags.by))?,
        Format::Name => {
            session.print(&lines_by_type(open.iter().map(|event| event.target.as_ref())))?;
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            if open.is_empty() {
                session.note(&format!("nothing waits {}", session.where_searched()));
            } else {
                session.print_table(&table(&open, flags.by, now()))?;
                let waiting = service.waiting_for(stuck.iter().flat_map(|found| &found.reasons)).await;
                held_by(&stuck, &waiting).iter().for_each(|text| session.note(text));
            }
        }
    }
    Ok(Ending::Fine)
}

/// The guards that hold objects, each with the number of its objects and the command that releases them.
fn held_by(stuck: &[Stuck], waiting: &[Waiting]) -> Vec<String> {
    let mut held: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for found in stuck {
        let object = found.node.clone().and_then(|node| node.r#ref).unwrap_or_default();
        for reason in found.reasons.iter().filter(|reason| reason.code() != Code::HoldAnnotation) {
            if let Some(command) = guards::release_command(reason, &object, waiting) {
                let guard = reason.detail.split_once(": ").map_or("", |(guard, _)| guard);
                *held.entry((guard, command)).or_default() += 1;
            }
        }
    }
    let text = |((guard, command), count)| format!("{} held by {guard}; release: {command}", are(count, "object"));
    held.into_iter().map(text).collect()
}

/// The current state of every open decision.
async fn open(session: &mut Session, follow: &mut Follow) -> Result<Vec<DecisionEvent>, Problem> {
    let mut open: BTreeMap<String, DecisionEvent> = BTreeMap::new();
    while !follow.is_complete() {
        let Next::Records(records) = follow.next(session, false).await? else { continue };
        for record in records {
            match record {
                Record::Event(event) => {
                    open.insert(event.decision_id.clone(), *event);
                }
                Record::Cloud(_) => {}
                Record::Gap(_) => open.clear(),
            }
        }
    }
    Ok(open.into_values().filter(|event| is_open(event.phase())).collect())
}

/// Whether a decision in this phase is still open.
pub(super) fn is_open(phase: Phase) -> bool {
    match phase {
        Phase::Unspecified
        | Phase::Succeeded
        | Phase::Superseded
        | Phase::Confirmed
        | Phase::AwaitingFinalizers
        | Phase::Disagreed => false,
        Phase::Proposed | Phase::Held | Phase::Released | Phase::Leased | Phase::Failed | Phase::Parked => true,
    }
}

/// A group of decisions: its phase, and the times of its oldest decision and last change.
#[derive(Debug, Default, PartialEq)]
struct Row {
    waiting: u64,
    held: u64,
    leased: u64,
    retrying: u64,
    parked: u64,
    oldest: Option<i64>,
}

impl Row {
    fn total(&self) -> u64 {
        self.waiting + self.held + self.leased + self.retrying + self.parked
    }
}

fn rows(open: &[DecisionEvent], by: Group) -> Vec<(String, Row)> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for event in open {
        let target = event.target.clone().unwrap_or_default();
        let name = match by {
            Group::Kind => in_group(&target.kind, &target.group),
            Group::Namespace if target.namespace.is_empty() => "(cluster)".to_owned(),
            Group::Namespace => target.namespace,
            Group::Root => event.root.as_ref().map_or_else(|| "(no deletion)".to_owned(), shown),
        };
        let row = rows.entry(name).or_default();
        let count = match event.phase() {
            Phase::Held => &mut row.held,
            Phase::Leased => &mut row.leased,
            Phase::Failed => &mut row.retrying,
            Phase::Parked => &mut row.parked,
            Phase::Unspecified
            | Phase::Proposed
            | Phase::Released
            | Phase::Succeeded
            | Phase::Superseded
            | Phase::Confirmed
            | Phase::AwaitingFinalizers
            | Phase::Disagreed => &mut row.waiting,
        };
        *count += 1;
        let at = event.event_time.as_ref().map(|at| at.seconds);
        row.oldest = row.oldest.into_iter().chain(at).min();
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.total()));
    rows
}

fn heading(by: Group) -> &'static str {
    match by {
        Group::Kind => "KIND",
        Group::Namespace => "NAMESPACE",
        Group::Root => "ROOT",
    }
}

fn table(open: &[DecisionEvent], by: Group, now: i64) -> String {
    let cells = |(name, row): &(String, Row)| {
        let number = |count: u64| Cell::plain(if count == 0 { String::new() } else { count.to_string() });
        let oldest = Cell::plain(row.oldest.map(|at| span(now - at)).unwrap_or_default());
        let counts = [row.waiting, row.held, row.leased, row.retrying, row.parked].map(number);
        [vec![Cell::bold(name.as_str())], counts.to_vec(), vec![oldest]].concat()
    };
    let heads = [heading(by), "WAITING", "HELD", "LEASED", "RETRYING", "PARKED", "OLDEST"];
    columns(&heads, &rows(open, by).iter().map(cells).collect::<Vec<_>>())
}

fn document(open: &[DecisionEvent], by: Group) -> Document {
    let value = |(name, row): (String, Row)| {
        json!({
            "name": name, "waiting": row.waiting, "held": row.held, "leased": row.leased,
            "retrying": row.retrying, "parked": row.parked,
            "oldestTime": row.oldest.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }.to_string()),
        })
    };
    let groups: Vec<Value> = rows(open, by).into_iter().map(value).collect();
    let document = Document::list(Kind::QueueList, Value::from(groups));
    document.with("by", heading(by).to_lowercase().into()).with("total", open.len().into())
}
