//! Leader election over one Kubernetes Lease: Lease in, term out.
//!
//! The rules are those of client-go's leader election, with a term on top. The Lease is never compared with a wall clock: a follower
//! counts on its own clock for how long it has seen the record unchanged, a leader counts from the moment it *sent* its last accepted
//! write. So at most one leader is valid at a time as long as no clock runs faster than another by a factor of
//! `lease_duration / renew_deadline` (1.5 with the defaults). Deleting the Lease gives that up: its successor has another uid, which is
//! why a [`Term`] carries it.
//!
//! ```text
//! Following  reads every retry period, and when told of a change; creates the Lease, or takes it when released or unchanged for its duration  -> Leading
//! Leading    writes every retry period; refused: reads. Another holder, another Lease, or the deadline             -> Following
//! Releasing  asked to stop: gives back what it holds                                                               -> Over
//! ```

use crate::jitter::Jitter;
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

/// Who takes part, and the durations of the Lease (18 s, 12 s and 2 s by default; Kubernetes' own components: 15 s, 10 s, 2 s).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Unique per process start: pod or host name and a random part.
    pub identity: String,
    /// What followers wait for. Whole seconds, as the Lease has no finer unit.
    pub lease_duration: Duration,
    /// What a leader trusts its last accepted write for.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Config {
    /// Whether at most one leader follows from these durations; the error is a sentence for the operator.
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

/// What the Lease object says.
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
    /// `spec.renewTime` as it is written there; empty where it is not. Nobody's clock is believed: it only tells one write from another.
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
    /// Set `spec.acquireTime` too, not only `spec.renewTime`.
    pub acquire: bool,
}

/// Numbers the calls of one elector, so that an answer that comes after its call was given up is known as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A fact for the elector. Each `Get` and `Put` is answered once; a failure names its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Answer to [`Output::Get`]; `None`: there is no such Lease.
    Got { call: CallId, answer: Result<Option<LeaseRecord>, String> },
    /// Answer to [`Output::Put`], with the record as it was written.
    Put { call: CallId, answer: Result<LeaseRecord, PutError> },
    /// Somebody seems to have written the Lease. A hint, of no consequence but that a follower looks at once.
    Changed,
    /// Stop leading and hand the Lease over at once.
    Release,
}

/// Why a write to the Lease failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutError {
    /// It was certainly not written: somebody else wrote, created or deleted the Lease first (409, or 404 for a write that does not
    /// create).
    Conflict,
    /// Not known whether it was written.
    Failed(String),
}

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the Lease, consistently (no resourceVersion).
    Get { call: CallId },
    /// Write the Lease. At most one call is under way at a time, except beside one that was given up after `renew_deadline`.
    Put { call: CallId, write: LeaseWrite },
    /// This process leads, under this term, until `Lost` or until `valid_until` moves no further.
    Gained(Term),
    /// This process does not lead any more.
    Lost { why: String },
    /// Somebody else holds the Lease under this term.
    Follows { holder: String, term: Term },
    /// The Lease was released, or was not ours: nothing more to do.
    Released,
    /// A call failed; the elector tries again.
    Failed { what: &'static str, why: String },
}

/// One candidate.
#[derive(Debug)]
pub struct Elector {
    config: Config,
    jitter: Jitter,
    state: State,
    outputs: VecDeque<Output>,
    /// The call under way.
    call: Option<Call>,
    calls_made: u64,
    /// When the next call is due. Not looked at while one is under way.
    next_call: Time,
    /// A change came while a call was under way, which may have been answered before it.
    look_again: bool,
    /// The record as last read or written, and since when this version is known.
    observed: Option<Observed>,
    /// An acquisition whose outcome is not known.
    unsure: Option<Acquisition>,
    /// What the last `Follows` said.
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
    /// Refusals since the last accepted write. After one the Lease is read before it is written again.
    refused: u32,
}

#[derive(Debug)]
struct Release {
    /// The record to give back.
    held: Option<LeaseRecord>,
    /// A refused release is tried again with a fresh record, once.
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
    /// `None` where it creates the Lease.
    election: Option<Name>,
    /// The first send under this number: whichever of several sends was the one that landed, none was earlier.
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
    /// A follower that reads the Lease at its first `tick` or `handle`. The seed serves jitter.
    pub fn new(config: Config, seed: u64) -> Elector {
        Elector {
            config,
            jitter: Jitter::new(seed),
            state: State::Following,
            outputs: VecDeque::new(),
            call: None,
            calls_made: 0,
            next_call: Time::ZERO,
            look_again: false,
            observed: None,
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
            Input::Release => self.release(now),
        }
        if self.call.is_none() && mem::take(&mut self.look_again) && matches!(self.state, State::Following) {
            self.next_call = now;
        }
        self.advance(now);
    }

    /// Does what is due. Poll afterwards.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
    }

    /// When [`Elector::tick`] is wanted next.
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

    /// The next effect; to be drained to `None` after every `handle` and `tick`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The term under which this process leads. Look at [`Elector::valid_until`] too.
    pub fn leading(&self) -> Option<&Term> {
        match &self.state {
            State::Leading(leadership) => Some(&leadership.term),
            State::Following | State::Releasing(_) | State::Over => None,
        }
    }

    /// Nothing may be done as leader at or after this instant, also where `Lost` has not come yet.
    pub fn valid_until(&self) -> Option<Time> {
        match &self.state {
            State::Leading(leadership) => Some(leadership.valid_until),
            State::Following | State::Releasing(_) | State::Over => None,
        }
    }

    /// Who holds the Lease, as it was last seen; `None` where nobody does or nothing was seen yet.
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

    /// The call under way, if this is its answer. An answer to anything else comes too late: it is not known what it would prove.
    fn take_call(&mut self, id: CallId, read: bool) -> Option<Call> {
        self.call.take_if(|call| call.id == id && (call.purpose == Purpose::Read) == read)
    }

    fn release(&mut self, now: Time) {
        let held = match mem::replace(&mut self.state, State::Over) {
            State::Following => None,
            State::Leading(_) => {
                // Said before the write leaves: once it has landed, another replica may lead.
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

    fn gain(&mut self, term: Term, valid_until: Time) {
        self.unsure = None;
        self.follows = None;
        self.state = State::Leading(Leadership { term: term.clone(), valid_until, refused: 0 });
        self.outputs.push_back(Output::Gained(term));
    }

    /// Remembers the record, and since when this version of it is known.
    fn observe(&mut self, now: Time, record: LeaseRecord) {
        match &mut self.observed {
            // The version alone does not say enough: a store that is restored gives the same ones once more.
            Some(known) if known.record == record => {}
            known => *known = Some(Observed { record, since: now }),
        }
    }

    fn retry(&mut self) -> Duration {
        let longest = self.config.longest_retry();
        self.jitter.between(self.config.retry_period, longest)
    }
}
