//! The leader: facts from discovery, watches and executors in; probes, messages and events out.

use crate::barrier::Barrier;
use crate::coverage::{Coverage, KindId};
use crate::evidence::{Inquiry, Proof};
use crate::graph::{Graph, NodeId};
use crate::jitter::Jitter;
use crate::lease::{Leases, SessionId};
use crate::object::{GroupResource, Name, Object, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid};
use crate::queue::{Blocker, Queue};
use crate::time::Time;
use crate::timers::Timers;
use crate::view::Undecided;
use crate::work::{ActionKind, LeaseId, Outcome, Refusal, Term, ToExecutor, ToLeader};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

mod granting;
mod history;
mod intake;
mod judging;
mod probing;
mod reading;
mod reporting;
#[cfg(test)]
mod tests;

/// What the administrator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    /// uid of namespace kube-system.
    pub cluster_uid: Name,
    /// Where executors and clients reach this replica, for hints.
    pub endpoint: String,
    pub session_ttl: Duration,
    pub heartbeat_interval: Duration,
    /// From start to report of one attempt.
    pub execution_limit: Duration,
    /// A watch lost for this long without resuming makes its collection stale.
    pub stale_after: Duration,
    pub policy: Policy,
}

/// What the administrator decides about cases that can be seen in more than one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub invalid_references: InvalidReferences,
    pub on_store_rewind: OnStoreRewind,
    /// Collections that hold no owner in deletion although they cannot be seen.
    pub assume_no_dependents: Vec<GroupResource>,
}

/// What becomes of an object whose reference claims the uid of an object that is elsewhere: in another namespace, of another kind, or
/// under another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidReferences {
    /// It is judged as upstream judges it: what is not where the reference says is absent.
    #[default]
    Delete,
    /// It is kept as long as the other object is there.
    Hold,
}

/// What follows once every collection of a store that went back is listed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreRewind {
    /// Go on after a minute of reads that fit together.
    #[default]
    Continue,
    /// Grant nothing until the process is started anew.
    Hold,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decide and act.
    Enforce,
    /// Decide, publish, count; grant nothing but Verify.
    Observe,
}

/// One stream of an executor, numbered by the shell, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// One question to the API server, numbered by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// A fact for the leader.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Discovery shows this kind, for the first time or changed.
    KindServed(ServedKind),
    /// A complete and fresh discovery shows it no longer. That proves nothing about its objects.
    KindUnserved(GroupResource),
    /// The last observed state of the CRD says `Terminating=False`, reason `InstanceDeletionCompleted`: its instances are absent.
    KindEmptied { group: Name, kind: Name, crd: Uid },

    /// The collection's first list, or a new one, begins.
    ListBegun { collection: GroupResource },
    /// An object of the list under way.
    Listed { collection: GroupResource, object: Object },
    /// The list is complete as of this version; the watch goes on from it.
    ListEnded { collection: GroupResource, resource_version: ResourceVersion },
    /// The list failed; the shell tries again by itself.
    ListFailed { collection: GroupResource, error: String },
    /// ADDED or MODIFIED.
    Seen { collection: GroupResource, object: Object },
    /// DELETED, with the object's last state.
    Deleted { collection: GroupResource, object: Object },
    /// BOOKMARK.
    Bookmark { collection: GroupResource, resource_version: ResourceVersion },
    /// The watch ended other than by its own time limit; the shell resumes it. `transport`: the connection broke.
    WatchLost { collection: GroupResource, transport: bool, error: String },
    /// The watch goes on from where it was.
    WatchResumed { collection: GroupResource },
    /// An item of a list or watch was no object the collector can use (no uid, say).
    Unusable { collection: GroupResource, why: String },

    /// Answer to [`Output::Probe`].
    Probed { probe: ProbeId, answer: Result<ProbeAnswer, String> },

    /// A message on an executor's stream. The first must be a hello.
    Message { stream: StreamId, message: ToLeader },
    /// The stream has ended.
    StreamClosed { stream: StreamId },

    /// This replica leads.
    TermGained(Term),
    /// It does not any more.
    TermLost { leader_endpoint: String },
    /// The process is about to stop: no grants, every executor is sent away.
    Stop,
}

