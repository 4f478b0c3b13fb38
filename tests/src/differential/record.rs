//! Records all writes to the objects of the test, from watches of the API server.

use super::world::Kind;
use anyhow::{Context, bail, ensure};
use futures::StreamExt as _;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use kube_api::media;
use serde_json::Value;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// One write. All kinds are in one store, so revisions order all writes.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) revision: u64,
    pub(super) kind: Kind,
    pub(super) gone: bool,
    pub(super) metadata: Value,
}

/// The watches of every kind of the test. Dropping the record ends them.
pub(super) struct Record {
    log: Arc<Mutex<Log>>,
    watches: JoinSet<anyhow::Result<()>>,
}

struct Log {
    events: Vec<Event>,
    last: Instant,
}

impl Record {
    /// Starts a record of all writes from now on.
    pub(super) async fn begin(client: &Client) -> anyhow::Result<Record> {
        let log = Arc::new(Mutex::new(Log { events: Vec::new(), last: Instant::now() }));
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let list = list(client, kind).await?;
            let from = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            watches.spawn(watch(client.clone(), kind, from, Arc::clone(&log)));
        }
        Ok(Record { log, watches })
    }

    /// Returns the time since the last write.
    pub(super) fn quiet_for(&mut self) -> anyhow::Result<Duration> {
        // Without this check, an ended watch would look like a quiet server.
        if let Some(ended) = self.watches.try_join_next() {
            ended??;
            bail!("a watch has ended");
        }
        Ok(self.log.lock().unwrap_or_else(PoisonError::into_inner).last.elapsed())
    }

    /// Returns all writes so far, in the order of the store. The last writes may be missing unless it is quiet.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = self.log.lock().unwrap_or_else(PoisonError::into_inner).events.clone();
        events.sort_by_key(|event| event.revision);
        events
    }

    /// Checks that the record ends with the objects that the server lists.
    pub(super) async fn ensure_whole(&self, client: &Client) -> anyhow::Result<()> {
        let mut listed = BTreeSet::new();
        for kind in Kind::ALL {
            for item in list(client, kind).await?["items"].as_array().into_iter().flatten() {
                listed.insert(version(&item["metadata"]));
            }
        }
        let mut shown = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for event in self.events().iter().rev() {
            if seen.insert(event.metadata["uid"].to_string()) && !event.gone {
                shown.insert(version(&event.metadata));
            }
        }
        // The record lacks the objects from before its start.
        ensure!(shown.is_subset(&listed), "the watches have shown an object that the server does not list");
        let unseen = listed.difference(&shown).filter(|(uid, _)| seen.contains(uid)).count();
        ensure!(unseen == 0, "the server lists a write that the watches have not shown");
        Ok(())
    }
}

fn version(metadata: &Value) -> (String, String) {
    (metadata["uid"].to_string(), metadata["resourceVersion"].to_string())
}

async fn watch(client: Client, kind: Kind, from: String, log: Arc<Mutex<Log>>) -> anyhow::Result<()> {
    let path = format!("{}?watch=true&resourceVersion={from}&timeoutSeconds=3600", kind.collection(None));
    let request = Request::get(&path).header("accept", media::METADATA).body(Vec::new())?;
    let mut events = pin!(client.request_events::<Value>(request).await?);
    while let Some(event) = events.next().await {
        let (gone, object) = match event.with_context(|| format!("GET {path}"))? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (false, object),
            WatchEvent::Deleted(object) => (true, object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => bail!("GET {path}: {status:?}"),
        };
        let metadata = object["metadata"].clone();
        let revision = metadata["resourceVersion"].as_str().unwrap_or_default().parse().context("a revision")?;
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.events.push(Event { revision, kind, gone, metadata });
        log.last = Instant::now();
    }
    bail!("GET {path} has ended");
}

async fn list(client: &Client, kind: Kind) -> anyhow::Result<Value> {
    let path = kind.collection(None);
    let request = Request::get(&path).header("accept", media::METADATA_LIST).body(Vec::new())?;
    let answer: Value = client.request(request).await.with_context(|| format!("GET {path}"))?;
    ensure!(answer["kind"] == "PartialObjectMetadataList", "GET {path} is no list of metadata: {answer}");
    Ok(answer)
}
