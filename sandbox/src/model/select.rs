//! Label and field selectors.

use serde_json::Value;

use super::error::ApiError;
use super::kinds::Type;
use super::metadata::{self, Object};

/// Maximum number of requirements in one selector.
const REQUIREMENTS_MAX: usize = 256;

/// Selects objects of a list or a watch.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone)]
enum LabelRequirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

#[derive(Debug, Clone)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector` of a query. Both may be empty.
    ///
    /// # Errors
    /// 400 for an invalid selector and for a field that this type cannot be selected by.
    pub fn parse(of: &Type, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = split_top(labels).into_iter().map(label_requirement).collect::<Result<Vec<_>, _>>()?;
        let fields = fields.split(',').map(str::trim).filter(|term| !term.is_empty());
        let fields = fields.map(|term| field_requirement(of, term)).collect::<Result<Vec<_>, _>>()?;
        if labels.len() > REQUIREMENTS_MAX || fields.len() > REQUIREMENTS_MAX {
            return Err(ApiError::bad_request(format!("a selector may hold {REQUIREMENTS_MAX} requirements")));
        }
        Ok(Self { labels, fields })
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that this selects, if any.
    pub(crate) fn only_name(&self) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|field| field.equal && field.path == "metadata.name").map(|field| field.value.as_str())
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.fields.iter().all(|field| field.matches(object)) && self.labels.iter().all(|label| label.matches(object))
    }
}

impl LabelRequirement {
    fn matches(&self, object: &Object) -> bool {
        let label = |key: &str| metadata::value(object, "labels").and_then(|labels| labels[key].as_str());
        match self {
            Self::In(key, values) => label(key).is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Self::NotIn(key, values) => label(key).is_none_or(|value| values.iter().all(|wanted| wanted != value)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Object) -> bool {
        let mut parts = self.path.split('.');
        let first = parts.next().and_then(|part| object.get(part));
        let value = parts.fold(first, |value, part| value.and_then(|value| value.get(part)));
        let text = match value {
            None => String::new(),
            Some(value) => value.as_str().map_or_else(|| Value::to_string(value), str::to_owned),
        };
        (text == self.value) == self.equal
    }
}

fn field_requirement(of: &Type, term: &str) -> Result<FieldRequirement, ApiError> {
    let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (path, value, true)
    } else {
        let message = format!("invalid field selector: \"{term}\"; can't understand '{term}'");
        return Err(ApiError::bad_request(message));
    };
    let known = path == "metadata.name" || (path == "metadata.namespace" && of.namespaced);
    if !known && !of.selectable.contains(&path) {
        let message =
            format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
        return Err(ApiError::bad_request(message));
    }
    Ok(FieldRequirement { path: path.to_owned(), value: value.to_owned(), equal })
}

/// Splits at commas outside of parentheses.
fn split_top(selector: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut terms = Vec::new();
    let mut start = 0;
    for (at, character) in selector.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).collect()
}

fn label_requirement(term: &str) -> Result<LabelRequirement, ApiError> {
    let wrong = || ApiError::bad_request(format!("unable to parse requirement: \"{term}\""));
    let key = |text: &str| {
        let text = text.trim();
        let good = !text.is_empty() && !text.contains(['!', '=', '(', ')', ',', ' ']);
        if good { Ok(text.to_owned()) } else { Err(wrong()) }
    };
    if let Some(absent) = term.strip_prefix('!') {
        return Ok(LabelRequirement::Absent(key(absent)?));
    }
    if let Some(list) = term.strip_suffix(')') {
        let (head, values) = list.split_once('(').ok_or_else(wrong)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (name, operator) = head.trim().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        return match operator {
            "in" => Ok(LabelRequirement::In(key(name)?, values)),
            "notin" => Ok(LabelRequirement::NotIn(key(name)?, values)),
            _ => Err(wrong()),
        };
    }
    if let Some((name, value)) = term.split_once("!=") {
        return Ok(LabelRequirement::NotIn(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(LabelRequirement::In(key(name)?, vec![value.trim().to_owned()]));
    }
    Ok(LabelRequirement::Exists(key(term)?))
}
