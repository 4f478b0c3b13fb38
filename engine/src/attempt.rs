//! The write path of an executor: its requests to the API server for each lease, and its reports.
//!
//! One machine holds all attempts of an executor, because they share reads of waiting owners and the list of kinds
//! without strategic merge patches. The caller turns each [`Request`] into HTTP, sends it once, and returns the answer.
//!
//! ```text
//! Reading   a GET of the target is in flight     -> Checking, Writing, ended
//! Checking  waiting owners are being read       -> Checking (an answer is too old), Writing, ended
//! Writing   a write waits for its connection    -> left, Checking, Reading (a read is too old by now), ended
//!           a write has left                    -> Reading (409, 400, 422), Checking, Writing (415), ended
//! ended     [`Output::Ended`] carries the report, exactly one for each attempt
//! ```
//!
//! A DELETE reads the target first if the lease says so, then the waiting owners. It has uid and resourceVersion as
//! preconditions. After a 409 the target is read, and the DELETE is sent again at the new version if the facts of the
//! decision are unchanged, at most three times. A patch of references is a strategic merge patch if the kind supports
//! it and the uid is enough. Otherwise it is a merge patch or a JSON Patch at the version that was read. A finalizer is
//! removed at the version of the decision, without a read, and after a lost race at the version that was read. The
//! finalizer `orphan` is removed at the version of the decision only: a later deletion of the same owner also orphans
//! the dependents that came between.
//!
//! # When a write may be sent
//!
//! A write waits for credentials and a connection, and is then sent. [`Attempts::leaves`] is the last check. It runs
//! when the connection is open, on the thread that is about to write the request, and checks cancel, lease, session,
//! and the age of every owner check. Of a target that must be read first it also checks the age of that read, because
//! the server may ignore preconditions. A write that it refuses was never sent.
//!
//! The answer about a waiting owner is valid for one second from its request, or for nine quarters of the time that the
//! read took, if that is longer. Each further batch of [`CHECKS_MAX`] owners extends the validity by the duration of
//! the read. The maximum is one minute. A slow API server therefore delays a foreground deletion, and stops it only if
//! the reads of all owners take a minute.
//!
//! # Errors
//!
//! * *Cancel*: unsent requests are dropped at once, and the attempt ends `Abandoned`. A sent write is awaited, and
//!   nothing follows it.
//! * *The lease or the session ends*: nothing more is sent. The attempt ends `Abandoned` with the next answer.
//! * *No answer to a write*: `Ambiguous` if the write was sent, else `Transient`.
//! * *A late answer, or one to a dropped request*: ignored.
//! * *More owner checks than a message allows*: all owners are read, [`CHECKS_MAX`] at a time. The report has room for
//!   [`CHECKS_MAX`] findings; owners that are alive and not waiting come first.

use crate::object::{GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::time::Time;
use crate::work::{CHECKS_MAX, LeaseId, Outcome, PropagationPolicy, Sighting, WorkLease, WorkReport};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

mod answer;
mod flow;
mod owners;
#[cfg(test)]
mod tests;

pub use answer::{Ending, NotFound, Question, Reply, Seen, Status, classify, failed, seen};
use flow::{Next, Then, Write};
use owners::{Check, OwnerRead};

/// How long a write may rely on the read of a target that must be read first. A slow read is valid for three times its
/// own duration.
const READ_GOOD_FOR: Duration = Duration::from_secs(5);
/// Maximum number of times that the target or the owners of one write are read again because an answer became too old.
const ROUNDS_MAX: u32 = 5;

/// Maximum number of times that one attempt repeats its write after a conflict that left the facts of the decision
/// unchanged.
const CONFLICT_RETRIES_MAX: u32 = 3;
/// Maximum number of kinds remembered as without strategic merge patches. If there are more, each attempt tries such a
/// patch first.
const MERGE_ONLY_MAX: usize = 4096;

/// Identifies one request. Numbers grow and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// An object in one answer. `W` is a reference as the server wrote it, which the engine returns unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live<W> {
    pub sighting: Sighting,
    /// All entries of `metadata.ownerReferences`, in order.
    pub references: Vec<Reference<W>>,
}

