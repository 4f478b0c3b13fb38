//! Questions about the existence of single objects. The graph service asks them, because a report of an executor does
//! not prove the absence of an owner.
//!
//! Each collection has a row of waiting nodes, and the rows take turns. The number of concurrent questions is bounded.
//! A node whose question failed waits separately before its next question, so that it delays no other node. After
//! several consecutive questions without an answer, all nodes of the collection wait. The leader then asks one question
//! at a time, with growing intervals, and each question concerns another node.

use super::{CheckBy, Event, Leader, Named, ProbeAnswer, ProbeId, Purpose, Timer};
use crate::coverage::{Coverage, KindId};
use crate::evidence::Absence;
use crate::follow::Failure;
use crate::graph::{Known, NodeId};
use crate::object::{Object, ObjectRef, ResourceVersion, Uid};
use crate::time::Time;
use crate::view::{Questions as View, Unanswered};
use crate::work::Sighting;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use core::ops::Bound;
use core::time::Duration;

/// Maximum number of concurrent questions.
const UNDER_WAY_MAX: usize = 32;
/// Maximum number of concurrent questions about one collection.
const UNDER_WAY_EACH_MAX: usize = 24;
/// Minimum wait after a failed answer. The wait doubles with each failure.
const FAILED_MIN: Duration = Duration::from_millis(500);
/// Maximum wait after a failed answer. The bound lets all questions be asked within ten seconds of the recovery of a
/// server.
const FAILED_MAX: Duration = Duration::from_secs(5);
/// Additional wait for each failed node. With this wait, all failed nodes together cause 20 questions per second.
const FAILED_EACH: Duration = Duration::from_millis(50);
/// Number of consecutive questions without an answer after which the server receives one question at a time.
const DOWN_AFTER: u32 = 3;

/// Minimum time between two lists of a collection that does not show its objects.
const LIST_AGAIN: Duration = Duration::from_secs(30);

/// The nodes that wait for questions.
#[derive(Debug, Default)]
pub(super) struct Questions {
    rows: BTreeMap<KindId, Row>,
    /// The row of each waiting node.
    waiting: BTreeMap<NodeId, KindId>,
    under_way: usize,
    /// The probe about each node, and the number of consecutive failures of its questions.
    asked: BTreeMap<NodeId, (ProbeId, u32)>,
    /// The row that had the last turn.
    turn: Option<KindId>,
}

/// The waiting nodes of one collection.
#[derive(Debug, Default)]
struct Row {
    waiting: BTreeSet<NodeId>,
    /// Nodes with failed questions and their number of failures, ordered by the time of the next question.
    failed: BTreeMap<(Time, NodeId), u32>,
    /// The time of the next question about each failed node.
    again: BTreeMap<NodeId, Time>,
    under_way: usize,
    /// The new node of the last question. The next question concerns the node after it.
    last: Option<NodeId>,
    /// True if the last question concerned a failed node.
    retried: bool,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    why: String,
    since: Time,
    /// Number of consecutive questions without an answer.
    unanswered: u32,
    /// The time from which one node may be asked about despite the failures.
    next: Time,
}

impl Failing {
    fn is_down(&self) -> bool {
        self.unanswered >= DOWN_AFTER
    }
}

impl Row {
    /// Returns whether a failed node may be asked about.
    fn may_ask_again(&self, now: Time) -> bool {
        let is_due = |failing: &Failing| failing.next <= now;
        self.failed.keys().next().is_some_and(|&(at, _)| at <= now || self.failing.as_ref().is_some_and(is_due))
    }

    fn may_ask(&self, now: Time) -> bool {
        let room = match self.failing.as_ref().filter(|failing| failing.unanswered > 0) {
            Some(failing) if failing.is_down() => {
                return self.under_way == 0 && failing.next <= now && !self.is_empty();
            }
            Some(_) => self.under_way == 0,
            None => self.under_way < UNDER_WAY_EACH_MAX,
        };
        room && (!self.waiting.is_empty() || self.may_ask_again(now))
    }

    /// Returns the number of waiting nodes.
    fn len(&self) -> usize {
        self.waiting.len() + self.failed.len()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.failed.is_empty()
    }

    /// Returns the next node, and the number of failures of its questions. New nodes and failed nodes take turns if
    /// both may be asked about.
    fn pop(&mut self, now: Time) -> Option<(NodeId, u32)> {
        let is_turn = self.waiting.is_empty() || (self.may_ask_again(now) && !self.retried);
        self.retried = is_turn;
        if is_turn && let Some(((_, node), times)) = self.failed.pop_first() {
            self.again.remove(&node);
            if let Some(failing) = &mut self.failing {
                failing.next = failing.next.max(now + FAILED_MAX);
            }
            return Some((node, times));
        }
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((after, Bound::Unbounded)).next().or_else(|| self.waiting.first()).copied()?;
        self.waiting.remove(&next);
        self.last = Some(next);
        Some((next, 0))
    }

