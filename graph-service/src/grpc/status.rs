//! Statuses of the API. Only this module chooses status codes.

use super::rights::{GROUP, Right};
use crate::decisions::Extent;
use crate::expression::Mistake;
use crate::gates::stream::{INSTANCES_MAX, NotJoined};
use crate::guards::{definition, press};
use crate::messages::Ending;
use crate::messages::Leadership;
use engine::guard::GuardKind;
use engine::object::{clip, in_group};
use engine::work::Refusal;
use proto::decision::v1beta1::Position;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::error_reason as reason;
use proto::r#type::v1beta1::ErrorReason;
use std::collections::HashMap;
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(super) mod bundle;
#[cfg(test)]
mod tests;

/// Retry delay if another replica leads: that replica is ready.
const RETRY_ELSEWHERE: Duration = Duration::from_millis(100);
/// Retry delay if no replica leads, or a limit is reached.
const RETRY_LATER: Duration = Duration::from_secs(2);
/// Header that repeats `RetryInfo` for gRPC clients.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// The command that installs the definition of pauses.
const INSTALL: &str = "ownergraph crds | kubectl apply -f -";
/// Maximum protobuf duration.
const DURATION_MAX_SECONDS: u64 = 315_576_000_000;
/// Maximum length of text from outside in a status. All details together stay below 4 KiB.
const TEXT_MAX_BYTES: usize = 512;

/// The status of a stream that ends with an error.
pub(super) fn ended(ending: &Ending, leadership: &Leadership) -> Status {
    match ending {
        Ending::Refused(refusal) => refused(refusal, leadership),
        Ending::LimitExceeded { what, max } => limit_exceeded(what, *max),
        Ending::Violation(how) => violation(how),
        Ending::Mismatch { executor, pod } => executor_mismatch(executor, pod),
    }
}

/// The status of a refused hello.
pub(super) fn refused(refusal: &Refusal, leadership: &Leadership) -> Status {
    match refusal {
        Refusal::NotLeader => not_leader(leadership),
        Refusal::TermStale { known } => error(
            Code::Aborted,
            ErrorReason::TermStale,
            format!("this replica's term is older than term {} of election {}", known.number, known.election),
            &[(reason::ELECTION_UID, &known.election), (reason::TERM_NUMBER, &known.number.to_string())],
            None,
        ),
        Refusal::OtherCluster { ours, theirs } => error(
            Code::FailedPrecondition,
            ErrorReason::ClusterMismatch,
            format!("this graph belongs to cluster {ours}, but the executor's credentials belong to cluster {theirs}"),
            &[(reason::OURS, ours), (reason::THEIRS, theirs)],
            None,
        ),
        Refusal::ProtocolUnsupported { min, max } => protocol_unsupported(*min, *max),
        Refusal::Superseded => error(
            Code::Aborted,
            ErrorReason::SessionSuperseded,
            "a newer process with this executor's name is connected; do not connect again".to_owned(),
            &[],
            None,
        ),
        Refusal::Drained => error(
            Code::FailedPrecondition,
            ErrorReason::SessionDrained,
            "this process of the executor asked to stop; a new one may connect".to_owned(),
            &[],
            None,
        ),
        Refusal::NameTaken => error(
            Code::PermissionDenied,
            ErrorReason::ExecutorNameTaken,
            "another caller has a session with this executor's name; use another name, or stop the other executor"
                .to_owned(),
            &[],
            Some(RETRY_LATER),
        ),
        Refusal::Untrusted { retry_in } => error(
            Code::PermissionDenied,
            ErrorReason::ExecutorUntrusted,
            format!(
                "this process sent too many wrong reports; the leader admits it again in {} s. Check whether its API server lags or another process has its credentials, then restart it",
                retry_in.as_secs()
            ),
            &[],
            Some(*retry_in),
        ),
        Refusal::OutOfTurn => violation("the first message must be a hello, and no later message may be a hello"),
        Refusal::TooManySessions { max } => limit_exceeded("sessions", *max),
    }
}

/// A protocol that this version does not support.
pub(super) fn protocol_unsupported(min: u32, max: u32) -> Status {
    error(
        Code::FailedPrecondition,
        ErrorReason::ProtocolUnsupported,
        format!("this replica supports protocol versions {min} to {max}"),
        &[(reason::MIN_VERSION, &min.to_string()), (reason::MAX_VERSION, &max.to_string())],
        None,
    )
}

