//! A recorded span.

use super::context::{Context, SpanId};
pub use opentelemetry::trace::SpanKind as Kind;
use std::borrow::Cow;
use tokio::time::Instant;

/// An ended operation with its start and end.
#[derive(Clone, Debug)]
pub struct Span {
    pub context: Context,
    /// `None`: the root of its trace.
    pub parent: Option<SpanId>,
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub start: Instant,
    pub end: Instant,
    /// The names are a fixed set. If OpenTelemetry defines a name, the set has that name.
    pub attributes: Vec<(&'static str, Value)>,
    /// The reason of a failure.
    pub failure: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(Cow<'static, str>),
    Number(i64),
    Flag(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Cow::Owned(text))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Value {
        Value::Number(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
