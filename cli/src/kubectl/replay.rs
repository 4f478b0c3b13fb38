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
use recording::{Damage, End, Ended, Header, Names, Reader, Step};
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
    Ok(replay.end().note())
}

/// Explains an object as it is at the end.
fn explanation(mut replay: Replay, named: &str, namespace: &str, printer: &Printer) -> Answered {
    while replay.step().is_some() {}
    let answer = object::explain(&replay.of, replay.clock(), named, namespace)?;
    if printer.format == Format::Table {
        printer.print(&why::recorded(&answer, replay.seconds()))?;
    } else {
        let fields = Schema::load()?.value("ExplainObjectResponse", &answer)?;
        printer.print_document(Document::new(Kind::Explanation).with_fields(fields), &[])?;
    }
    Ok(replay.end().note())
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
    let ending = replay.end().note();
    Ok(if explained.is_empty() { ending } else { Ending::Findings })
}

/// Says what the recording has, and how it ends.
fn summary(mut replay: Replay, printer: &Printer) -> Answered {
    let begun = Instant::now();
    while replay.step().is_some() {}
    let summary = Summary::of(&replay, begun.elapsed());
    if printer.format == Format::Table {
        printer.print(&summary.text())?;
    } else {
        printer.print_document(summary.document(), &[])?;
    }
    Ok(if summary.end.is_whole() { Ending::Fine } else { Ending::Findings })
}

/// A recording that is replayed, as the decision log tells it.
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

    fn end(&self) -> Stopped {
        match self.of.end() {
            None => Stopped::Until,
            Some(End::Ended(why)) => Stopped::Ended(why.clone()),
            Some(End::Open) => Stopped::Open,
            Some(End::Damaged(damage)) => Stopped::Damaged(damage.clone()),
        }
    }
}

fn seconds_since_1970(time: SystemTime) -> i64 {
    prost_types::Timestamp::from(time).seconds
}

/// Why a replay stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stopped {
    /// At the time of `--until`.
    Until,
    Ended(Ended),
    Open,
    Damaged(Damage),
}

impl Stopped {
    fn words(&self) -> String {
        match self {
            Stopped::Until => "stopped at --until".to_owned(),
            Stopped::Ended(Ended::Stopped) => "complete".to_owned(),
            Stopped::Ended(Ended::Full) => "the recording reached its maximum size".to_owned(),
            Stopped::Ended(Ended::Behind) => "the recording ended because its disk was too slow".to_owned(),
            Stopped::Open => {
                "the recording has no end: the process was killed, it still records, or a file is missing".to_owned()
            }
            Stopped::Damaged(damage) => format!("the recording is damaged: {damage}; it was replayed up to there"),
        }
    }

    fn is_whole(&self) -> bool {
        match self {
            Stopped::Until | Stopped::Ended(_) | Stopped::Open => true,
            Stopped::Damaged(_) => false,
        }
    }

    /// Says on stderr if the recording is not whole.
    fn note(&self) -> Ending {
        if *self != Stopped::Ended(Ended::Stopped) {
            ending::note(&visible::line(&self.words()));
        }
        if self.is_whole() { Ending::Fine } else { Ending::Findings }
    }
}

/// What a recording has, and how it was replayed.
struct Summary {
    header: Header,
    began: SystemTime,
    lasted: Duration,
    took: Duration,
    rounds: u64,
    inputs: u64,
    decided: BTreeMap<ActionKind, u64>,
    end: Stopped,
}

impl Summary {
    fn of(replay: &Replay, took: Duration) -> Summary {
        let header = replay.of.header().clone();
        Summary {
            began: SystemTime::UNIX_EPOCH + Duration::from_nanos(header.origin),
            header,
            lasted: replay.of.now().since_origin(),
            took,
            rounds: replay.rounds,
            inputs: replay.of.inputs(),
            decided: replay.decided.clone(),
            end: replay.end(),
        }
    }

    fn decisions(&self) -> u64 {
        self.decided.values().sum()
    }

    fn text(&self) -> String {
        let Summary { header, began, lasted, took, rounds, inputs, decided, end } = self;
        let mut text = String::new();
        let mut line = |head: &str, words: &str| {
            let _infallible = writeln!(text, "{head:<11}{}", visible::line(words));
        };
        line("recording", &format!("{} of version {}", header.recording, header.version));
        line("cluster", &header.config.cluster_uid);
        line("began", &prost_types::Timestamp::from(*began).to_string());
        line("lasted", &format!("{:.1} s, replayed in {:.1} s", lasted.as_secs_f64(), took.as_secs_f64()));
        line("names", if header.names == Names::Plain { "as in the cluster" } else { "pseudonyms" });
        line("inputs", &format!("{inputs} in {}", counted(*rounds as usize, "round")));
        let by_action = decided.iter().map(|(action, count)| format!("{}: {count}", action.as_str()));
        let by_action = by_action.collect::<Vec<_>>().join(", ");
        let decisions = self.decisions();
        line(
            "decisions",
            &if decided.is_empty() { decisions.to_string() } else { format!("{decisions} ({by_action})") },
        );
        line("end", &end.words());
        text
    }

    fn document(&self) -> Document {
        let Summary { header, began, lasted, took, rounds, inputs, decided, end } = self;
        let decided: BTreeMap<&str, u64> = decided.iter().map(|(action, count)| (action.as_str(), *count)).collect();
        Document::new(Kind::Replay)
            .with("recording", json!(header.recording))
            .with("version", json!(header.version))
            .with("clusterUid", json!(&*header.config.cluster_uid))
            .with("beginTime", json!(prost_types::Timestamp::from(*began).to_string()))
            .with("recordedSeconds", json!(lasted.as_secs_f64()))
            .with("replayedSeconds", json!(took.as_secs_f64()))
            .with("pseudonyms", json!(header.names == Names::Hashed))
            .with("rounds", json!(rounds))
            .with("inputs", json!(inputs))
            .with("decisions", json!(decided))
            .with("end", json!(end.words()))
            .with("whole", json!(end.is_whole()))
    }
}
