//! The leader state machine. Inputs are facts from discovery, watches and executors. Outputs are probes, messages and
//! events.

use crate::barrier::Barrier;
use crate::coverage::KindId;
use crate::graph::NodeId;
use crate::guard::{GuardId, GuardKind};
use crate::jitter::Rng;
use crate::lease::SessionId;
use crate::object::{GroupResource, Uid};
use crate::parity::Parity;
use crate::queue::Row;
use crate::time::Time;
use crate::work::LeaseId;
use alloc::format;

mod asking;
mod audit;
mod claims;
mod closing;
mod comparing;
mod consent;
mod context;
mod contract;
mod dispatcher;
mod doubting;
mod event;
mod granting;
mod guarding;
mod guards;
mod history;
mod holding;
mod intake;
mod invariants;
mod judging;
mod ledger;
mod marking;
mod probing;
mod queries;
mod reporting;
mod rewinding;
mod stores;
#[cfg(test)]
mod tests;
mod world;

pub use crate::coverage::{ALL_RESOURCES, Undiscovered};
pub use crate::decision::{Cause, GROUNDS_KEPT_MAX, Grounds, LOGGED_MAX, Logged, LoggedStep, OpenDecision, RootMarks};
pub use crate::evidence::CheckBy;
pub use crate::lease::StreamId;
pub use crate::tombstones::Tombstone;
pub use contract::{
    BreakerMode, Config, GuardAnswer, GuardList, GuardRead, Input, InvalidReferences, Mode, Named, OnStoreRewind,
    Output, Policy, Probe, ProbeAnswer, ProbeId,
};
pub use event::{AttemptEnd, Event, FINALIZERS_TOLD_MAX};
pub use queries::{
    ContentsLook, Coverings, CycleSearch, DependentsOptions, DependentsWalk, Found, Frame, Linked, OwnersWalk,
    Planning, Queries, Scan, Walked,
};

use consent::Consent;
use context::Context;
use dispatcher::Dispatcher;
use guards::Guards;
use history::History;
use ledger::Ledger;
use marking::Marking;
use probing::{KnownVersions, Prober, Purpose};
use world::World;

/// Maximum number of nodes that the leader judges between two outputs. The limit keeps a large change from delaying
/// other work.
const JUDGE_BATCH: usize = 1000;

/// The purpose of a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Ends the backoff of a queue item.
    Item(Uid),
    /// Sends the next probe of a row of blockers.
    Row(Row),
    /// Rebalances grants that executors have not started.
    Balance,
    /// Divides the write rate among executors again.
    Divide,
    /// Resumes a collection whose writes are slowed.
    Pace(GroupResource),
    /// Expires a session that sent no message in time.
    Session(SessionId),
    /// Recalls a grant that the executor did not start.
    Recall(LeaseId),
    /// Grants a recalled target again when the executor did not return the grant.
    Regrant(LeaseId),
    /// Ends a started lease at its time limit.
    Limit(LeaseId),
    /// Permits the next question about an owner.
    Inquiry(NodeId),
    /// Resumes a row of questions after a failure.
    Questions,
    /// Ends the contradiction between answers about a collection.
    Contradiction(KindId),
    /// Asks which collections keep up with the main store.
    Stores,
    /// Checks that the watch has shown a write of an executor.
    Write(Uid),
    /// Checks that the watch has shown the object version from a report.
    Claim(Uid),
    /// Marks a collection as stale after its watch is lost.
    Stale(KindId),
    /// Ends the settling time after a definition is deleted.
    Emptied(KindId),
    /// Asks again for the position of the store.
    Suspect,
    /// Asks again for the position of an aggregated collection whose connection broke.
    Doubt(KindId),
    /// Sends the next read that must succeed before grants resume after a store rewind.
    Settle,
    /// Compares the object count of a collection with a fresh list.
    Audit(KindId),
    /// Compares the object count again after a difference.
    Recount(KindId),
    /// Ends a guard at the end of its lifetime.
    GuardEnd(GuardId),
    /// Fails a question to a gate that has no answer.
    Question(u64),
    /// Asks a gate again about subjects that it holds.
    AskAgain(GuardId),
    /// Releases all items of a guard.
    Release(GuardId),
    /// The window of a gate may have room for further questions.
    AskNext(GuardId),
    /// Counts cascades.
    Cascades,
    /// Makes room for the cascades of further roots.
    CascadeRoom,
    /// Looks whether the number of unexplained deletions of a collection is known.
    Breaker(GroupResource),
    /// Releases items of a budget whose window has moved.
    Budget(GuardId),
    /// Reads the list of a kind of guards again.
    GuardRead(GuardKind),
    /// Ends the time in which writes of ended leases and sessions can still arrive at the API server.
    LateWrites,
    /// Closes the decisions of earlier leaders.
    Inherited,
    /// Compares decisions with the changes of another collector.
    Compare,
}

