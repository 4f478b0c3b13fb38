//! Questions to policy engines: what a gate asks at the grant, and what follows from an answer.

use super::gates::{Pass, State, Subject, WINDOW};
use super::{Candidate, Event, Leader, Output, Timer};
use crate::guard::{Answer, Answered, Cascade, Gate, GuardId, GuardKind, Question, Rule};
use crate::leader::world::reasons::decision;
use crate::object::{Name, Uid};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Longest time after which further items are asked about although no answer has made room for them.
const ASK_NEXT_AFTER: Duration = Duration::from_secs(1);
/// Room of the window of a gate at which further items are asked about.
const ASK_TOGETHER: usize = WINDOW / 4;
/// Number of subjects of questions above which the leader forgets those that do not exist any more.
const SUBJECTS_SPARE: usize = 10_000;

impl Leader {
    pub(super) fn passes(&mut self, id: &GuardId, gate: &Gate, candidate: &Candidate) -> bool {
        let about = decision(&candidate.draft);
        self.asks(id, gate, Subject::Item(candidate.draft.target.uid.clone()), about, candidate, None)
    }

    pub(super) fn passes_root(&mut self, id: &GuardId, gate: &Gate, candidate: &Candidate) -> bool {
        let Some(known) = self.cascade(candidate) else { return gate.observe_only };
        let extent = known.extent.clone();
        self.asks(id, gate, Subject::Root(candidate.root.clone()), extent.digest, candidate, Some(extent))
    }

    fn asks(
        &mut self,
        id: &GuardId,
        gate: &Gate,
        subject: Subject,
        about: u64,
        candidate: &Candidate,
        cascade: Option<Cascade>,
    ) -> bool {
        if self.calendar(id) < gate.bypass_until {
            return true;
        }
        let pass = self.consent.gates.pass(self.cx.now, id, &subject, about);
        self.cancel_given_up();
        match pass {
            Pass::Allowed => return true,
            Pass::Held => return gate.observe_only,
            Pass::Full if gate.observe_only => return true,
            Pass::Full => {
                self.consent.gates.wait_unasked(id, subject, &candidate.draft.target.uid);
                return false;
            }
            Pass::Ask => {}
        }
        self.sweep_questions();
        let number = self.consent.gates.ask(self.cx.now, id, subject, about, gate.timeout);
        let target = cascade.as_ref().map_or(&candidate.draft.target, |cascade| &cascade.root).clone();
        let node = self.world.graph().primary(&candidate.draft.target.uid);
        let causes = node.map(|id| self.world.causes(id)).unwrap_or_default();
        let question = Question {
            gate: id.name.clone(),
            engine: gate.engine,
            number,
            timeout: gate.timeout,
            action: candidate.draft.action.kind(),
            target,
            resource_version: candidate.draft.preconditions.resource_version.clone(),
            chain: self.world.chain(&self.cx, &candidate.draft.target.uid, &causes),
            decision: decision(&candidate.draft),
            cascade,
            observe_only: gate.observe_only,
        };
        self.cx.outputs.push_back(Output::AskGate(question));
        self.cx.timers.set(self.cx.now + gate.timeout, Timer::Question(number));
        gate.observe_only
    }

    /// Handles the answer of a policy engine.
    pub(in crate::leader) fn gate_answered(&mut self, answered: Answered) {
        let Answered { number, answer, by, message, valid_for, .. } = answered;
        let Some(id) = self.consent.gates.gate_of(number).cloned() else {
            let why = format!("an answer of gate {} to a question that is not open", answered.gate);
            return self.cx.event(Event::Rejected { why });
        };
        let Some(Rule::Gate(gate)) = self.dispatcher.queue().holds().get(&id).map(|entry| entry.guard.rule.clone())
        else {
            // A gate without this rule has no open questions.
            return;
        };
        let now = self.cx.now;
        let answer_was = answer.clone();
        let Some((subject, state)) = self.consent.gates.answer(now, number, &gate, answer, valid_for, &message) else {
            return;
        };
        if let State::Again { at } = state {
            self.cx.timers.set(at, Timer::AskAgain(id.clone()));
        }
        let (Subject::Item(uid) | Subject::Root(uid)) = &subject;
        let target = match self.dispatcher.queue().get(uid) {
            Some(item) => Some(item.draft.target.clone()),
            None => self.consent.cascades.get(uid).map(|known| known.root.clone()),
        };
        let allowed = matches!(state, State::Allowed { .. });
        if let Some(target) = target {
            self.cx.event(Event::GateAnswered {
                id: id.clone(),
                target,
                answer: answer_was,
                allowed,
                by,
                message,
                observe_only: gate.observe_only,
            });
        }
        if gate.observe_only {
            return;
        }
        match subject {
            Subject::Item(uid) if allowed => drop(self.dispatcher.release_item(&uid)),
            Subject::Item(_) => {}
            Subject::Root(_) if allowed => {
                self.release_all(id.clone());
            }
            Subject::Root(_) => {}
        }
        self.answer_made_room(&id);
    }