/// One entry of `metadata.ownerReferences`, in its original and its parsed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<W> {
    pub written: W,
    /// `None` if the entry is not a valid reference: it keeps its place in the list.
    pub entry: Option<OwnerReference>,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<W> {
    /// The metadata of one object.
    Get(ObjectRef),
    /// With both preconditions.
    Delete {
        target: ObjectRef,
        version: ResourceVersion,
        policy: PropagationPolicy,
    },
    Patch {
        target: ObjectRef,
        patch: Patch<W>,
    },
}

/// A patch. Each one has the target's uid, and the version if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch<W> {
    /// Strategic merge: removes all references with these uids.
    DropReferences { uids: Vec<Uid> },
    /// Strategic merge: sets `blockOwnerDeletion` to false in these references. Each is the only one of its uid.
    UnblockReferences { version: ResourceVersion, references: Vec<W> },
    /// Merge: replaces the list.
    ReplaceReferences { version: ResourceVersion, list: Vec<Entry<W>> },
    /// Strategic merge: removes this finalizer.
    DropFinalizer { version: ResourceVersion, finalizer: Name },
    /// Merge: replaces the list.
    ReplaceFinalizers { version: ResourceVersion, list: Vec<String> },
    /// JSON Patch: removes the references at these indices, the last one first.
    RemoveReferencesAt { version: ResourceVersion, places: Vec<usize> },
    /// JSON Patch: sets `blockOwnerDeletion` to false at these indices.
    UnblockReferencesAt { version: ResourceVersion, places: Vec<usize> },
}

/// A reference that stays in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<W> {
    pub written: W,
    /// `blockOwnerDeletion` becomes false.
    pub unblock: bool,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub cause: String,
}

/// The certain facts about a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Nothing of it was sent.
    NotSent,
    /// There were no credentials.
    NoCredentials,
    /// The API server may have carried out the request.
    NoAnswer,
    /// The object's coordinates are not a valid path, so nothing was sent.
    Unaddressable,
}

/// The result of a request.
pub type Answer<W> = Result<Reply<W>, Failure>;

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<W> {
    /// Send this request once, and answer it with [`Attempts::answered`]. Before a write, call [`Attempts::leaves`].
    Ask { id: RequestId, lease: LeaseId, request: Request<W> },
    /// This request is no longer needed. A write among these was not sent and never will be.
    Withdraw(RequestId),
    /// An attempt has ended. `writes` is the number of writes that it sent.
    Ended { lease: Box<WorkLease>, report: WorkReport, writes: u32 },
}

/// All attempts of one executor.
#[derive(Debug)]
pub struct Attempts<W> {
    /// No write may be sent at or after this instant. It is the origin of the clock until a session sets it.
    writes_end: Time,
    attempts: BTreeMap<u64, Attempt<W>>,
    requests: BTreeMap<RequestId, Asked>,
    /// Reads of owners, in flight and recent.
    owners: BTreeMap<ObjectRef, OwnerRead>,
    /// Kinds that answered 415 to a strategic merge patch.
    merge_only: BTreeSet<GroupResource>,
    outputs: VecDeque<Output<W>>,
    /// The last number of an attempt or a request.
    last: u64,
}

/// The purpose of a request.
#[derive(Debug)]
enum Asked {
    ByAttempt(u64),
    Owner(ObjectRef),
}

/// One lease in progress.
#[derive(Debug)]
struct Attempt<W> {
    lease: Box<WorkLease>,
    started: Time,
    cancelled: bool,
    api_calls: u32,
    writes: u32,
    /// Writes repeated after a conflict.
    retries: u32,
    /// Rounds of reads that became too old, since the last sent write.
    rounds: u32,
    /// The last read of the target: its request, and the time that it took.
    read: Option<(Time, Duration)>,
    state: State<W>,
}

#[derive(Debug)]
enum State<W> {
    /// Between two requests, during one call.
    Between,
    Reading {
        id: RequestId,
        then: Then<W>,
    },
    Checking {
        checks: Vec<Check>,
        write: Box<Write<W>>,
    },
    Writing {
        id: RequestId,
        checks: Vec<Check>,
        write: Box<Write<W>>,
        left: bool,
    },
}

