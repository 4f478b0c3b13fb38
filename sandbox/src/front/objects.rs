//! Handles requests, from the path to the answer.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{json_value, refusal, text, typed};
use super::fault::{Attempt, FaultAnswer, PLAIN};
use super::media::{self, Asked, Form};
use super::query::{self, Parameters};
use super::route::Route;
use super::server::{RequestCount, Server, Stopping};
use super::style::{IncludeObject, Style};
use super::{discovery, openapi, reviews, watch};
use crate::model::{
    ApiError, DeleteOptions, Deleted, Model, Now, Object, ObjectKey, Patch, Reason, StatusRule, Subresource,
    WriteOptions, Written, api_version,
};

/// Largest request body. etcd accepts half of it in one object.
const BODY_MAX_BYTES: usize = 3 * 1024 * 1024;

/// Answers any request.
pub(crate) async fn handle(
    State(server): State<Server>,
    stopping: Option<Extension<Stopping>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let route = Route::parse(parts.uri.path());
    let verb = verb(&parts, route.as_ref());
    let empty = String::new();
    let field = |field: fn(&Route) -> &String| route.as_ref().map_or(empty.as_str(), |route| field(route).as_str());
    let attempt = Attempt {
        verb,
        group: field(|route| &route.group),
        resource: field(|route| &route.resource),
        namespace: field(|route| &route.namespace),
        name: field(|route| &route.name),
        path: parts.uri.path(),
    };
    let mut delay = Duration::ZERO;
    let mut lost = false;
    let mut canned = None;
    for fault in server.faults(&attempt) {
        match fault {
            FaultAnswer::Delay(time) => delay += time,
            FaultAnswer::Lose => lost = true,
            FaultAnswer::Status { .. } | FaultAnswer::Body { .. } => canned = canned.or(Some(fault)),
        }
    }
    let response = match canned {
        Some(fault) => faulty(fault),
        None => match answer(&server, stopping, &parts, route.as_ref(), body).await {
            Ok(response) => response,
            Err(error) => refusal(&error),
        },
    };
    count(&server, verb, route, response.status());
    if lost {
        return std::future::pending().await;
    }
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    response
}

/// The verb as in the metrics of the real server.
fn verb(parts: &Parts, route: Option<&Route>) -> &'static str {
    let collection = route.is_some_and(|route| !route.resource.is_empty() && route.name.is_empty());
    let watch = || Parameters::parse(&parts.uri).is_ok_and(|parameters| parameters.watch);
    match parts.method.as_str() {
        "GET" if collection && watch() => "WATCH",
        "GET" if collection => "LIST",
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" if collection => "DELETECOLLECTION",
        "DELETE" => "DELETE",
        _ => "OTHER",
    }
}

fn faulty(fault: FaultAnswer) -> Response {
    let (code, content_type, bytes) = match fault {
        FaultAnswer::Status { code, reason, message } => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": reason, "details": {}, "code": code,
            });
            (code, "application/json", status.to_string().into_bytes())
        }
        FaultAnswer::Body { code, content_type, body } => (code, content_type, body.into_bytes()),
        FaultAnswer::Delay(_) | FaultAnswer::Lose => (500, PLAIN, Vec::new()),
    };
    typed(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), content_type, bytes)
}

/// Counts a request under its resource if it is served, so that unknown paths cannot grow the table.
fn count(server: &Server, verb: &'static str, route: Option<Route>, code: StatusCode) {
    let known = route.filter(|route| server.read(|model| model.served(&route.group_resource()).is_ok()));
    let (group, resource) = known.map(|route| (route.group, route.resource)).unwrap_or_default();
    server.count(RequestCount { verb, group, resource, code: code.as_u16() });
}

async fn answer(
    server: &Server,
    stopping: Option<Extension<Stopping>>,
    parts: &Parts,
    route: Option<&Route>,
    body: Body,
) -> Result<Response, ApiError> {
    let Some(route) = route else { return plain_path(server, parts) };
    if server.read(|model| is_aggregated(model, route)) {
        return Err(ApiError::new(Reason::BackendDown, "service unavailable"));
    }
    if route.resource.is_empty() {
        only_get(&parts.method)?;
        return server.read(|model| discovery::version(model, &route.group, &route.version));
    }
    if let Some(review) = reviews::of(parts, route) {
        return reviews::answer(server, review, parts, &read_body(body).await?);
    }
    let request = ObjectRequest::new(server, parts, route)?;
    let name_given = !route.name.is_empty();
    match (parts.method.as_str(), name_given) {
        ("GET", true) => request.get(),
        ("GET", false) if request.parameters.watch => {
            watch::start(server, &request.style, &request.parameters, request.namespace(), stopping)
        }
        ("GET", false) => request.list(),
        ("POST", false) => request.create(&read_body(body).await?),
        ("PUT", true) => request.update(&read_body(body).await?),
        ("PATCH", true) => request.patch(&read_body(body).await?),
        ("DELETE", true) => request.delete(&read_body(body).await?),
        ("DELETE", false) => request.delete_collection(&read_body(body).await?),
        _ => Err(not_allowed()),
    }
}

