//! The API server as a pure state machine: no clock, no I/O, no async.
//!
//! Every call that depends on the time takes [`Now`]. Uids come from a seed. Two models with the same seed and the same
//! calls are equal to the last byte, which lets a simulation replay a run.
//!
//! It has these parts of the real server: one revision counter for all resources, watch history with compaction,
//! preconditions, finalizers, graceful deletion of pods, the three propagation policies, owner reference validation,
//! namespaces and custom resource definitions with their deletion steps, and discovery. It has no defaulting, no
//! validation beyond metadata, no admission, no server-side apply and no managed fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod aggregation;
mod clock;
mod custom;
mod error;
mod kinds;
mod list;
mod metadata;
mod namespaces;
mod options;
mod patch;
mod random;
mod remove;
mod reviews;
mod select;
mod store;
mod strategic;
mod validate;
mod write;

#[cfg(test)]
mod tests;

pub use clock::Now;
pub(crate) use clock::parse_timestamp;
pub use error::{ApiError, Cause, Details, Reason};
pub(crate) use kinds::version_order;
pub use kinds::{DefaultPolicy, GroupResource, NameRule, StatusRule, Type, api_version};
pub use list::{ListQuery, Page, Position};
pub use metadata::{FOREGROUND, ORPHAN, Object, finalizers, is_terminating, name, namespace, revision, text, uid};
pub use options::{DeleteOptions, Policy, Subresource, WriteOptions};
pub use remove::Deleted;
pub(crate) use remove::parse_dry_run;
pub use reviews::{Callers, Holder, On, Right};
pub use select::Selector;
pub use store::{Change, Event, ObjectKey};
pub use write::{Patch, Written};

use random::Random;
use store::Store;

/// Default number of changes that a collection keeps for its watches.
pub const HISTORY_MAX_EVENTS: usize = 32_768;

/// The initial namespaces. The uid of `kube-system` is the identity of the cluster.
pub const FIRST_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// The whole server: types, objects, history.
#[derive(Debug)]
pub struct Model {
    types: BTreeMap<GroupResource, Arc<Type>>,
    /// Types that exist and are not served at the moment.
    hidden: BTreeSet<GroupResource>,
    store: Store,
    random: Random,
    /// Collections with changes that [`Model::take_touched`] has not reported yet.
    touched: BTreeSet<GroupResource>,
    /// Terminating namespaces, and whether the deletion of their content has started.
    terminating_namespaces: BTreeMap<String, bool>,
    /// Terminating custom resource definitions, and whether the deletion of their instances has started.
    terminating_definitions: BTreeMap<String, bool>,
    /// The set of served versions has changed, or a client wrote an APIService.
    aggregation_is_stale: bool,
    callers: Callers,
}

/// The stored state of a model at one revision, for a later restore.
#[derive(Debug, Clone)]
pub struct Snapshot {
    types: BTreeMap<GroupResource, Arc<Type>>,
    store: Store,
}

impl Model {
    /// An empty cluster: the built-in types, the initial namespaces, one APIService for each served version.
    pub fn new(seed: u64, now: Now) -> Self {
        Self::with_history(seed, now, HISTORY_MAX_EVENTS)
    }

    /// An empty cluster that keeps this many changes for each collection.
    pub fn with_history(seed: u64, now: Now, history_max_events: usize) -> Self {
        let mut model = Self {
            types: BTreeMap::new(),
            hidden: BTreeSet::new(),
            store: Store::new(history_max_events),
            random: Random::new(seed),
            touched: BTreeSet::new(),
            terminating_namespaces: BTreeMap::new(),
            terminating_definitions: BTreeMap::new(),
            aggregation_is_stale: true,
            callers: Callers::default(),
        };
        for kind in kinds::built_ins() {
            model.store.open(kind.group_resource());
            model.types.insert(kind.group_resource(), Arc::new(kind));
        }
        let namespaces = GroupResource::new("", "namespaces");
        for name in FIRST_NAMESPACES {
            let mut object = Object::new();
            metadata::set(&mut object, "name", *name);
            model
                .create(now, &namespaces, "", object, &WriteOptions::default())
                .expect("the first namespaces are valid and nothing is there yet");
        }
        model.settle(now);
        model
    }

    /// The revision of the latest write, in any collection.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// The types that are served now, by group and resource.
    pub fn types(&self) -> impl Iterator<Item = &Arc<Type>> {
        self.types.iter().filter(|(resource, _)| !self.hidden.contains(resource)).map(|(_, of)| of)
    }

