//! What an answer of the API server means for the item it was asked for. Pure: the same answer, the same meaning.

use engine::object::{ObjectRef, clip};
use engine::work::{MESSAGE_MAX_BYTES, Outcome};
use runtime::kubernetes::{Answer, CallError, NotFound, Status, classify_not_found, parse_status};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The longest wait that an answer may ask for: a server that names a day has a clock or a unit wrong.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// How much of an answer that is no Status is passed on.
const EXCERPT_MAX_BYTES: usize = 200;
/// The longest webhook or policy name that is passed on: object names end at 253 bytes.
const WEBHOOK_NAME_MAX_BYTES: usize = 253;
/// Reasons are single words.
const REASON_MAX_BYTES: usize = 128;
/// How a denial by a webhook begins, whatever the status code the webhook chose.
const WEBHOOK_DENIAL: &str = "admission webhook \"";
/// What stands before the name of a webhook that could not be asked.
const WEBHOOK_FAILURE: &str = "failed calling webhook \"";
/// What stands before the name of a policy that refuses.
const POLICY_DENIALS: [&str; 2] = ["ValidatingAdmissionPolicy '", "MutatingAdmissionPolicy '"];

/// Whether the question could have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Read,
    Write,
}

/// The meaning of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// [`Outcome::Done`] for any 2xx; [`Outcome::Conflict`] for any 409, whoever raised it: only a second look tells a lost race from
    /// a webhook that answers 409.
    pub(crate) outcome: Outcome,
    /// 0 where there was no answer.
    pub(crate) http_status: u16,
    /// `reason` of the Status, or empty.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The webhook or policy that refused or failed.
    pub(crate) webhook: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

/// Reads the answer to a question about `object`.
pub(crate) fn classify(question: Question, object: &ObjectRef, answer: Result<&Answer, &CallError>) -> Reading {
    match answer {
        Ok(answer) => read_answer(object, answer),
        Err(failure) => read_failure(question, failure),
    }
}

/// The beginning of an answer, for messages about answers that are not what was asked for.
pub(crate) fn excerpt(answer: &Answer) -> String {
    let head = &answer.body[..answer.body.len().min(EXCERPT_MAX_BYTES)];
    format!("{} {:?}", answer.content_type, String::from_utf8_lossy(head))
}

fn read_failure(question: Question, failure: &CallError) -> Reading {
    let outcome = match (failure, question) {
        // A read that may have been answered has changed nothing: asking again is free.
        (CallError::NoCredentials { .. }, Question::Read | Question::Write) => Outcome::Unauthenticated,
        (CallError::NotSent { .. }, Question::Read | Question::Write)
        | (CallError::Ambiguous { .. } | CallError::TooLarge { .. }, Question::Read) => Outcome::Transient,
        (CallError::Ambiguous { .. } | CallError::TooLarge { .. }, Question::Write) => Outcome::Ambiguous,
    };
    Reading {
        outcome,
        http_status: 0,
        reason: String::new(),
        message: clip(&failure.to_string(), MESSAGE_MAX_BYTES),
        webhook: None,
        retry_after: None,
    }
}

fn read_answer(object: &ObjectRef, answer: &Answer) -> Reading {
    let code = answer.status.as_u16();
    let accepted = answer.status.is_success();
    let status = if accepted { None } else { parse_status(answer) };
    let said = status.as_ref().map_or("", |status| status.message.as_str());
    let not_found = classify_not_found(answer, &object.group, &object.resource, &object.name);
    let (outcome, webhook) = match (code, denier(said), failing_webhook(said)) {
        (200..=299, _, _) => (Outcome::Done, None),
        (409, denier, failing) => (Outcome::Conflict, denier.or(failing)),
        (_, Some(name), _) => (Outcome::AdmissionDenied, Some(name)),
        (_, None, Some(name)) => (Outcome::AdmissionFailed, Some(name)),
        (_, None, None) => (by_code(code, not_found), None),
    };
    let message = match (&status, not_found.and_then(shape)) {
        _ if accepted => String::new(),
        (Some(status), Some(shape)) => format!("HTTP 404, {shape}: {}", status.message),
        (Some(status), None) => status.message.clone(),
        (None, Some(shape)) => format!("HTTP 404, {shape}: {}", excerpt(answer)),
        (None, None) => format!("HTTP {code} without a Status: {}", excerpt(answer)),
    };
    Reading {
        outcome,
        http_status: code,
        reason: status.as_ref().map_or_else(String::new, |status| clip(&status.reason, REASON_MAX_BYTES)),
        message: clip(&message, MESSAGE_MAX_BYTES),
        webhook,
        retry_after: retry_after(answer, status.as_ref()),
    }
}

fn by_code(code: u16, not_found: Option<NotFound>) -> Outcome {
    match code {
        401 => Outcome::Unauthenticated,
        403 => Outcome::Forbidden,
        404 if not_found == Some(NotFound::ThisObject) => Outcome::Gone,
        // 415 belongs here: the caller has another form for a patch, and where it has none, nobody supports the request.
        405 | 415 => Outcome::Unsupported,
        400 | 422 => Outcome::Invalid,
        429 => Outcome::Throttled,
        _ => Outcome::Transient,
    }
}

fn shape(not_found: NotFound) -> Option<&'static str> {
    match not_found {
        NotFound::ThisObject => None,
        NotFound::Resource => Some("the resource is not served"),
        NotFound::Group => Some("the group is not served"),
        NotFound::Other => Some("not about this object"),
    }
}

/// Who refused, where the text is a denial.
fn denier(message: &str) -> Option<String> {
    if message.starts_with(WEBHOOK_DENIAL) && message.contains("denied the request") {
        return quoted_after(message, WEBHOOK_DENIAL, '"');
    }
    if message.contains("denied request") {
        return POLICY_DENIALS.iter().find_map(|before| quoted_after(message, before, '\''));
    }
    None
}

fn failing_webhook(message: &str) -> Option<String> {
    quoted_after(message, WEBHOOK_FAILURE, '"')
}

fn quoted_after(message: &str, before: &str, quote: char) -> Option<String> {
    let (_, rest) = message.split_once(before)?;
    let (name, _) = rest.split_once(quote)?;
    Some(clip(name, WEBHOOK_NAME_MAX_BYTES))
}

fn retry_after(answer: &Answer, status: Option<&Status>) -> Option<Duration> {
    let details = status.and_then(|status| status.details.as_ref());
    let in_details = details.map(|details| details.retry_after_seconds).filter(|&seconds| seconds > 0);
    let asked = answer.retry_after.or_else(|| in_details.map(|seconds| Duration::from_secs(u64::from(seconds))));
    asked.map(|span| span.min(RETRY_AFTER_MAX))
}