/// The state machine of the graph service. `Leader` routes each input to the components that own the state, and passes
/// results from one component to the next.
///
/// * `intake` takes facts from discovery and watches; `doubting` and `rewinding` act on contradictions.
/// * `judging` turns verdicts into items of the queue.
/// * `granting` exchanges messages with executors. `reporting` takes the results of attempts, and `closing` ends
///   decisions in the log.
/// * `guarding` follows guards, and `holding` says what they hold.
/// * `comparing` compares decisions with the changes of another collector.
/// * `probing`, `asking`, `audit` and `stores` ask the API server.
/// * [`Queries`] serves readers.
#[derive(Debug)]
pub struct Leader {
    cx: Context,
    world: World,
    history: History,
    dispatcher: Dispatcher,
    guards: Guards,
    consent: Consent,
    marking: Marking,
    barrier: Barrier,
    prober: Prober,
    claims: claims::Claims,
    ledger: Ledger,
    parity: Parity,
    /// The timer of the comparison runs.
    comparing: bool,
}

impl Leader {
    /// Creates a leader without a term and with an empty graph. Each process passes a different seed. The seed
    /// determines jitter, and distinguishes the leases of one process from those of another.
    pub fn new(config: Config, seed: u64) -> Leader {
        let mut secrets = Rng::new(!seed);
        Leader {
            world: World::new(&config.policy, &mut secrets),
            dispatcher: Dispatcher::new(seed, &mut secrets),
            history: History::new(&mut secrets),
            guards: Guards::default(),
            consent: Consent::default(),
            marking: Marking::default(),
            barrier: Barrier::default(),
            prober: Prober::default(),
            claims: claims::Claims::default(),
            ledger: Ledger::default(),
            parity: Parity::new(Time::ZERO),
            comparing: false,
            cx: Context::new(config, seed),
        }
    }

