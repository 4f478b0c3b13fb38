//! Filters on objects.

use super::status;
use crate::expression::{Activation, Element, Expression, Subject, Type, Verdict, list, map};
use cel::objects::Value;
use engine::object::{Name, OwnerReference};
use engine::view::NodeView;
use proto::convert::node_state;
use proto::r#type::v1beta1 as wire;
use proto::r#type::v1beta1::ObjectFilter;
use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Status;

#[cfg(test)]
mod tests;

/// Maximum number of conditions in all filters of one request.
const CONDITIONS_MAX: usize = 1000;
/// Maximum number of expressions in all filters of one request.
const EXPRESSIONS_MAX: usize = 16;

/// The fields of an object's name, for expressions.
pub(super) static NAME: Type = Type::Object(&NAME_FIELDS);
static NAME_FIELDS: [(&str, Type); 6] = [
    ("group", Type::String),
    ("resource", Type::String),
    ("kind", Type::String),
    ("namespace", Type::String),
    ("name", Type::String),
    ("uid", Type::String),
];
static OWNER: Type = Type::Object(&[
    ("api_version", Type::String),
    ("kind", Type::String),
    ("name", Type::String),
    ("uid", Type::String),
    ("controller", Type::Bool),
    ("block_owner_deletion", Type::Bool),
]);
/// The variable `object` for an object of the graph.
static OBJECT: Subject = Subject {
    name: "object",
    fields: &[
        ("group", Type::String),
        ("resource", Type::String),
        ("kind", Type::String),
        ("namespace", Type::String),
        ("name", Type::String),
        ("uid", Type::String),
        ("resource_version", Type::String),
        ("state", Type::String),
        ("finalizers", Type::List(Element::Of(&Type::String))),
        ("dependent_count", Type::Int),
        ("blocking_dependent_count", Type::Int),
        ("deleting_dependents", Type::Bool),
        ("orphaning_dependents", Type::Bool),
        ("owners", Type::List(Element::Of(&OWNER))),
    ],
};
/// The variable `object` for an object that is only named.
pub(super) static NAMED: Subject = Subject { name: "object", fields: &NAME_FIELDS };

/// An error if the filters of a request have too many conditions or expressions.
pub(super) fn ensure_bounded<'a>(
    field: &str,
    conditions: usize,
    expressions: impl Iterator<Item = &'a str>,
) -> Result<(), Status> {
    if conditions > CONDITIONS_MAX {
        return Err(status::bad_field(field, &format!("has {conditions} conditions; at most {CONDITIONS_MAX}")));
    }
    let expressions = expressions.filter(|expression| !expression.is_empty()).count();
    if expressions > EXPRESSIONS_MAX {
        return Err(status::bad_field(field, &format!("has {expressions} expressions; at most {EXPRESSIONS_MAX}")));
    }
    Ok(())
}

/// Admits an object that any of its filters admits.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    any: Vec<One>,
    errors: Errors,
}

/// The condition of a filter that only the scope of a pause has. A filter that ignored it would admit too much.
fn only_in_scopes(filter: &ObjectFilter) -> Option<&'static str> {
    let ObjectFilter { names, label_selector, namespace_selector, owner, .. } = filter;
    let conditions = [
        ("names", !names.is_empty()),
        ("label_selector", label_selector.is_some()),
        ("namespace_selector", namespace_selector.is_some()),
        ("owner", owner.is_some()),
    ];
    conditions.into_iter().find_map(|(of, is_set)| is_set.then_some(of))
}

/// How often an expression of a request could not be evaluated.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors(Arc<AtomicU64>);

impl Errors {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether an expression is true. A failed evaluation is false, and is counted.
    pub(super) fn is_true(&self, expression: &Expression, activation: &Activation) -> bool {
        let verdict = expression.evaluate(activation);
        if verdict == Verdict::Failed {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        verdict == Verdict::True
    }
}

#[derive(Clone, Debug)]
struct One {
    wanted: ObjectFilter,
    expression: Option<Expression>,
}

impl Filter {
    /// `None` without filters.
    pub(super) fn of(field: &str, filters: &[ObjectFilter]) -> Result<Option<Filter>, Status> {
        Filter::about(field, filters, &OBJECT)
    }

    /// The filters for objects that are only named.
    pub(super) fn of_names(field: &str, filters: &[ObjectFilter]) -> Result<Option<Filter>, Status> {
        Filter::about(field, filters, &NAMED)
    }

    fn about(field: &str, filters: &[ObjectFilter], subject: &'static Subject) -> Result<Option<Filter>, Status> {
        let conditions = |filter: &ObjectFilter| filter.resources.len() + filter.namespaces.len() + filter.uids.len();
        let count: usize = filters.iter().map(|filter| conditions(filter).max(1)).sum();
        ensure_bounded(field, count, filters.iter().map(|filter| &*filter.cel))?;
        let one = |(at, wanted): (usize, &ObjectFilter)| {
            if let Some(of) = only_in_scopes(wanted) {
                let why = "is set: only the scope of a pause has this condition";
                return Err(status::bad_field(&format!("{field}[{at}].{of}"), why));
            }
            let expression = Expression::of(&wanted.cel, subject)
                .map_err(|mistake| status::expression_invalid(&format!("{field}[{at}].cel"), &mistake))?;
            Ok(One { wanted: wanted.clone(), expression })
        };
        let filters = filters.iter().enumerate().map(one).collect::<Result<Vec<One>, Status>>()?;
        Ok((!filters.is_empty()).then_some(Filter { any: filters, errors: Errors::default() }))
    }

