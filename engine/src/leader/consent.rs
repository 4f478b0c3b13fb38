//! Consent at the grant: approvals, gates and budgets. Each is asked about an item that no guard in force holds, in
//! this order; the first that does not consent holds the item.
//!
//! `cascades` counts what a root takes with it, `gates` keeps questions and answers, `questions` asks and handles the
//! answers, `budgets` keeps windows.

use super::holding::Holding;
use super::{Event, Leader, Output, Timer};
use crate::guard::{Approval, Approved, Budget, Cascade, GuardId, GuardKind, Limit, OnExceeded, Rule};
use crate::hold::meaning::Wants;
use crate::hold::{Entry, Hold, is_exempt};
use crate::object::{GroupResource, ObjectRef, Uid};
use crate::queue::{Draft, ItemState};
use crate::time::Time;
use crate::view::{GuardUsage, LISTED_MAX};
use crate::work::ActionKind;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use breaker::Breaker;
use budgets::{Budgets, Spent};
use cascades::{CascadeOf, ROOTS_MAX, SLICE};
use core::time::Duration;
use gates::{Gates, State, Subject};

mod breaker;
mod breaking;
mod budgets;
pub(super) mod cascades;
pub(super) mod foreseeing;
mod gates;
mod questions;
mod taking_back;

/// Time between two slices of the count of cascades, in which the leader handles other inputs.
const COUNT_EVERY: Duration = Duration::from_millis(1);
/// Time between two attempts to make room for further roots.
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// Time between two releases of all items of a guard, for each released item: about twice what that item costs.
const RELEASE_AGAIN_PER_ITEM: Duration = Duration::from_micros(2);
const RELEASE_AGAIN_MAX: Duration = Duration::from_millis(100);
/// Time between two releases of a budget whose window has no deletions.
const BUDGET_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of items that a budget releases at once.
const RELEASED_AT_ONCE: u64 = 1000;

#[derive(Debug, Default)]
pub(super) struct Consent {
    budgets: Budgets,
    gates: Gates,
    breaker: Breaker,
    /// The authors of Pauses of the breaker.
    pauses: BTreeMap<GuardId, String>,
    /// By the uid of the root.
    cascades: BTreeMap<Uid, CascadeOf>,
    /// The approvals that this leader has accepted, each with the root. An entry of theirs that an earlier leader has
    /// accepted counts no more. What no resource lists is forgotten with the last reference to the root.
    accepted: BTreeSet<(GuardId, Uid)>,
    /// The root of the leases that took an object of a counted cascade, by their targets.
    leased: BTreeMap<Uid, Uid>,
    /// When all items of a guard may be released again.
    release_again: BTreeMap<GuardId, Time>,
    /// True if [`Timer::CascadeRoom`] is set.
    makes_room: bool,
    /// The number of subjects after the last sweep.
    swept: usize,
}

/// An item that is to be granted.
struct Candidate {
    draft: Draft,
    root: Uid,
}

impl Leader {
    /// The hold on a ready item by what is asked at the grant. Asks what must be asked.
    pub(super) fn unconsented(&mut self, uid: &Uid) -> Option<Hold> {
        let item = self.dispatcher.queue().get(uid)?;
        let target = &item.draft.target;
        if !item.draft.destroys || is_exempt(&target.group, &target.resource) {
            return None;
        }
        if self.is_unexplained(&item.draft)
            && let Some(hold) = self.breaks(target.group_resource())
        {
            return Some(hold);
        }
        if !self.dispatcher.queue().holds().any_asks() {
            return None;
        }
        let item = self.dispatcher.queue().get(uid)?;
        let candidate = Candidate { draft: item.draft.clone(), root: item.root().unwrap_or(uid).clone() };
        let asking: Vec<GuardId> =
            self.dispatcher.queue().holds().asking().map(|entry| entry.guard.id.clone()).collect();
        asking.into_iter().find(|id| !self.consents(id, &candidate)).map(Hold::Guard)
    }

