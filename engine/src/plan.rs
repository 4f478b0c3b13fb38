//! The effects of a deletion.
//!
//! The plan applies the verdict repeatedly to a small copy of the graph, and simulates the API server: a deleted object
//! without finalizers is gone, one with finalizers is marked. Finalizers of other controllers stay. A step carries out
//! everything decided at the end of the previous step, so objects of one step do not wait for each other. The namespace
//! controller empties a deleted namespace, and a deleted definition loses its instances (`contents`). Objects that a
//! guard holds stay (`brake`).

use crate::containers::Container;
use crate::coverage::{Coverage, KindId, Undiscovered};
use crate::evidence::{Presence, Proof};
use crate::graph::{Coordinates, Graph, NodeId};
use crate::guard::GuardId;
use crate::hold::Hold;
use crate::object::{
    Digest, FOREGROUND_FINALIZER, Facts, Name, ORPHAN_FINALIZER, Object, ObjectRef, ResourceVersion, Uid,
};
use crate::verdict::{Standing, Verdict, own_hold, owners_in, standings, verdict};
use crate::view::{Effect, Plan, PlanEntry, RELATED_MAX, Reason, ReasonCode, Undecided, plain};
use crate::work::PropagationPolicy;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
pub(crate) use brake::Brake;
use contents::Contents;
use digest::digest;
use forecast::Forecast;
pub(crate) use forecast::{Asking, Asks, Spent, Window};

mod brake;
mod contents;
mod digest;
mod forecast;

/// Kinds whose dependents the API server orphans by default, for compatibility.
const ORPHANING: [(&str, &str); 2] = [("", "ReplicationController"), ("batch", "Job")];

/// A node of the graph.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub(crate) uid: Uid,
    pub(crate) at: Coordinates,
    pub(crate) presence: Presence,
    /// Of an observed or read object.
    pub(crate) facts: Option<Facts>,
    /// The object is remembered as orphaning its dependents.
    pub(crate) orphaned: bool,
    /// The copy includes the node's dependents, so the node can be judged.
    pub(crate) whole: bool,
    /// The hold on a DELETE of the object by the collector.
    pub(crate) hold: Option<Hold>,
    /// The gates and budgets that have the object in scope.
    pub(crate) asked_by: Vec<GuardId>,
}

/// The input of a plan.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) coverage: Coverage,
    pub(crate) nodes: Vec<Copied>,
    pub(crate) holds_invalid: bool,
    /// The secret of the graph.
    pub(crate) secret: u64,
    /// Watched collections that may have dependents the graph does not show.
    pub(crate) unseen: Vec<KindId>,
    /// Kinds that are missing in discovery, which may have dependents, too.
    pub(crate) hidden: Vec<Undiscovered>,
    /// The holds of guards in force.
    pub(crate) brakes: BTreeMap<Hold, Brake>,
    /// The guards that are asked at the grant.
    pub(crate) asking: Vec<Asking>,
}

/// The parameters of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// The objects to delete.
    pub targets: Vec<Uid>,
    /// `None`: the policy that the finalizers of each object name, or else the default of its kind.
    pub propagation_policy: Option<PropagationPolicy>,
    /// Objects that the plan assumes to be gone.
    pub assume_gone: Vec<Uid>,
    /// Ignore hold annotations and guards.
    pub ignore_holds: bool,
    /// Maximum number of objects of a plan.
    pub max_objects: usize,
}

/// The events of an object so far.
#[derive(Clone, Debug, Default)]
struct Trace {
    before: Option<Verdict>,
    gone: Option<(u32, ObjectRef)>,
    deleted: Option<u32>,
    orphaned: Option<u32>,
    dropped: Option<u32>,
}

