//! Two recordings with the inputs that neither the simulation nor a short run on a real API server has. `RECORD=DIR`
//! writes them into a directory.

use super::corpus::{decisions, directory};
use engine::guard::{Answer, Answered, FailurePolicy, Gate, Guard, GuardId, GuardKind, Question, Recorded, Rule};
use engine::leader::{
    Config, GuardAnswer, GuardList, GuardRead, Input, Leader, Logged, LoggedStep, Mode, Output, Policy, StreamId,
};
use engine::object::{
    Access, Backend, Facts, GroupResource, Object, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid,
};
use engine::parity::{Audited, AuditedVerb, Class, Counts};
use engine::scope::Scope;
use engine::time::Time;
use engine::work::{ActionKind, Hello, Origin, Outcome, Protocols, Term, ToExecutor, ToLeader, WorkLease, WorkReport};
use recording::{Call, Ended, Header, Limits, Names, Round, Writer, segment};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const STREAM: StreamId = StreamId(1);
const SEED: u64 = 7;
const COLLECTOR: &str = "collector";

/// A kind of objects in namespace `ns`. The uid of each object is its name.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
}

const MAPS: Kind = Kind { group: "", resource: "configmaps", kind: "ConfigMap" };
const THINGS: Kind = Kind { group: "example.com", resource: "things", kind: "Thing" };

impl Kind {
    fn collection(self) -> GroupResource {
        GroupResource { group: self.group.into(), resource: self.resource.into() }
    }

    fn served(self) -> ServedKind {
        ServedKind {
            group_resource: self.collection(),
            kind: self.kind.into(),
            version: "v1".into(),
            other_versions: Vec::new(),
            split: false,
            namespaced: true,
            access: Access::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Vec::new(),
        }
    }

    fn object(self, name: &str, version: u64) -> Object {
        Object {
            uid: uid(name),
            namespace: "ns".into(),
            name: name.into(),
            resource_version: at(version),
            facts: Facts::default(),
            marks: Default::default(),
        }
    }
}

fn uid(text: &str) -> Uid {
    Uid::parse(text).expect("a name is not empty")
}

fn at(version: u64) -> ResourceVersion {
    ResourceVersion::parse(&version.to_string())
}

/// A ConfigMap of the Thing with this name.
fn of(owner: &str, name: &str, version: u64) -> Object {
    let owner = OwnerReference {
        api_version: "example.com/v1".into(),
        kind: "Thing".into(),
        name: owner.into(),
        uid: uid(owner),
        controller: None,
        block_owner_deletion: None,
    };
    let mut object = MAPS.object(name, version);
    object.facts.owners = [owner].into();
    object
}

fn no_guards(version: u64) -> GuardList {
    GuardList { position: at(version), guards: Vec::new(), more: false }
}

/// A leader, one executor, and what the leader was given.
struct Story {
    name: &'static str,
    config: Config,
    leader: Leader,
    now: Time,
    /// The version of the store.
    version: u64,
    rounds: Vec<Round>,
    reads: Vec<GuardRead>,
    asked: Vec<Question>,
    granted: Vec<WorkLease>,
}

