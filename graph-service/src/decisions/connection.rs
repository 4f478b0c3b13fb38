//! The connection to JetStream and to the stream that holds this cluster's log.

use super::entry::{Entry, Name, RECORD_HEADER};
use super::publisher::{Failure, Receipt, Store, Tip};
use super::server::{Credentials, JetStream, Server};
use anyhow::Context as _;
use async_nats::connection::State;
use async_nats::jetstream::context::{ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::error::Error as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Limits of a stream that this service creates. At either limit, the stream drops its oldest message.
const STREAM_EVENTS_MAX: i64 = 2_000_000;
const STREAM_BYTES_MAX: i64 = 1 << 30;
const STREAM_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Window in which JetStream rejects a repeated message name. The publisher does not need it; other readers may.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Maximum time for an answer. After it the server counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Maximum wait between two attempts to connect.
const RECONNECT_AFTER_MAX: Duration = Duration::from_millis(500);
/// Interval between checks of an idle connection.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of messages that are sent and not acknowledged, including abandoned ones.
const UNACKNOWLEDGED_MAX: usize = 4096;

/// The connection to the stream. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    client: Client,
    jetstream: Context,
    stream: String,
    subject: String,
    /// Why the last attempt to connect failed; empty while connected.
    failure: Arc<Mutex<String>>,
}

impl Connection {
    /// Starts to connect, and keeps trying in the background.
    pub(crate) async fn open(config: &JetStream, cluster_uid: &str) -> anyhow::Result<Connection> {
        let servers: Vec<ServerAddr> = config.servers.iter().map(|server| server.address().clone()).collect();
        let wait = |attempt: usize| {
            let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
            Duration::from_millis(20).saturating_mul(attempt).min(RECONNECT_AFTER_MAX)
        };
        let failure = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&failure);
        let options = match config.servers.iter().find_map(Server::credentials) {
            // The library does not read credentials from the address.
            Some(Credentials::Password { user, password }) => {
                ConnectOptions::with_user_and_password(user.clone(), password.clone())
            }
            Some(Credentials::Token(token)) => ConnectOptions::with_token(token.clone()),
            None => ConnectOptions::new(),
        };
        let options = options
            .name("ownergraph")
            .retry_on_initial_connect()
            .connection_timeout(ANSWER_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .reconnect_delay_callback(wait)
            .event_callback(move |event| {
                note(&told, &event);
                std::future::ready(())
            });
        let client = options.connect(servers).await.context("--decision-log cannot be used")?;
        let jetstream = ContextBuilder::new()
            .timeout(ANSWER_WITHIN)
            .ack_timeout(ANSWER_WITHIN)
            .max_ack_inflight(UNACKNOWLEDGED_MAX)
            .build(client.clone());
        let cluster = token(cluster_uid);
        let stream = format!("ownergraph-decisions-{cluster}");
        let subject = format!("ownergraph.decisions.{cluster}");
        Ok(Connection { client, jetstream, stream, subject, failure })
    }

    /// The stream as it is now. Creates it if it does not exist. Keeps the settings of a stream that an administrator
    /// created.
    pub(super) async fn stream(&self) -> Result<Stream, String> {
        if let Some(why) = self.broken() {
            return Err(why);
        }
        let config = Config {
            name: self.stream.clone(),
            subjects: vec![self.subject.clone()],
            description: Some("The decisions of Ownergraph, one message for each step".to_owned()),
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            max_messages: STREAM_EVENTS_MAX,
            max_bytes: STREAM_BYTES_MAX,
            max_age: STREAM_AGE_MAX,
            duplicate_window: DUPLICATE_WINDOW,
            num_replicas: 1,
            ..Config::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(|error| with_source(&error))
    }

    /// Waits until the current connection, or the attempt to connect, ends. Returns the reason.
    pub(super) async fn interrupted(&self) -> String {
        let statistics = self.client.statistics();
        let connects = statistics.connects.load(Ordering::Relaxed);
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(why) = self.broken() {
                return why;
            }
            if statistics.connects.load(Ordering::Relaxed) != connects {
                return "the connection to the NATS server was lost for a moment".to_owned();
            }
        }
    }

    async fn read_tip(&self) -> Result<Tip, String> {
        let stream = self.stream().await?;
        let state = &stream.cached_info().state;
        let sequence = state.last_sequence;
        if state.messages == 0 {
            return Ok(Tip { sequence, name: None });
        }
        match stream.get_raw_message(sequence).await {
            Ok(message) => {
                let name = message.headers.get(async_nats::header::NATS_MESSAGE_ID);
                Ok(Tip { sequence, name: name.and_then(|name| Name::parse(name.as_str())) })
            }
            // The message has expired.
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(Tip { sequence, name: None }),
            Err(error) => Err(with_source(&error)),
        }
    }

    async fn send(&self, after: Tip, entry: Entry) -> Result<Receipt, Failure> {
        let mut message = PublishMessage::build()
            .header(RECORD_HEADER, entry.record())
            .message_id(entry.name.to_string())
            .expected_stream(&self.stream)
            .expected_last_sequence(after.sequence)
            .payload(entry.payload());
        if let Some(name) = after.name {
            message = message.expected_last_message_id(name.to_string());
        }
        let sent = self.jetstream.send_publish(self.subject.clone(), message).await;
        let receipt = sent.map_err(|error| failure(&error))?;
        Ok(async move { receipt.await.map(|receipt| receipt.sequence).map_err(|error| failure(&error)) }.boxed())
    }
}

impl Store for Connection {
    fn tip(&self) -> BoxFuture<'_, Result<Tip, String>> {
        self.read_tip().boxed()
    }

    fn append(&self, after: Tip, entry: Entry) -> BoxFuture<'_, Result<Receipt, Failure>> {
        self.send(after, entry).boxed()
    }

    fn broken(&self) -> Option<String> {
        let what = match self.client.connection_state() {
            State::Connected => return None,
            State::Pending => "no NATS server was reached yet",
            State::Disconnected => "the connection to the NATS server is lost",
        };
        let why = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        Some(if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") })
    }
}

/// Stores the library's report about its connection.
fn note(failure: &Mutex<String>, event: &Event) {
    tracing::debug!(%event, "connection to NATS");
    let why = match event {
        Event::Connected => String::new(),
        Event::ClientError(error) => error.to_string(),
        Event::ServerError(error) => error.to_string(),
        Event::Disconnected | Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => return,
    };
    *failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
}

fn failure(error: &PublishError) -> Failure {
    let too_large = || {
        let said = error.source()?.downcast_ref::<async_nats::jetstream::Error>()?;
        Some(said.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    };
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Failure::TooLarge(with_source(error)),
        PublishErrorKind::Other if too_large() == Some(true) => Failure::TooLarge(with_source(error)),
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::Other => Failure::Other(with_source(error)),
    }
}

/// The error with its cause. The library returns the cause separately.
pub(super) fn with_source(error: &(dyn std::error::Error + 'static)) -> String {
    let own = error.to_string();
    match error.source().map(ToString::to_string) {
        Some(source) if !own.contains(&source) => format!("{own}: {source}"),
        Some(_) | None => own,
    }
}

/// The uid as a part of a subject and of a stream's name. A character that is not allowed there is written as its
/// number.
fn token(uid: &str) -> String {
    let mut token = String::with_capacity(uid.len());
    for byte in uid.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => token.push(char::from(byte)),
            other => token.push_str(&format!("_{other:02x}")),
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_uid_has_a_stream_of_its_own() {
        assert_eq!(token("0c9f-41"), "0c9f-41");
        assert_eq!(token("a.b c*_"), "a_2eb_20c_2a_5f");
    }
}
