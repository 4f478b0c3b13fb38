//! The flags of traces, the same for every program. Each also reads `OWNERGRAPH_<FLAG>`.

use super::context::Ratio;
use crate::host::is_loopback;
use crate::tls::files::{File, authorities, provider};
use clap::builder::BoolishValueParser;
use http::Uri;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;

/// Whether and where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// Collector that traces are sent to by OTLP over gRPC, as http://HOST:PORT or https://HOST:PORT; without it nothing is traced.
    #[arg(long, env = "OWNERGRAPH_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub otlp_endpoint: Option<Uri>,

    /// File with the authorities that may have signed the trace collector's certificate, as PEM; without it those of this machine count.
    #[arg(long, env = "OWNERGRAPH_OTLP_CA", value_name = "FILE", requires = "otlp_endpoint")]
    pub otlp_ca: Option<PathBuf>,

    /// Allow plaintext to a trace collector that is not on a loopback address.
    #[arg(long, env = "OWNERGRAPH_OTLP_INSECURE", value_parser = BoolishValueParser::new())]
    pub otlp_insecure: bool,

    /// Part of all traces that are recorded, from 0 to 1. All replicas choose the same ones; what a caller records is recorded here too.
    #[arg(long, env = "OWNERGRAPH_TRACE_SAMPLE", value_name = "RATIO", default_value = "0.01")]
    pub trace_sample: Ratio,
}

/// Where traces are sent, and how many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(super) endpoint: Uri,
    /// `None` for the authorities of this machine.
    ca: Option<PathBuf>,
    pub(super) sample: Ratio,
}

/// A setting that cannot be used. The text is one sentence that names the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTraces(pub(super) String);

impl Flags {
    /// Checks what one flag alone cannot say, and that the file can be read that they name.
    pub fn check(&self) -> Result<(), BadTraces> {
        let Some(settings) = self.settings() else { return Ok(()) };
        let endpoint = &settings.endpoint;
        let is_https = endpoint.scheme_str() == Some("https");
        if !is_https && !self.otlp_insecure && !is_loopback(endpoint.host().unwrap_or_default()) {
            return Err(BadTraces(format!(
                "--otlp-endpoint {endpoint} is not a loopback address and the connection is plaintext: use https://, or allow it with --otlp-insecure"
            )));
        }
        if !is_https && self.otlp_ca.is_some() {
            return Err(BadTraces(format!("--otlp-ca needs an https:// address, and --otlp-endpoint is {endpoint}")));
        }
        settings.tls().map(|_usable| ())
    }

    /// `None` where nothing is traced.
    pub fn settings(&self) -> Option<Settings> {
        let endpoint = self.otlp_endpoint.clone()?;
        Some(Settings { endpoint, ca: self.otlp_ca.clone(), sample: self.trace_sample })
    }
}

impl Settings {
    /// Plaintext to this address of this machine, for tests: as the flags would have it.
    pub fn to_loopback(port: u16, sample: Ratio) -> Settings {
        let endpoint = format!("http://127.0.0.1:{port}/").parse().expect("a number makes it an address");
        Settings { endpoint, ca: None, sample }
    }

    pub(super) fn tls(&self) -> Result<ClientConfig, BadTraces> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| BadTraces(format!("TLS cannot be set up: {error}")))?;
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.ca {
            let file = File::new("--otlp-ca", path);
            let read = file.read_now().and_then(|text| authorities(&file, &text));
            roots = read.map_err(|error| BadTraces(error.to_string()))?;
        } else if self.endpoint.scheme_str() == Some("https") {
            // What cannot be read is missing, and the handshake says what is not trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn endpoint(text: &str) -> Result<Uri, String> {
    const WANTED: &str = "expected http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:4317";
    let uri: Uri = text.parse().map_err(|_| WANTED.to_owned())?;
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let whole = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if plain && scheme && whole && uri.host().is_some_and(|host| !host.is_empty()) {
        Ok(uri)
    } else {
        Err(WANTED.to_owned())
    }
}
