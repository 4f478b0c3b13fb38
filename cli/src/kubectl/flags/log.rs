//! The flags of the commands that read the decision log.

use super::spans::{limit, span};
use super::{Asking, Output};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ValueEnum, ValueHint};
use engine::object::GroupResource;
use k8s_openapi::jiff::Timestamp;
use proto::decision::v1beta1::{Cause, Phase};
use proto::work::v1beta1::ItemKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A value on the wire, its word in flags and tables, and the help about it.
type Word<T> = (T, &'static str, Option<&'static str>);

/// The phases of a decision.
pub(crate) const PHASES: [Word<Phase>; 11] = [
    (Phase::Proposed, "proposed", None),
    (Phase::Held, "held", None),
    (Phase::Leased, "leased", None),
    (Phase::Succeeded, "done", None),
    (Phase::Failed, "failed", None),
    (Phase::Parked, "parked", None),
    (Phase::Superseded, "superseded", None),
    (Phase::Released, "released", None),
    (Phase::Confirmed, "gone", Some("A deletion that was carried out, after the object is gone")),
    (
        Phase::AwaitingFinalizers,
        "finalizers",
        Some("A deletion that was carried out, while finalizers keep the object"),
    ),
    (Phase::Disagreed, "disagreed", Some("Not a step: another collector disagrees, in mode observe")),
];

/// Why a decision was made.
const CAUSES: [Word<Cause>; 6] = [
    (Cause::OwnersGone, "owners-gone", None),
    (Cause::ForegroundCascade, "foreground-cascade", None),
    (Cause::OrphanRequested, "orphan-requested", None),
    (Cause::DanglingReference, "dangling-reference", None),
    (Cause::CycleBreak, "cycle-break", None),
    (Cause::DependentsDone, "dependents-done", None),
];

/// The actions of decisions.
pub(crate) const ACTIONS: [Word<ItemKind>; 4] = [
    (ItemKind::Delete, "delete", None),
    (ItemKind::RemoveOwnerReferences, "unref", None),
    (ItemKind::UnblockOwnerReferences, "unblock", None),
    (ItemKind::RemoveFinalizer, "unfinalize", None),
];

