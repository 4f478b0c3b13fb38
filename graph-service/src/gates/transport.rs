//! How a gate reaches its policy engine.

use super::cel::Cel;
use super::webhook::Webhook;
use crate::metrics::gates::TRANSPORTS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Maximum length of `spec.webhook.caBundle`.
const BUNDLE_MAX_BYTES: usize = 1024 * 1024;

/// See the module documentation. Equal transports reach the same engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Transport {
    /// An expression, evaluated in this process.
    Cel(Cel),
    /// HTTPS requests.
    Webhook(Box<Webhook>),
    /// The engine connects by `GateService.StreamVerdicts`.
    Stream,
}

impl Transport {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Transport::Cel(_) => "cel",
            Transport::Webhook(_) => "webhook",
            Transport::Stream => "stream",
        }
    }
}

/// Reads the spec of a Gate: one of `cel`, `webhook` and `stream`. An error names the field.
pub(crate) fn read(spec: &Value) -> Result<Transport, String> {
    let given: Vec<&str> = TRANSPORTS.into_iter().filter(|word| spec.get(word).is_some()).collect();
    match given.as_slice() {
        ["cel"] => Cel::read(text(spec, "cel", "expression")?).map(Transport::Cel),
        ["webhook"] => {
            let url = text(spec, "webhook", "url")?;
            let bundle = match spec["webhook"].get("caBundle") {
                Some(_) => text(spec, "webhook", "caBundle")?,
                None => "",
            };
            Webhook::open(url, roots(bundle)?).map(|webhook| Transport::Webhook(Box::new(webhook)))
        }
        ["stream"] => Ok(Transport::Stream),
        [] => Err("spec has none of cel, webhook and stream: set one of them".to_owned()),
        more => Err(format!("spec has {}: keep one of them", more.join(" and "))),
    }
}

fn text<'a>(spec: &'a Value, part: &str, field: &str) -> Result<&'a str, String> {
    spec[part][field].as_str().ok_or_else(|| format!("spec.{part}.{field} is not a text"))
}

/// The authorities in PEM. `None`: those of this machine.
fn roots(bundle: &str) -> Result<Option<Vec<u8>>, String> {
    if bundle.is_empty() {
        return Ok(None);
    }
    if bundle.len() > BUNDLE_MAX_BYTES {
        return Err(format!("spec.webhook.caBundle has {} bytes; at most {BUNDLE_MAX_BYTES}", bundle.len()));
    }
    STANDARD.decode(bundle).map(Some).map_err(|error| format!("spec.webhook.caBundle is not base64: {error}"))
}
