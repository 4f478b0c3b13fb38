//! One collection, listed and watched for ever: what to ask the API server next, and what its answers mean for the leader.
//!
//! The shell sends what [`Output::Ask`] names and gives each answer back; one request or stream is open at a time, and a new ask takes
//! the place of the one before. Objects never pass through the machine: it sees an event's type and version, and says how the shell is
//! to hand the object on.
//!
//! ```text
//! Page       a page is asked for       answered: its objects; the last one: the list ends                     -> Opening
//!                                      refused: a later page is asked for again, four times; else the list fails -> Rest
//!                                      410: the token has expired, so all is asked for in one page            -> Page
//! Initial    a watch-list is asked     the bookmark that ends the list                                        -> Watching
//!            for, then its objects     the server does not have watch-lists                                   -> Page
//!                                      anything else: the list fails                                          -> Rest
//! Opening    a watch is asked for      opened                                                                 -> Watching
//!                                      refused: lost                                                          -> Rest
//! Watching   events and bookmarks      ended: asked for again where it was; early, broken or silent: lost too  -> Opening, Rest
//!                                      410, or three watches that bring only failures                         -> a new list
//! Rest       the wait after a failure  over                                                                   -> what it was for
//! ```
//!
//! What can go wrong:
//!
//! * *The list fails at once, or in the middle.* The leader hears [`Tell::ListFailed`], and of a new list only when the server answers
//!   again, so that the failure stays visible. Objects of a list that is begun anew are announced by another [`Tell::ListBegun`].
//! * *A page fails.* What came before it stays good for as long as its token, so a later page is asked for again.
//! * *The server has no watch-list*, and says so, or ignores the parameter: no bookmark comes, or a plain one. Pages do the same.
//! * *A watch breaks, is refused, or is silent*: it goes on at the last position. Bookmarks come once a minute, so silence is a fault.
//! * *A watch ends in good order before its time.* kube-apiserver does so when it shuts down, and behind one address another server may
//!   come next, of a store that was restored, whose watch from a position of the future says nothing at all. So it is told as lost, with
//!   [`WatchEnd::Early`]. A server chooses the time of a watch only where the client names none, and this client does.
//! * *The position has expired*, or the server fails at every watch: a new list.
//! * *The shell cannot use what came*: a new list.
//! * *The server goes in circles*: pages, waits and the length of a watch have limits.

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
/// The longest delay after a failure that the server itself answers with.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The longest delay where a watch is to go on, or nothing answered: when the server is back, the graph should be too.
pub const RESUME_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A watch that brings nothing for this long is dead: bookmarks come about once a minute.
pub const SILENCE_MAX: Duration = Duration::from_secs(150);
/// A watch-list that brings nothing for this long before its end was not understood.
const INITIAL_SILENCE_MAX: Duration = Duration::from_secs(15);
/// A watch is asked to end after this long, and up to as long again, so that not all end together.
const WATCH_FOR_S: u64 = 300;
/// The same where no bookmark has been seen yet: a quiet watch must end before it is taken for dead.
pub const WATCH_FOR_UNMARKED_S: u64 = 70;
const _: () = assert!(2 * WATCH_FOR_UNMARKED_S < SILENCE_MAX.as_secs());
/// A watch that ends this much before its time is ended by something else; the server's clock may run faster than ours.
const EARLY_AT_LEAST: Duration = Duration::from_secs(2);
/// Each watch-list whose time is up before its list is complete doubles the time of the next, so many times.
const LONGER_LISTS_MAX: u32 = 5;

/// What to follow, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names the collection in sentences.
    pub name: String,
    /// Objects per page, where the collection is listed in pages.
    pub page_size: u32,
    /// The server is known not to have watch-lists here.
    pub paged: bool,
    /// For jitter.
    pub seed: u64,
}

/// What the API server or the shell said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The page that was asked for. Its objects stay with the shell until [`Output::Objects`].
    Page {
        /// `None` where the page names no version.
        position: Option<ResourceVersion>,
        /// Where the list goes on, if it does.
        token: Option<String>,
    },
    /// The watch that was asked for is open.
    Opened,
    Bookmark {
        position: ResourceVersion,
        /// Everything before it belongs to the list that a watch-list begins with.
        ends_list: bool,
    },
    /// The server ended the watch in good order.
    Ended,
    /// The request failed, or what was open did.
    Failed(Failure),
    /// The shell, or the leader, cannot go on from what came, for this reason.
    Unusable(String),
}

/// Why a request or a watch brought nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed, with which answer.
    pub sentence: String,
    /// What the server answered; `None` if there was no answer.
    pub status: Option<u16>,
    /// The wait that the server asks for.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// An answer that makes no sense.
    pub fn senseless(sentence: String) -> Failure {
        Failure { sentence, status: Some(200), retry_after: None }
    }

    /// The server has answered this request, and would answer others: neither the network nor credentials nor load are at fault.
    pub(crate) fn is_of_this_request(&self) -> bool {
        self.status.is_some_and(|status| status < 500 && !matches!(status, 401 | 403 | 429))
    }

    /// No answer, or one that broke off.
    pub fn transport(sentence: String) -> Failure {
        Failure { sentence, status: None, retry_after: None }
    }

    pub fn is_transport(&self) -> bool {
        self.status.is_none()
    }

    /// The position or token asked for is too old.
    pub fn is_expired(&self) -> bool {
        self.status == Some(410)
    }

    /// The same request may succeed later.
    fn may_pass(&self) -> bool {
        self.status.is_none_or(|status| status == 429 || status >= 500)
    }

    /// The server does not take the parameters of a watch-list.
    fn refuses_watch_list(&self) -> bool {
        matches!(self.status, Some(400 | 405 | 406 | 422))
    }

    /// Not so where the network, the credentials or the load are at fault: a new list would meet them as well, at a higher price.
    fn may_be_healed_by_list(&self) -> bool {
        !matches!(self.status, None | Some(401 | 403 | 404 | 429 | 502 | 503 | 504))
    }
}

