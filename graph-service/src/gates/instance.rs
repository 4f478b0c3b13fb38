//! One connected instance of a policy engine: its window, and the questions that it has.

use super::Unmatched;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Maximum number of instances of one gate.
pub(crate) const INSTANCES_MAX: usize = 64;
/// Bounds of the number of questions that an instance has at once. 0 in a hello is the default.
const IN_FLIGHT_DEFAULT: usize = 100;
const IN_FLIGHT_MAX: usize = 1000;
/// Maximum number of questions that wait for an instance to read them.
const UNSENT_MAX: usize = 256;
/// Number of ended questions whose answers are told apart from answers to questions that were never asked.
const ENDED_MAX: usize = 4096;
/// One connected instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InstanceId(pub(super) u64);

/// Why an instance cannot take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    NotFound,
    OtherTransport,
    TooMany,
}

/// The questions of one instance.
#[derive(Debug)]
pub(super) struct Instance {
    window: usize,
    pub(super) unsent: VecDeque<u64>,
    pub(super) sent: BTreeSet<u64>,
    pub(super) cancelled: Vec<u64>,
    /// How the latest questions ended.
    pub(super) ended: BTreeMap<u64, Unmatched>,
    pub(super) strays: usize,
    pub(super) draining: bool,
    pub(super) more: Arc<Notify>,
}

impl Instance {
    /// A new instance. `max_inflight` 0 is the default.
    pub(super) fn new(max_inflight: u32, more: Arc<Notify>) -> Instance {
        let window = match usize::try_from(max_inflight).unwrap_or(IN_FLIGHT_MAX) {
            0 => IN_FLIGHT_DEFAULT,
            wanted => wanted.min(IN_FLIGHT_MAX),
        };
        Instance {
            window,
            unsent: VecDeque::new(),
            sent: BTreeSet::new(),
            cancelled: Vec::new(),
            ended: BTreeMap::new(),
            strays: 0,
            draining: false,
            more,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.draining && self.unsent.len() < UNSENT_MAX && self.unsent.len() + self.sent.len() < self.window
    }

    /// Unsent questions count twice, so that an instance that does not read gets few.
    pub(super) fn load(&self) -> usize {
        2 * self.unsent.len() + self.sent.len()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(super) fn give(&mut self, number: u64) {
        self.unsent.push_back(number);
        self.more.notify_one();
    }

    /// Ends a question. The instance is told only if it has read the question.
    pub(super) fn cancel(&mut self, number: u64) {
        if self.sent.remove(&number) {
            self.cancelled.push(number);
            self.end(number, Unmatched::Late);
        }
        self.unsent.retain(|unsent| *unsent != number);
        self.more.notify_one();
    }

    pub(super) fn wake(&self) {
        self.more.notify_one();
    }

    pub(super) fn end(&mut self, number: u64, then: Unmatched) {
        self.ended.insert(number, then);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_first();
        }
    }
}
