//! The open questions of all gates.
//!
//! A question waits until its engine has room. For `cel` and `webhook`, [`Router::run`] takes waiting questions in
//! batches, at once while fewer batches than the window are running. For `stream`, a question goes to the instance with
//! the fewest questions; without an instance it fails at once. The leader can know a gate, or a change of it, before the
//! watch brings its policy engine here. A question to another policy engine than that of the gate waits for the change.

use super::inbox::Inbox;
use super::instance::{Instance, InstanceId, NotJoined};
use super::transport::Transport;
use super::{BATCH_MAX, QUESTIONS_MAX, Reply, Unmatched, webhook};
use crate::metrics::gates::GateMetrics;
use engine::guard::{Answer, Answered, Gate as Rule, Question, extended};
use engine::object::Name;
use engine::scope::Objects;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of batches of one gate that are evaluated at once.
const EVALUATIONS_MAX: usize = 2;
/// A request may take this much longer than its questions have, so that an answer that is a little late is counted.
const GRACE: Duration = Duration::from_secs(1);

const NO_INSTANCE: &str = "no instance of the policy engine is connected";

/// A gate, as its resource states it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configured {
    pub(crate) transport: Transport,
    pub(crate) rule: Rule,
}

/// See the module documentation. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gates: Mutex<BTreeMap<Name, Gate>>,
    /// Questions to policy engines that no gate has yet. Locked after `gates`.
    early: Mutex<Vec<Question>>,
    inbox: Inbox,
    /// Questions wait for a batch.
    waiting: Notify,
    next_instance: AtomicU64,
    metrics: GateMetrics,
}

/// A gate and its questions.
#[derive(Debug)]
pub(super) struct Gate {
    name: Name,
    pub(super) configured: Configured,
    open: BTreeMap<u64, Open>,
    /// The open questions that no engine has.
    waiting: BTreeSet<u64>,
    /// Running batches.
    batches: usize,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    /// The newest revision that an instance has named.
    pub(super) revision: String,
    inbox: Inbox,
    metrics: GateMetrics,
}

#[derive(Debug)]
struct Open {
    question: Arc<Question>,
    asked: Instant,
    at: Option<InstanceId>,
    /// The extra time that an instance has asked for.
    extra: Option<Duration>,
}

impl Router {
    /// The router, and the place where its answers arrive.
    pub(crate) fn new(metrics: GateMetrics) -> (Router, Inbox) {
        let inbox = Inbox::default();
        let inner = Inner {
            gates: Mutex::default(),
            early: Mutex::default(),
            inbox: inbox.clone(),
            waiting: Notify::new(),
            next_instance: AtomicU64::new(1),
            metrics,
        };
        (Router(Arc::new(inner)), inbox)
    }

    /// Replaces the set of gates. The questions of a gate that is gone or has another transport are dropped, and its
    /// streams end: the engine learns of the change, and asks again.
    pub(crate) fn configure(&self, configured: BTreeMap<Name, Configured>) {
        let mut gates = self.gates();
        gates.retain(|name, gate| {
            let kept = configured.get(name).is_some_and(|new| new.transport == gate.configured.transport);
            if !kept {
                gate.close();
            }
            kept
        });
        for (name, configured) in configured {
            let (inbox, metrics) = (self.0.inbox.clone(), self.0.metrics.clone());
            match gates.get_mut(&name) {
                Some(gate) => gate.configured = configured,
                None => drop(gates.insert(name.clone(), Gate::new(name, configured, inbox, metrics))),
            }
        }
        drop(gates);
        // The lock ends with the statement: a question that waits on takes the lock again.
        let early = std::mem::take(&mut *self.early());
        for question in early {
            self.ask(question);
        }
    }

    /// Asks a question. The answer arrives in the inbox.
    pub(crate) fn ask(&self, question: Question) {
        let mut gates = self.gates();
        let Some(gate) = gates.get_mut(&question.gate).filter(|gate| gate.configured.rule.engine == question.engine)
        else {
            let mut early = self.early();
            if early.len() < QUESTIONS_MAX {
                return early.push(question);
            }
            self.0.metrics.answered("failed");
            let why = format!("{QUESTIONS_MAX} questions wait for changes of gates");
            return self.0.inbox.answered(answered(&question.gate, Reply::failed(question.number, &why)));
        };
        self.0.metrics.asked(gate.configured.transport.as_str());
        if gate.open.len() >= QUESTIONS_MAX {
            let why = format!("{QUESTIONS_MAX} questions of this gate wait for an answer");
            gate.tell(Reply::failed(question.number, &why));
            return;
        }
        let number = question.number;
        gate.open.insert(number, Open { question: Arc::new(question), asked: Instant::now(), at: None, extra: None });
        gate.waiting.insert(number);
        self.0.metrics.opened(1);
        match gate.configured.transport {
            Transport::Cel(_) | Transport::Webhook(_) => self.0.waiting.notify_one(),
            Transport::Stream => gate.place(),
        }
    }

