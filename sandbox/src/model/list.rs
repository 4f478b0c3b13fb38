//! Lists in pages, at the current or an earlier revision, and changes after a revision.

use std::ops::Bound;
use std::sync::Arc;

use super::Model;
use super::error::{ApiError, Cause, Reason};
use super::kinds::GroupResource;
use super::metadata::Object;
use super::select::Selector;
use super::store::{Collection, Event, ObjectKey};

/// The parameters of a list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// One namespace, or all.
    pub namespace: Option<String>,
    pub selector: Selector,
    /// Items on one page; 0 is no limit.
    pub limit: usize,
    /// The end of the previous page.
    pub from: Option<Position>,
    /// List the state at exactly this revision.
    pub at: Option<u64>,
}

/// The end of a page. The next page continues after it, at the same revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub revision: u64,
    pub after: ObjectKey,
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// The revision of the whole list.
    pub revision: u64,
    pub items: Vec<Arc<Object>>,
    /// Set if there are more pages.
    pub next: Option<Position>,
    /// The number of remaining items; unknown with a selector.
    pub remaining: Option<usize>,
}

impl Position {
    /// The `continue` token.
    pub fn token(&self) -> String {
        format!("{}.{}/{}", self.revision, self.after.namespace, self.after.name)
    }

    /// # Errors
    /// 400 for an invalid token.
    pub fn parse(token: &str) -> Result<Self, ApiError> {
        let parse = || {
            let (revision, key) = token.split_once('.')?;
            let (namespace, name) = key.split_once('/')?;
            Some(Self { revision: revision.parse().ok()?, after: ObjectKey::new(namespace, name) })
        };
        parse().ok_or_else(|| ApiError::bad_request("invalid continue token: continue key is not valid"))
    }
}

impl Model {
    /// Lists a collection.
    ///
    /// # Errors
    /// 404 for a type that is not served, 410 for a revision without history, 504 for a future revision.
    pub fn list(&self, resource: &GroupResource, query: &ListQuery) -> Result<Page, ApiError> {
        self.served(resource)?;
        let nothing = Collection::default();
        let collection = self.store.collection(resource).unwrap_or(&nothing);
        let now = self.revision();
        let revision = query.from.as_ref().map(|from| from.revision).or(query.at).unwrap_or(now);
        if revision > now {
            return Err(too_large(revision, now));
        }
        let narrow = revision == now && query.from.is_none();
        if let (true, Some(namespace), Some(name)) = (narrow, &query.namespace, query.selector.only_name()) {
            let found = collection.objects.get(&ObjectKey::new(namespace, name));
            let items = found.filter(|object| query.selector.matches(object)).cloned().into_iter().collect();
            return Ok(Page { revision, items, next: None, remaining: None });
        }
        let mut objects = objects_at(collection, query, revision, now).map_err(|error| continued(query, error))?;
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let mut items = Vec::new();
        let mut last = None;
        for (key, object) in objects.by_ref() {
            if !query.selector.matches(object) {
                continue;
            }
            if items.len() < limit {
                items.push(Arc::clone(object));
                last = Some(key);
                continue;
            }
            let after = last.cloned().unwrap_or_else(|| key.clone());
            let remaining = if !query.selector.is_empty() {
                None
            } else if narrow && query.namespace.is_none() {
                Some(collection.objects.len() - items.len())
            } else {
                Some(objects.count() + 1)
            };
            return Ok(Page { revision, items, next: Some(Position { revision, after }), remaining });
        }
        Ok(Page { revision, items, next: None, remaining: None })
    }

    /// # Errors
    /// 504 for a future revision.
    pub(crate) fn check_reached(&self, revision: u64) -> Result<(), ApiError> {
        let now = self.revision();
        if revision > now { Err(too_large(revision, now)) } else { Ok(()) }
    }

    /// The changes of a collection after a revision, oldest first, at most `max`, in one namespace or in all.
    ///
    /// # Errors
    /// 404 for a type that is not served, 410 if changes after the revision have been compacted.
    pub fn events_since(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        revision: u64,
        max: usize,
    ) -> Result<Vec<Arc<Event>>, ApiError> {
        self.served(resource)?;
        let Some(collection) = self.store.collection(resource) else { return Ok(Vec::new()) };
        let mut events = collection.changes_after(revision, max)?;
        if let Some(namespace) = namespace {
            events.retain(|event| event.key.namespace == namespace);
        }
        Ok(events)
    }

    /// The changes in all namespaces, with the revision up to which the answer is complete. The last changes of a type
    /// that is no longer served remain readable.
    pub(crate) fn changes(
        &self,
        resource: &GroupResource,
        revision: u64,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), ApiError> {
        let events = match self.events_since(resource, None, revision, max) {
            Ok(events) => events,
            Err(error) => {
                let events = self.store.last_changes(resource, revision, max);
                let through = events.last().ok_or(error)?.revision;
                return Ok((events, through));
            }
        };
        let full = events.len() == max;
        let through = events.last().filter(|_| full).map_or(self.revision().max(revision), |event| event.revision);
        Ok((events, through))
    }
}

/// A token without history has another message than a watch without history.
fn continued(query: &ListQuery, error: ApiError) -> ApiError {
    if query.from.is_none() {
        return error;
    }
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter.",
    )
}

fn too_large(revision: u64, now: u64) -> ApiError {
    let message = format!("Timeout: Too large resource version: {revision}, current: {now}");
    let mut error = ApiError::new(Reason::TooLargeResourceVersion, message);
    error.details.causes = vec![Cause {
        reason: "ResourceVersionTooLarge",
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }];
    error
}

type Entry<'a> = (&'a ObjectKey, &'a Arc<Object>);

/// The objects after the query's position at a revision, in key order.
fn objects_at<'a>(
    collection: &'a Collection,
    query: &'a ListQuery,
    revision: u64,
    now: u64,
) -> Result<Box<dyn Iterator<Item = Entry<'a>> + 'a>, ApiError> {
    let namespace = query.namespace.as_deref();
    let inside = move |key: &ObjectKey| namespace.is_none_or(|namespace| key.namespace == namespace);
    let behind = query.from.as_ref().map_or_else(
        || namespace.map_or(Bound::Unbounded, |namespace| Bound::Included(ObjectKey::new(namespace, ""))),
        |from| Bound::Excluded(from.after.clone()),
    );
    let current = collection.objects.range((behind.clone(), Bound::Unbounded)).take_while(move |(key, _)| inside(key));
    if revision == now {
        return Ok(Box::new(current));
    }
    // Both inputs are in key order. If both have a key, the earlier state wins.
    let before = |key: &ObjectKey| match &behind {
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
        Bound::Unbounded => false,
    };
    let changed = collection.undo_to(revision)?;
    let changed: Vec<_> = changed.into_iter().filter(|(key, _)| !before(key) && inside(key)).collect();
    let (mut current, mut changed) = (current.peekable(), changed.into_iter().peekable());
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            let take_current = match (current.peek(), changed.peek()) {
                (Some((present, _)), Some((past, _))) => present < past,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if take_current {
                return current.next();
            }
            let (key, then) = changed.next()?;
            current.next_if(|(present, _)| *present == key);
            if let Some(object) = then {
                return Some((key, object));
            }
        }
    })))
}
