//! Questions to gates: what was asked about an item or a cascade, and what the answer permits.

use crate::guard::{Answer, FailurePolicy, Gate, GuardId, extended};
use crate::object::Uid;
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum number of questions of a gate that wait for an answer. Further items wait unasked.
pub(super) const WINDOW: usize = 1000;
/// Time between two questions about one decision while the gate fails.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Questions that are to be asked again within this time are asked again together.
const AGAIN_TOGETHER: Duration = Duration::from_millis(250);

/// The subject of a question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The target of an item.
    Item(Uid),
    /// The root of a cascade.
    Root(Uid),
}

/// The state of one subject at one gate.
#[derive(Debug)]
pub(super) struct Asked {
    /// The subject of the question: the decision of an item, the digest of a cascade. Another one is asked about again.
    pub(super) about: u64,
    /// When it was first asked. The longest hold counts from then.
    first: Time,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A question waits for its answer.
    Waiting {
        number: u64,
    },
    /// To be asked again at this time.
    Again {
        at: Time,
    },
    /// Until this time, or for as long as the decision stands.
    Allowed {
        until: Option<Time>,
    },
    Denied {
        why: String,
    },
}

impl Asked {
    /// Ends the wait for another question. False if the subject is to be forgotten: only a hold continues, so that the
    /// longest hold ends.
    fn is_asked_again(&mut self) -> bool {
        let State::Again { at } = &mut self.state else { return false };
        *at = Time::ZERO;
        true
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Waiting {
    of: (GuardId, Subject),
    asked: Time,
    timeout: Duration,
    /// The engine has got extra time.
    is_extended: bool,
}

/// All questions.
#[derive(Debug, Default)]
pub(super) struct Gates {
    asked: BTreeMap<(GuardId, Subject), Asked>,
    /// The questions that wait for an answer.
    waiting: BTreeMap<u64, Waiting>,
    in_flight: BTreeMap<GuardId, usize>,
    /// The subjects that wait unasked, because the window of their gate was full, with the target of one of their
    /// items.
    unasked: BTreeMap<GuardId, BTreeMap<Subject, Uid>>,
    /// Questions that were given up. The caller must still cancel them.
    given_up: Vec<(GuardId, u64)>,
    last: u64,
}

/// Why a question gets no extra time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NotOpen,
    Again,
}

/// The result for the item that is to be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Allowed,
    /// The item waits; nothing is to be done.
    Held,
    /// The item waits until the window of the gate has room.
    Full,
    /// The gate must be asked.
    Ask,
}

impl Gates {
    pub(super) fn get(&self, gate: &GuardId, subject: &Subject) -> Option<&Asked> {
        self.asked.get(&(gate.clone(), subject.clone()))
    }

    /// Whether the subject passes a gate now.
    pub(super) fn pass(&mut self, now: Time, gate: &GuardId, subject: &Subject, about: u64) -> Pass {
        let key = (gate.clone(), subject.clone());
        let Some(asked) = self.asked.get(&key) else { return self.may_ask(gate) };
        if asked.about != about {
            self.forget(&key);
            return self.may_ask(gate);
        }
        match &asked.state {
            State::Allowed { until } if until.is_none_or(|until| now < until) => Pass::Allowed,
            State::Waiting { .. } | State::Denied { .. } => Pass::Held,
            State::Again { at } if now < *at => Pass::Held,
            State::Again { .. } | State::Allowed { .. } => self.may_ask(gate),
        }
    }

    fn may_ask(&self, gate: &GuardId) -> Pass {
        if self.room(gate) == 0 { Pass::Full } else { Pass::Ask }
    }

    /// Records a question, and returns its number.
    pub(super) fn ask(&mut self, now: Time, gate: &GuardId, subject: Subject, about: u64, timeout: Duration) -> u64 {
        self.last += 1;
        let number = self.last;
        let key = (gate.clone(), subject);
        // Only a hold continues. An allowance that has ended, and has nothing to do with this hold, does not count.
        let continues = |asked: &&Asked| asked.about == about && matches!(asked.state, State::Again { .. });
        let first = self.asked.get(&key).filter(continues).map_or(now, |asked| asked.first);
        let waiting = Waiting { of: key.clone(), asked: now, timeout, is_extended: false };
        self.waiting.insert(number, waiting);
        *self.in_flight.entry(gate.clone()).or_default() += 1;
        self.asked.insert(key, Asked { about, first, state: State::Waiting { number } });
        number
    }

    /// Takes the answer to a question. `None` if the question is not open: the answer is late, or it is a second one.
    pub(super) fn answer(
        &mut self,
        now: Time,
        number: u64,
        rule: &Gate,
        answer: Answer,
        valid_for: Duration,
        message: &str,
    ) -> Option<(Subject, State)> {
        let key = self.waiting.remove(&number)?.of;
        self.landed(&key.0);
        let asked = self.asked.get_mut(&key)?;
        let end = asked.first + rule.max_hold;
        let again = |after: Duration| {
            if now < end {
                return State::Again { at: (now + after).min(end).rounded_up(AGAIN_TOGETHER) };
            }
            match rule.allow_after_max_hold {
                true => State::Allowed { until: None },
                false => State::Denied { why: String::from("the longest hold has passed") },
            }
        };
        asked.state = match (answer, rule.failure_policy) {
            (Answer::Allow | Answer::Abstain, _) | (Answer::Failed, FailurePolicy::Allow) => {
                State::Allowed { until: (!valid_for.is_zero()).then(|| now + valid_for) }
            }
            (Answer::Deny, _) | (Answer::Failed, FailurePolicy::Deny) => State::Denied { why: String::from(message) },
            (Answer::Hold { again_after }, _) => again(again_after),
            (Answer::Failed, FailurePolicy::Hold) => again(AGAIN_AFTER),
        };
        Some((key.1, asked.state.clone()))
    }

