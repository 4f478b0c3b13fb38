//! Lists and watches one collection: the next request to the API server, and the meaning of its answers for the leader.
//!
//! The caller does the I/O: it sends the request in [`Output::Ask`], and passes each answer back. One request or stream
//! is open at a time; a new ask replaces it. The machine does not see objects. It sees the type and version of an
//! event, and returns how the caller passes the object on.
//!
//! ```text
//! Page       a page is requested       answered: its objects; the last one: the list ends                     -> Opening
//!                                      refused: a page after the first is repeated, four times; else the list fails -> Rest
//!                                      410: the token has expired, so the rest is requested as one page       -> Page
//! Initial    a watch-list is           the bookmark that ends the list                                        -> Watching
//!            requested, then objects   the server does not have watch-lists                                   -> Page
//!                                      anything else: the list fails                                          -> Rest
//! Opening    a watch is requested      opened                                                                 -> Watching
//!                                      refused: lost                                                          -> Rest
//! Watching   events and bookmarks      ended: opened again at its position; early, broken or silent: lost too  -> Opening, Rest
//!                                      410, or three watches with only failures                               -> a new list
//! Rest       the wait after a failure  over                                                                   -> the failed step
//! ```
//!
//! Errors:
//!
//! * *The list fails.* The leader gets [`Tell::ListFailed`]. It learns of a new list only when the server answers
//!   again, so that the failure stays visible. Before the objects of the new list the leader gets another
//!   [`Tell::ListBegun`]. A watch-list that ends before its time counts as a broken connection: a restore of the store
//!   ends lists too.
//! * *A page fails.* The pages before it stay valid as long as their continue token. So only the failed page is
//!   requested again, if it is not the first.
//! * *The server has no watch-list.* It says so, or it ignores the parameter: it sends no bookmark, or a plain one.
//!   Then the list is read in pages. While objects change, a server without bookmarks is not silent. So three
//!   watch-lists that have their time and end without a bookmark, or with an unreadable one, count as none too.
//! * *A watch breaks, is refused, or is silent*: it is opened again at the last position. Bookmarks come once a minute,
//!   so silence is an error.
//! * *A watch ends regularly and too early.* kube-apiserver does this when it shuts down. The next server behind the
//!   same address may have a restored store, and a watch from a future position would stay silent. So the watch counts
//!   as lost, with [`WatchEnd::Early`]. This client always sets the duration of a watch, so a server has no other
//!   reason to end it early.
//! * *The position has expired*, or the server fails at every watch: a new list.
//! * *The caller cannot use the answer*: a new list.
//! * *The server never finishes*: pages, waits and the length of a watch have limits.

use crate::jitter::Backoff;
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::mem;
use core::time::Duration;

mod pages;
#[cfg(test)]
mod tests;
mod watch;

use pages::Pages;
use watch::Watch;

/// Delay after a failure.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest delay after a failure that the server reports.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest delay before a watch is resumed, or without any answer: the graph must be current soon after the server is
/// back.
pub const RESUME_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A watch without data for this long is dead: bookmarks come about once a minute.
pub const SILENCE_MAX: Duration = Duration::from_secs(150);
/// A watch-list without data for this long before its end was not understood by the server.
const INITIAL_SILENCE_MAX: Duration = Duration::from_secs(15);
/// Minimum duration of a watch request. A random time of up to the same length is added, so that watches end at
/// different times.
const WATCH_FOR_S: u64 = 300;
/// Requested duration before the first bookmark. A quiet watch must end before it counts as dead.
pub const WATCH_FOR_UNMARKED_S: u64 = 70;
const _: () = assert!(2 * WATCH_FOR_UNMARKED_S < SILENCE_MAX.as_secs());
/// A watch that ends earlier than requested by at least this has another reason. The server's clock may run faster.
const EARLY_AT_LEAST: Duration = Duration::from_secs(2);
/// A watch-list whose time ends before its list is complete doubles the time of the next one. This is the maximum
/// number of such doublings.
const LONGER_LISTS_MAX: u32 = 5;
/// Maximum number of incomplete watch-lists from a server that has sent no bookmark.
const WATCH_LISTS_UNMARKED_MAX: u32 = 3;

/// The collection to follow.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the collection in errors.
    pub name: String,
    /// Objects per page, where the collection is listed in pages.
    pub page_size: u32,
    /// The server is known to lack watch-lists here.
    pub paged: bool,
    /// The seed for jitter.
    pub seed: u64,
}

