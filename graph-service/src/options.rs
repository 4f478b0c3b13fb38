//! The flags of the graph service. Each also reads `OWNERGRAPH_<FLAG>`.

use crate::app::Config;
use crate::decisions::{JetStream, Server};
use crate::election::LeaseOptions;
use crate::flags::Flags;
use crate::grpc::web::Origin;
use bytesize::ByteSize;
use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, ValueEnum};
use engine::leader;
use engine::object::{GroupResource, in_group};
use engine::pace::Rate;
use engine::work::Protocols;
use kube_api::AccessFlags;
use runtime::telemetry::LogFormat;
use runtime::tls::ServerFlags;
use runtime::traces;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

mod audit;
#[cfg(test)]
mod tests;

pub use audit::{Audit, NotOpened};

/// Maximum duration of a Lease or renewal. A longer one is a typing error.
const LEASE_DURATION_MAX: Duration = Duration::from_secs(3600);
/// A smaller one has no room for the first lists of a cluster. Mostly it is a number without its unit.
const RECORD_MAX_MIN: ByteSize = ByteSize::mib(16);
/// More than any API server handles.
const WRITES_PER_SECOND_MAX: i64 = 1_000_000;

/// Watches the metadata of all objects, keeps the owner-reference graph, decides what is garbage and leases the work to
/// executors.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "graph-service", version, max_term_width = 110)]
pub struct Options {
    #[command(flatten)]
    pub access: AccessFlags,

    /// Address of the gRPC API for executors and clients.
    #[arg(long, env = "OWNERGRAPH_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:7450")]
    pub listen: SocketAddr,

    /// Address of /livez, /readyz, /metrics and /debug/graph.
    #[arg(long, env = "OWNERGRAPH_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:7451")]
    pub admin_listen: SocketAddr,

    #[command(flatten)]
    pub tls: ServerFlags,

    /// Audience of the callers' bearer tokens. Used only with TLS.
    #[arg(long, env = "OWNERGRAPH_TOKEN_AUDIENCE", value_name = "NAME", default_value = "ownergraph")]
    pub token_audience: String,

    /// Accept also bearer tokens for the API server itself, as kubeconfigs have them. Used only with TLS.
    #[arg(long, env = "OWNERGRAPH_API_SERVER_TOKENS", value_parser = BoolishValueParser::new())]
    pub api_server_tokens: bool,

    /// Accept also client certificates that the API server accepts: of client-ca-file in ConfigMap
    /// kube-system/extension-apiserver-authentication. Used only with TLS.
    #[arg(long, env = "OWNERGRAPH_CLUSTER_CLIENT_CA", value_parser = BoolishValueParser::new())]
    pub cluster_client_ca: bool,

    /// File with the authorities of --tls-cert, as PEM. The service writes them to key ca.crt of ConfigMap
    /// kube-public/ownergraph, where kubectl ownergraph looks for them.
    #[arg(long, env = "OWNERGRAPH_PUBLISH_CA", value_name = "FILE", requires = "tls_cert")]
    pub publish_ca: Option<PathBuf>,

    /// Allow plaintext on an address that is not loopback.
    #[arg(long, env = "OWNERGRAPH_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,

    /// Origins of web pages that may call GraphService, DecisionService and AdminService by gRPC-Web, as https://HOST
    /// or https://HOST:PORT. Callers need the same credentials and rights as by gRPC. Default: no web page may call.
    #[arg(long, env = "OWNERGRAPH_GRPC_WEB_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    pub grpc_web_origins: Vec<Origin>,

    /// Name of this replica. Default: the host name.
    #[arg(long, env = "OWNERGRAPH_REPLICA_NAME", value_name = "NAME")]
    pub replica_name: Option<String>,

    /// Address of this replica's gRPC API for clients of other replicas. Default: the --listen address, unless that is
    /// 0.0.0.0 or [::].
    #[allow(rustdoc::broken_intra_doc_links, reason = "clap shows this text in `--help` verbatim")]
    #[arg(long, env = "OWNERGRAPH_ADVERTISE", value_name = "ADDR")]
    pub advertise: Option<String>,

    /// Carry out decisions, or only make and publish them.
    #[arg(long, env = "OWNERGRAPH_MODE", value_enum, default_value = "enforce")]
    pub mode: Mode,

