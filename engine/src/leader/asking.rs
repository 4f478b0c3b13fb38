//! Questions whether one object is there. The leader has the graph service ask them: no executor's word proves that an owner is absent.
//!
//! Each collection has a row of nodes that wait, and the rows take turns. Only so many questions are under way at once, whatever waits.
//! A node whose question failed waits by itself before it is asked about again, so that it holds up no other. Where the server has not
//! answered some questions in a row, all of the collection wait: one is asked at a time, less and less often, and always about another
//! node.

use super::{CheckBy, Event, Leader, Named, Output, Probe, ProbeAnswer, ProbeId, Purpose, Timer};
use crate::coverage::{Coverage, KindId, State};
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

/// Questions under way, at most,
const UNDER_WAY_MAX: usize = 32;
/// and in one collection.
const UNDER_WAY_EACH_MAX: usize = 24;
/// After an answer that failed, doubling.
const FAILED_MIN: Duration = Duration::from_millis(500);
/// Short enough that everything is asked within ten seconds of a server's recovery.
const FAILED_MAX: Duration = Duration::from_secs(5);
/// Each of many nodes whose questions fail is asked about so much less often, that all of them together take 20 questions a second.
const FAILED_EACH: Duration = Duration::from_millis(50);
/// Questions in a row that the server has not answered, after which it is asked one at a time.
const DOWN_AFTER: u32 = 3;

/// A collection that does not show what is there is listed anew, but no sooner than this after the list before.
const LIST_AGAIN: Duration = Duration::from_secs(30);

/// Nodes that wait to be asked about.
#[derive(Debug, Default)]
pub(super) struct Questions {
    rows: BTreeMap<KindId, Row>,
    /// The row in which a node waits.
    waiting: BTreeMap<NodeId, KindId>,
    under_way: usize,
    /// The probe that asks about a node, and how often in a row asking about it has failed.
    asked: BTreeMap<NodeId, (ProbeId, u32)>,
    /// The row that had its turn last.
    turn: Option<KindId>,
}

/// The nodes of one collection.
#[derive(Debug, Default)]
struct Row {
    waiting: BTreeSet<NodeId>,
    /// Nodes that were asked about in vain so often, by the time at which they are asked about again.
    failed: BTreeMap<(Time, NodeId), u32>,
    /// The time at which each of these is asked about again.
    again: BTreeMap<NodeId, Time>,
    under_way: usize,
    /// The new node that was asked about last: the next one comes after it.
    last: Option<NodeId>,
    /// The last turn was of a node that had failed.
    retried: bool,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    why: String,
    since: Time,
    /// Questions in a row that the server has not answered.
    unanswered: u32,
    /// Whatever has failed, one node is asked about by then.
    next: Time,
}

impl Failing {
    fn is_down(&self) -> bool {
        self.unanswered >= DOWN_AFTER
    }
}

impl Row {
    /// Whether one that has failed may be asked about.
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

    /// Who waits.
    fn len(&self) -> usize {
        self.waiting.len() + self.failed.len()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.failed.is_empty()
    }

    /// The next node, and how often asking about it has failed. New ones and ones that have failed take turns where both may be asked.
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

    /// A question about a node that had failed `times` times before has failed. Gives when to look again what to ask.
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