/// A fact from the API server or the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The requested page. Its objects stay with the caller until [`Output::Objects`].
    Page {
        /// `None` if the page has no version.
        position: Option<ResourceVersion>,
        /// The continue token, if there are more pages.
        token: Option<String>,
    },
    /// The requested watch is open.
    Opened,
    Bookmark {
        position: ResourceVersion,
        /// All earlier events belong to the initial list of a watch-list.
        ends_list: bool,
    },
    /// The server ended the watch regularly.
    Ended,
    /// The request failed, or the open stream did.
    Failed(Failure),
    /// The caller or the leader cannot use the answer, for this reason.
    Unusable(String),
}

/// Why a request or a watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// The request and its answer, as a sentence.
    pub sentence: String,
    /// The server's status code; `None` without an answer.
    pub status: Option<u16>,
    /// The wait that the server asks for.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// An invalid answer.
    pub fn senseless(sentence: String) -> Failure {
        Failure { sentence, status: Some(200), retry_after: None }
    }

    fn is_senseless(&self) -> bool {
        self.status == Some(200)
    }

    /// Whether the server rejected this request only, and would accept others. False for errors of network, credentials
    /// or load.
    pub(crate) fn is_of_this_request(&self) -> bool {
        self.status.is_some_and(|status| status < 500 && !matches!(status, 401 | 403 | 429))
    }

    /// No answer, or an incomplete one.
    pub fn transport(sentence: String) -> Failure {
        Failure { sentence, status: None, retry_after: None }
    }

    pub fn is_transport(&self) -> bool {
        self.status.is_none()
    }

    /// Whether the position or token is too old.
    pub fn is_expired(&self) -> bool {
        self.status == Some(410)
    }

    /// Whether the same request may succeed at another time.
    fn may_pass(&self) -> bool {
        self.status.is_none_or(|status| status == 429 || status >= 500)
    }

    /// Whether the server rejects the parameters of a watch-list.
    fn refuses_watch_list(&self) -> bool {
        matches!(self.status, Some(400 | 405 | 406 | 422))
    }

    /// False for errors of network, credentials or load: a new list would have the same error, at a higher cost.
    fn may_be_healed_by_list(&self) -> bool {
        !matches!(self.status, None | Some(401 | 403 | 404 | 429 | 502 | 503 | 504))
    }
}

/// How a watch ended before its requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WatchEnd {
    /// Regularly and too early: the server shuts down, or has lost its own watch of the store.
    Early,
    /// The connection failed, broke, or was silent.
    Transport,
    /// The server no longer knows the position.
    Expired,
    /// The server refused the watch or failed, or its data was invalid.
    Refused,
}

impl WatchEnd {
    /// Whether the next answer may come from another server, or from another history of the store.
    pub fn is_doubt(self) -> bool {
        self != WatchEnd::Refused
    }
}

/// How the caller passes on the object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As an object of the current list.
    Listed,
    Seen,
    Deleted,
    /// Not at all, because the stream was closed.
    Nothing,
}

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Close the open stream or request, and send this.
    Ask(Ask),
    /// Pass on the objects of the page as objects of the current list.
    Objects,
    Tell(Tell),
}

/// A request to the API server. The caller answers each one except [`Ask::Nothing`], and limits the duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Wait for the next deadline.
    Nothing,
    /// A page of a consistent list. Answered by [`Input::Page`] or [`Input::Failed`].
    Page { limit: Option<u32>, token: Option<String> },
    /// A watch with initial events at least as fresh as now, and bookmarks. Answered by [`Input::Opened`] or
    /// [`Input::Failed`].
    WatchList { seconds: u64 },
    /// A watch from this position, with bookmarks. Answered like a watch-list.
    Watch { position: ResourceVersion, seconds: u64 },
}

/// A fact for the leader, besides the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    ListBegun,
    ListEnded(ResourceVersion),
    ListFailed(Failure),
    Bookmark(ResourceVersion),
    WatchLost(WatchEnd, Failure),
    WatchResumed,
    /// The collection is listed again, for this reason. [`Tell::ListBegun`] follows.
    ListsAnew(String),
}

/// Follows one collection.
#[derive(Debug)]
pub struct Follow {
    config: Config,
    backoff: Backoff,
    state: State,
    outputs: VecDeque<Output>,
    announced: Announced,
    /// The last list failed. The leader learns of the next list when the server answers.
    failing: bool,
    /// A bookmark was seen.
    bookmarked: bool,
    /// Consecutive watch-lists that ended before they were complete.
    cut_short: u32,
    /// Watch-lists that had their time and ended without a readable bookmark.
    unmarked: u32,
}

