//! A policy engine takes answers back.

use super::super::Leader;
use super::gates::Subject;
use crate::guard::{GuardId, GuardKind};
use crate::hold::Hold;
use crate::object::{Name, ObjectRef};
use crate::scope::Objects;

impl Leader {
    /// Voids the answers of a gate about these objects, and asks again for what waits. Items that executors have already
    /// are not taken from them.
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
        // What is not known is asked about again.
        let is_meant = |subject: &Subject| targets.is_empty() || object(subject).is_none_or(any_has);
        let void = self.consent.gates.take_back(&id, is_meant);
        for subject in &void {
            if let Subject::Item(uid) = subject {
                self.dispatcher.release_item(uid);
            }
        }
        if void.iter().any(|subject| matches!(subject, Subject::Root(_))) {
            self.dispatcher.release(&Hold::Guard(id), usize::MAX);
        }
    }
}
