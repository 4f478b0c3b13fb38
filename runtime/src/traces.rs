//! Traces: what was done for one cause, as spans, sent to a collector by OTLP over gRPC.
//!
//! Off unless an endpoint is given. A span is recorded once it has ended, by [`Recorder::record`], which never waits: spans go into a bounded
//! queue that one task empties with OpenTelemetry's exporter, and what finds the queue full is dropped and counted.
//!
//! Spans are values, and not those of `tracing` that an OpenTelemetry layer would export: one of theirs often begins in one turn of a loop and
//! ends in another, its trace has an id that every replica finds by itself, and two services in one process have an exporter each. What is
//! logged while a span is open is put into [`Context::entered`], so that the line has its ids. Whether a trace is recorded follows from its id alone ([`Ratio`]), as with
//! the samplers of OpenTelemetry, so that nothing has to be kept for those that are not.

mod context;
mod counts;
mod data;
mod export;
mod flags;
mod recorder;
mod span;
#[cfg(test)]
mod tests;
mod variables;

pub use context::{Context, Incoming, Ratio, SpanId, TraceId};
pub use counts::{Counts, Recording, Service};
pub use flags::{Flags, Settings};
pub use recorder::{Open, Recorder, start};
pub use span::{Kind, Span, Value};
pub use variables::BadTraces;
