//! The TLS flags of all programs. Each also reads `OWNERGRAPH_<FLAG>`.

use std::path::PathBuf;

use super::files::{BadTls, File};

/// The flags of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ServerFlags {
    /// File with the TLS certificate of the server and its chain, as PEM. Reloaded when it changes.
    #[arg(long, env = "OWNERGRAPH_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// File with the key of that certificate, as PEM.
    #[arg(long, env = "OWNERGRAPH_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// File with the authorities of client certificates, as PEM. The common name of a client certificate is the user,
    /// its organizations are the groups.
    #[arg(long, env = "OWNERGRAPH_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
}

/// The flags of a caller of the graph service.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct CallerFlags {
    /// File with the authorities of the graph service's certificate, as PEM. Enables TLS, as an https:// address does.
    /// Default with an https:// address: the authorities of this machine.
    #[arg(long, env = "OWNERGRAPH_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// File with the client certificate for the graph service, as PEM. Reloaded when it changes.
    #[arg(long, env = "OWNERGRAPH_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// File with the key of that certificate, as PEM.
    #[arg(long, env = "OWNERGRAPH_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// File with a bearer token for the graph service. Reloaded when it changes. The token is sent over TLS or loopback
    /// only.
    #[arg(long, env = "OWNERGRAPH_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl ServerFlags {
    /// Whether the flags enable TLS.
    pub fn is_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Checks combinations of flags.
    pub fn check(&self) -> Result<(), BadTls> {
        both(self.tls_cert.is_some(), self.tls_key.is_some())?;
        if self.client_ca.is_some() && !self.is_tls() {
            let why = "--client-ca needs --tls-cert and --tls-key: client certificates need TLS";
            return Err(BadTls(why.to_owned()));
        }
        Ok(())
    }

    pub(super) fn pair(&self) -> Option<(File, File)> {
        pair(self.tls_cert.as_ref(), self.tls_key.as_ref())
    }
}

impl CallerFlags {
    /// Checks combinations of flags. `addresses` are the addresses to call from `flag`; `server_name` is the value of
    /// the flag `name_flag`.
    pub fn check(
        &self,
        flag: &str,
        addresses: &[String],
        (name_flag, server_name): (&str, Option<&str>),
    ) -> Result<(), BadTls> {
        both(self.tls_cert.is_some(), self.tls_key.is_some())?;
        let is_tls = self.is_tls(addresses);
        if let (true, Some(plain)) = (is_tls, addresses.iter().find(|address| address.starts_with("http://"))) {
            return Err(BadTls(format!(
                "{flag} {plain} is plaintext, and other flags need TLS: write https://, or only HOST:PORT"
            )));
        }
        let wants_tls = [("--tls-cert", self.tls_cert.is_some()), (name_flag, server_name.is_some())];
        match wants_tls.into_iter().find(|(_, given)| *given && !is_tls) {
            Some((given, _)) => {
                Err(BadTls(format!("{given} needs TLS: set --tls-ca, or an https:// address in {flag}")))
            }
            None => Ok(()),
        }
    }

    /// Whether calls to these addresses use TLS.
    pub fn is_tls(&self, addresses: &[String]) -> bool {
        self.tls_ca.is_some() || addresses.iter().any(|address| address.starts_with("https://"))
    }

    pub(super) fn pair(&self) -> Option<(File, File)> {
        pair(self.tls_cert.as_ref(), self.tls_key.as_ref())
    }
}

fn both(certificate: bool, key: bool) -> Result<(), BadTls> {
    match (certificate, key) {
        (true, false) => Err(BadTls("--tls-cert needs --tls-key, the file with the key of the certificate".to_owned())),
        (false, true) => Err(BadTls("--tls-key needs --tls-cert, the file with the certificate of the key".to_owned())),
        (true, true) | (false, false) => Ok(()),
    }
}

fn pair(certificate: Option<&PathBuf>, key: Option<&PathBuf>) -> Option<(File, File)> {
    Some((File::new("--tls-cert", certificate?), File::new("--tls-key", key?)))
}
