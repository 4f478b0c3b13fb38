//! Finds credentials: a kubeconfig with its context, or the pod's service account.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::overrides::Overrides;
use super::proxy::{Environment, Proxy};

/// The user agent, unless a service sets its own.
pub(crate) const DEFAULT_USER_AGENT: &str = concat!("ownergraph/", env!("CARGO_PKG_VERSION"));

/// The directory of a pod's service account. It exists only in a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How to reach the API server, from the flags.
#[derive(Debug, Clone)]
pub struct Access {
    /// `--kubeconfig`. Default: the files of `KUBECONFIG`, `~/.kube/config`, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`. Default: the current context of the kubeconfig.
    pub context: Option<String>,
    /// The name of this process in audit logs and in the metrics of the API server.
    pub user_agent: String,
    /// Flags that override the kubeconfig.
    pub overrides: Overrides,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            kubeconfig: None,
            context: None,
            user_agent: DEFAULT_USER_AGENT.to_owned(),
            overrides: Overrides::default(),
        }
    }
}

/// The flags for access to the API server, shared by all programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct AccessFlags {
    /// Kubeconfig file. Default: KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, env = "OWNERGRAPH_KUBECONFIG", value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: the current context.
    #[arg(long, env = "OWNERGRAPH_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl AccessFlags {
    /// The access that the flags describe, under the name of this process.
    pub fn access(&self, user_agent: String) -> Access {
        let (kubeconfig, context) = (self.kubeconfig.clone(), self.context.clone());
        Access { kubeconfig, context, user_agent, overrides: Overrides::default() }
    }
}

/// Why the API server cannot be accessed, as one sentence that says what to do. No network access has happened.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("the kubeconfig {path} ({origin}) does not exist; set it to an existing file")]
    Missing { path: String, origin: &'static str },
    #[error("the kubeconfig {path} ({origin}) cannot be read: {cause}")]
    Unreadable { path: String, origin: &'static str, cause: String },
    #[error("the kubeconfig {path} ({origin}) is not a kubeconfig: {cause}")]
    NotKubeconfig { path: String, origin: &'static str, cause: String },
    #[error("the kubeconfigs {paths} cannot be merged: {cause}")]
    Unmergeable { paths: String, cause: String },
    #[error("{paths} sets no current-context; choose one with --context, or with kubectl config use-context ({known})")]
    NoCurrentContext { paths: String, known: String },
    #[error("{paths} has no context {context:?} ({known})")]
    NoSuchContext { paths: String, context: String, known: String },
    #[error("{paths} has no user {user:?} ({known})")]
    NoSuchUser { paths: String, user: String, known: String },
    #[error("context {context:?} of {paths} names the cluster {cluster:?}, which does not exist")]
    NoSuchCluster { paths: String, context: String, cluster: String },
    #[error("{origin} is not usable: {cause}")]
    Unusable { origin: String, cause: String },
    #[error("flags such as --cluster, --user, --token and --as need a kubeconfig; set --kubeconfig or KUBECONFIG")]
    OverridesInPod,
    #[error("--context {context:?} needs a kubeconfig; set --kubeconfig or KUBECONFIG")]
    ContextInPod { context: String },
    #[error(
        "no access to an API server: --kubeconfig and KUBECONFIG are not set, {} and no pod service account exists; set --kubeconfig or KUBECONFIG",
        .home.as_ref().map_or("there is no home directory,".to_owned(), |path| format!("{path} does not exist,"))
    )]
    Nowhere { home: Option<String> },
}

/// The configuration, and words for its origin.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) config: Config,
    pub(super) proxy: Option<Proxy>,
    /// For messages: the context's name, or "in-cluster".
    pub(super) name: String,
    /// For messages: "context X of PATH", or "the pod's service account".
    pub(super) origin: String,
}

impl Found {
    /// A server without credentials and without a proxy.
    pub(super) fn of(config: Config) -> Found {
        Found { config, proxy: None, name: "anonymous".to_owned(), origin: String::new() }
    }
}

/// The relevant environment, as values for tests.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) kubeconfig_variable: Option<OsString>,
    pub(super) home: Option<PathBuf>,
    pub(super) in_pod: bool,
    pub(super) proxies: Environment,
}

impl Places {
    pub(super) fn of_this_process() -> Places {
        Places {
            kubeconfig_variable: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(SERVICE_ACCOUNT).exists(),
            proxies: Environment::of_this_process(),
        }
    }
}

/// Looks in the same places and order as kubectl.
pub(super) async fn find(access: &Access, places: Places) -> Result<Found, AccessError> {
    if let Some(path) = &access.kubeconfig {
        return from_files(std::slice::from_ref(path), "--kubeconfig", access, &places.proxies).await;
    }
    let listed: Vec<PathBuf> = places
        .kubeconfig_variable
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !listed.is_empty() {
        return from_files(&listed, "KUBECONFIG", access, &places.proxies).await;
    }
    let at_home = places.home.map(|home| home.join(".kube").join("config"));
    if let Some(path) = at_home.as_ref().filter(|path| path.exists()) {
        return from_files(std::slice::from_ref(path), "the default", access, &places.proxies).await;
    }
    if !places.in_pod {
        return Err(AccessError::Nowhere { home: at_home.map(|path| path.display().to_string()) });
    }
    if let Some(context) = &access.context {
        return Err(AccessError::ContextInPod { context: context.clone() });
    }
    if access.overrides != Overrides::default() {
        return Err(AccessError::OverridesInPod);
    }
    let origin = format!("the pod's service account in {SERVICE_ACCOUNT}");
    match Config::incluster() {
        Ok(config) => {
            let proxy = chosen_proxy(None, &config.cluster_url, &places.proxies, &origin)?;
            Ok(Found { config, proxy, name: "in-cluster".to_owned(), origin })
        }
        Err(error) => Err(AccessError::Unusable { origin, cause: error.to_string() }),
    }
}

