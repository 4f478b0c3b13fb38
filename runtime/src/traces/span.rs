//! One span, as it is recorded.

use super::context::{Context, SpanId};
use std::borrow::Cow;
use tokio::time::Instant;

/// Something that took its time, ended.
#[derive(Clone, Debug)]
pub struct Span {
    pub context: Context,
    /// `None` for the first of its trace.
    pub parent: Option<SpanId>,
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub start: Instant,
    pub end: Instant,
    /// Their names are few and fixed; OpenTelemetry's where it has one.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, where it did.
    pub failure: Option<String>,
}

/// On which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of none.
    Internal,
    Server,
    Client,
    /// Hands work over, and does not wait for it.
    Producer,
    /// Does what was handed over.
    Consumer,
}

/// Value of an attribute.
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
