//! Refused credentials. The executor accepts no work until the API server accepts the credentials again.
//!
//! Every item would fail here in the same way, and succeed on another executor. So buffered leases are returned and the
//! window closes. The executor repeats one cheap read with the same credentials, at growing intervals, until the read
//! succeeds.

use super::{Event, Link, Output, Session};
use crate::time::Time;
use crate::work::ToLeader;
use alloc::string::String;
use core::time::Duration;

/// Delay before the first check. It is short, because the executor may soon read a replaced token file.
const CHECK_MIN: Duration = Duration::from_secs(1);
const CHECK_MAX: Duration = Duration::from_secs(60);

/// The state while credentials are refused.
#[derive(Debug)]
pub(super) struct Unaccepted {
    pub(super) since: Time,
    /// `None` while a check is in progress.
    pub(super) check_at: Option<Time>,
    wait: Duration,
}

impl Session {
    /// An attempt got a 401.
    pub(super) fn credentials_refused(&mut self, now: Time, why: String) {
        if self.unaccepted.is_some() {
            return;
        }
        self.unaccepted = Some(Unaccepted { since: now, check_at: None, wait: CHECK_MIN });
        self.window_moved = true;
        // The window is sent before the report, because the leader must not grant the same item here again.
        self.send_window();
        self.hand_back_buffered();
        self.check_later(now, why);
    }

    /// A check has ended.
    pub(super) fn credentials_checked(&mut self, now: Time, result: Result<(), String>) {
        let Some(unaccepted) = self.unaccepted.as_mut().filter(|unaccepted| unaccepted.check_at.is_none()) else {
            return self.reject("a check of the credentials ended that was not requested");
        };
        match result {
            Ok(()) => {
                let refused_for = now.since(unaccepted.since);
                self.unaccepted = None;
                self.emit(Event::CredentialsAccepted { refused_for });
                self.send_window();
            }
            Err(why) => {
                unaccepted.wait = unaccepted.wait.saturating_mul(2).min(CHECK_MAX);
                self.check_later(now, why);
            }
        }
    }

    fn check_later(&mut self, now: Time, why: String) {
        let Some(unaccepted) = &mut self.unaccepted else { return };
        let check_in = self.jitter.between(unaccepted.wait / 2, unaccepted.wait);
        unaccepted.check_at = Some(now + check_in);
        self.emit(Event::CredentialsRefused { why, check_in });
    }

    pub(super) fn check_credentials(&mut self, now: Time) {
        if let Some(unaccepted) = &mut self.unaccepted
            && unaccepted.check_at.is_some_and(|at| now >= at)
        {
            unaccepted.check_at = None;
            self.outputs.push_back(Output::CheckCredentials);
        }
    }

    pub(super) fn send_window(&mut self) {
        if matches!(self.link, Link::Active(_)) {
            let max_outstanding = self.offered_window();
            self.outputs.push_back(Output::Send(ToLeader::Window { max_outstanding }));
        }
    }

    /// The window that the leader may use now.
    pub(super) fn offered_window(&self) -> u32 {
        if self.unaccepted.is_some() { 0 } else { u32::try_from(self.window()).unwrap_or(u32::MAX) }
    }
}
