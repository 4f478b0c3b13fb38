//! Streams the status: one message for each change.

use super::State;
use crate::grpc::followers::{NotTaken, Reader, STREAM_AGE};
use crate::grpc::{renewal_age, status};
use proto::admin::v1beta1::watch_status_response::{Event, GoingAway};
use proto::admin::v1beta1::{GetStatusResponse, WatchStatusRequest, WatchStatusResponse};
use proto::r#type::v1beta1::ResponseMeta;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Bounds of the interval between two messages.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The request of a reader.
#[derive(Debug)]
pub(super) struct Watch {
    state: Arc<State>,
    min_interval: Duration,
    heartbeat_interval: Duration,
}

impl Watch {
    pub(super) fn of(state: Arc<State>, request: WatchStatusRequest) -> Result<Watch, Status> {
        let min_interval = interval("min_interval", request.min_interval, INTERVAL_MIN)?;
        let heartbeat_interval = interval("heartbeat_interval", request.heartbeat_interval, INTERVAL_MAX)?;
        Ok(Watch { state, min_interval, heartbeat_interval: heartbeat_interval.max(min_interval) })
    }

    pub(super) async fn run(self, reader: Reader<WatchStatusResponse>) -> Result<(), Status> {
        let ends = Instant::now() + renewal_age(STREAM_AGE);
        let mut told: Option<(GetStatusResponse, Instant)> = None;
        loop {
            let now = Instant::now();
            if now >= ends || self.state.shared.shutdown.is_requested() {
                return taken(reader.send(self.going_away()).await);
            }
            let status = self.state.recent();
            let is_due = |(known, at): &(GetStatusResponse, Instant)| {
                now >= *at + self.heartbeat_interval || *known != ageless(&status)
            };
            if told.as_ref().is_none_or(is_due) {
                let known = ageless(&status);
                let message = WatchStatusResponse { event: Some(Event::Status(Arc::unwrap_or_clone(status))) };
                match reader.send(message).await {
                    Err(NotTaken::Gone) => return Ok(()),
                    sent => taken(sent)?,
                }
                told = Some((known, Instant::now()));
            }
            tokio::select! {
                () = sleep_until((Instant::now() + self.min_interval).min(ends)) => {}
                () = self.state.shared.shutdown.requested() => {}
                () = reader.gone() => return Ok(()),
            }
        }
    }

    fn going_away(&self) -> WatchStatusResponse {
        let (reason, reconnect_after) = self.state.shared.going_away();
        WatchStatusResponse { event: Some(Event::GoingAway(GoingAway { reason, reconnect_after })) }
    }
}

fn taken(sent: Result<(), NotTaken>) -> Result<(), Status> {
    match sent {
        Ok(()) | Err(NotTaken::Gone) => Ok(()),
        Err(NotTaken::Slow) => Err(status::slow_status_reader()),
    }
}

/// The status without ages, for comparison. A growing age is no change, but the start of a stall is one.
fn ageless(status: &GetStatusResponse) -> GetStatusResponse {
    let stalls = |at: &prost_types::Duration| at.seconds > 0 || at.nanos > 0;
    let is_stalled = status.stalled_for.as_ref().is_some_and(stalls);
    GetStatusResponse {
        oldest_queued_age: None,
        oldest_held_age: None,
        loop_idle: None,
        stalled_for: is_stalled.then(prost_types::Duration::default),
        meta: status.meta.clone().map(|meta| ResponseMeta { lag: None, as_of: None, ..meta }),
        ..status.clone()
    }
}

fn interval(field: &str, wanted: Option<prost_types::Duration>, absent: Duration) -> Result<Duration, Status> {
    let Some(wanted) = wanted else { return Ok(absent) };
    Ok(status::duration(field, wanted)?.clamp(INTERVAL_MIN, INTERVAL_MAX))
}
