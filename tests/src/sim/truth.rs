//! The true state of the world: every change of the model in order, and the resulting state of every object.

use super::kinds::{KINDS, MIRROR, MIRRORED, STORED, by_kind, observe, stored};
use super::perils::{Perils, UNREADABLE};
use super::world::{MS, S};
use engine::object::{Facts, Name, Object, OwnerReference, Uid};
use sandbox::model::{Change, Model};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum time until a replica knows that a kind is served again. The replica may be paused in this time.
const LEARNT_WITHIN: u64 = 100 * S;

/// The author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    User,
    Collector,
}

/// A change in the form of a watch event.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) revision: u64,
    pub(super) deleted: bool,
    pub(super) object: Object,
    /// The group and kind of the definition, if the object is one whose instances are gone.
    pub(super) emptied: Option<(Name, Name)>,
}

type ReferenceKey = (Name, Name, Name, Uid);

/// The revision since which an object has had a reference without interruption.
#[derive(Clone, Copy, Debug)]
struct Since {
    any: u64,
    blocking: Option<u64>,
}

/// The time of an owner in orphaning deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphaning {
    pub(super) since: u64,
    pub(super) until: Option<u64>,
    /// The time of the beginning, in nanoseconds.
    pub(super) began: u64,
    /// A user then asked for another deletion, or the store lost the work of the collector.
    pub(super) changed: bool,
}

/// An object since its creation.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) kind: usize,
    pub(super) object: Object,
    pub(super) removed: Option<u64>,
    /// The time at which the object went, in nanoseconds.
    removed_at: u64,
    references: BTreeMap<ReferenceKey, Since>,
    /// Every reference that the object ever had.
    ever_references: BTreeSet<ReferenceKey>,
    /// The revision since which the object is in foreground deletion.
    pub(super) waiting_since: Option<u64>,
    /// The last time at which the object left foreground deletion and stayed, in nanoseconds.
    waited_until: Option<u64>,
    pub(super) orphaning: Option<Orphaning>,
    ever_marked: bool,
    pub(super) ever_orphaned: bool,
}

impl Life {
    pub(super) fn facts(&self) -> &Facts {
        &self.object.facts
    }

    pub(super) fn exists(&self) -> bool {
        self.removed.is_none()
    }

    /// Returns whether the object ever referred to this uid under other coordinates.
    pub(super) fn ever_meant_another(&self, reference: &OwnerReference) -> bool {
        let this = key(reference);
        self.ever_references.iter().any(|other| other.3 == this.3 && *other != this)
    }

    pub(super) fn has_referred_to(&self, owner: &Life) -> bool {
        self.ever_references.iter().any(|reference| reference.3 == owner.object.uid)
    }

    pub(super) fn named(&self) -> String {
        let kind = KINDS[self.kind].kind;
        format!("{kind} {}/{} ({})", self.object.namespace, self.object.name, short(&self.object.uid))
    }
}

/// Shortens a uid to its first characters, which distinguish it from others.
pub(super) fn short(uid: &Uid) -> String {
    let text = uid.to_string();
    text.chars().take(8).collect()
}

/// The time of a write under judgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    /// The time of the oldest owner check that a DELETE may rest on. The owners may have stopped waiting after it.
    pub(super) checked_since: Option<u64>,
}

impl Moment {
    /// The time of a write that rests on no owner check.
    pub(super) fn unchecked(now: u64) -> Moment {
        Moment { now, checked_since: None }
    }
}

/// The true standing of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// The kind is not served now, and the owner does not exist.
    Unresolvable,
    /// Every question about the owner fails.
    Unreadable,
    /// The dependent is cluster-scoped and the owner is namespaced.
    Misplaced,
    Solid,
    /// The owner is in foreground deletion.
    Waiting,
    /// The owner left foreground deletion less than a second ago and exists. It may now be in orphaning deletion.
    JustWaited,
    Orphaning,
    Gone,
    /// The owner orphaned its dependents, with this dependent among them, and is gone.
    GoneOrphaning,
    /// The owner is gone. Whether it orphaned this dependent depends on when the leader saw the changes.
    GonePerhapsOrphaning,
}

/// The time for which an owner check is valid, if requests do not take longer. A second of the slowest clock is longer
/// than a second of the world.
const CHECK_IS_GOOD_FOR: u64 = 1_250_000_000;
/// The maximum time between a stale answer and the write that rests on it, which includes the flight of the answer.
const STALE_ANSWER_COUNTS: u64 = 40 * S;