    fn consents(&mut self, id: &GuardId, candidate: &Candidate) -> bool {
        let Some(entry) = self.dispatcher.queue().holds().get(id) else { return true };
        // The root of a cascade waits as a whole; whether the cascade matters to an approval is known when it is
        // counted.
        let covers = |leader: &Leader, entry: &Entry| leader.holding().has(entry, &candidate.draft.target);
        match entry.guard.rule.clone() {
            Rule::Hold => true,
            Rule::Approval(approval) => self.is_approved(id, &approval, candidate),
            Rule::Gate(gate) if gate.roots_only => !covers(self, entry) || self.passes_root(id, &gate, candidate),
            Rule::Gate(gate) => !covers(self, entry) || self.passes(id, &gate, candidate),
            Rule::Budget(budget) => !covers(self, entry) || self.is_in_budget(id, &budget, candidate),
        }
    }

    fn calendar(&self, id: &GuardId) -> Duration {
        self.dispatcher.queue().holds().get(id).map_or(Duration::MAX, |entry| entry.calendar(self.cx.now))
    }

    // ---- cascades and approvals

    /// Returns the cascade of a root if it is counted with this object, and begins to count it otherwise. `None` also
    /// if too many roots are known.
    fn cascade(&mut self, candidate: &Candidate) -> Option<&mut CascadeOf> {
        let uid = &candidate.draft.target.uid;
        let is_delete = candidate.draft.action.kind() == ActionKind::Delete;
        // An earlier attempt may have taken effect.
        let takes = is_delete && !self.consent.leased.contains_key(uid);
        match self.consent.cascades.get(&candidate.root) {
            Some(known) if !known.is_counted() => return None,
            Some(known) if !known.outdated && (!takes || known.may_take(uid)) => {}
            None if self.consent.cascades.len() >= ROOTS_MAX => {
                // The timer makes room, and releases what waits.
                if !core::mem::replace(&mut self.consent.makes_room, true) {
                    self.cx.timers.set(self.cx.now + ROOM_EVERY, Timer::CascadeRoom);
                }
                return None;
            }
            Some(_) | None => {
                self.count_cascade(candidate);
                return None;
            }
        }
        self.consent.cascades.get_mut(&candidate.root)
    }

    /// Begins to count the cascade of an item.
    fn count_cascade(&mut self, candidate: &Candidate) {
        let target = &candidate.draft.target;
        let id = self.world.graph().primary(&target.uid);
        let causes = id.map(|id| self.world.causes(id)).unwrap_or_default();
        let chain = self.world.chain(&self.cx, &target.uid, &causes);
        let root = chain.last().unwrap_or(target).clone();
        // The root may have left the graph. Then the walk begins at the nearest owner that the graph has.
        let known = |object: &ObjectRef| {
            let nodes: Vec<_> = self.world.graph().by_uid(&object.uid).collect();
            (!nodes.is_empty()).then_some(nodes)
        };
        let from = chain.iter().rev().find_map(known).unwrap_or_default();
        let mut known = self.consent.cascades.remove(&candidate.root).unwrap_or_else(|| CascadeOf::new(root));
        known.begin(self.world.graph(), from);
        if let Some(id) = id.filter(|_| candidate.draft.action.kind() == ActionKind::Delete) {
            let holding = self.holding();
            known.add(&holding, &approvals(&holding), id);
        }
        self.consent.cascades.insert(candidate.root.clone(), known);
        self.cx.timers.set(self.cx.now, Timer::Cascades);
    }

    /// Makes room for other roots: forgets those without items.
    pub(super) fn make_room_for_cascades(&mut self) {
        self.consent.makes_room = false;
        let queue = self.dispatcher.queue();
        // A cascade of which only held objects are left is counted again if they are released.
        let root = |uid| {
            let item = queue.get(uid).filter(|item| !item.is_kept())?;
            Some(item.root().unwrap_or(uid))
        };
        let roots: BTreeSet<&Uid> = queue.uids().filter_map(root).collect();
        self.consent.cascades.retain(|root, _| roots.contains(root));
        self.release_asking(|kind| matches!(kind, GuardKind::Approval | GuardKind::Gate));
    }

