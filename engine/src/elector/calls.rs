//! The calls to the API server, and the meaning of their answers.

use super::{
    Acquisition, Call, CallId, Elector, Leadership, LeaseRecord, LeaseWrite, Observed, Output, Purpose, PutError,
    Release, State,
};
use crate::time::Time;
use crate::work::Term;
use alloc::string::String;
use core::mem;
use core::time::Duration;

/// The duration of a released Lease, as client-go writes it. It is valid, and short for clients that look only at the
/// clock.
const RELEASED_DURATION: Duration = Duration::from_secs(1);

impl Elector {
    pub(super) fn read(&mut self, now: Time) {
        let call = self.begin(now, Purpose::Read);
        self.outputs.push_back(Output::Get { call });
    }

    pub(super) fn renew(&mut self, now: Time) {
        let (State::Leading(leadership), Some(observed)) = (&self.state, &self.observed) else { return };
        let write = LeaseWrite {
            resource_version: Some(observed.record.resource_version.clone()),
            holder: self.config.identity.clone(),
            transitions: leadership.term.number,
            duration: self.config.lease_duration,
            acquire: false,
        };
        self.write(now, Purpose::Renew, write);
    }

    /// Releases the Lease, or ends the release.
    pub(super) fn give_back(&mut self, now: Time) {
        let State::Releasing(Release { held: Some(record), .. }) = &self.state else {
            self.state = State::Over;
            self.outputs.push_back(Output::Released);
            return;
        };
        let write = LeaseWrite {
            resource_version: Some(record.resource_version.clone()),
            holder: String::new(),
            transitions: record.transitions,
            duration: RELEASED_DURATION,
            acquire: false,
        };
        self.write(now, Purpose::Release, write);
    }

    pub(super) fn got(&mut self, now: Time, answer: Result<Option<LeaseRecord>, String>) {
        let found = match answer {
            Ok(found) => found,
            Err(why) => {
                self.outputs.push_back(Output::Failed { what: "read the Lease", why });
                match &self.state {
                    State::Following | State::Leading(_) => self.next_call = now + self.retry(),
                    State::Releasing(_) | State::Over => self.nothing_to_give_back(now),
                }
                return;
            }
        };
        match &self.state {
            State::Following => self.got_as_follower(now, found),
            State::Leading(leadership) => {
                let term = leadership.term.clone();
                self.got_as_leader(now, &term, found);
            }
            State::Releasing(release) => match (found, &release.held) {
                (Some(record), Some(held)) if self.is_same_tenure(&record, &held.uid, held.transitions) => {
                    self.hold(record);
                    self.give_back(now);
                }
                _ => self.nothing_to_give_back(now),
            },
            State::Over => {}
        }
    }

    pub(super) fn written(&mut self, now: Time, call: &Call, answer: Result<LeaseRecord, PutError>) {
        match answer {
            Ok(record) => self.accepted(now, call, record),
            Err(PutError::Conflict) => self.refused(now, call),
            Err(PutError::Failed(why)) => self.fail(now, call, why),
        }
    }

    /// Handles a call without a usable answer. A write may have succeeded nevertheless.
    pub(super) fn fail(&mut self, now: Time, call: &Call, why: String) {
        let what = match call.purpose {
            Purpose::Read => "read the Lease",
            Purpose::Acquire => "acquire the Lease",
            Purpose::Renew => "renew the Lease",
            Purpose::Release => "release the Lease",
        };
        self.outputs.push_back(Output::Failed { what, why });
        match &self.state {
            State::Following | State::Leading(_) => self.next_call = now + self.retry(),
            State::Releasing(_) => match call.purpose {
                Purpose::Renew => self.give_back(now),
                Purpose::Read | Purpose::Acquire | Purpose::Release => self.nothing_to_give_back(now),
            },
            State::Over => {}
        }
    }

    fn got_as_follower(&mut self, now: Time, found: Option<LeaseRecord>) {
        let Some(record) = found else {
            self.observed = None;
            self.acquire(now);
            return;
        };
        self.observe(now, record.clone());
        if let Some(sent) = self.landed_unseen(&record) {
            let valid_until = sent + self.config.renew_deadline;
            if now < valid_until {
                self.next_call = now;
                self.gain(now, Term { election: record.uid, number: record.transitions }, valid_until);
                return;
            }
        }
        let free_at = self.free_at(now);
        if now >= free_at {
            self.acquire(now);
            return;
        }
        self.follow(record);
        // A read right at the end of the duration avoids waiting for the next retry period.
        self.next_call = free_at.min(now + self.retry());
    }

    fn got_as_leader(&mut self, now: Time, term: &Term, found: Option<LeaseRecord>) {
        let why = match found {
            Some(record) if self.is_same_tenure(&record, &term.election, term.number) => {
                // The version changed: an answer was lost, or another client changed the metadata.
                self.observe(now, record);
                self.renew(now);
                return;
            }
            Some(record) => {
                let why = if record.uid == term.election {
                    alloc::format!("the Lease is held by {:?} in term {}", record.holder, record.transitions)
                } else {
                    String::from("the Lease was deleted and created again")
                };
                self.observe(now, record);
                why
            }
            None => {
                self.observed = None;
                String::from("the Lease was deleted")
            }
        };
        self.lose(now, why);
        if let Some(observed) = &self.observed {
            self.follow(observed.record.clone());
        }
    }

    fn accepted(&mut self, now: Time, call: &Call, record: LeaseRecord) {
        match call.purpose {
            Purpose::Acquire => self.acquired(now, call, record),
            Purpose::Renew => self.renewed(now, call, record),
            Purpose::Release => self.nothing_to_give_back(now),
            Purpose::Read => {}
        }
    }

