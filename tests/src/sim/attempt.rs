//! The executor's attempts as pure code: what one lease does at the API server, one request at a time.

use engine::object::{Object, ObjectRef, OwnerReference, ResourceVersion};
use engine::time::Time;
use engine::work::{
    Action, CheckBy, ExistenceCheck, Finding, FindingResult, Outcome, PropagationPolicy, Sighting, WorkLease,
    WorkReport,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

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
            lease: self.lease.id,
            item: self.lease.item.id,
            term: self.lease.term.clone(),
            attempt: self.lease.attempt,
            outcome: ending.outcome,
            observed: ending.observed.map(sighting),
            findings: ending.findings,
            http_status: ending.refused.code,
            status_reason: String::new(),
            message: String::new(),
            webhook: ending.refused.webhook,
            retry_after: ending.refused.retry_after,
            api_calls: port.calls,
            execution_time: port.now.since(self.started),
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

    async fn delete(&self, policy: PropagationPolicy, checks: &[ObjectRef]) -> Step<Box<Ending>> {
        let mut version = self.version()?;
        if self.reads_first() {
            let live = self.read_target().await?;
            if live.facts.terminating {
                return Ok(seen(Outcome::Unchanged, live));
            }
            version = self.as_decided(live)?;
        }
        for _ in 0..=RETRIES_MAX {
            self.check_owners(checks).await?;
            let request = Request::Delete { target: self.target().clone(), version: version.clone(), policy };
            let refused = match self.write(request).await? {
                Written::Accepted(object) => return Ok(Box::new(Ending { observed: object, ..*end(Outcome::Done) })),
                Written::Conflict(refused) => refused,
                Written::UnknownPatch => return Ok(end(Outcome::Transient)),
                Written::Refused(refused) => return Ok(refusal(refused)),
            };
            let live = self.after_conflict(&version, refused).await?;
            if live.facts.terminating || !live.resource_version.reached(&version) {
                return Ok(seen(Outcome::Conflict, live));
            }
            version = self.as_decided(live)?;
        }
        Ok(end(Outcome::Conflict))
    }

    /// Each owner is read one after the other; the oldest answer must still be fresh when the last has come.
    async fn check_owners(&self, owners: &[ObjectRef]) -> Step<()> {
        for _ in 0..5 {
            let sent = self.port.borrow().now;
            let (mut lives, mut unreadable, mut findings) = (false, None, Vec::new());
            for owner in owners {
                self.may_write()?;
                let result = match self.call(Request::Get(owner.clone())).await {
                    Answer::Object(object) if object.uid != owner.uid => FindingResult::OtherUid(None),
                    Answer::Object(object) if object.facts.deletes_dependents() => continue,
                    Answer::Object(object) => {
                        lives = true;
                        FindingResult::Exists(sighting(object))
                    }
                    Answer::Refused(refused) if refused.code == 404 && refused.names_object => {
                        FindingResult::Absent(None)
                    }
                    Answer::Refused(refused) => {
                        unreadable = Some(refused);
                        continue;
                    }
                    Answer::Nothing | Answer::Accepted(_) | Answer::List { .. } => {
                        unreadable = Some(Refused::default());
                        continue;
                    }
                };
                findings.push(Finding { check: ExistenceCheck { object: owner.clone(), by: CheckBy::Read }, result });
            }
            if lives || !findings.is_empty() {
                let outcome = if lives { Outcome::OwnerExists } else { Outcome::Conflict };
                return Err(Box::new(Ending { findings, ..*end(outcome) }));
            }
            if let Some(refused) = unreadable {
                let outcome = refusal(refused.clone()).outcome;
                let about_us = matches!(outcome, Outcome::Forbidden | Outcome::Unauthenticated);
                let outcome = if about_us { outcome } else { Outcome::Transient };
                return Err(Box::new(Ending { refused, ..*end(outcome) }));
            }
            if owners.is_empty() || self.port.borrow().now < sent + Duration::from_secs(1) {
                return Ok(());
            }
        }
        Err(end(Outcome::Transient))
    }

    fn patch(&self, form: Form, what: What, body: Value) -> Request {
        let decided_at = self.version().ok();
        Request::Patch { target: self.target().clone(), form, body, what, decided_at }
    }

    fn guarded(&self, version: Option<&ResourceVersion>, field: &str, list: Value) -> Value {
        let mut metadata = json!({ "uid": self.target().uid.to_string() });
        if let Some(version) = version {
            metadata["resourceVersion"] = Value::from(version.to_string());
        }
        metadata[field] = list;
        json!({ "metadata": metadata })
    }

    async fn remove(
        &self,
        goes: &dyn Fn(&OwnerReference) -> bool,
        by_uid: Option<&[engine::object::Uid]>,
    ) -> Step<Box<Ending>> {
        let known_version = self.version()?;
        let mut known = None;
        if self.reads_first() {
            let live = self.read_target().await?;
            if !live.facts.owners.iter().any(goes) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            self.as_decided(live.clone())?;
            known = Some(live);
        }
        if let Some(uids) = by_uid {
            let list = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid.to_string() })).collect();
            let body = self.guarded(None, "ownerReferences", Value::Array(list));
            match self.write(self.patch(Form::Strategic, What::References, body)).await? {
                Written::Accepted(object) => {
                    let moved = object.as_ref().is_none_or(|seen| seen.resource_version != known_version);
                    let outcome = if moved { Outcome::Done } else { Outcome::Unchanged };
                    return Ok(Box::new(Ending { observed: object, ..*end(outcome) }));
                }
                Written::Conflict(refused) => {
                    let live = self.after_conflict(&known_version, refused).await?;
                    return Ok(seen(Outcome::Conflict, live));
                }
                Written::Refused(refused) => {
                    let live = self.read_target().await?;
                    return Ok(Box::new(Ending { observed: Some(live), ..*refusal(refused) }));
                }
                Written::UnknownPatch => {}
            }
        }
        let keep = |owner: &OwnerReference| (!goes(owner)).then(|| written(owner, false));
        self.rewrite(known, false, goes, &keep).await
    }

    async fn unblock(&self, entries: &[OwnerReference]) -> Step<Box<Ending>> {
        let live = self.read_target().await?;
        let blocks = |owner: &OwnerReference| owner.blocks() && entries.contains(owner);
        if !live.facts.owners.iter().any(blocks) {
            return Ok(seen(Outcome::Unchanged, live));
        }
        self.as_decided(live.clone())?;
        let change = |owner: &OwnerReference| Some(written(owner, blocks(owner)));
        self.rewrite(Some(live), true, &blocks, &change).await
    }

    async fn rewrite(
        &self,
        known: Option<Object>,
        rests_on_facts: bool,
        meant: &dyn Fn(&OwnerReference) -> bool,
        change: &dyn Fn(&OwnerReference) -> Option<Value>,
    ) -> Step<Box<Ending>> {
        let mut live = match known {
            Some(live) => live,
            None => self.read_target().await?,
        };
        for _ in 0..=RETRIES_MAX {
            if !live.facts.owners.iter().any(meant) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            if rests_on_facts && live.facts.digest() != self.digest()? {
                return Ok(seen(Outcome::Conflict, live));
            }
            let list: Vec<Value> = live.facts.owners.iter().filter_map(change).collect();
            let list = if list.is_empty() { Value::Null } else { Value::Array(list) };
            let version = live.resource_version.clone();
            let body = self.guarded(Some(&version), "ownerReferences", list);
            live = match self.write(self.patch(Form::Merge, What::References, body)).await? {
                Written::Accepted(object) => return Ok(Box::new(Ending { observed: object, ..*end(Outcome::Done) })),
                Written::UnknownPatch => return Ok(end(Outcome::Transient)),
                Written::Conflict(refused) => self.after_conflict(&version, refused).await?,
                Written::Refused(refused) => {
                    let fresh = self.read_target().await?;
                    if fresh.resource_version == version {
                        return Ok(Box::new(Ending { observed: Some(fresh), ..*refusal(refused) }));
                    }
                    fresh
                }
            };
        }
        Ok(seen(Outcome::Conflict, live))
    }

    async fn remove_finalizer(&self, finalizer: &str) -> Step<Box<Ending>> {
        let mut live = self.read_target().await?;
        for _ in 0..=RETRIES_MAX {
            if !live.facts.has_finalizer(finalizer) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            if !live.facts.terminating {
                return Ok(seen(Outcome::Conflict, live));
            }
            let rest: Vec<String> = live
                .facts
                .finalizers
                .iter()
                .filter(|name| ***name != *finalizer)
                .map(|name| name.to_string())
                .collect();
            let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
            let version = live.resource_version.clone();
            let body = self.guarded(Some(&version), "finalizers", rest);
            let what = What::Finalizer(finalizer.to_owned());
            let refused = match self.write(self.patch(Form::Merge, what, body)).await? {
                Written::Accepted(object) => {
                    let observed = object.filter(|object| object.resource_version != version);
                    return Ok(Box::new(Ending { observed, ..*end(Outcome::Done) }));
                }
                Written::Conflict(refused) => refused,
                Written::UnknownPatch => return Ok(end(Outcome::Transient)),
                Written::Refused(refused) => {
                    let live = self.read_target().await?;
                    return Ok(Box::new(Ending { observed: Some(live), ..*refusal(refused) }));
                }
            };
            live = self.after_conflict(&version, refused).await?;
        }
        Ok(seen(Outcome::Conflict, live))
    }

    async fn verify(&self, checks: &[ExistenceCheck]) -> Step<Box<Ending>> {
        let mut ending = end(Outcome::Verified);
        for check in checks {
            self.may_go_on()?;
            let result = match check.by {
                CheckBy::List => self.by_list(&check.object).await?,
                CheckBy::Read => self.by_read(&check.object).await?,
            };
            ending.findings.push(Finding { check: check.clone(), result });
        }
        Ok(ending)
    }

    async fn by_list(&self, object: &ObjectRef) -> Step<FindingResult> {
        Ok(match self.call(Request::ListName(object.clone())).await {
            Answer::List { version, items } => match items.into_iter().next() {
                None => FindingResult::Absent(Some(version)),
                Some(item) if item.uid == object.uid => FindingResult::Exists(sighting(item)),
                Some(_) => FindingResult::OtherUid(Some(version)),
            },
            Answer::Refused(refused) if refused.code == 404 => FindingResult::KindUnresolved,
            Answer::Refused(refused) if refused.code == 403 => FindingResult::Forbidden,
            Answer::Refused(refused) if refused.code == 401 => return Err(refusal(refused)),
            Answer::Refused(_) | Answer::Nothing | Answer::Object(_) | Answer::Accepted(_) => FindingResult::Failed,
        })
    }

    async fn by_read(&self, object: &ObjectRef) -> Step<FindingResult> {
        Ok(match self.call(Request::Get(object.clone())).await {
            Answer::Object(found) if found.uid == object.uid => FindingResult::Exists(sighting(found)),
            Answer::Object(_) => FindingResult::OtherUid(None),
            Answer::Refused(refused) if refused.code == 404 && refused.names_object => FindingResult::Absent(None),
            Answer::Refused(refused) if refused.code == 404 => FindingResult::KindUnresolved,
            Answer::Refused(refused) if refused.code == 403 => FindingResult::Forbidden,
            Answer::Refused(refused) if refused.code == 401 => return Err(refusal(refused)),
            Answer::Refused(_) | Answer::Nothing | Answer::Accepted(_) | Answer::List { .. } => FindingResult::Failed,
        })
    }
}

/// A reference as it goes back to the server.
fn written(owner: &OwnerReference, unblock: bool) -> Value {
    let mut value = json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": owner.uid.to_string(),
    });
    if let Some(controller) = owner.controller {
        value["controller"] = Value::from(controller);
    }
    if let Some(blocks) = owner.block_owner_deletion {
        value["blockOwnerDeletion"] = Value::from(blocks && !unblock);
    }
    value
}
