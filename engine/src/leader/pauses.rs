//! How this replica comes to know of pauses. What pauses hold is the queue's.

use super::PauseRead;
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::string::String;
use core::time::Duration;

/// Pauses that were read longer ago are not known any more.
const KNOWN_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Up to here the watch has shown them.
    position: Option<ResourceVersion>,
    /// Why the watch does not follow, while it does not.
    lost: Option<String>,
    /// The consistent list under way.
    reading: Option<PauseRead>,
    last_read: u64,
    /// When it was last certain that all pauses are known.
    confirmed: Time,
    /// Why it is not known which pauses there are.
    doubt: String,
    /// An event has reported the doubt.
    doubt_reported: bool,
    /// A pause was left out, for want of room, since the list under way began.
    left_out: bool,
}

impl Pauses {
    /// Why it is not known which pauses there are, or was not when that was the case last.
    pub(super) fn doubt(&self) -> &str {
        &self.doubt
    }

    pub(super) fn set_doubt(&mut self, why: &str) {
        self.doubt = String::from(why);
    }

    /// A term begins: a list that was asked for before says nothing.
    pub(super) fn begin_term(&mut self) {
        self.reading = None;
    }

    /// Versions of a lost history say nothing about those of the present one.
    pub(super) fn forget_versions(&mut self) {
        self.position = None;
        self.reading = None;
    }

    /// Begins a consistent list, unless one is under way.
    pub(super) fn begin_read(&mut self) -> Option<PauseRead> {
        if self.reading.is_some() {
            return None;
        }
        self.last_read += 1;
        self.reading = Some(PauseRead(self.last_read));
        self.left_out = false;
        self.reading
    }

    /// Ends a consistent list. False if another one was asked for since.
    pub(super) fn end_read(&mut self, read: PauseRead) -> bool {
        let is_awaited = self.reading == Some(read);
        if is_awaited {
            self.reading = None;
        }
        is_awaited
    }

    /// Whether lists have to make up for the watch, or for a pause that was left out.
    pub(super) fn needs_reads(&self) -> bool {
        self.lost.is_some() || self.left_out
    }

    /// The resource is not served: there is nothing to follow.
    pub(super) fn not_served(&mut self) {
        self.lost = None;
        self.position = None;
    }

    /// The watch follows, from this position where it is known.
    pub(super) fn followed(&mut self, position: Option<ResourceVersion>) {
        self.lost = None;
        if position.is_some() {
            self.position = position;
        }
    }

    /// The watch does not follow.
    pub(super) fn lose(&mut self, now: Time, error: String) {
        if self.lost.replace(error).is_none() {
            self.confirmed = now;
        }
    }

    /// Whether the watch has shown all that a list at this version shows.
    pub(super) fn has_reached(&self, version: &ResourceVersion) -> bool {
        self.position.as_ref().is_some_and(|position| position.reached(version))
    }

    /// All pauses are known. True if an event has said that they are not.
    pub(super) fn confirm(&mut self, now: Time) -> bool {
        self.confirmed = now;
        core::mem::take(&mut self.doubt_reported)
    }

    /// Whether pauses count as known although the last list failed.
    pub(super) fn is_recent(&self, now: Time) -> bool {
        now.since(self.confirmed) < KNOWN_FOR
    }

    /// Notes why pauses are not known. True if that is to be reported.
    pub(super) fn report_doubt(&mut self, why: &str) -> bool {
        let is_news = !self.doubt_reported || self.doubt != why;
        self.doubt_reported = true;
        self.doubt = String::from(why);
        is_news
    }

    /// There was no room for a pause.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }
}
