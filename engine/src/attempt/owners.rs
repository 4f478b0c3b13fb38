//! Owner checks. A write that depends on waiting owners needs a read of them right before it. All attempts share these
//! reads.

use super::{
    Answer, Asked, Attempt, Attempts, CHECKS_MAX, Ending, Output, ROUNDS_MAX, Request, RequestId, Seen, State, seen,
};
use crate::object::{ObjectRef, REFERENCES_MAX_BYTES, clip};
use crate::time::Time;
use crate::work::{Action, Finding, FindingResult, MESSAGE_MAX_BYTES, Outcome, Sighting};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

/// How long the answer about an owner is valid. The time counts from the request, because the answer describes a moment
/// after it.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// A slow answer is valid for this many quarters of its own duration for each batch of [`CHECKS_MAX`] owners, because
/// the batches are read one after another.
const BATCH_QUARTERS: u32 = 4;
/// A slow answer is valid for this many quarters more. A write that follows at once takes four. A second write that
/// waits for the first one is sent within the last quarter.
const WRITE_QUARTERS: u32 = 5;
/// Maximum validity of an answer. No request takes longer than half of it.
const GOOD_FOR_MAX: Duration = Duration::from_secs(60);
/// Maximum number of owners whose answers are shared. If there are more, reads are not shared.
const OWNERS_MAX: usize = 4096;
/// Maximum size of references in the findings of one report, besides the first finding. A message can hold several
/// times as much.
const TOLD_MAX_BYTES: usize = REFERENCES_MAX_BYTES;

/// The read of one owner.
#[derive(Debug)]
pub(super) enum OwnerRead {
    UnderWay { asked: Time, waiting: Vec<u64> },
    Done(Known),
}

/// An owner that must wait for its dependents, and the attempt's knowledge of it.
#[derive(Debug)]
pub(super) struct Check {
    owner: ObjectRef,
    known: Option<Known>,
    /// Its read is in flight.
    pending: bool,
}

/// The result of reading an owner.
#[derive(Clone, Debug)]
pub(super) struct Known {
    asked: Time,
    took: Duration,
    state: OwnerState,
}

#[derive(Clone, Debug)]
enum OwnerState {
    Waiting,
    /// The owner has the uid, and does not wait for its dependents.
    NotWaiting(Sighting),
    Absent,
    OtherUid,
    Unreadable(Box<Ending>),
}

impl Check {
    /// The checks of an action, each owner once.
    pub(super) fn all(action: &Action) -> Vec<Check> {
        let owners: BTreeSet<&ObjectRef> = action.owner_checks().iter().collect();
        let check = |owner: &ObjectRef| Check { owner: owner.clone(), known: None, pending: false };
        owners.into_iter().map(check).collect()
    }

    /// Whether valid answers show that all owners wait.
    pub(super) fn are_good(checks: &[Check], now: Time) -> bool {
        let batches = Check::batches(checks);
        checks.iter().all(|check| {
            let known = check.known.as_ref();
            known.is_some_and(|known| known.is_valid(now, batches) && matches!(known.state, OwnerState::Waiting))
        })
    }

    fn batches(checks: &[Check]) -> u32 {
        u32::try_from(checks.len().div_ceil(CHECKS_MAX)).unwrap_or(u32::MAX)
    }
}

impl Known {
    /// Whether the answer is valid for a write that needs this many batches of owners.
    fn is_valid(&self, now: Time, batches: u32) -> bool {
        let good_for = match self.state {
            OwnerState::Waiting => {
                let quarters = batches.saturating_mul(BATCH_QUARTERS).saturating_add(WRITE_QUARTERS);
                (self.took.saturating_mul(quarters) / 4).clamp(GOOD_FOR, GOOD_FOR_MAX)
            }
            OwnerState::NotWaiting(_) | OwnerState::Absent | OwnerState::OtherUid | OwnerState::Unreadable(_) => {
                GOOD_FOR
            }
        };
        now < self.asked + good_for
    }
}

impl<W: Clone> Attempts<W> {
    /// Requests all owners without a valid answer, a bounded number at a time. Returns true while answers are missing,
    /// and an ending if an answer forbids the write.
    pub(super) fn read_owners(
        &mut self,
        now: Time,
        number: u64,
        attempt: &mut Attempt<W>,
        checks: &mut [Check],
    ) -> Result<bool, Box<Ending>> {
        let mut pending = checks.iter().filter(|check| check.pending).count();
        let batches = Check::batches(checks);
        if pending == 0 {
            judge(checks)?;
            let is_outdated = |check: &Check| check.known.as_ref().is_some_and(|known| !known.is_valid(now, batches));
            for check in checks.iter_mut().filter(|check| is_outdated(check)) {
                check.known = self.shared(now, &check.owner, batches).or(check.known.take());
            }
            if checks.iter().any(is_outdated) {
                // All owners are read again, so that their answers have one age. Otherwise the older answers could be
                // too old each time that the newer ones come.
                checks.iter_mut().for_each(|check| check.known = None);
                attempt.rounds += 1;
            }
        }
        if attempt.rounds > ROUNDS_MAX {
            let message = "the owner checks became too old before the write could be sent: the API server answers too unevenly, or accepts no connection in time";
            return Err(Ending::because(Outcome::Transient, message));
        }
        for check in checks.iter_mut().filter(|check| !check.pending && check.known.is_none()) {
            if pending == CHECKS_MAX {
                break;
            }
            if attempt.rounds == 0 {
                check.known = self.shared(now, &check.owner, batches);
            }
            if check.known.is_none() {
                check.pending = true;
                pending += 1;
                self.read_owner(now, number, attempt, &check.owner);
            }
        }
        if pending == 0 {
            judge(checks)?;
        }
        Ok(pending > 0)
    }

