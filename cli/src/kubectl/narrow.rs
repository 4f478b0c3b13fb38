//! Filters of a command. The graph has no labels and ages, so the filters read them from the API server. An object
//! whose labels cannot be read does not match.

use super::columns::now;
use super::conditions::{self, Condition, Conditions};
use super::flags::{Ages, Selectors, Walk};
use super::globs::Globs;
use super::selector::fields_of;
use super::session::Session;
use kube::core::SelectorExt as _;
use proto::graph::v1beta1::Node;
use std::time::Duration;

/// Filters that an object must all pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Narrow {
    kinds: Globs,
    groups: Globs,
    selectors: Selectors,
    ages: Ages,
    /// Seconds of the Unix epoch.
    now: i64,
    /// The names of the flags that are set.
    flags: Vec<&'static str>,
}

impl Narrow {
    pub(super) fn of(selectors: &Selectors, ages: Ages) -> Narrow {
        let set = [
            ("--selector", selectors.selector.is_some()),
            ("--field-selector", selectors.field_selector.is_some()),
            ("--older-than", ages.older_than.is_some()),
            ("--newer-than", ages.newer_than.is_some()),
        ];
        let flags = set.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect();
        Narrow { selectors: selectors.clone(), ages, now: now(), flags, ..Narrow::default() }
    }

    pub(super) fn of_walk(walk: &Walk) -> Narrow {
        let mut narrow = Narrow::of(&walk.selectors, walk.ages);
        (narrow.kinds, narrow.groups) = (Globs::of(&walk.kinds), Globs::of(&walk.api_groups));
        let set = [("--kinds", !walk.kinds.is_empty()), ("--api-groups", !walk.api_groups.is_empty())];
        narrow.flags.splice(0..0, set.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
        narrow
    }

    /// Whether a filter needs data that only the API server has.
    pub(super) fn reads(&self) -> bool {
        self.selectors.selector.is_some() || self.ages.older_than.is_some() || self.ages.newer_than.is_some()
    }

    /// The number of hidden objects as text: `12 hidden by --kinds`.
    pub(super) fn said(&self, hidden: usize) -> String {
        format!("… {hidden} hidden by {}", self.flags.join(", "))
    }

    pub(super) fn admits(&self, node: &Node, read: Option<&Condition>) -> bool {
        let object = node.r#ref.clone().unwrap_or_default();
        let group = if object.group.is_empty() { "core" } else { &object.group };
        let Selectors { selector, field_selector } = &self.selectors;
        let age = read.and_then(|read| read.created).map(|created| self.now - created);
        let is = |limit: Option<Duration>, fits: fn(i64, i64) -> bool| match (limit, age) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(limit), Some(age)) => fits(age, i64::try_from(limit.as_secs()).unwrap_or(i64::MAX)),
        };
        self.kinds.admits(&object.kind)
            && self.groups.admits(group)
            && field_selector.as_ref().is_none_or(|fields| fields.matches(&fields_of(&object)))
            && selector.as_ref().is_none_or(|labels| read.is_some_and(|read| labels.matches(&read.labels)))
            && is(self.ages.older_than, |age, limit| age > limit)
            && is(self.ages.newer_than, |age, limit| age <= limit)
    }

    /// Removes the objects that do not pass, and prints their number.
    pub(super) async fn retain<T>(
        &self,
        session: &mut Session,
        all: &mut Vec<T>,
        node: impl for<'t> Fn(&'t T) -> Option<&'t Node>,
    ) {
        let read = if self.reads() {
            conditions::read(session, &all.iter().filter_map(&node).collect::<Vec<_>>()).await
        } else {
            Conditions::new()
        };
        let before = all.len();
        let uid = |node: &Node| node.r#ref.clone().unwrap_or_default().uid;
        all.retain(|one| node(one).is_some_and(|node| self.admits(node, read.get(&uid(node)))));
        if all.len() < before {
            session.note(&self.said(before - all.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::selector::{fields, labels};
    use proto::r#type::v1beta1::ObjectRef;

    #[test]
    fn all_filters_have_to_be_passed_and_what_was_not_read_passes_none_that_reads() {
        let object = ObjectRef { kind: "Pod".into(), name: "a".into(), ..Default::default() };
        let node = Node { r#ref: Some(object), ..Default::default() };
        let narrow = |selector: &str, name: &str, older: u64, newer: u64| {
            let selector = (!selector.is_empty()).then(|| labels(selector).unwrap());
            let field_selector = (!name.is_empty()).then(|| fields(name).unwrap());
            let limit = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
            let ages = Ages { older_than: limit(older), newer_than: limit(newer) };
            Narrow { now: 1_000, ..Narrow::of(&Selectors { selector, field_selector }, ages) }
        };
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let read = Condition { labels, created: Some(900), ..Condition::default() };
        let cases = [
            (narrow("app=web", "metadata.name=a", 99, 100), true, false),
            (narrow("app!=web", "", 0, 0), false, false),
            (narrow("", "metadata.name=b", 0, 0), false, false),
            (narrow("", "", 100, 0), false, false),
            (narrow("", "", 0, 99), false, false),
            (narrow("", "metadata.name=a", 0, 0), true, true),
        ];
        for (narrow, fits, unread_fits) in cases {
            assert_eq!(
                (narrow.admits(&node, Some(&read)), narrow.admits(&node, None)),
                (fits, unread_fits),
                "{narrow:?}"
            );
        }
        assert_eq!(narrow("app", "", 1, 0).said(12), "… 12 hidden by --selector, --older-than");
    }
}
