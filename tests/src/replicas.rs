//! Graph services and executors as separate processes. A test can kill, pause and restart each of them.

use crate::controlplane::ControlPlane;
use crate::link::Link;
use crate::load::{get, send};
use crate::process::{Directory, free_port};
use crate::service::{Programs, Service};
use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use std::fs;
use std::path::{Path, PathBuf};

/// The election Lease of the graph services.
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ownergraph";
/// The names of executors differ in one digit.
const EXECUTORS_MAX: usize = 10;

/// The holder of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The index of the graph service that holds the Lease, if it is one of ours.
    pub holder: Option<usize>,
    /// The number of acquisitions so far.
    pub term: u64,
}

/// One program, with all its processes.
#[derive(Debug)]
pub struct Member {
    name: String,
    program: &'static str,
    arguments: Vec<String>,
    directory: PathBuf,
    programs: Programs,
    starts: usize,
    service: Option<Service>,
}

impl Member {
    /// Starts the program, or starts it again after its end. `renamed` gives an executor another name, as a Deployment
    /// does.
    pub fn start(&mut self, renamed: bool) -> anyhow::Result<()> {
        self.service = None;
        let mut arguments = self.arguments.clone();
        if let Some(name) = arguments.last_mut().filter(|_| renamed) {
            *name = format!("{name}-{}", self.starts);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let log = format!("{}-start-{}", self.name, self.starts);
        self.starts += 1;
        self.service = Some(Service::start(&self.programs, self.program, &log, &self.directory, &arguments)?);
        Ok(())
    }

    /// Replaces the program from its next start on. The other program takes the same flags.
    pub fn replace_by(&mut self, program: &'static str) {
        self.program = program;
    }

    /// Returns the process, unless the program was never started.
    pub fn service(&self) -> anyhow::Result<&Service> {
        self.service.as_ref().with_context(|| format!("{} was not started", self.name))
    }

    pub fn service_mut(&mut self) -> anyhow::Result<&mut Service> {
        self.service.as_mut().with_context(|| format!("{} was not started", self.name))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the present value of a gauge or counter, or 0 if the program does not show it.
    pub async fn metric(&self, prefix: &str) -> anyhow::Result<f64> {
        Ok(self.service()?.metric(prefix).await?.unwrap_or(0.0))
    }
}

/// Graph services and executors. Executors reach each graph service over wires of their own.
#[derive(Debug)]
pub struct Replicas {
    pub graphs: Vec<Member>,
    pub executors: Vec<Member>,
    /// The links in front of the graph services.
    pub gates: Vec<Link>,
    grpc: Vec<String>,
    programs: Programs,
    // The directory is dropped last, because the processes write into it.
    directory: Directory,
}

impl Replicas {
    /// Prepares addresses for this many graph services, and starts no process.
    pub async fn new(programs: &Programs, graphs: usize) -> anyhow::Result<Replicas> {
        let words: Vec<String> = (0..EXECUTORS_MAX).map(executor_name).collect();
        let (mut grpc, mut gates) = (Vec::new(), Vec::new());
        for _ in 0..graphs {
            let address = format!("127.0.0.1:{}", free_port()?);
            gates.push(Link::for_each(address.parse()?, &words).await?);
            grpc.push(address);
        }
        let directory = Directory::create()?;
        Ok(Replicas { graphs: Vec::new(), executors: Vec::new(), gates, grpc, programs: programs.clone(), directory })
    }

    /// Starts one more graph service.
    pub fn add_graph(&mut self, kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let index = self.graphs.len();
        let (grpc, gate) = (self.grpc.get(index).context("no place for one more graph service")?, &self.gates[index]);
        let (kubeconfig, gate) = (kubeconfig.display().to_string(), gate.address().to_string());
        let name = format!("graph-{index}");
        let own = ["--kubeconfig", &kubeconfig, "--listen", grpc, "--advertise", &gate, "--replica-name", &name];
        let member = self.member(name.clone(), "graph-service", &[flags, &own].concat())?;
        self.graphs.push(member);
        Ok(())
    }

    /// Starts one more executor. It asks the graph services in its own order.
    pub fn add_executor(&mut self, kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<()> {
        let index = self.executors.len();
        ensure!(index < EXECUTORS_MAX, "no place for one more executor");
        let mut gates: Vec<String> = self.gates.iter().map(|gate| gate.address().to_string()).collect();
        let places = gates.len();
        gates.rotate_left(index % places);
        let (kubeconfig, gates, name) = (kubeconfig.display().to_string(), gates.join(","), executor_name(index));
        // The name is the last flag: see `Member::start`.
        let own = ["--kubeconfig", &kubeconfig, "--graph", &gates, "--name", &name];
        let member = self.member(name.clone(), "executor-service", &[flags, &own].concat())?;
        self.executors.push(member);
        Ok(())
    }

    fn member(&self, name: String, program: &'static str, arguments: &[&str]) -> anyhow::Result<Member> {
        let mut member = Member {
            name,
            program,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: self.directory.path().to_owned(),
            programs: self.programs.clone(),
            starts: 0,
            service: None,
        };
        member.start(false)?;
        Ok(member)
    }

    /// Waits until all processes are ready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for member in self.graphs.iter_mut().chain(&mut self.executors) {
            let name = member.name.clone();
            member.service_mut()?.ready().await.with_context(|| format!("waiting for {name}"))?;
        }
        Ok(())
    }

    /// Returns the errors and panics in the logs of all processes.
    pub fn alarms(&self) -> anyhow::Result<Vec<String>> {
        let mut alarms = Vec::new();
        for entry in fs::read_dir(self.directory.path())? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let alarming = text.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked at"));
            alarms.extend(alarming.map(|line| format!("{name}: {line}")));
        }
        Ok(alarms)
    }

    /// Returns the gRPC address of a graph service, behind its link.
    pub fn grpc(&self, graph: usize) -> &str {
        &self.grpc[graph]
    }

    /// Returns the directory for files such as kubeconfigs. It is removed with the replicas.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Creates a wire to the API server for one process, and the kubeconfig that uses it.
pub async fn wire_to(plane: &ControlPlane, directory: &Path, name: &str) -> anyhow::Result<(Link, PathBuf)> {
    let link = Link::to(plane.address()).await?;
    let kubeconfig = directory.join(format!("{name}.kubeconfig"));
    plane.kubeconfig_by(link.address(), &kubeconfig)?;
    Ok((link, kubeconfig))
}

/// Returns the word by which a link recognizes an executor.
pub fn executor_name(index: usize) -> String {
    format!("executor-{index}")
}

/// Reads the holder of the Lease.
pub async fn held(client: &Client) -> anyhow::Result<Held> {
    let lease = get(client, LEASE).await?.context("the election Lease is there")?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let holder = holder.strip_prefix("graph-").and_then(|rest| rest.split('_').next()?.parse().ok());
    Ok(Held { holder, term: lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0) })
}

/// Makes the Lease that of a backup from before the first term.
pub async fn restore_lease(client: &Client) -> anyhow::Result<()> {
    let mut lease = get(client, LEASE).await?.context("the election Lease is there")?;
    lease["spec"]["holderIdentity"] = "".into();
    lease["spec"]["leaseTransitions"] = 0.into();
    send(client, Method::PUT, LEASE, Some(&lease)).await.map(drop)
}