    /// Resources that are not watched, as RESOURCE or RESOURCE.GROUP. The collector neither collects their objects nor
    /// removes the finalizers foregroundDeletion and orphan from them: delete such objects with propagation policy
    /// Background.
    #[arg(
        long,
        env = "OWNERGRAPH_IGNORE_RESOURCES",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = group_resource,
        default_value = "events,events.events.k8s.io"
    )]
    pub ignore_resources: Vec<GroupResource>,

    #[command(flatten)]
    pub policy: Policy,

    #[command(flatten)]
    pub decision_log: DecisionLog,

    #[command(flatten)]
    pub traces: traces::Flags,

    #[command(flatten)]
    pub record: Record,

    #[command(flatten)]
    pub audit: Audit,

    /// Namespace of the election Lease.
    #[arg(long, env = "OWNERGRAPH_LEASE_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system", value_parser = dns_name)]
    pub lease_namespace: String,

    /// Name of the election Lease.
    #[arg(long, env = "OWNERGRAPH_LEASE_NAME", value_name = "NAME", default_value = "ownergraph", value_parser = dns_name)]
    pub lease_name: String,

    /// Time without a renewal after which another replica may take the Lease.
    #[arg(long, env = "OWNERGRAPH_LEASE_DURATION", value_name = "DURATION", default_value = "18s", value_parser = duration)]
    pub lease_duration: Duration,

    /// Time without a renewal after which the leader stops leading. Must be shorter than --lease-duration. If requests
    /// to the API server take half of this time, no replica can lead.
    #[arg(long, env = "OWNERGRAPH_RENEW_DEADLINE", value_name = "DURATION", default_value = "12s", value_parser = duration)]
    pub renew_deadline: Duration,

    /// Interval of reads and renewals of the Lease. Must be shorter than --renew-deadline.
    #[arg(long, env = "OWNERGRAPH_RETRY_PERIOD", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,

    /// Format of log lines.
    #[arg(long, env = "OWNERGRAPH_LOG_FORMAT", value_name = "text|json", default_value = "text")]
    pub log_format: LogFormat,

    /// Minimum level of log lines: a level such as info, or directives such as info,graph_service=debug. Default:
    /// RUST_LOG, then info.
    #[arg(long, env = "OWNERGRAPH_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Enforce,
    /// Decide, publish and count; grant nothing.
    Observe,
}

impl From<Mode> for leader::Mode {
    fn from(mode: Mode) -> leader::Mode {
        match mode {
            Mode::Enforce => leader::Mode::Enforce,
            Mode::Observe => leader::Mode::Observe,
        }
    }
}

/// Policies: choices of the administrator for ambiguous cases, and the rate of writes.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Policy {
    /// How to judge an object with an owner reference to another namespace, kind or name than the owner's own: `delete`
    /// judges it as kube-controller-manager does, `hold` keeps it while the owner exists.
    #[arg(long, env = "OWNERGRAPH_INVALID_REFERENCES", value_enum, default_value = "delete")]
    pub invalid_references: InvalidReferences,

    /// Reaction to a restore of the API server's store to an earlier state, once all objects are listed again:
    /// `continue` resumes after a minute of consistent reads, `hold` grants nothing until this process restarts.
    #[arg(long, env = "OWNERGRAPH_ON_STORE_REWIND", value_enum, default_value = "continue")]
    pub on_store_rewind: OnStoreRewind,

    /// Resources that cannot be listed and must not hold owners in deletion. GROUP/* names all resources of a group
    /// whose server is down.
    #[arg(
        long,
        env = "OWNERGRAPH_ASSUME_NO_DEPENDENTS",
        value_name = "GROUP/RESOURCE",
        value_delimiter = ',',
        value_parser = group_and_resources
    )]
    pub assume_no_dependents: Vec<GroupResource>,

    /// Resources that the API server keeps in a separate etcd, as in its --etcd-servers-overrides, without events,
    /// which are not watched. If such a resource is missing here, its objects and their dependents may never be
    /// collected.
    #[arg(
        long,
        env = "OWNERGRAPH_SEPARATE_STORES",
        value_name = "GROUP/RESOURCE",
        value_delimiter = ',',
        value_parser = group_and_resource
    )]
    pub separate_stores: Vec<GroupResource>,

    /// Maximum number of writes to the API server per second, by all executors together. Default: only the API server's
    /// throttling limits them.
    #[arg(
        long,
        env = "OWNERGRAPH_MAX_WRITES_PER_SECOND",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=WRITES_PER_SECOND_MAX)
    )]
    pub max_writes_per_second: Option<u32>,

    /// The breaker of mass deletions. It holds the deletions of a collection of more than 1,000 objects, and creates a
    /// Pause, if more than 30 % of the collection lost their owners within five minutes and the watch showed no
    /// deletion of these owners, or if executors prevented more than ten wrong deletions.
    #[arg(long, env = "OWNERGRAPH_BREAKER", value_name = "MODE", value_enum, default_value_t)]
    pub breaker: Breaker,
}

