//! The judge of the collector. It checks each write against the true state at the moment of the write, and lists the
//! work that is left at the end.
//!
//! The judge reads the semantics in the most direct way. The collector works on the state that it was shown, which may
//! be late. Each rule says how late:
//!
//! * A DELETE never rests on an owner that exists and is not in foreground deletion. An owner check may be a second
//!   old.
//! * A dependent of an orphaning owner stays if its reference is older than the owner's mark. It also stays if its
//!   reference is newer than the mark, older than the owner's end, and the acting leader was shown the mark.
//! * The finalizer `orphan` goes when no reference to the owner from before its mark is left. Lag is no excuse.
//! * The finalizer `foregroundDeletion` goes when no blocking reference from before the mark is left. This counts only
//!   references that the acting leader was shown, and references in collections that the leader knew to be incomplete.
//! * An owner that is proven absent is absent, however late the proof arrives. Only a restore brings back an object
//!   with the same uid.
//! * A restore undoes the facts of a decision, and neither the uid nor the version of the target shows it. The judge
//!   uses the history of the decision if the leader decided before it could know of the restore, and only while the
//!   executor cannot know of it: the leader's message has not arrived, and the session has not ended. A leader can know
//!   when a connection breaks, a watch ends before its limit, a position expires, or a list goes back. A watch that
//!   reaches its limit in the same moment gives the leader no information. A write that leaves after that is a
//!   violation of its own. An owner may have orphaned its dependents in a lost history and be gone in the present one.
//!   The collector may then keep its dependents.

use super::kinds::{KINDS, UNWATCHED, by_kind, stored};
use super::perils::{has_too_many, is_poisoned};
use super::rewind::Former;
use super::truth::{Life, Moment, Truth, Worth, short};
use engine::evidence::Proof;
use engine::object::{FOREGROUND_FINALIZER, Facts, ORPHAN_FINALIZER, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::work::{CHECKS_MAX, Outcome, PropagationPolicy, ToLeader, WorkReport};
use std::collections::BTreeMap;

/// The state that a leader had been shown when it granted a lease.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) replica: usize,
    /// The newest history of the store that the leader could know of.
    pub(super) history: usize,
    /// By kind: the revision up to which the leader had the collection. `None` if the collection was incomplete.
    pub(super) through: Vec<Option<u64>>,
    /// By kind: whether discovery said that the kind is served.
    pub(super) served: Vec<bool>,
    /// The owners that the leader was shown in orphaning deletion. The value is the revision of the store when the
    /// leader was shown the owner's end. References from before this revision go. The value is `None` while the
    /// leader's memory rests on more than one watch.
    pub(super) orphaning: BTreeMap<Uid, Option<u64>>,
}

impl Shown {
    /// Returns whether the leader knew that the owner orphans a reference that began at `since`. The owner ended at
    /// `until`.
    fn knew_orphaning(&self, uid: &Uid, since: u64, until: u64) -> bool {
        self.orphaning.get(uid).is_some_and(|ended| since < until || ended.is_some_and(|ended| since <= ended))
    }
}

/// The history by which a write is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    pub(super) shown: &'a Shown,
    /// The history of the decision, if that history has ended and its leases may still be carried out.
    pub(super) former: Option<&'a Former>,
}

impl Judge<'_> {
    /// Judges by the present truth and by the truth at the end of the former history. Returns true if only the former
    /// history permits the write.
    pub(super) fn judge(
        &self,
        truth: &Truth,
        sent: Moment,
        law: impl Fn(&Truth, Moment, &Shown) -> Result<(), String>,
    ) -> Result<bool, String> {
        let present = law(truth, sent, self.shown);
        let permitted = |former: &Former| {
            // A DELETE that crosses a restore rests on the owner check from before the restore.
            let at = Moment { now: former.ended, ..sent };
            law(&former.truth, at, self.shown).is_ok()
        };
        match self.former {
            Some(former) if present.is_err() && permitted(former) => Ok(true),
            Some(_) | None => present.map(|()| false),
        }
    }
}

