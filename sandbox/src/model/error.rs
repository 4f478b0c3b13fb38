//! Refusals of the API server.

use engine::object::in_group;
use serde_json::{Map, Value, json};

use super::kinds::Type;

/// A refusal, as the `Status` for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub reason: Reason,
    pub message: String,
    pub details: Box<Details>,
}

/// The machine-readable reason of a refusal. It determines the HTTP code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    BadRequest,
    Forbidden,
    NotFound,
    /// The group is served, the resource is not: a `NotFound` without details.
    ResourceNotServed,
    /// The group is unknown: the plain text `404 page not found` instead of a `Status`.
    GroupNotServed,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    /// 500. The real server sends no reason in the cases of this model.
    InternalError,
    /// An aggregated API whose backend is down: plain text.
    BackendDown,
    /// A future resourceVersion.
    TooLargeResourceVersion,
}

impl Reason {
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound | Self::ResourceNotServed | Self::GroupNotServed => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::InternalError => 500,
            Self::BackendDown => 503,
            Self::TooLargeResourceVersion => 504,
        }
    }

    /// The text of `Status.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Forbidden => "Forbidden",
            Self::NotFound | Self::ResourceNotServed | Self::GroupNotServed => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::InternalError => "",
            Self::BackendDown => "ServiceUnavailable",
            Self::TooLargeResourceVersion => "Timeout",
        }
    }
}

/// The object of a refusal. Empty fields are omitted on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The plural resource; in validation errors the kind.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
}

/// One reason of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    pub message: String,
    /// `metadata.ownerReferences[0].uid`; empty without a field.
    pub field: String,
}

impl ApiError {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: Box::default() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    pub(crate) fn not_found(of: &Type, name: &str) -> Self {
        Self::new(Reason::NotFound, format!("{} \"{name}\" not found", of.qualified())).about(of, name)
    }

    pub(crate) fn resource_not_served() -> Self {
        Self::new(Reason::ResourceNotServed, "the server could not find the requested resource")
    }

    pub(crate) fn group_not_served() -> Self {
        Self::new(Reason::GroupNotServed, "404 page not found")
    }

    pub(crate) fn already_exists(of: &Type, name: &str) -> Self {
        Self::new(Reason::AlreadyExists, format!("{} \"{name}\" already exists", of.qualified())).about(of, name)
    }

    pub(crate) fn conflict(of: &Type, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", of.qualified());
        Self::new(Reason::Conflict, message).about(of, name)
    }

    pub(crate) fn forbidden(of: &Type, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", of.qualified());
        Self::new(Reason::Forbidden, message).about(of, name)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 422 with all invalid fields.
    pub(crate) fn invalid(of: &Type, name: &str, causes: Vec<Cause>) -> Self {
        let listed: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = if listed.len() == 1 { listed.concat() } else { format!("[{}]", listed.join(", ")) };
        let qualified = in_group(&of.kind, &of.group);
        let mut error = Self::new(Reason::Invalid, format!("{qualified} \"{name}\" is invalid: {list}"));
        let (group, kind) = (of.group.clone(), of.kind.clone());
        *error.details = Details { name: name.to_owned(), group, kind, uid: String::new(), causes };
        error
    }

    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    /// The `v1.Status` of this refusal.
    pub fn status(&self) -> Value {
        let mut details = Map::new();
        let texts = [("name", &self.details.name), ("group", &self.details.group), ("kind", &self.details.kind)];
        for (field, text) in texts.into_iter().chain([("uid", &self.details.uid)]) {
            if !text.is_empty() {
                details.insert(field.to_owned(), Value::from(text.as_str()));
            }
        }
        if !self.details.causes.is_empty() {
            details.insert("causes".to_owned(), self.details.causes.iter().map(Cause::value).collect());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code(),
        });
        if !self.reason.as_str().is_empty() {
            status["reason"] = Value::from(self.reason.as_str());
        }
        let bare = matches!(
            self.reason,
            Reason::BadRequest
                | Reason::InternalError
                | Reason::Expired
                | Reason::UnsupportedMediaType
                | Reason::NotAcceptable
        );
        if !(bare && details.is_empty()) {
            status["details"] = Value::Object(details);
        }
        status
    }

    fn about(mut self, of: &Type, name: &str) -> Self {
        name.clone_into(&mut self.details.name);
        of.group.clone_into(&mut self.details.group);
        of.plural.clone_into(&mut self.details.kind);
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code(), self.reason.as_str(), self.message)
    }
}

impl std::error::Error for ApiError {}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueRequired", message: format!("Required value: {why}"), field: field.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: \"{value}\": {why}");
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.into() }
    }

    fn value(&self) -> Value {
        let mut cause = json!({ "reason": self.reason, "message": self.message });
        if !self.field.is_empty() {
            cause["field"] = Value::from(self.field.as_str());
        }
        cause
    }
}
