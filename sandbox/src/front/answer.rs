//! Encodes answers: objects, lists and refusals.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::encode::{self, PROTOBUF};
use super::fault::PLAIN;
use super::media::Form;
use super::style::{Shown, Style};
use super::table;
use crate::model::{self, ApiError, Now, Object, Page, Reason};

impl Style {
    /// Appends one object as JSON to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>, object: &Object, now: Now) {
        let written = match self.form {
            Form::Full | Form::Discovery => serde_json::to_writer(out, &Shown::full(object, &self.api_version)),
            Form::Metadata | Form::MetadataList => serde_json::to_writer(out, &Shown::metadata(object)),
            Form::Table => {
                let version = model::text(object, "resourceVersion");
                let table = table::render(self, &[object], json!({ "resourceVersion": version }), now);
                serde_json::to_writer(out, &table)
            }
        };
        written.expect("an object made of JSON is written to memory");
    }

    /// One object as an answer.
    pub(crate) fn object(&self, code: StatusCode, object: &Object, now: Now) -> Response {
        if self.protobuf {
            return typed(code, PROTOBUF, encode::metadata(object));
        }
        let mut out = Vec::new();
        self.write(&mut out, object, now);
        json_bytes(code, out)
    }

    /// A Status other than a refusal, as an answer.
    pub(crate) fn status(&self, status: &Value) -> Response {
        if self.protobuf {
            return typed(StatusCode::OK, PROTOBUF, encode::status(status));
        }
        json_value(StatusCode::OK, status)
    }

    /// A list as an answer.
    pub(crate) fn list(&self, page: &Page, now: Now) -> Response {
        let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
        if let Some(next) = &page.next {
            metadata["continue"] = Value::from(next.token());
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = Value::from(remaining);
        }
        if self.protobuf {
            let objects = page.items.iter().map(AsRef::as_ref);
            return typed(StatusCode::OK, PROTOBUF, encode::list(&metadata, objects));
        }
        if self.form == Form::Table {
            let objects: Vec<&Object> = page.items.iter().map(AsRef::as_ref).collect();
            return json_value(StatusCode::OK, &table::render(self, &objects, metadata, now));
        }
        let (kind, api_version) = match self.form {
            Form::Metadata | Form::MetadataList => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            Form::Full | Form::Table | Form::Discovery => (self.of.list_kind.as_str(), self.api_version.as_str()),
        };
        // The list is written by hand, because a list of a hundred thousand objects must not become a second tree in
        // memory.
        let mut out =
            format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":"#).into_bytes();
        if page.items.is_empty() && self.form == Form::MetadataList {
            // The real server sends null here, and an empty list in the other forms.
            out.extend_from_slice(b"null}");
            return json_bytes(StatusCode::OK, out);
        }
        out.push(b'[');
        for (index, object) in page.items.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut out, &Shown::item(object, self))
                .expect("an object made of JSON is written to memory");
        }
        out.extend_from_slice(b"]}");
        json_bytes(StatusCode::OK, out)
    }
}

pub(crate) fn json_value(code: StatusCode, value: &Value) -> Response {
    json_bytes(code, value.to_string().into_bytes())
}

pub(crate) fn json_bytes(code: StatusCode, bytes: Vec<u8>) -> Response {
    typed(code, "application/json", bytes)
}

pub(crate) fn text(code: StatusCode, text: &str) -> Response {
    let mut response = typed(code, PLAIN, format!("{text}\n").into_bytes());
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn typed(code: StatusCode, content_type: &'static str, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A refusal: a Status, except for two that the real server sends as plain text.
pub(crate) fn refusal(error: &ApiError) -> Response {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if matches!(error.reason, Reason::GroupNotServed | Reason::BackendDown) {
        return text(code, &error.message);
    }
    let mut response = json_value(code, &error.status());
    if error.reason == Reason::TooLargeResourceVersion {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
