//! Guards in a world: protections and gates that a user creates and deletes, and a policy engine that answers late,
//! twice, or not at all. No destructive write may arrive in the scope of an effective protection, and none in the scope
//! of an effective gate that has not allowed it.

use super::kinds::{KINDS, NAMESPACES};
use super::truth::short;
use super::world::{Happening, MS, S, World};
use crate::random::Random;
use engine::guard::{Answer, Answered, FailurePolicy, Gate, Guard, GuardId, GuardKind, Question, Recorded, Rule};
use engine::leader::{GuardAnswer, GuardList, Input};
use engine::object::{Name, ObjectRef, ResourceVersion, Uid};
use engine::scope::{Filter, Scope};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest time until a replica's watch shows a change of the guards.
const SHOWN_WITHIN: u64 = S;
/// Maximum number of guards of a world.
const STANDING_MAX: usize = 6;

pub(super) struct Guards {
    random: Random,
    standing: Vec<Standing>,
    /// The resourceVersion of the last change.
    version: u64,
    /// The targets that the policy engine has allowed. Roots are not asked about.
    allowed: BTreeSet<Uid>,
    /// By replica: the time at which its watch has shown the last change.
    shown: Vec<u64>,
}

struct Standing {
    guard: Guard,
    /// The time at which a leader said that it is effective.
    effective: Option<u64>,
}

impl Guards {
    pub(super) fn new(seed: u64) -> Guards {
        Guards {
            random: Random::new(seed, 13),
            standing: Vec::new(),
            version: 1,
            allowed: BTreeSet::new(),
            shown: Vec::new(),
        }
    }

    fn list(&self, kind: GuardKind) -> GuardList {
        let guards = self.standing.iter().map(|standing| standing.guard.clone()).filter(|guard| guard.id.kind == kind);
        let position = ResourceVersion::parse(&self.version.to_string());
        GuardList { position, guards: guards.collect(), more: false }
    }

    /// The effective gates over an object.
    pub(super) fn gates_over<'a>(&'a self, target: &'a ObjectRef) -> impl Iterator<Item = &'a Name> {
        let gates = self.standing.iter().filter(|Standing { guard, effective }| {
            guard.id.kind == GuardKind::Gate
                && effective.is_some()
                && guard.scope.may_cover(&target.group, &target.resource, &target.namespace)
        });
        gates.map(|Standing { guard, .. }| &guard.id.name)
    }

    fn draw(&mut self) -> Guard {
        self.version += 1;
        let version = self.version;
        let mut filter = Filter::default();
        if self.random.percent(60) {
            filter.namespaces = vec![NAMESPACES[self.random.index(NAMESPACES.len())].into()];
        }
        if self.random.percent(40) {
            filter.resources = vec![KINDS[self.random.index(KINDS.len())].key()];
        }
        let everything = filter == Filter::default();
        let (kind, rule) = if self.random.percent(60) {
            (GuardKind::Protection, Rule::Hold)
        } else {
            let policy = [FailurePolicy::Hold, FailurePolicy::Deny][self.random.index(2)];
            let gate = Gate {
                roots_only: false,
                observe_only: false,
                timeout: Duration::from_secs(2),
                failure_policy: policy,
                max_hold: Duration::from_secs(20),
                allow_after_max_hold: false,
                engine: 0,
                bypass_until: Duration::ZERO,
                bypass: String::new(),
                bypass_by: String::new(),
            };
            (GuardKind::Gate, Rule::Gate(gate))
        };
        Guard {
            id: GuardId { kind, name: format!("g{version}").as_str().into() },
            uid: Uid::parse(&format!("guard-{version}")).expect("it is not empty"),
            resource_version: ResourceVersion::parse(&version.to_string()),
            generation: 1,
            scope: Scope { targets: if everything { Vec::new() } else { vec![filter] } },
            reason: "a test".to_owned(),
            actor: String::new(),
            created: Duration::ZERO,
            lifetime: None,
            elapsed: Duration::ZERO,
            read_at: Duration::from_secs(1),
            recorded: Recorded::default(),
            problem: String::new(),
            rule,
        }
    }
}

impl World {
    /// Plans the acts of the user.
    pub(super) fn plan_guards(&mut self, span: u64) {
        if !self.options.guards {
            return;
        }
        for _ in 0..self.guards.random.between(1, 12) {
            let at = self.guards.random.between(0, span);
            self.at(at, Happening::GuardActs);
        }
    }

    /// Creates or deletes a guard.
    pub(super) fn guard_acts(&mut self) {
        if self.calm {
            return;
        }
        let full = self.guards.standing.len() >= STANDING_MAX;
        if !self.guards.standing.is_empty() && (full || self.guards.random.percent(40)) {
            let at = self.guards.random.index(self.guards.standing.len());
            return self.drop_guard(at);
        }
        let guard = self.guards.draw();
        self.note(|| format!("user creates {} over {}", guard.id, guard.scope));
        self.guards.standing.push(Standing { guard: guard.clone(), effective: None });
        self.show_guard(&Input::GuardSeen(guard));
    }

