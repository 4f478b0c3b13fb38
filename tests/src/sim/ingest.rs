//! The lists and watches of a replica. The engine's machine makes requests. The history of the model answers them, late
//! and in pieces.

use super::kinds::{KINDS, observe};
use super::replica::position;
use super::truth::Logged;
use super::world::{Happening, MS, S, World};
use engine::follow::{Ask, Config, Failure, Follow, Input as Heard, Output, Pass, Tell, WatchEnd};
use engine::leader::Input;
use engine::object::{Object, ResourceVersion};
use engine::time::Time;
use sandbox::model::{ListQuery, Position};
use std::collections::VecDeque;
use std::time::Duration;

mod ends;
mod served;
#[cfg(test)]
mod tests;

/// The state of one collection in the client.
#[derive(Debug, Default)]
pub(super) struct Collection {
    pub(super) served: bool,
    follow: Option<Follow>,
    line: Line,
    /// The number of the current request or stream. A message with another number is stale.
    generation: u64,
    /// The objects of a page, or of the beginning of a watch-list, that the leader has not received yet.
    objects: VecDeque<Object>,
    tick_at: Option<u64>,
    /// The server opens no watch before this time.
    down_until: u64,
    /// The revision up to which the leader has received everything. `None` while the collection is incomplete.
    pub(super) through: Option<u64>,
    /// The history of the store that the collection belongs to.
    pub(super) history: usize,
    /// The last revision up to which the leader had the collection.
    stood: Option<u64>,
    /// The time on the replica's clock at which the requested watch reaches its limit.
    limit: Time,
}

/// The open connection to the API server.
#[derive(Debug, Default)]
enum Line {
    #[default]
    Nothing,
    /// A request is in flight.
    Asked(Ask),
    /// A page has arrived. `begun` is true if the hand-over of its objects has begun.
    Page {
        begun: bool,
    },
    Stream(Stream),
    /// The connection delivers no more messages, and the client has not noticed. `clean` is true if the connection then
    /// ends without an error.
    Broken {
        clean: bool,
    },
}

/// A watch or watch-list.
#[derive(Debug)]
struct Stream {
    /// The number of entries of the log that the stream has read.
    cursor: usize,
    pumping: bool,
    /// The revision of a watch-list whose end has not been sent yet.
    ends_list: Option<u64>,
    /// The server does not know watch-lists. It sends objects and never an end.
    plain: bool,
    /// The revision at which the copy of the store ends, if a member with an older copy answers.
    shows_through: Option<u64>,
}

impl Collection {
    /// The server stops, and no client notices at first. Returns the number of the next connection. A clean stop ends
    /// the watches, and another server answers in the meantime.
    pub(super) fn cut(&mut self, clean: bool) -> Option<u64> {
        match self.line {
            Line::Asked(_) if !clean => {}
            Line::Stream(_) => {}
            Line::Asked(_) | Line::Nothing | Line::Page { .. } | Line::Broken { .. } => return None,
        }
        self.line = Line::Broken { clean };
        self.objects.clear();
        self.generation += 1;
        Some(self.generation)
    }
}

impl World {
    /// Starts again at the beginning, and drops everything in flight.
    fn follow(&mut self, at: usize, kind: usize) {
        let page_size = [1, 3, 500][self.api.index(3)];
        let (paged, seed) = (self.api.once_in(2), self.api.next());
        let name = KINDS[kind].plural.to_owned();
        let local = self.replicas[at].local(self.now);
        let collection = &mut self.replicas[at].collections[kind];
        collection.follow = Some(Follow::new(local, Config { name, page_size, paged, seed }));
        collection.line = Line::Nothing;
        collection.generation += 1;
        collection.through = None;
        self.drain_follow(at, kind);
    }

    /// Another task than the requester handles the request for a new list.
    pub(super) fn relist(&mut self, at: usize, kind: usize) {
        if self.replicas[at].leader.is_some() {
            let epoch = self.replicas[at].epoch;
            self.after(MS, Happening::Relist { replica: at, epoch, kind });
        }
    }

    pub(super) fn relist_now(&mut self, at: usize, epoch: u64, kind: usize) {
        if self.is_epoch(at, epoch) && self.replicas[at].collections[kind].follow.is_some() {
            self.follow(at, kind);
        }
    }

