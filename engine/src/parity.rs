//! Comparison with another collector of the same cluster, in mode `observe`.
//!
//! Each decision is matched with the change that the other collector makes to the object, and each change that looks
//! like one of a collector is matched with a decision. `leader::comparing` finds both, `class` judges them, and
//! `tally` counts them.
//!
//! | Outcome | When |
//! |---|---|
//! | agreed | A change follows a decision to make it; or the other collector was first, and the facts as of its change, or as of shortly before, lead to the same decision |
//! | ours only | A decision has no change within the wait. A change that comes after all moves it to agreed |
//! | theirs only | A change has no decision, or another one, once the facts as of the change are known |
//! | unattributed | Another user made the change, or a living owner shows that no collector did |
//! | withdrawn | The facts changed before the other collector followed the decision |
//! | not compared | The decision is beyond the bound on open ones |
//!
//! Events of different collections arrive in any order: the deletion of a dependent may arrive before that of its
//! owner. A change without a decision is therefore judged when the collections of its owners have reached its version,
//! by the production rules for references. The change of a collector and that of a person look the same in a watch.
//! [`Audited`] requests name the user.

use crate::object::{GroupResource, Name, ObjectRef, ResourceVersion, Uid};
use crate::time::Time;
use crate::verdict::Standing;
use crate::view::EdgeView;
use crate::work::ActionKind;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

mod audited;
mod change;
mod class;
mod log;
mod tally;

pub use audited::{Audited, AuditedVerb, USER_MAX};
pub use class::{CLASSES, Class, Outcome};
pub use tally::{Counts, Row};

use change::Late;
pub(crate) use change::{Change, Deed, Open, Owner};
pub(crate) use class::{Actor, Case, Finding};
pub(crate) use log::Log;
use tally::Tally;

/// Maximum number of decisions that wait for a change. Further decisions count as not compared.
const OPEN_MAX: usize = 262_144;
/// Maximum number of changes that wait for facts or for their user. The oldest one is judged early.
const CHANGES_MAX: usize = 16_384;
/// Maximum number of decisions that have just ended, and of objects that have just lost references.
const PAST_MAX: usize = 1024;
/// The other collector may have begun to act on the facts before a decision that is younger than this.
pub(crate) const YOUNG: Duration = Duration::from_secs(10);
/// Maximum number of kept disagreements of unknown class, and of all other classes.
const KEPT_MAX: usize = 1000;
/// Maximum number of references of an object that are compared and kept as evidence.
pub(crate) const OWNERS_MAX: usize = 64;
/// The shortest wait for a change after a decision.
const WAIT_MIN: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(600);
/// The wait is this multiple of the delay of 99 % of the agreed decisions.
const WAIT_FACTOR: u32 = 10;
/// The time between two events with the counts. The next leader misses the counts after the last one.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The counts are reported again after this many other events. The next leader looks for them among the newest 65,536
/// events and 64 MiB of the decision log.
pub(crate) const TOLD_AFTER: usize = 16_384;
/// The longest wait for facts as of a change. Collections without changes report their position once a minute.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(150);
/// The longest wait for the audited request of a change.
pub(crate) const AUDITED_WITHIN: Duration = Duration::from_secs(45);

/// A decision without its change, or a change without its decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Numbers the disagreements of a term, from 1.
    pub number: u64,
    /// [`Outcome::OursOnly`] or [`Outcome::TheirsOnly`].
    pub outcome: Outcome,
    pub class: Class,
    pub target: ObjectRef,
    /// The action of the other collector, or the action that only this collector decided.
    pub action: ActionKind,
    /// The decision at the time of the change, if there was one.
    pub decided: Option<ActionKind>,
    /// When the decision was made, or the change seen.
    pub at: Time,
    /// The version that shows the change, or that the decision is about.
    pub version: Option<ResourceVersion>,
    /// The references, at most 64, as they were at the change, or are at the end of the wait.
    pub owners: Vec<EdgeView>,
    pub owner_count: usize,
    /// The user of the audited request, and its audit id.
    pub audited: Option<(Name, Name)>,
}

