//! Freshness of answers, and waiting for it.
//!
//! Each replica has its own watches, so freshness is one position for each collection. A collection reaches a position
//! when its watch does, by an event or a bookmark. A quiet collection gets a bookmark only about once a minute. If
//! waiting does not help, the service sends a consistent list of the collection: if the graph shows exactly that list,
//! the graph is as fresh as the list. If the collection is too large to list, the service opens a short watch from the
//! position of the graph: the last bookmark of that watch proves that nothing else has changed. Concurrent calls share
//! one question to the API server.

use super::status;
use crate::driver::Reader;
use crate::ingest::questions::{Questions, Span, Stand, Texts};
use engine::coverage::State;
use engine::object::{GroupResource, ObjectRef, ResourceVersion};
use engine::view::Reached;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use proto::r#type::v1beta1::consistency::Requirement;
use proto::r#type::v1beta1::{Consistency, ConsistencyToken, ResourceVersionBound};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use token::Token;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;

#[cfg(test)]
mod tests;
pub(super) mod token;

/// How long a call waits: default and maximum.
const WAIT_DEFAULT: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a call waits for the watch before the service asks the API server.
const ASK_AFTER: Duration = Duration::from_millis(100);
/// Further time that the call waits before the service opens a short watch.
const WATCH_AFTER: Duration = Duration::from_millis(200);
/// Minimum time between two reads of the graph by one call.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of waiting calls.
const WAITERS_MAX: usize = 1024;
/// Maximum number of bounds of one call.
const BOUNDS_MAX: usize = 1000;
/// Maximum number of concurrent questions to the API server.
const ASKING_MAX: usize = 16;

/// The collections that a call is about.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// Objects of only these collections.
    Collections(BTreeSet<GroupResource>),
    /// Objects of any collection.
    Everything,
}

/// A replica's state of freshness.
pub(crate) struct Freshness {
    reader: Reader,
    ask: Questions,
    cluster_uid: String,
    /// Identifies this process.
    process: u64,
    questions: Mutex<BTreeMap<GroupResource, Arc<Question>>>,
    /// Number of questions that calls have requested. It shows which question was sent after a call.
    asked: AtomicU64,
    asking: Semaphore,
    waiting: Semaphore,
}

impl std::fmt::Debug for Freshness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Freshness").field("process", &self.process).finish_non_exhaustive()
    }
}

/// The last answer about a collection. The holder of the lock asks; the others wait and use the answer.
#[derive(Debug, Default)]
struct Question {
    last: tokio::sync::Mutex<Option<(u64, Answer)>>,
    /// A graph that has reached the second version has everything up to the first.
    settled: tokio::sync::Mutex<Option<(ResourceVersion, ResourceVersion)>>,
}

type Answer = Result<Arc<Stand>, String>;

/// A collection that must reach a bound.
#[derive(Clone, Debug)]
struct Target {
    collection: GroupResource,
    bound: ResourceVersion,
    stand: Option<Arc<Stand>>,
    /// A graph that has reached this version has everything up to `bound`.
    settled: Option<ResourceVersion>,
    asked: bool,
}

/// The progress of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Reached,
    /// Not reached yet.
    Behind(Option<ResourceVersion>),
    /// The position and the bound have no order.
    NotComparable,
    /// The collection has no working list or watch.
    Unsynced,
}

impl Freshness {
    pub(crate) fn new(reader: Reader, cluster_uid: String, ask: Questions) -> Freshness {
        Freshness {
            reader,
            ask,
            cluster_uid,
            // Without random numbers two processes may accept each other's tokens. Bounds are compared nevertheless.
            process: getrandom::u64().unwrap_or_default(),
            questions: Mutex::default(),
            asked: AtomicU64::new(0),
            asking: Semaphore::new(ASKING_MAX),
            waiting: Semaphore::new(WAITERS_MAX),
        }
    }

    /// The positions of all collections, as a token. Call this before reading the answer.
    pub(super) fn now(&self) -> Positions {
        let (histories, positions) = self.reader.with(|queries| (queries.histories(), queries.positions()));
        let cluster_uid = self.cluster_uid.clone();
        Positions { token: Token { cluster_uid, process: self.process, histories, ..Token::default() }, positions }
    }

