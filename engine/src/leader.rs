//! The leader: facts from discovery, watches and executors in; probes, messages and events out.

use crate::barrier::Barrier;
use crate::changes::Changes;
use crate::coverage::{Coverage, KindId};
use crate::evidence::Inquiry;
use crate::graph::{Graph, NodeId};
use crate::jitter::Jitter;
use crate::late_writes::LateWrites;
use crate::lease::{Leases, SessionId};
use crate::lies::Lies;
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::queue::{Queue, Row};
use crate::recent::Recent;
use crate::time::Time;
use crate::timers::Timers;
use crate::tombstones::Tombstones;
use crate::work::{LeaseId, Term};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

mod asking;
mod audit;
mod balancing;
mod blocking;
mod claims;
mod closing;
mod contract;
mod emptied;
mod granting;
mod grounds;
mod history;
mod intake;
mod invariants;
mod judging;
mod pacing;
mod pausing;
mod probing;
mod reading;
mod readopting;
mod repeating;
mod reporting;
mod stores;
#[cfg(test)]
mod tests;
mod undecided;
mod undiscovered;

pub use crate::coverage::{ALL_RESOURCES, Undiscovered};
pub use crate::decision::{Cause, GROUNDS_KEPT_MAX, Grounds, LOGGED_MAX, Logged, LoggedStep, OpenDecision, RootMarks};
pub use crate::evidence::CheckBy;
pub use crate::lease::StreamId;
pub use crate::tombstones::Tombstone;
pub use contract::{
    Config, Event, FINALIZERS_TOLD_MAX, Input, InvalidReferences, Mode, Named, OnStoreRewind, Output, PauseAnswer,
    PauseList, PauseRead, Policy, Probe, ProbeAnswer, ProbeId,
};
pub use reading::{
    ContentsLook, CycleSearch, DependentsOptions, DependentsWalk, Found, Frame, Linked, OwnersWalk, Planning, Scan,
    Walked,
};

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
    /// For nothing any more: it was asked of a history, or for a round, that is over.
    Void,
}

/// A probe that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    purpose: Purpose,
    /// When it was asked.
    known: Known,
}

/// The highest versions known of a collection, and of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    own: Option<ResourceVersion>,
    store: Option<ResourceVersion>,
    /// Of the main store, whichever the collection is kept in.
    main: Option<ResourceVersion>,
}

/// The graph service's machine.
///
/// * `intake` takes what discovery and watches say, `emptied` what definitions do, `undiscovered` what discovery cannot.
/// * `judging` turns verdicts into items of the queue.
/// * `closing` ends decisions in the log: those of earlier leaders, and deletions once their objects have gone.
/// * `granting` speaks with executors; `reporting` takes what their attempts came to, `claims` what they say of objects, `blocking` what many of
///   them met.
/// * `pausing` holds back what pauses are about.
/// * `probing` asks the API server where doubt or a barrier demands it; `history` is the doubt.
/// * `stores` finds out which collections have a store of their own.
/// * `asking` asks whether single objects are there.
/// * `reading` serves readers.
#[derive(Debug)]
pub struct Leader {
    config: Config,
    jitter: Jitter,
    now: Time,
    outputs: VecDeque<Output>,
    timers: Timers<Timer>,

    graph: Graph,
    coverage: Coverage,
    queue: Queue,
    leases: Leases,
    late_writes: LateWrites,
    pause_watch: pausing::Watch,
    barrier: Barrier,
    pacing: pacing::Pacing,
    /// [`Timer::Balance`] is set.
    balancing: bool,

    /// Nodes to be judged, in the order in which they were marked.
    dirty: VecDeque<NodeId>,
    undecided: undecided::Nodes,
    /// Since when owners are known to be absent, for measuring. Entries go with their nodes.
    absent_since: BTreeMap<NodeId, Time>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    /// What discovery does not show, and since when.
    undiscovered: BTreeMap<(Name, Option<Name>), (Undiscovered, Time)>,
    /// By kind, the definition that said that its instances are gone.
    emptied: BTreeMap<KindId, emptied::Emptied>,
    /// Of objects with many references: an owner that is being asked for.
    awaited: BTreeMap<NodeId, NodeId>,
    /// Deletes that were accepted and whose DELETED has not come, with when they were.
    writes: BTreeMap<Uid, reporting::AwaitedRemoval>,
    claims: claims::Claims,
    lies: Lies,
    /// What the graph holds and a DELETE of ours was accepted for, however long its finalizers keep it: it will have gone by us.
    accepted_deletes: BTreeMap<Uid, closing::AcceptedDelete>,
    /// Decisions of earlier leaders that have no end in the log yet, by target.
    inherited: closing::Inheritance,
    /// Owners in deletion, with the barrier round that each waits for; `None`: not asked for yet.
    deletions: BTreeMap<NodeId, Option<u64>>,

