//! Leader election with one Kubernetes Lease: facts about the Lease in, terms out.
//!
//! The rules are those of client-go's leader election, with a term added. No timestamp of the Lease is compared with a
//! wall clock. A follower measures on its own clock how long the record is unchanged. A leader measures from the time
//! it *sent* its last accepted write. So at most one leader is valid at a time, unless one clock runs faster than
//! another by a factor of `lease_duration / renew_deadline` (1.5 by default). Deleting the Lease breaks this guarantee.
//! The new Lease has another uid, which every [`Term`] contains.
//!
//! ```text
//! Following  reads every retry period, and after a hint of a change; creates the Lease, or takes it when released or unchanged for its duration  -> Leading
//! Leading    writes every retry period; refused: reads. Another holder, another Lease, or the deadline             -> Following
//! Releasing  asked to stop: releases the Lease                                                                       -> Over
//! ```

use crate::jitter::Rng;
use crate::object::{Name, ResourceVersion};
use crate::time::Time;
use crate::work::Term;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::mem;
use core::time::Duration;

mod calls;
#[cfg(test)]
mod tests;

/// The largest number of a term, because the field of the Lease has 32 bits.
pub const NUMBER_MAX: u64 = i32::MAX as u64;

/// The identity of a candidate, and the durations of the Lease (default: 18 s, 12 s and 2 s; Kubernetes' components: 15
/// s, 10 s, 2 s).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Unique for each start of a process: pod or host name, and a random part.
    pub identity: String,
    /// How long followers wait. Whole seconds, like the field of the Lease.
    pub lease_duration: Duration,
    /// How long a leader relies on its last accepted write.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Config {
    /// Whether these durations allow at most one leader. The error is a sentence for the operator.
    pub fn check(&self) -> Result<(), String> {
        if self.identity.is_empty() {
            return Err(String::from("the identity of the leader election is empty"));
        }
        if self.retry_period.is_zero() {
            return Err(String::from("the retry period of the leader election is zero"));
        }
        if self.lease_duration.subsec_nanos() != 0 {
            return Err(format!("the lease duration {:?} is not a number of whole seconds", self.lease_duration));
        }
        if self.renew_deadline <= self.longest_retry() {
            return Err(format!(
                "the renew deadline {:?} must be longer than 1.2 times the retry period {:?}",
                self.renew_deadline, self.retry_period
            ));
        }
        if self.lease_duration <= self.renew_deadline {
            return Err(format!(
                "the lease duration {:?} must be longer than the renew deadline {:?}",
                self.lease_duration, self.renew_deadline
            ));
        }
        Ok(())
    }

    fn longest_retry(&self) -> Duration {
        self.retry_period.saturating_add(self.retry_period / 5)
    }
}

/// The content of the Lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `metadata.uid`.
    pub uid: Name,
    pub resource_version: ResourceVersion,
    /// `spec.holderIdentity`; empty when released.
    pub holder: String,
    /// `spec.leaseTransitions`: the number of acquisitions.
    pub transitions: u64,
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
    /// `spec.renewTime` as text; empty if absent. The elector compares it only for equality, to distinguish writes,
    /// because it does not trust other clocks.
    pub renewed: String,
}

/// A write to the Lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWrite {
    /// Precondition; `None` creates the object.
    pub resource_version: Option<ResourceVersion>,
    pub holder: String,
    pub transitions: u64,
    pub duration: Duration,
    /// Also set `spec.acquireTime`, not only `spec.renewTime`.
    pub acquire: bool,
}

/// The number of a call of one elector. The elector ignores the answer to a call that it gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A fact for the elector. Each `Get` and `Put` is answered once. An error names its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Answer to [`Output::Get`]. `None`: the Lease does not exist.
    Got { call: CallId, answer: Result<Option<LeaseRecord>, String> },
    /// Answer to [`Output::Put`], with the written record.
    Put { call: CallId, answer: Result<LeaseRecord, PutError> },
    /// The Lease may have changed. This is only a hint, after which a follower reads the Lease at once.
    Changed,
    /// Another process has led in this term. A Lease that shows an earlier term is that of a restored store.
    Reached(Term),
    /// Stop leading and release the Lease at once.
    Release,
}

