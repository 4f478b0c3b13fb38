//! Work for executors with nothing to do, where all there is was granted to others that have not begun it.

use super::{Leader, Timer};
use crate::lease::SessionId;
use crate::work::{LeaseId, RevokeMode};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// A grant that was not begun for so long waits for a slot: its holder is busy.
const WAITS_AFTER: Duration = Duration::from_millis(250);

impl Leader {
    /// Something was granted, and may have to wait.
    pub(super) fn balance_later(&mut self) {
        if !self.dispatcher.balancing {
            self.dispatcher.balancing = true;
            self.cx.timers.set(self.cx.now + WAITS_AFTER, Timer::Balance);
        }
    }

    pub(super) fn balance_due(&mut self) {
        self.dispatcher.balancing = false;
        self.balance();
        if self.dispatcher.leases.has_unstarted() {
            self.balance_later();
        }
    }

    /// Asks for as many grants back as others could begin at once.
    pub(super) fn balance(&mut self) {
        if self.dispatcher.queue.has_ready() || !self.may_grant() || !self.dispatcher.leases.has_unstarted() {
            return;
        }
        let mut idle: Vec<(SessionId, usize)> = self
            .dispatcher
            .leases
            .sessions()
            .filter(|(_, session)| session.is_in_time())
            .map(|(id, session)| (id, session.free_slots()))
            .filter(|&(_, free)| free > 0)
            .collect();
        if idle.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        let mut recalled = Vec::new();
        // One from each holder in turn.
        while !idle.is_empty() && !waiting.is_empty() {
            waiting.retain(|&holder, leases| {
                let Some(lease) = leases.pop() else { return false };
                let taker = idle.iter().position(|&(taker, _)| taker != holder && self.can_do(taker, lease));
                if let Some(at) = taker {
                    recalled.push(lease);
                    idle[at].1 -= 1;
                    if idle[at].1 == 0 {
                        idle.swap_remove(at);
                    }
                }
                true
            });
        }
        for &lease in &recalled {
            if let Some(lease) = self.dispatcher.leases.get_mut(lease) {
                lease.recalled = true;
            }
        }
        self.revoke(&recalled, RevokeMode::IfNotStarted, "another executor has nothing to do");
    }

    /// Grants that wait for a slot and were not asked for back, by holder; the last to be begun is the last.
    fn waiting(&self) -> BTreeMap<SessionId, Vec<LeaseId>> {
        let mut waiting: BTreeMap<SessionId, Vec<LeaseId>> = BTreeMap::new();
        for id in self.dispatcher.leases.unstarted() {
            let Some(lease) = self.dispatcher.leases.get(id) else { continue };
            if !lease.recalled && self.cx.now.since(lease.granted) >= WAITS_AFTER {
                waiting.entry(lease.session).or_default().push(id);
            }
        }
        waiting
    }

    fn can_do(&self, session: SessionId, lease: LeaseId) -> bool {
        let kind = || Some(self.dispatcher.queue.get(&self.dispatcher.leases.get(lease)?.target)?.draft.action.kind());
        let Some(session) = self.dispatcher.leases.session(session) else { return false };
        kind().is_some_and(|kind| session.kinds.contains(&kind))
    }
}
