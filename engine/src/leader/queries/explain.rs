//! Explanations why an object is present, in deletion, or deleted. The explanations use the same verdict as decisions.

use super::Queries;
use crate::containers::{Container, DEFINITION_FINALIZER};
use crate::coverage::{Kind, KindId};
use crate::graph::{Known, NodeId};
use crate::leader::Mode;
use crate::object::{GroupResource, Name, ObjectRef, REFERENCES_MAX, ServedKind, Uid, in_group};
use crate::plan::undecided_code;
use crate::queue::{Blocker, Delay, Item, ItemState};
use crate::verdict::{Standing, Verdict, owners_in, verdict};
use crate::view::{
    Explanation, ItemView, LISTED_MAX, OwnerStanding, PlaceView, RELATED_MAX, Reason, ReasonCode, Undecided,
    VerdictView, plain,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The reasons that explain a kept object by the standing of its owners.
const KEEPING: [(OwnerStanding, ReasonCode); 5] = [
    (OwnerStanding::Solid, ReasonCode::SolidOwner),
    (OwnerStanding::Orphaning, ReasonCode::DependentsToOrphan),
    (OwnerStanding::InvalidScope, ReasonCode::InvalidReference),
    (OwnerStanding::Dangling, ReasonCode::OwnersAbsent),
    (OwnerStanding::Waiting, ReasonCode::OwnersWaiting),
];
/// The reasons that explain a collectable object.
const ABSENCES: [(OwnerStanding, ReasonCode); 4] = [
    (OwnerStanding::Waiting, ReasonCode::OwnersWaiting),
    (OwnerStanding::Dangling, ReasonCode::OwnersAbsent),
    (OwnerStanding::WrongNamespace, ReasonCode::InvalidReference),
    (OwnerStanding::CoordinatesMismatch, ReasonCode::InvalidReference),
];

impl Queries<'_> {
    /// Explains why an object is present, in deletion, or deleted. Returns `None` for an unknown uid.
    pub fn explain(&self, uid: &Uid) -> Option<Explanation> {
        let id = self.world().best_known(uid)?;
        let item = self.queue().get(uid);
        let (mut verdict, mut reasons) = match verdict(self.graph(), self.coverage(), id) {
            Verdict::NotObserved => self.unobserved_reasons(id),
            Verdict::Unowned => (VerdictView::Unowned, Vec::new()),
            Verdict::Kept { .. } => (VerdictView::Kept, self.by_standing(id, &KEEPING)),
            Verdict::Undecided(Undecided::TooManyReferences) => (VerdictView::Held, self.excessive(id)),
            Verdict::Undecided(cause) => (VerdictView::Undecided, self.missing(id, cause)),
            Verdict::Held(_) => (VerdictView::Held, self.holding(id)),
            Verdict::Collectable(collection) => {
                let mut reasons = self.by_standing(id, &ABSENCES);
                if !collection.unblock.is_empty() {
                    reasons.insert(0, plain(ReasonCode::Cycle));
                }
                (VerdictView::Collectable, reasons)
            }
            Verdict::Terminating { .. } => self.terminating(id),
            Verdict::Foreground { blocking, unblock, .. } => self.foreground(id, blocking, !unblock.is_empty()),
            Verdict::Orphaning { dependents, .. } => self.orphaning(id, dependents),
        };
        if self.leader.is_unjudged(uid) && verdict == VerdictView::Collectable {
            verdict = VerdictView::InProgress;
            reasons.insert(0, plain(ReasonCode::AwaitingOwnWrite));
        }
        if let Some(item) = item {
            let waits = self.waits(item);
            if item.invalid > 1 {
                verdict = VerdictView::Parked;
            }
            if item.held().is_some() && verdict == VerdictView::Collectable {
                verdict = VerdictView::Held;
            }
            reasons.splice(0..0, waits);
        }
        Some(Explanation {
            object: self.view(id),
            verdict,
            reasons,
            owners: self.world().edges_to(id, LISTED_MAX, |_| true),
            item: item.map(|item| self.item_view(item)),
        })
    }

    fn unobserved_reasons(&self, id: NodeId) -> (VerdictView, Vec<Reason>) {
        let node = self.graph().node(id);
        let since_dependents = related(ReasonCode::NeverObserved, self.dependents(id), node.dependent_count());
        match node.known() {
            Known::Absent(proof) => {
                let detail =
                    format!("{}{}", proof.as_str(), proof.version().map_or_else(String::new, |at| format!(" at {at}")));
                (VerdictView::Gone, alloc::vec![Reason { detail, ..plain(ReasonCode::Deleted) }])
            }
            Known::Read { .. } => (VerdictView::Kept, alloc::vec![since_dependents]),
            Known::Virtual { unreadable } => {
                let kind = self.coverage().kind(node.kind());
                let code = match (kind.served(), unreadable) {
                    (None, _) => ReasonCode::OwnerKindUnresolved,
                    (Some(_), _) if kind.is_ambiguous() => ReasonCode::OwnerKindUnresolved,
                    (Some(_), true) => ReasonCode::OwnerUnreadable,
                    (Some(_), false) if kind.is_unseen() => ReasonCode::CollectionUnsynced,
                    (Some(_), false) => ReasonCode::OwnerUnverified,
                };
                let why = Reason { detail: self.collection_state(id), ..plain(code) };
                (VerdictView::Undecided, alloc::vec![why, since_dependents])
            }
            Known::Observed => (VerdictView::Kept, Vec::new()),
        }
    }

    /// Returns a reason for each of these standings that an owner has.
    fn by_standing(&self, id: NodeId, codes: &[(OwnerStanding, ReasonCode)]) -> Vec<Reason> {
        let edges = self.world().edges(id);
        let reason = |&(standing, code): &(OwnerStanding, ReasonCode)| {
            let of = || edges.iter().filter(|edge| edge.standing == standing);
            let count = of().count();
            (count > 0).then(|| related(code, of().map(|edge| edge.owner.clone()), count))
        };
        codes.iter().filter_map(reason).collect()
    }

    fn missing(&self, id: NodeId, cause: Undecided) -> Vec<Reason> {
        let owners = owners_in(self.graph(), self.coverage(), id, Standing::is_unverified);
        let detail = owners.first().map_or_else(String::new, |&owner| self.collection_state(owner));
        let named = owners.iter().map(|&owner| self.world().object_ref(owner));
        alloc::vec![Reason { detail, ..related(undecided_code(cause), named, owners.len()) }]
    }

    fn excessive(&self, id: NodeId) -> Vec<Reason> {
        let count = self.graph().node(id).excess().map_or(0, |excess| excess.count);
        let detail = format!("{count} owner references, more than {REFERENCES_MAX}");
        alloc::vec![Reason { detail, ..plain(ReasonCode::TooManyReferences) }]
    }

    fn holding(&self, id: NodeId) -> Vec<Reason> {
        let node = self.graph().node(id);
        let mut reasons = Vec::new();
        if node.is_held() {
            reasons.push(Reason {
                detail: String::from(crate::object::HOLD_ANNOTATION),
                ..plain(ReasonCode::HoldAnnotation)
            });
        }
        let invalid: Vec<NodeId> =
            node.owners().filter(|&owner| self.graph().holds_as_invalid(self.graph().node(owner))).collect();
        if !invalid.is_empty() {
            let count = invalid.len();
            let owners = invalid.into_iter().map(|owner| self.world().object_ref(owner));
            reasons.push(related(ReasonCode::InvalidReference, owners, count));
        }
        reasons
    }

    fn terminating(&self, id: NodeId) -> (VerdictView, Vec<Reason>) {
        let finalizers = self.finalizers(id);
        let at = self.graph().node(id).at();
        if let Some(place) = Container::of(self.coverage().kind(at.kind), &at.name) {
            // The contents require a pass over all objects: see `ContentsLook`.
            let unseen = place.unseen(self.coverage()).take(RELATED_MAX).map(|kind| self.unseen_reason(kind));
            let reasons = [plain(ReasonCode::ContentsRemain)].into_iter().chain(unseen.flatten());
            return (VerdictView::Blocked, reasons.chain(finalizers).collect());
        }
        match finalizers.is_empty() {
            true => (VerdictView::InProgress, alloc::vec![plain(ReasonCode::GracePeriod)]),
            false => (VerdictView::Blocked, finalizers),
        }
    }

    fn foreground(&self, id: NodeId, blocking: usize, cycle: bool) -> (VerdictView, Vec<Reason>) {
        let mut reasons = Vec::new();
        if cycle {
            reasons.push(plain(ReasonCode::Cycle));
        }
        if blocking > 0 {
            let dependents = self.graph().blocking_dependents(self.coverage(), id);
            let dependents = dependents.map(|dependent| self.world().object_ref(dependent));
            reasons.push(related(ReasonCode::BlockingDependents, dependents, blocking));
            reasons.extend(self.unreachable(id));
        } else if self.world().undecided().get(id) == Some(Undecided::DependentsUnseen) {
            reasons.extend(self.unseen(id));
        }
        reasons.extend(self.finalizers(id));
        let verdict = if reasons.is_empty() { VerdictView::InProgress } else { VerdictView::Blocked };
        (verdict, reasons)
    }

    fn orphaning(&self, id: NodeId, dependents: usize) -> (VerdictView, Vec<Reason>) {
        let mut reasons = Vec::new();
        if dependents > 0 {
            let left = self.graph().dependents(self.coverage(), id).map(|dependent| self.world().object_ref(dependent));
            reasons.push(related(ReasonCode::DependentsToOrphan, left, dependents));
            reasons.extend(self.unreachable(id));
        } else if self.queue().get(&self.graph().node(id).uid()).is_none() {
            // The barrier has not passed, because some collection has not shown all its objects yet.
            reasons.extend(self.unseen(id));
        }
        reasons.extend(self.finalizers(id));
        (VerdictView::InProgress, reasons)
    }

    /// Returns the finalizers of other controllers that an object in deletion waits for.
    fn finalizers(&self, id: NodeId) -> Vec<Reason> {
        let foreign = self.graph().node(id).foreign_finalizers().filter(|name| ***name != *DEFINITION_FINALIZER);
        let reason = |name: &Name| Reason { detail: name.to_string(), ..plain(ReasonCode::FinalizerPresent) };
        foreign.take(RELATED_MAX).map(reason).collect()
    }

    /// Returns the unserved kind of the dependents that the object waits for.
    fn unreachable(&self, id: NodeId) -> Option<Reason> {
        self.world().undecided().get(id).filter(|&why| why == Undecided::DependentsUnseen)?;
        let kind = self.coverage().kind(self.graph().node(self.graph().dependents(self.coverage(), id).next()?).kind());
        let detail = format!("no API server serves {} any more", in_group(&kind.kind, &kind.group));
        Some(Reason { detail, since: Some(kind.since()), ..plain(ReasonCode::CollectionUnsynced) })
    }

    /// Returns the collections that may hide dependents of an owner in deletion.
    fn unseen(&self, id: NodeId) -> Vec<Reason> {
        let unseen = self.coverage().served().filter(|(_, kind)| self.cx().may_hide_dependents(kind));
        let unseen = unseen.filter_map(|(id, _)| self.unseen_reason(id));
        let hidden = self
            .world()
            .hidden_kinds(self.cx())
            .map(|(kind, since)| Reason { since: Some(since), ..crate::plan::undiscovered(kind) });
        let failing =
            self.leader.barrier.failing(self.graph().node(id).namespace()).into_iter().filter_map(|failing| {
                let collection = &self.coverage().kind(failing.kind).served()?.group_resource;
                let detail = format!("cannot list {collection} to find its dependents: {}", failing.why);
                Some(Reason { detail, since: Some(failing.since), ..plain(ReasonCode::CollectionUnsynced) })
            });
        failing.chain(unseen).chain(hidden).take(RELATED_MAX).collect()
    }

    fn unseen_reason(&self, kind: KindId) -> Option<Reason> {
        let kind = self.coverage().kind(kind);
        let served = kind.served()?;
        let detail = if kind.is_synced() { in_doubt(&served.group_resource) } else { how_seen(kind, served) };
        Some(Reason { detail, since: Some(kind.since()), ..plain(ReasonCode::CollectionUnsynced) })
    }

    /// Returns the reasons why a decision is not carried out at once.
    pub(in crate::leader) fn waits(&self, item: &Item) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let since = Some(item.decided);
        let mut add = |code: ReasonCode, detail: String| reasons.push(Reason { detail, since, ..plain(code) });
        let holds = item.held().map_or_else(Vec::new, |hold| self.all_holds(&item.draft.target, hold));
        // The reasons of the verdict name what of the object itself holds it.
        for hold in holds.into_iter().filter(|hold| !hold.is_own()) {
            add(hold.code(), self.hold_of(item, &hold));
        }
        match &item.state {
            ItemState::Leased(_) | ItemState::Held(_) => {}
            ItemState::Observed => add(ReasonCode::ObserveOnly, String::new()),
            ItemState::Backoff { why, .. } => add(delay_code(why), delay_text(item, why)),
            ItemState::Behind(blocker) => add(blocker_code(blocker), with_trouble(blocker_text(blocker), item)),
            ItemState::Ready if self.cx().term.is_none() => {
                add(ReasonCode::NotLeading, self.cx().leader_endpoint.clone())
            }
            ItemState::Ready => {
                if let Some(why) = self.stopped() {
                    add(ReasonCode::GrantsStopped, why);
                } else if self.leader.dispatcher.leases().session_count() == 0 && self.cx().config.mode == Mode::Enforce
                {
                    add(ReasonCode::NoExecutor, String::new());
                }
            }
        }
        reasons
    }

    fn item_view(&self, item: &Item) -> ItemView {
        let place = match &item.state {
            ItemState::Ready => PlaceView::Ready,
            ItemState::Observed => PlaceView::Observed,
            ItemState::Held(hold) => PlaceView::Held { by: self.hold_text(hold) },
            ItemState::Backoff { until, .. } => PlaceView::Backoff { until: *until },
            ItemState::Behind(blocker) => PlaceView::Behind { blocker: blocker_text(blocker) },
            ItemState::Leased(lease) => {
                let lease = self.leader.dispatcher.leases().get(*lease);
                let session = lease.and_then(|lease| self.leader.dispatcher.leases().session(lease.session));
                PlaceView::Leased {
                    executor: session.map_or_else(|| Name::from(""), |session| session.executor.clone()),
                    started: lease.and_then(|lease| lease.started),
                }
            }
        };
        ItemView {
            id: item.id,
            action: item.draft.action.kind(),
            place,
            decided: item.decided,
            attempts: item.attempts,
        }
    }

    fn dependents(&self, id: NodeId) -> impl Iterator<Item = ObjectRef> {
        self.graph().node(id).dependents().map(|dependent| self.world().object_ref(dependent))
    }

    /// Returns the state and the last error of the collection of a node.
    fn collection_state(&self, id: NodeId) -> String {
        let of = self.graph().node(id).kind();
        let kind = self.coverage().kind(of);
        let Some(served) = kind.served().filter(|_| !kind.is_ambiguous()) else {
            let how = how_served(&self.coverage().resources(of));
            return format!("{} is {how}", in_group(&kind.kind, &kind.group));
        };
        how_seen(kind, served)
    }
}

