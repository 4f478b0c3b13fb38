//! Compares the API server's own watch with the oracle.

use super::oracle::Sight;
use super::users::{FAMILY, Shared};
use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use std::fmt::Debug;
use tokio::time::Instant;

/// Follows all objects of a kind that belong to families, until it is dropped.
pub(super) async fn follow<K>(client: Client, shared: Shared) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client);
    let list = api.list_metadata(&ListParams::default().labels(FAMILY)).await.context("listing families")?;
    let mut version = list.metadata.resource_version.unwrap_or_default();
    loop {
        let params = WatchParams::default().labels(FAMILY);
        let mut events = api.watch_metadata(&params, &version).await.context("watching families")?.boxed();
        // The server ends a watch after some minutes. The watch then continues at its position.
        while let Some(event) = events.try_next().await.context("watching families")? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    shared.oracle().seen(&sight(&object), Instant::now());
                    version = object.metadata.resource_version.unwrap_or(version);
                }
                WatchEvent::Deleted(object) => {
                    shared.oracle().deleted(&sight(&object), Instant::now());
                    version = object.metadata.resource_version.unwrap_or(version);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(error) => bail!("watching families: {error}"),
            }
        }
    }
}

fn sight<K: Resource<DynamicType = ()>>(object: &PartialObjectMeta<K>) -> Sight {
    let metadata = &object.metadata;
    let owners = metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect();
    Sight {
        uid: metadata.uid.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        owners,
        going: metadata.deletion_timestamp.is_some(),
    }
}
