//! The leader of a recording once more.

use super::{Call, End, Header, Reader, Round};
use engine::leader::{Event, Leader, Output, Queries};
use engine::time::Time;

/// Maximum number of effects of one round. A leader of another version may have more than the recorded one.
const EFFECTS_MAX: usize = 10_000_000;

/// A leader that gets the inputs of a recording.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    leader: Leader,
    /// The round that was read and not replayed.
    next: Option<Round>,
    now: Time,
    inputs: u64,
}

/// The result of one round.
#[derive(Debug)]
pub struct Step {
    pub at: Time,
    pub events: Vec<Event>,
}

impl Replay {
    pub fn new(reader: Reader) -> Replay {
        let Header { config, seed, .. } = reader.header();
        let leader = Leader::new(config.clone(), *seed);
        Replay { reader, leader, next: None, now: Time::ZERO, inputs: 0 }
    }

    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// How the recording ends; `None` before its last round.
    pub fn end(&self) -> Option<&End> {
        self.reader.end()
    }

    /// The time of the last round.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The number of inputs so far.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    pub fn queries(&self) -> Queries<'_> {
        self.leader.queries()
    }

    /// Replays the next round. `None` at the end of the recording.
    pub fn step(&mut self) -> Option<Step> {
        self.step_until(None)
    }

    /// Replays the next round, if it is not after this time.
    pub fn step_until(&mut self, until: Option<Time>) -> Option<Step> {
        let round = self.next.take().or_else(|| self.reader.round())?;
        if until.is_some_and(|until| until < round.at) {
            self.next = Some(round);
            return None;
        }
        let Round { at, calls, unfinished } = round;
        // The clock of a process never goes back. That of a forged file may.
        self.now = self.now.max(at);
        for call in calls {
            match call {
                Call::Input(input) => {
                    self.inputs += 1;
                    self.leader.handle(self.now, input);
                }
                Call::Tick => self.leader.tick(self.now),
            }
        }
        let max = unfinished.map_or(EFFECTS_MAX, |count| count as usize);
        let mut events = Vec::new();
        for output in std::iter::from_fn(|| self.leader.poll()).take(max) {
            if let Output::Event(event) = output {
                events.push(event);
            }
        }
        Some(Step { at: self.now, events })
    }
}
