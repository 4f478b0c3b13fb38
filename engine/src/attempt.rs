//! The write path: what an executor asks the API server while it carries out its leases, and what it reports.
//!
//! One machine holds all attempts of an executor, because they share reads of waiting owners and what is known of
//! kinds without strategic merge patches. The shell turns each [`Request`] into HTTP, sends it once, and hands back
//! what it was told.
//!
//! ```text
//! Reading   a GET of the target is under way    -> Checking, Writing, ended
//! Checking  waiting owners are being read       -> Checking (an answer is too old), Writing, ended
//! Writing   a write waits for its connection    -> left, Checking (an owner check is too old by now), ended
//!           a write has left                    -> Reading (409, 400, 422), Checking, Writing (415), ended
//! ended     [`Output::Ended`] carries the report, exactly one for each attempt
//! ```
//!
//! Requests of a DELETE: the target is read first where the lease says so. Waiting owners are read next. The DELETE
//! carries uid and resourceVersion. After a 409 the target is read, and the DELETE is sent again at the fresh version
//! while all facts that the decision rests on are unchanged, three times at most. Patches of references go by strategic
//! merge patch where the kind knows it and by uid alone suffices; a merge patch or a JSON Patch takes its place at the
//! version that was read. A finalizer goes at the version that the decision rests on, without a read before.
//!
//! # When a write may leave
//!
//! A write is asked for, waits for credentials and a connection, and leaves. [`Attempts::leaves`] runs when the
//! connection is there, on the thread that is about to write the request, and is the last check: cancel, lease,
//! session, and the age of every owner check. A write that it refuses was never sent.
//!
//! The answer about a waiting owner is good for one second from when the read was asked for, or for three times the
//! time that this read took, if that is longer. So a slow API server makes a foreground deletion slower and never stops it.
//!
//! # What can go wrong
//!
//! * *Cancel*: a read, a check, or a write that has not left is given up at once; the attempt ends `Abandoned`. What
//!   has left is waited for, and nothing follows it.
//! * *The lease or the session ends*: nothing leaves any more. The attempt ends `Abandoned` with the next answer.
//! * *No answer to a write*: `Ambiguous` if the write had left, `Transient` if it had not.
//! * *A late answer, or one to a request that was given up*: it is ignored.
//! * *More owner checks than a message allows*: all owners are read, [`CHECKS_MAX`] at a time; the report has room for
//!   [`CHECKS_MAX`] findings, and an owner that lives without waiting comes before all others.

use crate::object::{GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::time::Time;
use crate::work::{CHECKS_MAX, LeaseId, Outcome, PropagationPolicy, Sighting, WorkLease, WorkReport};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

mod answer;
mod flow;
mod owners;
#[cfg(test)]
mod tests;

pub use answer::{Ending, NotFound, Question, Reply, Seen, Status, classify, failed, seen};
use flow::{Next, Then, Write};
use owners::{Check, OwnerRead};

/// How often one attempt sends its write again after a conflict that changed nothing the decision rests on.
const CONFLICT_RETRIES_MAX: u32 = 3;
/// Kinds remembered as not knowing strategic merge patches. Beyond that, each attempt asks.
const MERGE_ONLY_MAX: usize = 4096;

/// Names one request. Numbers grow and are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// An object as one answer showed it. `W` is a reference as the server wrote it, which the engine hands back unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live<W> {
    pub sighting: Sighting,
    /// All entries of `metadata.ownerReferences`, in order.
    pub references: Vec<Reference<W>>,
}

/// One entry of `metadata.ownerReferences`, both as it was written and as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<W> {
    pub written: W,
    /// `None` where the entry names no owner: it stays where it is and counts in the order of the list.
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

/// A patch. The target's uid is in every one; the version is, where one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch<W> {
    /// Strategic merge: drops every reference with one of these uids.
    DropReferences { uids: Vec<Uid> },
    /// Strategic merge: sets `blockOwnerDeletion` to false in these references, each the only one of its uid.
    UnblockReferences { version: ResourceVersion, references: Vec<W> },
    /// Merge: replaces the list.
    ReplaceReferences { version: ResourceVersion, list: Vec<Entry<W>> },
    /// Strategic merge: drops this finalizer.
    DropFinalizer { version: ResourceVersion, finalizer: Name },
    /// Merge: replaces the list.
    ReplaceFinalizers { version: ResourceVersion, list: Vec<String> },
    /// JSON Patch: removes the references at these places, the last one first.
    RemoveReferencesAt { version: ResourceVersion, places: Vec<usize> },
    /// JSON Patch: sets `blockOwnerDeletion` to false at these places.
    UnblockReferencesAt { version: ResourceVersion, places: Vec<usize> },
}

/// A reference that goes back into the list.
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

/// What is certain about a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Nothing of it has left the process.
    NotSent,
    /// There were no credentials to send it with.
    NoCredentials,
    /// Whether it was carried out is unknown.
    NoAnswer,
    /// The object's coordinates are no path at the API server: there was nothing to send.
    Unaddressable,
}

