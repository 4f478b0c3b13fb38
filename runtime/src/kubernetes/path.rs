//! Where the API server keeps objects.

/// Whether `text` can stand in a path as it is. Names from outside that cannot are no names of Kubernetes.
pub fn is_path_segment(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && text != "."
        && text != ".."
}

/// Whether the API server takes `text`, encoded, for one segment of a path. It splits the path after it has decoded it.
pub fn is_encodable_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

/// The path of a collection, in one namespace or in all.
pub fn collection_path(group: &str, version: &str, resource: &str, namespace: Option<&str>) -> String {
    let base = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    match namespace {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{resource}"),
        None => format!("{base}/{resource}"),
    }
}

/// Percent-encodes all that is not plain in a query.
pub fn query_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Selects the object of one name, in a query.
pub fn name_selector(name: &str) -> String {
    let mut selected = String::with_capacity(name.len());
    for character in name.chars() {
        // The selector's own syntax, before the one of the query.
        if matches!(character, '\\' | ',' | '=') {
            selected.push('\\');
        }
        selected.push(character);
    }
    format!("metadata.name%3D{}", query_value(&selected))
}