    /// Ends these questions. Their answers no longer count.
    pub(crate) fn cancel(&self, gate: &Name, numbers: &[u64]) {
        let mut gates = self.gates();
        self.early().retain(|early| early.gate != *gate || !numbers.contains(&early.number));
        let Some(gate) = gates.get_mut(gate) else { return };
        for number in numbers {
            let Some(open) = gate.take(*number) else { continue };
            if let Some(instance) = open.at.and_then(|at| gate.instances.get_mut(&at)) {
                instance.cancel(*number);
            }
        }
        gate.place();
    }

    /// Carries questions to engines that do not connect themselves. Runs while the service lives.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut running = FuturesUnordered::new();
        loop {
            running.extend(self.batches());
            tokio::select! {
                () = self.0.waiting.notified() => {}
                Some((gate, asked, answers)) = running.next() => self.finish(&gate, asked, answers),
            }
        }
    }

    /// The batches that have room to run.
    fn batches(&self) -> Vec<BoxFuture<'static, Finished>> {
        let mut batches = Vec::new();
        for gate in self.gates().values_mut() {
            while let Some(batch) = gate.batch() {
                batches.push(batch);
            }
        }
        batches
    }

    fn finish(&self, name: &Name, asked: Vec<u64>, answers: Result<(Vec<Reply>, Vec<Unmatched>), String>) {
        let mut gates = self.gates();
        let Some(gate) = gates.get_mut(name) else { return };
        gate.batches = gate.batches.saturating_sub(1);
        let (replies, unmatched) = match answers {
            Ok(answers) => answers,
            Err(why) => (asked.iter().map(|number| Reply::failed(*number, &why)).collect(), Vec::new()),
        };
        for unmatched in unmatched {
            self.0.metrics.unmatched(unmatched.as_str());
        }
        for reply in replies {
            let failed = reply.answer == Answer::Failed;
            if gate.take(reply.number).is_some() {
                gate.tell(reply);
            } else if !failed {
                self.0.metrics.unmatched(Unmatched::Late.as_str());
            }
        }
        for number in asked {
            if gate.take(number).is_some() {
                gate.tell(Reply::failed(number, "the answer has no response for this request"));
            }
        }
    }

    /// Acts on a gate that instances connect to.
    pub(super) fn with_streamed<T>(&self, name: &str, act: impl FnOnce(&mut Gate) -> T) -> Result<T, NotJoined> {
        let mut gates = self.gates();
        let gate = gates.get_mut(&Name::from(name)).ok_or(NotJoined::NotFound)?;
        match gate.configured.transport {
            Transport::Stream => Ok(act(gate)),
            Transport::Cel(_) | Transport::Webhook(_) => Err(NotJoined::OtherTransport),
        }
    }

    pub(super) fn next_instance(&self) -> InstanceId {
        InstanceId(self.0.next_instance.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn unmatched(&self, unmatched: Unmatched) {
        self.0.metrics.unmatched(unmatched.as_str());
    }

    fn early(&self) -> MutexGuard<'_, Vec<Question>> {
        self.0.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gates(&self) -> MutexGuard<'_, BTreeMap<Name, Gate>> {
        self.0.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that has ended: its gate, the numbers of its questions, and the answers.
type Finished = (Name, Vec<u64>, Result<(Vec<Reply>, Vec<Unmatched>), String>);

impl Gate {
    fn new(name: Name, configured: Configured, inbox: Inbox, metrics: GateMetrics) -> Gate {
        Gate {
            name,
            configured,
            open: BTreeMap::new(),
            waiting: BTreeSet::new(),
            batches: 0,
            instances: BTreeMap::new(),
            revision: String::new(),
            inbox,
            metrics,
        }
    }

    /// The next batch, if questions wait and the window has room.
    fn batch(&mut self) -> Option<BoxFuture<'static, Finished>> {
        let window = match self.configured.transport {
            Transport::Cel(_) => EVALUATIONS_MAX,
            Transport::Webhook(_) => webhook::AT_ONCE_MAX,
            Transport::Stream => return None,
        };
        if self.batches >= window || self.waiting.is_empty() {
            return None;
        }
        let mut questions = Vec::new();
        let mut left = Duration::ZERO;
        while questions.len() < BATCH_MAX
            && let Some(number) = self.waiting.pop_first()
        {
            let Some(open) = self.open.get(&number) else { continue };
            left = left.max(open.left());
            questions.push(Arc::clone(&open.question));
        }
        self.batches += 1;
        let asked: Vec<u64> = questions.iter().map(|question| question.number).collect();
        let name = self.name.clone();
        Some(match self.configured.transport.clone() {
            Transport::Cel(cel) => Box::pin(async move {
                let replies = cel.answer(questions).await;
                (name, asked, replies.map(|replies| (replies, Vec::new())))
            }),
            Transport::Webhook(webhook) => {
                Box::pin(async move { (name, asked, webhook.answer(questions, left + GRACE).await) })
            }
            Transport::Stream => return None,
        })
    }

    /// Gives waiting questions to instances with room. Without an instance they fail.
    pub(super) fn place(&mut self) {
        if self.configured.transport != Transport::Stream {
            return;
        }
        if self.instances.values().all(|instance| instance.draining) {
            for number in std::mem::take(&mut self.waiting) {
                self.open.remove(&number);
                self.metrics.opened(-1);
                self.tell(Reply::failed(number, NO_INSTANCE));
            }
            return;
        }
        while let Some(&number) = self.waiting.first() {
            let free = self.instances.iter_mut().filter(|(_, instance)| instance.has_room());
            let Some((id, instance)) = free.min_by_key(|(_, instance)| instance.load()) else { return };
            self.waiting.pop_first();
            instance.give(number);
            if let Some(open) = self.open.get_mut(&number) {
                open.at = Some(*id);
            }
        }
    }

    /// The question and the time that is left for it.
    pub(super) fn question(&self, number: u64) -> Option<(Arc<Question>, Duration)> {
        self.open.get(&number).map(|open| (Arc::clone(&open.question), open.left()))
    }

    /// An instance has answered.
    pub(super) fn answer(&mut self, reply: Reply) {
        if self.take(reply.number).is_some() {
            self.tell(reply);
        }
        self.place();
    }

    /// Gives the questions of an instance that is gone to the others.
    pub(super) fn hand_over(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Some(open) = self.open.get_mut(&number) {
                open.at = None;
                self.waiting.insert(number);
            }
        }
        self.place();
    }

    /// Tells the number of instances that take questions.
    pub(super) fn tell_instances(&self) {
        let count = self.instances.values().filter(|instance| !instance.draining).count();
        self.inbox.connected(&self.name, count);
    }

    /// Tells the revision of the policy of a new instance, if it is another one.
    pub(super) fn tell_revision(&mut self, revision: &str) {
        if revision != self.revision {
            if !self.revision.is_empty() {
                self.inbox.changed(&self.name);
            }
            self.revision = revision.to_owned();
        }
    }

    /// An instance takes answers back. An empty revision is always news.
    pub(super) fn take_back(&mut self, revision: &str, targets: Vec<Objects>) {
        if revision.is_empty() || revision != self.revision {
            self.inbox.taken_back(&self.name, targets);
        }
        if !revision.is_empty() {
            self.revision = revision.to_owned();
        }
    }

    /// Gives a question extra time, once.
    pub(super) fn need_time(&mut self, number: u64, extra: Duration) {
        if let Some(open) = self.open.get_mut(&number).filter(|open| open.extra.is_none()) {
            open.extra = Some(extra);
            self.inbox.needs_time(&self.name, number, extra);
        }
    }

    pub(super) fn connected(&self, change: i64) {
        self.metrics.connected(change);
    }

    fn take(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.waiting.remove(&number);
        self.metrics.opened(-1);
        Some(open)
    }

    fn tell(&self, reply: Reply) {
        self.metrics.answered(match reply.answer {
            Answer::Allow => "allow",
            Answer::Deny => "deny",
            Answer::Hold { .. } => "hold",
            Answer::Abstain => "abstain",
            Answer::Failed => "failed",
        });
        self.inbox.answered(answered(&self.name, reply));
    }

    /// Drops all questions, and ends all streams.
    fn close(&mut self) {
        self.waiting.clear();
        for _ in std::mem::take(&mut self.open) {
            self.metrics.opened(-1);
        }
        if !self.instances.is_empty() {
            self.inbox.connected(&self.name, 0);
        }
        for instance in std::mem::take(&mut self.instances).into_values() {
            self.metrics.connected(-1);
            instance.more.notify_one();
        }
    }
}

impl Open {
    fn left(&self) -> Duration {
        extended(self.question.timeout, self.extra.unwrap_or_default()).saturating_sub(self.asked.elapsed())
    }
}

pub(super) fn answered(gate: &Name, Reply { number, answer, by, message, valid_for }: Reply) -> Answered {
    Answered { gate: gate.clone(), number, answer, by, message, valid_for }
}
