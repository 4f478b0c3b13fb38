//! One lease, carried out: calls at the API server, and the report of how they ended.

use crate::classify::{Question, Reading, classify, excerpt};
use crate::clock::Clock;
use crate::server::{Server, Verb};
use crate::traces::Follow;
use engine::object::{GroupResource, ObjectRef, ResourceVersion, clip};
use engine::time::Time;
use engine::work::{Action, Finding, MESSAGE_MAX_BYTES, Outcome, Preconditions, Sighting, WorkLease, WorkReport};
use http::Request;
use metadata::Live;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod address;
mod delete;
mod finalizer;
pub(crate) mod metadata;
mod owners;
mod references;
#[cfg(test)]
mod tests;
mod verify;

/// How often one attempt sends its write again after a conflict that changed nothing the decision rested on.
const CONFLICT_RETRIES_MAX: u32 = 3;
/// Kinds remembered as not knowing strategic merge patches. Past that, the question is asked each time.
const MERGE_ONLY_MAX: usize = 4096;
/// Metadata is all an answer has to show, whatever the method.
const ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same for lists.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What all attempts of one executor share.
#[derive(Debug)]
pub(crate) struct Bench {
    server: Server,
    clock: Clock,
    owners: owners::OwnerReads,
    /// Kinds that answered 415 to a strategic merge patch.
    merge_only: Mutex<BTreeSet<GroupResource>>,
    /// Nanoseconds of the [`Time`] from which on nothing is written. Zero until a session says otherwise.
    writes_end: AtomicU64,
}

/// Asks one attempt to send nothing more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

/// One lease under way.
pub(crate) struct Attempt<'a> {
    bench: &'a Bench,
    /// The bench's, for requests of this attempt.
    server: Server,
    lease: &'a WorkLease,
    cancel: &'a Cancel,
    ends: Time,
    api_calls: AtomicU32,
    writes: AtomicU32,
}

/// How an attempt ended, less what every report carries.
#[derive(Debug)]
pub(crate) struct Ending {
    outcome: Outcome,
    observed: Option<Sighting>,
    findings: Vec<Finding>,
    http_status: u16,
    reason: String,
    message: String,
    webhook: Option<String>,
    retry_after: Option<Duration>,
}

/// A step either yields what the next one needs, or ends the attempt.
pub(crate) type Step<T> = Result<T, Box<Ending>>;

/// What a read of an object found, where it could be read at all.
#[derive(Debug)]
pub(crate) enum Seen {
    Here(Box<Live>),
    OtherUid(Box<Live>),
    /// 404 whose Status names the object.
    Gone(Reading),
}

/// What became of a write that was answered and is not the end yet.
#[derive(Debug)]
pub(crate) enum Written {
    /// With the object, where the answer shows it.
    Accepted(Reading, Option<Sighting>),
    Conflict(Reading),
    /// 415: the kind does not know this form of patch.
    UnknownPatch(Reading),
    /// 400 or 422: perhaps the uid in the body was not the object's.
    Refused(Reading),
}

impl Bench {
    /// A bench whose attempts may not write before [`Bench::set_writes_end`].
    pub(crate) fn new(server: Server, clock: Clock) -> Bench {
        Bench {
            server,
            clock,
            owners: owners::OwnerReads::default(),
            merge_only: Mutex::new(BTreeSet::new()),
            writes_end: AtomicU64::new(0),
        }
    }

    /// No write leaves at or after `end`.
    pub(crate) fn set_writes_end(&self, end: Time) {
        let nanos = u64::try_from(end.since_origin().as_nanos()).unwrap_or(u64::MAX);
        self.writes_end.store(nanos, Ordering::Release);
    }

    /// Whether the API server accepts this executor's credentials; the error says why not.
    pub(crate) async fn accepts_credentials(&self) -> Result<(), String> {
        self.server.accepts_credentials().await
    }

    fn writes_end(&self) -> Time {
        Time::from_origin(Duration::from_nanos(self.writes_end.load(Ordering::Acquire)))
    }

    fn knows_strategic_merge(&self, kind: &GroupResource) -> bool {
        !self.merge_only.lock().unwrap_or_else(PoisonError::into_inner).contains(kind)
    }

    fn remember_merge_only(&self, kind: GroupResource) {
        let mut merge_only = self.merge_only.lock().unwrap_or_else(PoisonError::into_inner);
        if merge_only.len() < MERGE_ONLY_MAX {
            merge_only.insert(kind);
        }
    }
}

impl Cancel {
    /// From now on nothing more is sent; what is on the wire stays there.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How an attempt ended, and how often it sent its write.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) report: WorkReport,
    pub(crate) writes: u32,
}

