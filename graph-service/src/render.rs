//! Events of the engine as log lines and counters. The engine itself neither logs nor counts.

use crate::clock::Clock;
use crate::decisions::Writer;
use crate::metrics::Metrics;
use crate::warnings::Warning;
use engine::coverage::State;
use engine::leader::{Cause, Event};
use engine::object::{GroupResource, Name, ObjectRef};
use engine::work::{ActionKind, Outcome};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Longest round that is not worth a line: readers and executors wait meanwhile.
const ROUND_SLOW: Duration = Duration::from_millis(250);

/// What the API server goes on refusing is worth a line so often.
const REFUSED_AGAIN: Duration = Duration::from_secs(600);
/// Executors remembered for that; beyond them, each such report is a line.
const EXECUTORS_REMEMBERED_MAX: usize = 1024;

/// Receives every event of the engine, in order. It is called by the collector's one task, so it must be quick.
pub type Observer = Box<dyn FnMut(&Event) + Send>;

/// Logs, counts, and passes on to whoever watches.
pub(crate) struct Render {
    metrics: Metrics,
    observer: Option<Observer>,
    warnings: mpsc::Sender<Warning>,
    decisions: Writer,
    clock: Clock,
    /// Something went on with what is decided in this round.
    moved: bool,
    /// Collections that were reported as lost, with the reason: a retry that fails likewise is no news, and a return is.
    lost: BTreeMap<GroupResource, String>,
    /// What the API server refused, with when that was last reported: thousands of items may meet one missing rule.
    refused: BTreeMap<(GroupResource, ActionKind, Outcome), Instant>,
    /// Executors whose credentials were not accepted, with when that was last reported.
    unauthenticated: BTreeMap<Name, Instant>,
    /// It was reported that owners that orphan are forgotten early.
    forgets: bool,
}

impl Render {
    pub(crate) fn new(
        metrics: Metrics,
        observer: Option<Observer>,
        warnings: mpsc::Sender<Warning>,
        decisions: Writer,
        clock: Clock,
    ) -> Render {
        Render {
            metrics,
            observer,
            warnings,
            decisions,
            clock,
            moved: false,
            lost: BTreeMap::new(),
            refused: BTreeMap::new(),
            unauthenticated: BTreeMap::new(),
            forgets: false,
        }
    }

    /// What came of a round may be seen.
    pub(crate) fn publish(&mut self) {
        self.decisions.publish();
    }

    /// A round is over.
    pub(crate) fn round(&mut self, inputs: usize, facts: usize, took: Duration) {
        self.metrics.round(facts, took);
        if std::mem::take(&mut self.moved) {
            self.metrics.moved(self.clock.now());
        }
        if took > ROUND_SLOW {
            tracing::info!(inputs, took_ms = took.as_millis(), "a round of inputs took long");
        }
    }

