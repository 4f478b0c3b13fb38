//! The one task that owns the engine. It passes facts in and effects out, and never waits while state changes.
//!
//! Three bounded queues feed it. A round takes from all of them in this order: *control* (terms, stop), because a lost
//! term must stop grants first; *sessions*, because heartbeats keep leases alive; *facts* from the API server, which
//! arrive in thousands. A round takes a bounded number of inputs from each queue, so that no queue starves another.

use crate::election::Validity;
use crate::messages::{Ask, Control, Ending, OUTBOX_MAX, Outbox, SessionInput, WantedPause};
use crate::recorder::Recorder;
use crate::render::Render;
use crate::traces::Traces;
use engine::leader::{Input, Leader, Output, Queries, StreamId};
use engine::time::Time;
use engine::work::ToExecutor;
use runtime::clock::Clock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

mod pending_decisions;
#[cfg(test)]
mod tests;

pub(crate) use pending_decisions::PendingDecisions;

/// Maximum number of inputs of each queue in one round. An input takes a few microseconds, so that readers do not
/// notice the lock of a round.
const ROUND_MAX: usize = 1000;
/// Maximum number of effects of one round. The next round handles the rest, such as those of an owner with many
/// dependents, after the inputs that arrived meanwhile.
const EFFECTS_MAX: usize = 1024;
/// Interval of rounds without input. They show that the driver is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Minimum pause between two rounds without input. A deadline that does not move must not make the loop spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Maximum time from the order to stop to the end of the driver, even with open streams.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Read access to the leader.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    leader: Arc<RwLock<Leader>>,
    /// Has no value. It only notifies of rounds.
    rounds: watch::Sender<()>,
}

impl Reader {
    #[cfg(test)]
    pub(crate) fn of(leader: Leader) -> Reader {
        Reader { leader: Arc::new(RwLock::new(leader)), rounds: watch::Sender::new(()) }
    }

    /// Changes the leader as a round of the driver does, for tests without a driver.
    #[cfg(test)]
    pub(crate) fn alter(&self, change: impl FnOnce(&mut Leader)) {
        let mut leader = self.leader.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut leader);
        while leader.poll().is_some() {}
        drop(leader);
        self.rounds.send_replace(());
    }

    /// Notifies of each round that had input.
    pub(crate) fn rounds(&self) -> watch::Receiver<()> {
        self.rounds.subscribe()
    }

    /// Calls `look` under a read lock. The call must be short, because the collector waits for it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Queries<'_>) -> T) -> T {
        // A poisoned lock means that the driver panicked and the process is ending. Reading is harmless.
        look(&self.leader.read().unwrap_or_else(PoisonError::into_inner).queries())
    }
}

/// Milliseconds of the clock at the last round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    pub(crate) fn stamp(&self, clock: Clock) {
        let millis = u64::try_from(clock.now().since_origin().as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    /// The time since the last round.
    pub(crate) fn age(&self, clock: Clock) -> Duration {
        clock.now().since_origin().saturating_sub(Duration::from_millis(self.0.load(Ordering::Relaxed)))
    }
}

/// The receiving ends.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) control: mpsc::Receiver<Control>,
    pub(crate) sessions: mpsc::Receiver<SessionInput>,
    pub(crate) facts: mpsc::Receiver<Input>,
}

/// See the module documentation.
pub(crate) struct Driver {
    leader: Arc<RwLock<Leader>>,
    rounds: watch::Sender<()>,
    queues: Queues,
    streams: BTreeMap<StreamId, Outbox>,
    /// Streams whose outbox overflowed in the last round. The engine gets their ends in the next round.
    overflowed: Vec<StreamId>,
    /// The engine has more effects than the last round had room for.
    unfinished: bool,
    /// `Some` after a request to stop: the time by which the driver ends.
    stop_by: Option<tokio::time::Instant>,
    ask: Box<dyn FnMut(Ask) + Send>,
    render: Render,
    pending: PendingDecisions,
    /// `None` without traces.
    traces: Option<Traces>,
    /// `None` without a recording, or after its end.
    recorder: Option<Recorder>,
    clock: Clock,
    heartbeat: Heartbeat,
    validity: Validity,
}

impl Driver {
    pub(crate) fn new(
        leader: Leader,
        queues: Queues,
        ask: Box<dyn FnMut(Ask) + Send>,
        (render, pending): (Render, PendingDecisions),
        clock: Clock,
        heartbeat: Heartbeat,
        validity: Validity,
    ) -> Driver {
        Driver {
            leader: Arc::new(RwLock::new(leader)),
            rounds: watch::Sender::new(()),
            queues,
            streams: BTreeMap::new(),
            overflowed: Vec::new(),
            unfinished: false,
            stop_by: None,
            ask,
            render,
            pending,
            traces: None,
            recorder: None,
            clock,
            heartbeat,
            validity,
        }
    }