/// Describes the state and the last error of a served collection.
fn how_seen(kind: &Kind, served: &ServedKind) -> String {
    let colon = if kind.error().is_empty() { "" } else { ": " };
    format!("{} is {}{colon}{}", served.group_resource, kind.state().as_str(), kind.error())
}

fn blocker_code(blocker: &Blocker) -> ReasonCode {
    match blocker {
        Blocker::InDoubt { .. } => ReasonCode::CollectionInDoubt,
        Blocker::Forbidden { .. } => ReasonCode::Forbidden,
        Blocker::Webhook { .. } => ReasonCode::AdmissionDenied,
        Blocker::Throttled { .. } => ReasonCode::Throttled,
    }
}

/// Describes a blocker.
fn blocker_text(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Forbidden { collection, namespace, action } => {
            let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
            format!("{} of {collection}{place} is forbidden", action.as_str())
        }
        Blocker::InDoubt { collection, .. } => in_doubt(collection),
        Blocker::Webhook { name } => format!("refused by {name}"),
        Blocker::Throttled { collection } => format!("the API server pushes back on {collection}"),
    }
}

fn in_doubt(collection: &GroupResource) -> String {
    format!("the position of {collection} is unknown since its connection broke")
}

fn delay_code(why: &Delay) -> ReasonCode {
    match why {
        Delay::Failed | Delay::Unjudged => ReasonCode::Backoff,
        Delay::Refused(blocker) => blocker_code(blocker),
        Delay::Moved => ReasonCode::AdmissionDenied,
        Delay::NoTaker => ReasonCode::NoExecutor,
        Delay::Undone { .. } => ReasonCode::Undone,
    }
}