    /// Counts one slice of the cascades.
    pub(super) fn count_cascades(&mut self) {
        let mut cascades = core::mem::take(&mut self.consent.cascades);
        let holding = self.holding();
        let approvals = approvals(&holding);
        let mut budget = SLICE;
        let mut any_counted = false;
        for (root, known) in cascades.iter_mut().filter(|(_, known)| !known.is_counted()) {
            budget = known.step(&holding, &approvals, budget);
            if known.is_counted() {
                any_counted = true;
                // The count has no objects in deletion, and those of leases with a write under way.
                let graph = holding.world.graph();
                let is_counted = |uid: &Uid| graph.primary(uid).is_some_and(|id| !graph.node(id).is_terminating());
                let leased = self.consent.leased.iter().filter(|(uid, of)| *of == root && is_counted(uid));
                known.counted(leased.map(|(uid, _)| uid));
            }
            if budget == 0 {
                break;
            }
        }
        if cascades.values().any(|known| !known.is_counted()) {
            self.cx.timers.set(self.cx.now + COUNT_EVERY, Timer::Cascades);
        }
        self.consent.cascades = cascades;
        if any_counted {
            self.release_asking(|kind| matches!(kind, GuardKind::Approval | GuardKind::Gate));
        }
    }

    fn is_approved(&mut self, id: &GuardId, approval: &Approval, candidate: &Candidate) -> bool {
        let (calendar, leads) = (self.calendar(id), self.cx.term.is_some());
        if self.cascade(candidate).is_none() {
            return false;
        }
        let Consent { cascades, accepted, .. } = &mut self.consent;
        let Some(known) = cascades.get_mut(&candidate.root) else { return false };
        if !known.needs(id, approval) {
            return true;
        }
        // A permission lasts as long as its entry stands in the resource.
        let permitted = known.is_permitted(id);
        let stands = |approved: &&Approved| {
            let is_it = permitted || inherits(accepted, id, approved) || approved.digest == known.extent.digest;
            approved.stands(&known.root.uid, calendar) && is_it
        };
        let Some(approved) = approval.approved.iter().find(stands) else {
            if permitted {
                self.count_cascade(candidate);
            } else if known.told.insert(id.clone()) && leads {
                let (root, extent) = (known.root.clone(), known.extent.clone());
                self.cx.event(Event::ApprovalNeeded { id: id.clone(), root, extent });
            }
            return false;
        };
        if !permitted {
            known.permit(id);
            accepted.insert((id.clone(), known.root.uid.clone()));
            let (root, actor, digest) = (known.root.clone(), approved.actor.clone(), known.extent.digest);
            self.cx.event(Event::Approved { id: id.clone(), root, actor, digest });
        }
        true
    }

    // ---- budgets

    fn is_in_budget(&mut self, id: &GuardId, budget: &Budget, candidate: &Candidate) -> bool {
        if candidate.draft.action.kind() != ActionKind::Delete {
            return true;
        }
        let collection = candidate.draft.target.group_resource();
        let size = self.size_of(&collection);
        let now = self.cx.now;
        let spent = self.consent.budgets.at(now, id, budget);
        let is_closed = budget.on_exceeded == OnExceeded::Approve && spent.exceeded;
        let is_counted = spent.counts(&candidate.draft.target.uid);
        if is_counted || (!is_closed && spent.has_room(budget, &collection, size)) {
            return true;
        }
        let (first, count) = (!core::mem::replace(&mut spent.exceeded, true), spent.count(None));
        if let Some(next) = spent.next().filter(|_| budget.on_exceeded != OnExceeded::Approve) {
            self.cx.timers.set(next.max(now), Timer::Budget(id.clone()));
        }
        if first && self.cx.term.is_some() {
            self.cx.event(Event::BudgetExceeded { id: id.clone(), collection, count });
            if let OnExceeded::Pause(lifetime) = budget.on_exceeded {
                let reason = format!("budget {} is exhausted: {count} deletions within its window", id.name);
                let scope = self.dispatcher.queue().holds().get(id).map(|entry| entry.meaning.scope.clone());
                let scope = scope.unwrap_or_default();
                self.cx.outputs.push_back(Output::CreatePause { by: id.to_string(), scope, reason, lifetime });
            }
        }
        false
    }

    fn size_of(&self, collection: &GroupResource) -> u64 {
        let kind = self.world.coverage().find(collection);
        kind.map_or(0, |kind| self.world.coverage().kind(kind).observed() as u64)
    }

