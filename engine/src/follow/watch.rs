//! A watch of a collection, over several streams.

use super::{Ask, Failure, Follow, Input, Next, RESUME_BACKOFF_MAX, State, Stream, Tell, WatchEnd};
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::format;
use alloc::string::String;
use core::mem;
use core::time::Duration;

/// Minimum life of a watch after which a new list may start at once.
const RELIST_AT_ONCE_AFTER: Duration = Duration::from_secs(5);
/// Minimum life of a stream that the server ends early after which the next stream may start at once.
const RESUME_AT_ONCE_AFTER: Duration = Duration::from_secs(5);
/// Number of consecutive streams with only failures after which a new list starts.
const FRUITLESS_WATCHES_MAX: u32 = 3;

/// The position of the watch, and the results of its streams.
#[derive(Debug)]
pub(super) struct Watch {
    position: ResourceVersion,
    began: Time,
    /// The current stream has sent data.
    progress: bool,
    /// One of the earlier streams has sent data.
    fruitful: bool,
    /// Consecutive streams without data.
    fruitless: u32,
    /// The last loss that the leader knows, unless the watch has resumed.
    lost: Option<String>,
}

impl Watch {
    pub(super) fn new(now: Time, position: ResourceVersion) -> Watch {
        Watch { position, began: now, progress: false, fruitful: false, fruitless: 0, lost: None }
    }

    pub(super) fn advance(&mut self, position: Option<ResourceVersion>) {
        self.progress = true;
        if let Some(position) = position {
            self.position = position;
        }
    }
}

impl Follow {
    pub(super) fn ask_watch(&mut self, now: Time, watch: Watch) {
        let seconds = self.watch_for_s();
        self.ask(Ask::Watch { position: watch.position.clone(), seconds });
        self.state = State::Opening { watch, stream: Stream::new(now, seconds) };
    }

    pub(super) fn opening(&mut self, now: Time, mut watch: Watch, mut stream: Stream, input: Input) {
        match input {
            Input::Opened => {
                if watch.lost.take().is_some() {
                    self.tell(Tell::WatchResumed);
                }
                stream.quiet_since = Some(now);
                self.state = State::Watching { watch, stream };
            }
            Input::Failed(failure) => self.watch_failed(now, watch, failure),
            Input::Page { .. } | Input::Bookmark { .. } | Input::Ended | Input::Unusable(_) => {
                self.state = State::Opening { watch, stream };
            }
        }
    }

    pub(super) fn watching(&mut self, now: Time, mut watch: Watch, stream: Stream, input: Input) {
        match input {
            Input::Bookmark { position, .. } => {
                self.bookmarked = true;
                watch.advance(Some(position.clone()));
                self.tell(Tell::Bookmark(position));
                self.state = State::Watching { watch, stream };
            }
            Input::Ended => self.watch_ended(now, watch, &stream),
            Input::Failed(failure) => self.watch_failed(now, watch, failure),
            Input::Page { .. } | Input::Opened | Input::Unusable(_) => self.state = State::Watching { watch, stream },
        }
    }

    /// Records the result of an ended stream.
    fn stream_over(watch: &mut Watch) {
        if mem::take(&mut watch.progress) {
            watch.fruitful = true;
            watch.fruitless = 0;
        } else {
            watch.fruitless += 1;
        }
    }

    fn watch_ended(&mut self, now: Time, mut watch: Watch, stream: &Stream) {
        Follow::stream_over(&mut watch);
        let is_early = stream.is_early(now);
        if is_early {
            let why = format!("watch {}: the API server ended it early", self.config.name);
            self.lose(&mut watch, WatchEnd::Early, Failure::senseless(why));
        }
        // Each watch can begin with one event and end at once.
        let lasted = !is_early || now.since(stream.asked) >= RESUME_AT_ONCE_AFTER;
        if watch.fruitless == 0 && lasted {
            self.backoff.reset();
            return self.ask_watch(now, watch);
        }
        // Wait before the next watch, in case the server ends every watch at once.
        let wait = self.backoff.next_delay();
        self.rest(now + wait, Next::Watch(watch));
    }

    pub(super) fn watch_failed(&mut self, now: Time, mut watch: Watch, failure: Failure) {
        Follow::stream_over(&mut watch);
        if watch.fruitless == 0 {
            self.backoff.reset();
        }
        if failure.is_expired() {
            self.lose(&mut watch, WatchEnd::Expired, failure.clone());
            return self.list_anew(now, &watch, failure.sentence);
        }
        let hopeless = watch.fruitless >= FRUITLESS_WATCHES_MAX && failure.may_be_healed_by_list();
        let wait = (!hopeless).then(|| self.wait(&failure, RESUME_BACKOFF_MAX));
        let end = if failure.is_transport() { WatchEnd::Transport } else { WatchEnd::Refused };
        self.lose(&mut watch, end, failure.clone());
        match wait {
            Some(wait) => self.rest(now + wait, Next::Watch(watch)),
            None => self.list_anew(now, &watch, failure.sentence),
        }
    }

    /// Reports the loss of the watch, unless the leader already knows the loss and its reason.
    fn lose(&mut self, watch: &mut Watch, end: WatchEnd, failure: Failure) {
        if watch.lost.as_ref() != Some(&failure.sentence) {
            watch.lost = Some(failure.sentence.clone());
            self.tell(Tell::WatchLost(end, failure));
        }
    }

    pub(super) fn list_anew(&mut self, now: Time, watch: &Watch, why: String) {
        self.tell(Tell::ListsAnew(why));
        if watch.fruitful || watch.progress || now.since(watch.began) >= RELIST_AT_ONCE_AFTER {
            self.backoff.reset();
            return self.list(now);
        }
        let wait = self.backoff.next_delay();
        self.rest(now + wait, Next::List);
    }
}
