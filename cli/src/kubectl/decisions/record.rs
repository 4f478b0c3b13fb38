//! A step of a decision, as a line or as JSON.

use crate::kubectl::columns::Cell;
use crate::kubectl::document::{Document, Kind, Schema};
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{ACTIONS, PHASES, word};
use crate::kubectl::naming::shown;
use crate::kubectl::tree::table::standing;
use anyhow::Context as _;
use prost::Message as _;
use proto::cloudevents::v1::CloudEvent;
use proto::cloudevents::v1::cloud_event::Data;
use proto::cloudevents::v1::cloud_event::cloud_event_attribute_value::Attr;
use proto::decision::v1beta1::disagreement::{Class, Outcome};
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::decision::v1beta1::{Cause, DecisionEvent, Phase, Position, SystemEvent};
use proto::graph::v1beta1::OwnerStanding;
use runtime::visible;
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

pub(in crate::kubectl) const EVENT: &str = "ownergraph.decision.v1beta1.DecisionEvent";
const GAP: &str = "ownergraph.decision.v1beta1.WatchDecisionsResponse.Gap";

/// One entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubectl) enum Record {
    Event(Box<DecisionEvent>),
    /// A CloudEvent. Its data is the event.
    Cloud(Box<CloudEvent>),
    Gap(Gap),
}

impl Record {
    pub(in crate::kubectl) fn of(event: DecisionEvent) -> Record {
        Record::Event(Box::new(event))
    }

    pub(in crate::kubectl) fn position(&self) -> Option<Position> {
        match self {
            Record::Event(event) => event.position.clone(),
            Record::Cloud(event) => {
                let sequence = text(event, "sequence")?.parse().ok()?;
                let (log_id, _) = event.id.rsplit_once('/')?;
                Some(Position { log_id: log_id.to_owned(), sequence })
            }
            Record::Gap(_) => None,
        }
    }

    /// The entry as a separate document. CloudEvents have their own form.
    pub(in crate::kubectl) fn item(&self, schema: &Schema) -> Result<Value, Problem> {
        let (kind, field, value) = match self {
            Record::Event(event) => (Kind::DecisionEvent, "event", schema.message(EVENT, event.as_ref())?),
            Record::Cloud(event) => return cloud_value(event, schema),
            Record::Gap(gap) => (Kind::DecisionGap, "gap", schema.message(GAP, gap)?),
        };
        Ok(Document::new(kind).with(field, value).item())
    }
}

/// Events with the same text are about the same object. Events about the collector itself have an empty one.
pub(in crate::kubectl) fn lane(event: &CloudEvent) -> String {
    text(event, "partitionkey").unwrap_or_default().to_owned()
}

fn text<'e>(event: &'e CloudEvent, attribute: &str) -> Option<&'e str> {
    match event.attributes.get(attribute)?.attr.as_ref()? {
        Attr::CeString(text) => Some(text),
        Attr::CeBoolean(_)
        | Attr::CeInteger(_)
        | Attr::CeBytes(_)
        | Attr::CeUri(_)
        | Attr::CeUriRef(_)
        | Attr::CeTimestamp(_) => None,
    }
}

/// CloudEvents in their JSON format.
fn cloud_value(event: &CloudEvent, schema: &Schema) -> Result<Value, Problem> {
    let mut fields = Map::from_iter([
        ("specversion".to_owned(), Value::from(event.spec_version.as_str())),
        ("id".to_owned(), event.id.as_str().into()),
        ("source".to_owned(), event.source.as_str().into()),
        ("type".to_owned(), event.r#type.as_str().into()),
    ]);
    for (name, value) in &event.attributes {
        let value = match &value.attr {
            Some(Attr::CeBoolean(value)) => json!(value),
            Some(Attr::CeInteger(value)) => json!(value),
            Some(Attr::CeString(text) | Attr::CeUri(text) | Attr::CeUriRef(text)) => json!(text),
            Some(Attr::CeTimestamp(at)) => json!(at.to_string()),
            Some(Attr::CeBytes(_)) | None => continue,
        };
        fields.insert(name.clone(), value);
    }
    if let Some(Data::ProtoData(data)) = &event.data {
        let data = DecisionEvent::decode(data.value.as_slice()).context("a CloudEvent has no decision")?;
        fields.insert("datacontenttype".to_owned(), "application/json".into());
        fields.insert("data".to_owned(), schema.message(EVENT, &data)?);
    }
    Ok(Value::Object(fields))
}

/// An entry as text: a row of the table, or a line across it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubectl) enum Line {
    Row(Vec<Cell>),
    Across(String),
}

pub(in crate::kubectl) fn heading(wide: bool) -> Vec<Cell> {
    let heads = ["TIME(UTC)", "PHASE", "ACTION", "OBJECT", "CAUSE", "EXECUTOR", "POSITION", "DECISION"];
    heads.into_iter().take(if wide { heads.len() } else { 5 }).map(Cell::plain).collect()
}

