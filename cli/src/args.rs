//! The commands and their flags. Each flag of `collect` also reads `OWNERGRAPH_<FLAG>`. For the other commands,
//! variables say how to reach a cluster and a graph service, and how to log, and never what to do.

use crate::examples::with_examples;
use crate::kubectl::flags::{Output, limit};
use crate::name;
use clap::builder::BoolishValueParser;
use clap::{ArgMatches, CommandFactory as _, Parser, Subcommand};
use engine::object::GroupResource;
use executor_service::ConcurrencyOptions;
use graph_service::options::{DecisionLog, Mode, dns_name, group_resource};
use kube_api::AccessFlags;
use runtime::telemetry::LogFormat;
use runtime::tls::ServerFlags;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The limit of executors in one process.
const EXECUTORS_MAX: i64 = 16;
/// Maximum number of objects that a command creates for collection. The demo's API server keeps them in memory, and
/// `try` counts them by listing.
pub(crate) const OBJECTS_MAX: i64 = 200_000;

const CODES: &str = "\
Exit codes:
  0    fine, or nothing found
  1    an error, also of a flag, an argument or a file that cannot be used
  2    findings: something is stuck, dangling or in a cycle
  3    refused in the current state; the message says what to do first
  124  timed out";

const DEMO_CODES: &str = "\
Exit codes:
  0  the final state is as expected
  1  the final state is not as expected, or an error";

const SANDBOX_CODES: &str = "\
Exit codes:
  0  stopped by SIGTERM or Ctrl-C
  1  an error, such as a port in use or a flag that cannot be used";

const TRY_CODES: &str = "\
Exit codes:
  0  every object was collected
  1  an error, such as no right to create ConfigMaps, or a flag that cannot be used
  124  some objects still exist after --timeout; the message names them";

const COLLECT_CODES: &str = "\
Exit codes:
  0  stopped by SIGTERM or Ctrl-C; started work was finished, other work was returned
  1  an error, such as a port in use or a flag that cannot be used";

/// A garbage collector for Kubernetes that you can query, watch and trust.
#[derive(Clone, Debug, Parser)]
#[command(name = "ownergraph", version, max_term_width = 110, after_help = CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line, under the name that this program was invoked as.
pub(crate) fn command() -> clap::Command {
    let command = with_examples(Args::command().bin_name(name::program()));
    if name::is_plugin() { command.name(name::PLUGIN) } else { command }
}

