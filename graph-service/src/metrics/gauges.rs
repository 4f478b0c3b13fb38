//! Gauges that are read from the leader at each scrape.

use super::parity::ParityMetrics;
use super::{Labels, count_of};
use engine::coverage::State;
use engine::guard::GuardKind;
use engine::parity::ParityView;
use engine::view::{AGE_BOUNDS, CollectionStatus, GuardView, Status, Undecided, Waiting, Waits};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::clock::Clock;
use runtime::metrics::{Book, Label};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

type Seconds = Gauge<f64, AtomicU64>;

/// Ages of items: one for each of [`AGE_BOUNDS`], and one for older items.
const AGES: [&str; AGE_BOUNDS.len() + 1] = ["to_1s", "to_10s", "to_1m", "to_10m", "to_1h", "over_1h"];
/// Upper bounds of the classes of lag: the time since the last event of a synced collection. A quiet collection gets a
/// bookmark about once a minute.
const LAGS: [(&str, Duration); 4] = [
    ("to_10s", Duration::from_secs(10)),
    ("to_90s", Duration::from_secs(90)),
    ("to_10m", Duration::from_secs(600)),
    ("over_10m", Duration::MAX),
];
/// Causes that block many items, as the queue names them.
const BLOCKERS: [&str; 5] = ["in_doubt", "forbidden", "webhook", "throttled", "unreadable"];
/// Maximum number of unsynced collections with a series of their own.
const NAMED_MAX: usize = 100;

/// The values of a scrape.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) status: &'a Status,
    pub(crate) waits: &'a [Waits],
    pub(crate) guards: &'a [GuardView],
    pub(crate) collections: &'a [CollectionStatus],
    /// `None` if this replica does not compare.
    pub(crate) parity: Option<&'a ParityView>,
    /// See [`super::Metrics::stalled`].
    pub(crate) stalled: Duration,
    pub(crate) clock: Clock,
}

/// Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Gauges {
    pub(super) loop_idle: Seconds,
    stalled: Seconds,
    collections: Family<Labels<1>, Gauge>,
    lags: Family<Labels<1>, Gauge>,
    unsynced: Family<Vec<(&'static str, String)>, Seconds>,
    nodes: Gauge,
    edges: Gauge,
    virtual_nodes: Gauge,
    graph_bytes: Gauge,
    bytes_per_object: Seconds,
    items: Family<Labels<1>, Gauge>,
    ages: Family<Labels<2>, Gauge>,
    oldest: Family<Labels<1>, Seconds>,
    leases: Gauge,
    oldest_lease: Seconds,
    undecided: Family<Labels<1>, Gauge>,
    undiscovered: Gauge,
    blocked: Family<Labels<1>, Gauge>,
    sessions: Gauge,
    leader: Gauge,
    term: Gauge,
    grants_stopped: Gauge,
    observes: Gauge,
    pauses: Family<Labels<1>, Gauge>,
    pauses_unknown: Gauge,
    guards: Family<Labels<2>, Gauge>,
    guards_held: Family<Labels<1>, Gauge>,
    parity: ParityMetrics,
}

/// The states of an item that no executor has.
fn places() -> impl Iterator<Item = Waiting> {
    Waiting::ALL.into_iter().filter(|&at| at != Waiting::Leased)
}

