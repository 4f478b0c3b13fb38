//! One stream to a graph service: opening, non-blocking reading, and the reason of its end.

use crate::dial::Connector;
use crate::peers::Target;
use engine::object::Name;
use engine::work::{Refusal, Term};
use futures::StreamExt;
use proto::convert::{Received, received_from_leader};
use proto::error_reason::{self, DOMAIN};
use proto::r#type::v1beta1::ErrorReason;
use proto::work::v1beta1::StreamWorkRequest;
use proto::work::v1beta1::work_service_client::WorkServiceClient;
use runtime::cause::innermost;
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tonic_types::StatusExt;

#[cfg(test)]
mod tests;

/// Maximum size of a message.
const MESSAGE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of messages that wait for the driver. The driver takes them at once, so a full queue means that the
/// peer sends too fast.
pub(crate) const INBOUND_MAX: usize = 1024;
/// Maximum number of messages that wait for the peer. A full queue means that the peer does not read.
const OUTBOUND_MAX: usize = 1024;

/// The driver's ends of one stream.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) outbound: mpsc::Sender<StreamWorkRequest>,
    pub(crate) inbound: mpsc::Receiver<Inbound>,
    /// The address of the peer, once known.
    pub(crate) address: Arc<OnceLock<String>>,
}

/// An event of a live stream.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// The stream is open for messages.
    Connected,
    Message(Received),
    /// A message of a kind that this build does not know.
    Unknown,
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) leader_endpoint: Option<String>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) why: String,
}

/// Opens a stream to a target. The returned future runs the stream to its end.
pub(crate) fn open(connector: Connector, target: Target) -> (Ends, impl Future<Output = End> + Send + 'static) {
    let (outbound, requests) = mpsc::channel(OUTBOUND_MAX);
    let (events, inbound) = mpsc::channel(INBOUND_MAX);
    let address = Arc::new(OnceLock::new());
    let known = Arc::clone(&address);
    (Ends { outbound, inbound, address }, keep(connector, target, known, requests, events))
}

async fn keep(
    connector: Connector,
    target: Target,
    known: Arc<OnceLock<String>>,
    mut requests: mpsc::Receiver<StreamWorkRequest>,
    events: mpsc::Sender<Inbound>,
) -> End {
    let name = target.name().map(str::to_owned);
    let address = match target.address().await {
        Ok(address) => address,
        Err(why) => return End::because(why),
    };
    known.get_or_init(|| address.clone());
    let channel = match connector.open(&address, name.as_deref()).await {
        Ok(channel) => channel,
        Err(why) => return End::because(why),
    };
    if events.try_send(Inbound::Connected).is_err() {
        return End::because("the executor closed the stream".to_owned());
    }
    // The hello is queued before the call is awaited, because a server may wait for the hello before it answers.
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
            return End::because(format!("{address} sends messages too fast"));
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
        // Retry, because tokens rotate and rights are granted.
        ErrorReason::CredentialsMissing
        | ErrorReason::CredentialsInvalid
        | ErrorReason::TokenForOtherAudience
        | ErrorReason::AccessDenied
        | ErrorReason::ExecutorMismatch
        // Retry, because the name becomes free and wrong reports are forgotten.
        | ErrorReason::ExecutorNameTaken
        | ErrorReason::ExecutorUntrusted
        | ErrorReason::NotGrpc
        | ErrorReason::GateNotFound
        | ErrorReason::GateNotStreamed
        | ErrorReason::ModeObserve
        | ErrorReason::NotObserving
        | ErrorReason::ReviewUnavailable
        // Reasons of reads. An executor sends no reads.
        | ErrorReason::TokenMalformed
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

/// A sentence for a status that no graph service sent: a broken connection, another service, or a server without gRPC.
fn in_words(address: &str, status: &Status, heard: bool) -> String {
    let mut said = clipped(status.message());
    if let Some(source) = status.source() {
        said = format!("{said}: {}", clipped(&innermost(source)));
    }
    let code = status.code();
    if code == Code::Unimplemented {
        format!("{address} serves gRPC, but is not a graph service: {said}")
    } else if !heard && matches!(code, Code::Unknown | Code::Internal | Code::Cancelled) {
        format!("{address} does not answer as a gRPC service: {said}")
    } else {
        format!("{address} ended the stream ({code:?}): {said}")
    }
}

fn clipped(text: &str) -> String {
    engine::object::clip(text, 300)
}