    fn acquired(&mut self, now: Time, call: &Call, record: LeaseRecord) {
        let number = self.unsure.as_ref().map(|acquisition| acquisition.number);
        if record.holder != self.config.identity || Some(record.transitions) != number {
            self.fail(now, call, String::from("the answer shows another record than the one written"));
            return;
        }
        self.observe(now, record.clone());
        match &self.state {
            State::Following => {
                self.next_call = now.max(call.sent + self.config.retry_period);
                let term = Term { election: record.uid, number: record.transitions };
                self.gain(now, term, call.sent + self.config.renew_deadline);
            }
            State::Releasing(_) => {
                self.hold(record);
                self.give_back(now);
            }
            State::Leading(_) | State::Over => {}
        }
    }

    fn renewed(&mut self, now: Time, call: &Call, record: LeaseRecord) {
        let next = now.max(call.sent + self.config.retry_period);
        let valid_until = call.sent + self.config.renew_deadline;
        match &mut self.state {
            State::Leading(leadership) => {
                let Leadership { term, .. } = leadership;
                if record.uid != term.election || record.transitions != term.number {
                    self.observe(now, record);
                    self.lose(now, String::from("the Lease was deleted and created again"));
                    return;
                }
                leadership.valid_until = valid_until;
                leadership.refused = 0;
                self.next_call = next;
                self.observe(now, record);
            }
            // The term ended while this call was in flight, and stays ended. Handle the record like any other.
            State::Following => self.observe(now, record),
            State::Releasing(_) => {
                self.hold(record);
                self.give_back(now);
            }
            State::Over => {}
        }
    }

    fn refused(&mut self, now: Time, call: &Call) {
        if self.unsure.as_ref().is_some_and(|acquisition| acquisition.call == call.id) {
            self.unsure = None;
        }
        match &mut self.state {
            // The next read shows the winner. An immediate read could repeat without end on a server that refuses every
            // write.
            State::Following => self.next_call = now + self.retry(),
            State::Leading(leadership) => {
                leadership.refused = leadership.refused.saturating_add(1);
                self.next_call = if leadership.refused == 1 { now } else { now + self.retry() };
            }
            State::Releasing(release) => match call.purpose {
                Purpose::Renew | Purpose::Release if mem::take(&mut release.read_again) => self.read(now),
                Purpose::Read | Purpose::Acquire | Purpose::Renew | Purpose::Release => self.nothing_to_give_back(now),
            },
            State::Over => {}
        }
    }

    /// Takes or creates the Lease with the next number.
    fn acquire(&mut self, now: Time) {
        let known = self.observed.as_ref().map(|observed| &observed.record);
        let number = known.map_or(0, |record| record.transitions.max(self.reached_in(&record.uid))).saturating_add(1);
        let election = known.map(|record| record.uid.clone());
        let write = LeaseWrite {
            resource_version: known.map(|record| record.resource_version.clone()),
            holder: self.config.identity.clone(),
            transitions: number,
            duration: self.config.lease_duration,
            acquire: true,
        };
        let call = self.write(now, Purpose::Acquire, write);
        match &self.unsure {
            Some(earlier) if earlier.number == number && earlier.election == election => {}
            Some(_) | None => self.unsure = Some(Acquisition { number, election, sent: now, call }),
        }
    }

    /// The time at which the acquisition behind this record was sent, if this process acquired the Lease and did not
    /// get the answer. The identity alone proves nothing.
    fn landed_unseen(&mut self, record: &LeaseRecord) -> Option<Time> {
        let unsure = self.unsure.as_ref()?;
        let same_lease = unsure.election.as_ref().is_none_or(|election| *election == record.uid);
        if record.holder == self.config.identity && record.transitions == unsure.number && same_lease {
            return Some(unsure.sent);
        }
        if same_lease && record.transitions >= unsure.number {
            // The Lease has changed since, so its precondition can never hold again.
            self.unsure = None;
        }
        None
    }

    /// The time from which the observed record may be taken over.
    fn free_at(&self, now: Time) -> Time {
        match &self.observed {
            None => now,
            Some(Observed { record, .. }) if record.holder.is_empty() => now,
            // A holder without a duration gets the configured one.
            Some(Observed { record, since }) if record.duration.is_zero() => *since + self.config.lease_duration,
            Some(Observed { record, since }) => *since + record.duration,
        }
    }

    fn follow(&mut self, record: LeaseRecord) {
        if record.holder.is_empty() || record.holder == self.config.identity {
            return;
        }
        let term = Term { election: record.uid, number: record.transitions };
        let follows = Some((record.holder, term));
        if self.follows != follows {
            self.follows = follows;
            if let Some((holder, term)) = self.follows.clone() {
                self.outputs.push_back(Output::Follows { holder, term });
            }
        }
    }

    /// Whether the record is still the one that this process acquired in that Lease with that number.
    fn is_same_tenure(&self, record: &LeaseRecord, election: &str, number: u64) -> bool {
        *record.uid == *election && record.transitions == number && record.holder == self.config.identity
    }

    fn hold(&mut self, record: LeaseRecord) {
        if let State::Releasing(release) = &mut self.state {
            release.held = Some(record);
        }
    }

    fn nothing_to_give_back(&mut self, now: Time) {
        if let State::Releasing(release) = &mut self.state {
            release.held = None;
            self.give_back(now);
        }
    }

    fn write(&mut self, now: Time, purpose: Purpose, write: LeaseWrite) -> CallId {
        let call = self.begin(now, purpose);
        self.outputs.push_back(Output::Put { call, write });
        call
    }

    fn begin(&mut self, now: Time, purpose: Purpose) -> CallId {
        self.calls_made += 1;
        let id = CallId(self.calls_made);
        self.call = Some(Call { id, purpose, sent: now });
        id
    }
}
