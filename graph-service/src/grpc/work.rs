//! `StreamWork`: one stream for each executor, between the gRPC connection and the queues of the driver.
//!
//! Reading and writing are separate. The reader parses messages and queues them without waiting for the driver. Answers
//! of the driver wait in a bounded outbox until the response sends them. An overflow of either queue ends only this
//! stream.

use super::access::Holder;
use super::connection::{Cut, Link};
use super::{Shared, renewal_age, status};
use crate::messages::{Ending, OUTBOX_MAX, Outbox, SessionInput};
use engine::leader::StreamId;
use engine::work::{GoAwayCause, Hello, Origin, Refusal, ToExecutor, ToLeader};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use proto::batch;
use proto::convert::received_from_executor;
use proto::work::v1beta1::work_service_server::WorkService;
use proto::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tonic::{Extensions, Request, Response, Status, Streaming};

/// Maximum number of open streams.
pub(super) const STREAMS_MAX: usize = 512;
/// Maximum number of messages of one executor that wait for the driver.
pub(super) const MESSAGES_WAITING_MAX: usize = 256;
/// Approximate age at which a stream is renewed.
pub(super) const STREAM_AGE: Duration = Duration::from_secs(60 * 60);
/// Time from the announcement of a renewal to the end of the stream. Reports still count in between.
const CLOSE_AFTER: Duration = Duration::from_secs(5);
/// Maximum time from the call to its first message.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time that a peer may take to read the end of its stream.
const UNREAD_FOR: Duration = Duration::from_secs(30);
/// Maximum time that a call waits for the place of a stream that has sent nothing yet.
const PLACE_WITHIN: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Work {
    shared: Arc<Shared>,
    readers: mpsc::Sender<Reading>,
    streams: Arc<Semaphore>,
    silent: Arc<Silent>,
    next_stream: AtomicU64,
}

/// Streams without a first message. If there are too many streams, the oldest of these is ended, because an executor
/// sends its hello at once.
#[derive(Debug, Default)]
struct Silent(Mutex<BTreeMap<StreamId, Shutdown>>);

impl Silent {
    fn enter(&self, stream: StreamId) -> Shutdown {
        let gone = Shutdown::new();
        self.streams().insert(stream, gone.clone());
        gone
    }

    fn leave(&self, stream: StreamId) {
        self.streams().remove(&stream);
    }

    /// Ends the oldest silent stream. Returns false if there is none.
    fn send_oldest_away(&self) -> bool {
        self.streams().pop_first().map(|(_, gone)| gone.request()).is_some()
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<StreamId, Shutdown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Reading = (StreamId, BoxFuture<'static, ()>);

/// Runs the readers of all streams.
#[derive(Debug)]
pub(super) struct Readers {
    started: mpsc::Receiver<Reading>,
    running: Jobs<StreamId, ()>,
    sessions: mpsc::Sender<SessionInput>,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>) -> (Readers, Work) {
        let (readers, started) = mpsc::channel(STREAMS_MAX);
        let sessions = shared.sessions.clone();
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        let silent = Arc::new(Silent::default());
        let work = Work { shared, readers, streams, silent, next_stream: AtomicU64::new(1) };
        (Readers { started, running: Jobs::new(STREAMS_MAX), sessions }, work)
    }

    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let streams = Arc::clone(&self.streams);
        if let Ok(place) = Arc::clone(&streams).try_acquire_owned() {
            return Some(place);
        }
        if !self.silent.send_oldest_away() {
            return None;
        }
        timeout(PLACE_WITHIN, streams.acquire_owned()).await.ok()?.ok()
    }
}

#[tonic::async_trait]
impl WorkService for Work {
    type StreamWorkStream = BoxStream<'static, Result<StreamWorkResponse, Status>>;

