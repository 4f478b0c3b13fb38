//! A list in pages.

use super::{Announced, Ask, Failure, Follow, Input, Next, Output, RESUME_BACKOFF_MAX, State, Watch};
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::format;
use alloc::string::String;

/// Maximum number of attempts for a page before all earlier pages are discarded.
const PAGE_TRIES_MAX: u32 = 5;
/// Maximum number of pages of a list. A server that sends more never finishes.
const PAGES_MAX: u32 = 1_000_000;

/// The pages so far.
#[derive(Debug)]
pub(super) struct Pages {
    /// `None`: all objects in one page.
    limit: Option<u32>,
    /// The position of the first page. All pages show the collection as of this position.
    position: Option<ResourceVersion>,
    token: Option<String>,
    count: u32,
    /// Attempts for the current page.
    tries: u32,
}

impl Pages {
    pub(super) fn new(limit: Option<u32>) -> Pages {
        Pages { limit, position: None, token: None, count: 0, tries: 0 }
    }
}

impl Follow {
    pub(super) fn ask_page(&mut self, mut pages: Pages) {
        pages.tries += 1;
        self.ask(Ask::Page { limit: pages.limit, token: pages.token.clone() });
        self.state = State::Page(pages);
    }

    pub(super) fn page_answered(&mut self, now: Time, pages: Pages, input: Input) {
        match input {
            Input::Page { position, token } => self.page_came(now, pages, position, token),
            Input::Failed(failure) => self.page_failed(now, pages, failure),
            Input::Opened | Input::Bookmark { .. } | Input::Ended | Input::Unusable(_) => {
                self.state = State::Page(pages)
            }
        }
    }

    fn page_came(&mut self, now: Time, pages: Pages, position: Option<ResourceVersion>, token: Option<String>) {
        if pages.position.is_none() {
            self.begin();
        }
        let Some(position) = pages.position.or(position) else {
            return self.pages_are_senseless(now, "has no resourceVersion, so it cannot be watched");
        };
        self.announced = Announced::Filled;
        self.outputs.push_back(Output::Objects);
        match token {
            None => {
                self.list_ended(position.clone());
                self.ask_watch(now, Watch::new(now, position));
            }
            Some(_) if pages.limit.is_none() => {
                self.pages_are_senseless(now, "is incomplete although no limit was requested");
            }
            Some(_) if pages.count + 1 >= PAGES_MAX => self.pages_are_senseless(now, "never ends"),
            Some(_) => {
                let (limit, count) = (pages.limit, pages.count + 1);
                self.ask_page(Pages { limit, position: Some(position), token, count, tries: 0 });
            }
        }
    }

    fn page_failed(&mut self, now: Time, pages: Pages, failure: Failure) {
        if failure.is_expired() && pages.limit.is_some() {
            // The token of the next page has expired, so reading in pages is too slow. The next request asks for all
            // objects at once.
            return self.ask_page(Pages::new(None));
        }
        // A page after the first is worth another attempt, because its token is valid for minutes, and many objects may
        // precede it.
        if pages.token.is_some() && failure.may_pass() && pages.tries < PAGE_TRIES_MAX {
            let wait = self.wait(&failure, RESUME_BACKOFF_MAX);
            return self.rest(now + wait, Next::Page(pages));
        }
        self.list_failed(now, failure);
    }

    fn pages_are_senseless(&mut self, now: Time, why: &str) {
        self.list_failed(now, Failure::senseless(format!("list {}: the answer {why}", self.config.name)));
    }
}
