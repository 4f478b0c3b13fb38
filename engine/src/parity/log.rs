//! Recent requests of the audit log, by object.

use super::audited::{Audited, AuditedVerb};
use super::change::{Author, Change};
use super::class::Actor;
use super::{SETTLED_WITHIN, WAIT_MAX};
use crate::object::{GroupResource, Name, ObjectRef};
use crate::time::Time;
use crate::work::ActionKind;
use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use core::time::Duration;

/// Maximum number of remembered requests.
const REQUESTS_MAX: usize = 16_384;
/// The time for which a request is remembered: the longest wait of a change, and what separates the two.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(SETTLED_WITHIN.as_secs() + APART_MAX.as_secs());
/// The maximum time by which a request that changed an object precedes or follows its change in the watch.
const APART_MAX: Duration = Duration::from_secs(30);
/// A request that is this much later than a change in the log shows that the log has reached the change.
const LATER: Duration = Duration::from_secs(1);
/// Maximum number of objects with a refused request.
const REFUSALS_MAX: usize = 16_384;
/// The time for which a refusal is remembered: the longest wait of a decision.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(WAIT_MAX.as_secs() + APART_MAX.as_secs());

/// A place that requests name: a collection, a namespace and a name. The name of a deletion of a collection is empty.
type Place = (GroupResource, Name, Name);

#[derive(Debug, Default)]
pub(crate) struct Log {
    requests: BTreeMap<Place, VecDeque<Request>>,
    /// The places of all requests, in the order of the log.
    order: VecDeque<(Time, Place)>,
    /// The last refusal of a request of the other collector.
    refusals: BTreeMap<Place, Time>,
    refused: VecDeque<(Time, Place)>,
    /// The time of the latest request.
    latest: Option<Time>,
}

#[derive(Debug)]
struct Request {
    audited: Box<Audited>,
    /// A change belongs to it. A deletion of a collection has many.
    used: bool,
}

impl Log {
    /// Whether there was a request.
    pub(super) fn is_fed(&self) -> bool {
        self.latest.is_some()
    }

    /// Forgets the requests of a history that is void.
    pub(super) fn forget(&mut self) {
        *self = Log { latest: self.latest, ..Log::default() };
    }

    pub(crate) fn put(&mut self, now: Time, audited: Box<Audited>) {
        self.latest = self.latest.max(Some(audited.at));
        let place = (audited.collection.clone(), audited.namespace.clone(), audited.name.clone());
        let at = audited.at;
        if audited.status >= 400 {
            // A collector expects an object that is gone or has changed.
            if audited.by_collector && !matches!(audited.status, 404 | 409) {
                self.refuse(now, at, place);
            }
            return;
        }
        if !(200..300).contains(&audited.status) {
            return;
        }
        while self.order.front().is_some_and(|(at, _)| now.since(*at) > REQUEST_AGE_MAX)
            || self.order.len() >= REQUESTS_MAX
        {
            self.drop_first();
        }
        self.order.push_back((at, place.clone()));
        self.requests.entry(place).or_default().push_back(Request { audited, used: false });
    }

    fn drop_first(&mut self) {
        let Some((_, place)) = self.order.pop_front() else { return };
        if let Entry::Occupied(mut requests) = self.requests.entry(place) {
            requests.get_mut().pop_front();
            if requests.get().is_empty() {
                requests.remove();
            }
        }
    }

    fn refuse(&mut self, now: Time, at: Time, place: Place) {
        while self.refused.front().is_some_and(|(at, _)| now.since(*at) > REFUSAL_AGE_MAX)
            || self.refused.len() >= REFUSALS_MAX
        {
            let Some((at, place)) = self.refused.pop_front() else { break };
            if self.refusals.get(&place) == Some(&at) {
                self.refusals.remove(&place);
            }
        }
        self.refused.push_back((at, place.clone()));
        self.refusals.insert(place, at);
    }

