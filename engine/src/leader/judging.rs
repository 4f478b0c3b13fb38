//! Conversion of verdicts to queue items. This module creates every item, from the current state of its node.

use super::{Cause, Event, Grounds, Leader, Mode};
use crate::graph::NodeId;
use crate::hold::Hold;
use crate::object::{FOREGROUND_FINALIZER, GroupResource, Name, ORPHAN_FINALIZER, ObjectRef, Uid};
use crate::queue::{Delay, Draft, ItemState, Put};
use crate::verdict::{Collection, Verdict, verdict};
use crate::view::Undecided;
use crate::work::{Action, ActionKind, Preconditions, RevokeMode};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// Time before the retry of an object that a webhook refused and that has changed since. Further changes neither
/// shorten nor extend the wait.
const MOVED: Duration = Duration::from_secs(1);

impl Leader {
    /// Judges a marked node.
    pub(super) fn judge(&mut self, id: NodeId) {
        if !self.world.unmark(id) {
            return;
        }
        self.world.mark_acting(id);
        if self.world.graph().node(id).is_observed() { self.judge_object(id) } else { self.judge_owner(id) }
    }

    /// Whether the next decision about this object waits: the watch must show an accepted write, or a claim is open.
    pub(super) fn is_unjudged(&self, uid: &Uid) -> bool {
        self.ledger.awaits_removal(uid) || self.claims.covers(uid)
    }

    fn judge_object(&mut self, id: NodeId) {
        let uid = self.world.graph().node(id).uid();
        // An object that two groups serve has two nodes, one of which acts for both.
        if self.world.graph().primary(&uid) != Some(id) || self.is_unjudged(&uid) {
            return;
        }
        self.world.tell_misplaced(&mut self.cx, id);
        self.world.tell_excess(&mut self.cx, id);
        let verdict = verdict(self.world.graph(), self.world.coverage(), id);
        if !matches!(verdict, Verdict::Foreground { .. } | Verdict::Orphaning { .. }) {
            self.world.end_deletion(id);
        }
        let mut undecided = None;
        let awaits = self.world.await_one_owner(&mut self.cx, id);
        let decision = match verdict {
            Verdict::NotObserved | Verdict::Unowned => None,
            Verdict::Undecided(why) => {
                undecided = Some(why);
                None
            }
            // All removable references are removed in one write.
            Verdict::Kept { .. } if awaits => None,
            Verdict::Kept { drop } | Verdict::Terminating { drop } => self.world.removal(id, &drop),
            // The decision is to delete, whatever precedes the deletion once nothing holds it.
            Verdict::Held(collection) => {
                Some(self.world.deletion(id, &Collection { unblock: Vec::new(), ..collection }))
            }
            Verdict::Collectable(collection) => match self.world.beyond_checks(id, &collection) {
                beyond if beyond.is_empty() => Some(self.world.deletion(id, &collection)),
                beyond => self.world.removal(id, &beyond),
            },
            Verdict::Foreground { drop, unblock, .. } if drop.is_empty() && !unblock.is_empty() => {
                self.world.begin_deletion(id);
                self.world.unblocking(id, &unblock)
            }
            Verdict::Foreground { blocking, drop, .. } => self.world.removal(id, &drop).or_else(|| {
                let (action, why) = self.end_foreground(id, blocking);
                undecided = why;
                action
            }),
            Verdict::Orphaning { dependents, drop } => {
                let passed = self.has_passed_barrier(id);
                let is_hidden = || {
                    let namespace = self.world.graph().node(id).namespace();
                    self.barrier.failing(namespace).is_some() || self.world.is_any_dependent_hidden(&self.cx, id)
                };
                let hidden = (!passed && dependents == 0 && is_hidden()).then_some(Undecided::DependentsUnseen);
                undecided = hidden.or_else(|| self.world.unreachable_dependents(id, dependents));
                let end = (passed && dependents == 0).then(|| finish(ORPHAN_FINALIZER, Cause::NoDependents));
                self.world.removal(id, &drop).or(end)
            }
        };
        self.world.set_undecided(id, undecided);
        match decision {
            Some((action, causes)) => self.decide(id, action, causes),
            // If the object is in deletion, the write itself can be the reason.
            None => self.withdraw_acting(id, !self.world.graph().node(id).is_terminating()),
        }
    }

