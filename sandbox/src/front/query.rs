//! The query of a request.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;

use super::protobuf;
use crate::model::{
    ApiError, Cause, DeleteOptions, Details, ListQuery, Object, Policy, Position, Reason, Selector, Type,
};

/// Maximum lifetime of a watch without a timeout.
const WATCH_MAX: Duration = Duration::from_secs(30 * 60);

/// The parameters that this server uses. All others (field managers, field validation, pretty printing) do not change
/// the answer.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) watch: bool,
    limit: Option<usize>,
    continue_token: String,
    label_selector: String,
    field_selector: String,
    pub(crate) resource_version: String,
    resource_version_match: String,
    pub(crate) send_initial_events: bool,
    pub(crate) allow_watch_bookmarks: bool,
    timeout_seconds: Option<u64>,
    pub(crate) include_object: String,
    dry_run: Vec<String>,
    propagation_policy: String,
    grace_period_seconds: String,
    orphan_dependents: String,
}

impl Parameters {
    /// # Errors
    /// 400 for an undecodable query and for invalid numbers.
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let wrong = |what: &str| ApiError::new(Reason::BadRequest, format!("the query cannot be decoded: {what}"));
        let Query(pairs) =
            Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| wrong(&error.to_string()))?;
        let mut parameters = Self::default();
        for (name, value) in pairs {
            let number = || value.parse::<u64>().map_err(|_| wrong(&format!("{name}={value} is no number")));
            match name.as_str() {
                "watch" => parameters.watch = is_true(&value),
                // A negative limit counts as none.
                "limit" if value.starts_with('-') => {}
                "limit" => parameters.limit = Some(usize::try_from(number()?).unwrap_or(usize::MAX)),
                "timeoutSeconds" => parameters.timeout_seconds = Some(number()?),
                "sendInitialEvents" => parameters.send_initial_events = is_true(&value),
                "allowWatchBookmarks" => parameters.allow_watch_bookmarks = is_true(&value),
                "dryRun" => parameters.dry_run.push(value),
                "continue" => parameters.continue_token = value,
                "labelSelector" => parameters.label_selector = value,
                "fieldSelector" => parameters.field_selector = value,
                "resourceVersion" => parameters.resource_version = value,
                "resourceVersionMatch" => parameters.resource_version_match = value,
                "includeObject" => parameters.include_object = value,
                "propagationPolicy" => parameters.propagation_policy = value,
                "gracePeriodSeconds" => parameters.grace_period_seconds = value,
                "orphanDependents" => parameters.orphan_dependents = value,
                _ => {}
            }
        }
        Ok(parameters)
    }

    /// # Errors
    /// 422 for any stage but `All`.
    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        let stages = self.dry_run.iter().map(String::as_str).filter(|stage| !stage.is_empty());
        crate::model::parse_dry_run(stages.collect())
    }

    pub(crate) fn selector(&self, of: &Type) -> Result<Selector, ApiError> {
        Selector::parse(of, &self.label_selector, &self.field_selector)
    }

    /// # Errors
    /// 400 for an invalid token or version, 422 for versions and matches that contradict each other.
    pub(crate) fn list(&self, of: &Type, namespace: &str) -> Result<ListQuery, ApiError> {
        let from = (!self.continue_token.is_empty()).then(|| Position::parse(&self.continue_token)).transpose()?;
        let at = match (self.resource_version_match.as_str(), self.resource_version.as_str()) {
            ("", "") => None,
            ("", version) => {
                // A limited list at a version shows exactly that version. Without a limit it may show any later one.
                let version = self.version(version)?;
                (self.limit.is_some_and(|limit| limit > 0) && version > 0).then_some(version)
            }
            ("NotOlderThan" | "Exact", "") if !self.watch => {
                let why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
                return Err(match_error("resourceVersionMatch", why));
            }
            ("NotOlderThan", _) => None,
            ("Exact", "0") => {
                let why = "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                return Err(match_error("resourceVersionMatch", why));
            }
            ("Exact", version) => Some(self.version(version)?),
            (other, _) => {
                return Err(match_error("resourceVersionMatch", &format!("Unsupported value: \"{other}\"")));
            }
        };
        if self.send_initial_events && !self.watch {
            return Err(match_error("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"));
        }
        if from.is_some() && !matches!(self.resource_version.as_str(), "" | "0") {
            return Err(ApiError::new(
                Reason::BadRequest,
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(ListQuery {
            namespace: (of.namespaced && !namespace.is_empty()).then(|| namespace.to_owned()),
            selector: self.selector(of)?,
            limit: self.limit.unwrap_or(0),
            from,
            at,
        })
    }

    /// The earliest version that a list may show.
    pub(crate) fn not_older_than(&self) -> Result<u64, ApiError> {
        self.version(&self.resource_version)
    }

    /// The start of a watch. `None`: the current state and everything after it.
    ///
    /// # Errors
    /// 422 if initial events are requested without `resourceVersionMatch=NotOlderThan`, or the reverse.
    pub(crate) fn watch_from(&self) -> Result<Option<u64>, ApiError> {
        let not_older = match self.resource_version_match.as_str() {
            "" => false,
            "NotOlderThan" => true,
            other => return Err(match_error("resourceVersionMatch", &format!("Unsupported value: \"{other}\""))),
        };
        if self.send_initial_events != not_older {
            let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(match_error("resourceVersionMatch", why));
        }
        let version = self.version(&self.resource_version)?;
        Ok((version > 0 && !self.send_initial_events).then_some(version))
    }

    /// The lifetime of a watch.
    pub(crate) fn watch_timeout(&self) -> Duration {
        self.timeout_seconds.filter(|seconds| *seconds > 0).map_or(WATCH_MAX, Duration::from_secs).min(WATCH_MAX * 2)
    }

    /// The options of a DELETE without a body.
    ///
    /// # Errors
    /// As [`DeleteOptions::decode`].
    pub(crate) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let wrong = |name: &str| ApiError::new(Reason::BadRequest, format!("the parameter {name} cannot be decoded"));
        let given = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        Ok(DeleteOptions {
            propagation_policy: given(&self.propagation_policy).map(|word| Policy::parse(&word)).transpose()?,
            grace_period_seconds: given(&self.grace_period_seconds)
                .map(|seconds| seconds.parse().map_err(|_| wrong("gracePeriodSeconds")))
                .transpose()?,
            orphan_dependents: given(&self.orphan_dependents)
                .map(|flag| flag.parse().map_err(|_| wrong("orphanDependents")))
                .transpose()?,
            dry_run: self.dry_run()?,
            ..DeleteOptions::default()
        })
    }

    fn version(&self, text: &str) -> Result<u64, ApiError> {
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|_| ApiError::new(Reason::BadRequest, format!("Invalid value: \"{text}\": no version")))
    }
}

