//! Recent requests of the audit log, by object.

use super::audited::{Audited, AuditedVerb};
use super::class::Actor;
use crate::object::{Name, ObjectRef};
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
    at: Time,
    audited: Box<Audited>,
    /// A change belongs to it. A deletion of a collection has many.
    used: bool,
}

impl Log {
    /// Whether there was a request.
    pub(super) fn is_fed(&self) -> bool {
        self.fed
    }

    pub(crate) fn put(&mut self, now: Time, audited: Box<Audited>) {
        self.fed = true;
        let drops = |request: &mut Request| now.since(request.at) > REQUEST_AGE_MAX;
        while self.requests.pop_front_if(drops).is_some() {}
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back(Request { at: now, audited, used: false });
    }

    /// Takes the request that made a change: the first unused one that fits. A deletion of the object goes before one of
    /// its collection. Among changes, a request of the collector goes first, because a log without bodies does not say
    /// what a request changed.
    pub(crate) fn take(&mut self, target: &ObjectRef, action: ActionKind, at: Time) -> Option<(Actor, Name, Name)> {
        let near = |request: &Request| request.at.since(at).max(at.since(request.at)) <= APART_MAX;
        let rank = |request: &Request| {
            let audited = &*request.audited;
            let here = audited.collection.group == target.group
                && audited.collection.resource == target.resource
                && (audited.namespace == target.namespace || (audited.namespace.is_empty() && audited.name.is_empty()));
            let named = audited.name == target.name && audited.uid.as_ref().is_none_or(|uid| *uid == target.uid);
            let accepted = (200..300).contains(&audited.status);
            if !here || !accepted || !near(request) {
                return None;
            }
            match (audited.verb, action) {
                (AuditedVerb::Delete, ActionKind::Delete) if named && !request.used => Some(0),
                (AuditedVerb::DeleteCollection, ActionKind::Delete) if audited.name.is_empty() => Some(1),
                (AuditedVerb::Change, ActionKind::Delete) => None,
                (AuditedVerb::Change, _) if named && !request.used => Some(u8::from(!audited.by_collector)),
                _ => None,
            }
        };
        let places = self.requests.iter().enumerate();
        let (_, place) = places.filter_map(|(place, request)| Some((rank(request)?, place))).min()?;
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
