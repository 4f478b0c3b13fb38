//! A replica of the graph service: the engine's leader, with a client that lists and watches the model.

use super::clock::Clock;
use super::election::Candidate;
use super::ingest::Collection;
use super::kinds::{KINDS, MIRROR, MIRRORED, STORED, UNWATCHED, by_resource, observe};
use super::law::{self, Shown};
use super::world::{Happening, MS, S, World};
use engine::coverage::State;
use engine::follow::Failure;
use engine::guard::GuardKind;
use engine::leader::{
    CheckBy, Config, Event, GuardRead, Input, Leader, Mode, Named, Output, Policy, Probe, ProbeAnswer, ProbeId,
    StreamId,
};
use engine::object::{Access, GroupResource, Object, ResourceVersion, Uid};
use engine::pace::Rate;
use engine::time::Time;
use engine::view::ExecutorView;
use engine::view::NodeView;
use engine::work::{Refusal, ToExecutor, ToLeader};
use recording::Call;
use sandbox::model::{ListQuery, Reason};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) struct Replica {
    pub(super) leader: Option<Leader>,
    pub(super) epoch: u64,
    pub(super) clock: Clock,
    pub(super) candidate: Option<Candidate>,
    /// The leader that the replica follows.
    pub(super) follows: Option<usize>,
    tick_at: Option<u64>,
    pub(super) paused_until: u64,
    /// The watches of its API server deliver nothing new before this time.
    pub(super) lags_until: u64,
    pub(super) collections: Vec<Collection>,
    /// The owners that the replica was shown in orphaning deletion.
    orphaning: BTreeMap<Uid, Orphaning>,
    /// The times since which the replica can know of each new history of the store.
    pub(super) told: Vec<u64>,
    /// The group that discovery hides from the replica, and the end of that time.
    pub(super) undiscovered: Option<(&'static str, u64)>,
    /// The revision up to which the replica has the main store.
    pub(super) known: u64,
}

/// The facts that a replica was shown of an orphaning owner.
struct Orphaning {
    /// The history of the store.
    history: usize,
    /// The revision of the store when the replica was shown the owner's end; the highest number before that. `None`
    /// after the owner's collection is listed again.
    ended: Option<u64>,
}

impl Replica {
    pub(super) fn new(clock: Clock) -> Replica {
        Replica {
            leader: None,
            epoch: 0,
            clock,
            candidate: None,
            follows: None,
            tick_at: None,
            paused_until: 0,
            lags_until: 0,
            collections: Vec::new(),
            orphaning: BTreeMap::new(),
            told: Vec::new(),
            undiscovered: None,
            known: 0,
        }
    }

    pub(super) fn local(&self, now: u64) -> Time {
        self.clock.local(now)
    }

    pub(super) fn is_undiscovered(&self, now: u64, kind: usize) -> bool {
        self.undiscovered.is_some_and(|(group, until)| now < until && KINDS[kind].group == group)
    }

    /// The newest history of the store that the replica could know of.
    pub(super) fn history(&self) -> usize {
        self.told.len()
    }
}

/// The number of steps between two checks of a leader's state. A check takes longer than the rest of a step. A traced
/// run checks after each step.
const CHECKED_EVERY: u64 = 16;
/// The time within which a leader notices a restore, however late lists and watches are.
const REWIND_SHOWS_WITHIN: u64 = 600 * S;

pub(super) fn position(revision: u64) -> ResourceVersion {
    ResourceVersion::parse(&revision.to_string())
}

impl World {
    /// The state that a lease of this replica rests on, if the replica grants it now.
    fn shown(&self, at: usize) -> Shown {
        let replica = &self.replicas[at];
        // The position in a former history counts as far as both histories have the same past.
        let through = |collection: &Collection| {
            let shared = self.formers.get(collection.history).map_or(u64::MAX, |former| former.shared_through);
            collection.through.filter(|&through| through <= shared)
        };
        let present = replica.orphaning.iter().filter(|(_, seen)| seen.history == replica.history());
        Shown {
            replica: at,
            history: replica.history(),
            through: replica.collections.iter().map(through).collect(),
            // A kind that discovery does not show may still have objects.
            served: (0..KINDS.len())
                .map(|kind| replica.collections[kind].served || replica.is_undiscovered(self.now, kind))
                .collect(),
            orphaning: present.map(|(uid, seen)| (uid.clone(), seen.ended)).collect(),
        }
    }

    /// Notes that the replica can know of the present history from now on. An answer to a question does not count,
    /// because the leader drops the answers of rounds that it has given up.
    pub(super) fn told_of_history(&mut self, at: usize) {
        let (now, history) = (self.now, self.history());
        self.replicas[at].told.resize(history, now);
    }

    pub(super) fn replica_start(&mut self, at: usize) {
        let seed = self.chaos.next();
        let undiscovered = self.undiscovered();
        self.told_of_history(at);
        let replica = &mut self.replicas[at];
        replica.epoch += 1;
        let epoch = replica.epoch;
        let config = Config {
            mode: Mode::Enforce,
            cluster_uid: "cluster".into(),
            endpoint: at.to_string(),
            session_ttl: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(5),
            execution_limit: Duration::from_secs(30),
            stale_after: Duration::from_secs(30),
            policy: Policy {
                max_writes_per_second: Some(self.options.cap).filter(|&cap| cap > 0).map(Rate::per_second),
                ..Policy::default()
            },
            protocols: self.options.protocols_of(seed),
        };
        replica.leader = Some(Leader::new(config.clone(), seed));
        replica.candidate = Some(Candidate::new(format!("{at}-{epoch}"), seed));
        replica.follows = None;
        replica.tick_at = None;
        replica.undiscovered = undiscovered;
        replica.known = 0;
        replica.orphaning.clear();
        replica.collections = KINDS.iter().map(|_| Collection::default()).collect();
        self.begin_recording(at, epoch, &config, seed);
        self.note(|| format!("replica {at} starts"));
        self.after(MS, Happening::Discovery { replica: at, epoch });
        self.follow_guards(at, epoch);
        self.drain_elector(at);
    }

    pub(super) fn replica_crash(&mut self, at: usize) {
        if self.replicas[at].leader.take().is_none() {
            return;
        }
        self.replicas[at].candidate = None;
        self.told_of_history(at);
        self.note(|| format!("replica {at} ends"));
        let streams: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| stream.replica == at).map(|(&id, _)| id).collect();
        for stream in streams {
            self.break_stream(stream);
        }
        let back = self.chaos.between(S / 2, 20 * S);
        self.after(back, Happening::ReplicaStart { replica: at });
    }

    /// Returns whether the replica still runs the process that the happening is for.
    pub(super) fn is_epoch(&self, at: usize, epoch: u64) -> bool {
        self.replicas[at].epoch == epoch && self.replicas[at].leader.is_some()
    }

    pub(super) fn tell(&mut self, at: usize, input: Input) {
        if !matches!(input, Input::TermLost { .. }) {
            self.end_overdue_term(at);
        }
        self.note(|| format!("replica {at} <- {}", brief(&input)));
        self.remember_orphaning(at, &input);
        if matches!(input, Input::TermLost { .. }) {
            self.answers_end(at);
        }
        if let Some(candidate) = &mut self.replicas[at].candidate {
            candidate.is_told(&input);
        }
        let now = self.now;
        let local = self.replicas[at].local(now);
        self.record(at, local, || Call::Input(input.clone()));
        let Some(leader) = &mut self.replicas[at].leader else { return };
        leader.handle(local, input);
        self.drain_leader(at);
    }

    /// The replica learns of an owner's end from the watch, or earlier from a read.
    fn show_end(&mut self, at: usize, owner: &Uid) {
        let revision = self.server.model.revision();
        if let Some(seen) = self.replicas[at].orphaning.get_mut(owner) {
            seen.ended = seen.ended.map(|ended| ended.min(revision));
        }
    }

    fn remember_orphaning(&mut self, at: usize, input: &Input) {
        if let Input::Deleted { object, .. } = input {
            self.show_end(at, &object.uid);
        }
        if matches!(input, Input::ListBegun { .. } | Input::KindUnserved(_)) {
            for seen in self.replicas[at].orphaning.values_mut() {
                seen.ended = None;
            }
        }
        let (Input::Listed { collection, object } | Input::Seen { collection, object }) = input else { return };
        let Some(kind) = by_resource(&collection.group, &collection.resource) else { return };
        if object.facts.orphans_dependents() {
            let history = self.replicas[at].collections[kind].history;
            let seen = Orphaning { history, ended: Some(u64::MAX) };
            self.replicas[at].orphaning.entry(object.uid.clone()).or_insert(seen).history = history;
        }
    }

    pub(super) fn replica_tick(&mut self, at: usize, epoch: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].tick_at.is_none_or(|due| due > self.now) {
            return;
        }
        self.end_overdue_term(at);
        let now = self.now;
        let replica = &mut self.replicas[at];
        replica.tick_at = None;
        let local = replica.local(now);
        self.record(at, local, || Call::Tick);
        let Some(leader) = &mut self.replicas[at].leader else { return };
        leader.tick(local);
        self.drain_leader(at);
    }

    fn drain_leader(&mut self, at: usize) {
        loop {
            let Some(leader) = &mut self.replicas[at].leader else { return };
            let Some(output) = leader.poll() else { break };
            self.leader_output(at, output);
        }
        if (self.traces() || self.tally.steps.is_multiple_of(CHECKED_EVERY))
            && let Err(why) = self.check_leader(at)
        {
            return self.violate(why);
        }
        let replica = &mut self.replicas[at];
        let Some(leader) = &replica.leader else { return };
        let next = leader.next_deadline();
        if let Some(due) = next.map(|due| replica.clock.world(due))
            && replica.tick_at.is_none_or(|known| due < known)
        {
            replica.tick_at = Some(due);
            let epoch = replica.epoch;
            self.at(due, Happening::ReplicaTick { replica: at, epoch });
        }
    }

    /// Checks that a leader's state is consistent.
    fn check_leader(&self, at: usize) -> Result<(), String> {
        let Some(leader) = &self.replicas[at].leader else { return Ok(()) };
        if let Some(why) = leader.inconsistency() {
            return Err(format!("replica {at} is inconsistent: {why}"));
        }
        // A smaller window revokes no lease, so earlier leases may exceed it.
        let room = |executor: &ExecutorView| match executor.window {
            0 => executor.started + executor.buffered,
            window => window as usize,
        };
        let windows: usize = leader.queries().executors().iter().map(room).sum();
        let leased = leader.queries().status().leased;
        if leased > windows {
            return Err(format!("replica {at} has {leased} leases out in windows of {windows}"));
        }
        Ok(())
    }

    fn leader_output(&mut self, at: usize, output: Output) {
        match output {
            Output::Event(event) => {
                self.tally.event(&event);
                self.note(|| format!("replica {at} event {event:?}"));
                let restored = self.formers.last().is_some_and(|former| self.now < former.ended + REWIND_SHOWS_WITHIN);
                // A member with an older copy looks like a store that went back.
                let stale = self.perilous.member_until > 0;
                if let Event::Rewound { why, .. } = &event
                    && !restored
                    && !stale
                {
                    self.violate(format!("replica {at} believes the store went back: {why}"));
                }
                if let Event::GuardEffective { id } = &event {
                    self.guard_is_effective(id);
                }
                if let Event::Granted { target, action, .. } = &event {
                    self.engine_law(at, target, *action);
                }
                if let Event::Removed { object, .. } = &event {
                    self.show_end(at, &object.uid);
                }
                // A replica believes the former history until it notices the restore.
                if let Event::Proven { owner, proof } = &event
                    && !restored
                {
                    let kind = by_resource(&owner.group, &owner.resource);
                    let has_list = kind != Some(UNWATCHED) || self.options.unwatched == 0;
                    if let Err(why) = law::proof(&self.server.truth, owner, proof, has_list) {
                        self.violate(format!("replica {at} {why}"));
                    }
                }
            }
            Output::Send { stream, message } => {
                self.note(|| format!("replica {at} -> stream {} {message:?}", stream.0));
                if let ToExecutor::Grant { leases } = &message {
                    for lease in leases {
                        let shown = self.shown(at);
                        self.grants.insert(lease.id, shown);
                    }
                }
                self.send_to_executor(stream.0, message);
            }
            Output::Refuse { stream, refusal } => {
                self.note(|| format!("replica {at} refuses stream {} {refusal:?}", stream.0));
                self.end_at_leader(stream.0, Some(refusal));
            }
            Output::Close { stream } => {
                self.note(|| format!("replica {at} closes stream {}", stream.0));
                self.end_at_leader(stream.0, None);
            }
            Output::Probe(probe) => {
                self.note(|| format!("replica {at} asks {probe:?}"));
                let epoch = self.replicas[at].epoch;
                let delay = self.api.delay(self.options.api_ms);
                self.after(delay, Happening::ProbeArrives { replica: at, epoch, probe });
            }
            Output::ReadGuards(read) => {
                self.note(|| format!("replica {at} asks which pauses there are"));
                let epoch = self.replicas[at].epoch;
                // Worlds without guards stay as they are.
                let (fails, delay) = if read.kind == GuardKind::Pause {
                    let fails = self.strikes("probe failure", self.options.faults.probe_failures);
                    (fails, self.api.delay(self.options.api_ms))
                } else {
                    (false, self.guards_read_delay())
                };
                self.after(delay, Happening::GuardsRead { replica: at, epoch, read, fails });
            }
            Output::AskGate(question) => {
                self.engine_is_asked(at, &question);
                self.ask_gate(at, &question);
            }
            Output::CancelQuestion { number, .. } => self.question_ends(at, number),
            Output::CreatePause { by, reason, .. } => {
                self.note(|| format!("replica {at} wants a pause, {by}: {reason}"))
            }
            Output::Selectors(_) => panic!("there is no guard in this world"),
            Output::Relist { collection, why } => {
                self.note(|| format!("replica {at} relists {collection}: {why}"));
                if let Some(kind) = by_resource(&collection.group, &collection.resource) {
                    self.relist(at, kind);
                }
            }
        }
    }

    pub(super) fn leader_hears(&mut self, stream: u64, message: ToLeader) {
        let Some(open) = self.streams.get(&stream).filter(|open| open.open_at_leader) else { return };
        let (at, epoch) = (open.replica, open.epoch);
        if self.is_epoch(at, epoch) {
            self.tell(at, Input::Message { stream: StreamId(stream), message });
        }
    }

    pub(super) fn leader_side_ends(&mut self, stream: u64) {
        let Some(open) = self.streams.get_mut(&stream).filter(|open| open.open_at_leader) else { return };
        open.open_at_leader = false;
        let (at, epoch) = (open.replica, open.epoch);
        if self.is_epoch(at, epoch) {
            self.tell(at, Input::StreamClosed { stream: StreamId(stream) });
        }
    }

    /// The leader ends a stream. The executor learns of the end after it receives all earlier messages.
    fn end_at_leader(&mut self, stream: u64, refusal: Option<Refusal>) {
        let delay = self.net.delay(self.options.net_ms);
        let now = self.now;
        let Some(open) = self.streams.get_mut(&stream) else { return };
        open.open_at_leader = false;
        let last = if open.to_executor_at == u64::MAX { now + 20 * S } else { open.to_executor_at };
        let at = last.max(now + delay);
        self.at(at, Happening::ExecutorSideEnds { stream, refusal });
    }

    // The questions.

    pub(super) fn probe_arrives(&mut self, at: usize, epoch: u64, probe: &Probe) {
        let fails = self.strikes("probe failure", self.options.faults.probe_failures);
        let answer = if fails { Err(String::from("no answer")) } else { self.asked(at, probe) };
        let delay = self.answer_delay();
        self.after(delay, Happening::ProbeAnswered { replica: at, epoch, probe: probe.id, answer });
    }

    fn asked(&mut self, at: usize, probe: &Probe) -> Result<ProbeAnswer, String> {
        if probe.object.as_ref().is_some_and(|named| self.is_unreadable(&named.name)) {
            return Err(String::from("500"));
        }
        let is_list = probe.object.as_ref().is_none_or(|named| named.by == CheckBy::List);
        if is_list && let Some(resource_version) = self.server.foreign_version() {
            self.tally.fault("foreign list");
            return Ok(ProbeAnswer { resource_version, objects: Vec::new(), complete: true, remaining: None });
        }
        let kind = by_resource(&probe.collection.group, &probe.collection.resource).ok_or("no such kind")?;
        let resource = KINDS[kind].resource();
        let namespace = probe.namespace.as_ref().map(|name| name.to_string());
        let limit = probe.limit.map_or(0, |limit| limit as usize);
        if let Some(Named { name, by: CheckBy::Read }) = &probe.object {
            let found = self.server.reader(self.now, kind, self.replicas[at].known).get(
                &resource,
                namespace.as_deref().unwrap_or_default(),
                name,
            );
            let object = match found {
                Ok(object) => Some(observe(&object)),
                Err(error) if error.reason == Reason::NotFound && !error.details.name.is_empty() => None,
                Err(error) => return Err(error.to_string()),
            };
            let resource_version = object.as_ref().map_or(ResourceVersion::parse(""), |of| of.resource_version.clone());
            return Ok(ProbeAnswer {
                resource_version,
                objects: object.into_iter().collect(),
                complete: true,
                remaining: None,
            });
        }
        let query = ListQuery { namespace, limit, ..ListQuery::default() };
        let page = self
            .server
            .reader(self.now, kind, self.replicas[at].known)
            .list(&resource, &query)
            .map_err(|error| error.to_string())?;
        let is_asked_for = |object: &Object| probe.object.as_ref().is_none_or(|named| *object.name == *named.name);
        Ok(ProbeAnswer {
            resource_version: position(page.revision),
            objects: page.items.iter().map(|item| observe(item)).filter(is_asked_for).collect(),
            complete: page.next.is_none(),
            remaining: None,
        })
    }

    pub(super) fn probe_answered(
        &mut self,
        at: usize,
        epoch: u64,
        probe: ProbeId,
        answer: Result<ProbeAnswer, String>,
    ) {
        if self.is_epoch(at, epoch) {
            let answer = answer.map_err(Failure::transport);
            self.tell(at, Input::Probed { probe, answer });
        }
    }

    pub(super) fn pauses_read(&mut self, at: usize, epoch: u64, read: GuardRead, fails: bool) {
        if self.is_epoch(at, epoch) {
            let answer = if fails { Err(String::from("no answer")) } else { Ok(self.guards_there(read.kind)) };
            self.tell(at, Input::GuardsRead { read, answer });
        }
    }

    /// Compares the graph with the model at the end.
    pub(super) fn compare_graph(&mut self, at: usize) {
        if let Err(why) = self.check_leader(at) {
            return self.violate(why);
        }
        let Some(leader) = &self.replicas[at].leader else { return };
        let mut wrong = Vec::new();
        let (mut edges, mut objects) = (0, 0);
        for life in self.server.truth.lives.values() {
            let nodes = leader.queries().nodes(&life.object.uid);
            // For a kind that is not served, the graph keeps the last state, unless the definition said that no
            // instances are left.
            if !self.server.truth.served[life.kind] {
                continue;
            }
            let observed: Vec<_> = nodes.iter().filter(|node| node.is_observed()).collect();
            if !life.exists() || life.kind == UNWATCHED {
                if !observed.is_empty() {
                    wrong.push(format!("{} is not there, but in the graph", life.named()));
                }
                continue;
            }
            let groups = 1 + usize::from(life.kind == MIRRORED && self.server.truth.served[MIRROR]);
            objects += groups;
            edges += groups * life.facts().owners.len();
            let same = |node: &&NodeView| node.facts == *life.facts() && node.object.name == life.object.name;
            match observed.iter().filter(|node| same(node)).count() {
                same if same == groups && same == observed.len() => {}
                _ => wrong.push(format!("{} is {observed:?} in the graph", life.named())),
            }
        }
        let status = leader.queries().status();
        let whole = self.server.truth.served[..STORED].iter().all(|&served| served);
        if whole && (status.edges != edges || status.nodes - status.virtual_nodes != objects) {
            wrong.push(format!("{edges} edges and {objects} objects are {status:?} in the graph"));
        }
        let unsynced = leader
            .queries()
            .collections()
            .into_iter()
            .find(|status| status.kind.access == Access::Watched && status.state != State::Synced);
        if let Some(unsynced) = unsynced {
            wrong.push(format!("not synced: {unsynced:?}"));
        }
        if !wrong.is_empty() {
            self.violate(format!("replica {at}: {wrong:#?}"));
        }
    }
}