pub(in crate::kubectl) fn line(record: &Record, wide: bool) -> Line {
    let decoded;
    let event = match record {
        Record::Event(event) => event.as_ref(),
        Record::Cloud(event) => {
            decoded = match &event.data {
                Some(Data::ProtoData(data)) => DecisionEvent::decode(data.value.as_slice()).unwrap_or_default(),
                Some(Data::BinaryData(_) | Data::TextData(_)) | None => DecisionEvent::default(),
            };
            &decoded
        }
        Record::Gap(gap) => return Line::Across(format!("-- {} --\n", visible::line(&gap_words(gap)))),
    };
    let time = event.event_time.as_ref().map(ToString::to_string).unwrap_or_default();
    let time = if wide { time } else { time.get(11..19).unwrap_or_default().to_owned() };
    if let Some(system) = &event.system {
        return Line::Across(system_line(&time, system));
    }
    let object = event.target.as_ref().map(shown).unwrap_or_default();
    let cause = cause_words(event);
    let position = event.position.as_ref().map(|at| format!("{}:{}", at.log_id, at.sequence)).unwrap_or_default();
    let cells = [&time, &phase_words(event), word(&ACTIONS, event.kind()), &object, &cause];
    let more = wide.then_some([event.executor.as_str(), position.as_str(), event.decision_id.as_str()]);
    Line::Row(cells.into_iter().chain(more.into_iter().flatten()).map(Cell::plain).collect())
}

/// The line for a change of the collector's own state.
fn system_line(time: &str, system: &SystemEvent) -> String {
    let kind = system.kind().as_str_name();
    let mut words = kind.strip_prefix("KIND_").unwrap_or(kind).to_lowercase().replace('_', " ");
    for (before, text) in
        [(" ", &system.name), (" in ", &system.collection), (" by ", &system.actor), (": ", &system.reason)]
    {
        if !text.is_empty() {
            words.push_str(before);
            words.push_str(text);
        }
    }
    format!("{}\n", visible::line(&format!("{time:<9} -- {words} --")))
}

/// A gap as text.
pub(in crate::kubectl) fn gap_words(gap: &Gap) -> String {
    format!("{}; the open decisions follow", lost_words(gap))
}

/// Returns the extent of a gap as text.
pub(in crate::kubectl) fn lost_words(gap: &Gap) -> String {
    let from = gap.first_missing.as_ref().map(|at| format!(" from {} on", at.sequence)).unwrap_or_default();
    match gap.reason.as_str() {
        "LOG_REPLACED" => "a new leader has a new log: earlier events are lost".to_owned(),
        "COMPACTED" => format!("the log no longer keeps events{from}: they are lost"),
        reason => format!("events{from} are lost ({reason})"),
    }
}

fn phase_words(event: &DecisionEvent) -> String {
    let word = word(&PHASES, event.phase());
    let status = event.report.as_ref().map_or(0, |report| report.http_status);
    if status == 0 { word.to_owned() } else { format!("{word} {status}") }
}

/// A class of disagreements as one word.
pub(in crate::kubectl) fn class_word(class: Class) -> String {
    class.as_str_name().trim_start_matches("CLASS_").to_lowercase()
}

/// An outcome of the comparison as one word.
pub(in crate::kubectl) fn outcome_word(outcome: Outcome) -> String {
    outcome.as_str_name().trim_start_matches("OUTCOME_").to_lowercase()
}

/// A reference with the uid of an object that is somewhere else, or something else. No owner went.
fn wrong_reference(event: &DecisionEvent) -> Option<String> {
    let is_wrong = |of| matches!(of, OwnerStanding::WrongNamespace | OwnerStanding::CoordinatesMismatch);
    let wrong = event.owners.iter().find(|edge| is_wrong(edge.standing()))?;
    let owner = wrong.owner.as_ref().filter(|_| event.root.is_none())?;
    Some(format!("no owner {} ({})", shown(owner), standing(wrong.standing())))
}

/// The cause, and the root of the cascade. For a failed attempt, the error; for a disagreement, its class.
fn cause_words(event: &DecisionEvent) -> String {
    if matches!(event.phase(), Phase::Failed | Phase::Parked) {
        let report = event.report.clone().unwrap_or_default();
        let word = report.outcome().as_str_name().to_lowercase().replace("outcome_", "").replace('_', " ");
        return if report.message.is_empty() { word } else { format!("{word}: {}", report.message) };
    }
    if let Some(found) = &event.disagreement {
        let side = match found.outcome() {
            Outcome::OursOnly => "ours only: ",
            Outcome::TheirsOnly => "theirs only: ",
            Outcome::Unspecified => "",
        };
        return format!("{side}{}", class_word(found.class()));
    }
    let words = match event.cause() {
        Cause::Unspecified => "-",
        Cause::OwnersGone if let Some(wrong) = wrong_reference(event) => return wrong,
        Cause::OwnersGone => "owners gone",
        Cause::ForegroundCascade => "owner waits for it",
        Cause::OrphanRequested => "owner orphans it",
        Cause::DanglingReference => "a reference is dangling",
        Cause::CycleBreak => "blocking references form a cycle",
        Cause::DependentsDone => "dependents done",
    };
    match &event.root {
        Some(root) => format!("{words}; it began with {}", shown(root)),
        None => words.to_owned(),
    }
}