/// Judges a DELETE that the API server is about to accept.
pub(super) fn delete(
    truth: &Truth,
    at: Moment,
    target: &Life,
    policy: PropagationPolicy,
    shown: &Shown,
) -> Result<(), String> {
    let facts = target.facts();
    let refused = |why: String| Err(format!("deletes {}: {why}", target.named()));
    if facts.terminating {
        return refused(String::from("it is terminating already"));
    }
    if facts.owners.is_empty() {
        return refused(String::from("it has no owner"));
    }
    if facts.hold {
        return refused(String::from("it carries the hold annotation"));
    }
    if has_too_many(target) {
        return refused(String::from("it has more references than the collector takes"));
    }
    let mut waits = false;
    for owner in &facts.owners {
        let worth = truth.worth(at, target, owner, &|uid, since, until| shown.knew_orphaning(uid, since, until));
        let known = by_kind(owner.group(), &owner.kind).is_some();
        match worth {
            Worth::Gone | Worth::GonePerhapsOrphaning => {}
            Worth::Waiting | Worth::JustWaited => waits = true,
            // The kind was served at some time, so the leader may have a proof of absence from that time.
            Worth::Unresolvable if known => {}
            Worth::Unresolvable
            | Worth::Unreadable
            | Worth::Misplaced
            | Worth::Solid
            | Worth::Orphaning
            | Worth::GoneOrphaning => {
                return refused(format!("its owner {} {} is {worth:?}", owner.kind, short(&owner.uid)));
            }
        }
    }
    let wanted = if facts.has_finalizer(ORPHAN_FINALIZER) {
        PropagationPolicy::Orphan
    } else if facts.has_finalizer(FOREGROUND_FINALIZER) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    if policy != wanted && !(waits_or_waited(truth, target, waits) && policy == PropagationPolicy::Foreground) {
        return refused(format!("with policy {policy:?} instead of {wanted:?}"));
    }
    Ok(())
}

/// Returns whether an owner is in foreground deletion, or was when it went.
fn waits_or_waited(truth: &Truth, target: &Life, waits: bool) -> bool {
    waits || target.facts().owners.iter().any(|owner| truth.was_ever_marked(&owner.uid))
}

/// Judges a patch of the owner references that the API server accepted.
///
/// No version guards a removal by uid. If a user is faster, the object may lose its last owner and stay for ever.
/// Upstream's collector has the same race. The race is possible only if the object is not `as_decided`.
pub(super) fn references(
    truth: &Truth,
    at: Moment,
    before: &Life,
    after: &Facts,
    as_decided: bool,
    shown: &Shown,
) -> Result<(), String> {
    let refused = |why: String| Err(format!("patches {}: {why}", before.named()));
    let left = &after.owners;
    let removed: Vec<_> =
        before.facts().owners.iter().filter(|owner| !left.iter().any(|other| is_same(other, owner))).collect();
    for owner in left {
        if !before.facts().owners.iter().any(|known| is_same(known, owner)) {
            return refused(format!("it has a new owner {} {}", owner.kind, short(&owner.uid)));
        }
    }
    for owner in &before.facts().owners {
        let freed = |other: &&OwnerReference| is_same(other, owner) && !other.blocks();
        let unblocked =
            owner.blocks() && left.iter().filter(freed).count() > before.facts().owners.iter().filter(freed).count();
        if unblocked && !truth.could_be_cycle(&before.object.uid, &owner.uid) {
            return refused(format!("unblocks {} {} without a cycle", owner.kind, short(&owner.uid)));
        }
    }
    let saw = |uid: &Uid, since: u64, until: u64| shown.knew_orphaning(uid, since, until);
    let worth = |owner| truth.worth(at, before, owner, &saw);
    for owner in &removed {
        let fair = match worth(owner) {
            Worth::Gone | Worth::GoneOrphaning | Worth::GonePerhapsOrphaning => true,
            Worth::Waiting | Worth::JustWaited | Worth::Orphaning => true,
            // A reference with an unknown kind may name an object that another group serves.
            Worth::Unresolvable => {
                by_kind(owner.group(), &owner.kind).is_some() || truth.is_orphaned_namesake(before, owner)
            }
            Worth::Solid => truth.was_ever_marked(&owner.uid),
            Worth::Misplaced | Worth::Unreadable => false,
        };
        // A patch by uid takes all entries with that uid. It takes an entry that a user corrected in the meantime too.
        let shares = removed.iter().filter(|other| other.uid == owner.uid).count() > 1;
        let corrected = !as_decided && before.ever_meant_another(owner);
        if !fair && !shares && !corrected {
            return refused(format!("removes its owner {} {}, {:?}", owner.kind, short(&owner.uid), worth(owner)));
        }
    }
    let orphaned = removed.iter().any(|owner| truth.ever_orphaned(&owner.uid));
    if left.is_empty() && !removed.is_empty() && !orphaned && as_decided {
        return refused(String::from("it has lost its last owner, and none orphaned it"));
    }
    Ok(())
}