/// Whether the built-in breaker is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Breaker {
    #[default]
    On,
    Off,
}

/// The storage of the decision log.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct DecisionLog {
    /// NATS servers whose JetStream keeps the decision log, as nats://[USER:PASSWORD@]HOST[:PORT] or tls://…. Positions
    /// then survive changes of leader and restarts, and each replica serves the log. Default: the memory of the leader.
    /// An existing stream keeps its settings. A new stream keeps one day, two million events and one GiB, without
    /// replicas.
    #[allow(rustdoc::broken_intra_doc_links, reason = "clap shows this text in `--help` verbatim")]
    #[arg(long, env = "OWNERGRAPH_DECISION_LOG", hide_env_values = true, value_name = "URL", value_delimiter = ',', value_parser = ServerParser)]
    pub decision_log: Vec<Server>,

    /// Grant no work while the decision log cannot be written. Without this flag work continues, and events without
    /// room in the queue are marked as lost in the log.
    #[arg(long, env = "OWNERGRAPH_DECISION_LOG_REQUIRED", value_parser = BoolishValueParser::new())]
    pub decision_log_required: bool,
}

impl DecisionLog {
    /// Checks combinations of flags. The error is one sentence that names the flags.
    pub fn check(&self, insecure: bool) -> Result<(), String> {
        if self.decision_log_required && self.decision_log.is_empty() {
            return Err("--decision-log-required needs --decision-log: a log in memory is always writable".to_owned());
        }
        if self.decision_log.iter().any(|one| self.decision_log.iter().any(|other| one.contradicts(other))) {
            return Err(
                "--decision-log names different users, passwords or tokens: all servers must have the same".to_owned()
            );
        }
        match self.decision_log.iter().find(|server| server.is_open_to_others() && !insecure) {
            Some(server) => Err(format!(
                "--decision-log {server} is not a loopback address and the connection is plaintext: use tls://, or allow it with --insecure"
            )),
            None => Ok(()),
        }
    }
}

/// Parses a server. Errors do not show the text, because it may contain a password.
#[derive(Clone, Debug)]
struct ServerParser;