/// Why a write to the Lease failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutError {
    /// The write was certainly not applied: another client wrote, created or deleted the Lease first (409, or 404 for a
    /// write that does not create).
    Conflict,
    /// The write may have been applied.
    Failed(String),
}

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the Lease, consistently (no resourceVersion).
    Get { call: CallId },
    /// Write the Lease. At most one call is in flight at a time, besides one that was given up after `renew_deadline`.
    Put { call: CallId, write: LeaseWrite },
    /// This process leads in this term, until `Lost`, or until `valid_until` is not extended.
    Gained(Term),
    /// This process no longer leads.
    Lost { why: String },
    /// Another replica holds the Lease in this term.
    Follows { holder: String, term: Term },
    /// The Lease was released, or another replica holds it: the elector is done.
    Released,
    /// A call failed. The elector retries.
    Failed { what: &'static str, why: String },
}

/// A candidate.
#[derive(Debug)]
pub struct Elector {
    config: Config,
    jitter: Rng,
    state: State,
    outputs: VecDeque<Output>,
    /// The call in flight.
    call: Option<Call>,
    calls_made: u64,
    /// When the next call is due. Ignored while a call is in flight.
    next_call: Time,
    /// A hint of a change came during a call. The API server may have answered the call before the change.
    look_again: bool,
    /// The last read or written record, and since when this version is known.
    observed: Option<Observed>,
    /// The highest term that this process knows of. Terms after it have higher numbers, even if a restored store shows
    /// an earlier Lease.
    reached: Option<Term>,
    /// The content of the last `Reached`.
    used: Option<Term>,
    /// An acquisition whose result is unknown.
    unsure: Option<Acquisition>,
    /// The content of the last `Follows`.
    follows: Option<(String, Term)>,
}

#[derive(Debug)]
enum State {
    Following,
    Leading(Leadership),
    Releasing(Release),
    Over,
}

#[derive(Debug)]
struct Leadership {
    term: Term,
    valid_until: Time,
    /// Refusals since the last accepted write. After one the Lease is read before the next write.
    refused: u32,
}

#[derive(Debug)]
struct Release {
    /// The record to release.
    held: Option<LeaseRecord>,
    /// A refused release is repeated once, with a fresh record.
    read_again: bool,
}

#[derive(Debug)]
struct Observed {
    record: LeaseRecord,
    since: Time,
}

#[derive(Debug)]
struct Acquisition {
    number: u64,
    /// `None` if it creates the Lease.
    election: Option<Name>,
    /// The time of the first send with this number. If several sends carry the number, no successful one was earlier.
    sent: Time,
    call: CallId,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    purpose: Purpose,
    sent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Read,
    Acquire,
    Renew,
    Release,
}

impl Elector {
    /// A follower that reads the Lease at its first `tick` or `handle`. The seed is for jitter.
    pub fn new(config: Config, seed: u64) -> Elector {
        Elector {
            config,
            jitter: Rng::new(seed),
            state: State::Following,
            outputs: VecDeque::new(),
            call: None,
            calls_made: 0,
            next_call: Time::ZERO,
            look_again: false,
            observed: None,
            reached: None,
            used: None,
            unsure: None,
            follows: None,
        }
    }