    /// Returns the subjects that a gate is to be asked about again now.
    pub(super) fn again_due(&self, now: Time, gate: &GuardId) -> Vec<Subject> {
        let of_gate = self.asked.iter().filter(|((of, _), _)| of == gate);
        let is_due = |asked: &Asked| matches!(asked.state, State::Again { at } if at <= now);
        of_gate.filter(|(_, asked)| is_due(asked)).map(|((_, subject), _)| subject.clone()).collect()
    }

    /// Whether the time of an open question is over.
    pub(super) fn is_due(&self, now: Time, number: u64) -> bool {
        self.waiting.get(&number).is_some_and(|waiting| waiting.asked + waiting.timeout <= now)
    }

    /// Gives an open question extra time, and returns its new end. The error says what the question is instead.
    pub(super) fn extend(&mut self, number: u64, extra: Duration) -> Result<Time, Refused> {
        let waiting = self.waiting.get_mut(&number).ok_or(Refused::NotOpen)?;
        if core::mem::replace(&mut waiting.is_extended, true) {
            return Err(Refused::Again);
        }
        waiting.timeout = extended(waiting.timeout, extra);
        Ok(waiting.asked + waiting.timeout)
    }

    /// Returns the gate of an open question.
    pub(super) fn gate_of(&self, number: u64) -> Option<&GuardId> {
        self.waiting.get(&number).map(|waiting| &waiting.of.0)
    }

    /// Voids what a gate has answered about these subjects, and returns them. What waits for an answer stays.
    pub(super) fn take_back(&mut self, gate: &GuardId, is_meant: impl Fn(&Subject) -> bool) -> Vec<Subject> {
        let mut void = Vec::new();
        self.asked.retain(|(of, subject), asked| {
            if of != gate || matches!(asked.state, State::Waiting { .. }) || !is_meant(subject) {
                return true;
            }
            void.push(subject.clone());
            asked.is_asked_again()
        });
        void
    }

    /// Voids all answers of a gate that has changed, and gives its questions up.
    pub(super) fn forget_answers(&mut self, gate: &GuardId) {
        self.retain(|of, _| of != gate);
        self.unasked.remove(gate);
    }

    /// Forgets everything: another leader may have asked in the meantime, or the facts are those of another history.
    pub(super) fn clear(&mut self) {
        self.retain(|_, _| false);
        self.unasked.clear();
    }

    /// Ends the decision about an item. Only an answer that the engine lets be used again remains.
    pub(super) fn decision_ended(&mut self, gate: &GuardId, item: &Uid) {
        let key = (gate.clone(), Subject::Item(item.clone()));
        if self.asked.get(&key).is_some_and(|asked| !matches!(asked.state, State::Allowed { until: Some(_) })) {
            self.forget(&key);
        }
    }

    /// Records that an item waits unasked.
    pub(super) fn wait_unasked(&mut self, gate: &GuardId, subject: Subject, item: &Uid) {
        self.unasked.entry(gate.clone()).or_default().insert(subject, item.clone());
    }

    /// Takes an item that waits unasked, with the subject of its question.
    pub(super) fn next_unasked(&mut self, gate: &GuardId) -> Option<(Subject, Uid)> {
        self.unasked.get_mut(gate)?.pop_first()
    }

    pub(super) fn any_unasked(&self, gate: &GuardId) -> bool {
        self.unasked.get(gate).is_some_and(|unasked| !unasked.is_empty())
    }

    /// The number of further questions that a gate may have in flight.
    pub(super) fn room(&self, gate: &GuardId) -> usize {
        WINDOW.saturating_sub(self.in_flight.get(gate).copied().unwrap_or_default())
    }

    /// Takes the questions that were given up.
    pub(super) fn given_up(&mut self) -> Vec<(GuardId, u64)> {
        core::mem::take(&mut self.given_up)
    }

    /// Voids denials and holds of a gate: its policy has changed.
    pub(super) fn reopen(&mut self, gate: &GuardId) {
        self.asked.retain(|(of, _), asked| match asked.state {
            State::Denied { .. } | State::Again { .. } if of == gate => asked.is_asked_again(),
            State::Denied { .. } | State::Again { .. } | State::Waiting { .. } | State::Allowed { .. } => true,
        });
    }

    /// Forgets subjects that do not exist any more, and gates.
    pub(super) fn retain(&mut self, exists: impl Fn(&GuardId, &Subject) -> bool) {
        let gone: Vec<_> = self.asked.keys().filter(|(gate, subject)| !exists(gate, subject)).cloned().collect();
        for key in gone {
            self.forget(&key);
        }
    }

    /// The number of questions of a gate that wait for an answer, and of its denials.
    pub(super) fn counts(&self, gate: &GuardId) -> (usize, usize) {
        let denied = |((of, _), asked): &(&(GuardId, Subject), &Asked)| {
            of == gate && matches!(asked.state, State::Denied { .. })
        };
        (self.in_flight.get(gate).copied().unwrap_or_default(), self.asked.iter().filter(denied).count())
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    fn forget(&mut self, key: &(GuardId, Subject)) {
        let Some(asked) = self.asked.remove(key) else { return };
        if let State::Waiting { number } = asked.state
            && self.waiting.remove(&number).is_some()
        {
            self.landed(&key.0);
            self.given_up.push((key.0.clone(), number));
        }
    }

    fn landed(&mut self, gate: &GuardId) {
        if let Some(count) = self.in_flight.get_mut(gate) {
            *count = count.saturating_sub(1);
        }
    }
}
