//! Follows Pause objects in full, and reads them consistently. A read finds the existing pauses, or proves that there
//! can be none.

use super::Clients;
use super::follow::{Halt, Sink, Step};
use super::request::{self, Failure};
use crate::messages::Control;
use crate::pauses::resource::{self, Seen, Sight};
use crate::pauses::{DEFINITION, PATH};
use engine::hold::{PAUSES_MAX, Pause};
use engine::leader::{Input, PauseAnswer, PauseList, PauseRead};
use engine::object::{GroupResource, ResourceVersion};
use kube_api::metadata::{self, Encoding, Item};
use kube_api::path::{collection_path, name_selector};
use kube_api::{Answer, media};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// Maximum number of waiting reads. A newer read supersedes the older ones.
pub(super) const QUEUE_MAX: usize = 16;
/// Time for all requests of one read: three, of up to five seconds each.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// Whether this is the collection of pauses.
pub(super) fn is_pauses(collection: &GroupResource) -> bool {
    *collection.group == *engine::hold::GROUP && *collection.resource == *crate::pauses::RESOURCE
}

/// Sends pauses to the engine, before all other facts.
#[derive(Debug)]
pub(super) struct Follower {
    clients: Clients,
    control: mpsc::Sender<Control>,
    /// The content of the current list.
    listing: Vec<Pause>,
    /// The time of the API server when the first pause of the list arrived.
    sight: Option<Sight>,
    more: bool,
}

impl Follower {
    pub(super) fn new(clients: Clients, control: mpsc::Sender<Control>) -> Follower {
        Follower { clients, control, listing: Vec::new(), sight: None, more: false }
    }

    async fn send(&self, input: Input) -> Result<(), Halt> {
        self.control.send(Control::Input(input)).await.map_err(|_| Halt::Closed)
    }

    async fn listed(&mut self, item: Item<'_>) {
        let sight = match self.sight {
            Some(sight) => sight,
            None => Sight::Found { now: now(&self.clients).await },
        };
        self.sight = Some(sight);
        match read(item, sight) {
            Ok(Seen::Standing(pause)) if self.listing.len() < PAUSES_MAX => self.listing.push(pause),
            Ok(Seen::Standing(_)) => self.more = true,
            Ok(Seen::Leaving { .. }) => {}
            Err(why) => {
                tracing::warn!(why, "a Pause object cannot be read; it holds all deletions");
                self.more = true;
            }
        }
    }
}

impl Sink for Follower {
    async fn take(&mut self, step: Step<'_>) -> Result<(), Halt> {
        match step {
            Step::ListBegun => {
                self.listing.clear();
                self.sight = None;
                self.more = false;
                Ok(())
            }
            Step::Listed(item) => {
                self.listed(item).await;
                Ok(())
            }
            Step::ListEnded(position) => {
                let pauses = std::mem::take(&mut self.listing);
                self.send(Input::PausesListed(PauseList { position, pauses, more: self.more })).await
            }
            Step::Seen(item) => match read(item, Sight::Fresh) {
                Ok(Seen::Standing(pause)) => self.send(Input::PauseSeen(pause)).await,
                Ok(Seen::Leaving { name, uid }) => self.send(Input::PauseGone { name: Arc::from(name), uid }).await,
                Err(why) => Err(Halt::Relist(why)),
            },
            Step::Deleted(item) => match read(item, Sight::Fresh) {
                Ok(Seen::Standing(Pause { name, uid, .. })) => self.send(Input::PauseGone { name, uid }).await,
                Ok(Seen::Leaving { name, uid }) => self.send(Input::PauseGone { name: Arc::from(name), uid }).await,
                Err(why) => Err(Halt::Relist(why)),
            },
            Step::Bookmark(position) => self.send(Input::PausesFollowed { position: Some(position) }).await,
            Step::WatchResumed => self.send(Input::PausesFollowed { position: None }).await,
            Step::ListFailed(failure) | Step::WatchLost(_, failure) => {
                self.send(Input::PausesLost { error: failure.sentence.clone() }).await
            }
        }
    }
}

/// Pauses are requested in full, and therefore as JSON.
fn read(item: Item<'_>, sight: Sight) -> Result<Seen, String> {
    resource::read(item.json()?.get(), sight)
}

