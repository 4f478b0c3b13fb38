//! The API server as a pure state machine: no clock, no input or output, no async.
//!
//! Every call that may depend on the time takes [`Now`]; uids come from a seed. Two models with the same seed and the
//! same calls are equal to the last byte, which is what a simulation needs to replay a run.
//!
//! What it keeps of the real server: one revision counter for all resources, watch history with compaction,
//! preconditions, finalizers, graceful deletion of pods, the three propagation policies, owner reference validation,
//! namespaces and custom resource definitions with their own deletion steps, and discovery. What it leaves out:
//! defaulting, validation beyond metadata, admission, server-side apply, managed fields.

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

/// How many changes a collection remembers for its watches unless said otherwise.
pub const HISTORY_MAX_EVENTS: usize = 32_768;

/// The namespaces that exist from the start. The uid of `kube-system` is the cluster's identity.
pub const FIRST_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// The whole server: types, objects, history.
#[derive(Debug)]
pub struct Model {
    types: BTreeMap<GroupResource, Arc<Type>>,
    /// Types that exist but are not served just now.
    hidden: BTreeSet<GroupResource>,
    store: Store,
    random: Random,
    /// Collections with changes that [`Model::take_touched`] has not reported yet.
    touched: BTreeSet<GroupResource>,
    /// Namespaces in deletion, and whether their content has been told to go.
    terminating_namespaces: BTreeMap<String, bool>,
    /// Custom resource definitions in deletion, and whether their instances have been told to go.
    terminating_definitions: BTreeMap<String, bool>,
    /// The set of served versions has changed, or somebody wrote an APIService.
    aggregation_is_stale: bool,
    callers: Callers,
}

/// The stored state of a model at one revision, to return to.
#[derive(Debug, Clone)]
pub struct Snapshot {
    types: BTreeMap<GroupResource, Arc<Type>>,
    store: Store,
}

impl Model {
    /// An empty cluster: the built-in types, the first namespaces, one APIService for each served version.
    pub fn new(seed: u64, now: Now) -> Self {
        Self::with_history(seed, now, HISTORY_MAX_EVENTS)
    }

    /// The same, with another bound on how many changes each collection remembers.
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

    /// The type behind a resource.
    ///
    /// # Errors
    /// 404 in the shape the real server gives it: a Status with empty details inside a built-in group, the plain text
    /// `404 page not found` in a group of custom resources and in one that is not served at all.
    pub fn served(&self, resource: &GroupResource) -> Result<Arc<Type>, ApiError> {
        match self.types.get(resource).filter(|_| !self.hidden.contains(resource)) {
            Some(of) => Ok(Arc::clone(of)),
            None => Err(self.not_served(&resource.group)),
        }
    }

    /// What a request for something that a group does not serve is answered.
    pub fn not_served(&self, group: &str) -> ApiError {
        let built_in = self.types().any(|of| of.group == group && !of.custom);
        if built_in { ApiError::resource_not_served() } else { ApiError::group_not_served() }
    }

    /// Takes a type out of service or puts it back: discovery, requests and watches behave as if it were not there,
    /// while its objects stay. A group of which every type is hidden is not served.
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

    /// Every object of a collection, in key order. Empty when there is no such collection.
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

    /// Whom the server knows, for reviews. At first nobody.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// The same, to be changed.
    pub fn callers_mut(&mut self) -> &mut Callers {
        &mut self.callers
    }

    /// The collections that changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<GroupResource> {
        std::mem::take(&mut self.touched)
    }

    /// What is stored now. Cheap: objects and history are shared.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { types: self.types.clone(), store: self.store.clone() }
    }

    /// Returns to an earlier state, as a restored backup does: revisions go back, uids that come next are new.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.touched.extend(self.types.keys().cloned());
        self.types = snapshot.types;
        self.store = snapshot.store;
        self.touched.extend(self.types.keys().cloned());
        self.find_terminating();
        self.aggregation_is_stale = true;
    }

    /// Lets the revision go on, as writes to what this model does not hold do it.
    pub fn advance_revision(&mut self, by: u64) {
        self.store.advance(by);
    }

    /// What controllers inside the real API server and beside it do without being asked: finalizes namespaces and
    /// custom resource definitions in deletion and keeps one APIService for each served version.
    pub fn settle(&mut self, now: Now) {
        // Each round either finishes something that is in deletion or is the last one.
        loop {
            let progress = self.finalize_namespaces(now) | self.finalize_definitions(now);
            self.refresh_aggregation(now);
            if !progress {
                return;
            }
        }
    }

    /// Writes an object and follows up what its type entails.
    fn put(&mut self, now: Now, resource: &GroupResource, key: ObjectKey, object: Object) -> Arc<Object> {
        let event = self.store.put(resource, key, object);
        self.follow(now, resource, &event);
        Arc::clone(&event.object)
    }

    /// Removes an object and follows up what its type entails.
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
