use super::*;
use engine::object::{Name, ObjectRef, ResourceVersion, Uid};
use engine::work::{
    Action, Outcome, Preconditions, PropagationPolicy, ReportResult, ReturnCause, Term, WorkItem, WorkReturn,
};
use runtime::traces::Ratio;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

fn bench() -> (Traces, Receiver<Span>) {
    // The leader decides on sampling; the ratio of this process does not matter.
    let (recorder, open, spans) = Recorder::to_memory("0".parse::<Ratio>().unwrap());
    (Traces::new(recorder, open), spans)
}

fn parent() -> Context {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    Incoming::parse(text).unwrap().context
}

fn lease(number: u64, traceparent: Option<String>) -> WorkLease {
    let name = || Name::from("x");
    let target = ObjectRef {
        group: name(),
        version: name(),
        resource: name(),
        kind: name(),
        namespace: name(),
        name: name(),
        uid: Uid::parse("uid").unwrap(),
    };
    let action = Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: Vec::new() };
    let preconditions =
        Preconditions { resource_version: ResourceVersion::parse("1"), facts_digest: 0, must_be_terminating: false };
    WorkLease {
        id: LeaseId { term: 1, number },
        term: Term { election: name(), number: 1 },
        item: WorkItem { id: number, target, preconditions, action, read_first: false, generation: 1 },
        attempt: 1,
        execution_limit: Duration::from_secs(30),
        previous_attempt_ambiguous: false,
        traceparent,
    }
}

fn recorded(spans: &mut Receiver<Span>) -> Vec<Span> {
    std::iter::from_fn(|| spans.try_recv().ok()).collect()
}

fn answer() -> Answer {
    Answer {
        status: http::StatusCode::CONFLICT,
        content_type: String::new(),
        body: Default::default(),
        retry_after: None,
        audit_id: Some("audit".to_owned()),
        date: None,
    }
}

#[tokio::test]
async fn a_lease_is_followed_from_its_grant_to_the_leaders_word() {
    let (mut traces, mut spans) = bench();
    let lease = lease(1, Some(parent().traceparent()));
    traces.heard(&ToExecutor::Grant { leases: vec![lease.clone()] });
    let follow = traces.started(&lease).expect("it is followed");
    let mut request = Request::delete("/api/v1/namespaces/a/configmaps/b").body(()).unwrap();
    let sent = follow.send(&mut request);
    let header = Incoming::parse(request.headers()[TRACEPARENT].to_str().unwrap()).unwrap();
    sent.answered(Ok(&answer()));
    traces.ended(&lease, &WorkReport::new(&lease, Outcome::Conflict, 409));
    traces.heard(&ToExecutor::ReportAck { results: vec![(lease.id, ReportResult::Accepted)] });
    let all = recorded(&mut spans);
    assert_eq!(all.iter().map(|span| span.name.as_ref()).collect::<Vec<_>>(), ["wait", "DELETE", "execute", "report"]);
    assert!(all.iter().all(|span| span.context.trace == parent().trace));
    let execute = &all[2];
    for at in [0, 2, 3] {
        assert_eq!(all[at].parent, Some(parent().span), "{}", all[at].name);
    }
    assert_eq!((all[1].parent, &all[1].kind), (Some(execute.context.span), &Kind::Client));
    assert_eq!(header.context, all[1].context);
    assert!(header.sampled && all[1].failure.is_some());
    assert!(traces.waiting.is_empty() && traces.started.is_empty() && traces.reported.is_empty());
}

#[tokio::test]
async fn leases_without_a_sampled_traceparent_are_not_followed() {
    let (mut traces, mut spans) = bench();
    let unsampled = parent().traceparent().replace("-01", "-00");
    for (number, traceparent) in (0..).zip([None, Some("nonsense".to_owned()), Some(unsampled)]) {
        let lease = lease(number, traceparent);
        traces.heard(&ToExecutor::Grant { leases: vec![lease.clone()] });
        assert!(traces.started(&lease).is_none());
        traces.ended(&lease, &WorkReport::new(&lease, Outcome::Done, 200));
    }
    assert!(recorded(&mut spans).is_empty());
}

#[tokio::test]
async fn a_lease_that_goes_back_is_not_waited_for() {
    let (mut traces, mut spans) = bench();
    let lease = lease(1, Some(parent().traceparent()));
    traces.heard(&ToExecutor::Grant { leases: vec![lease.clone()] });
    let returns = vec![WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted }];
    traces.said(&ToLeader::Reports { reports: Vec::new(), returns });
    assert!(traces.waiting.is_empty());
    assert_eq!(recorded(&mut spans)[0].attributes, [("ownergraph.returned", Value::Flag(true))]);
}

#[tokio::test]
async fn what_is_never_begun_takes_no_more_than_its_room() {
    let (mut traces, _spans) = bench();
    for number in 0..2 * FOLLOWED_MAX as u64 {
        traces.heard(&ToExecutor::Grant { leases: vec![lease(number, Some(parent().traceparent()))] });
    }
    assert_eq!(traces.waiting.len(), FOLLOWED_MAX);
    assert_eq!(traces.waiting.first_key_value().unwrap().0.number, FOLLOWED_MAX as u64);
}
