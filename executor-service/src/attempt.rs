//! Carries out leases. The engine decides on each request. This module sends the request and returns the answer.

use crate::answer;
use crate::server::Server;
use crate::traces::Follow;
use engine::attempt::{Answer, Attempts as Machine, Failure, FailureKind, Output, Request, RequestId};
use engine::time::Time;
use engine::work::{LeaseId, WorkLease, WorkReport};
use kube_api::Gate;
use runtime::clock::Clock;
use runtime::tasks::{JobEnd, Jobs};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) mod request;
#[cfg(test)]
mod tests;

/// The limit of concurrent requests, as a multiple of the concurrency. Each attempt has one request of its own, and may
/// read owners at the same time. Further requests wait.
const REQUESTS_PER_ATTEMPT: usize = 4;

/// All attempts of one executor.
#[derive(Debug)]
pub(crate) struct Attempts {
    server: Server,
    clock: Clock,
    /// Shared with the gates of writes in flight.
    machine: Shared,
    requests: Jobs<RequestId, Answer<Value>>,
    /// Spans of the attempts whose requests are traced, by lease.
    follows: BTreeMap<LeaseId, Follow>,
    ended: VecDeque<Ended>,
}

/// An ended attempt, and the number of times that it sent its write.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) lease: Box<WorkLease>,
    pub(crate) report: WorkReport,
    pub(crate) writes: u32,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Machine<Value>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// Creates a set without attempts. No attempt may write before [`Attempts::set_writes_end`].
    pub(crate) fn new(server: Server, clock: Clock, concurrency: usize) -> Attempts {
        Attempts {
            server,
            clock,
            machine: Shared::default(),
            requests: Jobs::new(concurrency.saturating_mul(REQUESTS_PER_ATTEMPT)),
            follows: BTreeMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Whether the API server accepts this executor's credentials. The error is the reason.
    pub(crate) fn check_credentials(&self) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let server = self.server.clone();
        async move { server.accepts_credentials().await }
    }

    /// No write leaves at or after `end`.
    pub(crate) fn set_writes_end(&mut self, end: Time) {
        self.machine.lock().set_writes_end(end);
    }

    /// Starts a lease.
    pub(crate) fn start(&mut self, lease: WorkLease, follow: Option<Follow>) {
        if let Some(follow) = follow {
            self.follows.insert(lease.id, follow);
        }
        self.machine.lock().start(self.clock.now(), lease);
        self.settle();
    }

    /// Sends no further request for this lease. Sent requests stay in flight.
    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        self.machine.lock().cancel(self.clock.now(), lease);
        self.settle();
    }

    /// Waits for the next ended attempt. Cancel safe.
    pub(crate) async fn next(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return ended;
            }
            let (id, end) = self.requests.next().await;
            self.answered(id, end);
        }
    }

    /// The next attempt that has already ended. Answers usually come several at a time, so the caller takes all of
    /// them.
    pub(crate) fn try_next(&mut self) -> Option<Ended> {
        while let Some((id, end)) = self.requests.try_next() {
            self.answered(id, end);
        }
        self.ended.pop_front()
    }

    fn answered(&mut self, id: RequestId, end: JobEnd<Answer<Value>>) {
        let lost = |cause: String| Err(Failure { kind: FailureKind::NoAnswer, cause });
        let answer = match end {
            JobEnd::Done(answer) => answer,
            JobEnd::Aborted => lost("the request was aborted".to_owned()),
            JobEnd::Panicked(why) => {
                tracing::error!(why, "a request panicked inside the executor");
                lost(format!("the request failed inside the executor: {why}"))
            }
        };
        self.machine.lock().answered(self.clock.now(), id, answer);
        self.settle();
    }

    /// Carries out the machine's outputs while there is room for requests.
    fn settle(&mut self) {
        while self.requests.has_room() {
            let output = self.machine.lock().poll();
            match output {
                Some(Output::Ask { id, lease, request }) => self.ask(id, lease, request),
                Some(Output::Withdraw(id)) => self.requests.abort(&id),
                Some(Output::Ended { lease, report, writes }) => {
                    self.follows.remove(&lease.id);
                    self.ended.push_back(Ended { lease, report, writes });
                }
                None => return,
            }
        }
    }

    fn ask(&mut self, id: RequestId, lease: LeaseId, request: Request<Value>) {
        let server = self.server.followed(self.follows.get(&lease).cloned());
        let gate = request.is_write().then(|| {
            let (machine, clock) = (self.machine.clone(), self.clock);
            Gate::new(move || machine.lock().leaves(clock.now(), id))
        });
        self.requests.spawn(id, send(server, request, gate));
    }
}

async fn send(server: Server, request: Request<Value>, gate: Option<Gate>) -> Answer<Value> {
    let (verb, http) = request::http(&request)?;
    match server.call(verb, http, gate).await {
        Ok(answer) => Ok(answer::reply(request.object(), &answer)),
        Err(error) => Err(answer::failure(&error)),
    }
}