    /// The type of a resource.
    ///
    /// # Errors
    /// 404 as the real server sends it: a Status without details inside a built-in group; the plain text `404
    /// page not found` in a group of custom resources and in an unknown group.
    pub fn served(&self, resource: &GroupResource) -> Result<Arc<Type>, ApiError> {
        match self.types.get(resource).filter(|_| !self.hidden.contains(resource)) {
            Some(of) => Ok(Arc::clone(of)),
            None => Err(self.not_served(&resource.group)),
        }
    }

    /// The answer for a resource that a group does not serve.
    pub fn not_served(&self, group: &str) -> ApiError {
        let built_in = self.types().any(|of| of.group == group && !of.custom);
        if built_in { ApiError::resource_not_served() } else { ApiError::group_not_served() }
    }

    /// Hides a type or shows it again. Discovery, requests and watches behave as if a hidden type did not exist, while
    /// its objects remain. A group whose types are all hidden is not served.
    pub fn set_served(&mut self, resource: &GroupResource, served: bool) {
        if served {
            self.hidden.remove(resource);
        } else {
            self.hidden.insert(resource.clone());
        }
        self.aggregation_is_stale = true;
        self.touched.insert(resource.clone());
    }

    /// One object.
    ///
    /// # Errors
    /// 404, for the object or for its type.
    pub fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        let of = self.served(resource)?;
        let found = self.store.get(resource, &ObjectKey::new(namespace, name));
        found.cloned().ok_or_else(|| ApiError::not_found(&of, name))
    }

    /// All objects of a collection in key order. Empty if the collection does not exist.
    pub fn objects(&self, resource: &GroupResource) -> impl Iterator<Item = &Arc<Object>> {
        self.store.collection(resource).into_iter().flat_map(|collection| collection.objects.values())
    }

    /// Every object of every collection.
    pub fn all_objects(&self) -> impl Iterator<Item = (&GroupResource, &Arc<Object>)> {
        self.types.keys().flat_map(|resource| self.objects(resource).map(move |object| (resource, object)))
    }

    /// Forgets the changes up to a revision: watches and continued lists from before it get 410.
    pub fn compact(&mut self, revision: u64) {
        self.store.compact(revision);
        self.touched.extend(self.types.keys().cloned());
    }

    /// The tokens and rights for reviews. Empty at first.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// The tokens and rights, to be changed.
    pub fn callers_mut(&mut self) -> &mut Callers {
        &mut self.callers
    }

    /// The collections that changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<GroupResource> {
        std::mem::take(&mut self.touched)
    }

    /// The stored state. Cheap: objects and history are shared.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { types: self.types.clone(), store: self.store.clone() }
    }

    /// Restores an earlier state, like a backup: revisions go back, and new uids differ from earlier ones.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.touched.extend(self.types.keys().cloned());
        self.types = snapshot.types;
        self.store = snapshot.store;
        self.touched.extend(self.types.keys().cloned());
        self.find_terminating();
        self.aggregation_is_stale = true;
    }

    /// Advances the revision, like writes to objects that this model does not hold.
    pub fn advance_revision(&mut self, by: u64) {
        self.store.advance(by);
    }

    /// Runs the controllers inside and beside the real API server: finalizes terminating namespaces and custom resource
    /// definitions, and keeps one APIService for each served version.
    pub fn settle(&mut self, now: Now) {
        // Each round finishes at least one deletion, or is the last.
        loop {
            let progress = self.finalize_namespaces(now) | self.finalize_definitions(now);
            self.refresh_aggregation(now);
            if !progress {
                return;
            }
        }
    }

    /// Writes an object, and applies the consequences for its type.
    fn put(&mut self, now: Now, resource: &GroupResource, key: ObjectKey, object: Object) -> Arc<Object> {
        let event = self.store.put(resource, key, object);
        self.follow(now, resource, &event);
        Arc::clone(&event.object)
    }

    /// Removes an object, and applies the consequences for its type.
    fn erase(&mut self, now: Now, resource: &GroupResource, key: &ObjectKey) {
        if let Some(event) = self.store.remove(resource, key) {
            self.follow(now, resource, &event);
        }
    }

    fn follow(&mut self, now: Now, resource: &GroupResource, event: &Event) {
        self.touched.insert(resource.clone());
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "namespaces") => self.note_namespace(event),
            (custom::GROUP, custom::RESOURCE) => self.note_definition(now, event),
            (aggregation::GROUP, aggregation::RESOURCE) => self.aggregation_is_stale = true,
            _ => {}
        }
    }

    fn find_terminating(&mut self) {
        let names = |objects: Vec<&Arc<Object>>| {
            let terminating = objects.into_iter().filter(|object| is_terminating(object));
            terminating.map(|object| (name(object).to_owned(), false)).collect()
        };
        self.terminating_namespaces = names(self.objects(&GroupResource::new("", "namespaces")).collect());
        self.terminating_definitions = names(self.objects(&custom::definitions()).collect());
    }
}
