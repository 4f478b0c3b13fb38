//! A NATS server with JetStream, as Debian has it, on loopback and with a store of its own.

use crate::process::{Directory, Process, free_port};
use anyhow::{Context, bail};
use futures::TryStreamExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

const READY_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Debian installs it outside most users' PATH.
const ELSEWHERE: &str = "/usr/sbin/nats-server";

/// The program, or `None` if it is not installed; that is an error where `CI` is set.
///
/// # Panics
/// It is not installed and must not be missing.
pub fn require() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join("nats-server")).chain([ELSEWHERE.into()]);
    let found = places.find(|program| program.is_file());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "nats-server is missing: apt-get install nats-server");
    if found.is_none() {
        tracing::warn!("not run: nats-server is missing; apt-get install nats-server");
    }
    found
}

/// A server that can be killed and started again with what it has stored.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    port: u16,
    more: Vec<String>,
    process: Option<Process>,
    starts: usize,
    // Dropped last: the process writes into it.
    directory: Directory,
}

impl Nats {
    /// Starts one with an empty store, and with these arguments beside its own.
    pub async fn start(program: &Path, more: &[&str]) -> anyhow::Result<Nats> {
        let (program, port, directory) = (program.to_owned(), free_port()?, Directory::create()?);
        let more = more.iter().map(|&argument| argument.to_owned()).collect();
        let mut nats = Nats { program, port, more, process: None, starts: 0, directory };
        nats.again().await?;
        Ok(nats)
    }

    /// What `--decision-log` takes, where it asks for no more.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it without asking.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("it does not run")?;
        process.kill()?;
        process.ended(READY_WITHIN).await.map(|_| ())
    }

    /// Starts it with what it had stored.
    pub async fn again(&mut self) -> anyhow::Result<()> {
        let store = self.directory.path().join("store").display().to_string();
        let port = self.port.to_string();
        let arguments = ["--jetstream", "--store_dir", &store, "--addr", "127.0.0.1", "--port", &port];
        let own = arguments.iter().map(|&argument| argument.to_owned());
        let arguments: Vec<String> = own.chain(self.more.iter().cloned()).collect();
        let name = format!("nats-{}", self.starts);
        self.starts += 1;
        self.process = None;
        let mut process = Process::spawn(&name, self.directory.path(), &self.program, &arguments)?;
        let deadline = Instant::now() + READY_WITHIN;
        let mut ticks = interval(Duration::from_millis(20));
        while Instant::now() < deadline {
            ticks.tick().await;
            if let Some(status) = process.exited()? {
                bail!("it ended while starting, {status}; {}", process.log_tail());
            }
            if let Ok(Ok(greeting)) = timeout(ANSWER_WITHIN, self.greeting()).await
                && greeting.contains("\"jetstream\":true")
            {
                self.process = Some(process);
                return Ok(());
            }
        }
        bail!("it does not greet in {READY_WITHIN:?}; {}", process.log_tail())
    }

    /// The sequence of the last message of the one stream that there is.
    pub async fn last_sequence(&self) -> anyhow::Result<u64> {
        let client = async_nats::connect(self.url()).await.context("connecting to the NATS server")?;
        let jetstream = async_nats::jetstream::new(client);
        let names: Vec<String> = jetstream.stream_names().try_collect().await.context("listing the streams")?;
        let [name] = names.as_slice() else { bail!("one stream, and not {names:?}") };
        let stream = jetstream.get_stream(name).await.context("asking for the stream")?;
        Ok(stream.cached_info().state.last_sequence)
    }

    async fn greeting(&self) -> anyhow::Result<String> {
        let mut line = String::new();
        let connection = TcpStream::connect(("127.0.0.1", self.port)).await?;
        BufReader::new(connection).read_line(&mut line).await?;
        Ok(line)
    }
}
