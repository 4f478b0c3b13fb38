//! Traces: spans with a common cause, sent to a collector by OTLP over gRPC.
//!
//! Tracing is off unless an endpoint is set. [`Recorder::record`] takes a span when it has ended, and never waits:
//! spans go into a bounded queue, and one task exports them with OpenTelemetry's exporter. If the queue is full, the
//! span is dropped and counted.
//!
//! Spans are plain values, not `tracing` spans with an OpenTelemetry layer, for three reasons. A span often begins in
//! one turn of a loop and ends in another. Every replica derives the same trace id. Two services in one process have an
//! exporter each. Code that logs while a span is open enters [`Context::entered`], so that the line has the ids.
//! Sampling depends on the trace id only ([`Ratio`]), as in OpenTelemetry's samplers, so unsampled traces need no
//! state.

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

pub use context::{Context, Incoming, Ratio, SpanId, TraceId, span_of, trace_of};
pub use counts::{Counts, Recording, Service};
pub use flags::{Flags, Settings};
pub use recorder::{Open, Recorder, start};
pub use span::{Kind, Span, Value};
pub use variables::BadTraces;
