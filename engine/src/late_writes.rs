//! Late writes: writes that may still be sent or be in flight although the leader knows no lease for them.
//!
//! A pause is effective only if there are no late writes in its scope. A write with an unknown target counts for every
//! scope.

use crate::lease::{Lease, Session, SessionId};
use crate::object::Name;
use crate::scope::{Scope, Target};
use crate::time::Time;
use crate::work::LeaseId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Maximum number of leases given up without a report that are remembered one by one.
const GIVEN_UP_MAX: usize = 65_536;
/// Maximum number of places that are remembered one by one.
const PLACES_MAX: usize = 4_096;
/// Maximum number of ended sessions that are remembered one by one.
const DEPARTED_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct LateWrites {
    /// Leases given up without a report. Their executor may still start them.
    given_up: BTreeMap<LeaseId, (SessionId, Target)>,
    /// Sessions with more leases given up than are remembered.
    uncounted: BTreeSet<SessionId>,
    /// Leases that executors named in their hello as started in another term, or that are unknown here.
    foreign: BTreeMap<SessionId, BTreeSet<LeaseId>>,
    departed: VecDeque<Departed>,
    /// Writes without an answer may be in transit to these places until these times.
    unanswered: BTreeMap<Target, Time>,
    /// The same for places beyond the bound.
    unanswered_anywhere: Option<Time>,
    /// Sessions of earlier terms may write until this time.
    earlier_terms: Option<Time>,
}

/// A session that ended without its executor's confirmation.
#[derive(Debug)]
struct Departed {
    /// Name and incarnation.
    executor: (Name, Name),
    until: Time,
    /// `None`: any place.
    places: Option<BTreeSet<Target>>,
}

/// The possible writers in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writers {
    /// Sessions that are open.
    pub(crate) sessions: BTreeSet<SessionId>,
    pub(crate) departed: usize,
    /// Places to which a write without an answer may be in transit.
    pub(crate) unanswered: usize,
    pub(crate) earlier_terms: bool,
}

/// The lease whose end an executor has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The leader had given it up. Its write has this place.
    GivenUp(Target),
    /// The executor had named it in its hello, and the leader did not count it.
    Foreign,
    Other,
}

impl Writers {
    /// The number of possible writers. Sessions of earlier terms count as one, because their number is unknown.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len() + self.departed + self.unanswered + usize::from(self.earlier_terms)
    }
}

impl LateWrites {
    /// A new term has started: sessions of earlier terms may write until `until`.
    pub(crate) fn begin_term(&mut self, until: Time) {
        self.earlier_terms = Some(until);
    }

    /// A lease ended here without a report of its executor.
    pub(crate) fn give_up(&mut self, id: LeaseId, lease: &Lease) {
        let Some(place) = lease.destroys.clone() else { return };
        if self.given_up.len() < GIVEN_UP_MAX {
            self.given_up.insert(id, (lease.session, place));
        } else {
            self.uncounted.insert(lease.session);
        }
    }

    /// Records that the executor has got no answer to a write. The write may be in transit until `until`; without a
    /// place, to any place.
    pub(crate) fn unanswered(&mut self, place: Option<Target>, until: Time) {
        match place {
            Some(place) if self.unanswered.len() < PLACES_MAX || self.unanswered.contains_key(&place) => {
                self.unanswered.insert(place, until);
            }
            Some(_) | None => self.unanswered_anywhere = self.unanswered_anywhere.max(Some(until)),
        }
    }

    /// Records that the executor has reported the end of this lease.
    pub(crate) fn ended(&mut self, session: SessionId, id: LeaseId) -> Ended {
        let is_known = self.given_up.get(&id).is_some_and(|(of, _)| *of == session);
        let given_up = if is_known { self.given_up.remove(&id) } else { None };
        let foreign = self.foreign.get_mut(&session).is_some_and(|foreign| foreign.remove(&id));
        if self.foreign.get(&session).is_some_and(BTreeSet::is_empty) {
            self.foreign.remove(&session);
        }
        match given_up {
            Some((_, place)) => Ended::GivenUp(place),
            None if foreign => Ended::Foreign,
            None => Ended::Other,
        }
    }

