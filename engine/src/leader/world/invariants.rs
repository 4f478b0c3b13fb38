//! Invariants of the world that hold between any two calls.

use super::World;
use alloc::format;
use alloc::string::String;

impl World {
    pub(in crate::leader) fn inconsistent_counts(&self) -> Option<String> {
        let counts = self.graph.observed_by_kind(|kind| self.coverage.kind(kind).list());
        self.coverage.ids().find_map(|id| {
            let kind = self.coverage.kind(id);
            let (all, fresh) = counts.get(&id).copied().unwrap_or_default();
            ((kind.observed(), kind.fresh()) != (all, fresh)).then(|| {
                format!(
                    "the graph has {all} {}, {fresh} of the current list; the counters say {} and {}",
                    kind.kind,
                    kind.observed(),
                    kind.fresh()
                )
            })
        })
    }

    pub(in crate::leader) fn stray_notes(&self) -> Option<String> {
        let mut notes = self.inquiries.keys().chain(self.deletions.keys()).chain(self.absent_since.keys());
        let stray = notes.any(|&id| self.graph.get(id).is_none())
            || self.undecided.places().any(|place| self.graph.at_place(place).is_none());
        stray.then(|| String::from("a note about a node that is gone"))
    }
}
