//! Reports, returns, and their results.

use super::decision::{decision_id, parse_decision_id};
use super::{Malformed, NAME_MAX_BYTES, field};
use crate::work::v1beta1 as wire;
use crate::work::v1beta1::{finding, report_result, work_return};
use engine::work::{
    About, CHECKS_MAX, Finding, FindingResult, HeldLease, LeaseId, MESSAGE_MAX_BYTES, Outcome, ReportResult,
    ReturnCause, SessionNumber, WorkReport, WorkReturn, audit_id,
};

impl From<WorkReport> for wire::WorkReport {
    fn from(report: WorkReport) -> Self {
        wire::WorkReport {
            lease_id: report.lease.to_string(),
            item_id: report.item.to_string(),
            term: Some(report.term.into()),
            attempt: report.attempt,
            outcome: wire::Outcome::from(report.outcome).into(),
            observed: report.observed.map(Into::into),
            findings: report.findings.into_iter().take(CHECKS_MAX).map(Into::into).collect(),
            http_status: report.http_status.into(),
            status_reason: report.status_reason,
            message: report.message,
            retry_after: report.retry_after.map(field::encode_duration),
            api_calls: report.api_calls,
            execution_time: Some(field::encode_duration(report.execution_time)),
            webhook: report.webhook,
            about: report.about.map(|about| (*about).into()),
            audit_id: report.audit_id,
        }
    }
}

impl From<About> for wire::About {
    fn from(about: About) -> Self {
        wire::About {
            target: Some(about.target.into()),
            kind: wire::ItemKind::from(about.action).into(),
            decision_id: decision_id(about.decision),
        }
    }
}

/// `None` if the content cannot be read. Then the report names only its lease.
fn about(about: wire::About) -> Option<Box<About>> {
    let action = Option::from(about.kind())?;
    let target = field::nested(about.target, "target").ok()?;
    Some(Box::new(About { target, action, decision: parse_decision_id(&about.decision_id)? }))
}

impl TryFrom<wire::WorkReport> for WorkReport {
    type Error = Malformed;

    fn try_from(mut report: wire::WorkReport) -> Result<Self, Malformed> {
        // The first findings decide, so too many of them are no reason to end the stream.
        report.findings.truncate(CHECKS_MAX);
        // An invalid status or time does not make the message unreadable. The leader counts the report as wrong.
        Ok(WorkReport {
            // An unknown outcome is retried like a failed connection.
            outcome: Option::from(report.outcome()).unwrap_or(Outcome::Transient),
            lease: field::lease_id(&report.lease_id, "lease_id")?,
            item: field::decimal(&report.item_id, "item_id")?,
            term: field::nested(report.term, "term")?,
            attempt: report.attempt,
            observed: field::optional(report.observed, "observed")?,
            findings: field::list(report.findings, CHECKS_MAX, "findings", Finding::try_from)?,
            http_status: u16::try_from(report.http_status).unwrap_or(u16::MAX),
            status_reason: field::text(&report.status_reason, NAME_MAX_BYTES),
            message: field::text(&report.message, MESSAGE_MAX_BYTES),
            webhook: report.webhook.map(|webhook| field::text(&webhook, NAME_MAX_BYTES)),
            retry_after: field::wished(report.retry_after),
            api_calls: report.api_calls,
            execution_time: field::measured(report.execution_time),
            about: report.about.and_then(about),
            audit_id: audit_id(&report.audit_id),
        })
    }
}

/// Reads one of several reports. An unreadable report ends its own lease, and not the stream. Whether its write was
/// applied is unknown. Returns an error if the report does not name its lease.
pub(super) fn report(report: wire::WorkReport) -> Result<WorkReport, Malformed> {
    let (lease_id, item_id) = (report.lease_id.clone(), report.item_id.clone());
    let (term, attempt) = (report.term.clone(), report.attempt);
    WorkReport::try_from(report).or_else(|malformed| {
        WorkReport::try_from(wire::WorkReport {
            lease_id,
            item_id,
            term,
            attempt,
            outcome: wire::Outcome::Ambiguous.into(),
            message: format!("cannot read the executor's report: {malformed}"),
            ..wire::WorkReport::default()
        })
    })
}

