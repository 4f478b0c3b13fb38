//! A real Kubernetes control plane for tests: etcd and kube-apiserver on loopback, with upstream's garbage collector on
//! request.
//!
//! ```text
//! let Some(binaries) = controlplane::require() else { return Ok(()) };
//! let plane = ControlPlane::start(&binaries).await?;
//! let configmaps: Api<ConfigMap> = Api::default_namespaced(plane.client().await?);
//! ```
//!
//! The processes and the directory of the control plane go when the value is dropped, and also when the test process
//! ends in any other way.

mod binaries;
mod credentials;
mod requests;
mod upstream;

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::Request;
use kube::Client;
use kube_api::{Access, connect};
use tokio::sync::OnceCell;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

pub use crate::process::Process;
pub use binaries::{Binaries, Unavailable, binaries, require};
pub use credentials::{ADMIN, User};
pub use requests::{RequestCount, RequestCounts};
pub use upstream::{CollectorOptions, UpstreamCollector};

use crate::process::{Directory, free_port};
use credentials::Credentials;

const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// The time limit of one probe. A paused or stuck server does not answer.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// Retries with another port if another process took the free one first.
const START_TRIES_MAX: usize = 5;
/// The `default` namespace appears shortly after the server calls itself ready.
const READY_PATHS: [&str; 2] = ["/readyz", "/api/v1/namespaces/default"];

/// Returns a new client for this kubeconfig. It uses the connections of the services. kube's own connections leave
/// Nagle's algorithm on, so many requests with a body would wait 40 ms.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let access = Access { kubeconfig: Some(kubeconfig.to_owned()), ..Access::default() };
    Ok(connect(&access).await?.client)
}

/// Runs kubectl with this kubeconfig. Its caches are in the directory of the test, because it keeps them by address,
/// and ports are used again.
pub fn kubectl(binaries: &Binaries, kubeconfig: &Path, directory: &Path) -> Command {
    let mut kubectl = Command::new(binaries.program("kubectl"));
    kubectl.env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", directory.join("kubectl-cache"));
    kubectl
}

/// Applies manifests.
pub fn apply(mut kubectl: Command, manifests: &[u8]) -> anyhow::Result<()> {
    let mut running = kubectl.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    running.stdin.take().context("kubectl has no input")?.write_all(manifests)?;
    ensure!(running.wait()?.success(), "kubectl apply");
    Ok(())
}

/// The options in which a control plane differs from the default one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Further flags of kube-apiserver, after ours.
    pub apiserver_flags: Vec<String>,
    /// Further users, next to `admin` (in `system:masters`), and `reader` and `tenant` (both without rights until the
    /// test grants some).
    pub users: Vec<User>,
    /// The API server shows the certificate of its authority, as small distributions do.
    pub serves_authority: bool,
}

/// An etcd and a kube-apiserver with RBAC, without a controller manager. Therefore deleted namespaces are not emptied,
/// and the aggregated roles `view`, `edit` and `admin` have no rules.
#[derive(Debug)]
pub struct ControlPlane {
    // The servers are dropped before the directory that they write into.
    apiserver: Option<Process>,
    etcd: Process,
    binaries: Binaries,
    credentials: Credentials,
    kubeconfig: PathBuf,
    port: u16,
    url: String,
    apiserver_flags: Vec<String>,
    directory: Directory,
}

/// Returns the control plane that the tests of one process share. They use different namespaces and names. A test that
/// stops or pauses servers, or counts requests, starts its own control plane. Tests that run a collector on the shared
/// control plane take turns.
pub async fn shared(binaries: &Binaries) -> anyhow::Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_try_init(|| ControlPlane::start(binaries)).await
}

impl ControlPlane {
    /// Starts a control plane with default options, and waits until it is ready. This usually takes 2 to 4 s.
    pub async fn start(binaries: &Binaries) -> anyhow::Result<Self> {
        Self::start_with(binaries, Options::default()).await
    }