/// What came of a request.
pub type Answer<W> = Result<Reply<W>, Failure>;

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<W> {
    /// Send this request once, and answer it by [`Attempts::answered`]. A write asks [`Attempts::leaves`] before.
    Ask { id: RequestId, lease: LeaseId, request: Request<W> },
    /// Nobody waits for this request any more. A write among these has not left and will not.
    Withdraw(RequestId),
    /// An attempt has ended. `writes` left the process.
    Ended { lease: Box<WorkLease>, report: WorkReport, writes: u32 },
}

/// All attempts of one executor.
#[derive(Debug)]
pub struct Attempts<W> {
    /// No write leaves at or after this instant. The origin until a session says otherwise.
    writes_end: Time,
    attempts: BTreeMap<u64, Attempt<W>>,
    requests: BTreeMap<RequestId, Asked>,
    /// Reads of owners, under way and just done.
    owners: BTreeMap<ObjectRef, OwnerRead>,
    /// Kinds that answered 415 to a strategic merge patch.
    merge_only: BTreeSet<GroupResource>,
    outputs: VecDeque<Output<W>>,
    /// The last number given to an attempt or a request.
    last: u64,
}

/// What a request is for.
#[derive(Debug)]
enum Asked {
    ByAttempt(u64),
    Owner(ObjectRef),
}

/// One lease under way.
#[derive(Debug)]
struct Attempt<W> {
    lease: Box<WorkLease>,
    started: Time,
    cancelled: bool,
    api_calls: u32,
    writes: u32,
    /// Writes sent again after a conflict.
    retries: u32,
    /// Rounds of owner checks that came out too old, since the last write that left.
    rounds: u32,
    state: State<W>,
}

#[derive(Debug)]
enum State<W> {
    /// Between two requests, for the length of one call.
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
    /// The object that the request names.
    pub fn object(&self) -> &ObjectRef {
        match self {
            Request::Get(object) => object,
            Request::Delete { target, .. } | Request::Patch { target, .. } => target,
        }
    }

    /// Whether it may change something.
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
    /// No write leaves at or after `end`.
    pub fn set_writes_end(&mut self, end: Time) {
        self.writes_end = end;
    }

    /// Begins to carry out a lease. Poll afterwards.
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
            state: State::Between,
        };
        let next = attempt.begin(&self.merge_only);
        self.go_on(now, number, attempt, next);
    }

    /// Nothing more leaves for this lease. What has left is waited for. Poll afterwards.
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

    /// Whether the write may leave now: its connection is there. A write that may not was never sent, and is not asked
    /// about again. Poll afterwards.
    pub fn leaves(&mut self, now: Time, id: RequestId) -> bool {
        let Some(&Asked::ByAttempt(number)) = self.requests.get(&id) else { return false };
        let Some(mut attempt) = self.attempts.remove(&number) else { return false };
        let may_write = attempt.may_write(now, self.writes_end).is_ok();
        let State::Writing { checks, left, .. } = &mut attempt.state else {
            self.attempts.insert(number, attempt);
            return false;
        };
        if may_write && checks.iter().all(|check| check.is_good(now)) {
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

    /// What came of a request. Poll afterwards.
    pub fn answered(&mut self, now: Time, id: RequestId, answer: Answer<W>) {
        match self.requests.remove(&id) {
            Some(Asked::Owner(owner)) => self.owner_answered(now, owner, answer),
            Some(Asked::ByAttempt(number)) => {
                let Some(mut attempt) = self.attempts.remove(&number) else { return };
                let next = attempt.answered(answer, &mut self.merge_only);
                self.go_on(now, number, attempt, next);
            }
            None => {}
        }
    }

    /// The next effect; to be drained to `None` after every other call.
    pub fn poll(&mut self) -> Option<Output<W>> {
        self.outputs.pop_front()
    }

    /// Attempts under way.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Whether no attempt is under way.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
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

    /// Asks for the write where all owners wait, by answers that are good now; else for the owners.
    fn check(&mut self, now: Time, number: u64, mut attempt: Attempt<W>, mut checks: Vec<Check>, write: Box<Write<W>>) {
        if let Err(ending) = attempt.may_write(now, self.writes_end) {
            return self.end(now, attempt, *ending);
        }
        let pending = match self.read_owners(now, number, &mut attempt, &mut checks) {
            Ok(pending) => pending,
            Err(ending) => return self.end(now, attempt, *ending),
        };
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

    /// Gives the attempt's own request up. Returns what was to be written, where it has not left.
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
    /// Ends the attempt where the leader has stopped it or its time is over: reads too are for nothing then.
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

    fn may_write(&self, now: Time, writes_end: Time) -> Result<(), Box<Ending>> {
        self.may_go_on(now)?;
        if now >= writes_end {
            return Err(Ending::because(Outcome::Abandoned, "the session ran out before the write was sent"));
        }
        Ok(())
    }
}
