//! The flags of the commands that read the decision log.

use super::spans::{limit, span};
use super::{Asking, Output};
use clap::{ValueEnum, ValueHint};
use engine::object::GroupResource;
use k8s_openapi::jiff::Timestamp;
use proto::decision::v1beta1::{Cause, Phase};
use proto::work::v1beta1::ItemKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The phase of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verdict {
    Proposed,
    Held,
    Leased,
    Done,
    Failed,
    Parked,
    Superseded,
    Released,
    /// A deletion that was carried out, after the object is gone.
    Gone,
    /// A deletion that was carried out, while finalizers keep the object.
    Finalizers,
    /// Not a step: another collector disagrees, in mode observe.
    Disagreed,
}

impl From<Verdict> for Phase {
    fn from(verdict: Verdict) -> Phase {
        match verdict {
            Verdict::Proposed => Phase::Proposed,
            Verdict::Held => Phase::Held,
            Verdict::Leased => Phase::Leased,
            Verdict::Done => Phase::Succeeded,
            Verdict::Failed => Phase::Failed,
            Verdict::Parked => Phase::Parked,
            Verdict::Superseded => Phase::Superseded,
            Verdict::Released => Phase::Released,
            Verdict::Gone => Phase::Confirmed,
            Verdict::Finalizers => Phase::AwaitingFinalizers,
            Verdict::Disagreed => Phase::Disagreed,
        }
    }
}

/// Why a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reason {
    OwnersGone,
    ForegroundCascade,
    OrphanRequested,
    DanglingReference,
    CycleBreak,
    DependentsDone,
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Cause {
        match reason {
            Reason::OwnersGone => Cause::OwnersGone,
            Reason::ForegroundCascade => Cause::ForegroundCascade,
            Reason::OrphanRequested => Cause::OrphanRequested,
            Reason::DanglingReference => Cause::DanglingReference,
            Reason::CycleBreak => Cause::CycleBreak,
            Reason::DependentsDone => Cause::DependentsDone,
        }
    }
}

/// The action of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    Delete,
    Unref,
    Unblock,
    Unfinalize,
}

impl From<Action> for ItemKind {
    fn from(action: Action) -> ItemKind {
        match action {
            Action::Delete => ItemKind::Delete,
            Action::Unref => ItemKind::RemoveOwnerReferences,
            Action::Unblock => ItemKind::UnblockOwnerReferences,
            Action::Unfinalize => ItemKind::RemoveFinalizer,
        }
    }
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
    #[arg(long = "verdict", value_enum, value_name = "PHASE", value_delimiter = ',')]
    pub(crate) verdicts: Vec<Verdict>,
    /// Only decisions with this cause; may be repeated.
    #[arg(long = "cause", alias = "reason", value_enum, value_name = "CAUSE", value_delimiter = ',')]
    pub(crate) reasons: Vec<Reason>,
    /// Only decisions with this action; may be repeated.
    #[arg(long = "action", value_enum, value_delimiter = ',')]
    pub(crate) actions: Vec<Action>,
    /// Only objects of this collection, as RESOURCE or RESOURCE.GROUP; may be repeated.
    #[arg(short = 'k', long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = graph_service::options::kind_name)]
    pub(crate) resources: Vec<GroupResource>,
    /// Only decisions for which this expression is true, in the Common Expression Language:
    /// `event.target.name.startsWith("web")`.
    #[arg(long, value_name = "EXPRESSION", default_value = "", hide_default_value = true)]
    pub(crate) cel: String,
    /// Write CloudEvents 1.0. Default start: the oldest kept event.
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
    /// File with a bearer token for the receiver. Reloaded when it changes. The token is sent over TLS or loopback only.
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