    /// Starts a control plane, and waits at most a minute until it is ready. An error has the end of the log of the
    /// faulty server.
    pub async fn start_with(binaries: &Binaries, options: Options) -> anyhow::Result<Self> {
        let directory = Directory::create()?;
        let admin = User { name: ADMIN.to_owned(), groups: vec!["system:masters".to_owned()] };
        let users = [admin, User::new("reader"), User::new("tenant")].into_iter().chain(options.users).collect();
        let credentials = Credentials::create(directory.path(), users, options.serves_authority)?;
        Self::launch(binaries, directory, credentials, options.apiserver_flags).await
    }

    /// Starts a second control plane with the same users and a copy of the present data, and waits until it is ready.
    pub async fn copy(&self) -> anyhow::Result<Self> {
        let directory = Directory::create()?;
        let credentials = self.credentials.copy_to(directory.path())?;
        // The files of a paused etcd look like those of a killed etcd. etcd starts from them.
        self.etcd.pause()?;
        let copied = copy_directory(&self.directory.path().join(ETCD_DATA), &directory.path().join(ETCD_DATA));
        self.etcd.resume()?;
        copied?;
        Self::launch(&self.binaries, directory, credentials, self.apiserver_flags.clone()).await
    }

    async fn launch(
        binaries: &Binaries,
        directory: Directory,
        credentials: Credentials,
        apiserver_flags: Vec<String>,
    ) -> anyhow::Result<Self> {
        let etcd = start_etcd(binaries, directory.path())?;
        let mut plane = Self {
            apiserver: None,
            etcd,
            binaries: binaries.clone(),
            kubeconfig: credentials.kubeconfig_file(ADMIN),
            credentials,
            port: 0,
            url: String::new(),
            apiserver_flags,
            directory,
        };
        for _ in 0..START_TRIES_MAX {
            plane.port = free_port()?;
            plane.url = format!("https://127.0.0.1:{}", plane.port);
            plane.credentials.write_kubeconfigs(&plane.url)?;
            match plane.start_apiserver().await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                outcome => return outcome.map(|()| plane),
            }
        }
        bail!("kube-apiserver found its port taken {START_TRIES_MAX} times")
    }

    /// Starts the API server again after [`Self::stop_apiserver`], with the same port and data, and waits until it is
    /// ready.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        ensure!(self.apiserver.is_none(), "kube-apiserver runs already");
        let flags = self.all_apiserver_flags();
        let program = self.binaries.program("kube-apiserver");
        let mut apiserver = Process::spawn("kube-apiserver", self.directory.path(), &program, &flags)?;
        let client = self.client().await?;
        until_ready(&client, &mut apiserver, &mut self.etcd).await?;
        self.apiserver = Some(apiserver);
        Ok(())
    }

    /// Kills the API server (SIGKILL). etcd keeps its data.
    pub fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Returns the process of the API server, unless it is stopped.
    pub fn apiserver(&self) -> Option<&Process> {
        self.apiserver.as_ref()
    }

    /// Returns the process of etcd.
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate authority of the serving certificate, in PEM.
    pub fn ca(&self) -> &str {
        self.credentials.ca()
    }

    /// The bearer token of `admin`.
    pub fn token(&self) -> &str {
        self.credentials.token(ADMIN).expect("admin is always among the users")
    }

    /// The kubeconfig of `admin`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The bearer token of another user that was named at the start.
    pub fn token_of(&self, user: &str) -> anyhow::Result<&str> {
        self.credentials.token(user).with_context(|| format!("no user {user:?}: name it in the options at the start"))
    }

    /// Returns the kubeconfig of another user that was named at the start.
    pub fn kubeconfig_of(&self, user: &str) -> anyhow::Result<PathBuf> {
        self.token_of(user)?;
        Ok(self.credentials.kubeconfig_file(user))
    }

    /// The address of the API server.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Writes a kubeconfig of `admin` for another loopback address, such as the address of a proxy.
    pub fn kubeconfig_by(&self, address: SocketAddr, file: &Path) -> anyhow::Result<()> {
        let text = fs::read_to_string(&self.kubeconfig).context("reading the kubeconfig")?;
        ensure!(text.contains(&self.url), "the kubeconfig does not name {}", self.url);
        let text = text.replace(&self.url, &format!("https://{address}"));
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// Returns a directory for the test's own files. It is removed with the control plane.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Applies manifests as `admin`.
    pub fn apply(&self, manifests: &[u8]) -> anyhow::Result<()> {
        apply(self.kubectl(), manifests)
    }

    /// Runs kubectl as `admin`.
    pub fn kubectl(&self) -> Command {
        kubectl(&self.binaries, &self.kubeconfig, self.directory.path())
    }

    /// Returns a new client of `admin`, bound to the runtime of the caller. The client repeats no request.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.client_of(ADMIN).await
    }

    /// Returns a new client of another user that was named at the start.
    pub async fn client_of(&self, user: &str) -> anyhow::Result<Client> {
        client(&self.kubeconfig_of(user)?).await
    }

    /// Returns the API server's own count of requests. [`RequestCounts::since`] compares two of them.
    pub async fn server_metrics(&self) -> anyhow::Result<RequestCounts> {
        RequestCounts::parse(&get(&self.client().await?, "/metrics").await?)
    }

    /// Starts upstream's garbage collector, and waits until it has listed everything.
    pub async fn start_upstream_collector(&self, options: &CollectorOptions) -> anyhow::Result<UpstreamCollector> {
        UpstreamCollector::start(&self.binaries, self.directory.path(), &self.kubeconfig, options).await
    }

    fn all_apiserver_flags(&self) -> Vec<String> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let mut flags = vec![
            format!("--etcd-servers=unix://{}", self.directory.path().join(ETCD_CLIENTS).display()),
            format!("--secure-port={}", self.port),
            file("tls-cert-file", self.credentials.serving_certificate_file()),
            file("tls-private-key-file", self.credentials.serving_key_file()),
            file("service-account-key-file", self.credentials.service_account_public_key_file()),
            file("service-account-signing-key-file", self.credentials.service_account_key_file()),
            file("token-auth-file", self.credentials.token_file()),
        ];
        flags.extend(APISERVER_FLAGS.map(str::to_owned));
        flags.extend(self.apiserver_flags.iter().cloned());
        flags
    }
}