#[derive(Debug)]
enum State {
    Rest {
        until: Time,
        then: Next,
    },
    Page(Pages),
    Initial(Stream),
    Opening {
        watch: Watch,
        stream: Stream,
    },
    Watching {
        watch: Watch,
        stream: Stream,
    },
    /// Only within a transition.
    Between,
}

#[derive(Debug)]
enum Next {
    List,
    Page(Pages),
    Watch(Watch),
}

/// A watch or watch-list, requested or open.
#[derive(Debug)]
struct Stream {
    asked: Time,
    /// The requested duration.
    seconds: u64,
    /// All data up to here was passed on; `None` before it is open.
    quiet_since: Option<Time>,
}

impl Stream {
    fn new(now: Time, seconds: u64) -> Stream {
        Stream { asked: now, seconds, quiet_since: None }
    }

    /// Whether the server ends the stream too early. The server counts from receiving the request, so a regular end is
    /// never early.
    fn is_early(&self, now: Time) -> bool {
        now.since(self.asked) + EARLY_AT_LEAST < Duration::from_secs(self.seconds)
    }
}

/// The leader's knowledge of the current list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    No,
    Begun,
    /// Objects were passed on.
    Filled,
}

impl Follow {
    pub fn new(now: Time, config: Config) -> Follow {
        let mut follow = Follow {
            backoff: Backoff::new(BACKOFF_MIN, BACKOFF_MAX, config.seed),
            config,
            state: State::Between,
            outputs: VecDeque::new(),
            announced: Announced::No,
            failing: false,
            bookmarked: false,
            cut_short: 0,
            unmarked: 0,
        };
        follow.list(now);
        follow
    }

