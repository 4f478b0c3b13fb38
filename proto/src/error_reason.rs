//! How the reason of an error is spelled in `google.rpc.ErrorInfo`, the same on both sides.

use crate::r#type::v1beta1::ErrorReason;

/// `ErrorInfo.domain` of every error of ours.
pub const DOMAIN: &str = "ownergraph.dev";

/// Metadata of `NOT_LEADER`: the identity of whoever leads.
pub const LEADER: &str = "leader";
/// Metadata of `NOT_LEADER`: where the leader is reached.
pub const LEADER_ENDPOINT: &str = "leaderEndpoint";
/// Metadata of `TERM_STALE`: uid of the election Lease of the newer term.
pub const ELECTION_UID: &str = "electionUid";
/// Metadata of `TERM_STALE`: number of the newer term.
pub const TERM_NUMBER: &str = "termNumber";
/// Metadata of `PROTOCOL_UNSUPPORTED`: the oldest version the leader speaks.
pub const MIN_VERSION: &str = "minVersion";
/// Metadata of `PROTOCOL_UNSUPPORTED`: the newest version the leader speaks.
pub const MAX_VERSION: &str = "maxVersion";
/// Metadata of `LIMIT_EXCEEDED`: the bound that was reached.
pub const LIMIT: &str = "limit";
/// Metadata of `LIMIT_EXCEEDED` of streams: which bound that is.
pub const LIMIT_NAME: &str = "limitName";
/// Metadata of `OBJECT_NOT_FOUND` and `UID_MISMATCH`: the uid that was asked for, or that is there.
pub const UID: &str = "uid";
/// Metadata of `CLUSTER_MISMATCH` and `TOKEN_FROM_OTHER_CLUSTER`: the cluster of the service that answers.
pub const OURS: &str = "ours";
/// Metadata of `CLUSTER_MISMATCH` and `TOKEN_FROM_OTHER_CLUSTER`: the cluster of the caller, or of its token.
pub const THEIRS: &str = "theirs";
/// Metadata of `FIELD_INVALID`, `EXPRESSION_INVALID` and `TOKEN_MALFORMED`: the field.
pub const FIELD: &str = "field";
/// Metadata of `EXPRESSION_INVALID`: the line of the first mistake, from 1.
pub const LINE: &str = "line";
/// Metadata of `EXPRESSION_INVALID`: the column of the first mistake, from 1.
pub const COLUMN: &str = "column";
/// Metadata of `REPLICA_BEHIND`, `COLLECTION_UNSYNCED` and `RESOURCE_VERSION_NOT_COMPARABLE`: the collection, as `resource.group`.
pub const COLLECTION: &str = "collection";
/// Metadata of `REPLICA_BEHIND`: what the collection should have reached.
pub const WANTED: &str = "wanted";
/// Metadata of `REPLICA_BEHIND`: what it has reached; empty where that is not known.
pub const POSITION: &str = "position";
/// Metadata of `POSITION_COMPACTED` and `SLOW_CONSUMER`: the log.
pub const LOG_ID: &str = "logId";
/// Metadata of `POSITION_COMPACTED`: the oldest event that is kept.
pub const OLDEST_SEQUENCE: &str = "oldestSequence";
/// Metadata of `SLOW_CONSUMER`: the last event the reader was sent.
pub const LAST_SEQUENCE: &str = "lastSequence";
/// Metadata of `CREDENTIALS_MISSING`, `CREDENTIALS_INVALID` and `TOKEN_FOR_OTHER_AUDIENCE`: what a token has to be for.
pub const AUDIENCE: &str = "audience";
/// Metadata of `ACCESS_DENIED`: who asked.
pub const USER: &str = "user";
/// Metadata of `ACCESS_DENIED`: the verb of the right that is lacking,
pub const VERB: &str = "verb";
/// its resource,
pub const RESOURCE: &str = "resource";
/// the group of that,
pub const API_GROUP: &str = "apiGroup";
/// and the namespace; empty for all of them.
pub const NAMESPACE: &str = "namespace";
/// Of an object.
pub const KIND: &str = "kind";
/// Of an object.
pub const NAME: &str = "name";
/// Metadata of `EXECUTOR_MISMATCH`: the name that the executor goes by,
pub const EXECUTOR: &str = "executor";
/// and the pod that its token is bound to; empty where it is bound to none.
pub const POD: &str = "pod";

const PREFIX: &str = "ERROR_REASON_";

/// `ErrorInfo.reason`: the name of the value without its prefix.
pub fn text(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Reads what [`text`] writes; `None` for a reason this build does not know.
pub fn parse(text: &str) -> Option<ErrorReason> {
    ErrorReason::from_str_name(&format!("{PREFIX}{text}"))
}
