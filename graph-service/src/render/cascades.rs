//! One Kubernetes Event for each finished cascade, while this replica leads.
//!
//! A cascade is finished when none of its decisions is open, and none has been made or ended for [`QUIET`]: the objects
//! of the next level are decided when their owner has gone. A deletion is open until its object has gone, or waits for
//! the finalizers of other controllers.

use crate::warnings::About;
use engine::guard::{GuardId, GuardKind, HeldBy};
use engine::leader::{Event, Grounds};
use engine::object::{GroupResource, ObjectRef, Uid};
use engine::work::{ActionKind, Outcome};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Maximum number of roots that are followed. For a further one, the oldest is dropped.
const ROOTS_MAX: usize = 1000;
/// Maximum number of open decisions that are followed. A cascade with further ones is finished after [`QUIET_BEYOND`].
const OPEN_MAX: usize = 100_000;
/// Maximum number of collections that are counted for one root. Objects of further ones are counted together.
const COLLECTIONS_MAX: usize = 20;
/// Least number of objects of a cascade that has an Event.
const OBJECTS_MIN: u64 = 2;
const QUIET: Duration = Duration::from_secs(10);
const QUIET_BEYOND: Duration = Duration::from_secs(60);
/// Time between two looks for finished cascades.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The cascades under way.
#[derive(Debug, Default)]
pub(super) struct Cascades {
    /// By number: the oldest is first.
    followed: BTreeMap<u64, Cascade>,
    last: u64,
    by_root: HashMap<Uid, u64>,
    /// The targets of open decisions.
    open: HashMap<Uid, Open>,
    looked: Option<Instant>,
    /// Cascades that were finished before their time, to make room.
    done: Vec<About>,
    dropped: u64,
}

#[derive(Debug)]
struct Open {
    cascade: u64,
    held: bool,
}

#[derive(Debug)]
struct Cascade {
    root: ObjectRef,
    begun: Instant,
    /// The last decision, attempt or end.
    moved: Instant,
    open: u64,
    /// A decision is not among the open ones, for lack of room.
    beyond: bool,
    deleted: BTreeMap<GroupResource, u64>,
    /// Deleted objects of further collections.
    others: u64,
    /// Objects that lost the reference to an orphaning owner.
    orphaned: u64,
    awaiting: u64,
    held: u64,
    /// Objects that stay until a user ends the hold. The cascade ends without them.
    kept: u64,
    failed: u64,
}

impl Cascades {
    /// Follows one event of the engine.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few events are about decisions")]
    pub(super) fn follow(&mut self, event: &Event) {
        match event {
            // The next leader follows what it decides itself.
            Event::TermGained(_) | Event::TermLost => *self = Cascades { last: self.last, ..Cascades::default() },
            // Only a leader has grounds.
            Event::Decided { target, grounds: Some(grounds), .. } => self.decided(target, grounds),
            Event::Held { target, by: Some(by), .. } => match by {
                HeldBy::Annotation
                | HeldBy::InvalidReference
                | HeldBy::Guard(GuardId { kind: GuardKind::Protection, .. }) => self.kept(&target.uid),
                HeldBy::Guard(_) => self.held(&target.uid),
            },
            Event::Attempted { end, .. } => self.attempted(&end.target, end.action, end.outcome, &end.grounds),
            Event::AwaitingFinalizers { target, .. } => self.ended(&target.uid, true),
            Event::Confirmed { target, .. } | Event::Withdrawn { target, replaced: false, .. } => {
                self.ended(&target.uid, false);
            }
            _ => {}
        }
    }

