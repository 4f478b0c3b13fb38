//! The effect of guards on the collector's part of a plan. Guards in force hold objects. The others are asked when a
//! decision would be granted, so the plan counts their questions: the objects that the collector deletes, and those
//! that lose the reference to an orphaning owner.

use super::{Brake, Copy};
use crate::graph::NodeId;
use crate::guard::{Cascade, GuardId, GuardKind, Limit};
use crate::hold::Hold;
use crate::object::{Digest, GroupResource, Uid};
use crate::time::Time;
use crate::view::{GuardDoes, PlanGuard, Reason};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A guard that is asked when a decision would be granted.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) id: GuardId,
    pub(crate) reason: String,
    pub(crate) until: Option<Time>,
    pub(crate) asks: Asks,
}

/// The data on which the answer depends.
#[derive(Clone, Debug)]
pub(crate) enum Asks {
    /// The cascades of the plan's roots that need the approval, and whether it is given.
    Approval(Vec<(Cascade, bool)>),
    Gate,
    Budget(Window),
}

/// The window of a budget, as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) limit: Option<Limit>,
    /// Deletions by collection: those that were carried out, and those under way.
    pub(crate) spent: BTreeMap<GroupResource, Spent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) gone: u64,
    pub(crate) leased: u64,
}

/// The objects that the collector destroys in a plan.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    asking: Vec<Asking>,
    /// The guards that have the object of a node in scope.
    asked_by: BTreeMap<NodeId, Vec<GuardId>>,
    /// The collection of each destroyed object, and whether it is deleted.
    destroyed: BTreeMap<NodeId, (GroupResource, bool)>,
    /// The sizes of the collections, if a budget depends on them.
    sizes: BTreeMap<GroupResource, u64>,
    /// The number of objects that each guard in force holds.
    held: BTreeMap<Hold, u64>,
}

impl Forecast {
    pub(super) fn of(copy: &mut Copy) -> Forecast {
        let asking = core::mem::take(&mut copy.asking);
        let is_share =
            |asking: &Asking| matches!(&asking.asks, Asks::Budget(Window { limit: Some(Limit::Percent(_)), .. }));
        let mut sizes = BTreeMap::new();
        if asking.iter().any(is_share) {
            let size = |(_, kind): (_, &crate::coverage::Kind)| {
                Some((kind.served()?.group_resource.clone(), kind.observed() as u64))
            };
            sizes = copy.coverage.served().filter_map(size).collect();
        }
        Forecast { asking, sizes, ..Forecast::default() }
    }

    pub(super) fn asked(&mut self, id: NodeId, by: Vec<GuardId>) {
        if !by.is_empty() {
            self.asked_by.insert(id, by);
        }
    }

    /// Records that the collector destroys an object: it deletes it, or removes the reference to an orphaning owner.
    pub(super) fn destroy(&mut self, id: NodeId, collection: GroupResource, is_deletion: bool) {
        let (_, deleted) = self.destroyed.entry(id).or_insert((collection, false));
        *deleted |= is_deletion;
    }

    /// Counts a held object, unless an annotation holds it.
    pub(super) fn hold(&mut self, by: &Hold, reasons: &[Reason]) {
        if reasons.iter().any(|reason| reason.code == by.code()) {
            *self.held.entry(by.clone()).or_default() += 1;
        }
    }

    /// Returns the effect of each guard, by kind and name, and adds the guards that apply to the digest.
    pub(super) fn finish(self, brakes: &BTreeMap<Hold, Brake>, digest: &mut Digest) -> Vec<PlanGuard> {
        let mut guards: Vec<PlanGuard> =
            self.held.iter().filter_map(|(hold, &objects)| held(hold, brakes.get(hold)?, objects)).collect();
        let mut applied = BTreeSet::new();
        for asking in &self.asking {
            let mut told = |does: GuardDoes, objects: u64| {
                let Asking { id, reason, until, .. } = asking;
                let (kind, name) = (id.kind, id.name.clone());
                guards.push(PlanGuard { kind, name, does, objects, reason: reason.clone(), until: *until });
            };
            match &asking.asks {
                Asks::Approval(cascades) => {
                    for (cascade, is_given) in cascades {
                        applied.insert((asking.id.clone(), Some(cascade.root.uid.clone())));
                        if !is_given {
                            told(GuardDoes::Await(cascade.clone()), cascade.objects);
                        }
                    }
                }
                Asks::Gate => {
                    let objects: u64 = self.counts(&asking.id, false).into_values().sum();
                    if objects > 0 {
                        applied.insert((asking.id.clone(), None));
                        told(GuardDoes::Ask, objects);
                    }
                }
                Asks::Budget(window) => {
                    let counts = self.counts(&asking.id, true);
                    let of: u64 = counts.values().sum();
                    if of > 0 {
                        applied.insert((asking.id.clone(), None));
                    }
                    let beyond = window.beyond(&counts, &self.sizes);
                    if beyond > 0 {
                        told(GuardDoes::Exceed { of }, beyond);
                    }
                }
            }
        }
        for (id, root) in &applied {
            digest.text(&id.to_string());
            digest.text(&root.as_ref().map_or_else(String::new, Uid::to_string));
        }
        guards.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        guards
    }

    /// The destroyed objects in the scope of a guard, by collection.
    fn counts(&self, id: &GuardId, only_deletions: bool) -> BTreeMap<GroupResource, u64> {
        let mut counts = BTreeMap::new();
        for (node, (collection, is_deletion)) in &self.destroyed {
            let covers = self.asked_by.get(node).is_some_and(|by| by.contains(id));
            if covers && (*is_deletion || !only_deletions) {
                *counts.entry(collection.clone()).or_default() += 1;
            }
        }
        counts
    }
}

impl Window {
    /// How many of these deletions are beyond the room.
    fn beyond(&self, wanted: &BTreeMap<GroupResource, u64>, sizes: &BTreeMap<GroupResource, u64>) -> u64 {
        let all: u64 = wanted.values().sum();
        match self.limit {
            // The approval waits for a person.
            None => all,
            Some(limit @ Limit::Objects(_)) => {
                let spent = self.spent.values().map(|spent| spent.gone + spent.leased).sum();
                all.saturating_sub(limit.room(spent, 0, 0))
            }
            Some(limit @ Limit::Percent(_)) => {
                let beyond = |(of, count): (&GroupResource, &u64)| {
                    let Spent { gone, leased } = self.spent.get(of).copied().unwrap_or_default();
                    let size = sizes.get(of).copied().unwrap_or_default();
                    count.saturating_sub(limit.room(gone + leased, gone, size))
                };
                wanted.iter().map(beyond).sum()
            }
        }
    }
}

/// The object itself is no guard.
fn held(hold: &Hold, brake: &Brake, objects: u64) -> Option<PlanGuard> {
    let (kind, name) = match hold {
        Hold::Annotation | Hold::InvalidReference => return None,
        Hold::Guard(GuardId { kind, name }) => (*kind, name.clone()),
        Hold::Unknown(kind) | Hold::TooMany(kind) => (*kind, "".into()),
        Hold::Breaker(_) => (GuardKind::Budget, "".into()),
    };
    let (reason, until) = (brake.reason.clone(), brake.until);
    Some(PlanGuard { kind, name, does: GuardDoes::Hold, objects, reason, until })
}
