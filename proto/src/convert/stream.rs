//! The messages of a stream, in both directions.

use super::report::{encode_report_result, report, report_result};
use super::{ENDPOINT_MAX_BYTES, HELD_MAX, KINDS_MAX, LeaseError, Malformed, NAME_MAX_BYTES, field, kinds};
use crate::work::v1beta1 as wire;
use crate::work::v1beta1::stream_work_request::{self as request, Message as FromExecutor};
use crate::work::v1beta1::stream_work_response::{self as response, Message as FromLeader, go_away, revoke};
use engine::object::clip;
use engine::pace::Rate;
use engine::work::{
    BATCH_MAX_ENTRIES, GoAwayCause, HeldLease, Hello, LeaseId, MESSAGE_MAX_BYTES, Origin, RevokeMode, ToExecutor,
    ToLeader, Welcome, WorkLease, WorkReturn,
};

same_names!(RevokeMode => revoke::Mode { IfNotStarted, Stop } and back);
same_names!(GoAwayCause => go_away::Cause {
    LeaderChanged, ShuttingDown, SessionAge, Superseded, ProtocolError,
} and back);

/// A decoded message of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The message for the session.
    pub message: ToExecutor,
    /// Leases whose action this build does not know. They are not in `message`, and are returned as `KindUnsupported`.
    pub unknown_actions: Vec<LeaseId>,
}

/// Reads an executor's message. `None` for an unknown kind of message, which is ignored and counted.
pub fn received_from_executor(message: wire::StreamWorkRequest) -> Result<Option<ToLeader>, Malformed> {
    let Some(message) = message.message else {
        return Ok(None);
    };
    Ok(Some(match message {
        FromExecutor::Hello(hello) => ToLeader::Hello(decode_hello(hello).map_err(|error| error.within("hello"))?),
        FromExecutor::Heartbeat(heartbeat) => ToLeader::Heartbeat {
            sequence: heartbeat.sequence,
            started: heartbeat.started_count,
            buffered: heartbeat.buffered_count,
        },
        FromExecutor::Window(window) => ToLeader::Window { max_outstanding: window.max_outstanding },
        FromExecutor::Progress(progress) => {
            ToLeader::Started { leases: field::lease_ids(progress.started, BATCH_MAX_ENTRIES, "progress.started")? }
        }
        FromExecutor::Reports(reports) => ToLeader::Reports {
            reports: field::list(reports.reports, BATCH_MAX_ENTRIES, "reports.reports", report)?,
            returns: field::list(reports.returns, BATCH_MAX_ENTRIES, "reports.returns", WorkReturn::try_from)?,
        },
        FromExecutor::Drain(drain) => ToLeader::Drain {
            reason: field::text(&drain.reason, MESSAGE_MAX_BYTES),
            deadline: field::wished(drain.deadline).unwrap_or_default(),
        },
    }))
}

fn decode_hello(hello: request::Hello) -> Result<Hello, Malformed> {
    let identity = field::required(hello.identity, "identity")?;
    field::at_most(hello.kinds.len(), KINDS_MAX, "kinds")?;
    Ok(Hello {
        executor: field::pod_name(&identity.executor, "identity.executor")?,
        incarnation: field::name(&identity.incarnation, "identity.incarnation")?,
        min_protocol: hello.min_protocol,
        max_protocol: hello.max_protocol,
        kinds: kinds(&hello.kinds),
        window: field::required(hello.window, "window")?.max_outstanding,
        held: field::list(hello.held, HELD_MAX, "held", HeldLease::try_from)?,
        known_term: field::optional(hello.known_term, "known_term")?,
        first_session: field::optional(hello.first_session, "first_session")?,
        version: field::text(&hello.version, NAME_MAX_BYTES),
        cluster_uid: field::name(&hello.cluster_uid, "cluster_uid")?,
        origin: Origin::default(),
    })
}

