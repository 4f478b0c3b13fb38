//! Questions whether objects are there.

use super::{Answer, Ending, Request, Run, Step, end, refusal, sighting};
use engine::object::ObjectRef;
use engine::work::{CheckBy, ExistenceCheck, Finding, FindingResult, Outcome};

impl Run {
    pub(super) async fn verify(&self, checks: &[ExistenceCheck]) -> Step<Box<Ending>> {
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
