//! Rivals: resources that share a group and a kind. Each has its own collection. A reference names only the kind, and
//! does not say which resource it means.

use super::{Coverage, KindId};
use crate::object::{GroupResource, Name, ObjectRef};
use alloc::vec::Vec;

impl Coverage {
    /// The kind entry of a resource. It is the entry of its group and kind, unless another resource has that entry.
    pub(crate) fn place_of(&mut self, resource: &GroupResource, kind: &Name) -> KindId {
        if let Some(&rival) = self.rivals.get(resource).filter(|rival| self.kind(**rival).kind == *kind) {
            return rival;
        }
        let first = self.kind_id(&resource.group, kind);
        let of_first = self.kind(first).served().map(|served| served.group_resource.clone());
        let Some(of_first) = of_first.filter(|other| other != resource) else { return first };
        let rival = self.add(resource.group.clone(), kind.clone());
        self.rivals.insert(of_first, first);
        self.rivals.insert(resource.clone(), rival);
        rival
    }

    /// The kind of an object reference.
    pub(crate) fn kind_of(&mut self, object: &ObjectRef) -> KindId {
        let resource = GroupResource { group: object.group.clone(), resource: object.resource.clone() };
        match self.find(&resource).filter(|id| self.kind(*id).kind == object.kind) {
            Some(id) => id,
            None => self.kind_id(&object.group, &object.kind),
        }
    }

    /// All kinds with the same group and name.
    pub(crate) fn namesakes(&self, id: KindId) -> impl Iterator<Item = KindId> + '_ {
        let (group, kind) = (self.kind(id).group.clone(), self.kind(id).kind.clone());
        let first = self.by_kind.get(&(group.clone(), kind.clone())).copied();
        let rivals = self.rivals.values().copied().filter(move |rival| Some(*rival) != first);
        let is_it = move |id: &KindId| self.kind(*id).group == group && self.kind(*id).kind == kind;
        first.into_iter().chain(rivals.filter(is_it))
    }

    /// Served resources of this kind.
    pub(crate) fn resources(&self, id: KindId) -> Vec<GroupResource> {
        let served = self.namesakes(id).filter_map(|id| self.kind(id).served());
        let mut resources: Vec<GroupResource> = served.map(|served| served.group_resource.clone()).collect();
        resources.sort();
        resources
    }

    /// Finds out whether references by this kind lead to one resource, after a resource has come or gone. Resources
    /// that cannot be listed do not count beside one that can. Returns `None` if nothing has changed, else the former
    /// target of references.
    pub(crate) fn compare_resources(&mut self, id: KindId) -> Option<KindId> {
        if self.rivals.is_empty() {
            return None;
        }
        let first = *self.by_kind.get(&(self.kind(id).group.clone(), self.kind(id).kind.clone()))?;
        let namesakes: Vec<KindId> = self.namesakes(id).collect();
        let served = namesakes.iter().copied().filter(|&id| self.kind(id).served().is_some());
        let (mut candidates, others): (Vec<KindId>, Vec<KindId>) = served.partition(|&id| self.kind(id).is_listable());
        if candidates.is_empty() {
            candidates = others;
        }
        let ambiguous = candidates.len() > 1;
        let mut changed = false;
        for id in namesakes {
            let kind = self.kind_mut(id);
            changed |= kind.ambiguous != ambiguous;
            kind.ambiguous = ambiguous;
        }
        if let Some(&next) = candidates.first().filter(|_| !candidates.contains(&first)) {
            let kind = self.kind(next);
            self.by_kind.insert((kind.group.clone(), kind.kind.clone()), next);
            changed = true;
        }
        changed.then_some(first)
    }
}