    /// Takes the request that made a change: the unused one with the same version, if the log has versions, else the
    /// one that is nearest in time. A deletion of the object goes before one of its collection. The nearest one is
    /// known once the log has a later request, or on the last try.
    pub(crate) fn take(&mut self, change: &Change, is_last: bool) -> Option<Author> {
        let is_past = is_last || self.latest.is_some_and(|latest| latest >= change.at + LATER);
        let target = &change.target;
        let (collection, none) = (target.group_resource(), Name::from(""));
        let is_deletion = change.deed.action == ActionKind::Delete;
        let is_finalizer = change.deed.action == ActionKind::RemoveFinalizer;
        let mut places = vec![(collection.clone(), target.namespace.clone(), target.name.clone())];
        if is_deletion {
            places.push((collection.clone(), target.namespace.clone(), none.clone()));
            if !target.namespace.is_empty() {
                places.push((collection, none.clone(), none));
            }
        }
        let fits = |Request { audited, used }: &Request| {
            let apart = audited.at.since(change.at).max(change.at.since(audited.at));
            if apart > APART_MAX {
                return None;
            }
            if audited.verb == AuditedVerb::DeleteCollection {
                return (is_deletion && is_past).then_some((1, apart));
            }
            if *used || audited.uid.as_ref().is_some_and(|uid| *uid != target.uid) {
                return None;
            }
            // The answer to a deletion that finishes at once has no version.
            let versions = audited.resource_version.as_ref().zip(change.version.as_ref());
            match (audited.verb, versions) {
                // The removal of the last finalizer answers with the version before it.
                (AuditedVerb::Change, Some((one, other))) if is_finalizer => {
                    (one == other || change.before.as_ref() == Some(one)).then_some((0, apart))
                }
                // Another deletion in background removes the finalizers of the first one.
                (AuditedVerb::Delete, Some((one, other))) if is_finalizer => (one == other).then_some((0, apart)),
                (AuditedVerb::Delete | AuditedVerb::Change, None) if is_finalizer && is_past => Some((0, apart)),
                // A later request may answer with the same version. The first one made it.
                (AuditedVerb::Delete, Some((one, other))) if is_deletion && one == other => {
                    Some((0, audited.at.since(Time::ZERO)))
                }
                // One deletion of a pod marks it, and answers with the version that is deleted.
                (AuditedVerb::Delete, Some((one, other))) if is_deletion && other.is_before(one) => {
                    is_past.then_some((1, apart))
                }
                (AuditedVerb::Change, Some((one, other))) if !is_deletion => {
                    (one == other).then_some((0, audited.at.since(Time::ZERO)))
                }
                (AuditedVerb::Delete, None) if is_deletion && is_past => Some((0, apart)),
                (AuditedVerb::Change, None) if !is_deletion && is_past => Some((0, apart)),
                (AuditedVerb::Delete | AuditedVerb::DeleteCollection | AuditedVerb::Change, _) => None,
            }
        };
        let requests = |place| self.requests.get(place).into_iter().flatten().enumerate();
        let fitting =
            places.iter().flat_map(|place| requests(place).map(move |(at, request)| (fits(request), place, at)));
        let (_, place, at) = fitting.filter_map(|(fit, place, at)| Some((fit?, place, at))).min()?;
        let request = self.requests.get_mut(place)?.get_mut(at)?;
        request.used = true;
        let Audited { verb, by_collector, user, id, .. } = &*request.audited;
        let actor = if *by_collector { Actor::Collector } else { Actor::Other };
        Some(Author { actor, verb: *verb, user: user.clone(), id: id.clone() })
    }

    /// Whether the API server refused a request of the other collector to this object since a decision.
    pub(crate) fn was_refused(&self, target: &ObjectRef, since: Time) -> bool {
        let place = (target.group_resource(), target.namespace.clone(), target.name.clone());
        self.refusals.get(&place).is_some_and(|at| since.since(*at) <= APART_MAX)
    }
}
