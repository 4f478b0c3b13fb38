//! Conversion of nodes and their references to the names that readers and events use.

use super::World;
use crate::graph::{Node, NodeId, Reference};
use crate::hold::is_exempt;
use crate::object::{ObjectRef, Uid};
use crate::scope::Target;
use crate::verdict::Standing;
use crate::view::*;
use alloc::vec::Vec;

impl World {
    /// Converts a standing for readers. The result names the defect when the reference is wrong.
    pub(in crate::leader) fn standing_view(
        &self,
        dependent: Node<'_>,
        owner: NodeId,
        standing: Standing,
    ) -> OwnerStanding {
        let claimed = self.graph.node(owner);
        let elsewhere = || self.graph.primary(&claimed.uid()).filter(|&id| id != owner).map(|id| self.graph.node(id));
        match standing {
            Standing::Solid => OwnerStanding::Solid,
            Standing::Waiting => OwnerStanding::Waiting,
            Standing::Orphaning => OwnerStanding::Orphaning,
            Standing::InvalidScope => OwnerStanding::InvalidScope,
            Standing::Dangling | Standing::Unverified(_) => match (elsewhere(), standing) {
                (Some(other), _) => {
                    let same = other.kind() == claimed.kind() && other.name() == claimed.name();
                    let moved = other.namespace() != dependent.namespace();
                    if same && moved { OwnerStanding::WrongNamespace } else { OwnerStanding::CoordinatesMismatch }
                }
                (None, Standing::Dangling) => OwnerStanding::Dangling,
                (None, Standing::Unverified(Undecided::OwnerKindUnresolved)) => OwnerStanding::KindUnresolved,
                (None, _) => OwnerStanding::Unverified,
            },
        }
    }

    /// Returns the node of a uid with the best evidence: an observed node, then a read one, then a referenced one.
    pub(in crate::leader) fn best_known(&self, uid: &Uid) -> Option<NodeId> {
        let known = |id: &NodeId| {
            let node = self.graph.node(*id);
            (!node.is_observed(), !node.has_facts())
        };
        self.graph.by_uid(uid).min_by_key(known)
    }

    /// Returns the references of a node, in order, with their standings.
    pub(in crate::leader) fn edges(&self, id: NodeId) -> Vec<EdgeView> {
        self.first_edges(id, usize::MAX)
    }

    /// Returns the first `max` references of a node.
    pub(in crate::leader) fn first_edges(&self, id: NodeId, max: usize) -> Vec<EdgeView> {
        self.edges_to(id, max, |_| true)
    }

    /// Returns the first `max` references to owners that match `wanted`. Other references are not converted.
    pub(in crate::leader) fn edges_to(&self, id: NodeId, max: usize, wanted: impl Fn(&Uid) -> bool) -> Vec<EdgeView> {
        let node = self.graph.node(id);
        let is_wanted = |(reference, _): &(Reference<'_>, _)| wanted(&self.graph.node(reference.owner()).uid());
        let standings = crate::verdict::standings(&self.graph, &self.coverage, node);
        let edge = |(reference, standing): (Reference<'_>, _)| EdgeView {
            owner: self.object_ref(reference.owner()),
            dependent: node.uid(),
            reference: reference.to_owned(),
            standing: self.standing_view(node, reference.owner(), standing),
            presence: self.graph.node(reference.owner()).presence(),
        };
        node.references().zip(standings).filter(is_wanted).take(max).map(edge).collect()
    }

    /// Returns the object reference of a node. Version and resource are empty if the kind is not served.
    pub(in crate::leader) fn object_ref(&self, id: NodeId) -> ObjectRef {
        self.graph.object_ref(&self.coverage, id)
    }

    /// Whether several groups serve this object.
    pub(in crate::leader) fn is_mirrored(&self, uid: &Uid) -> bool {
        self.graph.few_by_uid(uid).filter(|&id| self.graph.node(id).is_observed()).nth(1).is_some()
    }

    /// Returns the place of a destructive write to this object, if a guard may hold such a write.
    pub(in crate::leader) fn place(&self, object: &ObjectRef) -> Option<Target> {
        if is_exempt(&object.group, &object.resource) {
            return None;
        }
        let collection = (!self.is_mirrored(&object.uid)).then(|| object.group_resource());
        Some(Target { collection, namespace: object.namespace.clone() })
    }
}
