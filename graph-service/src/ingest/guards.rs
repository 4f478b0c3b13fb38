//! Follows the objects of one kind of guards in full, and reads them consistently. A read finds the existing guards, or
//! proves that there can be none.

use super::Clients;
use super::follow::{Halt, Sink, Step};
use super::request::{self, Failure};
use crate::gates::Router;
use crate::gates::router::Configured;
use crate::guards::resource::{self, Seen, Sight, Standing};
use crate::guards::{date, definition, path};
use crate::messages::Control;
use engine::follow::Tell;
use engine::guard::{Guard, GuardId, GuardKind, Rule};
use engine::hold::GUARDS_MAX;
use engine::leader::{GuardAnswer, GuardList, GuardRead, Input};
use engine::object::{GroupResource, Name, ResourceVersion, Uid};
use kube_api::metadata::{self, Encoding, Item};
use kube_api::path::{collection_path, name_selector};
use kube_api::{Answer, media};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

#[cfg(test)]
pub(super) mod tests;

/// Maximum number of waiting reads. A newer read supersedes the older ones.
pub(super) const QUEUE_MAX: usize = 16;
/// Time for all requests of one read: three, of up to five seconds each.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// Time between two requests for the time of the API server after a failure.
const TIME_AGAIN: Duration = Duration::from_secs(5);

/// The kind of guards of this collection, if it is one.
pub(super) fn kind_of(collection: &GroupResource) -> Option<GuardKind> {
    let kind = GuardKind::ALL.into_iter().find(|kind| kind.plural() == &*collection.resource);
    kind.filter(|_| *collection.group == *engine::hold::GROUP)
}

/// Sends guards to the engine, before all other facts.
#[derive(Debug)]
pub(super) struct Follower {
    kind: GuardKind,
    clients: Clients,
    control: mpsc::Sender<Control>,
    gates: Router,
    /// The gates whose policy engine can be asked.
    configured: BTreeMap<Name, Configured>,
    /// The content of the current list.
    listing: Vec<Guard>,
    /// The time of the API server, `None` if it did not state one, and when it was asked for.
    time: Option<(Option<Duration>, Instant)>,
    more: bool,
}

impl Follower {
    pub(super) fn new(kind: GuardKind, clients: Clients, control: mpsc::Sender<Control>, gates: Router) -> Follower {
        Follower {
            kind,
            clients,
            control,
            gates,
            configured: BTreeMap::new(),
            listing: Vec::new(),
            time: None,
            more: false,
        }
    }

    /// The time of the API server, if known. It is asked for once in each list, and again after a failure.
    async fn now(&mut self) -> Option<Duration> {
        let is_usable = |(time, at): &(Option<Duration>, Instant)| time.is_some() || at.elapsed() < TIME_AGAIN;
        let (time, at) = match self.time.filter(is_usable) {
            Some(known) => known,
            None => (now(self.kind, &self.clients).await, Instant::now()),
        };
        self.time = Some((time, at));
        time.map(|time| time + at.elapsed())
    }

    /// Notes the policy engine of a gate. The caller then calls [`Router::configure`].
    fn note(&mut self, standing: Standing) -> Guard {
        let Standing { guard, engine } = standing;
        match (engine, &guard.rule) {
            (Some(transport), Rule::Gate(rule)) => {
                let configured = Configured { transport, rule: rule.clone() };
                self.configured.insert(guard.id.name.clone(), configured);
            }
            (Some(_) | None, _) => {
                self.configured.remove(&guard.id.name);
            }
        }
        guard
    }

    fn configure(&self) {
        if self.kind == GuardKind::Gate {
            self.gates.configure(self.configured.clone());
        }
    }

    async fn seen(&mut self, standing: Standing) -> Result<(), Halt> {
        let guard = self.note(standing);
        self.configure();
        self.send(Input::GuardSeen(guard)).await
    }

    async fn left(&mut self, name: &str, uid: Uid) -> Result<(), Halt> {
        let id = GuardId { kind: self.kind, name: Arc::from(name) };
        self.configured.remove(&id.name);
        self.configure();
        self.send(Input::GuardGone { id, uid }).await
    }

    async fn send(&self, input: Input) -> Result<(), Halt> {
        self.control.send(Control::Input(input)).await.map_err(|_| Halt::Closed)
    }

    async fn listed(&mut self, item: Item<'_>) {
        let now = self.now().await;
        match read(self.kind, item, Sight::Found { now }) {
            Ok(Seen::Standing(standing)) if self.listing.len() < GUARDS_MAX => {
                let guard = self.note(*standing);
                self.listing.push(guard);
            }
            Ok(Seen::Standing(_)) => self.more = true,
            Ok(Seen::Leaving { .. }) => {}
            Err(why) => {
                tracing::warn!(why, kind = self.kind.as_kind(), "a guard cannot be read; all deletions are held");
                self.more = true;
            }
        }
    }
}