/// The action on an object in a step.
enum Act {
    Delete(PropagationPolicy),
    Drop(Vec<usize>),
    Unblock(Vec<usize>),
    Finish(&'static str),
    /// All its contents are deleted.
    Empty,
}

#[derive(Debug)]
struct World {
    graph: Graph,
    coverage: Coverage,
    unseen: Vec<KindId>,
    hidden: Vec<Undiscovered>,
    brakes: BTreeMap<Hold, Brake>,
    /// The holds of nodes.
    holds: BTreeMap<NodeId, Hold>,
    contents: Contents,
    forecast: Forecast,
    traces: BTreeMap<NodeId, Trace>,
    marked: BTreeSet<NodeId>,
    step: u32,
}

/// Simulates the deletion.
pub(crate) fn plan(mut copy: Copy, options: &PlanOptions) -> Plan {
    if options.ignore_holds {
        copy.brakes.clear();
        copy.asking.clear();
    }
    let mut digest = digest(&copy, options);
    let mut world = World::new(copy, options.ignore_holds);
    let mut missing = Vec::new();
    for uid in &options.assume_gone {
        match world.graph.primary(uid) {
            Some(id) => world.remove(id),
            None => missing.push(uid.clone()),
        }
    }
    // Assumptions are not part of the effects.
    for trace in world.traces.values_mut() {
        trace.gone = None;
    }
    world.step = 1;
    for uid in &options.targets {
        match world.graph.primary(uid) {
            Some(id) => {
                let policy = options.propagation_policy.unwrap_or_else(|| world.own_policy(id));
                world.delete(id, policy);
            }
            None => missing.push(uid.clone()),
        }
    }
    world.run();
    let mut plan = world.finish(&mut digest);
    plan.digest = digest.0;
    plan.missing = missing;
    plan
}

impl World {
    fn new(mut copy: Copy, ignore_holds: bool) -> World {
        let mut world = World {
            forecast: Forecast::of(&mut copy),
            graph: Graph::new(copy.holds_invalid, copy.secret),
            coverage: copy.coverage,
            unseen: copy.unseen,
            hidden: copy.hidden,
            brakes: copy.brakes,
            holds: BTreeMap::new(),
            contents: Contents::default(),
            traces: BTreeMap::new(),
            marked: BTreeSet::new(),
            step: 0,
        };
        let mut whole = Vec::new();
        for node in &copy.nodes {
            let (Presence::Observed { resource_version }, Some(facts)) = (&node.presence, &node.facts) else {
                continue;
            };
            let mut facts = facts.clone();
            facts.hold &= !ignore_holds;
            let place = Container::of(world.coverage.kind(node.at.kind), &node.at.name).filter(|_| node.whole);
            // The finalizer of a namespace is in spec.finalizers, not in its metadata; that of a definition is added at
            // its first DELETE.
            let finalizer = place.as_ref().map(Container::finalizer);
            if let Some(finalizer) = finalizer.filter(|name| facts.finalizers.iter().all(|other| **other != **name)) {
                facts.finalizers = facts.finalizers.iter().cloned().chain([Name::from(finalizer)]).collect();
            }
            let object = object(&node.uid, &node.at, resource_version.clone(), facts);
            let (id, _) = world.graph.upsert(&mut world.coverage, node.at.kind, 0, object);
            if node.whole {
                whole.push(id);
            }
            if let Some(place) = place {
                world.contents.add(id, place);
            }
            if let Some(hold) = &node.hold {
                world.holds.insert(id, hold.clone());
            }
        }
        world.contents.fill(&world.graph, &world.coverage);
        for node in copy.nodes {
            if node.orphaned {
                world.graph.set_orphaned(node.uid.clone(), &node.at);
            }
            let Some(id) = world.graph.find(&node.uid, &node.at) else { continue };
            world.forecast.asked(id, node.asked_by);
            match node.presence {
                Presence::Observed { .. } => {}
                Presence::Virtual { unreadable } => world.graph.set_virtual(id, unreadable),
                Presence::Read { position } => world.graph.set_read(id, node.facts.unwrap_or_default(), position),
                Presence::Absent(proof) => world.graph.set_absent(id, proof),
            }
        }
        world.graph.find_knots();
        for id in whole {
            let before = Some(verdict(&world.graph, &world.coverage, id));
            world.traces.insert(id, Trace { before, ..Trace::default() });
        }
        world
    }