/// The numbers of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct ParityView {
    /// The beginning of the counted time, in this term.
    pub since: Time,
    /// The time before `since` in which earlier leaders counted.
    pub before: Duration,
    pub counts: Counts,
    /// Since the beginning of the term, by collection.
    pub collections: Vec<(GroupResource, Row)>,
    /// Decisions that wait for a change.
    pub open: usize,
    /// Changes that wait for facts or for their user.
    pub unsettled: usize,
    /// The present wait for a change after a decision.
    pub wait: Duration,
    /// Requests of the audit log name the users of changes.
    pub audited: bool,
}

/// The last change of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lately {
    /// The object lost references.
    Shed,
    /// The object got references.
    Grew,
    /// Its deletion began.
    Marked,
    /// The object lost the finalizer of its foreground deletion, and lives on.
    StoppedWaiting,
}

/// Objects with the times of a change, the oldest first. They are kept for [`YOUNG`].
#[derive(Debug, Default)]
struct Recent(VecDeque<(Time, Uid)>);

impl Recent {
    fn add(&mut self, now: Time, uid: Uid) {
        while self.0.pop_front_if(|(at, _)| now.since(*at) > YOUNG).is_some() {}
        if self.0.len() == PAST_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, uid));
    }

    fn holds(&self, now: Time, uid: &Uid) -> bool {
        self.0.iter().rev().take_while(|(at, _)| now.since(*at) <= YOUNG).any(|(_, of)| of == uid)
    }
}

/// The comparison of one term.
#[derive(Debug)]
pub(crate) struct Parity {
    open: BTreeMap<Uid, Open>,
    /// Decisions that were withdrawn, replaced or followed within [`YOUNG`].
    past: VecDeque<(Time, Uid, Open)>,
    /// Open decisions in the order of time. An entry without its decision is void.
    waiting: VecDeque<(Time, Uid)>,
    changes: VecDeque<Change>,
    /// By [`Lately`].
    lately: [Recent; 4],
    /// Where owners began to orphan their dependents or to wait for them. Further owners have no place.
    moved: BTreeMap<Uid, ResourceVersion>,
    /// Where the main store stood when the comparison began, or at the first list of a new history.
    began: Option<ResourceVersion>,
    /// The owners of these changes, and of some that were judged just now.
    owners: BTreeSet<Uid>,
    log: Log,
    tally: Tally,
    /// By number: those of unknown class, and all others.
    unknown: BTreeMap<u64, Box<Disagreement>>,
    others: BTreeMap<u64, Box<Disagreement>>,
    last: u64,
    /// The time before the term in which earlier leaders counted.
    before: Duration,
    /// The counts of the last event, and its time.
    told: (Time, Counts),
    /// Whether the counts have those of earlier leaders, as far as the decision log has them. Counts that lack them
    /// must not hide them from the next leader.
    has_earlier: bool,
}

impl Parity {
    pub(crate) fn new(now: Time) -> Parity {
        Parity {
            open: BTreeMap::new(),
            past: VecDeque::new(),
            waiting: VecDeque::new(),
            changes: VecDeque::new(),
            lately: Default::default(),
            moved: BTreeMap::new(),
            began: None,
            owners: BTreeSet::new(),
            log: Log::default(),
            tally: Tally::new(now),
            unknown: BTreeMap::new(),
            others: BTreeMap::new(),
            last: 0,
            before: Duration::ZERO,
            told: (now, Counts::default()),
            has_earlier: false,
        }
    }

    /// Counts on from the counts of earlier leaders, which began this long ago.
    pub(crate) fn inherit(&mut self, now: Time, earlier: &Counts, lasted: Duration) {
        let (since, _) = self.tally.of(now, None);
        self.before = lasted.saturating_sub(now.since(since));
        self.told.1 = self.tally.inherit(earlier);
        self.has_earlier = true;
    }

    /// Whether there are counts that no event has.
    pub(crate) fn has_news(&self, now: Time) -> bool {
        self.tally.of(now, None).1 != self.told.1
    }

    /// The counts for an event. There are new ones, and the last event is old enough or the term is about to end; or
    /// [`TOLD_AFTER`] of these other events came after the last one.
    pub(crate) fn tell(&mut self, now: Time, events: usize, is_last: bool) -> Option<ParityView> {
        let is_crowded = events >= TOLD_AFTER;
        let is_due = now.since(self.told.0) >= TOLD_EVERY || self.has_earlier && (is_crowded || is_last);
        if !is_due || !is_crowded && !self.has_news(now) {
            return None;
        }
        let view = self.view(now, None);
        self.told = (now, view.counts.clone());
        self.has_earlier = true;
        Some(view)
    }

