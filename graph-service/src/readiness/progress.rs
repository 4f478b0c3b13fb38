//! Shows the progress of the start on a terminal.

use super::Health;
use crate::ingest;
use engine::coverage::State;
use engine::view::CollectionStatus;
use runtime::shutdown::Shutdown;
use runtime::terminal::StatusLine;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Interval of updates.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shows the progress until the service is ready, or has to stop.
pub(crate) async fn show(health: Arc<Health>, shutdown: Shutdown) -> anyhow::Result<()> {
    let line = StatusLine::begin();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !health.is_ready() {
        line.say(health.progress());
        tokio::select! {
            _ = looks.tick() => {}
            () = shutdown.requested() => break,
        }
    }
    Ok(())
}

/// The number of synced collections and objects, and the largest collection that is still listing.
pub(crate) fn sentence(discovery: &ingest::Status, collections: &[CollectionStatus]) -> String {
    if !discovery.discovered {
        let why = discovery.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        return format!("reading discovery of the API server{why}");
    }
    let listing = |collection: &&CollectionStatus| collection.state == State::Listing;
    let left: Vec<&CollectionStatus> = collections.iter().filter(listing).collect();
    let objects: usize = collections.iter().map(|collection| collection.objects).sum();
    let mut text =
        format!("{} of {} collections, {objects} objects", collections.len() - left.len(), collections.len());
    let largest = left.iter().max_by_key(|collection| collection.objects).filter(|collection| collection.objects > 0);
    if let Some(CollectionStatus { kind, objects, .. }) = largest {
        text.push_str(&format!("; {}: {objects} so far", kind.group_resource));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{CollectionStatus, State, ingest, sentence};
    use engine::object::{Access, Backend, GroupResource, ServedKind};
    use engine::time::Time;

    fn collection(resource: &str, state: State, objects: usize) -> CollectionStatus {
        CollectionStatus {
            kind: ServedKind {
                group_resource: GroupResource { group: "".into(), resource: resource.into() },
                kind: "Kind".into(),
                version: "v1".into(),
                other_versions: Vec::new(),
                split: false,
                namespaced: true,
                access: Access::Watched,
                backend: Backend::Main,
                deletable: true,
                names: Default::default(),
            },
            state,
            position: None,
            objects,
            error: String::new(),
            since: Time::ZERO,
            progress: None,
            kept_apart: false,
            inconsistent: None,
        }
    }

    #[test]
    fn names_what_is_there_and_what_takes_longest() {
        let asked = ingest::Status { error: Some("connection refused".to_owned()), ..ingest::Status::default() };
        assert_eq!(sentence(&asked, &[]), "reading discovery of the API server: connection refused");
        let discovered = ingest::Status { discovered: true, ..ingest::Status::default() };
        let pods = collection("pods", State::Listing, 500);
        let secrets = collection("secrets", State::Synced, 7);
        assert_eq!(
            sentence(&discovered, &[pods, secrets.clone()]),
            "1 of 2 collections, 507 objects; pods: 500 so far"
        );
        assert_eq!(sentence(&discovered, &[secrets]), "1 of 1 collections, 7 objects");
    }
}
