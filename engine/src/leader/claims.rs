//! Claims: reports of executors about objects. An executor is not the API server. Its observations never enter the
//! graph, and never change the knowledge of a collection or of its store. Each observation is a claim until the API
//! server confirms it.
//!
//! ```text
//! awaited   the leader expects the watch to show the claim       -> settled (the watch shows it), asked (the time is over)
//! asked     a consistent list of the object's name is requested  -> settled (the list agrees, or cannot decide),
//!                                                                   awaited (the list contradicts: another server is asked),
//!                                                                   untrue (enough lists contradict)
//! ```
//!
//! A claim ahead of the watch is normal, because the executor has just written. The leader decides nothing about a
//! written object until the watch has shown the write, or until the API server has answered the leader's own question.
//! The leader asks at once about a claim that contradicts the known history. Either the store was rewound, or the
//! report is not true.

use super::{CheckBy, Event, Leader, Named, Output, ProbeAnswer, ProbeId, Purpose, Timer};
use crate::coverage::KindId;
use crate::follow::Failure;
use crate::graph::{Coordinates, Known, NodeId};
use crate::lease::SessionId;
use crate::lies::{LIES_MAX, Process};
use crate::object::{Facts, Object, ObjectRef, ResourceVersion, Uid};
use crate::work::{GoAwayCause, Outcome, Refusal, RevokeMode, Sighting};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time within which the watch normally shows the observation of an executor. After this time the leader asks the API
/// server.
const SHOWS_WITHIN: Duration = Duration::from_secs(2);
/// Minimum time between two questions about one claim. The time doubles after a failed answer.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of concurrent questions about claims. Further questions wait.
const UNDER_WAY_MAX: usize = 16;
/// Maximum number of concurrent claims. The leader ignores further claims, and judges their objects by the graph.
const CLAIMS_MAX: usize = 65_536;
/// Number of contradicting answers after which a claim counts as untrue. Each question uses a new connection, because
/// one of several servers may lag.
const CONTRADICTED_BY: u32 = 3;
/// Number of failed answers after which a claim is dropped.
const FAILED_MAX: u32 = 5;

/// The content of a report about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// An answer of the API server showed this object.
    Shown(Sighting),
    /// The API server answered that the object is gone, or that the write removed it.
    Gone,
}

#[derive(Debug)]
pub(super) struct Claim {
    object: ObjectRef,
    says: Says,
    /// The name of the report field.
    field: &'static str,
    who: Option<Process>,
    /// The lowest known version of the object when the attempt was decided.
    since: Option<ResourceVersion>,
    /// True if the claim holds decisions about the object until it is settled.
    holds: bool,
    /// The target of a deletion that the existence of the owner prevents.
    prevents: Option<ObjectRef>,
    asked: Option<ProbeId>,
    contradicted: u32,
    failed: u32,
}

/// The unsettled claims, by object.
#[derive(Debug, Default)]
pub(super) struct Claims {
    open: BTreeMap<Uid, Claim>,
    under_way: usize,
    /// Objects whose decisions wait until the existence of an owner is known.
    prevented: BTreeSet<Uid>,
    /// Sessions that end because of findings in this call.
    untrusted: Vec<SessionId>,
}

impl Claims {
    /// Discards the claims of a lost history.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.prevented.clear();
    }

    /// Returns whether a claim about this object holds decisions.
    pub(super) fn covers(&self, uid: &Uid) -> bool {
        self.open.get(uid).is_some_and(|claim| claim.holds) || self.prevented.contains(uid)
    }
}

impl Leader {
    /// Handles the observation of an attempt about its target. `holds` is true if the attempt wrote the target.
    pub(super) fn claim_target(
        &mut self,
        session: Option<SessionId>,
        target: &ObjectRef,
        since: &ResourceVersion,
        sighting: &Sighting,
        outcome: Outcome,
    ) {
        if sighting.uid != target.uid {
            if outcome != Outcome::Replaced {
                self.untrue(session, "observed", format!("the report shows {target} with uid {}", sighting.uid));
            }
            return;
        }
        let Some(id) = self.world.node_of(target) else { return };
        let node = self.world.graph().node(id);
        let kind = self.world.coverage().kind(node.kind());
        let Some(known) = node.resource_version().filter(|_| node.is_observed()) else { return };
        let version = &sighting.resource_version;
        if known == *version {
            if !kind.is_aggregated() && !kind.is_rewound() && differs(node.facts(), &sighting.facts) {
                self.untrue(
                    session,
                    "observed",
                    format!("the report contradicts the known state of {target} at version {version}"),
                );
            }
            return;
        }
        let aggregated = kind.is_aggregated();
        let is_back = version.is_before(since) && !kind.is_rewound();
        if version.is_before(&known) && (aggregated || !is_back) {
            // The watch has passed the observation of the attempt.
            return;
        }
        let passed = kind.is_synced() && kind.has_reached(version);
        let leaps =
            kind.leaps(self.cx.now, version) || self.world.coverage().is_far_ahead(self.cx.now, node.kind(), version);
        let at_once = !aggregated && (is_back || passed || leaps || !version.is_ordered());
        let holds = matches!(outcome, Outcome::Done | Outcome::Unchanged);
        let claim = Claim::of(target, Says::Shown(sighting.clone()), "observed", self.dispatcher.process_of(session));
        let claim = Claim { since: Some(since.clone()), holds, ..claim };
        self.enter(claim, if at_once { Duration::ZERO } else { SHOWS_WITHIN });
    }

