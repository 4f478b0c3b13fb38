//! Audits: a collection is compared with what the server counts, now and then, because no event announces what a watch has lost.

use super::{Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::{KindId, State};
use crate::object::ResourceVersion;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// Between two comparisons of a collection's count.
const AUDIT_EVERY: Duration = Duration::from_secs(3600);
/// Before a difference is believed.
const AUDIT_AGAIN: Duration = Duration::from_secs(10);
/// The same where the list failed: until it works again.
const AUDIT_FAILED_AGAIN: Duration = Duration::from_secs(300);

/// What an audit has counted.
#[derive(Debug)]
pub(super) struct Count {
    /// As of this version.
    version: ResourceVersion,
    counted: u64,
    /// A count before has differed too.
    again: bool,
}

impl Count {
    pub(super) fn is_before(&self, version: &ResourceVersion) -> bool {
        self.version.is_before(version)
    }
}

impl Leader {
    /// The collection is listed: its next audit is an hour away, spread over some minutes.
    pub(super) fn audit_later(&mut self, kind: KindId) {
        let wait = self.cx.jitter.between(AUDIT_EVERY, AUDIT_EVERY + AUDIT_EVERY / 10);
        self.audit_in(kind, wait);
    }

    /// Sets the time of a collection's next audit, whatever was set before.
    fn audit_in(&mut self, kind: KindId, wait: Duration) {
        let at = self.cx.now + wait;
        self.prober.set_audit(kind, at);
        self.cx.timers.set(at, Timer::Audit(kind));
    }

    /// The time of an audit has come, if none was set for later.
    pub(super) fn audit_due(&mut self, kind: KindId) {
        if self.prober.take_audit(self.cx.now, kind) {
            self.audit(kind, false);
        }
    }

    /// Has the server count a collection.
    pub(super) fn audit(&mut self, kind: KindId, again: bool) {
        let entry = self.world.coverage().kind(kind);
        if !entry.is_watched() {
            return;
        }
        if entry.state == State::Synced && self.cx.term.is_some() {
            return self.probe(kind, None, Some(1), Purpose::Audit { kind, again });
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
        let Some(counted) = rest.map(|rest| answer.objects.len() as u64 + rest) else {
            return self.audit_in(kind, AUDIT_EVERY);
        };
        let version = answer.resource_version;
        let position = self.world.coverage().kind(kind).position.clone();
        if position.as_ref().is_some_and(|position| position.is_before(&version)) {
            // What the watch has yet to show may be what makes the difference.
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

    /// The watch goes on at this version. If it has shown all up to that of a count by now, the two are compared.
    pub(super) fn compare_count(&mut self, kind: KindId, version: &ResourceVersion) {
        if let Some(count) = self.prober.take_count(kind, version) {
            self.counted(kind, count.counted, count.again);
        }
    }

    /// The server counts so many objects where the watch stands now.
    fn counted(&mut self, kind: KindId, counted: u64, again: bool) {
        let entry = self.world.coverage().kind(kind);
        let known = (entry.observed + entry.unusable) as u64;
        if counted == known || entry.state != State::Synced {
            self.audit_in(kind, AUDIT_EVERY);
        } else if again {
            self.world.relist(
                &mut self.cx,
                kind,
                "the server counts another number of objects than its watch has shown",
            );
            self.audit_in(kind, AUDIT_EVERY);
        } else {
            self.cx.timers.set(self.cx.now + AUDIT_AGAIN, Timer::Recount(kind));
        }
    }

    /// The watch may go on for days where a list is forbidden by now, and a restart would find that out. So it is said before.
    fn audit_failed(&mut self, kind: KindId, why: &str) {
        let error = format!("it is still watched, but could not be listed anew: {why}");
        self.world.note_error(&mut self.cx, kind, error);
        self.audit_in(kind, AUDIT_FAILED_AGAIN);
    }
}
