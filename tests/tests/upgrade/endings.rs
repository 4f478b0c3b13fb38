//! The ends of streams: of executors' streams by the logs, and of readers' streams by the readers.

use anyhow::Context;
use futures::FutureExt;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::{WatchDecisionsRequest, watch_decisions_response};
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{WatchDependentsRequest, watch_dependents_response};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::interval;
use tonic::Streaming;
use tonic::transport::Channel;

/// The ends of the executors' streams.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// The ends of streams with a session.
    pub(crate) sessions: BTreeMap<&'static str, usize>,
    /// The ends of attempts to get a session.
    pub(crate) refusals: BTreeMap<&'static str, usize>,
    /// Every unclean end, and every error or panic in a log.
    pub(crate) wrong: Vec<String>,
}

impl Endings {
    fn note(&mut self, process: &str, line: &str, is_open: &mut bool) {
        let Ok(record) = serde_json::from_str::<Value>(line) else {
            // A process writes this before it has a log, or when it panics.
            return self.wrong.push(format!("{process}: {line}"));
        };
        let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let why = field("why");
        match field("message").as_str() {
            "session open" => *is_open = true,
            "no stream to the graph service" if std::mem::take(is_open) => match why.as_str() {
                "the leader asked the executor to leave" => *self.sessions.entry("sent away").or_default() += 1,
                _ => self.wrong.push(format!("{process}: a session's stream ended: {why}")),
            },
            "no stream to the graph service" => match () {
                () if why.contains("NOT_LEADER") => *self.refusals.entry("not leader").or_default() += 1,
                () if why.contains("NO_LEADER") => *self.refusals.entry("no leader").or_default() += 1,
                () if why.contains("no connection") => *self.refusals.entry("no connection").or_default() += 1,
                // There was no stream: the executor connected to the port of a process that ended before it accepted
                // the connection.
                () if why.ends_with("connection reset") => *self.refusals.entry("no connection").or_default() += 1,
                // The leader of a busy machine answers later than the executor waits. `ensure_spoken` waits for the
                // attempt that gets an answer.
                () if why.contains("no welcome within") => *self.refusals.entry("no answer").or_default() += 1,
                () => self.wrong.push(format!("{process}: no session: {why}")),
            },
            "executor stopped after all leases ended" => *self.sessions.entry("drained").or_default() += 1,
            _ if field("level") == "ERROR" => self.wrong.push(format!("{process}: {line}")),
            _ => {}
        }
    }
}

/// Reads the logs of all processes in this directory.
pub(crate) fn stream_endings(directory: &Path) -> anyhow::Result<Endings> {
    let mut endings = Endings::default();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let process = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let mut is_open = false;
            text.lines().for_each(|line| endings.note(&process, line, &mut is_open));
        }
    }
    Ok(endings)
}

/// Returns term and protocol of the session that an executor opened last, by its log.
pub(crate) fn session_open(log: &str) -> Option<(u64, u64)> {
    let opened = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let record = opened.into_iter().find(|record| record["message"] == "session open")?;
    Some((record["term"].as_u64()?, record["protocol"].as_u64()?))
}

type Seen = Arc<Mutex<Vec<String>>>;

/// A reader of one of a replica's streams. It calls again when a stream has ended.
pub(crate) struct Follower {
    what: &'static str,
    seen: Seen,
    task: JoinSet<()>,
}

impl Follower {
    /// Starts one client that watches all objects, and one that follows the leader's decisions.
    pub(crate) fn start_both(address: &str) -> [Follower; 2] {
        let address = format!("http://{address}");
        let to = address.clone();
        let objects = Follower::start("objects", move || follow_objects(to.clone()));
        [objects, Follower::start("decisions", move || follow_decisions(address.clone()))]
    }

    fn start<F>(what: &'static str, mut call: impl FnMut() -> F + Send + 'static) -> Follower
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        let (seen, mut task) = (Seen::default(), JoinSet::new());
        let noted = Arc::clone(&seen);
        task.spawn(async move {
            let mut calls = interval(Duration::from_millis(100));
            loop {
                calls.tick().await;
                if let Some(ending) = call().await {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(ending);
                }
            }
        });
        Follower { what, seen, task }
    }

    /// The ends of its streams.
    pub(crate) async fn stop(mut self) -> anyhow::Result<(&'static str, Vec<String>)> {
        if let Some(ended) = self.task.join_next().now_or_never().flatten() {
            ended.context("a follower ended")?;
        }
        self.task.shutdown().await;
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((self.what, seen))
    }
}

async fn connect(address: String) -> Option<Channel> {
    Channel::from_shared(address).ok()?.connect().await.ok()
}

/// Reads a stream to its end. Returns `None` if it had no message: the replica is absent, or does not lead.
async fn ending<M>(mut stream: Streaming<M>, tells_to_go: impl Fn(&M) -> bool) -> Option<String> {
    let (mut heard, mut told_to_go) = (false, false);
    let ended = loop {
        match stream.message().await {
            Ok(Some(message)) => (heard, told_to_go) = (true, tells_to_go(&message)),
            Ok(None) => break Ok(()),
            Err(status) => break Err(status),
        }
    };
    match ended {
        Ok(()) if told_to_go => Some("told to go, and closed".to_owned()),
        Ok(()) => Some("closed without a word".to_owned()),
        Err(_) if !heard => None,
        Err(status) => Some(format!("told to go: {told_to_go}, then {status:?}")),
    }
}

async fn follow_objects(address: String) -> Option<String> {
    let mut client = GraphServiceClient::new(connect(address).await?);
    let stream = client.watch_dependents(WatchDependentsRequest::default()).await.ok()?.into_inner();
    ending(stream, |message| matches!(message.event, Some(watch_dependents_response::Event::GoingAway(_)))).await
}

async fn follow_decisions(address: String) -> Option<String> {
    let mut client = DecisionServiceClient::new(connect(address).await?);
    let request = WatchDecisionsRequest {
        start: Some(Start::Oldest(true)),
        accept_gaps: true,
        ..WatchDecisionsRequest::default()
    };
    let stream = client.watch_decisions(request).await.ok()?.into_inner();
    ending(stream, |message| matches!(message.event, Some(watch_decisions_response::Event::GoingAway(_)))).await
}