    /// Returns read access to the leader.
    pub fn queries(&self) -> Queries<'_> {
        Queries { leader: self }
    }

    /// Prefetches graph memory for these inputs. The call changes no state; it makes handling many inputs faster.
    pub fn prefetch(&self, inputs: &[Input]) {
        let objects = inputs.iter().filter_map(|input| {
            let (Input::Listed { collection, object }
            | Input::Seen { collection, object }
            | Input::Deleted { collection, object }) = input
            else {
                return None;
            };
            Some((self.world.coverage().find(collection)?, object))
        });
        self.world.graph().prefetch(objects);
    }

    /// Takes a fact. The caller then drains [`Leader::poll`].
    pub fn handle(&mut self, now: Time, input: Input) {
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::KindServed(kind) => self.kind_served(kind),
            Input::KindUnserved(collection) => self.kind_unserved(&collection),
            Input::Undiscovered(all) => self.undiscovered(all),
            Input::KindEmptied { group, kind, crd, standing } => {
                self.world.kind_emptied(&mut self.cx, &group, &kind, &crd, standing)
            }
            Input::ListBegun { collection, selectors } => {
                self.with_kind(&collection, |leader, kind| leader.list_begun(kind, selectors));
            }
            Input::Listed { collection, object } => {
                self.with_kind(&collection, |leader, kind| leader.listed(kind, object))
            }
            Input::ListEnded { collection, resource_version } => {
                self.with_kind(&collection, |leader, kind| leader.list_ended(kind, resource_version));
            }
            Input::ListFailed { collection, error, broke } => {
                self.with_kind(&collection, |leader, kind| leader.list_failed(kind, error, broke));
            }
            Input::Seen { collection, object } => self.with_kind(&collection, |leader, kind| leader.seen(kind, object)),
            Input::Deleted { collection, object } => {
                self.with_kind(&collection, |leader, kind| leader.deleted(kind, &object))
            }
            Input::Bookmark { collection, resource_version } => {
                self.with_kind(&collection, |leader, kind| leader.bookmark(kind, &resource_version));
            }
            Input::WatchLost { collection, end, error } => {
                self.with_kind(&collection, |leader, kind| leader.watch_lost(kind, end, error));
            }
            Input::WatchResumed { collection } => {
                self.with_kind(&collection, |leader, kind| leader.world.watch_resumed(&mut leader.cx, kind))
            }
            Input::Unusable { collection, why } => self.world.unusable(&mut self.cx, collection, why),
            Input::Probed { probe, answer } => self.probed(probe, answer),
            Input::GuardsListed { kind, list } => self.guards_listed(kind, list),
            Input::GuardsFollowed { kind, position } => self.guards.of_mut(kind).followed(position),
            Input::GuardsLost { kind, error } => self.guards_lost(kind, error),
            Input::GuardSeen(guard) => self.guard_seen(guard),
            Input::GuardGone { id, uid } => self.guard_gone(&id, &uid),
            Input::GuardsRead { read, answer } => self.guards_read(read, answer),
            Input::GateAnswered(answered) => self.gate_answered(answered),
            Input::GateReopened { gate } => self.gate_reopened(gate),
            Input::GateInvalidated { gate, targets } => self.gate_invalidated(gate, &targets),
            Input::GateNeedsTime { gate, number, extra } => self.gate_needs_time(&gate, number, extra),
            Input::Audited(audited) => self.audited(audited),
            Input::ComparedBefore { counts, lasted } => self.compared_before(&counts, lasted),
            Input::Message { stream, message } => self.message(stream, message),
            Input::StreamClosed { stream } => {
                if self.dispatcher.detach(stream) {
                    self.dispatcher.divide_soon(&mut self.cx);
                }
            }
            Input::Wrote { collection, resource_version } => self.world.wrote(&self.cx, &collection, &resource_version),
            Input::TermGained(term) => self.term_gained(term),
            Input::OpenAtTermStart(logged) => self.inherit(logged),
            Input::TermLost { leader_endpoint } => self.term_lost(leader_endpoint),
            Input::Withhold { why } => self.withhold(why),
            Input::Stop => self.stop(),
        }
        self.refuse_untrusted();
        self.forget_dropped();
    }

    /// Runs all timers that are due. The caller then drains [`Leader::poll`].
    pub fn tick(&mut self, now: Time) {
        self.cx.now = self.cx.now.max(now);
        while let Some(timer) = self.cx.timers.due(self.cx.now) {
            match timer {
                Timer::Item(uid) => self.dispatcher.item_due(&self.cx, &uid),
                Timer::Row(row) => self.dispatcher.row_due(&mut self.cx, row),
                Timer::Balance => {
                    let may_grant = self.may_grant();
                    self.dispatcher.balance_due(&mut self.cx, may_grant);
                }
                Timer::Divide => self.dispatcher.divide_due(&mut self.cx),
                Timer::Pace(collection) => self.dispatcher.pace_due(&mut self.cx, collection),
                Timer::Session(session) => self.session_due(session),
                Timer::Recall(lease) => self.dispatcher.recall_due(&mut self.cx, lease),
                Timer::Regrant(lease) => self.regrant_due(lease),
                Timer::Limit(lease) => self.limit_due(lease),
                Timer::Inquiry(node) => self.world.mark(node),
                // `poll` asks the permitted questions before the next effect.
                Timer::Questions => {}
                Timer::Contradiction(kind) => self.world.contradiction_due(&mut self.cx, kind),
                Timer::Stores => self.stores_due(),
                Timer::Write(uid) => self.write_due(&uid),
                Timer::Claim(uid) => self.ask_claim(&uid),
                Timer::Stale(kind) => self.world.stale_due(&mut self.cx, kind),
                Timer::Emptied(kind) => self.emptied_due(kind),
                Timer::Suspect => self.ask_suspect(),
                Timer::Doubt(kind) => self.ask_doubt(kind),
                Timer::Settle => self.ask_settle(),
                Timer::Audit(kind) => self.audit_due(kind),
                Timer::Recount(kind) => self.audit(kind, true),
                Timer::GuardEnd(id) => self.guard_end_due(&id),
                Timer::Question(number) => self.question_due(number),
                Timer::AskAgain(id) => self.ask_again_due(&id),
                Timer::Release(id) => self.release_all(id),
                Timer::AskNext(id) => self.ask_next(&id),
                Timer::CascadeRoom => self.make_room_for_cascades(),
                Timer::Breaker(collection) => self.breaker_due(collection),
                Timer::Cascades => self.count_cascades(),
                Timer::Budget(id) => self.budget_due(&id),
                Timer::GuardRead(kind) => self.guard_read_due(kind),
                Timer::LateWrites => self.dispatcher.late_writes_due(&self.cx),
                Timer::Inherited => self.inherited_due(),
                Timer::Compare => self.compare_due(),
            }
        }
        let wanted = self.barrier.tick(self.cx.now);
        self.ask(wanted);
        self.refuse_untrusted();
        self.forget_dropped();
    }

    /// Returns the time of the next call of [`Leader::tick`].
    pub fn next_deadline(&self) -> Option<Time> {
        let barrier = if self.may_turn_barrier() { self.barrier.deadline() } else { None };
        self.cx.timers.next().into_iter().chain(barrier).min()
    }

    /// Returns the next effect. The caller drains `poll` to `None` after `handle` and `tick`. The caller may handle
    /// several facts first; the leader then decides nothing that a later fact of the batch undoes.
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.cx.outputs.pop_front() {
                return Some(output);
            }
            self.judge_some();
            self.ask_questions();
            self.turn_barrier();
            self.grant();
            self.free_owners();
            self.tell_held();
            self.dispatcher.settle_guards(&mut self.cx, self.world.coverage());
            if self.cx.outputs.is_empty() && !self.world.has_marked() {
                return None;
            }
        }
    }

    fn judge_some(&mut self) {
        // Nodes that entered or left a cycle of foreground deletions need a new verdict.
        self.world.mark_knots();
        for _ in 0..JUDGE_BATCH {
            let Some(id) = self.world.next_marked() else { break };
            self.judge(id);
        }
        self.forget_dropped();
    }

    /// Runs `then` for the kind of a watched collection.
    fn with_kind(&mut self, collection: &GroupResource, then: impl FnOnce(&mut Leader, KindId)) {
        match self.world.coverage().find(collection).filter(|&kind| self.world.coverage().kind(kind).is_watched()) {
            Some(kind) => then(self, kind),
            // The collection's task may have sent a fact before the kind was removed, or was not watched any more.
            None => self.cx.event(Event::Rejected { why: format!("a fact about {collection}, which is not watched") }),
        }
    }

    fn forget_dropped(&mut self) {
        for id in self.world.take_dropped(&mut self.cx) {
            self.prober.questions_mut().forget(id);
        }
    }
}
