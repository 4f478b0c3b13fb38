//! The flags of the executor service. Each also reads `OWNERGRAPH_<FLAG>`.

use crate::address::is_loopback;
use crate::peers::Peer;
use clap::Parser;
use clap::builder::BoolishValueParser;
use engine::session::Concurrency;
use engine::work::Protocols;
use kube_api::AccessFlags;
use proto::convert::NAME_MAX_BYTES;
use runtime::telemetry::LogFormat;
use runtime::tls::{BadTls, Caller, CallerFlags, ServerFlags};
use runtime::traces;
use std::net::SocketAddr;
use std::path::PathBuf;

mod concurrency;
#[cfg(test)]
mod tests;

pub use concurrency::ConcurrencyOptions;

/// The configuration of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The executor's name, normally that of the pod. It is stable and unique among all executors: a second process of
    /// the same name supersedes the first.
    pub name: String,
    /// The replicas of the graph service, each as `HOST:PORT` or all as `dns:///NAME:PORT`; at least one entry.
    pub graph: Vec<String>,
    /// Maximum number of items in progress.
    pub concurrency: Concurrency,
    /// Whether connections may leave this machine, because they use TLS or plaintext is allowed.
    pub far: bool,
    /// Versions of the protocol to the graph service.
    pub protocols: Protocols,
    /// The receiver of spans. `None`: spans are not exported.
    pub traces: Option<traces::Settings>,
}

/// Leases work from the graph service and carries it out at the API server.
#[derive(Clone, Debug, Parser)]
#[command(name = "executor-service", version, max_term_width = 110)]
pub struct Options {
    #[command(flatten)]
    pub access: AccessFlags,

    /// Addresses of the graph service's replicas. The executor tries them in turn until one of them leads. Or
    /// dns:///NAME:PORT, a name with one address for each replica, which the executor resolves at each attempt.
    #[arg(
        long,
        env = "OWNERGRAPH_GRAPH",
        value_name = "ADDR[,ADDR...]|dns:///NAME:PORT",
        value_delimiter = ',',
        value_parser = address,
        default_value = "127.0.0.1:7450"
    )]
    pub graph: Vec<String>,

    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "OWNERGRAPH_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:7452")]
    pub admin_listen: SocketAddr,

    #[command(flatten)]
    pub tls: CallerFlags,

    /// Name in the certificate of the graph service. Default: the host of its address.
    #[arg(long, env = "OWNERGRAPH_TLS_SERVER_NAME", value_name = "NAME")]
    pub tls_server_name: Option<String>,

    /// File with the authorities that sign client certificates for the admin address. Needs --tls-cert.
    #[arg(long, env = "OWNERGRAPH_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,

    /// Allow plaintext to and on addresses that are not loopback.
    #[arg(long, env = "OWNERGRAPH_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,

    /// Name of this executor, unique among all executors. Default: the host name and the process id.
    #[arg(long, env = "OWNERGRAPH_NAME", value_name = "NAME", value_parser = name)]
    pub name: Option<String>,

    #[command(flatten)]
    pub concurrency: ConcurrencyOptions,

    #[command(flatten)]
    pub traces: traces::Flags,

    /// Format of log lines.
    #[arg(long, env = "OWNERGRAPH_LOG_FORMAT", value_name = "text|json", default_value = "text")]
    pub log_format: LogFormat,

    /// Minimum level of log lines: a level such as info, or directives such as info,executor_service=debug. Default:
    /// RUST_LOG, then info.
    #[arg(long, env = "OWNERGRAPH_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// Flags that are valid, but not allowed in this combination. The text is one sentence that names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadOptions(String);

impl Options {
    /// Checks combinations of flags.
    pub fn check(&self) -> Result<(), BadOptions> {
        let bad = |error: BadTls| BadOptions(error.to_string());
        self.tls.check("--graph", &self.graph, self.server_name()).map_err(bad)?;
        self.serving().check().map_err(bad)?;
        self.traces.check().map_err(|error| BadOptions(error.to_string()))?;
        let beyond = |address: &&String| match Peer::parse(address) {
            Ok(Peer::Name { host, .. }) => host != "localhost",
            Ok(Peer::Address(_)) | Err(_) => !is_loopback(address),
        };
        let far = self.graph.iter().find(beyond).filter(|_| !self.is_tls());
        if let (Some(address), Some(token)) = (far, &self.tls.token_file) {
            return Err(BadOptions(format!(
                "--token-file {} needs TLS or loopback, and --graph {address} is neither: other machines could read the token; set --tls-ca",
                token.display()
            )));
        }
        if let Some(address) = far.filter(|_| !self.insecure) {
            return Err(BadOptions(format!(
                "--graph {address} is not a loopback address and the connection is plaintext: use a loopback address, use TLS with --tls-ca, or allow it with --insecure"
            )));
        }
        if !self.admin_listen.ip().is_loopback() && !self.serving().is_tls() && !self.insecure {
            return Err(BadOptions(format!(
                "--admin-listen {} is not a loopback address and the connection is plaintext: use a loopback address, serve TLS with --tls-cert and --tls-key, or allow it with --insecure",
                self.admin_listen
            )));
        }
        Ok(())
    }

    fn is_tls(&self) -> bool {
        self.tls.is_tls(&self.graph)
    }

    fn server_name(&self) -> (&'static str, Option<&str>) {
        ("--tls-server-name", self.tls_server_name.as_deref())
    }

    /// The credentials for the graph service.
    pub(crate) async fn caller(&self) -> Result<Caller, BadTls> {
        Caller::open(&self.tls, self.is_tls(), self.server_name()).await
    }

    /// The TLS settings of the admin address.
    pub(crate) fn serving(&self) -> ServerFlags {
        let CallerFlags { tls_cert, tls_key, .. } = self.tls.clone();
        ServerFlags { tls_cert, tls_key, client_ca: self.client_ca.clone() }
    }

    /// The configuration of the service.
    pub fn config(&self) -> Config {
        Config {
            name: self.name.clone().unwrap_or_else(default_name),
            graph: self.graph.clone(),
            concurrency: self.concurrency.concurrency(),
            far: self.is_tls() || (self.insecure && self.tls.token_file.is_none()),
            protocols: Protocols::OURS,
            traces: self.traces.settings(),
        }
    }
}

/// The host's name (in a pod, the pod's name) and the process id, so that several executors on one host differ.
pub(crate) fn default_name() -> String {
    format!("{}-{}", runtime::host::dns_name(), std::process::id())
}

fn address(text: &str) -> Result<String, String> {
    Peer::parse(text).map(|_| text.to_owned())
}

fn name(text: &str) -> Result<String, String> {
    if text.len() > NAME_MAX_BYTES || !proto::convert::is_dns_subdomain(text) {
        return Err(format!(
            "expected a DNS-1123 subdomain of at most {NAME_MAX_BYTES} bytes, like the name of a pod: lower case letters, digits, `-` and `.`"
        ));
    }
    Ok(text.to_owned())
}
