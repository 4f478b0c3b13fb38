//! The lists and watches of a replica: the model's history, late and in pieces.

use super::kinds::{KINDS, UNWATCHED, observe};
use super::replica::position;
use super::world::{Happening, MS, S, World};
use engine::leader::Input;
use engine::object::{Access, Backend, Name, Object, ServedKind};
use sandbox::model::ListQuery;
use std::collections::VecDeque;

/// The shell's side of one collection.
#[derive(Debug, Default)]
pub(super) struct Collection {
    pub(super) served: bool,
    phase: Phase,
    generation: u64,
    /// What of the log has been read.
    cursor: usize,
    pumping: bool,
    /// Up to which revision the leader was shown everything, while the collection is complete.
    pub(super) through: Option<u64>,
    /// The history of the store that it belongs to.
    pub(super) history: usize,
    fruitless: u32,
}

impl Collection {
    /// The connection breaks; nobody has noticed yet. Gives the number under which it will be.
    pub(super) fn cut(&mut self) -> Option<u64> {
        match self.phase {
            Phase::Listing { .. } | Phase::Watching => {}
            Phase::Off | Phase::Asking { .. } | Phase::Broken { .. } | Phase::Lost => return None,
        }
        self.phase = Phase::Broken { listing: matches!(self.phase, Phase::Listing { .. }) };
        self.generation += 1;
        self.pumping = false;
        Some(self.generation)
    }
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Off,
    /// A list begins soon; whether it has been announced.
    Asking {
        announced: bool,
    },
    Listing {
        items: VecDeque<Object>,
        revision: u64,
        cursor: usize,
    },
    Watching,
    /// Nothing comes any more, and nobody knows.
    Broken {
        listing: bool,
    },
    Lost,
}

impl World {
    // What is served.

    pub(super) fn discovery(&mut self, at: usize, epoch: u64) {
        if !self.is_epoch(at, epoch) {
            return;
        }
        for kind in 0..KINDS.len() {
            let served = self.server.truth.served[kind];
            if served == self.replicas[at].collections[kind].served {
                continue;
            }
            self.replicas[at].collections[kind].served = served;
            if served {
                self.serve_kind(at, kind);
            } else {
                self.unserve_kind(at, kind);
            }
        }
        self.after(10 * S, Happening::Discovery { replica: at, epoch });
    }

    fn serve_kind(&mut self, at: usize, kind: usize) {
        let of = KINDS[kind];
        let access = match (kind == UNWATCHED, self.options.unwatched) {
            (false, _) => Access::Watched,
            (true, 0) => Access::Listed,
            (true, _) => Access::ReadOnly,
        };
        let aggregated = self.options.is_aggregated(kind);
        let served = ServedKind {
            group_resource: of.key(),
            kind: Name::from(of.kind),
            version: Name::from(of.version),
            namespaced: of.namespaced,
            access,
            backend: if aggregated { Backend::Aggregated } else { Backend::Main },
            deletable: true,
            names: Default::default(),
        };
        self.tell(at, Input::KindServed(served));
        if access == Access::Watched {
            self.begin_list(at, kind, 0, false);
        }
    }

    fn unserve_kind(&mut self, at: usize, kind: usize) {
        // What the watch still brings is taken first.
        self.deliver(at, kind, usize::MAX);
        let collection = &mut self.replicas[at].collections[kind];
        collection.phase = Phase::Off;
        collection.generation += 1;
        collection.through = None;
        self.tell(at, Input::KindUnserved(KINDS[kind].key()));
    }

    // Lists.

    fn begin_list(&mut self, at: usize, kind: usize, delay: u64, announced: bool) {
        let epoch = self.replicas[at].epoch;
        let collection = &mut self.replicas[at].collections[kind];
        collection.phase = Phase::Asking { announced };
        collection.generation += 1;
        collection.pumping = false;
        collection.fruitless = 0;
        let generation = collection.generation;
        if !announced {
            collection.through = None;
            self.tell(at, Input::ListBegun { collection: KINDS[kind].key() });
        }
        let delay = delay + self.api.delay(self.options.api_ms.max(self.watch_ms(kind) / 4));
        self.after(delay, Happening::ListStep { replica: at, epoch, kind, generation });
    }

    /// The wish for a new list is taken by another task than the one that made it; whatever is under way then is dropped.
    pub(super) fn relist(&mut self, at: usize, kind: usize) {
        if self.replicas[at].leader.is_some() {
            let epoch = self.replicas[at].epoch;
            self.after(MS, Happening::Relist { replica: at, epoch, kind });
        }
    }

    pub(super) fn relist_now(&mut self, at: usize, epoch: u64, kind: usize) {
        if !self.is_epoch(at, epoch) {
            return;
        }
        let collection = &self.replicas[at].collections[kind];
        if collection.served && !matches!(collection.phase, Phase::Off) {
            self.begin_list(at, kind, 0, false);
        }
    }

