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

/// Removes a directory when standard input ends. The servers that write into the directory are killed at the same
/// moment, and may still create files. Therefore the command repeats the removal, at most 50 times.
const SWEEP: &str = r#"
read -r _
tries=0
until rm -rf "$1" || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
"#;

/// The range of ports for servers. It is below the range that Linux and macOS use for outgoing connections, so that no
/// connection takes a server's port between a stop and a restart.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;
const PORT_TRIES_MAX: usize = 1_000;

/// The number of looks at a process that was asked to stop. Other threads run between two looks.
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

    /// Returns the process id of the server itself, for `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the output of the server so far.
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

    /// Waits until the server has ended. Returns its exit code, or 128 plus the number of the signal that ended it.
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

    /// Returns everything that the server has written so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops the server without ending it. Its sockets stay open, and nothing answers.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        // The signal is in flight when `kill` returns, so a running thread may still answer one request.
        for _ in 0..PAUSE_LOOKS_MAX {
            if self.has_stopped()? {
                return Ok(());
            }
            std::thread::yield_now();
        }
        anyhow::bail!("{} (process {}) does not stop", self.name, self.pid)
    }

    /// Returns whether every thread is in state `T`. Without `/proc`, assumes that the signal had its effect.
    fn has_stopped(&self) -> anyhow::Result<bool> {
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid));
        if !threads.exists() {
            return Ok(true);
        }
        for thread in fs::read_dir(&threads).with_context(|| format!("reading {}", threads.display()))? {
            let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
            // The state follows the name. The name is in parentheses, and may contain any character.
            if stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues a paused server.
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

    /// Returns the exit status of the server, if it has ended.
    pub fn exited(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.supervisor.try_wait().with_context(|| format!("asking whether {} still runs", self.name))
    }

    /// Returns the last lines of the log under a heading, for error messages.
    pub fn log_tail(&self) -> String {
        format!("last lines of {}:\n{}", self.log.display(), tail(&self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.supervisor);
    }
}

/// A temporary directory. It is removed even if a signal kills the test process, or if the value is in a `static`.
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

/// Starts a shell in its own process group. An interrupt from the terminal ends the tests, and the pipe then ends the
/// shell.
fn supervise(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "supervise"]).stdin(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    shell
}

/// Closes the pipe. The shell then does its work and ends. If the wait fails, the shell was already gone.
fn end(shell: &mut Child) {
    drop(shell.stdin.take());
    let _ = shell.wait();
}

/// Returns a free loopback port that this process has not returned before, because a program binds its port some time
/// after it learns it.
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

/// Returns the last lines of a file, or the reason why the file is unreadable.
pub(crate) fn tail(file: &Path) -> String {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return format!("(unreadable: {error})"),
    };
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
