//! Follows every decision of the collector. After a restart it continues where it stopped. It is the skeleton of a
//! policy engine.
//!
//! Prints one line per event to stdout. The position is stored after all events up to it are handled. So a subscriber
//! that is killed sees some events again, and misses none.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints for its user")]

use anyhow::Context;
use clap::Parser;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::watch_decisions_response::Event;
use proto::decision::v1beta1::{DecisionEvent, Position, WatchDecisionsRequest, WatchDecisionsResponse};
use proto::error_reason::{DOMAIN, LEADER_ENDPOINT};
use proto::work::v1beta1::ItemKind;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_types::StatusExt;

/// Follows the decisions of Ownergraph.
#[derive(Parser)]
struct Args {
    /// Graph services, tried in turn: host:port,host:port.
    #[arg(long, value_delimiter = ',', required = true)]
    server: Vec<String>,
    /// File with the position of this subscriber.
    #[arg(long, default_value = "position.json")]
    position: PathBuf,
    /// Print a warning when an object in this namespace is deleted.
    #[arg(long, default_value = "kube-system")]
    protect: String,
    #[command(flatten)]
    tls: Tls,
}

/// TLS, if --tls-ca or an https:// address requests it. The files are read again for each connection, because they
/// rotate.
#[derive(clap::Args)]
struct Tls {
    /// File with the authorities of the server's certificate, as PEM. Default: those of this machine.
    #[arg(long)]
    tls_ca: Option<PathBuf>,
    /// File with the client certificate, as PEM.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with its key.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name that the server's certificate must have, instead of the host in its address.
    #[arg(long)]
    tls_server_name: Option<String>,
    /// File with a bearer token. The token is sent over TLS only.
    #[arg(long)]
    token_file: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut hint = None;
    for server in args.server.iter().cycle() {
        let server = hint.take().unwrap_or_else(|| server.clone());
        let Err(ended) = follow(&args, &server).await else { continue };
        let Ok(status) = ended.downcast::<Status>().inspect_err(|error| eprintln!("{server}: {error:#}")) else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        eprintln!("{server}: {}", status.message());
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        hint = info.and_then(|info| info.metadata.get(LEADER_ENDPOINT)).filter(|leader| !leader.is_empty()).cloned();
        let asked = details.retry_info().and_then(|info| info.retry_delay);
        tokio::time::sleep(asked.unwrap_or(Duration::from_secs(1))).await;
    }
    Ok(())
}

/// Follows one stream to its end.
async fn follow(args: &Args, server: &str) -> anyhow::Result<()> {
    let token = args.tls.token()?;
    let with_token = move |mut request: Request<()>| {
        if let Some(token) = &token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    };
    let channel = args.tls.connect(args, server).await?;
    let mut client = DecisionServiceClient::with_interceptor(channel, with_token);
    let start = stored(args)?.map_or(Start::Oldest(true), Start::After);
    let request = WatchDecisionsRequest { start: Some(start), accept_gaps: true, ..WatchDecisionsRequest::default() };
    let mut stream = client.watch_decisions(request).await?.into_inner();
    while let Some(WatchDecisionsResponse { event, position, .. }) = stream.message().await? {
        match event {
            Some(Event::Batch(batch)) => batch.events.iter().for_each(|event| handle(args, event)),
            Some(Event::Gap(gap)) => {
                let next = gap.next.unwrap_or_default();
                println!("gap {} before {}/{}", gap.reason, next.log_id, next.sequence);
            }
            Some(Event::GoingAway(going)) => {
                let after = going.reconnect_after.and_then(|after| Duration::try_from(after).ok());
                tokio::time::sleep(after.unwrap_or_default()).await;
            }
            // No event. The position may have moved nevertheless.
            Some(Event::Bookmark(_)) | None => {}
        }
        if let Some(position) = position {
            store(args, &position)?;
        }
    }
    Ok(())
}

impl Tls {
    /// The address of the leader has no scheme. The scheme of the servers on the command line is used.
    async fn connect(&self, args: &Args, server: &str) -> anyhow::Result<Channel> {
        let host = server.trim_start_matches("https://").trim_start_matches("http://");
        if !self.is_wanted(args) {
            anyhow::ensure!(self.token_file.is_none(), "--token-file needs TLS: give --tls-ca, or an https:// address");
            return Ok(Endpoint::from_shared(format!("http://{host}"))?.connect().await?);
        }
        let mut tls = ClientTlsConfig::new();
        tls = match &self.tls_ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => tls.with_enabled_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.domain_name(name);
        }
        Ok(Endpoint::from_shared(format!("https://{host}"))?.tls_config(tls)?.connect().await?)
    }

    fn is_wanted(&self, args: &Args) -> bool {
        self.tls_ca.is_some() || args.server.iter().any(|server| server.starts_with("https://"))
    }

    fn token(&self) -> anyhow::Result<Option<MetadataValue<Ascii>>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let token = format!("Bearer {}", read(file)?.trim());
        Ok(Some(token.parse().with_context(|| format!("{}: the content is not a token", file.display()))?))
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// The place for the policy: handles one event.
fn handle(args: &Args, event: &DecisionEvent) {
    let at = event.position.clone().unwrap_or_default();
    let target = event.target.clone().unwrap_or_default();
    let (phase, kind) = (event.phase().as_str_name(), event.kind());
    let name = format!("{} {}/{}", target.kind, target.namespace, target.name);
    println!("{}/{} {phase} {} {name}", at.log_id, at.sequence, kind.as_str_name());
    if kind == ItemKind::Delete && target.namespace == args.protect {
        eprintln!("policy: {name} is to be deleted in protected namespace {}", args.protect);
    }
}

fn stored(args: &Args) -> anyhow::Result<Option<Position>> {
    let text = match std::fs::read_to_string(&args.position) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("reading {}", args.position.display()))?,
    };
    let stored: Value = serde_json::from_str(&text).with_context(|| format!("{}", args.position.display()))?;
    let (log, sequence) = (stored["logId"].as_str(), stored["sequence"].as_u64());
    Ok(log.zip(sequence).map(|(log_id, sequence)| Position { log_id: log_id.to_owned(), sequence }))
}

/// Writes to another name first. A process that is killed while it writes then leaves the old position, and not half of
/// a new one.
fn store(args: &Args, position: &Position) -> anyhow::Result<()> {
    let stored = json!({ "logId": position.log_id, "sequence": position.sequence });
    let next = args.position.with_extension("next");
    std::fs::write(&next, stored.to_string()).with_context(|| format!("writing {}", next.display()))?;
    std::fs::rename(&next, &args.position).with_context(|| format!("writing {}", args.position.display()))
}