    /// Takes a fact. Poll afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.advance(now);
        match input {
            Input::Got { call, answer } => {
                if self.take_call(call, true).is_some() {
                    self.got(now, answer);
                }
            }
            Input::Put { call, answer } => {
                if let Some(call) = self.take_call(call, false) {
                    self.written(now, &call, answer);
                }
            }
            Input::Changed => self.look_again = true,
            Input::Reached(term) => {
                self.remember(term.clone());
                self.used = Some(term);
                self.leave_used_term(now);
            }
            Input::Release => self.release(now),
        }
        if self.call.is_none() && mem::take(&mut self.look_again) && matches!(self.state, State::Following) {
            self.next_call = now;
        }
        self.advance(now);
    }

    /// Handles deadlines. Poll afterwards.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
    }

    /// When to call [`Elector::tick`] next.
    pub fn next_deadline(&self) -> Option<Time> {
        let valid_until = match &self.state {
            State::Leading(leadership) => Some(leadership.valid_until),
            State::Following | State::Releasing(_) => None,
            State::Over => return None,
        };
        let call = match &self.call {
            Some(call) => Some(call.sent + self.config.renew_deadline),
            None if matches!(self.state, State::Releasing(_)) => None,
            None => Some(self.next_call),
        };
        valid_until.into_iter().chain(call).min()
    }

    /// The next effect. Drain to `None` after every `handle` and `tick`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The term in which this process leads. Also check [`Elector::valid_until`].
    pub fn leading(&self) -> Option<&Term> {
        match &self.state {
            State::Leading(leadership) => Some(&leadership.term),
            State::Following | State::Releasing(_) | State::Over => None,
        }
    }

    /// This process must not act as leader at or after this instant, even before `Lost`.
    pub fn valid_until(&self) -> Option<Time> {
        match &self.state {
            State::Leading(leadership) => Some(leadership.valid_until),
            State::Following | State::Releasing(_) | State::Over => None,
        }
    }

    /// The last seen holder of the Lease; `None` without a holder or before the first read.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.observed.as_ref()?.record.holder.as_str();
        if holder.is_empty() { None } else { Some(holder) }
    }

    fn advance(&mut self, now: Time) {
        if let State::Leading(leadership) = &self.state
            && now >= leadership.valid_until
        {
            self.lose(now, String::from("the Lease could not be renewed in time"));
        }
        if let Some(call) = &self.call
            && now >= call.sent + self.config.renew_deadline
            && let Some(call) = self.call.take()
        {
            self.fail(now, &call, String::from("no answer within the renew deadline"));
        }
        if self.call.is_none() && now >= self.next_call {
            match &self.state {
                State::Following => self.read(now),
                State::Leading(leadership) if leadership.refused > 0 => self.read(now),
                State::Leading(_) => self.renew(now),
                State::Releasing(_) | State::Over => {}
            }
        }
    }

    /// The call in flight, if this is its answer. Other answers are too late to prove anything.
    fn take_call(&mut self, id: CallId, read: bool) -> Option<Call> {
        self.call.take_if(|call| call.id == id && (call.purpose == Purpose::Read) == read)
    }

    fn release(&mut self, now: Time) {
        let held = match mem::replace(&mut self.state, State::Over) {
            State::Following => None,
            State::Leading(_) => {
                // Announced before the write is sent, because another replica may lead once the write is accepted.
                self.outputs.push_back(Output::Lost { why: String::from("released") });
                self.observed.as_ref().map(|observed| observed.record.clone())
            }
            before @ (State::Releasing(_) | State::Over) => {
                self.state = before;
                return;
            }
        };
        self.state = State::Releasing(Release { held, read_again: true });
        if self.call.is_none() {
            self.give_back(now);
        }
    }

    fn lose(&mut self, now: Time, why: String) {
        self.state = State::Following;
        self.next_call = now + self.retry();
        self.outputs.push_back(Output::Lost { why });
    }

    /// Ends a term of this process that another process has used or passed. This process does not take the Lease back
    /// before its duration is over, because the leader of that term may not know of the restore yet.
    fn leave_used_term(&mut self, now: Time) {
        if let (State::Leading(Leadership { term, .. }), Some(used)) = (&self.state, &self.used)
            && term.election == used.election
            && term.number <= used.number
        {
            let why =
                format!("the election was in term {} before, so the Lease is that of a restored store", used.number);
            self.lose(now, why);
        }
    }

    /// Raises [`Elector::reached`] to this term, unless no term could follow it.
    fn remember(&mut self, term: Term) {
        let number = self.reached_in(&term.election).max(term.number);
        if number < NUMBER_MAX {
            self.reached = Some(Term { number, ..term });
        }
    }

    /// The highest known term of this election.
    fn reached_in(&self, election: &str) -> u64 {
        self.reached.as_ref().filter(|reached| *reached.election == *election).map_or(0, |reached| reached.number)
    }

    fn gain(&mut self, now: Time, term: Term, valid_until: Time) {
        self.unsure = None;
        self.follows = None;
        self.state = State::Leading(Leadership { term: term.clone(), valid_until, refused: 0 });
        self.outputs.push_back(Output::Gained(term));
        // The process may have heard of the used term while this acquisition was in flight.
        self.leave_used_term(now);
    }

    /// Keeps the record, and since when this version is known.
    fn observe(&mut self, now: Time, record: LeaseRecord) {
        self.remember(Term { election: record.uid.clone(), number: record.transitions });
        match &mut self.observed {
            // The version alone is not enough: a restored store repeats versions.
            Some(known) if known.record == record => {}
            known => *known = Some(Observed { record, since: now }),
        }
    }

    fn retry(&mut self) -> Duration {
        let longest = self.config.longest_retry();
        self.jitter.between(self.config.retry_period, longest)
    }
}