/// An instance of a policy engine that cannot take part.
pub(super) fn not_joined(why: NotJoined, gate: &str) -> Status {
    let gate = clip(gate, TEXT_MAX_BYTES);
    match why {
        NotJoined::NotFound => gate_not_found(&gate),
        NotJoined::OtherTransport => error(
            Code::FailedPrecondition,
            ErrorReason::GateNotStreamed,
            format!("gate {gate} does not ask by StreamVerdicts: set spec.stream in its resource"),
            &[(reason::NAME, &gate)],
            None,
        ),
        NotJoined::TooMany => limit_exceeded("instances of one gate", INSTANCES_MAX),
    }
}

fn gate_not_found(gate: &str) -> Status {
    let gate = clip(gate, TEXT_MAX_BYTES);
    error(Code::NotFound, ErrorReason::GateNotFound, format!("there is no gate {gate}"), &[(reason::NAME, &gate)], None)
}

/// A gate that could not be bypassed.
pub(super) fn bypass(failure: &press::Failure, gate: &str) -> Status {
    match failure {
        press::Failure::NotInstalled | press::Failure::NotFound => gate_not_found(gate),
        press::Failure::Observes => observes(),
        press::Failure::Refused(why) => api_server_refuses(why),
    }
}

/// An unreadable message, or one that the protocol does not allow now.
pub(super) fn violation(how: &str) -> Status {
    let how = clip(how, TEXT_MAX_BYTES);
    let field = how.strip_prefix("field ").and_then(|rest| rest.split_once(' ')).map(|(field, _)| field.to_owned());
    invalid(ErrorReason::StreamProtocolViolation, &field.unwrap_or_default(), how, &[])
}

/// A limit of this replica is reached.
pub(super) fn limit_exceeded(what: &str, max: usize) -> Status {
    error(
        Code::ResourceExhausted,
        ErrorReason::LimitExceeded,
        format!("more than {max} {what}"),
        &[(reason::LIMIT, &max.to_string())],
        Some(RETRY_LATER),
    )
}

/// An answer took too long.
pub(super) fn too_slow(within: Duration) -> Status {
    let seconds = within.as_secs().to_string();
    let how = format!("the answer took longer than {seconds} s; ask for less, or try again later");
    error(Code::ResourceExhausted, ErrorReason::LimitExceeded, how, &[(reason::LIMIT, &seconds)], Some(RETRY_LATER))
}

/// A limit of streams is reached. `user` is the caller, if callers are authenticated.
pub(super) fn streams_exceeded(what: &str, max: usize, user: &str) -> Status {
    let user = clip(user, TEXT_MAX_BYTES);
    let metadata = [(reason::LIMIT, &*max.to_string()), (reason::LIMIT_NAME, what), (reason::USER, &user)];
    let how = format!("more than {max} {what}; end one, or try again later");
    error(Code::ResourceExhausted, ErrorReason::LimitExceeded, how, &metadata, Some(RETRY_LATER))
}

/// The graph knows no object of this uid.
pub(super) fn object_not_found(uid: &str) -> Status {
    let uid = clip(uid, TEXT_MAX_BYTES);
    let how = format!("the graph knows no object {uid}");
    error(Code::NotFound, ErrorReason::ObjectNotFound, how, &[(reason::UID, &uid)], None)
}

/// The graph knows no object at this address.
pub(super) fn object_not_found_at(kind: &str, namespace: &str, name: &str) -> Status {
    let [kind, namespace, name] = [kind, namespace, name].map(|text| clip(text, TEXT_MAX_BYTES));
    let slash = if namespace.is_empty() { "" } else { "/" };
    let how = format!("the graph knows no {kind} {namespace}{slash}{name}");
    let metadata = [(reason::KIND, &*kind), (reason::NAMESPACE, &namespace), (reason::NAME, &name)];
    error(Code::NotFound, ErrorReason::ObjectNotFound, how, &metadata, None)
}

/// The name and the uid belong to different objects.
pub(super) fn uid_mismatch(how: &str, uid: &str) -> Status {
    let (how, uid) = (clip(how, TEXT_MAX_BYTES), clip(uid, TEXT_MAX_BYTES));
    error(Code::FailedPrecondition, ErrorReason::UidMismatch, how, &[(reason::UID, &uid)], None)
}

