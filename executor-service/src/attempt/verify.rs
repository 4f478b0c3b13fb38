//! Existence checks: what the API server says of one uid under one name, without any conclusion.

use super::{ACCEPT_LIST, Attempt, Ending, Seen, Step, address, get, metadata, read};
use crate::classify::{Question, Reading, classify, excerpt};
use crate::server::Verb;
use engine::object::{ObjectRef, ResourceVersion, clip};
use engine::work::{CHECKS_MAX, CheckBy, ExistenceCheck, Finding, FindingResult, MESSAGE_MAX_BYTES, Outcome};
use futures::StreamExt;
use http::StatusCode;
use std::sync::atomic::Ordering;

/// Checks of one item under way at once.
const CHECKS_AT_ONCE: usize = 4;

/// A finding, and the answer where it was none.
type Found = (FindingResult, Option<Reading>);

impl Attempt<'_> {
    /// Asks every check. The first answer that settled nothing lends the report its status and message.
    pub(super) async fn verify(&self, checks: &[ExistenceCheck]) -> Step<Ending> {
        if checks.len() > CHECKS_MAX {
            let message = format!("the work item holds {} checks; at most {CHECKS_MAX} are asked", checks.len());
            return Err(Box::new(Ending::because(Outcome::Invalid, &message)));
        }
        let asked = futures::stream::iter(checks.to_vec()).map(|check| self.ask(check));
        let mut answers = std::pin::pin!(asked.buffered(CHECKS_AT_ONCE));
        let mut ending = Ending::because(Outcome::Verified, "");
        while let Some(answer) = answers.next().await {
            let (finding, unsettled) = answer?;
            ending.findings.push(finding);
            if let Some(reading) = unsettled.filter(|_| ending.message.is_empty()) {
                let findings = std::mem::take(&mut ending.findings);
                ending = Ending { outcome: Outcome::Verified, findings, ..Ending::from(reading) };
            }
        }
        Ok(ending)
    }

    async fn ask(&self, check: ExistenceCheck) -> Step<(Finding, Option<Reading>)> {
        self.may_go_on()?;
        self.api_calls.fetch_add(1, Ordering::Relaxed);
        let (result, unsettled) = self.check(&check).await;
        // Says nothing of the object, and would say the same of all others.
        if let Some(reading) = unsettled.as_ref().filter(|reading| reading.outcome == Outcome::Unauthenticated) {
            return Err(Box::new(Ending::from(reading.clone())));
        }
        Ok((Finding { check, result }, unsettled))
    }
}

impl Attempt<'_> {
    async fn check(&self, check: &ExistenceCheck) -> Found {
        match check.by {
            CheckBy::List => self.check_by_list(&check.object).await,
            CheckBy::Read => self.check_by_read(&check.object).await,
        }
    }

    async fn check_by_list(&self, object: &ObjectRef) -> Found {
        let Some(path) = address::list_by_name(object) else {
            return (FindingResult::Failed, Some(Reading::from(super::unaddressable(object))));
        };
        let answer = self.server.call(Verb::List, get(path, ACCEPT_LIST)).await;
        let reading = classify(Question::Read, object, answer.as_ref());
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => match metadata::parse_list(&answer.body) {
                Some(listed) => in_list(object, listed, reading),
                None => {
                    let message = format!("no complete list: {}", excerpt(&answer));
                    (FindingResult::Failed, Some(Reading { message: clip(&message, MESSAGE_MAX_BYTES), ..reading }))
                }
            },
            // A list is never told that an object is not there: whatever 404 this is, it speaks of the kind.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => (FindingResult::KindUnresolved, Some(reading)),
            Ok(_) | Err(_) => (failed(&reading), Some(reading)),
        }
    }

    async fn check_by_read(&self, object: &ObjectRef) -> Found {
        match read(&self.server, object).await {
            Ok(Seen::Here(live)) => (FindingResult::Exists(live.sighting), None),
            Ok(Seen::OtherUid(_)) => (FindingResult::OtherUid(None), None),
            Ok(Seen::Gone(_)) => (FindingResult::Absent(None), None),
            Err(reading) if reading.http_status == 404 && reading.webhook.is_none() => {
                (FindingResult::KindUnresolved, Some(reading))
            }
            Err(reading) => (failed(&reading), Some(reading)),
        }
    }
}

fn in_list(object: &ObjectRef, listed: metadata::Listed, reading: Reading) -> Found {
    let position = ResourceVersion::parse(&listed.resource_version);
    let mut items = listed.items.into_iter();
    let (item, more) = (items.next(), items.next().is_some());
    let Some(item) = item else {
        return (FindingResult::Absent(Some(position)), None);
    };
    // One name in one place can have one object. Anything else is a server that did not understand the selector.
    if more || item.name != *object.name || item.namespace != *object.namespace {
        let message = "the list holds objects of other names: the server ignores field selectors".to_owned();
        return (FindingResult::Failed, Some(Reading { message, ..reading }));
    }
    match item.live {
        Some(live) if live.sighting.uid == object.uid => (FindingResult::Exists(live.sighting), None),
        Some(_) => (FindingResult::OtherUid(Some(position)), None),
        None => {
            let message = "the list shows the name without a uid".to_owned();
            (FindingResult::Failed, Some(Reading { message, ..reading }))
        }
    }
}

fn failed(reading: &Reading) -> FindingResult {
    if reading.outcome == Outcome::Forbidden { FindingResult::Forbidden } else { FindingResult::Failed }
}
