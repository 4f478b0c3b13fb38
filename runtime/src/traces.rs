//! Traces: what was done for one cause, as spans, sent to a collector by OTLP over gRPC.
//!
//! Off unless an endpoint is given. A span is recorded once it has ended, by [`Recorder::record`], which never waits: spans go into a bounded
//! queue that one task empties, and what finds the queue full is dropped and counted. Where the endpoint is away the task tries again with
//! growing pauses, says so once for each reason, and holds no more than the queue and one batch.
//!
//! There is no ambient context and no span that is open by being in scope: the services hold what they follow as values, because a span of
//! theirs often begins in one turn of a loop and ends in another. Whether a trace is recorded follows from its id alone ([`Ratio`]), as with
//! the samplers of OpenTelemetry, so that nothing has to be kept for those that are not.

mod context;
mod counts;
mod export;
mod flags;
mod recorder;
mod span;
#[cfg(test)]
mod tests;
mod wire;

pub use context::{Context, Incoming, Ratio, SpanId, TraceId};
pub use counts::{Counts, Recording, Service};
pub use flags::{BadTraces, Flags, Settings};
pub use recorder::{Open, Recorder, start};
pub use span::{Kind, Span, Value};