/// A walk exceeds its limit.
pub(super) fn traversal_limit(max: usize) -> Status {
    error(
        Code::ResourceExhausted,
        ErrorReason::TraversalLimit,
        format!("more than {max} objects are connected with this one; ExportGraph returns all of them"),
        &[(reason::LIMIT, &max.to_string())],
        None,
    )
}

/// A token that this service did not issue.
pub(super) fn token_malformed(field: &str) -> Status {
    let how = format!("this service did not issue {field}");
    invalid(ErrorReason::TokenMalformed, field, how, &[(reason::FIELD, field)])
}

/// A consistency token of another cluster.
pub(super) fn token_from_other_cluster(field: &str, ours: &str, theirs: &str) -> Status {
    let theirs = clip(theirs, TEXT_MAX_BYTES);
    let how = format!("this graph belongs to cluster {ours}, but the token belongs to cluster {theirs:?}");
    invalid(ErrorReason::TokenFromOtherCluster, field, how, &[(reason::OURS, ours), (reason::THEIRS, &theirs)])
}

/// A token or a position that may not exist in the current history of the store.
pub(super) fn token_from_other_history(why: &str) -> Status {
    let how = format!("the store has another history: {why}; start again without the token");
    error(Code::FailedPrecondition, ErrorReason::TokenFromOtherHistory, how, &[], None)
}

/// The graph is not as fresh as requested.
pub(super) fn replica_behind(collection: &str, wanted: &str, position: &str, note: &str) -> Status {
    let (collection, wanted) = (clip(collection, TEXT_MAX_BYTES), clip(wanted, TEXT_MAX_BYTES));
    let at = if position.is_empty() { String::new() } else { format!(", it is at {position}") };
    error(
        Code::Unavailable,
        ErrorReason::ReplicaBehind,
        format!("{collection} has not reached {wanted}{at}{note}; another replica may have"),
        &[(reason::COLLECTION, &collection), (reason::WANTED, &wanted), (reason::POSITION, position)],
        Some(RETRY_LATER),
    )
}

/// A collection that cannot be listed, so that its freshness is unknown.
pub(super) fn collection_unsynced(collection: &str) -> Status {
    let collection = clip(collection, TEXT_MAX_BYTES);
    error(
        Code::Unavailable,
        ErrorReason::CollectionUnsynced,
        format!("{collection} cannot be listed or watched at the moment; ListCoverage shows the reason"),
        &[(reason::COLLECTION, &collection)],
        Some(RETRY_LATER),
    )
}

/// Resource versions without an order.
pub(super) fn not_comparable(collection: &str) -> Status {
    let collection = clip(collection, TEXT_MAX_BYTES);
    error(
        Code::FailedPrecondition,
        ErrorReason::ResourceVersionNotComparable,
        format!("resource versions of {collection} are not ordered numbers"),
        &[(reason::COLLECTION, &collection)],
        None,
    )
}

/// The API server does not support a feature that the call needs, or does not write a guard.
pub(super) fn api_server_refuses(why: &str) -> Status {
    let why = clip(why, TEXT_MAX_BYTES);
    error(Code::Unavailable, ErrorReason::ApiServerRefuses, why, &[], Some(RETRY_LATER))
}

/// A status of the transport or of a third-party service, without a reason.
pub(super) fn of_transport(code: Code, message: &str) -> Status {
    let reason = if code == Code::Unimplemented {
        ErrorReason::MethodUnknown
    } else if code == Code::OutOfRange {
        ErrorReason::MessageTooLarge
    } else if code == Code::Internal {
        ErrorReason::MessageUnreadable
    } else {
        ErrorReason::CallFailed
    };
    error(code, reason, clip(message, TEXT_MAX_BYTES), &[], None)
}

/// This replica stops.
pub(super) fn stopping() -> Status {
    let how = "this replica is stopping".to_owned();
    error(Code::Unavailable, ErrorReason::Stopping, how, &[], Some(RETRY_ELSEWHERE))
}

/// An invalid expression.
pub(super) fn expression_invalid(field: &str, Mistake { what, at }: &Mistake) -> Status {
    let (line, column) = at.map(|(line, column)| (line.to_string(), column.to_string())).unwrap_or_default();
    let place = if at.is_some() { format!(", line {line}, column {column}") } else { String::new() };
    let places: &[(&str, &str)] = &[(reason::FIELD, field), (reason::LINE, &line), (reason::COLUMN, &column)];
    let known = if at.is_some() { places } else { &places[..1] };
    let how = format!("field {field}{place}: {what}");
    invalid(ErrorReason::ExpressionInvalid, field, how, known)
}

