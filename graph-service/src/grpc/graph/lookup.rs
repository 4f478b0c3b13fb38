//! Finds the object that a request names.

use super::{Graph, Visibility, status};
use engine::leader::{Queries, Tombstone};
use engine::object::{GroupResource, Name, Uid};
use engine::view::NodeView;
use proto::r#type::v1beta1::ObjectRef;
use tonic::Status;

/// The result of a lookup.
#[derive(Debug)]
pub(super) struct Known {
    uid: Uid,
    /// A recent deletion of the object.
    tombstone: Option<Tombstone>,
    /// Whether the request named the object's address.
    is_placed: bool,
}

impl Known {
    pub(super) fn uid(&self) -> &Uid {
        &self.uid
    }

    pub(super) fn tombstone(&self) -> Option<&Tombstone> {
        self.tombstone.as_ref()
    }

    /// The uid, if the graph holds a visible state of the object.
    pub(super) fn present(self, graph: &Graph, visibility: &Visibility) -> Result<Uid, Status> {
        if graph.best_known(&self.uid, visibility).is_some() { Ok(self.uid) } else { Err(self.not_found(visibility)) }
    }

    pub(super) fn not_found(&self, visibility: &Visibility) -> Status {
        not_found(&self.uid, self.is_placed, visibility)
    }
}

/// The error for an object that is not in the graph. A caller that names an address has the right to read this address,
/// so the error may say that no object is there. Otherwise the error does not distinguish an absent object from a
/// hidden one.
pub(super) fn not_found(uid: &Uid, is_placed: bool, visibility: &Visibility) -> Status {
    let unknown = || status::object_not_found(&uid.to_string());
    if is_placed { unknown() } else { visibility.hidden(unknown) }
}

/// Whether a reference names the address of its object.
pub(super) fn is_placed(object: &ObjectRef) -> bool {
    !object.name.is_empty() || !object.namespace.is_empty()
}

/// Returns an error if the caller may not see the named addresses. Call this before any lookup.
pub(super) async fn claim(visibility: &Visibility, objects: &[ObjectRef]) -> Result<(), Status> {
    visibility.learn([""; 0]).await?;
    for object in objects.iter().filter(|object| is_placed(object)) {
        visibility.require(&object.namespace).await?;
    }
    Ok(())
}

/// Maximum number of objects whose observed or claimed address is the same.
const CLAIMS_MAX: usize = 1000;

/// Finds an object by uid or by address. Returns an error if the parts of the reference contradict each other or the
/// object.
pub(super) async fn resolve(graph: &Graph, object: ObjectRef, visibility: &Visibility) -> Result<Known, Status> {
    let by_address = !object.name.is_empty();
    let is_placed = is_placed(&object);
    let collection = GroupResource { group: object.group.as_str().into(), resource: object.resource.as_str().into() };
    let of_collection = match object.resource.as_str() {
        "" => None,
        _ => graph.shared.reader.with(|queries| queries.kind_of(&collection)),
    };
    if let Some(kind) = of_collection.as_ref().filter(|kind| !object.kind.is_empty() && ***kind != *object.kind) {
        let how = format!("is {}, but the objects of {collection} are of kind {kind}", object.kind);
        return Err(status::bad_field("ref.kind", &how));
    }
    if !object.uid.is_empty() {
        let uid = super::uid(&object.uid, "ref.uid")?;
        let (mut tombstone, mut nodes) =
            graph.shared.reader.with(|queries| (queries.tombstone(&uid).cloned(), queries.nodes(&uid)));
        let at = nodes.iter().map(|node| &node.object).chain(tombstone.as_ref().map(|gone| &gone.object));
        visibility.learn(at.map(|object| &object.namespace)).await?;
        nodes.retain(|node| visibility.sees(&node.object.namespace));
        tombstone = tombstone.filter(|gone| visibility.sees(&gone.object.namespace));
        let known = nodes.iter().map(|node| &node.object).chain(tombstone.as_ref().map(|gone| &gone.object));
        if known.clone().next().is_some() && !known.clone().any(|at| fits(at, &object)) {
            return Err(status::uid_mismatch(&format!("uid {uid} belongs to another object"), &uid.to_string()));
        }
        let kind = of_collection.or_else(|| Some(object.kind.as_str().into()).filter(|_| !object.kind.is_empty()));
        if let Some(kind) = kind.filter(|_| by_address && known.clone().next().is_none())
            && let Some(other) = there(graph, &object, &kind)
        {
            let how = format!("{kind} {} has the uid {other}, not {uid}", object.name);
            return Err(status::uid_mismatch(&how, &other.to_string()));
        }
        return Ok(Known { uid, tombstone, is_placed });
    }
    if !by_address {
        return Err(status::bad_field("ref", "needs a uid or a name"));
    }
    let named = || Some(object.kind.as_str().into()).filter(|_| !object.kind.is_empty());
    let Some(kind): Option<Name> = of_collection.or_else(named) else {
        return Err(match object.resource.as_str() {
            "" => status::bad_field("ref", "needs a kind or a resource"),
            _ => status::bad_field("ref.resource", &format!("is {collection}, which the API server does not serve")),
        });
    };
    graph.shared.reader.with(|queries| {
        let found = queries.uids_at(&object.group, &kind, &object.namespace, &object.name, CLAIMS_MAX);
        // An existing object wins over one that only a reference claims.
        let here = |gone: &&Tombstone| gone.object.kind == kind && is_at(&gone.object, &object);
        let tombstone = || queries.tombstones().find(here);
        if let Some(uid) = found.iter().find(|uid| is_observed(queries, uid)) {
            return Ok(Known { uid: uid.clone(), tombstone: None, is_placed });
        }
        if let Some(tombstone) = tombstone() {
            return Ok(Known { uid: tombstone.object.uid.clone(), tombstone: Some(tombstone.clone()), is_placed });
        }
        match found.first() {
            Some(uid) => Ok(Known { uid: uid.clone(), tombstone: None, is_placed }),
            None => Err(status::object_not_found_at(&kind, &object.namespace, &object.name)),
        }
    })
}

fn is_observed(queries: &Queries<'_>, uid: &Uid) -> bool {
    queries.nodes(uid).iter().any(NodeView::is_observed)
}

/// The uid of the object at an address.
fn there(graph: &Graph, at: &ObjectRef, kind: &str) -> Option<Uid> {
    graph.shared.reader.with(|queries| {
        let found = queries.uids_at(&at.group, kind, &at.namespace, &at.name, CLAIMS_MAX);
        found.into_iter().find(|uid| is_observed(queries, uid))
    })
}

/// Whether an object matches the address parts of a reference by uid. The group counts only with a kind or a resource,
/// and the namespace only with a name.
fn fits(at: &engine::object::ObjectRef, wanted: &ObjectRef) -> bool {
    let says_group = !wanted.group.is_empty() || !wanted.kind.is_empty() || !wanted.resource.is_empty();
    let says_namespace = !wanted.namespace.is_empty() || !wanted.name.is_empty();
    (!says_group || wanted.group == *at.group)
        && says(&wanted.kind, &at.kind)
        && says(&wanted.resource, &at.resource)
        && (!says_namespace || wanted.namespace == *at.namespace)
        && says(&wanted.name, &at.name)
}

fn says(wanted: &str, at: &str) -> bool {
    wanted.is_empty() || wanted == at
}

/// Whether an object is at the address of a reference.
fn is_at(at: &engine::object::ObjectRef, wanted: &ObjectRef) -> bool {
    fits(at, wanted) && wanted.group == *at.group && wanted.namespace == *at.namespace && wanted.name == *at.name
}
