//! JetStream, and the one stream in it that holds this cluster's log.

use super::entry::{Entry, Name, RECORD_HEADER};
use super::publisher::{Failure, Receipt, Store, Tip};
use super::{DecisionLog, Queue, mirror, publisher};
use anyhow::Context as _;
use async_nats::connection::State;
use async_nats::jetstream::context::{ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, ConnectOptions, ServerAddr};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use runtime::tasks::Tasks;
use std::error::Error as _;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// What a stream that is created here keeps: the oldest goes first, whichever bound is reached.
const STREAM_EVENTS_MAX: i64 = 2_000_000;
const STREAM_BYTES_MAX: i64 = 1 << 30;
const STREAM_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// For what other readers of the stream may do with the names of messages; the publisher needs no such window.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// How long a server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait between two attempts to connect.
const RECONNECT_AFTER_MAX: Duration = Duration::from_millis(500);
/// How often a connection that nothing comes over is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Messages that were sent and are not acknowledged, given up ones among them.
const UNACKNOWLEDGED_MAX: usize = 4096;

/// The log on JetStream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JetStream {
    /// Any of these; they lead to one and the same JetStream.
    pub servers: Vec<Server>,
    /// Nothing is granted while the log cannot be written to.
    pub required: bool,
}

/// Where a NATS server is reached. It may hold a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Server(ServerAddr);

impl FromStr for Server {
    type Err = String;

    /// Reads `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://…`.
    fn from_str(text: &str) -> Result<Server, String> {
        const WANTED: &str = "expected nats://HOST:PORT or tls://HOST:PORT";
        let is_known = text.starts_with("nats://") || text.starts_with("tls://");
        let address = ServerAddr::from_str(text).ok().filter(|address| is_known && !address.host().is_empty());
        address.map(Server).ok_or_else(|| WANTED.to_owned())
    }
}

impl Server {
    /// Whether what is said to it can be read on the way by others than this machine.
    pub fn is_open_to_others(&self) -> bool {
        let host = self.0.host();
        let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        !self.0.tls_required() && !is_loopback
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.0.scheme(), self.0.host(), self.0.port())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The way to the stream. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    client: Client,
    jetstream: Context,
    stream: String,
    subject: String,
}

impl Connection {
    /// Begins to connect, and goes on with that for as long as it takes.
    pub(crate) async fn open(config: &JetStream, cluster_uid: &str) -> anyhow::Result<Connection> {
        let servers: Vec<ServerAddr> = config.servers.iter().map(|server| server.0.clone()).collect();
        let wait = |attempt: usize| {
            let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
            Duration::from_millis(20).saturating_mul(attempt).min(RECONNECT_AFTER_MAX)
        };
        let options = ConnectOptions::new()
            .name("ownergraph")
            .retry_on_initial_connect()
            .connection_timeout(ANSWER_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .reconnect_delay_callback(wait);
        let client = options.connect(servers).await.context("--decision-log cannot be used")?;
        let jetstream = ContextBuilder::new()
            .timeout(ANSWER_WITHIN)
            .ack_timeout(ANSWER_WITHIN)
            .max_ack_inflight(UNACKNOWLEDGED_MAX)
            .build(client.clone());
        let cluster = token(cluster_uid);
        let stream = format!("ownergraph-decisions-{cluster}");
        let subject = format!("ownergraph.decisions.{cluster}");
        Ok(Connection { client, jetstream, stream, subject })
    }

    /// Mirrors the stream into a log, and writes what comes into its queue. `is_required`: nothing is granted while it is away.
    pub(crate) fn start(self, is_required: bool, tasks: &mut Tasks) -> DecisionLog {
        let queue = Arc::new(Queue::new(is_required));
        let log = DecisionLog::mirror(Arc::new(self.clone()), Arc::clone(&queue));
        tasks.spawn_until_end("mirror of the decision log", mirror::run(self.clone(), log.clone()));
        tasks.spawn_until_end("decision log", publisher::run(self, queue));
        log
    }

    /// The stream as it is now. It is created where there is none; one that somebody else has created is taken as it is.
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

    /// Until the connection there is now, or the attempt to get one, is over; why.
    pub(super) async fn interrupted(&self) -> String {
        let statistics = self.client.statistics();
        let connects = statistics.connects.load(Ordering::Relaxed);
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(why) = self.broken() {
                return why;
            }
            if statistics.connects.load(Ordering::Relaxed) != connects {
                return "the connection to the server was lost for a moment".to_owned();
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
            // Its time had come.
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
        match self.client.connection_state() {
            State::Connected => None,
            State::Pending => Some("no server was reached yet".to_owned()),
            State::Disconnected => Some("the connection to the server is lost".to_owned()),
        }
    }
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

/// The library's errors name their cause apart.
pub(super) fn with_source(error: &(dyn std::error::Error + 'static)) -> String {
    let own = error.to_string();
    match error.source().map(ToString::to_string) {
        Some(source) if !own.contains(&source) => format!("{own}: {source}"),
        Some(_) | None => own,
    }
}

/// The uid as a part of a subject and of a stream's name. What may not stand there is written as its number.
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
    fn a_server_is_named_without_its_password() {
        let server: Server = "nats://us:er@127.0.0.1".parse().unwrap();
        assert_eq!(
            (server.to_string(), format!("{server:?}").contains("er@")),
            ("nats://127.0.0.1:4222".into(), false)
        );
        for text in ["127.0.0.1:4222", "http://127.0.0.1:4222", "ws://127.0.0.1", "nats://", "nats://a b"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_plaintext_beyond_this_machine_is_open_to_others() {
        let open = |text: &str| text.parse::<Server>().unwrap().is_open_to_others();
        assert!(!open("nats://localhost:4222") && !open("nats://[::1]:4222") && !open("tls://nats.example:4222"));
        assert!(open("nats://nats.example:4222") && open("nats://10.0.0.1"));
    }

    #[test]
    fn any_uid_has_a_stream_of_its_own() {
        assert_eq!(token("0c9f-41"), "0c9f-41");
        assert_eq!(token("a.b c*_"), "a_2eb_20c_2a_5f");
    }
}
