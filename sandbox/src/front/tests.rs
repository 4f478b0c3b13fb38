//! Tests of the HTTP front, in process, with a paused runtime clock.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::model::GroupResource;

mod client;
mod protobuf;
mod requests;
mod watches;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A complete answer.
struct Answer {
    code: u16,
    headers: HeaderMap,
    text: String,
    bytes: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn content_type(&self) -> &str {
        self.headers["content-type"].to_str().unwrap()
    }
}

struct Http {
    server: Server,
    router: Router,
}

impl Http {
    fn new() -> Self {
        let server = Server::new(7);
        let router = server.router();
        Self { server, router }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { code: parts.status.as_u16(), headers: parts.headers, text, bytes }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], Body::empty()).await
    }

    async fn accept(&self, path: &str, accept: &str) -> Answer {
        self.send("GET", path, &[("accept", accept)], Body::empty()).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    async fn delete(&self, path: &str, body: Value) -> Answer {
        self.send("DELETE", path, &[("content-type", "application/json")], body.to_string()).await
    }

    async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        let content_type = format!("application/{kind}+json");
        self.send("PATCH", path, &[("content-type", &content_type)], body.to_string()).await
    }

    async fn config_map(&self, name: &str) -> Value {
        let answer = self.post(CONFIG_MAPS, json!({ "metadata": { "name": name } })).await;
        assert_eq!(answer.code, 201, "{}", answer.text);
        answer.json()
    }

    async fn watch(&self, path_and_query: &str) -> Watched {
        let request = Request::builder().uri(path_and_query).header("accept", METADATA).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Watched { stream: response.into_body().into_data_stream(), waiting: Vec::new() }
    }
}

/// An open watch, read event by event.
struct Watched {
    stream: BodyDataStream,
    waiting: Vec<Value>,
}

impl Watched {
    /// The next event; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let chunk = self.stream.next().await?.unwrap();
            let text = String::from_utf8(chunk.to_vec()).unwrap();
            self.waiting = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        Some(self.waiting.remove(0))
    }

    /// The next event as its type and the object's name.
    async fn brief(&mut self) -> String {
        let event = self.next().await.expect("the watch is open");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap()).trim().to_owned()
    }
}

async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}