    /// Forgets what waits, because the history that it belongs to is void.
    pub(crate) fn forget_waiting(&mut self) {
        self.open.clear();
        self.past.clear();
        self.waiting.clear();
        self.changes.clear();
        self.lately = Default::default();
        self.moved.clear();
        self.began = None;
        self.owners.clear();
        self.log.forget();
    }

    /// Whether something waits.
    pub(crate) fn waits(&self) -> bool {
        !self.open.is_empty() || !self.changes.is_empty()
    }

    pub(crate) fn is_audited(&self) -> bool {
        self.log.is_fed()
    }

    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Takes a new decision. A decision to do the same for other facts keeps its time.
    pub(crate) fn decided(&mut self, now: Time, uid: Uid, mut open: Open) {
        match self.open.get(&uid) {
            Some(known) if known.action == open.action => {
                (open.since, open.is_own_change, open.late) = (known.since, known.is_own_change, known.late);
                open.is_premature |= known.is_premature;
                if (&known.removes, known.orphans) != (&open.removes, open.orphans) {
                    let replaced = known.clone();
                    self.passed(now, uid.clone(), Open { late: None, ..replaced });
                }
                self.open.insert(uid, open);
                return;
            }
            Some(replaced) => {
                let replaced = replaced.clone();
                self.passed(now, uid.clone(), replaced);
            }
            None if self.open.len() >= OPEN_MAX => return self.tally.add(now, |counts| counts.not_compared += 1),
            None => {}
        }
        self.open.insert(uid.clone(), open);
        self.wait_for(now, uid);
    }

    /// Takes where the main store stands. Only the first version counts.
    pub(crate) fn begin_at(&mut self, version: &ResourceVersion) {
        self.began.get_or_insert_with(|| version.clone());
    }

    /// Whether a version of the main store is at or before the position at which the comparison began.
    pub(crate) fn is_earlier(&self, version: &ResourceVersion) -> bool {
        self.began.as_ref().is_some_and(|began| began.reached(version))
    }

    /// Takes what happens to an object.
    pub(crate) fn happened(&mut self, now: Time, what: Lately, uid: &Uid) {
        self.lately[what as usize].add(now, uid.clone());
    }

    /// Whether this happened to an object within [`YOUNG`] before.
    pub(crate) fn has_happened(&self, now: Time, what: Lately, uid: &Uid) -> bool {
        self.lately[what as usize].holds(now, uid)
    }

    /// Where an owner began to orphan its dependents or to wait for them.
    pub(crate) fn moved_at(&self, owner: &Uid) -> Option<&ResourceVersion> {
        self.moved.get(owner)
    }

    /// Forgets an owner that leaves the graph.
    pub(crate) fn owner_left(&mut self, owner: &Uid) {
        self.moved.remove(owner);
    }

    /// Begins the wait of an open decision.
    fn wait_for(&mut self, now: Time, uid: Uid) {
        if self.waiting.len() >= 2 * OPEN_MAX {
            let open = &self.open;
            let is_waiting = |open: &Open, since: Time| open.since == since && open.late.is_none();
            self.waiting.retain(|(since, uid)| open.get(uid).is_some_and(|open| is_waiting(open, *since)));
        }
        self.waiting.push_back((now, uid));
    }

    /// Takes the end of a decision that no change ended.
    pub(crate) fn withdrawn(&mut self, now: Time, uid: &Uid) {
        let Some(open) = self.open.remove(uid).filter(|open| open.late.is_none()) else { return };
        self.tally.add(now, |counts| counts.withdrawn += 1);
        self.passed(now, uid.clone(), Open { is_withdrawn: true, ..open });
    }

    /// Remembers a decision for a while.
    fn passed(&mut self, now: Time, uid: Uid, open: Open) {
        while self.past.pop_front_if(|(at, ..)| now.since(*at) > YOUNG).is_some() {}
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((now, uid, open));
    }

    /// The open decision about an object.
    pub(crate) fn open_decision(&self, uid: &Uid) -> Option<&Open> {
        self.open.get(uid)
    }