    /// Adds traces to the driver.
    pub(crate) fn traced(self, traces: Option<Traces>) -> Driver {
        Driver { traces, ..self }
    }

    /// Adds a recording to the driver.
    pub(crate) fn recorded(self, recorder: Option<Recorder>) -> Driver {
        Driver { recorder, ..self }
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader { leader: Arc::clone(&self.leader), rounds: self.rounds.clone() }
    }

    /// Runs until [`Control::Stop`] has stopped it.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let mut round = Round::default();
        while !self.has_ended() {
            self.heartbeat.stamp(self.clock);
            self.wait(&mut round).await;
            let started = std::time::Instant::now();
            round.fill(&mut self.queues);
            if let Some(traces) = &mut self.traces {
                traces.round();
            }
            let (inputs, facts) = (round.len(), round.facts.len());
            let now = self.clock.now();
            let (outputs, done) = self.change(now, &mut round);
            if let Some(recorder) = self.recorder.take() {
                let unfinished = self.unfinished.then_some(outputs.len() as u32);
                self.recorder = recorder.round(now, unfinished).await;
            }
            if inputs > 0 {
                self.rounds.send_replace(());
            }
            self.carry_out(outputs);
            self.render.publish();
            self.pending.round_is_noted(self.unfinished);
            for (stream, message) in self.pending.released() {
                self.send(stream, message);
            }
            // Notify only now, because a waiting task may rely on all messages to executors, including farewells, being
            // sent.
            for done in done {
                let _receiver_gone = done.send(());
            }
            self.render.round(inputs, facts, started.elapsed());
        }
        if let Some(recorder) = self.recorder {
            recorder.stop().await;
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.stop_by.is_some_and(|limit| self.streams.is_empty() || tokio::time::Instant::now() >= limit)
    }

