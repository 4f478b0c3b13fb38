//! Pauses: their scope and their state.

use super::clock::Clock;
use super::{Malformed, field, labels};
use crate::admin::v1beta1::{Pause, PauseCollectionRequest, Scope};
use crate::r#type::v1beta1::{GroupResource, LabelSelector, ObjectFilter, OwnerScope};
use engine::object::{GroupResource as GroupName, Name, Uid};
use engine::view::GuardView;
use std::time::{Duration, SystemTime};

#[cfg(test)]
mod tests;

/// Maximum number of filters of one scope, most collections and most namespaces of one filter: the same limits as in
/// the resource's schema.
pub const SCOPE_MAX: usize = 100;
/// Maximum length of a reason.
pub const REASON_MAX_BYTES: usize = 1024;
/// Maximum lifetime.
pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Prefix of the name of a pause on the wire.
pub const PAUSE_PREFIX: &str = "pauses/";

/// A checked [`PauseCollectionRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseOrder {
    pub scope: engine::scope::Scope,
    pub reason: String,
    /// Whole seconds.
    pub lifetime: Duration,
    /// Empty or a UUID.
    pub request_id: String,
}

impl TryFrom<PauseCollectionRequest> for PauseOrder {
    type Error = Malformed;

    fn try_from(request: PauseCollectionRequest) -> Result<Self, Malformed> {
        let lifetime = field::lifetime(request.ttl, "ttl")?;
        field::reason(&request.reason, "pause", REASON_MAX_BYTES)?;
        let id = &request.request_id;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_uuid = id.len() == 36
            && id.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => is_digit(byte),
            });
        if !id.is_empty() && !is_uuid {
            return Err(Malformed::new("request_id", "is not a UUID in lower case"));
        }
        Ok(PauseOrder {
            scope: field::optional(request.scope, "scope")?.unwrap_or_default(),
            reason: request.reason,
            lifetime,
            request_id: request.request_id,
        })
    }
}

impl From<PauseOrder> for PauseCollectionRequest {
    fn from(order: PauseOrder) -> Self {
        PauseCollectionRequest {
            scope: Some(order.scope.into()),
            reason: order.reason,
            ttl: Some(field::encode_duration(order.lifetime)),
            request_id: order.request_id,
        }
    }
}

impl From<engine::scope::Scope> for Scope {
    fn from(scope: engine::scope::Scope) -> Self {
        Scope { targets: scope.targets.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<Scope> for engine::scope::Scope {
    type Error = Malformed;

    fn try_from(scope: Scope) -> Result<Self, Malformed> {
        Ok(engine::scope::Scope { targets: field::list(scope.targets, SCOPE_MAX, "targets", TryFrom::try_from)? })
    }
}

impl From<engine::scope::Filter> for ObjectFilter {
    fn from(filter: engine::scope::Filter) -> Self {
        ObjectFilter {
            resources: filter.resources.into_iter().map(Into::into).collect(),
            namespaces: filter.namespaces.iter().map(Name::to_string).collect(),
            uids: Vec::new(),
            cel: String::new(),
            names: filter.names.iter().map(Name::to_string).collect(),
            label_selector: labels::selector(&filter.marks),
            namespace_selector: labels::selector(&filter.namespace_marks),
            owner: filter.owner.map(Into::into),
        }
    }
}

impl TryFrom<ObjectFilter> for engine::scope::Filter {
    type Error = Malformed;

    fn try_from(filter: ObjectFilter) -> Result<Self, Malformed> {
        if !filter.uids.is_empty() {
            return Err(Malformed::new(
                "uids",
                "is set: a pause has no such condition; for single objects, use resources, namespaces and names",
            ));
        }
        if !filter.cel.is_empty() {
            return Err(Malformed::new(
                "cel",
                "is set: a pause has no such condition; for objects with labels, use label_selector",
            ));
        }
        let named = |texts: Vec<String>, of| field::list(texts, SCOPE_MAX, of, |text| field::name(&text, "name"));
        let selected = |selector: Option<LabelSelector>, of: &str| {
            labels::requirements(selector.unwrap_or_default()).map_err(|error| error.within(of))
        };
        Ok(engine::scope::Filter {
            resources: field::list(filter.resources, SCOPE_MAX, "resources", |wire: GroupResource| {
                collection(&wire.group, &wire.resource)
            })?,
            namespaces: named(filter.namespaces, "namespaces")?,
            names: named(filter.names, "names")?,
            marks: selected(filter.label_selector, "label_selector")?,
            namespace_marks: selected(filter.namespace_selector, "namespace_selector")?,
            owner: field::optional(filter.owner, "owner")?,
        })
    }
}

impl From<engine::scope::OwnerScope> for OwnerScope {
    fn from(owner: engine::scope::OwnerScope) -> Self {
        OwnerScope {
            group: owner.resource.group.to_string(),
            resource: owner.resource.resource.to_string(),
            namespace: owner.namespace.to_string(),
            name: owner.name.to_string(),
            uid: owner.uid.map_or_else(String::new, |uid| uid.to_string()),
        }
    }
}

impl TryFrom<OwnerScope> for engine::scope::OwnerScope {
    type Error = Malformed;

    fn try_from(owner: OwnerScope) -> Result<Self, Malformed> {
        let named = |text: &str, of| if text.is_empty() { Ok("".into()) } else { field::name(text, of) };
        // An empty uid is any object with this name.
        let uid = named(&owner.uid, "uid")?;
        Ok(engine::scope::OwnerScope {
            resource: collection(&owner.group, &owner.resource)?,
            namespace: named(&owner.namespace, "namespace")?,
            name: field::name(&owner.name, "name")?,
            uid: Uid::parse(&uid),
        })
    }
}

fn collection(group: &str, resource: &str) -> Result<GroupName, Malformed> {
    if group.len() > super::NAME_MAX_BYTES {
        return Err(Malformed::new("group", "is too long"));
    }
    Ok(GroupName { group: group.into(), resource: field::name(resource, "resource")? })
}

/// A pause in its current state.
pub fn pause(view: GuardView, clock: Clock) -> Pause {
    let written = SystemTime::UNIX_EPOCH.checked_add(view.created).filter(|_| !view.created.is_zero());
    let ends = written.and_then(|written| written.checked_add(view.lifetime?));
    Pause {
        name: format!("{PAUSE_PREFIX}{}", view.id.name),
        scope: Some(view.scope.into()),
        reason: view.reason,
        actor: view.actor,
        create_time: written.map(Into::into),
        expire_time: ends.map(Into::into).or_else(|| Some(clock.later(view.until?))),
        effective: view.effective,
        old_sessions_remaining: u32::try_from(view.sessions_remaining).unwrap_or(u32::MAX),
        pending: view.pending,
        held_items: view.held as u64,
        expired: view.over,
        problem: view.problem,
        omitted_targets: 0,
    }
}
