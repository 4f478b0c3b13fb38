//! The leader: facts from discovery, watches and executors in; probes, messages and events out.

use crate::barrier::Barrier;
use crate::coverage::KindId;
use crate::graph::NodeId;
use crate::jitter::Jitter;
use crate::lease::SessionId;
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::queue::Row;
use crate::time::Time;
use crate::work::LeaseId;
use alloc::format;

mod asking;
mod audit;
mod claims;
mod closing;
mod context;
mod contract;
mod dispatcher;
mod doubting;
mod granting;
mod history;
mod intake;
mod invariants;
mod judging;
mod ledger;
mod pauses;
mod pausing;
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
    Config, Event, FINALIZERS_TOLD_MAX, Input, InvalidReferences, Mode, Named, OnStoreRewind, Output, PauseAnswer,
    PauseList, PauseRead, Policy, Probe, ProbeAnswer, ProbeId,
};
pub use queries::{
    ContentsLook, CycleSearch, DependentsOptions, DependentsWalk, Found, Frame, Linked, OwnersWalk, Planning, Queries,
    Scan, Walked,
};

use context::Context;
use dispatcher::Dispatcher;
use history::History;
use ledger::Ledger;
use pauses::Pauses;
use probing::Prober;
use world::World;

/// Most nodes judged between two outputs, so that a large change does not hold up everything else.
const JUDGE_BATCH: usize = 1000;

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The end of an item's backoff.
    Item(Uid),
    /// The next probe of a row of blockers.
    Row(Row),
    /// What executors have not begun is looked at.
    Balance,
    /// Shares of the writes are divided anew.
    Divide,
    /// A slowed collection is let go on.
    Pace(GroupResource),
    /// A session's expiry, if nothing was heard of it.
    Session(SessionId),
    /// A grant that was not started is recalled.
    Recall(LeaseId),
    /// A recalled grant that did not come back is granted elsewhere.
    Regrant(LeaseId),
    /// A started lease has had its time.
    Limit(LeaseId),
    /// An owner may be asked for.
    Inquiry(NodeId),
    /// A row of questions that failed may go on.
    Questions,
    /// Answers about a collection have not contradicted each other for long.
    Contradiction(KindId),
    /// Ask which collections keep up with the main store.
    Stores,
    /// A write of ours should have shown up.
    Write(Uid),
    /// What a report said of an object should have been shown.
    Claim(Uid),
    /// A lost watch makes its collection stale.
    Stale(KindId),
    /// A definition that is gone has been so for a moment.
    Emptied(KindId),
    /// Ask again whether the positions are right.
    Suspect,
    /// Ask again where an aggregated collection stands whose connection broke.
    Doubt(KindId),
    /// Read once more before grants go on after a store went back.
    Settle,
    /// Compare a collection with a fresh list's count.
    Audit(KindId),
    /// Compare it once more: it differed.
    Recount(KindId),
    /// A pause's lifetime has passed.
    PauseEnd(Name),
    /// Read again which pauses there are.
    PauseRead,
    /// Writes of ended leases and sessions can be on their way no more.
    LateWrites,
    /// What earlier leaders decided is closed.
    Inherited,
}

/// What a probe was for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    /// After a broken connection: does the store still stand where it did?
    Suspect(KindId, ResourceVersion),
    /// The same for one aggregated collection, which holds only what rests on it.
    Doubt(KindId, ResourceVersion),
    /// After the store went back: do reads fit together?
    Settle(KindId, ResourceVersion),
    /// Does the server count as many objects as the graph? `again`: it did not, a moment ago.
    Audit {
        kind: KindId,
        again: bool,
    },
    BarrierPosition(KindId),
    BarrierNamespace(KindId, Name),
    /// Is the object of this node there?
    Existence {
        kind: KindId,
        node: NodeId,
        uid: Uid,
        by: CheckBy,
    },
    /// Is the object as a report says?
    Claim {
        kind: KindId,
        uid: Uid,
    },
    /// Does this collection keep up with the main store?
    Store(KindId),
    /// Stale: the history or the round of the barrier that it was sent for has ended.
    Stale,
}

/// A probe that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    purpose: Purpose,
    /// When it was asked.
    known: KnownVersions,
}

/// The highest versions known of a collection, and of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownVersions {
    own: Option<ResourceVersion>,
    store: Option<ResourceVersion>,
    /// Of the main store, whichever the collection is kept in.
    main: Option<ResourceVersion>,
}

/// The graph service's machine. It routes each input to the components that own the state, and what follows from one component to the next.
///
/// * `intake` takes what discovery and watches say; `doubting` and `rewinding` act on contradictions.
/// * `judging` turns verdicts into items of the queue.
/// * `granting` speaks with executors. `reporting` takes the results of attempts, and `closing` ends decisions in the log.
/// * `pausing` follows pauses.
/// * `probing`, `asking`, `audit` and `stores` ask the API server.
/// * [`Queries`] serves readers.
#[derive(Debug)]
pub struct Leader {
    cx: Context,
    world: World,
    history: History,
    dispatcher: Dispatcher,
    pauses: Pauses,
    barrier: Barrier,
    prober: Prober,
    claims: claims::Claims,
    ledger: Ledger,
}