fn is_aggregated(model: &Model, route: &Route) -> bool {
    model.aggregated().any(|(group, version)| group == route.group && version == route.version)
}

fn only_get(method: &Method) -> Result<(), ApiError> {
    if method == Method::GET { Ok(()) } else { Err(not_allowed()) }
}

fn not_allowed() -> ApiError {
    ApiError::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}

/// Non-resource paths: health, version, discovery, OpenAPI, metrics.
fn plain_path(server: &Server, parts: &Parts) -> Result<Response, ApiError> {
    let path = parts.uri.path().trim_end_matches('/');
    only_get(&parts.method)?;
    let form = media::negotiate(&parts.headers, false).map_or(Form::Full, |asked| asked.form);
    match path {
        "/healthz" | "/livez" | "/readyz" => Ok(typed(StatusCode::OK, PLAIN, b"ok".to_vec())),
        "/version" => Ok(json_value(StatusCode::OK, &version())),
        "/metrics" => Ok(typed(StatusCode::OK, PLAIN, metrics(server).into_bytes())),
        "/api" => Ok(server.read(|model| discovery::root(model, true, form))),
        "/apis" => Ok(server.read(|model| discovery::root(model, false, form))),
        "/openapi/v2" => Ok(server.read(openapi::v2)),
        "/openapi/v3" => Ok(server.read(openapi::v3)),
        _ => match (path.strip_prefix("/apis/"), path.strip_prefix("/openapi/v3/")) {
            (Some(group), _) if !group.contains('/') => server.read(|model| discovery::group(model, group)),
            (_, Some(document)) => server.read(|model| openapi::v3_document(model, document)),
            _ => Ok(text(StatusCode::NOT_FOUND, "404 page not found")),
        },
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+sandbox", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "sandbox",
    })
}

fn metrics(server: &Server) -> String {
    let mut out = String::from("# TYPE apiserver_request_total counter\n");
    for (RequestCount { verb, group, resource, code }, total) in server.requests() {
        out.push_str(&format!(
            "apiserver_request_total{{code=\"{code}\",group=\"{group}\",resource=\"{resource}\",verb=\"{verb}\"}} {total}\n"
        ));
    }
    out
}

async fn read_body(body: Body) -> Result<Vec<u8>, ApiError> {
    let limited = http_body_util::Limited::new(body, BODY_MAX_BYTES);
    match http_body_util::BodyExt::collect(limited).await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body of the request is larger than {BODY_MAX_BYTES} bytes");
            Err(ApiError::new(Reason::RequestEntityTooLarge, message))
        }
        Err(error) => Err(ApiError::new(Reason::BadRequest, format!("the body cannot be read: {error}"))),
    }
}

/// A request for objects of a served type.
struct ObjectRequest<'a> {
    server: &'a Server,
    headers: &'a HeaderMap,
    route: &'a Route,
    parameters: Parameters,
    style: Style,
    subresource: Subresource,
}

impl<'a> ObjectRequest<'a> {
    fn new(server: &'a Server, parts: &'a Parts, route: &'a Route) -> Result<Self, ApiError> {
        let not_served = || server.read(|model| model.not_served(&route.group));
        let of = server.read(|model| model.served(&route.group_resource()))?;
        let one = !route.name.is_empty() || parts.method == Method::POST;
        let misplaced = if of.namespaced { one && route.namespace.is_empty() } else { !route.namespace.is_empty() };
        if misplaced && parts.method == Method::POST && route.name.is_empty() {
            return Err(not_allowed());
        }
        if !of.versions.contains(&route.version) || misplaced {
            return Err(not_served());
        }
        let subresource = match route.subresource.as_str() {
            "" => Subresource::Main,
            "status" if of.status == StatusRule::Subresource => Subresource::Status,
            _ if of.custom => return Err(ApiError::not_found(&of, &route.name)),
            _ => return Err(not_served()),
        };
        let parameters = Parameters::parse(&parts.uri)?;
        let Asked { form, protobuf } = media::negotiate(&parts.headers, server.speaks_protobuf())?;
        let collection = route.name.is_empty() && parts.method != Method::POST;
        form.check_fits(collection && !parameters.watch)?;
        let style = Style {
            form,
            protobuf,
            api_version: api_version(&of.group, &route.version),
            include_object: IncludeObject::parse(&parameters.include_object),
            of,
        };
        Ok(Self { server, headers: &parts.headers, route, parameters, style, subresource })
    }