    /// Decides on an owner in foreground deletion, like upstream's `processDeletingDependentsItem`.
    fn end_foreground(&mut self, id: NodeId, blocking: usize) -> (Option<(Action, Vec<Cause>)>, Option<Undecided>) {
        if blocking > 0 {
            self.world.begin_deletion(id);
            return (None, self.world.unreachable_dependents(id, blocking));
        }
        if self.world.is_any_dependent_hidden(&self.cx, id) && !self.has_passed_barrier(id) {
            return (None, Some(Undecided::DependentsUnseen));
        }
        self.world.begin_deletion(id);
        if self.is_being_left(id) {
            return (None, None);
        }
        (Some(finish(FOREGROUND_FINALIZER, Cause::NoBlockingDependents)), None)
    }

    /// Returns whether a deletion of a dependent is in progress that depends on the waiting of this owner. The owner
    /// waits for such an attempt. If the finalizer were removed first, another owner could keep the dependent. The
    /// owner does not wait for refused or failed attempts, nor for objects that hold themselves.
    fn is_being_left(&mut self, id: NodeId) -> bool {
        let owner = self.world.graph().node(id);
        let owner_uid = owner.uid();
        // The dependent is judged first. A dependent in deletion is excluded, because two such owners would wait for
        // each other.
        let is_to_be_judged = |dependent: NodeId| {
            let node = self.world.graph().node(dependent);
            node.is_dirty() && node.is_observed() && !node.is_terminating()
        };
        let is_under_way = |dependent: NodeId| {
            let uid = self.world.graph().node(dependent).uid();
            // The watch has not shown a write to the dependent yet. The write may have removed references.
            self.claims.covers(&uid)
                || self.dispatcher.queue().get(&uid).is_some_and(|item| {
                    let rests = |checks: &[ObjectRef]| checks.iter().any(|check| check.uid == owner_uid);
                    matches!(&item.draft.action, Action::Delete { owner_checks, .. } if rests(owner_checks))
                        && match &item.state {
                            ItemState::Ready | ItemState::Leased(_) => true,
                            ItemState::Held(hold) => !hold.is_own(),
                            ItemState::Observed | ItemState::Backoff { .. } | ItemState::Behind(_) => false,
                        }
                })
        };
        // One dependent is enough. The search visits all dependents only if there is none.
        let first = self
            .world
            .graph()
            .dependents(self.world.coverage(), id)
            .find(|&dependent| is_to_be_judged(dependent) || is_under_way(dependent));
        if first.is_some_and(is_to_be_judged) {
            self.world.mark(id);
        }
        first.is_some()
    }

    /// Returns whether the watches have shown all objects from before the time at which the deletion of this owner was
    /// first seen. Requests a barrier round if none is requested.
    fn has_passed_barrier(&mut self, id: NodeId) -> bool {
        let namespace = self.world.graph().node(id).namespace().clone();
        // A round from before a broken connection does not count, because its objects may belong to another history.
        let from = if self.history.is_blind() && self.world.is_any_dependent_hidden(&self.cx, id) {
            self.history.barrier_from()
        } else {
            0
        };
        let round = self.world.begin_deletion(id);
        if self.cx.term.is_none() {
            return false;
        }
        match round {
            // No round can ask for a kind whose resource is unknown.
            Some(number) => {
                self.barrier.has_passed(&namespace, number.max(from)) && !self.world.is_any_kind_hidden(&self.cx)
            }
            None => {
                self.world.await_round(id, self.barrier.request(&namespace));
                false
            }
        }
    }

    /// Adds a decision about an observed object to the queue.
    fn decide(&mut self, id: NodeId, action: Action, causes: Vec<Cause>) {
        let node = self.world.graph().node(id);
        let kind = self.world.coverage().kind(node.kind());
        let (Some(resource_version), true) = (node.resource_version(), kind.served().is_some()) else {
            return self.withdraw(id);
        };
        let facts = node.facts().unwrap_or_default();
        let target = self.world.object_ref(id);
        let depends_on_labels = matches!(action, Action::Delete { .. })
            && self.world.place(&target).is_some_and(|place| self.dispatcher.queue().holds().depends_on_labels(&place));
        let draft = Draft {
            target,
            preconditions: Preconditions {
                resource_version,
                facts_digest: if depends_on_labels { facts.digest_beyond_facts() } else { facts.digest() },
                must_be_terminating: matches!(action, Action::RemoveFinalizer { .. }),
            },
            destroys: destroys(&action, &causes),
            action,
            read_first: kind.is_aggregated(),
        };
        self.put(draft, causes);
    }