fn is_true(value: &str) -> bool {
    matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T" | "")
}

fn match_error(field: &str, why: &str) -> ApiError {
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}");
    let cause = Cause { reason: "FieldValueForbidden", message: why.to_owned(), field: field.to_owned() };
    let (group, kind) = ("meta.k8s.io".to_owned(), "ListOptions".to_owned());
    let details = Details { group, kind, causes: vec![cause], ..Details::default() };
    ApiError { reason: Reason::Invalid, message, details: Box::new(details) }
}

/// The body of a request as an object: JSON, or YAML or protobuf by content type.
///
/// # Errors
/// 415 for another content type, 400 for an invalid body.
pub(crate) fn body_object(content_type: &str, body: &[u8]) -> Result<Object, ApiError> {
    let value = body_value(content_type, body)?;
    let serde_json::Value::Object(object) = value else {
        return Err(ApiError::new(Reason::BadRequest, "the body of the request must be an object"));
    };
    Ok(object)
}

/// The body as any value.
pub(crate) fn body_value(content_type: &str, body: &[u8]) -> Result<serde_json::Value, ApiError> {
    let bad = |error: String| {
        ApiError::new(Reason::BadRequest, format!("the object provided is unrecognized or does not parse: {error}"))
    };
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        // curl sends the second one by default, and the real server accepts it.
        "" | "application/json" | "application/x-www-form-urlencoded" | "*/*" => {
            serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            let text = std::str::from_utf8(body).map_err(|error| bad(error.to_string()))?;
            serde_saphyr::from_str(text).map_err(|error| bad(error.to_string()))
        }
        "application/vnd.kubernetes.protobuf" => protobuf::decode(body),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json, application/yaml";
            Err(ApiError::new(Reason::UnsupportedMediaType, message))
        }
    }
}