    fn run(&mut self) {
        // The loop ends, because each step removes objects, references or finalizers, or adds marks, and no step
        // reverses that.
        while !self.marked.is_empty() {
            for id in self.graph.find_knots() {
                self.mark(id);
            }
            let marked = core::mem::take(&mut self.marked);
            let acting = marked.into_iter().filter(|&id| self.is_primary(id));
            let acts: Vec<(NodeId, Act)> = acting.filter_map(|id| Some((id, self.decide(id)?))).collect();
            self.step += u32::from(!acts.is_empty());
            for (id, act) in acts {
                self.act(id, act);
            }
        }
    }

    fn decide(&self, id: NodeId) -> Option<Act> {
        let node = self.graph.get(id)?;
        if let Some(act) = self.contents.act(id, node, &self.coverage) {
            return Some(act);
        }
        let drop =
            |places: Vec<usize>| (!places.is_empty() && !self.is_braked(id, &places)).then_some(Act::Drop(places));
        match verdict(&self.graph, &self.coverage, id) {
            Verdict::NotObserved | Verdict::Unowned | Verdict::Undecided(_) | Verdict::Held(_) => None,
            Verdict::Kept { drop: places } | Verdict::Terminating { drop: places } => drop(places),
            Verdict::Collectable(collection) if !collection.unblock.is_empty() => {
                Some(Act::Unblock(collection.unblock))
            }
            Verdict::Collectable(_) if self.brake(id).is_some() => None,
            Verdict::Collectable(collection) => Some(Act::Delete(collection.propagation_policy)),
            Verdict::Foreground { drop: places, .. } if !places.is_empty() => drop(places),
            Verdict::Foreground { unblock, .. } if !unblock.is_empty() => Some(Act::Unblock(unblock)),
            Verdict::Foreground { blocking, .. } => {
                (blocking == 0 && !self.may_hide(id)).then_some(Act::Finish(FOREGROUND_FINALIZER))
            }
            Verdict::Orphaning { dependents, drop: places } => drop(places)
                .or_else(|| (dependents == 0 && !self.may_hide(id)).then_some(Act::Finish(ORPHAN_FINALIZER))),
        }
    }

    /// The hold on the collector's DELETE of this object.
    fn brake(&self, id: NodeId) -> Option<(&Hold, &Brake)> {
        let hold = self.holds.get(&id)?;
        Some((hold, self.brakes.get(hold)?))
    }

    /// Whether a guard keeps the references at these indices: removing the reference to an orphaning owner is held.
    fn is_braked(&self, id: NodeId, places: &[usize]) -> bool {
        let standings = standings(&self.graph, &self.coverage, self.graph.node(id));
        self.brake(id).is_some() && places.iter().any(|&at| standings.get(at) == Some(&Standing::Orphaning))
    }

    /// Whether unseen collections may have dependents of this object.
    fn may_hide(&self, id: NodeId) -> bool {
        !self.hidden.is_empty() || self.hiding(id).next().is_some()
    }

    fn hiding(&self, id: NodeId) -> impl Iterator<Item = KindId> {
        let cluster_scoped = self.graph.node(id).namespace().is_empty();
        let may = move |kind: &KindId| self.coverage.kind(*kind).namespaced() == Some(true) || cluster_scoped;
        self.unseen.iter().copied().filter(may)
    }

    /// Whether this is the acting node of its object, which several groups may serve.
    fn is_primary(&self, id: NodeId) -> bool {
        self.graph.get(id).is_some_and(|node| self.graph.primary(&node.uid()) == Some(id))
    }

    /// The nodes of the object, one for each group that serves it.
    fn nodes(&self, id: NodeId) -> Vec<NodeId> {
        let uid = self.graph.node(id).uid();
        self.graph.by_uid(&uid).filter(|&id| self.graph.node(id).is_observed()).collect()
    }

