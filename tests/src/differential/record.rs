//! Everything that happens to the objects that take part, as the server's watches tell it.

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

/// One write. All kinds live in one store, so revisions order the writes to all of them.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) revision: u64,
    pub(super) kind: Kind,
    pub(super) gone: bool,
    pub(super) metadata: Value,
}

/// Watches every kind that takes part, until it is dropped.
pub(super) struct Record {
    log: Arc<Mutex<Log>>,
    watches: JoinSet<anyhow::Result<()>>,
}

struct Log {
    events: Vec<Event>,
    last: Instant,
}

impl Record {
    /// Records what is written from now on.
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

    /// How long nothing has been written.
    pub(super) fn quiet_for(&mut self) -> anyhow::Result<Duration> {
        // A watch that has ended would look like quiet.
        if let Some(ended) = self.watches.try_join_next() {
            ended??;
            bail!("a watch has ended");
        }
        Ok(self.log.lock().unwrap_or_else(PoisonError::into_inner).last.elapsed())
    }

    /// All that has been written so far, in the store's order. Only while it is quiet nothing of it is still in flight.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = self.log.lock().unwrap_or_else(PoisonError::into_inner).events.clone();
        events.sort_by_key(|event| event.revision);
        events
    }

    /// Compares what the record comes to with what the server lists.
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
        // What was there before the record began is not in it.
        ensure!(shown.is_subset(&listed), "the watches have shown what the server does not list");
        let unseen = listed.difference(&shown).filter(|(uid, _)| seen.contains(uid)).count();
        ensure!(unseen == 0, "the watches have not shown all that the server lists");
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
