//! Label and field selectors, in kubectl's syntax.

use engine::object::Name;
use engine::scope::{self, Labelled, Test};
use kube::core::{Expression, Selector};
use proto::convert::{is_label_key, is_label_value};
use proto::r#type::v1beta1::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// The fields that every object has.
pub(super) fn fields_of(object: &ObjectRef) -> BTreeMap<String, String> {
    let fields = [(NAME, &object.name), (NAMESPACE, &object.namespace)];
    fields.map(|(field, value)| (field.to_owned(), value.clone())).into()
}

/// Reads `metadata.name=a,metadata.namespace!=b`. The error is a sentence.
pub(crate) fn fields(text: &str) -> Result<Selector, String> {
    let term = |term: &str| {
        let (field, equal, value) = comparison(term).ok_or_else(|| format!("{term:?} is not FIELD=VALUE"))?;
        if ![NAME, NAMESPACE].contains(&field) {
            return Err(format!("the field {field:?} is not supported: use {NAME} or {NAMESPACE}"));
        }
        let (field, value) = (field.to_owned(), value.to_owned());
        Ok(if equal { Expression::Equal(field, value) } else { Expression::NotEqual(field, value) })
    };
    text.split(',').map(term).collect()
}

/// Requirements on labels, for a resource that has a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirements(Vec<Expression>);

impl Requirements {
    /// The requirements as the graph service takes them.
    pub(super) fn of_labels(&self) -> Vec<scope::Requirement> {
        let name = |text: &String| Name::from(text.as_str());
        let of_label = |expression: &Expression| {
            let (key, test) = match expression {
                Expression::Equal(key, value) => (key, Test::In(vec![name(value)])),
                Expression::NotEqual(key, value) => (key, Test::NotIn(vec![name(value)])),
                Expression::In(key, values) => (key, Test::In(values.iter().map(name).collect())),
                Expression::NotIn(key, values) => (key, Test::NotIn(values.iter().map(name).collect())),
                Expression::Exists(key) => (key, Test::Exists),
                Expression::DoesNotExist(key) => (key, Test::DoesNotExist),
            };
            scope::Requirement { of: Labelled::Label, key: name(key), test }
        };
        self.0.iter().map(of_label).collect()
    }
}

impl std::fmt::Display for Requirements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().cloned().collect::<Selector>().fmt(f)
    }
}

/// Reads what [`labels`] reads.
pub(crate) fn requirements(text: &str) -> Result<Requirements, String> {
    expressions(text).map(Requirements)
}

/// Reads `app=web,tier!=cache,env in (a,b),zone notin (c),canary,!old`. The error is a sentence.
pub(crate) fn labels(text: &str) -> Result<Selector, String> {
    expressions(text).map(|all| all.into_iter().collect())
}

fn expressions(text: &str) -> Result<Vec<Expression>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A comma within brackets does not end a requirement.
        let open = rest.find('(').filter(|open| rest.find(',').is_none_or(|comma| *open < comma));
        let from = match open {
            Some(open) => open + rest[open..].find(')').ok_or_else(|| format!("{rest:?} lacks a closing bracket"))?,
            None => 0,
        };
        let end = rest[from..].find(',').map_or(rest.len(), |comma| from + comma);
        all.push(requirement(rest[..end].trim())?);
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    if all.is_empty() { Err("the selector selects everything: remove it".to_owned()) } else { Ok(all) }
}

fn requirement(text: &str) -> Result<Expression, String> {
    if let Some(set) = text.strip_suffix(')') {
        let (head, values) = set.split_once('(').ok_or_else(|| format!("{text:?} lacks an opening bracket"))?;
        let values = values.split(',').map(|value| valued(value.trim())).collect::<Result<BTreeSet<_>, _>>()?;
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => Ok(Expression::In(named(key)?, values)),
            [key, "notin"] => Ok(Expression::NotIn(named(key)?, values)),
            _ => Err(format!("{text:?} is not KEY in (VALUE,…) or KEY notin (VALUE,…)")),
        };
    }
    if let Some((key, equal, value)) = comparison(text) {
        let (key, value) = (named(key)?, valued(value)?);
        return Ok(if equal { Expression::Equal(key, value) } else { Expression::NotEqual(key, value) });
    }
    match text.strip_prefix('!') {
        Some(key) => Ok(Expression::DoesNotExist(named(key.trim())?)),
        None => Ok(Expression::Exists(named(text)?)),
    }
}

/// Parses `a=b`, `a==b` or `a!=b`. Returns whether the values must be equal.
fn comparison(text: &str) -> Option<(&str, bool, &str)> {
    let (left, right) = text.split_once('=')?;
    let (left, equal) = match left.strip_suffix('!') {
        Some(left) => (left, false),
        None => (left, true),
    };
    Some((left.trim(), equal, right.strip_prefix('=').unwrap_or(right).trim()))
}

fn named(key: &str) -> Result<String, String> {
    if is_label_key(key) { Ok(key.to_owned()) } else { Err(format!("{key:?} is not a valid label key")) }
}

/// An object has no label with another value, so such a selector would match nothing.
fn valued(value: &str) -> Result<String, String> {
    if is_label_value(value) { Ok(value.to_owned()) } else { Err(format!("{value:?} is not a valid label value")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::SelectorExt as _;

    #[test]
    fn labels_are_selected_as_kubectl_does() {
        let has = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("env".to_owned(), "b".to_owned())]);
        let cases = [
            ("app=web", true),
            ("app==web,env!=a", true),
            ("env in (a, b),app", true),
            ("app,env notin (b,c)", false),
            ("!old", true),
            ("!app", false),
            ("env=", false),
            ("zone notin (x)", true),
        ];
        for (text, expected) in cases {
            let selector = labels(text).unwrap();
            assert_eq!(selector.matches(&has), expected, "{text}");
            assert_eq!(labels(&selector.to_string()).unwrap(), selector, "{text}");
        }
        for wrong in ["", "a in (b", "a b", "=c", "a within (b)", "a)", "ü=1"] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
        for wrong in ["a=b=c", "a==b c", "a!=b/c", "a in (b=c)", "a in (b,-)", "a notin (ü)"] {
            assert!(labels(wrong).unwrap_err().ends_with("is not a valid label value"), "{wrong}");
        }
    }

    #[test]
    fn the_graph_service_takes_every_requirement() {
        let read = requirements("app=web,app=db,tier!=a,env in (a,b),zone notin (c),canary,!old").unwrap();
        let words: Vec<String> = read.of_labels().iter().map(ToString::to_string).collect();
        assert_eq!(words.join(","), "app=web,app=db,tier!=a,env in (a,b),zone!=c,canary,!old");
    }

    #[test]
    fn only_fields_that_every_object_has_are_taken() {
        let object = ObjectRef { namespace: "shop".into(), name: "web".into(), ..Default::default() };
        let text = "metadata.name=web,metadata.namespace!=other";
        let selector = fields(text).unwrap();
        assert!(selector.matches(&fields_of(&object)) && selector.to_string() == text);
        assert!(!fields("metadata.name!=web").unwrap().matches(&fields_of(&object)));
        assert!(fields("status.phase=Running").unwrap_err().contains("use metadata.name or metadata.namespace"));
    }
}
