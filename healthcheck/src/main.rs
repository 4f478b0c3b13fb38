//! `healthcheck`: probes a server, for container images without other tools.
//!
//! It sends one GET. The exit code is 0 for an answer of 200. Otherwise it is 1, with a sentence on stderr, which
//! `docker inspect` shows.

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use http::uri::Scheme;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum number of bytes of an error answer that are read for a reason.
const REASON_MAX_BYTES: usize = 64 << 10;
const REASON_MAX_CHARACTERS: usize = 200;
const WITHIN: Duration = Duration::from_secs(3);

/// Probes a server. Exits with 0 if it answers 200 within three seconds, else with 1 and the reason.
#[derive(Clone, Debug, Parser)]
#[command(name = "healthcheck", version, max_term_width = 110)]
struct Options {
    /// URL to request, such as https://localhost:7451/readyz.
    #[arg(value_name = "URL")]
    url: Uri,

    /// File with the authorities that sign the server's certificate, as PEM; required for https.
    #[arg(long, env = "OWNERGRAPH_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the thread")
        .and_then(|thread| thread.block_on(ask(&options)));
    let Err(error) = asked else { return ExitCode::SUCCESS };
    // If stderr cannot be written, the error cannot be reported.
    let _closed = writeln!(std::io::stderr(), "healthcheck: {error:#}");
    ExitCode::FAILURE
}

async fn ask(options: &Options) -> anyhow::Result<()> {
    let roots = match (&options.tls_ca, options.url.scheme() == Some(&Scheme::HTTPS)) {
        (Some(file), true) => authorities(file)?,
        (None, true) => bail!("{} needs --tls-ca: the authorities that sign the server's certificate", options.url),
        (Some(_) | None, false) => RootCertStore::empty(),
    };
    let provider = rustls::crypto::ring::default_provider();
    let tls = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .context("cannot use TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let answered = async {
        let answer = client.get(options.url.clone()).await?;
        let status = answer.status();
        // A truncated or oversized body does not change the status.
        let body = Limited::new(answer.into_body(), REASON_MAX_BYTES).collect().await;
        anyhow::Ok((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    let (status, body) = tokio::time::timeout(WITHIN, answered)
        .await
        .map_err(|_| anyhow!("{}: no answer within {} s", options.url, WITHIN.as_secs()))?
        .with_context(|| options.url.to_string())?;
    ensure!(status == StatusCode::OK, "{} answers {}: {}", options.url, status.as_u16(), reason(&body));
    Ok(())
}

fn authorities(file: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).with_context(|| format!("reading {}", file.display()))?;
    for certificate in certificates {
        let certificate = certificate.with_context(|| format!("reading {}", file.display()))?;
        roots.add(certificate).with_context(|| format!("{} contains no authority", file.display()))?;
    }
    ensure!(!roots.is_empty(), "{} contains no certificate", file.display());
    Ok(roots)
}

/// The first line of the answer, without control characters.
fn reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    line.chars().filter(|character| !character.is_control()).take(REASON_MAX_CHARACTERS).collect()
}
