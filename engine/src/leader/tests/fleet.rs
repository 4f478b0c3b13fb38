//! A leader and real sessions, connected by pipes with a delay, in virtual time. Attempts take some time and end as the
//! test determines.

use super::*;
use crate::session::{self, Session};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Delay of a message between leader and executor.
const NET: Duration = Duration::from_millis(2);

enum Happening {
    ToLeader(usize, ToLeader),
    ToExecutor(usize, ToExecutor),
    Connected(usize),
    Ended(usize, WorkLease, Outcome),
}

pub(super) struct Fleet {
    pub(super) leader: Leader,
    pub(super) now: Time,
    executors: Vec<Option<Session>>,
    queue: BTreeMap<(Time, u64), Happening>,
    queued: u64,
    /// The time and the executor of each started write.
    pub(super) starts: Vec<(Time, usize)>,
    pub(super) done: usize,
    pub(super) revoked: usize,
    /// Returns the outcome of a write that is sent at this time.
    pub(super) server: Box<dyn FnMut(Time) -> Outcome>,
    /// The duration of one write.
    pub(super) attempt: Duration,
    names: BTreeMap<StreamId, usize>,
}

impl Fleet {
    pub(super) fn new(policy: Policy) -> Fleet {
        let mut fleet = Fleet {
            leader: Leader::new(Config { policy, ..config() }, 7),
            now: Time::ZERO,
            executors: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            starts: Vec::new(),
            done: 0,
            revoked: 0,
            server: Box::new(|_| Outcome::Done),
            attempt: Duration::from_millis(20),
            names: BTreeMap::new(),
        };
        fleet.input(Input::TermGained(term(1)));
        for resource in ["configmaps", "nodes"] {
            fleet.input(Input::KindServed(served(resource)));
            fleet.input(Input::ListBegun { collection: collection(resource), selectors: 0 });
            let resource_version = version(100);
            fleet.input(Input::ListEnded { collection: collection(resource), resource_version });
        }
        fleet
    }

    /// Creates dependents of an owner that is deleted.
    pub(super) fn garbage(&mut self, count: usize) {
        let seen = |resource: &str, object| Input::Seen { collection: collection(resource), object };
        self.input(seen("nodes", object("nodes", "o", 101)));
        for number in 0..count {
            let name = format!("c{number}");
            let dependent = object("configmaps", &name, 102 + number as u64).owned_by("nodes", "o");
            self.input(seen("configmaps", dependent));
        }
        let object = object("nodes", "o", 1_000_000);
        self.input(Input::Deleted { collection: collection("nodes"), object });
    }

    pub(super) fn join(&mut self, concurrency: u32) -> usize {
        let at = self.executors.len();
        let config = session::Config {
            executor: format!("e{at}").into(),
            incarnation: format!("i{at}").into(),
            version: String::new(),
            cluster_uid: "cluster".into(),
            concurrency: session::Concurrency::Fixed(concurrency),
            kinds: ActionKind::ALL.to_vec(),
            protocols: Protocols::OURS,
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(5),
        };
        self.executors.push(Some(Session::new(config, at as u64)));
        self.names.insert(StreamId(at as u64), at);
        self.drain_session(at);
        at
    }

    /// Ends a process and its connection.
    pub(super) fn kill(&mut self, at: usize) {
        self.executors[at] = None;
        self.input(Input::StreamClosed { stream: StreamId(at as u64) });
    }

    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let deadlines = self.executors.iter().flatten().filter_map(Session::next_deadline);
            let queued = self.queue.keys().next().map(|&(at, _)| at);
            let next = deadlines.chain(self.leader.next_deadline()).chain(queued).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let happening = entry.remove();
                self.happen(happening);
            }
            self.leader.tick(self.now);
            self.drain_leader();
            for at in 0..self.executors.len() {
                let Some(session) = &mut self.executors[at] else { continue };
                session.tick(self.now);
                self.drain_session(at);
            }
        }
        self.now = end;
    }

    /// Returns the number of writes that started within this time before now.
    pub(super) fn started_within(&self, span: Duration) -> usize {
        self.starts.iter().filter(|(at, _)| self.now.since(*at) < span).count()
    }

    pub(super) fn started_by(&self, executor: usize) -> usize {
        self.starts.iter().filter(|(_, by)| *by == executor).count()
    }

    pub(super) fn input(&mut self, input: Input) {
        self.leader.handle(self.now, input);
        self.drain_leader();
    }

    fn later(&mut self, wait: Duration, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + wait, self.queued), happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToLeader(at, message) => {
                self.input(Input::Message { stream: StreamId(at as u64), message });
            }
            Happening::ToExecutor(at, message) => self.tell(at, session::Input::Message(message)),
            Happening::Connected(at) => self.tell(at, session::Input::Connected),
            Happening::Ended(at, lease, outcome) => {
                if self.executors[at].is_none() {
                    return;
                }
                let http_status = if outcome == Outcome::Throttled { 429 } else { 200 };
                self.tell(at, session::Input::Finished(WorkReport { outcome, http_status, ..done(&lease) }));
                if outcome == Outcome::Done {
                    self.done += 1;
                    let name = lease.item.target.name.clone();
                    let object = object("configmaps", &name, 2_000_000 + self.done as u64);
                    self.input(Input::Deleted { collection: collection("configmaps"), object });
                }
            }
        }
    }

    fn tell(&mut self, at: usize, input: session::Input) {
        let Some(session) = &mut self.executors[at] else { return };
        session.handle(self.now, input);
        self.drain_session(at);
    }

    fn drain_session(&mut self, at: usize) {
        while let Some(output) = self.executors[at].as_mut().and_then(Session::poll) {
            match output {
                session::Output::Connect { .. } => self.later(NET, Happening::Connected(at)),
                session::Output::Send(message) => self.later(NET, Happening::ToLeader(at, message)),
                session::Output::Start(lease) => {
                    self.starts.push((self.now, at));
                    let outcome = (self.server)(self.now);
                    self.later(self.attempt, Happening::Ended(at, lease, outcome));
                }
                session::Output::Disconnect
                | session::Output::Cancel(_)
                | session::Output::WritesEnd(_)
                | session::Output::CheckCredentials
                | session::Output::Exit(_)
                | session::Output::Event(_) => {}
            }
        }
    }

    fn drain_leader(&mut self) {
        while let Some(output) = self.leader.poll() {
            if let Output::Send { stream, message } = output {
                if let ToExecutor::Revoke { leases, .. } = &message {
                    self.revoked += leases.len();
                }
                let at = self.names[&stream];
                self.later(NET, Happening::ToExecutor(at, message));
            } else if let Output::ReadGuards(read) = output {
                self.leader.handle(self.now, Input::GuardsRead { read, answer: Ok(GuardAnswer::NotServed) });
            }
        }
    }
}
