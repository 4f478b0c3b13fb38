//! What the collector may do, judged from the true state at the moment of the write; and what must be done in the end.
//!
//! The rules are the slow and obvious reading of the semantics. Where the collector works on what it was shown, and
//! what it was shown may be late, the rule says how late:
//!
//! * A DELETE never rests on an owner that exists and is not in foreground deletion, but an owner check may be a second
//!   old.
//! * An owner that orphaned its dependents keeps whatever referred to it before its mark, and what came between its
//!   mark and its end if the acting leader was shown the mark.
//! * `orphan` leaves when nothing refers to the owner that did so before its mark; no lag excuses it.
//! * `foregroundDeletion` leaves when no blocking reference older than the mark is left that the acting leader had been
//!   shown, or that lies in a collection it knew to be incomplete.
//! * An owner that is proven absent is absent, however late the proof comes: only a restore brings an object back under
//!   the same uid.
//! * A store that is restored undoes what a decision rested on, and neither uid nor version of the target tell. What
//!   was decided before the acting leader's connections broke is judged by the history it was decided in, as long as
//!   its executor cannot know better: the leader's word has not reached it, and its session has not ended. A write that
//!   leaves later is a violation of its own. An owner that orphaned its dependents in a history that is lost, and is
//!   gone in the present one, may be taken for one that orphaned them: they are kept.

use super::kinds::{KINDS, UNWATCHED, by_kind, stored};
use super::perils::{has_too_many, is_poisoned};
use super::rewind::Former;
use super::truth::{Life, Moment, Truth, Worth, short};
use engine::evidence::Proof;
use engine::object::{FOREGROUND_FINALIZER, Facts, ORPHAN_FINALIZER, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::work::{CHECKS_MAX, Outcome, PropagationPolicy, ToLeader, WorkReport};
use std::collections::BTreeMap;

/// What the leader that granted a lease had been shown by then.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) replica: usize,
    /// The last history of the store that it could know of.
    pub(super) history: usize,
    /// By kind: the revision up to which its collection was shown, if it was complete.
    pub(super) through: Vec<Option<u64>>,
    /// By kind: whether it was said to be served.
    pub(super) served: Vec<bool>,
    /// Owners it was shown in orphaning deletion, with the revision that the store had when it was shown their end: what referred to
    /// them by then loses its reference. `None` while their memory rests on more than the one watch.
    pub(super) orphaning: BTreeMap<Uid, Option<u64>>,
}

impl Shown {
    /// Whether it knew that an owner orphans what has referred to it since `since`; `until`: the owner's end.
    fn knew_orphaning(&self, uid: &Uid, since: u64, until: u64) -> bool {
        self.orphaning.get(uid).is_some_and(|ended| since < until || ended.is_some_and(|ended| since <= ended))
    }
}

/// By which history a write is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    pub(super) shown: &'a Shown,
    /// The history in which it was decided, if that has ended since and its leases can still be carried out.
    pub(super) former: Option<&'a Former>,
}

impl Judge<'_> {
    /// Judges by the truth, and by what was true when the former history ended. True if only that history permits it.
    pub(super) fn judge(
        &self,
        truth: &Truth,
        sent: Moment,
        law: impl Fn(&Truth, Moment, &Shown) -> Result<(), String>,
    ) -> Result<bool, String> {
        let present = law(truth, sent, self.shown);
        let permitted = |former: &Former| {
            // A DELETE that crosses a restore rests on the owner check that it was sent with.
            let at = Moment { now: former.ended, ..sent };
            law(&former.truth, at, self.shown).is_ok()
        };
        match self.former {
            Some(former) if present.is_err() && permitted(former) => Ok(true),
            Some(_) | None => present.map(|()| false),
        }
    }
}

/// A DELETE that the API server is about to accept.
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
            // Its kind was there once: it may have been proven absent then.
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

/// Whether an owner is, or was when it went, in foreground deletion.
fn waits_or_waited(truth: &Truth, target: &Life, waits: bool) -> bool {
    waits || target.facts().owners.iter().any(|owner| truth.was_ever_marked(&owner.uid))
}

/// A patch of the owner references that was accepted.
///
/// A removal by uid alone is guarded by no version: where a user was faster, the object may lose its last owner and so stay for ever.
/// Upstream's collector has that race too; it is one only where the object is not `as_decided`.
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
        // A patch by uid takes all entries of that uid.
        let shares = removed.iter().filter(|other| other.uid == owner.uid).count() > 1;
        // It does so too where a user has put a reference right in the meantime.
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

/// A finalizer that was taken.
///
/// A user who deletes the owner in another way and then in this one again begins another mark: what was decided about the first one is
/// carried out, as it would have been a moment earlier.
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
    if marks.into_iter().flatten().any(decided_before) {
        return Ok(());
    }
    for (dependent, reference) in truth.dependents(before) {
        // A kind that is not served holds back nothing.
        if !truth.served[dependent.kind] || !shown.served[dependent.kind] || dependent.kind == UNWATCHED {
            continue;
        }
        let (since, blocking_since) = truth.since(dependent, reference);
        // By a group that is not served, a reference is no more than a claim.
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

/// An absence that a leader takes for proven. With `has_list` the owner's kind can be listed, and reads alone prove nothing.
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

/// The outcome of the writes of a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// The API server accepted one.
    pub(super) accepted: bool,
    /// One has left and was never answered.
    pub(super) unanswered: bool,
}

/// The report of a lease: what it says was written was, and where that is not known it says so.
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

/// A message that a stream would not take, so that everything behind it waits for ever.
pub(super) fn message(message: &ToLeader) -> Result<(), String> {
    let ToLeader::Reports { reports, .. } = message else { return Ok(()) };
    match reports.iter().map(|report| report.findings.len()).max() {
        Some(most) if most > CHECKS_MAX => Err(format!("a report has {most} findings, and no stream takes them")),
        Some(_) | None => Ok(()),
    }
}

/// What is left to be done, one sentence each; empty at the fixpoint.
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
        // An object that referred to it before its kind ceased to be served may still do so.
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
        // A leader that came later cannot know.
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