/// The history and the present state of the world.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) log: Vec<Vec<Logged>>,
    pub(super) lives: BTreeMap<Uid, Life>,
    /// The dependent and the owner of every blocking reference that ever existed.
    ever_blocking: BTreeSet<(Uid, Uid)>,
    /// By kind: whether the kind is served, and the times in nanoseconds between which it was not.
    pub(super) served: Vec<bool>,
    outages: Vec<Vec<(u64, Option<u64>)>>,
    /// True if a second group shows the objects of one kind.
    pub(super) mirror_served: bool,
    /// The last reads that showed an older state of the store: the time of that state, and the end of these reads.
    pub(super) stale_reads: Option<(u64, u64)>,
    pub(super) perils: Perils,
    /// The owners that orphaned their dependents in a lost history.
    orphaned_formerly: BTreeSet<Uid>,
    seen_through: u64,
}

impl Truth {
    pub(super) fn new() -> Truth {
        Truth {
            log: vec![Vec::new(); KINDS.len()],
            served: (0..KINDS.len()).map(|kind| kind != MIRROR).collect(),
            outages: vec![Vec::new(); KINDS.len()],
            // No collection shows changes from before its creation.
            seen_through: 1,
            ..Truth::default()
        }
    }

    /// Records all changes since the last call.
    pub(super) fn follow(&mut self, model: &Model, now: u64, actor: Actor) {
        if model.revision() == self.seen_through {
            return self.find_unserved(model, now);
        }
        let mut events = Vec::new();
        for (at, kind) in KINDS.iter().enumerate().take(STORED) {
            let since = model.events_since(&kind.resource(), None, self.seen_through, 100_000).unwrap_or_default();
            events.extend(since.into_iter().map(|event| (event.revision, at, event)));
        }
        events.sort_by_key(|(revision, at, _)| (*revision, *at));
        for (revision, at, event) in events {
            let object = observe(&event.object);
            let deleted = event.change == Change::Deleted;
            self.apply(revision, at, &object, deleted, now, actor);
            let emptied = (at == super::kinds::DEFINITIONS).then(|| emptied(&event.object)).flatten();
            let logged = Logged { revision, deleted, object, emptied };
            if at == MIRRORED {
                self.log[MIRROR].push(logged.clone());
            }
            self.log[at].push(logged);
        }
        self.seen_through = model.revision();
        self.find_unserved(model, now);
    }

    /// Takes over the facts of a lost history that a collector may remember.
    pub(super) fn inherit(&mut self, former: &Truth) {
        let orphaned = former.lives.values().filter(|life| life.ever_orphaned).map(|life| life.object.uid.clone());
        self.mirror_served = former.mirror_served;
        self.orphaned_formerly = former.orphaned_formerly.iter().cloned().chain(orphaned).collect();
    }

    /// Returns whether an owner orphaned its dependents in any history.
    pub(super) fn ever_orphaned(&self, uid: &Uid) -> bool {
        self.orphaned_formerly.contains(uid) || self.lives.get(uid).is_some_and(|life| life.ever_orphaned)
    }

    /// Moves to a revision without any write of the world.
    pub(super) fn skip_to(&mut self, revision: u64) {
        self.seen_through = revision;
    }

    /// Records which kinds are served.
    pub(super) fn find_unserved(&mut self, model: &Model, now: u64) {
        for (at, kind) in KINDS.iter().enumerate() {
            let served = model.served(&kind.resource()).is_ok() && (kind.shows.is_none() || self.mirror_served);
            if served == self.served[at] {
                continue;
            }
            self.served[at] = served;
            if !served {
                self.outages[at].push((now, None));
            } else if let Some(last) = self.outages[at].last_mut() {
                last.1 = Some(now);
            }
        }
    }

