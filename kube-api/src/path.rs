//! Paths of objects at the API server.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The namespace whose uid is the identity of the cluster.
pub const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
/// Maximum length of a URI. Names in references can be any text.
pub const URI_MAX_BYTES: usize = 60_000;

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether `text` is valid in a path without encoding. All valid Kubernetes names are.
pub fn is_path_segment(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && text != "."
        && text != ".."
}

/// Whether the API server accepts `text`, encoded, as one segment of a path. It splits the path after decoding.
pub fn is_encodable_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

/// The path of a group version. The group is empty for the core group.
pub fn version_path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// The path of a collection, in one namespace, or in all if it is empty.
pub fn collection_path(group: &str, version: &str, resource: &str, namespace: &str) -> String {
    let base = version_path(group, version);
    match namespace {
        "" => format!("{base}/{resource}"),
        namespace => format!("{base}/namespaces/{namespace}/{resource}"),
    }
}

/// The path of one object. The namespace is empty for cluster scope. `None` if the coordinates are not a valid path, or
/// are too long for a URI. An empty name would address the whole collection. A slash would address a subresource,
/// because the API server splits the path after decoding.
pub fn object_path(group: &str, version: &str, resource: &str, namespace: &str, name: &str) -> Option<String> {
    let optional = [group, namespace];
    if ![version, resource, name].into_iter().all(is_encodable_segment)
        || !optional.into_iter().all(|part| part.is_empty() || is_encodable_segment(part))
    {
        return None;
    }
    let [group, version, resource, namespace, name] = [group, version, resource, namespace, name].map(query_value);
    let path = format!("{}/{name}", collection_path(&group, &version, &resource, &namespace));
    Some(path).filter(|path| path.len() <= URI_MAX_BYTES)
}

/// Percent-encodes a value for a query.
pub fn query_value(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A query value that selects the object of one name.
pub fn name_selector(name: &str) -> String {
    let mut selected = String::with_capacity(name.len());
    for character in name.chars() {
        // The selector's syntax is escaped before the query's.
        if matches!(character, '\\' | ',' | '=') {
            selected.push('\\');
        }
        selected.push(character);
    }
    format!("metadata.name%3D{}", query_value(&selected))
}