    fn put(&mut self, draft: Draft, causes: Vec<Cause>) {
        let target = draft.target.clone();
        let known = self.dispatcher.has_carried_out(&target.uid);
        let repeated = known.then(|| (target.clone(), draft.action.clone()));
        let observe = self.cx.config.mode == Mode::Observe;
        // The root of the cascade applies to new decisions. Events report the whole chain.
        let chain = self.world.chain(&self.cx, &target.uid, &causes);
        let root = chain.last().map(|root| root.uid.clone());
        let before = self
            .dispatcher
            .queue()
            .get(&target.uid)
            .filter(|item| is_another(&item.draft, &draft))
            .map(|item| (item.id, item.draft.clone()));
        let hold = self.holding().first(&draft);
        let holds_itself = hold.as_ref().is_some_and(Hold::is_own);
        // If the object is kept now, a destructive write that has not left must not leave.
        let deletes = |draft: &Draft| draft.action.kind() == ActionKind::Delete;
        let spares = self.dispatcher.queue().get(&target.uid).is_some_and(|item| {
            let kept = holds_itself || !draft.destroys || (deletes(&item.draft) && !deletes(&draft));
            item.draft.destroys && kept
        });
        let put = self.dispatcher.put(&self.cx, draft, hold, root, observe);
        if holds_itself {
            // Their foreground deletion does not wait for this object any more.
            self.world.mark_deleting_owners(&target.uid);
        }
        let repeated = repeated.filter(|_| put == Put::New && !observe && !holds_itself);
        match put {
            Put::New | Put::Replaced => {
                if let Some((item, before)) = before.filter(|_| put == Put::Replaced) {
                    let grounds = self.world.grounds_now(&self.cx, &before);
                    self.ledger.ends_inherited(&target.uid, grounds.decision);
                    self.end_questions(&target.uid);
                    let (target, action) = (before.target, before.action.kind());
                    self.cx.event(Event::Withdrawn { item, target, action, replaced: true, grounds });
                }
                self.decided(&target.uid, causes, chain, false);
            }
            Put::Same => {}
            Put::Moved => self.dispatcher.backoff(&mut self.cx, &target.uid, MOVED, Delay::Moved),
            Put::Leased(lease) => self.dispatcher.revoke(&mut self.cx, &[lease], recall(spares), "a newer decision"),
        }
        if let Some((target, action)) = repeated {
            self.dispatcher.delay_repeated(&mut self.cx, &target, &action);
        }
    }

    /// Reports a decision that this replica made before its term began. Each step of a decision in the log then follows
    /// the decision.
    pub(super) fn tell_decided(&mut self, uid: &Uid) {
        if self.dispatcher.queue().get(uid).is_some_and(|item| !item.reported) {
            let causes = self.world.graph().primary(uid).map_or_else(Vec::new, |id| self.world.causes(id));
            let chain = self.world.chain(&self.cx, uid, &causes);
            self.decided(uid, causes, chain, true);
        }
    }

    fn decided(&mut self, uid: &Uid, causes: Vec<Cause>, chain: Vec<ObjectRef>, repeated: bool) {
        let leads = self.cx.term.is_some();
        self.dispatcher.set_reported(uid, leads);
        let Some(item) = self.dispatcher.queue().get(uid) else { return };
        let (id, generation, target, action) =
            (item.id, item.generation, item.draft.target.clone(), item.draft.action.kind());
        let grounds = leads.then(|| self.world.grounds(&self.cx, &item.draft, causes.clone(), chain));
        self.cx.event(Event::Decided { item: id, generation, target, action, causes, grounds, repeated });
        self.compare_decision(uid);
    }

    /// Withdraws the decision about this node.
    pub(super) fn withdraw(&mut self, id: NodeId) {
        let node = self.world.graph().node(id);
        let uid = node.uid();
        let Some(item) = self.dispatcher.queue().get(&uid) else { return };
        let (target, kind) = (&item.draft.target, self.world.coverage().kind(node.kind()));
        // Several nodes can share a uid. An item belongs to the node whose coordinates the item names.
        let resource = GroupResource { group: target.group.clone(), resource: target.resource.clone() };
        let is_of_rival = self.world.coverage().find(&resource).is_some_and(|of| of != node.kind());
        if target.kind == kind.kind && target.group == kind.group && !is_of_rival {
            self.withdraw_acting(id, false);
        }
    }