    pub(super) fn admits(&self, node: &NodeView) -> bool {
        self.admits_seen(node, &LazyCell::new(|| activation(node)))
    }

    fn admits_seen<F: FnOnce() -> Activation>(&self, node: &NodeView, seen: &LazyCell<Activation, F>) -> bool {
        let object = &node.object;
        let uid = |wanted: &str| object.uid.to_string() == wanted;
        let is_true = |expression: &Expression| self.errors.is_true(expression, seen);
        self.any(&object.group, &object.resource, &object.namespace, uid, is_true)
    }

    /// Whether a named object is admitted. `seen` gives the input for expressions with [`NAMED`].
    pub(super) fn admits_name<'a>(&self, object: &wire::ObjectRef, seen: impl Fn() -> &'a Activation) -> bool {
        let is_true = |expression: &Expression| self.errors.is_true(expression, seen());
        self.any(&object.group, &object.resource, &object.namespace, |wanted| object.uid == wanted, is_true)
    }

    /// Uses this error counter.
    pub(super) fn counting(mut self, errors: &Errors) -> Filter {
        self.errors = errors.clone();
        self
    }

    fn any(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        uid: impl Fn(&str) -> bool,
        is_true: impl Fn(&Expression) -> bool,
    ) -> bool {
        self.any.iter().any(|One { wanted, expression }| {
            let is = |wanted: &wire::GroupResource| wanted.group == group && wanted.resource == resource;
            (wanted.resources.is_empty() || wanted.resources.iter().any(is))
                && (wanted.namespaces.is_empty() || wanted.namespaces.iter().any(|name| name == namespace))
                && (wanted.uids.is_empty() || wanted.uids.iter().any(|wanted| uid(wanted)))
                && expression.as_ref().is_none_or(&is_true)
        })
    }
}

/// Admits objects that one filter admits and the other does not.
#[derive(Clone, Debug)]
pub(super) struct Sieve {
    include: Option<Filter>,
    exclude: Option<Filter>,
}

impl Sieve {
    /// How often an expression could not be evaluated.
    pub(super) fn errors(&self) -> u64 {
        self.include.iter().chain(&self.exclude).map(|filter| filter.errors.count()).sum()
    }

    pub(super) fn of(include: &[ObjectFilter], exclude: &[ObjectFilter]) -> Result<Sieve, Status> {
        Ok(Sieve { include: Filter::of("include", include)?, exclude: Filter::of("exclude", exclude)? })
    }

    pub(super) fn admits(&self, node: &NodeView) -> bool {
        let seen = LazyCell::new(|| activation(node));
        self.include.as_ref().is_none_or(|filter| filter.admits_seen(node, &seen))
            && !self.exclude.as_ref().is_some_and(|filter| filter.admits_seen(node, &seen))
    }
}

/// A name as input for expressions.
pub(super) fn named(object: &wire::ObjectRef) -> Value {
    let text = |text: &String| Value::from(text.clone());
    map([
        ("group", text(&object.group)),
        ("resource", text(&object.resource)),
        ("kind", text(&object.kind)),
        ("namespace", text(&object.namespace)),
        ("name", text(&object.name)),
        ("uid", text(&object.uid)),
    ])
}

/// An object as input for expressions.
fn activation(node: &NodeView) -> Activation {
    Activation::of([(&OBJECT, value(node))])
}

fn value(node: &NodeView) -> Value {
    let (object, facts) = (&node.object, &node.facts);
    let state = node_state(node).as_str_name().trim_start_matches("NODE_STATE_");
    let version = node.resource_version().map(ToString::to_string).unwrap_or_default();
    map([
        ("group", Value::from(&*object.group)),
        ("resource", Value::from(&*object.resource)),
        ("kind", Value::from(&*object.kind)),
        ("namespace", Value::from(&*object.namespace)),
        ("name", Value::from(&*object.name)),
        ("uid", Value::from(object.uid.to_string())),
        ("resource_version", Value::from(version)),
        ("state", Value::from(state)),
        ("finalizers", list(facts.finalizers.iter().map(|name: &Name| Value::from(&**name)))),
        ("dependent_count", count(node.dependents)),
        ("blocking_dependent_count", count(node.blocking_dependents)),
        ("deleting_dependents", Value::Bool(facts.deletes_dependents())),
        ("orphaning_dependents", Value::Bool(facts.orphans_dependents())),
        ("owners", list(facts.owners.iter().map(owner))),
    ])
}

fn owner(owner: &OwnerReference) -> Value {
    map([
        ("api_version", Value::from(&*owner.api_version)),
        ("kind", Value::from(&*owner.kind)),
        ("name", Value::from(&*owner.name)),
        ("uid", Value::from(owner.uid.to_string())),
        ("controller", Value::Bool(owner.controller == Some(true))),
        ("block_owner_deletion", Value::Bool(owner.blocks())),
    ])
}

/// A signed integer, so that it compares with plain literals.
fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
