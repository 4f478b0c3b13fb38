//! Tombstones: recently deleted objects, for readers.

use crate::decision::Cause;
use crate::object::{ObjectRef, ResourceVersion, Uid};
use crate::recent::Recent;
use crate::time::Time;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

/// Maximum number of remembered objects.
pub(crate) const TOMBSTONES_MAX: usize = 16_384;
/// How long an object is remembered.
pub(crate) const TOMBSTONE_AGE_MAX: Duration = Duration::from_secs(600);

/// A deleted object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub object: ObjectRef,
    pub at: Time,
    /// A DELETE of this collector had been accepted.
    pub caused_by_us: bool,
    /// The causes of the deletion, if the collector deleted the object.
    pub causes: Vec<Cause>,
    pub resource_version: Option<ResourceVersion>,
    /// The version of its DELETED event, if there was one.
    pub deleted: Option<ResourceVersion>,
    /// As in [`crate::object::Facts`].
    pub deletion_time: Option<NonZeroU32>,
    /// The object was in foreground deletion.
    pub deleted_dependents: bool,
    /// The object was in orphaning deletion.
    pub orphaned_dependents: bool,
}

/// In the order of deletion. For an object that was deleted twice, the last time counts.
#[derive(Debug)]
pub(crate) struct Tombstones(Recent<Tombstone>);

impl Tombstones {
    /// Empty. The secret keeps users from choosing uids with slow lookups.
    pub(crate) fn new(secret: u64) -> Tombstones {
        Tombstones(Recent::new(TOMBSTONES_MAX, secret))
    }

    pub(crate) fn put(&mut self, tombstone: Tombstone) {
        while self.0.drop_first_if(|kept| is_old(kept.at, tombstone.at)) {}
        self.0.put(tombstone.object.uid.clone(), tombstone);
    }

    pub(crate) fn get(&self, now: Time, uid: &Uid) -> Option<&Tombstone> {
        self.0.get(uid).filter(|tombstone| !is_old(tombstone.at, now))
    }

    /// Records that the collector deleted the object.
    pub(crate) fn credit(&mut self, uid: &Uid) {
        if let Some(tombstone) = self.0.get_mut(uid) {
            tombstone.caused_by_us = true;
        }
    }

    /// The newest first.
    pub(crate) fn iter(&self, now: Time) -> impl Iterator<Item = &Tombstone> {
        self.0.iter().take_while(move |tombstone| !is_old(tombstone.at, now))
    }
}

fn is_old(at: Time, now: Time) -> bool {
    now.since(at) > TOMBSTONE_AGE_MAX
}