/// The time of the API server, if known.
async fn now(clients: &Clients) -> Option<Duration> {
    let (what, uri) = (format!("list {DEFINITION}"), format!("{PATH}?limit=1"));
    let asking = request::answer(clients, &what, &uri, media::JSON);
    resource::date(&timeout(READ_WITHIN, asking).await.ok()?.ok()?)
}

/// Answers the engine's reads. A newer read replaces the current one.
pub(super) async fn answer(
    clients: Clients,
    mut questions: mpsc::Receiver<PauseRead>,
    control: mpsc::Sender<Control>,
) -> anyhow::Result<()> {
    let mut next = questions.recv().await;
    while let Some(read) = next.take() {
        tokio::select! {
            biased;
            newer = questions.recv() => next = newer,
            answer = timeout(READ_WITHIN, read_all(&clients)) => {
                let too_late = |_| Err(format!("pauses: no answer within {} s", READ_WITHIN.as_secs()));
                let answer = answer.unwrap_or_else(too_late);
                if control.send(Control::Input(Input::PausesRead { read, answer })).await.is_err() {
                    return Ok(());
                }
                next = questions.recv().await;
            }
        }
    }
    Ok(())
}

/// Finds the existing pauses. Only a list of pauses proves their set, or a list of definitions without the definition
/// of pauses. A 404 proves nothing, because it may come from a server that has not loaded its definitions yet.
async fn read_all(clients: &Clients) -> Result<PauseAnswer, String> {
    let what = format!("list {DEFINITION}");
    let uri = format!("{PATH}?limit={}", PAUSES_MAX + 1);
    let unserved = match request::answer(clients, &what, &uri, media::JSON).await {
        Ok(answer) => return list(&answer).map(PauseAnswer::Served).map_err(|why| format!("{what}: the answer {why}")),
        Err(failure) if failure.status == Some(404) => failure,
        Err(failure) => return Err(failure.sentence),
    };
    let what = format!("list the definition {DEFINITION}");
    let definitions = collection_path("apiextensions.k8s.io", "v1", "customresourcedefinitions", "");
    let uri = format!("{definitions}?fieldSelector={}&limit=1", name_selector(DEFINITION));
    match request::get(clients, &what, &uri, media::JSON).await {
        Ok(body) => {
            let mut page = metadata::page(Encoding::Json, &body).map_err(|why| format!("{what}: the answer {why}"))?;
            // A server without field selectors would return other definitions.
            if page.items.next().is_none() && page.continues.is_none() {
                return Ok(PauseAnswer::NotServed);
            }
            Err(format!("{DEFINITION} is defined, but not served: {}", unserved.sentence))
        }
        Err(failure) if failure.status == Some(404) => no_definitions(clients, &failure).await,
        Err(failure) => Err(failure.sentence),
    }
}

/// A server whose complete discovery has neither pauses nor definitions has no pauses.
async fn no_definitions(clients: &Clients, failure: &Failure) -> Result<PauseAnswer, String> {
    let body = request::get(clients, "list API groups", "/apis", media::JSON).await.map_err(|other| other.sentence)?;
    let groups: Groups = serde_json::from_slice(&body).map_err(|_| failure.sentence.clone())?;
    let serves = |name: &str| groups.groups.iter().any(|group| group.name == name);
    if groups.kind == "APIGroupList" && !serves("apiextensions.k8s.io") && !serves(engine::hold::GROUP) {
        return Ok(PauseAnswer::NotServed);
    }
    Err(failure.sentence.clone())
}

fn list(answer: &Answer) -> Result<PauseList, String> {
    let page = request::page(answer)?;
    if page.resource_version.is_empty() {
        return Err("has no resourceVersion".to_owned());
    }
    let now = resource::date(answer);
    let mut list = PauseList {
        position: ResourceVersion::parse(&page.resource_version),
        pauses: Vec::new(),
        more: page.continues.is_some(),
    };
    for item in page.items {
        match read(item, Sight::Found { now })? {
            Seen::Standing(pause) if list.pauses.len() < PAUSES_MAX => list.pauses.push(pause),
            Seen::Standing(_) => list.more = true,
            Seen::Leaving { .. } => {}
        }
    }
    Ok(list)
}

#[derive(Deserialize)]
struct Groups {
    kind: String,
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
}