/// The kept answer of a page token is gone.
pub(super) fn page_token_expired() -> Status {
    let how = "this replica does not keep the answer that page_token names; start again without page_token".to_owned();
    error(Code::FailedPrecondition, ErrorReason::PageTokenExpired, how, &[], None)
}

/// A page token of another request.
pub(super) fn page_token_mismatch() -> Status {
    let how = "the token belongs to a request with other arguments".to_owned();
    invalid(ErrorReason::PageTokenMismatch, "page_token", how, &[])
}

/// The log has no event of this decision.
pub(super) fn decision_not_found(which: &str) -> Status {
    let which = clip(which, TEXT_MAX_BYTES);
    let how = format!("the log keeps no event of decision {which:?}");
    error(Code::NotFound, ErrorReason::DecisionNotFound, how, &[], None)
}

/// Events after a position are no longer kept.
pub(super) fn position_compacted(extent: &Extent) -> Status {
    let oldest = extent.oldest.to_string();
    error(
        Code::OutOfRange,
        ErrorReason::PositionCompacted,
        format!("log {} begins at position {oldest}; start there, or with open decisions", extent.log_id),
        &[(reason::LOG_ID, &extent.log_id), (reason::OLDEST_SEQUENCE, &oldest)],
        None,
    )
}

/// Events after a position were never written.
pub(super) fn position_not_written(gap: &Gap) -> Status {
    let next = gap.next.clone().unwrap_or_default();
    let oldest = next.sequence.to_string();
    error(
        Code::OutOfRange,
        ErrorReason::PositionCompacted,
        format!("log {} lacks {} events before position {oldest}; start there, or accept gaps", next.log_id, gap.lost),
        &[(reason::LOG_ID, &next.log_id), (reason::OLDEST_SEQUENCE, &oldest)],
        None,
    )
}

/// This replica has not read the shared log, or not far enough.
pub(super) fn log_unavailable(why: &str) -> Status {
    error(Code::Unavailable, ErrorReason::LogUnavailable, clip(why, TEXT_MAX_BYTES), &[], Some(RETRY_LATER))
}

/// A reader is too slow.
pub(super) fn slow_consumer(sent: Option<&Position>) -> Status {
    let (log_id, last) = sent.map(|at| (at.log_id.as_str(), at.sequence.to_string())).unwrap_or_default();
    error(
        Code::ResourceExhausted,
        ErrorReason::SlowConsumer,
        format!("the reader is too slow; everything up to position {last} was sent"),
        &[(reason::LOG_ID, log_id), (reason::LAST_SEQUENCE, &last)],
        None,
    )
}

/// An object watcher is too slow. Its last message has the place to resume from.
pub(super) fn slow_watcher() -> Status {
    let how = "the client read nothing for too long; call again with the last resume_token".to_owned();
    error(Code::ResourceExhausted, ErrorReason::SlowConsumer, how, &[], None)
}

/// A reader of the status is too slow. It loses nothing.
pub(super) fn slow_status_reader() -> Status {
    let how = "the client read nothing for too long; call again: the first message is the whole status".to_owned();
    error(Code::ResourceExhausted, ErrorReason::SlowConsumer, how, &[], None)
}

/// A reader of an export is too slow.
pub(super) fn slow_export_reader() -> Status {
    let how = "the client read nothing for too long; call again: the export begins again".to_owned();
    error(Code::ResourceExhausted, ErrorReason::SlowConsumer, how, &[], None)
}

/// An invalid request field.
pub(super) fn bad_field(field: &str, why: &str) -> Status {
    let how = format!("field {field} {}", clip(why, TEXT_MAX_BYTES));
    invalid(ErrorReason::FieldInvalid, field, how, &[(reason::FIELD, field)])
}

