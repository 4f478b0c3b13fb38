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
/// Number of ended questions whose answers are distinguished from answers to questions that were never asked.
const ENDED_MAX: usize = 4096;
/// Maximum number of messages of one stream about questions that it was not asked, or about which it has said the same
/// already.
pub(crate) const STRAYS_MAX: usize = 1000;

/// A message about a question that the instance does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) unmatched: Unmatched,
    pub(super) is_flood: bool,
}

/// One connected instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InstanceId(pub(super) u64);

/// The meaning of the next messages about a question that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    answer: Unmatched,
    need: Unmatched,
}

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
    /// The questions for which this instance has asked for more time.
    needed: BTreeSet<u64>,
    /// How the latest questions ended.
    ended: BTreeMap<u64, Ended>,
    strays: usize,
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
            needed: BTreeSet::new(),
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

    pub(super) fn give(&mut self, number: u64) {
        self.unsent.push_back(number);
        self.more.notify_one();
    }

    /// Ends a question. The instance is notified only if it has read the question.
    pub(super) fn cancel(&mut self, number: u64) {
        if self.sent.remove(&number) {
            self.cancelled.push(number);
            self.end(number, Unmatched::Late);
        }
        self.unsent.retain(|unsent| *unsent != number);
        self.more.notify_one();
    }

    /// The instance answers a question. The error says why the answer does not count.
    pub(super) fn answer(&mut self, number: u64) -> Result<(), Stray> {
        if self.sent.remove(&number) {
            self.end(number, Unmatched::Twice);
            self.more.notify_one();
            return Ok(());
        }
        // Only the first answer to a question that has ended is late.
        let next = |ended: &mut Ended| std::mem::replace(&mut ended.answer, Unmatched::Twice);
        let unmatched = self.ended.get_mut(&number).map_or(Unmatched::Unknown, next);
        Err(self.stray(unmatched))
    }

    /// The instance needs more time for a question. The error says why it gets none.
    pub(super) fn need_time(&mut self, number: u64) -> Result<(), Stray> {
        let unmatched = match self.ended.get_mut(&number) {
            _ if self.sent.contains(&number) && self.needed.insert(number) => return Ok(()),
            _ if self.sent.contains(&number) => Unmatched::Twice,
            Some(ended) => std::mem::replace(&mut ended.need, Unmatched::Twice),
            None => Unmatched::Unknown,
        };
        Err(self.stray(unmatched))
    }

    fn stray(&mut self, unmatched: Unmatched) -> Stray {
        self.strays += usize::from(unmatched != Unmatched::Late);
        Stray { unmatched, is_flood: self.strays > STRAYS_MAX }
    }

    fn end(&mut self, number: u64, answer: Unmatched) {
        let need = if self.needed.remove(&number) { Unmatched::Twice } else { answer };
        self.ended.insert(number, Ended { answer, need });
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_first();
        }
    }
}
