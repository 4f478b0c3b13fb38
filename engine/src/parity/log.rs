//! Recent requests of the audit log, by object.

use super::audited::{Audited, AuditedVerb};
use super::change::Change;
use super::class::Actor;
use crate::object::{Name, ObjectRef, Uid};
use crate::time::Time;
use crate::work::ActionKind;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Maximum number of remembered requests.
const REQUESTS_MAX: usize = 16_384;
/// The time for which a request is remembered.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(120);
/// The maximum time by which a request that changed an object precedes or follows its change in the watch.
const APART_MAX: Duration = Duration::from_secs(30);

/// Requests in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    requests: VecDeque<Request>,
    fed: bool,
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
        self.fed
    }

    /// Forgets the requests of a history that is void.
    pub(super) fn forget(&mut self) {
        self.requests.clear();
    }

    pub(crate) fn put(&mut self, now: Time, audited: Box<Audited>) {
        self.fed = true;
        let drops = |request: &mut Request| now.since(request.audited.at) > REQUEST_AGE_MAX;
        while self.requests.pop_front_if(drops).is_some() {}
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(Request { audited, used: false });
    }

    /// Takes the request that made a change: the unused one with the same version, if the log has versions, else the one
    /// that is nearest in time. A deletion of the object goes before one of its collection.
    pub(crate) fn take(&mut self, change: &Change) -> Option<(Actor, Name, Name)> {
        let fits = |request: &Request| {
            let Request { audited, used } = request;
            let target = &change.target;
            let here = audited.collection.group == target.group && audited.collection.resource == target.resource;
            let apart = audited.at.since(change.at).max(change.at.since(audited.at));
            let accepted = (200..300).contains(&audited.status);
            if !here || !accepted || apart > APART_MAX {
                return None;
            }
            let is_collection = audited.verb == AuditedVerb::DeleteCollection && change.action == ActionKind::Delete;
            if is_collection && (audited.namespace == target.namespace || audited.namespace.is_empty()) {
                return Some((1, apart));
            }
            let is_other = |uid: &Uid| *uid != target.uid;
            let named = audited.namespace == target.namespace && audited.name == target.name;
            if *used || !named || audited.uid.as_ref().is_some_and(is_other) {
                return None;
            }
            let is_deletion = change.action == ActionKind::Delete;
            // The answer to a deletion that finishes at once has no version.
            let versions = audited.resource_version.as_ref().zip(change.version.as_ref());
            match (audited.verb, versions) {
                (AuditedVerb::Delete, Some((one, other))) if is_deletion => (one == other).then_some((0, apart)),
                (AuditedVerb::Delete, None) if is_deletion => Some((0, apart)),
                // The removal of the last finalizer answers with the version before the deletion.
                (AuditedVerb::Change, Some((one, other))) if change.action == ActionKind::RemoveFinalizer => {
                    Some((u8::from(one != other), apart))
                }
                // A later request may answer with the same version. The first one made it.
                (AuditedVerb::Change, Some((one, other))) if !is_deletion => {
                    (one == other).then_some((0, audited.at.since(Time::ZERO)))
                }
                (AuditedVerb::Change, None) if !is_deletion => Some((0, apart)),
                (AuditedVerb::Delete | AuditedVerb::DeleteCollection | AuditedVerb::Change, _) => None,
            }
        };
        let places = self.requests.iter().enumerate();
        let (_, place) = places.filter_map(|(place, request)| Some((fits(request)?, place))).min()?;
        let request = self.requests.get_mut(place)?;
        request.used = true;
        let actor = if request.audited.by_collector { Actor::Collector } else { Actor::Other };
        Some((actor, request.audited.user.clone(), request.audited.id.clone()))
    }

    /// Whether the API server refused a request of the other collector to this object.
    pub(crate) fn was_refused(&self, target: &ObjectRef) -> bool {
        self.requests.iter().any(|Request { audited, .. }| {
            audited.by_collector
                && audited.status >= 400
                && audited.name == target.name
                && audited.namespace == target.namespace
                && audited.collection.resource == target.resource
                && audited.collection.group == target.group
        })
    }
}