impl Sink for Follower {
    async fn take(&mut self, step: Step<'_>) -> Result<(), Halt> {
        match step {
            Step::Told(Tell::ListBegun) => {
                self.listing.clear();
                self.configured.clear();
                self.time = None;
                self.more = false;
                Ok(())
            }
            Step::Listed(item) => {
                self.listed(item).await;
                Ok(())
            }
            Step::Told(Tell::ListEnded(position)) => {
                let guards = std::mem::take(&mut self.listing);
                let list = GuardList { position, guards, more: self.more };
                self.configure();
                self.send(Input::GuardsListed { kind: self.kind, list }).await
            }
            Step::Seen(item) => {
                let now = self.now().await;
                match read(self.kind, item, Sight::Fresh { now }) {
                    Ok(Seen::Standing(standing)) => self.seen(*standing).await,
                    Ok(Seen::Leaving { name, uid }) => self.left(&name, uid).await,
                    Err(why) => Err(Halt::Relist(why)),
                }
            }
            Step::Deleted(item) => match read(self.kind, item, Sight::Fresh { now: None }) {
                Ok(Seen::Standing(standing)) => self.left(&standing.guard.id.name, standing.guard.uid).await,
                Ok(Seen::Leaving { name, uid }) => self.left(&name, uid).await,
                Err(why) => Err(Halt::Relist(why)),
            },
            Step::Told(Tell::Bookmark(position)) => {
                self.send(Input::GuardsFollowed { kind: self.kind, position: Some(position) }).await
            }
            Step::Told(Tell::WatchResumed) => {
                self.send(Input::GuardsFollowed { kind: self.kind, position: None }).await
            }
            Step::Told(Tell::ListFailed(failure) | Tell::WatchLost(_, failure)) => {
                self.send(Input::GuardsLost { kind: self.kind, error: failure.sentence }).await
            }
            Step::Told(Tell::ListsAnew(_)) => Ok(()),
        }
    }
}

/// Guards are requested in full, and therefore as JSON.
fn read(kind: GuardKind, item: Item<'_>, sight: Sight) -> Result<Seen, String> {
    resource::read(kind, item.json()?.get(), sight)
}

/// The time of the API server, if known.
async fn now(kind: GuardKind, clients: &Clients) -> Option<Duration> {
    let (what, uri) = (format!("list {}", definition(kind)), format!("{}?limit=1", path(kind)));
    let asking = request::answer(clients, &what, &uri, media::JSON);
    date(&timeout(READ_WITHIN, asking).await.ok()?.ok()?)
}

/// Answers the engine's reads. A newer read replaces the current one.
pub(super) async fn answer(
    clients: Clients,
    mut questions: mpsc::Receiver<GuardRead>,
    control: mpsc::Sender<Control>,
) -> anyhow::Result<()> {
    let mut next = questions.recv().await;
    while let Some(read) = next.take() {
        tokio::select! {
            biased;
            newer = questions.recv() => next = newer,
            answer = timeout(READ_WITHIN, read_all(read.kind, &clients)) => {
                let kind = read.kind.plural();
                let too_late = |_| Err(format!("{kind}: no answer within {} s", READ_WITHIN.as_secs()));
                let answer = answer.unwrap_or_else(too_late);
                if control.send(Control::Input(Input::GuardsRead { read, answer })).await.is_err() {
                    return Ok(());
                }
                next = questions.recv().await;
            }
        }
    }
    Ok(())
}

/// Finds the existing guards of a kind. Only a list of them proves their set, or a list of definitions without theirs.
/// A 404 proves nothing, because it may come from a server that has not loaded its definitions yet.
async fn read_all(kind: GuardKind, clients: &Clients) -> Result<GuardAnswer, String> {
    let definition = definition(kind);
    let what = format!("list {definition}");
    let uri = format!("{}?limit={}", path(kind), GUARDS_MAX + 1);
    let unserved = match request::answer(clients, &what, &uri, media::JSON).await {
        Ok(answer) => {
            return list(kind, &answer).map(GuardAnswer::Served).map_err(|why| format!("{what}: the answer {why}"));
        }
        Err(failure) if failure.status == Some(404) => failure,
        Err(failure) => return Err(failure.sentence),
    };
    let what = format!("list the definition {definition}");
    let definitions = collection_path("apiextensions.k8s.io", "v1", "customresourcedefinitions", "");
    let uri = format!("{definitions}?fieldSelector={}&limit=1", name_selector(&definition));
    match request::get(clients, &what, &uri, media::JSON).await {
        Ok(body) => {
            let mut page = metadata::page(Encoding::Json, &body).map_err(|why| format!("{what}: the answer {why}"))?;
            // A server without field selectors would return other definitions.
            if page.items.next().is_none() && page.continues.is_none() {
                return Ok(GuardAnswer::NotServed);
            }
            Err(format!("{definition} is defined, but not served: {}", unserved.sentence))
        }
        Err(failure) if failure.status == Some(404) => no_definitions(clients, &failure).await,
        Err(failure) => Err(failure.sentence),
    }
}

/// A server whose complete discovery has neither our group nor definitions has no guards.
async fn no_definitions(clients: &Clients, failure: &Failure) -> Result<GuardAnswer, String> {
    let body = request::get(clients, "list API groups", "/apis", media::JSON).await.map_err(|other| other.sentence)?;
    let groups: Groups = serde_json::from_slice(&body).map_err(|_| failure.sentence.clone())?;
    let serves = |name: &str| groups.groups.iter().any(|group| group.name == name);
    if groups.kind == "APIGroupList" && !serves("apiextensions.k8s.io") && !serves(engine::hold::GROUP) {
        return Ok(GuardAnswer::NotServed);
    }
    Err(failure.sentence.clone())
}

fn list(kind: GuardKind, answer: &Answer) -> Result<GuardList, String> {
    let page = request::page(answer)?;
    if page.resource_version.is_empty() {
        return Err("has no resourceVersion".to_owned());
    }
    let now = date(answer);
    let mut list = GuardList {
        position: ResourceVersion::parse(&page.resource_version),
        guards: Vec::new(),
        more: page.continues.is_some(),
    };
    for item in page.items {
        match read(kind, item, Sight::Found { now })? {
            Seen::Standing(standing) if list.guards.len() < GUARDS_MAX => list.guards.push(standing.guard),
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
