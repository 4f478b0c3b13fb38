//! The store that a collection is kept in, and the highest seen version of a store.

use crate::object::ResourceVersion;
use crate::time::Time;

/// Minimum step of a version that counts as a jump. The manual of `etcdutl --bump-revision` recommends adding a
/// thousand million. No cluster writes as much in a moment.
const LEAP_MIN: u128 = 100_000_000;
/// Maximum rate of writes. No cluster writes faster for long.
const WRITES_PER_SECOND_MAX: u128 = 50_000;

/// The highest version seen of a store, and when.
#[derive(Clone, Debug)]
pub(super) struct Peak {
    pub(super) version: ResourceVersion,
    pub(super) at: Time,
}

impl Peak {
    pub(super) fn leaps(&self, now: Time, version: &ResourceVersion) -> bool {
        version.leaps(&self.version, LEAP_MIN + WRITES_PER_SECOND_MAX * u128::from(now.since(self.at).as_secs()))
    }

    pub(super) fn raise(&mut self, now: Time, version: &ResourceVersion) {
        if !version.is_before(&self.version) && !self.leaps(now, version) {
            *self = Peak { version: version.clone(), at: now };
        }
    }
}

pub(super) fn raise(store: &mut Option<Peak>, now: Time, version: &ResourceVersion) {
    match store {
        Some(peak) => peak.raise(now, version),
        None => *store = Some(Peak { version: version.clone(), at: now }),
    }
}

/// Which store a collection is kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the main store, as far as is known.
    Main {
        /// The collection was seen at or past the highest version known of the main store.
        keeps_up: bool,
        /// The number of consecutive answers that contradict this placement.
        against: u32,
    },
    /// In a store of its own, because of `--etcd-servers-overrides`. The administrator has named the collection.
    Apart,
    /// Unknown. The positions of answers differ from those of the other collections, and the administrator does not
    /// name this collection. Either it has a store of its own, or another server answers for it. No list of it proves
    /// anything.
    Unknown {
        /// The number of consecutive answers that agree with the main store.
        along: u32,
        /// The version of the last answer.
        stood: Option<ResourceVersion>,
    },
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::Main { keeps_up: false, against: 0 }
    }
}
