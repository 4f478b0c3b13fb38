//! Lists and watches a collection: sends the requests of [`engine::follow`], and feeds it the answers.
//!
//! Results go to a [`Sink`] as [`Step`]s, in order. Objects go straight to the sink; the machine sees only their
//! versions.

use super::Clients;
use super::request::{self, Events, Failure};
use bytes::Bytes;
use engine::follow::{Ask, Config, Follow, Input, Output, Pass, Tell};
use engine::object::ResourceVersion;
use futures::FutureExt as _;
use kube_api::CallError;
use kube_api::metadata::{self, Event, Item, Items};
use kube_api::path::query_value;
use runtime::clock::Clock;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

#[cfg(test)]
mod tests;

/// Time after which a list no longer counts against the limit of concurrent lists.
const TURN_MAX: Duration = Duration::from_secs(2);

/// One result of following a collection.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Listed(Item<'a>),
    Seen(Item<'a>),
    Deleted(Item<'a>),
    Told(Tell),
}

/// Why a sink refuses further steps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The receiver is gone.
    Closed,
    /// The content cannot be used: list again.
    Relist(String),
}

/// Receives the steps.
pub(crate) trait Sink: Send {
    /// Waits until there is room.
    fn take(&mut self, step: Step<'_>) -> impl Future<Output = Result<(), Halt>> + Send;
}

/// A collection to follow.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) clients: Clients,
    /// The name in errors, such as `configmaps`.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) accept_list: &'static str,
    pub(crate) accept_watch: &'static str,
    pub(crate) page_size: u32,
    /// Limits concurrent lists.
    pub(crate) turns: Arc<Semaphore>,
    /// The server does not support watch-lists. The value outlives the follower, so that this is found out only once.
    pub(crate) paged: Arc<AtomicBool>,
    pub(crate) seed: u64,
}

/// Follows the source until the receiver is gone.
pub(crate) async fn follow<S: Sink>(source: Source, sink: &mut S) {
    let clock = Clock::start();
    let config = Config {
        name: source.name.clone(),
        page_size: source.page_size,
        paged: source.paged.load(Ordering::Relaxed),
        seed: source.seed,
    };
    let machine = Follow::new(clock.now(), config);
    let mut follower = Follower { source, clock, machine, asked: Ask::Nothing, open: None };
    // The loop ends only when the receiver is gone.
    let Err(Closed) = follower.run(sink).await;
}

struct Follower {
    source: Source,
    clock: Clock,
    machine: Follow,
    /// The next request.
    asked: Ask,
    /// An open watch or watch-list.
    open: Option<Events>,
}

#[derive(Debug)]
struct Closed;

/// The permit of a list.
enum Turn {
    Held {
        _permit: Option<OwnedSemaphorePermit>,
        until: Instant,
    },
    /// The list continues without its permit.
    Over,
}

impl Follower {
    async fn run<S: Sink>(&mut self, sink: &mut S) -> Result<Infallible, Closed> {
        self.drain(sink, None).await?;
        let mut turn = None;
        loop {
            if !self.machine.is_listing() {
                turn = None;
            } else if turn.is_none() {
                let permit = self.source.turns.clone().acquire_owned().await.ok();
                turn = Some(Turn::Held { _permit: permit, until: Instant::now() + TURN_MAX });
            }
            let mut step = pin!(self.step(sink));
            if let Some(Turn::Held { until, .. }) = turn {
                match timeout_at(until, &mut step).await {
                    Ok(done) => {
                        done?;
                        continue;
                    }
                    Err(_) => turn = Some(Turn::Over),
                }
            }
            step.await?;
        }
    }

    /// Sends the request, reads the open stream, or waits, until the machine has an output. Then carries it out.
    async fn step<S: Sink>(&mut self, sink: &mut S) -> Result<(), Closed> {
        match std::mem::replace(&mut self.asked, Ask::Nothing) {
            Ask::Page { limit, token } => return self.page(sink, limit, token).await,
            Ask::WatchList { seconds } => {
                let query =
                    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                self.stream(query, seconds).await;
            }
            Ask::Watch { position, seconds } => {
                let position = query_value(&position.to_string());
                let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={position}");
                self.stream(&query, seconds).await;
            }
            Ask::Nothing => match self.open.take() {
                Some(events) => self.read(sink, events).await?,
                None => {
                    match self.deadline() {
                        Some(deadline) => sleep_until(deadline).await,
                        None => pending().await,
                    }
                    self.machine.tick(self.clock.now());
                }
            },
        }
        self.drain(sink, None).await
    }

    /// Carries out the machine's outputs. `objects` are those of the page that the machine got.
    async fn drain<S: Sink>(&mut self, sink: &mut S, mut objects: Option<Items<'_>>) -> Result<(), Closed> {
        while let Some(output) = self.machine.poll() {
            let taken = match output {
                Output::Ask(ask) => {
                    self.source.paged.store(self.machine.is_paged(), Ordering::Relaxed);
                    (self.asked, self.open) = (ask, None);
                    Ok(())
                }
                Output::Objects => list(sink, objects.take()).await,
                Output::Tell(tell) => {
                    if let Tell::ListsAnew(why) = &tell {
                        tracing::info!(collection = self.source.name, why, "listing the collection again");
                    }
                    sink.take(Step::Told(tell)).await
                }
            };
            self.take(taken)?;
        }
        Ok(())
    }

