//! The tasks of the documentation: the commands of their pages run in one shell as they are printed, and say what the
//! page shows.

use anyhow::{Context as _, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tests::chart::root;
use tests::controlplane::{Binaries, require};
use tests::load::until;
use tests::process::{Directory, free_port};
use tests::service::Programs;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

const WITHIN: Duration = Duration::from_secs(400);
/// A line of this text stands for any number of lines.
const LEFT_OUT: &str = "...";
const END: &str = "@end of a command";
/// The begin of a block of commands.
const BLOCK: &str = "```console\n";

struct Step {
    command: String,
    says: Vec<String>,
}

/// Whether a command goes on in the next line: a quote is open, or a document up to `END`.
fn is_open(command: &str) -> bool {
    match command.contains("<<'END'") {
        true => !command.ends_with("\nEND"),
        false => command.matches('\'').count() % 2 == 1,
    }
}

/// The commands in the blocks `console` of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let blocks = page.match_indices(BLOCK).filter_map(|(at, begin)| page[at + begin.len()..].split("```").next());
    for block in blocks {
        let mut open = false;
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) if !open => steps.push(Step { command: command.to_owned(), says: Vec::new() }),
                (_, Some(step)) if open => step.command.push_str(&format!("\n{line}")),
                (_, Some(step)) => step.says.push(line.to_owned()),
                (_, None) => panic!("a block begins with a command, not with {line:?}"),
            }
            open = steps.last().is_some_and(|step| is_open(&step.command));
        }
    }
    steps
}

/// A line without what differs from run to run: identifiers, numbers, spans of time and the width of columns.
fn plain(line: &str) -> String {
    let numbered = |word: &str| {
        let word = word.replace(|c: char| c.is_ascii_digit() || c == '.', "0");
        let is_hex = |part: &&str| part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word =
            word.split(['-', '=']).map(|part| if is_hex(&part) { "0" } else { part }).collect::<Vec<_>>().join("-");
        let mut short = word;
        while short.contains("00") {
            short = short.replace("00", "0");
        }
        match short.as_str() {
            "ms" | "s" => "time".to_owned(),
            "0ms" | "0s" | "0m0s" | "0m" => "0time".to_owned(),
            other => other.to_owned(),
        }
    };
    line.split_whitespace().map(numbered).collect::<Vec<_>>().join(" ")
}

/// Whether an output is what a page shows. Without lines that are left out, the rows may have another order.
fn fits(said: &[String], says: &[String]) -> bool {
    if !says.iter().any(|line| line == LEFT_OUT) {
        let sorted = |lines: &[String]| {
            let mut lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
            lines.sort_unstable();
            lines
        };
        return sorted(said) == sorted(says);
    }
    let (mut said, mut gap) = (said.iter().map(|line| plain(line)), false);
    for line in says {
        if line == LEFT_OUT {
            gap = true;
            continue;
        }
        let is = |other: Option<String>| other.is_some_and(|other| other == plain(line));
        let found = if gap { is(said.find(|other| *other == plain(line))) } else { is(said.next()) };
        if !found {
            return false;
        }
        gap = false;
    }
    gap || said.next().is_none()
}

#[test]
fn a_page_is_compared_line_by_line() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let page = "text\n```console\n$ one 'a\n  b'\nsaid 1\n$ two\n```\n```sh\n$ three\n```\n";
    let found: Vec<_> = steps(page).into_iter().map(|step| (step.command, step.says)).collect();
    assert_eq!(found, [("one 'a\n  b'".to_owned(), lines("said 1")), ("two".to_owned(), Vec::new())]);
    for (said, says, expected) in [
        ("a  7d1e33aa 2.3 s", "a 00ff00ff 640 ms", true),
        ("AGE\nx   2s", "AGE\nx   1m10s", true),
        ("a\nb\nc", "a\n...\nc", true),
        ("a\nb\nc", "a\n...", true),
        ("a\nb\nc", "a\nc", false),
        ("a\nc\nb", "a\nb\nc", true),
        ("a\nc\nb", "...\nb\nc", false),
        ("a\nb\nc", "a\nb", false),
        ("a\nb", "a\n...\nc", false),
        ("kept 1", "gone 1", false),
    ] {
        assert_eq!(fits(&lines(said), &lines(says)), expected, "{said:?} and {says:?}");
    }
}

