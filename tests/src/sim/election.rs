//! The election: the elector of each replica, and the Lease that all electors write.

use super::law;
use super::world::{Happening, MS, S, World};
use engine::elector::{CallId, Config, Elector, Input, LeaseRecord, LeaseWrite, Output, PutError};
use engine::leader;
use engine::object::{GroupResource, Name, ResourceVersion};
use std::time::Duration;

/// The collection whose position the writes of the Lease advance. These writes are in the main store.
const LOCKS: &str = "configmaps";
const LEASE_DURATION: Duration = Duration::from_secs(18);
/// The client gives up a call after this time.
const CALL_LIMIT: u64 = 5 * S;
/// The maximum time for which a stopping process waits until its Lease is handed over.
const RELEASE_WITHIN: u64 = 3 * S;

/// The Lease in the form in which the API server stores it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    record: Option<LeaseRecord>,
    version: u64,
}

/// The elector of one replica, with its calls.
pub(super) struct Candidate {
    elector: Elector,
    tick_at: Option<u64>,
    /// None of the calls arrives before this time.
    pub(super) cut_until: u64,
    /// The replica leads no more. Its process ends when the Lease is handed over.
    pub(super) leaves: bool,
    /// The leader was notified of the beginning of a term, and not of its end.
    announced: bool,
}

impl Candidate {
    pub(super) fn new(identity: String, seed: u64) -> Candidate {
        let config = Config {
            identity,
            lease_duration: LEASE_DURATION,
            renew_deadline: Duration::from_secs(12),
            retry_period: Duration::from_secs(2),
        };
        Candidate { elector: Elector::new(config, seed), tick_at: None, cut_until: 0, leaves: false, announced: false }
    }

    /// The next notification of the leader.
    pub(super) fn is_told(&mut self, input: &leader::Input) {
        let ends = matches!(input, leader::Input::TermLost { .. });
        self.announced = !ends && (self.announced || matches!(input, leader::Input::TermGained(_)));
    }
}

/// Returns the replica with this identity.
fn replica_of(identity: &str) -> Option<usize> {
    identity.split_once('-')?.0.parse().ok()
}

impl World {
    pub(super) fn elector_tick(&mut self, at: usize, epoch: u64) {
        let due = |candidate: &Candidate, now| candidate.tick_at.is_some_and(|due| due <= now);
        if !self.is_epoch(at, epoch) || !self.replicas[at].candidate.as_ref().is_some_and(|it| due(it, self.now)) {
            return;
        }
        let local = self.replicas[at].local(self.now);
        let Some(candidate) = &mut self.replicas[at].candidate else { return };
        candidate.tick_at = None;
        candidate.elector.tick(local);
        self.drain_elector(at);
    }

    fn tell_elector(&mut self, at: usize, input: Input) {
        let local = self.replicas[at].local(self.now);
        let Some(candidate) = &mut self.replicas[at].candidate else { return };
        candidate.elector.handle(local, input);
        self.drain_elector(at);
    }

    /// Reads the Lease for the first time. After that, the elector says when to read it.
    pub(super) fn drain_elector(&mut self, at: usize) {
        loop {
            let Some(candidate) = &mut self.replicas[at].candidate else { return };
            let Some(output) = candidate.elector.poll() else { break };
            self.elector_output(at, output);
        }
        let replica = &mut self.replicas[at];
        let (clock, epoch) = (replica.clock, replica.epoch);
        let Some(candidate) = &mut replica.candidate else { return };
        let due = match candidate.elector.next_deadline() {
            Some(next) => clock.world(next),
            None => return,
        };
        if candidate.tick_at.is_none_or(|known| due < known) {
            candidate.tick_at = Some(due);
            self.at(due, Happening::ElectorTick { replica: at, epoch });
        }
    }

    fn elector_output(&mut self, at: usize, output: Output) {
        let epoch = self.replicas[at].epoch;
        match output {
            Output::Get { call } => self.lease_call(at, call, None),
            Output::Put { call, write } => self.lease_call(at, call, Some(write)),
            Output::Gained(term) => {
                self.note(|| format!("replica {at} is elected for term {}", term.number));
                self.term_told(at, epoch, leader::Input::TermGained(term));
            }
            Output::Lost { why } => {
                self.note(|| format!("replica {at} is deposed: {why}"));
                self.term_told(at, epoch, leader::Input::TermLost { leader_endpoint: String::new() });
            }
            Output::Follows { holder, term } => {
                self.note(|| format!("replica {at} follows {holder} in term {}", term.number));
                self.replicas[at].follows = replica_of(&holder);
            }
            Output::Released => self.after(0, Happening::Released { replica: at, epoch }),
            Output::Failed { what, why } => self.note(|| format!("replica {at}: {what} failed: {why}")),
        }
    }

    /// The elector's outputs reach the leader over a channel.
    fn term_told(&mut self, at: usize, epoch: u64, input: leader::Input) {
        self.after(MS, Happening::TermTold { replica: at, epoch, input: Box::new(input) });
    }