impl TypedValueParser for ServerParser {
    type Value = Server;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Server, clap::Error> {
        let refuse = |why: &str| {
            let message = format!("invalid value for '--decision-log <URL>': {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        };
        value.to_str().ok_or_else(|| refuse("it is not text"))?.parse().map_err(refuse)
    }
}

impl From<DecisionLog> for Option<JetStream> {
    fn from(log: DecisionLog) -> Option<JetStream> {
        let is_wanted = !log.decision_log.is_empty();
        is_wanted.then_some(JetStream { servers: log.decision_log, required: log.decision_log_required })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InvalidReferences {
    Delete,
    Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnStoreRewind {
    Continue,
    Hold,
}

impl From<Policy> for leader::Policy {
    fn from(policy: Policy) -> leader::Policy {
        leader::Policy {
            invalid_references: match policy.invalid_references {
                InvalidReferences::Delete => leader::InvalidReferences::Delete,
                InvalidReferences::Hold => leader::InvalidReferences::Hold,
            },
            on_store_rewind: match policy.on_store_rewind {
                OnStoreRewind::Continue => leader::OnStoreRewind::Continue,
                OnStoreRewind::Hold => leader::OnStoreRewind::Hold,
            },
            assume_no_dependents: policy.assume_no_dependents,
            separate_stores: policy.separate_stores,
            max_writes_per_second: policy.max_writes_per_second.map(Rate::per_second),
            breaker: match policy.breaker {
                Breaker::On => leader::BreakerMode::On,
                Breaker::Off => leader::BreakerMode::Off,
            },
        }
    }
}

/// Flags that are valid, but contradict each other. The text is one sentence that names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadOptions(String);

impl Options {
    /// Checks combinations of flags.
    pub fn check(&self) -> Result<(), BadOptions> {
        let refuse = |text: String| Err(BadOptions(text));
        let addresses = [("--listen", self.listen), ("--admin-listen", self.admin_listen)];
        for (flag, address) in addresses {
            if !address.ip().is_loopback() && !self.tls.is_tls() && !self.insecure {
                return refuse(format!(
                    "{flag} {address} is not a loopback address and the connection is plaintext: use a loopback address, serve TLS with --tls-cert and --tls-key, or allow it with --insecure"
                ));
            }
        }
        self.tls.check().map_err(|error| BadOptions(error.to_string()))?;
        let webhook = self.audit.audit_webhook.map(|address| ("--audit-webhook", address));
        let addresses: Vec<_> = addresses.into_iter().chain(webhook).collect();
        for (at, (flag, address)) in addresses.iter().enumerate() {
            if let Some((other, _)) = addresses[..at].iter().find(|(_, other)| other == address && other.port() != 0) {
                return refuse(format!("{other} and {flag} are both {address}: they need different addresses"));
            }
        }
        self.audit.check(self.mode, self.tls.is_tls()).map_err(BadOptions)?;
        self.decision_log.check(self.insecure).map_err(BadOptions)?;
        self.traces.check().map_err(|error| BadOptions(error.to_string()))?;
        if self.lease_duration > LEASE_DURATION_MAX {
            return refuse(format!("--lease-duration {:?} is longer than an hour", self.lease_duration));
        }
        // The Lease carries whole seconds.
        if self.lease_duration.subsec_nanos() != 0 {
            return refuse(format!("--lease-duration {:?} is not a whole number of seconds", self.lease_duration));
        }
        if self.renew_deadline >= self.lease_duration {
            return refuse(format!(
                "--renew-deadline {:?} must be shorter than --lease-duration {:?}, else two replicas may lead at once",
                self.renew_deadline, self.lease_duration
            ));
        }
        // Retries are spread by up to a fifth.
        if self.retry_period + self.retry_period / 5 >= self.renew_deadline {
            return refuse(format!(
                "--retry-period {:?} must be more than a fifth shorter than --renew-deadline {:?}, to leave time for a second renewal",
                self.retry_period, self.renew_deadline
            ));
        }
        Ok(())
    }

    /// The configuration of the service, with empty `flags`. `listening` is the bound address, which is the default of
    /// `--advertise`.
    pub fn config(&self, listening: SocketAddr) -> Config {
        Config {
            mode: self.mode.into(),
            replica: self.replica_name.clone().unwrap_or_else(|| runtime::host::name().to_owned()),
            advertise: self.advertise.clone().unwrap_or_else(|| advertised(listening)),
            ignore: self.ignore_resources.clone(),
            policy: self.policy.clone().into(),
            decision_log: self.decision_log.clone().into(),
            protocols: Protocols::OURS,
            web_origins: self.grpc_web_origins.clone(),
            traces: self.traces.settings(),
            record: self.record.clone().into(),
            flags: Flags::default(),
        }
    }

    /// The election Lease.
    pub fn lease(&self) -> LeaseOptions {
        LeaseOptions {
            namespace: self.lease_namespace.clone(),
            name: self.lease_name.clone(),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        }
    }
}

/// The flags of recordings.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct Record {
    /// Directory for files with all inputs of the leader. `ownergraph replay` makes the same decisions from them.
    #[arg(long, env = "OWNERGRAPH_RECORD", value_name = "DIR")]
    pub record: Option<PathBuf>,

    /// Maximum size of all recordings in the directory, such as 500MiB; at least 16MiB. A recording ends at half of it.
    /// The oldest recordings are deleted at the start, so that a new one has its half. The last one stays.
    #[arg(
        long,
        env = "OWNERGRAPH_RECORD_MAX",
        value_name = "SIZE",
        default_value = "2GiB",
        value_parser = record_max,
        requires = "record"
    )]
    pub record_max: ByteSize,

    /// Whether recordings have the names of objects, namespaces, guards and executors, or pseudonyms instead. With
    /// pseudonyms, messages are left out, too.
    #[arg(long, env = "OWNERGRAPH_RECORD_NAMES", value_enum, default_value = "plain", requires = "record")]
    pub record_names: RecordNames,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordNames {
    Plain,
    Hash,
}

impl From<Record> for Option<crate::recorder::Settings> {
    fn from(flags: Record) -> Option<crate::recorder::Settings> {
        Some(crate::recorder::Settings {
            directory: flags.record?,
            max: flags.record_max.as_u64(),
            names: match flags.record_names {
                RecordNames::Plain => recording::Names::Plain,
                RecordNames::Hash => recording::Names::Hashed,
            },
        })
    }
}

fn record_max(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|_| "expected a size such as 500MiB or 2GiB")?;
    if size < RECORD_MAX_MIN {
        let said = size.display().iec();
        return Err(format!("{said} is less than 16 MiB; give a size with its unit, such as 500MiB or 2GiB"));
    }
    Ok(size)
}

/// The address that other replicas give to clients. Empty if other machines cannot reach the address.
pub fn advertised(listening: SocketAddr) -> String {
    if listening.ip().is_unspecified() { String::new() } else { listening.to_string() }
}

/// Parses `RESOURCE` or `RESOURCE.GROUP`, as in kubectl.
pub fn group_resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let plain = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
    };
    if resource.is_empty() || !plain(resource) || !plain(group) || text.ends_with('.') {
        return Err("expected RESOURCE or RESOURCE.GROUP in lower case, such as pods or deployments.apps".to_owned());
    }
    Ok(GroupResource { group: group.into(), resource: resource.into() })
}

