//! The answers of the admin HTTP server: liveness, the session, the last error, metrics.

use crate::metrics::{Look, Metrics, Now};
use engine::session::{Phase, Status};
use engine::time::Time;
use prometheus_client::registry::Registry;
use runtime::admin::{Probe, Readiness};
use runtime::clock::Clock;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum time without a turn of the driver. After it the driver counts as stopped.
const PROGRESS_WITHIN: Duration = Duration::from_secs(30);

/// The health of the service.
#[derive(Debug)]
pub(crate) struct Health {
    clock: Clock,
    metrics: Metrics,
    /// The registry of `/metrics`, if this executor serves it.
    registry: Option<Registry>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last_turn: Time,
    /// Why the start is not complete.
    starting: Option<String>,
    session: Option<Status>,
    cluster_uid: String,
    peer: String,
    /// The reason why the API server refuses the credentials; `None` if it does not.
    stranger: Option<String>,
    last_error: Option<(Time, String)>,
}

impl Health {
    pub(crate) fn new(clock: Clock, metrics: Metrics, registry: Option<Registry>) -> Arc<Health> {
        let state = State {
            last_turn: clock.now(),
            starting: Some("the service has not contacted the API server yet".to_owned()),
            session: None,
            cluster_uid: String::new(),
            peer: String::new(),
            stranger: None,
            last_error: None,
        };
        let health = Arc::new(Health { clock, metrics, registry, state: Mutex::new(state) });
        let known: Arc<dyn Look> = health.clone();
        health.metrics.add(Arc::downgrade(&known));
        health
    }

    /// Sets why the start is not complete. Counts as progress.
    pub(crate) fn starting(&self, why: String) {
        let now = self.clock.now();
        self.with(|state| {
            state.last_turn = now;
            state.starting = Some(why);
        });
    }

    pub(crate) fn started(&self, cluster_uid: &str) {
        self.with(|state| {
            state.starting = None;
            cluster_uid.clone_into(&mut state.cluster_uid);
        });
    }

    /// Records a turn of the driver.
    pub(crate) fn turned(&self, now: Time, session: Status) {
        self.with(|state| {
            state.last_turn = now;
            state.session = Some(session);
        });
    }

    pub(crate) fn connecting(&self, address: &str) {
        self.with(|state| address.clone_into(&mut state.peer));
    }

    /// Sets why the API server refuses the credentials; `None` when it accepts them.
    pub(crate) fn credentials(&self, refused: Option<String>) {
        self.with(|state| state.stranger = refused);
    }

    pub(crate) fn failed(&self, now: Time, why: &str) {
        self.with(|state| state.last_error = Some((now, why.to_owned())));
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Look for Health {
    fn now(&self) -> Now {
        let now = self.clock.now();
        self.with(|state| {
            let session = state.session.as_ref();
            Now {
                has_session: session.is_some_and(|session| matches!(session.phase, Phase::Active { .. })),
                is_accepted: session.is_none_or(|session| session.credentials_refused.is_none()),
                started: session.map_or(0, |session| session.started),
                concurrency: session.map_or(0, |session| session.concurrency),
                loop_idle: now.since(state.last_turn),
            }
        })
    }
}

impl Probe for Health {
    fn livez(&self) -> Result<(), String> {
        let age = self.now().loop_idle;
        if age <= PROGRESS_WITHIN {
            Ok(())
        } else {
            Err(format!("the executor's loop has made no progress for {} s", age.as_secs()))
        }
    }

    fn readyz(&self) -> Readiness {
        let now = self.clock.now();
        self.with(|state| {
            if let Some(why) = &state.starting {
                return Readiness { ready: false, lines: vec![format!("start: {why}")] };
            }
            let mut lines = vec![format!("cluster: {}", state.cluster_uid)];
            let mut ready = false;
            if let Some(session) = &state.session {
                let stranger = session.credentials_refused;
                ready = matches!(session.phase, Phase::Active { .. }) && !session.draining && stranger.is_none();
                lines.extend(stranger.map(|since| {
                    let why = state.stranger.as_deref().unwrap_or_default();
                    format!(
                        "credentials: refused by the API server for {} s, so the executor accepts no work: {why}",
                        now.since(since).as_secs()
                    )
                }));
                lines.push(format!("session: {}", session_words(session, &state.peer, now)));
                lines.extend(
                    session.term.as_ref().map(|term| format!("term: {} of election {}", term.number, term.election)),
                );
                lines.push(format!(
                    "items: {} in progress of at most {}, {} waiting, {} reports unacknowledged",
                    session.started, session.concurrency, session.buffered, session.unacknowledged
                ));
            }
            if let Some((at, why)) = &state.last_error {
                lines.push(format!("last error: {} s ago, {why}", now.since(*at).as_secs()));
            }
            Readiness { ready, lines }
        })
    }

    fn metrics(&self) -> String {
        self.registry.as_ref().map_or_else(String::new, runtime::admin::encode)
    }

    fn debug_graph(&self, _uids: Vec<String>) -> Option<Result<String, String>> {
        None
    }
}

fn session_words(session: &Status, peer: &str, now: Time) -> String {
    let words = match session.phase {
        Phase::Waiting => format!("none, waiting before the next attempt; the last was at {peer}"),
        Phase::Connecting => format!("none, connecting to {peer}"),
        Phase::Greeting => format!("none, waiting for the welcome of {peer}"),
        Phase::Active { since } => format!("open with {peer} for {} s", now.since(since).as_secs()),
        Phase::Over => "over".to_owned(),
    };
    if session.draining { format!("{words}, draining") } else { words }
}