impl Story {
    /// The leader begins its term and lists two kinds. There are no guards.
    fn begin(name: &'static str, mode: Mode) -> Story {
        let config = Config {
            mode,
            cluster_uid: "cluster".into(),
            endpoint: "here:1".to_owned(),
            session_ttl: 15 * SECOND,
            heartbeat_interval: 5 * SECOND,
            execution_limit: 30 * SECOND,
            stale_after: 30 * SECOND,
            policy: Policy::default(),
            protocols: Protocols::OURS,
        };
        let leader = Leader::new(config.clone(), SEED);
        let (rounds, reads, asked, granted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut story = Story { name, config, leader, now: Time::ZERO, version: 100, rounds, reads, asked, granted };
        story.input(Input::TermGained(Term { election: "election".into(), number: 2 }));
        story.guards_are(&Ok(GuardAnswer::NotServed));
        for kind in [MAPS, THINGS] {
            story.input(Input::KindServed(kind.served()));
            story.input(Input::ListBegun { collection: kind.collection(), selectors: 0 });
            story.input(Input::ListEnded { collection: kind.collection(), resource_version: at(100) });
        }
        story
    }

    fn input(&mut self, input: Input) {
        self.call(Call::Input(input));
    }

    /// Gives the leader one call, and takes all its effects, as a replay does.
    fn call(&mut self, call: Call) {
        match &call {
            Call::Input(input) => self.leader.handle(self.now, input.clone()),
            Call::Tick => self.leader.tick(self.now),
        }
        self.rounds.push(Round { at: self.now, calls: vec![call], unfinished: None });
        while let Some(output) = self.leader.poll() {
            match output {
                Output::ReadGuards(read) => self.reads.push(read),
                Output::AskGate(question) => self.asked.push(question),
                Output::Send { message: ToExecutor::Grant { leases }, .. } => self.granted.extend(leases),
                Output::Send { .. }
                | Output::Refuse { .. }
                | Output::Close { .. }
                | Output::Probe(_)
                | Output::CancelQuestion { .. }
                | Output::CreatePause { .. }
                | Output::Selectors(_)
                | Output::Relist { .. }
                | Output::Event(_) => {}
            }
        }
    }

    /// Lets time pass. The executor sends a heartbeat at each deadline of the leader.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.leader.next_deadline().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            if self.config.mode == Mode::Enforce {
                self.message(ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 });
            }
            self.call(Call::Tick);
        }
        self.now = end;
        self.call(Call::Tick);
    }

    fn message(&mut self, message: ToLeader) {
        self.input(Input::Message { stream: STREAM, message });
    }

    /// Answers the reads of guards.
    fn guards_are(&mut self, answer: &Result<GuardAnswer, String>) {
        for read in std::mem::take(&mut self.reads) {
            self.input(Input::GuardsRead { read, answer: answer.clone() });
        }
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn seen(&mut self, kind: Kind, object: Object) {
        self.input(Input::Seen { collection: kind.collection(), object });
    }

    fn deleted(&mut self, kind: Kind, name: &str) {
        let object = kind.object(name, self.next());
        self.input(Input::Deleted { collection: kind.collection(), object });
    }

    /// Makes a Thing `NAME-owner` that owns the ConfigMap `NAME`.
    fn family(&mut self, name: &str) -> String {
        let owner = format!("{name}-owner");
        let object = THINGS.object(&owner, self.next());
        self.seen(THINGS, object);
        let object = of(&owner, name, self.next());
        self.seen(MAPS, object);
        owner
    }

    /// Makes such a family, and deletes its owner.
    fn garbage(&mut self, name: &str) {
        let owner = self.family(name);
        self.deleted(THINGS, &owner);
        self.pass(SECOND);
    }

    /// The executor carries out what it was granted, and the watch shows it.
    fn carry_out(&mut self) {
        for lease in std::mem::take(&mut self.granted) {
            self.message(ToLeader::Started { leases: vec![lease.id] });
            let report = WorkReport::new(&lease, Outcome::Done, 200);
            self.message(ToLeader::Reports { reports: vec![report], returns: Vec::new() });
            self.deleted(MAPS, &lease.item.target.name);
        }
        self.pass(SECOND);
    }

    /// Answers the questions of the gate.
    fn answer(&mut self, answer: &Answer) {
        for Question { gate, number, .. } in std::mem::take(&mut self.asked) {
            let (by, message) = ("policy".to_owned(), "says so".to_owned());
            let answered = Answered { gate, number, answer: answer.clone(), by, message, valid_for: Duration::ZERO };
            self.input(Input::GateAnswered(answered));
        }
        self.pass(SECOND);
    }

    /// The audit log shows a request about a ConfigMap.
    fn audited(&mut self, verb: AuditedVerb, name: &str, user: &str, status: u16) {
        self.input(Input::Audited(Box::new(Audited {
            verb,
            collection: MAPS.collection(),
            namespace: "ns".into(),
            name: name.into(),
            uid: None,
            resource_version: None,
            at: self.now,
            user: user.into(),
            by_collector: user == COLLECTOR,
            status,
            id: "id".into(),
        })));
    }

    /// Writes the recording. Returns its file.
    fn write(&self, directory: &Path) -> PathBuf {
        let header = Header {
            version: "scripted".to_owned(),
            recording: self.name.to_owned(),
            segment: 0,
            before: 0,
            origin: 0,
            seed: SEED,
            config: self.config.clone(),
            names: Names::Plain,
        };
        let limits = Limits { directory: 1 << 30, segment: 1 << 30 };
        let mut writer = Writer::create(directory, header, limits).expect("the directory is writable");
        for round in &self.rounds {
            writer.round(round).expect("a round is written");
        }
        writer.end(&Ended::Stopped).expect("the end is written");
        segment(directory, self.name, 0)
    }
}

