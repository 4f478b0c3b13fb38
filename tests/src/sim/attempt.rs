//! Between the engine's attempts and the API server of a world: requests and answers, as the shell of an executor has them.

use engine::attempt::{self, Failure, FailureKind, Live, NotFound, Patch, Reply, Status};
use engine::object::{Object, ObjectRef, ResourceVersion, Uid};
use engine::time::Time;
use engine::work::{
    Action, CheckBy, ExistenceCheck, Finding, FindingResult, Outcome, PropagationPolicy, Sighting, WorkLease,
    WorkReport,
};
use serde_json::Value;
use std::time::Duration;

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Get(ObjectRef),
    ListName(ObjectRef),
    /// `checked`: since when the owners it rests on may not have waited any more.
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
    /// What the engine asks for, by a lease that was decided at this version.
    pub(super) fn of(request: attempt::Request<Value>, decided_at: Option<ResourceVersion>) -> Request {
        match request {
            attempt::Request::Get(object) => Request::Get(object),
            attempt::Request::Delete { target, version, policy } => {
                Request::Delete { target, version, policy, checked: None }
            }
            attempt::Request::Patch { target, patch } => Request::Patch { target, patch, decided_at },
        }
    }

    /// What it is about.
    pub(super) fn object(&self) -> &ObjectRef {
        match self {
            Request::Get(object) | Request::ListName(object) => object,
            Request::Delete { target, .. } | Request::Patch { target, .. } => target,
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Request::Delete { .. } | Request::Patch { .. })
    }

    /// For the counts of a run.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Get(_) => "reads",
            Request::ListName(_) => "lists",
            Request::Delete { .. } => "deletions",
            Request::Patch { patch: Patch::ReplaceFinalizers { .. }, .. } => "finalizer patches",
            Request::Patch { .. } => "reference patches",
        }
    }
}

/// Its answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Object(Box<Live<Value>>),
    /// A write that was accepted; with the object where the answer shows it.
    Accepted(Option<Box<Live<Value>>>),
    List {
        version: ResourceVersion,
        items: Vec<Object>,
    },
    Refused(Refused),
    /// The connection broke after the request was sent.
    Nothing,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    /// A Status whose details name the object.
    pub(super) names_object: bool,
    pub(super) webhook: Option<String>,
    pub(super) webhook_broken: bool,
    pub(super) retry_after: Option<Duration>,
}

impl Answer {
    /// As the engine is told.
    pub(super) fn told(self) -> attempt::Answer<Value> {
        let empty = |code| Reply {
            code,
            retry_after: None,
            status: None,
            not_found: None,
            object: None,
            excerpt: String::new(),
        };
        match self {
            Answer::Object(live) => Ok(Reply { object: Some(live), ..empty(200) }),
            Answer::Accepted(object) => Ok(Reply { object, ..empty(200) }),
            Answer::List { .. } => Ok(empty(200)),
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

/// An object of the store, as an answer shows it.
pub(super) fn live(stored: &sandbox::model::Object) -> Option<Box<Live<Value>>> {
    executor_service::object_of(&Value::Object(stored.clone())).map(Box::new)
}

/// A lease that only asks, one question after the other.
pub(super) struct Questions {
    lease: WorkLease,
    started: Time,
    pub(super) cancelled: bool,
    findings: Vec<Finding>,
    calls: u32,
    /// Nobody answers a stranger.
    unknown: bool,
}

impl Questions {
    pub(super) fn new(lease: WorkLease, now: Time) -> Questions {
        Questions { lease, started: now, cancelled: false, findings: Vec::new(), calls: 0, unknown: false }
    }

    /// The next request, or the end.
    pub(super) fn next(&mut self, now: Time) -> Result<Request, Box<WorkReport>> {
        let over = self.cancelled || now >= self.started + self.lease.execution_limit;
        match self.check() {
            Some(check) if !over && !self.unknown => {
                let ExistenceCheck { object, by } = check.clone();
                self.calls += 1;
                Ok(match by {
                    CheckBy::List => Request::ListName(object),
                    CheckBy::Read => Request::Get(object),
                })
            }
            asked => {
                let (outcome, code) = match asked {
                    _ if self.unknown => (Outcome::Unauthenticated, 401),
                    Some(_) => (Outcome::Abandoned, 0),
                    None => (Outcome::Verified, 0),
                };
                Err(Box::new(WorkReport {
                    findings: std::mem::take(&mut self.findings),
                    api_calls: self.calls,
                    execution_time: now.since(self.started),
                    ..WorkReport::new(&self.lease, outcome, code)
                }))
            }
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        let Some(check) = self.check().cloned() else { return };
        self.unknown = matches!(&answer, Answer::Refused(refused) if refused.code == 401);
        let result = found(&check, answer);
        self.findings.push(Finding { check, result });
    }

    fn check(&self) -> Option<&ExistenceCheck> {
        let Action::Verify { checks } = &self.lease.item.action else { return None };
        checks.get(self.findings.len())
    }
}

fn found(check: &ExistenceCheck, answer: Answer) -> FindingResult {
    let by_read = check.by == CheckBy::Read;
    let is_it = |uid: &Uid| *uid == check.object.uid;
    match answer {
        Answer::List { version, items } => match items.into_iter().next() {
            None => FindingResult::Absent(Some(version)),
            Some(item) if is_it(&item.uid) => FindingResult::Exists(sighting(item)),
            Some(_) => FindingResult::OtherUid(Some(version)),
        },
        Answer::Object(found) if is_it(&found.sighting.uid) => FindingResult::Exists(found.sighting),
        Answer::Object(_) => FindingResult::OtherUid(None),
        Answer::Refused(refused) if refused.code == 404 && refused.names_object && by_read => {
            FindingResult::Absent(None)
        }
        Answer::Refused(refused) if refused.code == 404 => FindingResult::KindUnresolved,
        Answer::Refused(refused) if refused.code == 403 => FindingResult::Forbidden,
        Answer::Refused(_) | Answer::Nothing | Answer::Accepted(_) => FindingResult::Failed,
    }
}

fn sighting(object: Object) -> Sighting {
    Sighting { uid: object.uid, resource_version: object.resource_version, facts: object.facts }
}
