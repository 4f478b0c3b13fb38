//! Probes and metrics of a command that follows the log. Metrics have no names of objects.

use super::stream::QUIET_MAX;
use crate::kubectl::ending::note;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::admin::{Probe, Readiness, encode};
use runtime::metrics::Book;
use runtime::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time for which a receiver takes nothing and the sink still counts as ready.
const REFUSING_MAX: Duration = Duration::from_secs(30);
/// Interval of notes about a receiver that takes nothing.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// Maximum time without a turn of the sink, which has one every second.
const TURN_WITHIN: Duration = Duration::from_secs(60);

/// The state that probes see.
#[derive(Debug)]
pub(super) struct Standing {
    is_sink: bool,
    registry: Registry,
    pub(super) counts: Counts,
    state: Mutex<State>,
}

/// The counters of a sink.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) delivered: Counter,
    pub(super) retried: Counter,
    pub(super) dead_letters: Counter,
    pub(super) gaps: Counter,
    pub(super) in_flight: Gauge,
    pub(super) unsettled: Gauge,
    pub(super) lag: Gauge,
}

#[derive(Debug, Default)]
struct State {
    heard: Option<Instant>,
    turned: Option<Instant>,
    /// Since when and why the receiver takes nothing.
    refusing: Option<(Instant, String)>,
    /// When the last note about that was due, and whether it has an end.
    noted: Option<(Instant, bool)>,
    file: Option<String>,
}

impl Standing {
    /// The state of a reader, with the metrics of a sink if it has one.
    pub(super) fn new(is_sink: bool) -> Arc<Standing> {
        let (mut registry, counts) = (Registry::default(), Counts::default());
        let mut book = Book::new(&mut registry);
        if is_sink {
            counts.register(&mut book);
        }
        process::register(&mut book);
        Arc::new(Standing { is_sink, registry, counts, state: Mutex::default() })
    }

    /// A message of the stream arrived.
    pub(super) fn heard(&self) {
        self.with(|state| state.heard = Some(Instant::now()));
    }

    /// The sink makes progress, even if the receiver does not.
    pub(super) fn turned(&self) {
        self.with(|state| state.turned = Some(Instant::now()));
    }

    /// The receiver took an event, or refused this one. Returns whether a note is due.
    pub(super) fn answered(&self) -> bool {
        self.with(|state| {
            state.refusing = None;
            state.noted.as_mut().is_some_and(|(_, has_ended)| !std::mem::replace(has_ended, true))
        })
    }

    /// The receiver takes nothing. Returns whether a note is due.
    pub(super) fn refused(&self, why: &str) -> bool {
        self.with(|state| {
            let now = Instant::now();
            let since = state.refusing.take().map_or(now, |(since, _)| since);
            state.refusing = Some((since, why.to_owned()));
            let is_due = state.noted.is_none_or(|(at, has_ended)| has_ended && now - at >= NOTE_EVERY);
            if is_due {
                state.noted = Some((now, false));
            }
            is_due
        })
    }

    /// Files are written, or why one of them is not. Prints a new reason.
    pub(super) fn wrote(&self, written: Result<(), String>) {
        let why = written.err();
        if self.filed(why.clone())
            && let Some(why) = why
        {
            note(&format!("warning: {why}"));
        }
    }