    fn act(&mut self, id: NodeId, act: Act) {
        // An earlier act of this step may have removed it.
        let Some(node) = self.graph.get(id).filter(|node| node.is_observed()) else { return };
        let Some(mut facts) = node.facts() else { return };
        match act {
            Act::Delete(policy) => {
                self.forecast.destroy(id, self.graph.object_ref(&self.coverage, id).group_resource(), true);
                self.delete(id, policy);
            }
            Act::Empty => {
                for inside in self.contents.empty(id) {
                    let is_namespace = matches!(self.contents.place(id), Some(Container::Namespace(_)));
                    let policy = if is_namespace { PropagationPolicy::Background } else { self.own_policy(inside) };
                    self.delete(inside, policy);
                }
                self.mark(id);
            }
            Act::Drop(places) => {
                let standings = standings(&self.graph, &self.coverage, node);
                let orphaned = places.iter().any(|&at| standings.get(at) == Some(&Standing::Orphaning));
                if orphaned {
                    self.forecast.destroy(id, self.graph.object_ref(&self.coverage, id).group_resource(), false);
                }
                let step = self.step;
                let trace = self.traces.entry(id).or_default();
                let which = if orphaned { &mut trace.orphaned } else { &mut trace.dropped };
                which.get_or_insert(step);
                let kept = facts.owners.iter().enumerate().filter(|(at, _)| !places.contains(at));
                facts.owners = kept.map(|(_, owner)| owner.clone()).collect();
                self.change(id, facts);
            }
            Act::Unblock(places) => {
                for at in places {
                    facts.owners[at].block_owner_deletion = Some(false);
                }
                self.change(id, facts);
            }
            Act::Finish(finalizer) => {
                facts.finalizers = facts.finalizers.iter().filter(|name| ***name != *finalizer).cloned().collect();
                if facts.finalizers.is_empty() { self.remove(id) } else { self.change(id, facts) }
            }
        }
    }

    /// The API server's default for a DELETE without a policy.
    fn own_policy(&self, id: NodeId) -> PropagationPolicy {
        let node = self.graph.node(id);
        let has = |finalizer: &str| node.has_finalizer(finalizer);
        let kind = self.coverage.kind(node.kind());
        let orphans = ORPHANING.contains(&(&*kind.group, &*kind.kind)) && !has(FOREGROUND_FINALIZER);
        if has(ORPHAN_FINALIZER) || orphans {
            PropagationPolicy::Orphan
        } else if has(FOREGROUND_FINALIZER) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        }
    }

    /// The effect of a DELETE at the API server.
    fn delete(&mut self, id: NodeId, policy: PropagationPolicy) {
        let node = self.graph.node(id);
        let Some(mut facts) = node.facts() else { return };
        let own = match policy {
            PropagationPolicy::Background => None,
            PropagationPolicy::Foreground => Some(FOREGROUND_FINALIZER),
            PropagationPolicy::Orphan => Some(ORPHAN_FINALIZER),
        };
        facts.finalizers = node.foreign_finalizers().cloned().chain(own.map(Name::from)).collect();
        if facts.finalizers.is_empty() {
            return self.remove(id);
        }
        facts.terminating = true;
        let step = self.step;
        self.traces.entry(id).or_default().deleted.get_or_insert(step);
        self.change(id, facts);
    }

    fn change(&mut self, id: NodeId, facts: Facts) {
        for id in self.nodes(id) {
            let node = self.graph.node(id);
            let (uid, at) = (node.uid(), node.at());
            let Some(resource_version) = node.resource_version() else { continue };
            let object = object(&uid, &at, resource_version, facts.clone());
            let (id, change) = self.graph.upsert(&mut self.coverage, at.kind, 0, object);
            self.mark(id);
            for owner in change.owners {
                self.mark(owner);
            }
            if change.standing {
                self.mark_dependents(id);
            }
        }
    }

    fn remove(&mut self, id: NodeId) {
        let object = self.graph.object_ref(&self.coverage, id);
        let step = self.step;
        self.traces.entry(id).or_default().gone = Some((step, object));
        for id in self.nodes(id) {
            let absent = Proof::Listed { resource_version: ResourceVersion::parse("") };
            let (owners, stays) = self.graph.remove(id, Some(absent));
            for owner in owners {
                self.mark(owner);
            }
            if stays {
                self.mark_dependents(id);
            }
            for place in self.contents.leave(id) {
                self.mark(place);
            }
        }
    }

