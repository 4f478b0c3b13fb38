//! What the tasks of the service send each other: orders and messages for the driver, what it asks for, and who leads.

use engine::leader::{Input, PauseRead, Probe, StreamId};
use engine::object::GroupResource;
use engine::work::{Refusal, Term, ToExecutor, ToLeader};
use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Waiting orders of election and shutdown.
pub(crate) const CONTROL_QUEUE_MAX: usize = 64;
/// Waiting facts from the API server; a full queue slows the lists and watches down.
pub(crate) const FACT_QUEUE_MAX: usize = 8192;
/// Messages waiting for one executor. A grant carries up to a hundred leases, so a reader this far behind does not read.
pub(crate) const OUTBOX_MAX: usize = 1024;

/// An order that goes before everything else.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the queue is short, and nearly every order is an input")]
pub(crate) enum Control {
    Input(Input),
    /// Answered when everything ordered before has been handled, and its effects have gone out.
    Mark(oneshot::Sender<()>),
    /// No grants from now on, every executor is sent away. Answered once that is so; the driver ends when all streams have.
    Stop(oneshot::Sender<()>),
}

/// What happens on an executor's stream.
#[derive(Debug)]
pub(crate) enum SessionInput {
    /// Comes first; nothing reaches the engine before the first message.
    Opened {
        stream: StreamId,
        outbox: Outbox,
    },
    /// The permit bounds how many messages of one stream wait; it is given back when the message has been handled.
    Message {
        stream: StreamId,
        message: ToLeader,
        permit: OwnedSemaphorePermit,
    },
    Closed {
        stream: StreamId,
    },
}

/// Where messages to one executor wait. Dropping it ends the stream, after everything in it has gone out.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) sender: mpsc::Sender<ToExecutor>,
    pub(crate) ending: Arc<OnceLock<Ending>>,
    /// Never used. Its end tells the reader of the stream that nothing it reads is of any use any more.
    pub(crate) _open: oneshot::Sender<()>,
}

/// Why a stream ended, where it did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Refused(Refusal),
    /// More of something than is kept for one stream.
    LimitExceeded {
        what: &'static str,
        max: usize,
    },
    /// The peer broke the protocol; the text says how.
    Violation(String),
    /// The executor goes by another name than that of the pod its token is bound to.
    Mismatch {
        executor: String,
        pod: String,
    },
}

/// What the engine asks of the API server.
#[derive(Debug)]
pub(crate) enum Ask {
    Probe(Probe),
    Relist { collection: GroupResource, why: String },
    ReadPauses(PauseRead),
}

/// Who leads, as far as this replica knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// This replica leads, under `term`.
    pub(crate) leading: bool,
    /// The newest term that is known.
    pub(crate) term: Option<Term>,
    /// The identity that holds the Lease, where one does.
    pub(crate) holder: Option<String>,
    /// Where the holder is reached, where it says so.
    pub(crate) endpoint: String,
    /// Why the Lease cannot be read or written, while it cannot.
    pub(crate) problem: Option<String>,
}