/// A consistent metadata list (resourceVersion unset) that the shell makes for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub id: ProbeId,
    pub collection: GroupResource,
    /// The version to ask for on the wire.
    pub version: Name,
    /// `None`: all namespaces, or a cluster-scoped kind.
    pub namespace: Option<Name>,
    /// `Some(1)` asks only for the position.
    pub limit: Option<u32>,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub resource_version: ResourceVersion,
    pub objects: Vec<Object>,
    /// The list was not cut by its limit.
    pub complete: bool,
    /// `remainingItemCount`, where the list was cut and the server says it.
    pub remaining: Option<u64>,
}

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Send {
        stream: StreamId,
        message: ToExecutor,
    },
    /// End the call with an error.
    Refuse {
        stream: StreamId,
        refusal: Refusal,
    },
    /// End the stream, after everything sent before has gone out.
    Close {
        stream: StreamId,
    },
    Probe(Probe),
    /// Throw the collection's watch away and list it anew.
    Relist {
        collection: GroupResource,
        why: String,
    },
    Event(Event),
}

/// What happened, for logs, counters and whoever watches. The engine itself neither logs nor counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A decision was made, or replaced by a newer one of a higher generation.
    Decided {
        item: u64,
        generation: u64,
        target: ObjectRef,
        action: ActionKind,
        causes: Vec<Cause>,
    },
    /// A decision no longer holds and was never carried out.
    Withdrawn {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
    },
    /// An attempt ended.
    Attempted {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        outcome: Outcome,
        executor: Name,
        http_status: u16,
        message: String,
        api_calls: u32,
        /// From decision to report.
        age: Duration,
    },
    /// A node left the graph by DELETED or by a relist; `caused_by_us` if a DELETE of ours had been accepted.
    Removed {
        object: ObjectRef,
        caused_by_us: bool,
    },
    /// An owner was proven absent.
    Proven {
        owner: ObjectRef,
        proof: Proof,
    },
    /// An owner check or a Verify found the owner alive, so that a deletion did not happen.
    Prevented {
        target: ObjectRef,
        owner: ObjectRef,
    },
    /// A collection changed its state.
    Collection {
        collection: GroupResource,
        state: crate::coverage::State,
        error: String,
    },
    SessionOpened {
        executor: Name,
    },
    SessionEnded {
        executor: Name,
        why: &'static str,
        leases: usize,
    },
    TermGained(Term),
    TermLost,
    /// Nothing is granted until the positions are known to be right.
    GrantsStopped {
        why: String,
    },
    GrantsResumed,
    /// The store's history is not the one the graph was built from.
    Rewound {
        collection: GroupResource,
        why: String,
    },
    /// A reference names a namespaced owner that is in another namespace. Once per reference and term.
    OwnerInOtherNamespace {
        dependent: ObjectRef,
        reference: OwnerReference,
    },
    /// An item of a list or watch that the collector cannot use, and so will never touch.
    Unusable {
        collection: GroupResource,
        why: String,
    },
    /// An input that makes no sense was ignored.
    Rejected {
        why: String,
    },
}

/// Why a decision was made: one per owner reference that counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    OwnerAbsent {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
        proof: Proof,
    },
    OwnerWaiting {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    OwnerOrphans {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    /// Another owner keeps the object, so it only loses references.
    KeptBy {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    /// The object is an owner in foreground deletion without blocking dependents.
    NoBlockingDependents,
    /// The object is an owner in orphaning deletion whose dependents all lost their reference.
    NoDependents,
    /// The object is in a cycle of blocking references.
    Cycle,
    /// Only references to this object are known.
    NeverSeen,
}

/// Most nodes judged between two outputs, so that a large change does not hold up everything else.
const JUDGE_BATCH: usize = 1000;

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The end of an item's backoff.
    Item(Uid),
    /// A blocker's next probe.
    Blocker(Blocker),
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
    /// A write of ours should have shown up.
    Write(Uid),
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
}

/// The graph service's machine.
///
/// * `intake` takes what discovery and watches say.
/// * `judging` turns verdicts into items of the queue.
/// * `granting` speaks with executors; `reporting` takes what their attempts came to.
/// * `probing` asks the API server where doubt or a barrier demands it; `history` is the doubt.
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
    barrier: Barrier,

    /// Nodes to be judged, in the order in which they were marked.
    dirty: VecDeque<NodeId>,
    undecided: BTreeMap<NodeId, Undecided>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    /// Deletes that were accepted and whose DELETED has not come, with when they were.
    writes: BTreeMap<Uid, Time>,
    /// Owners in deletion, with the barrier round that each waits for; `None`: not asked for yet.
    deletions: BTreeMap<NodeId, Option<u64>>,

    probes: BTreeMap<ProbeId, Purpose>,
    last_probe: u64,
    /// A connection broke: nothing is granted until the store is known to stand where it did.
    suspect: Option<KindId>,
    /// The store went back: nothing is granted until these are listed again,
    rewound: BTreeSet<KindId>,
    /// and so many reads in a row have fitted together.
    settling: Option<u32>,
    /// uids whose DELETED was seen last, by collection: one that is seen again there is of another history.
    gone: BTreeMap<Uid, KindId>,
    gone_order: VecDeque<Uid>,
    /// References to owners in other namespaces that were told of, as dependent and owner.
    told: BTreeSet<(Uid, Uid)>,

    term: Option<Term>,
    leader_endpoint: String,
    stopping: bool,
    /// The session that was granted something last.
    turn: SessionId,
}