    /// Waits until there is work. The arms are polled in order, so their order is the order of the queues.
    async fn wait(&mut self, round: &mut Round) {
        if !self.overflowed.is_empty() || self.unfinished || self.pending.has_returned() {
            // Give other tasks on this thread a turn.
            return tokio::task::yield_now().await;
        }
        let wake = self.wake_at();
        tokio::select! {
            biased;
            Some(control) = self.queues.control.recv() => round.control.push(control),
            Some(session) = self.queues.sessions.recv() => round.sessions.push(session),
            Some(fact) = self.queues.facts.recv() => round.facts.push(fact),
            () = self.pending.changed() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }

    fn wake_at(&self) -> tokio::time::Instant {
        let now = tokio::time::Instant::now();
        let leader = self.leader.read().unwrap_or_else(PoisonError::into_inner);
        let deadline = leader.next_deadline().map(|deadline| self.clock.instant(deadline));
        drop(leader);
        let wake = deadline.map_or(now + HEARTBEAT, |deadline| deadline.clamp(now + PAUSE_MIN, now + HEARTBEAT));
        self.stop_by.map_or(wake, |limit| wake.min(limit))
    }

    /// Applies all changes to the engine under one lock.
    fn change(&mut self, now: Time, round: &mut Round) -> (Vec<Output>, Vec<oneshot::Sender<()>>) {
        let mut outputs = Vec::new();
        let mut stopped = Vec::new();
        let mut leader = self.leader.write().unwrap_or_else(PoisonError::into_inner);
        // Take all waiting inputs before any decision. Grants then leave in batches, and a later fact can prevent a
        // decision that it would undo.
        let recorder = &mut self.recorder;
        let mut apply = |leader: &mut Leader, input: Input| {
            if let Some(recorder) = recorder {
                recorder.input(&input);
            }
            leader.handle(now, input);
        };
        for control in round.control.drain(..) {
            match control {
                Control::Input(input) => apply(&mut leader, input),
                Control::Mark(done) => stopped.push(done),
                Control::Stop(done) => {
                    apply(&mut leader, Input::Stop);
                    self.stop_by = Some(tokio::time::Instant::now() + STOP_WITHIN);
                    stopped.push(done);
                }
            }
        }
        // The message that the term is over may still be in the queue.
        if self.validity.is_over(self.clock) && leader.queries().leads() {
            apply(&mut leader, Input::TermLost { leader_endpoint: String::new() });
        }
        for stream in self.overflowed.drain(..) {
            apply(&mut leader, Input::StreamClosed { stream });
        }
        // This comes first. If the log is the reason for a recall, the returned lease must not be granted again at
        // once.
        if let Some(why) = self.pending.news() {
            apply(&mut leader, Input::Withhold { why });
        }
        for (stream, message) in self.pending.returned() {
            apply(&mut leader, Input::Message { stream, message });
        }
        for session in round.sessions.drain(..) {
            match session {
                SessionInput::Opened { stream, outbox } => {
                    self.streams.insert(stream, outbox);
                }
                // A stream that the driver ended may still have messages in the queue.
                SessionInput::Message { stream, message, permit } if self.streams.contains_key(&stream) => {
                    apply(&mut leader, Input::Message { stream, message });
                    drop(permit);
                }
                SessionInput::Message { .. } => {}
                SessionInput::Closed { stream } => {
                    if self.streams.remove(&stream).is_some() {
                        self.pending.forget(stream);
                        apply(&mut leader, Input::StreamClosed { stream });
                    }
                }
            }
        }
        leader.prefetch(&round.facts);
        for fact in round.facts.drain(..) {
            if let Some(traces) = &mut self.traces {
                traces.fact(&fact);
            }
            apply(&mut leader, fact);
        }
        if leader.next_deadline().is_some_and(|deadline| deadline <= now) {
            if let Some(recorder) = &mut self.recorder {
                recorder.tick();
            }
            leader.tick(now);
        }
        while outputs.len() < EFFECTS_MAX
            && let Some(output) = leader.poll()
        {
            outputs.push(output);
        }
        self.unfinished = outputs.len() == EFFECTS_MAX;
        (outputs, stopped)
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { stream, mut message } => {
                    if let Some(traces) = &self.traces {
                        traces.label(&mut message);
                    }
                    if let Some(message) = self.pending.admit(stream, message) {
                        self.send(stream, message);
                    }
                }
                Output::Refuse { stream, refusal } => self.end(stream, Some(Ending::Refused(refusal))),
                Output::Close { stream } => self.end(stream, None),
                Output::Probe(probe) => (self.ask)(Ask::Probe(probe)),
                Output::ReadGuards(read) => (self.ask)(Ask::ReadGuards(read)),
                Output::AskGate(question) => (self.ask)(Ask::Question(Box::new(question))),
                Output::CancelQuestion { gate, number } => (self.ask)(Ask::Cancel { gate, number }),
                Output::CreatePause { by, scope, reason, lifetime } => {
                    (self.ask)(Ask::CreatePause(Box::new(WantedPause { by, scope, reason, lifetime })));
                }
                Output::Selectors(table) => (self.ask)(Ask::Selectors(table)),
                Output::Relist { collection, why } => (self.ask)(Ask::Relist { collection, why }),
                Output::Event(event) => {
                    if let Some(traces) = &mut self.traces {
                        traces.event(&event);
                    }
                    self.render.event(&event);
                }
            }
        }
    }

    fn send(&mut self, stream: StreamId, message: ToExecutor) {
        let Some(outbox) = self.streams.get(&stream) else { return };
        match outbox.sender.try_send(message) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.end(
                    stream,
                    Some(Ending::LimitExceeded { what: "messages that wait for this executor", max: OUTBOX_MAX }),
                );
                self.overflowed.push(stream);
            }
            // The peer is gone. Its reader reports that next.
            Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    fn end(&mut self, stream: StreamId, ending: Option<Ending>) {
        self.pending.forget(stream);
        let Some(outbox) = self.streams.remove(&stream) else { return };
        if let Some(ending) = ending {
            // The first reason wins. A violation that the reader sees at the same moment is an equally good reason.
            let _already_set = outbox.ending.set(ending);
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// The inputs of one round.
#[derive(Debug, Default)]
struct Round {
    control: Vec<Control>,
    sessions: Vec<SessionInput>,
    facts: Vec<Input>,
}

impl Round {
    fn fill(&mut self, queues: &mut Queues) {
        top_up(&mut self.control, &mut queues.control);
        top_up(&mut self.sessions, &mut queues.sessions);
        top_up(&mut self.facts, &mut queues.facts);
    }

    fn len(&self) -> usize {
        self.control.len() + self.sessions.len() + self.facts.len()
    }
}

fn top_up<T>(taken: &mut Vec<T>, queue: &mut mpsc::Receiver<T>) {
    while taken.len() < ROUND_MAX {
        match queue.try_recv() {
            Ok(input) => taken.push(input),
            Err(mpsc::error::TryRecvError::Empty | mpsc::error::TryRecvError::Disconnected) => return,
        }
    }
}
