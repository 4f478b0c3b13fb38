//! Servers as child processes that cannot outlive the test process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

/// Runs a server in the background and kills it when standard input ends. The write end of that pipe is open in the
/// test process alone, so the kernel closes it however that process ends: return, panic, `static` never dropped,
/// SIGKILL. The shell waits for the server, so the system cannot reuse the pid before the kill. The watcher starts
/// before the pid is reported: a parent that is already gone breaks the report, not the kill.
const SUPERVISE: &str = r#"
log=$1; shift
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
server=$!
{ read -r _ <&3; kill -KILL "$server"; } >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo "$server"
wait "$server"; status=$?
kill "$watcher"; wait "$watcher"
exit "$status"
"#;

/// Removes a directory when standard input ends. The servers that write into it are being killed at the same moment, so a file
/// may still appear while it works; then it tries again, at most 50 times.
const SWEEP: &str = r#"
read -r _
tries=0
until rm -rf "$1" || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
"#;

/// Ports are taken from below the range that Linux and macOS give to outgoing connections, so that none takes a server's port
/// between its stop and its restart.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;
const PORT_TRIES_MAX: usize = 1_000;

/// Looks at a process that was asked to stop, with other threads' turns in between.
const PAUSE_LOOKS_MAX: usize = 100_000;

const LOG_TAIL_LINES: usize = 20;
const LOG_TAIL_BYTES: usize = 8 * 1024;

/// A running server. Dropping it kills the server (SIGKILL) and waits until it is gone.
#[derive(Debug)]
pub struct Process {
    supervisor: Child,
    pid: u32,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program` in `directory`, with standard output and error appended to `<directory>/<name>.log`.
    pub fn spawn(name: &str, directory: &Path, program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let mut supervisor = supervise(SUPERVISE)
            .arg(&log)
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the shell that supervises {name}"))?;
        let stdout = supervisor.stdout.take().context("the supervising shell has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).with_context(|| format!("reading the process id of {name}"))?;
        let pid = line.trim().parse().with_context(|| format!("process id of {name}: {line:?}"))?;
        Ok(Self { supervisor, pid, name: name.to_owned(), log })
    }

    /// The server's own process id, for `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The output of the server so far.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Asks the server to end (SIGTERM).
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal("TERM")
    }

    /// Ends the server without asking (SIGKILL).
    pub fn kill(&self) -> anyhow::Result<()> {
        self.signal("KILL")
    }

    /// Waits until the server has ended; its exit code, or 128 and the number of the signal that ended it.
    pub async fn ended(&mut self, within: Duration) -> anyhow::Result<i32> {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let deadline = tokio::time::Instant::now() + within;
        loop {
            ticks.tick().await;
            if let Some(status) = self.exited()? {
                return status.code().with_context(|| format!("{} and its shell were killed", self.name));
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "{} still runs after {within:?}; {}",
                self.name,
                self.log_tail()
            );
        }
    }

    /// Everything the server has written so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops the server from running, without ending it: its sockets stay open and nothing answers.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        // The signal is in flight when `kill` returns: a thread that runs may still answer one request.
        for _ in 0..PAUSE_LOOKS_MAX {
            if self.has_stopped()? {
                return Ok(());
            }
            std::thread::yield_now();
        }
        anyhow::bail!("{} (process {}) does not stop", self.name, self.pid)
    }

    /// Whether every thread is in state `T`. Where there is no `/proc`, the signal is taken at its word.
    fn has_stopped(&self) -> anyhow::Result<bool> {
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid));
        if !threads.exists() {
            return Ok(true);
        }
        for thread in fs::read_dir(&threads).with_context(|| format!("reading {}", threads.display()))? {
            let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
            // The state follows the name, which stands in parentheses and may hold anything.
            if stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets a paused server run again.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let status = Command::new("sh")
            .args(["-c", r#"kill -"$1" "$2""#, "kill", signal])
            .arg(self.pid.to_string())
            .status()
            .with_context(|| format!("sending SIG{signal} to {}", self.name))?;
        ensure!(status.success(), "sending SIG{signal} to {} (process {}): {status}", self.name, self.pid);
        Ok(())
    }

    /// How the server ended, if it has.
    pub fn exited(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.supervisor.try_wait().with_context(|| format!("asking whether {} still runs", self.name))
    }

    /// The last lines of the log under a heading, for error messages.
    pub fn log_tail(&self) -> String {
        format!("last lines of {}:\n{}", self.log.display(), tail(&self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.supervisor);
    }
}

/// A temporary directory that is removed also when the test process is killed or leaves it in a `static`.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    sweeper: Child,
}

impl Directory {
    pub fn create() -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("ownergraph-").tempdir().context("creating a temporary directory")?;
        let sweeper = supervise(SWEEP)
            .arg(directory.path())
            .current_dir("/")
            .stdout(Stdio::null())
            .spawn()
            .context("starting the shell that removes the temporary directory")?;
        Ok(Self { path: directory.keep(), sweeper })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        end(&mut self.sweeper);
    }
}

/// A shell in its own process group: an interrupt from the terminal ends the tests, and the pipe ends the shell.
fn supervise(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "supervise"]).stdin(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    shell
}

/// Closes the pipe, on which the shell does its work and ends. A failure to wait means that it was already gone.
fn end(shell: &mut Child) {
    drop(shell.stdin.take());
    let _ = shell.wait();
}

/// A loopback port that is free now, and that this process has not handed out before: a program that is given one binds it only later.
pub fn free_port() -> anyhow::Result<u16> {
    static NEXT: LazyLock<AtomicUsize> =
        LazyLock::new(|| AtomicUsize::new(uuid::Uuid::new_v4().as_fields().0 as usize));
    for _ in 0..PORT_TRIES_MAX {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % usize::from(LAST_PORT - FIRST_PORT);
        let port = FIRST_PORT + u16::try_from(offset).expect("a remainder is below the span, which is a u16");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no free port on 127.0.0.1 between {FIRST_PORT} and {LAST_PORT} in {PORT_TRIES_MAX} tries")
}

/// The last lines of a file, or why it cannot be read.
pub(crate) fn tail(file: &Path) -> String {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return format!("(unreadable: {error})"),
    };
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