    pub(super) fn list_step(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].generation != generation {
            return;
        }
        let fails = self.strikes("list failure", self.options.faults.list_failures);
        let key = KINDS[kind].key();
        let phase = std::mem::take(&mut self.replicas[at].collections[kind].phase);
        match phase {
            Phase::Asking { announced } => {
                let listed = self.server.model.list(&KINDS[kind].resource(), &ListQuery::default());
                let page = match listed {
                    Ok(page) if !fails => page,
                    Ok(_) | Err(_) => return self.list_fails(at, kind),
                };
                if announced {
                    // After a failure the leader hears of a new list when the server has begun to answer.
                    self.tell(at, Input::ListBegun { collection: key });
                }
                let items: VecDeque<Object> = page.items.iter().map(|item| observe(item)).collect();
                let cursor = self.server.truth.log[kind].len();
                let history = self.history();
                let collection = &mut self.replicas[at].collections[kind];
                collection.history = history;
                collection.through = None;
                collection.phase = Phase::Listing { items, revision: page.revision, cursor };
            }
            Phase::Listing { items, .. } if fails && !items.is_empty() => return self.list_fails(at, kind),
            Phase::Listing { mut items, revision, cursor } => {
                let chunk = self.api.between(1, 8) as usize;
                for _ in 0..chunk {
                    let Some(object) = items.pop_front() else { break };
                    self.tell(at, Input::Listed { collection: key.clone(), object });
                }
                let collection = &mut self.replicas[at].collections[kind];
                if items.is_empty() {
                    collection.phase = Phase::Watching;
                    collection.cursor = cursor;
                    collection.through = Some(revision);
                    collection.fruitless = 0;
                    self.tell(at, Input::ListEnded { collection: key, resource_version: position(revision) });
                    self.pump_soon(at, kind);
                    let delay = self.net.between(S, 60 * S);
                    return self.after(delay, Happening::Bookmark { replica: at, epoch, kind, generation });
                }
                collection.phase = Phase::Listing { items, revision, cursor };
            }
            other @ (Phase::Off | Phase::Watching | Phase::Broken { .. } | Phase::Lost) => {
                self.replicas[at].collections[kind].phase = other;
                return;
            }
        }
        let delay = self.api.delay(self.options.api_ms);
        self.after(delay, Happening::ListStep { replica: at, epoch, kind, generation });
    }

    fn list_fails(&mut self, at: usize, kind: usize) {
        let error = String::from("the list failed");
        self.replicas[at].collections[kind].through = None;
        self.tell(at, Input::ListFailed { collection: KINDS[kind].key(), error });
        let delay = self.api.between(S, 5 * S);
        self.begin_list(at, kind, delay, true);
    }

    // Watches.

    fn watch_ms(&self, kind: usize) -> u64 {
        if kind == self.options.slow_kind && !self.calm { self.options.slow_ms } else { self.options.watch_ms }
    }

    /// Lets every watch know that there may be something new, and discovery too.
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
        let behind = self.server.truth.log[kind].len();
        let collection = &self.replicas[at].collections[kind];
        let idle = matches!(collection.phase, Phase::Watching) && !collection.pumping && collection.cursor < behind;
        if !idle {
            return;
        }
        let (epoch, generation) = (self.replicas[at].epoch, collection.generation);
        self.replicas[at].collections[kind].pumping = true;
        let delay = self.net.delay(self.watch_ms(kind));
        self.after(delay, Happening::Pump { replica: at, epoch, kind, generation });
    }

    pub(super) fn pump(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].generation != generation {
            return;
        }
        self.replicas[at].collections[kind].pumping = false;
        if self.replicas[at].lags_until > self.now {
            self.replicas[at].collections[kind].pumping = true;
            let delay = self.replicas[at].lags_until - self.now + self.net.delay(self.watch_ms(kind));
            return self.after(delay, Happening::Pump { replica: at, epoch, kind, generation });
        }
        if self.strikes("watch drop", self.options.faults.watch_drops) {
            return self.lose_watch(at, kind);
        }
        let chunk = self.net.between(1, 6) as usize;
        self.deliver(at, kind, chunk);
        self.pump_soon(at, kind);
    }

    fn deliver(&mut self, at: usize, kind: usize, most: usize) {
        if !matches!(self.replicas[at].collections[kind].phase, Phase::Watching) {
            return;
        }
        for _ in 0..most {
            let collection = &mut self.replicas[at].collections[kind];
            let Some(event) = self.server.truth.log[kind].get(collection.cursor).cloned() else { break };
            collection.cursor += 1;
            collection.through = Some(event.revision);
            let key = KINDS[kind].key();
            let crd = event.object.uid.clone();
            self.tell(
                at,
                match event.deleted {
                    true => Input::Deleted { collection: key, object: event.object },
                    false => Input::Seen { collection: key, object: event.object },
                },
            );
            if let Some((group, kind)) = event.emptied {
                self.tell(at, Input::KindEmptied { group, kind, crd });
            }
        }
    }

    pub(super) fn bookmark(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].generation != generation {
            return;
        }
        let collection = &self.replicas[at].collections[kind];
        let caught_up = collection.cursor >= self.server.truth.log[kind].len();
        let lags = self.replicas[at].lags_until > self.now;
        if matches!(collection.phase, Phase::Watching) && caught_up && !lags && self.server.truth.served[kind] {
            let revision = self.server.model.revision();
            self.replicas[at].collections[kind].through = Some(revision);
            self.tell(at, Input::Bookmark { collection: KINDS[kind].key(), resource_version: position(revision) });
        }
        let delay = self.net.between(30 * S, 60 * S);
        self.after(delay, Happening::Bookmark { replica: at, epoch, kind, generation });
    }

    fn lose_watch(&mut self, at: usize, kind: usize) {
        let transport = self.strikes("transport error", self.options.faults.transport);
        self.watch_lost(at, kind, transport);
    }

    fn watch_lost(&mut self, at: usize, kind: usize, transport: bool) {
        let epoch = self.replicas[at].epoch;
        let collection = &mut self.replicas[at].collections[kind];
        collection.phase = Phase::Lost;
        collection.generation += 1;
        let generation = collection.generation;
        let error = String::from("the watch broke");
        self.tell(at, Input::WatchLost { collection: KINDS[kind].key(), transport, error });
        let long = self.chaos.once_in(5);
        let delay = if long { self.chaos.between(S, 90 * S) } else { self.chaos.between(MS, 3 * S) };
        self.after(delay, Happening::Resume { replica: at, epoch, kind, generation });
    }

    /// A connection is found broken.
    pub(super) fn broken(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].generation != generation {
            return;
        }
        let aggregated = self.options.is_aggregated(kind);
        if !aggregated {
            self.told_of_history(at);
        }
        if matches!(self.replicas[at].collections[kind].phase, Phase::Broken { listing: true }) {
            return self.list_fails(at, kind);
        }
        self.watch_lost(at, kind, true);
    }

    pub(super) fn resume(&mut self, at: usize, epoch: u64, kind: usize, generation: u64) {
        if !self.is_epoch(at, epoch) || self.replicas[at].collections[kind].generation != generation {
            return;
        }
        if !self.server.truth.served[kind] || self.strikes("expired", self.options.faults.expired) {
            return self.begin_list(at, kind, 0, false);
        }
        match self.place_to_resume(at, kind) {
            Place::At(cursor) => {
                let history = self.history();
                let collection = &mut self.replicas[at].collections[kind];
                collection.cursor = cursor;
                collection.history = history;
            }
            Place::Expired => return self.begin_list(at, kind, 0, false),
            // A server may say nothing until its revision is as high,
            Place::TooHigh if self.chaos.percent(30) => {
                self.tally.fault("watch says nothing");
                self.replicas[at].collections[kind].cursor = usize::MAX;
            }
            // or refuse it.
            Place::TooHigh => {
                self.replicas[at].collections[kind].fruitless += 1;
                if self.replicas[at].collections[kind].fruitless > 3 {
                    return self.begin_list(at, kind, 0, false);
                }
                let delay = self.chaos.between(S, 3 * S);
                return self.after(delay, Happening::Resume { replica: at, epoch, kind, generation });
            }
        }
        let collection = &mut self.replicas[at].collections[kind];
        collection.fruitless = 0;
        collection.phase = Phase::Watching;
        collection.pumping = false;
        self.tell(at, Input::WatchResumed { collection: KINDS[kind].key() });
        self.pump_soon(at, kind);
        let delay = self.net.between(S, 60 * S);
        self.after(delay, Happening::Bookmark { replica: at, epoch, kind, generation });
    }

    /// Where a watch goes on, as the server sees it.
    fn place_to_resume(&self, at: usize, kind: usize) -> Place {
        let collection = &self.replicas[at].collections[kind];
        if collection.history == self.history() {
            return Place::At(collection.cursor);
        }
        match collection.through {
            _ if self.options.bumped => Place::Expired,
            Some(through) if through <= self.server.model.revision() => {
                Place::At(self.server.truth.log[kind].partition_point(|event| event.revision <= through))
            }
            Some(_) => Place::TooHigh,
            None => Place::Expired,
        }
    }
}

/// Where a watch that was lost goes on.
enum Place {
    At(usize),
    Expired,
    TooHigh,
}
