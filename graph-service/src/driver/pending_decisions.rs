//! Pending decisions: grants that wait until the log has their events.
//!
//! If replicas share the decision log, no grant leaves before the log has acknowledged the event of that grant. So the
//! log knows every write, even if this process is killed. A grant that is recalled before it leaves returns at once, as
//! if the executor had not started it. So does a grant whose event had no room in a required log.

use crate::decisions::{Progress, Queue, Standing};
use engine::leader::StreamId;
use engine::work::{LeaseId, ReturnCause, ToExecutor, ToLeader, WorkLease, WorkReturn};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Messages that wait for the log.
#[derive(Debug)]
pub(crate) struct PendingDecisions {
    log: Option<Log>,
    /// In the order of the grants.
    held: VecDeque<Held>,
    /// Answers that the driver gives in place of the executors.
    returned: Vec<(StreamId, ToLeader)>,
    /// The last reason that the engine got.
    withheld: Option<&'static str>,
    /// The number of added events at the end of the last complete round.
    noted: u64,
}

#[derive(Debug)]
struct Log {
    queue: Arc<Queue>,
    progress: watch::Receiver<Progress>,
}

impl Log {
    /// Whether a grant may leave whose event has this number.
    fn lets_go(&self, after: Option<u64>, progress: &Progress) -> bool {
        let goes_without = !self.queue.is_required() && matches!(progress.standing, Standing::Away { .. });
        after.is_some_and(|after| goes_without || after <= progress.settled)
    }

    /// Why the leader must not grant.
    fn objects(&self, progress: &Progress) -> Option<&'static str> {
        if !self.queue.is_required() {
            return None;
        }
        match &progress.standing {
            Standing::Writing => None,
            Standing::Connecting => Some("the decision log was not reached yet"),
            Standing::Away { .. } => Some("the decision log is unreachable"),
            Standing::CatchingUp => Some("the decision log is catching up"),
        }
    }
}

#[derive(Debug)]
struct Held {
    stream: StreamId,
    leases: Vec<WorkLease>,
    /// The number of events that must be in the log first. Unknown until the round is over.
    after: Option<u64>,
}

impl PendingDecisions {
    /// Without a shared log no message waits.
    pub(crate) fn new(queue: Option<Arc<Queue>>) -> PendingDecisions {
        let log = queue.map(|queue| Log { progress: queue.progress(), queue });
        PendingDecisions { log, held: VecDeque::new(), returned: Vec::new(), withheld: None, noted: 0 }
    }

    /// Takes a message for an executor. Returns the message if it may leave now.
    pub(super) fn admit(&mut self, stream: StreamId, message: ToExecutor) -> Option<ToExecutor> {
        if self.log.is_none() {
            return Some(message);
        }
        match message {
            ToExecutor::Grant { leases } => {
                self.held.push_back(Held { stream, leases, after: None });
                None
            }
            ToExecutor::Revoke { leases, mode, reason } => {
                let leases = self.recall(stream, leases);
                (!leases.is_empty()).then_some(ToExecutor::Revoke { leases, mode, reason })
            }
            // An executor that is asked to leave gives up its leases.
            ToExecutor::GoAway { .. } => {
                self.forget(stream);
                Some(message)
            }
            ToExecutor::Welcome(_)
            | ToExecutor::HeartbeatAck { .. }
            | ToExecutor::ReportAck { .. }
            | ToExecutor::Throttle { .. }
            | ToExecutor::DrainAck { .. } => Some(message),
        }
    }

    /// Forgets the messages of an ended stream.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.held.retain(|held| held.stream != stream);
    }

    /// Records that the events of the round are queued for the log, or had no room there. In a required log, a grant
    /// without room for its event does not leave. `unfinished` means that the next round continues this one, so an
    /// event and its grant may be in two rounds.
    pub(super) fn round_is_noted(&mut self, unfinished: bool) {
        let Some(log) = &self.log else { return };
        let taken = log.queue.taken();
        let is_told = !log.queue.is_required() || log.queue.crowded_out() <= self.noted;
        for held in self.held.iter_mut().rev().take_while(|held| held.after.is_none()) {
            held.after = Some(taken);
            if !is_told {
                let back = |lease: WorkLease| WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
                let returns = std::mem::take(&mut held.leases).into_iter().map(back).collect();
                self.returned.push((held.stream, ToLeader::Reports { reports: Vec::new(), returns }));
            }
        }
        self.held.retain(|held| !held.leases.is_empty());
        if !unfinished {
            self.noted = taken;
        }
    }

    /// The grants that may leave now.
    pub(super) fn released(&mut self) -> Vec<(StreamId, ToExecutor)> {
        let Some(log) = &self.log else { return Vec::new() };
        let progress = log.progress.borrow();
        let count = self.held.iter().take_while(|held| log.lets_go(held.after, &progress)).count();
        drop(progress);
        self.held.drain(..count).map(|held| (held.stream, ToExecutor::Grant { leases: held.leases })).collect()
    }

    /// The answers that executors would give to recalls of grants that never left.
    pub(super) fn returned(&mut self) -> Vec<(StreamId, ToLeader)> {
        std::mem::take(&mut self.returned)
    }

    pub(super) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The reason not to grant, if it has changed.
    pub(super) fn news(&mut self) -> Option<Option<String>> {
        let log = self.log.as_ref()?;
        let why = log.objects(&log.progress.borrow());
        if why == self.withheld {
            return None;
        }
        self.withheld = why;
        Some(why.map(str::to_owned))
    }

    /// Waits until a grant may leave, or the reason not to grant changes.
    pub(super) async fn changed(&mut self) {
        let Some(log) = &self.log else { return std::future::pending().await };
        let (first, withheld) = (self.held.front(), self.withheld);
        let is_due = |progress: &Progress| {
            first.is_some_and(|held| log.lets_go(held.after, progress)) || log.objects(progress) != withheld
        };
        if log.progress.clone().wait_for(is_due).await.is_err() {
            std::future::pending().await
        }
    }

    /// Removes held grants of these leases. Returns the leases that the executor already has.
    fn recall(&mut self, stream: StreamId, leases: Vec<LeaseId>) -> Vec<LeaseId> {
        let mut returns = Vec::new();
        for held in self.held.iter_mut().filter(|held| held.stream == stream) {
            held.leases.retain(|lease| {
                let is_recalled = leases.contains(&lease.id);
                if is_recalled {
                    returns.push(WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted });
                }
                !is_recalled
            });
        }
        self.held.retain(|held| !held.leases.is_empty());
        let rest = leases.into_iter().filter(|id| !returns.iter().any(|back| back.lease == *id)).collect();
        if !returns.is_empty() {
            self.returned.push((stream, ToLeader::Reports { reports: Vec::new(), returns }));
        }
        rest
    }
}
