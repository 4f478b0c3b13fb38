//! The remaining contents of a namespace in deletion, or the remaining instances of a definition in deletion.

use super::Queries;
use crate::containers::Container;
use crate::object::{Name, Uid};
use crate::view::{RELATED_MAX, Reason, ReasonCode, plain};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of kinds that are named with their counts.
const KINDS_MAX: usize = 20;

/// A pass in steps over all nodes that finds the contents of some objects.
#[derive(Debug)]
pub struct ContentsLook {
    wanted: Vec<Inside>,
    next: usize,
}

#[derive(Debug)]
struct Inside {
    uid: Uid,
    place: Container,
    kinds: BTreeMap<Name, usize>,
    /// The first objects with finalizers of other controllers. Only these controllers remove the finalizers.
    holding: Vec<crate::object::ObjectRef>,
    count: usize,
}

impl ContentsLook {
    /// Starts a pass for those objects that are in deletion and can contain other objects.
    pub fn of(queries: &Queries<'_>, uids: impl IntoIterator<Item = Uid>) -> ContentsLook {
        let inside = |uid: Uid| {
            let node = queries.graph().node(queries.graph().primary(&uid)?);
            let at = node.at();
            let place = Container::of(queries.coverage().kind(at.kind), &at.name).filter(|_| node.is_terminating())?;
            Some(Inside { uid, place, kinds: BTreeMap::new(), holding: Vec::new(), count: 0 })
        };
        ContentsLook { wanted: uids.into_iter().filter_map(inside).collect(), next: 0 }
    }

    /// Visits up to `budget` slots. Returns true after the last slot.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        let end = queries.graph().places().min(self.next + budget);
        for id in (self.next..end).filter_map(|place| queries.graph().at_place(place)) {
            let node = queries.graph().node(id);
            let kind = queries.coverage().kind(node.kind());
            if !node.is_observed() {
                continue;
            }
            for inside in self.wanted.iter_mut().filter(|of| of.place.holds(kind, node.namespace())) {
                inside.count += 1;
                *inside.kinds.entry(kind.kind.clone()).or_default() += 1;
                // Such an object stays until a controller has removed its finalizer.
                if inside.holding.len() < RELATED_MAX && node.foreign_finalizers().next().is_some() {
                    inside.holding.push(queries.world().object_ref(id));
                }
            }
        }
        self.next = end;
        end == queries.graph().places()
    }

    /// Returns the reason why each object still exists: the counts by kind, and the objects that hold it. Empty objects
    /// are omitted.
    pub fn finish(self) -> BTreeMap<Uid, Reason> {
        let reason = |mut inside: Inside| {
            let mut kinds: Vec<(Name, usize)> = inside.kinds.into_iter().collect();
            kinds.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
            let more = kinds.len().saturating_sub(KINDS_MAX);
            let named: Vec<String> =
                kinds.iter().take(KINDS_MAX).map(|(kind, count)| format!("{kind} {count}")).collect();
            let more = if more > 0 { format!(" and {more} more kinds") } else { String::new() };
            inside.holding.sort();
            let detail = format!("{}{more}", named.join(", "));
            let reason =
                Reason { detail, related: inside.holding, count: inside.count, ..plain(ReasonCode::ContentsRemain) };
            (inside.uid, reason)
        };
        self.wanted.into_iter().filter(|inside| inside.count > 0).map(reason).collect()
    }
}
