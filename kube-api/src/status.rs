//! `metav1.Status`, and the kinds of 404.

use engine::object::clip;
use http::StatusCode;
use serde::Deserialize;

use super::call::Answer;
use super::media::{self, media_type};

pub use engine::attempt::NotFound;

/// Maximum number of bytes of an answer's message in a sentence.
const MESSAGE_MAX_BYTES: usize = 512;

/// `meta/v1.Status`, without its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Success` or `Failure`.
    pub status: String,
    /// `NotFound`, `Conflict`, `Invalid`, …; may be empty.
    pub reason: String,
    pub message: String,
    /// The HTTP status, or 0.
    pub code: u16,
    pub details: Option<StatusDetails>,
}

/// The object of a [`Status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    pub name: String,
    /// Empty for the core group.
    pub group: String,
    /// A resource (`pods`) if the API server did not find an object; otherwise a kind.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<StatusCause>,
    pub retry_after_seconds: u32,
}

/// One of several causes of the status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusCause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// The `Status` of an answer in JSON, if it is one.
pub fn parse_status(answer: &Answer) -> Option<Status> {
    #[derive(Deserialize)]
    struct Type {
        kind: String,
        #[serde(rename = "apiVersion")]
        api_version: String,
    }
    if media_type(&answer.content_type) != media::JSON {
        return None;
    }
    let kind: Type = serde_json::from_slice(&answer.body).ok()?;
    if kind.kind != "Status" || kind.api_version != "v1" {
        return None;
    }
    serde_json::from_slice(&answer.body).ok()
}

impl Answer {
    /// The message of the answer's `Status`; empty without one.
    pub fn message(&self) -> String {
        parse_status(self).map(|status| clip(&status.message, MESSAGE_MAX_BYTES)).unwrap_or_default()
    }

    /// The answer as a refusal, in one sentence.
    pub fn refusal(&self) -> String {
        format!("the API server answers {}: {}", self.status.as_u16(), self.message())
    }
}

/// Whether the API server says that it has no object `name` of this group and (plural) resource.
fn absent_names(status: &Status, group: &str, resource: &str, name: &str) -> bool {
    let named = |details: &StatusDetails| details.group == group && details.kind == resource && details.name == name;
    status.reason == "NotFound" && matches!(status.code, 0 | 404) && status.details.as_ref().is_some_and(named)
}

/// The kind of 404 in an answer about this object; `None` for any other status. `resource` is the plural, `group` is
/// empty for the core group. Only [`NotFound::ThisObject`] concerns the object, and it proves nothing by itself.
pub fn classify_not_found(answer: &Answer, group: &str, resource: &str, name: &str) -> Option<NotFound> {
    if answer.status != StatusCode::NOT_FOUND {
        return None;
    }
    if media_type(&answer.content_type) == "text/plain" && answer.body.trim_ascii() == b"404 page not found" {
        return Some(NotFound::Group);
    }
    let Some(status) = parse_status(answer) else {
        return Some(NotFound::Other);
    };
    if absent_names(&status, group, resource, name) {
        return Some(NotFound::ThisObject);
    }
    let nameless = |details: &StatusDetails| {
        details.name.is_empty() && details.group.is_empty() && details.kind.is_empty() && details.uid.is_empty()
    };
    let about_nothing = status.details.as_ref().is_none_or(nameless);
    Some(if status.reason == "NotFound" && about_nothing { NotFound::Resource } else { NotFound::Other })
}

#[cfg(test)]
mod tests;
