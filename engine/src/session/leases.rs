//! The life of a lease: buffered, started, finished and reported; or returned.

use super::{Event, Link, Output, REPORTS_MAX, Returned, Session, Started, Stream};
use crate::time::Time;
use crate::work::{
    BATCH_MAX_ENTRIES, LeaseId, Outcome, PROTOCOL_REPORTS_SAY_WHAT, ReportResult, ReturnCause, RevokeMode, Term,
    ToLeader, WorkLease, WorkReport, WorkReturn,
};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

/// Maximum time that a report or return waits for others.
const FLUSH_AFTER: Duration = Duration::from_millis(10);
/// Number of waiting reports or returns after which they are sent at once.
const FLUSH_ENTRIES: usize = 32;
/// Maximum number of findings in one message besides its first report. They hold whole references, and a message must
/// stay far below 4 MiB.
const BATCH_MAX_FINDINGS: usize = 200;

const _: () = assert!(FLUSH_ENTRIES <= BATCH_MAX_ENTRIES);

impl Session {
    pub(super) fn granted(&mut self, leases: Vec<WorkLease>) {
        let Link::Active(Stream { window, .. }) = self.link else { return };
        let mut outstanding = self.buffered.len() + self.started.values().filter(|started| started.counted).count();
        let mut beyond_window = 0_usize;
        for lease in leases {
            if let Some(election) = self.election_of(lease.id) {
                self.reject(format!("lease {} granted twice", lease.id));
                if election != lease.term.election {
                    self.hand_back(&lease, ReturnCause::NotStarted);
                }
                continue;
            }
            if let Some(cause) = self.unwanted(&lease) {
                self.hand_back(&lease, cause);
            } else if outstanding >= window {
                beyond_window += 1;
                self.hand_back(&lease, ReturnCause::NotStarted);
            } else {
                outstanding += 1;
                self.buffered.push_back(lease);
            }
        }
        if beyond_window > 0 {
            self.reject(format!("{beyond_window} leases beyond the window of {window}"));
        }
    }

    pub(super) fn revoked(&mut self, leases: &[LeaseId], mode: RevokeMode) {
        let revoked: BTreeSet<LeaseId> = leases.iter().copied().collect();
        self.hand_back_where(|lease| revoked.contains(&lease.id).then_some(ReturnCause::NotStarted));
        match mode {
            RevokeMode::IfNotStarted => {}
            RevokeMode::Stop => {
                for id in revoked {
                    if let Some(started) = self.started.get_mut(&id)
                        && !mem::replace(&mut started.cancelled, true)
                    {
                        self.outputs.push_back(Output::Cancel(id));
                    }
                }
            }
        }
    }

    pub(super) fn finished(&mut self, now: Time, report: WorkReport) {
        let Some(started) = self.started.remove(&report.lease) else {
            self.reject(format!("an attempt for lease {} ended, but no such attempt was in progress", report.lease));
            return;
        };
        self.learn(now, started.since, started.collection, report.outcome, report.api_calls);
        if report.outcome == Outcome::Unauthenticated {
            self.credentials_refused(now, report.message.clone());
        }
        if matches!(self.link, Link::Active(_)) {
            self.unsent.push_back(report.lease);
        }
        self.reports.insert(report.lease, report);
        if self.reports.len() > REPORTS_MAX
            && let Some((oldest, _)) = self.reports.pop_first()
        {
            self.unsent.retain(|id| *id != oldest);
            self.reject(format!("{REPORTS_MAX} reports wait for a leader; dropped the oldest, of lease {oldest}"));
        }
    }

    pub(super) fn acknowledged(&mut self, results: &[(LeaseId, ReportResult)]) {
        // The leader has the report, whatever its result.
        let unknown = results.iter().filter(|(id, _)| self.reports.remove(id).is_none()).count();
        if unknown > 0 {
            self.reject(format!("the leader acknowledged {unknown} unknown reports"));
        }
        let reports = &self.reports;
        self.unsent.retain(|id| reports.contains_key(id));
    }

    /// A newer term of the same election: grants of the deposed leader are not started any more.
    pub(super) fn raise_term(&mut self, term: Term) {
        match &self.term {
            Some(known) if known.election == term.election && known.number < term.number => {
                let number = term.number;
                self.term = Some(term);
                self.hand_back_where(|lease| (lease.term.number < number).then_some(ReturnCause::TermStale));
            }
            Some(_) | None => {}
        }
    }