same_names!(Outcome => wire::Outcome {
    Done, Unchanged, Gone, Replaced, Conflict, OwnerExists, Forbidden, AdmissionDenied, AdmissionFailed, Throttled,
    Unsupported, Invalid, Transient, Ambiguous, Abandoned, Unauthenticated,
} and back);

impl From<Finding> for wire::Finding {
    fn from(found: Finding) -> Self {
        let (result, observed) = match found.result {
            FindingResult::Exists(sighting) => (finding::Result::Exists, Some(sighting.into())),
            FindingResult::Absent => (finding::Result::Absent, None),
            FindingResult::OtherUid => (finding::Result::OtherUid, None),
        };
        let check = wire::ExistenceCheck { r#ref: Some(found.owner.into()) };
        wire::Finding { check: Some(check), result: result.into(), observed }
    }
}

impl TryFrom<wire::Finding> for Finding {
    type Error = Malformed;

    fn try_from(found: wire::Finding) -> Result<Self, Malformed> {
        let result = match finding::Result::try_from(found.result).unwrap_or_default() {
            finding::Result::Exists => FindingResult::Exists(field::nested(found.observed, "observed")?),
            finding::Result::OtherUid => FindingResult::OtherUid,
            finding::Result::Unspecified | finding::Result::Absent => FindingResult::Absent,
        };
        let check = field::required(found.check, "check")?;
        let owner = field::nested(check.r#ref, "ref").map_err(|error: Malformed| error.within("check"))?;
        Ok(Finding { owner, result })
    }
}

same_names!(ReturnCause => work_return::Cause {
    NotStarted, KindUnsupported, TermStale, SessionLapsed,
} and back);

impl From<WorkReturn> for wire::WorkReturn {
    fn from(returned: WorkReturn) -> Self {
        let cause = work_return::Cause::from(returned.cause);
        wire::WorkReturn { lease_id: returned.lease.to_string(), cause: cause.into() }
    }
}

impl TryFrom<wire::WorkReturn> for WorkReturn {
    type Error = Malformed;

    fn try_from(returned: wire::WorkReturn) -> Result<Self, Malformed> {
        let cause = Option::from(returned.cause()).unwrap_or(ReturnCause::NotStarted);
        Ok(WorkReturn { lease: field::lease_id(&returned.lease_id, "lease_id")?, cause })
    }
}

same_names!(ReportResult => report_result::Result { Accepted, AcceptedLate, Unknown } and back);

/// `Ok(None)` for an unknown result. The executor then keeps its report and sends it again.
pub(super) fn report_result(result: wire::ReportResult) -> Result<Option<(LeaseId, ReportResult)>, Malformed> {
    let lease = field::lease_id(&result.lease_id, "lease_id")?;
    Ok(Option::from(result.result()).map(|result| (lease, result)))
}

pub(super) fn encode_report_result((lease, result): (LeaseId, ReportResult)) -> wire::ReportResult {
    wire::ReportResult { lease_id: lease.to_string(), result: report_result::Result::from(result).into() }
}

impl From<HeldLease> for wire::HeldLease {
    fn from(held: HeldLease) -> Self {
        wire::HeldLease {
            lease_id: held.lease.to_string(),
            item_id: held.item.to_string(),
            term: Some(held.term.into()),
            started: held.started,
        }
    }
}

impl TryFrom<wire::HeldLease> for HeldLease {
    type Error = Malformed;

    fn try_from(held: wire::HeldLease) -> Result<Self, Malformed> {
        Ok(HeldLease {
            lease: field::lease_id(&held.lease_id, "lease_id")?,
            item: field::decimal(&held.item_id, "item_id")?,
            term: field::nested(held.term, "term")?,
            started: held.started,
        })
    }
}

impl From<SessionNumber> for wire::FirstSession {
    fn from(session: SessionNumber) -> Self {
        wire::FirstSession { term: Some(session.term.into()), session_id: session.number.to_string() }
    }
}

impl TryFrom<wire::FirstSession> for SessionNumber {
    type Error = Malformed;

    fn try_from(session: wire::FirstSession) -> Result<Self, Malformed> {
        Ok(SessionNumber {
            term: field::nested(session.term, "term")?,
            number: field::decimal(&session.session_id, "session_id")?,
        })
    }
}
