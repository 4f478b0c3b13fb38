//! Trace context: ids, the `traceparent` header, and sampling.

pub use opentelemetry::trace::{SpanId, TraceId};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// A possible parent span, in a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
}

/// The content of a caller's `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub context: Context,
    /// The caller records the trace.
    pub sampled: bool,
}

/// The id of a trace. Equal input gives an equal id in every process of this build. The ids are evenly spread, so that
/// a [`Ratio`] of inputs is the same ratio of traces.
pub fn trace_of(what: &impl Hash) -> TraceId {
    TraceId::from((u128::from(half(1, what)) << 64 | u128::from(half(2, what))).max(1))
}

/// The id of a span. Equal input gives an equal id in every process of this build.
pub fn span_of(what: &impl Hash) -> SpanId {
    SpanId::from(half(1, what).max(1))
}

fn half(part: u8, what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    what.hash(&mut hasher);
    hasher.finish()
}

impl Context {
    /// A span of the log that adds these ids to its lines.
    pub fn entered(&self) -> tracing::Span {
        crate::telemetry::traced(&self.trace, &self.span)
    }

    /// The value of a `traceparent` header, flagged as sampled.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

impl Incoming {
    /// Reads a `traceparent` of any version. `None`: the text is invalid.
    pub fn parse(text: &str) -> Option<Incoming> {
        let mut parts = text.split('-');
        let mut part = |digits| unhex(parts.next()?, digits);
        let [version, trace, span, flags] = [part(2)?, part(32)?, part(16)?, part(2)?];
        // Version 255 is forbidden, and version 0 has nothing after the flags.
        if version == 0xff || (version == 0 && parts.next().is_some()) || trace == 0 || span == 0 {
            return None;
        }
        let context = Context { trace: TraceId::from(trace), span: SpanId::from(span as u64) };
        Some(Incoming { context, sampled: flags & 1 == 1 })
    }
}

/// Reads lower case hexadecimal of exactly this length, as in the header.
fn unhex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// The ratio of recorded traces, from none to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(u64);

impl Ratio {
    /// The number of values of 63 bits of an id.
    const WHOLE: u64 = 1 << 63;
    /// Every trace.
    pub const ALL: Ratio = Ratio(Ratio::WHOLE);
    /// No trace.
    pub const NONE: Ratio = Ratio(0);

    /// Whether this trace is recorded. The last 63 bits of its id decide, as in OpenTelemetry's samplers.
    pub fn covers(self, trace: &TraceId) -> bool {
        (u128::from_be_bytes(trace.to_bytes()) as u64) >> 1 < self.0
    }
}

/// One in a hundred.
impl Default for Ratio {
    fn default() -> Ratio {
        Ratio(Ratio::WHOLE / 100)
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Ratio, String> {
        let ratio: f64 = text.parse().map_err(|_| "expected a number from 0 to 1, such as 0.01".to_owned())?;
        if !(0.0..=1.0).contains(&ratio) {
            return Err("expected a number from 0 to 1, such as 0.01".to_owned());
        }
        // The conversion is exact at both ends. In between, the rounding error does not matter.
        Ok(Ratio((ratio * Ratio::WHOLE as f64) as u64))
    }
}
