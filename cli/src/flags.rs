//! Flags of both programs: which graph service, and what of it.

use clap::ValueEnum;
use clap::builder::BoolishValueParser;
use engine::object::GroupResource;
use graph_service::options::{duration, kind_name};
use runtime::tls::CallerFlags;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Where `collect` serves its gRPC API unless it is told otherwise, and where each command looks for it.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7450);

/// Which graph service.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Remote {
    /// Addresses of the graph service, the first that answers counts; the leader is found from any of them.
    #[arg(
        long,
        env = "OWNERGRAPH_SERVER",
        value_name = "ADDR,…",
        value_delimiter = ',',
        default_values_t = [LOCAL.to_string()]
    )]
    pub(crate) server: Vec<String>,

    #[command(flatten)]
    pub(crate) tls: CallerFlags,

    /// Name that the certificate of the graph service is checked against, instead of the host in its address.
    #[arg(long, env = "OWNERGRAPH_TLS_SERVER_NAME", value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,

    /// How this program calls the flag above.
    #[arg(skip = "--tls-server-name")]
    pub(crate) name_flag: &'static str,

    /// Allow plaintext to an address that is not loopback.
    #[arg(long, env = "OWNERGRAPH_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,
}

/// What to hold, for how long and why.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("scope").required(true).multiple(true).args(["all", "namespace", "kind"]))]
pub(crate) struct PauseFlags {
    /// Everything.
    #[arg(long, env = "OWNERGRAPH_ALL", value_parser = BoolishValueParser::new(), conflicts_with_all = ["namespace", "kind"])]
    pub(crate) all: bool,

    /// What is in this namespace; may be given more than once. Together with --kind, both have to be met.
    #[arg(short, long, env = "OWNERGRAPH_NAMESPACE", value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,

    /// Objects of this kind, as kubectl takes it: pods, deploy, deployments.apps; may be given more than once.
    #[arg(long, env = "OWNERGRAPH_KIND", value_name = "KIND", value_delimiter = ',', value_parser = kind_name)]
    pub(crate) kind: Vec<GroupResource>,

    /// How long, at most 24h: a pause always has an end.
    #[arg(long = "for", env = "OWNERGRAPH_FOR", value_name = "DURATION", value_parser = duration)]
    pub(crate) lifetime: Duration,

    /// Reason that `status`, `why` and the Pause resource show.
    #[arg(long, env = "OWNERGRAPH_REASON", value_name = "TEXT")]
    pub(crate) reason: String,

    /// Wait so long until no executor can write any more.
    #[arg(long, env = "OWNERGRAPH_WAIT", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// How the pause is printed.
    #[arg(short, long, env = "OWNERGRAPH_OUTPUT", value_enum, default_value = "table")]
    pub(crate) output: PauseOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PauseOutput {
    Table,
    Json,
    Name,
}

/// Which pauses to end.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["all", "names"]))]
pub(crate) struct ResumeFlags {
    /// Names of pauses, as `ownergraph status` shows them.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// All of them.
    #[arg(long, env = "OWNERGRAPH_ALL", value_parser = BoolishValueParser::new())]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusOutput {
    Table,
    Json,
}