    /// An answer has come that can be believed, about a node that had failed `times` times.
    fn answered(&mut self, times: u32) {
        if times > 0 {
            // What failed for all of them may be over.
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

    /// Nothing is to be asked about this node any more.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.asked.remove(&node);
        if let Some(kind) = self.waiting.remove(&node)
            && let Some(row) = self.rows.get_mut(&kind)
        {
            row.remove(node);
            self.drop_idle(kind);
        }
    }

    /// What is under way is about a history that is over.
    pub(super) fn void(&mut self) {
        self.asked.clear();
    }

    fn drop_idle(&mut self, kind: KindId) {
        if self.rows.get(&kind).is_some_and(|row| row.is_empty() && row.under_way == 0) {
            self.rows.remove(&kind);
        }
    }

    /// Takes the next node to ask about.
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

    /// An answer has come. Gives how often asking had failed before, or nothing if it is not awaited any more.
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

    /// The node waits to be asked about again. Gives when to look what to ask.
    fn failed(&mut self, now: Time, kind: KindId, node: NodeId, times: u32, failure: &Failure) -> Time {
        self.waiting.insert(node, kind);
        self.rows.entry(kind).or_default().fail(now, node, times, failure)
    }

    fn answered(&mut self, kind: KindId, times: u32) {
        if let Some(row) = self.rows.get_mut(&kind) {
            row.answered(times);
        }
    }

    /// How many questions wait, and why.
    pub(super) fn view(&self, coverage: &Coverage) -> View {
        let unanswered = |(&kind, row): (&KindId, &Row)| {
            let failing = row.failing.as_ref()?;
            let served = coverage.kind(kind).served.as_ref()?;
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
    /// Has the graph service look whether this node's object is there, as soon as there is room.
    pub(super) fn ask_about(&mut self, id: NodeId) {
        self.prober.questions_mut().wait(self.world.graph().node(id).kind(), id);
    }

    /// Asks what there is room for.
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

    /// False where there is nothing to ask any more.
    fn ask_now(&mut self, kind: KindId, id: NodeId, probe: ProbeId) -> bool {
        let Some((served, node)) = self.world.coverage().kind(kind).served.clone().zip(self.world.graph().get(id))
        else {
            return false;
        };
        let (uid, namespace, name) = (node.uid(), node.namespace().clone(), node.name().into());
        let step = if node.is_observed() { None } else { self.world.step(kind, id) };
        let (by, fresh) = step.map_or((CheckBy::List, false), |step| (step.by, step.fresh));
        let known = self.world.known(kind);
        self.prober.begin_question(probe, Purpose::Existence { kind, node: id, uid, by }, known);
        self.cx.outputs.push_back(Output::Probe(Probe {
            id: probe,
            collection: served.group_resource,
            kind: served.kind,
            version: served.version,
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            limit: None,
            object: Some(Named { name, by }),
            fresh,
        }));
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
        let Some(times) = awaited.filter(|_| is_there && self.world.coverage().kind(kind).served.is_some()) else {
            // A node that is asked about again waits anew.
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

    /// The same question once more, later.
    fn ask_again(&mut self, kind: KindId, id: NodeId, times: u32, failure: &Failure) {
        let at = self.prober.questions_mut().failed(self.cx.now, kind, id, times, failure);
        self.cx.timers.set(at, Timer::Questions);
    }

    /// Whether an answer can be one of the store as it is: not from before what was known when it was asked for, not from another history,
    /// and not of a collection that nothing can be compared with.
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
            return Err(Failure::senseless(format!("a list of its name stands at {version}, before what was seen")));
        }
        if entry.is_unplaced() && !shows {
            // No other name will be answered better.
            return Err(Failure::transport(format!(
                "its collection stands at {version}, which does not compare with the others: if it has an etcd of its own, \
                 --separate-stores has to name it"
            )));
        }
        let leaps = entry.leaps(self.cx.now, &version) && entry.rewound.is_none();
        let answer = self.of_the_present(kind, known, answer).map_err(Failure::senseless)?;
        if leaps || self.world.coverage().is_far_ahead(self.cx.now, kind, &version) {
            let why = format!("a list stands at {version}, far past all that was seen");
            if leaps {
                // Where the store stands, other answers have to say.
                self.contradicted(kind, why.clone());
            }
            return Err(Failure::senseless(why));
        }
        self.world.raise(self.cx.now, kind, &version);
        Ok(answer)
    }

    /// An answer at `at` showed the object of a node.
    fn exists(&mut self, id: NodeId, object: Object, at: ResourceVersion) {
        let node = self.world.graph().node(id);
        let (kind, is_observed) = (node.kind(), node.is_observed());
        let sighting = Sighting { uid: object.uid, resource_version: object.resource_version, facts: object.facts };
        if !is_observed {
            let entry = self.world.coverage().kind(kind);
            let position = entry.position.clone().filter(|_| entry.state == State::Synced);
            let for_long = self.cx.now.since(entry.since) >= LIST_AGAIN;
            if let Some(position) = position.filter(|position| position.reached(&sighting.resource_version)) {
                if for_long {
                    self.world.relist(&mut self.cx, kind, "a question has shown an object that its watch has not");
                }
                self.contradicted(
                    kind,
                    format!(
                        "a list at {at} shows {} as of {}, and its watch, which stands at {position}, does not",
                        object.name, sighting.resource_version
                    ),
                );
            }
        }
        let target = self.world.object_ref(id);
        self.found(id, &target, &sighting, &at);
    }

    /// An answer at `at` showed an object that the graph holds, or has heard of.
    pub(super) fn found(&mut self, id: NodeId, object: &ObjectRef, sighting: &Sighting, at: &ResourceVersion) {
        if sighting.uid != object.uid {
            return;
        }
        if self.world.graph().node(id).is_observed() {
            self.ledger.end_removal(&object.uid);
            return self.sighted(object, sighting);
        }
        if let Known::Absent(proof) = self.world.graph().node(id).known()
            && proof.version().is_some_and(|proven| sighting.resource_version.is_before(proven))
        {
            // A read that was answered before the owner went.
            return;
        }
        if let Some(lacked) = self.world.shown(&self.cx, id, sighting, at) {
            let kind = self.world.graph().node(id).kind();
            let name = &object.name;
            self.contradicted(kind, format!("a list at {lacked} does not show {name}, and an answer at {at} does"));
        }
    }

    /// An object was not where it was looked for.
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
                let why = format!("a list at {shown} shows {name}, and one at {at} does not");
                self.contradicted(kind, why.clone());
                self.ask_again(kind, id, 0, &Failure::senseless(why));
            }
        }
    }
}
