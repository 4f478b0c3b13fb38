//! A NATS server with JetStream, as packaged by Debian, on loopback with its own store.

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
/// The path of Debian's program, which is outside most users' PATH.
const ELSEWHERE: &str = "/usr/sbin/nats-server";

/// Returns the program, or `None` if it is not installed.
///
/// # Panics
/// The program is not installed, and `CI` is set.
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

/// A server that a test can kill and start again with its store.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    port: u16,
    more: Vec<String>,
    process: Option<Process>,
    starts: usize,
    // The directory is dropped last, because the process writes into it.
    directory: Directory,
}

impl Nats {
    /// Starts a server with an empty store, with these further arguments.
    pub async fn start(program: &Path, more: &[&str]) -> anyhow::Result<Nats> {
        let (program, port, directory) = (program.to_owned(), free_port()?, Directory::create()?);
        let more = more.iter().map(|&argument| argument.to_owned()).collect();
        let mut nats = Nats { program, port, more, process: None, starts: 0, directory };
        nats.again().await?;
        Ok(nats)
    }

    /// Returns the value of `--decision-log` without further options.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("it does not run")?;
        process.kill()?;
        process.ended(READY_WITHIN).await.map(|_| ())
    }

    /// Starts the server again with its store.
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

    /// Returns the sequence of the last message in the single stream.
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
