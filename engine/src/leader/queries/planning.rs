//! Collection of the input of a plan, in steps.

use super::super::consent::foreseeing::{Asked, Foreseen};
use super::Queries;
use super::walk::{BELOW_COST, BELOW_STEP};
use crate::containers::Container;
use crate::graph::NodeId;
use crate::object::Uid;
use crate::paged_vec::PagedVec;
use crate::plan::{Copied, Copy, PlanOptions, plan};
use crate::view::Plan;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Number of nodes in a search of namespace contents that cost as much as one copied node.
const SWEPT_PER_COPY: usize = 16;
/// Number of guards that are matched with an object at the cost of one copied node.
const GUARDS_PER_COPY: usize = 16;

/// A plan in preparation. The copy contains all objects below the targets, and the owners beside them.
#[derive(Debug)]
pub struct Planning {
    options: PlanOptions,
    /// Objects to copy with all their dependents. An entry with a slot is copied already, and continues with its
    /// dependents below that slot.
    open: VecDeque<(Uid, Option<usize>)>,
    seen: BTreeSet<Uid>,
    /// Owners to copy without their dependents.
    beside: BTreeSet<Uid>,
    /// The copied nodes, in pages. A growing contiguous list would be moved as a whole while the graph is locked.
    nodes: PagedVec<Copied>,
    /// Namespaces and definitions among the objects, whose contents must be found.
    places: BTreeSet<Container>,
    /// The namespaces and definitions of the current pass, and the slot that the pass has reached.
    sweep: Option<(BTreeSet<Container>, usize)>,
    /// The cascades of the objects whose absence the plan is about.
    foreseen: Foreseen,
    cut: bool,
}

impl Planning {
    /// Creates a plan that has copied nothing yet.
    pub fn new(options: PlanOptions) -> Planning {
        let roots = || options.targets.iter().chain(&options.assume_gone);
        let distinct: BTreeSet<&Uid> = roots().collect();
        let foreseen = Foreseen::of(distinct.into_iter().filter(|_| !options.ignore_holds).cloned());
        Planning {
            open: roots().map(|uid| (uid.clone(), None)).collect(),
            foreseen,
            options,
            seen: BTreeSet::new(),
            beside: BTreeSet::new(),
            nodes: PagedVec::new(),
            places: BTreeSet::new(),
            sweep: None,
            cut: false,
        }
    }

