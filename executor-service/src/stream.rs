//! One stream to a graph service: opened, read without ever blocking, and its end put into words.

use crate::options;
use crate::peers::Target;
use engine::object::Name;
use engine::work::{Refusal, Term};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use hyper_util::rt::TokioIo;
use proto::convert::{Received, received_from_leader};
use proto::error_reason::{self, DOMAIN};
use proto::r#type::v1alpha1::ErrorReason;
use proto::work::v1alpha1::StreamWorkRequest;
use proto::work::v1alpha1::work_service_client::WorkServiceClient;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

#[cfg(test)]
mod tests;

/// Name resolution and TCP.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Windows of HTTP/2: one stream that nobody reads must not stop the connection.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// A peer that vanished without a word is found after this and the time below.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);
/// The largest message that is read.
const MESSAGE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Messages on their way to the driver. It takes them at once, so a full queue means a peer that floods.
const INBOUND_MAX: usize = 1024;
/// Messages on their way to the peer. A full queue means a peer that does not read.
const OUTBOUND_MAX: usize = 1024;

/// How a channel to the address of a graph service is opened. Clones share it.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> BoxFuture<'static, Result<Channel, String>> + Send + Sync>);

impl Connector {
    /// Plaintext HTTP/2 over TCP, with the windows and keepalives of the protocol.
    pub(crate) fn network() -> Connector {
        Connector::through(|address| {
            async move {
                let endpoint = endpoint(&address)?;
                endpoint.connect().await.map_err(|error| format!("{address} cannot be reached: {}", innermost(&error)))
            }
            .boxed()
        })
    }

    /// Another way, such as a pipe within this process. The error is a sentence that names the address.
    pub fn through(
        open: impl Fn(String) -> BoxFuture<'static, Result<Channel, String>> + Send + Sync + 'static,
    ) -> Connector {
        Connector(Arc::new(open))
    }

    async fn open(&self, address: String) -> Result<Channel, String> {
        (self.0)(address).await
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// A plaintext endpoint with the settings that the protocol asks for; the error says what is wrong with the address.
pub fn endpoint(address: &str) -> Result<Endpoint, String> {
    let uri = options::uri(address).map_err(|why| format!("{address:?} is no address: {why}"))?;
    Ok(Channel::builder(uri)
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_WITHIN)
        .keep_alive_while_idle(true))
}

/// A channel over a byte pipe that is open already, such as one within this process, with the same settings. `address` is what
/// requests carry as their host; the error is a sentence that names it.
pub async fn connect_over(
    address: &str,
    pipe: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Channel, String> {
    let mut pipe = Some(pipe);
    let once =
        tower::service_fn(move |_| std::future::ready(pipe.take().map(TokioIo::new).ok_or("the pipe is used up")));
    let connected = endpoint(address)?.connect_with_connector(once).await;
    connected.map_err(|error| format!("{address} cannot be reached: {}", innermost(&error)))
}

/// The driver's ends of one stream.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) outbound: mpsc::Sender<StreamWorkRequest>,
    pub(crate) inbound: mpsc::Receiver<Inbound>,
}

/// What comes in while a stream lives.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// Messages may be sent.
    Connected,
    Message(Received),
    /// Of a kind that this build does not know.
    Unknown,
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) leader_endpoint: Option<String>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) why: String,
}

/// A stream to a target, and the future that keeps it going until its end.
pub(crate) fn open(connector: Connector, target: Target) -> (Ends, impl Future<Output = End> + Send + 'static) {
    let (outbound, requests) = mpsc::channel(OUTBOUND_MAX);
    let (events, inbound) = mpsc::channel(INBOUND_MAX);
    (Ends { outbound, inbound }, keep(connector, target, requests, events))
}

async fn keep(
    connector: Connector,
    target: Target,
    mut requests: mpsc::Receiver<StreamWorkRequest>,
    events: mpsc::Sender<Inbound>,
) -> End {
    let address = match target.address().await {
        Ok(address) => address,
        Err(why) => return End::because(why),
    };
    let channel = match connector.open(address.clone()).await {
        Ok(channel) => channel,
        Err(why) => return End::because(why),
    };
    if events.try_send(Inbound::Connected).is_err() {
        return End::because("the executor closed the stream".to_owned());
    }
    // The hello is in the request stream before the call is awaited: a server may wait for it before it answers at all.
    let Some(hello) = requests.recv().await else {
        return End::because("the executor closed the stream".to_owned());
    };
    let requests = futures::stream::iter([hello]).chain(ReceiverStream::new(requests));
    let mut client = WorkServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX_BYTES);
    let mut responses = match client.stream_work(requests).await {
        Ok(response) => response.into_inner(),
        Err(status) => return End::refused(&address, &status, false),
    };
    let mut heard = false;
    loop {
        let inbound = match responses.message().await {
            Ok(Some(message)) => match received_from_leader(message) {
                Ok(Some(received)) => Inbound::Message(received),
                Ok(None) => Inbound::Unknown,
                Err(malformed) => return End::because(format!("{address} sent a message whose {malformed}")),
            },
            Ok(None) => return End::because(format!("{address} closed the stream")),
            Err(status) => return End::refused(&address, &status, heard),
        };
        heard = true;
        if events.try_send(inbound).is_err() {
            return End::because(format!("{address} sends faster than its messages can be taken"));
        }
    }
}

