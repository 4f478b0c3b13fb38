//! Reads everything that a collector must read, and discards it.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use kube_api::{Opened, call, media, open_stream};
use prost::Message;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::task::JoinSet;

/// The defaults of the graph service: the objects per page, and the number of lists at a time.
const PAGE: usize = 500;
const LISTS: usize = 8;
const ANSWER_MAX_BYTES: usize = 256 << 20;
const WITHIN: Duration = Duration::from_secs(120);
/// The annotation of the bookmark after the initial events.
const END: &[u8] = b"k8s.io/initial-events-end";
const IGNORED: [&str; 2] = ["/api/v1/events", "/apis/events.k8s.io/v1/events"];

/// The method of the read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub protobuf: bool,
    /// As the initial events of a watch, without pages.
    pub watch: bool,
}

impl Way {
    pub const ALL: [Way; 4] = [
        Way { protobuf: false, watch: false },
        Way { protobuf: false, watch: true },
        Way { protobuf: true, watch: false },
        Way { protobuf: true, watch: true },
    ];

    /// Returns the name of the method.
    pub fn word(self) -> &'static str {
        match (self.protobuf, self.watch) {
            (false, false) => "json-pages",
            (false, true) => "json-watch",
            (true, false) => "protobuf-pages",
            (true, true) => "protobuf-watch",
        }
    }

    fn accept(self) -> &'static str {
        match (self.protobuf, self.watch) {
            (false, false) => media::METADATA_LIST,
            (false, true) => media::METADATA,
            (true, false) => media::METADATA_LIST_PROTOBUF,
            (true, true) => media::METADATA_PROTOBUF,
        }
    }
}

/// The envelope of Kubernetes' protobuf, after four magic bytes.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// The field of a list that says where the next page begins. The reader ignores the rest.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
}

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, tag = "3")]
    next: String,
}

/// The number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub collections: usize,
    /// The number of requests. A watch is one request.
    pub pages: usize,
}

impl Read {
    /// Returns whether one collection has at most this many objects.
    pub fn can_hold(self, objects: usize, way: Way) -> bool {
        let pages = if way.watch { 1 } else { objects.div_ceil(PAGE) };
        self.pages + 1 >= self.collections + pages
    }
}

/// Reads all collections.
///
/// # Errors
/// A collection is unreadable.
pub async fn read(client: &Client, way: Way) -> anyhow::Result<Read> {
    let mut waiting = collections(client).await?;
    let mut read = Read { collections: waiting.len(), pages: 0 };
    let mut under_way: JoinSet<anyhow::Result<usize>> = JoinSet::new();
    while !waiting.is_empty() || !under_way.is_empty() {
        while let Some(path) = waiting.pop_front_if(|_| under_way.len() < LISTS) {
            let client = client.clone();
            under_way.spawn(async move {
                let read = async {
                    if way.watch { watched(&client, &path, way).await } else { paged(&client, &path, way).await }
                };
                read.await.with_context(|| format!("reading {path}"))
            });
        }
        read.pages += under_way.join_next().await.context("something is under way")???;
    }
    Ok(read)
}

/// Returns the paths of all collections that support list and watch, each resource once.
async fn collections(client: &Client) -> anyhow::Result<VecDeque<String>> {
    let mut paths = VecDeque::new();
    for (root, prefix) in [("/api", ""), ("/apis", "/apis/")] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let document: Value = serde_json::from_slice(&ask(client, root, accept).await?)?;
        for group in document["items"].as_array().context("groups")? {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            // The first version is the preferred one.
            let Some(version) = group["versions"].get(0) else { continue };
            let at = version["version"].as_str().context("a version")?;
            let base = if name.is_empty() { format!("/api/{at}") } else { format!("{prefix}{name}/{at}") };
            for resource in version["resources"].as_array().into_iter().flatten() {
                let can = |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&verb.into()));
                let path = format!("{base}/{}", resource["resource"].as_str().context("a plural")?);
                if can("list") && can("watch") && !IGNORED.contains(&path.as_str()) {
                    paths.push_back(path);
                }
            }
        }
    }
    Ok(paths)
}

async fn ask(client: &Client, uri: &str, accept: &str) -> anyhow::Result<Bytes> {
    let request = Request::get(uri).header(ACCEPT, accept).body(Vec::new())?;
    let answer = call(client, request, ANSWER_MAX_BYTES, WITHIN).await?;
    ensure!(answer.status == 200, "GET {uri}: {}", answer.status);
    Ok(answer.body)
}

/// Reads a collection in pages. Returns the number of pages.
async fn paged(client: &Client, path: &str, way: Way) -> anyhow::Result<usize> {
    let mut uri = format!("{path}?limit={PAGE}");
    for pages in 1.. {
        let body = ask(client, &uri, way.accept()).await?;
        let next = if way.protobuf {
            let list = List::decode(Envelope::decode(body.get(4..).context("four magic bytes")?)?.raw)?;
            list.metadata.unwrap_or_default().next
        } else {
            next_in_json(&body)
        };
        if next.is_empty() {
            return Ok(pages);
        }
        // Tokens use the alphabet of URLs.
        uri = format!("{path}?limit={PAGE}&continue={next}");
    }
    bail!("the list never ends")
}

/// Returns the continue token. The metadata of a list precedes its items, so the search needs only the beginning.
fn next_in_json(body: &[u8]) -> String {
    let head = String::from_utf8_lossy(&body[..body.len().min(8192)]);
    let metadata = head.split("\"items\":").next().unwrap_or_default();
    let after = metadata.split("\"continue\":\"").nth(1).unwrap_or_default();
    after.split('"').next().unwrap_or_default().to_owned()
}

async fn watched(client: &Client, path: &str, way: Way) -> anyhow::Result<usize> {
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let request = Request::get(format!("{path}?{query}&timeoutSeconds=600")).header(ACCEPT, way.accept());
    let mut body = match open_stream(client, request.body(Vec::new())?, WITHIN).await? {
        Opened::Streaming { body, .. } => body,
        Opened::Refused(answer) => bail!("{}", answer.status),
    };
    // The end of a chunk may cut the mark in two.
    let mut tail = Vec::new();
    while let Some(chunk) = body.next().await {
        tail.extend_from_slice(&chunk?);
        if contains(&tail, END) {
            return Ok(1);
        }
        tail.drain(..tail.len().saturating_sub(END.len()));
    }
    bail!("the watch ended before its initial events did")
}

fn contains(text: &[u8], mark: &[u8]) -> bool {
    // Most data contain no first byte of the mark, and the search for a single byte is fast.
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == mark[0]) {
        rest = &rest[at..];
        if rest.starts_with(mark) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}
