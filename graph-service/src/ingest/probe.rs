//! Answers the engine's questions by consistent lists and reads, with bounded concurrency.

use super::request;
use super::{Clients, existence};
use crate::ingest::questions::{Span, Stand, Texts};
use engine::follow::Failure;
use engine::leader::{CheckBy, Input, Probe, ProbeAnswer, ProbeId};
use engine::object::{GroupResource, Name, ObjectRef, ResourceVersion};
use kube_api::media;
use kube_api::metadata::{self, Decoder, Event};
use kube_api::path::{collection_path, is_path_segment, name_selector, query_value};
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

#[cfg(test)]
mod tests;

/// Maximum number of waiting probes.
pub(crate) const QUEUE_MAX: usize = 4_096;
/// Maximum number of refused probes whose answers wait.
pub(crate) const REFUSALS_MAX: usize = 65_536;
/// Maximum number of whole lists in progress. Lists of one collection can hang in many namespaces, and other probes
/// must not wait for them.
const LISTS_MAX: usize = 32;
/// Maximum number of probes in progress. The engine asks about at most 32 single objects at a time, so there is always
/// room for a question about a position, which can hold all grants.
const IN_FLIGHT_MAX: usize = 32 + LISTS_MAX + 16;
/// Maximum delay of the answer about one object after the server rejects the request with a time to retry.
const TURNED_AWAY_MAX: Duration = Duration::from_secs(10);
/// Time for all pages of a whole list, or for the read of an object.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Time for the answer to a question about a position. Another collection can answer too.
const POSITION_WITHIN: Duration = Duration::from_secs(15);
/// Timeout of a short watch. Its last bookmark comes two seconds before the end.
const LAST_WATCH_S: u64 = 3;
/// Time to wait for that bookmark.
const LAST_WITHIN: Duration = Duration::from_secs(5);
/// Time for a read of labels.
const TEXTS_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of objects in a list that finds the position of a collection.
const STAND_OBJECTS_MAX: u32 = 500;
/// Maximum number of objects in one answer.
const OBJECTS_MAX: usize = 500_000;

/// The queues of waiting probes.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) probes: mpsc::Receiver<Probe>,
    /// Probes without room in the other queue.
    pub(crate) refusals: mpsc::Receiver<ProbeId>,
}

