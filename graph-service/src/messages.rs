//! Messages between the tasks of the service: orders and messages for the driver, its requests, and the leadership.

use engine::guard::Question;
use engine::leader::{GuardRead, Input, Probe, StreamId};
use engine::object::{GroupResource, Name};
use engine::scope::Scope;
use engine::selectors::Table;
use engine::work::{Refusal, Term, ToExecutor, ToLeader};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Maximum number of waiting orders of election and shutdown.
pub(crate) const CONTROL_QUEUE_MAX: usize = 64;
/// Maximum number of waiting facts from the API server. A full queue slows lists and watches down.
pub(crate) const FACT_QUEUE_MAX: usize = 8192;
/// Maximum number of messages that wait for one executor. A grant carries up to a hundred leases, so an executor with
/// so many waiting messages has stopped reading.
pub(crate) const OUTBOX_MAX: usize = 1024;

/// An order that the driver handles before all other inputs.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the queue is short, and nearly every order is an input")]
pub(crate) enum Control {
    Input(Input),
    /// Answered when all earlier orders are handled, and their effects are sent.
    Mark(oneshot::Sender<()>),
    /// Stops grants, asks all executors to leave, and is then answered. The driver ends when all streams have ended.
    Stop(oneshot::Sender<()>),
}

/// An event on an executor's stream.
#[derive(Debug)]
pub(crate) enum SessionInput {
    /// The first event of a stream. The engine gets no event of the stream before its first message.
    Opened {
        stream: StreamId,
        outbox: Outbox,
    },
    /// The permit bounds the waiting messages of one stream. It is released when the message is handled.
    Message {
        stream: StreamId,
        message: ToLeader,
        permit: OwnedSemaphorePermit,
    },
    Closed {
        stream: StreamId,
    },
}

/// The queue of messages for one executor. Dropping it ends the stream after all of them are sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) sender: mpsc::Sender<ToExecutor>,
    pub(crate) ending: Arc<OnceLock<Ending>>,
    /// Never used. Its drop notifies the reader of the stream that further messages have no effect.
    pub(crate) _open: oneshot::Sender<()>,
}

/// Why a stream ended, if not regularly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Refused(Refusal),
    /// The stream exceeds a limit.
    LimitExceeded {
        what: &'static str,
        max: usize,
    },
    /// The peer violated the protocol. The text says how.
    Violation(String),
    /// The executor's name differs from the pod of its token.
    Mismatch {
        executor: String,
        pod: String,
    },
}

/// A request of the engine to the API server or to a policy engine.
#[derive(Debug)]
pub(crate) enum Ask {
    Probe(Probe),
    Relist {
        collection: GroupResource,
        why: String,
    },
    Selectors(Arc<Table>),
    ReadGuards(GuardRead),
    /// The answer is an [`Input::GateAnswered`].
    Question(Box<Question>),
    /// The answer to a question is not awaited any more.
    Cancel {
        gate: Name,
        number: u64,
    },
    CreatePause(Box<WantedPause>),
}

/// Maximum number of pauses that wait for their creation.
pub(crate) const WANTED_PAUSES_MAX: usize = 1000;

/// A pause that an exhausted budget or a breaker wants.
#[derive(Debug)]
pub(crate) struct WantedPause {
    /// The author of the pause.
    pub(crate) by: String,
    pub(crate) scope: Scope,
    pub(crate) reason: String,
    pub(crate) lifetime: Duration,
}

/// The leader, as far as this replica knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// This replica leads, under `term`.
    pub(crate) leading: bool,
    /// The newest term that is known.
    pub(crate) term: Option<Term>,
    /// The holder of the Lease.
    pub(crate) holder: Option<String>,
    /// The address of the holder; empty if unknown.
    pub(crate) endpoint: String,
    /// Why the Lease cannot be read or written.
    pub(crate) problem: Option<String>,
}