    /// Copies at most `budget` objects. Returns true after the last object.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        let mut left = budget;
        while left > 0 {
            left -= 1;
            if let Some((uid, below)) = self.open.pop_front() {
                left = left.saturating_sub(match below {
                    Some(_) => self.dependents(queries, &uid, below),
                    None => self.visit(queries, &uid),
                });
            } else if self.sweep(queries) {
            } else if let Some(uid) = self.beside.pop_first() {
                if self.seen.insert(uid.clone()) {
                    let ids = queries.graph().by_uid(&uid);
                    self.nodes.extend(ids.map(|id| copied(queries, id, false)));
                }
            } else if !self.cut && !self.foreseen.is_counted() {
                left = self.foreseen.step(&queries.leader.holding(), left + 1).min(left);
            } else {
                return true;
            }
        }
        let is_copied = self.open.is_empty() && self.beside.is_empty();
        is_copied && self.places.is_empty() && self.sweep.is_none() && self.foreseen.is_counted()
    }

    /// Searches some nodes for the contents of namespaces and definitions. Returns false if there is nothing to search
    /// for.
    fn sweep(&mut self, queries: &Queries<'_>) -> bool {
        if self.sweep.is_none() && !self.places.is_empty() && !self.cut {
            self.sweep = Some((core::mem::take(&mut self.places), 0));
        }
        let Some((places, next)) = &mut self.sweep else { return false };
        let end = queries.graph().places().min(*next + SWEPT_PER_COPY);
        for id in (*next..end).filter_map(|place| queries.graph().at_place(place)) {
            let node = queries.graph().node(id);
            let kind = queries.coverage().kind(node.kind());
            if node.is_observed() && places.iter().any(|place| place.holds(kind, node.namespace())) {
                self.open.push_back((node.uid(), None));
            }
        }
        *next = end;
        if end == queries.graph().places() {
            self.sweep = None;
        }
        true
    }

    /// Copies the nodes of an object. Returns the cost beyond the visit itself.
    fn visit(&mut self, queries: &Queries<'_>, uid: &Uid) -> usize {
        if self.seen.contains(uid) {
            return 0;
        }
        if self.seen.len() == self.options.max_objects {
            self.cut = true;
            self.open.clear();
            self.places.clear();
            self.sweep = None;
            return 0;
        }
        self.seen.insert(uid.clone());
        for id in queries.graph().by_uid(uid) {
            let node = queries.graph().node(id);
            self.nodes.push(copied(queries, id, true));
            let at = node.at();
            self.places
                .extend(Container::of(queries.coverage().kind(at.kind), &at.name).filter(|_| node.is_observed()));
            for owner in node.owners().map(|owner| queries.graph().node(owner)) {
                // An owner in deletion may have waited only for this object.
                let waits = owner.deletes_dependents() || owner.orphans_dependents();
                match waits {
                    true => self.open.push_back((owner.uid(), None)),
                    false => {
                        self.beside.insert(owner.uid());
                    }
                }
            }
        }
        let asking = queries.queue().holds().asking().count();
        asking / GUARDS_PER_COPY + self.dependents(queries, uid, None)
    }

    /// Queues some dependents of an object for copying, and an entry for the remaining ones. Returns the cost.
    fn dependents(&mut self, queries: &Queries<'_>, uid: &Uid, below: Option<usize>) -> usize {
        if self.open.len() > 2 * self.options.max_objects {
            self.cut = true;
            return 0;
        }
        let (found, rest) = queries.dependents_of(uid, below, BELOW_STEP);
        let cost = BELOW_COST * found.len() / BELOW_STEP;
        self.open.extend(found.into_iter().map(|uid| (uid, None)));
        if let Some(rest) = rest {
            self.open.push_front((uid.clone(), Some(rest)));
        }
        cost
    }

    /// Computes the plan for the targets and their dependents. The work is proportional to the copy and needs no
    /// queries.
    pub fn finish(mut self, frame: Frame) -> Plan {
        let Frame { mut copy, asked } = frame;
        copy.nodes = self.nodes.take().collect();
        copy.asking = self.foreseen.asking(asked);
        Plan { cut: self.cut, ..plan(copy, &self.options) }
    }
}

/// The input of a plan besides the objects.
#[derive(Debug)]
pub struct Frame {
    /// Without nodes, and without the guards that are asked at the grant.
    copy: Copy,
    asked: Asked,
}

impl Queries<'_> {
    /// Returns the input of a plan besides the objects. The caller requests it together with the last step of the plan.
    pub fn frame(&self) -> Frame {
        let unseen = self.coverage().served().filter(|(_, kind)| self.cx().may_hide_dependents(kind)).map(|(id, _)| id);
        let copy = Copy {
            coverage: self.coverage().clone(),
            nodes: Vec::new(),
            holds_invalid: self.cx().config.policy.invalid_references == super::super::InvalidReferences::Hold,
            secret: self.graph().secret(),
            unseen: unseen.collect(),
            hidden: self.world().hidden_kinds(self.cx()).map(|(hidden, _)| hidden.clone()).collect(),
            brakes: self.brakes(),
            asking: Vec::new(),
        };
        Frame { copy, asked: self.leader.consent.asked(self.cx().now, self.queue().holds()) }
    }
}

fn copied(queries: &Queries<'_>, id: NodeId, whole: bool) -> Copied {
    let node = queries.graph().node(id);
    let object = queries.world().object_ref(id);
    let holding = queries.leader.holding();
    Copied {
        uid: node.uid(),
        at: node.at(),
        presence: node.presence(),
        facts: node.facts(),
        orphaned: queries.graph().is_orphaned(node),
        whole,
        hold: holding.on(&object).next(),
        asked_by: if whole { holding.asking_on(&object) } else { Vec::new() },
    }
}
