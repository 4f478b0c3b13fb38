//! The meaning of an answer of the API server. Pure: the same answer always has the same meaning.

use super::{Answer, Failure, FailureKind, Live};
use crate::object::{ObjectRef, clip};
use crate::work::{Finding, MESSAGE_MAX_BYTES, Outcome, Sighting, WorkLease, WorkReport, audit_id};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum wait that an answer may ask for. A server that asks for a day has a wrong clock or unit.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// Maximum length of a webhook or policy name. Object names end at 253 bytes.
const WEBHOOK_NAME_MAX_BYTES: usize = 253;
/// Maximum length of a reason. Reasons are single words.
const REASON_MAX_BYTES: usize = 128;
/// Prefix of a denial by a webhook, whatever its status code.
const WEBHOOK_DENIAL: &str = "admission webhook \"";
/// Text before the name of a webhook that failed.
const WEBHOOK_FAILURE: &str = "failed calling webhook \"";
/// Text before the name of a policy that refuses.
const POLICY_DENIALS: [&str; 2] = ["ValidatingAdmissionPolicy '", "MutatingAdmissionPolicy '"];

/// A complete answer, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<W> {
    /// The HTTP status code.
    pub code: u16,
    /// The wait in the answer's header.
    pub retry_after: Option<Duration>,
    /// The Status in the body, if it is one.
    pub status: Option<Status>,
    /// The kind of a 404; `None` for any other code.
    pub not_found: Option<NotFound>,
    /// The object in the body, if it is one with a uid.
    pub object: Option<Box<Live<W>>>,
    /// The beginning of any other body, for messages.
    pub excerpt: String,
    /// The id of this answer in the server's audit log; empty if unknown.
    pub audit_id: String,
}

/// The parts of a `metav1.Status` that the engine uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub reason: String,
    pub message: String,
    /// `details.retryAfterSeconds`; 0 without it.
    pub retry_after_seconds: u32,
}

/// The kinds of 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// A Status whose details name exactly this object.
    ThisObject,
    /// The group is served, the resource is not.
    Resource,
    /// The group is not served.
    Group,
    /// Another server answered, for example a proxy, or the Status is about something else.
    Other,
}

/// Whether a request may change an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Read,
    Write,
}

/// The end of an attempt, without the common fields of reports. It is also the meaning of one answer: a 2xx is
/// [`Outcome::Done`], and any 409 is [`Outcome::Conflict`]. Only a read can distinguish a lost race from a webhook that
/// answers 409.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub outcome: Outcome,
    /// 0 without an answer.
    pub http_status: u16,
    /// `reason` of the Status, or empty.
    pub reason: String,
    pub message: String,
    /// The webhook or policy that refused or failed.
    pub webhook: Option<String>,
    pub retry_after: Option<Duration>,
    pub observed: Option<Sighting>,
    pub findings: Vec<Finding>,
    /// From the last answered write.
    pub audit_id: String,
}

/// The result of reading an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<W> {
    Here(Box<Live<W>>),
    OtherUid(Box<Live<W>>),
    /// 404 whose Status names the object.
    Gone(Box<Ending>),
    /// Neither the object nor its absence.
    Unreadable(Box<Ending>),
}

/// The result of a sent write.
#[derive(Debug)]
pub(super) enum Written {
    /// The server accepted the write. The ending has the object, if the answer contains it.
    Accepted(Box<Ending>),
    Conflict(Box<Ending>),
    /// 415: the kind does not support this form of patch.
    UnknownPatch(Box<Ending>),
    /// 400 or 422. The uid in the body may differ from the object's.
    Refused(Box<Ending>),
    Ended(Box<Ending>),
}

impl Ending {
    /// An ending for an attempt without an answer.
    pub fn because(outcome: Outcome, message: &str) -> Box<Ending> {
        Box::new(Ending {
            outcome,
            http_status: 0,
            reason: String::new(),
            message: clip(message, MESSAGE_MAX_BYTES),
            webhook: None,
            retry_after: None,
            observed: None,
            findings: Vec::new(),
            audit_id: String::new(),
        })
    }

    /// An ending that follows from a read.
    pub(super) fn seen<W>(outcome: Outcome, message: &str, live: Live<W>) -> Box<Ending> {
        Box::new(Ending { observed: Some(live.sighting), http_status: 200, ..*Ending::because(outcome, message) })
    }

    pub(super) fn cancelled() -> Box<Ending> {
        Ending::because(Outcome::Abandoned, "stopped by the leader before the write was sent")
    }

    /// The report of a lease with this ending.
    pub fn report(self, lease: &WorkLease) -> WorkReport {
        // The API server may pass on the 401 of another server, which says nothing about the credentials.
        let is_theirs = lease.item.read_first && self.outcome == Outcome::Unauthenticated && self.http_status == 401;
        let outcome = if is_theirs { Outcome::Transient } else { self.outcome };
        WorkReport {
            observed: self.observed,
            findings: self.findings,
            status_reason: self.reason,
            message: self.message,
            webhook: self.webhook,
            retry_after: self.retry_after,
            audit_id: self.audit_id,
            api_calls: 0,
            ..WorkReport::new(lease, outcome, self.http_status)
        }
    }
}