    /// The call returns its headers at once, because the executor waits for the headers before it reads.
    async fn stream_work(
        &self,
        request: Request<Streaming<StreamWorkRequest>>,
    ) -> Result<Response<Self::StreamWorkStream>, Status> {
        let too_many = || status::limit_exceeded("streams", STREAMS_MAX);
        let place = self.place().await.ok_or_else(too_many)?;
        let stream = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = mpsc::channel(OUTBOX_MAX);
        let ending = Arc::new(OnceLock::new());
        let over = Shutdown::new();
        let farewell = sender.downgrade();
        let (open, dropped) = oneshot::channel();
        let outbox = Outbox { sender, ending: Arc::clone(&ending), _open: open };
        let connection = Link::cut_of(request.extensions());
        let holder = request.extensions().get::<Holder>().cloned();
        let origin = origin(request.extensions());
        self.shared.sessions.try_send(SessionInput::Opened { stream, outbox }).map_err(|_| too_many())?;
        let reader = StreamReader {
            stream,
            requests: request.into_inner(),
            shared: Arc::clone(&self.shared),
            farewell,
            ending: Arc::clone(&ending),
            waiting: Arc::new(Semaphore::new(MESSAGES_WAITING_MAX)),
            silent: Arc::clone(&self.silent),
            dropped,
            connection,
            holder,
            origin,
            _place: place,
        };
        let reading = reader.run(over.clone(), renewal_age(STREAM_AGE));
        if self.readers.try_send((stream, Box::pin(reading))).is_err() {
            // The queue has a place for each stream, so this fails only when the process ends.
            let _gone = self.shared.sessions.try_send(SessionInput::Closed { stream });
            return Err(too_many());
        }
        let replies =
            Replies { receiver, parts: VecDeque::new(), ending, shared: Arc::clone(&self.shared), over, ended: false };
        Ok(Response::new(replies.boxed()))
    }
}

impl Readers {
    /// Runs while the service lives.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                (stream, end) = self.running.next() => match end {
                    JobEnd::Done(()) | JobEnd::Aborted => {}
                    JobEnd::Panicked(panic) => {
                        tracing::error!(panic, "the reader of a stream panicked");
                        // Fails only if the driver has ended.
                        let _gone = self.sessions.send(SessionInput::Closed { stream }).await;
                    }
                },
                Some((stream, reading)) = self.started.recv(), if self.running.has_room() => {
                    self.running.spawn(stream, reading);
                }
            }
        }
    }
}

/// The reader of one stream.
struct StreamReader {
    stream: StreamId,
    requests: Streaming<StreamWorkRequest>,
    shared: Arc<Shared>,
    /// Weak, because the stream ends when the driver drops its sender.
    farewell: mpsc::WeakSender<ToExecutor>,
    ending: Arc<OnceLock<Ending>>,
    waiting: Arc<Semaphore>,
    silent: Arc<Silent>,
    /// Completes when the driver drops the stream.
    dropped: oneshot::Receiver<()>,
    connection: Option<Cut>,
    /// `None` if callers are not authenticated.
    holder: Option<Holder>,
    origin: Origin,
    _place: OwnedSemaphorePermit,
}

impl StreamReader {
    /// Runs until the peer or the driver ends the stream, or the stream reaches `age`. Then waits until the response is
    /// `over`.
    async fn run(mut self, over: Shutdown, age: Duration) {
        if let Err(ending) = self.read(&over, age).await {
            // The first reason wins. The driver may have refused the stream at the same moment.
            let _already_set = self.ending.set(ending);
        }
        self.silent.leave(self.stream);
        // The driver drops the outbox, which ends the response. Fails only if the driver has ended.
        let _gone = self.shared.sessions.send(SessionInput::Closed { stream: self.stream }).await;
        // The rest of the response waits for the peer and keeps its place. HTTP/2 has no other way to end a stream
        // whose peer does not read.
        if timeout(UNREAD_FOR, over.requested()).await.is_err()
            && let Some(connection) = self.connection
        {
            tracing::info!(stream = self.stream.0, "closed the connection of an executor that does not read");
            connection.cut();
        }
    }

    async fn read(&mut self, over: &Shutdown, age: Duration) -> Result<(), Ending> {
        let opened = Instant::now();
        let mut deadline = opened + HELLO_WITHIN;
        let mut phase = Phase::Silent;
        let unwanted = self.silent.enter(self.stream);
        loop {
            tokio::select! {
                biased;
                () = over.requested() => return Ok(()),
                _ = &mut self.dropped => return Ok(()),
                () = unwanted.requested(), if phase == Phase::Silent => {
                    return Err(Ending::LimitExceeded { what: "streams", max: STREAMS_MAX });
                }
                received = self.requests.message() => {
                    let Some(message) = received.map_err(|error| broken(&error))? else { return Ok(()) };
                    let is_hello = self.hand_over(message, phase)?;
                    if is_hello && phase == Phase::Silent {
                        self.silent.leave(self.stream);
                        (phase, deadline) = (Phase::Open, opened + age);
                    }
                }
                () = tokio::time::sleep_until(deadline) => match phase {
                    Phase::Silent => {
                        return Err(Ending::Violation(format!("no hello within {} s", HELLO_WITHIN.as_secs())));
                    }
                    Phase::Open => {
                        self.announce_end();
                        (phase, deadline) = (Phase::Closing, Instant::now() + CLOSE_AFTER);
                    }
                    Phase::Closing => return Ok(()),
                },
            }
        }
    }

