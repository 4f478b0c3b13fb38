//! Collections, the revision counter, and the history for watches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::error::ApiError;
use super::kinds::GroupResource;
use super::metadata::{self, Object};

/// The key of an object in its collection. The namespace is empty for cluster scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change of one object, shared by all readers.
#[derive(Debug)]
pub struct Event {
    pub revision: u64,
    pub change: Change,
    pub key: ObjectKey,
    /// The new state. For a deletion the last one, with the resourceVersion of the deletion.
    pub object: Arc<Object>,
    /// The previous state; absent for an addition.
    pub before: Option<Arc<Object>>,
}

/// The objects of one resource, and its recent changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collection {
    pub(crate) objects: BTreeMap<ObjectKey, Arc<Object>>,
    /// Ascending by revision.
    history: VecDeque<Arc<Event>>,
    /// Changes up to this revision are forgotten.
    compacted: u64,
}

impl Collection {
    fn new(compacted: u64) -> Self {
        Self { compacted, ..Self::default() }
    }

    /// The objects of one namespace, or all of them, in key order.
    pub(crate) fn objects_in(&self, namespace: Option<&str>) -> impl Iterator<Item = (&ObjectKey, &Arc<Object>)> {
        let from = namespace.map_or(Bound::Unbounded, |namespace| Bound::Included(ObjectKey::new(namespace, "")));
        self.objects
            .range((from, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
    }

    /// The changes after `revision`, at most `max`.
    pub(crate) fn changes_after(&self, revision: u64, max: usize) -> Result<Vec<Arc<Event>>, ApiError> {
        self.check_not_compacted(revision)?;
        let start = self.history.partition_point(|event| event.revision <= revision);
        Ok(self.history.range(start..).take(max).cloned().collect())
    }

    /// The states at `revision` of objects that changed after it; `None` for those that did not exist.
    pub(crate) fn undo_to(&self, revision: u64) -> Result<BTreeMap<&ObjectKey, Option<&Arc<Object>>>, ApiError> {
        self.check_not_compacted(revision)?;
        let start = self.history.partition_point(|event| event.revision <= revision);
        let mut then = BTreeMap::new();
        for event in self.history.range(start..) {
            then.entry(&event.key).or_insert(event.before.as_ref());
        }
        Ok(then)
    }

    fn check_not_compacted(&self, revision: u64) -> Result<(), ApiError> {
        if revision < self.compacted {
            let message = format!("too old resource version: {revision} ({})", self.compacted);
            return Err(ApiError::expired(message));
        }
        Ok(())
    }

    fn forget_through(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
        while self.history.front().is_some_and(|event| event.revision <= revision) {
            self.history.pop_front();
        }
    }

    fn record(&mut self, event: Event, max_events: usize) -> Arc<Event> {
        let event = Arc::new(event);
        self.history.push_back(Arc::clone(&event));
        while self.history.len() > max_events {
            if let Some(dropped) = self.history.pop_front() {
                self.compacted = dropped.revision;
            }
        }
        event
    }
}

/// All collections under one revision counter, as in etcd.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    revision: u64,
    collections: BTreeMap<GroupResource, Collection>,
    /// The last changes of removed collections, for watches that have not read them yet.
    closed: BTreeMap<GroupResource, Collection>,
    history_max_events: usize,
}

impl Store {
    pub(crate) fn new(history_max_events: usize) -> Self {
        // etcd's first revision. 0 means "any" on the wire.
        Self { revision: 1, collections: BTreeMap::new(), closed: BTreeMap::new(), history_max_events }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Advances the revision, like writes to objects that this store does not hold.
    pub(crate) fn advance(&mut self, by: u64) {
        self.revision += by;
    }

    pub(crate) fn open(&mut self, resource: GroupResource) {
        let compacted = self.revision;
        self.closed.remove(&resource);
        self.collections.entry(resource).or_insert_with(|| Collection::new(compacted));
    }

    pub(crate) fn close(&mut self, resource: &GroupResource) {
        if let Some(collection) = self.collections.remove(resource) {
            self.closed.insert(resource.clone(), Collection { objects: BTreeMap::new(), ..collection });
        }
    }

    /// The changes of a removed collection; empty if there are none or they are forgotten.
    pub(crate) fn last_changes(&self, resource: &GroupResource, revision: u64, max: usize) -> Vec<Arc<Event>> {
        self.closed.get(resource).and_then(|of| of.changes_after(revision, max).ok()).unwrap_or_default()
    }

    pub(crate) fn collection(&self, resource: &GroupResource) -> Option<&Collection> {
        self.collections.get(resource)
    }

    pub(crate) fn get(&self, resource: &GroupResource, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.collections.get(resource)?.objects.get(key)
    }

    /// Writes an object at the next revision, and returns the stored state.
    pub(crate) fn put(&mut self, resource: &GroupResource, key: ObjectKey, mut object: Object) -> Arc<Event> {
        self.revision += 1;
        metadata::set(&mut object, "resourceVersion", self.revision.to_string());
        let object = Arc::new(object);
        let collection = self.collections.entry(resource.clone()).or_default();
        let before = collection.objects.insert(key.clone(), Arc::clone(&object));
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        collection.record(Event { revision: self.revision, change, key, object, before }, self.history_max_events)
    }

    /// Removes an object at the next revision; `None` if it does not exist.
    pub(crate) fn remove(&mut self, resource: &GroupResource, key: &ObjectKey) -> Option<Arc<Event>> {
        let collection = self.collections.get_mut(resource)?;
        let before = collection.objects.remove(key)?;
        self.revision += 1;
        let mut object = Object::clone(&before);
        metadata::set(&mut object, "resourceVersion", self.revision.to_string());
        let event = Event {
            revision: self.revision,
            change: Change::Deleted,
            key: key.clone(),
            object: Arc::new(object),
            before: Some(before),
        };
        Some(collection.record(event, self.history_max_events))
    }

    /// Forgets all changes up to a revision, in every collection.
    pub(crate) fn compact(&mut self, revision: u64) {
        for collection in self.collections.values_mut().chain(self.closed.values_mut()) {
            collection.forget_through(revision.min(self.revision));
        }
    }
}
