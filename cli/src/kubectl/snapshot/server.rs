//! A snapshot as an API server. The code that lists and watches a cluster reads the file instead, and so gives the same
//! answers.
//!
//! It serves only the contents of the file. It refuses a collection that the file does not contain completely, so that
//! an object never seems absent by mistake.

use super::{Resource, Snapshot};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use kube_api::Cluster;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

type Chunks = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// The annotation of the bookmark after which a watch-list continues as a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A cluster whose API server is the snapshot.
pub(in crate::kubectl) fn cluster(snapshot: Snapshot, name: String) -> Cluster {
    let namespace = snapshot.header.namespace.clone();
    let shown = Arc::new(Shown::of(snapshot));
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = shown.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    Cluster::of_client(Client::new(service, namespace), name)
}

/// A snapshot, and the version that all its objects have.
struct Shown {
    snapshot: Snapshot,
    version: String,
}

/// The target of a path.
#[derive(Debug, PartialEq)]
struct Place {
    of: Resource,
    /// `None` for all.
    namespace: Option<String>,
    /// `None` for the collection.
    name: Option<String>,
}

impl Place {
    fn of(path: &str) -> Option<Place> {
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match words.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, resource, name) = match rest {
            [resource] => (None, *resource, None),
            ["namespaces", namespace, resource] => (Some(*namespace), *resource, None),
            ["namespaces", namespace, resource, name] => (Some(*namespace), *resource, Some(*name)),
            [resource, name] => (None, *resource, Some(*name)),
            _ => return None,
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Some(Place { of: (group.to_owned(), resource.to_owned()), namespace: owned(namespace), name: owned(name) })
    }
}

impl Shown {
    fn of(snapshot: Snapshot) -> Shown {
        let versions = snapshot.objects.values().flatten().filter_map(|metadata| metadata["resourceVersion"].as_str());
        let newest = versions.filter_map(|version| version.parse::<u64>().ok()).max().unwrap_or(1);
        Shown { snapshot, version: newest.to_string() }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Chunks> {
        let (path, header) = (request.uri().path(), &self.snapshot.header);
        match path {
            "/api" => return discovery(&header.core),
            "/apis" => return discovery(&header.groups),
            "/api/v1/namespaces/kube-system" => {
                return whole(
                    StatusCode::OK,
                    &object(
                        &json!({ "name": "kube-system", "uid": header.cluster_uid, "resourceVersion": self.version }),
                    ),
                );
            }
            _ => {}
        }
        let Some(place) = Place::of(path).filter(|_| request.method() == http::Method::GET) else {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "a snapshot is read-only");
        };
        let of_metadata = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        if !of_metadata.is_some_and(|accept| accept.contains("PartialObjectMetadata")) {
            return refusal(StatusCode::FORBIDDEN, "Forbidden", "a snapshot has only metadata");
        }
        if !header.collections.contains(&place.of) {
            return refusal(
                StatusCode::FORBIDDEN,
                "Forbidden",
                "the snapshot does not contain the collection, or only a part of it",
            );
        }
        match &place.name {
            Some(name) => self.one(&place, name),
            None if request.uri().query().is_some_and(|query| query.contains("watch=")) => {
                self.watch(&place, request.uri().query().unwrap_or_default())
            }
            None => self.list(&place),
        }
    }

    fn found<'s>(&'s self, place: &'s Place) -> impl Iterator<Item = &'s Value> {
        let all = self.snapshot.objects.get(&place.of).into_iter().flatten();
        all.filter(|metadata| {
            place.namespace.as_deref().is_none_or(|namespace| metadata["namespace"].as_str() == Some(namespace))
        })
    }

    fn one(&self, place: &Place, name: &str) -> Response<Chunks> {
        match self.found(place).find(|metadata| metadata["name"].as_str() == Some(name)) {
            Some(metadata) => whole(StatusCode::OK, &object(metadata)),
            None => refusal(StatusCode::NOT_FOUND, "NotFound", &format!("{} {name:?} not found", place.of.1)),
        }
    }

    fn list(&self, place: &Place) -> Response<Chunks> {
        let items: Vec<Value> = self.found(place).map(object).collect();
        whole(
            StatusCode::OK,
            &json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": self.version }, "items": items,
            }),
        )
    }

    /// The initial objects if they are requested, then a bookmark, and no further event.
    fn watch(&self, place: &Place, query: &str) -> Response<Chunks> {
        let begins = query.contains("sendInitialEvents=true");
        let added = self.found(place).filter(|_| begins);
        let mut lines: String =
            added.map(|metadata| format!("{}\n", json!({ "type": "ADDED", "object": object(metadata) }))).collect();
        let mut bookmark = json!({ "resourceVersion": self.version });
        if begins {
            bookmark["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        lines.push_str(&format!("{}\n", json!({ "type": "BOOKMARK", "object": object(&bookmark) })));
        response(StatusCode::OK, stream::iter([lines]).chain(stream::pending()).boxed())
    }
}

fn object(metadata: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

fn discovery(list: &impl serde::Serialize) -> Response<Chunks> {
    match serde_json::to_value(list) {
        Ok(mut list) => {
            list["kind"] = "APIGroupDiscoveryList".into();
            list["apiVersion"] = "apidiscovery.k8s.io/v2".into();
            whole(StatusCode::OK, &list)
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &error.to_string()),
    }
}

fn refusal(status: StatusCode, reason: &str, message: &str) -> Response<Chunks> {
    whole(
        status,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": status.as_u16(),
        }),
    )
}

fn whole(status: StatusCode, value: &Value) -> Response<Chunks> {
    response(status, stream::iter([value.to_string()]).boxed())
}

fn response(status: StatusCode, lines: BoxStream<'static, String>) -> Response<Chunks> {
    let chunks = lines.map(|text| Ok(Frame::data(Bytes::from(text)))).boxed();
    let mut response = Response::new(StreamBody::new(chunks));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn paths_lead_to_collections_and_objects() {
        let place = |group: &str, resource: &str, namespace: Option<&str>, name: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            Some(Place { of: (group.into(), resource.into()), namespace: owned(namespace), name: owned(name) })
        };
        for (path, expected) in [
            ("/api/v1/pods", place("", "pods", None, None)),
            ("/api/v1/namespaces", place("", "namespaces", None, None)),
            ("/api/v1/namespaces/shop", place("", "namespaces", None, Some("shop"))),
            ("/api/v1/namespaces/shop/pods/a", place("", "pods", Some("shop"), Some("a"))),
            ("/apis/apps/v1/namespaces/shop/deployments", place("apps", "deployments", Some("shop"), None)),
            ("/apis/rbac.x/v1/clusterroles/a", place("rbac.x", "clusterroles", None, Some("a"))),
            ("/version", None),
            ("/api/v1/namespaces/shop/pods/a/log", None),
        ] {
            assert_eq!(Place::of(path), expected, "{path}");
        }
    }
}
