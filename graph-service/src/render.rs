//! Turns events of the engine into log lines and counters. The engine itself neither logs nor counts.

mod cascades;
mod guards;
#[cfg(test)]
mod tests;

use crate::clock::wire;
use crate::decisions::Writer;
use crate::metrics::Metrics;
use crate::warnings::Warning;
use engine::coverage::State;
use engine::leader::{AttemptEnd, Cause, Event};
use engine::object::{GroupResource, Name, ObjectRef};
use engine::parity::{Class, Disagreement};
use engine::work::{ActionKind, Outcome};
use runtime::clock::Clock;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Duration from which a round is logged, because readers and executors wait for it.
const ROUND_SLOW: Duration = Duration::from_millis(250);

/// Time after which a repeated refusal of the API server is logged again.
const REFUSED_AGAIN: Duration = Duration::from_secs(600);
/// The least time between two warnings about disagreements with another collector.
const DISAGREED_AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of executors whose refusals are remembered. The refusals of further executors are all logged.
const EXECUTORS_REMEMBERED_MAX: usize = 1024;

/// Receives every event of the engine, in order. The collector's task calls it, so it must be fast.
pub type Observer = Box<dyn FnMut(&Event) + Send>;

/// Logs and counts events, and passes them on.
pub(crate) struct Render {
    metrics: Metrics,
    observer: Option<Observer>,
    warnings: mpsc::Sender<Warning>,
    decisions: Writer,
    clock: Clock,
    /// This round made progress.
    moved: bool,
    /// Lost collections with the logged reason. A repeated failure for the same reason is not logged. The return of the
    /// collection is.
    lost: BTreeMap<GroupResource, String>,
    /// Refusals of the API server with the time of the last log line. One missing right may refuse thousands of items.
    refused: BTreeMap<(GroupResource, ActionKind, Outcome), Instant>,
    /// The last warning about a disagreement with another collector.
    disagreed: Option<Instant>,
    /// Executors with refused credentials, and the time of the last log line.
    unauthenticated: BTreeMap<Name, Instant>,
    /// The drop of records about orphaning owners was logged.
    forgets: bool,
    guards: guards::Guards,
    cascades: cascades::Cascades,
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
            disagreed: None,
            unauthenticated: BTreeMap::new(),
            forgets: false,
            guards: guards::Guards::default(),
            cascades: cascades::Cascades::default(),
        }
    }

    /// Makes the results of a round visible.
    pub(crate) fn publish(&mut self) {
        self.decisions.publish();
    }

    /// Records the end of a round.
    pub(crate) fn round(&mut self, inputs: usize, facts: usize, took: Duration) {
        self.metrics.round(facts, took);
        let (finished, mut unreported) = self.cascades.finished();
        for about in finished {
            unreported += u64::from(self.warnings.try_send(Warning::About(about)).is_err());
        }
        self.metrics.cascades_unreported.inc_by(unreported);
        if std::mem::take(&mut self.moved) {
            self.metrics.moved(self.clock.now());
        }
        if took > ROUND_SLOW {
            tracing::info!(inputs, took_ms = took.as_millis(), "a round of inputs was slow");
        }
    }

    /// Logs decisions about objects at debug and changes of state at info. A warning may need an operator.
    pub(crate) fn event(&mut self, event: &Event) {
        if let Some(warning) = self.guards.events(event) {
            let _full = self.warnings.try_send(warning);
        }
        self.cascades.follow(event);
        match event {
            // The decision was counted when this replica made it first.
            Event::Decided { repeated: true, .. } => {}
            Event::Decided { item, generation, target, action, causes, .. } => {
                self.metrics.decided(*action, causes);
                tracing::debug!(item, generation, %target, uid = %target.uid, action = action.as_str(), why = %Causes(causes), "decided");
            }
            // The decision that replaces this one has been counted.
            Event::Withdrawn { replaced: true, .. } => {}
            Event::Withdrawn { item, target, action, .. } => {
                self.metrics.withdrawn(*action);
                self.moved = true;
                tracing::debug!(item, %target, uid = %target.uid, action = action.as_str(), "decision withdrawn");
            }
            Event::Granted { item, target, action, executor, attempt, .. } => {
                // A grant is no progress. It may return unused.
                self.metrics.granted(*action);
                tracing::debug!(item, %target, uid = %target.uid, action = action.as_str(), %executor, attempt, "granted");
            }
            Event::Attempted { item, age, end } => {
                let AttemptEnd { target, action, outcome, executor, http_status, message: answer, .. } = end;
                let AttemptEnd { api_calls, grounds, .. } = end;
                self.metrics.attempted(*action, &grounds.causes, *outcome);
                self.moved = true;
                self.attempted(target, *action, *outcome, executor, answer);
                let (action, outcome, age_ms) = (action.as_str(), outcome.as_str(), age.as_millis());
                tracing::debug!(item, %target, uid = %target.uid, action, outcome, %executor, http_status, answer, api_calls, age_ms, "attempt ended");
            }
            Event::Held { target, action, by, .. } => {
                tracing::debug!(%target, uid = %target.uid, action = action.as_str(), by = by.as_ref().map(tracing::field::display), "decision held or released");
            }
            Event::ExecutorRefused { executor, why } => {
                tracing::warn!(%executor, why, "refused an executor");
            }
            Event::ReportedLate { lease_term, end } => {
                let AttemptEnd { target, action, outcome, executor, .. } = end;
                self.metrics.reported_late.inc();
                let (action, outcome, term) = (action.as_str(), outcome.as_str(), lease_term.number);
                tracing::debug!(%target, uid = %target.uid, action, outcome, %executor, term, "attempt of an earlier term ended");
            }
            Event::Confirmed { target, resource_version, .. } => {
                tracing::debug!(%target, uid = %target.uid, ?resource_version, "deletion confirmed");
            }
            Event::AwaitingFinalizers { target, finalizers, .. } => {
                tracing::debug!(%target, uid = %target.uid, ?finalizers, "deletion waits for finalizers of other controllers");
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
                tracing::debug!(%owner, uid = %owner.uid, ?by, answer, "checked whether an owner exists");
            }
            Event::Inconsistent { collection, why } => {
                self.metrics.inconsistent.inc();
                tracing::warn!(%collection, why, "answers of the API server contradict each other; find the API server or etcd member that lags or serves another store");
            }
            Event::KeptApart { collection } => {
                tracing::warn!(%collection, "the resourceVersions of this collection do not match those of other collections; its lists prove no absence and delete no objects; if the API server keeps it in a separate etcd, add it to --separate-stores, else find the API server that lags");
            }
            Event::Undone { target, action, times, wait } => {
                self.metrics.undone.inc();
                let (action, wait_s) = (action.as_str(), wait.as_secs());
                tracing::warn!(%target, uid = %target.uid, action, times, wait_s, "a write was accepted and then undone; find the client that writes the object, for example in its managedFields");
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
                    tracing::warn!(%executor, %incarnation, field, why, count, "an executor sent too many wrong reports and is refused for ten minutes; check whether its API server lags or another process uses its identity");
                } else if *first {
                    tracing::warn!(%executor, %incarnation, field, why, count, "ignored a wrong report of an executor");
                } else {
                    tracing::debug!(%executor, %incarnation, field, why, count, "ignored a wrong report of an executor");
                }
            }
            Event::TermGained(term) => {
                tracing::info!(election = %term.election, term = term.number, "this replica leads");
            }
            Event::TermLost => tracing::info!("this replica no longer leads"),
            Event::GrantsStopped { why } => tracing::warn!(why, "grants are suspended"),
            Event::GrantsResumed => tracing::info!("grants resume"),
            Event::Rewound { collection, why } => {
                self.metrics.rewinds.inc();
                tracing::warn!(%collection, why, "the API server's store was restored to an earlier state; all collections are listed again");
            }
            Event::OwnerInOtherNamespace { dependent, reference } => {
                self.metrics.misplaced.inc();
                tracing::info!(%dependent, uid = %dependent.uid, owner = %reference.name, owner_uid = %reference.uid, "reference to an owner in another namespace");
                // If the queue is full, the event is dropped. The log line and the counter remain.
                let (dependent, reference) = (dependent.clone(), reference.clone());
                let _full = self.warnings.try_send(Warning::OwnerInOtherNamespace { dependent, reference });
            }
            Event::Readopted { dependent, resource_version, owner, first } => {
                self.metrics.readopted.inc();
                if *first {
                    tracing::warn!(%dependent, uid = %dependent.uid, %owner, owner_uid = %owner.uid, "a client restored a reference to an owner that orphaned the object; the reference is removed again; find the controller that writes it");
                    let _full = self.warnings.try_send(Warning::Readopted {
                        dependent: dependent.clone(),
                        resource_version: resource_version.clone(),
                        owner: owner.clone(),
                        writer: None,
                    });
                } else {
                    tracing::debug!(%dependent, uid = %dependent.uid, %owner, owner_uid = %owner.uid, "a client restored a reference to an owner that orphaned the object; the reference is removed again");
                }
            }
            Event::OrphaningForgotten { remembered_for } => {
                self.metrics.orphaning_forgotten.inc();
                if !std::mem::replace(&mut self.forgets, true) {
                    let remembered_for_s = remembered_for.as_secs();
                    tracing::warn!(
                        remembered_for_s,
                        "too many owners orphaned their dependents within an hour, so records of some were dropped; if a client restores a reference to such an owner, the dependent is collected"
                    );
                }
            }
            Event::TooManyReferences { object, count } => {
                tracing::warn!(%object, uid = %object.uid, count, "object has more owner references than the collector reads; it is kept until some are removed");
                let _full =
                    self.warnings.try_send(Warning::TooManyReferences { object: object.clone(), count: *count });
            }
            Event::Unusable { collection, why } => {
                self.metrics.unusable.inc();
                tracing::debug!(%collection, why, "object is invalid and is ignored");
            }
            Event::GuardTaken { id, scope, reason, actor, problem, lasts, .. } => {
                let lasts_s = lasts.map(|lasts| lasts.as_secs());
                if problem.is_empty() {
                    tracing::info!(guard = %id, ?scope, reason, actor, lasts_s, "took a guard");
                } else {
                    tracing::warn!(guard = %id, problem, reason, lasts_s, "took a guard that has an error");
                }
            }
            Event::GuardEffective { id } => tracing::info!(guard = %id, "the guard is effective"),
            Event::GuardEnded { id, why } => tracing::info!(guard = %id, why, "the guard has ended"),
            Event::GuardsUnknown { kind, why } => {
                let kind = kind.as_kind();
                tracing::warn!(why, kind, "cannot read the guards of a kind; deletions are suspended");
            }
            Event::BudgetExceeded { id, collection, count } => {
                tracing::warn!(guard = %id, %collection, count, "the budget is exhausted; further deletions in its scope wait");
            }
            Event::BreakerOpened { collection, why } => {
                self.metrics.breakers.inc();
                tracing::error!(%collection, why, "the breaker has opened: deletions of the collection are held; look for the cause, then delete the Pause");
            }
            Event::ApprovalNeeded { id, root, extent } => {
                let digest = format_args!("{:016x}", extent.digest);
                tracing::warn!(guard = %id, %root, objects = extent.objects, %digest, "a cascade waits for approval; `ownergraph approve` gives it");
            }
            Event::Approved { id, root, actor, digest } => {
                tracing::info!(guard = %id, %root, actor, digest = format_args!("{digest:016x}"), "a cascade is approved");
            }
            Event::GateAnswered { id, target, answer, allowed, by, message, .. } => {
                let answer = answer.as_str();
                tracing::debug!(guard = %id, %target, answer, allowed, by, said = message, "a gate has answered");
            }
            Event::GateBypassed { id, reason, actor, .. } => {
                tracing::warn!(guard = %id, actor, why = reason, "a gate is bypassed; it holds nothing for a time");
            }
            Event::GuardsKnown { kind } => {
                let kind = kind.as_kind();
                tracing::info!(kind, "the guards of the kind are readable again; deletions resume");
            }
            Event::Disagreed(found) => self.disagreed(found),
            Event::Compared(view) => {
                let (agreed, comparable) = (view.counts.agreed + view.counts.theirs_first, view.counts.comparable());
                tracing::debug!(agreed, comparable, "compared decisions with the other collector");
            }
            Event::Rejected { why } => {
                // Logged at debug, because a faulty peer could flood the log.
                self.metrics.rejected.inc();
                tracing::debug!(why, "input ignored");
            }
        }
        self.decisions.note(event, wire(self.clock));
        if let Some(observer) = &mut self.observer {
            observer(event);
        }
    }

    fn disagreed(&mut self, found: &Disagreement) {
        let (outcome, class, action) = (found.outcome.as_str(), found.class.as_str(), found.action.as_str());
        let (target, uid) = (&found.target, &found.target.uid);
        let now = Instant::now();
        let is_news = self.disagreed.is_none_or(|at| now.duration_since(at) >= DISAGREED_AGAIN);
        if found.class == Class::Unknown && is_news {
            self.disagreed = Some(now);
            tracing::warn!(%target, %uid, outcome, action, "the other collector disagrees, and no known difference explains it; `kubectl ownergraph parity` has the evidence");
        } else {
            tracing::debug!(%target, %uid, outcome, class, action, "the other collector disagrees");
        }
    }

    /// A refusal lasts until an administrator fixes a rule, a credential or a webhook.
    fn attempted(&mut self, target: &ObjectRef, action: ActionKind, outcome: Outcome, executor: &Name, answer: &str) {
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
            Outcome::Unauthenticated => return self.unauthenticated(executor, answer),
        }
        let collection = target.group_resource();
        let now = Instant::now();
        let reported = self.refused.get(&(collection.clone(), action, outcome));
        if reported.is_none_or(|&at| now.duration_since(at) >= REFUSED_AGAIN) {
            let (action_word, outcome_word) = (action.as_str(), outcome.as_str());
            tracing::warn!(%collection, action = action_word, outcome = outcome_word, %target, answer, "the API server refuses work; the work is retried");
            self.refused.retain(|_, at| now.duration_since(*at) < REFUSED_AGAIN);
            self.refused.insert((collection, action, outcome), now);
        }
    }

    /// Refused credentials concern the executor and not the object, so there is one log line for each executor.
    fn unauthenticated(&mut self, executor: &Name, answer: &str) {
        let now = Instant::now();
        let reported = self.unauthenticated.get(executor);
        if reported.is_none_or(|&at| now.duration_since(at) >= REFUSED_AGAIN) {
            tracing::warn!(%executor, answer, "the API server refuses an executor's credentials; the executor accepts no work until the API server accepts them");
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
                    tracing::warn!(%collection, state = word, error, "cannot list or watch a collection");
                }
            }
            State::Synced if !error.is_empty() => {
                self.lost.insert(collection.clone(), error.to_owned());
                tracing::warn!(%collection, state = word, error, "cannot list a collection again although its watch continues; after a restart its objects would be missing");
            }
            State::Synced | State::Ignored if self.lost.remove(collection).is_some() => {
                tracing::info!(%collection, state = word, "collection is listed and watched again");
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
            write!(f, "{cause}")?;
        }
        Ok(())
    }
}