    /// The labels and annotations of an object, from the API server.
    pub(super) async fn texts(&self, object: ObjectRef) -> Result<Texts, Status> {
        let _turn = self.asking.acquire().await;
        let texts = (self.ask.texts)(object).await.map_err(|why| status::api_server_refuses(&why))?;
        Ok(texts.unwrap_or_default())
    }

    /// Returns when the graph is as fresh as requested.
    pub(super) async fn wait(&self, wanted: Option<Consistency>, about: &About) -> Result<(), Status> {
        let Some(Consistency { requirement: Some(requirement), max_wait }) = wanted else { return Ok(()) };
        let max_wait = match max_wait {
            None => WAIT_DEFAULT,
            Some(wait) => status::duration("consistency.max_wait", wait)?.min(WAIT_MAX),
        };
        let until = Instant::now() + max_wait;
        if let Requirement::MinimizeLatency(true) = requirement {
            return Ok(());
        }
        let _place = self
            .waiting
            .try_acquire()
            .map_err(|_| status::limit_exceeded("calls that wait for freshness", WAITERS_MAX))?;
        match requirement {
            Requirement::MinimizeLatency(_) | Requirement::Latest(false) => {
                Err(status::bad_field("consistency.requirement", "is false; leave out the field instead"))
            }
            Requirement::AtLeastAsFresh(token) => {
                let targets = self.targets_of(&token)?;
                self.reach(targets, until, Given::Token).await
            }
            Requirement::AtLeast(bounds) => {
                let targets = self.targets_at(&bounds.bounds)?;
                self.reach(targets, until, Given::Bound).await
            }
            Requirement::Latest(true) => {
                let targets = self.latest(about, until).await?;
                self.reach(targets, until, Given::Latest).await
            }
        }
    }

    fn targets_of(&self, token: &ConsistencyToken) -> Result<Vec<Target>, Status> {
        let token =
            Token::read(&token.value).ok_or_else(|| status::token_malformed("consistency.at_least_as_fresh"))?;
        if token.cluster_uid != self.cluster_uid {
            return Err(status::token_from_other_cluster(
                "consistency.at_least_as_fresh",
                &self.cluster_uid,
                &token.cluster_uid,
            ));
        }
        let (histories, collections) = self.reader.with(|queries| {
            (queries.histories(), queries.collections().into_iter().map(|status| status.kind.group_resource))
        });
        if token.process == self.process && token.histories != histories {
            return Err(status::token_from_other_history("a store was restored since the token was issued"));
        }
        let known: BTreeMap<u64, GroupResource> = collections.map(|of| (token::digest(&of), of)).collect();
        let target = |(digest, bound): (u64, ResourceVersion)| {
            let collection = known.get(&digest).cloned();
            let unknown = || status::replica_behind("a collection that is not served here", &bound.to_string(), "", "");
            Ok(Target {
                collection: collection.ok_or_else(unknown)?,
                bound: bound.clone(),
                stand: None,
                settled: None,
                asked: false,
            })
        };
        token.bounds().map(target).collect()
    }

    fn targets_at(&self, bounds: &[ResourceVersionBound]) -> Result<Vec<Target>, Status> {
        if bounds.len() > BOUNDS_MAX {
            let why = format!("has {} entries; at most {BOUNDS_MAX}", bounds.len());
            return Err(status::bad_field("consistency.at_least.bounds", &why));
        }
        let target = |bound: &ResourceVersionBound| {
            let field = |why: &str| status::bad_field("consistency.at_least.bounds", why);
            let of = bound.group_resource.as_ref().ok_or_else(|| field("has an entry without a collection"))?;
            let collection = GroupResource { group: of.group.as_str().into(), resource: of.resource.as_str().into() };
            let version = ResourceVersion::parse(&bound.resource_version);
            if !version.is_ordered() {
                return Err(field(&format!("has a resource version for {collection} that is not a decimal number")));
            }
            if self.reader.with(|queries| queries.reached(&collection)).is_none() {
                return Err(field(&format!("names {collection}, which the API server does not serve")));
            }
            Ok(Target { collection, bound: version, stand: None, settled: None, asked: false })
        };
        bounds.iter().map(target).collect()
    }

