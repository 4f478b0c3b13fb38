//! The query commands and their flags. Names and meanings are those of kubectl where kubectl has them.

use super::globs::pattern;
use super::selector::labels;
use bytesize::ByteSize;
use clap::{ArgAction, Subcommand, ValueEnum, ValueHint};
use kube::core::Selector;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use asking::{Asking, Colour, Connection, Form, Format, Output};
pub(crate) use brake::{Pause, Resume, Status};
pub(crate) use console::{Console, Others, PublicUrl};
pub(crate) use filters::{Ages, Selectors};
pub(crate) use guards::{Approve, Budget, Gates, Limit, Preset, Protect, Release, ScopeFlags};
pub(crate) use log::{ACTIONS, Decisions, Group, PHASES, Progress, Queue, Replay, Sink, Until, word};
pub(crate) use parity::Parity;
pub(crate) use spans::limit;

mod asking;
mod brake;
mod console;
mod filters;
mod guards;
mod log;
mod parity;
mod spans;

const PARITY_CODES: &str = "\
Exit codes:
  0    each disagreement has an explanation, or nothing has been compared yet
  1    an error, also of a flag or an argument
  2    a disagreement of class unknown or earlier
  124  timed out";

const REPLAY_CODES: &str = "\
Exit codes:
  0    the recording is complete; with --against, both have the same decisions
  1    an error, also of a flag or an argument
  2    the recording is damaged, or decisions differ";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what depends on an object, as a tree.
    Tree(Tree),
    /// Shows what an object depends on, and the standing of each reference.
    Owners(Owners),
    /// Shows how one object depends on another.
    Path(Path),
    /// Explains why an object still exists, is being deleted, or was deleted.
    Why(Why),
    /// Shows what a deletion would do, without doing it.
    #[command(subcommand)]
    Plan(Plan),
    /// Deletes exactly the objects of a plan, if the plan still holds.
    Delete(Delete),
    /// Lists objects on which the collector makes no progress.
    Stuck(Stuck),
    /// Lists objects that own each other.
    Cycles(Cycles),
    /// Counts objects without owners by kind. With --dangling, lists objects with an owner that is gone.
    Orphans(Orphans),
    /// Checks every owner reference.
    Check(Check),
    /// Shows what the collector decided and did, step by step.
    Decisions(Decisions),
    /// Counts decisions that are not carried out yet.
    Queue(Queue),
    /// Follows a cascade to its end.
    Progress(Progress),
    /// Compares the decisions with another collector of the cluster, in mode observe. The numbers are those of the
    /// whole cluster.
    #[command(after_help = PARITY_CODES)]
    #[command(mut_arg("namespace", |flag| flag.help("List only disagreements of this namespace. Default: all namespaces")))]
    #[command(mut_arg("direct", |flag| flag.hide(true)), mut_arg("from_file", |flag| flag.hide(true)))]
    Parity(Parity),
    /// Shows the state of the collector: queue, executors, guards.
    #[command(mut_arg("direct", |flag| flag.hide(true)), mut_arg("from_file", |flag| flag.hide(true)))]
    Status(Status),
    /// Holds deletions of the collector, in a scope and for a time.
    #[command(mut_arg("direct", |flag| flag.hide(true)), mut_arg("from_file", |flag| flag.hide(true)))]
    Pause(Pause),
    /// Ends pauses early.
    #[command(mut_arg("direct", |flag| flag.hide(true)), mut_arg("from_file", |flag| flag.hide(true)))]
    Resume(Resume),
    /// Keeps the objects in a scope from the collector.
    Protect(Box<Protect>),
    /// Limits deletions of the collector in a scope, in a window of time.
    Budget(Box<Budget>),
    /// Lists cascades that wait for an approval, or approves one.
    Approve(Approve),
    /// Ends the hold of a guard: deletes a pause or protection, bypasses a gate, or begins a new window of a budget.
    Release(Release),
    /// Lists gates, and the decisions that wait for their policy engines.
    Gates(Gates),
    /// Serves the web console on this machine, with your credentials, until it is interrupted. Prints its address.
    Console(Console),
    /// Prints the collector's CustomResourceDefinitions, for kubectl apply.
    Crds,
    /// Writes the whole graph, or one file for a bug report.
    Export(Export),
    /// Makes the decisions of a recording once more, with this version.
    #[command(after_help = REPLAY_CODES)]
    Replay(Replay),
    /// Writes a completion script for a shell.
    Completion { shell: clap_complete::Shell },
    /// Shows the versions of this program, the API server and the graph service.
    Version(Version),
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tree {
    /// The object: TYPE NAME, TYPE/NAME or TYPE.VERSION.GROUP/NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "TYPE/NAME")]
    pub(crate) object: Vec<String>,
    /// Show what the object depends on instead.
    #[arg(long)]
    pub(crate) up: bool,
    /// Show both what the object depends on and what depends on it.
    #[arg(long, conflicts_with = "up")]
    pub(crate) both: bool,
    /// Keep watching: redraw on a terminal, print changes otherwise.
    #[arg(short, long, conflicts_with_all = ["up", "both"])]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) walk: Walk,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

/// Maximum distance of a walk from its object. The graph service has the same limit.
pub(crate) const DEPTH_MAX: u32 = 64;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Walk {
    /// Maximum distance from the object.
    #[arg(short, long, value_name = "N", default_value_t = DEPTH_MAX, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) depth: u32,
    /// Leave out the columns that are read from the API server: READY, REASON, STATUS, AGE.
    #[arg(long)]
    pub(crate) no_status: bool,
    /// Only these kinds, such as Pod,'*Set' or '!Secret', and the objects above them. The others are counted.
    #[arg(long, value_name = "GLOB,…", value_delimiter = ',', value_parser = pattern)]
    pub(crate) kinds: Vec<String>,
    /// Only kinds of these API groups, such as apps,'*.k8s.io' or '!batch'. The name of the core group is core.
    #[arg(long, value_name = "GLOB,…", value_delimiter = ',', value_parser = pattern)]
    pub(crate) api_groups: Vec<String>,
    /// Labels to show as columns; may be repeated.
    #[arg(short = 'L', long, value_name = "LABEL,…", value_delimiter = ',', conflicts_with = "no_status")]
    pub(crate) label_columns: Vec<String>,
    /// Show all labels in the last column.
    #[arg(long, conflicts_with = "no_status")]
    pub(crate) show_labels: bool,
    /// Show each object, even if many siblings are alike.
    #[arg(long)]
    pub(crate) no_fold: bool,
    #[command(flatten)]
    pub(crate) selectors: Selectors,
    #[command(flatten)]
    pub(crate) ages: Ages,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Owners {
    /// The object: TYPE NAME, TYPE/NAME or TYPE.VERSION.GROUP/NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "TYPE/NAME")]
    pub(crate) object: Vec<String>,
    #[command(flatten)]
    pub(crate) walk: Walk,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Path {
    /// The two objects, each as TYPE/NAME or TYPE.VERSION.GROUP/NAME.
    #[arg(required = true, num_args = 2, value_name = "TYPE/NAME")]
    pub(crate) objects: Vec<String>,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Why {
    /// The object: TYPE NAME, TYPE/NAME or TYPE.VERSION.GROUP/NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "TYPE/NAME")]
    pub(crate) object: Vec<String>,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Plan {
    /// Shows what a deletion would do: which objects are deleted, which stay and why, and which wait.
    Delete(PlanDelete),
}

/// How the API server treats the dependents of a deleted object. In JSON, the value of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
pub(crate) enum Cascade {
    Background,
    Foreground,
    Orphan,
}

impl Cascade {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Cascade::Background => "background",
            Cascade::Foreground => "foreground",
            Cascade::Orphan => "orphan",
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Targets {
    /// The objects: TYPE NAME..., or TYPE/NAME...; with a selector TYPE,...
    #[arg(required_unless_present = "filename", conflicts_with = "filename", value_name = "TYPE/NAME")]
    pub(crate) objects: Vec<String>,
    /// Files or directories that describe the objects, or - for standard input; may be repeated.
    #[arg(short, long, value_name = "PATH", value_delimiter = ',', value_hint = ValueHint::AnyPath, conflicts_with_all = ["selector", "field_selector"])]
    pub(crate) filename: Vec<String>,
    /// Objects of these types with these labels, such as app=web,tier!=cache.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = labels)]
    pub(crate) selector: Option<Selector>,
    /// Objects of these types with these fields, such as status.phase=Failed.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// How the dependents are treated.
    #[arg(long, value_enum, default_value = "background")]
    pub(crate) cascade: Cascade,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanDelete {
    #[command(flatten)]
    pub(crate) targets: Targets,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) targets: Targets,
    /// The digest that `plan delete` printed. Without it, the command shows the plan and asks for confirmation at the
    /// terminal.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) confirm: Option<String>,
    /// Do not ask for confirmation at a terminal. Without a terminal, --confirm is still required.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Wait until the named objects are gone. kubectl delete waits by default, this command does not.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// Maximum time of --wait. Then the command ends with exit code 124. 0s means no limit.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = spans::limit)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Stuck {
    /// Only objects that have been in this state for at least this time, such as 30s, 10m or 1d. 0s shows all.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = spans::span)]
    pub(crate) older_than: Duration,
    #[command(flatten)]
    pub(crate) selectors: Selectors,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Cycles {
    /// Only cycles of blocking references, which can stop foreground deletions.
    #[arg(long)]
    pub(crate) blocking: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Orphans {
    /// Objects that refer to an owner that is gone.
    #[arg(long)]
    pub(crate) dangling: bool,
    /// Of these, only objects whose owner was created again with another uid.
    #[arg(long, conflicts_with = "dangling")]
    pub(crate) lost_owner: bool,
    #[command(flatten)]
    pub(crate) selectors: Selectors,
    #[command(flatten)]
    pub(crate) ages: Ages,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) selectors: Selectors,
    #[command(flatten)]
    pub(crate) ages: Ages,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Export {
    /// Write the graph of the whole cluster into this file, for --from-file. The file has metadata only, compressed
    /// with zstd.
    #[arg(long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath, conflicts_with_all = ["form", "selector", "field_selector", "older_than", "newer_than", "namespace", "all_namespaces"])]
    pub(crate) snapshot: Option<PathBuf>,
    /// Write one file for a bug report instead: status, metrics, configuration without secrets, the recording if the
    /// service records, and the last decisions. Default file: ownergraph-bundle-TIME.tar.gz; - is standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_hint = ValueHint::FilePath, conflicts_with_all = ["snapshot", "form", "selector", "field_selector", "older_than", "newer_than", "direct", "from_file", "namespace", "all_namespaces"])]
    #[expect(clippy::option_option, reason = "absent, without a value, and with one")]
    pub(crate) bundle: Option<Option<PathBuf>>,
    /// Maximum size of the recording in the bundle, such as 1GiB; at most 4GiB. A larger recording is left out.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = recording_size, requires = "bundle")]
    pub(crate) max_recording: ByteSize,
    #[command(flatten)]
    pub(crate) selectors: Selectors,
    #[command(flatten)]
    pub(crate) ages: Ages,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Version {
    /// Only the version of this program.
    #[arg(long)]
    pub(crate) client: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

/// Maximum size of the recording of a bundle.
pub(crate) const RECORDING_MAX_BYTES: u64 = 4 << 30;

/// A snapshot is written completely or not at all, so it cannot go to standard output.
fn file(text: &str) -> Result<PathBuf, String> {
    if text == "-" {
        Err("a snapshot is not written to standard output: name a file".to_owned())
    } else {
        Ok(text.into())
    }
}

fn recording_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|_| "expected a size such as 500MiB or 1GiB")?;
    let fits = size.as_u64() <= RECORDING_MAX_BYTES;
    if fits { Ok(size) } else { Err("at most 4GiB; copy the files of a larger recording".to_owned()) }
}
