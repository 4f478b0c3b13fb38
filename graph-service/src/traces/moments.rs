//! When objects went, or were seen to be going: the beginnings of cascades.
//!
//! Of all objects, because nobody knows beforehand which of them a cascade begins with. So it is a table of fixed size in which what comes later
//! takes the place of what was there before. A beginning that is lost costs the cascade's span its first moments.

use engine::object::Uid;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// A power of two; a quarter of a megabyte.
const PLACES: usize = 8192;
/// What is older began something else.
const OLDEST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Moments {
    places: Box<[Option<Moment>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Of the uid.
    hash: u64,
    at: Instant,
    why: Why,
}

/// What made a cascade begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its root left the graph.
    Gone,
    /// Its root was proven absent.
    Absent,
    /// Its root was shown with a deletion mark.
    Terminating,
    /// A dependent came in sight whose owner had gone before.
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
    /// An owner that is terminating is shown again and again; what counts is the first time.
    pub(super) fn note(&mut self, uid: &Uid, at: Instant, why: Why) {
        let hash = self.hasher.hash_one(uid);
        let place = self.place(hash);
        let known = place.is_some_and(|moment| moment.hash == hash && at.saturating_duration_since(moment.at) < OLDEST);
        // Whatever goes is proven absent in the same breath.
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