    /// Sorts held leases when a session opens. A buffered lease stays only if the leader adopted it *and* granted it in
    /// this very term. All other buffered leases are returned at once, because their attempts have not started. Started
    /// leases end in a report in any case.
    pub(super) fn reclaim(&mut self, term: &Term, adopted: Vec<LeaseId>) {
        let adopted: BTreeSet<LeaseId> = adopted.into_iter().collect();
        for (id, started) in &mut self.started {
            started.counted = adopted.contains(id);
        }
        self.hand_back_where(|lease| {
            if lease.term.number < term.number {
                Some(ReturnCause::TermStale)
            } else if lease.term != *term || !adopted.contains(&lease.id) {
                Some(ReturnCause::NotStarted)
            } else {
                None
            }
        });
        // Ids of another election would identify other leases here.
        self.returns.retain(|returned| returned.election == term.election);
        self.unsent = self.reports.keys().copied().collect();
    }

    /// The session has ended without a message of the leader.
    pub(super) fn lapse(&mut self, now: Time) {
        self.writes_end = None;
        self.lapsed = Some(now);
        self.emit(Event::Lapsed);
        self.hand_back_where(|_| Some(ReturnCause::SessionLapsed));
        self.cancel_started();
        match self.link {
            Link::Active(_) => self.hang_up(now, String::from("no heartbeat was acknowledged in time")),
            Link::Waiting { .. } | Link::Connecting { .. } | Link::Greeting { .. } | Link::Over => {}
        }
    }

    pub(super) fn cancel_started(&mut self) {
        for (&id, started) in &mut self.started {
            if !mem::replace(&mut started.cancelled, true) {
                self.outputs.push_back(Output::Cancel(id));
            }
        }
    }

    pub(super) fn hand_back_buffered(&mut self) {
        self.hand_back_where(|_| Some(ReturnCause::NotStarted));
    }

    /// The number of returns that the leader waits for. After the end of the session the leader has granted the leases
    /// to other executors.
    pub(super) fn worthwhile_returns(&self) -> usize {
        if self.writes_end.is_some() { self.returns.len() } else { 0 }
    }

    pub(super) fn start_what_fits(&mut self, now: Time) {
        self.open_share();
        self.start_within_share(now);
        self.close_share(now);
    }

    fn start_within_share(&mut self, now: Time) {
        let Link::Active(Stream { leaving: None, .. }) = self.link else { return };
        if self.drain.is_some() || self.unaccepted.is_some() || self.writes_end.is_none_or(|end| now >= end) {
            return;
        }
        loop {
            let slots = self.concurrency().saturating_sub(self.started.len());
            if let Some(limit) = self.limit.as_mut().filter(|_| slots == 0) {
                limit.filled(now);
            }
            let most = slots.min(BATCH_MAX_ENTRIES);
            let mut leases: Vec<WorkLease> = Vec::new();
            let mut held_back = VecDeque::new();
            while leases.len() < most
                && let Some(lease) = self.buffered.pop_front()
            {
                if self.may_start(now) {
                    leases.push(lease);
                } else {
                    held_back.push_back(lease);
                }
            }
            while let Some(lease) = held_back.pop_back() {
                self.buffered.push_front(lease);
            }
            if leases.is_empty() {
                return;
            }
            self.tell_started(leases.iter().map(|lease| lease.id).collect());
            for lease in leases {
                let (item, term) = (lease.item.id, lease.term.clone());
                let collection = lease.item.target.group_resource();
                let started = Started { since: now, collection, item, term, cancelled: false, counted: true };
                self.started.insert(lease.id, started);
                self.outputs.push_back(Output::Start(lease));
            }
        }
    }

    pub(super) fn flush(&mut self, now: Time) {
        let Link::Active(Stream { leaving, .. }) = &self.link else { return };
        let entries = self.unsent.len() + self.returns.len();
        let idle = self.started.is_empty() && self.buffered.is_empty();
        let hurry = idle || leaving.is_some() || self.drain.is_some() || entries >= FLUSH_ENTRIES;
        if entries > 0 && !hurry && now < *self.flush_at.get_or_insert(now + FLUSH_AFTER) {
            return;
        }
        self.flush_at = None;
        while !self.unsent.is_empty() || !self.returns.is_empty() {
            let message = self.next_batch();
            self.outputs.push_back(Output::Send(message));
        }
    }