    /// Releases as many items as the window of the budget has room for.
    pub(super) fn budget_due(&mut self, id: &GuardId) {
        let Some(Rule::Budget(budget)) = self.dispatcher.queue().holds().get(id).map(|entry| entry.guard.rule.clone())
        else {
            return;
        };
        let now = self.cx.now;
        let spent = self.consent.budgets.at(now, id, &budget);
        if budget.on_exceeded == OnExceeded::Approve && spent.exceeded {
            return;
        }
        let room = match budget.limit {
            Limit::Objects(max) => max.saturating_sub(spent.count(None)),
            // How much room each collection has is determined at the grant.
            Limit::Percent(_) => RELEASED_AT_ONCE,
        };
        let next = spent.next();
        let hold = Hold::Guard(id.clone());
        self.dispatcher.release(&hold, room.min(RELEASED_AT_ONCE) as usize);
        // While items wait, each deletion that is counted sets the timer.
        let waits = self.dispatcher.queue().held_by(&hold).len() > 0;
        self.consent.budgets.at(now, id, &budget).exceeded = waits;
        if waits {
            // Released items may be withdrawn at their grant. Then nothing but the timer releases the others.
            let next = next.map_or(now + BUDGET_AGAIN, |next| next.max(now + Duration::from_millis(1)));
            self.cx.timers.set(next, Timer::Budget(id.clone()));
        }
    }

    /// Takes what approvals and budgets permit, for the grant of an item.
    pub(super) fn take_consent(&mut self, uid: &Uid) {
        let Some(item) = self.dispatcher.queue().get(uid).filter(|item| item.draft.destroys) else { return };
        let (unexplained, asks) = (self.is_unexplained(&item.draft), self.dispatcher.queue().holds().any_asks());
        if !unexplained && !asks {
            return;
        }
        let (target, action) = (item.draft.target.clone(), item.draft.action.kind());
        let root = item.root().unwrap_or(uid).clone();
        let collection = target.group_resource();
        if unexplained {
            self.consent.breaker.spend(self.cx.now, &collection, uid);
        }
        if action == ActionKind::Delete {
            let is_new = !self.consent.leased.contains_key(uid);
            if is_new && self.consent.cascades.get_mut(&root).is_some_and(|known| known.take(uid)) {
                self.consent.leased.insert(uid.clone(), root);
            }
            for (id, budget) in self.budgets_over(&target) {
                self.consent.budgets.at(self.cx.now, &id, &budget).lease(uid, collection.clone());
            }
        }
    }

    /// Counts a deletion of the collector that was carried out.
    pub(super) fn spend(&mut self, target: &ObjectRef) {
        if !self.dispatcher.queue().holds().any_asks() {
            return;
        }
        let now = self.cx.now;
        self.cascade_lost(target);
        for (id, budget) in self.budgets_over(target) {
            let calendar = self.calendar(&id);
            let spent = self.consent.budgets.at(now, &id, &budget);
            spent.spend((now, calendar), budget.window, &target.uid, target.group_resource());
            if let Some(next) = spent.next().filter(|_| spent.exceeded) {
                self.cx.timers.set(next, Timer::Budget(id));
            }
        }
    }

    /// Counts an object of a cascade that went.
    fn cascade_lost(&mut self, target: &ObjectRef) {
        let leased = self.consent.leased.remove(&target.uid);
        let root = || Some(self.dispatcher.queue().get(&target.uid)?.root().unwrap_or(&target.uid).clone());
        let Some(root) = leased.or_else(root) else { return };
        let Some(mut known) = self.consent.cascades.remove(&root) else { return };
        known.take(&target.uid);
        let holding = self.holding();
        let over = approvals(&holding).into_iter().filter(|entry| holding.has(entry, target));
        known.went(over.map(|entry| entry.guard.id.clone()));
        self.consent.cascades.insert(root, known);
    }

    /// Ends the consent of a decision that ends without a report. If its object is in deletion, the deletion counts:
    /// the write of an attempt without a report may be the cause.
    pub(super) fn end_decision(&mut self, draft: &Draft) {
        let graph = self.world.graph();
        let is_terminating = graph.by_uid(&draft.target.uid).any(|id| graph.node(id).is_terminating());
        if draft.action.kind() == ActionKind::Delete && is_terminating {
            self.spend(&draft.target);
        }
        self.end_consent(&draft.target.uid);
    }

    /// Ends what was asked about a decision and what it took.
    pub(super) fn end_consent(&mut self, uid: &Uid) {
        self.give_back(uid);
        self.end_questions(uid);
    }

    /// Gives back what a lease took from budgets and cascades, when it ended without effect. If the write of any
    /// attempt may have taken effect, the decision keeps it.
    pub(super) fn refund(&mut self, uid: &Uid) {
        if self.dispatcher.queue().get(uid).is_none_or(|item| !item.ambiguous) {
            self.give_back(uid);
        }
    }