    /// Only completely copied nodes are judged. References may name an owner by another group.
    fn mark(&mut self, id: NodeId) {
        let shown = self.graph.get(id).and_then(|node| self.graph.primary(&node.uid()));
        self.marked.extend([Some(id), shown].into_iter().flatten().filter(|id| self.traces.contains_key(id)));
    }

    fn mark_dependents(&mut self, id: NodeId) {
        let by_any_group = self.graph.dependents(&self.coverage, id);
        for dependent in by_any_group.chain(self.graph.node(id).dependents()).collect::<Vec<_>>() {
            self.mark(dependent);
        }
    }

    fn finish(mut self, digest: &mut Digest) -> Plan {
        let mut plan = Plan::default();
        let mut forecast = core::mem::take(&mut self.forecast);
        let mut unsynced = BTreeSet::new();
        for (&id, trace) in self.traces.iter().filter(|&(&id, trace)| trace.gone.is_some() || self.is_primary(id)) {
            let Some((effect, step, reasons)) = self.effect(id, trace, &mut unsynced) else { continue };
            if let Some((hold, _)) = self.brake(id).filter(|_| effect == Effect::Held) {
                forecast.hold(hold, &reasons);
            }
            let object = match &trace.gone {
                Some((_, object)) => object.clone(),
                None => self.graph.object_ref(&self.coverage, id),
            };
            plan.entries.push(PlanEntry { object, effect, step, reasons });
        }
        plan.entries.sort_by(|a, b| (a.step, a.object.order()).cmp(&(b.step, b.object.order())));
        let collection = |kind: KindId| Some(self.coverage.kind(kind).served()?.group_resource.clone());
        plan.unsynced = unsynced.into_iter().filter_map(collection).collect();
        plan.unsynced.extend(self.hidden.iter().map(Undiscovered::group_resource));
        plan.guards = forecast.finish(&self.brakes, digest);
        plan
    }

    fn effect(&self, id: NodeId, trace: &Trace, unsynced: &mut BTreeSet<KindId>) -> Option<(Effect, u32, Vec<Reason>)> {
        if let Some((step, _)) = trace.gone {
            return Some((Effect::Delete, step, Vec::new()));
        }
        let node = self.graph.get(id)?;
        if !node.is_observed() {
            return None;
        }
        if let Some(step) = trace.deleted.filter(|_| self.contents.is_hidden(id, &self.coverage)) {
            unsynced.extend(self.contents.unseen(id, &self.coverage));
            return Some((Effect::Unknown, step, self.waits_for(id)));
        }
        if let Some(step) = trace.deleted {
            unsynced.extend(self.hiding(id).filter(|_| self.waits_unseen(id)));
            return Some((Effect::Waits, step, self.waits_for(id)));
        }
        let kept_by = || {
            let owners = owners_in(&self.graph, &self.coverage, id, |standing| standing == Standing::Solid);
            (!owners.is_empty()).then(|| self.related(ReasonCode::SolidOwner, &owners))
        };
        if let Some(step) = trace.orphaned {
            return Some((Effect::Orphaned, step, kept_by().into_iter().collect()));
        }
        if let Some(step) = trace.dropped {
            return Some((Effect::ReferenceRemoved, step, kept_by().into_iter().collect()));
        }
        let now = verdict(&self.graph, &self.coverage, id);
        match (&now, trace.before == Some(now.clone())) {
            (_, true) => None,
            (Verdict::Undecided(cause), false) => {
                let owners = owners_in(&self.graph, &self.coverage, id, Standing::is_unverified);
                unsynced.extend(owners.iter().map(|&owner| self.graph.node(owner).kind()));
                Some((Effect::Unknown, self.step, alloc::vec![self.related(undecided_code(*cause), &owners)]))
            }
            (Verdict::Held(_), false) => {
                let hold = own_hold(&self.graph, node)?;
                Some((Effect::Held, self.step, alloc::vec![self.related(hold.code(), &[])]))
            }
            (Verdict::Collectable(_), false) => Some((Effect::Held, self.step, alloc::vec![self.held(id)?])),
            (Verdict::Kept { drop } | Verdict::Terminating { drop }, false) if self.is_braked(id, drop) => {
                Some((Effect::Held, self.step, alloc::vec![self.held(id)?]))
            }
            (_, false) => None,
        }
    }

