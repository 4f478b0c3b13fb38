//! What every component of the leader works with: the configuration, the clock, the term, and where effects go.

use super::{Config, Event, Output, StreamId, Timer};
use crate::jitter::Jitter;
use crate::time::Time;
use crate::timers::Timers;
use crate::work::{Term, ToExecutor};
use alloc::collections::VecDeque;
use alloc::string::String;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) jitter: Jitter,
    pub(super) now: Time,
    pub(super) outputs: VecDeque<Output>,
    pub(super) timers: Timers<Timer>,
    /// `None` while this replica does not lead.
    pub(super) term: Option<Term>,
    /// The address of the replica that leads, as far as this one knows.
    pub(super) leader_endpoint: String,
    pub(super) stopping: bool,
}

impl Context {
    pub(super) fn new(config: Config, seed: u64) -> Context {
        Context {
            config,
            jitter: Jitter::new(seed),
            now: Time::ZERO,
            outputs: VecDeque::new(),
            timers: Timers::default(),
            term: None,
            leader_endpoint: String::new(),
            stopping: false,
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(super) fn send(&mut self, stream: StreamId, message: ToExecutor) {
        self.outputs.push_back(Output::Send { stream, message });
    }
}
