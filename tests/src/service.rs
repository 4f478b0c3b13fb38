//! Our own programs as processes, built in the profile of the test.

use crate::load::until;
use crate::process::{Directory, Process, free_port};
use anyhow::{Context, bail, ensure};
use kube_api::{Cluster, call};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

/// The maximum size of an answer of an admin server.
const ANSWER_MAX_BYTES: usize = 64 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const KNOWN_WITHIN: Duration = Duration::from_secs(300);

/// The directory of `graph-service`, `executor-service` and `ownergraph`.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
    clients: PathBuf,
}

impl Programs {
    /// Builds all programs of the workspace next to the test's program, unless they are built. A benchmark builds only
    /// the three programs.
    pub fn build() -> anyhow::Result<Programs> {
        static BUILT: Mutex<Option<Programs>> = Mutex::new(None);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let programs = built.take().map_or_else(|| Programs::build_all(None), Ok)?;
        Ok(built.insert(programs).clone())
    }

    /// Builds the programs, and for a benchmark also the client of the comparison.
    pub fn build_with(client: &str) -> anyhow::Result<Programs> {
        Programs::build_all(Some(client))
    }

    fn build_all(client: Option<&str>) -> anyhow::Result<Programs> {
        let this = std::env::current_exe().context("finding the test's own program")?;
        // target/<profile>/deps/<test>
        let directory =
            this.ancestors().nth(2).context("the test's program is not below a target directory")?.to_owned();
        let is_bench = directory.ends_with("release");
        if !is_bench {
            // With a test among the targets, dependencies have the same features as under `cargo test --workspace`.
            // With other features, cargo would compile most of the tree again.
            cargo_build(&["--bins", "--workspace", "--test", "tidy"])?;
            return Ok(Programs { clients: directory.clone(), directory });
        }
        // A benchmark measures the programs in the form in which the images have them.
        cargo_build(&["--bins", "--profile", "dist", "-p", "graph-service", "-p", "executor-service", "-p", "cli"])?;
        if let Some(client) = client {
            // The profile of images would link each client for minutes, and `release` would build slower clients.
            cargo_build(&["--profile", "bench", "-p", "tests", "--bin", client])?;
        }
        Ok(Programs { clients: directory.clone(), directory: directory.with_file_name("dist") })
    }

    /// Returns the path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of a benchmark's client.
    pub fn client(&self, name: &str) -> PathBuf {
        self.clients.join(name)
    }
}

