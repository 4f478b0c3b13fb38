//! Distribution of decisions to executors: the queue, the sessions and leases, and the write rate.

use crate::jitter::Rng;
use crate::late_writes::LateWrites;
use crate::lease::{Leases, SessionId};
use crate::lies::Lies;
use crate::object::Name;
use crate::queue::Queue;
use crate::recent::Recent;
use alloc::collections::BTreeSet;
mod balancing;
mod blocking;
pub(super) mod holds;
mod pacing;
pub(super) mod repeating;
mod sessions;
mod waits;

#[derive(Debug)]
pub(super) struct Dispatcher {
    queue: Queue,
    leases: Leases,
    late_writes: LateWrites,
    pacing: pacing::Pacing,
    lies: Lies,
    /// True if [`super::Timer::Balance`] is set.
    balancing: bool,
    /// The last action that was carried out, by target.
    carried_out: Recent<repeating::CarriedOut>,
    /// The refusals that were reported in this term, by executor and reason.
    refused: BTreeSet<(Name, &'static str)>,
    /// The session that received the last grant.
    turn: SessionId,
}

/// The end of a lease without a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// The item is ready again, or waits.
    Ready,
    /// The decision was withdrawn or replaced during the lease.
    Overtaken,
}

impl Dispatcher {
    pub(super) fn new(seed: u64, secrets: &mut Rng) -> Dispatcher {
        Dispatcher {
            queue: Queue::default(),
            leases: Leases::new(seed),
            late_writes: LateWrites::default(),
            pacing: pacing::Pacing::default(),
            lies: Lies::default(),
            balancing: false,
            carried_out: Recent::new(repeating::CARRIED_OUT_MAX, secrets.next()),
            refused: BTreeSet::new(),
            turn: SessionId(0),
        }
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    pub(super) fn lies(&self) -> &Lies {
        &self.lies
    }
}
