//! Follows CustomResourceDefinitions and APIServices in full. They show changes before discovery does, name the kinds
//! of aggregated API servers, and prove that a removed kind has no objects left.

use super::discovery::{Services, View};
use super::follow::{Halt, Sink, Step};
use super::known::{Declared, Known};
use engine::follow::Tell;
use engine::leader::Input;
use engine::object::{GroupResource, Name, Uid};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

#[cfg(test)]
mod tests;

/// The content of both kinds of definition, shared by the watchers and the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    state: Mutex<State>,
    /// Notified when the served kinds may have changed.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    crds: Followed<Crd>,
    services: Followed<Service>,
    deleted: BTreeSet<GroupResource>,
    withdrawn: BTreeSet<(Name, Name)>,
}

/// All definitions of one kind, by name.
#[derive(Debug)]
pub(crate) struct Followed<T> {
    items: BTreeMap<String, T>,
    /// The content of the current list.
    listing: BTreeMap<String, T>,
    /// A definition could not be read, so a definition that seems to be missing may be that one.
    unreadable: Option<String>,
    listed: bool,
    error: Option<String>,
}

impl<T> Default for Followed<T> {
    fn default() -> Followed<T> {
        Followed { items: BTreeMap::new(), listing: BTreeMap::new(), unreadable: None, listed: false, error: None }
    }
}

impl Definitions {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is one assignment or leaves it usable, so a poisoned lock is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the definitions are not known, as sentences.
    pub(crate) fn errors(&self) -> Vec<String> {
        let state = self.state();
        let (crds, services) = (&state.crds, &state.services);
        [&crds.error, &crds.unreadable, &services.error, &services.unreadable].into_iter().flatten().cloned().collect()
    }

    /// Whether both kinds of definition were listed, or cannot be listed.
    pub(crate) fn are_settled(&self) -> bool {
        let state = self.state();
        let settled = |listed: bool, error: &Option<String>| listed || error.is_some();
        settled(state.crds.listed, &state.crds.error) && settled(state.services.listed, &state.services.error)
    }

    /// The content of the APIServices.
    pub(crate) fn services(&self) -> Services {
        let state = self.state();
        let aggregated = state.services.items.values().filter(|service| service.aggregated);
        let known =
            aggregated.map(|service| ((service.group.clone(), service.version.clone()), service.available)).collect();
        if state.services.listed && state.services.error.is_none() {
            return Services::Known(known);
        }
        let declared_groups = state.crds.items.values().map(|crd| crd.key.group.clone()).collect();
        Services::Unreadable { declared_groups, known }
    }

    pub(crate) fn declared(&self) -> Declared {
        let state = self.state();
        let standing = state.crds.items.values().filter(|crd| crd.is_served());
        Declared {
            custom: standing.map(|crd| (crd.key.clone(), crd.uid.clone())).collect(),
            deleted: state.deleted.clone(),
            withdrawn: state.withdrawn.clone(),
        }
    }

    /// Why `view` is outdated, if discovery lags behind the definitions.
    pub(crate) fn unmet(&self, view: &View) -> Option<String> {
        let state = self.state();
        for crd in state.crds.items.values().filter(|crd| crd.is_served()) {
            let shown = view.kinds.get(&crd.key).is_some_and(|kind| {
                *kind.kind == *crd.kind && crd.versions.iter().any(|version| **version == *kind.version)
            });
            if !shown {
                return Some(format!("discovery does not show {} yet", crd.key));
            }
        }
        if let Some(left) = state.deleted.iter().find(|key| view.kinds.contains_key(key)) {
            return Some(format!("discovery still shows {left}"));
        }
        let mut available = state.services.items.values().filter(|service| service.aggregated && service.available);
        let suspect = available.find(|service| view.suspects.contains_key(&service.group))?;
        Some(format!("discovery does not show APIService {}.{} yet", suspect.version, suspect.group))
    }

    /// The server does not serve definitions of this kind.
    pub(crate) fn are_not_served<T: Definition>(&self) {
        T::slot(&mut self.state()).listed = true;
    }

    /// Forgets deleted definitions that the view no longer contains.
    pub(crate) fn prune(&self, known: &Known) {
        let mut state = self.state();
        state.deleted.retain(|key| known.get(key).is_some());
        state.withdrawn.retain(|(group, version)| {
            known.kinds().any(|kind| kind.group_resource.group == *group && kind.version == *version)
        });
    }
}

