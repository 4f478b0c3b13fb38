//! Scopes of guards. An unknown field makes a scope invalid, because it may narrow or widen the scope.

use super::values::{Most, Resource, Word};
use engine::object::{GroupResource, Name, Uid};
use engine::scope::{Filter, Labelled, OwnerScope, Requirement, Test};
use proto::convert::{REQUIREMENTS_MAX, SCOPE_MAX, VALUES_MAX, is_label_key, is_label_value};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scope {
    #[serde(default)]
    targets: Most<Target, SCOPE_MAX>,
}

impl From<Scope> for engine::scope::Scope {
    fn from(raw: Scope) -> Self {
        engine::scope::Scope { targets: raw.targets.0.into_iter().map(Filter::from).collect() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Target {
    #[serde(default)]
    resources: Most<Resource, SCOPE_MAX>,
    #[serde(default)]
    namespaces: Most<Word, SCOPE_MAX>,
    #[serde(default)]
    names: Most<Word, SCOPE_MAX>,
    #[serde(default)]
    label_selector: Selector,
    #[serde(default)]
    namespace_selector: Selector,
    owner: Option<Owner>,
}

impl From<Target> for Filter {
    fn from(raw: Target) -> Self {
        let words = |words: Most<Word, SCOPE_MAX>| words.0.into_iter().map(|Word(name)| name).collect();
        Filter {
            resources: raw.resources.0.into_iter().map(GroupResource::from).collect(),
            namespaces: words(raw.namespaces),
            names: words(raw.names),
            marks: raw.label_selector.requirements(),
            namespace_marks: raw.namespace_selector.requirements(),
            owner: raw.owner.map(OwnerScope::from),
        }
    }
}

/// A label selector, as elsewhere in Kubernetes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Selector {
    #[serde(default)]
    match_labels: Labels,
    #[serde(default)]
    match_expressions: Most<Expression, REQUIREMENTS_MAX>,
}

impl Selector {
    fn requirements(self) -> Vec<Requirement> {
        let label = |key: Name, test: Test| Requirement { of: Labelled::Label, key, test };
        let equal =
            self.match_labels.0.into_iter().map(|(Key(key), LabelValue(value))| label(key, Test::In(vec![value])));
        let tested = self.match_expressions.0.into_iter().map(|Expression { key, test }| label(key, test));
        equal.chain(tested).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<Key, LabelValue>")]
struct Labels(BTreeMap<Key, LabelValue>);

impl TryFrom<BTreeMap<Key, LabelValue>> for Labels {
    type Error = String;

    fn try_from(labels: BTreeMap<Key, LabelValue>) -> Result<Self, String> {
        if labels.len() > REQUIREMENTS_MAX {
            return Err(format!("has {} labels, more than {REQUIREMENTS_MAX}", labels.len()));
        }
        Ok(Labels(labels))
    }
}

/// The key of a label: a name, with the domain of its owner and a slash before it, or without.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
struct Key(Name);

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_label_key(&text) {
            return Ok(Key(Arc::from(text)));
        }
        Err(format!("{text:?} is not the key of a label, such as app.kubernetes.io/name"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct LabelValue(Name);

impl TryFrom<String> for LabelValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_label_value(&text) {
            return Ok(LabelValue(Arc::from(text)));
        }
        Err(format!("{text:?} is not the value of a label"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "RawExpression")]
struct Expression {
    key: Name,
    test: Test,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpression {
    key: Key,
    operator: Operator,
    #[serde(default)]
    values: Most<LabelValue, VALUES_MAX>,
}

#[derive(Clone, Copy, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl TryFrom<RawExpression> for Expression {
    type Error = &'static str;

    fn try_from(raw: RawExpression) -> Result<Self, &'static str> {
        let values: Vec<Name> = raw.values.0.into_iter().map(|LabelValue(value)| value).collect();
        let test = match (raw.operator, values.is_empty()) {
            (Operator::In, false) => Test::In(values),
            (Operator::NotIn, false) => Test::NotIn(values),
            (Operator::Exists, true) => Test::Exists,
            (Operator::DoesNotExist, true) => Test::DoesNotExist,
            (Operator::In | Operator::NotIn, true) => return Err("the operators In and NotIn need values"),
            (Operator::Exists | Operator::DoesNotExist, false) => {
                return Err("the operators Exists and DoesNotExist have no values");
            }
        };
        Ok(Expression { key: raw.key.0, test })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    #[serde(default)]
    group: String,
    resource: Word,
    #[serde(default)]
    namespace: String,
    name: Word,
    uid: Option<Word>,
}

impl From<Owner> for OwnerScope {
    fn from(raw: Owner) -> Self {
        OwnerScope {
            resource: GroupResource { group: Arc::from(raw.group), resource: raw.resource.0 },
            namespace: Arc::from(raw.namespace),
            name: raw.name.0,
            uid: raw.uid.and_then(|Word(uid)| Uid::parse(&uid)),
        }
    }
}