/// Reads the duration of a field.
pub(super) fn duration(field: &str, value: prost_types::Duration) -> Result<Duration, Status> {
    let nanos = u32::try_from(value.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let seconds = u64::try_from(value.seconds).ok().filter(|seconds| *seconds <= DURATION_MAX_SECONDS);
    match (seconds, nanos) {
        (Some(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ if value.seconds < 0 || value.nanos < 0 => Err(bad_field(field, "is negative")),
        _ => Err(bad_field(field, "is not a duration of at most 10,000 years")),
    }
}

/// The call has no credentials.
pub(super) fn credentials_missing(audience: &str) -> Status {
    let how = format!("a bearer token for the audience {audience:?} or a client certificate is required");
    error(Code::Unauthenticated, ErrorReason::CredentialsMissing, how, &[(reason::AUDIENCE, audience)], None)
}

/// The credentials are refused.
pub(super) fn credentials_invalid(audience: &str, why: &str) -> Status {
    let why = clip(why, TEXT_MAX_BYTES);
    error(Code::Unauthenticated, ErrorReason::CredentialsInvalid, why, &[(reason::AUDIENCE, audience)], None)
}

/// A token that was issued for another service.
pub(super) fn token_for_other_audience(audience: &str) -> Status {
    let how = format!("the token is for another audience; request one for {audience:?}");
    error(Code::Unauthenticated, ErrorReason::TokenForOtherAudience, how, &[(reason::AUDIENCE, audience)], None)
}

/// The caller lacks a right. Without a namespace: the right for all namespaces.
pub(super) fn access_denied(user: &str, right: Right, namespace: &str) -> Status {
    let Right { verb, resource } = right;
    let namespace = clip(namespace, TEXT_MAX_BYTES);
    let place = match namespace.as_str() {
        "" => "for all namespaces".to_owned(),
        one => format!("in namespace {one:?}"),
    };
    let what = format!("{verb} {resource}.{GROUP} {place}");
    let group = (reason::API_GROUP, GROUP);
    denied(user, &what, &[(reason::VERB, verb), group, (reason::RESOURCE, resource), (reason::NAMESPACE, &namespace)])
}

/// The caller may not do `what`. `right` is the metadata about it.
fn denied(user: &str, what: &str, right: &[(&str, &str)]) -> Status {
    let user = clip(user, TEXT_MAX_BYTES);
    let metadata = [&[(reason::USER, user.as_str())][..], right].concat();
    error(Code::PermissionDenied, ErrorReason::AccessDenied, format!("user {user:?} may not {what}"), &metadata, None)
}

/// The caller lacks a right for one virtual object.
pub(super) fn name_denied(user: &str, Right { verb, resource }: Right, name: &str) -> Status {
    let name = clip(name, TEXT_MAX_BYTES);
    let what = format!("{verb} {resource}.{GROUP} {name:?}");
    let group = (reason::API_GROUP, GROUP);
    denied(user, &what, &[(reason::VERB, verb), group, (reason::RESOURCE, resource), (reason::NAME, &name)])
}

/// The caller lacks the right to get an object of the API server.
pub(super) fn object_denied(user: &str, group: &str, resource: &str, namespace: &str) -> Status {
    let [group, resource, namespace] = [group, resource, namespace].map(|text| clip(text, TEXT_MAX_BYTES));
    let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
    let what = format!("get this object of {}{place}", in_group(&resource, &group));
    let group = (reason::API_GROUP, &*group);
    denied(user, &what, &[(reason::VERB, "get"), group, (reason::RESOURCE, &resource), (reason::NAMESPACE, &namespace)])
}

/// The caller lacks the right to get a path of the admin port.
pub(super) fn path_denied(user: &str, path: &str) -> Status {
    let path = clip(path, TEXT_MAX_BYTES);
    let right = [(reason::VERB, "get"), (reason::RESOURCE, &*path), (reason::NAMESPACE, "")];
    denied(user, &format!("get {path}"), &right)
}

/// The name of an executor differs from the pod of its token.
pub(super) fn executor_mismatch(executor: &str, pod: &str) -> Status {
    let (executor, pod) = (clip(executor, TEXT_MAX_BYTES), clip(pod, TEXT_MAX_BYTES));
    let bound = if pod.is_empty() { "to no pod".to_owned() } else { format!("to pod {pod:?}") };
    let how = format!(
        "executor {executor:?} has a token that is bound {bound}; the executor's name must be the name of its pod"
    );
    let metadata: &[(&str, &str)] = &[(reason::EXECUTOR, &executor), (reason::POD, &pod)];
    error(Code::PermissionDenied, ErrorReason::ExecutorMismatch, how, metadata, None)
}

/// The API server did not answer a review.
pub(super) fn review_unavailable(why: &str) -> Status {
    let how = format!("cannot authenticate or authorize the caller: {}", clip(why, TEXT_MAX_BYTES));
    error(Code::Unavailable, ErrorReason::ReviewUnavailable, how, &[], Some(RETRY_LATER))
}

/// A request without trailers.
pub(super) fn not_grpc() -> Status {
    let how = "the request lacks the header `te: trailers`, which every gRPC call has: a proxy removes the header, or the client does not use gRPC";
    error(Code::InvalidArgument, ErrorReason::NotGrpc, how.to_owned(), &[], None)
}

/// A method that this version does not serve.
pub(super) fn method_unknown() -> Status {
    let how = "this version has no such service or method".to_owned();
    error(Code::Unimplemented, ErrorReason::MethodUnknown, how, &[], None)
}

/// An unknown pause.
pub(super) fn pause_not_found(name: &str) -> Status {
    let name = clip(name, TEXT_MAX_BYTES);
    error(Code::NotFound, ErrorReason::PauseNotFound, format!("there is no pause {name}"), &[("name", &name)], None)
}

/// A pause that could not be written or deleted.
pub(super) fn pause(failure: &press::Failure, name: &str) -> Status {
    match failure {
        press::Failure::NotInstalled => error(
            Code::FailedPrecondition,
            ErrorReason::PausesNotInstalled,
            format!("{} is not defined on this API server; install it with: {INSTALL}", definition(GuardKind::Pause)),
            &[("install", INSTALL)],
            None,
        ),
        press::Failure::NotFound => pause_not_found(name),
        press::Failure::Observes => observes(),
        press::Failure::Refused(why) => api_server_refuses(why),
    }
}

/// The mode has no rights to write guards.
fn observes() -> Status {
    let what = "mode observe creates and changes no guards; use kubectl";
    error(Code::FailedPrecondition, ErrorReason::ModeObserve, what.to_owned(), &[], None)
}

/// A comparison in mode enforce.
pub(super) fn not_observing() -> Status {
    let why = "this service carries its decisions out; only mode observe compares them with another collector";
    error(Code::FailedPrecondition, ErrorReason::NotObserving, why.to_owned(), &[], None)
}

pub(super) fn not_leader(leadership: &Leadership) -> Status {
    // After a suspension this replica may not know the new holder yet. It must not name itself as the leader.
    let Some(holder) = leadership.holder.as_ref().filter(|_| !leadership.leading) else {
        return error(
            Code::Unavailable,
            ErrorReason::NoLeader,
            "no replica leads at the moment".to_owned(),
            &[],
            Some(RETRY_LATER),
        );
    };
    let holder = clip(holder, TEXT_MAX_BYTES);
    let leader = (reason::LEADER, holder.as_str());
    let metadata: &[(&str, &str)] = match leadership.endpoint.as_str() {
        "" => &[leader],
        endpoint if endpoint.len() > TEXT_MAX_BYTES => &[leader],
        endpoint => &[leader, (reason::LEADER_ENDPOINT, endpoint)],
    };
    error(
        Code::Unavailable,
        ErrorReason::NotLeader,
        format!("this replica does not lead; {holder} leads"),
        metadata,
        Some(RETRY_ELSEWHERE),
    )
}

fn error(
    code: Code,
    reason: ErrorReason,
    message: String,
    metadata: &[(&str, &str)],
    retry_after: Option<Duration>,
) -> Status {
    let mut details = details(reason, metadata);
    if let Some(after) = retry_after {
        details.set_retry_info(Some(after));
    }
    let mut status = Status::with_error_details(code, message, details);
    if let Some(after) = retry_after {
        let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from(millis));
    }
    status
}

/// An invalid argument, with its field; empty if it has none.
fn invalid(reason: ErrorReason, field: &str, how: String, metadata: &[(&str, &str)]) -> Status {
    let mut details = details(reason, metadata);
    details.add_bad_request_violation(field, how.as_str());
    Status::with_error_details(Code::InvalidArgument, how, details)
}

fn details(reason: ErrorReason, metadata: &[(&str, &str)]) -> ErrorDetails {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ErrorDetails::with_error_info(reason::text(reason), reason::DOMAIN, metadata)
}