    fn namespace(&self) -> &str {
        &self.route.namespace
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.route.namespace, &self.route.name)
    }

    fn content_type(&self) -> &str {
        self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn get(&self) -> Result<Response, ApiError> {
        let resource = self.route.group_resource();
        let object = self.server.read(|model| model.get(&resource, &self.route.namespace, &self.route.name))?;
        Ok(self.style.object(StatusCode::OK, &object, self.server.now()))
    }

    fn list(&self) -> Result<Response, ApiError> {
        let query = self.parameters.list(&self.style.of, self.namespace())?;
        let least = self.parameters.not_older_than()?;
        let page = self.server.read(|model| {
            model.check_reached(least)?;
            model.list(&self.route.group_resource(), &query)
        })?;
        Ok(self.style.list(&page, self.server.now()))
    }

    fn create(&self, body: &[u8]) -> Result<Response, ApiError> {
        let object = self.read_object(body)?;
        self.write(StatusCode::CREATED, |model, now, options| {
            model.create(now, &self.route.group_resource(), self.namespace(), object, options)
        })
    }

    fn update(&self, body: &[u8]) -> Result<Response, ApiError> {
        let object = self.read_object(body)?;
        self.write(StatusCode::OK, |model, now, options| {
            model.update(now, &self.route.group_resource(), &self.key(), object, options)
        })
    }

    /// The object in a body. Custom resources must have apiVersion and kind.
    fn read_object(&self, body: &[u8]) -> Result<Object, ApiError> {
        let object = query::body_object(self.content_type(), body)?;
        for field in ["kind", "apiVersion"] {
            let missing = object.get(field).and_then(Value::as_str).is_none_or(str::is_empty);
            if missing && self.style.of.custom {
                let message = format!("the object provided is unrecognized: object '{field}' is missing");
                return Err(ApiError::new(Reason::BadRequest, message));
            }
        }
        Ok(object)
    }

    fn patch(&self, body: &[u8]) -> Result<Response, ApiError> {
        let patch = self.read_patch(body)?;
        self.write(StatusCode::OK, |model, now, options| {
            model.patch(now, &self.route.group_resource(), &self.key(), &patch, options)
        })
    }

    /// The content type names the kind of a patch, and is checked before the object.
    fn read_patch(&self, body: &[u8]) -> Result<Patch, ApiError> {
        let unsupported = |message: &str| Err(ApiError::new(Reason::UnsupportedMediaType, message));
        let kind: fn(Value) -> Patch = match self.content_type().split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Patch::Json,
            "application/merge-patch+json" => Patch::Merge,
            "application/strategic-merge-patch+json" if !self.style.of.custom => Patch::Strategic,
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                return unsupported(
                    "the sandbox has no server-side apply; use client-side apply, a merge patch or a JSON patch",
                );
            }
            _ => {
                return unsupported(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json",
                );
            }
        };
        let value = serde_json::from_slice(body)
            .map_err(|error| ApiError::new(Reason::BadRequest, format!("error decoding patch: {error}")))?;
        Ok(kind(value))
    }

    fn write(
        &self,
        code: StatusCode,
        change: impl FnOnce(&mut Model, Now, &WriteOptions) -> Result<Written, ApiError>,
    ) -> Result<Response, ApiError> {
        let options = WriteOptions { dry_run: self.parameters.dry_run()?, subresource: self.subresource };
        let written = self.server.write(|model, now| change(model, now, &options))?;
        let mut response = self.style.object(code, &written.object, self.server.now());
        if let Some(warning) = written.warning.and_then(|text| HeaderValue::from_str(&format!("299 - {text:?}")).ok()) {
            response.headers_mut().insert(header::WARNING, warning);
        }
        Ok(response)
    }

    fn delete_options(&self, body: &[u8]) -> Result<DeleteOptions, ApiError> {
        if body.is_empty() {
            return self.parameters.delete_options();
        }
        let mut options = DeleteOptions::decode(&query::body_value(self.content_type(), body)?)?;
        options.dry_run |= self.parameters.dry_run()?;
        Ok(options)
    }

    fn delete(&self, body: &[u8]) -> Result<Response, ApiError> {
        if self.subresource != Subresource::Main {
            return Err(not_allowed());
        }
        let options = self.delete_options(body)?;
        let resource = self.route.group_resource();
        let deleted = self.server.write(|model, now| model.delete(now, &resource, &self.key(), &options))?;
        let now = self.server.now();
        Ok(match deleted {
            Deleted::Kept(object) => {
                let accepted = options.orphan_dependents == Some(false);
                let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
                self.style.object(code, &object, now)
            }
            Deleted::Removed(object) if self.style.of.returns_deleted => {
                self.style.object(StatusCode::OK, &object, now)
            }
            Deleted::Removed(object) => {
                let mut details = json!({
                    "name": self.route.name, "kind": self.route.resource, "uid": crate::model::uid(&object),
                });
                if !self.route.group.is_empty() {
                    details["group"] = Value::from(self.route.group.as_str());
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                self.style.status(&status)
            }
        })
    }

    fn delete_collection(&self, body: &[u8]) -> Result<Response, ApiError> {
        let options = self.delete_options(body)?;
        let query = self.parameters.list(&self.style.of, self.namespace())?;
        let resource = self.route.group_resource();
        let page = self.server.write(|model, now| {
            let items = model.delete_collection(now, &resource, &query, &options)?;
            Ok::<_, ApiError>(crate::model::Page { revision: model.revision(), items, next: None, remaining: None })
        })?;
        Ok(self.style.list(&page, self.server.now()))
    }
}
