//! Connections of the services, as processes: certificates that change during calls, untrusted callers, and proxies to
//! the API server.

mod examples;
mod proxied;
mod refusals;
mod rotation;
mod start;
mod token;

use anyhow::{Context, ensure};
use http::Request;
use kube_api::call;
use runtime::tls::{Caller, CallerFlags};
use std::path::Path;
use std::time::Duration;
use tests::certificates::Mounted;
use tests::load::until;
use tests::process::{Process, free_port};
use tests::service::Programs;

const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// Returns the settings of a caller with the files of a Secret.
fn flags(mounted: &Mounted) -> CallerFlags {
    let file = |name| Some(mounted.file(name).into());
    CallerFlags { tls_ca: file("ca.crt"), tls_cert: file("tls.crt"), tls_key: file("tls.key"), token_file: None }
}

async fn caller(mounted: &Mounted) -> anyhow::Result<Caller> {
    Ok(Caller::open(&flags(mounted), true, ("--tls-server-name", None)).await?)
}

/// A service with TLS at its admin address.
struct Secured {
    process: Process,
    admin: String,
}

impl Secured {
    /// Starts the service with the files of a Secret.
    fn start(
        programs: &Programs,
        program: &str,
        name: &str,
        directory: &Path,
        (mounted, arguments): (&Mounted, &[&str]),
    ) -> anyhow::Result<Secured> {
        let admin = format!("127.0.0.1:{}", free_port()?);
        let (certificate, key, ca) = (mounted.file("tls.crt"), mounted.file("tls.key"), mounted.file("ca.crt"));
        let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--client-ca", &ca, "--admin-listen", &admin];
        let all: Vec<String> = tls.iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
        Ok(Secured { process: Process::spawn(name, directory, &programs.path(program), &all)?, admin })
    }

    /// Returns status and body of a GET at the admin server, with the certificate of a Secret or without one.
    async fn get(&self, path: &str, mounted: &Mounted, shows_certificate: bool) -> anyhow::Result<(u16, String)> {
        let cluster = mounted.connect(&self.admin, shows_certificate).await?;
        let request = Request::get(path).body(Vec::new())?;
        let answer = call(&cluster.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN)
            .await
            .with_context(|| format!("GET https://{}{path}; {}", self.admin, self.process.log_tail()))?;
        Ok((answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// Returns the sum of a metric's lines with this beginning.
    async fn metric(&self, prefix: &str, mounted: &Mounted) -> anyhow::Result<f64> {
        let (status, body) = self.get("/metrics", mounted, true).await?;
        ensure!(status == 200, "{status}: {body}");
        let lines = body.lines().filter(|line| line.starts_with(prefix));
        lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().context("a metric's value")).sum()
    }

    /// Waits until the service is ready. Like a probe, the call has no certificate.
    async fn ready(&mut self, mounted: &Mounted) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            let last = self.get("/readyz", mounted, false).await;
            if matches!(last, Ok((200, _))) {
                return Ok(());
            }
            ensure!(self.process.exited()?.is_none(), "it has ended; {}", self.process.log_tail());
            ensure!(tokio::time::Instant::now() < deadline, "{last:?}; {}", self.process.log_tail());
        }
    }
}

/// Waits until an API server answers, that needs no credentials.
async fn until_answers(server: &str) -> anyhow::Result<()> {
    let cluster = kube_api::Cluster::without_credentials(server.parse()?)?;
    let ask = || async {
        let answer = call(&cluster.client, Request::get("/readyz").body(Vec::new())?, ANSWER_MAX_BYTES, ANSWER_WITHIN);
        Ok(answer.await.is_ok_and(|answer| answer.status == 200))
    };
    until("the API server answers", Duration::from_secs(30), ask, |answers| *answers).await.map(drop)
}
