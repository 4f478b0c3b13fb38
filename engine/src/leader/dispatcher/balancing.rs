//! Rebalancing of grants: idle executors receive grants that busy executors have not started.

use super::super::Timer;
use super::super::context::Context;
use super::Dispatcher;
use crate::lease::SessionId;
use crate::work::{LeaseId, RevokeMode};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// Time after which an unstarted grant counts as waiting for a slot of its executor.
const WAITS_AFTER: Duration = Duration::from_millis(250);

impl Dispatcher {
    /// Schedules a rebalancing after a grant.
    pub(in crate::leader) fn balance_later(&mut self, cx: &mut Context) {
        if !self.balancing {
            self.balancing = true;
            cx.timers.set(cx.now + WAITS_AFTER, Timer::Balance);
        }
    }

    pub(in crate::leader) fn balance_due(&mut self, cx: &mut Context, may_grant: bool) {
        self.balancing = false;
        self.balance(cx, may_grant);
        if self.leases.has_unstarted() {
            self.balance_later(cx);
        }
    }

    /// Recalls as many waiting grants as idle executors can start at once.
    pub(in crate::leader) fn balance(&mut self, cx: &mut Context, may_grant: bool) {
        if self.queue.has_ready() || !may_grant || !self.leases.has_unstarted() {
            return;
        }
        let mut idle: Vec<(SessionId, usize)> = self
            .leases
            .sessions()
            .filter(|(_, session)| session.is_in_time())
            .map(|(id, session)| (id, session.free_slots()))
            .filter(|&(_, free)| free > 0)
            .collect();
        if idle.is_empty() {
            return;
        }
        let mut waiting = self.waiting(cx);
        let mut recalled = Vec::new();
        // Recalls one grant of each session in turn.
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
            if let Some(lease) = self.leases.get_mut(lease) {
                lease.recalled = true;
            }
        }
        self.revoke(cx, &recalled, RevokeMode::IfNotStarted, "another executor is idle");
    }

    /// Returns the grants that wait for a slot and are not recalled, by session. The grant that starts last comes last.
    pub(in crate::leader) fn waiting(&self, cx: &Context) -> BTreeMap<SessionId, Vec<LeaseId>> {
        let mut waiting: BTreeMap<SessionId, Vec<LeaseId>> = BTreeMap::new();
        for id in self.leases.unstarted() {
            let Some(lease) = self.leases.get(id) else { continue };
            if !lease.recalled && cx.now.since(lease.granted) >= WAITS_AFTER {
                waiting.entry(lease.session).or_default().push(id);
            }
        }
        waiting
    }

    pub(in crate::leader) fn can_do(&self, session: SessionId, lease: LeaseId) -> bool {
        let kind = || Some(self.queue.get(&self.leases.get(lease)?.target)?.draft.action.kind());
        let Some(session) = self.leases.session(session) else { return false };
        kind().is_some_and(|kind| session.kinds.contains(&kind))
    }
}
