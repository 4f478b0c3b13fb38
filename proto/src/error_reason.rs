//! The reasons of errors in `google.rpc.ErrorInfo`, for both sides.

use crate::r#type::v1beta1::ErrorReason;

/// `ErrorInfo.domain` of all errors of Ownergraph.
pub const DOMAIN: &str = "ownergraph.dev";

/// Metadata of `NOT_LEADER`: the identity of the leader.
pub const LEADER: &str = "leader";
/// Metadata of `NOT_LEADER`: the address of the leader.
pub const LEADER_ENDPOINT: &str = "leaderEndpoint";
/// Metadata of `TERM_STALE`: uid of the election Lease of the newer term.
pub const ELECTION_UID: &str = "electionUid";
/// Metadata of `TERM_STALE`: number of the newer term.
pub const TERM_NUMBER: &str = "termNumber";
/// Metadata of `PROTOCOL_UNSUPPORTED`: the oldest version of the leader.
pub const MIN_VERSION: &str = "minVersion";
/// Metadata of `PROTOCOL_UNSUPPORTED`: the newest version of the leader.
pub const MAX_VERSION: &str = "maxVersion";
/// Metadata of `LIMIT_EXCEEDED`: the limit.
pub const LIMIT: &str = "limit";
/// Metadata of `LIMIT_EXCEEDED` of streams: the name of the limit.
pub const LIMIT_NAME: &str = "limitName";
/// Metadata of `OBJECT_NOT_FOUND` and `UID_MISMATCH`: the requested uid, or the present one.
pub const UID: &str = "uid";
/// Metadata of `CLUSTER_MISMATCH` and `TOKEN_FROM_OTHER_CLUSTER`: the cluster of the service that answers.
pub const OURS: &str = "ours";
/// Metadata of `CLUSTER_MISMATCH` and `TOKEN_FROM_OTHER_CLUSTER`: the cluster of the caller, or of its token.
pub const THEIRS: &str = "theirs";
/// Metadata of `FIELD_INVALID`, `EXPRESSION_INVALID` and `TOKEN_MALFORMED`: the field.
pub const FIELD: &str = "field";
/// Metadata of `EXPRESSION_INVALID`: the line of the first error, from 1.
pub const LINE: &str = "line";
/// Metadata of `EXPRESSION_INVALID`: the column of the first error, from 1.
pub const COLUMN: &str = "column";
/// Metadata of `REPLICA_BEHIND`, `COLLECTION_UNSYNCED` and `RESOURCE_VERSION_NOT_COMPARABLE`: the collection, as
/// `resource.group`.
pub const COLLECTION: &str = "collection";
/// Metadata of `REPLICA_BEHIND`: the required position.
pub const WANTED: &str = "wanted";
/// Metadata of `REPLICA_BEHIND`: the reached position; empty if unknown.
pub const POSITION: &str = "position";
/// Metadata of `POSITION_COMPACTED` and `SLOW_CONSUMER`: the log.
pub const LOG_ID: &str = "logId";
/// Metadata of `POSITION_COMPACTED`: the oldest kept event.
pub const OLDEST_SEQUENCE: &str = "oldestSequence";
/// Metadata of `SLOW_CONSUMER`: the last sent event.
pub const LAST_SEQUENCE: &str = "lastSequence";
/// Metadata of `CREDENTIALS_MISSING`, `CREDENTIALS_INVALID` and `TOKEN_FOR_OTHER_AUDIENCE`: the required audience of a
/// token.
pub const AUDIENCE: &str = "audience";
/// Metadata of `ACCESS_DENIED`: the user.
pub const USER: &str = "user";
/// Metadata of `ACCESS_DENIED`: the verb of the missing right.
pub const VERB: &str = "verb";
/// Metadata of `ACCESS_DENIED`: the resource of the missing right.
pub const RESOURCE: &str = "resource";
/// Metadata of `ACCESS_DENIED`: the API group of that resource.
pub const API_GROUP: &str = "apiGroup";
/// Metadata of `ACCESS_DENIED`: the namespace; empty for all namespaces.
pub const NAMESPACE: &str = "namespace";
/// Metadata of `OBJECT_NOT_FOUND`: the kind of the object.
pub const KIND: &str = "kind";
/// Metadata of `OBJECT_NOT_FOUND`: the name of the object.
pub const NAME: &str = "name";
/// Metadata of `EXECUTOR_MISMATCH`: the name of the executor.
pub const EXECUTOR: &str = "executor";
/// Metadata of `EXECUTOR_MISMATCH`: the pod that its token is bound to; empty if there is none.
pub const POD: &str = "pod";

const PREFIX: &str = "ERROR_REASON_";

/// `ErrorInfo.reason`: the name of the value without its prefix.
pub fn text(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Parses the text of [`text`]. `None` for an unknown reason.
pub fn parse(text: &str) -> Option<ErrorReason> {
    ErrorReason::from_str_name(&format!("{PREFIX}{text}"))
}
