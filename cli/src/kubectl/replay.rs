//! `replay`: the decisions of a recording once more, in this process and without a cluster.
//!
//! * `differences`: the decisions of another version in a file, compared with those of this one
//! * `object`: one object of the recorded graph, by its name

use super::bundle::archive::Trace;
use super::decisions::record::Record;
use super::document::{Document, Kind, Schema};
use super::ending::{self, Answered, Ending, Problem};
use super::flags::{self, Format, Until};
use super::printer::Printer;
use super::why;
use crate::counted::counted;
use differences::Differences;
use engine::leader::Event;
use engine::time::Time;
use engine::work::ActionKind;
use proto::convert::{Clock, LeaderLog};
use proto::decision::v1beta1::{DecisionEvent, Position};
use recording::{End, Ended, Names, Reader, Step};
use runtime::visible;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

mod differences;
mod object;
#[cfg(test)]
mod tests;

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Yaml];
/// The only form of all events.
const EVENT_FORMATS: [Format; 1] = [Format::Ndjson];
/// The log of a replay, in positions of its events.
const LOG: &str = "replay";

pub(super) fn run(flags: &flags::Replay) -> Answered {
    let formats: &[Format] = if flags.decisions { &EVENT_FORMATS } else { &FORMATS };
    let printer = Printer::of(flags.output.clone(), formats)?;
    let trace = Trace::open(&flags.trace)?;
    let replay = Replay::open(&trace.path, flags.until)?;
    match (flags.decisions, &flags.why, &flags.against) {
        (true, _, _) => decisions(replay),
        (false, Some(named), _) => explanation(replay, named, &flags.namespace, &printer),
        (false, None, Some(other)) => comparison(replay, (&trace, flags.until), other, &printer),
        (false, None, None) => summary(replay, &printer),
    }
}

