//! `StreamVerdicts`: one stream for each instance of a policy engine, between the gRPC connection and the router.
//!
//! The response of a call drives its stream: it reads messages and takes the questions of its instance. Neither waits
//! for the deciding task. An instance that does not read gets few questions, and its unread messages fill the window of
//! its own stream only.

use super::access::Visibility;
use super::{Shared, reconnect_after, renewal_age, status};
use crate::gates::stream::{Joined, Out, STRAYS_MAX};
use crate::messages::Leadership;
use engine::guard::{Answer, FailurePolicy, Question};
use futures::stream::{BoxStream, StreamExt as _, unfold};
use proto::decision::v1beta1::gate_service_server::GateService;
use proto::decision::v1beta1::stream_verdicts_request::{
    Hello, Invalidate, Message as FromEngine, NeedTime, Verdict, Verdicts,
};
use proto::decision::v1beta1::stream_verdicts_response as wire;
use proto::decision::v1beta1::stream_verdicts_response::Message as ToEngine;
use proto::decision::v1beta1::{GateVerdict, StreamVerdictsRequest, StreamVerdictsResponse};
use proto::work::v1beta1::ItemKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status, Streaming};

#[cfg(test)]
mod tests;

/// Maximum number of open streams.
const STREAMS_MAX: usize = 256;
/// Maximum number of verdicts of one message.
const VERDICTS_MAX: usize = 1000;
/// Maximum time from the call to its first message.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Time from the announcement of a renewal to the end of the stream. Verdicts still count in between.
const CLOSE_AFTER: Duration = Duration::from_secs(5);
/// The version of the protocol.
const PROTOCOL: u32 = 1;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Gates {
    shared: Arc<Shared>,
    streams: Arc<Semaphore>,
}

impl Gates {
    pub(super) fn new(shared: Arc<Shared>) -> Gates {
        Gates { shared, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }
}

#[tonic::async_trait]
impl GateService for Gates {
    type StreamVerdictsStream = BoxStream<'static, Result<StreamVerdictsResponse, Status>>;

