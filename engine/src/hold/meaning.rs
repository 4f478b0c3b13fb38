//! The meaning of the names in the scope of a pause. As in kubectl, users may write `deploy` for `deployments.apps`.

use crate::coverage::{Coverage, Kind};
use crate::guard::GuardKind;
use crate::object::{GroupResource, Name};
use crate::scope::{Filter, OwnerScope, Requirement, Scope};
use crate::selectors::Selectors;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Maximum number of names in a sentence.
const LISTED_MAX: usize = 5;

/// A scope with resource names of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The held scope. It is everything if a name matches no served kind, because the author's intention is unknown.
    pub(crate) scope: Scope,
    /// The selectors of each target of the scope, in its order.
    pub(crate) wants: Vec<Wants>,
    /// A target has a selector beyond the bounds.
    beyond: bool,
    /// The meaning of each name. A kind that is no longer served keeps its name.
    known: BTreeMap<GroupResource, Vec<GroupResource>>,
    unclear: Vec<GroupResource>,
}

/// The selectors of one target; `None` without requirements, or if the selector is beyond the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Of the object.
    pub(crate) object: Option<Selector>,
    /// Of its namespace.
    pub(crate) namespace: Option<Selector>,
}

/// A selector with the first generation of the table that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) number: u16,
    pub(crate) since: u32,
}

impl Meaning {
    /// Resolves a scope with the served kinds, and numbers its selectors.
    pub(crate) fn of(scope: &Scope, coverage: &Coverage, selectors: &mut Selectors) -> Meaning {
        Meaning::default().again(scope, coverage, selectors)
    }

    /// Resolves the same scope again, with the kinds that are served now.
    pub(crate) fn again(&self, scope: &Scope, coverage: &Coverage, selectors: &mut Selectors) -> Meaning {
        let mut meaning = Meaning::default();
        let mut called = |written: &GroupResource| {
            let mut means = self.known.get(written).cloned().unwrap_or_default();
            for called in coverage.called(written) {
                if !means.contains(&called) {
                    means.push(called);
                }
            }
            if means.is_empty() && !meaning.unclear.contains(written) {
                meaning.unclear.push(written.clone());
            }
            meaning.known.insert(written.clone(), means.clone());
            means
        };
        let mut targets = Vec::new();
        for filter in &scope.targets {
            let resources = filter.resources.iter().flat_map(&mut called).collect();
            let read = Filter { resources, ..filter.clone() };
            let Some(owner) = &filter.owner else {
                targets.push(read);
                continue;
            };
            // A name that several collections share means the owner of each of them.
            for resource in called(&owner.resource) {
                targets.push(Filter { owner: Some(OwnerScope { resource, ..owner.clone() }), ..read.clone() });
            }
        }
        meaning.scope = if meaning.unclear.is_empty() { Scope { targets } } else { Scope::default() };
        let mut beyond = false;
        let mut want = |requirements: &[Requirement]| {
            if requirements.is_empty() {
                return None;
            }
            let wanted = selectors.want(requirements);
            beyond |= wanted.is_err();
            wanted.ok().map(|(number, since)| Selector { number, since })
        };
        for filter in &meaning.scope.targets {
            let (object, namespace) = (want(&filter.marks), want(&filter.namespace_marks));
            meaning.wants.push(Wants { object, namespace });
        }
        meaning.beyond = beyond;
        meaning
    }

    /// The error of the names, as a sentence; empty if there is none.
    pub(crate) fn problem(&self, of: GuardKind) -> String {
        if self.unclear.is_empty() {
            let of = of.as_str();
            return if self.beyond {
                format!("there are too many selectors, so the {of} covers objects with any labels; delete some guards")
            } else {
                String::new()
            };
        }
        let (unclear, kind) = (listed(&self.unclear), of.as_str());
        let verb = if matches!(of, GuardKind::Pause | GuardKind::Protection) { "holds" } else { "covers" };
        format!("the API server does not serve {unclear}, so the {kind} {verb} everything")
    }
}

fn listed(names: &[GroupResource]) -> String {
    let names: Vec<String> = names.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    names.join(", ")
}

impl Coverage {
    /// The collections that a name matches: the collection itself, or all collections with this resource, kind,
    /// singular or short name, in any group and version that the name leaves open.
    pub(crate) fn called(&self, name: &GroupResource) -> Vec<GroupResource> {
        if self.find(name).is_some() {
            return alloc::vec![name.clone()];
        }
        let (word, place) = (name.resource.to_lowercase(), name.group.to_lowercase());
        let (version, group) = place.split_once('.').unwrap_or((&place, ""));
        let is_version = version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let is_there = |kind: &Kind| place.is_empty() || *kind.group == *place || (is_version && *kind.group == *group);
        let is_called = |kind: &Kind| {
            let Some(served) = kind.served() else { return false };
            *served.group_resource.resource == *word
                || kind.kind.to_lowercase() == word
                || served.names.iter().any(|name| **name == *word)
        };
        let found = self.served().filter(|(_, kind)| is_there(kind) && is_called(kind));
        found.filter_map(|(_, kind)| Some(kind.served()?.group_resource.clone())).collect()
    }
}

/// Resolves a requested scope. The error names the first part of the scope that matches nothing, because such a pause
/// would hold nothing. `has_namespace` says whether a namespace exists, and `has_owner` whether the object of an owner
/// exists; `None` if unknown.
pub(crate) fn resolved(
    scope: &Scope,
    coverage: &Coverage,
    has_namespace: impl Fn(&Name) -> Option<bool>,
    has_owner: impl Fn(&OwnerScope) -> Option<bool>,
) -> Result<Scope, String> {
    if coverage.served().next().is_none() {
        // No kind is known yet. The leader then holds everything until the kinds are known.
        return Ok(scope.clone());
    }
    let meaning = Meaning::of(scope, coverage, &mut Selectors::default());
    if !meaning.unclear.is_empty() {
        return Err(format!("names {}, which the API server does not serve", listed(&meaning.unclear)));
    }
    for filter in &meaning.scope.targets {
        if let Some(missing) = filter.namespaces.iter().find(|name| has_namespace(name) == Some(false)) {
            return Err(format!("names namespace {missing}, which does not exist"));
        }
        let namespaced = |of: &GroupResource| coverage.find(of).and_then(|id| coverage.kind(id).namespaced());
        let outside = filter.resources.iter().find(|of| namespaced(of) == Some(false));
        if let (Some(outside), Some(namespace)) = (outside, filter.namespaces.first()) {
            return Err(format!("names {outside} in namespace {namespace}, but {outside} are cluster-scoped"));
        }
    }
    // A name that several collections share has an owner in one of them.
    for owner in scope.targets.iter().filter_map(|filter| filter.owner.as_ref()) {
        let called = coverage.called(&owner.resource);
        let mut owners = called.into_iter().map(|resource| OwnerScope { resource, ..owner.clone() });
        if owners.all(|owner| has_owner(&owner) == Some(false)) {
            return Err(format!("names owner {owner}, which does not exist"));
        }
    }
    Ok(meaning.scope)
}