/// Follows one kind of definition.
#[derive(Debug)]
pub(crate) struct Watcher<T> {
    definitions: Arc<Definitions>,
    inputs: mpsc::Sender<Input>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Definition> Watcher<T> {
    pub(crate) fn new(definitions: Arc<Definitions>, inputs: mpsc::Sender<Input>) -> Watcher<T> {
        Watcher { definitions, inputs, kind: PhantomData }
    }

    /// Applies `change`, wakes the supervisor if `change` returns true, and sends the inputs.
    async fn apply(&mut self, change: impl FnOnce(&mut State) -> (bool, Vec<Input>)) -> Result<(), Halt> {
        let (changed, inputs) = change(&mut self.definitions.state());
        if changed {
            self.definitions.changed.notify_one();
        }
        for input in inputs {
            self.inputs.send(input).await.map_err(|_| Halt::Closed)?;
        }
        Ok(())
    }
}

impl<T: Definition> Sink for Watcher<T> {
    async fn take(&mut self, step: Step<'_>) -> Result<(), Halt> {
        match step {
            Step::Told(Tell::ListBegun) => {
                T::slot(&mut self.definitions.state()).begin();
                Ok(())
            }
            Step::Listed(item) => {
                let read = item.json().and_then(T::read);
                T::slot(&mut self.definitions.state()).list(read);
                Ok(())
            }
            Step::Told(Tell::ListEnded(_)) => self.apply(T::end_list).await,
            Step::Seen(item) => {
                let read = item.json().and_then(T::read);
                self.apply(|state| T::see(state, read)).await
            }
            Step::Deleted(item) => match item.json().and_then(T::read) {
                Ok((name, definition)) => self.apply(|state| T::delete(state, &name, definition)).await,
                Err(why) => Err(Halt::Relist(why)),
            },
            Step::Told(Tell::Bookmark(_) | Tell::ListsAnew(_)) => Ok(()),
            Step::Told(Tell::ListFailed(failure) | Tell::WatchLost(_, failure)) => {
                // The first error ends the wait for a list.
                self.apply(|state| (T::slot(state).error.replace(failure.sentence).is_none(), Vec::new())).await
            }
            Step::Told(Tell::WatchResumed) => {
                T::slot(&mut self.definitions.state()).error = None;
                Ok(())
            }
        }
    }
}

/// A kind of definition.
pub(crate) trait Definition: Clone + PartialEq + Send + Sync + 'static {
    /// Group and resource.
    const RESOURCE: (&'static str, &'static str);
    /// Name and content of a definition, or why it cannot be read.
    fn read(item: &RawValue) -> Result<(String, Self), String>;
    fn slot(state: &mut State) -> &mut Followed<Self>;
    /// Whether both are the same object, and not two objects of the same name.
    fn is_same(&self, other: &Self) -> bool;
    /// The definition exists again.
    fn back(&self, state: &mut State);
    /// The definition exists; `before` is its known state.
    fn shown(&self, before: Option<&Self>) -> Option<Input>;
    /// The definition is gone; this was its last state.
    fn gone(self, state: &mut State) -> Option<Input>;

    fn see(state: &mut State, read: Result<(String, Self), String>) -> (bool, Vec<Input>) {
        let (name, new) = match read {
            Ok(read) => read,
            Err(why) => {
                Self::slot(state).unreadable = Some(why);
                return (false, Vec::new());
            }
        };
        let old = Self::slot(state).items.insert(name, new.clone());
        let changed = old.as_ref() != Some(&new);
        let shown = new.shown(old.as_ref());
        let replaced = old.filter(|old| !old.is_same(&new)).and_then(|old| old.gone(state));
        new.back(state);
        (changed, replaced.into_iter().chain(shown).collect())
    }

    fn delete(state: &mut State, name: &str, last: Self) -> (bool, Vec<Input>) {
        let before = Self::slot(state).items.remove(name);
        // An event can be older than the last known state. Each of the two may contain data that the other lacks.
        let before = before.and_then(|before| before.gone(state));
        let last = last.gone(state);
        (true, before.or(last).into_iter().collect())
    }

    fn end_list(state: &mut State) -> (bool, Vec<Input>) {
        let slot = Self::slot(state);
        let first = !slot.listed;
        let mut listing = std::mem::take(&mut slot.listing);
        slot.listed = true;
        slot.error = None;
        if slot.unreadable.is_some() {
            for (name, item) in &slot.items {
                listing.entry(name.clone()).or_insert_with(|| item.clone());
            }
        }
        let changed = first || slot.items != listing;
        let before = std::mem::replace(&mut slot.items, listing.clone());
        let shown: Vec<Input> = listing.iter().filter_map(|(name, item)| item.shown(before.get(name))).collect();
        let lost = before.into_iter().filter(|(name, old)| !listing.get(name).is_some_and(|new| new.is_same(old)));
        let inputs = lost.filter_map(|(_, old)| old.gone(state)).chain(shown).collect();
        for item in listing.values() {
            item.back(state);
        }
        (changed, inputs)
    }
}

impl<T> Followed<T> {
    fn begin(&mut self) {
        self.listing.clear();
        self.unreadable = None;
    }

    fn list(&mut self, read: Result<(String, T), String>) {
        match read {
            Ok((name, item)) => drop(self.listing.insert(name, item)),
            Err(why) => self.unreadable = Some(why),
        }
    }
}

/// The part of a CustomResourceDefinition that says which kinds are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crd {
    key: GroupResource,
    uid: Uid,
    kind: String,
    /// Served versions.
    versions: Vec<String>,
    established: bool,
    terminating: bool,
    /// Condition Terminating=False with reason InstanceDeletionCompleted.
    emptied: bool,
}