    /// The decision about an object that a change belongs to, and whether the change carries it out. If the open
    /// decision is another one, a decision counts that was withdrawn, replaced or followed in part just before, because
    /// the other collector may have acted on the same facts.
    pub(crate) fn decision(&mut self, now: Time, uid: &Uid, deed: &Deed) -> (Option<Open>, bool) {
        let open = self.open.get(uid);
        if open.is_some_and(|open| open.covers(deed)) {
            return (open.cloned(), true);
        }
        let is_it = |(at, of, past): &(Time, Uid, Open)| of == uid && past.covers(deed) && now.since(*at) <= YOUNG;
        let place = self.past.iter().rposition(is_it);
        let Some((at, _, past)) = place.and_then(|place| self.past.remove(place)) else {
            return (open.cloned(), false);
        };
        if past.is_withdrawn {
            self.tally.take_back(at, |counts| &mut counts.withdrawn);
        }
        (Some(past), true)
    }

    /// Begins the wait of a held decision again.
    pub(crate) fn put_off(&mut self, now: Time, uid: &Uid) {
        if let Some(open) = self.open.get_mut(uid) {
            open.since = now;
            self.wait_for(now, uid.clone());
        }
    }

    /// Ends the comparison of a decision without counting it.
    pub(crate) fn end(&mut self, uid: &Uid) {
        self.open.remove(uid);
    }

    /// Takes a change. Returns a change that has to be judged at once.
    pub(crate) fn changed(&mut self, now: Time, change: Change) -> Option<Change> {
        if change.follows {
            let uid = &change.target.uid;
            if self.open.get(uid).is_some_and(|open| open.covers(&change.deed))
                && let Some(open) = self.open.remove(uid)
                && open.action == ActionKind::RemoveOwnerReferences
            {
                self.passed(now, uid.clone(), Open { late: None, ..open });
            }
            if !self.is_audited() && change.is_plain() {
                self.take_back_late(&change);
                self.agreed(now, &change);
                return None;
            }
        }
        self.owners.extend(change.owners.iter().map(|owner| owner.view.owner.uid.clone()));
        self.changes.push_back(change);
        if self.changes.len() > CHANGES_MAX { self.changes.pop_front() } else { None }
    }

    /// Takes an owner that begins to orphan its dependents or to wait for them at this version. The state may have
    /// passed when a change before or after that version is judged.
    pub(crate) fn owner_moved(
        &mut self,
        owner: &ObjectRef,
        version: &ResourceVersion,
        standing: Standing,
        is_comparable: impl Fn(&ObjectRef) -> bool,
    ) {
        if self.moved.len() < CHANGES_MAX || self.moved.contains_key(&owner.uid) {
            self.moved.insert(owner.uid.clone(), version.clone());
        }
        if !self.owners.contains(&owner.uid) {
            return;
        }
        for change in &mut self.changes {
            let Some(at) = change.version.as_ref().filter(|_| is_comparable(&change.target)) else { continue };
            for reference in change.owners.iter_mut().filter(|reference| reference.view.owner == *owner) {
                if version.is_before(at) {
                    reference.later = Some(standing);
                } else if reference.standing == Standing::Solid && reference.later.is_none() {
                    reference.later = Some(Standing::Solid);
                }
            }
        }
    }

    pub(crate) fn take_changes(&mut self) -> VecDeque<Change> {
        core::mem::take(&mut self.changes)
    }

    pub(crate) fn put_back(&mut self, changes: VecDeque<Change>) {
        let owners = changes.iter().flat_map(|change| &change.owners);
        self.owners = owners.map(|owner| owner.view.owner.uid.clone()).collect();
        self.changes = changes;
    }

    fn agreed(&mut self, now: Time, change: &Change) {
        let Some(open) = change.decided.as_ref().filter(|_| change.follows) else {
            self.tally.add(now, |counts| counts.theirs_first += 1);
            return self.tally.row(&change.target, |row| row.agreed += 1);
        };
        let delay = change.at.since(open.since);
        self.tally.add(now, |counts| counts.agree(delay, open.late.is_some()));
        self.tally.row(&change.target, |row| row.agreed += 1);
    }

    /// Takes the disagreement about a late decision back, because the change came after all. The list may have dropped
    /// the disagreement already.
    fn take_back_late(&mut self, change: &Change) {
        let followed = change.decided.as_ref().filter(|_| change.follows);
        let Some(Late { number, class, at }) = followed.and_then(|open| open.late) else { return };
        self.kept_mut(class).remove(&number);
        self.tally.take_back(at, |counts| &mut counts.ours_only[class as usize]);
        self.tally.row(&change.target, |row| row.take_back(class));
    }

