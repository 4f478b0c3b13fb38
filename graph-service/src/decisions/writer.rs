//! The write end of the log, for the collector's task.

use super::entry::{Noted, Step};
use super::kept::{Begin, Record};
use super::{DecisionLog, Queue};
use engine::leader::Event;
use engine::work::Term;
use prost::Message as _;
use proto::convert::{self, LeaderLog};
use std::sync::Arc;

/// The only writer of the log. The collector's task owns it, and it never waits.
#[derive(Debug)]
pub(crate) struct Writer {
    sink: Sink,
    log: LeaderLog,
    /// Steps of this round. They become visible together at its end, with one notification.
    round: Vec<Step>,
}

#[derive(Debug)]
enum Sink {
    Memory(DecisionLog),
    /// Steps go to the log that all replicas share.
    Queue(Arc<Queue>),
}

impl Writer {
    pub(crate) fn new(log: &DecisionLog) -> Writer {
        let sink = log.queue().cloned().map_or_else(|| Sink::Memory(log.clone()), Sink::Queue);
        Writer { sink, log: LeaderLog::default(), round: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn into_queue(queue: Arc<Queue>) -> Writer {
        Writer { sink: Sink::Queue(queue), log: LeaderLog::default(), round: Vec::new() }
    }

    /// Records an event.
    pub(crate) fn note(&mut self, event: &Event, clock: convert::Clock) {
        if let Event::TermGained(term) = event {
            self.round.push(Step::Begin(term.clone(), clock.calendar.into()));
        }
        if matches!(event, Event::TermLost) {
            self.round.push(Step::End);
        }
        if let Some(event) = self.log.record(event, clock) {
            self.round.push(Step::Event(Noted { event: event.encode_to_vec().into(), time: event.event_time }));
        }
    }

    /// Shows the recorded steps to readers, or queues them for the shared log.
    pub(crate) fn publish(&mut self) {
        if self.round.is_empty() {
            return;
        }
        match &self.sink {
            Sink::Memory(log) => log.change(|kept| {
                for step in self.round.drain(..) {
                    match step {
                        Step::Begin(term, time) => {
                            kept.begin(log_id(&term), Begin::default());
                            kept.begun = Some(time);
                        }
                        Step::End => kept.end(),
                        Step::Event(noted) => kept.push(Record::Event(noted.event), log.events_max),
                    }
                }
            }),
            Sink::Queue(queue) => queue.take(self.round.drain(..)),
        }
    }
}

/// One log for each term, because the next leader does not know the events of this one.
fn log_id(term: &Term) -> String {
    format!("{}.{}", term.election, term.number)
}
