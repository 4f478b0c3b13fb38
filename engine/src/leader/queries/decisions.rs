//! Queries for decisions that are not carried out yet.

use super::Queries;
use crate::leader::OpenDecision;
use crate::object::Uid;
use alloc::vec::Vec;

impl Queries<'_> {
    /// Returns at most `max` decisions that are not carried out yet, by the uid of their target, starting after
    /// `after`.
    pub fn open_decisions(&self, after: Option<&Uid>, max: usize) -> Vec<OpenDecision> {
        let open = |uid: &Uid| {
            let item = self.queue().get(uid)?;
            let lease = item.lease().and_then(|lease| self.leader.dispatcher.leases().get(lease));
            let executor = lease.and_then(|lease| self.leader.dispatcher.leases().session(lease.session));
            Some(OpenDecision {
                target: item.draft.target.clone(),
                action: item.draft.action.kind(),
                decided: item.decided,
                attempts: item.attempts,
                executor: executor.map(|session| session.executor.clone()),
                held: item.held().is_some(),
                grounds: *self.world().grounds_now(self.cx(), &item.draft),
            })
        };
        self.queue().uids_after(after).take(max).filter_map(open).collect()
    }
}
