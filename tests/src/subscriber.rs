//! A subscriber to the decision log that a test can kill at any time. It stores its data and its position together.

use anyhow::{Context, ensure};
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::watch_decisions_response::{Event, Gap};
use proto::decision::v1beta1::{DecisionEvent, Phase, Position, WatchDecisionsRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, interval, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

const MESSAGE_WITHIN: Duration = Duration::from_secs(30);

/// The subscriber repeats the call while the service is absent or cannot answer.
pub async fn patiently<T, F: Future<Output = Result<T, Status>>>(ask: impl Fn() -> F) -> Result<T, Status> {
    let deadline = Instant::now() + MESSAGE_WITHIN;
    let mut ticks = interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        match ask().await {
            Err(status) if status.code() == Code::Unavailable && Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

/// Returns a client of the service at this address.
pub async fn connect(server: &str) -> Result<DecisionServiceClient<Channel>, Status> {
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    DecisionServiceClient::connect(format!("http://{server}")).await.map_err(unavailable)
}

/// The stored data, over all restarts.
#[derive(Debug, Default)]
pub struct Subscriber {
    pub position: Option<Position>,
    /// The events by log and position.
    pub logs: BTreeMap<String, BTreeMap<u64, DecisionEvent>>,
    pub gaps: Vec<Gap>,
    /// The open decisions of the last gap.
    pub open: Vec<DecisionEvent>,
    /// The positions that arrived more than once.
    pub repeated: Vec<Position>,
}

/// The received data that are not complete. They are lost when the subscriber is killed.
#[derive(Debug, Default)]
struct Incomplete {
    gap: Option<Gap>,
    open: Vec<DecisionEvent>,
}

impl Subscriber {
    /// Runs until the position has moved this many times, or until the stream ends. Then all data are lost but the
    /// stored ones.
    pub async fn live(&mut self, server: &str, steps: usize, accept_gaps: bool) -> Result<(), Status> {
        let start = self.position.clone().map_or(Start::Oldest(true), Start::After);
        let request = WatchDecisionsRequest { start: Some(start), accept_gaps, ..WatchDecisionsRequest::default() };
        let open = || async { Ok(connect(server).await?.watch_decisions(request.clone()).await?.into_inner()) };
        let mut stream = patiently(open).await?;
        let mut incomplete = Incomplete::default();
        let mut left = steps;
        while left > 0 {
            let message = timeout(MESSAGE_WITHIN, stream.message()).await;
            let message = message.map_err(|_| Status::deadline_exceeded("a quiet stream has bookmarks"))??;
            let Some(message) = message else { return Ok(()) };
            match message.event {
                Some(Event::Batch(batch)) => {
                    batch.events.into_iter().for_each(|event| self.take(event, &mut incomplete))
                }
                Some(Event::Gap(gap)) => incomplete = Incomplete { gap: Some(gap), open: Vec::new() },
                Some(Event::Bookmark(_) | Event::GoingAway(_)) | None => {}
            }
            let Some(position) = message.position else { continue };
            self.position = Some(position);
            if let Some(gap) = incomplete.gap.take() {
                self.gaps.push(gap);
                self.open = std::mem::take(&mut incomplete.open);
            }
            left -= 1;
        }
        Ok(())
    }

    fn take(&mut self, event: DecisionEvent, incomplete: &mut Incomplete) {
        // An open decision has no position, because it is no step.
        let Some(position) = event.position.clone() else { return incomplete.open.push(event) };
        let log = self.logs.entry(position.log_id.clone()).or_default();
        if log.insert(position.sequence, event).is_some() {
            self.repeated.push(position);
        }
    }

    /// Returns the newest position in the present log.
    pub fn sequence(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.sequence)
    }

    pub fn events(&self) -> impl Iterator<Item = &DecisionEvent> {
        self.logs.values().flat_map(BTreeMap::values)
    }

    /// Returns the uids of targets with an event of this phase.
    pub fn targets(&self, phase: Phase) -> BTreeSet<String> {
        let events = self.events().filter(|event| event.phase() == phase);
        events.filter_map(|event| Some(event.target.as_ref()?.uid.clone())).collect()
    }

    /// Checks each log between its first and its last event: no event is missing, no event arrived twice, and no leader
    /// wrote after a newer one.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.repeated.is_empty(), "came more than once: {:?}", self.repeated);
        let lost = self.gaps.iter().filter_map(|gap| gap.first_missing.clone());
        let lost: BTreeSet<(String, u64)> = lost.map(|position| (position.log_id, position.sequence)).collect();
        for (log_id, events) in &self.logs {
            let (mut next, mut term) = (None, 0);
            for (&sequence, event) in events {
                let missing = (next.unwrap_or(sequence)..sequence).find(|at| !lost.contains(&(log_id.clone(), *at)));
                ensure!(missing.is_none(), "{missing:?} of {log_id} never came, and no gap tells of it");
                let of = event.term.as_ref().context("an event is of a term")?.number;
                ensure!(of >= term, "term {of} at {sequence}, behind term {term}");
                (next, term) = (Some(sequence + 1), of);
            }
        }
        Ok(())
    }

    /// Checks this for one log from its beginning, without gaps.
    pub fn check_all(&self) -> anyhow::Result<()> {
        self.check()?;
        ensure!(self.gaps.is_empty(), "no gap: {:?}", self.gaps);
        let logs: Vec<&String> = self.logs.keys().collect();
        ensure!(logs.len() == 1, "one log: {logs:?}");
        let first_and_count = self.logs.values().next().map(|log| (log.keys().next().copied(), log.len() as u64));
        ensure!(first_and_count == Some((Some(1), self.sequence())), "{first_and_count:?} up to {}", self.sequence());
        Ok(())
    }
}