    /// Takes the leases that an executor names in its hello. No other leases are in progress there. `started` are the
    /// leases that the executor has started and that this leader does not count as leases.
    pub(crate) fn hello(
        &mut self,
        id: SessionId,
        session: &Session,
        held: &BTreeSet<LeaseId>,
        started: BTreeSet<LeaseId>,
    ) {
        self.departed.retain(|departed| departed.executor != (session.executor.clone(), session.incarnation.clone()));
        self.uncounted.remove(&id);
        self.given_up.retain(|lease, (of, _)| *of != id || held.contains(lease));
        let unknown = |lease: &LeaseId| !self.given_up.contains_key(lease);
        let foreign: BTreeSet<LeaseId> = started.into_iter().filter(unknown).collect();
        if foreign.is_empty() {
            self.foreign.remove(&id);
        } else {
            self.foreign.insert(id, foreign);
        }
    }

    /// The leases of a session's writes that have no lease in this term. These writes must be stopped.
    pub(crate) fn of_session(&self, session: SessionId) -> Vec<LeaseId> {
        let given_up = self.given_up.iter().filter(|(_, (of, _))| *of == session).map(|(&id, _)| id);
        given_up.chain(self.foreign.get(&session).into_iter().flatten().copied()).collect()
    }

    /// Records that a session has ended while its executor has not reported the result of `leases`. The executor may
    /// write until `until`.
    pub(crate) fn session_ended<'a>(
        &mut self,
        id: SessionId,
        session: &Session,
        leases: impl Iterator<Item = &'a Lease>,
        until: Time,
    ) {
        let executor = (session.executor.clone(), session.incarnation.clone());
        let mut places: BTreeSet<Target> = leases.filter_map(|lease| lease.destroys.clone()).collect();
        self.given_up.retain(|_, (of, place)| {
            if *of == id {
                places.insert(place.clone());
            }
            *of != id
        });
        let anything = self.foreign.remove(&id).is_some() | self.uncounted.remove(&id);
        if places.is_empty() && !anything {
            return;
        }
        let places = if anything { None } else { Some(places) };
        if self.departed.len() < DEPARTED_MAX {
            return self.departed.push_back(Departed { executor, until, places });
        }
        // Beyond the bound, the last entry stands for all further ones.
        if let Some(last) = self.departed.back_mut() {
            last.until = last.until.max(until);
            last.places = None;
        }
    }

    /// Forgets expired entries.
    pub(crate) fn tick(&mut self, now: Time) {
        self.departed.retain(|departed| departed.until > now);
        self.unanswered.retain(|_, until| *until > now);
        self.unanswered_anywhere = self.unanswered_anywhere.filter(|&until| until > now);
        self.earlier_terms = self.earlier_terms.filter(|&until| until > now);
    }

    /// The possible writers in `scope`, besides the holders of leases in it.
    pub(crate) fn writers(&self, scope: &Scope) -> Writers {
        let given_up = self.given_up.values().filter(|(_, place)| scope.covers_target(place)).map(|(of, _)| *of);
        let covers = |departed: &&Departed| {
            departed.places.as_ref().is_none_or(|places| places.iter().any(|place| scope.covers_target(place)))
        };
        Writers {
            sessions: given_up.chain(self.uncounted.iter().copied()).chain(self.foreign.keys().copied()).collect(),
            departed: self.departed.iter().filter(covers).count(),
            unanswered: self.unanswered.keys().filter(|place| scope.covers_target(place)).count()
                + usize::from(self.unanswered_anywhere.is_some()),
            earlier_terms: self.earlier_terms.is_some(),
        }
    }
}