    /// Withdraws the decision about the object that this node stands for, also if another group that serves the object
    /// led to the decision. If the object is kept, a destructive write that has not left must not leave.
    fn withdraw_acting(&mut self, id: NodeId, is_kept: bool) {
        let node = self.world.graph().node(id);
        let uid = node.uid();
        let Some(item) = self.dispatcher.queue().get(&uid) else { return };
        let target = &item.draft.target;
        if target.namespace != *node.namespace() || *target.name != *node.name() {
            return;
        }
        let spares = is_kept && item.draft.destroys;
        match self.dispatcher.withdraw(&uid) {
            Err(lease) => {
                self.dispatcher.revoke(&mut self.cx, &[lease], recall(spares), "the decision no longer holds")
            }
            Ok(None) => {}
            Ok(Some(item)) => {
                let action = item.draft.action.kind();
                let grounds = self.world.grounds_now(&self.cx, &item.draft);
                self.end_decision(&item.draft);
                let target = item.draft.target;
                self.ledger.ends_inherited(&uid, grounds.decision);
                self.cx.event(Event::Withdrawn { item: item.id, target, action, replaced: false, grounds });
                self.compare_withdrawal(&uid);
                // The withdrawn decision may have displaced a decision about another node of this uid.
                self.world.mark_uid(&uid);
                self.world.mark_deleting_owners(&uid);
            }
        }
    }

    /// Drops an item, and ends its decision. The event has these grounds.
    pub(super) fn drop_item(&mut self, uid: &Uid, grounds: Box<Grounds>) {
        let Some(item) = self.dispatcher.drop_item(uid) else { return };
        let action = item.draft.action.kind();
        self.ledger.ends_inherited(uid, grounds.decision);
        self.end_decision(&item.draft);
        self.cx.event(Event::Withdrawn { item: item.id, target: item.draft.target, action, replaced: false, grounds });
        self.compare_withdrawal(uid);
    }

    /// Withdraws the decision about an owner that no list shows. Asks about the owner if the question is due.
    fn judge_owner(&mut self, id: NodeId) {
        let node = self.world.graph().node(id);
        let kind = self.world.coverage().kind(node.kind());
        let listing = kind.state() == crate::coverage::State::Listing;
        let misplaced = kind.namespaced() == Some(true) && node.namespace().is_empty();
        let asked = !node.is_absent() && !listing && !misplaced && !kind.is_ambiguous();
        let access = kind.served().filter(|_| asked).map(|served| served.access);
        // A decision about the object ends here or with its lease.
        self.withdraw(id);
        let Some(access) = access else {
            self.world.end_inquiry(id);
            return self.prober.questions_mut().forget(id);
        };
        if self.world.inquire(&mut self.cx, id, access) {
            self.ask_about(id);
        }
    }
}

/// Returns whether two drafts about one object are different decisions.
fn is_another(one: &Draft, other: &Draft) -> bool {
    let facts = |draft: &Draft| draft.preconditions.facts_digest;
    one.action.kind() != other.action.kind() || facts(one) != facts(other)
}

/// Returns whether an action deletes an object or removes a reference to an orphaning owner. All other actions only
/// release objects that are already decided.
fn destroys(action: &Action, causes: &[Cause]) -> bool {
    match action {
        Action::Delete { .. } => true,
        Action::RemoveOwnerReferences { .. } => causes.iter().any(|cause| matches!(cause, Cause::OwnerOrphans { .. })),
        Action::UnblockOwnerReferences { .. } | Action::RemoveFinalizer { .. } => false,
    }
}

fn finish(finalizer: &str, cause: Cause) -> (Action, Vec<Cause>) {
    (Action::RemoveFinalizer { finalizer: Name::from(finalizer) }, alloc::vec![cause])
}

/// How a lease is recalled whose decision does not hold any more.
fn recall(spares: bool) -> RevokeMode {
    if spares { RevokeMode::Stop } else { RevokeMode::IfNotStarted }
}
