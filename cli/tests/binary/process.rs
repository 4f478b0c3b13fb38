//! Running the program, and talking to what it serves.

use http::{Method, Request, StatusCode};
use kube_api::{Answer, Cluster, call, media, request};
use serde_json::{Value, json};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::{interval, timeout};

/// For anything that must happen, on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The program with these arguments, in an environment that gives it nothing.
pub(crate) fn ownergraph(arguments: &[&str]) -> Command {
    program("ownergraph", arguments)
}

/// The plugin of kubectl, likewise.
pub(crate) fn plugin(arguments: &[&str]) -> Command {
    program("kubectl-ownergraph", arguments)
}

/// Runs the program under the name that kubectl calls to complete a line, with the same environment.
pub(crate) fn completer(arguments: &[&str]) -> Command {
    program("kubectl_complete-ownergraph", arguments)
}

fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ownergraph"));
    command.arg0(name).args(arguments).stdin(Stdio::null()).kill_on_drop(true).env_clear().env("HOME", "/nonexistent");
    command
}

/// Runs it to its end.
pub(crate) async fn output(command: &mut Command) -> Output {
    timeout(WITHIN, command.output()).await.expect("it did not end").unwrap()
}

/// A process that continues until it is stopped. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        Running::of(ownergraph(arguments))
    }

    pub(crate) fn of(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Running { child, stdout, stderr }
    }

    /// The next line on stdout with this in it.
    pub(crate) async fn said(&mut self, part: &str) -> String {
        line_with(&mut self.stdout, part).await
    }

    /// The next line on stderr with this in it.
    pub(crate) async fn logged(&mut self, part: &str) -> String {
        line_with(&mut self.stderr, part).await
    }

    /// Reads the rest of stderr meanwhile, so that the program is never kept waiting. Gives how many lines there were,
    /// each of them checked.
    pub(crate) async fn checked_until<T>(
        &mut self,
        check: impl Fn(&str),
        doing: impl Future<Output = T>,
    ) -> (T, usize) {
        let mut doing = std::pin::pin!(doing);
        let mut lines = 0;
        loop {
            tokio::select! {
                done = &mut doing => return (done, lines),
                line = self.stderr.next_line() => {
                    check(&line.unwrap().expect("it has ended"));
                    lines += 1;
                }
            }
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        timeout(WITHIN, self.child.wait()).await.expect("it did not stop").unwrap()
    }
}

async fn line_with<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>, part: &str) -> String {
    let wanted = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended without saying {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    };
    timeout(WITHIN, wanted).await.unwrap_or_else(|_| panic!("it did not say {part:?}"))
}

/// Something that answers HTTP.
pub(crate) struct Http {
    client: kube::Client,
}

impl Http {
    pub(crate) fn at(address: &str) -> Http {
        let cluster = Cluster::without_credentials(format!("http://{address}").parse().unwrap()).unwrap();
        Http { client: cluster.client }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let request = request(method, path, media::JSON, &body.unwrap_or(Value::Null)).unwrap();
        self.exchange(request).await
    }

    pub(crate) async fn exchange(&self, request: Request<Vec<u8>>) -> Answer {
        call(&self.client, request, 1 << 24, WITHIN).await.unwrap()
    }

    pub(crate) async fn text(&self, path: &str) -> (StatusCode, String) {
        let answer = self.send(Method::GET, path, None).await;
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// Creates a ConfigMap in namespace default and gives a reference to it as an owner.
    pub(crate) async fn create(&self, name: &str, owners: &[&Value]) -> Value {
        let metadata = json!({ "name": name, "ownerReferences": owners });
        let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        let answer = self.send(Method::POST, CONFIG_MAPS, Some(body)).await;
        assert_eq!(answer.status, StatusCode::CREATED);
        let created: Value = serde_json::from_slice(&answer.body).unwrap();
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": created["metadata"]["uid"] })
    }

    /// The ConfigMap, if it is there.
    pub(crate) async fn get(&self, name: &str) -> Option<Value> {
        let answer = self.send(Method::GET, &format!("{CONFIG_MAPS}/{name}"), None).await;
        answer.status.is_success().then(|| serde_json::from_slice(&answer.body).unwrap())
    }

    pub(crate) async fn delete(&self, name: &str) {
        let answer = self.send(Method::DELETE, &format!("{CONFIG_MAPS}/{name}"), None).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Polls `holds` until it returns true.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looked = async {
        let mut looks = interval(LOOK_EVERY);
        while !holds().await {
            looks.tick().await;
        }
    };
    timeout(WITHIN, looked).await.unwrap_or_else(|_| panic!("timed out waiting until {what}"));
}
