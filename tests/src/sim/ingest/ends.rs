//! The ends of watches, and their information about a restore for the leader.

use super::Line;
use crate::sim::kinds::KINDS;
use crate::sim::world::{MS, S, World};
use engine::follow::Input as Heard;
use std::time::Duration;

/// A watch that ends at most this long before its limit may have reached the limit by the clock of the server.
const SERVER_MAY_BE_FASTER_BY: Duration = Duration::from_secs(2);

impl World {
    /// The time limit of the watch has passed.
    pub(in crate::sim) fn watch_ends(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if self.is_following(at, epoch, kind, generation) {
            self.hears(at, kind, Heard::Ended);
        }
    }

    pub(super) fn drop_watch(&mut self, at: usize, kind: usize) {
        let transport = self.strikes("transport error", self.options.faults.transport);
        let long = self.chaos.once_in(5);
        let delay = if long { self.chaos.between(S, 90 * S) } else { self.chaos.between(MS, 3 * S) };
        self.replicas[at].collections[kind].down_until = self.now + delay;
        if !transport && self.chaos.once_in(2) {
            self.tally.fault("clean end");
            return self.hears(at, kind, Heard::Ended);
        }
        self.fail(at, kind, if transport { None } else { Some(500) }, "the watch broke");
    }

    /// The member stops, and all watches that it answers end.
    pub(in crate::sim) fn break_members_watches(&mut self) {
        for at in 0..self.replicas.len() {
            if self.replicas[at].leader.is_none() {
                continue;
            }
            for kind in 0..KINDS.len() {
                if matches!(&self.replicas[at].collections[kind].line, Line::Stream(stream) if stream.shows_through.is_some())
                {
                    self.fail(at, kind, None, "the member is gone");
                }
            }
        }
    }

    /// The client finds that a restore has ended a connection. The judge does not rely on the client to tell the
    /// leader: a client that keeps an early end to itself does not excuse a leader that goes on.
    pub(in crate::sim) fn broken(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_following(at, epoch, kind, generation) {
            return;
        }
        let clean = matches!(self.replicas[at].collections[kind].line, Line::Broken { clean: true });
        if clean && self.is_at_limit(at, kind) {
            self.tally.fault("restore at a watch's limit");
        } else {
            self.may_know(at, kind);
        }
        if clean {
            self.hears(at, kind, Heard::Ended);
        } else {
            self.fail(at, kind, None, "the connection broke");
        }
    }

    /// The replica has received a message that may mean another history of this collection's store.
    pub(super) fn may_know(&mut self, at: usize, kind: usize) {
        if !self.options.is_aggregated(kind) {
            self.told_of_history(at);
        }
    }

    /// Returns whether a watch that ends now has reached its limit, as far as its client can tell. Every watch ends in
    /// this way, so the end of this one says nothing of a restore. The watches that the restore ends before their
    /// limits tell the leader, as does the next list.
    fn is_at_limit(&self, at: usize, kind: usize) -> bool {
        let replica = &self.replicas[at];
        replica.collections[kind].limit.since(replica.local(self.now)) <= SERVER_MAY_BE_FASTER_BY
    }
}
