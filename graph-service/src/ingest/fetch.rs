//! Reads the discovery documents: two requests with aggregated discovery, else one more for each version.

use super::Clients;
use super::request;
use futures::future;
use kube_api::discovery::{self, Answer, Document, Group, Version};
use kube_api::media;
use kube_api::path::{is_path_segment, version_path};
use std::time::Duration;
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// Most versions to read from a server without aggregated discovery.
const VERSIONS_MAX: usize = 2_000;

/// Most stale versions to read one by one.
const STALE_MAX: usize = 64;
/// Time for all of them, at once: a dead backend must not delay the others.
const STALE_WITHIN: Duration = Duration::from_secs(2);

/// The core group and all others as one document. The error names the failed request.
pub(crate) async fn document(clients: &Clients) -> Result<Document, String> {
    let (core, groups) = future::try_join(answer(clients, "/api"), answer(clients, "/apis")).await?;
    let mut document = Document::default();
    let mut versions = 0;
    for (path, answer) in [("/api", core), ("/apis", groups)] {
        let groups = match answer {
            Answer::Aggregated(part) => {
                document.groups.extend(part.groups);
                document.incomplete = document.incomplete.or(part.incomplete);
                continue;
            }
            Answer::CoreVersions(versions) => vec![(String::new(), versions)],
            Answer::GroupVersions(groups) => groups,
        };
        if groups.is_empty() {
            document.incomplete = Some(format!("{path} is empty"));
        }
        for (name, served) in groups {
            versions += served.len();
            if versions > VERSIONS_MAX {
                document.incomplete = Some(format!("{path} shows more than {VERSIONS_MAX} versions"));
                break;
            }
            document.groups.push(group(clients, name, served).await);
        }
    }
    freshen(clients, &mut document).await;
    Ok(document)
}

/// Reads stale versions directly. After an outage, the aggregated document can list a group as stale for minutes after
/// its return.
async fn freshen(clients: &Clients, document: &mut Document) {
    let stale = document.groups.iter_mut().flat_map(|group| {
        let Group { name, versions, .. } = group;
        let name = name.as_str();
        versions.iter_mut().filter(|version| !version.fresh).map(move |version| (name, version))
    });
    let asked = stale.take(STALE_MAX).map(|(group, version)| async move {
        // A version that does not answer stays stale.
        if let Ok(Ok(resources)) = timeout(STALE_WITHIN, resources(clients, group, &version.name)).await {
            version.resources = resources;
            version.fresh = true;
        }
    });
    future::join_all(asked).await;
}

async fn answer(clients: &Clients, path: &str) -> Result<Answer, String> {
    let what = format!("discovery at {path}");
    let body = request::get(clients, &what, path, media::DISCOVERY).await.map_err(|failure| failure.sentence)?;
    discovery::answer(&body).map_err(|why| format!("{what}: the answer {why}"))
}

/// Errors of a group affect only that group.
async fn group(clients: &Clients, name: String, served: Vec<String>) -> Group {
    let mut group = Group { name, versions: Vec::new(), suspect: None };
    for version in served {
        match resources(clients, &group.name, &version).await {
            Ok(resources) => group.versions.push(Version { name: version, fresh: true, resources }),
            Err(why) => group.suspect = Some(why),
        }
    }
    group
}

async fn resources(clients: &Clients, group: &str, version: &str) -> Result<Vec<discovery::Resource>, String> {
    let path = version_path(group, version);
    let what = format!("discovery at {path}");
    if !(group.is_empty() || is_path_segment(group)) || !is_path_segment(version) {
        return Err(format!("{what}: not a valid group and version"));
    }
    let body = request::get(clients, &what, &path, media::JSON).await.map_err(|failure| failure.sentence)?;
    discovery::resources(&body).map_err(|why| format!("{what}: the answer {why}"))
}