fn cargo_build(arguments: &[&str]) -> anyhow::Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(arguments);
    // cargo gives the test variables about its own package. Build scripts that read them would run again, and cargo
    // would then compile half of the dependencies again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|of| text.starts_with(of)) {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().context("running cargo")?;
    ensure!(output.status.success(), "building the programs: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A running program with an admin server.
#[derive(Debug)]
pub struct Service {
    pub process: Process,
    admin: String,
}

impl Service {
    /// Starts `program` with `arguments` and its own admin address. Its log is in `directory`.
    pub fn start(
        programs: &Programs,
        program: &str,
        name: &str,
        directory: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Service> {
        let admin = format!("127.0.0.1:{}", free_port()?);
        let mut all: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        all.extend(["--admin-listen".to_owned(), admin.clone()]);
        // The default port is the same for all programs.
        if arguments.first() == Some(&"collect") && !arguments.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        }
        let process = Process::spawn(name, directory, &programs.path(program), &all)?;
        Ok(Service { process, admin })
    }

    /// Returns the address of probes and metrics.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Returns status and body of a GET at the admin server.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let url = format!("http://{}", self.admin).parse().context("the admin address as a URL")?;
        let cluster = Cluster::without_credentials(url)?;
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = call(&cluster.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN)
            .await
            .with_context(|| format!("GET http://{}{path}", self.admin))?;
        Ok((answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let mut last = String::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut ticks = interval(Duration::from_millis(20));
        while Instant::now() < deadline {
            ticks.tick().await;
            match self.get("/readyz?verbose").await {
                Ok((200, _)) => return Ok(()),
                Ok((_, body)) => last = body,
                Err(error) => last = format!("{error:#}"),
            }
            if let Some(status) = self.process.exited()? {
                bail!("ended while starting, {status}; {}", self.process.log_tail());
            }
        }
        bail!("not ready in a minute: {last}; {}", self.process.log_tail())
    }

    /// Returns the sum of a metric over all its labels.
    pub async fn total(&self, name: &str) -> anyhow::Result<f64> {
        self.total_of(name, "").await
    }

    /// Returns the sum of a metric over the series with this label, in the form `name="value"`.
    pub async fn total_of(&self, name: &str, label: &str) -> anyhow::Result<f64> {
        let (_, body) = self.get("/metrics").await?;
        let is_it = |rest: &str| rest.starts_with([' ', '{']) && rest.contains(label);
        let lines = body.lines().filter(|line| line.strip_prefix(name).is_some_and(is_it));
        lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().context("a metric's value")).sum()
    }

    /// Returns the value of the first line of the metrics that starts with `prefix`, which includes the labels.
    pub async fn metric(&self, prefix: &str) -> anyhow::Result<Option<f64>> {
        let (_, body) = self.get("/metrics").await?;
        let line = body.lines().find(|line| line.starts_with(prefix));
        line.map(|line| line.rsplit(' ').next().unwrap_or_default().parse().context("a metric's value")).transpose()
    }
}

/// Scrapes the metrics of services every second, as long as it exists.
#[derive(Debug)]
pub struct Scraping {
    _tasks: JoinSet<()>,
}

impl Scraping {
    /// Starts the scrapes at once.
    pub fn start<const N: usize>(services: [&Service; N]) -> anyhow::Result<Scraping> {
        let mut scraping = JoinSet::new();
        for service in services {
            let url = format!("http://{}", service.admin).parse().context("the admin address as a URL")?;
            let client = Cluster::without_credentials(url)?.client;
            scraping.spawn(async move {
                let mut seconds = interval(Duration::from_secs(1));
                loop {
                    seconds.tick().await;
                    let request = http::Request::get("/metrics").body(Vec::new()).expect("it is a path");
                    // A service that has ended does not answer.
                    let _unanswered = call(&client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await;
                }
            });
        }
        Ok(Scraping { _tasks: scraping })
    }
}

/// A graph service and executors as separate processes.
#[derive(Debug)]
pub struct Fleet {
    programs: Programs,
    kubeconfig: PathBuf,
    /// Further flags of the graph service.
    flags: Vec<String>,
    directory: Directory,
    grpc: String,
    pub graph: Service,
    pub executors: Vec<Service>,
    started: usize,
}

impl Fleet {
    /// Starts one graph service and `executors`, and waits until all are ready.
    pub async fn start(programs: &Programs, kubeconfig: &Path, executors: usize) -> anyhow::Result<Fleet> {
        let mut fleet = Fleet::start_with(programs, kubeconfig, &[]).await?;
        for number in 0..executors {
            fleet.add_executor(&format!("executor-{number}"))?;
        }
        for executor in &mut fleet.executors {
            executor.ready().await?;
        }
        Ok(fleet)
    }

    /// Starts a graph service with these further flags and without an executor, and waits until it is ready.
    pub async fn start_with(programs: &Programs, kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<Fleet> {
        let directory = Directory::create()?;
        let grpc = format!("127.0.0.1:{}", free_port()?);
        let mut fleet = Fleet {
            programs: programs.clone(),
            kubeconfig: kubeconfig.to_owned(),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            graph: start_graph_with(programs, kubeconfig, directory.path(), &grpc, 0, flags)?,
            directory,
            grpc,
            executors: Vec::new(),
            started: 1,
        };
        fleet.graph.ready().await?;
        Ok(fleet)
    }

    /// Waits until the graph has this many objects.
    pub async fn until_known(&self, objects: usize) -> anyhow::Result<()> {
        let known = || self.graph.metric("ownergraph_graph_nodes ");
        let all = |nodes: &Option<f64>| nodes.is_some_and(|nodes| nodes >= objects as f64);
        until("the graph has everything", KNOWN_WITHIN, known, all).await.map(|_| ())
    }

    /// Returns the processes. The graph service is first.
    pub fn pids(&self) -> Vec<u32> {
        let executors = self.executors.iter().map(|executor| executor.process.pid());
        std::iter::once(self.graph.process.pid()).chain(executors).collect()
    }

    /// Starts one more executor.
    pub fn add_executor(&mut self, name: &str) -> anyhow::Result<()> {
        self.add_executor_with(name, &[])
    }

    /// Starts one more executor with further flags.
    pub fn add_executor_with(&mut self, name: &str, flags: &[&str]) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let arguments = [&["--kubeconfig", &kubeconfig, "--graph", &self.grpc, "--name", name], flags].concat();
        let log = format!("{name}-{}", self.started);
        self.started += 1;
        let executor = Service::start(&self.programs, "executor-service", &log, self.directory.path(), &arguments)?;
        self.executors.push(executor);
        Ok(())
    }

    /// Kills the graph service, and starts another one at the same address.
    pub async fn replace_graph(&mut self) -> anyhow::Result<()> {
        self.graph.process.kill()?;
        self.graph.process.ended(Duration::from_secs(60)).await?;
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let (programs, directory) = (&self.programs, self.directory.path());
        self.graph = start_graph_with(programs, &self.kubeconfig, directory, &self.grpc, self.started, &flags)?;
        self.started += 1;
        Ok(())
    }

    /// Returns the gRPC address of the graph service.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }
}

/// Starts the graph service with this number in `directory`, for this cluster.
///
/// # Errors
/// The program does not start.
pub fn start_graph(
    programs: &Programs,
    kubeconfig: &Path,
    directory: &Path,
    grpc: &str,
    number: usize,
) -> anyhow::Result<Service> {
    start_graph_with(programs, kubeconfig, directory, grpc, number, &[])
}

fn start_graph_with(
    programs: &Programs,
    kubeconfig: &Path,
    directory: &Path,
    grpc: &str,
    number: usize,
    flags: &[&str],
) -> anyhow::Result<Service> {
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = [&["--kubeconfig", &kubeconfig, "--listen", grpc], flags].concat();
    Service::start(programs, "graph-service", &format!("graph-{number}"), directory, &arguments)
}
