//! Pseudonyms: a recording for others, without names.
//!
//! Names of objects, namespaces, guards and executors become pseudonyms, and texts for people are left out. Kinds,
//! groups, finalizers, label keys and uids stay: decisions depend on them, and they do not identify applications. Equal
//! names have equal pseudonyms within a recording, so the verdicts stay the same. The order of names does not: where
//! the collector goes by it (barrier rounds in several namespaces, several gates, blockers), a replay may ask in
//! another order, and the recorded answers then belong to other questions. The ids of decisions depend on names too.

use super::{Call, Header, Names, Round};
use engine::guard::{Answered, Approval, Approved, BREAKER_AUTHOR, Gate, Guard, GuardId, Rule};
use engine::leader::{Config, GuardAnswer, GuardList, Input, ProbeAnswer};
use engine::object::{Name, Object, ObjectRef};
use engine::scope::{Filter, OwnerScope, Requirement, Scope, Test};
use engine::work::{Finding, FindingResult, Origin, Sighting, ToLeader, WorkReport};
use ring::hmac;
use std::collections::HashMap;

/// Maximum number of pseudonyms that are remembered. They can be computed again.
const REMEMBERED_MAX: usize = 100_000;
/// Bytes of the digest in a pseudonym.
const DIGEST_BYTES: usize = 8;

/// Makes pseudonyms with a key of its own.
#[derive(Debug)]
pub struct Pseudonyms {
    key: hmac::Key,
    known: HashMap<Name, Name>,
}

impl Pseudonyms {
    /// The key should be random and used once: who has it can test guesses of names.
    pub fn new(key: &[u8; 32]) -> Pseudonyms {
        Pseudonyms { key: hmac::Key::new(hmac::HMAC_SHA256, key), known: HashMap::new() }
    }

    pub fn header(&mut self, header: &mut Header) {
        header.names = Names::Hashed;
        let Config { endpoint, .. } = &mut header.config;
        endpoint.clear();
    }

    pub fn round(&mut self, round: &mut Round) {
        for call in &mut round.calls {
            match call {
                Call::Input(input) => self.input(input),
                Call::Tick => {}
            }
        }
    }

    fn input(&mut self, input: &mut Input) {
        match input {
            Input::Listed { object, .. } | Input::Seen { object, .. } | Input::Deleted { object, .. } => {
                self.object(object);
            }
            Input::Undiscovered(all) => all.iter_mut().for_each(|one| one.why.clear()),
            Input::ListFailed { error, .. } | Input::WatchLost { error, .. } => error.clear(),
            Input::Unusable { why, .. } => why.clear(),
            Input::Probed { answer: Ok(ProbeAnswer { objects, .. }), .. } => {
                objects.iter_mut().for_each(|object| self.object(object));
            }
            Input::Probed { answer: Err(failure), .. } => failure.sentence.clear(),
            Input::GuardsListed { list, .. } => self.list(list),
            Input::GuardsLost { error, .. } => error.clear(),
            Input::GuardSeen(guard) => self.guard(guard),
            Input::GuardGone { id, .. } => self.guard_id(id),
            Input::GuardsRead { answer: Ok(GuardAnswer::Served(list)), .. } => self.list(list),
            Input::GuardsRead { answer: Ok(GuardAnswer::NotServed), .. } => {}
            Input::GuardsRead { answer: Err(error), .. } => error.clear(),
            Input::GateAnswered(Answered { gate, by, message, .. }) => {
                self.name(gate);
                by.clear();
                message.clear();
            }
            Input::GateReopened { gate } | Input::GateNeedsTime { gate, .. } => self.name(gate),
            Input::GateInvalidated { gate, targets } => {
                self.name(gate);
                for target in targets {
                    let namespaces = std::mem::take(&mut target.namespaces);
                    target.namespaces = namespaces.iter().map(|name| self.of(name)).collect();
                }
            }
            Input::Audited(audited) => {
                self.name(&mut audited.namespace);
                self.name(&mut audited.name);
                self.name(&mut audited.user);
                // A client may choose it.
                self.name(&mut audited.id);
            }
            Input::Message { message, .. } => self.message(message),
            Input::OpenAtTermStart(logged) => logged.iter_mut().for_each(|one| self.reference(&mut one.target)),
            Input::TermLost { leader_endpoint } => leader_endpoint.clear(),
            Input::Withhold { why } => {
                if let Some(why) = why {
                    why.clear();
                }
            }
            Input::KindServed(_)
            | Input::KindUnserved(_)
            | Input::KindEmptied { .. }
            | Input::ListBegun { .. }
            | Input::ListEnded { .. }
            | Input::Bookmark { .. }
            | Input::WatchResumed { .. }
            | Input::GuardsFollowed { .. }
            | Input::StreamClosed { .. }
            | Input::ComparedBefore { .. }
            | Input::Wrote { .. }
            | Input::TermGained(_)
            | Input::Stop => {}
        }
    }