impl Gauges {
    pub(super) fn register(book: &mut Book<'_>) -> Gauges {
        let kinds = || Label::of("kind", GuardKind::ALL.map(GuardKind::as_str));
        let state = || Label::of("state", places().map(Waiting::as_str));
        Gauges {
            loop_idle: book.put("ownergraph_loop_idle_seconds", [], ("Time since the last round of the collector's loop", "Below five seconds, also in a quiet cluster. `/livez` fails above thirty."), Seconds::default()),
            stalled: book.put("ownergraph_stalled_seconds", [], ("Time for which the leader has had ready or leased work in which no attempt ended and no decision was withdrawn", "0 if nothing waits. Above a minute the collector has stopped: no executor has a session or starts what it gets, grants are suspended, or there is a bug."), Seconds::default()),
            collections: book.put("ownergraph_collections", [Label::of("state", State::ALL.map(State::as_str))], ("Collections, by state", "`failed` and `stale` collections delay decisions about their dependents. `ignored` ones are not watched."), Family::default()),
            lags: book.put("ownergraph_collections_by_lag", [Label::of("lag", LAGS.map(|(word, _)| word))], ("Synced collections, by the time since the last event or bookmark of their watch", "The API server sends at least one bookmark a minute. Aggregated servers may be quiet for longer."), Family::default()),
            unsynced: book.put(
                "ownergraph_collection_unsynced_seconds",
                [
                    Label::bounded("group", "of at most 100 collections at a time"),
                    Label::bounded("resource", "of at most 100 collections at a time"),
                    Label::of("state", ["listing", "stale", "failed"]),
                ],
                ("Time for which a collection has been unsynced", "Names the collections that `ownergraph_collections` counts as unsynced. `/readyz?verbose` has the error."),
                Family::default(),
            ),
            nodes: book.put("ownergraph_graph_nodes", [], ("Objects in the graph", "Includes `ownergraph_graph_virtual_nodes`."), Gauge::default()),
            edges: book.put("ownergraph_graph_edges", [], ("Owner references in the graph", "No action needed."), Gauge::default()),
            virtual_nodes: book.put("ownergraph_graph_virtual_nodes", [], ("Owners that exist only in references", "They are gone or are not watched. A high number means many dangling references."), Gauge::default()),
            graph_bytes: book.put("ownergraph_graph_bytes", [], ("Bytes of the graph's large parts: objects, names, references and indexes", "The difference to `process_resident_memory_bytes` is memory outside of the graph."), Gauge::default()),
            bytes_per_object: book.put("ownergraph_graph_bytes_per_object", [], ("`ownergraph_graph_bytes` for each object in the graph", "The budget is 160. Meaningful above about ten thousand objects."), Seconds::default()),
            items: book.put("ownergraph_queue_items", [state()], ("Decisions that are not leased to an executor, by state", "`ready` should go down without action. `held` waits for a guard. `protected` stays until a user ends the hold. `blocked` and `backing_off` wait after a refusal. `observed` is never carried out."), Family::default()),
            ages: book.put("ownergraph_queue_items_by_age", [state(), Label::of("age", AGES)], ("Decisions that are not leased to an executor, by age", "Items that are `ready` for minutes need more executors."), Family::default()),
            oldest: book.put("ownergraph_queue_oldest_seconds", [state()], ("Age of the oldest decision in each state; 0 if there is none", "Up to a second too low."), Family::default()),
            leases: book.put("ownergraph_leases", [], ("Work items granted and not yet reported", "At most twice the concurrency of all executors."), Gauge::default()),
            oldest_lease: book.put("ownergraph_lease_oldest_seconds", [], ("Age of the oldest decision that is leased to an executor", "Above a minute: slow webhooks, or a lost executor."), Seconds::default()),
            undecided: book.put("ownergraph_undecided", [Label::of("cause", Undecided::ALL.map(Undecided::as_str))], ("Dependents without a verdict, by cause", "`kubectl ownergraph stuck` names them."), Family::default()),
            undiscovered: book.put("ownergraph_undiscovered", [], ("Groups and custom resources that exist, are missing in discovery, and hold owners in deletion", "0, except for a moment after a definition is created. Otherwise the server behind an APIService is down: repair it, or release the owners with `--assume-no-dependents=GROUP/*`. `/readyz?verbose` names them."), Gauge::default()),
            blocked: book.put("ownergraph_blocked_items", [Label::of("cause", BLOCKERS)], ("Items behind a blocker, by its cause", "`/readyz?verbose` names the rule, the webhook or the collection."), Family::default()),
            sessions: book.put("ownergraph_sessions", [], ("Executors with a session", "0 on the leader: no executor carries out work."), Gauge::default()),
            leader: book.put("ownergraph_leader", [], ("1 while this replica leads", "The sum over the replicas is 1, and 0 during an election."), Gauge::default()),
            term: book.put("ownergraph_term", [], ("Term in which this replica leads; 0 while it does not lead", "Its `changes()` counts changes of leader."), Gauge::default()),
            grants_stopped: book.put("ownergraph_grants_stopped", [], ("1 while grants are stopped; `/readyz?verbose` shows the reason", "1 on every replica that does not lead."), Gauge::default()),
            observes: book.put("ownergraph_observes", [], ("1 in mode observe", "No work is granted in this mode, so it needs no executors."), Gauge::default()),
            pauses: book.put("ownergraph_pauses", [Label::of("state", ["pending", "effective"])], ("Active pauses, by whether a write in their scope may still be sent", "`kubectl ownergraph status` lists them."), Family::default()),
            pauses_unknown: book.put("ownergraph_pauses_unknown", [], ("1 while deletions are suspended because the guards of a kind cannot be read", "The collector must be able to list and watch the resources of the group `ownergraph.dev`."), Gauge::default()),
            guards: book.put("ownergraph_guards", [kinds(), Label::of("state", ["pending", "effective"])], ("Active guards by kind, and whether a write in their scope may still be sent", "`kubectl ownergraph status` lists them."), Family::default()),
            guards_held: book.put("ownergraph_guards_held_items", [kinds()], ("Decisions that guards hold, by the kind of the strictest guard", "`kubectl ownergraph queue` names them, and `why` the command that releases each."), Family::default()),
            parity: ParityMetrics::register(book),
        }
    }