impl From<ToLeader> for wire::StreamWorkRequest {
    fn from(message: ToLeader) -> Self {
        let message = match message {
            ToLeader::Hello(hello) => FromExecutor::Hello(hello.into()),
            ToLeader::Heartbeat { sequence, started, buffered } => FromExecutor::Heartbeat(request::Heartbeat {
                sequence,
                started_count: started,
                buffered_count: buffered,
            }),
            ToLeader::Window { max_outstanding } => FromExecutor::Window(wire::Window { max_outstanding }),
            ToLeader::Started { leases } => FromExecutor::Progress(request::Progress { started: texts(&leases) }),
            ToLeader::Reports { reports, returns } => FromExecutor::Reports(request::Reports {
                reports: reports.into_iter().map(Into::into).collect(),
                returns: returns.into_iter().map(Into::into).collect(),
            }),
            ToLeader::Drain { reason, deadline } => {
                FromExecutor::Drain(request::Drain { reason, deadline: Some(field::encode_duration(deadline)) })
            }
        };
        wire::StreamWorkRequest { message: Some(message) }
    }
}

impl From<Hello> for request::Hello {
    fn from(hello: Hello) -> Self {
        request::Hello {
            identity: Some(wire::ExecutorIdentity {
                executor: hello.executor.to_string(),
                incarnation: hello.incarnation.to_string(),
            }),
            min_protocol: hello.min_protocol,
            max_protocol: hello.max_protocol,
            kinds: hello.kinds.into_iter().map(|kind| wire::ItemKind::from(kind).into()).collect(),
            window: Some(wire::Window { max_outstanding: hello.window }),
            held: hello.held.into_iter().map(Into::into).collect(),
            known_term: hello.known_term.map(Into::into),
            first_session: hello.first_session.map(Into::into),
            version: hello.version,
            cluster_uid: hello.cluster_uid.to_string(),
        }
    }
}

/// Reads a leader's message. `None` for an unknown kind of message, which is ignored and counted.
pub fn received_from_leader(message: wire::StreamWorkResponse) -> Result<Option<Received>, Malformed> {
    let Some(message) = message.message else {
        return Ok(None);
    };
    let message = match message {
        FromLeader::Welcome(welcome) => {
            ToExecutor::Welcome(decode_welcome(welcome).map_err(|error| error.within("welcome"))?)
        }
        FromLeader::HeartbeatAck(ack) => ToExecutor::HeartbeatAck {
            sequence: ack.sequence,
            session_ttl: field::positive_duration(ack.session_ttl, "heartbeat_ack.session_ttl")?,
            term: field::nested(ack.term, "heartbeat_ack.term")?,
        },
        FromLeader::Grant(grant) => return decode_grant(grant).map(Some),
        FromLeader::ReportAck(ack) => {
            let results = field::list(ack.results, BATCH_MAX_ENTRIES, "report_ack.results", report_result)?;
            ToExecutor::ReportAck { results: results.into_iter().flatten().collect() }
        }
        FromLeader::Revoke(revoke) => ToExecutor::Revoke {
            mode: Option::from(revoke.mode()).unwrap_or(RevokeMode::Stop),
            leases: field::lease_ids(revoke.lease_ids, BATCH_MAX_ENTRIES, "revoke.lease_ids")?,
            reason: clip(&revoke.reason, MESSAGE_MAX_BYTES),
        },
        FromLeader::Throttle(throttle) => decode_throttle(&throttle).map_err(|error| error.within("throttle"))?,
        FromLeader::DrainAck(ack) => ToExecutor::DrainAck { outstanding: ack.outstanding },
        FromLeader::GoAway(go_away) => decode_go_away(go_away).map_err(|error| error.within("go_away"))?,
    };
    Ok(Some(Received { message, unknown_actions: Vec::new() }))
}

fn decode_welcome(welcome: response::Welcome) -> Result<Welcome, Malformed> {
    Ok(Welcome {
        session: field::decimal(&welcome.session_id, "session_id")?,
        term: field::nested(welcome.term, "term")?,
        protocol: welcome.protocol,
        session_ttl: field::positive_duration(welcome.session_ttl, "session_ttl")?,
        heartbeat_interval: field::positive_duration(welcome.heartbeat_interval, "heartbeat_interval")?,
        adopted: field::lease_ids(welcome.adopted, HELD_MAX, "adopted")?,
        dropped: field::lease_ids(welcome.dropped, HELD_MAX, "dropped")?,
        max_window: welcome.max_window,
    })
}