    fn apply(&mut self, revision: u64, kind: usize, object: &Object, deleted: bool, now: u64, actor: Actor) {
        let life = self.lives.entry(object.uid.clone()).or_insert_with(|| Life {
            kind,
            object: object.clone(),
            removed: None,
            removed_at: u64::MAX,
            references: BTreeMap::new(),
            ever_references: BTreeSet::new(),
            waiting_since: None,
            waited_until: None,
            orphaning: None,
            ever_marked: false,
            ever_orphaned: false,
        });
        if deleted {
            if let Some(orphaning) = life.orphaning.as_mut().filter(|orphaning| orphaning.until.is_none()) {
                orphaning.until = Some(revision);
                orphaning.changed |= actor == Actor::User;
            }
            life.object.resource_version = object.resource_version.clone();
            life.removed = Some(revision);
            life.removed_at = now;
            return;
        }
        let facts = &object.facts;
        if facts.deletes_dependents() {
            life.waiting_since.get_or_insert(revision);
            life.ever_marked = true;
        } else if life.waiting_since.take().is_some() {
            life.waited_until = Some(now);
        }
        match &mut life.orphaning {
            Some(orphaning) if orphaning.until.is_none() => {
                if !facts.orphans_dependents() {
                    orphaning.until = Some(revision);
                    orphaning.changed |= actor == Actor::User;
                }
            }
            before @ (Some(_) | None) => {
                if facts.orphans_dependents() {
                    *before = Some(Orphaning { since: revision, until: None, began: now, changed: false });
                    life.ever_marked = true;
                    life.ever_orphaned = true;
                } else if let Some(orphaning) = before
                    && facts.deletes_dependents()
                {
                    orphaning.changed = true;
                }
            }
        }
        let mut references: BTreeMap<ReferenceKey, Since> = BTreeMap::new();
        for owner in &facts.owners {
            let key = key(owner);
            let before = life.references.get(&key);
            let any = before.map_or(revision, |since| since.any);
            let blocking = owner.blocks().then(|| before.and_then(|since| since.blocking).unwrap_or(revision));
            let since = references.entry(key).or_insert(Since { any, blocking });
            since.blocking = since.blocking.or(blocking);
            if owner.blocks() {
                self.ever_blocking.insert((object.uid.clone(), owner.uid.clone()));
            }
        }
        life.ever_references.extend(references.keys().cloned());
        life.references = references;
        life.object = object.clone();
    }

    /// Returns the owner that a reference names, even if the owner is gone.
    pub(super) fn owner(&self, dependent: &Life, reference: &OwnerReference) -> Option<&Life> {
        let owner = self.lives.get(&reference.uid)?;
        let named = by_kind(reference.group(), &reference.kind)?;
        let same = stored(named) == owner.kind && owner.object.name == reference.name;
        let near = !KINDS[owner.kind].namespaced || owner.object.namespace == dependent.object.namespace;
        (same && near).then_some(owner)
    }

    /// Returns the revisions since which the dependent has this reference, and has it as a blocking one.
    pub(super) fn since(&self, dependent: &Life, reference: &OwnerReference) -> (u64, Option<u64>) {
        dependent.references.get(&key(reference)).map_or((u64::MAX, None), |since| (since.any, since.blocking))
    }

    /// Returns the true standing of a reference. `saw_orphaning` takes an owner, the beginning of a reference and the
    /// owner's end. It returns whether the acting leader was shown enough to know that the owner orphaned this
    /// dependent.
    pub(super) fn worth(
        &self,
        at: Moment,
        dependent: &Life,
        reference: &OwnerReference,
        saw_orphaning: &dyn Fn(&Uid, u64, u64) -> bool,
    ) -> Worth {
        let Some(kind) = by_kind(reference.group(), &reference.kind) else { return Worth::Unresolvable };
        if !KINDS[dependent.kind].namespaced && KINDS[kind].namespaced {
            return Worth::Misplaced;
        }
        let Some(owner) = self.owner(dependent, reference) else {
            if self.perils.poison && *reference.name == *UNREADABLE {
                return Worth::Unreadable;
            }
            return if self.served[kind] { Worth::Gone } else { Worth::Unresolvable };
        };
        let just_waited = owner.waited_until.is_some_and(|until| self.was_checked_since(until, at));
        if owner.exists() {
            return if owner.facts().deletes_dependents() {
                Worth::Waiting
            } else if just_waited {
                Worth::JustWaited
            } else if owner.facts().orphans_dependents() {
                Worth::Orphaning
            } else {
                Worth::Solid
            };
        }
        let Some(orphaning) = owner.orphaning else { return Worth::Gone };
        let until = orphaning.until.or(owner.removed).unwrap_or(u64::MAX);
        let since = self.since(dependent, reference).0;
        let hidden = self.was_unserved(dependent.kind, orphaning.began, owner.removed_at);
        if orphaning.changed || hidden || just_waited {
            Worth::GonePerhapsOrphaning
        } else if since < orphaning.since || saw_orphaning(&reference.uid, since, until) {
            Worth::GoneOrphaning
        } else {
            Worth::GonePerhapsOrphaning
        }
    }

