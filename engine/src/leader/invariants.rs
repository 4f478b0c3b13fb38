//! Invariants of the leader that hold between any two calls, for simulators and tests.

use super::Leader;
use crate::queue::Item;
use crate::work::LeaseId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

impl Leader {
    /// Returns the first violated invariant. The check reads all state, so it is too expensive for a service.
    pub fn inconsistency(&self) -> Option<String> {
        let graph = self.world.graph().inconsistency().or_else(|| self.dispatcher.queue().inconsistency());
        graph
            .or_else(|| self.world.inconsistent_counts())
            .or_else(|| self.inconsistent_leases())
            .or_else(|| self.world.stray_notes())
    }

    fn inconsistent_leases(&self) -> Option<String> {
        let mut by_target: BTreeMap<_, LeaseId> = BTreeMap::new();
        for (id, lease) in self.dispatcher.leases().iter() {
            if let Some(other) = by_target.insert(&lease.target, id) {
                return Some(format!("leases {other} and {id} for {}", lease.target));
            }
            if !self.dispatcher.leases().session(lease.session).is_some_and(|session| session.leases.contains(&id)) {
                return Some(format!("lease {id} is not in the list of its session"));
            }
        }
        for uid in self.dispatcher.queue().uids() {
            let Some(id) = self.dispatcher.queue().get(uid).and_then(Item::lease) else { continue };
            if by_target.get(uid) != Some(&id) {
                return Some(format!("the item of {uid} is under lease {id}, which does not exist"));
            }
        }
        let held: usize = self.dispatcher.leases().sessions().map(|(_, session)| session.leases.len()).sum();
        (held != by_target.len()).then(|| format!("the sessions hold {held} leases, the total is {}", by_target.len()))
    }
}
