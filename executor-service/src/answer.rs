//! Parses answers of the API server. The engine interprets them.

use engine::attempt::{Failure, FailureKind, Reply, Status};
use engine::object::ObjectRef;
use kube_api::{Answer, CallError, classify_not_found, parse_object, parse_status};
use serde_json::Value;

#[cfg(test)]
mod tests;

/// Maximum number of bytes of an answer other than a Status that are forwarded.
const EXCERPT_MAX_BYTES: usize = 200;

/// The beginning of an unexpected answer, for messages.
pub(crate) fn excerpt(answer: &Answer) -> String {
    let head = &answer.body[..answer.body.len().min(EXCERPT_MAX_BYTES)];
    format!("{} {:?}", answer.content_type, String::from_utf8_lossy(head))
}

/// An answer to a request about `object`.
pub(crate) fn reply(object: &ObjectRef, answer: &Answer) -> Reply<Value> {
    let accepted = answer.status.is_success();
    let status = if accepted { None } else { parse_status(answer) };
    let shown = if accepted { parse_object(&answer.body) } else { None };
    let is_known = status.is_some() || shown.is_some();
    Reply {
        code: answer.status.as_u16(),
        retry_after: answer.retry_after,
        status: status.map(|status| Status {
            reason: status.reason,
            message: status.message,
            retry_after_seconds: status.details.map_or(0, |details| details.retry_after_seconds),
        }),
        not_found: classify_not_found(answer, &object.group, &object.resource, &object.name),
        object: shown.map(Box::new),
        audit_id: answer.audit_id.clone().unwrap_or_default(),
        excerpt: if is_known { String::new() } else { excerpt(answer) },
    }
}

/// Why there is no answer.
pub(crate) fn failure(error: &CallError) -> Failure {
    let kind = match error {
        CallError::NotSent { .. } => FailureKind::NotSent,
        CallError::NoCredentials { .. } => FailureKind::NoCredentials,
        CallError::Ambiguous { .. } | CallError::TooLarge { .. } => FailureKind::NoAnswer,
    };
    Failure { kind, cause: error.to_string() }
}