    pub(super) fn set(&self, snapshot: &Snapshot<'_>) {
        let Snapshot { status, waits, guards, collections, parity, stalled, clock } = snapshot;
        self.parity.set(*parity);
        self.stalled.set(stalled.as_secs_f64());
        self.collections(collections, *clock);
        self.nodes.set(count_of(status.nodes));
        self.edges.set(count_of(status.edges));
        self.virtual_nodes.set(count_of(status.virtual_nodes));
        self.graph_bytes.set(count_of(status.graph_bytes));
        self.bytes_per_object.set(status.graph_bytes as f64 / status.nodes.max(1) as f64);
        for waits in *waits {
            self.waits(waits, *clock);
        }
        for cause in BLOCKERS {
            let items = status.blocked.iter().find(|(known, _)| *known == cause).map_or(0, |(_, items)| *items);
            self.blocked.get_or_create(&[("cause", cause)]).set(count_of(items));
        }
        for cause in Undecided::ALL {
            let count = status.undecided.iter().find(|(known, _)| *known == cause).map_or(0, |(_, count)| *count);
            self.undecided.get_or_create(&[("cause", cause.as_str())]).set(count_of(count));
        }
        self.undiscovered.set(count_of(status.hidden.len()));
        self.leases.set(count_of(status.leased));
        self.sessions.set(count_of(status.sessions));
        self.leader.set(i64::from(status.term.is_some()));
        let term = status.term.as_ref().map_or(0, |term| term.number);
        self.term.set(i64::try_from(term).unwrap_or(i64::MAX));
        self.grants_stopped.set(i64::from(status.stopped.is_some()));
        self.observes.set(i64::from(status.observes));
        for (state, effective) in [("pending", false), ("effective", true)] {
            for kind in GuardKind::ALL {
                let is_one = |view: &&GuardView| view.id.kind == kind && !view.over && view.effective == effective;
                let count = count_of(guards.iter().filter(is_one).count());
                self.guards.get_or_create(&[("kind", kind.as_str()), ("state", state)]).set(count);
                if kind == GuardKind::Pause {
                    self.pauses.get_or_create(&[("state", state)]).set(count);
                }
            }
        }
        for kind in GuardKind::ALL {
            let held = guards.iter().filter(|view| view.id.kind == kind).map(|view| view.held).sum();
            self.guards_held.get_or_create(&[("kind", kind.as_str())]).set(count_of(held));
        }
        self.pauses_unknown.set(i64::from(status.guards_unknown.is_some()));
    }

    fn waits(&self, waits: &Waits, clock: Clock) {
        let oldest = waits.oldest.map_or(0.0, |since| clock.age(since).as_secs_f64());
        let state = ("state", waits.at.as_str());
        if waits.at == Waiting::Leased {
            self.oldest_lease.set(oldest);
            return;
        }
        self.items.get_or_create(&[state]).set(count_of(waits.items));
        self.oldest.get_or_create(&[state]).set(oldest);
        for (age, &items) in AGES.into_iter().zip(&waits.by_age) {
            self.ages.get_or_create(&[state, ("age", age)]).set(count_of(items));
        }
    }

    fn collections(&self, collections: &[CollectionStatus], clock: Clock) {
        for state in State::ALL {
            let count = collections.iter().filter(|collection| collection.state == state).count();
            self.collections.get_or_create(&[("state", state.as_str())]).set(count_of(count));
        }
        let mut lags = [0; LAGS.len()];
        let synced = collections.iter().filter(|collection| collection.state == State::Synced);
        for heard in synced.filter_map(|collection| collection.progress) {
            let age = clock.age(heard);
            lags[LAGS.iter().take_while(|(_, below)| age >= *below).count()] += 1;
        }
        for ((lag, _), count) in LAGS.into_iter().zip(lags) {
            self.lags.get_or_create(&[("lag", lag)]).set(count);
        }
        self.unsynced.clear();
        let troubled = |state: State| matches!(state, State::Listing | State::Stale | State::Failed);
        for collection in collections.iter().filter(|collection| troubled(collection.state)).take(NAMED_MAX) {
            let of = &collection.kind.group_resource;
            let text = |name: &str| engine::object::clip(name, 253);
            let labels = vec![
                ("group", text(&of.group)),
                ("resource", text(&of.resource)),
                ("state", collection.state.as_str().to_owned()),
            ];
            self.unsynced.get_or_create(&labels).set(clock.age(collection.since).as_secs_f64());
        }
    }
}
