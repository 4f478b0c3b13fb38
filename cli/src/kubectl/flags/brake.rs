//! The flags of `pause`, `resume` and `status`.

use super::asking::{Connection, Output};
use super::spans::{lifetime, span};
use engine::object::GroupResource;
use graph_service::options::kind_name;
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
#[command(group = clap::ArgGroup::new("scope").required(true).multiple(true).args(["all", "namespace", "kind"]))]
pub(crate) struct Pause {
    /// Everything.
    #[arg(long, conflicts_with_all = ["namespace", "kind"])]
    pub(crate) all: bool,
    /// Objects in this namespace; may be repeated. With --kind, an object must match both.
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,
    /// Objects of this kind, in kubectl's forms: pods, deploy, deployments.apps; may be repeated.
    #[arg(short, long, value_name = "KIND", value_delimiter = ',', value_parser = kind_name)]
    pub(crate) kind: Vec<GroupResource>,
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
