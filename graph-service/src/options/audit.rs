//! The flags of the audit log of the API server.

use super::Mode;
use crate::audit::{AuditSources, AuditWebhook};
use runtime::listen::{self, ListenError};
use runtime::tls::{BadTls, TokenFile};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The sources of audit events.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Audit log")]
pub struct Audit {
    /// Audit log of the API server, as the file of its --audit-log-path. Its new events name the users of requests.
    /// Only with --mode observe.
    #[arg(long, env = "OWNERGRAPH_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,

    /// Address that receives the events of the API server's audit webhook, such as 127.0.0.1:7453. Serves TLS with
    /// --tls-cert. An address that is not loopback needs TLS and a token. Only with --mode observe.
    #[arg(long, env = "OWNERGRAPH_AUDIT_WEBHOOK", value_name = "ADDR")]
    pub audit_webhook: Option<SocketAddr>,

    /// File with the bearer token that senders to --audit-webhook must show. Reloaded when it changes. Needs TLS,
    /// because the API server sends no token without TLS.
    #[arg(long, env = "OWNERGRAPH_AUDIT_WEBHOOK_TOKEN_FILE", value_name = "FILE", requires = "audit_webhook")]
    pub audit_webhook_token_file: Option<PathBuf>,
}

impl Audit {
    /// Checks combinations of flags. The error is one sentence that names the flags.
    pub fn check(&self, mode: Mode, is_tls: bool) -> Result<(), String> {
        let flag = match (&self.audit_log, self.audit_webhook) {
            (Some(_), _) => "--audit-log",
            (None, Some(_)) => "--audit-webhook",
            (None, None) => return Ok(()),
        };
        if mode != Mode::Observe {
            return Err(format!(
                "{flag} needs --mode observe: only the comparison with another collector uses audit events"
            ));
        }
        let has_token = self.audit_webhook_token_file.is_some();
        if let Some(address) = self.audit_webhook.filter(|address| !address.ip().is_loopback())
            && !(is_tls && has_token)
        {
            return Err(format!(
                "--audit-webhook {address} is not a loopback address, so any sender could invent events: use a loopback address, or set --tls-cert, --tls-key and --audit-webhook-token-file"
            ));
        }
        if has_token && !is_tls {
            return Err(
                "--audit-webhook-token-file needs --tls-cert and --tls-key: the API server sends no token without TLS"
                    .to_owned(),
            );
        }
        Ok(())
    }
    /// Reads the token, and listens on the address of the receiver.
    pub async fn open(&self) -> Result<AuditSources, NotOpened> {
        let mut sources = AuditSources { log: self.audit_log.clone(), webhook: None };
        if let Some(address) = self.audit_webhook {
            let token = match &self.audit_webhook_token_file {
                Some(path) => Some(TokenFile::open("--audit-webhook-token-file", path).await?),
                None => None,
            };
            let listener = listen::bind("--audit-webhook", &address.to_string()).await?;
            sources.webhook = Some(AuditWebhook { listener, token });
        }
        Ok(sources)
    }
}

/// Why the sources of audit events cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// A retry does not help.
    #[error(transparent)]
    Token(#[from] BadTls),
    #[error(transparent)]
    Listen(#[from] ListenError),
}