    /// Returns whether the reason is new.
    fn filed(&self, why: Option<String>) -> bool {
        self.with(|state| {
            let is_new = why.is_some() && state.file != why;
            state.file = why;
            is_new
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Probe for Standing {
    fn livez(&self) -> Result<(), String> {
        match self.with(|state| state.turned) {
            Some(turned) if turned.elapsed() > TURN_WITHIN => {
                Err(format!("the sink has made no turn for {} s", turned.elapsed().as_secs()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn readyz(&self) -> Readiness {
        self.with(|state| {
            let stream = match state.heard {
                None => Some("nothing has arrived yet".to_owned()),
                Some(heard) => Some(heard.elapsed())
                    .filter(|quiet| *quiet > QUIET_MAX)
                    .map(|quiet| format!("nothing has arrived for {} s", quiet.as_secs())),
            };
            let receiver = state.refusing.as_ref();
            let refusing =
                receiver.map(|(since, why)| format!("takes nothing for {} s: {why}", since.elapsed().as_secs()));
            let ready = stream.is_none()
                && state.file.is_none()
                && receiver.is_none_or(|(since, _)| since.elapsed() <= REFUSING_MAX);
            let line = |what: &str, why: Option<String>| format!("{what}: {}", why.unwrap_or_else(|| "ok".to_owned()));
            let mut lines = vec![line("decisions", stream), line("files", state.file.clone())];
            if self.is_sink {
                lines.push(line("receiver", refusing));
            }
            Readiness { ready, lines }
        })
    }

    fn metrics(&self) -> String {
        encode(&self.registry)
    }

    fn debug_graph(&self, _uids: Vec<String>) -> Option<Result<String, String>> {
        None
    }
}

impl Counts {
    fn register(&self, book: &mut Book<'_>) {
        let Counts { delivered, retried, dead_letters, gaps, in_flight, unsettled, lag } = self;
        let nothing = "docs/decisions.md says what to do.";
        for (name, help, counter) in [
            ("ownergraph_sink_delivered", "Events that the receiver took", delivered),
            ("ownergraph_sink_retried", "Attempts after which an event is sent again", retried),
            ("ownergraph_sink_dead_letters", "Events that are dead letters", dead_letters),
            ("ownergraph_sink_gaps", "Gaps in the log", gaps),
        ] {
            book.put(name, [], (help, nothing), counter.clone());
        }
        for (name, help, gauge) in [
            ("ownergraph_sink_in_flight", "Requests that wait for an answer", in_flight),
            ("ownergraph_sink_events", "Events in memory that are not settled", unsettled),
            ("ownergraph_sink_lag_events", "Events of the log after the position of the sink", lag),
        ] {
            book.put(name, [], (help, nothing), gauge.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn probes_name_what_stands() {
        let standing = Standing::new(true);
        let readiness = |words: &str, ready: bool| {
            let Readiness { ready: is, lines } = standing.readyz();
            assert!(is == ready && lines.iter().any(|line| line.contains(words)), "{is} {lines:?}");
        };
        readiness("nothing has arrived yet", false);
        standing.heard();
        readiness("decisions: ok", true);
        assert!(standing.refused("503") && !standing.refused("504"));
        readiness("takes nothing for 0 s: 504", true);
        tokio::time::advance(REFUSING_MAX + Duration::from_secs(1)).await;
        standing.heard();
        readiness("takes nothing for 31 s: 504", false);
        assert!(standing.answered() && !standing.answered());
        readiness("receiver: ok", true);
        assert!(standing.filed(Some("full".into())) && !standing.filed(Some("full".into())));
        readiness("files: full", false);
        assert!(!standing.filed(None));
        tokio::time::advance(QUIET_MAX + Duration::from_secs(1)).await;
        readiness("nothing has arrived for 31 s", false);
        assert_eq!(standing.livez(), Ok(()), "a reader without a sink has no turns");
        standing.turned();
        tokio::time::advance(TURN_WITHIN + Duration::from_secs(1)).await;
        assert!(standing.livez().unwrap_err().contains("no turn for 61 s"));
    }

    #[test]
    fn a_sink_shows_its_counts_and_a_reader_none() {
        let standing = Standing::new(true);
        standing.counts.dead_letters.inc();
        let shown = standing.metrics();
        for line in ["ownergraph_sink_dead_letters_total 1", "ownergraph_sink_lag_events 0"] {
            assert!(shown.contains(line), "{shown}");
        }
        let reader = Standing::new(false);
        assert!(!reader.metrics().contains("ownergraph_sink"));
        assert_eq!(reader.readyz().lines, ["decisions: nothing has arrived yet", "files: ok"]);
    }
}
