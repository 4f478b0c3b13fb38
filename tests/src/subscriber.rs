//! A subscriber to the decision log that can be killed at any moment: what it has seen and how far it has come change together.

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

/// Asks again for as long as the service is not there, or cannot answer yet.
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

/// A client of the service at this address.
pub async fn connect(server: &str) -> Result<DecisionServiceClient<Channel>, Status> {
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    DecisionServiceClient::connect(format!("http://{server}")).await.map_err(unavailable)
}

/// The data it has stored over all restarts.
#[derive(Debug, Default)]
pub struct Subscriber {
    pub position: Option<Position>,
    /// By log and position.
    pub logs: BTreeMap<String, BTreeMap<u64, DecisionEvent>>,
    pub gaps: Vec<Gap>,
    /// What was open when the last gap was told of.
    pub open: Vec<DecisionEvent>,
    /// Positions that came more than once.
    pub repeated: Vec<Position>,
}

/// What has come and is not complete: gone with the life in which it came.
#[derive(Debug, Default)]
struct Incomplete {
    gap: Option<Gap>,
    open: Vec<DecisionEvent>,
}

impl Subscriber {
    /// Lives until it has come further this many times, or the stream ends; then everything of it is gone but what it has stored.
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
        // What is open has no position: it is no step.
        let Some(position) = event.position.clone() else { return incomplete.open.push(event) };
        let log = self.logs.entry(position.log_id.clone()).or_default();
        if log.insert(position.sequence, event).is_some() {
            self.repeated.push(position);
        }
    }

    /// The newest that it has come past in the present log.
    pub fn sequence(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.sequence)
    }

    pub fn events(&self) -> impl Iterator<Item = &DecisionEvent> {
        self.logs.values().flat_map(BTreeMap::values)
    }

    /// uids of targets with an event of this phase.
    pub fn targets(&self, phase: Phase) -> BTreeSet<String> {
        let events = self.events().filter(|event| event.phase() == phase);
        events.filter_map(|event| Some(event.target.as_ref()?.uid.clone())).collect()
    }

    /// Nothing is missing in any log between the first that came and the last, nothing came twice, and no leader wrote behind a later one.
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

    /// The same of one log that was seen from its beginning, and is seen without a gap.
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