impl Leader {
    /// A leader without a term, with an empty graph. The seed serves jitter.
    pub fn new(config: Config, seed: u64) -> Leader {
        let holds_invalid = config.policy.invalid_references == InvalidReferences::Hold;
        Leader {
            config,
            jitter: Jitter::new(seed),
            now: Time::ZERO,
            outputs: VecDeque::new(),
            timers: Timers::default(),
            graph: Graph::new(holds_invalid),
            coverage: Coverage::default(),
            queue: Queue::default(),
            leases: Leases::default(),
            barrier: Barrier::default(),
            dirty: VecDeque::new(),
            undecided: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            writes: BTreeMap::new(),
            deletions: BTreeMap::new(),
            probes: BTreeMap::new(),
            last_probe: 0,
            suspect: None,
            rewound: BTreeSet::new(),
            settling: None,
            gone: BTreeMap::new(),
            gone_order: VecDeque::new(),
            told: BTreeSet::new(),
            term: None,
            leader_endpoint: String::new(),
            stopping: false,
            turn: SessionId(0),
        }
    }

    /// Takes a fact. Poll afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::KindServed(kind) => self.kind_served(kind),
            Input::KindUnserved(collection) => self.kind_unserved(&collection),
            Input::KindEmptied { group, kind, crd } => self.kind_emptied(&group, &kind, &crd),
            Input::ListBegun { collection } => self.with_kind(&collection, Leader::list_begun),
            Input::Listed { collection, object } => {
                self.with_kind(&collection, |leader, kind| leader.listed(kind, object))
            }
            Input::ListEnded { collection, resource_version } => {
                self.with_kind(&collection, |leader, kind| leader.list_ended(kind, resource_version));
            }
            Input::ListFailed { collection, error } => {
                self.with_kind(&collection, |leader, kind| leader.list_failed(kind, error));
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
            Input::WatchLost { collection, transport, error } => {
                self.with_kind(&collection, |leader, kind| leader.watch_lost(kind, transport, error));
            }
            Input::WatchResumed { collection } => self.with_kind(&collection, Leader::watch_resumed),
            Input::Unusable { collection, why } => self.unusable(collection, why),
            Input::Probed { probe, answer } => self.probed(probe, answer),
            Input::Message { stream, message } => self.message(stream, message),
            Input::StreamClosed { stream } => {
                self.leases.detach(stream);
            }
            Input::TermGained(term) => self.term_gained(term),
            Input::TermLost { leader_endpoint } => self.term_lost(leader_endpoint),
            Input::Stop => self.stop(),
        }
        self.forget_dropped();
    }

    /// Does what is due. Poll afterwards.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Item(uid) => self.item_due(&uid),
                Timer::Blocker(blocker) => self.blocker_due(blocker),
                Timer::Session(session) => self.session_due(session),
                Timer::Recall(lease) => self.recall_due(lease),
                Timer::Regrant(lease) => self.regrant_due(lease),
                Timer::Limit(lease) => self.limit_due(lease),
                Timer::Inquiry(node) => self.mark(node),
                Timer::Write(uid) => self.write_due(&uid),
                Timer::Stale(kind) => self.stale_due(kind),
                Timer::Emptied(kind) => self.emptied_due(kind),
                Timer::Suspect => self.ask_suspect(),
                Timer::Doubt(kind) => self.ask_doubt(kind),
                Timer::Settle => self.ask_settle(),
                Timer::Audit(kind) => self.audit(kind, false),
                Timer::Recount(kind) => self.audit(kind, true),
            }
        }
        let wanted = self.barrier.tick(self.now);
        self.ask(wanted);
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
            self.turn_barrier();
            self.grant();
            if self.outputs.is_empty() && self.dirty.is_empty() {
                return None;
            }
        }
    }

    fn judge_some(&mut self) {
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

    /// Has a node judged before the next effect.
    fn mark(&mut self, id: NodeId) {
        if self.graph.get(id).is_some_and(|node| !node.dirty) {
            self.graph.node_mut(id).dirty = true;
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
        for id in self.graph.by_uid(uid).to_vec() {
            self.mark(id);
        }
    }

    /// Notes about nodes that went go with them.
    fn forget_dropped(&mut self) {
        for id in self.graph.take_dropped() {
            self.undecided.remove(&id);
            self.inquiries.remove(&id);
            self.deletions.remove(&id);
        }
    }
}
