//! Which object a request means.

use super::{Graph, Sight, status};
use engine::object::{GroupResource, Uid};
use engine::view::{PresenceView, Tombstone};
use proto::r#type::v1beta1::ObjectRef;
use tonic::Status;

/// What a reference of a request leads to.
#[derive(Debug)]
pub(super) struct Known {
    uid: Uid,
    /// Where the object went lately.
    tombstone: Option<Tombstone>,
    /// The request said where the object is.
    is_placed: bool,
}

impl Known {
    pub(super) fn uid(&self) -> &Uid {
        &self.uid
    }

    pub(super) fn tombstone(&self) -> Option<&Tombstone> {
        self.tombstone.as_ref()
    }

    /// The uid, if the graph holds anything of it that the caller may see.
    pub(super) fn present(self, graph: &Graph, sight: &Sight) -> Result<Uid, Status> {
        if graph.best_known(&self.uid, sight).is_some() { Ok(self.uid) } else { Err(self.not_found(sight)) }
    }

    pub(super) fn not_found(&self, sight: &Sight) -> Status {
        not_found(&self.uid, self.is_placed, sight)
    }
}

/// Who says where an object is has the right to know that it is not there.
pub(super) fn not_found(uid: &Uid, is_placed: bool, sight: &Sight) -> Status {
    let unknown = || status::object_not_found(&uid.to_string());
    if is_placed { unknown() } else { sight.hidden(unknown) }
}

/// Whether a reference of a request says where its object is.
pub(super) fn is_placed(object: &ObjectRef) -> bool {
    !object.name.is_empty() || !object.namespace.is_empty()
}

/// To be asked before anything is looked up: an error where the caller may not see what is where a request says.
pub(super) async fn claim(sight: &Sight, objects: &[ObjectRef]) -> Result<(), Status> {
    sight.learn([""; 0]).await?;
    for object in objects.iter().filter(|object| is_placed(object)) {
        sight.require(&object.namespace).await?;
    }
    Ok(())
}

/// Most objects that are looked at which are, or are claimed to be, at one address.
const CLAIMS_MAX: usize = 1000;

/// By uid or by address.
pub(super) async fn resolve(graph: &Graph, object: ObjectRef, sight: &Sight) -> Result<Known, Status> {
    let by_address = !object.name.is_empty();
    let is_placed = is_placed(&object);
    if let Some(uid) = Uid::parse(&object.uid) {
        let (mut tombstone, mut nodes) =
            graph.shared.reader.with(|leader| (leader.tombstone(&uid).cloned(), leader.nodes(&uid)));
        let at = nodes.iter().map(|node| &node.object).chain(tombstone.as_ref().map(|gone| &gone.object));
        sight.learn(at.map(|object| &object.namespace)).await?;
        nodes.retain(|node| sight.sees(&node.object.namespace));
        tombstone = tombstone.filter(|gone| sight.sees(&gone.object.namespace));
        let known = nodes.iter().map(|node| &node.object).chain(tombstone.as_ref().map(|gone| &gone.object));
        if by_address && known.clone().next().is_some() && !known.clone().any(|at| is_at(at, &object)) {
            return Err(status::uid_mismatch(&format!("uid {uid} is of another object"), &uid.to_string()));
        }
        return Ok(Known { uid, tombstone, is_placed });
    }
    if !by_address {
        return Err(status::bad_field("ref", "has neither a uid nor a name"));
    }
    let kind = if object.kind.is_empty() {
        let collection =
            GroupResource { group: object.group.as_str().into(), resource: object.resource.as_str().into() };
        let kind = graph.shared.reader.with(|leader| leader.kind_of(&collection));
        kind.ok_or_else(|| {
            status::bad_field("ref", &format!("names {collection}, which the API server does not serve"))
        })?
    } else {
        object.kind.as_str().into()
    };
    graph.shared.reader.with(|leader| {
        let found = leader.uids_at(&object.group, &kind, &object.namespace, &object.name, CLAIMS_MAX);
        // An object that is there goes before one that is only claimed to be there.
        let observed = |uid: &&Uid| leader.nodes(uid).iter().any(|node| node.presence == PresenceView::Observed);
        let here = |gone: &&Tombstone| gone.object.kind == kind && is_at(&gone.object, &object);
        let tombstone = || leader.tombstones().find(here);
        if let Some(uid) = found.iter().find(observed) {
            return Ok(Known { uid: uid.clone(), tombstone: None, is_placed });
        }
        if let Some(tombstone) = tombstone() {
            return Ok(Known { uid: tombstone.object.uid.clone(), tombstone: Some(tombstone.clone()), is_placed });
        }
        match found.first() {
            Some(uid) => Ok(Known { uid: uid.clone(), tombstone: None, is_placed }),
            None => Err(status::object_not_found(&format!("{kind} {}/{}", object.namespace, object.name))),
        }
    })
}

/// Whether an object is where a reference says, as far as it says.
fn is_at(at: &engine::object::ObjectRef, wanted: &ObjectRef) -> bool {
    let says = |wanted: &str, at: &str| wanted.is_empty() || wanted == at;
    wanted.group == *at.group
        && says(&wanted.kind, &at.kind)
        && says(&wanted.resource, &at.resource)
        && wanted.namespace == *at.namespace
        && wanted.name == *at.name
}
