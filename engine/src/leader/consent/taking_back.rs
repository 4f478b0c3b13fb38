//! The messages of a policy engine besides its answers: it needs more time for a question, or takes answers back.

use super::super::{Event, Leader, Timer};
use super::gates::{Refused, Subject};
use crate::guard::{GuardId, GuardKind};
use crate::object::{Name, ObjectRef};
use crate::scope::Objects;
use alloc::format;
use core::time::Duration;

impl Leader {
    /// Voids the answers of a gate about these objects, and asks again for what waits. Items that executors have
    /// already are not taken from them.
    pub(in crate::leader) fn gate_invalidated(&mut self, name: Name, targets: &[Objects]) {
        let id = GuardId { kind: GuardKind::Gate, name };
        let (queue, cascades) = (self.dispatcher.queue(), &self.consent.cascades);
        let object = |subject: &Subject| -> Option<&ObjectRef> {
            match subject {
                Subject::Item(uid) => queue.get(uid).map(|item| &item.draft.target),
                Subject::Root(uid) => cascades.get(uid).map(|known| &known.root),
            }
        };
        let any_has = |object: &ObjectRef| targets.iter().any(|target| target.has(object));
        // Subjects with an unknown object are asked about again.
        let is_meant = |subject: &Subject| targets.is_empty() || object(subject).is_none_or(any_has);
        let void = self.consent.gates.take_back(&id, is_meant);
        for subject in &void {
            if let Subject::Item(uid) = subject {
                self.dispatcher.release_item(uid);
            }
        }
        if void.iter().any(|subject| matches!(subject, Subject::Root(_))) {
            self.release_all(id);
        }
    }

    /// Gives a question extra time, once.
    pub(in crate::leader) fn gate_needs_time(&mut self, gate: &Name, number: u64, extra: Duration) {
        let is_open = self.consent.gates.gate_of(number).is_some_and(|of| of.name == *gate);
        let until = if is_open { self.consent.gates.extend(number, extra) } else { Err(Refused::NotOpen) };
        let why = match until {
            Ok(until) => return self.cx.timers.set(until, Timer::Question(number)),
            Err(Refused::NotOpen) => {
                format!("gate {gate} asks for more time for a question that is not open")
            }
            Err(Refused::Again) => format!("gate {gate} asks again for more time for a question"),
        };
        self.cx.event(Event::Rejected { why });
    }
}
