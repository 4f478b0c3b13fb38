//! The next step of each action: pure functions from the content of an answer to the next request or to the end.

use super::answer::{Written, written};
use super::{
    Answer, Attempt, CONFLICT_RETRIES_MAX, Ending, Entry, FailureKind, Live, MERGE_ONLY_MAX, Patch, Reference, Request,
    Seen, State, seen,
};
use crate::object::{GroupResource, Name, ORPHAN_FINALIZER, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::work::{Action, Outcome, Preconditions, PropagationPolicy};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

const NOT_AS_DECIDED: &str = "the facts of the decision have changed";
const CHANGED: &str = "the object has changed since the decision";
const TOO_FAST: &str = "the object changes faster than it can be patched";

/// The next step of an attempt.
#[derive(Debug)]
pub(super) enum Next<W> {
    Read(Then<W>),
    Write(Box<Write<W>>),
    End(Box<Ending>),
}

/// Why the target is read.
#[derive(Debug)]
pub(super) enum Then<W> {
    /// Before the first write.
    First,
    /// The current list must be known before the executor writes it back.
    Rewrite,
    /// This write got a 409.
    Conflict { write: Box<Write<W>>, refused: Box<Ending> },
    /// This patch got a 400 or 422.
    Refused { write: Box<Write<W>>, refused: Box<Ending> },
}

/// A write, and the state to compare its answer with.
#[derive(Debug)]
pub(super) struct Write<W> {
    pub(super) request: Request<W>,
    form: Form,
    /// The version of the object when the write was created.
    against: ResourceVersion,
    /// The object, if another form of patch may follow.
    known: Option<Box<Live<W>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Delete,
    /// A strategic merge patch. Other forms follow if the kind does not support it.
    Strategic,
    /// A patch at exactly the version that was read. The flow starts again after a lost race.
    Rewrite,
}

type Step<W> = Result<Next<W>, Box<Ending>>;

fn flat<W>(step: Step<W>) -> Next<W> {
    step.unwrap_or_else(Next::End)
}

fn ended<W>(outcome: Outcome, message: &str, live: Live<W>) -> Step<W> {
    Err(Ending::seen(outcome, message, live))
}

impl<W: Clone> Attempt<W> {
    pub(super) fn begin(&mut self, merge_only: &BTreeSet<GroupResource>) -> Next<W> {
        flat(self.first_step(merge_only))
    }

    /// Handles the answer to the current request.
    pub(super) fn answered(&mut self, answer: Answer<W>, merge_only: &mut BTreeSet<GroupResource>) -> Next<W> {
        if answer.as_ref().is_err_and(|failure| failure.kind == FailureKind::Unaddressable) {
            self.api_calls -= 1;
        }
        let step = match core::mem::replace(&mut self.state, State::Between) {
            State::Reading { then, .. } => match seen(self.target(), answer) {
                Seen::Here(live) => self.looked(then, *live, merge_only),
                Seen::OtherUid(live) => ended(Outcome::Replaced, "the name is taken by another uid", *live),
                Seen::Gone(ending) | Seen::Unreadable(ending) => Err(ending),
            },
            State::Writing { write, left, .. } => {
                let written = written(self.target(), answer, left);
                if let Written::UnknownPatch(_) = &written
                    && write.form == Form::Strategic
                    && merge_only.len() < MERGE_ONLY_MAX
                {
                    merge_only.insert(self.target().group_resource());
                }
                self.wrote(write, written)
            }
            // The machine passes an answer on only while this attempt has a request.
            State::Between | State::Checking { .. } => {
                Err(Ending::because(Outcome::Transient, "an answer arrived without a request"))
            }
        };
        flat(step)
    }

    fn first_step(&self, merge_only: &BTreeSet<GroupResource>) -> Step<W> {
        let reads_first = self.lease.item.read_first || self.lease.previous_attempt_ambiguous;
        match &self.lease.item.action {
            Action::Delete { propagation_policy, .. } => {
                let version = &self.preconditions().resource_version;
                Ok(if reads_first {
                    Next::Read(Then::First)
                } else {
                    self.delete(*propagation_policy, version.clone())
                })
            }
            Action::RemoveOwnerReferences { .. } => {
                if reads_first {
                    Ok(Next::Read(Then::First))
                } else {
                    self.remove(None, merge_only)
                }
            }
            Action::RemoveFinalizer { finalizer } => {
                let version = self.preconditions().resource_version.clone();
                if reads_first || merge_only.contains(&self.target().group_resource()) {
                    return Ok(Next::Read(Then::First));
                }
                let patch = Patch::DropFinalizer { version: version.clone(), finalizer: finalizer.clone() };
                Ok(self.patch(patch, Form::Strategic, version, None))
            }
            Action::UnblockOwnerReferences { .. } => Ok(Next::Read(Then::First)),
        }
    }

    /// The target was read.
    fn looked(&mut self, then: Then<W>, live: Live<W>, merge_only: &BTreeSet<GroupResource>) -> Step<W> {
        match then {
            Then::First => self.first_look(live, merge_only),
            Then::Rewrite => self.rewrite(live),
            Then::Conflict { write, refused } if live.sighting.resource_version == write.against => {
                // A lost race does not explain this conflict.
                let message = format!(
                    "HTTP 409 although the object is still at version {}; probably a webhook answers 409: {}",
                    write.against, refused.message
                );
                let Ending { message, .. } = *Ending::because(Outcome::AdmissionFailed, &message);
                let observed = Some(live.sighting);
                Err(Box::new(Ending { outcome: Outcome::AdmissionFailed, observed, message, ..*refused }))
            }
            Then::Conflict { write, .. } => match (&self.lease.item.action, write.form) {
                (Action::Delete { propagation_policy, .. }, _) => {
                    self.delete_again(*propagation_policy, &write.against, live)
                }
                (Action::RemoveOwnerReferences { .. }, Form::Strategic) => {
                    let message = "the API server answers 409 to a patch without a version";
                    ended(Outcome::Conflict, message, live)
                }
                (_, Form::Strategic) => self.rewrite(live),
                (_, Form::Delete | Form::Rewrite) => self.rewrite_again(live),
            },
            // A failed test of a JSON Patch has status 422, too.
            Then::Refused { write, .. }
                if write.form == Form::Rewrite
                    && !matches!(self.lease.item.action, Action::RemoveFinalizer { .. })
                    && live.sighting.resource_version != write.against =>
            {
                self.rewrite_again(live)
            }
            // The server may not support a removal of single list entries.
            Then::Refused { write, .. }
                if matches!(write.request, Request::Patch { patch: Patch::DropFinalizer { .. }, .. }) =>
            {
                self.rewrite(live)
            }
            Then::Refused { refused, .. } => Err(Box::new(Ending { observed: Some(live.sighting), ..*refused })),
        }
    }

    fn first_look(&self, live: Live<W>, merge_only: &BTreeSet<GroupResource>) -> Step<W> {
        match &self.lease.item.action {
            Action::Delete { .. } if live.sighting.facts.terminating => {
                ended(Outcome::Unchanged, "the object is being deleted already", live)
            }
            Action::Delete { propagation_policy, .. } => {
                let live = self.as_decided(live)?;
                Ok(self.delete(*propagation_policy, live.sighting.resource_version))
            }
            Action::RemoveOwnerReferences { .. } if self.meant(&live).is_empty() => {
                ended(Outcome::Unchanged, "the object no longer has these references", live)
            }
            Action::RemoveOwnerReferences { .. } => {
                let live = self.as_decided(live)?;
                self.remove(Some(Box::new(live)), merge_only)
            }
            Action::UnblockOwnerReferences { .. } => {
                let places = self.meant(&live);
                if places.is_empty() {
                    return ended(Outcome::Unchanged, "none of the references blocks", live);
                }
                let live = self.as_decided(live)?;
                if shares_uid(&live, &places) || merge_only.contains(&self.target().group_resource()) {
                    return self.rewrite(live);
                }
                let references = places.iter().map(|&at| live.references[at].written.clone()).collect();
                let version = live.sighting.resource_version.clone();
                let patch = Patch::UnblockReferences { version: version.clone(), references };
                Ok(self.patch(patch, Form::Strategic, version, Some(Box::new(live))))
            }
            Action::RemoveFinalizer { .. } => self.rewrite(live),
        }
    }

    /// The write was answered.
    fn wrote(&self, write: Box<Write<W>>, written: Written) -> Step<W> {
        match (written, write.form) {
            (Written::Ended(ending), _) => Err(ending),
            // The server accepted the patch, but does not support a removal of single list entries.
            (Written::Accepted(ending), Form::Strategic) if self.is_finalizer_left(&ending) => {
                Ok(Next::Read(Then::Rewrite))
            }
            (Written::Accepted(ending), form) => Err(Box::new(self.accepted(form, &write.against, *ending))),
            (Written::Conflict(refused), _) => Ok(Next::Read(Then::Conflict { write, refused })),
            (Written::UnknownPatch(_), Form::Strategic) => match write.known {
                Some(live) => self.rewrite(*live),
                None => Ok(Next::Read(Then::Rewrite)),
            },
            (Written::UnknownPatch(ending), Form::Delete | Form::Rewrite)
            | (Written::Refused(ending), Form::Delete) => Err(ending),
            (Written::Refused(refused), Form::Strategic | Form::Rewrite) => {
                Ok(Next::Read(Then::Refused { write, refused }))
            }
        }
    }

    /// Whether the answer to the removal of a finalizer still contains it.
    fn is_finalizer_left(&self, ending: &Ending) -> bool {
        let Action::RemoveFinalizer { finalizer } = &self.lease.item.action else { return false };
        ending.observed.as_ref().is_some_and(|seen| seen.facts.has_finalizer(finalizer))
    }

    fn accepted(&self, form: Form, against: &ResourceVersion, ending: Ending) -> Ending {
        let is_moved = ending.observed.as_ref().map(|seen| seen.resource_version != *against);
        match (&self.lease.item.action, form) {
            // A write that changes nothing leaves the version unchanged.
            (Action::RemoveOwnerReferences { .. }, Form::Strategic) if is_moved == Some(false) => {
                Ending { outcome: Outcome::Unchanged, ..ending }
            }
            // The removal of the last finalizer deletes the object. The answer has the last version, and no newer one
            // follows.
            (Action::RemoveFinalizer { .. }, _) if is_moved == Some(false) => Ending { observed: None, ..ending },
            _ => ending,
        }
    }

    fn delete(&self, policy: PropagationPolicy, version: ResourceVersion) -> Next<W> {
        let request = Request::Delete { target: self.target().clone(), version: version.clone(), policy };
        Next::Write(Box::new(Write { request, form: Form::Delete, against: version, known: None }))
    }

    /// After a conflict: repeats the DELETE if the facts of the decision are unchanged.
    fn delete_again(&mut self, policy: PropagationPolicy, against: &ResourceVersion, live: Live<W>) -> Step<W> {
        if live.sighting.facts.terminating {
            return ended(Outcome::Conflict, "the object is now terminating", live);
        }
        if !live.sighting.resource_version.reached(against) {
            return ended(Outcome::Conflict, "the object's version does not follow the known one", live);
        }
        if self.retries == CONFLICT_RETRIES_MAX {
            return ended(Outcome::Conflict, "the object changes faster than it can be deleted", live);
        }
        self.retries += 1;
        let live = self.as_decided(live)?;
        Ok(self.delete(policy, live.sighting.resource_version))
    }

    /// Removes references by uid alone if that is enough and the kind supports it. Such a patch needs neither a read
    /// nor a version, and removes every entry of a uid.
    fn remove(&self, known: Option<Box<Live<W>>>, merge_only: &BTreeSet<GroupResource>) -> Step<W> {
        if let Action::RemoveOwnerReferences { owner_uids, entries, .. } = &self.lease.item.action
            && entries.is_empty()
            && !merge_only.contains(&self.target().group_resource())
        {
            let version = self.preconditions().resource_version.clone();
            let patch = Patch::DropReferences { uids: owner_uids.clone() };
            return Ok(self.patch(patch, Form::Strategic, version, known));
        }
        match known {
            Some(live) => self.rewrite(*live),
            None => Ok(Next::Read(Then::Rewrite)),
        }
    }

    /// Continues a removal after a lost race, whatever else has changed: a deleted owner never returns.
    fn rewrite_again(&mut self, live: Live<W>) -> Step<W> {
        if self.retries == CONFLICT_RETRIES_MAX {
            return ended(Outcome::Conflict, TOO_FAST, live);
        }
        self.retries += 1;
        self.rewrite(live)
    }

    /// Writes a list back at the version that was read.
    fn rewrite(&self, live: Live<W>) -> Step<W> {
        let against = live.sighting.resource_version.clone();
        let version = against.clone();
        let patch = match &self.lease.item.action {
            Action::RemoveFinalizer { finalizer } => return self.remove_finalizer(finalizer, live),
            Action::RemoveOwnerReferences { entries, .. } => {
                let places = self.meant(&live);
                if places.is_empty() {
                    return ended(Outcome::Unchanged, "the references already have the wanted state", live);
                }
                // Single entries need their indices, because another entry of the same uid stays.
                if entries.is_empty() {
                    let stays = |at: usize| (!places.contains(&at)).then_some(false);
                    Patch::ReplaceReferences { version, list: list(&live, stays) }
                } else {
                    Patch::RemoveReferencesAt { version, places: places.into_iter().rev().collect() }
                }
            }
            Action::UnblockOwnerReferences { .. } => {
                let places = self.meant(&live);
                if places.is_empty() {
                    return ended(Outcome::Unchanged, "the references already have the wanted state", live);
                }
                let live = self.as_decided(live)?;
                if shares_uid(&live, &places) {
                    Patch::UnblockReferencesAt { version, places: places.into_iter().collect() }
                } else {
                    Patch::ReplaceReferences { version, list: list(&live, |at| Some(places.contains(&at))) }
                }
            }
            Action::Delete { .. } => {
                return Err(Ending::because(Outcome::Invalid, "the work item has no patch"));
            }
        };
        Ok(self.patch(patch, Form::Rewrite, against, None))
    }

    fn remove_finalizer(&self, finalizer: &str, live: Live<W>) -> Step<W> {
        if !live.sighting.facts.has_finalizer(finalizer) {
            return ended(Outcome::Unchanged, "the object no longer has the finalizer", live);
        }
        if self.preconditions().must_be_terminating && !live.sighting.facts.terminating {
            return ended(Outcome::Conflict, "the object is not being deleted", live);
        }
        // A user may have deleted the owner again since the decision. The orphaning then covers the dependents that
        // came between, and they still have their references.
        if finalizer == ORPHAN_FINALIZER && live.sighting.resource_version != self.preconditions().resource_version {
            return ended(Outcome::Conflict, CHANGED, live);
        }
        let rest = live.sighting.facts.finalizers.iter().filter(|name: &&Name| ***name != *finalizer);
        let list = rest.map(|name| name.to_string()).collect();
        let version = live.sighting.resource_version;
        Ok(self.patch(Patch::ReplaceFinalizers { version: version.clone(), list }, Form::Rewrite, version, None))
    }

    fn patch(&self, patch: Patch<W>, form: Form, against: ResourceVersion, known: Option<Box<Live<W>>>) -> Next<W> {
        let request = Request::Patch { target: self.target().clone(), patch };
        Next::Write(Box::new(Write { request, form, against, known }))
    }

    fn target(&self) -> &ObjectRef {
        &self.lease.item.target
    }

    fn preconditions(&self) -> &Preconditions {
        &self.lease.item.preconditions
    }

    /// Returns the object, if its facts are still those of the decision. A decision that also depends on labels needs
    /// the same version.
    fn as_decided(&self, live: Live<W>) -> Result<Live<W>, Box<Ending>> {
        let (decided, seen) = (self.preconditions(), &live.sighting);
        let is_same_version = seen.resource_version == decided.resource_version;
        if seen.facts.digest() == decided.facts_digest
            || (is_same_version && seen.facts.digest_beyond_facts() == decided.facts_digest)
        {
            return Ok(live);
        }
        Err(Ending::seen(Outcome::Conflict, NOT_AS_DECIDED, live))
    }

    /// The indices of the item's references.
    fn meant(&self, live: &Live<W>) -> BTreeSet<usize> {
        let none: (&[Uid], &[OwnerReference]) = (&[], &[]);
        let ((uids, entries), only_blocking) = match &self.lease.item.action {
            Action::RemoveOwnerReferences { owner_uids, entries, .. } => ((&owner_uids[..], &entries[..]), false),
            Action::UnblockOwnerReferences { entries } => ((none.0, &entries[..]), true),
            Action::Delete { .. } | Action::RemoveFinalizer { .. } => (none, false),
        };
        let uids: BTreeSet<&Uid> = uids.iter().collect();
        let entries: BTreeSet<&OwnerReference> = entries.iter().collect();
        let is_meant = |entry: &OwnerReference| {
            (uids.contains(&entry.uid) || entries.contains(entry)) && (!only_blocking || entry.blocks())
        };
        let all = live.references.iter().enumerate();
        all.filter(|(_, reference)| reference.entry.as_ref().is_some_and(is_meant)).map(|(at, _)| at).collect()
    }
}

/// The list after `change` for each index: `None` removes the entry, `true` unblocks it.
fn list<W: Clone>(live: &Live<W>, change: impl Fn(usize) -> Option<bool>) -> Vec<Entry<W>> {
    let entry = |(at, reference): (usize, &Reference<W>)| {
        change(at).map(|unblock| Entry { written: reference.written.clone(), unblock })
    };
    live.references.iter().enumerate().filter_map(entry).collect()
}

/// Whether one of these references has a repeated uid: a merge by uid cannot distinguish them.
fn shares_uid<W>(live: &Live<W>, places: &BTreeSet<usize>) -> bool {
    let mut counts: BTreeMap<&Uid, usize> = BTreeMap::new();
    for entry in live.references.iter().filter_map(|reference| reference.entry.as_ref()) {
        *counts.entry(&entry.uid).or_default() += 1;
    }
    let mut meant = places.iter().filter_map(|&at| live.references[at].entry.as_ref());
    meant.any(|entry| counts.get(&entry.uid).is_some_and(|&count| count > 1))
}
