//! The state of the collector, on each replica.

use super::connection::Link;
use super::followers::Followers;
use super::freshness::About;
use super::names::Cursor;
use super::{Shared, status};
use crate::clock::wire;
use crate::decisions::{DecisionLog, Standing};
use crate::guards::press::Press;
use engine::guard::GuardKind;
use futures::stream::BoxStream;
use proto::admin::v1beta1::admin_service_server::AdminService;
use proto::admin::v1beta1::decision_log_status::State as LogState;
use proto::admin::v1beta1::*;
use proto::convert::{BypassOrder, NAME_MAX_BYTES, PAUSE_PREFIX, PauseOrder};
use proto::decision::v1beta1::Position;
use runtime::version::{COMMIT, VERSION};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use uuid::Uuid;

mod bounds;
mod bundle;
#[cfg(test)]
mod tests;
mod watch;

/// Maximum number of blockers of each kind in a status.
const OBSTACLES_MAX: usize = 10;

/// Age of the status that all streams share. Many streams thus cost as much as one.
const RECENT: Duration = Duration::from_millis(900);

#[derive(Debug)]
pub(super) struct Admin {
    shared: Arc<Shared>,
    state: Arc<State>,
    press: Press,
    followers: Followers,
    /// The permit for the one export of a bundle.
    exporting: Arc<Semaphore>,
}

impl Admin {
    pub(super) fn new(shared: Arc<Shared>, press: Press, followers: Followers) -> Admin {
        let state = Arc::new(State { shared: Arc::clone(&shared), last: Mutex::default() });
        Admin { shared, state, press, followers, exporting: Arc::new(Semaphore::new(1)) }
    }
}

/// Reads the state of the collector.
#[derive(Debug)]
struct State {
    shared: Arc<Shared>,
    last: Mutex<Option<(Instant, Arc<GetStatusResponse>)>>,
}

impl State {
    fn now(&self) -> GetStatusResponse {
        let now = self.shared.clock.now();
        let (status, waits) = self.shared.reader.with(|queries| (queries.status(), queries.queue_waits(now)));
        let (blockers, troubles) =
            self.shared.reader.with(|queries| (queries.blockers(OBSTACLES_MAX), queries.troubles(OBSTACLES_MAX)));
        let (pauses, collections) =
            self.shared.reader.with(|queries| (queries.guards_of(GuardKind::Pause), queries.collections()));
        let stalled_for = self.shared.health.stalled(&waits, status.term.is_some());
        let loop_idle = self.shared.health.loop_idle();
        let meta = self.shared.meta_of(&collections, self.shared.freshness.now().token(&About::Everything));
        let leader = self.shared.leadership().holder.unwrap_or_default();
        let clock = wire(self.shared.clock);
        let status = proto::convert::status(status, pauses, clock, &leader, meta);
        let obstacles = blockers.0.into_iter().map(|view| proto::convert::obstacle(view, clock));
        let troubles_shown = troubles.0.into_iter().map(|view| proto::convert::trouble(view, clock));
        bounds::within(GetStatusResponse {
            obstacles: obstacles.chain(troubles_shown).collect(),
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            more_obstacles: (blockers.1 + troubles.1) as u64,
            decision_log: Some(of_log(&self.shared.decisions)),
            stalled_for: stalled_for.try_into().ok(),
            loop_idle: loop_idle.try_into().ok(),
            ..status
        })
    }

