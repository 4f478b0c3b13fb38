//! Prometheus and promtool, as packaged by Debian, on loopback with their own store.

use crate::load::until;
use crate::process::{Directory, Process, free_port};
use anyhow::{Context, ensure};
use kube_api::{Cluster, call};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const READY_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// The paths of both programs.
#[derive(Clone, Debug)]
pub struct Tools {
    prometheus: PathBuf,
    promtool: PathBuf,
}

/// Returns the programs, or `None` if they are not installed.
///
/// # Panics
/// The programs are not installed, and `CI` is set.
pub fn require() -> Option<Tools> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name: &str| std::env::split_paths(&path).map(|place| place.join(name)).find(|program| program.is_file());
    let found = find("prometheus").zip(find("promtool"));
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "prometheus is missing: apt-get install prometheus");
    if found.is_none() {
        tracing::warn!("not run: prometheus is missing; apt-get install prometheus");
    }
    found.map(|(prometheus, promtool)| Tools { prometheus, promtool })
}

impl Tools {
    /// Runs promtool with this text as its standard input.
    ///
    /// # Errors
    /// promtool found a fault. The error has its output.
    pub fn promtool(&self, arguments: &[&str], input: &str) -> anyhow::Result<()> {
        let mut command = Command::new(&self.promtool);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting promtool")?;
        child.stdin.take().context("promtool has no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output().context("waiting for promtool")?;
        let said = [output.stdout, output.stderr].concat();
        ensure!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
        Ok(())
    }

    /// Starts a server that scrapes `targets` every second, with these rules.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn start(&self, targets: &[&str], rules: &Path) -> anyhow::Result<Prometheus> {
        let directory = Directory::create()?;
        let config = serde_json::json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [{ "job_name": "ownergraph", "static_configs": [{ "targets": targets }] }],
        });
        // JSON is also YAML.
        std::fs::write(directory.path().join("prometheus.yml"), config.to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let arguments = [
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address={address}"),
        ];
        let process = Process::spawn("prometheus", directory.path(), &self.prometheus, &arguments)?;
        let server = Prometheus { process, address, _directory: directory };
        until(
            "Prometheus is ready",
            READY_WITHIN,
            || async { Ok(server.ask("/-/ready").await.is_ok()) },
            |ready| *ready,
        )
        .await
        .with_context(|| server.process.log_tail())?;
        Ok(server)
    }
}

/// A running server.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: String,
    // The directory is dropped last, because the process writes into it.
    _directory: Directory,
}

impl Prometheus {
    /// Returns the present value of an expression, one for each series.
    ///
    /// # Errors
    /// The expression is invalid.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<f64>> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        let encoded: String = expression
            .bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        let answer = self.ask(&format!("/api/v1/query?query={encoded}")).await.context(expression.to_owned())?;
        let answer: Value = serde_json::from_str(&answer)?;
        let result = answer["data"]["result"].as_array().with_context(|| format!("{expression}: {answer}"))?;
        let value = |sample: &Value| sample["value"][1].as_str().and_then(|text| text.parse().ok());
        result.iter().map(|sample| value(sample).with_context(|| format!("{expression}: {sample}"))).collect()
    }

    /// Returns each alert by name, with its state and its last error.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn alerts(&self) -> anyhow::Result<Vec<(String, String, String)>> {
        let answer: Value = serde_json::from_str(&self.ask("/api/v1/rules").await?)?;
        let rules = answer["data"]["groups"].as_array().into_iter().flatten();
        let rules = rules.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        Ok(rules.map(|rule| (text(rule, "name"), text(rule, "state"), text(rule, "health"))).collect())
    }

    async fn ask(&self, path: &str) -> anyhow::Result<String> {
        let cluster = Cluster::without_credentials(format!("http://{}", self.address).parse()?)?;
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = call(&cluster.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status.is_success(), "{} {body}", answer.status);
        Ok(body)
    }
}
