//! One collection's steps as the engine's inputs.

use super::follow::{Halt, Sink, Step};
use crate::metadata::{Decoder, Item};
use engine::leader::Input;
use engine::object::{GroupResource, Object};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, mpsc};

/// Hands a collection to the engine.
#[derive(Debug)]
pub(crate) struct Collection {
    key: GroupResource,
    decoder: Decoder,
    inputs: mpsc::Sender<Input>,
    /// To be notified when the server does not know the resource.
    unserved: Arc<Notify>,
    leaving: Arc<AtomicBool>,
}

impl Collection {
    /// Once `leaving` is set, the first 404 is the end: the kind is gone, and its last events have been taken.
    pub(crate) fn new(
        key: GroupResource,
        namespaced: bool,
        inputs: mpsc::Sender<Input>,
        unserved: Arc<Notify>,
        leaving: Arc<AtomicBool>,
    ) -> Collection {
        Collection { key, decoder: Decoder::new(Some(namespaced)), inputs, unserved, leaving }
    }

    async fn send(&mut self, input: Input) -> Result<(), Halt> {
        self.inputs.send(input).await.map_err(|_| Halt::Closed)
    }

    /// Sends the object in `item`, or says why there is none in it; then the answer is `false`.
    async fn object(
        &mut self,
        collection: GroupResource,
        item: &Item<'_>,
        input: fn(GroupResource, Object) -> Input,
    ) -> Result<bool, Halt> {
        match self.decoder.object(item) {
            Ok(object) => self.send(input(collection, object)).await.map(|()| true),
            Err(why) => self.send(Input::Unusable { collection, why }).await.map(|()| false),
        }
    }
}

impl Sink for Collection {
    async fn take(&mut self, step: Step<'_>) -> Result<(), Halt> {
        let collection = self.key.clone();
        if let Step::ListFailed(failure) | Step::WatchLost(_, failure) = &step
            && failure.status == Some(404)
        {
            if self.leaving.load(Ordering::Relaxed) {
                return Err(Halt::Closed);
            }
            self.unserved.notify_one();
        }
        match step {
            Step::ListBegun => self.send(Input::ListBegun { collection }).await,
            Step::Listed(item) => {
                let listed = |collection, object| Input::Listed { collection, object };
                self.object(collection, &item, listed).await.map(drop)
            }
            Step::ListEnded(resource_version) => self.send(Input::ListEnded { collection, resource_version }).await,
            Step::ListFailed(failure) => {
                self.send(Input::ListFailed { collection, error: failure.sentence.clone() }).await
            }
            Step::Seen(item) => {
                let seen = |collection, object| Input::Seen { collection, object };
                self.object(collection, &item, seen).await.map(drop)
            }
            Step::Deleted(item) => {
                let deleted = |collection, object| Input::Deleted { collection, object };
                if self.object(collection, &item, deleted).await? {
                    return Ok(());
                }
                // Something is gone, and only a list can say what.
                Err(Halt::Relist(format!("a DELETED of {} named no object", self.key)))
            }
            Step::Bookmark(resource_version) => self.send(Input::Bookmark { collection, resource_version }).await,
            Step::WatchLost(end, failure) => {
                self.send(Input::WatchLost { collection, end, error: failure.sentence.clone() }).await
            }
            Step::WatchResumed => self.send(Input::WatchResumed { collection }).await,
        }
    }
}
