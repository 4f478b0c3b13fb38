//! A NATS server with TLS that authenticates its clients.

use anyhow::ensure;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::embedded::Api;
use tests::load::until;
use tests::nats::{self, Nats};
use tests::process::{Directory, free_port};
use tests::service::{Programs, Service};

const SOON: Duration = Duration::from_secs(60);
const PASSWORD: &str = "s3cret@home";
/// The secret in the form in which an address contains it.
const ENCODED: &str = "s3cret%40home";

/// A self-signed certificate and its key.
fn certificate(directory: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let (certificate, key) = (directory.join("nats.crt"), directory.join("nats.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

struct World {
    programs: Programs,
    api: Api,
    trusted: PathBuf,
    directory: Directory,
}

impl World {
    /// Starts a graph service with that log, and waits until it reports this text. Returns its log lines.
    async fn says(&self, name: &str, log: &str, what: &str) -> anyhow::Result<String> {
        let trusted = format!("SSL_CERT_FILE={}", self.trusted.display());
        let (program, listen) = (self.programs.path("graph-service"), format!("127.0.0.1:{}", free_port()?));
        let program = program.display().to_string();
        let own = ["--kubeconfig", &self.api.flag, "--listen", &listen, "--log-level", "trace", "--decision-log", log];
        let arguments = [&[trusted.as_str(), program.as_str()], own.as_slice()].concat();
        let service = Service::start(&self.programs, "/usr/bin/env", name, self.directory.path(), &arguments)?;
        // The server must listen first.
        let readyz = || async { Ok(service.get("/readyz?verbose").await.map(|answer| answer.1).unwrap_or_default()) };
        until(what, SOON, readyz, |text| text.contains(what)).await?;
        Ok(service.process.output())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_over_tls_opens_the_log_and_is_never_shown() -> anyhow::Result<()> {
    let Some(nats) = nats::require() else { return Ok(()) };
    let directory = Directory::create()?;
    let (trusted, key) = certificate(directory.path())?;
    let (certificate, key) = (trusted.display().to_string(), key.display().to_string());
    let more = ["--tls", "--tlscert", &certificate, "--tlskey", &key, "--user", "gc", "--pass", PASSWORD];
    let nats = Nats::start(&nats, &more).await?;
    let (programs, api) = (Programs::build()?, Api::start(directory.path()).await?);
    let world = World { programs, api, trusted, directory };
    let address = nats.address();
    let logged = world.says("right", &format!("tls://gc:{ENCODED}@{address}"), "decision log: written to").await?;
    ensure!(logged.contains("async_nats"), "the library logs, too");
    ensure!(!logged.contains(PASSWORD) && !logged.contains(ENCODED), "the password is in the log");
    let refused = "decision log: unreachable";
    let logged = world.says("wrong", &format!("tls://gc:un{ENCODED}@{address}"), refused).await?;
    ensure!(logged.to_lowercase().contains("authorization violation"), "why is told");
    ensure!(!logged.contains(PASSWORD) && !logged.contains(ENCODED), "the password is in the log");
    Ok(())
}

#[test]
fn an_address_that_cannot_be_meant_is_refused_at_the_start_and_not_repeated() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    for bad in [format!("http://gc:{PASSWORD}@127.0.0.1"), format!("nats://gc:{PASSWORD}@h:port")] {
        let output = Command::new(programs.path("graph-service")).args(["--decision-log", &bad]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && said.contains("expected nats://"), "{said}");
        ensure!(!said.contains("s3cret"), "{said}");
    }
    Ok(())
}