    /// Records a failed question about a node with `times` earlier failures. Returns the time at which to check for the
    /// next question.
    fn fail(&mut self, now: Time, node: NodeId, times: u32, failure: &Failure) -> Time {
        let doubled = |times: u32, most: Duration| FAILED_MIN.saturating_mul(1 << times.min(10)).min(most);
        let each = FAILED_EACH.saturating_mul(u32::try_from(self.failed.len()).unwrap_or(u32::MAX)).max(FAILED_MAX);
        let at = now + doubled(times, each);
        self.remove(node);
        self.failed.insert((at, node), times.saturating_add(1));
        self.again.insert(node, at);
        let is_answer = failure.is_of_this_request();
        let failing = self.failing.get_or_insert_with(|| Failing {
            why: String::new(),
            since: now,
            unanswered: 0,
            next: now + FAILED_MAX,
        });
        failing.why.clone_from(&failure.sentence);
        failing.unanswered = if is_answer { 0 } else { failing.unanswered.saturating_add(1) };
        if failing.is_down() {
            failing.next = now + doubled(failing.unanswered - DOWN_AFTER, FAILED_MAX);
        }
        at.min(failing.next)
    }

    /// Handles a credible answer about a node with `times` earlier failures.
    fn answered(&mut self, times: u32) {
        if times > 0 {
            // The cause of all failures may be gone.
            self.failed.clear();
            self.waiting.extend(core::mem::take(&mut self.again).into_keys());
        }
        match &mut self.failing {
            Some(failing) if !self.failed.is_empty() => failing.unanswered = 0,
            _ => self.failing = None,
        }
    }

    fn remove(&mut self, node: NodeId) {
        self.waiting.remove(&node);
        if let Some(at) = self.again.remove(&node) {
            self.failed.remove(&(at, node));
        }
    }
}

impl Questions {
    fn wait(&mut self, kind: KindId, node: NodeId) {
        if !self.asked.contains_key(&node) && !self.waiting.contains_key(&node) {
            self.rows.entry(kind).or_default().waiting.insert(node);
            self.waiting.insert(node, kind);
        }
    }

    /// Ends the questions about this node.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.asked.remove(&node);
        if let Some(kind) = self.waiting.remove(&node)
            && let Some(row) = self.rows.get_mut(&kind)
        {
            row.remove(node);
            self.drop_idle(kind);
        }
    }

    /// Discards the questions in progress, which belong to a lost history.
    pub(super) fn void(&mut self) {
        self.asked.clear();
    }

    fn drop_idle(&mut self, kind: KindId) {
        if self.rows.get(&kind).is_some_and(|row| row.is_empty() && row.under_way == 0) {
            self.rows.remove(&kind);
        }
    }

    /// Takes the next node to ask about, and records `probe` as its question in progress.
    pub(super) fn next(&mut self, now: Time, probe: ProbeId) -> Option<(KindId, NodeId)> {
        if self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let ready = |(&kind, row): (&KindId, &Row)| row.may_ask(now).then_some(kind);
        let kind =
            self.rows.range((after, Bound::Unbounded)).find_map(ready).or_else(|| self.rows.iter().find_map(ready))?;
        self.turn = Some(kind);
        let row = self.rows.get_mut(&kind)?;
        let (node, failed) = row.pop(now)?;
        row.under_way += 1;
        self.under_way += 1;
        self.waiting.remove(&node);
        self.asked.insert(node, (probe, failed));
        Some((kind, node))
    }

    /// Handles an answer. Returns the number of earlier failures, or `None` if the answer is no longer expected.
    fn end(&mut self, kind: KindId, node: NodeId, probe: ProbeId) -> Option<u32> {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(row) = self.rows.get_mut(&kind) {
            row.under_way = row.under_way.saturating_sub(1);
        }
        let awaited = self.asked.get(&node).filter(|(asked, _)| *asked == probe).map(|&(_, failed)| failed);
        if awaited.is_some() {
            self.asked.remove(&node);
        }
        self.drop_idle(kind);
        awaited
    }

    /// Queues the node for another question. Returns the time at which to check for the next question.
    fn failed(&mut self, now: Time, kind: KindId, node: NodeId, times: u32, failure: &Failure) -> Time {
        self.waiting.insert(node, kind);
        self.rows.entry(kind).or_default().fail(now, node, times, failure)
    }

    fn answered(&mut self, kind: KindId, times: u32) {
        if let Some(row) = self.rows.get_mut(&kind) {
            row.answered(times);
        }
    }

    /// Returns the number of waiting questions, and the reasons for the wait.
    pub(super) fn view(&self, coverage: &Coverage) -> View {
        let unanswered = |(&kind, row): (&KindId, &Row)| {
            let failing = row.failing.as_ref()?;
            let served = coverage.kind(kind).served()?;
            Some(Unanswered {
                collection: served.group_resource.clone(),
                owners: if failing.is_down() { row.len() + row.under_way } else { row.failed.len() },
                why: failing.why.clone(),
                since: failing.since,
                next: row.failed.keys().next().map_or(failing.next, |&(at, _)| at.min(failing.next)),
                asking: row.under_way > 0,
            })
        };
        View {
            waiting: self.rows.values().map(Row::len).sum(),
            under_way: self.under_way,
            unanswered: self.rows.iter().filter_map(unanswered).collect(),
        }
    }
}