/// There is no Endpoints object for the `kubernetes` service, because upstream refuses loopback addresses in it. There
/// is no ServiceAccount admission, because nothing creates the service accounts that it demands of Pods.
const APISERVER_FLAGS: [&str; 7] = [
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--authorization-mode=RBAC",
    "--disable-admission-plugins=ServiceAccount",
];

/// etcd listens on Unix sockets in its working directory. etcd demands an address with a port, and uses the whole
/// address as a file name.
const ETCD_CLIENTS: &str = "localhost:2379";
const ETCD_PEERS: &str = "localhost:2380";
/// The data of etcd, below the control plane's directory.
const ETCD_DATA: &str = "etcd";

fn copy_directory(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(|| format!("copying {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn start_etcd(binaries: &Binaries, directory: &Path) -> anyhow::Result<Process> {
    let (clients, peers) = (format!("unix://{ETCD_CLIENTS}"), format!("unix://{ETCD_PEERS}"));
    let flags = [
        "--name=only".to_owned(),
        format!("--data-dir={}", directory.join(ETCD_DATA).display()),
        // The data need not survive a crash of the machine. A kill of the process loses no completed write.
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=only={peers}"),
    ];
    Process::spawn("etcd", directory, &binaries.program("etcd"), &flags)
}

async fn until_ready(client: &Client, apiserver: &mut Process, etcd: &mut Process) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut ticks = interval(POLL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for path in READY_PATHS {
        loop {
            ticks.tick().await;
            let answer = match timeout(PROBE_WITHIN, get(client, path)).await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer in {PROBE_WITHIN:?}"),
            };
            for server in [&mut *etcd, &mut *apiserver] {
                if let Some(status) = server.exited()? {
                    bail!("a server ended while starting, {status}; {}", server.log_tail());
                }
            }
            if Instant::now() >= deadline {
                bail!(
                    "kube-apiserver not ready in {READY_WITHIN:?}: {path}: {answer}; {}\n{}",
                    apiserver.log_tail(),
                    etcd.log_tail()
                );
            }
        }
    }
    Ok(())
}

async fn get(client: &Client, path: &str) -> anyhow::Result<String> {
    let request = Request::get(path).body(Vec::new())?;
    client.request_text(request).await.with_context(|| format!("GET {path}"))
}