/// How a watch ended that did not live as long as it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// In good order, but before its time: the server shuts down, or has lost its own watch of the store.
    Early,
    /// The connection broke, could not be made, or was silent.
    Transport,
    /// The server does not know the position any more.
    Expired,
    /// The server refused it or failed at it, or what came made no sense.
    Refused,
}

impl WatchEnd {
    /// Whether what answers next may be another server, or another history of the store.
    pub fn is_doubt(self) -> bool {
        self != WatchEnd::Refused
    }
}

/// How the shell hands on the object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As an object of the list under way.
    Listed,
    Seen,
    Deleted,
    /// Not at all: the stream it came on was given up.
    Nothing,
}

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Give up what is open, and ask for this.
    Ask(Ask),
    /// Hand on the objects of the page as objects of the list under way.
    Objects,
    Tell(Tell),
}

/// A request to the API server. Each one but [`Ask::Nothing`] is answered in the end; how long one may take is the shell's to limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Wait for the next deadline.
    Nothing,
    /// A page of a consistent list. Answered by [`Input::Page`] or [`Input::Failed`].
    Page { limit: Option<u32>, token: Option<String> },
    /// A watch with the initial events, not older than now, and bookmarks. Answered by [`Input::Opened`] or [`Input::Failed`].
    WatchList { seconds: u64 },
    /// A watch from this position, with bookmarks. Answered as the one above.
    Watch { position: ResourceVersion, seconds: u64 },
}

/// A fact for the leader, beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    ListBegun,
    ListEnded(ResourceVersion),
    ListFailed(Failure),
    Bookmark(ResourceVersion),
    WatchLost(WatchEnd, Failure),
    WatchResumed,
    /// What was known is listed anew, for this reason. Followed by [`Tell::ListBegun`].
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
    /// The last list failed: the next one is announced when the server answers.
    failing: bool,
    /// A bookmark has been seen.
    bookmarked: bool,
    /// Watch-lists in a row that were ended before they were complete.
    cut_short: u32,
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
    /// Only inside of a transition.
    Between,
}

#[derive(Debug)]
enum Next {
    List,
    Page(Pages),
    Watch(Watch),
}

/// A watch or watch-list, asked for or open.
#[derive(Debug)]
struct Stream {
    asked: Time,
    /// How long the server was asked to go on.
    seconds: u64,
    /// Everything that had come by then was handed on; `None` before it is open.
    quiet_since: Option<Time>,
}

impl Stream {
    fn new(now: Time, seconds: u64) -> Stream {
        Stream { asked: now, seconds, quiet_since: None }
    }

    /// The server ends it before its time. The server counts from when it has the request, so no end in time comes early.
    fn is_early(&self, now: Time) -> bool {
        now.since(self.asked) + EARLY_AT_LEAST < Duration::from_secs(self.seconds)
    }
}

/// How far the list under way is known to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    No,
    Begun,
    /// Objects have been handed on.
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
        };
        follow.list(now);
        follow
    }

    /// Takes an answer, or what a watch brings beside objects. What does not belong to the present state is stale, and ignored.
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

    /// How to hand on the object of an event of the open stream; `version` is the one that it carries.
    pub fn pass(&mut self, deleted: bool, version: Option<ResourceVersion>) -> Pass {
        match &mut self.state {
            // Between the initial events and their bookmark the watch may already run.
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

    /// Everything that came over the open stream is handed on, and the shell begins to wait: silence counts from here.
    pub fn waits(&mut self, now: Time) {
        if let State::Initial(stream) | State::Watching { stream, .. } = &mut self.state
            && stream.quiet_since.is_some()
        {
            stream.quiet_since = Some(now);
        }
    }

    /// Takes in that time has passed.
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

    /// A list is under way, from its first request to its end.
    pub fn is_listing(&self) -> bool {
        matches!(self.state, State::Page(_) | State::Initial(_) | State::Rest { then: Next::Page(_), .. })
    }

    /// The server has no watch-list here.
    pub fn is_paged(&self) -> bool {
        self.config.paged
    }

    // Lists. Of those in pages: `pages`.

    fn list(&mut self, now: Time) {
        self.announced = Announced::No;
        // After a failure the leader hears of a new list when the server has begun to answer, so that the failure stays visible.
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
                    // A server that knows of watch-lists sends no other bookmark before this one.
                    self.list_in_pages();
                }
            }
            Input::Ended => {
                self.cut_short = (self.cut_short + 1).min(LONGER_LISTS_MAX);
                let why = format!("{}: the list ended before its end", self.config.name);
                self.list_failed(now, Failure::senseless(why));
            }
            Input::Failed(failure) if failure.refuses_watch_list() => self.list_in_pages(),
            Input::Failed(failure) => self.list_failed(now, failure),
            Input::Page { .. } | Input::Unusable(_) => self.state = State::Initial(stream),
        }
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

    /// What came cannot be followed up. What the machine made of it and the shell has not taken yet is void.
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

    // Both.

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