impl Leader {
    /// Queues a question about the existence of this node's object.
    pub(super) fn ask_about(&mut self, id: NodeId) {
        self.prober.questions_mut().wait(self.world.graph().node(id).kind(), id);
    }

    /// Asks as many questions as there is room for.
    pub(super) fn ask_questions(&mut self) {
        if self.cx.term.is_none() || self.cx.stopping || self.history.is_in_doubt() {
            return;
        }
        while let Some((probe, kind, id)) = self.prober.next_question(self.cx.now) {
            if !self.ask_now(kind, id, probe) {
                self.prober.questions_mut().end(kind, id, probe);
            }
        }
    }

    /// Asks one question. Returns false if the question is no longer required.
    fn ask_now(&mut self, kind: KindId, id: NodeId, probe: ProbeId) -> bool {
        let Some((served, node)) = self.world.coverage().kind(kind).served().zip(self.world.graph().get(id)) else {
            return false;
        };
        let (uid, namespace, name) = (node.uid(), node.namespace().clone(), node.name().into());
        let step = if node.is_observed() { None } else { self.world.step(kind, id) };
        let (by, fresh) = step.map_or((CheckBy::List, false), |step| (step.by, step.fresh));
        let known = self.world.known(kind);
        self.prober.begin_question(probe, kind, Purpose::Existence { node: id, uid, by }, known);
        self.cx.probe(probe, served, Some(namespace), None, Some(Named { name, by }), fresh);
        true
    }

    pub(super) fn existence_answered(
        &mut self,
        probe: ProbeId,
        (kind, id): (KindId, NodeId),
        (uid, by): (Uid, CheckBy),
        known: &super::KnownVersions,
        answer: Result<ProbeAnswer, Failure>,
    ) {
        let awaited = self.prober.questions_mut().end(kind, id, probe);
        let is_there = self.world.graph().get(id).is_some_and(|node| node.uid() == uid && node.kind() == kind);
        let Some(times) = awaited.filter(|_| is_there && self.world.coverage().kind(kind).served().is_some()) else {
            // A repeated question waits in the queue again.
            return self.world.mark_uid(&uid);
        };
        let answer = answer.and_then(|answer| self.believable(kind, &uid, by, known, answer));
        self.cx.event(Event::Asked {
            owner: self.world.object_ref(id),
            by,
            answer: match &answer {
                Ok(answer) if answer.objects.iter().any(|object| object.uid == uid) => "exists",
                Ok(_) => "absent",
                Err(_) => "failed",
            },
        });
        match answer {
            Ok(answer) => {
                self.prober.questions_mut().answered(kind, times);
                self.world.set_unreadable(id, false);
                let mut objects = answer.objects.into_iter();
                match objects.find(|object| object.uid == uid) {
                    Some(object) => {
                        let at =
                            if by == CheckBy::List { answer.resource_version } else { object.resource_version.clone() };
                        self.exists(id, object, at);
                    }
                    None => self.not_there(id, by, Some(&answer.resource_version).filter(|_| by == CheckBy::List)),
                }
            }
            Err(failure) => {
                self.world.set_unreadable(id, true);
                self.ask_again(kind, id, times, &failure);
            }
        }
        if self.world.graph().get(id).is_some() {
            self.world.mark(id);
        }
    }

    /// Queues the same question again.
    fn ask_again(&mut self, kind: KindId, id: NodeId, times: u32, failure: &Failure) {
        let at = self.prober.questions_mut().failed(self.cx.now, kind, id, times, failure);
        self.cx.timers.set(at, Timer::Questions);
    }

