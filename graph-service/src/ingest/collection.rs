//! Turns the steps of one collection into inputs of the engine.

use super::follow::{Halt, Sink, Step};
use engine::follow::Tell;
use engine::leader::Input;
use engine::marks::Marks;
use engine::object::{Backend, GroupResource, Name, Object, ServedKind};
use engine::selectors::{Matcher, Table};
use kube_api::metadata::{self, Decoder, Item};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, mpsc, watch};

#[cfg(test)]
mod tests;

/// Sends a collection to the engine.
#[derive(Debug)]
pub(crate) struct Collection {
    key: GroupResource,
    kind: Name,
    /// The versions come from the main store, so they are numbers.
    numbered: bool,
    decoder: Decoder,
    /// The selectors of the present list and its watch.
    matcher: Matcher,
    selectors: watch::Receiver<Arc<Table>>,
    inputs: mpsc::Sender<Input>,
    /// Notified when the server does not know the resource.
    unserved: Arc<Notify>,
    leaving: Arc<AtomicBool>,
}

impl Collection {
    /// Creates the sink. Once `leaving` is set, the first 404 ends the task, because the kind is gone and its last
    /// events have been read.
    pub(crate) fn new(
        served: &ServedKind,
        inputs: mpsc::Sender<Input>,
        unserved: Arc<Notify>,
        leaving: Arc<AtomicBool>,
        selectors: watch::Receiver<Arc<Table>>,
    ) -> Collection {
        let matcher = Matcher::new(selectors.borrow().clone());
        Collection {
            key: served.group_resource.clone(),
            kind: served.kind.clone(),
            numbered: served.backend == Backend::Main,
            decoder: Decoder::new(Some(served.namespaced)),
            matcher,
            selectors,
            inputs,
            unserved,
            leaving,
        }
    }

    async fn send(&mut self, input: Input) -> Result<(), Halt> {
        self.inputs.send(input).await.map_err(|_| Halt::Closed)
    }

    fn read(&mut self, item: &Item<'_>) -> Result<Object, String> {
        let mut object = self.decoder.object(item)?;
        // Unreadable labels count as all selectors.
        object.marks = item.marks(&mut self.matcher).unwrap_or_else(|_| Marks::unknown());
        if self.numbered && !object.resource_version.is_ordered() {
            return Err(format!(
                "object {:?} has the resourceVersion {:?}, which is not a number",
                object.name, object.resource_version
            ));
        }
        Ok(object)
    }

    /// Refuses an event about another kind. An item of a list may omit its kind. An object of an event must not.
    fn is_of_kind(&self, item: &Item<'_>) -> Result<(), String> {
        match item {
            Item::Json(object) => metadata::check_kind(object, &self.key.group, &self.kind),
            // The envelope was checked.
            Item::Protobuf(_) => Ok(()),
        }
    }

    /// Sends the object of an event. Without a usable object, sends the reason and returns false.
    async fn event(&mut self, item: &Item<'_>, input: fn(GroupResource, Object) -> Input) -> Result<bool, Halt> {
        let collection = self.key.clone();
        match self.is_of_kind(item) {
            Ok(()) => self.object(collection, item, input).await,
            Err(why) => self.send(Input::Unusable { collection, why: format!("an event {why}") }).await.map(|()| false),
        }
    }

    /// Sends the object in `item`. Without a usable object, sends the reason and returns false.
    async fn object(
        &mut self,
        collection: GroupResource,
        item: &Item<'_>,
        input: fn(GroupResource, Object) -> Input,
    ) -> Result<bool, Halt> {
        match self.read(item) {
            Ok(object) => self.send(input(collection, object)).await.map(|()| true),
            Err(why) => self.send(Input::Unusable { collection, why }).await.map(|()| false),
        }
    }
}

impl Sink for Collection {
    async fn take(&mut self, step: Step<'_>) -> Result<(), Halt> {
        let collection = self.key.clone();
        if let Step::Told(Tell::ListFailed(failure) | Tell::WatchLost(_, failure)) = &step
            && failure.status == Some(404)
        {
            if self.leaving.load(Ordering::Relaxed) {
                return Err(Halt::Closed);
            }
            self.unserved.notify_one();
        }
        match step {
            Step::Told(Tell::ListBegun) => {
                let table = self.selectors.borrow().clone();
                let selectors = table.generation();
                if self.matcher.table().generation() != selectors {
                    self.matcher = Matcher::new(table);
                }
                self.send(Input::ListBegun { collection, selectors }).await
            }
            Step::Listed(item) => {
                let listed = |collection, object| Input::Listed { collection, object };
                self.object(collection, &item, listed).await.map(drop)
            }
            Step::Told(Tell::ListEnded(resource_version)) => {
                self.send(Input::ListEnded { collection, resource_version }).await
            }
            Step::Told(Tell::ListFailed(failure)) => {
                let broke = failure.is_transport();
                self.send(Input::ListFailed { collection, error: failure.sentence, broke }).await
            }
            Step::Seen(item) => {
                let seen = |collection, object| Input::Seen { collection, object };
                self.event(&item, seen).await.map(drop)
            }
            Step::Deleted(item) => {
                let deleted = |collection, object| Input::Deleted { collection, object };
                if self.event(&item, deleted).await? {
                    return Ok(());
                }
                // The deleted object is unknown. Only a new list shows which one it was.
                Err(Halt::Relist(format!("a DELETED event of {} names no object", self.key)))
            }
            Step::Told(Tell::Bookmark(resource_version)) if self.numbered && !resource_version.is_ordered() => {
                Err(Halt::Relist(format!(
                    "a bookmark of {} has the resourceVersion {resource_version:?}, which is not a number",
                    self.key
                )))
            }
            Step::Told(Tell::Bookmark(resource_version)) => {
                self.send(Input::Bookmark { collection, resource_version }).await
            }
            Step::Told(Tell::WatchLost(end, failure)) => {
                self.send(Input::WatchLost { collection, end, error: failure.sentence }).await
            }
            Step::Told(Tell::WatchResumed) => self.send(Input::WatchResumed { collection }).await,
            Step::Told(Tell::ListsAnew(_)) => Ok(()),
        }
    }
}