    /// Continues after a step of the sink.
    fn take(&mut self, taken: Result<(), Halt>) -> Result<(), Closed> {
        match taken {
            Ok(()) => Ok(()),
            Err(Halt::Relist(why)) => {
                self.hear(Input::Unusable(why));
                Ok(())
            }
            Err(Halt::Closed) => Err(Closed),
        }
    }

    fn hear(&mut self, input: Input) {
        self.machine.handle(self.clock.now(), input);
    }

    async fn page<S: Sink>(&mut self, sink: &mut S, limit: Option<u32>, token: Option<String>) -> Result<(), Closed> {
        let what = self.what();
        let mut uri = self.source.path.clone();
        if let Some(limit) = limit {
            uri.push_str(&format!("?limit={limit}"));
        }
        if let Some(token) = &token {
            uri.push_str(&format!("&continue={}", query_value(token)));
        }
        let answer = request::answer(&self.source.clients, &what, &uri, self.source.accept_list).await;
        let page = match &answer {
            Ok(answer) => request::page(answer).map_err(|why| senseless(&what, &why)),
            Err(failure) => Err(failure.clone()),
        };
        match page {
            Ok(page) => {
                let version = &page.resource_version;
                let position = (!version.is_empty()).then(|| ResourceVersion::parse(version));
                self.hear(Input::Page { position, token: page.continues });
                self.drain(sink, Some(page.items)).await
            }
            Err(failure) => {
                self.hear(Input::Failed(failure));
                self.drain(sink, None).await
            }
        }
    }

    async fn stream(&mut self, query: &str, seconds: u64) {
        let what = self.what();
        let uri = format!("{}?{query}&timeoutSeconds={seconds}", self.source.path);
        match request::stream(&self.source.clients, &what, &uri, self.source.accept_watch).await {
            Ok(events) => {
                self.open = Some(events);
                self.hear(Input::Opened);
            }
            Err(failure) => self.hear(Input::Failed(failure)),
        }
    }

    /// Reads events until one without an object arrives, the sink halts, or the machine's deadline passes.
    async fn read<S: Sink>(&mut self, sink: &mut S, mut events: Events) -> Result<(), Closed> {
        loop {
            let piece = match self.next(&mut events).await {
                Some(Ok(Some(piece))) => piece,
                Some(Ok(None)) => break self.hear(Input::Ended),
                Some(Err(error)) => break self.hear(Input::Failed(request::transport(&self.what(), &error))),
                None => break self.machine.tick(self.clock.now()),
            };
            let encoding = events.encoding();
            let taken = match metadata::event(encoding, &piece) {
                Ok(Event::Added(item) | Event::Modified(item)) => self.object(sink, false, item).await,
                Ok(Event::Deleted(item)) => self.object(sink, true, item).await,
                Ok(Event::Bookmark { resource_version: position, ends_list }) => {
                    break self.hear(Input::Bookmark { position, ends_list });
                }
                Ok(Event::Error(status)) => {
                    break self.hear(Input::Failed(request::error_event(&self.what(), &status)));
                }
                Err(why) => {
                    let failure = senseless(&self.what(), &format!("{} {why}", encoding.piece()));
                    break self.hear(Input::Failed(failure));
                }
            };
            if taken.is_err() {
                break self.take(taken)?;
            }
        }
        // If the stream is no longer wanted, the machine's next output replaces it.
        self.open = Some(events);
        Ok(())
    }

    /// The next event, or `None` at the machine's deadline. Reads many received events between two waits.
    async fn next(&mut self, events: &mut Events) -> Option<Result<Option<Bytes>, CallError>> {
        if let Some(next) = events.next().now_or_never() {
            return Some(next);
        }
        self.machine.waits(self.clock.now());
        match self.deadline() {
            Some(deadline) => timeout_at(deadline, events.next()).await.ok(),
            None => Some(events.next().await),
        }
    }

    async fn object<S: Sink>(&mut self, sink: &mut S, deleted: bool, item: Item<'_>) -> Result<(), Halt> {
        match self.machine.pass(deleted, item.resource_version()) {
            Pass::Listed => sink.take(Step::Listed(item)).await,
            Pass::Seen => sink.take(Step::Seen(item)).await,
            Pass::Deleted => sink.take(Step::Deleted(item)).await,
            Pass::Nothing => Ok(()),
        }
    }

    /// The current request, for errors.
    fn what(&self) -> String {
        format!("{} {}", if self.machine.is_listing() { "list" } else { "watch" }, self.source.name)
    }

    fn deadline(&self) -> Option<Instant> {
        self.machine.next_deadline().map(|due| self.clock.instant(due))
    }
}

async fn list<S: Sink>(sink: &mut S, objects: Option<Items<'_>>) -> Result<(), Halt> {
    for item in objects.into_iter().flatten() {
        sink.take(Step::Listed(item)).await?;
    }
    Ok(())
}

fn senseless(what: &str, why: &str) -> Failure {
    Failure::senseless(format!("{what}: the answer {why}"))
}