impl Leader {
    /// A leader without a term, with an empty graph. The seed, another one in every process, serves jitter, and tells the leases of one
    /// process from those of another.
    pub fn new(config: Config, seed: u64) -> Leader {
        let mut secrets = Jitter::new(!seed);
        Leader {
            world: World::new(&config.policy, &mut secrets),
            dispatcher: Dispatcher::new(seed, &mut secrets),
            history: History::new(&mut secrets),
            pauses: Pauses::default(),
            barrier: Barrier::default(),
            prober: Prober::default(),
            claims: claims::Claims::default(),
            ledger: Ledger::default(),
            cx: Context::new(config, seed),
        }
    }

    /// The leader for readers.
    pub fn queries(&self) -> Queries<'_> {
        Queries {
            cx: &self.cx,
            world: &self.world,
            history: &self.history,
            dispatcher: &self.dispatcher,
            pauses: &self.pauses,
            prober: &self.prober,
            claims: &self.claims,
            ledger: &self.ledger,
        }
    }

    /// These facts come next. Worth a call where there are many: it makes taking them in faster, and changes nothing.
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

    /// Takes a fact. Poll afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::KindServed(kind) => self.kind_served(kind),
            Input::KindUnserved(collection) => self.kind_unserved(&collection),
            Input::Undiscovered(all) => self.undiscovered(all),
            Input::KindEmptied { group, kind, crd, standing } => {
                self.world.kind_emptied(&mut self.cx, &group, &kind, &crd, standing)
            }
            Input::ListBegun { collection } => self.with_kind(&collection, Leader::list_begun),
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
                self.with_kind(&collection, |leader, kind| {
                    leader.advance(kind, &resource_version);
                });
            }
            Input::WatchLost { collection, end, error } => {
                self.with_kind(&collection, |leader, kind| leader.watch_lost(kind, end, error));
            }
            Input::WatchResumed { collection } => {
                self.with_kind(&collection, |leader, kind| leader.world.watch_resumed(&mut leader.cx, kind))
            }
            Input::Unusable { collection, why } => self.world.unusable(&mut self.cx, collection, why),
            Input::Probed { probe, answer } => self.probed(probe, answer),
            Input::PausesListed(list) => self.pauses_listed(list),
            Input::PausesFollowed { position } => self.pauses.followed(position),
            Input::PausesLost { error } => self.pauses_lost(error),
            Input::PauseSeen(pause) => self.pause_seen(pause),
            Input::PauseGone { name, uid } => self.pause_gone(&name, &uid),
            Input::PausesRead { read, answer } => self.pauses_read(read, answer),
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

    /// Does what is due. Poll afterwards.
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
                // What may be asked is asked before the next effect.
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
                Timer::PauseEnd(name) => self.dispatcher.pause_end_due(&mut self.cx, &name),
                Timer::PauseRead => self.pause_read_due(),
                Timer::LateWrites => self.dispatcher.late_writes_due(&self.cx),
                Timer::Inherited => self.inherited_due(),
            }
        }
        let wanted = self.barrier.tick(self.cx.now);
        self.ask(wanted);
        self.refuse_untrusted();
        self.forget_dropped();
    }

    /// When [`Leader::tick`] is wanted next.
    pub fn next_deadline(&self) -> Option<Time> {
        let barrier = if self.may_turn_barrier() { self.barrier.deadline() } else { None };
        self.cx.timers.next().into_iter().chain(barrier).min()
    }

    /// The next effect; to be drained to `None` after `handle` and `tick`. Several facts may be handled before: what a later one undoes
    /// is then never decided.
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.cx.outputs.pop_front() {
                return Some(output);
            }
            self.judge_some();
            self.ask_questions();
            self.turn_barrier();
            self.grant();
            self.tell_held();
            self.dispatcher.settle_pauses(&mut self.cx);
            if self.cx.outputs.is_empty() && !self.world.has_marked() {
                return None;
            }
        }
    }

    fn judge_some(&mut self) {
        // One that is in a cycle of foreground deletions now, or no longer, is judged anew.
        self.world.mark_knots();
        for _ in 0..JUDGE_BATCH {
            let Some(id) = self.world.next_marked() else { break };
            self.judge(id);
        }
        self.forget_dropped();
    }

    /// Runs `then` for the kind of a collection, if discovery has shown it.
    fn with_kind(&mut self, collection: &GroupResource, then: impl FnOnce(&mut Leader, KindId)) {
        match self.world.coverage().find(collection) {
            Some(kind) => then(self, kind),
            // The collection's task may have had something on its way when the kind went.
            None => self.cx.event(Event::Rejected { why: format!("a fact about {collection}, which is not served") }),
        }
    }

    fn forget_dropped(&mut self) {
        for id in self.world.take_dropped(&mut self.cx) {
            self.prober.questions_mut().forget(id);
        }
    }
}
