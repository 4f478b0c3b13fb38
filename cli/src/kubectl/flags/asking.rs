//! The flags that all query commands share.

use super::spans::limit;
use crate::kubectl::jsonpath::Template;
use clap::builder::{BoolishValueParser, EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use graph_service::options::dns_name;
use kube_api::{Access, Overrides};
use runtime::tls::CallerFlags;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default of --request-timeout.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// The connections to the API server and to the graph service.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Addresses of the graph service, instead of a port forwarded to a pod found by label. The first one that answers
    /// is used; it knows the leader.
    #[arg(long, env = "OWNERGRAPH_SERVER", value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) tls: CallerFlags,
    /// Name that the certificate of the graph service must have, instead of the host in its address. With a forwarded
    /// port, the default is graph-service.NAMESPACE.svc.
    #[arg(long, env = "OWNERGRAPH_SERVER_NAME", value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Allow plaintext to a --server that is not loopback.
    #[arg(long, env = "OWNERGRAPH_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,
    /// Look for the graph service in this namespace only. Ignores --server.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) port_forward_namespace: Option<String>,
    /// Do not look for a graph service, and list the cluster from this process (slow). Ignores --server.
    #[arg(long, conflicts_with = "port_forward_namespace")]
    pub(crate) direct: bool,
    /// Query this snapshot, which `export --snapshot` wrote, instead of a cluster. Ignores --server.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port_forward_namespace", "direct"])]
    pub(crate) from_file: Option<PathBuf>,
    /// Kubeconfig file. Default: KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, env = "OWNERGRAPH_KUBECONFIG", value_name = "PATH", overrides_with = "kubeconfig")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "OWNERGRAPH_CONTEXT", value_name = "NAME", overrides_with = "context")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig.
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Bearer token for the API server.
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// User to act as.
    #[arg(long = "as", value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to act as a member of; may be repeated.
    #[arg(long = "as-group", value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,
    /// UID to impersonate.
    #[arg(long = "as-uid", value_name = "UID")]
    pub(crate) impersonate_uid: Option<String>,
    /// Name that the API server's certificate must have.
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// File with the certificate authority of the API server.
    #[arg(long, value_name = "PATH")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// File with a client certificate.
    #[arg(long, value_name = "PATH")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with the client certificate's key.
    #[arg(long, value_name = "PATH")]
    pub(crate) client_key: Option<PathBuf>,
    /// Do not check the API server's certificate.
    #[arg(long)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// Time limit of each request, such as 10s or 1m30s. 0 means no limit.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = limit)]
    pub(crate) request_timeout: Duration,
    /// From 6 on, print each request to the API server to stderr, as kubectl does.
    #[arg(short, long = "v", value_name = "LEVEL", default_value_t = 0, overrides_with = "verbosity")]
    pub(crate) verbosity: u8,
}

impl Connection {
    /// To a graph service in plaintext, as the flags give it by default.
    pub(crate) fn to(graph: SocketAddr) -> Connection {
        Connection { server: vec![graph.to_string()], request_timeout: REQUEST_WITHIN, ..Connection::default() }
    }

    /// To no graph service: this process lists the cluster.
    pub(crate) fn direct() -> Connection {
        Connection { direct: true, request_timeout: REQUEST_WITHIN, ..Connection::default() }
    }

    /// The addresses. An empty variable counts as one that is not set.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &String> {
        self.server.iter().filter(|address| !address.is_empty())
    }

    /// Whether the flags name the graph service, so that it is not searched for.
    pub(crate) fn is_named(&self) -> bool {
        self.servers().next().is_some() && self.port_forward_namespace.is_none()
    }

    pub(crate) fn access(&self) -> Access {
        Access {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user_agent: runtime::version::user_agent("kubectl-ownergraph"),
            overrides: Overrides {
                cluster: self.cluster.clone(),
                user: self.user.clone(),
                token: self.token.clone(),
                impersonate: self.impersonate.clone(),
                impersonate_uid: self.impersonate_uid.clone(),
                impersonate_groups: self.impersonate_groups.clone(),
                tls_server_name: self.tls_server_name.clone(),
                certificate_authority: self.certificate_authority.clone(),
                client_certificate: self.client_certificate.clone(),
                client_key: self.client_key.clone(),
                insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            },
        }
    }
}

/// The format of the answer. A command without a table or without more columns takes `table` and `wide` for its only
/// text. It names its formats in the error about another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns.
    Table,
    /// More columns.
    Wide,
    /// Columns, with the names as a tree.
    Tree,
    Json,
    Yaml,
    /// TYPE/NAME, one a line.
    Name,
    /// Graphviz.
    Dot,
    Mermaid,
    /// One JSON object a line.
    Ndjson,
    /// One page that needs no other file.
    Html,
}

/// A format, and its template if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Form {
    pub(crate) format: Format,
    pub(crate) template: Option<Template>,
}

/// Parses the value of `--output`.
#[derive(Clone, Debug)]
struct Forms;

const JSONPATH: &str = "jsonpath=";

impl TypedValueParser for Forms {
    type Value = Form;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<Form, clap::Error> {
        if value.to_string_lossy().starts_with(JSONPATH) {
            let template = templated.parse_ref(command, flag, value)?;
            return Ok(Form { format: Format::Json, template: Some(template) });
        }
        PossibleValuesParser::new(self.possible_values().into_iter().flatten()).parse_ref(command, flag, value)?;
        let format = EnumValueParser::<Format>::new().parse_ref(command, flag, value)?;
        Ok(Form { format, template: None })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named = Format::value_variants().iter().filter_map(Format::to_possible_value);
        Some(Box::new(named.chain([PossibleValue::new(JSONPATH)])))
    }
}

fn templated(text: &str) -> Result<Template, String> {
    Template::read(text.strip_prefix(JSONPATH).unwrap_or(text))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Format of the answer. jsonpath=TEMPLATE fills a kubectl template, such as '{.root.ref.name}{"\n"}', from the
    /// JSON.
    #[arg(short = 'o', long = "output", value_parser = Forms, value_name = "FORMAT", overrides_with = "form")]
    pub(crate) form: Option<Form>,
    /// When to use colours. `auto` uses them at a terminal, unless NO_COLOR is set.
    #[arg(
        short = 'c',
        long = "color",
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        overrides_with = "colour"
    )]
    pub(crate) colour: Colour,
    /// Leave out the headings of tables.
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// The flags of every query command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Asking {
    /// Namespace of the named objects, or to search. Default: the namespace of the context.
    #[arg(short, long, value_parser = dns_name, overrides_with = "namespace")]
    pub(crate) namespace: Option<String>,
    /// All namespaces, and cluster-scoped objects: for lists and selectors.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
}
