//! OpenTelemetry's environment variables that are read before the exporter starts. The exporter itself reads headers,
//! compression and the time limit of a batch. This module refuses values that the exporter would ignore.

use super::context::Ratio;
use http::Uri;
use std::path::PathBuf;

/// The first variable of each pair takes precedence.
const ENDPOINT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const INSECURE: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
const CERTIFICATE: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const COMPRESSION: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
const TIMEOUT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const CLIENT_KEY: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"];

/// An invalid setting. The text is one sentence that names the flag or the variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTraces(pub(super) String);

/// The environment.
pub(super) struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

/// The value of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read<T> {
    pub(super) name: &'static str,
    pub(super) value: T,
}

impl<T: std::fmt::Debug> Read<T> {
    fn bad(&self, wanted: &str) -> BadTraces {
        BadTraces(format!("{} is {:?}: {wanted}", self.name, self.value))
    }
}

fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Variables<'_> {
    pub(super) fn of_process() -> Variables<'static> {
        Variables { get: &of_process }
    }

    #[cfg(test)]
    pub(super) fn of(get: &dyn Fn(&str) -> Option<String>) -> Variables<'_> {
        Variables { get }
    }

    /// An empty variable counts as unset.
    fn one(&self, name: &'static str) -> Option<Read<String>> {
        let value = (self.get)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(Read { name, value })
    }

    fn of_pair(&self, names: [&'static str; 2]) -> Option<Read<String>> {
        names.into_iter().find_map(|name| self.one(name))
    }

    fn switch(&self, read: Option<Read<String>>) -> Result<bool, BadTraces> {
        match read {
            None => Ok(false),
            Some(read) if read.value.eq_ignore_ascii_case("true") => Ok(true),
            Some(read) if read.value.eq_ignore_ascii_case("false") => Ok(false),
            Some(read) => Err(read.bad("expected true or false")),
        }
    }

    /// Whether tracing is switched off, regardless of other settings.
    pub(super) fn switch_off(&self) -> Result<bool, BadTraces> {
        let exporter = self.one("OTEL_TRACES_EXPORTER").is_some_and(|read| read.value.eq_ignore_ascii_case("none"));
        Ok(exporter || self.switch(self.one("OTEL_SDK_DISABLED"))?)
    }

    pub(super) fn insecure(&self) -> Result<bool, BadTraces> {
        self.switch(self.of_pair(INSECURE))
    }

    /// An endpoint without a scheme uses TLS, or plaintext if `insecure` is set.
    pub(super) fn endpoint(&self, insecure: bool) -> Result<Option<Read<Uri>>, BadTraces> {
        let Some(read) = self.of_pair(ENDPOINT) else { return Ok(None) };
        let whole = match (read.value.contains("://"), insecure) {
            (true, _) => read.value.clone(),
            (false, true) => format!("http://{}", read.value),
            (false, false) => format!("https://{}", read.value),
        };
        let value = endpoint(&whole).map_err(|wanted| read.bad(&wanted))?;
        Ok(Some(Read { name: read.name, value }))
    }

    pub(super) fn ca(&self) -> Option<Read<PathBuf>> {
        self.of_pair(CERTIFICATE).map(|read| Read { name: read.name, value: PathBuf::from(read.value) })
    }

    /// Checks that the exporter supports the requested transport.
    pub(super) fn check_transport(&self) -> Result<(), BadTraces> {
        let words: [(_, &[&str], _); 4] = [
            (self.one("OTEL_TRACES_EXPORTER"), &["otlp"], "expected otlp, or none for no traces"),
            (self.of_pair(PROTOCOL), &["grpc"], "expected grpc, the only supported transport"),
            (self.of_pair(COMPRESSION), &["gzip", "none"], "expected gzip or none"),
            (self.of_pair(CLIENT_KEY), &[], "client certificates are not supported"),
        ];
        for (read, known, wanted) in words {
            if let Some(read) = read.filter(|read| !known.iter().any(|word| read.value.eq_ignore_ascii_case(word))) {
                return Err(read.bad(wanted));
            }
        }
        match self.of_pair(TIMEOUT).filter(|read| read.value.parse::<u64>().is_err()) {
            Some(read) => Err(read.bad("expected a number of milliseconds")),
            None => Ok(()),
        }
    }

    /// The sampler, with or without `parentbased_`. A trace that a caller records is always recorded.
    pub(super) fn sample(&self) -> Result<Option<Ratio>, BadTraces> {
        let Some(read) = self.one("OTEL_TRACES_SAMPLER") else { return Ok(None) };
        let sampler = read.value.to_ascii_lowercase();
        match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
            "always_on" => Ok(Some(Ratio::ALL)),
            "always_off" => Ok(Some(Ratio::NONE)),
            "traceidratio" => match self.one("OTEL_TRACES_SAMPLER_ARG") {
                None => Ok(Some(Ratio::ALL)),
                Some(argument) => argument.value.parse().map(Some).map_err(|wanted: String| argument.bad(&wanted)),
            },
            _ => {
                Err(read.bad("expected always_on, always_off or traceidratio, with or without parentbased_ before it"))
            }
        }
    }
}

pub(super) fn endpoint(text: &str) -> Result<Uri, String> {
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
