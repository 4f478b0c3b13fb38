//! Leader election. The engine's elector decides; this module reads and writes one Kubernetes Lease over HTTP, and
//! passes terms to the driver.

use crate::messages::{Control, Leadership};
use crate::metrics::Metrics;
use engine::elector::{CallId, Config, Elector, Input, LeaseWrite, Output};
use engine::leader;
use engine::object::{GroupResource, ResourceVersion};
use engine::work::Term;
use kube::Client;
use runtime::clock::Clock;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use changes::follow as follow_changes;
pub(crate) use validity::Validity;

mod changes;
mod lease;
#[cfg(test)]
mod tests;
mod validity;

/// Maximum number of concurrent calls. The elector makes one at a time, and gives up a call that hangs.
const CALLS_MAX: usize = 4;
/// Maximum time to release the Lease at the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// The election Lease and its durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    pub namespace: String,
    pub name: String,
    /// Whole seconds.
    pub lease_duration: Duration,
    /// Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Shorter than `renew_deadline` by more than a fifth.
    pub retry_period: Duration,
}

impl Default for LeaseOptions {
    /// A fifth longer than the defaults of Kubernetes. With a renew deadline of 10 s, requests that take 5 s would end
    /// each term.
    fn default() -> Self {
        LeaseOptions {
            namespace: "kube-system".to_owned(),
            name: "ownergraph".to_owned(),
            lease_duration: Duration::from_secs(18),
            renew_deadline: Duration::from_secs(12),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A participant in the election.
pub(crate) struct Candidate {
    pub(crate) client: Client,
    pub(crate) options: LeaseOptions,
    /// Unique for each start of a process.
    pub(crate) identity: String,
    /// Stored beside the identity, as a hint for clients.
    pub(crate) endpoint: String,
    /// Notified of writes to the Lease.
    pub(crate) changes: Arc<Notify>,
    /// The last term in which another process wrote the decision log that replicas share.
    pub(crate) reached: watch::Receiver<Option<Term>>,
}

/// Takes part in the election until the Lease is released.
pub(crate) struct Election {
    elector: Elector,
    access: lease::Access,
    calls: Jobs<CallId, lease::Answered>,
    control: mpsc::Sender<Control>,
    leadership: watch::Sender<Leadership>,
    validity: Validity,
    changes: Arc<Notify>,
    reached: watch::Receiver<Option<Term>>,
    metrics: Metrics,
    clock: Clock,
    identity: String,
    /// The term that the driver has.
    announced: Option<Term>,
    releasing: bool,
    released: bool,
}

impl Election {
    /// Creates the candidate's election. The error names the durations that contradict each other.
    pub(crate) fn new(
        candidate: Candidate,
        control: mpsc::Sender<Control>,
        leadership: watch::Sender<Leadership>,
        validity: Validity,
        metrics: Metrics,
        clock: Clock,
        seed: u64,
    ) -> Result<Election, String> {
        let Candidate { client, options, identity, endpoint, changes, mut reached } = candidate;
        reached.mark_changed();
        let config = Config {
            identity: identity.clone(),
            lease_duration: options.lease_duration,
            renew_deadline: options.renew_deadline,
            retry_period: options.retry_period,
        };
        config.check()?;
        // A call ends early enough that there is time for a second renewal if the first one hangs.
        let within = (options.renew_deadline / 2).max(options.retry_period);
        Ok(Election {
            elector: Elector::new(config, seed),
            access: lease::Access::new(client, &options.namespace, &options.name, endpoint, within),
            calls: Jobs::new(CALLS_MAX),
            control,
            leadership,
            validity,
            changes,
            reached,
            metrics,
            clock,
            identity,
            announced: None,
            releasing: false,
            released: false,
        })
    }

    /// Runs until `release` is requested and the Lease is released, or until the time to release it has passed.
    pub(crate) async fn run(mut self, release: Shutdown) -> anyhow::Result<()> {
        self.elector.tick(self.clock.now());
        let mut release_by = None;
        loop {
            self.carry_out().await;
            if self.released || release_by.is_some_and(|limit| tokio::time::Instant::now() >= limit) {
                return Ok(());
            }
            let wake = self.elector.next_deadline().map(|deadline| self.clock.instant(deadline));
            let wake = wake.into_iter().chain(release_by).min();
            tokio::select! {
                biased;
                () = release.requested(), if release_by.is_none() => {
                    release_by = Some(tokio::time::Instant::now() + RELEASE_WITHIN);
                    self.releasing = true;
                    self.elector.handle(self.clock.now(), Input::Release);
                }
                (call, end) = self.calls.next() => self.answered(call, end),
                Ok(()) = self.reached.changed() => {
                    let reached = self.reached.borrow_and_update().clone();
                    if let Some(term) = reached {
                        self.elector.handle(self.clock.now(), Input::Reached(term));
                    }
                }
                () = self.changes.notified() => self.elector.handle(self.clock.now(), Input::Changed),
                () = sleep_until(wake) => self.elector.tick(self.clock.now()),
            }
        }
    }

    async fn carry_out(&mut self) {
        // Set before a term is announced, and without a term before its end is announced.
        let lapsed = self.validity.set(self.elector.valid_until(), self.clock);
        // A renewal can succeed in time and be noticed late. The driver may have seen the end of the term in between.
        let goes_on = self.elector.leading().filter(|&term| lapsed && self.announced.as_ref() == Some(term));
        if let Some(term) = goes_on.cloned() {
            self.order(leader::Input::TermGained(term)).await;
        }
        while let Some(output) = self.elector.poll() {
            match output {
                Output::Get { call } => self.call(call, None),
                Output::Put { call, write } => self.call(call, Some(write)),
                Output::Gained(term) => {
                    self.leadership.send_modify(|known| {
                        known.leading = true;
                        known.term = Some(term.clone());
                        known.holder = Some(self.identity.clone());
                        known.endpoint = self.access.endpoint().to_owned();
                    });
                    self.announced = Some(term.clone());
                    self.order(leader::Input::TermGained(term)).await;
                }
                Output::Lost { why } => {
                    self.announced = None;
                    if self.releasing {
                        tracing::debug!(why, "released the election Lease before the end of the process");
                    } else {
                        tracing::warn!(why, "lost the election Lease; this replica no longer leads");
                    }
                    self.leadership.send_modify(|known| {
                        known.leading = false;
                        known.holder = None;
                        known.endpoint = String::new();
                    });
                    // The write that took the Lease from this replica may have shown the new holder.
                    let leader_endpoint = self.elector.holder().map_or_else(String::new, |it| self.endpoint_of(it));
                    self.order(leader::Input::TermLost { leader_endpoint }).await;
                }
                Output::Follows { holder, term } => {
                    let leader_endpoint = self.endpoint_of(&holder);
                    tracing::info!(holder, endpoint = leader_endpoint, term = term.number, "another replica leads");
                    self.leadership.send_modify(|known| {
                        known.term = Some(term);
                        known.holder = Some(holder);
                        known.endpoint.clone_from(&leader_endpoint);
                    });
                    self.order(leader::Input::TermLost { leader_endpoint }).await;
                }
                Output::Released => {
                    tracing::info!("released the election Lease");
                    self.leadership.send_modify(|known| known.leading = false);
                    self.released = true;
                }
                Output::Failed { what, why } => self.failed(what, why),
            }
        }
    }

    /// The address of this holder. The holder may be this replica itself, from before the process was suspended. Then
    /// its address is no hint for clients.
    fn endpoint_of(&self, holder: &str) -> String {
        if holder == self.identity { String::new() } else { self.access.endpoint_of(holder) }
    }

    async fn order(&self, input: leader::Input) {
        // Sends a term to the driver. The call fails if the driver has ended. Then this replica grants nothing, and the
        // Lease is released nevertheless.
        let _driver_ended = self.control.send(Control::Input(input)).await;
    }

    fn call(&mut self, call: CallId, write: Option<LeaseWrite>) {
        if self.calls.has_room() {
            let request = self.access.call(write);
            self.calls.spawn(call, request);
        }
        // If there is no room, the elector gives up this call after its deadline, like the calls that take the room.
    }

    fn answered(&mut self, call: CallId, end: JobEnd<lease::Answered>) {
        match end {
            JobEnd::Done(answered) => {
                let input = self.access.learn(call, answered);
                if succeeded(&input) && self.leadership.borrow().problem.is_some() {
                    tracing::info!("the election Lease is accessible again");
                    self.leadership.send_modify(|known| known.problem = None);
                }
                if let Input::Put { answer: Ok(record), .. } = &input {
                    self.wrote(record.resource_version.clone());
                }
                self.elector.handle(self.clock.now(), input);
                self.forget_who_has_gone();
            }
            // The elector waits for this answer no longer than for any other.
            JobEnd::Aborted => {}
            JobEnd::Panicked(panic) => tracing::error!(panic, "a call to the election Lease panicked"),
        }
    }

    /// Tells the driver the version of the store after a write. A full queue does not delay the Lease, because the next
    /// write reports a newer version.
    fn wrote(&self, resource_version: ResourceVersion) {
        let collection = GroupResource { group: lease::GROUP.into(), resource: lease::RESOURCE.into() };
        let input = leader::Input::Wrote { collection, resource_version };
        let _full_or_over = self.control.try_send(Control::Input(input));
    }

    /// Forgets the address of a replica that has released the Lease.
    fn forget_who_has_gone(&self) {
        if self.elector.holder().is_none() && self.leadership.borrow().holder.is_some() {
            self.leadership.send_modify(|known| {
                known.holder = None;
                known.endpoint = String::new();
            });
        }
    }

    /// Logs one warning for each change of the reason.
    fn failed(&mut self, operation: &'static str, why: String) {
        self.metrics.election_failures.inc();
        let problem = format!("{operation}: {why}");
        if self.leadership.borrow().problem.as_ref() != Some(&problem) {
            tracing::warn!(operation, why, "cannot access the election Lease");
            self.leadership.send_modify(|known| known.problem = Some(problem));
        }
    }
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("elector", &self.elector).finish_non_exhaustive()
    }
}

fn succeeded(input: &Input) -> bool {
    match input {
        Input::Got { answer, .. } => answer.is_ok(),
        Input::Put { answer, .. } => answer.is_ok(),
        Input::Changed | Input::Reached(_) | Input::Release => false,
    }
}

async fn sleep_until(wake: Option<tokio::time::Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