    /// Handles a report that the target is gone or was deleted, which the watch has not shown in time.
    pub(super) fn claim_gone(&mut self, who: Process, target: &ObjectRef) {
        self.enter(Claim::of(target, Says::Gone, "outcome", Some(who)), ASK_AGAIN);
    }

    /// Handles the finding of an owner check.
    pub(super) fn claim_owner(
        &mut self,
        session: Option<SessionId>,
        owner: &ObjectRef,
        says: Says,
        prevents: Option<&ObjectRef>,
    ) {
        let Some(id) = self.world.node_of(owner) else { return };
        let node = self.world.graph().node(id);
        if let (Says::Shown(sighting), Known::Absent(proof)) = (&says, node.known())
            && proof.version().is_some_and(|proven| sighting.resource_version.is_before(proven))
        {
            // The read was answered before the owner was deleted.
            return;
        }
        if let (Says::Shown(sighting), Some(known)) = (&says, node.resource_version().filter(|_| node.is_observed()))
            && known.reached(&sighting.resource_version)
        {
            let (facts, same) = (node.facts(), known == sighting.resource_version);
            let is_alive = facts.as_ref().is_some_and(|facts| !facts.terminating);
            if same && differs(facts, &sighting.facts) && !self.world.coverage().kind(node.kind()).is_aggregated() {
                self.untrue(
                    session,
                    "findings",
                    format!("the report contradicts the known state of {owner} at version {known}"),
                );
            } else if let Some(target) = prevents.filter(|_| same || is_alive) {
                self.prevented(target.clone(), owner.clone());
            }
            return;
        }
        let claim = Claim::of(owner, says, "findings", self.dispatcher.process_of(session));
        if let Some(target) = prevents {
            self.claims.prevented.insert(target.uid.clone());
        }
        self.enter(Claim { prevents: prevents.cloned(), ..claim }, Duration::ZERO);
    }

    fn enter(&mut self, claim: Claim, ask_in: Duration) {
        let uid = claim.object.uid.clone();
        // The earlier question concerned another claim.
        self.settle_claim(&uid);
        if self.claims.open.len() >= CLAIMS_MAX {
            return self.release(&claim);
        }
        self.claims.open.insert(uid.clone(), claim);
        if ask_in.is_zero() {
            return self.ask_claim(&uid);
        }
        self.cx.timers.set_after(self.cx.now, ask_in, Timer::Claim(uid));
    }

    /// Asks the API server about an unsettled claim.
    pub(super) fn ask_claim(&mut self, uid: &Uid) {
        let Some(claim) = self.claims.open.get(uid).filter(|claim| claim.asked.is_none()) else { return };
        if self.claims.under_way >= UNDER_WAY_MAX || self.history.is_suspect() {
            return self.cx.timers.set_after(self.cx.now, ASK_AGAIN, Timer::Claim(uid.clone()));
        }
        let object = claim.object.clone();
        let fresh = claim.contradicted > 0;
        let kind = self.world.kind_of(&object);
        let Some(served) = self.world.coverage().kind(kind).served().filter(|_| self.cx.term.is_some()) else {
            return self.settle_claim(uid);
        };
        let id = self.prober.begin(kind, Purpose::Claim { uid: uid.clone() }, self.world.known(kind));
        self.claims.under_way += 1;
        if let Some(claim) = self.claims.open.get_mut(uid) {
            claim.asked = Some(id);
        }
        let named = Named { name: object.name, by: CheckBy::List };
        self.cx.probe(id, served, Some(object.namespace), None, Some(named), fresh);
    }

