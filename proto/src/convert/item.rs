//! Work items and leases.

use super::{LeaseError, Malformed, field};
use crate::work::v1beta1 as wire;
use crate::work::v1beta1::owner_check::Want;
use engine::object::{Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::work::{Action, ActionKind, Preconditions, WorkItem, WorkLease};

/// Maximum number of bytes of a traceparent. The current version has 55.
const TRACEPARENT_MAX_BYTES: usize = 128;

impl From<WorkLease> for wire::WorkLease {
    fn from(lease: WorkLease) -> Self {
        wire::WorkLease {
            lease_id: lease.id.to_string(),
            term: Some(lease.term.into()),
            item: Some(lease.item.into()),
            attempt: lease.attempt,
            execution_limit: Some(field::encode_duration(lease.execution_limit)),
            previous_attempt_ambiguous: lease.previous_attempt_ambiguous,
            traceparent: lease.traceparent,
        }
    }
}

impl TryFrom<wire::WorkLease> for WorkLease {
    type Error = LeaseError;

    fn try_from(lease: wire::WorkLease) -> Result<Self, LeaseError> {
        let id = field::lease_id(&lease.lease_id, "lease_id")?;
        let item = field::required(lease.item, "item")?;
        Ok(WorkLease {
            id,
            term: field::nested(lease.term, "term")?,
            item: match decode_item(item) {
                Ok(item) => item,
                Err(ItemError::UnknownAction) => return Err(LeaseError::UnknownAction { lease: id }),
                Err(ItemError::Malformed(error)) => return Err(error.within("item").into()),
            },
            attempt: lease.attempt,
            execution_limit: field::positive_duration(lease.execution_limit, "execution_limit")?,
            previous_attempt_ambiguous: lease.previous_attempt_ambiguous,
            // A traceparent that is too long is dropped. The work is still valid.
            traceparent: lease.traceparent.filter(|text| text.len() <= TRACEPARENT_MAX_BYTES),
        })
    }
}

impl From<WorkItem> for wire::WorkItem {
    fn from(item: WorkItem) -> Self {
        wire::WorkItem {
            item_id: item.id.to_string(),
            target: Some(item.target.into()),
            preconditions: Some(item.preconditions.into()),
            action: Some(item.action.into()),
            generation: item.generation,
            read_first: item.read_first,
        }
    }
}

/// An error in an item must name its lease.
enum ItemError {
    UnknownAction,
    Malformed(Malformed),
}

impl From<Malformed> for ItemError {
    fn from(error: Malformed) -> Self {
        ItemError::Malformed(error)
    }
}

fn decode_item(item: wire::WorkItem) -> Result<WorkItem, ItemError> {
    // This comes first, so that other fields of an unknown action do not count as errors.
    let action = decode_action(item.action.ok_or(ItemError::UnknownAction)?)?;
    Ok(WorkItem {
        id: field::decimal(&item.item_id, "item_id")?,
        target: field::nested(item.target, "target")?,
        preconditions: field::nested(item.preconditions, "preconditions")?,
        action,
        read_first: item.read_first,
        generation: item.generation,
    })
}

impl From<Preconditions> for wire::Preconditions {
    fn from(preconditions: Preconditions) -> Self {
        wire::Preconditions {
            resource_version: preconditions.resource_version.to_string(),
            facts_digest: preconditions.facts_digest.to_be_bytes().to_vec(),
            must_be_terminating: preconditions.must_be_terminating,
        }
    }
}

impl TryFrom<wire::Preconditions> for Preconditions {
    type Error = Malformed;

    fn try_from(preconditions: wire::Preconditions) -> Result<Self, Malformed> {
        let digest = <[u8; 8]>::try_from(preconditions.facts_digest.as_slice());
        // The API server treats a patch with an empty version as one without a precondition.
        if preconditions.resource_version.is_empty() {
            return Err(Malformed::new("resource_version", "is empty"));
        }
        Ok(Preconditions {
            resource_version: ResourceVersion::parse(&preconditions.resource_version),
            facts_digest: u64::from_be_bytes(
                digest.map_err(|_| Malformed::new("facts_digest", "is not 8 bytes long"))?,
            ),
            must_be_terminating: preconditions.must_be_terminating,
        })
    }
}

impl From<Action> for wire::work_item::Action {
    fn from(action: Action) -> Self {
        match action {
            Action::Delete { propagation_policy, owner_checks } => {
                wire::work_item::Action::Delete(wire::DeleteObject {
                    propagation_policy: crate::r#type::v1beta1::PropagationPolicy::from(propagation_policy).into(),
                    owner_checks: owner_checks.into_iter().map(owner_check).collect(),
                })
            }
            Action::RemoveOwnerReferences { owner_uids, entries, owner_checks } => {
                wire::work_item::Action::RemoveOwnerReferences(wire::RemoveOwnerReferences {
                    owner_uids: owner_uids.iter().map(Uid::to_string).collect(),
                    entries: entries.into_iter().map(Into::into).collect(),
                    owner_checks: owner_checks.into_iter().map(owner_check).collect(),
                })
            }
            Action::UnblockOwnerReferences { entries } => {
                wire::work_item::Action::UnblockOwnerReferences(wire::UnblockOwnerReferences {
                    entries: entries.into_iter().map(Into::into).collect(),
                })
            }
            Action::RemoveFinalizer { finalizer } => {
                wire::work_item::Action::RemoveFinalizer(wire::RemoveFinalizer { finalizer: finalizer.to_string() })
            }
        }
    }
}

fn decode_action(action: wire::work_item::Action) -> Result<Action, ItemError> {
    Ok(match action {
        wire::work_item::Action::Delete(delete) => Action::Delete {
            propagation_policy: Option::from(delete.propagation_policy()).ok_or(ItemError::UnknownAction)?,
            owner_checks: owners(delete.owner_checks, "delete.owner_checks")?,
        },
        wire::work_item::Action::RemoveOwnerReferences(remove) => {
            let uids = remove.owner_uids.iter();
            let uids = uids.map(|text| field::uid(text, "remove_owner_references.owner_uids"));
            Action::RemoveOwnerReferences {
                owner_uids: uids.collect::<Result<_, _>>()?,
                entries: references(remove.entries, "remove_owner_references.entries")?,
                owner_checks: owners(remove.owner_checks, "remove_owner_references.owner_checks")?,
            }
        }
        wire::work_item::Action::UnblockOwnerReferences(unblock) => {
            Action::UnblockOwnerReferences { entries: references(unblock.entries, "unblock_owner_references.entries")? }
        }
        wire::work_item::Action::RemoveFinalizer(remove) => {
            if remove.finalizer.is_empty() {
                return Err(Malformed::new("remove_finalizer.finalizer", "is empty").into());
            }
            Action::RemoveFinalizer { finalizer: Name::from(remove.finalizer) }
        }
    })
}

fn owner_check(owner: ObjectRef) -> wire::OwnerCheck {
    wire::OwnerCheck { r#ref: Some(owner.into()), want: Want::Waiting.into() }
}

fn owners(checks: Vec<wire::OwnerCheck>, field: &str) -> Result<Vec<ObjectRef>, ItemError> {
    if !checks.iter().all(|check| Want::try_from(check.want) == Ok(Want::Waiting)) {
        return Err(ItemError::UnknownAction);
    }
    Ok(field::list(checks, usize::MAX, field, |check| field::nested(check.r#ref, "ref"))?)
}

/// The limit is the number of references that one object can hold.
fn references(
    entries: Vec<crate::r#type::v1beta1::OwnerReference>,
    field: &str,
) -> Result<Vec<OwnerReference>, Malformed> {
    field::list(entries, usize::MAX, field, OwnerReference::try_from)
}

same_names!(ActionKind => wire::ItemKind {
    Delete, RemoveOwnerReferences, UnblockOwnerReferences, RemoveFinalizer,
} and back);

/// The kinds of `values` that this build knows.
pub fn kinds(values: &[i32]) -> Vec<ActionKind> {
    values.iter().filter_map(|&value| wire::ItemKind::try_from(value).ok()?.into()).collect()
}