    /// Returns a valid answer that this attempt or another one has received.
    fn shared(&self, now: Time, owner: &ObjectRef, batches: u32) -> Option<Known> {
        match self.owners.get(owner) {
            Some(OwnerRead::Done(known)) if known.is_valid(now, batches) => Some(known.clone()),
            Some(OwnerRead::Done(_) | OwnerRead::UnderWay { .. }) | None => None,
        }
    }

    fn read_owner(&mut self, now: Time, number: u64, attempt: &mut Attempt<W>, owner: &ObjectRef) {
        if let Some(OwnerRead::UnderWay { waiting, .. }) = self.owners.get_mut(owner) {
            waiting.push(number);
            return;
        }
        if self.owners.len() >= OWNERS_MAX {
            self.owners.retain(|_, read| match read {
                OwnerRead::UnderWay { .. } => true,
                OwnerRead::Done(known) => known.is_valid(now, 1),
            });
        }
        if self.owners.len() >= OWNERS_MAX {
            self.owners.retain(|_, read| matches!(read, OwnerRead::UnderWay { .. }));
        }
        let id = RequestId(self.number());
        attempt.api_calls += 1;
        self.owners.insert(owner.clone(), OwnerRead::UnderWay { asked: now, waiting: [number].into() });
        self.requests.insert(id, Asked::Owner(owner.clone()));
        self.outputs.push_back(Output::Ask { id, lease: attempt.lease.id, request: Request::Get(owner.clone()) });
    }

    pub(super) fn owner_answered(&mut self, now: Time, owner: ObjectRef, answer: Answer<W>) {
        let Some(OwnerRead::UnderWay { asked, waiting }) = self.owners.remove(&owner) else { return };
        let known = Known { asked, took: now.since(asked), state: OwnerState::of(&owner, answer) };
        self.owners.insert(owner.clone(), OwnerRead::Done(known.clone()));
        for number in waiting {
            let is_checking = |attempt: &mut Attempt<W>| matches!(attempt.state, State::Checking { .. });
            if !self.attempts.get_mut(&number).is_some_and(is_checking) {
                continue;
            }
            let Some(mut attempt) = self.attempts.remove(&number) else { continue };
            let State::Checking { mut checks, write } = core::mem::replace(&mut attempt.state, State::Between) else {
                continue;
            };
            if let Some(check) = checks.iter_mut().find(|check| check.owner == owner) {
                check.pending = false;
                check.known = Some(known.clone());
            }
            self.check(now, number, attempt, checks, write);
        }
    }
}

impl OwnerState {
    fn of<W>(owner: &ObjectRef, answer: Answer<W>) -> OwnerState {
        match seen(owner, answer) {
            Seen::Here(live) if live.sighting.facts.deletes_dependents() => OwnerState::Waiting,
            Seen::Here(live) => OwnerState::NotWaiting(live.sighting),
            Seen::OtherUid(_) => OwnerState::OtherUid,
            Seen::Gone(_) => OwnerState::Absent,
            Seen::Unreadable(ending) => OwnerState::Unreadable(ending),
        }
    }
}

/// Returns an error if an owner does not wait. The findings begin with owners that are alive and not waiting, then gone
/// ones, then unreadable ones. A report holds a limited number of findings, and at least one.
fn judge(checks: &[Check]) -> Result<(), Box<Ending>> {
    let (mut living, mut gone, mut unreadable) = (Vec::new(), Vec::new(), None);
    for check in checks {
        let finding = |result| Finding { owner: check.owner.clone(), result };
        match check.known.as_ref().map(|known| &known.state) {
            None | Some(OwnerState::Waiting) => {}
            Some(OwnerState::NotWaiting(sighting)) => living.push(finding(FindingResult::Exists(sighting.clone()))),
            Some(OwnerState::Absent) => gone.push(finding(FindingResult::Absent)),
            Some(OwnerState::OtherUid) => gone.push(finding(FindingResult::OtherUid)),
            Some(OwnerState::Unreadable(ending)) => unreadable = unreadable.or(Some(ending)),
        }
    }
    let (outcome, message) = match (living.is_empty(), gone.is_empty(), unreadable) {
        (false, _, _) => (Outcome::OwnerExists, "an owner exists and does not wait for its dependents"),
        (true, false, _) => (Outcome::Conflict, "an owner that should wait for its dependents no longer exists"),
        (true, true, Some(ending)) => {
            // The owner may be on another server, so a 401 says nothing about the credentials.
            let refused = ending.outcome == Outcome::Unauthenticated && ending.http_status != 401;
            let about_us = refused || ending.outcome == Outcome::Forbidden;
            let outcome = if about_us { ending.outcome } else { Outcome::Transient };
            let message = format!("cannot read an owner that must wait: {}", ending.message);
            let message = clip(&message, MESSAGE_MAX_BYTES);
            return Err(Box::new(Ending { outcome, message, ..(**ending).clone() }));
        }
        (true, true, None) => return Ok(()),
    };
    living.append(&mut gone);
    living.truncate(CHECKS_MAX);
    let mut told = 0;
    living.retain(|finding| {
        let FindingResult::Exists(sighting) = &finding.result else { return true };
        let is_first = told == 0;
        told += sighting.facts.reference_bytes();
        is_first || told <= TOLD_MAX_BYTES
    });
    Err(Box::new(Ending { findings: living, ..*Ending::because(outcome, message) }))
}