    /// Returns whether the owner check of a write may show a state that ended at `until`.
    fn was_checked_since(&self, until: u64, Moment { now, checked_since }: Moment) -> bool {
        // A read from a member shows the state of its older copy.
        let stale = |&(of, answered): &(u64, u64)| until >= of && now <= answered + STALE_ANSWER_COUNTS;
        if checked_since.is_some_and(|since| until >= since) {
            return true;
        }
        now.saturating_sub(until) <= self.check_is_good_for() || self.stale_reads.as_ref().is_some_and(stale)
    }

    /// The maximum age of the read of a waiting owner when the DELETE arrives at the server.
    fn check_is_good_for(&self) -> u64 {
        // Nine quarters of the time of a request, and a quarter for a slow clock.
        CHECK_IS_GOOD_FOR.max(self.perils.slow_ms * MS * 45 / 16)
    }

    /// Returns whether a kind was not served at some time of a span. A kind that is served again counts until every
    /// replica knows.
    pub(super) fn was_unserved(&self, kind: usize, from: u64, to: u64) -> bool {
        self.outages[kind].iter().any(|&(begin, end)| begin <= to && end.is_none_or(|end| end + LEARNT_WITHIN >= from))
    }

    /// Returns whether a reference has the uid, name and namespace of an owner that orphaned its dependents. The kind
    /// does not count.
    pub(super) fn is_orphaned_namesake(&self, dependent: &Life, reference: &OwnerReference) -> bool {
        self.lives.get(&reference.uid).is_some_and(|owner| {
            owner.ever_orphaned
                && owner.object.name == reference.name
                && owner.object.namespace == dependent.object.namespace
        })
    }

    /// Notes that a write that only a lost history permits ended the orphaning of this owner's dependents.
    pub(super) fn orphans_perhaps(&mut self, uid: &Uid) {
        if let Some(orphaning) = self.lives.get_mut(uid).and_then(|life| life.orphaning.as_mut()) {
            orphaning.changed = true;
        }
    }

    /// Returns whether an owner was ever in a deletion that concerns its dependents.
    pub(super) fn was_ever_marked(&self, uid: &Uid) -> bool {
        self.lives.get(uid).is_some_and(|life| life.ever_marked)
    }

    /// Returns whether blocking references ever led from `owner` back to `dependent`.
    pub(super) fn could_be_cycle(&self, dependent: &Uid, owner: &Uid) -> bool {
        let mut open = vec![owner.clone()];
        let mut seen: BTreeSet<Uid> = open.iter().cloned().collect();
        while let Some(uid) = open.pop() {
            if uid == *dependent {
                return true;
            }
            for (_, next) in self.ever_blocking.iter().filter(|(from, _)| *from == uid) {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        false
    }

    /// Returns the objects that refer to `owner`, with their reference.
    pub(super) fn dependents<'a>(&'a self, owner: &'a Life) -> impl Iterator<Item = (&'a Life, &'a OwnerReference)> {
        self.lives.values().filter(|life| life.exists()).flat_map(move |life| {
            let refers = move |reference: &&OwnerReference| {
                self.owner(life, reference).is_some_and(|found| found.object.uid == owner.object.uid)
                    && (KINDS[life.kind].namespaced || !KINDS[owner.kind].namespaced)
            };
            life.facts().owners.iter().filter(refers).map(move |reference| (life, reference))
        })
    }
}

fn key(reference: &OwnerReference) -> ReferenceKey {
    (Name::from(reference.group()), reference.kind.clone(), reference.name.clone(), reference.uid.clone())
}

/// Returns group and kind of a definition whose status says that its instances were deleted.
fn emptied(definition: &sandbox::model::Object) -> Option<(Name, Name)> {
    let conditions = definition["status"]["conditions"].as_array()?;
    let done = |condition: &serde_json::Value| {
        condition["type"] == "Terminating"
            && condition["status"] == "False"
            && condition["reason"] == "InstanceDeletionCompleted"
    };
    conditions.iter().any(done).then(|| {
        let text = |path: &str| definition["spec"].pointer(path).and_then(|value| value.as_str()).unwrap_or_default();
        (Name::from(text("/group")), Name::from(text("/names/kind")))
    })
}
