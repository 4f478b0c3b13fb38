//! The leader's part of the breaker: which deletions are unexplained, and what holds and releases them.

use super::super::{BreakerMode, Event, Leader, Output, Timer};
use super::breaker::{Follows, PAUSE_AGAIN, PAUSE_FOR, SLOW_PERCENT, Settled};
use crate::evidence::Proof;
use crate::graph::Known;
use crate::guard::{BREAKER_AUTHOR, GuardId};
use crate::hold::Hold;
use crate::object::{GroupResource, ObjectRef};
use crate::queue::Draft;
use crate::scope::{Filter, Scope};
use crate::work::ActionKind;
use alloc::format;
use alloc::string::String;

impl Leader {
    /// Holds a deletion of this collection that nothing explains, while such deletions are many.
    pub(super) fn breaks(&mut self, collection: GroupResource) -> Option<Hold> {
        let (now, size) = (self.cx.now, self.size_of(&collection));
        match self.consent.breaker.decide(now, &collection, size) {
            Follows::Pass => return None,
            Follows::Settle => self.cx.timers.set(now, Timer::Breaker(collection.clone())),
            Follows::Hold => {}
        }
        Some(Hold::Breaker(collection))
    }

    /// Whether lists alone lack the owners of a deletion, and this replica had seen one of them. An owner with a large
    /// share of the collection is a root that explains the deletions of its dependents.
    pub(super) fn is_unexplained(&self, draft: &Draft) -> bool {
        let is_on = self.cx.config.policy.breaker == BreakerMode::On;
        if !is_on || draft.action.kind() != ActionKind::Delete {
            return false;
        }
        let graph = self.world.graph();
        let Some(id) = graph.primary(&draft.target.uid) else { return false };
        let size = self.size_of(&draft.target.group_resource());
        let mut vanished = false;
        for owner in graph.node(id).owners().map(|owner| graph.node(owner)) {
            match owner.known() {
                Known::Absent(Proof::Listed { .. } | Proof::ReadTwice) => {
                    let gone = self.world.tombstones().get(self.cx.now, &owner.uid());
                    let is_root = owner.dependent_count() as u64 * 100 > size * SLOW_PERCENT;
                    vanished |= gone.is_some_and(|gone| gone.deleted.is_none()) && !is_root;
                }
                Known::Absent(Proof::WatchDeleted { .. } | Proof::TypeEmptied { .. })
                | Known::Observed
                | Known::Read { .. }
                | Known::Virtual { .. } => return false,
            }
        }
        vanished
    }

    /// Looks whether the number of unexplained deletions of a collection is known.
    pub(in crate::leader) fn breaker_due(&mut self, collection: GroupResource) {
        let hold = Hold::Breaker(collection.clone());
        let (now, size) = (self.cx.now, self.size_of(&collection));
        let held = self.dispatcher.queue().held_by(&hold).len() as u64;
        match self.consent.breaker.settle(now, &collection, size, held) {
            Settled::Nothing => {}
            Settled::At(time) => self.cx.timers.set(time, Timer::Breaker(collection)),
            Settled::Release => {
                self.dispatcher.release(&hold, usize::MAX);
            }
            Settled::Mass { percent } => {
                let why =
                    format!("{percent} % of {collection} lost their owners without a deletion that the watch showed");
                self.cx.timers.set(now + PAUSE_AGAIN, Timer::Breaker(collection.clone()));
                self.open_breaker(collection, why);
            }
            Settled::Unpaused => {
                self.cx.timers.set(now + PAUSE_AGAIN, Timer::Breaker(collection.clone()));
                let why = format!("many {collection} lost their owners without a deletion that the watch showed");
                self.want_pause(collection, why);
            }
        }
    }

    fn open_breaker(&mut self, collection: GroupResource, reason: String) {
        self.cx.event(Event::BreakerOpened { collection: collection.clone(), why: reason.clone() });
        self.want_pause(collection, reason);
    }

    fn want_pause(&mut self, collection: GroupResource, reason: String) {
        if self.cx.term.is_none() {
            return;
        }
        let by = format!("{BREAKER_AUTHOR}{collection}");
        let target = Filter { resources: alloc::vec![collection], ..Filter::default() };
        let scope = Scope { targets: alloc::vec![target] };
        self.cx.outputs.push_back(Output::CreatePause { by, scope, reason, lifetime: PAUSE_FOR });
    }

    /// Reports a deletion that an owner check prevented.
    pub(in crate::leader) fn prevented(&mut self, target: ObjectRef, owner: ObjectRef) {
        let collection = target.group_resource();
        self.cx.event(Event::Prevented { target, owner });
        let count = self.consent.breaker.prevented(self.cx.now, &collection);
        if let Some(count) =
            count.filter(|_| self.cx.config.policy.breaker == BreakerMode::On && self.cx.term.is_some())
        {
            let why = format!("executors prevented {count} wrong deletions of {collection} within five minutes");
            self.open_breaker(collection, why);
        }
    }

    /// Follows the Pauses of the breaker.
    pub(super) fn breaker_paused(&mut self, pause: &GuardId) {
        let holds = self.dispatcher.queue().holds();
        match holds.get(pause) {
            Some(entry) if !entry.over => {
                let author = entry.guard.actor.clone();
                if author.starts_with(BREAKER_AUTHOR) {
                    self.consent.breaker.paused(&author);
                    self.consent.pauses.insert(pause.clone(), author);
                }
            }
            Some(_) | None => {
                let Some(author) = self.consent.pauses.remove(pause) else { return };
                for collection in self.consent.breaker.resumed(self.cx.now, &author) {
                    self.dispatcher.release(&Hold::Breaker(collection), usize::MAX);
                }
            }
        }
    }
}
