//! Watches: on request the current state first, then every change, with bookmarks in between.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::answer::typed;
use super::encode::{self, PROTOBUF_STREAM};
use super::media::Form;
use super::query::Parameters;
use super::server::{Commands, Server, Stopping};
use super::style::Style;
use crate::model::{ApiError, Change, Event, GroupResource, Object, Reason, Selector};

/// Maximum number of events in one chunk of the answer. A watch reads the history as fast as its client reads chunks.
/// One that falls behind the bound of the history gets 410.
const CHUNK_MAX_EVENTS: usize = 500;

/// Time of the last bookmark before the end of a watch, as in the real server.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Starts a watch.
///
/// # Errors
/// As for a list. Like the real server, a version without history is an ERROR event instead.
pub(crate) fn start(
    server: &Server,
    style: &Style,
    parameters: &Parameters,
    namespace: &str,
    stopping: Option<Extension<Stopping>>,
) -> Result<Response, ApiError> {
    let resource = style.of.group_resource();
    let query = parameters.list(&style.of, namespace).map(|query| crate::model::ListQuery {
        limit: 0,
        from: None,
        at: None,
        ..query
    })?;
    let from = parameters.watch_from()?;
    let least = parameters.not_older_than()?;
    // Create receivers first, so that no change between the list and the first read is missed.
    let (changes, commands) = (server.changes(&resource), server.commands());
    let (initial, position) = match from {
        Some(revision) => (Vec::new(), revision),
        None => server.read(|model| model.list(&resource, &query).map(|page| (page.items, page.revision)))?,
    };
    let unreached = server.read(|model| model.check_reached(least)).err().filter(|_| from.is_none());
    if let Some(error) = unreached {
        // The real server, too, refuses inside the watch, after it has waited for the version in vain.
        return Ok(typed(StatusCode::OK, content_type(style), failure(style, &error)));
    }
    let seen = *commands.borrow();
    let now = Instant::now();
    let watch = Watch {
        server: server.clone(),
        resource,
        style: style.clone(),
        namespace: query.namespace,
        selector: query.selector,
        position,
        initial: initial.into_iter(),
        announce_end: parameters.send_initial_events,
        bookmarks: parameters.allow_watch_bookmarks,
        changes,
        commands,
        seen,
        stopping: stopping.map(|Extension(Stopping(receiver))| receiver),
        deadline: now + parameters.watch_timeout(),
        last_bookmark: now,
        finished: false,
    };
    let chunks = stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next_chunk().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), watch))
    });
    let mut response = typed(StatusCode::OK, content_type(style), Vec::new());
    *response.body_mut() = Body::from_stream(chunks);
    Ok(response)
}

fn content_type(style: &Style) -> &'static str {
    if style.protobuf { PROTOBUF_STREAM } else { "application/json" }
}

/// An ERROR event.
fn failure(style: &Style, error: &ApiError) -> Vec<u8> {
    if style.protobuf {
        return encode::event("ERROR", &encode::status(&error.status()));
    }
    let mut event = json!({ "type": "ERROR", "object": error.status() }).to_string();
    event.push('\n');
    event.into_bytes()
}

struct Watch {
    server: Server,
    resource: GroupResource,
    style: Style,
    namespace: Option<String>,
    selector: Selector,
    /// All changes up to this revision have been sent.
    position: u64,
    initial: vec::IntoIter<Arc<Object>>,
    /// The end of the initial events must still be sent.
    announce_end: bool,
    bookmarks: bool,
    changes: Receiver<()>,
    commands: Receiver<Commands>,
    seen: Commands,
    stopping: Option<Receiver<bool>>,
    deadline: Instant,
    last_bookmark: Instant,
    finished: bool,
}

