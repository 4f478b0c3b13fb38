//! The executor's attempts as pure code: what one lease does at the API server, one request at a time.

use engine::object::{Object, ObjectRef, OwnerReference, ResourceVersion};
use engine::time::Time;
use engine::work::{Action, Finding, Outcome, PropagationPolicy, Sighting, WorkLease, WorkReport};
use serde_json::Value;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

mod deletion;
mod patches;
mod verification;

/// As many writes as one attempt sends again after conflicts that changed nothing.
const RETRIES_MAX: u32 = 3;

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Get(ObjectRef),
    ListName(ObjectRef),
    Delete { target: ObjectRef, version: ResourceVersion, policy: PropagationPolicy },
    Patch { target: ObjectRef, form: Form, body: Value, what: What, decided_at: Option<ResourceVersion> },
}

impl Request {
    /// What it is about.
    pub(super) fn object(&self) -> &ObjectRef {
        match self {
            Request::Get(object) | Request::ListName(object) => object,
            Request::Delete { target, .. } | Request::Patch { target, .. } => target,
        }
    }

    /// For the counts of a run.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Get(_) => "reads",
            Request::ListName(_) => "lists",
            Request::Delete { .. } => "deletions",
            Request::Patch { what: What::References, .. } => "reference patches",
            Request::Patch { what: What::Finalizer(_), .. } => "finalizer patches",
        }
    }
}

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Strategic,
    Merge,
}

/// What a patch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    References,
    Finalizer(String),
}

/// Its answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Object(Object),
    /// A write that was accepted; with the object where the answer shows it.
    Accepted(Option<Object>),
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

/// Between an attempt and the world.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) request: Option<Request>,
    pub(super) answer: Option<Answer>,
    /// On the executor's clock.
    pub(super) now: Time,
    pub(super) writes_end: Time,
    pub(super) cancelled: bool,
    calls: u32,
}

/// An attempt under way.
pub(super) struct Attempt {
    pub(super) port: Rc<RefCell<Port>>,
    future: Pin<Box<dyn Future<Output = WorkReport>>>,
}

impl Attempt {
    pub(super) fn new(lease: WorkLease, now: Time, writes_end: Time) -> Attempt {
        let port = Rc::new(RefCell::new(Port { now, writes_end, ..Port::default() }));
        let run = Run { port: port.clone(), lease, started: now };
        Attempt { port, future: Box::pin(run.report()) }
    }

    /// Goes on until the next request, or to the end.
    pub(super) fn step(&mut self) -> Option<WorkReport> {
        let mut context = Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(report) => Some(report),
            Poll::Pending => None,
        }
    }
}

struct Run {
    port: Rc<RefCell<Port>>,
    lease: WorkLease,
    started: Time,
}

#[derive(Debug)]
struct Ending {
    outcome: Outcome,
    observed: Option<Object>,
    findings: Vec<Finding>,
    refused: Refused,
}

type Step<T> = Result<T, Box<Ending>>;

fn end(outcome: Outcome) -> Box<Ending> {
    Box::new(Ending { outcome, observed: None, findings: Vec::new(), refused: Refused::default() })
}

fn seen(outcome: Outcome, object: Object) -> Box<Ending> {
    Box::new(Ending { observed: Some(object), ..*end(outcome) })
}

fn sighting(object: Object) -> Sighting {
    Sighting { uid: object.uid, resource_version: object.resource_version, facts: object.facts }
}

/// What a refusal means for a write, or for a read of the target.
fn refusal(refused: Refused) -> Box<Ending> {
    let outcome = match (refused.code, &refused.webhook) {
        (_, Some(_)) if refused.webhook_broken => Outcome::AdmissionFailed,
        (_, Some(_)) => Outcome::AdmissionDenied,
        (401, None) => Outcome::Unauthenticated,
        (403, None) => Outcome::Forbidden,
        (404, None) if refused.names_object => Outcome::Gone,
        (405, None) => Outcome::Unsupported,
        (409, None) => Outcome::Conflict,
        (429, None) => Outcome::Throttled,
        (400 | 422, None) => Outcome::Invalid,
        (_, None) => Outcome::Transient,
    };
    Box::new(Ending { refused, ..*end(outcome) })
}

enum Written {
    Accepted(Option<Object>),
    Conflict(Refused),
    UnknownPatch,
    Refused(Refused),
}

