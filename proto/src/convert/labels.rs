//! Label selectors.

use super::{Malformed, NAME_MAX_BYTES, field};
use crate::r#type::v1beta1::{LabelRequirement, LabelSelector};
use engine::object::Name;
use engine::scope::{Labelled, Requirement, Test};

/// Maximum number of labels, and of expressions, of one selector: the same limits as in the resource's schema.
pub const REQUIREMENTS_MAX: usize = 20;
/// Maximum number of values of one expression.
pub const VALUES_MAX: usize = 50;
/// Longest value of a label, and longest part of a key after the slash.
const LABEL_MAX_BYTES: usize = 63;

/// Whether a text can be the key of a label: a name, with the domain of its owner and a slash before it, or without.
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let is_domain = |domain: &str| domain.len() <= NAME_MAX_BYTES && field::is_dns_subdomain(domain);
    domain.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

/// Whether a label can have this value.
pub fn is_label_value(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    let is_framed = ends.into_iter().flatten().all(|byte| byte.is_ascii_alphanumeric());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= LABEL_MAX_BYTES && is_framed && text.bytes().all(fits)
}

/// The selector of these requirements; `None` without any. A requirement that a selector cannot say has no operator.
pub(super) fn selector(requirements: &[Requirement]) -> Option<LabelSelector> {
    let mut selector = LabelSelector::default();
    for requirement in requirements {
        let key = requirement.key.to_string();
        let (operator, values) = match (requirement.of, &requirement.test) {
            (Labelled::Label, Test::In(values)) => {
                let has_room = selector.match_labels.len() < REQUIREMENTS_MAX;
                if let ([value], true, false) = (values.as_slice(), has_room, selector.match_labels.contains_key(&key))
                {
                    selector.match_labels.insert(key, value.to_string());
                    continue;
                }
                ("In", values.as_slice())
            }
            (Labelled::Label, Test::NotIn(values)) => ("NotIn", values.as_slice()),
            (Labelled::Label, Test::Exists) => ("Exists", [].as_slice()),
            (Labelled::Label, Test::DoesNotExist) => ("DoesNotExist", [].as_slice()),
            (Labelled::Annotation, _) | (_, Test::Lists(_)) => {
                let key = requirement.to_string();
                selector.match_expressions.push(LabelRequirement { key, ..LabelRequirement::default() });
                continue;
            }
        };
        let values = values.iter().map(Name::to_string).collect();
        selector.match_expressions.push(LabelRequirement { key, operator: operator.to_owned(), values });
    }
    (!requirements.is_empty()).then_some(selector)
}

/// The requirements of a selector, sorted.
pub(super) fn requirements(selector: LabelSelector) -> Result<Vec<Requirement>, Malformed> {
    let LabelSelector { match_labels, match_expressions } = selector;
    field::at_most(match_labels.len(), REQUIREMENTS_MAX, "match_labels")?;
    let equal = |(at, value): (String, String)| {
        let key = key(at).map_err(|error| error.within("match_labels"))?;
        let test = Test::In(vec![self::value(value).map_err(|error| error.within("match_labels"))?]);
        Ok(Requirement { of: Labelled::Label, key, test })
    };
    let mut all = match_labels.into_iter().map(equal).collect::<Result<Vec<_>, Malformed>>()?;
    all.extend(field::list(match_expressions, REQUIREMENTS_MAX, "match_expressions", requirement)?);
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn requirement(wire: LabelRequirement) -> Result<Requirement, Malformed> {
    let key = key(wire.key)?;
    let values = field::list(wire.values, VALUES_MAX, "values", value)?;
    let test = match (wire.operator.as_str(), values.is_empty()) {
        ("In", false) => Test::In(values),
        ("NotIn", false) => Test::NotIn(values),
        ("Exists", true) => Test::Exists,
        ("DoesNotExist", true) => Test::DoesNotExist,
        ("In" | "NotIn", true) => return Err(Malformed::new("values", "is empty: In and NotIn need values")),
        ("Exists" | "DoesNotExist", false) => {
            return Err(Malformed::new("values", "is set: Exists and DoesNotExist have no values"));
        }
        _ => return Err(Malformed::new("operator", "is not In, NotIn, Exists or DoesNotExist")),
    };
    Ok(Requirement { of: Labelled::Label, key, test })
}

fn key(text: String) -> Result<Name, Malformed> {
    if is_label_key(&text) {
        return Ok(text.into());
    }
    Err(Malformed::new("key", "is not the key of a label, such as app.kubernetes.io/name"))
}

fn value(text: String) -> Result<Name, Malformed> {
    if is_label_value(&text) {
        return Ok(text.into());
    }
    Err(Malformed::new("value", "is not the value of a label"))
}
