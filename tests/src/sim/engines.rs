//! The messages of the policy engines of a world besides answers: they need more time for a question, and they take
//! answers back. A question may end before its time only with its term, its decision or its gate, and none may be given
//! up long after its time. Nothing may be granted in the scope of an effective gate whose engine has not allowed it in
//! this term, or has taken that back.

use super::kinds::{KINDS, NAMESPACES};
use super::world::{Happening, MS, S, World};
use crate::random::Random;
use engine::guard::{Answer, Answered, GuardKind, Question};
use engine::leader::{Input, OpenDecision};
use engine::object::{Name, ObjectRef, Uid};
use engine::scope::Objects;
use engine::time::Time;
use engine::work::ActionKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time of a question.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// The longest delay between the end of a question and the tick that gives it up.
const LATE_MAX: Duration = Duration::from_millis(100);

pub(super) struct Engines {
    random: Random,
    /// The questions without an answer, by replica, epoch and number.
    open: BTreeMap<(usize, u64, u64), Open>,
    /// The decisions that the engines have allowed and not taken back, by replica, epoch, gate and target.
    allowed: BTreeMap<(usize, u64, Name, Uid), ObjectRef>,
}

/// A question, with times of the replica's clock.
struct Open {
    gate: Name,
    target: ObjectRef,
    decision: u64,
    asked: Time,
    until: Time,
    is_extended: bool,
}

impl Engines {
    pub(super) fn new(seed: u64) -> Engines {
        Engines { random: Random::new(seed, 14), open: BTreeMap::new(), allowed: BTreeMap::new() }
    }

    /// Draws filters that have the target, or may have it.
    fn draw_filters(&mut self, target: &ObjectRef) -> Vec<Objects> {
        let namespace = NAMESPACES[self.random.index(NAMESPACES.len())].into();
        let kind = KINDS[self.random.index(KINDS.len())].key();
        match self.random.below(4) {
            0 => Vec::new(),
            1 => vec![Objects { namespaces: [namespace].into(), ..Objects::default() }],
            2 => vec![Objects { resources: [kind].into(), namespaces: [namespace].into(), ..Objects::default() }],
            _ => vec![
                Objects { resources: [kind].into(), ..Objects::default() },
                Objects { uids: [target.uid.clone()].into(), ..Objects::default() },
            ],
        }
    }
}

impl World {
    /// A replica asks a question. Its engine may need more time, or take answers back.
    pub(super) fn engine_is_asked(&mut self, replica: usize, question: &Question) {
        let (epoch, asked) = (self.replicas[replica].epoch, self.replicas[replica].local(self.now));
        let (gate, number) = (&question.gate, question.number);
        let open = Open {
            gate: gate.clone(),
            target: question.target.clone(),
            decision: question.decision,
            asked,
            until: asked + question.timeout,
            is_extended: false,
        };
        self.engines.allowed.remove(&(replica, epoch, gate.clone(), open.target.uid.clone()));
        self.engines.open.insert((replica, epoch, number), open);
        let mut says: Vec<(u64, Input)> = Vec::new();
        let random = &mut self.engines.random;
        // Some ask twice.
        for _ in 0..[0, 0, 0, 1, 2][random.index(5)] {
            let extra = Duration::from_millis(random.between(1, 12_000));
            says.push((random.between(MS, 4 * S), Input::GateNeedsTime { gate: gate.clone(), number, extra }));
        }
        if random.percent(30) {
            let after = random.between(MS, 6 * S);
            let targets = self.engines.draw_filters(&question.target);
            says.push((after, Input::GateInvalidated { gate: gate.clone(), targets }));
        }
        for (after, input) in says {
            self.after(after, Happening::EngineSays { replica, epoch, input: Box::new(input) });
        }
    }

    pub(super) fn engine_says(&mut self, replica: usize, epoch: u64, input: Input) {
        if !self.is_epoch(replica, epoch) {
            return;
        }
        self.end_overdue_term(replica);
        if let Input::GateNeedsTime { number, extra, .. } = &input
            && let Some(open) = self.engines.open.get_mut(&(replica, epoch, *number))
            && !std::mem::replace(&mut open.is_extended, true)
        {
            open.until = open.until.max((open.until + *extra).min(open.asked + TIMEOUT_MAX));
            self.tally.happened("question extended");
        }
        if let Input::GateInvalidated { gate, targets } = &input {
            let is_meant = |object: &ObjectRef| targets.is_empty() || targets.iter().any(|target| target.has(object));
            self.engines
                .allowed
                .retain(|(at, of, name, _), object| (*at, *of, name) != (replica, epoch, gate) || !is_meant(object));
            self.tally.happened("answers taken back");
        }
        self.tell(replica, input);
    }

    /// An answer arrives at the replica that has asked.
    pub(super) fn engine_answers(&mut self, replica: usize, epoch: u64, answered: &Answered) {
        let Some(open) = self.engines.open.remove(&(replica, epoch, answered.number)) else { return };
        if answered.answer == Answer::Allow {
            let key = (replica, epoch, answered.gate.clone(), open.target.uid.clone());
            self.engines.allowed.insert(key, open.target);
        }
    }

    /// A replica gives up a question.
    pub(super) fn question_ends(&mut self, at: usize, number: u64) {
        let replica = &self.replicas[at];
        let (epoch, now) = (replica.epoch, replica.local(self.now));
        let Some(open) = self.engines.open.remove(&(at, epoch, number)) else {
            return self.violate(format!("replica {at} gives up question {number}, which is not open"));
        };
        let is_late = now > open.until + LATE_MAX && replica.clock.world(open.until) > replica.paused_until;
        let is_early = now < open.until && self.still_asks(at, &open);
        if is_early || is_late {
            let (asked, until) = (open.asked, open.until);
            self.violate(format!(
                "replica {at} gives up question {number} at {now:?}; it was asked at {asked:?} and ends at {until:?}"
            ));
        }
    }

    /// Whether a question still has its term, its decision and its gate.
    fn still_asks(&self, at: usize, open: &Open) -> bool {
        let Some(leader) = &self.replicas[at].leader else { return false };
        let queries = leader.queries();
        let is_it = |decision: &OpenDecision| {
            decision.target.uid == open.target.uid && decision.grounds.decision == open.decision
        };
        queries.status().term.is_some()
            && queries.guards_of(GuardKind::Gate).iter().any(|gate| gate.id.name == open.gate && !gate.over)
            && queries.open_decisions(None, usize::MAX).iter().any(is_it)
    }

    /// The answers of a replica end with its term.
    pub(super) fn answers_end(&mut self, replica: usize) {
        self.engines.allowed.retain(|(at, ..), _| *at != replica);
    }

    /// Judges a grant.
    pub(super) fn engine_law(&mut self, at: usize, target: &ObjectRef, action: ActionKind) {
        if action != ActionKind::Delete {
            return;
        }
        let epoch = self.replicas[at].epoch;
        let is_allowed =
            |gate: &Name| self.engines.allowed.contains_key(&(at, epoch, gate.clone(), target.uid.clone()));
        let missing = self.guards.gates_over(target).find(|gate| !is_allowed(gate)).cloned();
        if let Some(gate) = missing {
            let why = format!("replica {at} grants the deletion of {target}, which gate {gate} does not allow");
            self.violate(why);
        }
    }
}
