//! Streams to readers.
//!
//! A writer creates the next message only after the reader has taken the last one, so the service keeps one message for
//! each reader. A reader that takes no message for [`UNREAD_FOR`] is disconnected. The limits of each caller are in
//! [`share`].

use super::access::Visibility;
use super::connection::Cut;
use super::status;
use super::stream::Weighed;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use share::{Metered, Place, Places, STREAMS_MAX, Share};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;

mod share;
#[cfg(test)]
mod tests;

/// Maximum time for which a reader may leave a message unread.
pub(super) const UNREAD_FOR: Duration = Duration::from_secs(60);
/// Time that the reader then has to read the end of the stream.
const FAREWELL_WITHIN: Duration = Duration::from_secs(30);
/// Approximate age at which a stream is renewed.
pub(super) const STREAM_AGE: Duration = Duration::from_secs(30 * 60);

/// Opens streams.
#[derive(Clone, Debug)]
pub(super) struct Followers {
    started: mpsc::Sender<Writing>,
    places: Places,
}

/// Runs the writers.
#[derive(Debug)]
pub(super) struct Writers {
    started: mpsc::Receiver<Writing>,
    running: Jobs<(), ()>,
}

type Writing = BoxFuture<'static, ()>;

/// The sending end of a stream.
#[derive(Debug)]
pub(super) struct Reader<T> {
    messages: mpsc::Sender<T>,
    share: Share,
    dismissed: CancellationToken,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The reader is gone.
    Gone,
    /// The reader is connected, and reads nothing.
    Slow,
}

/// Why a stream ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The reader is gone.
    Gone,
    Failed(Status),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Failed(status)
    }
}

impl Stop {
    /// A message was not sent. `slow` is the status for a reader that reads nothing.
    pub(super) fn untaken(why: NotTaken, slow: impl FnOnce() -> Status) -> Stop {
        match why {
            NotTaken::Gone => Stop::Gone,
            NotTaken::Slow => Stop::Failed(slow()),
        }
    }

    /// The status of the stream.
    pub(super) fn ended(with: Result<(), Stop>) -> Result<(), Status> {
        match with {
            Ok(()) | Err(Stop::Gone) => Ok(()),
            Err(Stop::Failed(status)) => Err(status),
        }
    }
}

impl<T: Weighed> Reader<T> {
    /// Waits for room, and sends a message.
    pub(super) async fn send(&self, message: T) -> Result<(), NotTaken> {
        self.share.spend_bytes(message.weight());
        let taken = timeout(UNREAD_FOR, self.messages.send(message));
        match self.dismissed.run_until_cancelled(taken).await {
            Some(Ok(Ok(()))) => Ok(()),
            None | Some(Ok(Err(_))) => Err(NotTaken::Gone),
            Some(Err(_)) => Err(NotTaken::Slow),
        }
    }

    /// Sends an export to its end. The time has a limit, because a slow reader keeps the places of others.
    pub(super) async fn export(
        &self,
        shutdown: &Shutdown,
        send_all: impl Future<Output = Result<(), Stop>>,
    ) -> Result<(), Status> {
        tokio::select! {
            sent = send_all => Stop::ended(sent),
            () = self.gone() => Ok(()),
            () = shutdown.requested() => Err(status::stopping()),
            () = tokio::time::sleep(STREAM_AGE) => Err(status::too_slow(STREAM_AGE)),
        }
    }

    /// Waits until the reader is gone.
    pub(super) async fn gone(&self) {
        tokio::select! {
            () = self.messages.closed() => {}
            () = self.dismissed.cancelled() => {}
        }
    }

    /// Ends the stream as if its reader were gone.
    pub(super) fn dismissal(&self) -> CancellationToken {
        self.dismissed.clone()
    }
}

impl Followers {
    pub(super) fn new() -> (Writers, Followers) {
        let (sender, started) = mpsc::channel(STREAMS_MAX);
        let followers = Followers { started: sender, places: Places::default() };
        (Writers { started, running: Jobs::new(STREAMS_MAX) }, followers)
    }

    /// A stream of the messages of `write`, with its final status. If the peer does not read even the end, `connection`
    /// is closed, because HTTP/2 has no other way to drop such a stream. `visibility` has been checked for the content
    /// of the stream.
    pub(super) fn open<T, W>(
        &self,
        connection: Option<Cut>,
        visibility: &Visibility,
        write: impl FnOnce(Reader<T>) -> W,
    ) -> Result<BoxStream<'static, Result<T, Status>>, Status>
    where
        T: Weighed + Send + 'static,
        W: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let place = self.places.take(connection.as_ref(), visibility)?;
        let share = place.share();
        let (sender, receiver) = mpsc::channel(1);
        let ending = Arc::new(OnceLock::new());
        let dismissed = CancellationToken::new();
        let writing = write(Reader { messages: sender.clone(), share: share.clone(), dismissed });
        let end = End { ending: Arc::clone(&ending), connection, _place: place };
        // The queue has a place for each stream, so this fails only when the process ends.
        let writing = Metered::new(end.after(writing, sender), share);
        self.started.try_send(Box::pin(writing)).map_err(|_| status::stopping())?;
        let messages = stream::unfold((receiver, Some(ending)), async |(mut receiver, mut ending)| {
            if let Some(message) = receiver.recv().await {
                return Some((Ok(message), (receiver, ending)));
            }
            let failed = ending.take()?.get()?.clone();
            Some((Err(failed), (receiver, ending)))
        });
        Ok(messages.boxed())
    }
}

struct End {
    ending: Arc<OnceLock<Status>>,
    connection: Option<Cut>,
    _place: Place,
}

impl End {
    async fn after<T>(self, writing: impl Future<Output = Result<(), Status>>, messages: mpsc::Sender<T>) {
        if let Err(status) = writing.await {
            self.ending.set(status).expect("the status is set only here");
        }
        // If there is room for another message, the reader has taken the last one.
        let taken = timeout(FAREWELL_WITHIN, messages.reserve()).await;
        if let (Err(_), Some(connection)) = (taken, self.connection) {
            tracing::info!("closed the connection of a client that does not read its answers");
            connection.cut();
        }
    }
}

impl Writers {
    /// Runs while the service lives.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                ((), end) = self.running.next() => match end {
                    JobEnd::Done(()) | JobEnd::Aborted => {}
                    JobEnd::Panicked(panic) => tracing::error!(panic, "the writer of a stream panicked"),
                },
                Some(writing) = self.started.recv(), if self.running.has_room() => self.running.spawn((), writing),
            }
        }
    }
}