/// Parses a kind as users write it: `deploy`, `deployments.apps`, `deployments.v1.apps`, `ReplicaSet`. The graph
/// service resolves it.
pub fn kind_name(text: &str) -> Result<GroupResource, String> {
    group_resource(&text.to_lowercase())
        .map_err(|_| "expected a kind as in kubectl, such as pods, deploy or deployments.apps".to_owned())
}

/// Parses `GROUP/*`, or the forms of [`group_and_resource`].
fn group_and_resources(text: &str) -> Result<GroupResource, String> {
    match text.split_once('/') {
        Some((group, leader::ALL_RESOURCES)) => {
            let GroupResource { group, .. } = group_resource(&format!("all.{group}"))
                .map_err(|_| "expected GROUP/*, such as metrics.k8s.io/*".to_owned())?;
            Ok(GroupResource { group, resource: leader::ALL_RESOURCES.into() })
        }
        _ => group_and_resource(text),
    }
}

/// Parses `GROUP/RESOURCE` with an empty group for the core group, or the forms of [`group_resource`].
fn group_and_resource(text: &str) -> Result<GroupResource, String> {
    match text.split_once('/') {
        Some((group, resource)) if !resource.is_empty() && !resource.contains('.') => {
            group_resource(&in_group(resource, group))
        }
        Some(_) => Err("expected GROUP/RESOURCE, such as apps/deployments, or /pods in the core group".to_owned()),
        None => group_resource(text),
    }
}

/// Parses a duration in the form of Kubernetes and Go: `500ms`, `1.5s`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "expected a number with a unit, such as 500ms, 1.5s or 1h30m";
    // The parser panics if the value overflows a duration. Only texts that are longer, or that have a sign in the
    // middle, can overflow.
    let plain = text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    let read = plain.then(|| text.parse::<kube::core::Duration>().ok()).flatten();
    read.map(Duration::from).filter(|span| !span.is_zero()).ok_or_else(|| WANTED.to_owned())
}

/// Parses a name that is valid in a request path.
pub fn dns_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 253 || !text.bytes().all(plain) {
        return Err("expected a Kubernetes name: lower case letters, digits, '-' and '.'".to_owned());
    }
    Ok(text.to_owned())
}
