//! A subscriber to the log of decisions that can be killed at any moment: what it has seen and how far it has come change together.

use anyhow::{Context, ensure};
use proto::decision::v1alpha1::decision_service_client::DecisionServiceClient;
use proto::decision::v1alpha1::watch_decisions_request::Start;
use proto::decision::v1alpha1::watch_decisions_response::{Event, Gap};
use proto::decision::v1alpha1::{DecisionEvent, Phase, Position, WatchDecisionsRequest};
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

/// What it has seen in all its lives.
#[derive(Debug, Default)]
pub struct Subscriber {
    pub position: Option<Position>,
    /// By position.
    pub events: BTreeMap<u64, DecisionEvent>,
    pub gaps: Vec<Gap>,
    /// Positions that came more than once.
    pub repeated: Vec<u64>,
    pub logs: BTreeSet<String>,
}

impl Subscriber {
    /// Lives until it has taken so many messages, or the stream ends; then everything of it is gone but what it has stored.
    pub async fn live(&mut self, server: &str, messages: usize, accept_gaps: bool) -> Result<(), Status> {
        let start = self.position.clone().map_or(Start::Oldest(true), Start::After);
        let request = WatchDecisionsRequest { start: Some(start), accept_gaps, ..WatchDecisionsRequest::default() };
        let open = || async { Ok(connect(server).await?.watch_decisions(request.clone()).await?.into_inner()) };
        let mut stream = patiently(open).await?;
        for _ in 0..messages {
            let message = timeout(MESSAGE_WITHIN, stream.message()).await;
            let message = message.map_err(|_| Status::deadline_exceeded("a quiet stream has bookmarks"))??;
            let Some(message) = message else { return Ok(()) };
            match message.event {
                Some(Event::Batch(batch)) => batch.events.into_iter().for_each(|event| self.take(event)),
                Some(Event::Gap(gap)) => self.gaps.push(gap),
                Some(Event::Bookmark(_) | Event::GoingAway(_)) | None => {}
            }
            self.position = message.position.or(self.position.take());
        }
        Ok(())
    }

    fn take(&mut self, event: DecisionEvent) {
        // What is open has no position: it is no step.
        let Some(position) = &event.position else { return };
        self.logs.insert(position.log_id.clone());
        let sequence = position.sequence;
        if self.events.insert(sequence, event).is_some() {
            self.repeated.push(sequence);
        }
    }

    /// The newest that it has come past.
    pub fn sequence(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.sequence)
    }

    /// uids of targets with an event of this phase.
    pub fn targets(&self, phase: Phase) -> BTreeSet<String> {
        let events = self.events.values().filter(|event| event.phase() == phase);
        events.filter_map(|event| Some(event.target.as_ref()?.uid.clone())).collect()
    }

    /// Nothing is missing up to where it has come, nothing came twice, and no leader wrote behind a later one.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.repeated.is_empty(), "came more than once: {:?}", self.repeated);
        ensure!(self.logs.len() == 1, "one log: {:?}", self.logs);
        let lost: BTreeSet<u64> =
            self.gaps.iter().filter_map(|gap| Some(gap.first_missing.as_ref()?.sequence)).collect();
        let missing = (1..=self.sequence()).filter(|at| !self.events.contains_key(at) && !lost.contains(at));
        let missing: Vec<u64> = missing.take(10).collect();
        ensure!(missing.is_empty(), "never came: {missing:?}");
        let mut last = 0;
        for (sequence, event) in &self.events {
            let term = event.term.as_ref().context("an event is of a term")?.number;
            ensure!(term >= last, "term {term} at {sequence}, behind term {last}");
            last = term;
        }
        Ok(())
    }
}
