//! Queries for blockers of many items, and for items with a retry of their own.

use super::Queries;
use super::explain::how_served;
use crate::object::in_group;
use crate::queue::{Blocker, Item};
use crate::view::{BlockerView, TroubleView, Unanswered, Undecided, UnresolvedKind, Unseen};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Queries<'_> {
    fn in_words(&self, blocker: &Blocker) -> String {
        let pace = if let Blocker::Throttled { collection } = blocker {
            self.leader.dispatcher.pace_of(collection)
        } else {
            None
        };
        pace.map_or_else(|| blocker.to_string(), |pace| format!("{blocker}, slowed to {pace}"))
    }

    /// Returns the number of blocked items per blocker category.
    pub(super) fn blocked(&self) -> Vec<(&'static str, usize)> {
        let mut blocked: BTreeMap<&'static str, usize> = BTreeMap::new();
        for obstacle in self.queue().obstacles() {
            *blocked.entry(obstacle.blocker.word()).or_default() += obstacle.items;
        }
        for unanswered in self.leader.prober.questions().view(self.coverage()).unanswered {
            *blocked.entry("unreadable").or_default() += unanswered.owners;
        }
        blocked.into_iter().collect()
    }

    /// Returns at most `max` blockers, those with the most items first, and the number of further blockers.
    pub fn blockers(&self, max: usize) -> (Vec<BlockerView>, usize) {
        let mut obstacles: Vec<_> =
            self.queue().obstacles().filter(|obstacle| obstacle.items > 0 || obstacle.probing).collect();
        obstacles.sort_by(|a, b| b.items.cmp(&a.items).then_with(|| a.blocker.cmp(b.blocker)));
        let view = |obstacle: crate::queue::Obstacle<'_>| BlockerView {
            what: self.in_words(obstacle.blocker),
            items: obstacle.items,
            since: obstacle.since,
            said: obstacle.said.map(ToString::to_string).unwrap_or_default(),
            next_probe: obstacle.due,
            probing: obstacle.probing,
        };
        let unanswered = |row: Unanswered| BlockerView {
            what: format!("unreadable: owners in {}", row.collection),
            items: row.owners,
            since: row.since,
            said: row.why,
            next_probe: Some(row.next),
            probing: row.asking,
        };
        let mut views: Vec<BlockerView> = obstacles.into_iter().map(view).collect();
        views.extend(self.leader.prober.questions().view(self.coverage()).unanswered.into_iter().map(unanswered));
        let held = self.world().undecided().count(Undecided::DependentsUnseen);
        let undiscovered = |hidden: Unseen| BlockerView {
            what: format!("undiscovered: {}", hidden.what),
            items: held,
            since: hidden.since,
            said: hidden.why,
            next_probe: None,
            probing: false,
        };
        views.extend(self.world().hidden_views(self.cx()).into_iter().filter(|_| held > 0).map(undiscovered));
        let ambiguous = |kind: UnresolvedKind| {
            let name = in_group(&kind.kind, &kind.group);
            let what = format!("ambiguous: {name} is {}", how_served(&kind.resources));
            let (items, since) = (kind.dependents, kind.since);
            BlockerView { what, items, since, said: String::new(), next_probe: None, probing: false }
        };
        let unresolved = self.unresolved_kinds(usize::MAX).into_iter();
        views.extend(unresolved.filter(|kind| !kind.resources.is_empty()).map(ambiguous));
        views.sort_by_key(|view| core::cmp::Reverse(view.items));
        let more = views.len().saturating_sub(max);
        views.truncate(max);
        (views, more)
    }

    /// Returns at most `max` items with a retry of their own, those with the most attempts first, and the number of
    /// further items.
    pub fn troubles(&self, max: usize) -> (Vec<TroubleView>, usize) {
        let view = |item: &Item| TroubleView {
            object: item.draft.target.clone(),
            action: item.draft.action.kind(),
            attempts: item.attempts,
            since: item.decided,
            why: self.waits(item).into_iter().next().map(|reason| reason.detail).unwrap_or_default(),
        };
        let more = self.queue().troubled_count().saturating_sub(max);
        (self.queue().troubled().take(max).map(view).collect(), more)
    }
}