    /// Queues a message for the driver. Returns whether it was a hello.
    fn hand_over(&self, message: StreamWorkRequest, phase: Phase) -> Result<bool, Ending> {
        let message = match received_from_executor(message) {
            Ok(Some(message)) => message,
            Ok(None) => {
                self.shared.metrics.unknown_messages.inc();
                return Ok(false);
            }
            Err(malformed) => return Err(Ending::Violation(malformed.to_string())),
        };
        let is_hello = matches!(message, ToLeader::Hello(_));
        let message = match message {
            ToLeader::Hello(hello) => {
                let mismatch = |pod| Ending::Mismatch { executor: hello.executor.to_string(), pod };
                self.holder.as_ref().map_or(Ok(()), |holder| holder.may_be(&hello.executor)).map_err(mismatch)?;
                ToLeader::Hello(Hello { origin: self.origin.clone(), ..hello })
            }
            other @ (ToLeader::Heartbeat { .. }
            | ToLeader::Window { .. }
            | ToLeader::Started { .. }
            | ToLeader::Reports { .. }
            | ToLeader::Drain { .. }) => other,
        };
        if phase == Phase::Silent && !is_hello {
            return Err(Ending::Refused(Refusal::OutOfTurn));
        }
        let full = || Ending::LimitExceeded { what: "messages of this executor that wait", max: MESSAGES_WAITING_MAX };
        let permit = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| full())?;
        let input = SessionInput::Message { stream: self.stream, message, permit };
        self.shared.sessions.try_send(input).map(|()| is_hello).map_err(|_| full())
    }

    /// The session survives the stream, because the executor opens a new one.
    fn announce_end(&self) {
        let Some(outbox) = self.farewell.upgrade() else { return };
        let go_away = ToExecutor::GoAway {
            cause: GoAwayCause::SessionAge,
            leader_endpoint: String::new(),
            reconnect_after: Duration::ZERO,
            close_after: CLOSE_AFTER,
        };
        // A full outbox ends the stream in any case.
        let _full = outbox.try_send(go_away);
    }
}

/// The origin of a call: this process, an authenticated caller, or any other.
fn origin(extensions: &Extensions) -> Origin {
    if Link::is_within(extensions) {
        return Origin::Process;
    }
    extensions.get::<Origin>().cloned().unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No hello yet.
    Silent,
    Open,
    /// The renewal is announced.
    Closing,
}

/// A broken stream is no violation. An invalid message is one.
fn broken(error: &Status) -> Ending {
    Ending::Violation(format!("cannot read the stream: {}", error.message()))
}

/// The response: the driver's messages, then the status.
struct Replies {
    receiver: mpsc::Receiver<ToExecutor>,
    /// The rest of a message that was too large for one part.
    parts: VecDeque<StreamWorkResponse>,
    ending: Arc<OnceLock<Ending>>,
    shared: Arc<Shared>,
    over: Shutdown,
    ended: bool,
}

impl Stream for Replies {
    type Item = Result<StreamWorkResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Poll::Ready(Some(Ok(part)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.receiver.poll_recv(context)) {
                Some(message) => self.parts = batch::responses(message).into(),
                None => {
                    self.ended = true;
                    let Some(ending) = self.ending.get() else { return Poll::Ready(None) };
                    let status = status::ended(ending, &self.shared.leadership());
                    self.shared.metrics.streams_refused.inc();
                    // Logged at debug, because a faulty peer could flood the log.
                    tracing::debug!(code = ?status.code(), why = status.message(), "refused an executor's stream");
                    return Poll::Ready(Some(Err(status)));
                }
            }
        }
    }
}

impl Drop for Replies {
    /// After the end of the response, the driver cannot answer further messages.
    fn drop(&mut self) {
        self.over.request();
    }
}