/// Carries out one lease. The report is complete; it says `Abandoned` where session, lease or leader stopped the write.
pub(crate) async fn run(bench: Arc<Bench>, lease: Arc<WorkLease>, cancel: Cancel, follow: Option<Follow>) -> Carried {
    let started = bench.clock.now();
    let attempt = Attempt {
        bench: &bench,
        server: bench.server.followed(follow),
        lease: &lease,
        cancel: &cancel,
        ends: started + lease.execution_limit,
        api_calls: AtomicU32::new(0),
        writes: AtomicU32::new(0),
    };
    let ending = match attempt.carry_out().await {
        Ok(ending) => ending,
        Err(ending) => *ending,
    };
    let api_calls = attempt.api_calls.load(Ordering::Relaxed);
    let report = report(&lease, ending, api_calls, bench.clock.now().since(started));
    Carried { report, writes: attempt.writes.load(Ordering::Relaxed) }
}

/// The report of an attempt whose task died: what it had sent, nobody knows.
pub(crate) fn lost(lease: &WorkLease, why: &str) -> WorkReport {
    let ending = Ending::because(Outcome::Ambiguous, &format!("the attempt broke off inside the executor: {why}"));
    report(lease, ending, 0, Duration::ZERO)
}

fn report(lease: &WorkLease, ending: Ending, api_calls: u32, execution_time: Duration) -> WorkReport {
    WorkReport {
        observed: ending.observed,
        findings: ending.findings,
        status_reason: ending.reason,
        message: ending.message,
        webhook: ending.webhook,
        retry_after: ending.retry_after,
        api_calls,
        execution_time,
        ..WorkReport::new(lease, ending.outcome, ending.http_status)
    }
}

impl Attempt<'_> {
    async fn carry_out(&self) -> Step<Ending> {
        match &self.lease.item.action {
            Action::Delete { propagation_policy, owner_checks } => self.delete(*propagation_policy, owner_checks).await,
            Action::RemoveOwnerReferences { owner_uids, entries } => self.remove_references(owner_uids, entries).await,
            Action::UnblockOwnerReferences { entries } => self.unblock_references(entries).await,
            Action::RemoveFinalizer { finalizer } => self.remove_finalizer(finalizer).await,
            Action::Verify { checks } => self.verify(checks).await,
        }
    }

    fn target(&self) -> &ObjectRef {
        &self.lease.item.target
    }

    /// Every write rests on preconditions; without them nothing is written.
    fn preconditions(&self) -> Step<&Preconditions> {
        self.lease.item.preconditions.as_ref().ok_or_else(|| {
            Box::new(Ending::because(Outcome::Invalid, "the work item asks for a write and carries no preconditions"))
        })
    }

    /// Whether the target has to be read before anything is written.
    fn reads_first(&self) -> bool {
        self.lease.item.read_first || self.lease.previous_attempt_ambiguous
    }

    fn path(&self) -> Step<String> {
        address::object_path(self.target()).ok_or_else(|| Box::new(unaddressable(self.target())))
    }

    /// Ends the attempt where the leader has stopped it or its time is over: reads too are for nothing then.
    fn may_go_on(&self) -> Step<()> {
        if self.cancel.is_cancelled() {
            return Err(Box::new(Ending::because(
                Outcome::Abandoned,
                "stopped by the leader before the write was sent",
            )));
        }
        if self.bench.clock.now() >= self.ends {
            let message = "the item's execution limit ran out before the write was sent";
            return Err(Box::new(Ending::because(Outcome::Abandoned, message)));
        }
        Ok(())
    }

    fn may_write(&self) -> Step<()> {
        self.may_go_on()?;
        if self.bench.clock.now() >= self.bench.writes_end() {
            let message = "the session ran out before the write was sent";
            return Err(Box::new(Ending::because(Outcome::Abandoned, message)));
        }
        Ok(())
    }

    /// Reads an object's metadata. Everything but an object or a 404 that names it ends the attempt.
    async fn read(&self, object: &ObjectRef) -> Step<Seen> {
        self.may_go_on()?;
        self.api_calls.fetch_add(1, Ordering::Relaxed);
        read(&self.server, object).await.map_err(|reading| Box::new(Ending::from(reading)))
    }

    /// Reads the target. Ends the attempt where the target is gone or replaced.
    async fn read_target(&self) -> Step<Live> {
        match self.read(self.target()).await? {
            Seen::Here(live) => Ok(*live),
            Seen::OtherUid(live) => {
                Err(Box::new(Ending::seen(Outcome::Replaced, "the name is taken by another uid", *live)))
            }
            Seen::Gone(reading) => Err(Box::new(Ending::from(reading))),
        }
    }

    /// Sends one write, if session, lease and leader still allow it. Never sends twice.
    async fn write(&self, verb: Verb, request: Request<Vec<u8>>) -> Step<Written> {
        self.may_write()?;
        self.api_calls.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        let answer = self.server.call(verb, request).await;
        let reading = classify(Question::Write, self.target(), answer.as_ref());
        if reading.outcome == Outcome::Done {
            let shown = answer.ok().and_then(|answer| metadata::parse_object(&answer.body));
            // An answer that shows another uid would be a server that ignored the precondition: not the target's sighting.
            let observed = shown.map(|live| live.sighting).filter(|sighting| sighting.uid == self.target().uid);
            Ok(Written::Accepted(reading, observed))
        } else if reading.outcome == Outcome::Conflict {
            Ok(Written::Conflict(reading))
        } else if reading.http_status == 415 {
            Ok(Written::UnknownPatch(reading))
        } else if reading.outcome == Outcome::Invalid {
            Ok(Written::Refused(reading))
        } else {
            Err(Box::new(Ending::from(reading)))
        }
    }

    /// After a refused write: what became of the target. Ends the attempt where it is gone, replaced, or exactly what was written
    /// against, because then no lost race explains a conflict.
    async fn after_conflict(&self, refused: Reading, against: &ResourceVersion) -> Step<Live> {
        let live = self.read_target().await?;
        if live.sighting.resource_version == *against {
            let message = format!(
                "HTTP 409 though the object is still at version {against}: it was no lost race, a webhook answers 409: {}",
                refused.message
            );
            return Err(Box::new(Ending {
                outcome: Outcome::AdmissionFailed,
                observed: Some(live.sighting),
                message: clip(&message, MESSAGE_MAX_BYTES),
                ..Ending::from(refused)
            }));
        }
        Ok(live)
    }

    /// After a 400 or 422 for a patch that carried the uid: the server answers so when the uid is another one.
    async fn after_refusal(&self, refused: Reading) -> Step<Ending> {
        let live = self.read_target().await?;
        Ok(Ending { observed: Some(live.sighting), ..Ending::from(refused) })
    }
}

