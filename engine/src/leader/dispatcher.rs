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
    pub(super) queue: Queue,
    pub(super) leases: Leases,
    pub(super) late_writes: LateWrites,
    pub(super) pacing: pacing::Pacing,
    pub(super) lies: Lies,
    /// [`super::Timer::Balance`] is set.
    pub(super) balancing: bool,
    /// What was carried out last, by target.
    pub(super) carried_out: Recent<repeating::CarriedOut>,
    /// Refusals that were reported in this term, by executor and reason.
    pub(super) refused: BTreeSet<(Name, &'static str)>,
    /// The session that was granted something last.
    pub(super) turn: SessionId,
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
}
