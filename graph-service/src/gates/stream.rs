//! The instances of policy engines that are connected by `GateService.StreamVerdicts`.

pub(crate) use super::instance::{INSTANCES_MAX, NotJoined, STRAYS_MAX};
use super::instance::{Instance, InstanceId, Stray};
use super::router::{Configured, Router};
use super::{BATCH_MAX, Reply};
use engine::guard::{Answer, Question};
use engine::scope::Objects;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A message for an instance.
#[derive(Debug)]
pub(crate) enum Out {
    /// Questions, each with the time that is left for it.
    Ask(Vec<(Arc<Question>, Duration)>),
    /// These questions have ended.
    Cancel(Vec<u64>),
    /// The instance was to drain, and has answered all its questions.
    Drained,
    /// The gate is gone, or has another transport.
    GateClosed,
}

/// An instance that takes part. Its questions go to the other instances when it is dropped.
#[derive(Debug)]
pub(crate) struct Joined {
    router: Router,
    gate: String,
    id: InstanceId,
    more: Arc<Notify>,
    pub(crate) configured: Configured,
}

/// The stream has sent too many messages about questions that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flood;

impl Router {
    /// Connects an instance. `max_inflight` 0 is the default. A revision that differs from the last one is a change of
    /// the policy.
    pub(crate) fn join(&self, gate: &str, max_inflight: u32, revision: &str) -> Result<Joined, NotJoined> {
        let more = Arc::new(Notify::new());
        let instance = Instance::new(max_inflight, Arc::clone(&more));
        let joined = self.with_streamed(gate, |joined| {
            if joined.instances.len() >= INSTANCES_MAX {
                return Err(NotJoined::TooMany);
            }
            let id = self.next_instance();
            joined.instances.insert(id, instance);
            joined.connected(1);
            joined.tell_instances();
            if !revision.is_empty() {
                joined.tell_revision(revision);
            }
            joined.place();
            Ok((id, joined.configured.clone()))
        })?;
        let (id, configured) = joined?;
        Ok(Joined { router: self.clone(), gate: gate.to_owned(), id, more, configured })
    }
}

impl Joined {
    /// Returns the next message. Cancel safe.
    pub(crate) async fn next(&self) -> Out {
        loop {
            if let Some(out) = self.take() {
                return out;
            }
            self.more.notified().await;
        }
    }

    fn take(&self) -> Option<Out> {
        let taken = self.router.with_streamed(&self.gate, |gate| {
            let Some(instance) = gate.instances.get_mut(&self.id) else { return Some(Out::GateClosed) };
            if !instance.cancelled.is_empty() {
                return Some(Out::Cancel(std::mem::take(&mut instance.cancelled)));
            }
            if instance.unsent.is_empty() {
                return (instance.draining && instance.sent.is_empty()).then_some(Out::Drained);
            }
            let count = instance.unsent.len().min(BATCH_MAX);
            let numbers: Vec<u64> = instance.unsent.drain(..count).collect();
            instance.sent.extend(&numbers);
            Some(Out::Ask(numbers.into_iter().filter_map(|number| gate.question(number)).collect()))
        });
        taken.unwrap_or(Some(Out::GateClosed))
    }

    /// The answer to a question.
    pub(crate) fn answer(
        &self,
        (number, answer): (u64, Answer),
        (by, message): (&str, &str),
        valid_for: Duration,
    ) -> Result<(), Flood> {
        let said = self.with(|gate, id| {
            let Some(instance) = gate.instances.get_mut(&id) else { return Ok(()) };
            instance.answer(number)?;
            gate.answer(Reply::new(number, answer, by, message, valid_for));
            Ok(())
        });
        self.counted(said)
    }

    /// The instance needs more time for a question. The question has it once, whichever instance asks first.
    pub(crate) fn need_time(&self, number: u64, extra: Duration) -> Result<(), Flood> {
        let said = self.with(|gate, id| {
            let Some(instance) = gate.instances.get_mut(&id) else { return Ok(()) };
            instance.need_time(number)?;
            gate.need_time(number, extra);
            Ok(())
        });
        self.counted(said)
    }

    fn counted(&self, said: Option<Result<(), Stray>>) -> Result<(), Flood> {
        let Some(Err(Stray { unmatched, is_flood })) = said else { return Ok(()) };
        self.router.unmatched(unmatched);
        if is_flood { Err(Flood) } else { Ok(()) }
    }

    /// Answers of the gate about these objects are void, or all of them without filters.
    pub(crate) fn take_back(&self, revision: &str, targets: Vec<Objects>) {
        self.with(|gate, _| gate.take_back(revision, targets));
    }

    /// The instance gets no more questions. Those that it has not read go to the other instances.
    pub(crate) fn drain(&self) {
        self.with(|gate, id| {
            let Some(instance) = gate.instances.get_mut(&id) else { return };
            instance.draining = true;
            instance.more.notify_one();
            let unread: Vec<u64> = instance.unsent.drain(..).collect();
            gate.tell_instances();
            gate.hand_over(unread);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut super::router::Gate, InstanceId) -> T) -> Option<T> {
        self.router.with_streamed(&self.gate, |gate| act(gate, self.id)).ok()
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.with(|gate, id| {
            let Some(gone) = gate.instances.remove(&id) else { return };
            gate.connected(-1);
            gate.tell_instances();
            gate.hand_over(gone.unsent.into_iter().chain(gone.sent));
        });
    }
}