impl Watch {
    /// The next part of the answer, at least one event; `None` at the end.
    async fn next_chunk(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.finished {
                return None;
            }
            let mut chunk = self.initial_events();
            if chunk.is_empty() && std::mem::take(&mut self.announce_end) {
                self.bookmark(&mut chunk, json!({ INITIAL_EVENTS_END: "true" }));
            }
            if !chunk.is_empty() {
                return Some(chunk);
            }
            // Marked as seen before the read, so that a change in between wakes the next wait.
            self.changes.mark_unchanged();
            let commands = *self.commands.borrow_and_update();
            if commands.disconnects != self.seen.disconnects {
                return None;
            }
            let more = self.changed(&mut chunk)?;
            let asked = commands.bookmarks != self.seen.bookmarks;
            let due = self.bookmark_due(commands.bookmark_interval);
            self.seen = commands;
            if self.bookmarks && !more && (asked || Instant::now() >= due) {
                self.bookmark(&mut chunk, Value::Null);
            }
            if !chunk.is_empty() {
                return Some(chunk);
            }
            if more {
                continue;
            }
            let stopping = self.stopping.as_ref().is_some_and(|stopping| *stopping.borrow());
            if stopping || Instant::now() >= self.deadline {
                return None;
            }
            let until = if self.bookmarks { due.min(self.deadline) } else { self.deadline };
            self.wait(until).await;
        }
    }

    /// At each interval, and shortly before the end of the watch, so that its successor knows the position.
    fn bookmark_due(&self, interval: Duration) -> Instant {
        let due = self.last_bookmark + interval;
        let last = self.deadline.checked_sub(LAST_BOOKMARK).filter(|last| self.last_bookmark < *last);
        last.map_or(due, |last| due.min(last))
    }

    async fn wait(&mut self, until: Instant) {
        let stopped = async {
            match &mut self.stopping {
                // An error means that the listener is gone.
                Some(stopping) => drop(stopping.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The server holds both senders, and this watch holds the server.
            _ = self.changes.changed() => {}
            _ = self.commands.changed() => {}
            () = stopped => self.finished = true,
            () = sleep_until(until) => {}
        }
    }

    fn initial_events(&mut self) -> Vec<u8> {
        let mut chunk = Vec::new();
        let objects: Vec<Arc<Object>> = self.initial.by_ref().take(CHUNK_MAX_EVENTS).collect();
        for object in objects {
            self.event(&mut chunk, Change::Added, &object);
        }
        chunk
    }

    /// Writes the changes since the last read. True if there may be more; `None` ends the watch.
    fn changed(&mut self, chunk: &mut Vec<u8>) -> Option<bool> {
        let look = self.server.read(|model| model.changes(&self.resource, self.position, CHUNK_MAX_EVENTS));
        let (events, through) = match look {
            Ok(changes) => changes,
            Err(error) if error.reason == Reason::Expired => {
                self.finished = true;
                chunk.extend_from_slice(&failure(&self.style, &error));
                return Some(false);
            }
            // The type is no longer served. The real server ends its watches, too.
            Err(_) => return None,
        };
        for event in &events {
            self.filtered(chunk, event);
        }
        self.position = through;
        Some(events.len() == CHUNK_MAX_EVENTS)
    }

    /// The event for this watch: an object that starts to match is added, one that stops matching is deleted.
    fn filtered(&self, chunk: &mut Vec<u8>, event: &Event) {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != event.key.namespace) {
            return;
        }
        if self.selector.is_empty() {
            return self.event(chunk, event.change, &event.object);
        }
        let before = event.before.as_deref().is_some_and(|before| self.selector.matches(before));
        let after = event.change != Change::Deleted && self.selector.matches(&event.object);
        match (before, after) {
            (false, true) => self.event(chunk, Change::Added, &event.object),
            (true, true) => self.event(chunk, Change::Modified, &event.object),
            (true, false) => self.event(chunk, Change::Deleted, &event.object),
            (false, false) => {}
        }
    }

    fn event(&self, chunk: &mut Vec<u8>, change: Change, object: &Object) {
        let change = match change {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        };
        if self.style.protobuf {
            return chunk.extend_from_slice(&encode::event(change, &encode::metadata(object)));
        }
        chunk.extend_from_slice(format!("{{\"type\":\"{change}\",\"object\":").as_bytes());
        self.style.write(chunk, object, self.server.now());
        chunk.extend_from_slice(b"}\n");
    }

    fn bookmark(&mut self, chunk: &mut Vec<u8>, annotations: Value) {
        self.last_bookmark = Instant::now();
        let (kind, api_version) = match self.style.form {
            Form::Metadata | Form::MetadataList => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            Form::Full | Form::Table | Form::Discovery => {
                (self.style.of.kind.as_str(), self.style.api_version.as_str())
            }
        };
        let mut metadata = json!({ "resourceVersion": self.position.to_string() });
        if !annotations.is_null() {
            metadata["annotations"] = annotations;
        }
        if self.style.protobuf {
            return chunk.extend_from_slice(&encode::event("BOOKMARK", &encode::bare_metadata(&metadata)));
        }
        let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        chunk.extend_from_slice(json!({ "type": "BOOKMARK", "object": object }).to_string().as_bytes());
        chunk.push(b'\n');
    }
}
