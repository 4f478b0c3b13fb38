//! The flags of traces, the same for every program. Each also reads `OWNERGRAPH_<FLAG>`, and where that is not set either, OpenTelemetry's own
//! variable for it counts.

use super::context::Ratio;
use super::variables::{BadTraces, Read, Variables, endpoint};
use crate::host::is_loopback;
use crate::tls::files::{File, authorities};
use clap::builder::BoolishValueParser;
use http::Uri;
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig};

/// Until the time for a batch is over, 10 s where `OTEL_EXPORTER_OTLP_TIMEOUT` says nothing else: a collector that starts anew costs no spans.
const RETRIES_MAX: usize = 100;
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Whether and where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// Collector that traces are sent to by OTLP over gRPC, as http://HOST:PORT or https://HOST:PORT; without it nothing is traced.
    #[arg(long, env = "OWNERGRAPH_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub otlp_endpoint: Option<Uri>,

    /// File with the authorities that may have signed the trace collector's certificate, as PEM; without it those of this machine count.
    #[arg(long, env = "OWNERGRAPH_OTLP_CA", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,

    /// Allow plaintext to a trace collector that is not on a loopback address.
    #[arg(long, env = "OWNERGRAPH_OTLP_INSECURE", value_parser = BoolishValueParser::new())]
    pub otlp_insecure: bool,

    /// Part of all traces that are recorded, from 0 to 1; 0.01 if not given. All replicas choose the same ones; what a caller records is
    /// recorded here too.
    #[arg(long, env = "OWNERGRAPH_TRACE_SAMPLE", value_name = "RATIO")]
    pub trace_sample: Option<Ratio>,
}

/// Where traces are sent, and how many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(super) endpoint: Uri,
    /// `None` for the authorities of this machine.
    ca: Option<PathBuf>,
    pub(super) sample: Ratio,
}

impl Flags {
    /// Checks what one flag alone cannot say, OpenTelemetry's variables, and that the file can be read that they name.
    pub fn check(&self) -> Result<(), BadTraces> {
        self.resolve(&Variables::of_process()).map(|_usable| ())
    }

    /// `None` where nothing is traced.
    pub fn settings(&self) -> Option<Settings> {
        self.resolve(&Variables::of_process()).ok().flatten()
    }

    pub(super) fn resolve(&self, variables: &Variables<'_>) -> Result<Option<Settings>, BadTraces> {
        if variables.switch_off()? {
            return Ok(None);
        }
        let insecure = self.otlp_insecure || variables.insecure()?;
        let (name, endpoint) = match (&self.otlp_endpoint, variables.endpoint(insecure)?) {
            (Some(given), _) => ("--otlp-endpoint", given.clone()),
            (None, Some(Read { name, value })) => (name, value),
            (None, None) if self.otlp_ca.is_some() => {
                return Err(BadTraces("--otlp-ca needs --otlp-endpoint".to_owned()));
            }
            (None, None) => return Ok(None),
        };
        variables.check_transport()?;
        let (ca_name, ca) = match (&self.otlp_ca, variables.ca()) {
            (Some(given), _) => ("--otlp-ca", Some(given.clone())),
            (None, Some(Read { name, value })) => (name, Some(value)),
            (None, None) => ("", None),
        };
        let is_https = endpoint.scheme_str() == Some("https");
        if !is_https && !insecure && !is_loopback(endpoint.host().unwrap_or_default()) {
            return Err(BadTraces(format!(
                "{name} {endpoint} is not a loopback address and the connection is plaintext: use https://, or allow it with --otlp-insecure or OTEL_EXPORTER_OTLP_INSECURE=true"
            )));
        }
        if !is_https && ca.is_some() {
            return Err(BadTraces(format!("{ca_name} needs an https:// address, and {name} is {endpoint}")));
        }
        let sample = match self.trace_sample {
            Some(given) => given,
            None => variables.sample()?.unwrap_or_default(),
        };
        let settings = Settings { endpoint, ca, sample };
        settings.tls()?;
        Ok(Some(settings))
    }
}

impl Settings {
    /// Plaintext to this address of this machine, for tests: as the flags would have it.
    pub fn to_loopback(port: u16, sample: Ratio) -> Settings {
        let endpoint = format!("http://127.0.0.1:{port}/").parse().expect("a number makes it an address");
        Settings { endpoint, ca: None, sample }
    }

    /// Has to be called on the runtime that it runs on.
    pub(super) fn exporter(&self) -> Result<SpanExporter, BadTraces> {
        let retries = RetryPolicy::recommended().with_max_retries(RETRIES_MAX).with_max_delay(RETRY_MAX);
        let builder = SpanExporter::builder().with_tonic().with_endpoint(self.endpoint.to_string());
        let builder = builder.with_retry_policy(retries);
        let builder = match self.tls()? {
            Some(tls) => builder.with_tls_config(tls),
            None => builder,
        };
        builder.build().map_err(|error| BadTraces(format!("traces cannot be sent: {error}")))
    }

    /// `None` for plaintext.
    fn tls(&self) -> Result<Option<ClientTlsConfig>, BadTraces> {
        if self.endpoint.scheme_str() != Some("https") {
            return Ok(None);
        }
        let Some(path) = &self.ca else { return Ok(Some(ClientTlsConfig::new().with_native_roots())) };
        let file = File::new("--otlp-ca", path);
        let text = file.read_now().map_err(|error| BadTraces(error.to_string()))?;
        // tonic would find fault only with the first handshake.
        authorities(&file, &text).map_err(|error| BadTraces(error.to_string()))?;
        Ok(Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text))))
    }
}