/// The word for a value; a dash for one that is not set.
pub(crate) fn word<T: PartialEq>(words: &'static [Word<T>], value: T) -> &'static str {
    words.iter().find(|(of, ..)| *of == value).map_or("-", |(_, word, _)| word)
}

/// Reads one of the words.
fn one_of<T: Copy + Default + Send + Sync>(words: &'static [Word<T>]) -> impl TypedValueParser<Value = T> {
    let possible = words.iter().map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    let value = |given: String| words.iter().find(|(_, word, _)| *word == given).map(|(of, ..)| *of);
    PossibleValuesParser::new(possible).map(move |given| value(given).unwrap_or_default())
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Decisions {
    /// Only this decision, in all its phases.
    #[arg(value_name = "DECISION", conflicts_with_all = ["follow", "since", "last", "after", "oldest", "open", "cloudevents", "verdicts", "reasons", "actions", "resources", "cel"])]
    pub(crate) decision: Option<String>,
    /// Follow new events.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events newer than this, such as 10m or 1d. 0s means all.
    #[arg(long, value_name = "DURATION", value_parser = span, conflicts_with_all = ["after", "oldest", "open", "cloudevents"])]
    pub(crate) since: Option<Duration>,
    /// Number of newest events to show. Default: 100, unless another start is given.
    #[arg(long, value_name = "N", conflicts_with_all = ["after", "oldest", "open", "cloudevents"])]
    pub(crate) last: Option<u32>,
    /// Only events after this position, which an earlier run printed.
    #[arg(long, value_name = "LOG:NUMBER", conflicts_with_all = ["oldest", "open"])]
    pub(crate) after: Option<String>,
    /// Begin with the oldest kept event.
    #[arg(long, conflicts_with = "open")]
    pub(crate) oldest: bool,
    /// Begin with the current state of every open decision.
    #[arg(long)]
    pub(crate) open: bool,
    /// Only decisions in this phase; may be repeated.
    #[arg(long = "verdict", value_parser = one_of(&PHASES), value_name = "PHASE", value_delimiter = ',')]
    pub(crate) verdicts: Vec<Phase>,
    /// Only decisions with this cause; may be repeated.
    #[arg(long = "cause", alias = "reason", value_parser = one_of(&CAUSES), value_name = "CAUSE", value_delimiter = ',')]
    pub(crate) reasons: Vec<Cause>,
    /// Only decisions with this action; may be repeated.
    #[arg(long = "action", value_parser = one_of(&ACTIONS), value_delimiter = ',')]
    pub(crate) actions: Vec<ItemKind>,
    /// Only objects of this collection, as RESOURCE or RESOURCE.GROUP; may be repeated.
    #[arg(short = 'k', long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = graph_service::options::kind_name)]
    pub(crate) resources: Vec<GroupResource>,
    /// Only decisions for which this expression is true, in the Common Expression Language:
    /// `event.target.name.startsWith("web")`.
    #[arg(long, value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    pub(crate) cel: String,
    /// Write CloudEvents 1.0, one JSON object a line. Default start: the oldest kept event.
    #[arg(long)]
    pub(crate) cloudevents: bool,
    /// File with the position up to which events are written or, with --sink, delivered. The command begins after it.
    /// Default start without the file: the oldest kept event.
    #[arg(long, value_name = "FILE", requires = "follow", value_hint = ValueHint::FilePath, conflicts_with_all = ["since", "last"])]
    pub(crate) position: Option<PathBuf>,
    /// Address of /livez, /readyz and /metrics, in plaintext. They show counts and no names of objects.
    #[arg(long, value_name = "ADDR", requires = "follow")]
    pub(crate) admin_listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) to: Sink,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

/// The receiver of events, instead of the output.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Sink")]
pub(crate) struct Sink {
    /// POST each event to this http:// or https:// URL, as a CloudEvent 1.0 in structured mode. The
    /// receiver gets each event at least once, unless the event becomes a dead letter. Events of one object arrive in
    /// order. Default start: the oldest kept event.
    #[arg(long, value_name = "URL", requires = "follow", conflicts_with_all = ["since", "last", "form"])]
    pub(crate) sink: Option<String>,
    /// File with the authorities of the receiver's certificate, as PEM. Reloaded when it changes. Default: the
    /// authorities of this machine.
    #[arg(long, value_name = "FILE", requires = "sink", value_hint = ValueHint::FilePath)]
    pub(crate) sink_ca: Option<PathBuf>,
    /// File with a bearer token for the receiver. Reloaded when it changes. The token is sent over TLS or loopback
    /// only.
    #[arg(long, value_name = "FILE", requires = "sink", value_hint = ValueHint::FilePath)]
    pub(crate) sink_token_file: Option<PathBuf>,
    /// Maximum number of requests at a time. One object has one at a time.
    #[arg(long, value_name = "N", requires = "sink", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) sink_in_flight: u16,
    /// Time for which an event is sent again. After it the event is a dead letter. 0s means no limit.
    #[arg(long, value_name = "DURATION", requires = "sink", default_value = "1h", value_parser = limit)]
    pub(crate) sink_retry_for: Duration,
    /// File to which events are appended that the receiver refuses, one JSON object a line, or - for standard output.
    /// Default: standard error.
    #[arg(long, value_name = "FILE", requires = "sink", value_hint = ValueHint::FilePath)]
    pub(crate) dead_letters: Option<PathBuf>,
}

/// How decisions are grouped for the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    Kind,
    Namespace,
    /// The root of the cascade.
    Root,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Queue {
    /// How to group the decisions for the count.
    #[arg(long, value_enum, default_value = "kind")]
    pub(crate) by: Group,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Progress {
    /// The object whose deletion began the cascade: TYPE NAME or TYPE/NAME.
    #[arg(required_unless_present = "root", conflicts_with = "root", num_args = 1..=2, value_name = "TYPE/NAME")]
    pub(crate) object: Vec<String>,
    /// Uid of the object whose deletion began the cascade.
    #[arg(long, value_name = "UID")]
    pub(crate) root: Option<String>,
    /// Maximum time to wait. Then the command ends with exit code 124, and the cascade continues. 0s means no limit.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = limit)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Replay {
    /// The directory of a recording, or its first file: what `graph-service --record` has written. Or a bundle, which
    /// `export --bundle` has written.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Stop at this time: a time such as 2026-01-01T12:00:00Z, or a time since the begin of the recording, such as 10m.
    #[arg(long, value_name = "TIME", value_parser = Until::parse)]
    pub(crate) until: Option<Until>,
    /// Explain one object as it is at the end, as `why` does.
    #[arg(long, value_name = "TYPE/NAME", conflicts_with_all = ["decisions", "against"])]
    pub(crate) why: Option<String>,
    /// The namespace of the object.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default", requires = "why")]
    pub(crate) namespace: String,
    /// Print all events of the decision log, one JSON document for each line.
    #[arg(long)]
    pub(crate) decisions: bool,
    /// Compare the decisions with those of a file that --decisions has written with another version.
    #[arg(long, value_name = "OTHER_DECISIONS", conflicts_with = "decisions")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A time of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    At(Timestamp),
    Since(Duration),
}

impl Until {
    fn parse(text: &str) -> Result<Until, String> {
        match text.parse() {
            Ok(at) => Ok(Until::At(at)),
            Err(_) => span(text).map(Until::Since).map_err(|_| {
                "expected a time such as 2026-01-01T12:00:00Z, or a time since the begin such as 10m".to_owned()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_api_has_its_word() {
        fn check<T: TryFrom<i32> + Copy + PartialEq + std::fmt::Debug>(words: &'static [Word<T>]) {
            let known: Vec<T> = (1..1_000).filter_map(|number| T::try_from(number).ok()).collect();
            assert_eq!(known.len(), words.len());
            for value in known {
                let word = word(words, value);
                assert_eq!(words.iter().find(|(_, other, _)| *other == word).map(|(of, ..)| *of), Some(value));
            }
        }
        check(&PHASES);
        check(&CAUSES);
        check(&ACTIONS);
    }
}
