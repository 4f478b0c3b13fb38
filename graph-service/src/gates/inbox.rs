//! Answers and changes on their way to the deciding task.
//!
//! The inbox needs no other bound: a question has one answer, and a change is kept once for each gate.

use engine::guard::Answered;
use engine::object::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Something that the deciding task has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Answered(Answered),
    /// The number of connected instances of a gate has changed.
    Connected {
        gate: Name,
        instances: u32,
    },
    /// Denials of this gate are void: its policy has changed.
    PolicyChanged {
        gate: Name,
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
    answers: Vec<Answered>,
    connected: BTreeMap<Name, u32>,
    changed: BTreeSet<Name>,
}

impl Inbox {
    /// The events since the last call; waits for the first. Cancel safe. Only one task may wait.
    pub(crate) async fn next(&self) -> Vec<Event> {
        loop {
            let events = self.take();
            if !events.is_empty() {
                return events;
            }
            self.0.more.notified().await;
        }
    }

    /// The events since the last call. Changes come before answers, because an answer may be that of the new policy.
    pub(crate) fn take(&self) -> Vec<Event> {
        let Waiting { answers, connected, changed } = std::mem::take(&mut *self.waiting());
        let connected = connected.into_iter().map(|(gate, instances)| Event::Connected { gate, instances });
        let changed = changed.into_iter().map(|gate| Event::PolicyChanged { gate });
        connected.chain(changed).chain(answers.into_iter().map(Event::Answered)).collect()
    }

    pub(super) fn answered(&self, answered: Answered) {
        self.waiting().answers.push(answered);
        self.0.more.notify_one();
    }

    pub(super) fn connected(&self, gate: &Name, instances: usize) {
        self.waiting().connected.insert(gate.clone(), u32::try_from(instances).unwrap_or(u32::MAX));
        self.0.more.notify_one();
    }

    pub(super) fn changed(&self, gate: &Name) {
        self.waiting().changed.insert(gate.clone());
        self.0.more.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
