//! Reads the shared log into this replica's memory.

use super::connection::{Connection, with_source};
use super::entry::{RECORD_HEADER, read};
use super::kept::{Begin, Record};
use super::{DecisionLog, EVENTS_MAX};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Info, Stream};
use futures::StreamExt as _;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Messages of one request.
const BATCH: usize = 1024;
/// Maximum time for which one request waits for messages.
const WAIT: Duration = Duration::from_secs(2);
/// Messages of one notification to readers.
const CHUNK: usize = 256;
/// Wait between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Time without requests after which the server removes a consumer.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// Runs until the process ends.
pub(super) async fn run(connection: Connection, log: DecisionLog) -> anyhow::Result<()> {
    let mut mirror = Mirror { connection, log, next: 1, history: None };
    let connection = mirror.connection.clone();
    loop {
        // A lost connection never delivers the messages that were requested over it.
        let why = tokio::select! {
            Err(why) = mirror.follow() => why,
            why = connection.interrupted() => why,
        };
        tracing::debug!(why, "cannot read the decision log; retrying");
        mirror.log.change(|kept| kept.problem = Some(why));
        sleep(RETRY_AFTER).await;
    }
}

struct Mirror {
    connection: Connection,
    log: DecisionLog,
    /// The next sequence to read.
    next: u64,
    history: Option<History>,
}

/// The identity of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    /// Name and creation time of the stream.
    stream: String,
    /// The end of the stream, if it was before the position that this replica had read.
    cut: Option<u64>,
}

impl History {
    fn log_id(&self) -> String {
        match self.cut {
            None => self.stream.clone(),
            Some(cut) => format!("{}.{cut}", self.stream),
        }
    }
}

/// The identity of the log in a stream.
fn name(info: &Info) -> String {
    format!("{}.{}", info.config.name, info.created.unix_timestamp_nanos())
}

/// The oldest sequence, or the next one if there is none. A stream that never had a message reports 0.
pub(super) fn first(info: &Info) -> u64 {
    info.state.first_sequence.max(1)
}

/// Whether `log_id` names this stream, before or after it was cut.
pub(super) fn is_of(log_id: &str, info: &Info) -> bool {
    log_id.strip_prefix(&name(info)).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// The request timed out.
    Nothing,
    Messages,
    /// The next sequence is missing; this sequence came instead.
    Jump(u64),
}

/// Messages of one request.
#[derive(Debug, Default)]
struct Chunk {
    records: Vec<Record>,
    /// The sequence that came instead of the next one.
    jumped_to: Option<u64>,
    /// The number of messages that the server still has.
    behind: u64,
}

impl Mirror {
    async fn follow(&mut self) -> Result<Infallible, String> {
        let asked = Instant::now();
        let stream = self.connection.stream().await?;
        self.look(asked, stream.cached_info());
        // A message can be lost in transit. The second request returns it, or shows that the stream does not have it.
        let mut missing = None;
        loop {
            let consumer = self.consumer(&stream).await?;
            let from = self.next;
            loop {
                match self.read_some(&consumer).await? {
                    Read::Nothing => {
                        let (asked, next) = (Instant::now(), self.next);
                        self.look(asked, &stream.get_info().await.map_err(|error| with_source(&error))?);
                        if self.next != next {
                            break;
                        }
                    }
                    Read::Messages => {}
                    Read::Jump(to) => {
                        if missing == Some(self.next) && from == self.next {
                            self.go_on_at(to);
                        }
                        missing = Some(self.next);
                        break;
                    }
                }
            }
        }
    }

    async fn consumer(&self, stream: &Stream) -> Result<Consumer<pull::Config>, String> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ack_policy: AckPolicy::None,
            inactive_threshold: FORGET_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        stream.create_consumer(config).await.map_err(|error| with_source(&error))
    }

    /// Sends one request.
    async fn read_some(&mut self, consumer: &Consumer<pull::Config>) -> Result<Read, String> {
        let batch = consumer.batch().max_messages(BATCH).expires(WAIT).messages().await;
        let mut chunks = batch.map_err(|error| with_source(&error))?.ready_chunks(CHUNK);
        let mut read = Read::Nothing;
        loop {
            let chunk = timeout(2 * WAIT, chunks.next()).await;
            let Some(messages) = chunk.map_err(|_| "the NATS server does not answer".to_owned())? else {
                return Ok(read);
            };
            let mut chunk = Chunk::default();
            for message in messages {
                self.take(&message.map_err(|error| error.to_string())?, &mut chunk)?;
            }
            if !chunk.records.is_empty() {
                read = Read::Messages;
            }
            let events_max = self.log.events_max;
            self.log.change(|kept| {
                chunk.records.into_iter().for_each(|record| kept.push(record, events_max));
                kept.behind = chunk.behind;
                kept.problem = None;
            });
            if let Some(to) = chunk.jumped_to {
                return Ok(Read::Jump(to));
            }
        }
    }

    fn take(&mut self, message: &Message, chunk: &mut Chunk) -> Result<(), String> {
        let info = message.info().map_err(|error| error.to_string())?;
        let sequence = info.stream_sequence;
        if chunk.jumped_to.is_some() || sequence < self.next {
            return Ok(());
        }
        if sequence > self.next {
            chunk.jumped_to = Some(sequence);
            return Ok(());
        }
        let header = message.headers.as_ref().and_then(|headers| headers.get(RECORD_HEADER));
        chunk.records.push(read(header.map(|value| value.as_str()), message.payload.clone()));
        chunk.behind = info.pending;
        self.next += 1;
        Ok(())
    }

    /// Compares the stream with the messages that were read from it, and starts a new log if they differ.
    fn look(&mut self, asked: Instant, info: &Info) {
        let (first, last) = (first(info), info.state.last_sequence);
        let stream = name(info);
        let known = self.history.as_ref().filter(|history| history.stream == stream);
        let history = match known {
            Some(_) if last + 1 < self.next => {
                tracing::warn!(
                    read = self.next - 1,
                    ends = last,
                    "the decision log lost acknowledged events; readers continue with a new log"
                );
                History { stream, cut: Some(last) }
            }
            Some(_) => {
                if first > self.next {
                    self.go_on_at(first);
                }
                let behind = (last + 1).saturating_sub(self.next);
                return self.log.change(|kept| {
                    kept.first = Some(first);
                    kept.end = Some((asked, last));
                    kept.behind = behind;
                    kept.problem = None;
                });
            }
            None => History { stream, cut: None },
        };
        let oldest = first.max((last + 1).saturating_sub(EVENTS_MAX as u64));
        tracing::info!(log = history.log_id(), oldest, newest = last, "reading the decision log");
        self.next = oldest;
        self.log.change(|kept| {
            kept.begin(history.log_id(), Begin { oldest, first: Some(first), shown_from: last });
            kept.end = Some((asked, last));
        });
        self.history = Some(history);
    }

    /// Continues at `next`. The messages before it were deleted or have expired.
    fn go_on_at(&mut self, next: u64) {
        tracing::warn!(
            from = self.next,
            to = next,
            "the decision log has a gap: messages were deleted or have expired"
        );
        self.next = next;
        let log_id = self.history.as_ref().map(History::log_id).unwrap_or_default();
        self.log.change(|kept| kept.begin(log_id, Begin { oldest: next, first: kept.first, shown_from: 0 }));
    }
}
