//! The flags of `pause`, `resume` and `status`.

use super::asking::{Connection, Output};
use super::guards::ScopeFlags;
use super::spans::{lifetime, span};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Status {
    /// Print the status again after each change, at most once a second, until the command is interrupted.
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The scope, lifetime and reason of a pause.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(
    ["all", "kind", "namespace", "names", "selector", "namespace_selector", "owner"]
))]
pub(crate) struct Pause {
    /// Everything.
    #[arg(
        long,
        conflicts_with_all = ["kind", "namespace", "names", "selector", "namespace_selector", "owner"]
    )]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) scope: ScopeFlags,
    /// Lifetime of the pause, such as 1h30m; at most 24h.
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    pub(crate) lifetime: Duration,
    /// Reason for the pause. `status`, `why` and the Pause resource show it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Maximum time to wait until no executor can still write in the scope. 0s looks once.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The pauses to end.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["all", "names"]))]
pub(crate) struct Resume {
    /// Names of pauses, as `status` shows them.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// All pauses.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
