//! The flags of traces, the same for every program. Each also reads `OWNERGRAPH_<FLAG>`, and, if that is not set,
//! OpenTelemetry's own variable.

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

/// Number of retries. It is high enough that the time limit of a batch decides (`OTEL_EXPORTER_OTLP_TIMEOUT`, default
/// 10 s), so that a restart of the collector loses no spans.
const RETRIES_MAX: usize = 100;
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The flags of traces.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// Trace collector for OTLP over gRPC, as http://HOST:PORT or https://HOST:PORT. Default: no traces.
    #[arg(long, env = "OWNERGRAPH_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub otlp_endpoint: Option<Uri>,

    /// PEM file with the certificate authorities of the trace collector. Default: those of this machine.
    #[arg(long, env = "OWNERGRAPH_OTLP_CA", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,

    /// Allow plaintext to a trace collector that is not on a loopback address.
    #[arg(long, env = "OWNERGRAPH_OTLP_INSECURE", value_parser = BoolishValueParser::new())]
    pub otlp_insecure: bool,

    /// Ratio of recorded traces, from 0 to 1; default 0.01. All replicas choose the same traces. Traces that a caller
    /// records are always recorded.
    #[arg(long, env = "OWNERGRAPH_TRACE_SAMPLE", value_name = "RATIO")]
    pub trace_sample: Option<Ratio>,
}

/// The checked settings of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(super) endpoint: Uri,
    /// `None`: the authorities of this machine.
    ca: Option<PathBuf>,
    pub(super) sample: Ratio,
}

impl Flags {
    /// Checks the combination of flags, OpenTelemetry's variables, and that the named file is readable.
    pub fn check(&self) -> Result<(), BadTraces> {
        self.resolve(&Variables::of_process()).map(|_usable| ())
    }

    /// `None`: tracing is off.
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
    /// Settings for plaintext to this port on loopback, for tests.
    pub fn to_loopback(port: u16, sample: Ratio) -> Settings {
        let endpoint = format!("http://127.0.0.1:{port}/").parse().expect("a port makes the text an address");
        Settings { endpoint, ca: None, sample }
    }

    /// Creates the exporter. Call it on the runtime that the exporter runs on.
    pub(super) fn exporter(&self) -> Result<SpanExporter, BadTraces> {
        let retries = RetryPolicy::recommended().with_max_retries(RETRIES_MAX).with_max_delay(RETRY_MAX);
        let builder = SpanExporter::builder().with_tonic().with_endpoint(self.endpoint.to_string());
        let builder = builder.with_retry_policy(retries);
        let builder = match self.tls()? {
            Some(tls) => builder.with_tls_config(tls),
            None => builder,
        };
        builder.build().map_err(|error| BadTraces(format!("cannot create the exporter of spans: {error}")))
    }

    /// `None`: plaintext.
    fn tls(&self) -> Result<Option<ClientTlsConfig>, BadTraces> {
        if self.endpoint.scheme_str() != Some("https") {
            return Ok(None);
        }
        let Some(path) = &self.ca else { return Ok(Some(ClientTlsConfig::new().with_native_roots())) };
        let file = File::new("--otlp-ca", path);
        let text = file.read_now().map_err(|error| BadTraces(error.to_string()))?;
        // This check comes first, because tonic would report an invalid file only at the first handshake.
        authorities(&file, &text).map_err(|error| BadTraces(error.to_string()))?;
        Ok(Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text))))
    }
}
