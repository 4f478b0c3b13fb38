//! The knowledge of this replica about pauses. The queue decides which items they hold.

use super::PauseRead;
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::string::String;
use core::time::Duration;

/// Time after the last confirmation for which the set of pauses counts as known.
const KNOWN_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// The version up to which the watch has shown the pauses.
    position: Option<ResourceVersion>,
    /// The reason why the watch is lost; `None` while it follows.
    lost: Option<String>,
    /// The consistent list in progress.
    reading: Option<PauseRead>,
    last_read: u64,
    /// The time at which all pauses were last known for certain.
    confirmed: Time,
    /// The reason why the set of pauses is unknown.
    doubt: String,
    /// True if an event has reported the doubt.
    doubt_reported: bool,
    /// True if a pause was left out for lack of room since the current list began.
    left_out: bool,
}

impl Pauses {
    /// Returns the most recent reason why the set of pauses was unknown.
    pub(super) fn doubt(&self) -> &str {
        &self.doubt
    }

    pub(super) fn set_doubt(&mut self, why: &str) {
        self.doubt = String::from(why);
    }

    /// Begins a term. A list that was requested before the term does not count.
    pub(super) fn begin_term(&mut self) {
        self.reading = None;
    }

    /// Discards the versions of a lost history.
    pub(super) fn forget_versions(&mut self) {
        self.position = None;
        self.reading = None;
    }

    /// Begins a consistent list, unless one is in progress.
    pub(super) fn begin_read(&mut self) -> Option<PauseRead> {
        if self.reading.is_some() {
            return None;
        }
        self.last_read += 1;
        self.reading = Some(PauseRead(self.last_read));
        self.left_out = false;
        self.reading
    }

    /// Ends a consistent list. Returns false if another list was requested since.
    pub(super) fn end_read(&mut self, read: PauseRead) -> bool {
        let is_awaited = self.reading == Some(read);
        if is_awaited {
            self.reading = None;
        }
        is_awaited
    }

    /// Returns whether lists must replace the watch or find a pause that was left out.
    pub(super) fn needs_reads(&self) -> bool {
        self.lost.is_some() || self.left_out
    }

    /// Records that the resource is not served, so there is nothing to watch.
    pub(super) fn not_served(&mut self) {
        self.lost = None;
        self.position = None;
    }

    /// Records that the watch follows, from this position if the position is known.
    pub(super) fn followed(&mut self, position: Option<ResourceVersion>) {
        self.lost = None;
        if position.is_some() {
            self.position = position;
        }
    }

    /// Records that the watch is lost.
    pub(super) fn lose(&mut self, now: Time, error: String) {
        if self.lost.replace(error).is_none() {
            self.confirmed = now;
        }
    }

    /// Returns whether the watch has shown all pauses of a list at this version.
    pub(super) fn has_reached(&self, version: &ResourceVersion) -> bool {
        self.position.as_ref().is_some_and(|position| position.reached(version))
    }

    /// Records that all pauses are known. Returns true if an event has reported that they were unknown.
    pub(super) fn confirm(&mut self, now: Time) -> bool {
        self.confirmed = now;
        core::mem::take(&mut self.doubt_reported)
    }

    /// Returns whether the pauses count as known although the last list failed.
    pub(super) fn is_recent(&self, now: Time) -> bool {
        now.since(self.confirmed) < KNOWN_FOR
    }

    /// Records the reason why the pauses are unknown. Returns true if the reason is to be reported.
    pub(super) fn report_doubt(&mut self, why: &str) -> bool {
        let is_news = !self.doubt_reported || self.doubt != why;
        self.doubt_reported = true;
        self.doubt = String::from(why);
        is_news
    }

    /// Records that there was no room for a pause.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }
}