    fn give_back(&mut self, uid: &Uid) {
        if let Some(root) = self.consent.leased.remove(uid)
            && let Some(known) = self.consent.cascades.get_mut(&root)
        {
            known.give_back(uid);
        }
        if self.consent.budgets.release(uid) {
            for id in self.dispatcher.queue().holds().asking().map(|entry| entry.guard.id.clone()).collect::<Vec<_>>() {
                self.budget_due(&id);
            }
        }
    }

    fn budgets_over(&self, target: &ObjectRef) -> Vec<(GuardId, Budget)> {
        let holding: Holding<'_> = self.holding();
        let asking = holding.holds.asking();
        let over = asking.filter_map(|entry| {
            let Rule::Budget(budget) = &entry.guard.rule else { return None };
            holding.has(entry, target).then(|| (entry.guard.id.clone(), budget.clone()))
        });
        over.collect()
    }

    // ---- changes of guards

    /// Takes over the window that the status of a budget states.
    pub(super) fn recall_spent(&mut self, id: &GuardId) {
        let Some(entry) = self.dispatcher.queue().holds().get(id) else { return };
        let Rule::Budget(budget) = &entry.guard.rule else { return };
        let calendar = if entry.guard.read_at.is_zero() { Duration::ZERO } else { entry.calendar(self.cx.now) };
        self.consent.budgets.recall((self.cx.now, calendar), id, budget, &entry.guard.recorded);
    }

    /// Asks again after guards have changed.
    pub(super) fn reconsider(&mut self, changed: &GuardId) {
        match changed.kind {
            GuardKind::Pause => return self.breaker_paused(changed),
            GuardKind::Protection => return,
            GuardKind::Approval => self.consent.outdate_cascades(),
            GuardKind::Gate => self.consent.gates.forget_answers(changed),
            GuardKind::Budget => {}
        }
        let holds = self.dispatcher.queue().holds();
        self.consent.budgets.retain(|id| holds.get(id).is_some());
        self.consent.gates.retain(|id, _| holds.get(id).is_some());
        self.consent.release_again.retain(|id, _| holds.get(id).is_some());
        let graph = self.world.graph();
        let is_listed = |(id, root): &(GuardId, Uid)| match holds.get(id).map(|entry| &entry.guard.rule) {
            Some(Rule::Approval(approval)) => approval.approved.iter().any(|approved| approved.root == *root),
            Some(Rule::Hold | Rule::Gate(_) | Rule::Budget(_)) | None => false,
        };
        let Consent { accepted, cascades, .. } = &mut self.consent;
        let is_known =
            |root: &Uid| graph.by_uid(root).next().is_some() || cascades.values().any(|known| known.root.uid == *root);
        accepted.retain(|pair| is_listed(pair) || is_known(&pair.1));
        self.cancel_given_up();
        self.dispatcher.release(&Hold::Guard(changed.clone()), usize::MAX);
    }

    /// Asks again after labels that these guards require have changed.
    pub(super) fn reconsider_labels(&mut self, asks: impl Fn(&Wants) -> bool) {
        let asking = self.dispatcher.queue().holds().asking().filter(|entry| entry.meaning.wants.iter().any(&asks));
        let asking: Vec<GuardId> = asking.map(|entry| entry.guard.id.clone()).collect();
        if asking.iter().any(|id| id.kind == GuardKind::Approval) {
            self.consent.outdate_cascades();
        }
        for id in asking {
            self.release_all(id);
        }
    }

    fn release_asking(&mut self, of: impl Fn(GuardKind) -> bool) {
        let asking = self.dispatcher.queue().holds().asking().map(|entry| entry.guard.id.clone());
        for id in asking.filter(|id| of(id.kind)).collect::<Vec<_>>() {
            self.release_all(id);
        }
    }

    /// Asks again about all items of a guard. There may be many, so two releases are apart.
    pub(super) fn release_all(&mut self, id: GuardId) {
        let now = self.cx.now;
        if let Some(&next) = self.consent.release_again.get(&id).filter(|&&next| now < next) {
            return self.cx.timers.set(next, Timer::Release(id));
        }
        let count = self.dispatcher.release(&Hold::Guard(id.clone()), usize::MAX);
        let wait = RELEASE_AGAIN_PER_ITEM.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self.consent.release_again.insert(id, now + wait.min(RELEASE_AGAIN_MAX));
    }
}

