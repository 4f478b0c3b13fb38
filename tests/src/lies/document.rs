//! Defects of discovery documents: in one group, or in the whole document.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// A defect of a discovery document. It affects one group, or from [`Defect::Html`] on the whole document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The group is missing.
    NoGroup,
    /// The group has no versions.
    NoVersions,
    /// The group has another version.
    OtherVersion,
    /// The version has no resources.
    NoKind,
    /// The resource has another kind.
    OtherKind,
    /// The resource is cluster-scoped.
    OtherScope,
    /// The resource has no verbs.
    NoVerbs,
    /// The resource lacks the verbs list and watch.
    OnlyGet,
    /// The resource lacks the verb watch.
    NoWatch,
    /// The server marks the version as stale.
    Stale,
    /// The media type is that of HTML.
    Html,
    /// The media type is that of protobuf.
    Protobuf,
    /// The answer is plain text.
    Text,
    /// The answer is a `Status` under code 200.
    Status,
    /// The answer is the first half of the document.
    Half,
    /// The document has no groups.
    Empty,
    NotFound404,
    Forbidden403,
    Unavailable503,
}

impl Defect {
    pub const ALL: [Defect; 19] = [
        Defect::NoGroup,
        Defect::NoVersions,
        Defect::OtherVersion,
        Defect::NoKind,
        Defect::OtherKind,
        Defect::OtherScope,
        Defect::NoVerbs,
        Defect::OnlyGet,
        Defect::NoWatch,
        Defect::Stale,
        Defect::Html,
        Defect::Protobuf,
        Defect::Text,
        Defect::Status,
        Defect::Half,
        Defect::Empty,
        Defect::NotFound404,
        Defect::Forbidden403,
        Defect::Unavailable503,
    ];
    /// The number of defects of one group. They come first in [`Defect::ALL`].
    pub const OF_ONE_GROUP: usize = 10;

    /// Returns whether a list of groups can have this defect. Such a list has no resources.
    pub(super) fn is_of_groups(self) -> bool {
        !matches!(
            self,
            Defect::NoKind
                | Defect::OtherKind
                | Defect::OtherScope
                | Defect::NoVerbs
                | Defect::OnlyGet
                | Defect::NoWatch
                | Defect::Stale
        )
    }

    /// Puts the defect into this group of an aggregated document or of a list of groups.
    pub(super) fn put(self, document: &mut Value, group: &str) {
        for list in ["items", "groups"] {
            let Some(groups) = document[list].as_array_mut() else { continue };
            if self == Defect::NoGroup {
                groups.retain(|shown| name(shown) != group);
            }
            groups.iter_mut().filter(|shown| name(shown) == group).for_each(|shown| self.put_into(shown));
        }
    }

    fn put_into(self, group: &mut Value) {
        if self == Defect::NoVersions {
            group["versions"] = json!([]);
        }
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            if self == Defect::OtherVersion {
                version["version"] = json!("v2");
            } else if self == Defect::NoKind {
                version["resources"] = json!([]);
            } else if self == Defect::Stale {
                version["freshness"] = json!("Stale");
            }
            for resource in version["resources"].as_array_mut().into_iter().flatten() {
                if self == Defect::OtherKind {
                    resource["responseKind"]["kind"] = json!("Gadget");
                } else if self == Defect::OtherScope {
                    resource["scope"] = json!("Cluster");
                } else if let Some(verbs) = self.verbs() {
                    resource["verbs"] = json!(verbs);
                }
            }
        }
    }

    fn verbs(self) -> Option<&'static [&'static str]> {
        let with = [
            (Defect::NoVerbs, &[][..]),
            (Defect::OnlyGet, &["get", "delete", "patch"]),
            (Defect::NoWatch, &["get", "list", "delete", "patch"]),
        ];
        with.into_iter().find(|(defect, _)| *defect == self).map(|(_, verbs)| verbs)
    }

    /// Returns the answer with this defect of the whole document.
    pub(super) fn whole(self, document: &Value, content_type: &str) -> Response {
        let text = document.to_string();
        let empty = |list: &str| document[list].is_array().then(|| json!([]));
        let (code, content_type, body) = match self {
            Defect::Html => (200, "text/html", text),
            Defect::Protobuf => (200, "application/vnd.kubernetes.protobuf", text),
            Defect::Text => (200, "text/plain", "ok".to_owned()),
            Defect::Status => (200, content_type, status(200).to_string()),
            Defect::Half => (200, content_type, text[..text.floor_char_boundary(text.len() / 2)].to_owned()),
            Defect::Empty => {
                let mut document = document.clone();
                for list in ["items", "groups"] {
                    if let Some(empty) = empty(list) {
                        document[list] = empty;
                    }
                }
                (200, content_type, document.to_string())
            }
            Defect::NotFound404 => (404, "application/json", status(404).to_string()),
            Defect::Forbidden403 => (403, "application/json", status(403).to_string()),
            Defect::Unavailable503 => (503, "application/json", status(503).to_string()),
            Defect::NoGroup
            | Defect::NoVersions
            | Defect::OtherVersion
            | Defect::NoKind
            | Defect::OtherKind
            | Defect::OtherScope
            | Defect::NoVerbs
            | Defect::OnlyGet
            | Defect::NoWatch
            | Defect::Stale => (200, content_type, text),
        };
        response(code, content_type, body)
    }
}

pub(super) fn response(code: u16, content_type: &str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response
}

fn name(group: &Value) -> &str {
    group["metadata"]["name"].as_str().or_else(|| group["name"].as_str()).unwrap_or_default()
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "a wrong answer", "code": code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_of_one_group_leaves_the_others_as_they_are() {
        let group = |name: &str| {
            json!({ "metadata": { "name": name }, "versions": [{ "version": "v1", "freshness": "Current", "resources": [
                { "resource": "things", "responseKind": { "kind": "Thing" }, "scope": "Namespaced", "verbs": ["list"] }] }] })
        };
        let right = json!({ "items": [group("a"), group("b")] });
        for defect in &Defect::ALL[..Defect::OF_ONE_GROUP] {
            let mut document = right.clone();
            defect.put(&mut document, "a");
            assert_ne!(document, right, "{defect:?}");
            assert_eq!(document["items"].as_array().and_then(|items| items.last()), Some(&group("b")), "{defect:?}");
        }
    }
}