    fn waits_unseen(&self, id: NodeId) -> bool {
        match verdict(&self.graph, &self.coverage, id) {
            Verdict::Foreground { blocking: 0, .. } | Verdict::Orphaning { dependents: 0, .. } => true,
            Verdict::Foreground { .. }
            | Verdict::Orphaning { .. }
            | Verdict::NotObserved
            | Verdict::Unowned
            | Verdict::Kept { .. }
            | Verdict::Undecided(_)
            | Verdict::Held(_)
            | Verdict::Collectable(_)
            | Verdict::Terminating { .. } => false,
        }
    }

    /// Why an object that is marked for deletion still exists.
    fn waits_for(&self, id: NodeId) -> Vec<Reason> {
        let node = self.graph.node(id);
        let mut reasons = self.contents.reasons(id, &self.graph, &self.coverage);
        let own = self.contents.place(id).map(Container::finalizer);
        for finalizer in node.foreign_finalizers().filter(|name| own != Some(&***name)) {
            reasons.push(Reason { detail: finalizer.to_string(), ..plain(ReasonCode::FinalizerPresent) });
        }
        let dependents: Vec<NodeId> = self.graph.blocking_dependents(&self.coverage, id).collect();
        if node.deletes_dependents() && !dependents.is_empty() {
            reasons.push(self.related(ReasonCode::BlockingDependents, &dependents));
        }
        if node.orphans_dependents() && node.dependent_count() > 0 {
            reasons.push(self.related(ReasonCode::DependentsToOrphan, &node.dependents().collect::<Vec<_>>()));
        }
        if self.waits_unseen(id) {
            for kind in self.hiding(id).take(RELATED_MAX) {
                reasons.push(unseen(&self.coverage, kind));
            }
            reasons.extend(self.hidden.iter().take(RELATED_MAX).map(undiscovered));
        }
        reasons
    }

    fn related(&self, code: ReasonCode, nodes: &[NodeId]) -> Reason {
        let related = nodes.iter().take(RELATED_MAX).map(|&id| self.graph.object_ref(&self.coverage, id)).collect();
        Reason { related, count: nodes.len(), ..plain(code) }
    }

    fn held(&self, id: NodeId) -> Option<Reason> {
        let (hold, Brake { words, until, .. }) = self.brake(id)?;
        Some(Reason { detail: words.clone(), until: *until, ..plain(hold.code()) })
    }
}

fn unseen(coverage: &Coverage, kind: KindId) -> Reason {
    let kind = coverage.kind(kind);
    let name = kind.served().map_or_else(String::new, |served| format!("{}", served.group_resource));
    Reason { detail: format!("{name} is {}", kind.state().as_str()), ..plain(ReasonCode::CollectionUnsynced) }
}

/// Why a kind that is missing in discovery may have unseen dependents.
pub(crate) fn undiscovered(hidden: &Undiscovered) -> Reason {
    let detail = format!("discovery does not show {hidden}: {}", hidden.why);
    Reason { detail, ..plain(ReasonCode::CollectionUnsynced) }
}

/// The reason for a missing verdict.
pub(crate) fn undecided_code(cause: Undecided) -> ReasonCode {
    match cause {
        Undecided::OwnerUnverified => ReasonCode::OwnerUnverified,
        Undecided::OwnerKindUnresolved => ReasonCode::OwnerKindUnresolved,
        Undecided::CollectionUnsynced | Undecided::DependentsUnseen => ReasonCode::CollectionUnsynced,
        Undecided::OwnerUnreadable => ReasonCode::OwnerUnreadable,
        Undecided::TooManyReferences => ReasonCode::TooManyReferences,
    }
}

fn object(uid: &Uid, at: &Coordinates, resource_version: ResourceVersion, facts: Facts) -> Object {
    Object {
        uid: uid.clone(),
        namespace: at.namespace.clone(),
        name: at.name.clone(),
        resource_version,
        facts,
        marks: Default::default(),
    }
}