    /// The current positions of the collections at the API server.
    async fn latest(&self, about: &About, until: Instant) -> Result<Vec<Target>, Status> {
        let collections: Vec<GroupResource> = match about {
            About::Collections(collections) => collections.iter().cloned().collect(),
            About::Everything => {
                let followed = |state: State| match state {
                    State::Listing | State::Synced | State::Stale => true,
                    State::Failed | State::Ignored => false,
                };
                let all = self.reader.with(|queries| queries.collections()).into_iter();
                all.filter(|status| followed(status.state)).map(|status| status.kind.group_resource).collect()
            }
        };
        let asking = collections.into_iter().map(async |collection| {
            let stand = self.stand(&collection, until).await?;
            Ok::<Target, Status>(Target {
                bound: stand.position.clone(),
                collection,
                stand: Some(stand),
                settled: None,
                asked: true,
            })
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        let mut targets = Vec::new();
        while let Some(target) = asking.next().await {
            targets.push(target?);
        }
        Ok(targets)
    }

    async fn reach(&self, mut open: Vec<Target>, until: Instant, given: Given) -> Result<(), Status> {
        if self.reached_by(&mut open, (Instant::now() + ASK_AFTER).min(until)).await? {
            return Ok(());
        }
        self.ask_all(&mut open, until, given).await?;
        if self.reached_by(&mut open, (Instant::now() + WATCH_AFTER).min(until)).await? {
            return Ok(());
        }
        let asked = open.clone();
        let settled = tokio::select! {
            reached = self.reached_by(&mut open, until) => match reached? {
                true => return Ok(()),
                false => Vec::new(),
            },
            settled = self.settle_all(&asked) => settled,
        };
        for target in &mut open {
            let found = settled.iter().find(|(collection, _)| *collection == target.collection);
            target.settled = found.map(|(_, at)| at.clone());
        }
        if self.reached_by(&mut open, until).await? {
            return Ok(());
        }
        let first = open.first().expect("some are not reached");
        Err(self.too_late(first))
    }

    /// Waits until all targets are reached or the time is over. Leaves in `open` those that are not reached.
    async fn reached_by(&self, open: &mut Vec<Target>, until: Instant) -> Result<bool, Status> {
        let mut rounds = self.reader.rounds();
        loop {
            rounds.mark_unchanged();
            let mut refused = None;
            self.reader.with(|queries| {
                open.retain(|target| match progress(target, queries) {
                    Progress::Reached => false,
                    Progress::Behind(_) | Progress::NotComparable => true,
                    Progress::Unsynced => {
                        refused = refused.take().or(Some(target.collection.clone()));
                        true
                    }
                });
            });
            if let Some(collection) = refused {
                return Err(status::collection_unsynced(&collection.to_string()));
            }
            if open.is_empty() || Instant::now() >= until {
                return Ok(open.is_empty());
            }
            tokio::select! {
                // The sender lives as long as the service.
                _ = rounds.changed() => sleep_until((Instant::now() + LOOK_EVERY).min(until)).await,
                () = sleep_until(until) => {}
            }
        }
    }

    /// Finds the positions that prove the bounds of targets, where a short watch can find them.
    async fn settle_all(&self, open: &[Target]) -> Vec<(GroupResource, ResourceVersion)> {
        let asking = open.iter().map(async |target| Some((target.collection.clone(), self.settle(target).await?)));
        join_all(asking).await.into_iter().flatten().collect()
    }

    async fn settle(&self, target: &Target) -> Option<ResourceVersion> {
        let question = self.question(&target.collection);
        let mut known = question.settled.lock().await;
        if let Some((to, at)) = &*known
            && to.reached(&target.bound)
        {
            return Some(at.clone());
        }
        let Reached { version, position, .. } = self.reader.with(|queries| queries.reached(&target.collection))?;
        let from = position.filter(|position| position.is_before(&target.bound))?;
        let _turn = self.asking.acquire().await;
        let (collection, to) = (target.collection.clone(), target.bound.clone());
        // If there is no answer, the call waits for the graph's own watch.
        let at = (self.ask.last)(Span { collection, version, from, to: to.clone() }).await.ok()?;
        *known = Some((to, at.clone()));
        Some(at)
    }

    fn question(&self, collection: &GroupResource) -> Arc<Question> {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(questions.entry(collection.clone()).or_default())
    }

    /// Asks the API server about all targets. A bound beyond the store's position belongs to another history. If the
    /// graph shows the same objects as the store, the graph has reached the bound.
    async fn ask_all(&self, open: &mut [Target], until: Instant, given: Given) -> Result<(), Status> {
        let asking = open.iter_mut().filter(|target| !target.asked).map(async |target| {
            target.asked = true;
            // If there is no answer, the call waits for the watch.
            let Ok(stand) = self.stand(&target.collection, until).await else { return Ok(()) };
            if stand.position.is_before(&target.bound) {
                let (at, collection) = (&stand.position, &target.collection);
                return Err(match given {
                    Given::Token => status::token_from_other_history(&format!("{collection} is now at version {at}")),
                    Given::Bound | Given::Latest => {
                        let note = "; the API server itself has not reached it";
                        status::replica_behind(
                            &collection.to_string(),
                            &target.bound.to_string(),
                            &at.to_string(),
                            note,
                        )
                    }
                });
            }
            target.stand = Some(stand);
            Ok(())
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        while let Some(asked) = asking.next().await {
            asked?;
        }
        Ok(())
    }

    /// The position of a collection, from a question that is sent after this call. Other calls that arrived before the
    /// question share its answer.
    async fn stand(&self, collection: &GroupResource, until: Instant) -> Result<Arc<Stand>, Status> {
        let Some(Reached { version, position, .. }) = self.reader.with(|queries| queries.reached(collection)) else {
            return Err(status::collection_unsynced(&collection.to_string()));
        };
        let question = self.question(collection);
        let arrived = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = async {
            let mut last = question.last.lock().await;
            if let Some((sent, answer)) = &*last
                && *sent > arrived
            {
                return answer.clone();
            }
            let _turn = self.asking.acquire().await;
            let sent = self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = (self.ask.stand)(collection.clone(), version).await.map(Arc::new);
            *last = Some((sent, answer.clone()));
            answer
        };
        match timeout_at(until, answer).await {
            Ok(Ok(stand)) if position.as_ref().is_some_and(|position| stand.position.is_before(position)) => {
                let why =
                    format!("{collection} is now at version {}, which is before its known position", stand.position);
                Err(status::token_from_other_history(&why))
            }
            Ok(Ok(stand)) => Ok(stand),
            Ok(Err(why)) => Err(status::api_server_refuses(&why)),
            Err(_) => {
                let note = "; the API server did not answer in time";
                Err(status::replica_behind(&collection.to_string(), "latest", "", note))
            }
        }
    }

    fn too_late(&self, target: &Target) -> Status {
        let collection = target.collection.to_string();
        match self.reader.with(|queries| progress(target, queries)) {
            Progress::NotComparable => status::not_comparable(&collection),
            Progress::Unsynced => status::collection_unsynced(&collection),
            Progress::Behind(position) => {
                let position = position.map(|position| position.to_string()).unwrap_or_default();
                status::replica_behind(&collection, &target.bound.to_string(), &position, "")
            }
            Progress::Reached => status::replica_behind(&collection, &target.bound.to_string(), "", ""),
        }
    }
}

/// The source of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Token,
    Bound,
    Latest,
}

fn progress(target: &Target, queries: &engine::leader::Queries<'_>) -> Progress {
    let Some(Reached { state, position, .. }) = queries.reached(&target.collection) else { return Progress::Unsynced };
    match state {
        State::Failed | State::Ignored => return Progress::Unsynced,
        State::Listing | State::Synced | State::Stale => {}
    }
    if position.as_ref().is_some_and(|position| position.reached(&target.bound)) {
        return Progress::Reached;
    }
    let settled = position.as_ref().zip(target.settled.as_ref());
    if settled.is_some_and(|(position, settled)| position.reached(settled)) {
        return Progress::Reached;
    }
    let listed = target.stand.as_ref().and_then(|stand| stand.objects.as_ref());
    if position.is_some() && listed.is_some_and(|objects| queries.shows(&target.collection, objects)) {
        return Progress::Reached;
    }
    match position {
        Some(position) if position.compare(&target.bound).is_none() => Progress::NotComparable,
        position => Progress::Behind(position),
    }
}

/// The positions of all collections at one moment.
#[derive(Clone, Debug)]
pub(super) struct Positions {
    token: Token,
    positions: Vec<(GroupResource, ResourceVersion)>,
}

impl Positions {
    /// The token for the collections of a call.
    pub(super) fn token(mut self, about: &About) -> ConsistencyToken {
        for (collection, position) in &self.positions {
            let counts = match about {
                About::Everything => true,
                About::Collections(collections) => collections.contains(collection),
            };
            if counts {
                self.token.put(collection, position);
            }
        }
        ConsistencyToken { value: self.token.write() }
    }
}
