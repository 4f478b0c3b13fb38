//! The readers of foreign bytes, as functions that must not panic, hang or grow without bound. `tests/tests/fuzz.rs`
//! runs them briefly. `tests/fuzz/run.sh` runs them for a long time, and searches for inputs that reach new code. Both
//! start with the corpus.

mod calls;
mod decoders;
mod mutate;

pub use mutate::Mutator;

use std::path::{Path, PathBuf};

/// One reader of foreign bytes.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "a function shows nothing")]
pub struct Target {
    pub name: &'static str,
    /// Reads the bytes. A failure is a panic.
    pub read: fn(&[u8]),
    /// The number of inputs in a short run.
    pub short_run: usize,
}

/// All readers.
pub const TARGETS: [Target; 20] = [
    Target { name: "metadata-json", read: decoders::metadata_json, short_run: 4_000 },
    Target { name: "metadata-protobuf", read: decoders::metadata_protobuf, short_run: 4_000 },
    Target { name: "watch-frames", read: decoders::watch_frames, short_run: 2_000 },
    Target { name: "watch-lines", read: decoders::watch_lines, short_run: 2_000 },
    Target { name: "statuses", read: executor_service::fuzzing::answers, short_run: 4_000 },
    Target { name: "live-objects", read: executor_service::fuzzing::objects, short_run: 4_000 },
    Target { name: "discovery", read: graph_service::fuzzing::discovery, short_run: 4_000 },
    Target { name: "definitions", read: graph_service::fuzzing::definitions, short_run: 4_000 },
    Target { name: "filters", read: graph_service::fuzzing::filters, short_run: 1_000 },
    Target { name: "tokens", read: graph_service::fuzzing::tokens, short_run: 4_000 },
    Target { name: "log-entries", read: graph_service::fuzzing::log_entry, short_run: 4_000 },
    Target { name: "gates", read: graph_service::fuzzing::gates, short_run: 4_000 },
    Target { name: "audit-events", read: graph_service::fuzzing::audit, short_run: 4_000 },
    Target { name: "flags", read: decoders::flags, short_run: 4_000 },
    Target { name: "recordings", read: decoders::recordings, short_run: 300 },
    Target { name: "recorded-entries", read: decoders::recorded_entries, short_run: 1_000 },
    Target { name: "from-executors", read: decoders::from_executors, short_run: 4_000 },
    Target { name: "from-leaders", read: decoders::from_leaders, short_run: 4_000 },
    Target { name: "calls", read: calls::any, short_run: 300 },
    Target { name: "work-streams", read: calls::work_stream, short_run: 300 },
];

impl Target {
    /// Returns the reader with this name.
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// Returns the directory of its inputs.
    pub fn corpus(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}