impl<W> Request<W> {
    /// The object of the request.
    pub fn object(&self) -> &ObjectRef {
        match self {
            Request::Get(object) => object,
            Request::Delete { target, .. } | Request::Patch { target, .. } => target,
        }
    }

    /// Whether the request may change an object.
    pub fn is_write(&self) -> bool {
        match self {
            Request::Get(_) => false,
            Request::Delete { .. } | Request::Patch { .. } => true,
        }
    }
}

impl<W> Default for Attempts<W> {
    fn default() -> Attempts<W> {
        Attempts {
            writes_end: Time::ZERO,
            attempts: BTreeMap::new(),
            requests: BTreeMap::new(),
            owners: BTreeMap::new(),
            merge_only: BTreeSet::new(),
            outputs: VecDeque::new(),
            last: 0,
        }
    }
}

impl<W: Clone> Attempts<W> {
    /// No write may be sent at or after `end`.
    pub fn set_writes_end(&mut self, end: Time) {
        self.writes_end = end;
    }

    /// Starts a lease. Poll afterwards.
    pub fn start(&mut self, now: Time, lease: WorkLease) {
        let number = self.number();
        let mut attempt = Attempt {
            lease: Box::new(lease),
            started: now,
            cancelled: false,
            api_calls: 0,
            writes: 0,
            retries: 0,
            rounds: 0,
            read: None,
            state: State::Between,
        };
        let next = attempt.begin(&self.merge_only);
        self.go_on(now, number, attempt, next);
    }

    /// Sends nothing more for this lease. A sent request is awaited. Poll afterwards.
    pub fn cancel(&mut self, now: Time, lease: LeaseId) {
        let named = |(&number, attempt): (&u64, &Attempt<W>)| (attempt.lease.id == lease).then_some(number);
        let numbers: Vec<u64> = self.attempts.iter().filter_map(named).collect();
        for number in numbers {
            let Some(mut attempt) = self.attempts.remove(&number) else { continue };
            attempt.cancelled = true;
            if matches!(attempt.state, State::Writing { left: true, .. }) {
                self.attempts.insert(number, attempt);
                continue;
            }
            self.withdraw(&mut attempt);
            self.end(now, attempt, *Ending::cancelled());
        }
    }

    /// Whether the write may be sent now that its connection is open. A refused write was never sent, and is not asked
    /// about again. Poll afterwards.
    pub fn leaves(&mut self, now: Time, id: RequestId) -> bool {
        let Some(&Asked::ByAttempt(number)) = self.requests.get(&id) else { return false };
        let Some(mut attempt) = self.attempts.remove(&number) else { return false };
        let may_write = attempt.may_write(now, self.writes_end).is_ok();
        let is_read = attempt.is_read_as_needed(now);
        let State::Writing { checks, left, .. } = &mut attempt.state else {
            self.attempts.insert(number, attempt);
            return false;
        };
        if may_write && is_read && Check::are_good(checks, now) {
            *left = true;
            attempt.writes += 1;
            attempt.rounds = 0;
            self.attempts.insert(number, attempt);
            return true;
        }
        if let Some((checks, write)) = self.withdraw(&mut attempt) {
            self.check(now, number, attempt, checks, write);
        }
        false
    }

