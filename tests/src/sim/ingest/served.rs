//! Discovery: the kinds that a replica sees as served, and the kinds that exist and that it cannot see.

use super::Line;
use crate::sim::kinds::{KINDS, UNWATCHED};
use crate::sim::world::{Happening, S, World};
use engine::leader::{Input, Undiscovered};
use engine::object::{Access, Backend, Name, ServedKind};

impl World {
    pub(in crate::sim) fn discovery(&mut self, at: usize, epoch: u64) {
        if !self.is_epoch(at, epoch) {
            return;
        }
        // The order is that of the graph service: new undiscovered groups come first, and groups that are discovered
        // again come last.
        let hidden = self.replicas[at].undiscovered.filter(|(_, until)| self.now < *until);
        if let Some((group, _)) = hidden {
            let why = String::from("its server does not answer");
            self.tell(at, Input::Undiscovered(vec![Undiscovered { group: group.into(), resource: None, why }]));
        }
        for kind in 0..KINDS.len() {
            let served = self.server.truth.served[kind] && !self.replicas[at].is_undiscovered(self.now, kind);
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
        if hidden.is_none() && self.replicas[at].undiscovered.take().is_some() {
            self.tell(at, Input::Undiscovered(Vec::new()));
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
            other_versions: Vec::new(),
            split: false,
            namespaced: of.namespaced,
            access,
            backend: if aggregated { Backend::Aggregated } else { Backend::Main },
            deletable: true,
            names: Default::default(),
        };
        self.tell(at, Input::KindServed(served));
        if access == Access::Watched {
            self.follow(at, kind);
        }
    }

    fn unserve_kind(&mut self, at: usize, kind: usize) {
        // The leader first takes the events that the watch still delivers.
        self.deliver(at, kind, usize::MAX);
        let collection = &mut self.replicas[at].collections[kind];
        collection.follow = None;
        collection.line = Line::Nothing;
        collection.generation += 1;
        (collection.through, collection.stood) = (None, None);
        self.tell(at, Input::KindUnserved(KINDS[kind].key()));
    }
}