    pub(super) fn claim_answered(
        &mut self,
        probe: ProbeId,
        (kind, uid): (KindId, Uid),
        known: &super::KnownVersions,
        answer: Result<ProbeAnswer, Failure>,
    ) {
        self.claims.under_way = self.claims.under_way.saturating_sub(1);
        let Some(claim) = self.claims.open.get_mut(&uid).filter(|claim| claim.asked == Some(probe)) else { return };
        claim.asked = None;
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if claim.failed < FAILED_MAX => {
                claim.failed += 1;
                let wait = ASK_AGAIN.saturating_mul(1 << claim.failed);
                return self.cx.timers.set_after(self.cx.now, wait, Timer::Claim(uid));
            }
            Err(_) => return self.settle_claim(&uid),
        };
        // Answers of the API server that contradict each other say nothing about an executor. This call detects a store
        // rewind.
        let Some(answer) = self.claim_believed(kind, known, answer) else { return self.settle_claim(&uid) };
        let at = answer.resource_version;
        let shown = answer.objects.into_iter().find(|object| object.uid == uid);
        let Some(claim) = self.claims.open.get_mut(&uid) else { return };
        let entry = self.world.coverage().kind(kind);
        let judged = !entry.is_aggregated() && !entry.is_unplaced() && entry.contradiction.is_none();
        let why = claim.contradiction(&at, shown.as_ref()).filter(|_| judged);
        if why.is_some() && claim.contradicted + 1 < CONTRADICTED_BY {
            claim.contradicted += 1;
            return self.cx.timers.set_after(self.cx.now, ASK_AGAIN, Timer::Claim(uid));
        }
        if let Some(why) = why {
            let (who, field) = (claim.who.clone(), claim.field);
            self.accuse(who, field, why);
        } else if let Some(target) = claim.prevents.clone().filter(|_| shown.is_some()) {
            let owner = claim.object.clone();
            self.prevented(target, owner);
        }
        if let Some(object) = shown {
            self.claim_shown(kind, object, &at);
        }
        self.settle_claim(&uid);
    }

    /// Returns the answer if it can describe the current state of the store.
    fn claim_believed(
        &mut self,
        kind: KindId,
        known: &super::KnownVersions,
        answer: ProbeAnswer,
    ) -> Option<ProbeAnswer> {
        let version = answer.resource_version.clone();
        let entry = self.world.coverage().kind(kind);
        if entry.is_rewound() || self.history.is_suspect() {
            return None;
        }
        let leaps = entry.leaps(self.cx.now, &version);
        let answer = self.of_the_present(kind, known, answer).ok()?;
        if leaps {
            self.contradicted(kind, format!("a list returned version {version}, far past all known versions"));
        }
        if leaps || self.world.coverage().is_far_ahead(self.cx.now, kind, &version) {
            return None;
        }
        self.world.raise(self.cx.now, kind, &version);
        Some(answer)
    }

    /// Handles the answer to the leader's own question like any other sighting.
    fn claim_shown(&mut self, kind: KindId, object: Object, at: &ResourceVersion) {
        let coordinates = Coordinates { kind, namespace: object.namespace.clone(), name: object.name.clone() };
        let Some(id) = self.world.graph().find(&object.uid, &coordinates) else { return };
        let target = self.world.object_ref(id);
        let sighting = Sighting { uid: object.uid, resource_version: object.resource_version, facts: object.facts };
        if self.world.graph().node(id).is_observed() {
            self.sighted(&target, &sighting);
        } else {
            self.found(id, &target, &sighting, at);
        }
    }

    /// Settles a claim after a list or a watch has shown the object at this version.
    pub(super) fn settle_shown(&mut self, id: NodeId) {
        if self.claims.open.is_empty() {
            return;
        }
        let node = self.world.graph().node(id);
        let (uid, version) = (node.uid(), node.resource_version());
        let Some(claim) = self.claims.open.get(&uid) else { return };
        let Says::Shown(sighting) = &claim.says else { return };
        let at = &sighting.resource_version;
        let (there, same) =
            (version.is_some_and(|version| version.reached(at)), node.resource_version().as_ref() == Some(at));
        if !there {
            return;
        }
        if same && differs(node.facts(), &sighting.facts) && !self.world.coverage().kind(node.kind()).is_aggregated() {
            let (who, field, why) = (
                claim.who.clone(),
                claim.field,
                format!("the report contradicts the known state of {} at version {at}", claim.object),
            );
            self.accuse(who, field, why);
        } else if let Some(target) = claim.prevents.clone() {
            let owner = claim.object.clone();
            self.prevented(target, owner);
        }
        self.settle_claim(&uid);
    }

    /// Discards the claim about this object.
    pub(super) fn settle_claim(&mut self, uid: &Uid) {
        if let Some(claim) = self.claims.open.remove(uid) {
            self.release(&claim);
        }
    }

    /// Marks the objects that waited for a claim.
    fn release(&mut self, claim: &Claim) {
        if let Some(target) = &claim.prevents {
            self.claims.prevented.remove(&target.uid);
            self.world.mark_uid(&target.uid);
            self.world.mark_deleting_owners(&target.uid);
        }
        if claim.holds {
            self.world.mark_uid(&claim.object.uid);
            self.world.mark_deleting_owners(&claim.object.uid);
        }
    }

    /// Records that a report of this session cannot be true.
    pub(super) fn untrue(&mut self, session: Option<SessionId>, field: &'static str, why: String) {
        let who = self.dispatcher.process_of(session);
        self.accuse(who, field, why);
    }

    fn accuse(&mut self, who: Option<Process>, field: &'static str, why: String) {
        let Some(process) = who else { return };
        let (count, first) = self.dispatcher.note_lie(self.cx.now, &process, field);
        let is_its =
            |id: &SessionId| self.dispatcher.leases().session(*id).is_some_and(|session| session.process() == process);
        let session = self.dispatcher.leases().of_executor(&process.executor).filter(is_its);
        let Process { executor, incarnation, origin: _ } = process;
        let refused = count >= LIES_MAX;
        self.cx.event(Event::Untrue { executor, incarnation, field, why, count, first, refused });
        if let Some(session) = session.filter(|_| refused) {
            self.claims.untrusted.push(session);
        }
    }

    /// Ends the sessions of executors that are no longer trusted.
    pub(super) fn refuse_untrusted(&mut self) {
        for id in core::mem::take(&mut self.claims.untrusted) {
            let Some(session) = self.dispatcher.leases().session(id) else { continue };
            let (stream, leases) = (session.stream, session.leases.iter().copied().collect::<Vec<_>>());
            let process = self.dispatcher.process_of(Some(id));
            let left = process.and_then(|process| self.dispatcher.refused_for(self.cx.now, &process));
            self.dispatcher.revoke(&mut self.cx, &leases, RevokeMode::Stop, "its reports are not true");
            if let Some(stream) = stream {
                let retry_in = left.unwrap_or_default();
                self.cx.outputs.push_back(Output::Refuse { stream, refusal: Refusal::Untrusted { retry_in } });
            }
            self.end_session(id, "untrue reports", None::<(GoAwayCause, Duration)>);
        }
    }
}