    /// Returns the answer if it can describe the current state of the store. An answer is refused if it is older than
    /// the knowledge at the time of the question, if it belongs to another history, or if its collection has no
    /// comparable versions.
    fn believable(
        &mut self,
        kind: KindId,
        uid: &Uid,
        by: CheckBy,
        known: &super::KnownVersions,
        answer: ProbeAnswer,
    ) -> Result<ProbeAnswer, Failure> {
        if by == CheckBy::Read {
            return Ok(answer);
        }
        let version = answer.resource_version.clone();
        let shows = answer.objects.iter().any(|object| object.uid == *uid);
        let entry = self.world.coverage().kind(kind);
        if entry.is_aggregated() && known.own.as_ref().is_some_and(|known| version.is_before(known)) {
            return Err(Failure::senseless(format!(
                "the list by name returned version {version}, which is before the known position"
            )));
        }
        if entry.is_unplaced() && !shows {
            // Questions about other names would fail in the same way.
            return Err(Failure::transport(format!(
                "its collection is at version {version}, which cannot be compared with the other collections; if it has a separate etcd, add it to --separate-stores"
            )));
        }
        let leaps = entry.leaps(self.cx.now, &version) && !entry.is_rewound();
        let answer = self.of_the_present(kind, known, answer).map_err(Failure::senseless)?;
        if leaps || self.world.coverage().is_far_ahead(self.cx.now, kind, &version) {
            let why = format!("a list returned version {version}, far past all known versions");
            if leaps {
                // Other answers decide the position of the store.
                self.contradicted(kind, why.clone());
            }
            return Err(Failure::senseless(why));
        }
        self.world.raise(self.cx.now, kind, &version);
        Ok(answer)
    }

    /// Handles an answer at version `at` that shows the object of a node.
    fn exists(&mut self, id: NodeId, object: Object, at: ResourceVersion) {
        let node = self.world.graph().node(id);
        let (kind, is_observed) = (node.kind(), node.is_observed());
        let sighting = Sighting { uid: object.uid, resource_version: object.resource_version, facts: object.facts };
        if !is_observed {
            let entry = self.world.coverage().kind(kind);
            let position = entry.position().cloned().filter(|_| entry.is_synced());
            let for_long = self.cx.now.since(entry.since()) >= LIST_AGAIN;
            if let Some(position) = position.filter(|position| position.reached(&sighting.resource_version)) {
                if for_long {
                    self.world.relist(&mut self.cx, kind, "a direct read shows an object that the watch has not shown");
                }
                self.contradicted(
                    kind,
                    format!(
                        "a list at version {at} shows {} as of {}, but the watch, at version {position}, does not",
                        object.name, sighting.resource_version
                    ),
                );
            }
        }
        let target = self.world.object_ref(id);
        self.found(id, &target, &sighting, &at);
    }

    /// Handles an answer at version `at` that shows an object of the graph or a referenced object.
    pub(super) fn found(&mut self, id: NodeId, object: &ObjectRef, sighting: &Sighting, at: &ResourceVersion) {
        if sighting.uid != object.uid {
            return;
        }
        if self.world.graph().node(id).is_observed() {
            self.ledger.end_removal(&object.uid);
            return self.sighted(object, sighting);
        }
        if let Known::Absent(proof) = self.world.graph().node(id).known()
            && proof.version().is_some_and(|proven| at.is_before(proven))
        {
            // The answer is from before the owner was deleted.
            return;
        }
        if let Some(lacked) = self.world.shown(&self.cx, id, sighting, at) {
            let kind = self.world.graph().node(id).kind();
            let name = &object.name;
            self.contradicted(
                kind,
                format!("a list at version {lacked} does not show {name}, but an answer at version {at} does"),
            );
        }
    }

    /// Handles an answer that did not show the object of a node.
    fn not_there(&mut self, id: NodeId, by: CheckBy, version: Option<&ResourceVersion>) {
        let node = self.world.graph().node(id);
        let kind = node.kind();
        if node.is_observed() {
            return self.disagreement(id, version);
        }
        let name = String::from(node.name());
        match self.world.missed(&self.cx, id, by, version) {
            None | Some(Absence::Open) => {}
            Some(Absence::Proven(proof)) => self.prove(id, proof),
            Some(Absence::Contradicts(shown)) => {
                let at = version.map(alloc::string::ToString::to_string).unwrap_or_default();
                let why = format!("a list at version {shown} shows {name}, but a list at version {at} does not");
                self.contradicted(kind, why.clone());
                self.ask_again(kind, id, 0, &Failure::senseless(why));
            }
        }
    }
}