/// The flags of the command that was found.
pub(crate) fn as_text(program: &clap::Command, found: &ArgMatches) -> graph_service::Flags {
    let command = found.subcommand().and_then(|(name, found)| Some((program.find_subcommand(name)?, found)));
    command.map_or_else(Default::default, |(command, found)| graph_service::Flags::of(command, found))
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Demonstrates the collector in one process: an API server in memory, a graph service and executors.
    #[command(after_help = DEMO_CODES)]
    Demo(Demo),
    /// Runs an in-memory Kubernetes API server that kubectl and any client can talk to.
    #[command(after_help = SANDBOX_CODES)]
    Sandbox(Sandbox),
    /// Collects garbage on a cluster: graph service and executors in one process.
    #[command(after_help = COLLECT_CODES)]
    Collect(Box<Collect>),
    /// Tests a collector: creates objects on a cluster, deletes their owners, and waits until they are collected.
    #[command(after_help = TRY_CODES)]
    Try(Try),
    /// Writes the manual pages of all programs into a directory.
    #[command(hide = true)]
    Man {
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    #[command(flatten)]
    Ask(Box<crate::kubectl::flags::Command>),
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Demo {
    /// ConfigMaps in the big cascade.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=OBJECTS_MAX)
    )]
    pub(crate) objects: u32,

    /// Number of executors that share the work.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=EXECUTORS_MAX)
    )]
    pub(crate) executors: u32,

    /// Also serve the web console, print its address, and go on until Ctrl-C.
    #[arg(long, conflicts_with_all = ["form", "json"])]
    pub(crate) console: bool,

    /// Do not start a browser for the console.
    #[arg(long, requires = "console")]
    pub(crate) no_browser: bool,

    /// The same as -o json.
    #[arg(long, value_parser = BoolishValueParser::new(), hide = true, conflicts_with = "form")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Format of log lines.
    #[arg(long, env = "OWNERGRAPH_LOG_FORMAT", value_name = "text|json", default_value = "text")]
    pub(crate) log_format: LogFormat,

    /// Also write a log to stderr: a level such as info, or directives such as warn,graph_service=debug.
    #[arg(long, env = "OWNERGRAPH_LOG_LEVEL", value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Sandbox {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,

    /// File to write a kubeconfig for this server to.
    #[arg(long, value_name = "PATH")]
    pub(crate) write_kubeconfig: Option<PathBuf>,

    /// Also serve the web console on 127.0.0.1, and print its address.
    #[arg(long)]
    pub(crate) console: bool,

    /// Do not start a browser for the console.
    #[arg(long, requires = "console")]
    pub(crate) no_browser: bool,

    /// Allow an address that is not loopback. The sandbox has no authentication and no encryption.
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Collect {
    #[command(flatten)]
    pub(crate) access: AccessFlags,

    /// Address of the gRPC API for other executors and clients. Default: 127.0.0.1:7450. Clients get it as the leader's
    /// address only if this flag is set.
    #[arg(long, env = "OWNERGRAPH_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Address of /livez, /readyz, /metrics and /debug/graph.
    #[arg(long, env = "OWNERGRAPH_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:7451")]
    pub(crate) admin_listen: SocketAddr,

    #[command(flatten)]
    pub(crate) tls: ServerFlags,

    /// Audience that callers' bearer tokens must have, with TLS.
    #[arg(long, env = "OWNERGRAPH_TOKEN_AUDIENCE", value_name = "NAME", default_value = "ownergraph")]
    pub(crate) token_audience: String,

    /// File with the certificate authorities of other replicas. Used when another replica leads.
    #[arg(long, env = "OWNERGRAPH_TLS_CA", value_name = "FILE", requires = "elect")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Name that the certificates of other replicas are checked against, instead of the host in their address.
    #[arg(long, alias = "tls-server-name", env = "OWNERGRAPH_SERVER_NAME", value_name = "NAME", requires = "tls_ca")]
    pub(crate) server_name: Option<String>,

    /// File with a bearer token for other replicas. Read again when it changes. The token is sent over TLS or loopback
    /// only.
    #[arg(long, env = "OWNERGRAPH_TOKEN_FILE", value_name = "FILE", requires = "elect")]
    pub(crate) token_file: Option<PathBuf>,

    /// Allow plaintext on addresses that are not loopback.
    #[arg(long, env = "OWNERGRAPH_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,

    /// Number of executors in this process.
    #[arg(
        long,
        env = "OWNERGRAPH_EXECUTORS",
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=EXECUTORS_MAX)
    )]
    pub(crate) executors: u32,

    #[command(flatten)]
    pub(crate) concurrency: ConcurrencyOptions,

    /// Take part in the election of one leader among several replicas (Lease kube-system/ownergraph). Without this flag
    /// the process leads from its start, and must be the only Ownergraph collector of the cluster.
    #[arg(long, env = "OWNERGRAPH_ELECT", value_parser = BoolishValueParser::new())]
    pub(crate) elect: bool,

    /// Carry decisions out, or only decide and publish.
    #[arg(long, env = "OWNERGRAPH_MODE", value_enum, default_value = "enforce")]
    pub(crate) mode: Mode,

    /// Resources that are not watched, as RESOURCE or RESOURCE.GROUP. The collector neither collects their objects nor
    /// removes their finalizers foregroundDeletion and orphan: delete such objects with propagation policy Background.
    #[arg(
        long,
        env = "OWNERGRAPH_IGNORE_RESOURCES",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = group_resource,
        default_value = "events,events.events.k8s.io"
    )]
    pub(crate) ignore_resources: Vec<GroupResource>,

    #[command(flatten)]
    pub(crate) policy: graph_service::options::Policy,

    #[command(flatten)]
    pub(crate) decision_log: DecisionLog,

    #[command(flatten)]
    pub(crate) traces: runtime::traces::Flags,

    #[command(flatten)]
    pub(crate) record: graph_service::options::Record,

    #[command(flatten)]
    pub(crate) audit: graph_service::options::Audit,

    /// Format of log lines.
    #[arg(long, env = "OWNERGRAPH_LOG_FORMAT", value_name = "text|json", default_value = "text")]
    pub(crate) log_format: LogFormat,

    /// Minimum level of log lines: a level such as info, or directives such as info,graph_service=debug. Default:
    /// RUST_LOG, then info.
    #[arg(long, env = "OWNERGRAPH_LOG_LEVEL", value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Try {
    #[command(flatten)]
    pub(crate) access: AccessFlags,

    /// Namespace to create the objects in. It must exist.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default", value_parser = dns_name)]
    pub(crate) namespace: String,

    /// Number of ConfigMaps to create for collection. Each hundred of them has an owner. Every second owner is deleted
    /// in foreground.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=OBJECTS_MAX)
    )]
    pub(crate) objects: u32,

    /// Maximum time for the collector after the owners are deleted, such as 90s or 1h30m. 0s means no limit.
    #[arg(
        long,
        alias = "within",
        value_name = "DURATION",
        default_value = "60s",
        value_parser = limit
    )]
    pub(crate) timeout: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_flags_fit_together_and_each_reads_its_variable() {
        let command = Args::command();
        command.clone().debug_assert();
        let variable = |flag: &Arg| flag.get_env().map(|name| name.to_string_lossy().into_owned());
        for flag in command.find_subcommand("collect").unwrap().get_arguments().filter(|flag| !flag.is_hide_set()) {
            let wanted = flag.get_long().map(|long| format!("OWNERGRAPH_{}", long.replace('-', "_").to_uppercase()));
            assert_eq!(variable(flag), wanted, "collect --{:?}", flag.get_long());
        }
    }

    /// A variable in a shell never widens a pause, confirms a deletion or changes what is shown.
    #[test]
    fn variables_of_other_commands_say_only_how_to_reach_things_and_how_to_log() {
        fn walk(command: &clap::Command, met: &mut BTreeSet<String>) {
            let variables = command.get_arguments().filter_map(Arg::get_env);
            met.extend(variables.map(|name| name.to_string_lossy().replace("OWNERGRAPH_", "")));
            command.get_subcommands().filter(|below| below.get_name() != "collect").for_each(|below| walk(below, met));
        }
        let mut met = BTreeSet::new();
        walk(&Args::command(), &mut met);
        let reach = ["CONTEXT", "INSECURE", "KUBECONFIG", "SERVER", "SERVER_NAME", "TLS_CA", "TLS_CERT", "TLS_KEY"];
        let all = [&reach[..], &["LOG_FORMAT", "LOG_LEVEL", "TOKEN_FILE"]].concat();
        assert_eq!(met, all.into_iter().map(str::to_owned).collect());
    }

    /// The short form of each long flag, and what its value is called. The flag --wait of `delete` is kubectl's, that
    /// of `pause` takes a time.
    #[test]
    fn a_flag_is_the_same_wherever_it_stands() {
        fn walk(command: &clap::Command, known: &mut BTreeMap<String, (String, String)>, others: &mut Vec<String>) {
            let long = |flag: &Arg| flag.get_long().filter(|long| *long != "wait").map(str::to_owned);
            for (long, flag) in command.get_arguments().filter_map(|flag| Some((long(flag)?, flag))) {
                let values = flag.get_value_names().filter(|_| flag.get_action().takes_values());
                let is = format!("{:?} {values:?}", flag.get_short());
                let (form, at) = known.entry(long.clone()).or_insert((is.clone(), command.get_name().to_owned()));
                if *form != is {
                    others.push(format!("--{long} is {is} of {} and {form} of {at}", command.get_name()));
                }
            }
            command.get_subcommands().for_each(|below| walk(below, known, others));
        }
        let (mut known, mut others) = (BTreeMap::new(), Vec::new());
        walk(&Args::command(), &mut known, &mut others);
        assert!(known.len() > 50 && others.is_empty(), "{others:#?}");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for arguments in [
            ["ownergraph", "demo", "--objects", "0"],
            ["ownergraph", "demo", "--executors", "17"],
            ["ownergraph", "collect", "--concurrency", "0"],
            ["ownergraph", "collect", "--mode", "destroy"],
            ["ownergraph", "collect", "--ignore-resources", "Pods"],
        ] {
            assert!(Args::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
