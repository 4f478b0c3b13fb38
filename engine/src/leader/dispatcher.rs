//! What is decided and how it gets to executors: the queue, sessions and leases, and the pace of writes.

use crate::jitter::Jitter;
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
    /// [`super::Timer::Balance`] is set.
    balancing: bool,
    /// What was carried out last, by target.
    carried_out: Recent<repeating::CarriedOut>,
    /// Refusals that were reported in this term, by executor and reason.
    refused: BTreeSet<(Name, &'static str)>,
    /// The session that was granted something last.
    turn: SessionId,
}

/// How a lease that was not reported has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// Its item is ready again, or waits.
    Ready,
    /// Its decision was taken back or replaced meanwhile.
    Overtaken,
}

impl Dispatcher {
    pub(super) fn new(seed: u64, secrets: &mut Jitter) -> Dispatcher {
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
