//! Parses paths.

use crate::model::GroupResource;

/// A path below `/api` or `/apis` that names a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural; empty for the version itself.
    pub(crate) resource: String,
    /// Empty for all namespaces and for cluster-scoped types.
    pub(crate) namespace: String,
    /// Empty for the collection.
    pub(crate) name: String,
    /// Empty for the object itself, else the subresource.
    pub(crate) subresource: String,
}

impl Route {
    /// Parses `/api/v1/…` and `/apis/GROUP/VERSION/…`; `None` for any other path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).map(decode);
        let group = match segments.next()??.as_str() {
            "api" => String::new(),
            "apis" => segments.next()??,
            _ => return None,
        };
        let version = segments.next()??;
        let rest = segments.collect::<Option<Vec<String>>>()?;
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        // `namespaces/NAME/status` is a subresource of the namespace. Any other third segment is a resource inside it.
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, inner, ..] if !(group.is_empty() && is_subresource(inner)) => {
                (*namespace, &rest[2..])
            }
            _ => ("", rest.as_slice()),
        };
        let (resource, name, subresource) = match rest {
            [] => ("", "", ""),
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource] => (*resource, *name, *subresource),
            _ => return None,
        };
        Some(Self {
            group,
            version,
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }

    pub(crate) fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.resource)
    }
}

fn is_subresource(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

/// Undoes percent-encoding; `None` if the result is not text.
fn decode(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let cases = [
            ("/api/v1", Some(["", "v1", "", "", "", ""])),
            ("/api/v1/pods", Some(["", "v1", "pods", "", "", ""])),
            ("/api/v1/namespaces/a", Some(["", "v1", "namespaces", "", "a", ""])),
            ("/api/v1/namespaces/a/status", Some(["", "v1", "namespaces", "", "a", "status"])),
            ("/api/v1/namespaces/a/pods/b", Some(["", "v1", "pods", "a", "b", ""])),
            ("/apis/apps/v1/namespaces/a/deployments", Some(["apps", "v1", "deployments", "a", "", ""])),
            ("/apis/r/v1/clusterroles/system%3Anode", Some(["r", "v1", "clusterroles", "", "system:node", ""])),
            ("/apis/x.io/v1/as/b/status", Some(["x.io", "v1", "as", "", "b", "status"])),
            ("/apis/x.io", None),
            ("/version", None),
            ("/api/v1/pods/%ff", None),
        ];
        for (path, expected) in cases {
            let expected = expected.map(|[group, version, resource, namespace, name, subresource]| Route {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                subresource: subresource.to_owned(),
            });
            assert_eq!(Route::parse(path), expected, "{path}");
        }
    }
}
