//! Prefetches the memory that many facts need.
//!
//! In a large graph nearly every step of a fact waits for memory: its slot in an index, the node, its name, its owner.
//! The steps of one fact depend on one another. The steps of different facts do not, and a processor can wait for a
//! dozen memory accesses at once. So each step runs for all facts before the next step. The call changes only the
//! content of the processor's caches.

use super::{Graph, NodeId};
use crate::coverage::KindId;
use crate::object::Object;
use alloc::vec::Vec;
use core::hint::black_box;

/// Minimum size of a graph to prefetch. A smaller graph fits into the caches.
const WORTH_IT_FROM: usize = 1 << 18;

impl Graph {
    /// Prefetches these objects and their owners. Changes nothing.
    pub(crate) fn prefetch<'a>(&self, objects: impl Iterator<Item = (KindId, &'a Object)>) {
        if self.len() >= WORTH_IT_FROM {
            self.fetch(objects);
        }
    }

    /// Reads the nodes of these objects and their owners. Returns how many seem to exist.
    pub(super) fn fetch<'a>(&self, objects: impl Iterator<Item = (KindId, &'a Object)>) -> usize {
        let (mut uids, mut addresses) = (Vec::new(), Vec::new());
        for (kind, object) in objects {
            uids.push(self.by_uid.hash(&object.uid));
            uids.extend(object.facts.owners.iter().map(|reference| self.by_uid.hash(&reference.uid)));
            let place = self.places.find(&(kind, object.namespace.clone()));
            addresses.extend(place.map(|place| self.by_address.hash(&(place, &*object.name))));
        }
        let glanced = |sum: u64, glance: u64| sum.wrapping_add(glance);
        black_box(uids.iter().map(|&hash| self.by_uid.glance(hash)).fold(0, glanced));
        black_box(addresses.iter().map(|&hash| self.by_address.glance(hash)).fold(0, glanced));
        let ids: Vec<NodeId> = uids.iter().filter_map(|&hash| self.by_uid.get(hash).next()).map(NodeId).collect();
        black_box(ids.iter().map(|&id| u64::from(self.cell(id).dependents)).fold(0, glanced));
        black_box(ids.iter().map(|&id| self.texts.glance(self.cell(id).name)).fold(0, glanced));
        let dependents =
            ids.iter().filter_map(|&id| self.dependents.get(self.cell(id).dependents.wrapping_sub(1) as usize));
        black_box(dependents.map(|dependents| dependents.as_slice().len() as u64).fold(0, glanced));
        ids.len()
    }
}