impl End {
    pub(crate) fn because(why: String) -> End {
        End { leader_endpoint: None, refusal: None, why }
    }

    fn refused(address: &str, status: &Status, heard: bool) -> End {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        let reason = info.and_then(|info| error_reason::parse(&info.reason));
        let (Some(info), Some(reason)) = (info, reason) else {
            return End::because(in_words(address, status, heard));
        };
        let leader_endpoint = info.metadata.get(error_reason::LEADER_ENDPOINT).filter(|endpoint| !endpoint.is_empty());
        End {
            leader_endpoint: leader_endpoint.cloned(),
            refusal: refusal(reason, &info.metadata),
            why: format!("{address} refuses: {} ({})", clipped(status.message()), error_reason::text(reason)),
        }
    }
}

fn refusal(reason: ErrorReason, metadata: &HashMap<String, String>) -> Option<Refusal> {
    let text = |key: &str| metadata.get(key).map(String::as_str);
    match reason {
        ErrorReason::NotLeader | ErrorReason::NoLeader => Some(Refusal::NotLeader),
        ErrorReason::SessionSuperseded => Some(Refusal::Superseded),
        ErrorReason::SessionDrained => Some(Refusal::Drained),
        ErrorReason::TermStale => {
            let election = Name::from(text(error_reason::ELECTION_UID)?);
            let number = text(error_reason::TERM_NUMBER)?.parse().ok()?;
            Some(Refusal::TermStale { known: Term { election, number } })
        }
        ErrorReason::ProtocolUnsupported => Some(Refusal::ProtocolUnsupported {
            min: text(error_reason::MIN_VERSION)?.parse().ok()?,
            max: text(error_reason::MAX_VERSION)?.parse().ok()?,
        }),
        ErrorReason::StreamProtocolViolation => Some(Refusal::OutOfTurn),
        ErrorReason::LimitExceeded => Some(Refusal::TooManySessions { max: text(error_reason::LIMIT)?.parse().ok()? }),
        ErrorReason::ClusterMismatch => Some(Refusal::OtherCluster {
            ours: Name::from(text(error_reason::OURS)?),
            theirs: Name::from(text(error_reason::THEIRS)?),
        }),
        // Of reads, which an executor does not make.
        ErrorReason::TokenMalformed
        | ErrorReason::PageTokenExpired
        | ErrorReason::PageTokenMismatch
        | ErrorReason::ObjectNotFound
        | ErrorReason::UidMismatch
        | ErrorReason::TraversalLimit
        | ErrorReason::PausesNotInstalled
        | ErrorReason::PauseNotFound
        | ErrorReason::ApiServerRefuses
        | ErrorReason::PositionCompacted
        | ErrorReason::SlowConsumer
        | ErrorReason::DecisionNotFound
        | ErrorReason::ReplicaBehind
        | ErrorReason::CollectionUnsynced
        | ErrorReason::TokenFromOtherCluster
        | ErrorReason::TokenFromOtherHistory
        | ErrorReason::ResourceVersionNotComparable
        | ErrorReason::FieldInvalid
        | ErrorReason::ExpressionInvalid
        | ErrorReason::MethodUnknown
        | ErrorReason::MessageTooLarge
        | ErrorReason::MessageUnreadable
        | ErrorReason::Stopping
        | ErrorReason::CallFailed
        | ErrorReason::LogUnavailable
        | ErrorReason::Unspecified => None,
    }
}

/// A status that is not one of ours: a broken connection, another service, no gRPC at all.
fn in_words(address: &str, status: &Status, heard: bool) -> String {
    let mut said = clipped(status.message());
    if let Some(source) = status.source() {
        said = format!("{said}: {}", clipped(&innermost(source)));
    }
    let code = status.code();
    if code == Code::Unimplemented {
        format!("{address} serves gRPC, but is no graph service: {said}")
    } else if !heard && matches!(code, Code::Unknown | Code::Internal | Code::Cancelled) {
        format!("{address} does not answer as a gRPC service: {said}")
    } else {
        format!("{address} ended the stream ({code:?}): {said}")
    }
}

/// The cause at the bottom: what stands above it says only that there was one.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn clipped(text: &str) -> String {
    engine::object::clip(text, 300)
}
