//! The state of the collector, on every replica.

use super::freshness::About;
use super::{Shared, status, wire_clock};
use crate::decisions::{DecisionLog, Standing};
use crate::pauses::press::Press;
use engine::leader::Leader;
use proto::admin::v1beta1::admin_service_server::AdminService;
use proto::admin::v1beta1::decision_log_status::State;
use proto::admin::v1beta1::{
    DecisionLogStatus, GetStatusRequest, GetStatusResponse, ListExecutorsRequest, ListExecutorsResponse,
    PauseCollectionRequest, PauseCollectionResponse, ResumeCollectionRequest, ResumeCollectionResponse,
};
use proto::convert::{NAME_MAX_BYTES, PAUSE_PREFIX, PauseOrder};
use proto::decision::v1beta1::Position;
use std::sync::Arc;
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// Most obstacles of each sort that a status names.
const OBSTACLES_MAX: usize = 10;

#[derive(Debug)]
pub(super) struct Admin {
    shared: Arc<Shared>,
    press: Press,
}

impl Admin {
    pub(super) fn new(shared: Arc<Shared>, press: Press) -> Admin {
        Admin { shared, press }
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn get_status(&self, _request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        let now = self.shared.clock.now();
        let (status, waits) = self.shared.reader.with(|leader| (leader.status(), leader.queue_waits(now)));
        let (blockers, troubles) =
            self.shared.reader.with(|leader| (leader.blockers(OBSTACLES_MAX), leader.troubles(OBSTACLES_MAX)));
        let (pauses, collections) = self.shared.reader.with(|leader| (leader.pauses(), leader.collections()));
        let stalled_for = self.shared.health.stalled(&waits, status.term.is_some());
        let loop_idle = self.shared.health.loop_idle();
        let meta = self.shared.meta_of(&collections, self.shared.freshness.now().token(&About::Everything));
        let leader = self.shared.leadership().holder.unwrap_or_default();
        let (clock, version) = (wire_clock(self.shared.clock), env!("CARGO_PKG_VERSION"));
        let status = proto::convert::status(status, pauses, clock, version, &leader, meta);
        let obstacles = blockers.0.into_iter().map(|view| proto::convert::obstacle(view, clock));
        let troubles_shown = troubles.0.into_iter().map(|view| proto::convert::trouble(view, clock));
        Ok(Response::new(GetStatusResponse {
            obstacles: obstacles.chain(troubles_shown).collect(),
            more_obstacles: (blockers.1 + troubles.1) as u64,
            decision_log: Some(of_log(&self.shared.decisions)),
            stalled_for: stalled_for.try_into().ok(),
            loop_idle: loop_idle.try_into().ok(),
            ..status
        }))
    }

    async fn list_executors(
        &self,
        _request: Request<ListExecutorsRequest>,
    ) -> Result<Response<ListExecutorsResponse>, Status> {
        let executors = self.shared.reader.with(Leader::executors);
        let clock = wire_clock(self.shared.clock);
        let executors = executors.into_iter().map(|view| proto::convert::executor(view, clock)).collect();
        Ok(Response::new(ListExecutorsResponse { executors, meta: Some(self.shared.meta()) }))
    }

    async fn pause_collection(
        &self,
        request: Request<PauseCollectionRequest>,
    ) -> Result<Response<PauseCollectionResponse>, Status> {
        let sight = self.shared.sight(request.extensions())?;
        let mut order =
            PauseOrder::try_from(request.into_inner()).map_err(|error| status::bad_field(&error.field, &error.why))?;
        let resolved = self.shared.reader.with(|leader| leader.resolve_scope(&order.scope));
        order.scope = resolved.map_err(|why| status::bad_field("scope", &why))?;
        if order.request_id.is_empty() {
            order.request_id = Uuid::new_v4().to_string();
        }
        let view = self.press.pause(&order, sight.user()).await.map_err(|failure| status::pause(&failure, ""))?;
        let pause = Some(proto::convert::pause(view, wire_clock(self.shared.clock)));
        Ok(Response::new(PauseCollectionResponse { pause, meta: Some(self.shared.meta()) }))
    }

    async fn resume_collection(
        &self,
        request: Request<ResumeCollectionRequest>,
    ) -> Result<Response<ResumeCollectionResponse>, Status> {
        let request = request.into_inner();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let name = request.name.strip_prefix(PAUSE_PREFIX).unwrap_or_default();
        if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(plain) || name.starts_with('.') {
            return Err(status::bad_field("name", "is not pauses/{pause}"));
        }
        self.press.resume(name).await.map_err(|failure| status::pause(&failure, name))?;
        Ok(Response::new(ResumeCollectionResponse { meta: Some(self.shared.meta()) }))
    }
}

fn of_log(log: &DecisionLog) -> DecisionLogStatus {
    let extent = log.extent();
    let at = |sequence: u64, log_id: String| Position { log_id, sequence };
    let newest = extent.as_ref().map(|extent| at(extent.newest, extent.log_id.clone()));
    let oldest = extent.map(|extent| at(extent.oldest, extent.log_id));
    let Some(queue) = log.queue() else {
        return DecisionLogStatus { state: State::InMemory.into(), oldest, newest, ..DecisionLogStatus::default() };
    };
    let progress = queue.progress().borrow().clone();
    let (state, away) = match progress.standing {
        Standing::Connecting => (State::Connecting, None),
        Standing::Writing => (State::Writing, None),
        Standing::CatchingUp => (State::CatchingUp, None),
        Standing::Away { why, .. } => (State::Away, Some(why)),
    };
    DecisionLogStatus {
        state: state.into(),
        required: queue.is_required(),
        problem: away.or_else(|| log.problem()).unwrap_or_default(),
        waiting_events: progress.waiting as u64,
        lost_events: progress.lost,
        oldest,
        newest,
    }
}
