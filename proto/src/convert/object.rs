//! Objects, references and terms.

use super::{Malformed, field};
use crate::r#type::v1beta1 as wire;
use crate::work::v1beta1 as work;
use engine::object::{Excess, Facts, GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion};
use engine::work::{PropagationPolicy, Sighting, Term};

impl From<ObjectRef> for wire::ObjectRef {
    fn from(object: ObjectRef) -> Self {
        wire::ObjectRef {
            group: object.group.to_string(),
            version: object.version.to_string(),
            resource: object.resource.to_string(),
            kind: object.kind.to_string(),
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            uid: object.uid.to_string(),
        }
    }
}

impl TryFrom<wire::ObjectRef> for ObjectRef {
    type Error = Malformed;

    fn try_from(object: wire::ObjectRef) -> Result<Self, Malformed> {
        Ok(ObjectRef {
            group: object.group.into(),
            version: object.version.into(),
            resource: object.resource.into(),
            kind: object.kind.into(),
            namespace: object.namespace.into(),
            name: object.name.into(),
            uid: field::uid(&object.uid, "uid")?,
        })
    }
}

impl From<OwnerReference> for wire::OwnerReference {
    fn from(owner: OwnerReference) -> Self {
        wire::OwnerReference {
            api_version: owner.api_version.to_string(),
            kind: owner.kind.to_string(),
            name: owner.name.to_string(),
            uid: owner.uid.to_string(),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}

impl TryFrom<wire::OwnerReference> for OwnerReference {
    type Error = Malformed;

    fn try_from(owner: wire::OwnerReference) -> Result<Self, Malformed> {
        Ok(OwnerReference {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: field::uid(&owner.uid, "uid")?,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    }
}

impl From<GroupResource> for wire::GroupResource {
    fn from(collection: GroupResource) -> Self {
        wire::GroupResource { group: collection.group.to_string(), resource: collection.resource.to_string() }
    }
}

impl From<Term> for wire::Term {
    fn from(term: Term) -> Self {
        wire::Term { election_uid: term.election.to_string(), number: term.number }
    }
}

impl TryFrom<wire::Term> for Term {
    type Error = Malformed;

    fn try_from(term: wire::Term) -> Result<Self, Malformed> {
        Ok(Term { election: field::name(&term.election_uid, "election_uid")?, number: term.number })
    }
}

same_names!(PropagationPolicy => wire::PropagationPolicy { Background, Foreground, Orphan } and back);

impl From<Sighting> for work::Observed {
    fn from(sighting: Sighting) -> Self {
        work::Observed {
            uid: sighting.uid.to_string(),
            resource_version: sighting.resource_version.to_string(),
            finalizers: sighting.facts.finalizers.iter().map(Name::to_string).collect(),
            owner_references: sighting.facts.owners.into_iter().map(Into::into).collect(),
            terminating: sighting.facts.terminating,
            hold: sighting.facts.hold,
            excess_references: sighting
                .facts
                .excess
                .map(|Excess { count, digest }| work::ExcessReferences { count, digest }),
        }
    }
}

impl TryFrom<work::Observed> for Sighting {
    type Error = Malformed;

    fn try_from(observed: work::Observed) -> Result<Self, Malformed> {
        // The API server bounds neither list. The size of the message bounds both.
        let owners = field::list(observed.owner_references, usize::MAX, "owner_references", OwnerReference::try_from)?;
        let mut facts = Facts {
            owners: owners.into(),
            excess: None,
            finalizers: observed.finalizers.into_iter().map(Name::from).collect(),
            terminating: observed.terminating,
            hold: observed.hold,
            deletion_time: None,
        };
        facts.bound();
        if let Some(work::ExcessReferences { count, digest }) = observed.excess_references {
            facts.owners = Box::default();
            facts.excess = Some(Excess { count, digest });
        }
        Ok(Sighting {
            uid: field::uid(&observed.uid, "uid")?,
            resource_version: ResourceVersion::parse(&observed.resource_version),
            facts,
        })
    }
}