    probes: BTreeMap<ProbeId, Asked>,
    last_probe: u64,
    questions: asking::Questions,
    /// [`Timer::Stores`] is set.
    comparing: bool,
    /// Nothing is granted until the store is known to stand where it did.
    suspect: Option<history::Suspicion>,
    /// So often a store went back.
    histories: u64,
    /// What audits have counted, by collection, until the watches have come that far.
    counts: BTreeMap<KindId, audit::Count>,
    /// When each collection is counted next.
    audits: BTreeMap<KindId, Time>,
    /// What was carried out last, by target.
    carried_out: Recent<repeating::CarriedOut>,
    /// A collection has been in doubt since all owners in deletion were judged last.
    blind: bool,
    /// The first round of the barrier that began after a connection broke last.
    barrier_from: u64,
    /// The store went back: nothing is granted until these are listed again,
    rewound: BTreeSet<KindId>,
    /// and so many reads in a row have fitted together.
    settling: Option<history::Settling>,
    /// Why whoever runs the leader wants nothing granted.
    withheld: Option<String>,
    /// uids whose DELETED was seen last, by collection: one that is seen again there is of another history.
    gone: Recent<KindId>,
    /// Owners that orphaned their dependents, once the graph has forgotten them.
    former: readopting::Former,
    /// References to owners in other namespaces that were told of, as dependent and owner; and objects with too many references, twice.
    told: BTreeSet<(Uid, Uid)>,
    tombstones: Tombstones,
    /// For readers that follow objects.
    changes: Changes,

    /// Refusals that were told of in this term, by executor and reason.
    refused: BTreeSet<(Name, &'static str)>,
    term: Option<Term>,
    leader_endpoint: String,
    stopping: bool,
    /// The session that was granted something last.
    turn: SessionId,
}

impl Leader {
    /// A leader without a term, with an empty graph. The seed, another one in every process, serves jitter, and tells the leases of one
    /// process from those of another.
    pub fn new(config: Config, seed: u64) -> Leader {
        let holds_invalid = config.policy.invalid_references == InvalidReferences::Hold;
        let mut secrets = Jitter::new(!seed);
        Leader {
            config,
            jitter: Jitter::new(seed),
            now: Time::ZERO,
            outputs: VecDeque::new(),
            timers: Timers::default(),
            graph: Graph::new(holds_invalid, secrets.next()),
            coverage: Coverage::default(),
            queue: Queue::default(),
            leases: Leases::new(seed),
            late_writes: LateWrites::default(),
            pause_watch: pausing::Watch::default(),
            barrier: Barrier::default(),
            pacing: pacing::Pacing::default(),
            balancing: false,
            dirty: VecDeque::new(),
            undecided: undecided::Nodes::default(),
            absent_since: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            undiscovered: BTreeMap::new(),
            emptied: BTreeMap::new(),
            awaited: BTreeMap::new(),
            writes: BTreeMap::new(),
            claims: claims::Claims::default(),
            lies: Lies::default(),
            accepted_deletes: BTreeMap::new(),
            inherited: closing::Inheritance::default(),
            deletions: BTreeMap::new(),
            probes: BTreeMap::new(),
            last_probe: 0,
            questions: asking::Questions::default(),
            comparing: false,
            suspect: None,
            histories: 0,
            counts: BTreeMap::new(),
            audits: BTreeMap::new(),
            carried_out: Recent::new(repeating::CARRIED_OUT_MAX, secrets.next()),
            blind: false,
            barrier_from: 0,
            rewound: BTreeSet::new(),
            settling: None,
            withheld: None,
            gone: Recent::new(history::GONE_MAX, secrets.next()),
            told: BTreeSet::new(),
            tombstones: Tombstones::new(secrets.next()),
            former: readopting::Former::new(secrets.next()),
            changes: Changes::default(),
            refused: BTreeSet::new(),
            term: None,
            leader_endpoint: String::new(),
            stopping: false,
            turn: SessionId(0),
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
            Some((self.coverage.find(collection)?, object))
        });
        self.graph.prefetch(objects);
    }