impl Crd {
    fn says_emptied(&self, standing: bool) -> Option<Input> {
        let (group, kind, crd) = (self.key.group.clone(), Arc::from(self.kind.as_str()), self.uid.clone());
        self.emptied.then_some(Input::KindEmptied { group, kind, crd, standing })
    }

    fn is_served(&self) -> bool {
        self.established && !self.terminating && !self.versions.is_empty()
    }
}

impl Definition for Crd {
    const RESOURCE: (&'static str, &'static str) = ("apiextensions.k8s.io", "customresourcedefinitions");

    fn read(item: &RawValue) -> Result<(String, Crd), String> {
        let raw: RawCrd = serde_json::from_str(item.get())
            .map_err(|error| format!("cannot read a custom resource definition: {error}"))?;
        let name = raw.metadata.name;
        let Some(uid) = Uid::parse(&raw.metadata.uid) else {
            return Err(format!("the custom resource definition {name:?} has no uid"));
        };
        // Accepted names are served. Another definition may already have the requested names.
        let names = raw.status.accepted_names.filter(|names| !names.plural.is_empty()).unwrap_or(raw.spec.names);
        let conditions = raw.status.conditions.unwrap_or_default();
        let has = |kind: &str, status: &str, reason: Option<&str>| {
            conditions.iter().any(|condition| {
                condition.kind == kind
                    && condition.status == status
                    && reason.is_none_or(|reason| condition.reason == reason)
            })
        };
        let versions = raw.spec.versions.into_iter().filter(|version| version.served).map(|version| version.name);
        let crd = Crd {
            key: GroupResource { group: Arc::from(raw.spec.group), resource: Arc::from(names.plural) },
            uid,
            kind: names.kind,
            versions: versions.collect(),
            established: has("Established", "True", None),
            terminating: raw.metadata.deletion_timestamp.is_some(),
            emptied: has("Terminating", "False", Some("InstanceDeletionCompleted")),
        };
        Ok((name, crd))
    }

    fn slot(state: &mut State) -> &mut Followed<Crd> {
        &mut state.crds
    }

    fn is_same(&self, other: &Crd) -> bool {
        self.uid == other.uid
    }

    fn back(&self, state: &mut State) {
        state.deleted.remove(&self.key);
    }

    fn shown(&self, before: Option<&Crd>) -> Option<Input> {
        let is_news = !before.is_some_and(|before| before.emptied && before.is_same(self));
        self.says_emptied(true).filter(|_| is_news)
    }

    fn gone(self, state: &mut State) -> Option<Input> {
        let emptied = self.says_emptied(false);
        state.deleted.insert(self.key);
        emptied
    }
}

/// An APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    group: Name,
    version: Name,
    /// An aggregated API server answers.
    aggregated: bool,
    available: bool,
}

impl Definition for Service {
    const RESOURCE: (&'static str, &'static str) = ("apiregistration.k8s.io", "apiservices");

    fn read(item: &RawValue) -> Result<(String, Service), String> {
        let raw: RawService =
            serde_json::from_str(item.get()).map_err(|error| format!("cannot read an APIService: {error}"))?;
        let conditions = raw.status.conditions.unwrap_or_default();
        let service = Service {
            group: Arc::from(raw.spec.group.unwrap_or_default()),
            version: Arc::from(raw.spec.version.unwrap_or_default()),
            aggregated: raw.spec.service.is_some(),
            available: conditions.iter().any(|condition| condition.kind == "Available" && condition.status == "True"),
        };
        Ok((raw.metadata.name, service))
    }

    fn slot(state: &mut State) -> &mut Followed<Service> {
        &mut state.services
    }

    fn is_same(&self, other: &Service) -> bool {
        self.group == other.group && self.version == other.version
    }

    fn back(&self, state: &mut State) {
        state.withdrawn.remove(&(self.group.clone(), self.version.clone()));
    }

    fn shown(&self, _: Option<&Service>) -> Option<Input> {
        None
    }

    fn gone(self, state: &mut State) -> Option<Input> {
        state.withdrawn.insert((self.group, self.version));
        None
    }
}

#[derive(Deserialize)]
struct RawCrd {
    metadata: RawMetadata,
    spec: RawCrdSpec,
    #[serde(default)]
    status: RawCrdStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    name: String,
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct RawCrdSpec {
    group: String,
    names: RawNames,
    versions: Vec<RawVersion>,
}

#[derive(Deserialize)]
struct RawNames {
    #[serde(default)]
    plural: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct RawVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawCrdStatus {
    accepted_names: Option<RawNames>,
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}

#[derive(Deserialize)]
struct RawService {
    metadata: RawMetadata,
    #[serde(default)]
    spec: RawServiceSpec,
    #[serde(default)]
    status: RawServiceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawServiceSpec {
    group: Option<String>,
    version: Option<String>,
    service: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawServiceStatus {
    conditions: Option<Vec<RawCondition>>,
}