/// The meaning of a request without an answer.
pub fn failed(question: Question, failure: &Failure) -> Box<Ending> {
    let outcome = match (failure.kind, question) {
        (FailureKind::NoCredentials, Question::Read | Question::Write) => Outcome::Unauthenticated,
        (FailureKind::Unaddressable, Question::Read | Question::Write) => Outcome::Invalid,
        // A read changes nothing, so it can be repeated safely.
        (FailureKind::NotSent, Question::Read | Question::Write) | (FailureKind::NoAnswer, Question::Read) => {
            Outcome::Transient
        }
        (FailureKind::NoAnswer, Question::Write) => Outcome::Ambiguous,
    };
    Ending::because(outcome, &failure.cause)
}

/// The meaning of a complete answer.
pub fn classify<W>(reply: &Reply<W>) -> Box<Ending> {
    let accepted = (200..300).contains(&reply.code);
    let status = reply.status.as_ref().filter(|_| !accepted);
    let said = status.map_or("", |status| status.message.as_str());
    let (outcome, webhook) = match (reply.code, denier(said), failing_webhook(said)) {
        (200..=299, _, _) => (Outcome::Done, None),
        (409, denier, failing) => (Outcome::Conflict, denier.or(failing)),
        (_, Some(name), _) => (Outcome::AdmissionDenied, Some(name)),
        (_, None, Some(name)) => (Outcome::AdmissionFailed, Some(name)),
        (code, None, None) => (by_code(code, reply.not_found), None),
    };
    let message = match (status, reply.not_found.and_then(shape)) {
        _ if accepted => String::new(),
        (Some(status), Some(shape)) => format!("HTTP 404, {shape}: {}", status.message),
        (Some(status), None) => status.message.clone(),
        (None, Some(shape)) => format!("HTTP 404, {shape}: {}", reply.excerpt),
        (None, None) => format!("HTTP {} without a Status: {}", reply.code, reply.excerpt),
    };
    let in_details = status.map(|status| status.retry_after_seconds).filter(|&seconds| seconds > 0);
    let asked = reply.retry_after.or_else(|| in_details.map(|seconds| Duration::from_secs(seconds.into())));
    Box::new(Ending {
        http_status: reply.code,
        reason: status.map_or_else(String::new, |status| clip(&status.reason, REASON_MAX_BYTES)),
        webhook,
        retry_after: asked.map(|span| span.min(RETRY_AFTER_MAX)),
        ..*Ending::because(outcome, &message)
    })
}

/// The result of reading `object`.
pub fn seen<W>(object: &ObjectRef, answer: Answer<W>) -> Seen<W> {
    let reply = match answer {
        Ok(reply) => reply,
        Err(failure) => return Seen::Unreadable(failed(Question::Read, &failure)),
    };
    let ending = classify(&reply);
    if ending.outcome == Outcome::Gone {
        return Seen::Gone(ending);
    }
    if ending.outcome != Outcome::Done {
        // A read cannot conflict.
        let transient = ending.outcome == Outcome::Conflict;
        let outcome = if transient { Outcome::Transient } else { ending.outcome };
        return Seen::Unreadable(Box::new(Ending { outcome, ..*ending }));
    }
    match reply.object {
        Some(live) if live.sighting.uid == object.uid => Seen::Here(live),
        Some(live) => Seen::OtherUid(live),
        None => {
            let message = format!("HTTP {} without an object that has a uid: {}", reply.code, reply.excerpt);
            let message = clip(&message, MESSAGE_MAX_BYTES);
            Seen::Unreadable(Box::new(Ending { outcome: Outcome::Transient, message, ..*ending }))
        }
    }
}

/// The result of a write to `target`. A write that was not sent had no effect.
pub(super) fn written<W>(target: &ObjectRef, answer: Answer<W>, left: bool) -> Written {
    let reply = match answer {
        Ok(reply) => reply,
        Err(failure) => {
            let question = if left { Question::Write } else { Question::Read };
            return Written::Ended(failed(question, &failure));
        }
    };
    let mut ending = classify(&reply);
    ending.audit_id = audit_id(&reply.audit_id);
    if ending.outcome == Outcome::Done {
        // An answer with another uid comes from a server that ignores the uid precondition.
        let shown = reply.object.map(|live| live.sighting);
        ending.observed = shown.filter(|sighting| sighting.uid == target.uid);
        Written::Accepted(ending)
    } else if ending.outcome == Outcome::Conflict {
        Written::Conflict(ending)
    } else if ending.http_status == 415 {
        Written::UnknownPatch(ending)
    } else if ending.outcome == Outcome::Invalid {
        Written::Refused(ending)
    } else {
        Written::Ended(ending)
    }
}

fn by_code(code: u16, not_found: Option<NotFound>) -> Outcome {
    match code {
        401 => Outcome::Unauthenticated,
        403 => Outcome::Forbidden,
        404 if not_found == Some(NotFound::ThisObject) => Outcome::Gone,
        // After a 415 the caller has another form for a patch. Otherwise the server does not support the request.
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
        NotFound::Group => Some("the API group is not served"),
        NotFound::Other => Some("the Status names another object"),
    }
}

/// The webhook or policy that refused, if the text is a denial.
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