    /// Takes an answer, or an event without an object. Input that does not fit the current state is stale, and ignored.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Input::Unusable(why) = input {
            return self.give_up(now, why);
        }
        match mem::replace(&mut self.state, State::Between) {
            State::Page(pages) => self.page_answered(now, pages, input),
            State::Initial(stream) => self.initial(now, stream, input),
            State::Opening { watch, stream } => self.opening(now, watch, stream, input),
            State::Watching { watch, stream } => self.watching(now, watch, stream, input),
            state @ (State::Rest { .. } | State::Between) => self.state = state,
        }
    }

    /// Takes an event with an object of this `version`. Returns how the caller passes on the object.
    pub fn pass(&mut self, deleted: bool, version: Option<ResourceVersion>) -> Pass {
        match &mut self.state {
            // The server may send events of the watch between the initial events and their bookmark.
            State::Initial(_) if deleted => Pass::Deleted,
            State::Initial(_) => {
                self.announced = Announced::Filled;
                Pass::Listed
            }
            State::Watching { watch, .. } => {
                watch.advance(version);
                if deleted { Pass::Deleted } else { Pass::Seen }
            }
            State::Rest { .. } | State::Page(_) | State::Opening { .. } | State::Between => Pass::Nothing,
        }
    }

    /// Records that the caller has passed on all received data and waits. Silence counts from here.
    pub fn waits(&mut self, now: Time) {
        if let State::Initial(stream) | State::Watching { stream, .. } = &mut self.state
            && stream.quiet_since.is_some()
        {
            stream.quiet_since = Some(now);
        }
    }

    /// Handles deadlines.
    pub fn tick(&mut self, now: Time) {
        if self.next_deadline().is_none_or(|due| now < due) {
            return;
        }
        match mem::replace(&mut self.state, State::Between) {
            State::Rest { then: Next::List, .. } => self.list(now),
            State::Rest { then: Next::Page(pages), .. } => self.ask_page(pages),
            State::Rest { then: Next::Watch(watch), .. } => self.ask_watch(now, watch),
            State::Initial(_) => self.list_in_pages(),
            State::Watching { watch, .. } => {
                let seconds = SILENCE_MAX.as_secs();
                let why = format!("watch {}: nothing for {seconds} s, not even a bookmark", self.config.name);
                self.watch_failed(now, watch, Failure::transport(why));
            }
            state @ (State::Page(_) | State::Opening { .. } | State::Between) => self.state = state,
        }
    }

    /// When to call [`Follow::tick`] next.
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.state {
            State::Rest { until, .. } => Some(*until),
            State::Initial(stream) => Some(stream.quiet_since? + INITIAL_SILENCE_MAX),
            State::Watching { stream, .. } => Some(stream.quiet_since? + SILENCE_MAX),
            State::Page(_) | State::Opening { .. } | State::Between => None,
        }
    }

    /// The next effect, until there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Stands for the state within a transition.
    pub fn is_listing(&self) -> bool {
        matches!(self.state, State::Page(_) | State::Initial(_) | State::Rest { then: Next::Page(_), .. })
    }

    /// Whether the server has no watch-list here.
    pub fn is_paged(&self) -> bool {
        self.config.paged
    }

    // Lists. Paged lists are in `pages`.

    fn list(&mut self, now: Time) {
        self.announced = Announced::No;
        // After a failure the leader learns of a new list when the server starts to answer, so that the failure stays
        // visible.
        if !self.failing {
            self.begin();
        }
        if self.config.paged {
            return self.ask_page(Pages::new(Some(self.config.page_size)));
        }
        let seconds = self.watch_for_s() << self.cut_short;
        self.state = State::Initial(Stream::new(now, seconds));
        self.ask(Ask::WatchList { seconds });
    }

    fn begin(&mut self) {
        if self.announced != Announced::Begun {
            self.tell(Tell::ListBegun);
            self.announced = Announced::Begun;
        }
    }

    fn list_in_pages(&mut self) {
        self.config.paged = true;
        self.ask_page(Pages::new(Some(self.config.page_size)));
    }

    fn initial(&mut self, now: Time, mut stream: Stream, input: Input) {
        match input {
            Input::Opened => {
                self.begin();
                stream.quiet_since = Some(now);
                self.state = State::Initial(stream);
            }
            Input::Bookmark { position, ends_list } => {
                self.bookmarked = true;
                self.cut_short = 0;
                if ends_list {
                    self.list_ended(position.clone());
                    self.state = State::Watching { watch: Watch::new(now, position), stream };
                } else {
                    // A server with watch-lists sends no other bookmark before this one.
                    self.list_in_pages();
                }
            }
            Input::Ended => {
                self.cut_short = (self.cut_short + 1).min(LONGER_LISTS_MAX);
                let why = format!("{}: the list ended before its last bookmark", self.config.name);
                // The end of a server or of its watch of the store ends a list too, and another history may follow.
                let early = stream.is_early(now);
                if !early {
                    self.unmarked();
                }
                self.list_failed(now, if early { Failure::transport(why) } else { Failure::senseless(why) });
            }
            Input::Failed(failure) if failure.refuses_watch_list() => self.list_in_pages(),
            Input::Failed(failure) => {
                if failure.is_senseless() {
                    self.unmarked();
                }
                self.list_failed(now, failure);
            }
            Input::Page { .. } | Input::Unusable(_) => self.state = State::Initial(stream),
        }
    }

    /// Counts a watch-list that had its time and ended without a readable bookmark.
    fn unmarked(&mut self) {
        self.unmarked += 1;
        self.config.paged |= !self.bookmarked && self.unmarked >= WATCH_LISTS_UNMARKED_MAX;
    }

    fn list_ended(&mut self, position: ResourceVersion) {
        self.failing = false;
        self.tell(Tell::ListEnded(position));
    }

    fn list_failed(&mut self, now: Time, failure: Failure) {
        self.failing = true;
        let at_most = if failure.is_transport() { RESUME_BACKOFF_MAX } else { BACKOFF_MAX };
        let wait = self.wait(&failure, at_most);
        self.tell(Tell::ListFailed(failure));
        self.rest(now + wait, Next::List);
    }

    /// Handles an unusable answer, and drops the pending outputs. Ignores the answer if no request is open.
    fn give_up(&mut self, now: Time, why: String) {
        match mem::replace(&mut self.state, State::Between) {
            State::Opening { watch, .. } | State::Watching { watch, .. } => {
                self.outputs.clear();
                self.list_anew(now, &watch, why);
            }
            State::Page(_) | State::Initial(_) => {
                self.outputs.clear();
                self.list_failed(now, Failure::senseless(why));
            }
            state @ (State::Rest { .. } | State::Between) => self.state = state,
        }
    }

    // For lists and watches.

    fn wait(&mut self, failure: &Failure, at_most: Duration) -> Duration {
        let delay = self.backoff.next_delay().min(at_most);
        failure.retry_after.map_or(delay, |asked| asked.max(delay))
    }

    fn rest(&mut self, until: Time, then: Next) {
        self.state = State::Rest { until, then };
        self.ask(Ask::Nothing);
    }

    fn watch_for_s(&mut self) -> u64 {
        let at_least = if self.bookmarked { WATCH_FOR_S } else { WATCH_FOR_UNMARKED_S };
        at_least + self.backoff.jitter.next() % at_least
    }

    fn ask(&mut self, ask: Ask) {
        self.outputs.push_back(Output::Ask(ask));
    }

    fn tell(&mut self, tell: Tell) {
        self.outputs.push_back(Output::Tell(tell));
    }
}
