//! `parity`: how the decisions compare with another collector of the cluster, in mode observe.
//!
//! * `report`: the numbers and the disagreements in words
//! * `table`, `html`: the report as text and as a page

use super::columns::now;
use super::decisions::record::{Record, class_word, outcome_word};
use super::document::{self, Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Parity};
use super::service::{Need, Service};
use super::session::Session;
use proto::decision::v1beta1::disagreement::{Class, Outcome};
use proto::decision::v1beta1::{DecisionEvent, DecisionFilter, ListDisagreementsRequest};
use proto::r#type::v1beta1::ObjectFilter;
pub(super) use report::summary;
use report::{Report, is_empty, needs_a_look};
use serde_json::Value;
use std::time::Duration;

mod html;
mod report;
mod table;
#[cfg(test)]
mod tests;

const FORMATS: [Format; 6] = [Format::Table, Format::Wide, Format::Json, Format::Yaml, Format::Html, Format::Ndjson];
/// The numbers cover whole buckets of a quarter of an hour, and a decision is counted at the end of its wait. So a
/// counted disagreement may have begun this much before the counted time.
const BEFORE_S: i64 = 900;

pub(super) async fn run(flags: Parity) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Leader).await?;
    let numbers = service.parity(flags.since).await?;
    let namespace = session.searched().filter(|_| session.namespace_is_given()).map(str::to_owned);
    let narrowed = narrowed(namespace.as_deref(), !flags.classes.is_empty() || !flags.outcomes.is_empty());
    let flags_again = repeated(flags.since, &flags.classes, &flags.outcomes);
    let only = |name| ObjectFilter { namespaces: vec![name], ..Default::default() };
    let filter = |target| DecisionFilter { targets: vec![target], ..Default::default() };
    let request = ListDisagreementsRequest {
        include: namespace.map(only).map(filter).into_iter().collect(),
        outcomes: flags.outcomes.into_iter().map(Into::into).collect(),
        classes: flags.classes.into_iter().map(Into::into).collect(),
        ..Default::default()
    };
    let mut disagreements = service.disagreements(request).await?;
    if flags.since.is_some() {
        let begin = numbers.since.map_or(0, |since| since.seconds.saturating_sub(BEFORE_S));
        disagreements.retain(|event| event.event_time.is_some_and(|at| at.seconds >= begin));
    }
    let needs_a_look = needs_a_look(&numbers);
    let report = Report { numbers, disagreements, narrowed, flags: flags_again, now: now() };
    write(&session, &report)?;
    if is_empty(&report.numbers) {
        session.note(report::NOTHING_YET);
    }
    Ok(if needs_a_look { Ending::Findings } else { Ending::Fine })
}

/// Returns the conditions of the list of disagreements, in words.
fn narrowed(namespace: Option<&str>, is_filtered: bool) -> String {
    let place = namespace.map(|name| format!("in namespace {name}"));
    let kinds = is_filtered.then(|| "of the chosen classes and outcomes".to_owned());
    kinds.into_iter().chain(place).collect::<Vec<_>>().join(" ")
}

/// The flags of this call, for a printed command.
fn repeated(since: Option<Duration>, classes: &[Class], outcomes: &[Outcome]) -> String {
    let since = since.map(|since| format!(" --since {}s", since.as_secs()));
    let classes: Vec<String> = classes.iter().map(|class| class_word(*class)).collect();
    let outcomes: Vec<String> = outcomes.iter().map(|outcome| outcome_word(*outcome)).collect();
    let listed = |flag, words: &[String]| (!words.is_empty()).then(|| format!(" --{flag} {}", words.join(",")));
    since.into_iter().chain(listed("class", &classes)).chain(listed("outcome", &outcomes)).collect()
}

fn write(session: &Session, report: &Report) -> Result<(), Problem> {
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document(report)?),
        Format::Ndjson => session.print(&lines(&report.disagreements)?),
        Format::Html => session.print(&html::page(report)),
        Format::Wide => session.print(&table::text(report, usize::MAX, session.headings())),
        Format::Table | Format::Tree | Format::Name | Format::Dot | Format::Mermaid => {
            session.print(&table::text(report, table::SHORT, session.headings()))
        }
    }
}

fn document(report: &Report) -> Result<Document, Problem> {
    const EVENT: &str = "ownergraph.decision.v1beta1.DecisionEvent";
    let schema = Schema::load()?;
    let fields = schema.message("ownergraph.decision.v1beta1.GetParityResponse", &report.numbers)?;
    let disagreements = report.disagreements.iter().map(|event| schema.message(EVENT, event));
    let disagreements = disagreements.collect::<Result<Vec<Value>, _>>()?;
    Ok(Document::new(Kind::ParityReport).with_fields(fields).with("disagreements", disagreements.into()))
}

/// One document for each disagreement.
fn lines(disagreements: &[DecisionEvent]) -> Result<String, Problem> {
    let schema = Schema::load()?;
    let line = |event: &DecisionEvent| Record::of(event.clone()).item(&schema).map(|value| document::line(&value));
    disagreements.iter().map(line).collect()
}