    pub(super) fn term_told_now(&mut self, at: usize, epoch: u64, input: leader::Input) {
        if !self.is_epoch(at, epoch) {
            return;
        }
        if let leader::Input::TermGained(term) = &input
            && term.number > 1
            && !law::unfinished(&self.server.truth, self.now).is_empty()
        {
            self.tally.happened("takeover in mid-cascade");
        }
        self.tell(at, input);
    }

    /// Ends a term whose time is over, as the driver does before each round: the elector's message may still be on its
    /// way.
    pub(super) fn end_overdue_term(&mut self, at: usize) {
        let replica = &self.replicas[at];
        let local = replica.local(self.now);
        let is_over = |candidate: &Candidate| {
            candidate.announced && candidate.elector.valid_until().is_none_or(|until| until <= local)
        };
        if replica.candidate.as_ref().is_some_and(is_over) {
            self.tell(at, leader::Input::TermLost { leader_endpoint: String::new() });
        }
    }

    fn lease_call(&mut self, at: usize, call: CallId, write: Option<LeaseWrite>) {
        let epoch = self.replicas[at].epoch;
        let mut delay = self.api.delay(self.options.api_ms);
        let cut = self.replicas[at].candidate.as_ref().is_some_and(|candidate| candidate.cut_until > self.now);
        if cut || self.strikes("lease call failure", self.options.faults.lease_failures) {
            if cut || self.chaos.percent(50) {
                let answer = failed(call, write.is_some());
                return self.after(CALL_LIMIT, Happening::LeaseAnswered { replica: at, epoch, answer });
            }
            delay += self.chaos.between(S, 12 * S);
        }
        self.after(delay, Happening::LeaseCall { replica: at, epoch, call, write });
    }

    pub(super) fn lease_arrives(&mut self, at: usize, epoch: u64, call: CallId, write: Option<LeaseWrite>) {
        let is_write = write.is_some();
        let answer = match write {
            None => Input::Got { call, answer: Ok(self.lease.record.clone()) },
            Some(write) => Input::Put { call, answer: self.write_lease(write) },
        };
        self.note(|| format!("replica {at}: lease {answer:?}"));
        let lost = self.strikes("lease answer lost", self.options.faults.lease_failures);
        let answer = if lost { failed(call, is_write) } else { answer };
        let delay = if lost { CALL_LIMIT } else { self.api.delay(self.options.api_ms) };
        self.after(delay, Happening::LeaseAnswered { replica: at, epoch, answer });
    }

    fn write_lease(&mut self, write: LeaseWrite) -> Result<LeaseRecord, PutError> {
        let known = self.lease.record.as_ref().map(|record| record.resource_version.clone());
        if known != write.resource_version {
            return Err(PutError::Conflict);
        }
        self.lease.version += 1;
        if self.options.busy_store {
            self.server.model.advance_revision(1);
            self.lease.version = self.server.model.revision();
        }
        let record = LeaseRecord {
            uid: Name::from("election"),
            resource_version: ResourceVersion::parse(&self.lease.version.to_string()),
            holder: write.holder,
            transitions: write.transitions,
            duration: write.duration,
            renewed: self.now.to_string(),
        };
        self.lease.record = Some(record.clone());
        Ok(record)
    }

    pub(super) fn lease_answered(&mut self, at: usize, epoch: u64, answer: Input) {
        if !self.is_epoch(at, epoch) {
            return;
        }
        if let Input::Put { answer: Ok(record), .. } = &answer
            && self.options.busy_store
        {
            let collection = GroupResource { group: "".into(), resource: LOCKS.into() };
            self.tell(at, leader::Input::Wrote { collection, resource_version: record.resource_version.clone() });
        }
        self.tell_elector(at, answer);
    }

    /// Stops a replica. The replica hands its Lease over, and its process starts again.
    pub(super) fn hand_over(&mut self, at: usize) {
        let epoch = self.replicas[at].epoch;
        let Some(candidate) = &mut self.replicas[at].candidate else { return };
        if std::mem::replace(&mut candidate.leaves, true) {
            return;
        }
        self.note(|| format!("replica {at} is asked to stop"));
        self.tell(at, leader::Input::Stop);
        self.tell_elector(at, Input::Release);
        self.after(RELEASE_WITHIN, Happening::Released { replica: at, epoch });
    }

    pub(super) fn released(&mut self, at: usize, epoch: u64) {
        if self.is_epoch(at, epoch) {
            self.replica_crash(at);
        }
    }

    /// Checks that at most one replica believes that it leads. Each replica uses its own clock.
    pub(super) fn check_one_leader(&mut self) {
        let leads = |at: &usize| {
            let replica = &self.replicas[*at];
            let valid_until = replica.candidate.as_ref().and_then(|candidate| candidate.elector.valid_until());
            valid_until.is_some_and(|end| replica.local(self.now) < end)
        };
        let leaders: Vec<usize> = (0..self.replicas.len()).filter(leads).collect();
        if leaders.len() > 1 && self.now >= self.lease_forged_until {
            self.violate(format!("replicas {leaders:?} lead at once"));
        }
    }
}

fn failed(call: CallId, is_write: bool) -> Input {
    let why = String::from("no answer");
    if is_write {
        Input::Put { call, answer: Err(PutError::Failed(why)) }
    } else {
        Input::Got { call, answer: Err(why) }
    }
}