    fn next_batch(&mut self) -> ToLeader {
        let mut reports: Vec<WorkReport> = Vec::new();
        let mut findings = 0;
        let says_what = matches!(&self.link, Link::Active(stream) if stream.protocol >= PROTOCOL_REPORTS_SAY_WHAT);
        while reports.len() < BATCH_MAX_ENTRIES
            && let Some(id) = self.unsent.pop_front()
        {
            let Some(report) = self.reports.get(&id) else { continue };
            findings += report.findings.len();
            if findings > BATCH_MAX_FINDINGS && !reports.is_empty() {
                self.unsent.push_front(id);
                break;
            }
            // The leader that granted the lease needs no description of it.
            let late = says_what && self.term.as_ref() != Some(&report.term);
            let about = report.about.clone().filter(|_| late);
            let audit_id = if says_what { report.audit_id.clone() } else { String::new() };
            reports.push(WorkReport { about, audit_id, ..report.clone() });
        }
        let room = (BATCH_MAX_ENTRIES - reports.len()).min(self.returns.len());
        let returns = self.returns.drain(..room).map(|returned| returned.entry).collect();
        ToLeader::Reports { reports, returns }
    }

    /// If the caller passes several facts before it polls, one message reports all their starts.
    fn tell_started(&mut self, mut ids: Vec<LeaseId>) {
        let not_begun = |output: &&mut Output| !matches!(output, Output::Start(_));
        match self.outputs.iter_mut().rev().find(not_begun) {
            Some(Output::Send(ToLeader::Started { leases })) if leases.len() + ids.len() <= BATCH_MAX_ENTRIES => {
                leases.append(&mut ids);
            }
            Some(_) | None => self.outputs.push_back(Output::Send(ToLeader::Started { leases: ids })),
        }
    }

    /// Returns why this executor refuses a granted lease. A valid term counts even if the executor refuses the lease.
    fn unwanted(&mut self, lease: &WorkLease) -> Option<ReturnCause> {
        let stale = self
            .term
            .as_ref()
            .is_none_or(|known| lease.term.election != known.election || lease.term.number < known.number);
        if stale {
            self.emit(Event::StaleTerm { lease: lease.id, term: lease.term.clone() });
            return Some(ReturnCause::TermStale);
        }
        if lease.id.term != lease.term.number {
            self.reject(format!("lease {} has the invalid term {}", lease.id, lease.term.number));
            return Some(ReturnCause::NotStarted);
        }
        self.raise_term(lease.term.clone());
        if !self.config.kinds.contains(&lease.item.action.kind()) {
            return Some(ReturnCause::KindUnsupported);
        }
        (self.drain.is_some() || self.unaccepted.is_some()).then_some(ReturnCause::NotStarted)
    }

    /// The election of the held lease with this id.
    fn election_of(&self, id: LeaseId) -> Option<crate::object::Name> {
        let buffered = self.buffered.iter().find(|lease| lease.id == id).map(|lease| &lease.term);
        let started = || self.started.get(&id).map(|started| &started.term);
        let reported = || self.reports.get(&id).map(|report| &report.term);
        buffered.or_else(started).or_else(reported).map(|term| term.election.clone())
    }

    fn hand_back(&mut self, lease: &WorkLease, cause: ReturnCause) {
        let entry = WorkReturn { lease: lease.id, cause };
        self.returns.push_back(Returned { election: lease.term.election.clone(), entry });
    }

    /// Returns the buffered leases for which `cause` gives a reason.
    fn hand_back_where(&mut self, cause: impl Fn(&WorkLease) -> Option<ReturnCause>) {
        for lease in mem::take(&mut self.buffered) {
            match cause(&lease) {
                Some(cause) => {
                    if cause == ReturnCause::TermStale {
                        self.emit(Event::StaleTerm { lease: lease.id, term: lease.term.clone() });
                    }
                    self.hand_back(&lease, cause);
                }
                None => self.buffered.push_back(lease),
            }
        }
    }
}