/// A leader that carries its decisions out.
fn enforcing() -> Story {
    let mut story = Story::begin("story-enforce", Mode::Enforce);
    // An executor had this deletion when the last term ended.
    let target = ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespace: "ns".into(),
        name: "left".into(),
        uid: uid("left"),
    };
    let left = Logged { target, action: ActionKind::Delete, decision: 7, step: LoggedStep::Leased };
    story.input(Input::OpenAtTermStart(vec![left]));
    story.message(ToLeader::Hello(Hello {
        executor: "executor".into(),
        incarnation: "first".into(),
        min_protocol: 1,
        max_protocol: 1,
        kinds: ActionKind::ALL.to_vec(),
        window: 100,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: String::new(),
        cluster_uid: "cluster".into(),
        origin: Origin::default(),
    }));

    story.input(Input::Withhold { why: Some("the log is away".to_owned()) });
    story.garbage("withheld");
    story.input(Input::Withhold { why: None });
    story.carry_out();

    story.input(Input::Unusable { collection: MAPS.collection(), why: "an item has no uid".to_owned() });
    story.garbage("usable");
    story.carry_out();

    // Pauses cannot be read for a while. What is decided meanwhile is held.
    story.input(Input::GuardsListed { kind: GuardKind::Pause, list: no_guards(100) });
    story.input(Input::GuardsLost { kind: GuardKind::Pause, error: "cut".to_owned() });
    for _ in 0..20 {
        story.guards_are(&Err("refused".to_owned()));
        story.pass(SECOND);
    }
    story.garbage("unguarded");
    story.input(Input::GuardsFollowed { kind: GuardKind::Pause, position: None });
    let version = story.next();
    story.guards_are(&Ok(GuardAnswer::Served(no_guards(version))));
    story.carry_out();

    // A gate denies a deletion, and its next policy allows it.
    story.input(Input::GuardSeen(gate()));
    story.garbage("gated");
    story.answer(&Answer::Deny);
    story.input(Input::GateReopened { gate: gate().id.name });
    story.answer(&Answer::Allow);
    story.carry_out();
    story.input(Input::GuardGone { id: gate().id, uid: gate().uid });

    // The definition of Things goes, and with it an owner that was never seen.
    let object = of("instance", "of-a-kind", story.next());
    story.seen(MAPS, object);
    for standing in [true, false] {
        let (group, kind) = (THINGS.group.into(), THINGS.kind.into());
        story.input(Input::KindEmptied { group, kind, crd: uid("crd"), standing });
    }
    story.input(Input::KindUnserved(THINGS.collection()));
    story.pass(10 * SECOND);
    story.carry_out();
    story.pass(MINUTE);
    story
}

fn gate() -> Guard {
    Guard {
        id: GuardId { kind: GuardKind::Gate, name: "gate".into() },
        uid: uid("uid-gate"),
        resource_version: at(1),
        generation: 1,
        scope: Scope::default(),
        reason: "a policy".to_owned(),
        actor: String::new(),
        created: Duration::ZERO,
        lifetime: None,
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        rule: Rule::Gate(Gate {
            roots_only: false,
            observe_only: false,
            timeout: 2 * SECOND,
            failure_policy: FailurePolicy::Hold,
            max_hold: MINUTE,
            allow_after_max_hold: false,
            engine: 0,
            bypass_until: Duration::ZERO,
            bypass: String::new(),
            bypass_by: String::new(),
        }),
    }
}

/// A leader that compares its decisions with another collector, and goes on from the counts of the leader before.
fn observing() -> Story {
    let mut story = Story::begin("story-observe", Mode::Observe);
    let mut counts = Counts::default();
    counts.agreed = 40;
    counts.theirs_only[Class::Held as usize] = 2;
    story.input(Input::ComparedBefore { counts: Box::new(counts), lasted: 10 * MINUTE });
    story.audited(AuditedVerb::Change, "other", "bob", 200);

    // The other collector and a person delete garbage. The API server refuses a request of the collector, and another
    // decision has no request.
    for (name, user) in [("agreed", COLLECTOR), ("person", "alice")] {
        story.garbage(name);
        story.deleted(MAPS, name);
        story.audited(AuditedVerb::Delete, name, user, 200);
    }
    story.garbage("refused");
    story.audited(AuditedVerb::Delete, "refused", COLLECTOR, 403);
    story.garbage("left");

    // The other collector deletes an object that is held here, and one whose owner lives.
    let owner = story.family("held");
    let mut object = of(&owner, "held", story.next());
    object.facts.hold = true;
    story.seen(MAPS, object);
    story.deleted(THINGS, &owner);
    let _lives = story.family("owned");
    for name in ["held", "owned"] {
        story.deleted(MAPS, name);
        story.audited(AuditedVerb::Delete, name, COLLECTOR, 200);
    }
    let resource_version = at(story.next());
    story.input(Input::Bookmark { collection: THINGS.collection(), resource_version });
    story.pass(2 * MINUTE);
    story
}

/// A leader that decides otherwise, or that asks other questions, needs other recordings.
#[test]
fn the_stories_are_told_as_they_are_recorded() {
    let scratch = tempfile::tempdir().expect("a directory");
    let kept = std::env::var_os("RECORD").map(PathBuf::from);
    for story in [enforcing(), observing()] {
        let told = story.write(kept.as_deref().unwrap_or(scratch.path()));
        if kept.is_none() {
            assert_eq!(decisions(&told), decisions(&segment(&directory(), story.name, 0)), "{}", story.name);
        }
    }
}
