//! Existence checks: what the API server says of one uid under one name, without any conclusion.

use super::{address, metadata, request};
use crate::answer::{classify, excerpt};
use crate::clock::Clock;
use crate::server::{Server, Verb};
use engine::attempt::{Ending, Question, Request, Seen, failed, seen};
use engine::object::{ObjectRef, ResourceVersion, clip};
use engine::time::Time;
use engine::work::{
    Action, CHECKS_MAX, CheckBy, ExistenceCheck, Finding, FindingResult, MESSAGE_MAX_BYTES, Outcome, WorkLease,
    WorkReport,
};
use futures::StreamExt;
use http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Checks of one item under way at once.
const CHECKS_AT_ONCE: usize = 4;
/// Metadata is all that a list has to show.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A step either yields what the next one needs, or ends the attempt.
type Step<T> = Result<T, Box<Ending>>;
/// A finding, and the answer where it was none.
type Found = (FindingResult, Option<Ending>);

/// Asks one attempt to send nothing more.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One lease under way.
struct Questions {
    server: Server,
    clock: Clock,
    cancel: Cancel,
    ends: Time,
    api_calls: AtomicU32,
}

/// Carries out one lease that only asks.
pub(super) async fn run(server: Server, clock: Clock, lease: Arc<WorkLease>, cancel: Cancel) -> WorkReport {
    let started = clock.now();
    let ends = started + lease.execution_limit;
    let questions = Questions { server, clock, cancel, ends, api_calls: AtomicU32::new(0) };
    let Action::Verify { checks } = &lease.item.action else {
        return lost(&lease, "the item asks for a write");
    };
    let ending = questions.verify(checks).await.unwrap_or_else(|ending| ending);
    let api_calls = questions.api_calls.load(Ordering::Relaxed);
    WorkReport { api_calls, execution_time: clock.now().since(started), ..ending.report(&lease) }
}

/// The report of an attempt whose task died.
pub(super) fn lost(lease: &WorkLease, why: &str) -> WorkReport {
    let message = format!("the attempt broke off inside the executor: {why}");
    WorkReport { execution_time: Duration::ZERO, ..Ending::because(Outcome::Ambiguous, &message).report(lease) }
}

impl Questions {
    /// Asks every check. The first answer that settled nothing lends the report its status and message.
    async fn verify(&self, checks: &[ExistenceCheck]) -> Step<Box<Ending>> {
        if checks.len() > CHECKS_MAX {
            let message = format!("the work item holds {} checks; at most {CHECKS_MAX} are asked", checks.len());
            return Err(Ending::because(Outcome::Invalid, &message));
        }
        let asked = futures::stream::iter(checks.to_vec()).map(|check| self.ask(check));
        let mut answers = std::pin::pin!(asked.buffered(CHECKS_AT_ONCE));
        let mut ending = Ending::because(Outcome::Verified, "");
        while let Some(answer) = answers.next().await {
            let (finding, unsettled) = answer?;
            ending.findings.push(finding);
            if let Some(reading) = unsettled.filter(|_| ending.message.is_empty()) {
                let findings = std::mem::take(&mut ending.findings);
                ending = Box::new(Ending { outcome: Outcome::Verified, findings, ..reading });
            }
        }
        Ok(ending)
    }

    fn may_go_on(&self) -> Step<()> {
        if self.cancel.0.load(Ordering::Acquire) {
            return Err(Ending::because(Outcome::Abandoned, "stopped by the leader"));
        }
        if self.clock.now() >= self.ends {
            return Err(Ending::because(Outcome::Abandoned, "the item's execution limit ran out"));
        }
        Ok(())
    }

    async fn ask(&self, check: ExistenceCheck) -> Step<(Finding, Option<Ending>)> {
        self.may_go_on()?;
        self.api_calls.fetch_add(1, Ordering::Relaxed);
        let (result, unsettled) = self.check(&check).await;
        // Says nothing of the object, and would say the same of all others.
        if let Some(reading) = unsettled.as_ref().filter(|reading| reading.outcome == Outcome::Unauthenticated) {
            return Err(Box::new(reading.clone()));
        }
        Ok((Finding { check, result }, unsettled))
    }

    async fn check(&self, check: &ExistenceCheck) -> Found {
        match check.by {
            CheckBy::List => self.check_by_list(&check.object).await,
            CheckBy::Read => self.check_by_read(&check.object).await,
        }
    }

    async fn check_by_list(&self, object: &ObjectRef) -> Found {
        let Some(path) = address::list_by_name(object) else {
            let nowhere = failed(Question::Read, &request::unaddressable(object));
            return (FindingResult::Failed, Some(*nowhere));
        };
        let answer = self.server.call(Verb::List, request::get(path, ACCEPT_LIST), None).await;
        let reading = *classify(Question::Read, object, answer.as_ref());
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => match metadata::parse_list(&answer.body) {
                Some(listed) => in_list(object, listed, reading),
                None => {
                    let message = format!("no complete list: {}", excerpt(&answer));
                    (FindingResult::Failed, Some(Ending { message: clip(&message, MESSAGE_MAX_BYTES), ..reading }))
                }
            },
            // A list is never told that an object is not there: whatever 404 this is, it speaks of the kind.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => (FindingResult::KindUnresolved, Some(reading)),
            Ok(_) | Err(_) => (unsettled(&reading), Some(reading)),
        }
    }

    async fn check_by_read(&self, object: &ObjectRef) -> Found {
        let answer = super::send(self.server.clone(), Request::Get(object.clone()), None).await;
        match seen(object, answer) {
            Seen::Here(live) => (FindingResult::Exists(live.sighting), None),
            Seen::OtherUid(_) => (FindingResult::OtherUid(None), None),
            Seen::Gone(_) => (FindingResult::Absent(None), None),
            Seen::Unreadable(reading) if reading.http_status == 404 && reading.webhook.is_none() => {
                (FindingResult::KindUnresolved, Some(*reading))
            }
            Seen::Unreadable(reading) => (unsettled(&reading), Some(*reading)),
        }
    }
}

fn in_list(object: &ObjectRef, listed: metadata::Listed, reading: Ending) -> Found {
    let position = ResourceVersion::parse(&listed.resource_version);
    let mut items = listed.items.into_iter();
    let (item, more) = (items.next(), items.next().is_some());
    let Some(item) = item else {
        return (FindingResult::Absent(Some(position)), None);
    };
    // One name in one place can have one object. Anything else is a server that did not understand the selector.
    if more || item.name != *object.name || item.namespace != *object.namespace {
        let message = "the list holds objects of other names: the server ignores field selectors".to_owned();
        return (FindingResult::Failed, Some(Ending { message, ..reading }));
    }
    match item.live {
        Some(live) if live.sighting.uid == object.uid => (FindingResult::Exists(live.sighting), None),
        Some(_) => (FindingResult::OtherUid(Some(position)), None),
        None => {
            let message = "the list shows the name without a uid".to_owned();
            (FindingResult::Failed, Some(Ending { message, ..reading }))
        }
    }
}

fn unsettled(reading: &Ending) -> FindingResult {
    if reading.outcome == Outcome::Forbidden { FindingResult::Forbidden } else { FindingResult::Failed }
}
