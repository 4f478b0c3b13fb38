//! DELETE, guarded by uid and version, and by a look at the owners it rests on.

use super::{Answer, Ending, RETRIES_MAX, Refused, Request, Run, Step, Written, end, refusal, seen, sighting};
use engine::object::ObjectRef;
use engine::work::{CheckBy, ExistenceCheck, Finding, FindingResult, Outcome, PropagationPolicy};
use std::time::Duration;

impl Run {
    pub(super) async fn delete(&self, policy: PropagationPolicy, checks: &[ObjectRef]) -> Step<Box<Ending>> {
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
}
