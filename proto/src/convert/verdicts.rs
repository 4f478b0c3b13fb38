//! The messages of policy engines about their verdicts.

use super::pause::SCOPE_MAX;
use super::{Malformed, field};
use crate::r#type::v1beta1::{GroupResource, ObjectFilter};
use engine::object;
use engine::scope::Objects;

#[cfg(test)]
mod tests;

/// Maximum number of conditions in all filters of one message.
const CONDITIONS_MAX: usize = 1000;

/// The objects of [`Invalidate`](crate::decision::v1beta1::stream_verdicts_request::Invalidate).
pub fn invalidated(targets: Vec<ObjectFilter>) -> Result<Vec<Objects>, Malformed> {
    const FIELD: &str = "invalidate.targets";
    let targets: Vec<Objects> = field::list(targets, SCOPE_MAX, FIELD, TryFrom::try_from)?;
    let conditions: usize = targets.iter().map(Objects::conditions).sum();
    if conditions > CONDITIONS_MAX {
        return Err(Malformed::new(FIELD, format!("has {conditions} conditions; at most {CONDITIONS_MAX}")));
    }
    Ok(targets)
}

impl TryFrom<ObjectFilter> for Objects {
    type Error = Malformed;

    fn try_from(filter: ObjectFilter) -> Result<Self, Malformed> {
        if !filter.cel.is_empty() {
            return Err(Malformed::new("cel", "is set: name collections, namespaces and uids"));
        }
        let only_in_scopes = [
            ("names", !filter.names.is_empty()),
            ("label_selector", filter.label_selector.is_some()),
            ("namespace_selector", filter.namespace_selector.is_some()),
            ("owner", filter.owner.is_some()),
        ];
        if let Some((of, _)) = only_in_scopes.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Malformed::new(of, "is set: name collections, namespaces and uids"));
        }
        let resource = |wire: GroupResource| {
            let resource = field::name(&wire.resource, "resource")?;
            Ok(object::GroupResource { group: wire.group.into(), resource })
        };
        let namespace = |text: String| field::name(&text, "name");
        let uid = |text: String| field::uid(&text, "uid");
        Ok(Objects {
            resources: field::list(filter.resources, CONDITIONS_MAX, "resources", resource)?.into_iter().collect(),
            namespaces: field::list(filter.namespaces, CONDITIONS_MAX, "namespaces", namespace)?.into_iter().collect(),
            uids: field::list(filter.uids, CONDITIONS_MAX, "uids", uid)?.into_iter().collect(),
        })
    }
}