    /// A status that is at most [`RECENT`] old.
    fn recent(&self) -> Arc<GetStatusResponse> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, status)) = &*last
            && at.elapsed() < RECENT
        {
            return Arc::clone(status);
        }
        let status = Arc::new(self.now());
        *last = Some((Instant::now(), Arc::clone(&status)));
        status
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn get_status(&self, _request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(self.state.now()))
    }

    type WatchStatusStream = BoxStream<'static, Result<WatchStatusResponse, Status>>;

    async fn watch_status(
        &self,
        request: Request<WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        let connection = Link::cut_of(request.extensions());
        let visibility = self.shared.visibility(request.extensions())?;
        let watch = watch::Watch::of(Arc::clone(&self.state), request.into_inner())?;
        Ok(Response::new(self.followers.open(connection, &visibility, |reader| watch.run(reader))?))
    }

    async fn list_executors(
        &self,
        request: Request<ListExecutorsRequest>,
    ) -> Result<Response<ListExecutorsResponse>, Status> {
        let ListExecutorsRequest { page_size, page_token } = request.into_inner();
        let cursor = Cursor::of("executors", page_size, &page_token)?;
        let executors = self.shared.reader.with(|queries| queries.executors());
        let clock = wire(self.shared.clock);
        let executors = executors.into_iter().map(|view| proto::convert::executor(view, clock)).collect();
        let name = |executor: &Executor| {
            let identity = executor.identity.clone().unwrap_or_default();
            // Two executors have one name while one of them is leaving.
            format!("{}\0{}", identity.executor, identity.incarnation)
        };
        let (executors, next_page_token) = cursor.page(executors, name);
        Ok(Response::new(ListExecutorsResponse { executors, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn list_pauses(&self, request: Request<ListPausesRequest>) -> Result<Response<ListPausesResponse>, Status> {
        let ListPausesRequest { page_size, page_token } = request.into_inner();
        let cursor = Cursor::of("pauses", page_size, &page_token)?;
        let clock = wire(self.shared.clock);
        let pauses = self.shared.reader.with(|queries| queries.guards_of(GuardKind::Pause));
        let pauses = pauses.into_iter().map(|view| bounds::short(proto::convert::pause(view, clock))).collect();
        let (pauses, next_page_token) = cursor.page(pauses, |pause: &Pause| pause.name.clone());
        Ok(Response::new(ListPausesResponse { pauses, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn list_guards(&self, request: Request<ListGuardsRequest>) -> Result<Response<ListGuardsResponse>, Status> {
        let ListGuardsRequest { page_size, page_token } = request.into_inner();
        let cursor = Cursor::of("guards", page_size, &page_token)?;
        let clock = wire(self.shared.clock);
        let guards = self.shared.reader.with(|queries| queries.guards());
        let mut guards: Vec<Guard> = guards.into_iter().map(|view| proto::convert::guard(view, clock)).collect();
        guards.sort_by(|one, other| one.name.cmp(&other.name));
        let (guards, next_page_token) = cursor.page(guards, |guard: &Guard| guard.name.clone());
        Ok(Response::new(ListGuardsResponse { guards, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn get_pause(&self, request: Request<GetPauseRequest>) -> Result<Response<GetPauseResponse>, Status> {
        let request = request.into_inner();
        let name = pause_name(&request.name)?;
        let pauses = self.shared.reader.with(|queries| queries.guards_of(GuardKind::Pause));
        let view =
            pauses.into_iter().find(|view| &*view.id.name == name).ok_or_else(|| status::pause_not_found(name))?;
        let pause = Some(proto::convert::pause(view, wire(self.shared.clock)));
        Ok(Response::new(GetPauseResponse { pause, meta: Some(self.shared.meta()) }))
    }

    async fn pause_collection(
        &self,
        request: Request<PauseCollectionRequest>,
    ) -> Result<Response<PauseCollectionResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let mut order =
            PauseOrder::try_from(request.into_inner()).map_err(|error| status::bad_field(&error.field, &error.why))?;
        let resolved = self.shared.reader.with(|queries| queries.resolve_scope(&order.scope));
        order.scope = resolved.map_err(|why| status::bad_field("scope", &why))?;
        if order.request_id.is_empty() {
            order.request_id = Uuid::new_v4().to_string();
        }
        let view = self.press.pause(&order, visibility.user()).await.map_err(|failure| status::pause(&failure, ""))?;
        let pause = Some(proto::convert::pause(view, wire(self.shared.clock)));
        Ok(Response::new(PauseCollectionResponse { pause, meta: Some(self.shared.meta()) }))
    }

    async fn resume_collection(
        &self,
        request: Request<ResumeCollectionRequest>,
    ) -> Result<Response<ResumeCollectionResponse>, Status> {
        let request = request.into_inner();
        let name = pause_name(&request.name)?;
        self.press.resume(name).await.map_err(|failure| status::pause(&failure, name))?;
        Ok(Response::new(ResumeCollectionResponse { meta: Some(self.shared.meta()) }))
    }

    /// The right comes before the gate, so that the error does not reveal whether the gate exists.
    async fn bypass_gate(&self, request: Request<BypassGateRequest>) -> Result<Response<BypassGateResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let order =
            BypassOrder::try_from(request.into_inner()).map_err(|error| status::bad_field(&error.field, &error.why))?;
        visibility.require_object(&order.gate).await?;
        let bypassed = self.press.bypass(&order, visibility.user()).await;
        let view = bypassed.map_err(|failure| status::bypass(&failure, &order.gate))?;
        let gate = Some(proto::convert::guard(view, wire(self.shared.clock)));
        Ok(Response::new(BypassGateResponse { gate, meta: Some(self.shared.meta()) }))
    }

    type ExportBundleStream = BoxStream<'static, Result<ExportBundleResponse, Status>>;

    async fn export_bundle(
        &self,
        request: Request<ExportBundleRequest>,
    ) -> Result<Response<Self::ExportBundleStream>, Status> {
        let connection = Link::cut_of(request.extensions());
        let visibility = self.shared.visibility(request.extensions())?;
        let turn = Arc::clone(&self.exporting).try_acquire_owned().map_err(|_| status::bundle::busy())?;
        let export = bundle::Export::of(Arc::clone(&self.shared), request.into_inner(), turn);
        Ok(Response::new(self.followers.open(connection, &visibility, |reader| export.run(reader))?))
    }
}

fn of_log(log: &DecisionLog) -> DecisionLogStatus {
    let extent = log.extent();
    let at = |sequence: u64, log_id: String| Position { log_id, sequence };
    let newest = extent.as_ref().map(|extent| at(extent.newest, extent.log_id.clone()));
    let oldest = extent.map(|extent| at(extent.oldest, extent.log_id));
    let Some(queue) = log.queue() else {
        return DecisionLogStatus { state: LogState::InMemory.into(), oldest, newest, ..DecisionLogStatus::default() };
    };
    let progress = queue.progress().borrow().clone();
    let (state, away) = match progress.standing {
        Standing::Connecting => (LogState::Connecting, None),
        Standing::Writing => (LogState::Writing, None),
        Standing::CatchingUp => (LogState::CatchingUp, None),
        Standing::Away { why, .. } => (LogState::Away, Some(why)),
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

/// The resource name of a pause, from its name on the wire.
fn pause_name(name: &str) -> Result<&str, Status> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let name = name.strip_prefix(PAUSE_PREFIX).unwrap_or_default();
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(plain) || name.starts_with('.') {
        return Err(status::bad_field("name", "does not have the form pauses/{pause}"));
    }
    Ok(name)
}