fn brief(input: &Input) -> String {
    let one = |what: &str, collection: &GroupResource, object: &Object| {
        let facts = &object.facts;
        let owners: Vec<String> =
            facts.owners.iter().map(|owner| format!("{}/{}", owner.kind, super::truth::short(&owner.uid))).collect();
        format!(
            "{what} {collection} {}/{} {} @{} owners {owners:?} finalizers {:?}{}{}",
            object.namespace,
            object.name,
            super::truth::short(&object.uid),
            object.resource_version,
            facts.finalizers,
            if facts.terminating { " terminating" } else { "" },
            if facts.hold { " hold" } else { "" },
        )
    };
    match input {
        Input::Listed { collection, object } => one("listed", collection, object),
        Input::Seen { collection, object } => one("seen", collection, object),
        Input::Deleted { collection, object } => one("deleted", collection, object),
        Input::KindServed(_)
        | Input::KindUnserved(_)
        | Input::KindEmptied { .. }
        | Input::Undiscovered(_)
        | Input::ListBegun { .. }
        | Input::ListEnded { .. }
        | Input::ListFailed { .. }
        | Input::Bookmark { .. }
        | Input::WatchLost { .. }
        | Input::WatchResumed { .. }
        | Input::Unusable { .. }
        | Input::Probed { .. }
        | Input::GuardsListed { .. }
        | Input::GuardsFollowed { .. }
        | Input::GuardsLost { .. }
        | Input::GuardSeen(_)
        | Input::GuardGone { .. }
        | Input::GuardsRead { .. }
        | Input::GateAnswered(_)
        | Input::GateReopened { .. }
        | Input::Audited(_)
        | Input::ComparedBefore { .. }
        | Input::GateInvalidated { .. }
        | Input::GateNeedsTime { .. }
        | Input::Message { .. }
        | Input::StreamClosed { .. }
        | Input::Wrote { .. }
        | Input::TermGained(_)
        | Input::OpenAtTermStart(_)
        | Input::TermLost { .. }
        | Input::Withhold { .. }
        | Input::Stop => format!("{input:?}"),
    }
}
