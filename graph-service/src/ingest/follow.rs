//! Lists a collection, watches it, and begins again where that is needed: one loop for ever.
//!
//! What is learned goes to a [`Sink`] as [`Step`]s, in order. The list is a watch-list where the server has it, else pages. A watch
//! goes on from the last version seen; only an expired version, or a server that keeps failing at it, leads to a new list.

use super::Clients;
use super::request::{self, Events, Failure, query_value};
use crate::metadata::{self, Event, Item};
use engine::object::ResourceVersion;
use runtime::backoff::Backoff;
use runtime::kubernetes::Answer;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

#[cfg(test)]
mod tests;

/// Delay after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The same where a watch is to go on, or nothing has answered: when the server is back, the graph should be too.
const RESUME_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A watch that lived this long may be followed by a new list at once.
const RELIST_AT_ONCE_AFTER: Duration = Duration::from_secs(5);
/// Bookmarks come about once a minute, so a watch that brings nothing for this long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// A watch-list that brings nothing for this long before its end was not understood: pages do the same.
const INITIAL_SILENCE_MAX: Duration = Duration::from_secs(15);
/// A watch is asked to end after this long, and up to as long again, so that not all end together.
const WATCH_FOR_S: u64 = 300;
/// The same where no bookmark has been seen yet: a quiet watch must end before it is taken for dead.
const WATCH_FOR_UNMARKED_S: u64 = 70;
const _: () = assert!(2 * WATCH_FOR_UNMARKED_S < SILENCE_MAX.as_secs());
/// A watch-list whose time was up before its end is given twice as much, so many times: the last one has hours.
const LONGER_LISTS_MAX: u32 = 5;
/// A page that fails is asked for so often, before everything that came before it is thrown away.
const PAGE_TRIES_MAX: u32 = 5;
/// So many watches in a row that bring nothing but failures lead to a new list.
const FRUITLESS_WATCHES_MAX: u32 = 3;
/// A list that takes longer no longer keeps others waiting.
const TURN_MAX: Duration = Duration::from_secs(2);
/// Lists of this many pages come from a server that goes in circles.
const PAGES_MAX: usize = 1_000_000;