impl Run {
    async fn report(self) -> WorkReport {
        let ending = match self.carry_out().await {
            Ok(ending) | Err(ending) => ending,
        };
        let port = self.port.borrow();
        WorkReport {
            observed: ending.observed.map(sighting),
            findings: ending.findings,
            webhook: ending.refused.webhook,
            retry_after: ending.refused.retry_after,
            api_calls: port.calls,
            execution_time: port.now.since(self.started),
            ..WorkReport::new(&self.lease, ending.outcome, ending.refused.code)
        }
    }

    async fn carry_out(&self) -> Step<Box<Ending>> {
        match &self.lease.item.action {
            Action::Delete { propagation_policy, owner_checks } => self.delete(*propagation_policy, owner_checks).await,
            Action::RemoveOwnerReferences { owner_uids, entries } => {
                let goes = |owner: &OwnerReference| owner_uids.contains(&owner.uid) || entries.contains(owner);
                self.remove(&goes, entries.is_empty().then_some(owner_uids.as_slice())).await
            }
            Action::UnblockOwnerReferences { entries } => self.unblock(entries).await,
            Action::RemoveFinalizer { finalizer } => self.remove_finalizer(finalizer).await,
            Action::Verify { checks } => self.verify(checks).await,
        }
    }

    fn target(&self) -> &ObjectRef {
        &self.lease.item.target
    }

    fn may_go_on(&self) -> Step<()> {
        let port = self.port.borrow();
        let over = port.cancelled || port.now >= self.started + self.lease.execution_limit;
        if over { Err(end(Outcome::Abandoned)) } else { Ok(()) }
    }

    fn may_write(&self) -> Step<()> {
        self.may_go_on()?;
        let port = self.port.borrow();
        if port.now >= port.writes_end { Err(end(Outcome::Abandoned)) } else { Ok(()) }
    }

    async fn call(&self, request: Request) -> Answer {
        {
            let mut port = self.port.borrow_mut();
            port.calls += 1;
            port.request = Some(request);
        }
        poll_fn(|_| match self.port.borrow_mut().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    async fn read_target(&self) -> Step<Object> {
        self.may_go_on()?;
        match self.call(Request::Get(self.target().clone())).await {
            Answer::Object(object) if object.uid == self.target().uid => Ok(object),
            Answer::Object(object) => Err(seen(Outcome::Replaced, object)),
            Answer::Refused(refused) => {
                let ending = refusal(refused);
                let conflict = ending.outcome == Outcome::Conflict;
                Err(if conflict { end(Outcome::Transient) } else { ending })
            }
            Answer::Nothing | Answer::Accepted(_) | Answer::List { .. } => Err(end(Outcome::Transient)),
        }
    }

    async fn write(&self, request: Request) -> Step<Written> {
        self.may_write()?;
        match self.call(request).await {
            Answer::Accepted(object) => Ok(Written::Accepted(object.filter(|object| object.uid == self.target().uid))),
            Answer::Refused(refused) if refused.code == 415 => Ok(Written::UnknownPatch),
            Answer::Refused(refused) => {
                let ending = refusal(refused.clone());
                if ending.outcome == Outcome::Conflict {
                    Ok(Written::Conflict(refused))
                } else if ending.outcome == Outcome::Invalid {
                    Ok(Written::Refused(refused))
                } else {
                    Err(ending)
                }
            }
            Answer::Nothing | Answer::Object(_) | Answer::List { .. } => Err(end(Outcome::Ambiguous)),
        }
    }

    async fn after_conflict(&self, against: &ResourceVersion, refused: Refused) -> Step<Object> {
        let live = self.read_target().await?;
        if live.resource_version == *against {
            return Err(Box::new(Ending { refused, ..*seen(Outcome::AdmissionFailed, live) }));
        }
        Ok(live)
    }

    fn digest(&self) -> Step<u64> {
        self.lease.item.preconditions.as_ref().map(|wanted| wanted.facts_digest).ok_or_else(|| end(Outcome::Invalid))
    }

    fn version(&self) -> Step<ResourceVersion> {
        let known = self.lease.item.preconditions.as_ref();
        known.map(|wanted| wanted.resource_version.clone()).ok_or_else(|| end(Outcome::Invalid))
    }

    fn reads_first(&self) -> bool {
        self.lease.item.read_first || self.lease.previous_attempt_ambiguous
    }

    fn as_decided(&self, live: Object) -> Step<ResourceVersion> {
        if live.facts.digest() == self.digest()? {
            return Ok(live.resource_version);
        }
        Err(seen(Outcome::Conflict, live))
    }
}