    /// Takes the result of a request. Poll afterwards.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: Answer<W>) {
        match self.requests.remove(&id) {
            Some(Asked::Owner(owner)) => self.owner_answered(now, owner, answer),
            Some(Asked::ByAttempt(number)) => {
                let Some(mut attempt) = self.attempts.remove(&number) else { return };
                if let (State::Reading { .. }, Some((asked, took))) = (&attempt.state, &mut attempt.read) {
                    *took = now.since(*asked);
                }
                let next = attempt.answered(answer, &mut self.merge_only);
                self.go_on(now, number, attempt, next);
            }
            None => {}
        }
    }

    /// The next effect. Drain to `None` after every other call.
    pub fn poll(&mut self) -> Option<Output<W>> {
        self.outputs.pop_front()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn go_on(&mut self, now: Time, number: u64, mut attempt: Attempt<W>, next: Next<W>) {
        match next {
            Next::End(ending) => self.end(now, attempt, *ending),
            Next::Read(then) => match attempt.may_go_on(now) {
                Ok(()) => {
                    let request = Request::Get(attempt.lease.item.target.clone());
                    let id = self.ask(number, &mut attempt, request);
                    attempt.state = State::Reading { id, then };
                    attempt.read = Some((now, Duration::ZERO));
                    self.attempts.insert(number, attempt);
                }
                Err(ending) => self.end(now, attempt, *ending),
            },
            Next::Write(write) => {
                let checks = Check::all(&attempt.lease.item.action);
                self.check(now, number, attempt, checks, write);
            }
        }
    }

    /// Requests the write if all owners wait according to valid answers; else requests the owners. Reads the target
    /// again if it must be read before the write, and the read is too old.
    fn check(&mut self, now: Time, number: u64, mut attempt: Attempt<W>, mut checks: Vec<Check>, write: Box<Write<W>>) {
        if let Err(ending) = attempt.may_write(now, self.writes_end) {
            return self.end(now, attempt, *ending);
        }
        let pending = match self.read_owners(now, number, &mut attempt, &mut checks) {
            Ok(pending) => pending,
            Err(ending) => return self.end(now, attempt, *ending),
        };
        if !pending && !attempt.is_read_as_needed(now) {
            attempt.rounds += 1;
            let next = if attempt.rounds > ROUNDS_MAX {
                let message = "the read of the object became too old before the write could be sent";
                Next::End(Ending::because(Outcome::Transient, message))
            } else {
                Next::Read(Then::First)
            };
            return self.go_on(now, number, attempt, next);
        }
        attempt.state = if pending {
            State::Checking { checks, write }
        } else {
            let id = self.ask(number, &mut attempt, write.request.clone());
            State::Writing { id, checks, write, left: false }
        };
        self.attempts.insert(number, attempt);
    }

    fn ask(&mut self, number: u64, attempt: &mut Attempt<W>, request: Request<W>) -> RequestId {
        let id = RequestId(self.number());
        attempt.api_calls += 1;
        self.requests.insert(id, Asked::ByAttempt(number));
        self.outputs.push_back(Output::Ask { id, lease: attempt.lease.id, request });
        id
    }

    /// Drops the attempt's own request. Returns the write if it was not sent.
    fn withdraw(&mut self, attempt: &mut Attempt<W>) -> Option<(Vec<Check>, Box<Write<W>>)> {
        let (id, unwritten) = match core::mem::replace(&mut attempt.state, State::Between) {
            State::Between | State::Checking { .. } => return None,
            State::Reading { id, .. } => (id, None),
            State::Writing { id, checks, write, .. } => {
                attempt.api_calls -= 1;
                (id, Some((checks, write)))
            }
        };
        self.requests.remove(&id);
        self.outputs.push_back(Output::Withdraw(id));
        unwritten
    }

    fn end(&mut self, now: Time, attempt: Attempt<W>, ending: Ending) {
        let report = WorkReport {
            api_calls: attempt.api_calls,
            execution_time: now.since(attempt.started),
            ..ending.report(&attempt.lease)
        };
        self.outputs.push_back(Output::Ended { lease: attempt.lease, report, writes: attempt.writes });
    }
}

impl<W> Attempt<W> {
    /// Ends the attempt if the leader has stopped it or its time is over. Further reads would be useless, too.
    fn may_go_on(&self, now: Time) -> Result<(), Box<Ending>> {
        if self.cancelled {
            return Err(Ending::cancelled());
        }
        if now >= self.started + self.lease.execution_limit {
            let message = "the item's execution limit ran out before the write was sent";
            return Err(Ending::because(Outcome::Abandoned, message));
        }
        Ok(())
    }

    /// Whether the target was read recently, if it must be read before a write: the server may ignore preconditions.
    fn is_read_as_needed(&self, now: Time) -> bool {
        let is_recent = |(asked, took): (Time, Duration)| now < asked + READ_GOOD_FOR.max(took.saturating_mul(3));
        !self.lease.item.read_first || self.read.is_some_and(is_recent)
    }

    fn may_write(&self, now: Time, writes_end: Time) -> Result<(), Box<Ending>> {
        self.may_go_on(now)?;
        if now >= writes_end {
            return Err(Ending::because(Outcome::Abandoned, "the session ran out before the write was sent"));
        }
        Ok(())
    }
}