    fn drop_guard(&mut self, at: usize) {
        self.guards.version += 1;
        let Standing { guard, .. } = self.guards.standing.swap_remove(at);
        self.note(|| format!("user deletes {}", guard.id));
        self.show_guard(&Input::GuardGone { id: guard.id, uid: guard.uid });
    }

    /// The faults stop, and so do the guards.
    pub(super) fn calm_guards(&mut self) {
        while !self.guards.standing.is_empty() {
            self.drop_guard(0);
        }
    }

    /// Lets the watch of each replica show a change, in order.
    fn show_guard(&mut self, input: &Input) {
        for replica in 0..self.replicas.len() {
            let epoch = self.replicas[replica].epoch;
            self.guards.shown.resize(self.replicas.len(), 0);
            let at = (self.now + self.guards.random.between(MS, SHOWN_WITHIN)).max(self.guards.shown[replica]);
            self.guards.shown[replica] = at;
            self.at(at, Happening::GuardShown { replica, epoch, input: Box::new(input.clone()) });
        }
    }

    /// A replica begins to follow the guards.
    pub(super) fn follow_guards(&mut self, replica: usize, epoch: u64) {
        if !self.options.guards {
            return;
        }
        for kind in [GuardKind::Protection, GuardKind::Gate] {
            let at = self.now + self.guards.random.between(MS, SHOWN_WITHIN);
            self.guards.shown.resize(self.replicas.len().max(replica + 1), 0);
            self.guards.shown[replica] = self.guards.shown[replica].max(at);
            self.at(at, Happening::GuardsListed { replica, epoch, kind });
        }
    }

    pub(super) fn guards_listed(&mut self, at: usize, epoch: u64, kind: GuardKind) {
        if self.is_epoch(at, epoch) {
            let list = self.guards.list(kind);
            self.tell(at, Input::GuardsListed { kind, list });
        }
    }

    pub(super) fn guard_shown(&mut self, at: usize, epoch: u64, input: Input) {
        if self.is_epoch(at, epoch) {
            self.tell(at, input);
        }
    }

    pub(super) fn guards_read_delay(&mut self) -> u64 {
        self.guards.random.delay(self.options.api_ms)
    }

    /// The answer to a consistent read.
    pub(super) fn guards_there(&self, kind: GuardKind) -> GuardAnswer {
        let served = self.options.guards && matches!(kind, GuardKind::Protection | GuardKind::Gate);
        if served { GuardAnswer::Served(self.guards.list(kind)) } else { GuardAnswer::NotServed }
    }

    pub(super) fn guard_is_effective(&mut self, id: &GuardId) {
        let now = self.now;
        if let Some(standing) = self.guards.standing.iter_mut().find(|standing| standing.guard.id == *id) {
            standing.effective.get_or_insert(now);
        }
    }

    /// The policy engine answers, late, twice or not at all.
    pub(super) fn ask_gate(&mut self, replica: usize, question: &Question) {
        let epoch = self.replicas[replica].epoch;
        let answer = match self.guards.random.below(10) {
            0 => return,
            1 => Answer::Deny,
            2 => Answer::Hold { again_after: Duration::from_secs(1) },
            3 => Answer::Failed,
            _ => Answer::Allow,
        };
        for _ in 0..self.guards.random.between(1, 2) {
            let answered = Answered {
                gate: question.gate.clone(),
                number: question.number,
                answer: answer.clone(),
                by: String::new(),
                message: String::new(),
                valid_for: Duration::ZERO,
            };
            let at = self.now + self.guards.random.between(MS, 4 * S);
            let target = question.target.uid.clone();
            self.at(at, Happening::GateAnswers { replica, epoch, target, answered: Box::new(answered) });
        }
    }

    pub(super) fn gate_answers(&mut self, at: usize, epoch: u64, target: Uid, answered: Answered) {
        if answered.answer == Answer::Allow {
            self.guards.allowed.insert(target);
        }
        if self.is_epoch(at, epoch) {
            // The end of the term gives up the question before the answer arrives.
            self.end_overdue_term(at);
            self.engine_answers(at, epoch, &answered);
            self.tell(at, Input::GateAnswered(answered));
        }
    }

    /// Judges a deletion that the server has accepted.
    pub(super) fn guard_law(&self, target: &ObjectRef) -> Result<(), String> {
        for Standing { guard, effective } in &self.guards.standing {
            let covers = guard.scope.may_cover(&target.group, &target.resource, &target.namespace);
            if effective.is_none() || !covers {
                continue;
            }
            if guard.id.kind == GuardKind::Protection || !self.guards.allowed.contains(&target.uid) {
                let (uid, scope) = (short(&target.uid), &guard.scope);
                return Err(format!("deletes {target} ({uid}) although {} over {scope} is effective", guard.id));
            }
        }
        Ok(())
    }
}