    fn object(&mut self, object: &mut Object) {
        self.name(&mut object.namespace);
        self.name(&mut object.name);
        object.facts.owners.iter_mut().for_each(|owner| self.name(&mut owner.name));
    }

    fn reference(&mut self, object: &mut ObjectRef) {
        self.name(&mut object.namespace);
        self.name(&mut object.name);
    }

    fn list(&mut self, list: &mut GuardList) {
        list.guards.iter_mut().for_each(|guard| self.guard(guard));
    }

    fn guard_id(&mut self, id: &mut GuardId) {
        self.name(&mut id.name);
    }

    fn guard(&mut self, guard: &mut Guard) {
        self.guard_id(&mut guard.id);
        self.scope(&mut guard.scope);
        guard.reason.clear();
        // The breaker knows its own pauses by their author.
        if !guard.actor.starts_with(BREAKER_AUTHOR) {
            guard.actor.clear();
        }
        guard.problem.clear();
        match &mut guard.rule {
            Rule::Hold | Rule::Budget(_) => {}
            Rule::Approval(Approval { approved, .. }) => {
                approved.iter_mut().for_each(|Approved { actor, .. }| actor.clear());
            }
            Rule::Gate(Gate { bypass, bypass_by, .. }) => {
                bypass.clear();
                bypass_by.clear();
            }
        }
    }

    fn scope(&mut self, scope: &mut Scope) {
        for Filter { namespaces, names, marks, namespace_marks, owner, resources: _ } in &mut scope.targets {
            namespaces.iter_mut().chain(names).for_each(|name| self.name(name));
            for Requirement { test, .. } in marks.iter_mut().chain(namespace_marks) {
                match test {
                    Test::In(values) | Test::NotIn(values) => values.iter_mut().for_each(|value| self.name(value)),
                    Test::Lists(word) => self.name(word),
                    Test::Exists | Test::DoesNotExist => {}
                }
            }
            if let Some(OwnerScope { namespace, name, .. }) = owner {
                self.name(namespace);
                self.name(name);
            }
        }
    }

    fn message(&mut self, message: &mut ToLeader) {
        match message {
            ToLeader::Hello(hello) => {
                self.name(&mut hello.executor);
                match &mut hello.origin {
                    Origin::Process => {}
                    Origin::Caller(user) => self.name(user),
                }
            }
            ToLeader::Reports { reports, .. } => reports.iter_mut().for_each(|report| self.report(report)),
            ToLeader::Drain { reason, .. } => reason.clear(),
            ToLeader::Heartbeat { .. } | ToLeader::Window { .. } | ToLeader::Started { .. } => {}
        }
    }

    fn report(&mut self, report: &mut WorkReport) {
        report.message.clear();
        report.audit_id.clear();
        if let Some(webhook) = &mut report.webhook {
            *webhook = self.of(webhook).to_string();
        }
        if let Some(sighting) = &mut report.observed {
            self.sighting(sighting);
        }
        for Finding { owner, result } in &mut report.findings {
            self.reference(owner);
            match result {
                FindingResult::Exists(sighting) => self.sighting(sighting),
                FindingResult::Absent | FindingResult::OtherUid => {}
            }
        }
        if let Some(about) = &mut report.about {
            self.reference(&mut about.target);
        }
    }

    fn sighting(&mut self, sighting: &mut Sighting) {
        sighting.facts.owners.iter_mut().for_each(|owner| self.name(&mut owner.name));
    }

    fn name(&mut self, name: &mut Name) {
        *name = self.of(name);
    }

    /// The pseudonym of a name. The empty name has none: it stands for no namespace.
    fn of(&mut self, name: &str) -> Name {
        if name.is_empty() {
            return Name::from("");
        }
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let digest = hmac::sign(&self.key, name.as_bytes());
        let hexadecimal = digest.as_ref()[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}"));
        let pseudonym = Name::from(format!("n{}", hexadecimal.collect::<String>()));
        if self.known.len() >= REMEMBERED_MAX {
            self.known.clear();
        }
        self.known.insert(Name::from(name), pseudonym.clone());
        pseudonym
    }
}