fn is_same(one: &OwnerReference, other: &OwnerReference) -> bool {
    one.uid == other.uid && one.kind == other.kind && one.name == other.name && one.api_version == other.api_version
}

/// Judges the removal of a finalizer.
///
/// A user may delete the owner in another way and then in this way again. Each deletion is a new mark. The collector
/// may still remove `foregroundDeletion` by a decision about the first mark, and not `orphan`: dependents that came
/// between the two would keep their references to an owner that is gone.
pub(super) fn finalizer(
    truth: &Truth,
    before: &Life,
    finalizer: &str,
    decided_at: Option<&ResourceVersion>,
    shown: &Shown,
) -> Result<(), String> {
    let refused = |why: String| Err(format!("takes {finalizer} from {}: {why}", before.named()));
    if !before.facts().terminating {
        return refused(String::from("it is not terminating"));
    }
    let decided_before =
        |mark: u64| decided_at.is_some_and(|decided| decided.is_before(&ResourceVersion::parse(&mark.to_string())));
    let marks = [before.waiting_since, before.orphaning.map(|orphaning| orphaning.since)];
    if finalizer != ORPHAN_FINALIZER && marks.into_iter().flatten().any(decided_before) {
        return Ok(());
    }
    for (dependent, reference) in truth.dependents(before) {
        // An object of a kind that is not served blocks nothing.
        if !truth.served[dependent.kind] || !shown.served[dependent.kind] || dependent.kind == UNWATCHED {
            continue;
        }
        let (since, blocking_since) = truth.since(dependent, reference);
        // A reference to a group that is not served is only a claim.
        let named = by_kind(reference.group(), &reference.kind).unwrap_or(dependent.kind);
        if finalizer == FOREGROUND_FINALIZER && !(truth.served[named] && shown.served[named]) {
            continue;
        }
        if finalizer == ORPHAN_FINALIZER {
            let Some(orphaning) = before.orphaning.filter(|orphaning| since < orphaning.since) else { continue };
            if !truth.was_unserved(dependent.kind, orphaning.began, u64::MAX) {
                return refused(format!("{} still refers to it, as it did before the mark", dependent.named()));
            }
        } else if finalizer == FOREGROUND_FINALIZER {
            let Some(since) = blocking_since.filter(|since| before.waiting_since.is_some_and(|mark| *since < mark))
            else {
                continue;
            };
            match shown.through[dependent.kind] {
                None => {
                    return refused(format!("{} blocks it, in a collection that is not complete", dependent.named()));
                }
                Some(through) if through >= since => return refused(format!("{} blocks it", dependent.named())),
                Some(_) => {}
            }
        } else {
            return refused(String::from("it is not ours"));
        }
    }
    Ok(())
}

/// Judges a proof of absence. With `has_list`, the kind of the owner can be listed, and reads alone prove nothing.
pub(super) fn proof(truth: &Truth, owner: &ObjectRef, proof: &Proof, has_list: bool) -> Result<(), String> {
    let refused =
        |why: &str| Err(format!("takes {owner} ({}) for absent by {}: {why}", short(&owner.uid), proof.as_str()));
    if *proof == Proof::ReadTwice && has_list {
        return refused("its kind can be listed");
    }
    let is_there = |life: &Life| {
        life.exists()
            && by_kind(&owner.group, &owner.kind).map(stored) == Some(life.kind)
            && (&life.object.namespace, &life.object.name) == (&owner.namespace, &owner.name)
    };
    if truth.lives.get(&owner.uid).is_some_and(is_there) { refused("it is there") } else { Ok(()) }
}

