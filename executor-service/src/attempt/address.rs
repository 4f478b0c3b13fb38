//! Where the API server keeps an object.

use engine::object::ObjectRef;
use std::fmt::Write;

/// Names in references are whatever users write, and a URI ends at 64 KiB.
const PATH_MAX_BYTES: usize = 60_000;

/// The path of one object. `None` where its coordinates cannot be a path: an empty name would address the whole collection, and a slash
/// a subresource, because the API server splits the path after it has decoded it. None either where it is too long for a URI.
pub(crate) fn object_path(object: &ObjectRef) -> Option<String> {
    if !is_segment(&object.name) {
        return None;
    }
    let mut path = collection_path(object)?;
    path.push('/');
    encode(&mut path, &object.name);
    bounded(path)
}

/// The path of the collection that holds an object, in the object's namespace. `None` as for [`object_path`].
fn collection_path(object: &ObjectRef) -> Option<String> {
    let needed = [&object.version, &object.resource].into_iter().all(|part| is_segment(part));
    let optional = [&object.group, &object.namespace].into_iter().all(|part| part.is_empty() || is_segment(part));
    if !needed || !optional {
        return None;
    }
    let mut path = String::from(if object.group.is_empty() { "/api/" } else { "/apis/" });
    if !object.group.is_empty() {
        encode(&mut path, &object.group);
        path.push('/');
    }
    encode(&mut path, &object.version);
    if !object.namespace.is_empty() {
        path.push_str("/namespaces/");
        encode(&mut path, &object.namespace);
    }
    path.push('/');
    encode(&mut path, &object.resource);
    bounded(path)
}

fn bounded(path: String) -> Option<String> {
    (path.len() <= PATH_MAX_BYTES).then_some(path)
}

/// What the API server itself demands of a name in a path.
fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

fn encode(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}