    /// Takes a fact. Poll afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::KindServed(kind) => self.kind_served(kind),
            Input::KindUnserved(collection) => self.kind_unserved(&collection),
            Input::Undiscovered(all) => self.undiscovered(all),
            Input::KindEmptied { group, kind, crd, standing } => self.kind_emptied(&group, &kind, &crd, standing),
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
            Input::WatchResumed { collection } => self.with_kind(&collection, Leader::watch_resumed),
            Input::Unusable { collection, why } => self.unusable(collection, why),
            Input::Probed { probe, answer } => self.probed(probe, answer),
            Input::PausesListed(list) => self.pauses_listed(list),
            Input::PausesFollowed { position } => self.pauses_followed(position),
            Input::PausesLost { error } => self.pauses_lost(error),
            Input::PauseSeen(pause) => self.pause_seen(pause),
            Input::PauseGone { name, uid } => self.pause_gone(&name, &uid),
            Input::PausesRead { read, answer } => self.pauses_read(read, answer),
            Input::Message { stream, message } => self.message(stream, message),
            Input::StreamClosed { stream } => {
                if self.leases.detach(stream).is_some() {
                    self.divide_soon();
                }
            }
            Input::Wrote { collection, resource_version } => self.wrote(&collection, &resource_version),
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
        self.now = self.now.max(now);
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Item(uid) => self.item_due(&uid),
                Timer::Row(row) => self.row_due(row),
                Timer::Balance => self.balance_due(),
                Timer::Divide => self.divide_due(),
                Timer::Pace(collection) => self.pace_due(collection),
                Timer::Session(session) => self.session_due(session),
                Timer::Recall(lease) => self.recall_due(lease),
                Timer::Regrant(lease) => self.regrant_due(lease),
                Timer::Limit(lease) => self.limit_due(lease),
                Timer::Inquiry(node) => self.mark(node),
                // What may be asked is asked before the next effect.
                Timer::Questions => {}
                Timer::Contradiction(kind) => self.contradiction_due(kind),
                Timer::Stores => self.stores_due(),
                Timer::Write(uid) => self.write_due(&uid),
                Timer::Claim(uid) => self.ask_claim(&uid),
                Timer::Stale(kind) => self.stale_due(kind),
                Timer::Emptied(kind) => self.emptied_due(kind),
                Timer::Suspect => self.ask_suspect(),
                Timer::Doubt(kind) => self.ask_doubt(kind),
                Timer::Settle => self.ask_settle(),
                Timer::Audit(kind) => self.audit_due(kind),
                Timer::Recount(kind) => self.audit(kind, true),
                Timer::PauseEnd(name) => self.pause_end_due(&name),
                Timer::PauseRead => self.pause_read_due(),
                Timer::LateWrites => self.late_writes_due(),
                Timer::Inherited => self.inherited_due(),
            }
        }
        let wanted = self.barrier.tick(self.now);
        self.ask(wanted);
        self.refuse_untrusted();
        self.forget_dropped();
    }

    /// When [`Leader::tick`] is wanted next.
    pub fn next_deadline(&self) -> Option<Time> {
        let barrier = if self.may_turn_barrier() { self.barrier.deadline() } else { None };
        self.timers.next().into_iter().chain(barrier).min()
    }

    /// The next effect; to be drained to `None` after `handle` and `tick`. Several facts may be handled before: what a later one undoes
    /// is then never decided.
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            self.judge_some();
            self.ask_questions();
            self.turn_barrier();
            self.grant();
            self.tell_held();
            self.settle_pauses();
            if self.outputs.is_empty() && self.dirty.is_empty() {
                return None;
            }
        }
    }

    fn judge_some(&mut self) {
        // One that is in a cycle of foreground deletions now, or no longer, is judged anew.
        for id in self.graph.find_knots() {
            self.mark(id);
        }
        for _ in 0..JUDGE_BATCH {
            let Some(id) = self.dirty.pop_front() else { break };
            self.judge(id);
        }
        self.forget_dropped();
    }

    /// Runs `then` for the kind of a collection, if discovery has shown it.
    fn with_kind(&mut self, collection: &GroupResource, then: impl FnOnce(&mut Leader, KindId)) {
        match self.coverage.find(collection) {
            Some(kind) => then(self, kind),
            // The collection's task may have had something on its way when the kind went.
            None => self.event(Event::Rejected { why: format!("a fact about {collection}, which is not served") }),
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Has a node judged before the next effect, because something about it or about its owners is not as it was.
    fn mark(&mut self, id: NodeId) {
        if let Some(node) = self.graph.get(id) {
            self.changes.note(&node.uid());
        }
        if self.graph.get(id).is_some_and(|node| !node.is_dirty()) {
            self.graph.set_dirty(id, true);
            self.dirty.push_back(id);
        }
    }

    fn mark_dependents(&mut self, id: NodeId) {
        let dependents: Vec<NodeId> = self.graph.node(id).dependents().collect();
        for dependent in dependents {
            self.mark(dependent);
        }
    }

    fn mark_uid(&mut self, uid: &Uid) {
        for id in self.graph.by_uid(uid).collect::<Vec<_>>() {
            self.mark(id);
        }
    }

    /// Notes about nodes that went go with them.
    fn forget_dropped(&mut self) {
        for id in self.graph.take_dropped() {
            self.undecided.remove(id);
            self.absent_since.remove(&id);
            self.inquiries.remove(&id);
            self.questions.forget(id);
            self.awaited.remove(&id);
            self.deletions.remove(&id);
        }
        self.remember_former();
        if self.coverage.wants_sweep() {
            let mut used = self.graph.kinds();
            used.extend(self.emptied.keys());
            self.coverage.sweep(self.now, &used);
        }
    }
}