/// The fate of the writes of a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// The API server accepted a write.
    pub(super) accepted: bool,
    /// A write left, and no answer arrived.
    pub(super) unanswered: bool,
}

/// Judges the report of a lease. The report names every write that was accepted, and says so if a result is unknown.
pub(super) fn report(report: &WorkReport, fate: Fate) -> Result<(), String> {
    let says = report.outcome;
    let fair = match (fate.unanswered, says) {
        (true, _) => says == Outcome::Ambiguous,
        (false, Outcome::Done) => fate.accepted,
        (false, Outcome::Unchanged) => true,
        (false, _) => !fate.accepted,
    };
    if fair { Ok(()) } else { Err(format!("reports {says:?} of {fate:?}")) }
}

/// Refuses a message that the stream does not take. Everything behind such a message would wait for ever.
pub(super) fn message(message: &ToLeader) -> Result<(), String> {
    let ToLeader::Reports { reports, .. } = message else { return Ok(()) };
    match reports.iter().map(|report| report.findings.len()).max() {
        Some(most) if most > CHECKS_MAX => Err(format!("a report has {most} findings, and no stream takes them")),
        Some(_) | None => Ok(()),
    }
}

/// Lists the work that is left, one sentence for each object. The list is empty at the fixpoint.
pub(super) fn unfinished(truth: &Truth, now: u64) -> Vec<String> {
    let mut left = Vec::new();
    for life in truth.lives.values().filter(|life| life.exists() && truth.served[life.kind]) {
        if life.kind == UNWATCHED || has_too_many(life) {
            continue;
        }
        if let Some(why) = unfinished_one(truth, now, life) {
            left.push(format!("{}: {why}", life.named()));
        }
    }
    left
}

fn unfinished_one(truth: &Truth, now: u64, life: &Life) -> Option<String> {
    let facts = life.facts();
    if facts.terminating {
        // An object that referred to the owner before its kind ceased to be served may still refer to it.
        if truth.lives.values().any(|other| !truth.served[other.kind] && other.has_referred_to(life)) {
            return None;
        }
        if facts.has_finalizer(ORPHAN_FINALIZER) {
            return Some(String::from("still orphans its dependents"));
        }
        let mut blocking = truth.dependents(life).filter(|(_, reference)| reference.blocks());
        if facts.has_finalizer(FOREGROUND_FINALIZER) && blocking.next().is_none() {
            return Some(String::from("still in foreground deletion, and nothing blocks it"));
        }
        return None;
    }
    let worth = |owner: &OwnerReference| {
        let unserved = by_kind(owner.group(), &owner.kind).is_some_and(|kind| !truth.served[kind]);
        let gone = truth.owner(life, owner).is_none_or(|owner| !owner.exists());
        let worth = truth.worth(Moment::unchecked(now), life, owner, &|_, _, _| false);
        // A leader of another term cannot know of the orphaning.
        if unserved && gone && worth != Worth::Misplaced { Worth::Unresolvable } else { worth }
    };
    let worths: Vec<Worth> = facts.owners.iter().map(worth).collect();
    if worths.contains(&Worth::Misplaced) {
        return None;
    }
    let keeps = |worth: &Worth| matches!(worth, Worth::Solid | Worth::Orphaning | Worth::GoneOrphaning);
    let ends = |worth: &Worth| matches!(worth, Worth::Gone | Worth::Waiting | Worth::JustWaited);
    let orphans =
        |worth: &Worth| matches!(worth, Worth::Orphaning | Worth::GoneOrphaning | Worth::GonePerhapsOrphaning);
    if worths.iter().any(keeps) {
        let stale = worths.iter().position(|worth| ends(worth) || orphans(worth))?;
        let owner = &facts.owners[stale];
        return Some(format!("still refers to {} {}, {:?}", owner.kind, short(&owner.uid), worths[stale]));
    }
    let unknown = worths.contains(&Worth::Unresolvable) || worths.contains(&Worth::Unreadable);
    if unknown || is_poisoned(&truth.perils, life) || worths.is_empty() || facts.hold {
        return None;
    }
    let kind = KINDS[life.kind].kind;
    Some(format!("this {kind} is to go, or to lose a reference: {worths:?}"))
}
