//! Traces of leases. The leader decides which leases are traced.
//!
//! A lease with a `traceparent` is followed, and no other. Its spans are children of the leader's span `lease`. `wait`
//! is from the grant to the start. `execute` is from the start to the result, with one child for each request to the
//! API server, which carries a `traceparent` of its own. `report` is from the result to the leader's acknowledgement.

use engine::work::{LeaseId, ToExecutor, ToLeader, WorkLease, WorkReport};
use http::{HeaderValue, Request};
use kube_api::{Answer, CallError};
use runtime::traces::{Context, Incoming, Kind, Open, Recorder, Span, SpanId, Value};
use std::collections::BTreeMap;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Maximum number of followed leases in each stage. Beyond this, the oldest is forgotten.
const FOLLOWED_MAX: usize = 4096;
const TRACEPARENT: &str = "traceparent";

/// Followed leases by stage.
#[derive(Debug)]
pub(crate) struct Traces {
    recorder: Recorder,
    _open: Open,
    /// Granted, not started.
    waiting: BTreeMap<LeaseId, Stage>,
    started: BTreeMap<LeaseId, Stage>,
    /// Ended, not acknowledged by the leader.
    reported: BTreeMap<LeaseId, Stage>,
}

/// An open span.
#[derive(Clone, Copy, Debug)]
struct Stage {
    context: Context,
    /// The leader's span of the lease.
    parent: SpanId,
    start: Instant,
}

impl Stage {
    fn ended(self, name: &'static str, attributes: Vec<(&'static str, Value)>) -> Span {
        Span {
            context: self.context,
            parent: Some(self.parent),
            name: name.into(),
            kind: Kind::Internal,
            start: self.start,
            end: Instant::now(),
            attributes,
            failure: None,
        }
    }
}

impl Traces {
    pub(crate) fn new(recorder: Recorder, open: Open) -> Traces {
        Traces { recorder, _open: open, waiting: BTreeMap::new(), started: BTreeMap::new(), reported: BTreeMap::new() }
    }

    /// Records a message of the leader before the session handles it.
    pub(crate) fn heard(&mut self, message: &ToExecutor) {
        match message {
            ToExecutor::Grant { leases } => leases.iter().for_each(|lease| self.granted(lease)),
            ToExecutor::ReportAck { results } if !self.reported.is_empty() => {
                for (lease, _) in results {
                    if let Some(stage) = self.reported.remove(lease) {
                        self.recorder.record(stage.ended("report", Vec::new()));
                    }
                }
            }
            ToExecutor::ReportAck { .. }
            | ToExecutor::Welcome(_)
            | ToExecutor::HeartbeatAck { .. }
            | ToExecutor::Revoke { .. }
            | ToExecutor::Throttle { .. }
            | ToExecutor::DrainAck { .. }
            | ToExecutor::GoAway { .. } => {}
        }
    }

    /// Records a message to the leader: returned leases are no longer followed.
    pub(crate) fn said(&mut self, message: &ToLeader) {
        if let ToLeader::Reports { returns, .. } = message
            && !self.waiting.is_empty()
        {
            for returned in returns {
                if let Some(stage) = self.waiting.remove(&returned.lease) {
                    self.recorder.record(stage.ended("wait", vec![("ownergraph.returned", true.into())]));
                }
            }
        }
    }

    /// Records the start of an attempt. Returns the span of its requests if it is followed.
    pub(crate) fn started(&mut self, lease: &WorkLease) -> Option<Follow> {
        let waiting = self.waiting.remove(&lease.id)?;
        self.recorder.record(waiting.ended("wait", Vec::new()));
        let stage = self.stage(waiting);
        keep(&mut self.started, lease.id, stage);
        Some(Follow { recorder: self.recorder.clone(), context: stage.context })
    }

    /// Records the end of an attempt. Returns its span if it is followed.
    pub(crate) fn ended(&mut self, lease: &WorkLease, report: &WorkReport) -> Option<Context> {
        let stage = self.started.remove(&lease.id)?;
        let mut attributes = vec![
            ("ownergraph.action", lease.item.action.kind().as_str().into()),
            ("ownergraph.outcome", report.outcome.as_str().into()),
            ("ownergraph.api_calls", report.api_calls.into()),
        ];
        if report.http_status != 0 {
            attributes.push(("http.response.status_code", report.http_status.into()));
        }
        let failure = (!report.outcome.is_success()).then(|| report.message.clone());
        self.recorder.record(Span { kind: Kind::Consumer, failure, ..stage.ended("execute", attributes) });
        let reported = self.stage(stage);
        keep(&mut self.reported, lease.id, reported);
        Some(stage.context)
    }

    fn granted(&mut self, lease: &WorkLease) {
        let Some(incoming) = lease.traceparent.as_deref().and_then(Incoming::parse) else { return };
        if incoming.sampled {
            let Context { trace, span } = incoming.context;
            let context = Context { trace, span: self.recorder.span_id() };
            keep(&mut self.waiting, lease.id, Stage { context, parent: span, start: Instant::now() });
        }
    }

    /// The next stage.
    fn stage(&self, before: Stage) -> Stage {
        let context = Context { span: self.recorder.span_id(), ..before.context };
        Stage { context, start: Instant::now(), ..before }
    }
}

/// Keeps a bounded number of leases. Lease ids grow with time, so the first is the oldest.
fn keep(stages: &mut BTreeMap<LeaseId, Stage>, lease: LeaseId, stage: Stage) {
    if stages.len() >= FOLLOWED_MAX {
        stages.pop_first();
    }
    stages.insert(lease, stage);
}

/// An attempt with recorded requests.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    recorder: Recorder,
    context: Context,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    follow: &'a Follow,
    context: Context,
    method: String,
    path: String,
    start: Instant,
}

impl Follow {
    /// Records a request before it is sent, and adds the `traceparent`.
    pub(crate) fn send<T>(&self, request: &mut Request<T>) -> Sent<'_> {
        let context = Context { span: self.recorder.span_id(), ..self.context };
        if let Ok(value) = HeaderValue::try_from(context.traceparent()) {
            request.headers_mut().insert(TRACEPARENT, value);
        }
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        Sent { follow: self, context, method, path, start: Instant::now() }
    }
}

impl Sent<'_> {
    /// Returns the span for log lines about the request.
    pub(crate) fn entered(&self) -> tracing::Span {
        self.context.entered()
    }

    /// Records its answer or error.
    pub(crate) fn answered(self, answer: Result<&Answer, &CallError>) {
        let mut attributes: Vec<(&'static str, Value)> =
            vec![("http.request.method", self.method.clone().into()), ("url.path", self.path.into())];
        let failure = match answer {
            Ok(answer) => {
                attributes.push(("http.response.status_code", answer.status.as_u16().into()));
                if let Some(audit_id) = &answer.audit_id {
                    attributes.push(("k8s.audit_id", audit_id.clone().into()));
                }
                let refused = answer.status.is_client_error() || answer.status.is_server_error();
                refused.then(|| format!("HTTP {}", answer.status.as_u16()))
            }
            Err(error) => Some(error.to_string()),
        };
        self.follow.recorder.record(Span {
            context: self.context,
            parent: Some(self.follow.context.span),
            name: self.method.into(),
            kind: Kind::Client,
            start: self.start,
            end: Instant::now(),
            attributes,
            failure,
        });
    }
}