impl Claim {
    fn of(object: &ObjectRef, says: Says, field: &'static str, who: Option<Process>) -> Claim {
        Claim {
            object: object.clone(),
            says,
            field,
            who,
            since: None,
            holds: false,
            prevents: None,
            asked: None,
            contradicted: 0,
            failed: 0,
        }
    }

    /// Returns the contradiction between the claim and a consistent list of the object's name that was requested after
    /// the report arrived.
    fn contradiction(&self, at: &ResourceVersion, shown: Option<&Object>) -> Option<String> {
        let object = &self.object;
        match (&self.says, shown) {
            (Says::Shown(seen), _) if !seen.resource_version.is_ordered() => {
                Some(format!("{object} has no version {}", seen.resource_version))
            }
            (Says::Shown(seen), _) if at.is_before(&seen.resource_version) => Some(format!(
                "{object} cannot have been at version {}: the store is at version {at}",
                seen.resource_version
            )),
            (Says::Shown(seen), _)
                if self.since.as_ref().is_some_and(|since| seen.resource_version.is_before(since)) =>
            {
                Some(format!(
                    "{object} was already past version {}, and the store was not rewound",
                    seen.resource_version
                ))
            }
            (Says::Shown(seen), Some(now)) if now.resource_version.is_before(&seen.resource_version) => {
                let (at, was) = (&now.resource_version, &seen.resource_version);
                Some(format!("{object} is at version {at}, and was never at version {was}"))
            }
            (Says::Shown(seen), Some(now)) if now.resource_version == seen.resource_version => {
                differs(Some(now.facts.clone()), &seen.facts).then(|| {
                    format!("the report contradicts the known state of {object} at version {}", seen.resource_version)
                })
            }
            (Says::Gone, Some(now)) if !now.facts.terminating || self.field == "findings" => {
                Some(format!("{object} exists, at {}", now.resource_version))
            }
            (Says::Shown(_) | Says::Gone, _) => None,
        }
    }
}

/// Returns whether an executor and the API server disagree about facts of an object that a decision can use.
fn differs(known: Option<Facts>, said: &Facts) -> bool {
    let rests_on = |facts: Facts| {
        let mut facts = Facts { deletion_time: None, ..facts };
        facts.bound();
        facts
    };
    known.is_some_and(|known| rests_on(known) != rests_on(said.clone()))
}