fn decode_grant(grant: response::Grant) -> Result<Received, Malformed> {
    field::at_most(grant.leases.len(), BATCH_MAX_ENTRIES, "grant.leases")?;
    let mut leases = Vec::with_capacity(grant.leases.len());
    let mut unknown_actions = Vec::new();
    for (at, lease) in grant.leases.into_iter().enumerate() {
        match WorkLease::try_from(lease) {
            Ok(lease) => leases.push(lease),
            Err(LeaseError::UnknownAction { lease }) => unknown_actions.push(lease),
            Err(LeaseError::Malformed(error)) => return Err(error.within(&format!("grant.leases[{at}]"))),
        }
    }
    Ok(Received { message: ToExecutor::Grant { leases }, unknown_actions })
}

fn decode_throttle(throttle: &response::Throttle) -> Result<ToExecutor, Malformed> {
    let rate = f64::from(throttle.max_writes_per_second);
    if !rate.is_finite() || rate < 0.0 {
        return Err(Malformed::new("max_writes_per_second", "is not a valid rate"));
    }
    // Saturates far above any relevant rate.
    let max_writes_per_second = Rate::from_micros((rate * 1e6).round() as u64);
    Ok(ToExecutor::Throttle { max_writes_per_second, valid_for: field::duration(throttle.valid_for, "valid_for")? })
}

fn decode_go_away(message: response::GoAway) -> Result<ToExecutor, Malformed> {
    if message.leader_endpoint.len() > ENDPOINT_MAX_BYTES {
        return Err(Malformed::new("leader_endpoint", format!("is longer than {ENDPOINT_MAX_BYTES} bytes")));
    }
    Ok(ToExecutor::GoAway {
        cause: Option::from(message.cause()).unwrap_or(GoAwayCause::ShuttingDown),
        leader_endpoint: message.leader_endpoint,
        reconnect_after: field::duration(message.reconnect_after, "reconnect_after")?,
        close_after: field::duration(message.close_after, "close_after")?,
    })
}

impl From<ToExecutor> for wire::StreamWorkResponse {
    fn from(message: ToExecutor) -> Self {
        let message = match message {
            ToExecutor::Welcome(welcome) => FromLeader::Welcome(welcome.into()),
            ToExecutor::HeartbeatAck { sequence, session_ttl, term } => {
                FromLeader::HeartbeatAck(response::HeartbeatAck {
                    sequence,
                    session_ttl: Some(field::encode_duration(session_ttl)),
                    term: Some(term.into()),
                })
            }
            ToExecutor::Grant { leases } => {
                FromLeader::Grant(response::Grant { leases: leases.into_iter().map(Into::into).collect() })
            }
            ToExecutor::ReportAck { results } => FromLeader::ReportAck(response::ReportAck {
                results: results.into_iter().map(encode_report_result).collect(),
            }),
            ToExecutor::Revoke { leases, mode, reason } => {
                let mode = revoke::Mode::from(mode);
                FromLeader::Revoke(response::Revoke { lease_ids: texts(&leases), mode: mode.into(), reason })
            }
            ToExecutor::Throttle { max_writes_per_second, valid_for } => FromLeader::Throttle(response::Throttle {
                max_writes_per_second: (max_writes_per_second.micros() as f64 / 1e6) as f32,
                valid_for: Some(field::encode_duration(valid_for)),
            }),
            ToExecutor::DrainAck { outstanding } => FromLeader::DrainAck(response::DrainAck { outstanding }),
            ToExecutor::GoAway { cause, leader_endpoint, reconnect_after, close_after } => {
                FromLeader::GoAway(response::GoAway {
                    cause: go_away::Cause::from(cause).into(),
                    leader_endpoint,
                    reconnect_after: Some(field::encode_duration(reconnect_after)),
                    close_after: Some(field::encode_duration(close_after)),
                })
            }
        };
        wire::StreamWorkResponse { message: Some(message) }
    }
}

impl From<Welcome> for response::Welcome {
    fn from(welcome: Welcome) -> Self {
        response::Welcome {
            session_id: welcome.session.to_string(),
            term: Some(welcome.term.into()),
            protocol: welcome.protocol,
            session_ttl: Some(field::encode_duration(welcome.session_ttl)),
            heartbeat_interval: Some(field::encode_duration(welcome.heartbeat_interval)),
            adopted: texts(&welcome.adopted),
            dropped: texts(&welcome.dropped),
            max_window: welcome.max_window,
        }
    }
}

fn texts(leases: &[LeaseId]) -> Vec<String> {
    leases.iter().map(LeaseId::to_string).collect()
}