fn delay_text(item: &Item, why: &Delay) -> String {
    match why {
        Delay::Failed if item.trouble.is_none() => String::new(),
        Delay::Failed => with_trouble(format!("attempt {} failed", item.attempts), item),
        Delay::Refused(blocker) => {
            with_trouble(format!("{}, which accepts other objects", blocker_text(blocker)), item)
        }
        Delay::Moved => String::from("the object has changed since it was refused; the next attempt follows soon"),
        Delay::Unjudged => String::from(
            "an answer of the API server contradicts the watch; the object waits until one of them is confirmed",
        ),
        Delay::Undone { times } => {
            let often = if *times == 1 { String::from("once") } else { format!("{times} times") };
            let each = if *times == 1 { "" } else { " each time" };
            format!("{} was carried out {often}, and undone{each}", item.draft.action.kind().as_str())
        }
        Delay::NoTaker => format!("no connected executor supports work of kind {}", item.draft.action.kind().as_str()),
    }
}

/// Appends the result of the last attempt to `text`.
fn with_trouble(text: String, item: &Item) -> String {
    match &item.trouble {
        Some(trouble) => format!("{text}: {trouble}"),
        None => text,
    }
}

/// Returns a reason with related objects.
pub(super) fn related(code: ReasonCode, objects: impl Iterator<Item = ObjectRef>, count: usize) -> Reason {
    Reason { related: objects.take(RELATED_MAX).collect(), count, ..plain(code) }
}

/// Describes how a kind is served whose references do not resolve to exactly one resource.
pub(in crate::leader) fn how_served(resources: &[GroupResource]) -> String {
    let names: Vec<String> = resources.iter().take(RELATED_MAX).map(ToString::to_string).collect();
    match &names[..] {
        [] => String::from("not served"),
        [split] => format!("served as {split}, whose versions have or may have different servers, scopes or kinds"),
        _ => format!("served as {}", names.join(" and as ")),
    }
}
