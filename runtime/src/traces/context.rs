//! Trace context: ids, the `traceparent` header, and sampling.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// Names a trace. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// Names a span within its trace. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

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

impl TraceId {
    /// Equal input gives an equal id in every process of this build. The ids are evenly spread, so that a [`Ratio`] of
    /// inputs is the same ratio of traces.
    pub fn of(what: &impl Hash) -> TraceId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&half(1, what));
        bytes[8..].copy_from_slice(&half(2, what));
        bytes[0] |= u8::from(bytes == [0; 16]);
        TraceId(bytes)
    }

    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// Equal input gives an equal id in every process of this build.
    pub fn of(what: &impl Hash) -> SpanId {
        SpanId::of_number(u64::from_be_bytes(half(1, what)))
    }

    pub(super) fn of_number(number: u64) -> SpanId {
        SpanId(number.max(1).to_be_bytes())
    }

    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

fn half(part: u8, what: &impl Hash) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    what.hash(&mut hasher);
    hasher.finish().to_be_bytes()
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
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let version: [u8; 1] = unhex(version)?;
        // Version 255 is forbidden, and version 0 has nothing after the flags.
        if version == [0xff] || (version == [0] && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (TraceId(unhex(trace)?), SpanId(unhex(span)?));
        if trace.0 == [0; 16] || span.0 == [0; 8] {
            return None;
        }
        let [flags] = unhex(flags)?;
        Some(Incoming { context: Context { trace, span }, sampled: flags & 1 == 1 })
    }
}

/// Reads lower case hexadecimal of exactly this length, as in the header.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
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
        let [.., a, b, c, d, e, f, g, h] = trace.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.0
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
