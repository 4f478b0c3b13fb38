//! Owner checks: a waiting owner is read just before a DELETE that rests on its waiting, once for all items in hand.

use super::{Attempt, Ending, Reading, Seen, Step, read};
use crate::server::Server;
use engine::object::{ObjectRef, clip};
use engine::time::Time;
use engine::work::{CheckBy, ExistenceCheck, Finding, FindingResult, MESSAGE_MAX_BYTES, Outcome, Sighting};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How old a read may be when the DELETE leaves, counted from when the read was sent: what the answer shows was true no earlier.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Owners remembered at once. Past that, reads are not shared.
const OWNERS_MAX: usize = 4096;
/// How often the owners of one item are read until all answers are fresh at the same time.
const ROUNDS_MAX: u32 = 5;

/// The reads of owners, under way and just done, each shared by all items that ask.
#[derive(Debug, Default)]
pub(super) struct OwnerReads(Mutex<BTreeMap<ObjectRef, OwnerRead>>);

#[derive(Clone, Debug)]
struct OwnerRead {
    sent: Time,
    answer: Shared<BoxFuture<'static, OwnerState>>,
}

/// What one read says about an owner that should be waiting for its dependents.
#[derive(Clone, Debug)]
enum OwnerState {
    Waiting,
    /// There with the uid, and not, or no longer, waiting.
    NotWaiting(Sighting),
    Absent,
    OtherUid,
    Unreadable(Reading),
}

impl Attempt<'_> {
    /// Returns only where every owner waits, by reads that are fresh at this very moment; the caller sends without waiting again.
    pub(super) async fn check_owners(&self, owners: &[ObjectRef]) -> Step<()> {
        if owners.is_empty() {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let mut oldest = self.bench.clock.now();
            let mut states = Vec::with_capacity(owners.len());
            for owner in owners {
                self.may_write()?;
                let read = self.owner(owner);
                oldest = oldest.min(read.sent);
                states.push((owner, read.answer.await));
            }
            if let Some(ending) = judge(states) {
                return Err(Box::new(ending));
            }
            if self.bench.clock.now() < oldest + FRESH_FOR {
                return Ok(());
            }
        }
        let message = "the API server answers too slowly to know that an owner still waits for its dependents";
        Err(Box::new(Ending::because(Outcome::Transient, message)))
    }

    fn owner(&self, owner: &ObjectRef) -> OwnerRead {
        let now = self.bench.clock.now();
        let mut reads = self.bench.owners.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = reads.get(owner).filter(|read| now < read.sent + FRESH_FOR) {
            return read.clone();
        }
        self.api_calls.fetch_add(1, Ordering::Relaxed);
        let read = OwnerRead { sent: now, answer: ask(self.server.clone(), owner.clone()).boxed().shared() };
        if reads.len() >= OWNERS_MAX {
            reads.retain(|_, read| now < read.sent + FRESH_FOR);
        }
        if reads.len() < OWNERS_MAX {
            reads.insert(owner.clone(), read.clone());
        }
        read
    }
}

async fn ask(server: Server, owner: ObjectRef) -> OwnerState {
    match read(&server, &owner).await {
        Ok(Seen::Here(live)) if live.sighting.facts.deletes_dependents() => OwnerState::Waiting,
        Ok(Seen::Here(live)) => OwnerState::NotWaiting(live.sighting),
        Ok(Seen::OtherUid(_)) => OwnerState::OtherUid,
        Ok(Seen::Gone(_)) => OwnerState::Absent,
        Err(reading) => OwnerState::Unreadable(reading),
    }
}

/// `None` where all wait. An owner that lives without waiting outweighs one that is gone, and that one an unreadable one.
fn judge(states: Vec<(&ObjectRef, OwnerState)>) -> Option<Ending> {
    let mut lives = false;
    let mut findings = Vec::new();
    let mut unreadable = None;
    for (owner, state) in states {
        let result = match state {
            OwnerState::Waiting => continue,
            OwnerState::NotWaiting(sighting) => {
                lives = true;
                FindingResult::Exists(sighting)
            }
            OwnerState::Absent => FindingResult::Absent(None),
            OwnerState::OtherUid => FindingResult::OtherUid(None),
            OwnerState::Unreadable(reading) => {
                unreadable.get_or_insert(reading);
                continue;
            }
        };
        findings.push(Finding { check: ExistenceCheck { object: owner.clone(), by: CheckBy::Read }, result });
    }
    if lives {
        let message = "an owner is there and does not wait for its dependents";
        return Some(Ending { findings, ..Ending::because(Outcome::OwnerExists, message) });
    }
    if !findings.is_empty() {
        let message = "an owner that waited for its dependents is not there any more";
        return Some(Ending { findings, ..Ending::because(Outcome::Conflict, message) });
    }
    unreadable.map(|reading| {
        let about_us = matches!(reading.outcome, Outcome::Forbidden | Outcome::Unauthenticated);
        let outcome = if about_us { reading.outcome } else { Outcome::Transient };
        let message = format!("an owner that must wait could not be read: {}", reading.message);
        Ending { outcome, message: clip(&message, MESSAGE_MAX_BYTES), ..Ending::from(reading) }
    })
}