/// Answers probes until the queue is closed, the receiver of the answers is gone, or a stop is requested.
pub(crate) async fn run(
    clients: Clients,
    page_size: u32,
    mut queues: Queues,
    inputs: mpsc::Sender<Input>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    // The result of a job says whether it was a whole list.
    let mut jobs: Jobs<ProbeId, bool> = Jobs::new(IN_FLIGHT_MAX);
    let mut lists = 0;
    let mut waiting_lists: VecDeque<Probe> = VecDeque::new();
    let spawn = |jobs: &mut Jobs<ProbeId, bool>, probe: Probe| {
        let (clients, inputs) = (clients.clone(), inputs.clone());
        jobs.spawn(probe.id, async move {
            let answer = answer(&clients, page_size, &probe).await;
            // The receiver is gone: the process ends.
            let _closed = inputs.send(Input::Probed { probe: probe.id, answer }).await;
            is_whole_list(&probe)
        });
    };
    loop {
        while lists < LISTS_MAX && jobs.has_room() {
            let Some(probe) = waiting_lists.pop_front() else { break };
            lists += 1;
            spawn(&mut jobs, probe);
        }
        tokio::select! {
            biased;
            () = shutdown.requested() => return Ok(()),
            (id, end) = jobs.next() => match end {
                JobEnd::Done(is_list) => lists -= usize::from(is_list),
                JobEnd::Aborted => {}
                JobEnd::Panicked(message) => anyhow::bail!("probe {} panicked: {message}", id.0),
            },
            Some(probe) = queues.refusals.recv() => {
                if inputs.send(refused(probe)).await.is_err() {
                    return Ok(());
                }
            }
            next = queues.probes.recv(), if jobs.has_room() => {
                let Some(probe) = next else { return Ok(()) };
                if !is_whole_list(&probe) {
                    spawn(&mut jobs, probe);
                } else if waiting_lists.len() < QUEUE_MAX {
                    waiting_lists.push_back(probe);
                } else if inputs.send(refused(probe.id)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// The answer to a probe without room.
fn refused(probe: ProbeId) -> Input {
    Input::Probed { probe, answer: Err(Failure::transport(format!("more than {QUEUE_MAX} probes are waiting"))) }
}

fn is_whole_list(probe: &Probe) -> bool {
    probe.object.is_none() && probe.limit.is_none()
}

/// The current position of a collection. The answer has its objects if there are at most [`STAND_OBJECTS_MAX`].
pub(super) async fn stand(clients: Clients, collection: GroupResource, version: Name) -> Result<Stand, String> {
    // Only the engine gives probe numbers a meaning.
    let limit = Some(STAND_OBJECTS_MAX);
    let kind = Name::from("");
    let probe = Probe { id: ProbeId(0), collection, kind, version, namespace: None, limit, object: None, fresh: false };
    let found = answer(&clients, STAND_OBJECTS_MAX, &probe).await.map_err(|failure| failure.sentence)?;
    let seen = |object: engine::object::Object| (object.uid, object.resource_version);
    let objects = found.complete.then(|| found.objects.into_iter().map(seen).collect());
    Ok(Stand { position: found.resource_version, objects })
}

/// The labels and annotations of an object, if it exists with this uid.
pub(super) async fn texts(clients: Clients, object: ObjectRef) -> Result<Option<Texts>, String> {
    let what = format!("read the labels of {object}");
    if !(object.namespace.is_empty() || is_path_segment(&object.namespace)) {
        return Err(format!("{what}: not a valid namespace"));
    }
    let path = collection_path(&object.group, &object.version, &object.resource, &object.namespace);
    let uri = format!("{path}?fieldSelector={}", name_selector(&object.name));
    let answer = timeout(TEXTS_WITHIN, request::get(&clients, &what, &uri, media::METADATA_LIST)).await;
    let answer = answer.map_err(|_| format!("{what}: no answer within {} s", TEXTS_WITHIN.as_secs()))?;
    let list: TextsList = serde_json::from_slice(&answer.map_err(|failure| failure.sentence)?)
        .map_err(|error| format!("{what}: the answer cannot be read: {error}"))?;
    let found = list.items.into_iter().find(|item| *item.metadata.uid == *object.uid.to_string());
    Ok(found.map(|item| Texts { labels: item.metadata.labels, annotations: item.metadata.annotations }))
}

#[derive(Deserialize)]
struct TextsList {
    items: Vec<TextsItem>,
}

#[derive(Deserialize)]
struct TextsItem {
    metadata: TextsMetadata,
}

#[derive(Deserialize)]
struct TextsMetadata {
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The version of the last change of a collection within a span, or the beginning of the span. The watch is so short
/// that the server sends its last bookmark at once.
pub(super) async fn last(clients: Clients, span: Span) -> Result<ResourceVersion, String> {
    let what = format!("watch {} briefly", span.collection);
    match timeout(LAST_WITHIN, changes(&clients, &what, &span)).await {
        Ok(last) => last,
        Err(_) => Err(format!("{what}: nothing within {} s", LAST_WITHIN.as_secs())),
    }
}

async fn changes(clients: &Clients, what: &str, span: &Span) -> Result<ResourceVersion, String> {
    let path = collection_path(&span.collection.group, &span.version, &span.collection.resource, "");
    let from = query_value(&span.from.to_string());
    let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={LAST_WATCH_S}");
    let opened = request::stream(clients, what, &format!("{path}?{query}"), media::METADATA_PROTOBUF).await;
    let mut events = opened.map_err(|failure| failure.sentence)?;
    let encoding = events.encoding();
    let mut last = span.from.clone();
    while let Some(piece) = events.next().await.map_err(|error| format!("{what}: {error}"))? {
        let event = metadata::event(encoding, &piece).map_err(|why| format!("{what}: {} {why}", encoding.piece()))?;
        let (at, is_change) = match event {
            Event::Added(item) | Event::Modified(item) | Event::Deleted(item) => (item.resource_version(), true),
            Event::Bookmark { resource_version, .. } => (Some(resource_version), false),
            Event::Error(_) => return Err(format!("{what}: the API server ended it with an error")),
        };
        let at = at.ok_or_else(|| format!("{what}: an event has no resourceVersion"))?;
        // Changes come in order. A change past the span proves that there is no other within it.
        if is_change && !span.to.is_before(&at) {
            last = at.clone();
        }
        if at.reached(&span.to) {
            return Ok(last);
        }
    }
    Err(format!("{what}: the watch ended without a bookmark"))
}

async fn answer(clients: &Clients, page_size: u32, probe: &Probe) -> Result<ProbeAnswer, Failure> {
    let asked = async {
        match &probe.object {
            Some(named) => existence::answer(clients, probe, named).await,
            None => pages(clients, page_size, probe).await,
        }
    };
    let answer = timeout(within(probe), asked).await.unwrap_or_else(|_| Err(late(probe)));
    if let (Some(_), Err(failure)) = (&probe.object, &answer) {
        sleep(failure.retry_after.unwrap_or_default().min(TURNED_AWAY_MAX)).await;
    }
    answer
}

fn within(probe: &Probe) -> Duration {
    if probe.limit.is_some() { POSITION_WITHIN } else { ANSWER_WITHIN }
}

fn late(probe: &Probe) -> Failure {
    let is_read = probe.object.as_ref().is_some_and(|named| named.by == CheckBy::Read);
    let verb = if is_read { "get" } else { "list" };
    Failure::transport(format!("{verb} {}: no answer within {} s", probe.collection, within(probe).as_secs()))
}

async fn pages(clients: &Clients, page_size: u32, probe: &Probe) -> Result<ProbeAnswer, Failure> {
    let namespace = probe.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let what = match namespace {
        Some(namespace) => format!("list {} in namespace {namespace:?}", probe.collection),
        None => format!("list {}", probe.collection),
    };
    let senseless = |why: String| Failure::senseless(format!("{what}: {why}"));
    if namespace.is_some_and(|namespace| !is_path_segment(namespace)) {
        return Err(senseless("not a valid namespace".to_owned()));
    }
    let path = collection_path(
        &probe.collection.group,
        &probe.version,
        &probe.collection.resource,
        namespace.unwrap_or_default(),
    );
    let mut decoder = Decoder::new(namespace.map(|_| true));
    let mut found: Option<ProbeAnswer> = None;
    let mut token: Option<String> = None;
    loop {
        let mut uri = format!("{path}?limit={}", probe.limit.unwrap_or(page_size));
        if let Some(token) = &token {
            uri.push_str(&format!("&continue={}", query_value(token)));
        }
        let page = request::one(clients, &what, &uri, media::METADATA_LIST_PROTOBUF, probe.fresh).await?;
        // A reader that asks for a position does not know the kind, and its answer proves nothing.
        let page = if probe.kind.is_empty() {
            request::page(&page).map_err(|why| format!("the answer {why}"))
        } else {
            request::page_of(&page, &probe.collection.group, &probe.kind)
        };
        let page = page.map_err(senseless)?;
        // All pages show the state as of the first page.
        let answer = found.get_or_insert_with(|| ProbeAnswer {
            resource_version: ResourceVersion::parse(&page.resource_version),
            objects: Vec::new(),
            complete: true,
            remaining: page.remaining,
        });
        for item in page.items {
            match decoder.object(&item) {
                Ok(object) if namespace.is_none_or(|namespace| *object.namespace == *namespace) => {
                    answer.objects.push(object);
                }
                Ok(object) => {
                    return Err(senseless(format!(
                        "the answer contains an object of namespace {:?}",
                        object.namespace
                    )));
                }
                // A list that proves absence must be complete. A list for a position may have gaps.
                Err(why) if probe.limit.is_none() => return Err(senseless(why)),
                Err(_) => answer.complete = false,
            }
        }
        token = page.continues;
        let cut_short = probe.limit.is_some();
        if token.is_none() || cut_short {
            answer.complete &= token.is_none();
            return found.ok_or_else(|| senseless("no answer".to_owned()));
        }
        if answer.objects.len() > OBJECTS_MAX {
            return Err(senseless(format!("more than {OBJECTS_MAX} objects")));
        }
    }
}