    /// Asks about further items when the window of the gate has room for [`ASK_TOGETHER`]. The questions are then sent
    /// together.
    fn answer_made_room(&mut self, id: &GuardId) {
        if self.consent.gates.room(id) >= ASK_TOGETHER { self.ask_next(id) } else { self.ask_soon(id) }
    }

    /// Lets as many further items be asked about as the window of the gate has room for.
    pub(in crate::leader) fn ask_next(&mut self, id: &GuardId) {
        let (mut room, mut roots_wait) = (self.consent.gates.room(id), false);
        while room > 0
            && let Some((subject, uid)) = self.consent.gates.next_unasked(id)
        {
            // An item that has gone, or that another guard holds, takes no room. Other items of its root may wait.
            let is_there = self.dispatcher.release_item(&uid);
            room -= usize::from(is_there);
            roots_wait |= !is_there && matches!(subject, Subject::Root(_));
        }
        if roots_wait {
            self.release_all(id.clone());
        }
        self.ask_soon(id);
    }

    /// Lets further items be asked about even if no answer follows: released items may wait for another guard.
    fn ask_soon(&mut self, id: &GuardId) {
        if self.consent.gates.any_unasked(id) {
            let soon = (self.cx.now + ASK_NEXT_AFTER).rounded_up(ASK_NEXT_AFTER);
            self.cx.timers.set(soon, Timer::AskNext(id.clone()));
        }
    }

    /// Cancels the questions that are not awaited any more.
    pub(super) fn cancel_given_up(&mut self) {
        for (id, number) in self.consent.gates.given_up() {
            self.cx.outputs.push_back(Output::CancelQuestion { gate: id.name.clone(), number });
            self.answer_made_room(&id);
        }
    }

    /// Ends the questions about a decision that has ended.
    pub(in crate::leader) fn end_questions(&mut self, uid: &Uid) {
        let asking = self.dispatcher.queue().holds().asking().filter(|entry| entry.guard.id.kind == GuardKind::Gate);
        for id in asking.map(|entry| entry.guard.id.clone()).collect::<Vec<_>>() {
            self.consent.gates.decision_ended(&id, uid);
        }
        self.cancel_given_up();
    }

    /// Forgets all that gates have answered.
    pub(in crate::leader) fn end_all_questions(&mut self) {
        self.consent.gates.clear();
        self.cancel_given_up();
    }

    pub(in crate::leader) fn question_due(&mut self, number: u64) {
        let Some(gate) = self.consent.gates.gate_of(number).filter(|_| self.consent.gates.is_due(self.cx.now, number))
        else {
            return;
        };
        let gate = gate.name.clone();
        self.cx.outputs.push_back(Output::CancelQuestion { gate: gate.clone(), number });
        self.gate_answered(Answered {
            gate,
            number,
            answer: Answer::Failed,
            by: String::new(),
            message: String::from("no answer within the timeout"),
            valid_for: Duration::ZERO,
        });
    }

    pub(in crate::leader) fn ask_again_due(&mut self, id: &GuardId) {
        let due = self.consent.gates.again_due(self.cx.now, id);
        for subject in &due {
            if let Subject::Item(uid) = subject {
                self.dispatcher.release_item(uid);
            }
        }
        if due.iter().any(|subject| matches!(subject, Subject::Root(_))) {
            self.release_all(id.clone());
        }
    }

    /// Voids the denials and holds of a gate: its policy or its instances have changed.
    pub(in crate::leader) fn gate_reopened(&mut self, name: Name) {
        let id = GuardId { kind: GuardKind::Gate, name };
        self.consent.gates.reopen(&id);
        self.release_all(id);
    }

    /// Forgets questions about items that do not exist any more.
    fn sweep_questions(&mut self) {
        if self.consent.gates.len() <= 2 * self.consent.swept + SUBJECTS_SPARE {
            return;
        }
        let queue = self.dispatcher.queue();
        let cascades = &self.consent.cascades;
        self.consent.gates.retain(|_, subject| match subject {
            Subject::Item(uid) => queue.get(uid).is_some(),
            Subject::Root(uid) => cascades.contains_key(uid),
        });
        self.consent.swept = self.consent.gates.len();
    }
}
