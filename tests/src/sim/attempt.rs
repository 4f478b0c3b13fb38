//! Requests of the engine's attempts and the answers of the API server, in the form that the executor service has.

use engine::attempt::{self, Failure, FailureKind, Live, NotFound, Patch, Reply, Status};
use engine::object::{ObjectRef, ResourceVersion};
use engine::work::PropagationPolicy;
use serde_json::Value;
use std::time::Duration;

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Get(ObjectRef),
    /// `checked` is the time of the oldest owner check that the DELETE may rest on.
    Delete {
        target: ObjectRef,
        version: ResourceVersion,
        policy: PropagationPolicy,
        checked: Option<u64>,
    },
    Patch {
        target: ObjectRef,
        patch: Patch<Value>,
        decided_at: Option<ResourceVersion>,
    },
}

impl Request {
    /// The engine's request. `decided_at` is the version at which the lease was decided.
    pub(super) fn of(request: attempt::Request<Value>, decided_at: Option<ResourceVersion>) -> Request {
        match request {
            attempt::Request::Get(object) => Request::Get(object),
            attempt::Request::Delete { target, version, policy } => {
                Request::Delete { target, version, policy, checked: None }
            }
            attempt::Request::Patch { target, patch } => Request::Patch { target, patch, decided_at },
        }
    }

    /// The object of the request.
    pub(super) fn object(&self) -> &ObjectRef {
        match self {
            Request::Get(object) => object,
            Request::Delete { target, .. } | Request::Patch { target, .. } => target,
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Request::Delete { .. } | Request::Patch { .. })
    }

    /// The name under which a run counts the request.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Get(_) => "reads",
            Request::Delete { .. } => "deletions",
            Request::Patch { patch: Patch::DropFinalizer { .. } | Patch::ReplaceFinalizers { .. }, .. } => {
                "finalizer patches"
            }
            Request::Patch { .. } => "reference patches",
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Object(Box<Live<Value>>),
    /// The server accepted the write. The object is present if the answer contains it.
    Accepted(Option<Box<Live<Value>>>),
    Refused(Refused),
    /// The connection broke after the request was sent.
    Nothing,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    /// The server answered with a Status whose details name the object.
    pub(super) names_object: bool,
    pub(super) webhook: Option<String>,
    pub(super) webhook_broken: bool,
    pub(super) retry_after: Option<Duration>,
}

impl Answer {
    /// The reply in the form that the engine takes.
    pub(super) fn told(self) -> attempt::Answer<Value> {
        let empty = |code| Reply {
            code,
            retry_after: None,
            status: None,
            not_found: None,
            object: None,
            excerpt: String::new(),
            audit_id: String::new(),
        };
        match self {
            Answer::Object(live) => Ok(Reply { object: Some(live), ..empty(200) }),
            Answer::Accepted(object) => Ok(Reply { object, ..empty(200) }),
            Answer::Refused(refused) => {
                let message = match &refused.webhook {
                    Some(name) if refused.webhook_broken => format!("failed calling webhook \"{name}\": refused"),
                    Some(name) => format!("admission webhook \"{name}\" denied the request: no"),
                    None => String::from("refused"),
                };
                let shape = if refused.names_object { NotFound::ThisObject } else { NotFound::Other };
                Ok(Reply {
                    retry_after: refused.retry_after,
                    not_found: (refused.code == 404).then_some(shape),
                    status: Some(Status { message, ..Status::default() }),
                    ..empty(refused.code)
                })
            }
            Answer::Nothing => Err(Failure { kind: FailureKind::NoAnswer, cause: String::from("cut off") }),
        }
    }
}

/// The object of the store in the form in which an answer shows it.
pub(super) fn live(stored: &sandbox::model::Object) -> Option<Box<Live<Value>>> {
    kube_api::parse_object(&serde_json::to_vec(stored).ok()?).map(Box::new)
}
