//! Tests of the leader with scripted facts: the grants that it makes, and the grants that it withholds.

use super::*;
use crate::follow::{Failure, WatchEnd};
use crate::graph::Graph;
use crate::guard::{GuardKind, Question};
use crate::object::{Access, Backend, Facts, Object, ObjectRef, OwnerReference, ServedKind};
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::selectors::Table;
use crate::time::Time;
use crate::view::Undecided;
use crate::work::LeaseId;
use crate::work::{
    Action, ActionKind, Finding, FindingResult as CheckResult, Hello, Origin, Outcome, Protocols, Refusal, ReturnCause,
    RevokeMode, Sighting, Term, ToExecutor, ToLeader, WorkLease, WorkReport, WorkReturn,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

mod apart;
mod audits;
mod balancing;
mod blocking;
mod breaker;
mod cascades;
mod comparing;
mod consent;
mod doubts;
mod emptied;
mod ends;
mod evidence;
mod excess;
mod fleet;
mod following;
mod forecasts;
mod forged;
mod ghosts;
mod interleavings;
mod lagging;
mod liars;
mod mirrors;
mod pacing;
mod pauses;
mod places;
mod pressure;
mod protections;
mod races;
mod readings;
mod readopting;
mod repeats;
mod resources;
mod restores;
mod scale;
mod sessions;
mod settling;
mod stories;
mod switches;
mod undiscovered;

/// The answer to a question about one object.
#[derive(Clone, Debug)]
enum FindingResult {
    Exists(Sighting),
    /// A list at this position does not show the uid. `None` is a list without a position.
    Absent(Option<ResourceVersion>),
    /// The name belongs to another uid. The position is as in `Absent`.
    OtherUid(Option<ResourceVersion>),
    KindUnresolved,
    Forbidden,
    Failed,
}

/// A leader, one executor with a large window, and a clock.
struct Bench {
    leader: Leader,
    now: Time,
    events: Vec<Event>,
    sent: Vec<(StreamId, ToExecutor)>,
    refused: Vec<Refusal>,
    probes: Vec<Probe>,
    reads: Vec<GuardRead>,
    asked: Vec<Question>,
    cancelled: Vec<u64>,
    pauses_wanted: Vec<String>,
    relists: Vec<GroupResource>,
    table: Arc<Table>,
    granted: Vec<WorkLease>,
}

fn config() -> Config {
    Config {
        mode: Mode::Enforce,
        cluster_uid: "cluster".into(),
        endpoint: "here:1".to_string(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(30),
        stale_after: Duration::from_secs(30),
        policy: Policy::default(),
        protocols: Protocols::OURS,
    }
}

fn term(number: u64) -> Term {
    Term { election: "election".into(), number }
}

fn uid(text: &str) -> Uid {
    Uid::parse(text).unwrap()
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string())
}

/// Returns a kind by its resource: `things` (namespaced, custom; `objects` is another resource of the same kind),
/// `configmaps` (namespaced, core), `nodes` (cluster-scoped, core), `mirrors` (another group that serves `things`), or
/// another kind that a test needs.
fn served(resource: &str) -> ServedKind {
    let (group, kind, namespaced) = match resource {
        "configmaps" => ("", "ConfigMap", true),
        "nodes" => ("", "Node", false),
        "things" => ("example.com", "Thing", true),
        "jobs" => ("batch", "Job", true),
        "namespaces" => ("", "Namespace", false),
        "customresourcedefinitions" => ("apiextensions.k8s.io", "CustomResourceDefinition", false),
        "roles" => ("rbac.authorization.k8s.io", "Role", true),
        "remotes" => ("remote.example.com", "Remote", true),
        "mirrors" => ("mirror.example.com", "Mirror", true),
        "objects" => ("example.com", "Thing", true),
        other => panic!("no kind for {other}"),
    };
    ServedKind {
        group_resource: GroupResource { group: group.into(), resource: resource.into() },
        kind: kind.into(),
        version: "v1".into(),
        other_versions: Vec::new(),
        split: false,
        namespaced,
        access: Access::Watched,
        backend: if resource == "remotes" { Backend::Aggregated } else { Backend::Main },
        deletable: true,
        names: Default::default(),
    }
}

fn collection(resource: &str) -> GroupResource {
    served(resource).group_resource
}

/// Returns an object of namespace `ns`, or without a namespace for nodes. Its uid is its name.
fn object(resource: &str, name: &str, rv: u64) -> Object {
    Object {
        marks: Default::default(),
        uid: uid(name),
        namespace: if served(resource).namespaced { "ns".into() } else { "".into() },
        name: name.into(),
        resource_version: version(rv),
        facts: Facts::default(),
    }
}

trait ObjectExt: Sized {
    fn owned_by(self, resource: &str, name: &str) -> Self;
    fn blocking(self, resource: &str, name: &str) -> Self;
    fn terminating(self, finalizer: &str) -> Self;
    fn with_finalizer(self, finalizer: &str) -> Self;
}

fn reference(resource: &str, name: &str, blocks: Option<bool>) -> OwnerReference {
    let served = served(resource);
    let group = &served.group_resource.group;
    OwnerReference {
        api_version: if group.is_empty() { "v1".into() } else { format!("{group}/v1").into() },
        kind: served.kind,
        name: name.into(),
        uid: uid(name),
        controller: None,
        block_owner_deletion: blocks,
    }
}

impl ObjectExt for Object {
    fn owned_by(mut self, resource: &str, name: &str) -> Self {
        self.facts.owners = [&*self.facts.owners, &[reference(resource, name, None)]].concat().into();
        self
    }

    fn blocking(mut self, resource: &str, name: &str) -> Self {
        self.facts.owners = [&*self.facts.owners, &[reference(resource, name, Some(true))]].concat().into();
        self
    }

    fn terminating(mut self, finalizer: &str) -> Self {
        self.facts.terminating = true;
        self.with_finalizer(finalizer)
    }

    fn with_finalizer(mut self, finalizer: &str) -> Self {
        self.facts.finalizers = [&*self.facts.finalizers, &[finalizer.into()]].concat().into();
        self
    }
}

const STREAM: StreamId = StreamId(1);

fn hello(executor: &str, incarnation: &str) -> Hello {
    Hello {
        executor: executor.into(),
        incarnation: incarnation.into(),
        min_protocol: 1,
        max_protocol: 1,
        kinds: ActionKind::ALL.to_vec(),
        window: 1000,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: String::new(),
        cluster_uid: "cluster".into(),
        origin: Origin::default(),
    }
}

/// Returns the report of a successful attempt.
fn done(lease: &WorkLease) -> WorkReport {
    WorkReport::new(lease, Outcome::Done, 200)
}

impl Bench {
    /// Creates a leader with a term and an executor that knows no kind.
    fn bare() -> Bench {
        let mut bench = Bench::without_executor();
        bench.hello(STREAM, hello("e1", "i1"));
        bench
    }

    /// Creates a leader that knows `things/o` in foreground deletion, and cannot list configmaps.
    fn with_failed_list() -> Bench {
        let mut bench = Bench::bare();
        for resource in ["configmaps", "things"] {
            bench.serve(resource);
        }
        bench.list("things", 100, vec![object("things", "o", 50).terminating("foregroundDeletion")]);
        bench.input(Input::ListFailed { collection: collection("configmaps"), error: "403".to_string(), broke: false });
        bench.pass(Duration::from_secs(1));
        bench
    }

    fn without_executor() -> Bench {
        Bench::of_process(7)
    }

    fn of_process(seed: u64) -> Bench {
        Bench::configured(config(), seed)
    }

    fn configured(config: Config, seed: u64) -> Bench {
        let mut bench = Bench {
            leader: Leader::new(config, seed),
            now: Time::ZERO,
            events: Vec::new(),
            sent: Vec::new(),
            refused: Vec::new(),
            probes: Vec::new(),
            reads: Vec::new(),
            asked: Vec::new(),
            cancelled: Vec::new(),
            pauses_wanted: Vec::new(),
            relists: Vec::new(),
            table: Arc::default(),
            granted: Vec::new(),
        };
        bench.input(Input::TermGained(term(1)));
        bench.answer_reads(&Ok(GuardAnswer::NotServed));
        bench
    }

    /// Answers the reads of all pauses. There are no guards of other kinds.
    fn answer_reads(&mut self, answer: &Result<GuardAnswer, String>) {
        for read in core::mem::take(&mut self.reads) {
            let of_pauses = read.kind == GuardKind::Pause;
            let answer = if of_pauses { answer.clone() } else { Ok(GuardAnswer::NotServed) };
            self.input(Input::GuardsRead { read, answer });
        }
    }

    /// Creates a bench whose kinds are all served, synced at position 100, and empty.
    fn synced() -> Bench {
        Bench::synced_as(config())
    }

    fn synced_as(config: Config) -> Bench {
        let mut bench = Bench::configured(config, 7);
        bench.hello(STREAM, hello("e1", "i1"));
        for resource in ["configmaps", "nodes", "things"] {
            bench.serve(resource);
            bench.list(resource, 100, vec![]);
        }
        bench
    }

    fn input(&mut self, input: Input) {
        self.leader.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.leader.poll() {
            match output {
                Output::Send { stream, message } => {
                    if let ToExecutor::Grant { leases } = &message {
                        self.granted.extend(leases.iter().cloned());
                    }
                    self.sent.push((stream, message));
                }
                Output::Refuse { refusal, .. } => self.refused.push(refusal),
                Output::Close { .. } => {}
                Output::Probe(probe) => self.probes.push(probe),
                Output::AskGate(question) => self.asked.push(question),
                Output::CancelQuestion { number, .. } => self.cancelled.push(number),
                Output::CreatePause { by, reason, .. } => self.pauses_wanted.push(format!("{by}: {reason}")),
                Output::ReadGuards(read) => self.reads.push(read),
                Output::Selectors(table) => self.table = table,
                Output::Relist { collection, .. } => self.relists.push(collection),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Advances the time and runs each deadline at its time. The first executor sends heartbeats.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.leader.next_deadline().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.leader.handle(self.now, Input::Message { stream: STREAM, message: beat() });
            self.leader.tick(self.now);
            self.drain();
        }
        self.now = end;
        self.leader.tick(self.now);
        self.drain();
    }

    fn hello(&mut self, stream: StreamId, hello: Hello) {
        self.message(stream, ToLeader::Hello(hello));
    }

    fn message(&mut self, stream: StreamId, message: ToLeader) {
        self.input(Input::Message { stream, message });
    }

    fn serve(&mut self, resource: &str) {
        self.input(Input::KindServed(served(resource)));
    }

    fn list(&mut self, resource: &str, position: u64, objects: Vec<Object>) {
        self.input(Input::ListBegun { collection: collection(resource), selectors: 0 });
        for object in objects {
            self.input(Input::Listed { collection: collection(resource), object });
        }
        self.input(Input::ListEnded { collection: collection(resource), resource_version: version(position) });
    }

    fn seen(&mut self, resource: &str, object: Object) {
        self.input(Input::Seen { collection: collection(resource), object });
    }

    fn deleted(&mut self, resource: &str, name: &str, rv: u64) {
        self.input(Input::Deleted { collection: collection(resource), object: object(resource, name, rv) });
    }

    fn bookmark(&mut self, resource: &str, position: u64) {
        self.input(Input::Bookmark { collection: collection(resource), resource_version: version(position) });
    }

    /// Returns the grants since the last call as text: `delete(Background) x`.
    fn grants(&mut self) -> Vec<String> {
        let mut grants: Vec<String> = self.granted.iter().map(describe).collect();
        grants.sort();
        self.granted.clear();
        grants
    }

    /// Returns the single granted lease for this target.
    fn take(&mut self, target: &str) -> WorkLease {
        let at = self.granted.iter().position(|lease| lease.item.target.uid == uid(target));
        let at = at.unwrap_or_else(|| panic!("nothing granted for {target}, but {:?}", self.grants()));
        self.granted.remove(at)
    }

    fn report(&mut self, lease: &WorkLease, outcome: Outcome) {
        self.report_with(lease, |report| report.outcome = outcome);
    }

    fn report_with(&mut self, lease: &WorkLease, edit: impl FnOnce(&mut WorkReport)) {
        let mut report = done(lease);
        edit(&mut report);
        self.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
        self.message(STREAM, ToLeader::Reports { reports: vec![report], returns: Vec::new() });
    }

    /// Answers the single question about the object of this name.
    fn found(&mut self, target: &str, result: FindingResult) {
        assert!(self.found_if_asked(target, &result), "{target} is not asked for, but {:?}", self.questions());
    }

    /// Answers the question, and the same question one second after it.
    fn found_again(&mut self, target: &str, result: FindingResult) {
        self.found(target, result.clone());
        self.pass(Duration::from_secs(1));
        self.found(target, result);
    }

    /// Answers the single question if it is asked.
    fn found_if_asked(&mut self, target: &str, result: &FindingResult) -> bool {
        let asked = self.leader.prober.under_way();
        let about = |probe: &Probe| match asked.get(&probe.id).and_then(|asked| asked.purpose.as_ref()) {
            Some(Purpose::Existence { uid: of, .. } | Purpose::Claim { uid: of, .. }) => *of == uid(target),
            _ => false,
        };
        let Some(at) = self.probes.iter().position(about) else { return false };
        let probe = self.probes.remove(at);
        let name = &probe.object.as_ref().unwrap().name;
        let kind = self.leader.world.coverage().find(&probe.collection).unwrap();
        let stands = self.leader.world.coverage().floor(kind).cloned();
        let of = |uid: Uid, resource_version: ResourceVersion, facts: Facts| {
            let namespace = probe.namespace.clone().unwrap_or_else(|| "".into());
            Object { uid, namespace, name: name.clone(), resource_version, facts, marks: Default::default() }
        };
        let list = |version: &ResourceVersion, objects: Vec<Object>| {
            Ok(ProbeAnswer { resource_version: version.clone(), objects, complete: true, remaining: None })
        };
        let none = ResourceVersion::parse("");
        let answer = match result {
            FindingResult::Exists(seen) => {
                let object = of(seen.uid.clone(), seen.resource_version.clone(), seen.facts.clone());
                // The list is current, regardless of the age of the object.
                let stands = stands.filter(|stands| seen.resource_version.is_before(stands));
                list(&stands.unwrap_or_else(|| seen.resource_version.clone()), vec![object])
            }
            FindingResult::Absent(at) => list(at.as_ref().unwrap_or(&none), vec![]),
            FindingResult::OtherUid(at) => {
                let at = at.as_ref().unwrap_or(&none);
                list(at, vec![of(uid("another"), at.clone(), Facts::default())])
            }
            FindingResult::KindUnresolved => {
                Err(Failure { sentence: "404 page not found".to_string(), status: Some(404), retry_after: None })
            }
            FindingResult::Forbidden => Err(Failure::transport("403 Forbidden".to_string())),
            FindingResult::Failed => Err(Failure::transport("500".to_string())),
        };
        self.input(Input::Probed { probe: probe.id, answer });
        true
    }

    /// Returns the pending questions about single objects as text: `o by List`.
    fn questions(&self) -> Vec<String> {
        let about = |probe: &Probe| probe.object.as_ref().map(|object| format!("{} by {:?}", object.name, object.by));
        self.probes.iter().filter_map(about).collect()
    }

    /// Discards pending probes other than questions about single objects.
    fn other_probes(&mut self) -> Vec<Probe> {
        let (questions, others) =
            core::mem::take(&mut self.probes).into_iter().partition(|probe| probe.object.is_some());
        self.probes = questions;
        others
    }

    fn undecided(&self) -> Vec<(Undecided, usize)> {
        self.leader.queries().status().undecided
    }

    /// Answers all probes other than questions about single objects. The store stands at `position`, and the
    /// collections contain only `objects`. There are no pauses, because a pause would hide grants that must not happen
    /// for another reason.
    fn answer_probes(&mut self, position: u64, objects: &[(&str, Object)]) {
        self.answer_reads(&Ok(GuardAnswer::NotServed));
        for probe in self.other_probes() {
            let of = |(resource, object): &(&str, Object)| {
                (collection(resource) == probe.collection).then(|| object.clone())
            };
            let mut objects: Vec<Object> = objects.iter().filter_map(of).collect();
            let complete = probe.limit.is_none_or(|limit| objects.len() <= limit as usize);
            objects.truncate(probe.limit.map_or(usize::MAX, |limit| limit as usize));
            let answer = ProbeAnswer { resource_version: version(position), objects, complete, remaining: None };
            self.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
    }
}

fn beat() -> ToLeader {
    ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 }
}

fn describe(lease: &WorkLease) -> String {
    let target = &lease.item.target.name;
    let checks: Vec<&str> = lease.item.action.owner_checks().iter().map(|owner| &*owner.name).collect();
    let checks = if checks.is_empty() { String::new() } else { format!(" if {} waits", checks.join(" and ")) };
    match &lease.item.action {
        Action::Delete { propagation_policy, .. } => {
            format!("delete({propagation_policy:?}) {target}{checks}")
        }
        Action::RemoveOwnerReferences { owner_uids, entries, .. } => {
            let entries: Vec<String> = entries.iter().map(|entry| format!("{}/{}", entry.kind, entry.name)).collect();
            let owners: Vec<String> = owner_uids.iter().map(ToString::to_string).chain(entries).collect();
            format!("remove {} from {target}{checks}", owners.join(" "))
        }
        Action::UnblockOwnerReferences { entries } => {
            let owners: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
            format!("unblock {} in {target}", owners.join(" "))
        }
        Action::RemoveFinalizer { finalizer } => format!("remove finalizer {finalizer} of {target}"),
    }
}

/// An empty list of grants with a type for comparisons.
const NOTHING: [&str; 0] = [];
