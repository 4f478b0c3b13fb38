//! The audit log of the API server: what it has, and how our collector gets it.

use crate::certificates::{Authority, Mounted};
use crate::chart::root;
use crate::controlplane::ControlPlane;
use crate::load::until;
use crate::process::free_port;
use crate::service::Service;
use anyhow::{Context, ensure};
use executor_service::{Channel, dial};
use http::Request;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use runtime::tls::{Caller, CallerFlags};
use std::fs;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// The page that tells users how to give the log to our collector.
const PAGE: &str = "docs/managed.md";
/// The name of our collector in the kubeconfig of the page.
const NAME: &str = "graph-service.ownergraph.svc";
/// The log has the version after each request, so that it tells exactly which request made a change.
const EXACT: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: RequestResponse
    verbs: [delete, deletecollection, patch, update]
";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The way of the log to our collector, and the audit policy.
#[derive(Clone, Debug)]
pub struct Audit {
    pub source: Source,
    pub policy: String,
}

/// The way of the log to our collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The API server writes a file.
    Log,
    /// The API server sends the events, with the kubeconfig of the page: by TLS and with a token.
    Webhook,
}

impl Audit {
    /// A file with the version after each request.
    pub fn exact() -> Audit {
        Audit { source: Source::Log, policy: EXACT.to_owned() }
    }

    /// The policy of the page.
    pub fn documented(source: Source) -> anyhow::Result<Audit> {
        Ok(Audit { source, policy: on_the_page("kind: Policy")? })
    }

    /// Writes the files of both sides into a directory.
    pub(super) fn set_up(&self, directory: &Path) -> anyhow::Result<Feed> {
        let file = |name: &str| directory.join(name).display().to_string();
        let policy = file("policy.yaml");
        fs::write(&policy, &self.policy)?;
        let mut apiserver = vec![format!("--audit-policy-file={policy}")];
        if self.source == Source::Log {
            let log = file("audit.log");
            apiserver.push(format!("--audit-log-path={log}"));
            return Ok(Feed {
                apiserver,
                ours: vec![format!("--audit-log={log}")],
                tls: None,
                caller: Caller::plaintext(),
            });
        }
        let authority = Authority::new("ownergraph")?;
        let signed = authority.sign("graph-service", &[NAME, "127.0.0.1"])?;
        let tls = Mounted::new(directory.join("tls"), &signed, &[&authority])?;
        let (address, token, config) =
            (format!("127.0.0.1:{}", free_port()?), file("audit-token"), file("webhook.yaml"));
        // The command of the page ends the token with a line break.
        fs::write(&token, format!("{}\n", Uuid::new_v4().simple()))?;
        let mut text = on_the_page("kind: Config")?;
        for (shown, real) in [
            ("10.96.0.53:7453", &address),
            ("/etc/kubernetes/ownergraph-ca.crt", &tls.file("ca.crt")),
            ("/etc/kubernetes/ownergraph-token", &token),
        ] {
            ensure!(text.contains(shown), "the kubeconfig in {PAGE} does not have {shown}");
            text = text.replace(shown, real);
        }
        fs::write(&config, text)?;
        apiserver.push(format!("--audit-webhook-config-file={config}"));
        let ours = vec![
            format!("--audit-webhook={address}"),
            format!("--audit-webhook-token-file={token}"),
            format!("--tls-cert={}", tls.file("tls.crt")),
            format!("--tls-key={}", tls.file("tls.key")),
            "--api-server-tokens".to_owned(),
        ];
        Ok(Feed { apiserver, ours, tls: Some(tls), caller: Caller::plaintext() })
    }
}

/// The block of YAML on the page with this text.
fn on_the_page(text: &str) -> anyhow::Result<String> {
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let mut blocks = page.split("```").filter_map(|block| block.strip_prefix("yaml\n"));
    let block = blocks.find(|block| block.contains(text));
    block.map(str::to_owned).with_context(|| format!("{PAGE} has no block of YAML with {text:?}"))
}

/// The flags of both sides, and the way to ours: with the webhook, all its ports speak TLS.
pub(super) struct Feed {
    pub(super) apiserver: Vec<String>,
    pub(super) ours: Vec<String>,
    tls: Option<Mounted>,
    caller: Caller,
}

impl Feed {
    /// Calls ours as the administrator of the control plane from now on.
    pub(super) async fn call_as_admin(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let token = plane.directory().join("token");
        fs::write(&token, plane.token())?;
        let (tls_ca, token_file) = (Some(tls.file("ca.crt").into()), Some(token));
        let flags = CallerFlags { tls_ca, token_file, ..CallerFlags::default() };
        self.caller = Caller::open(&flags, true, ("--tls-server-name", None)).await?;
        Ok(())
    }

    /// Waits until ours is ready.
    pub(super) async fn ready(&self, service: &mut Service) -> anyhow::Result<()> {
        let Some(tls) = &self.tls else { return service.ready().await };
        let admin = tls.connect(service.admin(), false).await?.client;
        let ask = || async { Ok(admin.request_text(Request::get("/readyz").body(Vec::new())?).await.is_ok()) };
        let ready = until("our collector is ready", READY_WITHIN, ask, |ready| *ready).await;
        ready.map(drop).with_context(|| service.process.log_tail())
    }

    /// The decisions of ours at this address.
    pub(super) async fn decisions(&self, grpc: &str) -> anyhow::Result<DecisionServiceClient<Channel>> {
        let channel = dial(&self.caller, grpc, None).await.map_err(anyhow::Error::msg);
        Ok(DecisionServiceClient::new(channel.context("our collector's gRPC")?))
    }
}
