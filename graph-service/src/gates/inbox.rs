//! The messages of policy engines, on their way to the deciding task.
//!
//! The inbox needs no other bound: a question has one answer and gets extra time once, and a change is kept once for
//! each gate. Answers that are taken back are reported at most once a second for each gate, because the engine looks at
//! everything that the gate has answered.

use engine::guard::Answered;
use engine::object::Name;
use engine::scope::Objects;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Minimum time between two events about answers of one gate that are taken back.
pub(super) const TAKEN_BACK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of filters that wait for one event. Beyond that, all answers of the gate are taken back.
pub(super) const FILTERS_MAX: usize = 100;

/// Something that the deciding task has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Answered(Answered),
    /// The number of connected instances of a gate has changed.
    Connected {
        gate: Name,
        instances: u32,
    },
    /// Denials and holds of this gate are void: its policy has changed.
    PolicyChanged {
        gate: Name,
    },
    /// Answers of this gate about these objects are void, or all of them without filters.
    TakenBack {
        gate: Name,
        targets: Vec<Objects>,
    },
    /// An instance needs more time for a question.
    NeedsTime {
        gate: Name,
        number: u64,
        extra: Duration,
    },
}

/// The receiving side. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    news: News,
    taken_back: BTreeMap<Name, Vec<Objects>>,
    /// The time of the last report about answers that are taken back, by gate.
    told: BTreeMap<Name, Instant>,
}

/// The news that are delivered without delay.
#[derive(Debug, Default)]
struct News {
    answers: Vec<Answered>,
    connected: BTreeMap<Name, u32>,
    changed: BTreeSet<Name>,
    needs_time: Vec<(Name, u64, Duration)>,
}

impl Inbox {
    /// The events since the last call; waits for the first. Cancel safe. Only one task may wait.
    pub(crate) async fn next(&self) -> Vec<Event> {
        loop {
            let events = self.take();
            if !events.is_empty() {
                return events;
            }
            let due = self.waiting().next_taken_back();
            tokio::select! {
                () = self.0.more.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// The events since the last call. Answers come first: a change or a withdrawal that an engine sends after an
    /// answer voids the answer. An answer of the new policy may be voided, too, and is asked for again.
    pub(crate) fn take(&self) -> Vec<Event> {
        let (taken_back, News { answers, connected, changed, needs_time }) = {
            let mut waiting = self.waiting();
            (waiting.taken_back_now(Instant::now()), std::mem::take(&mut waiting.news))
        };
        let connected = connected.into_iter().map(|(gate, instances)| Event::Connected { gate, instances });
        let changed = changed.into_iter().map(|gate| Event::PolicyChanged { gate });
        let needs_time = needs_time.into_iter().map(|(gate, number, extra)| Event::NeedsTime { gate, number, extra });
        let answers = answers.into_iter().map(Event::Answered);
        needs_time.chain(answers).chain(connected).chain(changed).chain(taken_back).collect()
    }

    pub(super) fn answered(&self, answered: Answered) {
        self.waiting().news.answers.push(answered);
        self.0.more.notify_one();
    }

    pub(super) fn connected(&self, gate: &Name, instances: usize) {
        self.waiting().news.connected.insert(gate.clone(), u32::try_from(instances).unwrap_or(u32::MAX));
        self.0.more.notify_one();
    }

    pub(super) fn changed(&self, gate: &Name) {
        self.waiting().news.changed.insert(gate.clone());
        self.0.more.notify_one();
    }

    pub(super) fn taken_back(&self, gate: &Name, targets: Vec<Objects>) {
        let mut waiting = self.waiting();
        match waiting.taken_back.get_mut(gate) {
            Some(all) if all.is_empty() => {}
            Some(some) if targets.is_empty() || some.len() + targets.len() > FILTERS_MAX => some.clear(),
            Some(some) => some.extend(targets),
            None => drop(waiting.taken_back.insert(gate.clone(), targets)),
        }
        drop(waiting);
        self.0.more.notify_one();
    }

    pub(super) fn needs_time(&self, gate: &Name, number: u64, extra: Duration) {
        self.waiting().news.needs_time.push((gate.clone(), number, extra));
        self.0.more.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The events about answers that are taken back, of the gates without such a report within the last second.
    fn taken_back_now(&mut self, now: Instant) -> Vec<Event> {
        self.told.retain(|_, told| now < *told + TAKEN_BACK_EVERY);
        let due: Vec<Name> = self.taken_back.keys().filter(|gate| !self.told.contains_key(*gate)).cloned().collect();
        let mut events = Vec::new();
        for gate in due {
            if let Some(targets) = self.taken_back.remove(&gate) {
                self.told.insert(gate.clone(), now);
                events.push(Event::TakenBack { gate, targets });
            }
        }
        events
    }

    /// When the next such event is due.
    fn next_taken_back(&self) -> Option<Instant> {
        let due = self.taken_back.keys().filter_map(|gate| self.told.get(gate));
        due.min().map(|told| *told + TAKEN_BACK_EVERY)
    }
}
