//! The holds of an object: the one place that matches guards in force with objects, and asks the object itself. Grants
//! and readers ask it; plans ask it about guards.
//!
//! What is not known holds: a label that no list has shown with the selector, a namespace that no list has shown, and a
//! lineage that is too large to walk, or that no watch shows.

use super::context::Context;
use super::world::World;
use crate::graph::NodeId;
use crate::guard::{GuardId, GuardKind};
use crate::hold::meaning::{Selector, Wants};
use crate::hold::{Entry, Hold, Holds, is_exempt};
use crate::object::{GroupResource, ObjectRef};
use crate::queue::Draft;
use crate::scope::{Filter, OwnerScope};
use crate::verdict::own_hold;
use crate::work::Action;
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cell::OnceCell;

/// Maximum number of ancestors that are visited to find out whether an object is below another.
const LINEAGE_MAX: usize = 1000;

/// The collection whose labels namespace selectors ask for.
pub(super) fn namespaces() -> GroupResource {
    GroupResource { group: "".into(), resource: "namespaces".into() }
}

/// Matches guards with objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding<'a> {
    pub(super) cx: &'a Context,
    pub(super) world: &'a World,
    pub(super) holds: &'a Holds,
}

/// An object that a write would destroy, as one group serves it.
struct Subject<'a> {
    collection: GroupResource,
    object: Cow<'a, ObjectRef>,
    node: Option<NodeId>,
    lineage: OnceCell<Lineage>,
    /// The same object, as the other groups serve it.
    others: Vec<Subject<'a>>,
}

impl<'a> Subject<'a> {
    fn new(object: Cow<'a, ObjectRef>, node: Option<NodeId>) -> Subject<'a> {
        Subject { collection: object.group_resource(), object, node, lineage: OnceCell::new(), others: Vec::new() }
    }
}

/// The objects above an object, and the object itself.
struct Lineage {
    objects: BTreeSet<ObjectRef>,
    /// False if there are more than [`LINEAGE_MAX`], or if the references of one are not in the graph.
    complete: bool,
}

impl<'a> Holding<'a> {
    /// The strictest hold on a decision.
    pub(super) fn first(&self, draft: &Draft) -> Option<Hold> {
        if let Some(own) = self.own(draft) {
            return Some(own);
        }
        if !draft.destroys || self.holds.is_idle() { None } else { self.on(&draft.target).next() }
    }

    /// Returns the object's own hold on a decision. Only deletions are held.
    fn own(&self, draft: &Draft) -> Option<Hold> {
        let graph = self.world.graph();
        let id = graph.primary(&draft.target.uid).filter(|_| matches!(draft.action, Action::Delete { .. }))?;
        own_hold(graph, graph.node(id))
    }

    /// All guards that hold a destructive write to this object, the strictest first.
    pub(super) fn on<'o>(&self, object: &'o ObjectRef) -> impl Iterator<Item = Hold> + use<'a, 'o> {
        let here = *self;
        let subject = self.subject(object);
        let exempt = is_exempt(&object.group, &object.resource);
        let standing = self.holds.standing().filter(move |entry| !exempt && here.covers(entry, &subject));
        let standing = standing.map(|entry| Hold::Guard(entry.guard.id.clone()));
        standing.chain(self.holds.blind().filter(|_| !exempt))
    }

    /// The gates and budgets that have this object in scope.
    pub(super) fn asking_on(&self, object: &ObjectRef) -> Vec<GuardId> {
        if !self.holds.any_asks() || is_exempt(&object.group, &object.resource) {
            return Vec::new();
        }
        let subject = self.subject(object);
        let by_object = self.holds.asking().filter(|entry| entry.guard.id.kind != GuardKind::Approval);
        by_object.filter(|entry| self.covers(entry, &subject)).map(|entry| entry.guard.id.clone()).collect()
    }

    /// Whether the scope of a guard has this object.
    pub(super) fn has(&self, entry: &Entry, object: &ObjectRef) -> bool {
        !is_exempt(&object.group, &object.resource) && self.covers(entry, &self.subject(object))
    }