/// Prints all events of the decision log.
fn decisions(mut replay: Replay) -> Answered {
    replay.tells = true;
    let (schema, mut out) = (Schema::load()?, std::io::BufWriter::new(std::io::stdout().lock()));
    while let Some(events) = replay.step() {
        for event in events {
            let item = Record::of(event).item(&schema)?;
            out.write_all(visible::json(&item.to_string()).as_bytes())?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(replay.noted())
}

/// Explains an object at the end of the recording.
fn explanation(mut replay: Replay, named: &str, namespace: &str, printer: &Printer) -> Answered {
    while replay.step().is_some() {}
    let answer = object::explain(&replay.of, replay.clock(), named, namespace)?;
    if printer.format == Format::Table {
        printer.print(&why::recorded(&answer, replay.seconds()))?;
    } else {
        let fields = Schema::load()?.value("ExplainObjectResponse", &answer)?;
        printer.print_document(Document::new(Kind::Explanation).with_fields(fields), &[])?;
    }
    Ok(replay.noted())
}

/// Compares the decisions with those of a file.
fn comparison(mut replay: Replay, (trace, stop): (&Trace, Option<Until>), other: &Path, printer: &Printer) -> Answered {
    replay.tells = true;
    let mut differences = Differences::of(other)?;
    while let Some(events) = replay.step() {
        events.iter().for_each(|event| differences.take(event));
    }
    // Later decisions of the file are not replayed.
    let origin = i128::from(replay.of.header().origin);
    let until = replay.until.map(|until| origin + until.since_origin().as_nanos() as i128);
    let explained = differences.explained(until, || Replay::open(&trace.path, stop))?;
    if printer.format == Format::Table {
        printer.print(&explained.text(other))?;
    } else {
        printer.print_document(explained.document(&Schema::load()?)?, &[])?;
    }
    let ending = replay.noted();
    Ok(if explained.is_empty() { ending } else { Ending::Findings })
}

/// Says what the recording has, and how it ends.
fn summary(mut replay: Replay, printer: &Printer) -> Answered {
    let begun = Instant::now();
    while replay.step().is_some() {}
    let took = begun.elapsed();
    if printer.format == Format::Table {
        printer.print(&replay.text(took))?;
    } else {
        printer.print_document(replay.document(took), &[])?;
    }
    Ok(replay.ending())
}

/// A recording that is replayed, as the decision log records it.
struct Replay {
    of: recording::Replay,
    until: Option<Time>,
    /// Whether steps return events, which takes as long as the decisions.
    tells: bool,
    log: LeaderLog,
    sequence: u64,
    rounds: u64,
    decided: BTreeMap<ActionKind, u64>,
}

impl Replay {
    fn open(trace: &Path, until: Option<Until>) -> Result<Replay, Problem> {
        let reader = Reader::open(trace).map_err(|error| Problem::sentence(visible::line(&error.to_string())))?;
        let of = recording::Replay::new(reader);
        let until = until.map(|until| match until {
            Until::Since(since) => Time::from_origin(since),
            Until::At(at) => {
                let since = u64::try_from(at.as_nanosecond()).unwrap_or(0).saturating_sub(of.header().origin);
                Time::from_origin(Duration::from_nanos(since))
            }
        });
        Ok(Replay {
            of,
            until,
            tells: false,
            log: LeaderLog::default(),
            sequence: 0,
            rounds: 0,
            decided: BTreeMap::new(),
        })
    }

    /// Replays a round. Returns its events of the decision log, if they are wanted.
    fn step(&mut self) -> Option<Vec<DecisionEvent>> {
        let Step { events, .. } = self.of.step_until(self.until)?;
        self.rounds += 1;
        let clock = self.clock();
        let mut told = Vec::new();
        for event in &events {
            if let Event::Decided { action, repeated: false, .. } = event {
                *self.decided.entry(*action).or_default() += 1;
            }
            if !self.tells {
                continue;
            }
            let Some(event) = self.log.record(event, clock) else { continue };
            self.sequence += 1;
            let position = Some(Position { log_id: LOG.to_owned(), sequence: self.sequence });
            told.push(DecisionEvent { position, ..event });
        }
        Some(told)
    }

    /// The time of the last round.
    fn clock(&self) -> Clock {
        let now = self.of.now();
        let since = Duration::from_nanos(self.of.header().origin) + now.since_origin();
        Clock { now, calendar: SystemTime::UNIX_EPOCH + since }
    }

    /// That time in seconds since 1970.
    fn seconds(&self) -> i64 {
        seconds_since_1970(self.clock().calendar)
    }
}

fn seconds_since_1970(time: SystemTime) -> i64 {
    prost_types::Timestamp::from(time).seconds
}

/// Why a replay stopped, in words. `None`: at the time of `--until`.
fn words(end: Option<&End>) -> String {
    match end {
        None => "stopped at --until".to_owned(),
        Some(End::Ended(Ended::Stopped)) => "complete".to_owned(),
        Some(End::Ended(Ended::Full)) => "the recording reached its maximum size".to_owned(),
        Some(End::Ended(Ended::Behind)) => "the recording ended because its disk was too slow".to_owned(),
        Some(End::Open) => {
            "the recording has no end: the process was killed, it still records, or a file is missing".to_owned()
        }
        Some(End::Damaged(damage)) => format!("the recording is damaged: {damage}; it was replayed up to there"),
    }
}

/// The report about a recording and its replay.
impl Replay {
    /// A damage is a finding.
    fn ending(&self) -> Ending {
        if matches!(self.of.end(), Some(End::Damaged(_))) { Ending::Findings } else { Ending::Fine }
    }

    /// Says on stderr if the recording is not whole.
    fn noted(&self) -> Ending {
        let end = self.of.end();
        if !matches!(end, Some(End::Ended(Ended::Stopped))) {
            ending::note(&visible::line(&words(end)));
        }
        self.ending()
    }

    fn began(&self) -> String {
        let began = SystemTime::UNIX_EPOCH + Duration::from_nanos(self.of.header().origin);
        prost_types::Timestamp::from(began).to_string()
    }

    fn text(&self, took: Duration) -> String {
        let (header, lasted) = (self.of.header(), self.of.now().since_origin());
        let mut text = String::new();
        let mut line = |head: &str, words: &str| {
            let _infallible = writeln!(text, "{head:<11}{}", visible::line(words));
        };
        line("recording", &format!("{} of version {}", header.recording, header.version));
        line("cluster", &header.config.cluster_uid);
        line("began", &self.began());
        line("lasted", &format!("{:.1} s, replayed in {:.1} s", lasted.as_secs_f64(), took.as_secs_f64()));
        line("names", if header.names == Names::Plain { "as in the cluster" } else { "pseudonyms" });
        line("inputs", &format!("{} in {}", self.of.inputs(), counted(self.rounds, "round")));
        let by_action = self.decided.iter().map(|(action, count)| format!("{}: {count}", action.as_str()));
        let by_action = by_action.collect::<Vec<_>>().join(", ");
        let decisions: u64 = self.decided.values().sum();
        let by_action = if by_action.is_empty() { by_action } else { format!(" ({by_action})") };
        line("decisions", &format!("{decisions}{by_action}"));
        line("end", &words(self.of.end()));
        text
    }

    fn document(&self, took: Duration) -> Document {
        let header = self.of.header();
        let decided: BTreeMap<&str, u64> = self.decided.iter().map(|(of, count)| (of.as_str(), *count)).collect();
        Document::new(Kind::Replay).with_fields(json!({
            "recording": header.recording,
            "version": header.version,
            "clusterUid": &*header.config.cluster_uid,
            "beginTime": self.began(),
            "recordedSeconds": self.of.now().since_origin().as_secs_f64(),
            "replayedSeconds": took.as_secs_f64(),
            "pseudonyms": header.names == Names::Hashed,
            "rounds": self.rounds,
            "inputs": self.of.inputs(),
            "decisions": decided,
            "end": words(self.of.end()),
            "whole": self.ending() == Ending::Fine,
        }))
    }
}
