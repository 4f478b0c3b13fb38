//! The streams between executors and replicas: messages arrive late, streams break, and unacknowledged messages are
//! sent again.

use super::law;
use super::world::{Happening, MS, S, Stream, World};
use engine::session::Input;
use engine::work::{Refusal, Term, ToExecutor, ToLeader};

pub(super) fn is_behind(term: &Term, known: &Term) -> bool {
    term.election == known.election && term.number < known.number
}

impl World {
    pub(super) fn dial(&mut self, at: usize, endpoint: Option<String>) {
        let replicas = self.replicas.len();
        let executor = &mut self.executors[at];
        executor.dial += 1;
        executor.stream = None;
        let replica = endpoint.and_then(|endpoint| endpoint.parse::<usize>().ok()).unwrap_or_else(|| {
            executor.next_replica = (executor.next_replica + 1) % replicas;
            executor.next_replica
        });
        let (incarnation, dial) = (executor.incarnation, executor.dial);
        let delay = self.net.delay(self.options.net_ms);
        self.after(delay, Happening::Dialled { executor: at, incarnation, dial, replica });
    }

    pub(super) fn dialled(&mut self, at: usize, incarnation: u64, dial: u64, replica: usize) {
        if !self.is_incarnation(at, incarnation) || self.executors[at].dial != dial {
            return;
        }
        if self.replicas[replica].leader.is_none() {
            let why = String::from("connection refused");
            return self.tell_session(at, Input::Disconnected { leader_endpoint: None, refusal: None, why });
        }
        self.last_stream += 1;
        let stream = Stream {
            replica,
            epoch: self.replicas[replica].epoch,
            executor: at,
            incarnation,
            open_at_leader: true,
            open_at_executor: true,
            to_leader_at: self.now,
            to_executor_at: self.now,
        };
        self.streams.insert(self.last_stream, stream);
        self.executors[at].stream = Some(self.last_stream);
        self.tell_session(at, Input::Connected);
    }

    pub(super) fn hang_up(&mut self, at: usize) {
        self.executors[at].dial += 1;
        let Some(id) = self.executors[at].stream.take() else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.open_at_executor = false;
        let last = stream.to_leader_at;
        // Only the other side notices that a broken connection is dead.
        let arrives = if last == u64::MAX { self.now + 20 * S } else { last + MS };
        self.at(arrives, Happening::LeaderSideEnds { stream: id });
    }

    /// Breaks the connection. Each side notices in its own time. Messages in flight may arrive.
    pub(super) fn break_stream(&mut self, id: u64) {
        self.note(|| format!("stream {id} breaks"));
        let far = if self.chaos.once_in(4) { 30 * S } else { S };
        let leader = self.chaos.between(0, far);
        let executor = self.chaos.between(0, far);
        let lost_at_leader = self.chaos.percent(50);
        if let Some(stream) = self.streams.get_mut(&id)
            && lost_at_leader
        {
            // No message arrives after this.
            stream.to_leader_at = u64::MAX;
            stream.to_executor_at = u64::MAX;
        }
        self.after(leader, Happening::LeaderSideEnds { stream: id });
        self.after(executor, Happening::ExecutorSideEnds { stream: id, refusal: None });
    }

    fn message_delay(&mut self) -> u64 {
        let delay = self.net.delay(self.options.net_ms);
        if self.strikes("message stall", self.options.faults.message_stalls) {
            return delay + self.chaos.between(S, 40 * S);
        }
        delay
    }

    pub(super) fn send_to_leader(&mut self, id: u64, message: ToLeader) {
        self.note(|| format!("stream {id} -> leader {message:?}"));
        if let Err(why) = law::message(&message) {
            return self.violate(format!("stream {id}: {why}"));
        }
        let delay = self.message_delay();
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.to_leader_at < u64::MAX) else { return };
        stream.to_leader_at = stream.to_leader_at.max(now + delay);
        let at = stream.to_leader_at;
        let (executor, incarnation) = (stream.executor, stream.incarnation);
        // A sender never repeats a hello or a window: a hello begins the stream, and a window counts from its arrival.
        let is_state = matches!(message, ToLeader::Hello(_) | ToLeader::Window { .. });
        if !is_state && self.strikes("duplicate", self.options.faults.duplicates) {
            // After a reconnect, a sender repeats each message whose arrival is unknown.
            let again = at + self.chaos.between(MS, 30 * S);
            let message = message.clone();
            self.at(again, Happening::SentAgain { executor, incarnation, message });
        }
        self.at(at, Happening::ToLeader { stream: id, message });
    }

    /// Delivers a message again, on the present stream of the executor.
    pub(super) fn sent_again(&mut self, at: usize, incarnation: u64, message: ToLeader) {
        let Some(stream) = self.executors[at].stream.filter(|_| self.is_incarnation(at, incarnation)) else { return };
        let Some(open) = self.streams.get_mut(&stream).filter(|stream| stream.to_leader_at < u64::MAX) else { return };
        open.to_leader_at = open.to_leader_at.max(self.now + MS);
        let arrives = open.to_leader_at;
        self.at(arrives, Happening::ToLeader { stream, message });
    }

    pub(super) fn send_to_executor(&mut self, id: u64, message: ToExecutor) {
        let delay = self.message_delay();
        let now = self.now;
        let open = |stream: &&mut Stream| stream.open_at_leader && stream.to_executor_at < u64::MAX;
        let Some(stream) = self.streams.get_mut(&id).filter(open) else { return };
        stream.to_executor_at = stream.to_executor_at.max(now + delay);
        let at = stream.to_executor_at;
        self.at(at, Happening::ToExecutor { stream: id, message });
    }

    fn stream_of(&self, id: u64) -> Option<usize> {
        let stream = self.streams.get(&id).filter(|stream| stream.open_at_executor)?;
        let at = stream.executor;
        let same = self.is_incarnation(at, stream.incarnation) && self.executors[at].stream == Some(id);
        same.then_some(at)
    }

    pub(super) fn executor_hears(&mut self, id: u64, message: ToExecutor) {
        if let Some(at) = self.stream_of(id) {
            self.hear_term(at, &message);
            self.tell_session(at, Input::Message(message));
        }
    }

    fn hear_term(&mut self, at: usize, message: &ToExecutor) {
        let executor = &mut self.executors[at];
        let mut hear = |term: &Term| {
            if executor.newest.as_ref().is_none_or(|known| is_behind(known, term)) {
                executor.newest = Some(term.clone());
            }
        };
        match message {
            // A welcome sets the term, because a restore may also have restored the Lease.
            ToExecutor::Welcome(welcome) => executor.newest = Some(welcome.term.clone()),
            ToExecutor::HeartbeatAck { term, .. } => hear(term),
            ToExecutor::Grant { leases } => leases.iter().for_each(|lease| hear(&lease.term)),
            ToExecutor::Revoke { .. }
            | ToExecutor::ReportAck { .. }
            | ToExecutor::DrainAck { .. }
            | ToExecutor::Throttle { .. }
            | ToExecutor::GoAway { .. } => {}
        }
    }

    pub(super) fn executor_side_ends(&mut self, id: u64, refusal: Option<Refusal>) {
        let at = self.stream_of(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.open_at_executor = false;
        }
        let Some(at) = at else { return };
        self.executors[at].stream = None;
        let replica = self.streams.get(&id).map(|stream| stream.replica);
        let hint = refusal.as_ref().and(replica).and_then(|replica| self.replicas[replica].follows);
        let hint = hint.map(|holder| holder.to_string());
        let why = String::from("the stream ended");
        self.tell_session(at, Input::Disconnected { leader_endpoint: hint, refusal, why });
    }
}