/// A shell that ends with the test, and its jobs with it.
struct Shell {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    async fn start(directory: &Path, programs: &Programs, binaries: &Binaries) -> anyhow::Result<Shell> {
        let links = directory.join("bin");
        fs::create_dir(&links)?;
        for name in ["ownergraph", "kubectl-ownergraph", "kubectl_complete-ownergraph"] {
            symlink(programs.path("ownergraph"), links.join(name))?;
        }
        symlink(binaries.program("kubectl"), links.join("kubectl"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.current_dir(directory)
            .env_clear()
            .env("PATH", format!("{}:{path}", links.display()))
            .env("HOME", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = bash.spawn().context("starting bash")?;
        let lines = BufReader::new(child.stdout.take().context("bash has an output")?).lines();
        let mut shell = Shell { child, lines };
        shell.run("trap 'kill $(jobs -p)' EXIT").await?;
        Ok(shell)
    }

    /// Runs a command and returns the lines that it writes. `$?` is the code of the command before.
    async fn run(&mut self, command: &str) -> anyhow::Result<Vec<String>> {
        let stdin = self.child.stdin.as_mut().context("bash has an input")?;
        let line = format!("{{ (exit $code)\n{command}\n}} 2>&1; code=$?; echo; echo '{END}'\n");
        stdin.write_all(line.as_bytes()).await?;
        let mut said = Vec::new();
        let read = async {
            while let Some(line) = self.lines.next_line().await? {
                if line == END {
                    return Ok(());
                }
                said.push(line);
            }
            Err(anyhow::anyhow!("the shell ended"))
        };
        timeout(WITHIN, read).await.with_context(|| format!("`{command}` did not end"))??;
        // The line end before the mark. An output without one at its end has none there either.
        said.pop_if(|line| line.is_empty());
        Ok(said)
    }
}

/// Whether a second call changes nothing.
fn only_asks(command: &str) -> bool {
    ["ownergraph status", "kubectl ownergraph", "kubectl get", "cat policy.log"]
        .iter()
        .any(|begin| command.starts_with(begin))
}

async fn works(page: &str) -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let (programs, directory) = (Programs::build()?, Directory::create()?);
    let mut text = fs::read_to_string(root().join("docs/tasks").join(page))?;
    let shell = Mutex::new(Shell::start(directory.path(), &programs, &binaries).await?);
    for (variable, port) in [("SANDBOX", "8001"), ("SERVER", "7450"), ("ADMIN_LISTEN", "7451")] {
        let address = format!("127.0.0.1:{}", free_port()?);
        text = text.replace(&format!("127.0.0.1:{port}"), &address);
        shell.lock().await.run(&format!("export OWNERGRAPH_{variable}={address}")).await?;
    }
    shell.lock().await.run("export OWNERGRAPH_LISTEN=$OWNERGRAPH_SERVER").await?;
    let steps = steps(&text);
    ensure!(steps.len() > 3, "{page} has {} commands", steps.len());
    for step in &steps {
        let run = async || shell.lock().await.run(&step.command).await;
        let fit = |said: &Vec<String>| fits(said, &step.says);
        if only_asks(&step.command) {
            until(&format!("{page}: `{}` says {:#?}", step.command, step.says), WITHIN, run, fit).await?;
            continue;
        }
        let said = run().await?;
        ensure!(fit(&said), "{page}: `{}` says {said:#?}, and not {:#?}", step.command, step.says);
        let served = step.command.strip_suffix(" &").filter(|command| !command.contains('|'));
        if let Some((_, log)) = served.and_then(|command| command.rsplit_once('>')) {
            let log = directory.path().join(log);
            let written = async || Ok(fs::metadata(&log).map_or(0, |log| log.len()));
            until(&format!("`{}` starts", step.command), WITHIN, written, |bytes| *bytes > 0).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn try_it() -> anyhow::Result<()> {
    works("try.md").await
}

#[tokio::test(flavor = "multi_thread")]
async fn see_why_something_is_stuck() -> anyhow::Result<()> {
    works("stuck.md").await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_a_policy_subscriber() -> anyhow::Result<()> {
    works("subscriber.md").await
}
