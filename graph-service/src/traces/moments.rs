//! The times at which objects were deleted or marked. They are the beginnings of cascades.
//!
//! The root of a cascade is not known in advance, so this table records all objects. It has a fixed size, and newer
//! entries overwrite older ones. If a beginning is lost, the cascade's span starts too late.

use engine::object::Uid;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// A power of two: a quarter of a megabyte.
const PLACES: usize = 8192;
/// An older entry belongs to another cascade.
const OLDEST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Moments {
    places: Box<[Option<Moment>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Hash of the uid.
    hash: u64,
    at: Instant,
    why: Why,
}

/// The beginning of a cascade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The root left the graph.
    Gone,
    /// The root was proven absent.
    Absent,
    /// The root got a deletion mark.
    Terminating,
    /// A dependent appeared whose owner was already gone.
    Seen,
}

impl Why {
    pub(super) fn word(self) -> &'static str {
        match self {
            Why::Gone => "owner_gone",
            Why::Absent => "owner_proven_absent",
            Why::Terminating => "owner_terminating",
            Why::Seen => "dependent_seen",
        }
    }
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { places: vec![None; PLACES].into(), hasher: RandomState::new() }
    }
}

impl Moments {
    /// Records a time. A terminating owner is shown repeatedly, but only the first time counts.
    pub(super) fn note(&mut self, uid: &Uid, at: Instant, why: Why) {
        let hash = self.hasher.hash_one(uid);
        let place = self.place(hash);
        let known = place.is_some_and(|moment| moment.hash == hash && at.saturating_duration_since(moment.at) < OLDEST);
        // A deleted object is also proven absent at once.
        if !(known && matches!(why, Why::Terminating | Why::Absent)) {
            *place = Some(Moment { hash, at, why });
        }
    }

    pub(super) fn of(&mut self, uid: &Uid, now: Instant) -> Option<(Instant, Why)> {
        let hash = self.hasher.hash_one(uid);
        let moment = self.place(hash).filter(|moment| moment.hash == hash)?;
        (now.saturating_duration_since(moment.at) < OLDEST).then_some((moment.at, moment.why))
    }

    fn place(&mut self, hash: u64) -> &mut Option<Moment> {
        let at = usize::try_from(hash % PLACES as u64).expect("a remainder is below the number of places");
        &mut self.places[at]
    }
}
