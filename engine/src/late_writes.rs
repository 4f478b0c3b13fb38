//! Writes that may still be sent, or be on their way, although no lease here stands for them any more.
//!
//! A pause is effective only when there are none of these in its scope. What is not known in full is counted as in every scope.

use crate::hold::{Place, Scope};
use crate::lease::{Lease, Session, SessionId};
use crate::object::Name;
use crate::time::Time;
use crate::work::LeaseId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Leases given up without a word of their executor that are remembered one by one.
const GIVEN_UP_MAX: usize = 65_536;
/// Ended sessions that are remembered one by one.
const DEPARTED_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct LateWrites {
    /// Leases given up without a word of their executor, which may begin them yet.
    given_up: BTreeMap<LeaseId, (SessionId, Place)>,
    /// Sessions of which more was given up than is remembered.
    uncounted: BTreeSet<SessionId>,
    /// What executors named in their hello as started under another term, or under a lease unknown here.
    foreign: BTreeMap<SessionId, BTreeSet<LeaseId>>,
    departed: VecDeque<Departed>,
    /// Until then sessions of earlier terms may write, whoever has them.
    earlier_terms: Option<Time>,
}

/// A session that ended without its executor's word.
#[derive(Debug)]
struct Departed {
    /// Name and incarnation.
    executor: (Name, Name),
    until: Time,
    /// `None`: anything.
    places: Option<BTreeSet<Place>>,
}

/// Who may still write in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writers {
    /// Sessions that are open.
    pub(crate) sessions: BTreeSet<SessionId>,
    pub(crate) departed: usize,
    pub(crate) earlier_terms: bool,
}

impl Writers {
    /// How many, those of earlier terms counted as one: nobody knows their number.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len() + self.departed + usize::from(self.earlier_terms)
    }
}

impl LateWrites {
    /// A new term began: sessions of earlier ones, whoever has them, may write until `until`.
    pub(crate) fn begin_term(&mut self, until: Time) {
        self.earlier_terms = Some(until);
    }

    /// A lease ended here, and its executor has said nothing of it.
    pub(crate) fn give_up(&mut self, id: LeaseId, lease: &Lease) {
        let Some(place) = lease.destroys.clone() else { return };
        if self.given_up.len() < GIVEN_UP_MAX {
            self.given_up.insert(id, (lease.session, place));
        } else {
            self.uncounted.insert(lease.session);
        }
    }

    /// The executor has said of this lease that it is over.
    pub(crate) fn ended(&mut self, session: SessionId, id: LeaseId) {
        if self.given_up.get(&id).is_some_and(|(of, _)| *of == session) {
            self.given_up.remove(&id);
        }
        if let Some(foreign) = self.foreign.get_mut(&session) {
            foreign.remove(&id);
            if foreign.is_empty() {
                self.foreign.remove(&session);
            }
        }
    }

    /// The executor has said what it holds: nothing else is under way there. `started` are those it has begun and that this leader
    /// does not count as leases.
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

    /// What a session may be writing that is not leased: to be stopped.
    pub(crate) fn of_session(&self, session: SessionId) -> Vec<LeaseId> {
        let given_up = self.given_up.iter().filter(|(_, (of, _))| *of == session).map(|(&id, _)| id);
        given_up.chain(self.foreign.get(&session).into_iter().flatten().copied()).collect()
    }

    /// A session is over, and its executor has not said what became of `leases`: it may write until `until`.
    pub(crate) fn session_ended<'a>(
        &mut self,
        id: SessionId,
        session: &Session,
        leases: impl Iterator<Item = &'a Lease>,
        until: Time,
    ) {
        let executor = (session.executor.clone(), session.incarnation.clone());
        let mut places: BTreeSet<Place> = leases.filter_map(|lease| lease.destroys.clone()).collect();
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
        // More than anybody can want to know of: one of them stands for the rest.
        if let Some(last) = self.departed.back_mut() {
            last.until = last.until.max(until);
            last.places = None;
        }
    }

    /// Forgets what is over by now.
    pub(crate) fn tick(&mut self, now: Time) {
        self.departed.retain(|departed| departed.until > now);
        self.earlier_terms = self.earlier_terms.filter(|&until| until > now);
    }

    /// Who may still write in `scope`, beside those who hold leases in it.
    pub(crate) fn writers(&self, scope: &Scope) -> Writers {
        let given_up = self.given_up.values().filter(|(_, place)| scope.covers_place(place)).map(|(of, _)| *of);
        let covers = |departed: &&Departed| {
            departed.places.as_ref().is_none_or(|places| places.iter().any(|place| scope.covers_place(place)))
        };
        Writers {
            sessions: given_up.chain(self.uncounted.iter().copied()).chain(self.foreign.keys().copied()).collect(),
            departed: self.departed.iter().filter(covers).count(),
            earlier_terms: self.earlier_terms.is_some(),
        }
    }
}