    fn kept_mut(&mut self, class: Class) -> &mut BTreeMap<u64, Box<Disagreement>> {
        if class == Class::Unknown { &mut self.unknown } else { &mut self.others }
    }

    /// Counts a judged change. Returns the disagreement if it is one.
    pub(crate) fn judged(&mut self, now: Time, change: Change, finding: Finding) -> Option<Box<Disagreement>> {
        self.take_back_late(&change);
        if self.is_audited() && change.audited.is_none() {
            self.tally.add(now, |counts| counts.without_request += 1);
        }
        match finding {
            Finding::Agreed => self.agreed(now, &change),
            Finding::Unattributed => {
                self.tally.add(now, |counts| counts.unattributed += 1);
                self.tally.row(&change.target, |row| row.unattributed += 1);
            }
            Finding::TheirsOnly(class) => {
                let Change { target, deed, at, version, owners, owner_count, decided, audited, .. } = change;
                return Some(self.disagree(now, |number| Disagreement {
                    number,
                    outcome: Outcome::TheirsOnly,
                    class,
                    target,
                    action: deed.action,
                    decided: decided.map(|open| open.action),
                    at,
                    version,
                    owners: owners.into_iter().map(|owner| owner.view).collect(),
                    owner_count,
                    audited: audited.map(|author| (author.user, author.id)),
                }));
            }
        }
        None
    }

    /// The next open decision whose wait is over.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<(Uid, Open)> {
        let wait = self.wait();
        while let Some((since, uid)) = self.waiting.pop_front_if(|(since, _)| now.since(*since) >= wait) {
            if let Some(open) = self.open.get(&uid).filter(|open| open.since == since && open.late.is_none()) {
                let open = open.clone();
                return Some((uid, open));
            }
        }
        None
    }

    /// Counts a decision whose wait is over.
    pub(crate) fn late(
        &mut self,
        now: Time,
        uid: &Uid,
        disagreement: impl FnOnce(u64) -> Disagreement,
    ) -> Box<Disagreement> {
        let kept = self.disagree(now, disagreement);
        if let Some(open) = self.open.get_mut(uid) {
            open.late = Some(Late { number: kept.number, class: kept.class, at: now });
        }
        kept
    }

    fn disagree(&mut self, now: Time, disagreement: impl FnOnce(u64) -> Disagreement) -> Box<Disagreement> {
        self.last += 1;
        let disagreement = Box::new(disagreement(self.last));
        let (outcome, class) = (disagreement.outcome, disagreement.class);
        self.tally.add(now, |counts| counts.disagree(outcome, class));
        self.tally.row(&disagreement.target, |row| row.disagree(outcome, class));
        let kept = self.kept_mut(class);
        kept.insert(disagreement.number, disagreement.clone());
        if kept.len() > KEPT_MAX {
            kept.pop_first();
        }
        disagreement
    }

    /// The time within which the other collector has to follow a decision.
    pub(crate) fn wait(&self) -> Duration {
        self.tally.slowest().saturating_mul(WAIT_FACTOR).clamp(WAIT_MIN, WAIT_MAX)
    }

    /// The numbers of the last `window`, or of the whole term.
    pub(crate) fn view(&self, now: Time, window: Option<Duration>) -> ParityView {
        let (since, counts) = self.tally.of(now, window);
        ParityView {
            since,
            before: if window.is_none() { self.before } else { Duration::ZERO },
            counts,
            collections: self.tally.rows(),
            open: self.open.len(),
            unsettled: self.changes.len(),
            wait: self.wait(),
            audited: self.is_audited(),
        }
    }

    /// Kept disagreements with a number below `before`, the newest first.
    pub(crate) fn disagreements(&self, before: Option<u64>) -> impl Iterator<Item = &Disagreement> {
        let below = ..before.unwrap_or(u64::MAX);
        let mut unknown = self.unknown.range(below).rev().peekable();
        let mut others = self.others.range(below).rev().peekable();
        core::iter::from_fn(move || {
            let newer = match (unknown.peek(), others.peek()) {
                (Some((one, _)), Some((other, _))) => one > other,
                (one, _) => one.is_some(),
            };
            if newer { unknown.next() } else { others.next() }.map(|(_, kept)| &**kept)
        })
    }
}