    /// The Events of finished cascades, and the number of cascades that were dropped without one.
    pub(super) fn finished(&mut self) -> (Vec<About>, u64) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK_EVERY) {
            return (Vec::new(), 0);
        }
        self.looked = Some(now);
        let is_finished = |cascade: &Cascade| {
            let quiet = now.duration_since(cascade.moved);
            if cascade.beyond { quiet >= QUIET_BEYOND } else { cascade.open == 0 && quiet >= QUIET }
        };
        let finished = self.followed.iter().filter(|(_, cascade)| is_finished(cascade));
        for number in finished.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.finish(number);
        }
        (std::mem::take(&mut self.done), std::mem::take(&mut self.dropped))
    }

    fn decided(&mut self, target: &ObjectRef, grounds: &Grounds) {
        let Some(root) = grounds.chain.last().filter(|root| root.uid != target.uid) else { return };
        let number = self.cascade_of(root);
        let is_full = self.open.len() >= OPEN_MAX;
        let Some(cascade) = self.followed.get_mut(&number) else { return };
        cascade.moved = Instant::now();
        if self.open.contains_key(&target.uid) {
            return;
        }
        if is_full {
            cascade.beyond = true;
            return;
        }
        cascade.open += 1;
        self.open.insert(target.uid.clone(), Open { cascade: number, held: false });
    }

    /// The number of the cascade of a root, which is followed from now on.
    fn cascade_of(&mut self, root: &ObjectRef) -> u64 {
        if let Some(&number) = self.by_root.get(&root.uid) {
            return number;
        }
        if self.followed.len() >= ROOTS_MAX
            && let Some((&oldest, cascade)) = self.followed.first_key_value()
        {
            self.dropped += u64::from(cascade.open > 0 || cascade.beyond);
            if cascade.open == 0 && !cascade.beyond {
                self.finish(oldest);
            } else {
                self.forget(oldest);
            }
        }
        self.last += 1;
        let now = Instant::now();
        let cascade = Cascade {
            root: root.clone(),
            begun: now,
            moved: now,
            open: 0,
            beyond: false,
            deleted: BTreeMap::new(),
            others: 0,
            orphaned: 0,
            awaiting: 0,
            held: 0,
            kept: 0,
            failed: 0,
        };
        self.followed.insert(self.last, cascade);
        self.by_root.insert(root.uid.clone(), self.last);
        self.last
    }

    fn held(&mut self, target: &Uid) {
        let Some(open) = self.open.get_mut(target) else { return };
        let is_first = !std::mem::replace(&mut open.held, true);
        if let Some(cascade) = self.followed.get_mut(&open.cascade) {
            cascade.held += u64::from(is_first);
        }
    }

    fn kept(&mut self, target: &Uid) {
        let Some(open) = self.open.get(target) else { return };
        if let Some(cascade) = self.followed.get_mut(&open.cascade) {
            cascade.kept += 1;
        }
        self.ended(target, false);
    }

    fn attempted(&mut self, target: &ObjectRef, action: ActionKind, outcome: Outcome, grounds: &Grounds) {
        let followed = self.open.get(&target.uid).map(|open| open.cascade);
        let by_root = || self.by_root.get(&grounds.chain.last()?.uid).copied();
        let Some(number) = followed.or_else(by_root) else { return };
        let Some(cascade) = self.followed.get_mut(&number) else { return };
        cascade.moved = Instant::now();
        match (outcome, action) {
            (Outcome::Done, ActionKind::Delete) => return cascade.delete(target),
            (Outcome::Done, ActionKind::RemoveOwnerReferences) => cascade.orphaned += 1,
            (Outcome::Done | Outcome::Unchanged | Outcome::Gone | Outcome::Replaced, _) => {}
            // The decision is made again, or it is withdrawn.
            (Outcome::Conflict | Outcome::OwnerExists, _) => return,
            (
                Outcome::Forbidden
                | Outcome::Unauthenticated
                | Outcome::AdmissionDenied
                | Outcome::AdmissionFailed
                | Outcome::Throttled
                | Outcome::Unsupported
                | Outcome::Invalid
                | Outcome::Transient
                | Outcome::Ambiguous
                | Outcome::Abandoned,
                _,
            ) => {
                cascade.failed += 1;
                return;
            }
        }
        if action != ActionKind::Delete || outcome != Outcome::Unchanged {
            self.ended(&target.uid, false);
        }
    }

    fn ended(&mut self, target: &Uid, awaits: bool) {
        let Some(Open { cascade, .. }) = self.open.remove(target) else { return };
        let Some(cascade) = self.followed.get_mut(&cascade) else { return };
        cascade.open = cascade.open.saturating_sub(1);
        cascade.awaiting += u64::from(awaits);
        cascade.moved = Instant::now();
    }

    fn finish(&mut self, number: u64) {
        if let Some(about) = self.forget(number).and_then(Cascade::summary) {
            self.done.push(about);
        }
    }

    fn forget(&mut self, number: u64) -> Option<Cascade> {
        let cascade = self.followed.remove(&number)?;
        self.by_root.remove(&cascade.root.uid);
        Some(cascade)
    }
}

impl Cascade {
    fn delete(&mut self, target: &ObjectRef) {
        let collection = target.group_resource();
        if self.deleted.len() < COLLECTIONS_MAX || self.deleted.contains_key(&collection) {
            *self.deleted.entry(collection).or_default() += 1;
        } else {
            self.others += 1;
        }
    }

    /// The Event on the root, which may have gone. `None` for a small cascade.
    fn summary(self) -> Option<About> {
        let deleted = self.deleted.values().sum::<u64>() + self.others;
        if deleted + self.orphaned < OBJECTS_MIN {
            return None;
        }
        let objects = |count: u64| format!("{count} object{}", if count == 1 { "" } else { "s" });
        let took = self.moved.duration_since(self.begun).as_secs();
        let mut totals: Vec<(GroupResource, u64)> = self.deleted.into_iter().collect();
        totals.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut totals: Vec<String> = totals.iter().map(|(of, count)| format!("{of} {count}")).collect();
        if self.others > 0 {
            totals.push(format!("others {}", self.others));
        }
        let colon = if totals.is_empty() { "" } else { ": " };
        let mut parts = vec![format!("Collected {} in {took} s{colon}{}", objects(deleted), totals.join(", "))];
        let more = [
            (self.orphaned, "lost the reference to an owner that orphans its dependents"),
            (self.awaiting, "waited for finalizers of other controllers"),
            (self.held, "waited for guards"),
            (self.kept, "held by a protection, an annotation or an invalid reference"),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            parts.push(format!("{} {what}", objects(count)));
        }
        if self.failed > 0 {
            parts.push(format!("{} attempt{} failed", self.failed, if self.failed == 1 { "" } else { "s" }));
        }
        let message = parts.join("; ");
        Some(About { object: self.root, reason: "CascadeCollected", is_warning: false, message })
    }
}
