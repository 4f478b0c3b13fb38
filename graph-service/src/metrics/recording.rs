//! Metrics of the recording of inputs.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::Book;

/// Clones share the metrics.
#[derive(Clone, Debug)]
pub(crate) struct RecordingMetrics {
    pub(crate) active: Gauge,
    pub(crate) calls: Counter,
    pub(crate) bytes: Gauge,
}

impl RecordingMetrics {
    pub(crate) fn register(book: &mut Book<'_>) -> RecordingMetrics {
        RecordingMetrics {
            active: book.put(
                "ownergraph_recording_active",
                [],
                (
                    "1 while the inputs of the leader are recorded",
                    "0 without `--record`. If it falls to 0 by itself, the log says why the recording has ended.",
                ),
                Gauge::default(),
            ),
            calls: book.put(
                "ownergraph_recording_calls",
                [],
                ("Recorded calls of the leader: inputs and ticks", "docs/recordings.md describes recordings."),
                Counter::default(),
            ),
            bytes: book.put(
                "ownergraph_recording_bytes",
                [],
                ("Bytes of the files of the present recording", "At most half of `--record-max`."),
                Gauge::default(),
            ),
        }
    }
}