/// What is learned of a collection.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    ListBegun,
    Listed(Item<'a>),
    ListEnded(ResourceVersion),
    ListFailed(&'a Failure),
    Seen(Item<'a>),
    Deleted(Item<'a>),
    Bookmark(ResourceVersion),
    WatchLost(&'a Failure),
    WatchResumed,
}

/// Why a sink wants no further steps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Nobody takes them any more.
    Closed,
    /// What came cannot be followed up: list anew.
    Relist(String),
}

/// Takes the steps.
pub(crate) trait Sink: Send {
    /// Waits while there is no room.
    fn take(&mut self, step: Step<'_>) -> impl Future<Output = Result<(), Halt>> + Send;
}

/// What to follow.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) clients: Clients,
    /// For sentences, such as `configmaps`.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) accept_list: &'static str,
    pub(crate) accept_watch: &'static str,
    pub(crate) page_size: u32,
    /// How many lists may run at a time.
    pub(crate) turns: Arc<Semaphore>,
    /// The server has no watch-list here. Outlives the follower, so that it is found out once.
    pub(crate) paged: Arc<AtomicBool>,
    pub(crate) seed: u64,
}

/// Follows the source until nobody takes the steps any more.
pub(crate) async fn follow<S: Sink>(source: Source, sink: &mut S) {
    let backoff = Backoff::new(BACKOFF_MIN, BACKOFF_MAX, source.seed);
    let mut follower =
        Follower { random: source.seed, source, backoff, announced: Announced::No, bookmarked: false, cut_short: 0 };
    // Its only end is that nobody listens.
    let Err(Closed) = follower.run(sink).await;
}

struct Follower {
    source: Source,
    backoff: Backoff,
    announced: Announced,
    /// A bookmark has been seen.
    bookmarked: bool,
    /// Watch-lists in a row that were ended before they were complete.
    cut_short: u32,
    random: u64,
}

#[derive(Debug)]
struct Closed;

/// How far the list under way is known to the sink.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announced {
    No,
    Begun,
    /// Objects have been handed on.
    Filled,
}

/// Why a list or a watch came to its end.
#[derive(Debug)]
enum End {
    Closed,
    /// The server ended it in good order.
    Quiet,
    Failed(Failure),
    Relist(String),
}

impl From<Halt> for End {
    fn from(halt: Halt) -> End {
        match halt {
            Halt::Closed => End::Closed,
            Halt::Relist(why) => End::Relist(why),
        }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        if failure.is_expired() { End::Relist(failure.sentence) } else { End::Failed(failure) }
    }
}

/// What a list leaves behind: where the watch begins, and for a watch-list the watch itself.
struct Start {
    position: ResourceVersion,
    events: Option<Events>,
}

impl Follower {
    async fn run<S: Sink>(&mut self, sink: &mut S) -> Result<std::convert::Infallible, Closed> {
        let mut failing = false;
        loop {
            self.announced = Announced::No;
            let failure = match self.list(sink, failing).await {
                Ok(start) => {
                    failing = false;
                    let began = Instant::now();
                    let (why, fruitful) = self.watch(sink, start).await?;
                    tracing::info!(collection = self.source.name, why, "listing anew");
                    if fruitful || began.elapsed() >= RELIST_AT_ONCE_AFTER {
                        self.backoff.reset();
                    } else {
                        sleep(self.backoff.next_delay()).await;
                    }
                    continue;
                }
                Err(End::Closed) => return Err(Closed),
                Err(End::Failed(failure)) => failure,
                Err(End::Relist(why)) => Failure::senseless(why),
                Err(End::Quiet) => Failure::senseless(format!("{}: the list ended before its end", self.source.name)),
            };
            failing = true;
            self.offer(sink, Step::ListFailed(&failure)).await?;
            self.pause(&failure, if failure.is_transport() { RESUME_BACKOFF_MAX } else { BACKOFF_MAX }).await;
        }
    }

    async fn pause(&mut self, failure: &Failure, at_most: Duration) {
        let delay = self.backoff.next_delay().min(at_most);
        sleep(failure.retry_after.map_or(delay, |asked| asked.max(delay))).await;
    }

    /// A step whose refusal can only mean that nobody listens: there is nothing in it to list anew for.
    async fn offer<S: Sink>(&mut self, sink: &mut S, step: Step<'_>) -> Result<(), Closed> {
        match sink.take(step).await {
            Ok(()) | Err(Halt::Relist(_)) => Ok(()),
            Err(Halt::Closed) => Err(Closed),
        }
    }

    async fn list<S: Sink>(&mut self, sink: &mut S, failing: bool) -> Result<Start, End> {
        // After a failure the sink hears of a new list when the server has begun to answer, so that the failure stays visible.
        if !failing {
            self.begin(sink).await?;
        }
        let turn = self.source.turns.clone().acquire_owned().await.ok();
        let listing = self.list_either_way(sink);
        tokio::pin!(listing);
        if let Ok(listed) = timeout(TURN_MAX, &mut listing).await {
            return listed;
        }
        drop(turn);
        listing.await
    }

    async fn list_either_way<S: Sink>(&mut self, sink: &mut S) -> Result<Start, End> {
        if !self.source.paged.load(Ordering::Relaxed) {
            match self.watch_list(sink).await {
                Ok(Some(start)) => return Ok(start),
                Ok(None) => self.source.paged.store(true, Ordering::Relaxed),
                Err(End::Failed(failure)) if matches!(failure.status, Some(400 | 405 | 406 | 422)) => {
                    self.source.paged.store(true, Ordering::Relaxed);
                }
                Err(end) => return Err(end),
            }
        }
        let paged = self.pages(sink, Some(self.source.page_size)).await;
        match paged {
            // The token of the next page has expired: whoever is too slow for pages takes it in one.
            Err(End::Relist(_)) => self.pages(sink, None).await,
            Ok(_) | Err(End::Closed | End::Quiet | End::Failed(_)) => paged,
        }
    }

    async fn begin<S: Sink>(&mut self, sink: &mut S) -> Result<(), End> {
        if self.announced != Announced::Begun {
            sink.take(Step::ListBegun).await?;
            self.announced = Announced::Begun;
        }
        Ok(())
    }

    /// `None`: the server does not do this.
    async fn watch_list<S: Sink>(&mut self, sink: &mut S) -> Result<Option<Start>, End> {
        let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let seconds = self.watch_for_s() << self.cut_short;
        let uri = format!("{}?{query}&timeoutSeconds={seconds}", self.source.path);
        let what = format!("list {}", self.source.name);
        let mut events = request::stream(&self.source.clients, &what, &uri, self.source.accept_watch).await?;
        self.begin(sink).await?;
        loop {
            let piece = match events.next_within(INITIAL_SILENCE_MAX).await {
                Err(_) => return Ok(None),
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => {
                    self.cut_short = (self.cut_short + 1).min(LONGER_LISTS_MAX);
                    return Err(End::Quiet);
                }
                Ok(Err(error)) => return Err(End::Failed(Failure::transport(&what, &error))),
            };
            match event(&what, &events, &piece)? {
                Event::Bookmark { resource_version, ends_list } => {
                    self.bookmarked = true;
                    self.cut_short = 0;
                    // A server that knows of watch-lists sends no other bookmark before this one.
                    if !ends_list {
                        return Ok(None);
                    }
                    sink.take(Step::ListEnded(resource_version.clone())).await?;
                    return Ok(Some(Start { position: resource_version, events: Some(events) }));
                }
                Event::Added(item) | Event::Modified(item) => {
                    self.announced = Announced::Filled;
                    sink.take(Step::Listed(item)).await?;
                }
                // Between the initial events and their bookmark the watch may already run.
                Event::Deleted(item) => sink.take(Step::Deleted(item)).await?,
                Event::Error(status) => return Err(Failure::event(&what, &status).into()),
            }
        }
    }

    async fn pages<S: Sink>(&mut self, sink: &mut S, limit: Option<u32>) -> Result<Start, End> {
        let what = format!("list {}", self.source.name);
        let mut position: Option<ResourceVersion> = None;
        let mut token: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut uri = self.source.path.clone();
            if let Some(limit) = limit {
                uri.push_str(&format!("?limit={limit}"));
            }
            if let Some(token) = &token {
                uri.push_str(&format!("&continue={}", query_value(token)));
            }
            let answer = self.page(&what, &uri, token.is_some()).await?;
            let page = request::page(&answer).map_err(|why| senseless(&what, &why))?;
            if position.is_none() {
                self.begin(sink).await?;
                if page.resource_version.is_empty() {
                    return Err(senseless(&what, "has no resourceVersion, so it cannot be watched"));
                }
                // All pages show the collection as of the first.
                position = Some(ResourceVersion::parse(&page.resource_version));
            }
            for item in page.items {
                self.announced = Announced::Filled;
                sink.take(Step::Listed(item)).await?;
            }
            token = page.continues;
            if let (None, Some(position)) = (&token, position.clone()) {
                sink.take(Step::ListEnded(position.clone())).await?;
                return Ok(Start { position, events: None });
            }
            if limit.is_none() {
                return Err(senseless(&what, "is cut short although no limit was asked for"));
            }
        }
        Err(senseless(&what, "never ends"))
    }

    /// One page. A later one is worth asking for again: its token is good for minutes, and much may have come before it.
    async fn page(&mut self, what: &str, uri: &str, later: bool) -> Result<Answer, Failure> {
        let mut tries = 1;
        loop {
            let failure = match request::answer(&self.source.clients, what, uri, self.source.accept_list).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let may_pass = failure.status.is_none_or(|status| status == 429 || status >= 500);
            if !later || !may_pass || tries == PAGE_TRIES_MAX {
                return Err(failure);
            }
            tries += 1;
            self.pause(&failure, RESUME_BACKOFF_MAX).await;
        }
    }

    /// Watches until a new list is needed; says why, and whether anything came before.
    async fn watch<S: Sink>(&mut self, sink: &mut S, start: Start) -> Result<(String, bool), Closed> {
        let mut watch = Watch { position: start.position, progress: false, fruitless: 0, lost: None };
        let mut events = start.events;
        let mut ever_fruitful = false;
        loop {
            let end = self.watch_once(sink, &mut watch, events.take()).await;
            ever_fruitful |= watch.progress;
            if std::mem::take(&mut watch.progress) {
                watch.fruitless = 0;
                self.backoff.reset();
            } else {
                watch.fruitless += 1;
            }
            let failure = match end {
                End::Closed => return Err(Closed),
                End::Relist(why) => return Ok((why, ever_fruitful)),
                End::Quiet if watch.fruitless == 0 => continue,
                End::Quiet => {
                    // A server that ends every watch at once is asked less often.
                    sleep(self.backoff.next_delay()).await;
                    continue;
                }
                End::Failed(failure) => failure,
            };
            if watch.lost.as_ref() != Some(&failure.sentence) {
                self.offer(sink, Step::WatchLost(&failure)).await?;
                watch.lost = Some(failure.sentence.clone());
            }
            if watch.fruitless >= FRUITLESS_WATCHES_MAX && may_be_healed_by_list(&failure) {
                return Ok((failure.sentence, ever_fruitful));
            }
            self.pause(&failure, RESUME_BACKOFF_MAX).await;
        }
    }

    async fn watch_once<S: Sink>(&mut self, sink: &mut S, watch: &mut Watch, events: Option<Events>) -> End {
        match self.watch_events(sink, watch, events).await {
            Ok(()) => End::Quiet,
            Err(end) => end,
        }
    }

    async fn watch_events<S: Sink>(
        &mut self,
        sink: &mut S,
        watch: &mut Watch,
        events: Option<Events>,
    ) -> Result<(), End> {
        let what = format!("watch {}", self.source.name);
        let mut events = match events {
            Some(events) => events,
            None => {
                let position = query_value(&watch.position.to_string());
                let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={position}");
                let seconds = self.watch_for_s();
                let uri = format!("{}?{query}&timeoutSeconds={seconds}", self.source.path);
                request::stream(&self.source.clients, &what, &uri, self.source.accept_watch).await?
            }
        };
        if watch.lost.take().is_some() {
            sink.take(Step::WatchResumed).await?;
        }
        loop {
            let piece = match events.next_within(SILENCE_MAX).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(End::Failed(Failure::transport(&what, &error))),
                Err(_) => {
                    let sentence = format!("{what}: nothing for {} s, not even a bookmark", SILENCE_MAX.as_secs());
                    return Err(End::Failed(Failure { sentence, status: None, retry_after: None }));
                }
            };
            match event(&what, &events, &piece)? {
                Event::Added(item) | Event::Modified(item) => {
                    sink.take(Step::Seen(item)).await?;
                    watch.advance(item.resource_version());
                }
                Event::Deleted(item) => {
                    sink.take(Step::Deleted(item)).await?;
                    watch.advance(item.resource_version());
                }
                Event::Bookmark { resource_version, .. } => {
                    self.bookmarked = true;
                    sink.take(Step::Bookmark(resource_version.clone())).await?;
                    watch.advance(Some(resource_version));
                }
                Event::Error(status) => return Err(Failure::event(&what, &status).into()),
            }
        }
    }

    fn watch_for_s(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at_least = if self.bookmarked { WATCH_FOR_S } else { WATCH_FOR_UNMARKED_S };
        at_least + (self.random >> 33) % at_least
    }
}

/// A watch over all its connections.
struct Watch {
    position: ResourceVersion,
    /// Something came over the present connection.
    progress: bool,
    /// Connections in a row that brought nothing.
    fruitless: u32,
    /// What the sink was told last, unless the watch goes on since.
    lost: Option<String>,
}

impl Watch {
    fn advance(&mut self, position: Option<ResourceVersion>) {
        self.progress = true;
        if let Some(position) = position {
            self.position = position;
        }
    }
}

/// Not so where the network, the credentials or the load are at fault: a new list would meet them as well, at a higher price.
fn may_be_healed_by_list(failure: &Failure) -> bool {
    !matches!(failure.status, None | Some(401 | 403 | 404 | 429 | 502 | 503 | 504))
}

fn event<'a>(what: &str, events: &Events, piece: &'a [u8]) -> Result<Event<'a>, End> {
    let encoding = events.encoding();
    metadata::event(encoding, piece).map_err(|why| senseless(what, &format!("{} {why}", encoding.piece())))
}

fn senseless(what: &str, why: &str) -> End {
    End::Failed(Failure::senseless(format!("{what}: the answer {why}")))
}
