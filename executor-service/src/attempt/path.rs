//! Paths of objects at the API server.

use engine::object::ObjectRef;
use runtime::kubernetes::path::{collection_path, is_encodable_segment, query_value};

/// Names in references can be any text, and a URI ends at 64 KiB.
const PATH_MAX_BYTES: usize = 60_000;

/// The path of one object. `None` if its coordinates are not a valid path, or are too long. An empty name would address
/// the whole collection. A slash would address a subresource, because the API server splits the path after decoding.
pub(crate) fn object_path(object: &ObjectRef) -> Option<String> {
    let needed = [&object.version, &object.resource, &object.name];
    let optional = [&object.group, &object.namespace];
    if !needed.into_iter().all(|part| is_encodable_segment(part))
        || !optional.into_iter().all(|part| part.is_empty() || is_encodable_segment(part))
    {
        return None;
    }
    let namespace = Some(query_value(&object.namespace)).filter(|namespace| !namespace.is_empty());
    let [group, version, resource, name] =
        [&object.group, &object.version, &object.resource, &object.name].map(|part| query_value(part));
    let collection = collection_path(&group, &version, &resource, namespace.as_deref());
    Some(format!("{collection}/{name}")).filter(|path| path.len() <= PATH_MAX_BYTES)
}
