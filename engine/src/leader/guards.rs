//! The knowledge of this replica about guards: one source for each kind. `holding` decides which items they hold.

use super::GuardRead;
use crate::guard::GuardKind;
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::string::String;
use core::time::Duration;

/// Time after the last confirmation for which the set of guards counts as known.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The sources of guards by kind.
#[derive(Debug)]
pub(super) struct Guards([Source; GuardKind::ALL.len()]);

impl Default for Guards {
    fn default() -> Guards {
        Guards(GuardKind::ALL.map(Source::new))
    }
}

impl Guards {
    pub(super) fn of(&self, kind: GuardKind) -> &Source {
        &self.0[kind as usize]
    }

    pub(super) fn of_mut(&mut self, kind: GuardKind) -> &mut Source {
        &mut self.0[kind as usize]
    }
}

/// The list and the watch of one kind of guards.
#[derive(Debug)]
pub(super) struct Source {
    kind: GuardKind,
    /// The version up to which the watch has shown the guards.
    position: Option<ResourceVersion>,
    /// The reason why the watch is lost; `None` while it follows.
    lost: Option<String>,
    /// The consistent list in progress.
    reading: Option<GuardRead>,
    last_read: u64,
    /// The time at which all guards were last known for certain.
    confirmed: Time,
    /// The reason why the set of guards is unknown.
    doubt: String,
    /// True if an event has reported the doubt.
    doubt_reported: bool,
    /// True if a guard was left out for lack of room since the current list began.
    left_out: bool,
}

impl Source {
    fn new(kind: GuardKind) -> Source {
        Source {
            kind,
            position: None,
            lost: None,
            reading: None,
            last_read: 0,
            confirmed: Time::ZERO,
            doubt: String::new(),
            doubt_reported: false,
            left_out: false,
        }
    }

    /// Returns the most recent reason why the set of guards was unknown.
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
    pub(super) fn begin_read(&mut self) -> Option<GuardRead> {
        if self.reading.is_some() {
            return None;
        }
        self.last_read += 1;
        self.reading = Some(GuardRead { kind: self.kind, number: self.last_read });
        self.left_out = false;
        self.reading
    }

    /// Ends a consistent list. Returns false if another list was requested since.
    pub(super) fn end_read(&mut self, read: GuardRead) -> bool {
        let is_awaited = self.reading == Some(read);
        if is_awaited {
            self.reading = None;
        }
        is_awaited
    }

    /// Returns whether lists must replace the watch or find a guard that was left out.
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

    /// Returns whether the watch has shown all guards of a list at this version.
    pub(super) fn has_reached(&self, version: &ResourceVersion) -> bool {
        self.position.as_ref().is_some_and(|position| position.reached(version))
    }

    /// Records that all guards are known. Returns true if an event has reported that they were unknown.
    pub(super) fn confirm(&mut self, now: Time) -> bool {
        self.confirmed = now;
        core::mem::take(&mut self.doubt_reported)
    }

    /// Returns whether the guards count as known although the last list failed.
    pub(super) fn is_recent(&self, now: Time) -> bool {
        now.since(self.confirmed) < KNOWN_FOR
    }

    /// Records the reason why the guards are unknown. Returns true if the reason is to be reported.
    pub(super) fn report_doubt(&mut self, why: &str) -> bool {
        let is_news = !self.doubt_reported || self.doubt != why;
        self.doubt_reported = true;
        self.doubt = String::from(why);
        is_news
    }

    /// Records that there was no room for a guard.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }
}