    fn subject<'o>(&self, object: &'o ObjectRef) -> Subject<'o> {
        let graph = self.world.graph();
        let mut nodes = graph.few_by_uid(&object.uid).filter(|&id| graph.node(id).is_observed());
        // The first node acts for all.
        let subject = Subject::new(Cow::Borrowed(object), nodes.next());
        let others = nodes.map(|id| Subject::new(Cow::Owned(self.world.object_ref(id)), Some(id))).collect();
        Subject { others, ..subject }
    }

    /// Whether a guard has the object in scope. If several groups serve the object, any of them can be in scope.
    fn covers(&self, entry: &Entry, subject: &Subject<'_>) -> bool {
        let is_covered = |subject: &Subject<'_>| self.covers_as_served(entry, subject);
        is_covered(subject) || subject.others.iter().any(is_covered)
    }

    fn covers_as_served(&self, entry: &Entry, subject: &Subject<'_>) -> bool {
        let scope = &entry.meaning.scope;
        let mut targets = scope.targets.iter().zip(&entry.meaning.wants);
        scope.targets.is_empty() || targets.any(|(filter, &wants)| self.matches(filter, wants, subject))
    }

    fn matches(&self, filter: &Filter, wants: Wants, subject: &Subject<'_>) -> bool {
        let object = &*subject.object;
        filter.may_cover(&subject.collection.group, &subject.collection.resource, &object.namespace)
            && (filter.names.is_empty() || filter.names.iter().any(|name| **name == *object.name))
            && wants.object.is_none_or(|selector| self.is_marked(selector, subject))
            && (filter.namespace_marks.is_empty() || self.is_in_marked_namespace(wants.namespace, &object.namespace))
            && filter.owner.as_ref().is_none_or(|owner| self.is_below(owner, subject))
    }

    fn is_marked(&self, selector: Selector, subject: &Subject<'_>) -> bool {
        subject.node.is_none_or(|id| {
            let node = self.world.graph().node(id);
            !self.world.coverage().kind(node.kind()).knows_selector(selector.since) || node.has_mark(selector.number)
        })
    }

    /// Without a selector, which is beyond the bounds, each namespace counts as marked.
    fn is_in_marked_namespace(&self, selector: Option<Selector>, namespace: &str) -> bool {
        if namespace.is_empty() {
            return false;
        }
        let Some(selector) = selector else { return true };
        let Some(kind) = self.world.coverage().find(&namespaces()) else { return true };
        let known = self.world.coverage().kind(kind);
        if !known.is_synced() || !known.knows_selector(selector.since) {
            return true;
        }
        let there = self.world.graph().by_address(kind, "", namespace);
        let mut there = there.map(|id| self.world.graph().node(id)).filter(|node| node.is_observed()).peekable();
        there.peek().is_none() || there.any(|node| node.has_mark(selector.number))
    }

    fn is_below(&self, owner: &OwnerScope, subject: &Subject<'_>) -> bool {
        let lineage = subject.lineage.get_or_init(|| self.lineage(subject));
        !lineage.complete || lineage.objects.iter().any(|object| owner.is(object))
    }

    /// Walks up along references, and along the cascade, whose owners may be gone.
    fn lineage(&self, subject: &Subject<'_>) -> Lineage {
        let mut objects = BTreeSet::from([subject.object.as_ref().clone()]);
        let Some(node) = subject.node else { return Lineage { objects, complete: true } };
        let chain = self.world.chain(self.cx, &subject.object.uid, &self.world.causes(node));
        let mut open: Vec<NodeId> = chain.iter().filter_map(|object| self.world.best_known(&object.uid)).collect();
        objects.extend(chain);
        open.push(node);
        let mut seen: BTreeSet<NodeId> = open.iter().copied().collect();
        while let Some(id) = open.pop() {
            if seen.len() > LINEAGE_MAX {
                return Lineage { objects, complete: false };
            }
            objects.insert(self.world.object_ref(id));
            let node = self.world.graph().node(id);
            // A read has shown this object. Its references are not edges.
            if !node.is_observed() && node.reference_count() > 0 {
                return Lineage { objects, complete: false };
            }
            open.extend(node.owners().filter(|&owner| seen.insert(owner)));
        }
        Lineage { objects, complete: true }
    }
}