    // The machine.

    fn hears(&mut self, at: usize, kind: usize, heard: Heard) {
        let local = self.replicas[at].local(self.now);
        if let Some(follow) = &mut self.replicas[at].collections[kind].follow {
            follow.handle(local, heard);
        }
        self.drain_follow(at, kind);
    }

    pub(super) fn follow_tick(&mut self, at: usize, epoch: u64, kind: usize) {
        // An answer to a request that was cancelled in the meantime is stale.
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].tick_at.is_none_or(|due| due > self.now) {
            return;
        }
        let local = self.replicas[at].local(self.now);
        let collection = &mut self.replicas[at].collections[kind];
        collection.tick_at = None;
        if let Some(follow) = &mut collection.follow {
            follow.tick(local);
        }
        self.drain_follow(at, kind);
    }

    fn drain_follow(&mut self, at: usize, kind: usize) {
        loop {
            let collection = &mut self.replicas[at].collections[kind];
            if matches!(collection.line, Line::Page { begun: true }) {
                return;
            }
            let Some(output) = collection.follow.as_mut().and_then(Follow::poll) else { break };
            match output {
                Output::Ask(ask) => self.ask(at, kind, ask),
                Output::Objects => {
                    collection.line = Line::Page { begun: true };
                    return self.hand_on(at, kind);
                }
                Output::Tell(tell) => self.follow_tells(at, kind, tell),
            }
        }
        let replica = &mut self.replicas[at];
        let collection = &mut replica.collections[kind];
        let deadline = collection.follow.as_ref().and_then(Follow::next_deadline);
        let Some(due) = deadline.map(|due| replica.clock.world(due).max(self.now)) else { return };
        // A deadline moves with every event. A tick that comes early checks again.
        if collection.tick_at.is_none_or(|known| known <= self.now || due < known) {
            collection.tick_at = Some(due);
            let epoch = replica.epoch;
            self.at(due, Happening::FollowTick { replica: at, epoch, kind });
        }
    }

    /// The leader has received the main store up to the position of this collection.
    fn knows(&mut self, at: usize, kind: usize) {
        let replica = &mut self.replicas[at];
        replica.collections[kind].stood = replica.collections[kind].through;
        let through = replica.collections[kind].through.filter(|_| !self.server.apart[kind]);
        replica.known = replica.known.max(through.unwrap_or_default());
    }

    fn follow_tells(&mut self, at: usize, kind: usize, tell: Tell) {
        let collection = KINDS[kind].key();
        let entry = &mut self.replicas[at].collections[kind];
        let input = match tell {
            Tell::ListBegun => {
                entry.through = None;
                Input::ListBegun { collection, selectors: 0 }
            }
            Tell::ListEnded(resource_version) => {
                entry.through = revision(&resource_version);
                if entry.through < entry.stood {
                    self.may_know(at, kind);
                }
                self.knows(at, kind);
                Input::ListEnded { collection, resource_version }
            }
            Tell::ListFailed(failure) => {
                entry.through = None;
                let broke = failure.is_transport();
                if broke {
                    self.may_know(at, kind);
                }
                Input::ListFailed { collection, error: failure.sentence, broke }
            }
            Tell::Bookmark(resource_version) => {
                entry.through = revision(&resource_version);
                self.knows(at, kind);
                Input::Bookmark { collection, resource_version }
            }
            Tell::WatchLost(WatchEnd::Early, _) if self.options.deaf => return,
            Tell::WatchLost(end, failure) => {
                if end.is_doubt() {
                    self.may_know(at, kind);
                }
                Input::WatchLost { collection, end, error: failure.sentence }
            }
            Tell::WatchResumed => Input::WatchResumed { collection },
            Tell::ListsAnew(_) => return,
        };
        self.tell(at, input);
    }

    fn ask(&mut self, at: usize, kind: usize, ask: Ask) {
        let delay = self.api.delay(self.options.api_ms.max(self.watch_ms(kind) / 4));
        let (epoch, local) = (self.replicas[at].epoch, self.replicas[at].local(self.now));
        let collection = &mut self.replicas[at].collections[kind];
        collection.generation += 1;
        collection.objects.clear();
        let generation = collection.generation;
        let asks = ask != Ask::Nothing;
        if let Ask::Watch { seconds, .. } | Ask::WatchList { seconds } = ask {
            collection.limit = local + Duration::from_secs(seconds);
        }
        collection.line = if asks { Line::Asked(ask) } else { Line::Nothing };
        if asks {
            self.after(delay, Happening::ListStep { replica: at, epoch, kind, generation });
        }
    }

    fn is_following(&self, at: usize, epoch: u64, kind: usize, generation: u64) -> bool {
        self.is_epoch(at, epoch) && self.replicas[at].collections[kind].generation == generation
    }

    // The server.

    /// A request arrives, or the server hands over the next objects of a page.
    pub(super) fn list_step(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_following(at, epoch, kind, generation) {
            return;
        }
        let Line::Asked(ask) = &self.replicas[at].collections[kind].line else {
            return self.hand_on(at, kind);
        };
        match ask.clone() {
            Ask::Nothing => {}
            Ask::Page { limit, token } => self.answer_page(at, kind, limit, token.as_deref()),
            Ask::WatchList { seconds } => self.open_watch_list(at, kind, seconds),
            Ask::Watch { position, seconds } => self.open_watch(at, kind, &position, seconds),
        }
    }

    fn answer_page(&mut self, at: usize, kind: usize, limit: Option<u32>, token: Option<&str>) {
        if self.strikes("list failure", self.options.faults.list_failures) {
            return self.fails(at, kind, &[None, Some(500), Some(429), Some(403)]);
        }
        if token.is_some() && self.strikes("page expired", self.options.faults.expired) {
            return self.fail(at, kind, Some(410), "the provided continue parameter is too old");
        }
        let from = token.and_then(|token| Position::parse(token).ok());
        let query = ListQuery { limit: limit.unwrap_or(0) as usize, from, ..ListQuery::default() };
        let (model, _) = self.server.lister(self.now, kind, self.replicas[at].known);
        match model.list(&KINDS[kind].resource(), &query) {
            Ok(page) => {
                let history = self.history();
                let collection = &mut self.replicas[at].collections[kind];
                collection.history = history;
                collection.objects = page.items.iter().map(|item| observe(item)).collect();
                collection.line = Line::Page { begun: false };
                let token = page.next.map(|next| next.token());
                self.hears(at, kind, Heard::Page { position: Some(position(page.revision)), token });
            }
            Err(error) => self.fail(at, kind, Some(error.code()), &error.to_string()),
        }
    }

    /// Hands over some objects of a page.
    fn hand_on(&mut self, at: usize, kind: usize) {
        for _ in 0..self.api.between(1, 8) {
            let Some(object) = self.replicas[at].collections[kind].objects.pop_front() else { break };
            self.tell(at, Input::Listed { collection: KINDS[kind].key(), object });
        }
        let epoch = self.replicas[at].epoch;
        let collection = &mut self.replicas[at].collections[kind];
        if collection.objects.is_empty() {
            collection.line = Line::Nothing;
            return self.drain_follow(at, kind);
        }
        let generation = collection.generation;
        let delay = self.api.delay(self.options.api_ms);
        self.after(delay, Happening::ListStep { replica: at, epoch, kind, generation });
    }

    fn open_watch_list(&mut self, at: usize, kind: usize, seconds: u64) {
        if self.strikes("list failure", self.options.faults.list_failures) {
            return self.fails(at, kind, &[None, Some(500), Some(429), Some(403), Some(422)]);
        }
        let (model, shows_through) = self.server.lister(self.now, kind, self.replicas[at].known);
        match model.list(&KINDS[kind].resource(), &ListQuery::default()) {
            Ok(page) => {
                let log = &self.server.truth.log[kind];
                let (history, cursor) = (self.history(), log.partition_point(|event| event.revision <= page.revision));
                let collection = &mut self.replicas[at].collections[kind];
                collection.history = history;
                collection.objects = page.items.iter().map(|item| observe(item)).collect();
                self.opened(at, kind, cursor, Some(page.revision), shows_through, seconds);
            }
            Err(error) => self.fail(at, kind, Some(error.code()), &error.to_string()),
        }
    }

    fn open_watch(&mut self, at: usize, kind: usize, position: &ResourceVersion, seconds: u64) {
        if self.replicas[at].collections[kind].down_until > self.now && !self.calm {
            return self.fails(at, kind, &[None, Some(503)]);
        }
        if !self.server.truth.served[kind] {
            return self.fail(at, kind, Some(404), "not served");
        }
        if self.strikes("expired", self.options.faults.expired) {
            return self.fail(at, kind, Some(410), "too old resource version");
        }
        let (model, shows_through) = self.server.lister(self.now, kind, self.replicas[at].known);
        let revision = model.revision();
        let cursor = match self.place_to_resume(at, kind, position, revision) {
            Place::At(cursor) => cursor,
            Place::Expired => return self.fail(at, kind, Some(410), "too old resource version"),
            // A server may send nothing before its revision is as high,
            Place::TooHigh if self.chaos.percent(30) => {
                self.tally.fault("watch says nothing");
                usize::MAX
            }
            // or may refuse the request.
            Place::TooHigh => return self.fail(at, kind, Some(504), "too large resource version"),
        };
        self.replicas[at].collections[kind].history = self.history();
        self.opened(at, kind, cursor, None, shows_through, seconds);
    }

    fn opened(
        &mut self,
        at: usize,
        kind: usize,
        cursor: usize,
        ends_list: Option<u64>,
        shows_through: Option<u64>,
        seconds: u64,
    ) {
        let epoch = self.replicas[at].epoch;
        let plain = ends_list.is_some() && self.strikes("watch-list ignored", self.options.faults.list_failures / 4);
        let collection = &mut self.replicas[at].collections[kind];
        collection.line = Line::Stream(Stream { cursor, pumping: false, ends_list, plain, shows_through });
        let generation = collection.generation;
        self.hears(at, kind, Heard::Opened);
        self.pump_soon(at, kind);
        let delay = self.net.between(S, 60 * S);
        self.after(delay, Happening::Bookmark { replica: at, epoch, kind, generation });
        self.after(seconds * S, Happening::WatchEnds { replica: at, epoch, kind, generation });
    }

    /// The server answers with one of these faults, or does not answer.
    fn fails(&mut self, at: usize, kind: usize, statuses: &[Option<u16>]) {
        let status = self.chaos.pick(statuses).copied().flatten();
        self.fail(at, kind, status, "it failed");
    }

    fn fail(&mut self, at: usize, kind: usize, status: Option<u16>, why: &str) {
        let sentence = format!("{}: {why}", KINDS[kind].plural);
        self.hears(at, kind, Heard::Failed(Failure { sentence, status, retry_after: None }));
    }

    // The messages of watches.

    fn watch_ms(&self, kind: usize) -> u64 {
        if kind == self.options.slow_kind && !self.calm { self.options.slow_ms } else { self.options.watch_ms }
    }

    /// Tells every watch and discovery that there may be new events.
    pub(super) fn spread(&mut self) {
        self.end_pods();
        for at in 0..self.replicas.len() {
            if self.replicas[at].leader.is_none() {
                continue;
            }
            for kind in 0..KINDS.len() {
                self.pump_soon(at, kind);
            }
            let changed =
                |(kind, collection): (usize, &Collection)| collection.served != self.server.truth.served[kind];
            if self.replicas[at].collections.iter().enumerate().any(changed) {
                let epoch = self.replicas[at].epoch;
                let delay = self.net.between(MS, 3 * S);
                self.after(delay, Happening::Discovery { replica: at, epoch });
            }
        }
    }

    fn pump_soon(&mut self, at: usize, kind: usize) {
        let epoch = self.replicas[at].epoch;
        let collection = &mut self.replicas[at].collections[kind];
        let generation = collection.generation;
        let Line::Stream(stream) = &mut collection.line else { return };
        let log = &self.server.truth.log[kind];
        let next = log.get(stream.cursor).map(|event| event.revision);
        let none = next.is_none_or(|next| stream.shows_through.is_some_and(|through| through < next));
        if stream.pumping || (stream.ends_list.is_none() && none) {
            return;
        }
        stream.pumping = true;
        let delay = self.net.delay(self.watch_ms(kind));
        self.after(delay, Happening::Pump { replica: at, epoch, kind, generation });
    }

    pub(super) fn pump(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_following(at, epoch, kind, generation) {
            return;
        }
        if self.replicas[at].lags_until > self.now {
            let delay = self.replicas[at].lags_until - self.now + self.net.delay(self.watch_ms(kind));
            return self.after(delay, Happening::Pump { replica: at, epoch, kind, generation });
        }
        if let Line::Stream(stream) = &mut self.replicas[at].collections[kind].line {
            stream.pumping = false;
        }
        if self.strikes("watch drop", self.options.faults.watch_drops) {
            return self.drop_watch(at, kind);
        }
        let chunk = self.net.between(1, 6) as usize;
        self.deliver(at, kind, chunk);
        self.pump_soon(at, kind);
    }

    fn deliver(&mut self, at: usize, kind: usize, most: usize) {
        for _ in 0..most {
            let collection = &mut self.replicas[at].collections[kind];
            let Line::Stream(stream) = &mut collection.line else { return };
            let Some(follow) = &mut collection.follow else { return };
            let key = KINDS[kind].key();
            if let Some(revision) = stream.ends_list {
                if let Some(object) = collection.objects.pop_front() {
                    let pass = follow.pass(false, Some(object.resource_version.clone()));
                    debug_assert_eq!(pass, Pass::Listed);
                    self.tell(at, Input::Listed { collection: key, object });
                } else {
                    stream.ends_list = None;
                    let ends_list = !stream.plain;
                    self.hears(at, kind, Heard::Bookmark { position: position(revision), ends_list });
                }
                continue;
            }
            let shown = |event: &&Logged| stream.shows_through.is_none_or(|through| event.revision <= through);
            let next = self.server.truth.log[kind].get(stream.cursor).filter(shown);
            let Some(event) = next.cloned() else { break };
            stream.cursor += 1;
            collection.through = Some(event.revision);
            let crd = event.object.uid.clone();
            let input = match follow.pass(event.deleted, Some(position(event.revision))) {
                Pass::Deleted => Input::Deleted { collection: key, object: event.object },
                Pass::Seen => Input::Seen { collection: key, object: event.object },
                Pass::Listed | Pass::Nothing => return self.violate(format!("{key} is watched, but not followed")),
            };
            self.knows(at, kind);
            self.tell(at, input);
            if let Some((group, kind)) = event.emptied {
                self.tell(at, Input::KindEmptied { group, kind, crd, standing: !event.deleted });
            }
        }
        let local = self.replicas[at].local(self.now);
        if let Some(follow) = &mut self.replicas[at].collections[kind].follow {
            follow.waits(local);
        }
        self.drain_follow(at, kind);
    }

    pub(super) fn bookmark(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_following(at, epoch, kind, generation) {
            return;
        }
        let Line::Stream(stream) = &self.replicas[at].collections[kind].line else { return };
        let caught_up = stream.ends_list.is_none()
            && stream.shows_through.is_none()
            && stream.cursor == self.server.truth.log[kind].len();
        let lags = self.replicas[at].lags_until > self.now;
        if caught_up && !lags && self.server.truth.served[kind] {
            let position = position(self.server.model.revision());
            self.hears(at, kind, Heard::Bookmark { position, ends_list: false });
            let local = self.replicas[at].local(self.now);
            if let Some(follow) = &mut self.replicas[at].collections[kind].follow {
                follow.waits(local);
            }
        }
        let delay = self.net.between(30 * S, 60 * S);
        self.after(delay, Happening::Bookmark { replica: at, epoch, kind, generation });
    }

    /// Returns the place at which the server continues a watch.
    fn place_to_resume(&self, at: usize, kind: usize, position: &ResourceVersion, newest: u64) -> Place {
        let collection = &self.replicas[at].collections[kind];
        let log = &self.server.truth.log[kind];
        match revision(position) {
            None => Place::Expired,
            Some(_) if collection.history != self.history() && self.options.bumped => Place::Expired,
            Some(through) if through <= newest => Place::At(log.partition_point(|event| event.revision <= through)),
            Some(_) => Place::TooHigh,
        }
    }
}

fn revision(version: &ResourceVersion) -> Option<u64> {
    version.to_string().parse().ok()
}

/// The place at which a lost watch continues.
enum Place {
    At(usize),
    Expired,
    TooHigh,
}
