//! A scripted API server for tests, which records its requests.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube_api::gated;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One answer of the script, after a delay.
pub(crate) struct Reply {
    after: Duration,
    answer: Result<(u16, Value), &'static str>,
}

/// A JSON answer.
pub(crate) fn reply(code: u16, body: Value) -> Reply {
    Reply { after: Duration::ZERO, answer: Ok((code, body)) }
}

/// The request arrives, but the answer never does.
pub(crate) fn broken() -> Reply {
    Reply { after: Duration::ZERO, answer: Err("connection reset") }
}

impl Reply {
    pub(crate) fn after(self, millis: u64) -> Reply {
        Reply { after: Duration::from_millis(millis), ..self }
    }
}

/// The API server. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Api {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Api {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Api {
        let api = Api::default();
        api.replies.lock().unwrap().extend(replies);
        api
    }

    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        kube::Client::new(tower::service_fn(move |request| api.clone().answer(request)), "default")
    }

    /// Requests since the last call: method, path, form of the patch, body.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Unused replies.
    pub(crate) fn left(&self) -> usize {
        self.replies.lock().unwrap().len()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = gated(request).into_parts();
        let body: Bytes = body.collect().await?.to_bytes();
        let content_type = head.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
        let form = content_type.trim_start_matches("application/").trim_end_matches("-patch+json");
        let line = format!("{} {} {form} {}", head.method, head.uri, String::from_utf8_lossy(&body));
        self.asked.lock().unwrap().push(line.trim().to_owned());
        let reply = self.replies.lock().unwrap().pop_front().ok_or("the script is at its end")?;
        tokio::time::sleep(reply.after).await;
        let (code, body) = reply.answer?;
        let response = Response::builder().status(code).header("content-type", "application/json");
        Ok(response.body(Body::from(body.to_string().into_bytes()))?)
    }
}