    /// Per-object decisions at debug, changes of state at info, and a warning only for what somebody may have to act on.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            // The decision was counted when this replica made it.
            Event::Decided { repeated: true, .. } => {}
            Event::Decided { item, generation, target, action, causes, .. } => {
                self.metrics.decided(*action, causes);
                tracing::debug!(item, generation, %target, uid = %target.uid, action = action.as_str(), why = %Causes(causes), "decided");
            }
            // What takes its place has been counted as decided.
            Event::Withdrawn { replaced: true, .. } => {}
            Event::Withdrawn { item, target, action, .. } => {
                self.metrics.withdrawn(*action);
                self.moved = true;
                tracing::debug!(item, %target, uid = %target.uid, action = action.as_str(), "decision withdrawn");
            }
            Event::Granted { item, target, action, executor, attempt, .. } => {
                self.metrics.granted(*action);
                self.moved = true;
                tracing::debug!(item, %target, uid = %target.uid, action = action.as_str(), %executor, attempt, "granted");
            }
            Event::Attempted {
                item,
                target,
                action,
                outcome,
                executor,
                http_status,
                message,
                api_calls,
                age,
                grounds,
                ..
            } => {
                self.metrics.attempted(*action, &grounds.causes, *outcome);
                self.moved = true;
                self.attempted(target, *action, *outcome, executor, message);
                let (action, outcome, age_ms) = (action.as_str(), outcome.as_str(), age.as_millis());
                tracing::debug!(item, %target, uid = %target.uid, action, outcome, %executor, http_status, message, api_calls, age_ms, "attempt ended");
            }
            Event::Held { target, action, pause, .. } => {
                tracing::debug!(%target, uid = %target.uid, action = action.as_str(), ?pause, "decision held or released");
            }
            Event::ExecutorRefused { executor, why } => {
                tracing::warn!(%executor, why, "an executor is refused");
            }
            Event::ReportedLate { target, action, outcome, executor, lease_term, .. } => {
                self.metrics.reported_late.inc();
                let (action, outcome, term) = (action.as_str(), outcome.as_str(), lease_term.number);
                tracing::debug!(%target, uid = %target.uid, action, outcome, %executor, term, "attempt of an earlier term ended");
            }
            Event::Confirmed { target, resource_version, .. } => {
                tracing::debug!(%target, uid = %target.uid, ?resource_version, "deletion confirmed");
            }
            Event::AwaitingFinalizers { target, finalizers, .. } => {
                tracing::debug!(%target, uid = %target.uid, ?finalizers, "deletion waits for finalizers of others");
            }
            Event::Removed { object, caused_by_us, owner_gone } => {
                self.metrics.removed(*caused_by_us, *owner_gone);
                tracing::debug!(%object, uid = %object.uid, caused_by_us, "object left the graph");
            }
            Event::Proven { owner, proof } => {
                self.metrics.proven(proof);
                tracing::debug!(%owner, uid = %owner.uid, ?proof, "owner proven absent");
            }
            Event::Prevented { target, owner } => {
                self.metrics.prevented.inc();
                tracing::info!(%target, uid = %target.uid, %owner, owner_uid = %owner.uid, "deletion prevented: the owner is alive");
            }
            Event::Asked { owner, by, answer } => {
                self.metrics.asked(answer);
                tracing::debug!(%owner, uid = %owner.uid, ?by, answer, "asked whether an owner is there");
            }
            Event::Inconsistent { collection, why } => {
                self.metrics.inconsistent.inc();
                tracing::warn!(%collection, why, "inconsistent reads: answers of the API server contradict each other; look for API servers or etcd members that lag, or that serve another store");
            }
            Event::KeptApart { collection } => {
                tracing::warn!(%collection, "the lists of this collection do not stand where the others do: no owner in it is proven absent, and none of its objects deleted because of a list; if the API server keeps it in an etcd of its own, name it with --separate-stores, else look for API servers that lag");
            }
            Event::Undone { target, action, times, wait } => {
                self.metrics.undone.inc();
                let (action, wait_s) = (action.as_str(), wait.as_secs());
                tracing::warn!(%target, uid = %target.uid, action, times, wait_s, "a write was accepted and undone; find what writes the object, for example by its managedFields");
            }
            Event::Collection { collection, state, error } => self.collection(collection, *state, error),
            Event::SessionOpened { executor, version, protocol } => {
                tracing::info!(%executor, version, protocol, "executor connected");
            }
            Event::SessionEnded { executor, why, leases } => {
                tracing::info!(%executor, why, leases, "executor's session ended");
            }
            Event::Untrue { executor, incarnation, field, why, count, first, refused } => {
                self.metrics.untrue.get_or_create(&[("field", *field)]).inc();
                if *refused {
                    tracing::warn!(%executor, %incarnation, field, why, count, "too many reports of an executor are not true: it is refused for ten minutes; check whether its API server lags, or whether another process uses its identity");
                } else if *first {
                    tracing::warn!(%executor, %incarnation, field, why, count, "a report of an executor is not true, and is not believed");
                } else {
                    tracing::debug!(%executor, %incarnation, field, why, count, "a report of an executor is not true, and is not believed");
                }
            }
            Event::TermGained(term) => {
                tracing::info!(election = %term.election, term = term.number, "this replica leads");
            }
            Event::TermLost => tracing::info!("this replica does not lead any more"),
            Event::GrantsStopped { why } => tracing::warn!(why, "no work is granted"),
            Event::GrantsResumed => tracing::info!("work is granted again"),
            Event::Rewound { collection, why } => {
                self.metrics.rewinds.inc();
                tracing::warn!(%collection, why, "the API server's history went back; everything is listed again");
            }
            Event::OwnerInOtherNamespace { dependent, reference } => {
                self.metrics.misplaced.inc();
                tracing::info!(%dependent, uid = %dependent.uid, owner = %reference.name, owner_uid = %reference.uid, "reference to an owner in another namespace");
                // A full queue drops the event; the line and the counter are there.
                let (dependent, reference) = (dependent.clone(), reference.clone());
                let _full = self.warnings.try_send(Warning::OwnerInOtherNamespace { dependent, reference });
            }
            Event::Readopted { dependent, resource_version, owner, first } => {
                self.metrics.readopted.inc();
                if *first {
                    tracing::warn!(%dependent, uid = %dependent.uid, %owner, owner_uid = %owner.uid, "reference to an owner that orphaned the object is there again, and is taken away; find the controller that writes it");
                    let _full = self.warnings.try_send(Warning::Readopted {
                        dependent: dependent.clone(),
                        resource_version: resource_version.clone(),
                        owner: owner.clone(),
                        writer: None,
                    });
                } else {
                    tracing::debug!(%dependent, uid = %dependent.uid, %owner, owner_uid = %owner.uid, "reference to an owner that orphaned the object is there once more, and is taken away");
                }
            }
            Event::OrphaningForgotten { remembered_for } => {
                self.metrics.orphaning_forgotten.inc();
                if !std::mem::replace(&mut self.forgets, true) {
                    let remembered_for_s = remembered_for.as_secs();
                    tracing::warn!(
                        remembered_for_s,
                        "more owners orphan their dependents than can be remembered for an hour; dependents whose reference comes back to one that is forgotten are collected"
                    );
                }
            }
            Event::TooManyReferences { object, count } => {
                tracing::warn!(%object, uid = %object.uid, count, "object has more owner references than the collector looks at; it is kept until some are removed");
                let _full =
                    self.warnings.try_send(Warning::TooManyReferences { object: object.clone(), count: *count });
            }
            Event::Unusable { collection, why } => {
                self.metrics.unusable.inc();
                tracing::debug!(%collection, why, "object cannot be used and is left alone");
            }
            Event::PauseTaken { name, scope, reason, actor, problem, lasts } => {
                let lasts_s = lasts.as_secs();
                if problem.is_empty() {
                    tracing::info!(pause = %name, ?scope, reason, actor, lasts_s, "paused");
                } else {
                    tracing::warn!(pause = %name, problem, reason, lasts_s, "paused, and something is wrong with the pause");
                }
            }
            Event::PauseEffective { name } => tracing::info!(pause = %name, "the pause is effective"),
            Event::PauseEnded { name, why } => tracing::info!(pause = %name, why, "the pause has ended"),
            Event::PausesUnknown { why } => {
                tracing::warn!(why, "it is not known which pauses there are; nothing that destroys is granted");
            }
            Event::PausesKnown => tracing::info!("it is known again which pauses there are"),
            Event::Rejected { why } => {
                // At debug, because a misbehaving peer could write the log full.
                self.metrics.rejected.inc();
                tracing::debug!(why, "input ignored");
            }
        }
        self.decisions.note(event, self.clock.wire());
        if let Some(observer) = &mut self.observer {
            observer(event);
        }
    }

    /// A refusal does not pass by itself: it takes a rule, a credential or a webhook that somebody mends.
    fn attempted(&mut self, target: &ObjectRef, action: ActionKind, outcome: Outcome, executor: &Name, message: &str) {
        match outcome {
            Outcome::Forbidden
            | Outcome::AdmissionDenied
            | Outcome::AdmissionFailed
            | Outcome::Unsupported
            | Outcome::Invalid => {}
            Outcome::Done
            | Outcome::Unchanged
            | Outcome::Gone
            | Outcome::Replaced
            | Outcome::Conflict
            | Outcome::OwnerExists
            | Outcome::Throttled
            | Outcome::Transient
            | Outcome::Ambiguous
            | Outcome::Abandoned => return,
            Outcome::Unauthenticated => return self.unauthenticated(executor, message),
        }
        let collection = target.group_resource();
        let now = Instant::now();
        let reported = self.refused.get(&(collection.clone(), action, outcome));
        if reported.is_none_or(|&at| now.duration_since(at) >= REFUSED_AGAIN) {
            let (action_word, outcome_word) = (action.as_str(), outcome.as_str());
            tracing::warn!(%collection, action = action_word, outcome = outcome_word, %target, message, "the API server refuses work; it is tried again");
            self.refused.retain(|_, at| now.duration_since(*at) < REFUSED_AGAIN);
            self.refused.insert((collection, action, outcome), now);
        }
    }

    /// What an executor's credentials cannot do is no matter of the object: one line for each executor.
    fn unauthenticated(&mut self, executor: &Name, message: &str) {
        let now = Instant::now();
        let reported = self.unauthenticated.get(executor);
        if reported.is_none_or(|&at| now.duration_since(at) >= REFUSED_AGAIN) {
            tracing::warn!(%executor, message, "the API server does not accept an executor's credentials; it takes no work until it does");
            self.unauthenticated.retain(|_, at| now.duration_since(*at) < REFUSED_AGAIN);
            if self.unauthenticated.len() < EXECUTORS_REMEMBERED_MAX {
                self.unauthenticated.insert(executor.clone(), now);
            }
        }
    }

    fn collection(&mut self, collection: &GroupResource, state: State, error: &str) {
        let word = state.as_str();
        match state {
            State::Failed | State::Stale => {
                let known = self.lost.insert(collection.clone(), error.to_owned());
                if known.as_deref() != Some(error) {
                    tracing::warn!(%collection, state = word, error, "collection cannot be followed");
                }
            }
            State::Synced if !error.is_empty() => {
                self.lost.insert(collection.clone(), error.to_owned());
                tracing::warn!(%collection, state = word, error, "collection will be missing after a restart");
            }
            State::Synced | State::Ignored if self.lost.remove(collection).is_some() => {
                tracing::info!(%collection, state = word, "collection is followed again");
            }
            State::Synced | State::Listing | State::Ignored => {
                tracing::debug!(%collection, state = word, "collection changed its state");
            }
        }
    }
}

impl std::fmt::Debug for Render {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Render").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Causes in one line.
struct Causes<'a>(&'a [Cause]);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, cause) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match cause {
                Cause::OwnerAbsent { kind, name, uid, proof, .. } => {
                    write!(f, "{kind} {name} ({uid}) is absent by {proof:?}")?
                }
                Cause::OwnerWaiting { kind, name, uid, .. } => {
                    write!(f, "{kind} {name} ({uid}) waits for its dependents")?
                }
                Cause::OwnerOrphans { kind, name, uid, .. } => {
                    write!(f, "{kind} {name} ({uid}) orphans its dependents")?
                }
                Cause::KeptBy { kind, name, uid, .. } => write!(f, "kept by {kind} {name} ({uid})")?,
                Cause::NoBlockingDependents => f.write_str("no blocking dependents are left")?,
                Cause::NoDependents => f.write_str("every dependent has lost its reference")?,
                Cause::Cycle => f.write_str("it is in a cycle of blocking references")?,
            }
        }
        Ok(())
    }
}