async fn from_files(
    paths: &[PathBuf],
    origin: &'static str,
    access: &Access,
    proxies: &Environment,
) -> Result<Found, AccessError> {
    let mut merged = read_merged(paths, origin)?;
    let paths = listing(paths);
    if let Some(context) = access.context.clone().or_else(|| merged.current_context.clone()) {
        access.overrides.apply(&mut merged, &context);
    }
    let (context, proxy_url) = chosen_context(&merged, access, &paths)?;
    for cluster in merged.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        // Without a proxy URL, kube would read HTTPS_PROXY, by other rules than Go's. The URL has no effect.
        cluster.proxy_url = Some("http://unread".to_owned());
    }
    let origin = format!("context {context:?} of {paths}");
    let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    match Config::from_custom_kubeconfig(merged, &options).await {
        Ok(config) => {
            let proxy = chosen_proxy(proxy_url.as_deref(), &config.cluster_url, proxies, &origin)?;
            Ok(Found { config, proxy, name: context, origin })
        }
        Err(error) => Err(AccessError::Unusable { origin, cause: error.to_string() }),
    }
}

/// The proxy-url of the kubeconfig wins, and applies to loopback addresses too. The environment decides without one.
fn chosen_proxy(
    proxy_url: Option<&str>,
    server: &Uri,
    environment: &Environment,
    origin: &str,
) -> Result<Option<Proxy>, AccessError> {
    match proxy_url {
        Some(url) => Proxy::parse(url).map(Some).map_err(|error| (format!("the proxy-url of {origin}"), error)),
        None => environment.proxy_for(server).map_err(|(variable, error)| (variable.to_owned(), error)),
    }
    .map_err(|(origin, error)| AccessError::Unusable { origin, cause: error.to_string() })
}

/// Merges like kubectl: the first file that sets a value wins, and missing files of a list are ignored.
fn read_merged(paths: &[PathBuf], origin: &'static str) -> Result<Kubeconfig, AccessError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let mut next = match Kubeconfig::read_from(path) {
            Ok(kubeconfig) => kubeconfig,
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unread(path, origin, &error)),
        };
        next.current_context = next.current_context.filter(|context| !context.is_empty());
        let so_far = merged.unwrap_or_default();
        merged = Some(
            so_far
                .merge(next)
                .map_err(|error| AccessError::Unmergeable { paths: listing(paths), cause: error.to_string() })?,
        );
    }
    merged.ok_or_else(|| AccessError::Missing { path: listing(paths), origin })
}

fn unread(path: &Path, origin: &'static str, error: &KubeconfigError) -> AccessError {
    let path = path.display().to_string();
    if let KubeconfigError::ReadConfig(error, _) = error {
        return AccessError::Unreadable { path, origin, cause: error.to_string() };
    }
    // Only the first line is kept, because the rest of the parser's message quotes the file, which may contain a token.
    let cause = error.to_string().lines().next().unwrap_or_default().to_owned();
    AccessError::NotKubeconfig { path, origin, cause }
}

/// The name of the context and the proxy-url of its cluster.
fn chosen_context(
    kubeconfig: &Kubeconfig,
    access: &Access,
    paths: &str,
) -> Result<(String, Option<String>), AccessError> {
    let paths = || paths.to_owned();
    let known = || match kubeconfig.contexts.as_slice() {
        [] => "the file has no contexts".to_owned(),
        some => format!("it has: {}", some.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ")),
    };
    let Some(context) = access.context.clone().or_else(|| kubeconfig.current_context.clone()) else {
        return Err(AccessError::NoCurrentContext { paths: paths(), known: known() });
    };
    let named = kubeconfig.contexts.iter().find(|named| named.name == context);
    let Some(content) = named.and_then(|named| named.context.as_ref()) else {
        return Err(AccessError::NoSuchContext { paths: paths(), context, known: known() });
    };
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == content.cluster);
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_ref()) else {
        return Err(AccessError::NoSuchCluster { paths: paths(), context, cluster: content.cluster.clone() });
    };
    if let Some(user) = access.overrides.user.as_ref()
        && !kubeconfig.auth_infos.iter().any(|named| named.name == *user)
    {
        let names = kubeconfig.auth_infos.iter().map(|named| named.name.as_str());
        let known = format!("it has: {}", names.collect::<Vec<_>>().join(", "));
        return Err(AccessError::NoSuchUser { paths: paths(), user: user.clone(), known });
    }
    Ok((context, cluster.proxy_url.clone().filter(|url| !url.is_empty())))
}

fn listing(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