    /// The call returns its headers at once, because an engine may wait for the headers before it sends.
    async fn stream_verdicts(
        &self,
        request: Request<Streaming<StreamVerdictsRequest>>,
    ) -> Result<Response<Self::StreamVerdictsStream>, Status> {
        let place = Arc::clone(&self.streams).try_acquire_owned();
        let session = Session {
            visibility: self.shared.visibility(request.extensions())?,
            requests: request.into_inner(),
            leadership: self.shared.leadership.clone(),
            shared: Arc::clone(&self.shared),
            joined: None,
            deadline: Instant::now() + HELLO_WITHIN,
            phase: Phase::Silent,
            _place: place.map_err(|_| status::limit_exceeded("streams of policy engines", STREAMS_MAX))?,
        };
        let messages = unfold(Some(session), async |session| {
            let mut session = session?;
            match session.next().await {
                Ok(Some(message)) => {
                    let rest = Some(session).filter(|session| session.phase != Phase::Over);
                    Some((Ok(StreamVerdictsResponse { message: Some(message) }), rest))
                }
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(messages.boxed()))
    }
}

/// One stream.
struct Session {
    requests: Streaming<StreamVerdictsRequest>,
    visibility: Visibility,
    leadership: watch::Receiver<Leadership>,
    shared: Arc<Shared>,
    /// `None` before the hello.
    joined: Option<Joined>,
    deadline: Instant,
    phase: Phase,
    _place: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No hello yet.
    Silent,
    Open,
    /// The renewal is announced.
    Closing,
    /// The last message is sent.
    Over,
}

impl Session {
    /// The next message of the response; `None` at its end.
    async fn next(&mut self) -> Result<Option<ToEngine>, Status> {
        loop {
            let leadership = self.leadership.borrow_and_update().clone();
            if !leadership.leading {
                return match self.phase {
                    Phase::Silent => Err(status::not_leader(&leadership)),
                    Phase::Open | Phase::Closing | Phase::Over => Ok(Some(self.end("LEADER_CHANGED"))),
                };
            }
            let shutdown = self.shared.shutdown.clone();
            let joined = self.joined.as_ref();
            tokio::select! {
                () = shutdown.requested() => return match self.phase {
                    Phase::Silent => Err(status::stopping()),
                    Phase::Open | Phase::Closing | Phase::Over => Ok(Some(self.end("SHUTDOWN"))),
                },
                // After the end of the election nothing changes.
                Ok(()) = self.leadership.changed() => {}
                out = next_of(joined) => match out {
                    Out::Ask(questions) => return Ok(Some(requests(questions))),
                    Out::Cancel(request_ids) => return Ok(Some(ToEngine::Cancel(wire::Cancel { request_ids }))),
                    Out::Drained => return Ok(None),
                    Out::GateClosed => return Ok(Some(self.end("GATE_CHANGED"))),
                },
                received = self.requests.message() => {
                    let received = received.map_err(|error| status::violation(&unreadable(&error)))?;
                    // An instance that sends nothing more cannot answer.
                    let Some(received) = received else { return Ok(None) };
                    if let Some(answer) = self.receive(received).await? {
                        return Ok(Some(answer));
                    }
                }
                () = sleep_until(self.deadline) => match self.phase {
                    Phase::Silent => {
                        let how = format!("no hello within {} s", HELLO_WITHIN.as_secs());
                        return Err(status::violation(&how));
                    }
                    Phase::Open => {
                        if let Some(joined) = &self.joined {
                            joined.drain();
                        }
                        (self.phase, self.deadline) = (Phase::Closing, Instant::now() + CLOSE_AFTER);
                        return Ok(Some(self.go_away("STREAM_AGE")));
                    }
                    Phase::Closing | Phase::Over => return Ok(None),
                },
            }
        }
    }

    /// Handles a message. Only a hello is answered.
    async fn receive(&mut self, received: StreamVerdictsRequest) -> Result<Option<ToEngine>, Status> {
        let joined = match (&self.joined, received.message) {
            (None, Some(FromEngine::Hello(hello))) => return self.welcome(hello).await.map(Some),
            (None, _) => return Err(status::violation("the first message is not a hello")),
            // A message of a newer protocol.
            (Some(_), None) => return Ok(None),
            (Some(_), Some(FromEngine::Hello(_))) => return Err(status::violation("a second hello")),
            (Some(joined), Some(message)) => (joined, message),
        };
        match joined {
            (_, FromEngine::Hello(_)) => {}
            (joined, FromEngine::Verdicts(Verdicts { verdicts })) => {
                if verdicts.len() > VERDICTS_MAX {
                    return Err(status::limit_exceeded("verdicts of one message", VERDICTS_MAX));
                }
                for verdict in verdicts {
                    answer(joined, verdict)?;
                }
            }
            (joined, FromEngine::Invalidate(Invalidate { policy_revision, targets })) => {
                let targets = proto::convert::invalidated(targets)
                    .map_err(|error| status::bad_field(&error.field, &error.why))?;
                joined.take_back(&policy_revision, targets);
            }
            (joined, FromEngine::NeedTime(need)) => need_time(joined, &need)?,
            (joined, FromEngine::Drain(_)) => joined.drain(),
        }
        Ok(None)
    }

    async fn welcome(&mut self, hello: Hello) -> Result<ToEngine, Status> {
        if hello.gate.is_empty() {
            return Err(status::bad_field("hello.gate", "is empty; set it to the name of a gate"));
        }
        if !(hello.min_protocol..=hello.max_protocol).contains(&PROTOCOL) {
            return Err(status::protocol_unsupported(PROTOCOL, PROTOCOL));
        }
        // The right comes first, so that the error does not reveal whether the gate exists.
        self.visibility.require_object(&hello.gate).await?;
        let joined = self.shared.gates.join(&hello.gate, hello.max_inflight, &hello.policy_revision);
        let joined = joined.map_err(|why| status::not_joined(why, &hello.gate))?;
        tracing::info!(gate = hello.gate, instance = hello.instance, "a policy engine instance joined the gate");
        let rule = &joined.configured.rule;
        let welcome = wire::Welcome {
            term: self.shared.leadership().term.map(Into::into),
            protocol: PROTOCOL,
            failure_policy: match rule.failure_policy {
                FailurePolicy::Allow => wire::FailurePolicy::Allow,
                FailurePolicy::Hold => wire::FailurePolicy::Hold,
                FailurePolicy::Deny => wire::FailurePolicy::Deny,
            }
            .into(),
            timeout: prost_types::Duration::try_from(rule.timeout).ok(),
            observe_only: rule.observe_only,
            meta: Some(self.shared.meta()),
        };
        self.joined = Some(joined);
        (self.phase, self.deadline) = (Phase::Open, Instant::now() + renewal_age(super::work::STREAM_AGE));
        Ok(ToEngine::Welcome(welcome))
    }

    /// The last message.
    fn end(&mut self, reason: &str) -> ToEngine {
        self.phase = Phase::Over;
        self.go_away(reason)
    }

    fn go_away(&self, reason: &str) -> ToEngine {
        let leadership = self.shared.leadership();
        ToEngine::GoAway(wire::GoAway {
            reason: reason.to_owned(),
            leader_endpoint: Some(leadership.endpoint).filter(|_| !leadership.leading).unwrap_or_default(),
            reconnect_after: reconnect_after(),
        })
    }
}

async fn next_of(joined: Option<&Joined>) -> Out {
    match joined {
        Some(joined) => joined.next().await,
        None => std::future::pending().await,
    }
}

fn unreadable(error: &Status) -> String {
    format!("cannot read the stream: {}", error.message())
}

fn answer(joined: &Joined, verdict: Verdict) -> Result<(), Status> {
    let answer = match verdict.verdict() {
        GateVerdict::Allow => Answer::Allow,
        GateVerdict::Deny => Answer::Deny,
        GateVerdict::Hold => {
            let again_after = verdict.again_after.ok_or_else(|| {
                status::bad_field("verdicts.again_after", "is absent; a verdict HOLD needs the time to ask again")
            })?;
            Answer::Hold { again_after: status::duration("verdicts.again_after", again_after)? }
        }
        GateVerdict::Abstain => Answer::Abstain,
        GateVerdict::Unspecified => return Err(status::bad_field("verdicts.verdict", "is not a known verdict")),
    };
    let valid_for = verdict.valid_for.map(|valid_for| status::duration("verdicts.valid_for", valid_for));
    let valid_for = valid_for.transpose()?.unwrap_or_default();
    let texts = (verdict.policy.as_str(), verdict.message.as_str());
    joined.answer((verdict.request_id, answer), texts, valid_for).map_err(|_flood| flooded())
}

fn need_time(joined: &Joined, need: &NeedTime) -> Result<(), Status> {
    const FIELD: &str = "need_time.extra";
    let extra = need.extra.ok_or_else(|| status::bad_field(FIELD, "is absent; set it to the time that is needed"))?;
    let extra = status::duration(FIELD, extra)?;
    if extra.is_zero() {
        return Err(status::bad_field(FIELD, "is zero; set it to the time that is needed"));
    }
    joined.need_time(need.request_id, extra).map_err(|_flood| flooded())
}

fn flooded() -> Status {
    status::limit_exceeded("messages about requests that the stream does not have", STRAYS_MAX)
}

fn requests(questions: Vec<(Arc<Question>, Duration)>) -> ToEngine {
    let requests = questions.iter().map(|(question, left)| request(question, *left)).collect();
    ToEngine::Requests(wire::Requests { requests })
}

fn request(question: &Question, left: Duration) -> wire::Request {
    let cascade = question.cascade.as_ref().map(|cascade| wire::Cascade {
        root: Some(cascade.root.clone().into()),
        objects: cascade.objects,
        totals: cascade
            .totals
            .iter()
            .map(|(collection, objects)| wire::Total {
                group: collection.group.to_string(),
                resource: collection.resource.to_string(),
                objects: *objects,
            })
            .collect(),
        complete: cascade.complete,
    });
    wire::Request {
        request_id: question.number,
        time_left: prost_types::Duration::try_from(left).ok(),
        decision_id: proto::convert::decision_id(question.decision),
        action: ItemKind::from(question.action).into(),
        target: Some(question.target.clone().into()),
        resource_version: question.resource_version.to_string(),
        cause_chain: question.chain.iter().cloned().map(Into::into).collect(),
        cascade,
        observe_only: question.observe_only,
    }
}
