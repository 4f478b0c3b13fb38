//! Mode `observe` beside another collector: finds the changes that look like those of a collector, and matches them
//! with decisions. [`crate::parity`] describes the outcomes.
//!
//! A change is judged when the collections of its owners have reached its version, and when its user is known if there
//! is an audit log. Neither is awaited for ever.

use super::closing::Left;
use super::{Event, Leader, Timer};
use crate::graph::NodeId;
use crate::hold::Hold;
use crate::object::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectRef, ResourceVersion, Uid};
use crate::parity::{
    AUDITED_WITHIN, Actor, Audited, AuditedVerb, Case, Change, Class, Counts, Deed, Disagreement, Lately, OWNERS_MAX,
    Open, Outcome, Owner, Parity, SETTLED_WITHIN, TOLD_AFTER, YOUNG,
};
use crate::verdict::{Standing, own_hold, standings};
use crate::view::{EdgeView, OwnerStanding, Undecided};
use crate::work::{Action, ActionKind, PropagationPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;
use facts::awaits;

mod facts;

/// Time between two looks at what waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of decisions that one look reports.
const REPORTED_AT_ONCE: usize = 1000;
/// Time between two looks while there are more.
const REPORTED_EVERY: Duration = Duration::from_millis(10);

impl Leader {
    fn look_again(&mut self, after: Duration) {
        if !self.comparing {
            self.comparing = true;
            self.cx.timers.set_after(self.cx.now, after, Timer::Compare);
        }
    }

    /// Begins with the decisions from before the term.
    pub(super) fn begin_comparison(&mut self) {
        if !self.cx.compares() {
            return;
        }
        self.parity = Parity::new(self.cx.now);
        self.compare_from_here();
        for uid in self.dispatcher.queue().uids().cloned().collect::<Vec<Uid>>() {
            self.compare_decision(&uid);
        }
    }

    /// Takes where the main store stands, unless the comparison has begun before.
    pub(super) fn compare_from_here(&mut self) {
        if self.cx.compares()
            && let Some(version) = self.world.coverage().main()
        {
            self.parity.begin_at(version);
        }
    }

    /// Takes the decision about this object.
    pub(super) fn compare_decision(&mut self, uid: &Uid) {
        if !self.cx.compares() {
            return;
        }
        if let Some(open) = self.queued(uid) {
            self.parity.decided(self.cx.now, uid.clone(), open);
            self.look_again(LOOK_EVERY);
        }
        self.tell_counts_in_a_crowd();
    }

    /// Tells the counts if many events came after the last ones. Large cascades have that many between two looks.
    fn tell_counts_in_a_crowd(&mut self) {
        if self.cx.events_since_compared >= TOLD_AFTER {
            self.tell_counts(false);
        }
    }

    /// Tells the next leader the counts. `is_last`: the term is about to end.
    pub(super) fn tell_counts(&mut self, is_last: bool) {
        if self.cx.compares()
            && let Some(view) = self.parity.tell(self.cx.now, self.cx.events_since_compared, is_last)
        {
            self.cx.event(Event::Compared(Box::new(view)));
        }
    }

    /// The queued decision about this object, as a new one to compare.
    fn queued(&self, uid: &Uid) -> Option<Open> {
        let action = &self.dispatcher.queue().get(uid)?.draft.action;
        let removes = match action {
            Action::RemoveOwnerReferences { owner_uids, entries, .. } => {
                owner_uids.iter().chain(entries.iter().map(|entry| &entry.uid)).cloned().collect()
            }
            Action::Delete { .. } | Action::UnblockOwnerReferences { .. } | Action::RemoveFinalizer { .. } => [].into(),
        };
        let orphans = match action {
            Action::Delete { propagation_policy, .. } => *propagation_policy == PropagationPolicy::Orphan,
            Action::RemoveFinalizer { finalizer } => **finalizer == *ORPHAN_FINALIZER,
            Action::RemoveOwnerReferences { .. } | Action::UnblockOwnerReferences { .. } => false,
        };
        let is_premature = action.kind() == ActionKind::RemoveFinalizer
            && self.world.graph().primary(uid).is_some_and(|id| awaits(&self.world.graph().node(id), orphans));
        let mut open = Open::new(action.kind(), removes, self.cx.now);
        (open.orphans, open.is_premature, open.is_own_change) = (orphans, is_premature, self.follows_own_change(uid));
        Some(open)
    }

    /// Takes a withdrawn decision.
    pub(super) fn compare_withdrawal(&mut self, uid: &Uid) {
        if self.cx.compares() {
            self.parity.withdrawn(self.cx.now, uid);
            self.tell_counts_in_a_crowd();
        }
    }

    /// Compares a known object with its next state, before the graph takes that state. Between the two, there may be
    /// others if it is not `watched`.
    pub(super) fn compare_change(&mut self, id: NodeId, next: &Object, watched: bool) {
        if !self.cx.compares() {
            return;
        }
        let node = self.world.graph().node(id);
        let is_rewound = self.world.coverage().kind(node.kind()).is_rewound();
        if is_rewound || node.has_said(&next.facts) || self.world.graph().primary(&next.uid) != Some(id) {
            return;
        }
        let version = Some(next.resource_version.clone());
        let facts = &next.facts;
        let left = |finalizer: &str| node.has_finalizer(finalizer) && !facts.has_finalizer(finalizer);
        let was_terminating = node.is_terminating();
        let stops_waiting = was_terminating && left(FOREGROUND_FINALIZER);
        let mut removed = Vec::new();
        let (mut unblocked, mut grows) = (false, false);
        // Objects with more references than the collector reads have none here.
        if facts.excess.is_none() && !node.has_references(&facts.owners) {
            let known: Vec<Uid> = node.references().take(OWNERS_MAX).map(|known| known.to_owned().uid).collect();
            grows = facts.owners.iter().take(OWNERS_MAX).any(|next| !known.contains(&next.uid));
            for (at, reference) in node.references().enumerate().take(OWNERS_MAX) {
                let known = reference.to_owned();
                match facts.owners.iter().find(|next| next.uid == known.uid && next.name == known.name) {
                    None => removed.push(at),
                    Some(next) => {
                        let waits = self.world.graph().node(reference.owner()).deletes_dependents();
                        unblocked |= waits && reference.blocks() && next.block_owner_deletion != Some(true);
                    }
                }
            }
        }
        let any_owner = node.references().len() > 0 || node.excess().is_some();
        let loses_finalizer = stops_waiting || was_terminating && left(ORPHAN_FINALIZER);
        let orphans = watched.then_some(facts.has_finalizer(ORPHAN_FINALIZER));
        // If both finalizers go at once, the change does not show which one the decision is about.
        let orphaned = (stops_waiting != left(ORPHAN_FINALIZER)).then_some(!stops_waiting);
        if !was_terminating && facts.terminating {
            self.parity.happened(self.cx.now, Lately::Marked, &next.uid);
            if any_owner {
                self.compare(id, ActionKind::Delete, version.clone(), &[], orphans);
            }
        }
        if stops_waiting {
            self.parity.happened(self.cx.now, Lately::StoppedWaiting, &next.uid);
        }
        if loses_finalizer {
            self.compare(id, ActionKind::RemoveFinalizer, version.clone(), &[], orphaned);
        }
        if !removed.is_empty() {
            self.compare(id, ActionKind::RemoveOwnerReferences, version.clone(), &removed, None);
        }
        if unblocked {
            self.compare(id, ActionKind::UnblockOwnerReferences, version, &[], None);
        }
        if grows {
            self.parity.happened(self.cx.now, Lately::Grew, &next.uid);
        }
    }

    /// Takes an owner whose watch shows another deletion mode.
    pub(super) fn compare_owner(&mut self, id: NodeId) {
        if !self.cx.compares() {
            return;
        }
        let node = self.world.graph().node(id);
        let standing = match (node.orphans_dependents(), node.deletes_dependents()) {
            (true, _) => Standing::Orphaning,
            (false, true) => Standing::Waiting,
            (false, false) => return,
        };
        if let Some(version) = node.resource_version() {
            let (kind, owner, coverage) = (node.kind(), self.world.object_ref(id), self.world.coverage());
            let is_comparable = |target: &ObjectRef| {
                coverage.known(&target.group, &target.kind).is_some_and(|target| coverage.is_same_store(target, kind))
            };
            self.parity.owner_moved(&owner, &version, standing, is_comparable);
        }
    }

    /// Compares an object that is about to leave the graph.
    pub(super) fn compare_removal(&mut self, id: NodeId, left: &Left) {
        if !self.cx.compares() {
            return;
        }
        let node = self.world.graph().node(id);
        let uid = node.uid();
        self.parity.owner_left(&uid);
        let Left::Collection { deleted } = left else { return };
        let is_rewound = self.world.coverage().kind(node.kind()).is_rewound();
        if is_rewound || self.world.graph().primary(&uid) != Some(id) {
            return;
        }
        let any_owner = node.references().len() > 0 || node.excess().is_some();
        let (deletes, orphans) = (node.deletes_dependents(), node.orphans_dependents());
        if deletes || orphans {
            let orphaned = (deletes != orphans).then_some(orphans);
            self.compare(id, ActionKind::RemoveFinalizer, deleted.clone(), &[], orphaned);
        } else if !node.is_terminating() && any_owner {
            // A deletion that orphans marks the object before.
            let orphans = deleted.is_some().then_some(false);
            self.compare(id, ActionKind::Delete, deleted.clone(), &[], orphans);
        }
        // The object went before the decision about it could be followed.
        self.parity.withdrawn(self.cx.now, &uid);
    }

    /// Takes a change of an object. `removed` are the indices of the references that it removes, and `orphans` is as in
    /// [`Deed`].
    fn compare(
        &mut self,
        id: NodeId,
        action: ActionKind,
        version: Option<ResourceVersion>,
        removed: &[usize],
        orphans: Option<bool>,
    ) {
        let (graph, coverage) = (self.world.graph(), self.world.coverage());
        let node = graph.node(id);
        let uid = node.uid();
        let target = self.world.object_ref(id);
        let views = self.world.first_edges(id, OWNERS_MAX);
        let owners = views.into_iter().zip(standings(graph, coverage, node)).enumerate();
        let owner = |(at, (view, standing)): (usize, (EdgeView, Standing))| {
            let waited = self.parity.has_happened(self.cx.now, Lately::StoppedWaiting, &view.owner.uid);
            Owner { view, standing, later: None, removed: removed.contains(&at), waited }
        };
        let owners: Vec<Owner> = owners.map(owner).collect();
        let removed = owners.iter().filter(|owner| owner.removed).map(|owner| owner.view.reference.uid.clone());
        let deed = Deed { action, removed: removed.collect(), orphans };
        let is_guarded = || self.holding().on(&target).any(|hold| matches!(hold, Hold::Guard(_)));
        let removes_orphaned = || owners.iter().any(|owner| owner.removed && owner.standing == Standing::Orphaning);
        // As `Holding::first` holds decisions.
        let was_held = match action {
            ActionKind::Delete => own_hold(graph, node).is_some() || is_guarded(),
            ActionKind::RemoveOwnerReferences => removes_orphaned() && is_guarded(),
            ActionKind::RemoveFinalizer | ActionKind::UnblockOwnerReferences => false,
        };
        let owner_count = node.excess().map_or(node.references().len(), |excess| excess.count as usize);
        let was_undecided = node.is_dirty() || self.world.undecided().get(id).is_some() || self.claims.covers(&uid);
        let was_terminating = node.is_terminating();
        let before = node.resource_version();
        // The rule for a dependent of a waiting owner depends on the dependents of that dependent.
        let is_by_rule = orphans.is_none_or(|orphans| orphans == node.has_finalizer(ORPHAN_FINALIZER))
            || owners.iter().any(|owner| owner.standing == Standing::Waiting);
        // The end of an owner may be seen before an older change of its dependent, which then follows no decision.
        let decides = |owner: &&Owner| action == ActionKind::Delete || owner.removed;
        let lived = |owner: &Owner| self.stood_at(&target, version.as_ref(), owner) == Some(Standing::Solid);
        let is_older = owners.iter().filter(decides).any(lived);
        let (decided, follows) = match was_held {
            true => (None, false),
            false if is_older => (self.parity.open_decision(&uid).cloned(), false),
            false => self.parity.decision(self.cx.now, &uid, &deed),
        };
        let is_uncompared = || self.queued(&uid).is_some_and(|queued| queued.covers(&deed));
        if decided.is_none() && !was_held && is_uncompared() {
            // The decision is beyond the bound on open ones, or its comparison has ended.
            return;
        }
        let has_happened = |what| self.parity.has_happened(self.cx.now, what, &uid);
        let sheds = action == ActionKind::RemoveOwnerReferences;
        let shed_before = sheds && has_happened(Lately::Shed);
        let (grown_before, marked_before) = (has_happened(Lately::Grew), has_happened(Lately::Marked));
        if sheds {
            self.parity.happened(self.cx.now, Lately::Shed, &uid);
        }
        let awaited = if action == ActionKind::RemoveFinalizer { self.awaited(id, orphans) } else { Vec::new() };
        let change = Change {
            target,
            deed,
            at: self.cx.now,
            version,
            before,
            owners,
            owner_count,
            decided,
            follows,
            was_undecided,
            was_held,
            was_terminating,
            is_by_rule,
            shed_before,
            grown_before,
            marked_before,
            awaited,
            audited: None,
        };
        if was_held {
            // The decision waited for nothing.
            self.parity.end(&uid);
        }
        if let Some(early) = self.parity.changed(self.cx.now, change) {
            self.judge_change(early, true);
        }
        self.look_again(LOOK_EVERY);
    }

    /// Takes a request of the audit log.
    pub(super) fn audited(&mut self, audited: Box<Audited>) {
        if self.cx.compares() {
            self.parity.log_mut().put(self.cx.now, audited);
        }
    }

    /// Takes over the counts of earlier leaders.
    pub(super) fn compared_before(&mut self, counts: &Counts, lasted: Duration) {
        if self.cx.compares() {
            self.parity.inherit(self.cx.now, counts, lasted);
        }
    }

    /// Judges the changes whose facts are known, and the decisions whose wait is over.
    pub(super) fn compare_due(&mut self) {
        self.comparing = false;
        if !self.cx.compares() {
            return;
        }
        let mut waiting = self.parity.take_changes();
        for _ in 0..waiting.len() {
            let Some(change) = waiting.pop_front() else { break };
            waiting.extend(self.judge_change(change, false));
        }
        self.parity.put_back(waiting);
        let mut reported = 0;
        while reported < REPORTED_AT_ONCE
            && let Some((uid, open)) = self.parity.overdue(self.cx.now)
        {
            self.decision_overdue(&uid, &open);
            reported += 1;
        }
        self.tell_counts(false);
        if self.parity.waits() || self.parity.has_news(self.cx.now) {
            self.look_again(if reported < REPORTED_AT_ONCE { LOOK_EVERY } else { REPORTED_EVERY });
        }
    }

    /// Judges a change. Returns the change if it has to wait. `early` changes do not wait.
    fn judge_change(&mut self, mut change: Change, early: bool) -> Option<Change> {
        let age = self.cx.now.since(change.at);
        let is_last = early || age >= AUDITED_WITHIN;
        if self.parity.is_audited() && change.audited.is_none() {
            change.audited = self.parity.log_mut().take(&change, is_last);
        }
        let settled: Vec<(Standing, bool)> =
            change.owners.iter().map(|owner| (self.standing_at(&change, owner), owner.removed)).collect();
        let action = change.deed.action;
        let has_dependents = action == ActionKind::RemoveFinalizer && self.has_dependents(&change.target.uid);
        let open_question = |&(standing, _): &(Standing, bool)| {
            standing == Standing::Unverified(Undecided::OwnerUnverified)
                || standing == Standing::Unverified(Undecided::CollectionUnsynced)
        };
        let unsettled = !change.follows && (has_dependents || settled.iter().any(open_question));
        if unsettled && age < SETTLED_WITHIN && !early {
            return Some(change);
        }
        if self.parity.is_audited() && change.audited.is_none() && !is_last {
            return Some(change);
        }
        let differs = change.decided.as_ref().is_some_and(|open| {
            open.action == action && change.deed.orphans.is_some_and(|orphans| orphans != open.orphans)
        });
        let solid = || settled.iter().zip(&change.owners).filter(|((standing, _), _)| *standing == Standing::Solid);
        let waited_before = solid().next().is_some() && solid().all(|(_, owner)| owner.waited);
        let finding = Case {
            action,
            actor: change.audited.as_ref().map_or(Actor::Unknown, |author| author.actor),
            decided: change.decided.as_ref().map(|open| open.action),
            follows: change.follows,
            is_premature: change.decided.as_ref().is_some_and(|open| open.is_premature),
            differs,
            is_by_rule: change.is_by_rule,
            was_undecided: change.was_undecided,
            was_held: change.was_held,
            was_terminating: change.was_terminating,
            owners: &settled,
            facts_came: settled.iter().zip(&change.owners).any(|(now, before)| now.0 != before.standing),
            is_young: change.decided.as_ref().is_some_and(|open| change.at.since(open.since) < YOUNG),
            shed_before: change.shed_before,
            grown_before: change.grown_before,
            is_second_deletion: change.marked_before
                && change.audited.as_ref().is_some_and(|author| author.verb == AuditedVerb::Delete),
            waited_before,
            other_coordinates: change.owners.iter().filter(|owner| owner.removed).any(|removed| {
                let is_it = |owner: &Owner| owner.view.reference.uid == removed.view.reference.uid;
                change.owners.iter().any(|owner| is_it(owner) && self.is_elsewhere(&owner.view))
            }),
            has_dependents,
            has_old_dependents: change.awaited.iter().any(|dependent| self.has_owner(dependent, &change.target.uid)),
            too_many: change.owner_count > change.owners.len(),
        }
        .finding();
        if let Some(disagreement) = self.parity.judged(self.cx.now, change, finding) {
            self.cx.event(Event::Disagreed(disagreement));
        }
        None
    }

    /// Reports a decision that the other collector did not follow in time.
    fn decision_overdue(&mut self, uid: &Uid, open: &Open) {
        let Some(item) = self.dispatcher.queue().get(uid) else { return self.parity.end(uid) };
        let draft = item.draft.clone();
        let node = self.world.graph().primary(uid);
        let Some(id) = node else { return self.parity.end(uid) };
        if self.holding().first(&draft).is_some() {
            return self.parity.put_off(self.cx.now, uid);
        }
        let owners = self.world.first_edges(id, OWNERS_MAX);
        let has = |standing: OwnerStanding| owners.iter().any(|owner| owner.standing == standing);
        let (graph, coverage) = (self.world.graph(), self.world.coverage());
        let other_version = || {
            graph.node(id).references().any(|reference| {
                let kind = coverage.kind(graph.node(reference.owner()).kind());
                kind.served().is_some_and(|served| !served.has_version(reference.to_owned().version()))
            })
        };
        // No difference by design deletes an object, or removes a reference, because of an owner that lives.
        let decides = |edge: &EdgeView| match &draft.action {
            Action::RemoveOwnerReferences { owner_uids, entries, .. } => {
                owner_uids.contains(&edge.reference.uid) || entries.contains(&edge.reference)
            }
            Action::Delete { .. } => true,
            Action::UnblockOwnerReferences { .. } | Action::RemoveFinalizer { .. } => false,
        };
        let standings = owners.iter().zip(standings(graph, coverage, graph.node(id)));
        let mut deciding = standings.filter(|(edge, _)| decides(edge)).map(|(_, standing)| standing);
        let class = match &draft.action {
            Action::UnblockOwnerReferences { .. } => Class::Cycle,
            _ if deciding.any(|standing| standing == Standing::Solid) => Class::Unknown,
            Action::RemoveFinalizer { .. } if self.is_claimed_elsewhere(id) => Class::OtherCoordinates,
            Action::RemoveOwnerReferences { .. } if has(OwnerStanding::Orphaning) => Class::Orphaned,
            Action::RemoveOwnerReferences { .. }
                if has(OwnerStanding::Unverified) || has(OwnerStanding::KindUnresolved) =>
            {
                Class::DroppedReference
            }
            Action::Delete { .. } | Action::RemoveOwnerReferences { .. } if other_version() => Class::OtherVersion,
            _ if owners.iter().any(|edge| decides(edge) && self.is_elsewhere(edge)) => Class::OtherCoordinates,
            Action::Delete { .. } | Action::RemoveOwnerReferences { .. }
                if open.is_own_change || self.follows_own_change(uid) =>
            {
                Class::OwnChange
            }
            _ if self.parity.log_mut().was_refused(&draft.target, open.since) => Class::Refused,
            // A finalizer waits for dependents, whose ends this does not ask about.
            Action::Delete { .. } | Action::RemoveOwnerReferences { .. } if self.is_earlier(id) => Class::Earlier,
            Action::Delete { .. } | Action::RemoveOwnerReferences { .. } | Action::RemoveFinalizer { .. } => {
                Class::Unknown
            }
        };
        let owner_count = self.world.graph().node(id).references().len();
        let disagreement = |number| Disagreement {
            number,
            outcome: Outcome::OursOnly,
            class,
            target: draft.target,
            action: open.action,
            decided: Some(open.action),
            at: open.since,
            version: Some(draft.preconditions.resource_version),
            owner_count,
            owners,
            audited: None,
        };
        let told = self.parity.late(self.cx.now, uid, disagreement);
        self.cx.event(Event::Disagreed(told));
    }
}
