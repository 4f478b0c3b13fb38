//! Audits: regular comparisons of a collection with the object count of the server. They find objects that a watch has
//! lost, because no event announces such a loss.

use super::{Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::KindId;
use crate::object::ResourceVersion;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// Time between two count comparisons of a collection.
const AUDIT_EVERY: Duration = Duration::from_secs(3600);
/// Time before a second comparison confirms a difference.
const AUDIT_AGAIN: Duration = Duration::from_secs(10);
/// Time before the next audit after a failed list, until the list succeeds.
const AUDIT_FAILED_AGAIN: Duration = Duration::from_secs(300);

/// The count of an audit.
#[derive(Debug)]
pub(super) struct Count {
    /// The version of the count.
    version: ResourceVersion,
    counted: u64,
    /// True if the previous count differed too.
    again: bool,
}

impl Count {
    pub(super) fn is_before(&self, version: &ResourceVersion) -> bool {
        self.version.is_before(version)
    }
}

impl Leader {
    /// Schedules the next audit of a listed collection in one hour, with a jitter of some minutes.
    pub(super) fn audit_later(&mut self, kind: KindId) {
        let wait = self.cx.jitter.between(AUDIT_EVERY, AUDIT_EVERY + AUDIT_EVERY / 10);
        self.audit_in(kind, wait);
    }

    /// Schedules the next audit of a collection after `wait`. An earlier setting is replaced.
    fn audit_in(&mut self, kind: KindId, wait: Duration) {
        let at = self.cx.now + wait;
        self.prober.set_audit(kind, at);
        self.cx.timers.set(at, Timer::Audit(kind));
    }

    /// Audits a collection if its audit is due.
    pub(super) fn audit_due(&mut self, kind: KindId) {
        if self.prober.take_audit(self.cx.now, kind) {
            self.audit(kind, false);
        }
    }

    /// Asks the server for the object count of a collection.
    pub(super) fn audit(&mut self, kind: KindId, again: bool) {
        let entry = self.world.coverage().kind(kind);
        if !entry.is_watched() {
            return;
        }
        if entry.is_synced() && self.cx.term.is_some() {
            return self.probe(kind, None, Some(1), Purpose::Audit { again });
        }
        self.audit_in(kind, AUDIT_EVERY);
    }

    pub(super) fn audit_answered(&mut self, kind: KindId, again: bool, answer: Result<ProbeAnswer, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => return self.audit_failed(kind, &why),
        };
        self.world.note_error(&mut self.cx, kind, String::new());
        let rest = if answer.complete { Some(0) } else { answer.remaining };
        let Some(counted) = rest.map(|rest| rest.saturating_add(answer.objects.len() as u64)) else {
            return self.audit_in(kind, AUDIT_EVERY);
        };
        let version = answer.resource_version;
        let position = self.world.coverage().kind(kind).position().cloned();
        if position.as_ref().is_some_and(|position| position.is_before(&version)) {
            // Changes that the watch has not shown yet may explain the difference.
            self.prober.keep_count(kind, Count { version, counted, again });
            self.audit_in(kind, AUDIT_EVERY);
        } else if position.is_some_and(|position| version.is_before(&position)) {
            match again {
                true => self.cx.timers.set(self.cx.now + AUDIT_AGAIN, Timer::Recount(kind)),
                false => self.audit_in(kind, AUDIT_AGAIN),
            }
        } else {
            self.counted(kind, counted, again);
        }
    }

    /// Compares a stored count with the graph if a watch that resumes at this version has shown all changes up to the
    /// count.
    pub(super) fn compare_count(&mut self, kind: KindId, version: &ResourceVersion) {
        if let Some(count) = self.prober.take_count(kind, version) {
            self.counted(kind, count.counted, count.again);
        }
    }

    /// Handles the object count of the server at the current position of the watch.
    fn counted(&mut self, kind: KindId, counted: u64, again: bool) {
        let entry = self.world.coverage().kind(kind);
        let known = entry.listed() as u64;
        if counted == known || !entry.is_synced() {
            self.audit_in(kind, AUDIT_EVERY);
        } else if again {
            self.world.relist(&mut self.cx, kind, "the object count of the API server differs from its watch");
            self.audit_in(kind, AUDIT_EVERY);
        } else {
            self.cx.timers.set(self.cx.now + AUDIT_AGAIN, Timer::Recount(kind));
        }
    }

    /// Reports a failed audit list. A watch may last for days after lists became forbidden, and a restart would then
    /// fail. The report warns in time.
    fn audit_failed(&mut self, kind: KindId, why: &str) {
        let error = format!("the watch continues, but a new list failed: {why}");
        self.world.note_error(&mut self.cx, kind, error);
        self.audit_in(kind, AUDIT_FAILED_AGAIN);
    }
}
