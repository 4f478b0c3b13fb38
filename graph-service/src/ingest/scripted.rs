//! An API server with a script: one answer for each request, in order, then silence.

#[path = "../../../kube-api/src/metadata/tests/oracle.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod oracle;

use super::Clients;
use bytes::Bytes;
use engine::leader::Input;
use futures::{StreamExt, future, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use kube_api::media;
use kube_api::metadata::Encoding;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer {
        status: u16,
        retry_after: Option<u64>,
        lines: Vec<String>,
        then: Then,
    },
    /// A 200 with exactly these bytes.
    Bytes {
        content_type: &'static str,
        bytes: Vec<u8>,
    },
    /// The connection fails.
    Unreachable,
}

/// How a body ends after its lines.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    End,
    Hang,
    Break,
}

/// A 200 with these lines.
pub(crate) fn ok(lines: &[&str], then: Then) -> Reply {
    Reply::Answer { status: 200, retry_after: None, lines: lines.iter().map(ToString::to_string).collect(), then }
}

/// An error with a `Status`.
pub(crate) fn refuse(status: u16, reason: &str) -> Reply {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"because","reason":"{reason}","code":{status}}}"#
    );
    Reply::Answer { status, retry_after: None, lines: vec![body], then: Then::End }
}

/// The requests, in order.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// Clients of a server that plays `script` in `encoding`. Replies without a form in that encoding stay JSON.
pub(crate) fn server_in(encoding: Encoding, script: Vec<Reply>) -> (Clients, Asked) {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    answering(encoding, move |_| script.lock().unwrap().pop_front())
}

/// Clients of a server that answers as `route` says, in JSON; `None` is silence.
pub(crate) fn routed(route: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) -> (Clients, Asked) {
    answering(Encoding::Json, route)
}

fn answering(encoding: Encoding, route: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) -> (Clients, Asked) {
    let asked = Asked::default();
    let route = Arc::new(route);
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        log.lock().unwrap().push(uri.clone());
        let reply = route(&uri);
        async move {
            match reply {
                None => future::pending().await,
                Some(Reply::Unreachable) => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                Some(Reply::Bytes { content_type, bytes }) => {
                    let response = Response::builder().header("content-type", content_type);
                    Ok(response.body(body(vec![bytes], Then::End)).unwrap())
                }
                Some(Reply::Answer { status, retry_after, lines, then }) => {
                    let (content_type, pieces) = match protobuf(&lines).filter(|_| encoding == Encoding::Protobuf) {
                        Some(pieces) => (media::PROTOBUF, pieces),
                        None => {
                            ("application/json", lines.into_iter().map(|line| (line + "\n").into_bytes()).collect())
                        }
                    };
                    let mut response = Response::builder().status(status).header("content-type", content_type);
                    if let Some(seconds) = retry_after {
                        response = response.header("retry-after", seconds);
                    }
                    Ok(response.body(body(pieces, then)).unwrap())
                }
            }
        }
    });
    let client = Client::new(service, "default");
    (Clients { lists: client.clone(), watches: client.clone(), fresh: client }, asked)
}

/// The lines as protobuf, if all of them have such a form.
fn protobuf(lines: &[String]) -> Option<Vec<Vec<u8>>> {
    let read = |line: &String| -> Option<Vec<u8>> {
        let json: serde_json::Value = serde_json::from_str(line).ok()?;
        if json["kind"] == "PartialObjectMetadataList" {
            return Some(oracle::page(&json));
        }
        let known = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"].iter().any(|kind| json["type"] == *kind);
        if !known || !json["object"].is_object() {
            return None;
        }
        let event = oracle::event(&json);
        Some([u32::try_from(event.len()).unwrap().to_be_bytes().to_vec(), event].concat())
    };
    lines.iter().map(read).collect()
}

fn body(pieces: Vec<Vec<u8>>, then: Then) -> UnsyncBoxBody<Bytes, io::Error> {
    let chunk = |piece: Vec<u8>| BodyStream::new(Full::new(Bytes::from(piece)).map_err(|never| match never {}));
    let lines = stream::iter(pieces.into_iter().map(chunk)).flatten();
    let rest = match then {
        Then::End => stream::empty().boxed(),
        Then::Hang => stream::pending().boxed(),
        Then::Break => stream::iter([Err(io::Error::from(io::ErrorKind::ConnectionReset))]).boxed(),
    };
    UnsyncBoxBody::new(StreamBody::new(lines.chain(rest)))
}

/// An object `name` of namespace `ns`, whose uid is `u-name`.
pub(crate) fn object(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{version}"}}}}"#
    )
}

/// A line of a watch.
pub(crate) fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

/// A bookmark. `ends_list` marks the end of the initial events.
pub(crate) fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = if ends_list { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    event("BOOKMARK", &format!(r#"{{"metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#))
}

/// A page of a list.
pub(crate) fn page(version: u64, token: &str, objects: &[String]) -> String {
    format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
        objects.join(",")
    )
}

/// An input as one word.
pub(crate) fn word(input: &Input) -> String {
    match input {
        Input::KindServed(kind) => format!("served {} {} {:?}", kind.group_resource, kind.version, kind.access),
        Input::KindUnserved(key) => format!("unserved {key}"),
        Input::Undiscovered(all) => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("undiscovered [{}]", all.join(" "))
        }
        Input::KindEmptied { group, kind, crd, standing } => {
            format!("{} {kind}.{group} {crd}", if *standing { "emptied" } else { "emptied and gone" })
        }
        Input::ListBegun { .. } => "begun".to_owned(),
        Input::Listed { object, .. } => format!("listed {} {}", object.name, object.resource_version),
        Input::ListEnded { resource_version, .. } => format!("ended {resource_version}"),
        Input::ListFailed { error, .. } => format!("failed: {error}"),
        Input::Seen { object, .. } => format!("seen {} {}", object.name, object.resource_version),
        Input::Deleted { object, .. } => format!("deleted {} {}", object.name, object.resource_version),
        Input::Bookmark { resource_version, .. } => format!("bookmark {resource_version}"),
        Input::WatchLost { end, error, .. } => format!("lost {end:?}: {error}"),
        Input::WatchResumed { .. } => "resumed".to_owned(),
        Input::Unusable { why, .. } => format!("unusable: {why}"),
        Input::Probed { probe, answer } => format!("probed {} {answer:?}", probe.0),
        Input::GuardsListed { .. }
        | Input::GuardsFollowed { .. }
        | Input::GuardsLost { .. }
        | Input::GuardSeen(_)
        | Input::GuardGone { .. }
        | Input::GuardsRead { .. }
        | Input::GateAnswered(_)
        | Input::GateReopened { .. }
        | Input::Audited(_)
        | Input::ComparedBefore { .. }
        | Input::GateInvalidated { .. }
        | Input::GateNeedsTime { .. }
        | Input::Message { .. }
        | Input::StreamClosed { .. }
        | Input::Wrote { .. }
        | Input::TermGained(_)
        | Input::OpenAtTermStart(_)
        | Input::TermLost { .. }
        | Input::Withhold { .. }
        | Input::Stop => "not from here".to_owned(),
    }
}