/// One GET of an object's metadata. `Err` where the answer shows neither the object nor that it is not there.
async fn read(server: &Server, object: &ObjectRef) -> Result<Seen, Reading> {
    let Some(path) = address::object_path(object) else {
        return Err(Reading::from(unaddressable(object)));
    };
    let answer = server.call(Verb::Get, get(path, ACCEPT)).await;
    let reading = classify(Question::Read, object, answer.as_ref());
    if reading.outcome == Outcome::Gone {
        return Ok(Seen::Gone(reading));
    }
    let Some(answer) = answer.ok().filter(|_| reading.outcome == Outcome::Done) else {
        // A conflict is no answer to a read.
        let transient = reading.outcome == Outcome::Conflict;
        return Err(Reading { outcome: if transient { Outcome::Transient } else { reading.outcome }, ..reading });
    };
    match metadata::parse_object(&answer.body) {
        Some(live) if live.sighting.uid == object.uid => Ok(Seen::Here(Box::new(live))),
        Some(live) => Ok(Seen::OtherUid(Box::new(live))),
        None => {
            let message =
                format!("HTTP {} without an object that has a uid: {}", reading.http_status, excerpt(&answer));
            Err(Reading { outcome: Outcome::Transient, message: clip(&message, MESSAGE_MAX_BYTES), ..reading })
        }
    }
}

impl Ending {
    fn because(outcome: Outcome, message: &str) -> Ending {
        Ending {
            outcome,
            observed: None,
            findings: Vec::new(),
            http_status: 0,
            reason: String::new(),
            message: clip(message, MESSAGE_MAX_BYTES),
            webhook: None,
            retry_after: None,
        }
    }

    /// What a read showed was the end.
    fn seen(outcome: Outcome, message: &str, live: Live) -> Ending {
        Ending { observed: Some(live.sighting), http_status: 200, ..Ending::because(outcome, message) }
    }
}

impl From<Reading> for Ending {
    fn from(reading: Reading) -> Ending {
        Ending {
            outcome: reading.outcome,
            observed: None,
            findings: Vec::new(),
            http_status: reading.http_status,
            reason: reading.reason,
            message: reading.message,
            webhook: reading.webhook,
            retry_after: reading.retry_after,
        }
    }
}

impl From<Ending> for Reading {
    fn from(ending: Ending) -> Reading {
        Reading {
            outcome: ending.outcome,
            http_status: ending.http_status,
            reason: ending.reason,
            message: ending.message,
            webhook: ending.webhook,
            retry_after: ending.retry_after,
        }
    }
}

fn unaddressable(object: &ObjectRef) -> Ending {
    let message = format!(
        "{} {:?} in namespace {:?} has no path at the API server: names are not empty, not endless, and hold neither '/' nor '%'",
        object.group_resource(),
        clip(&object.name, 253),
        clip(&object.namespace, 253)
    );
    Ending::because(Outcome::Invalid, &message)
}

fn get(path: String, accept: &'static str) -> Request<Vec<u8>> {
    request(http::Method::GET, path, accept, None, Vec::new())
}

fn request(
    method: http::Method,
    path: String,
    accept: &'static str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> Request<Vec<u8>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // `address` writes nothing but unreserved characters, escapes and separators, and not too many of them.
    *request.uri_mut() = path.try_into().expect("an encoded path is a URI");
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(accept));
    if let Some(content_type) = content_type {
        request.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    }
    request
}