/// Whether an entry counts because an earlier leader has accepted it. The digest of the cascade may have changed since.
fn inherits(accepted: &BTreeSet<(GuardId, Uid)>, id: &GuardId, approved: &Approved) -> bool {
    approved.accepted && !accepted.contains(&(id.clone(), approved.root.clone()))
}

/// The approvals in force.
fn approvals<'a>(holding: &Holding<'a>) -> Vec<&'a Entry> {
    holding.holds.asking().filter(|entry| entry.guard.id.kind == GuardKind::Approval).collect()
}

impl Consent {
    /// Lets cascades be counted again, except those that are permitted: their approvals cover the counted objects.
    fn outdate_cascades(&mut self) {
        for known in self.cascades.values_mut().filter(|known| !known.is_permitted_by_any()) {
            known.outdated = true;
        }
    }

    /// Returns the usage that a guard has seen.
    pub(super) fn usage(&self, id: &GuardId, rule: &Rule) -> GuardUsage {
        match rule {
            Rule::Hold => GuardUsage::Standing,
            Rule::Budget(_) => {
                let spent = self.budgets.get(id);
                GuardUsage::Budget {
                    spent: spent.map_or(0, |spent| spent.count(None)),
                    exceeded_from: self.budgets.exceeded_from(id),
                    window: spent.map(Spent::spendings).unwrap_or_default(),
                }
            }
            Rule::Approval(approval) => {
                let concerned = self.cascades.values().filter(|known| known.needs(id, approval));
                let (accepted, waiting): (Vec<&CascadeOf>, Vec<&CascadeOf>) =
                    concerned.partition(|known| known.is_permitted(id));
                let first =
                    |of: Vec<&CascadeOf>| of.into_iter().take(LISTED_MAX).map(|known| known.extent.clone()).collect();
                let inherited = approval.approved.iter().filter(|approved| inherits(&self.accepted, id, approved));
                GuardUsage::Approval {
                    waiting: first(waiting),
                    accepted: first(accepted),
                    inherited: inherited.map(|approved| (approved.root.clone(), approved.digest)).collect(),
                }
            }
            Rule::Gate(_) => {
                let (in_flight, denied) = self.gates.counts(id);
                GuardUsage::Gate { in_flight, denied }
            }
        }
    }

    /// Describes what an item waits for at a guard, for readers; empty if the guard has nothing to add.
    pub(super) fn describe(&self, id: &GuardId, uid: &Uid, root: Option<&Uid>) -> String {
        let root = root.unwrap_or(uid);
        let subject = [Subject::Item(uid.clone()), Subject::Root(root.clone())];
        let asked = subject.iter().find_map(|subject| self.gates.get(id, subject));
        match (id.kind, asked.map(|asked| &asked.state)) {
            (GuardKind::Gate, Some(State::Waiting { .. })) => String::from("asked"),
            (GuardKind::Gate, Some(State::Again { .. })) => String::from("not decided yet"),
            (GuardKind::Gate, Some(State::Denied { why })) if why.is_empty() => String::from("denied"),
            (GuardKind::Gate, Some(State::Denied { why })) => format!("denied: {why}"),
            (GuardKind::Gate, Some(State::Allowed { .. }) | None) => String::from("waits to be asked"),
            (GuardKind::Approval, _) => match self.cascades.get(root) {
                Some(known) if known.is_counted() => {
                    let Cascade { objects, digest, .. } = known.extent;
                    format!("{} takes {objects} objects, digest {digest:016x}", known.root)
                }
                None if self.cascades.len() >= ROOTS_MAX => {
                    let until = "this one is counted when another one ends";
                    format!("the leader counts at most {ROOTS_MAX} cascades at a time; {until}")
                }
                Some(_) | None => String::from("the cascade is being counted"),
            },
            (GuardKind::Budget, _) => {
                let count = self.budgets.get(id).map_or(0, |spent| spent.count(None));
                format!("{count} deletions in its window")
            }
            (GuardKind::Pause | GuardKind::Protection, _) => String::new(),
        }
    }
}

/// Whether an item waits for consent.
pub(super) fn waits(state: &ItemState) -> bool {
    matches!(state, ItemState::Held(Hold::Guard(GuardId { kind, .. }))
        if !matches!(kind, GuardKind::Pause | GuardKind::Protection))
}
