//! This executor's share of the allowed writes, measured on its own clock.

use super::{Event, Link, Session};
use crate::pace::{Bucket, Rate};
use crate::time::Time;
use core::time::Duration;

/// Writes per second after the share has expired without a renewal.
const FALLBACK: u32 = 1;
/// Maximum validity of a share, even if the leader sets a longer one.
const VALID_MAX: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Share {
    bucket: Bucket,
    /// The expiry; `None` after the expiry, when the fallback rate applies.
    until: Option<Time>,
    /// The share is from the previous session, and the leader of this session has not sent one yet. If the share
    /// expires, there is no limit.
    carried: bool,
    /// A write waits for the share.
    pub(super) awaited: bool,
}

impl Share {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let next = if self.awaited { self.bucket.next() } else { None };
        next.into_iter().chain(self.until).min()
    }
}

impl Session {
    pub(super) fn throttled(&mut self, now: Time, rate: Rate, valid_for: Duration) {
        let until = Some(now + valid_for.min(VALID_MAX));
        match &mut self.share {
            Some(share) => {
                share.bucket.set_rate(now, rate);
                (share.until, share.carried) = (until, false);
            }
            None => self.share = Some(Share { bucket: Bucket::new(now, rate), until, carried: false, awaited: false }),
        }
    }

    /// Keeps the share for a new session, whose leader has not sent a share yet.
    pub(super) fn carry_share(&mut self) {
        match &mut self.share {
            // Already expired: the former limit is over.
            Some(share) if share.until.is_none() => self.share = None,
            Some(share) => share.carried = true,
            None => {}
        }
    }

    pub(super) fn expire_share(&mut self, now: Time) {
        let Some(share) = self.share.as_mut().filter(|share| share.until.is_some_and(|until| now >= until)) else {
            return;
        };
        if share.carried {
            self.share = None;
            return;
        }
        share.until = None;
        share.bucket.set_rate(now, Rate::per_second(FALLBACK));
        // Without a stream nothing starts in any case.
        if matches!(self.link, Link::Active(_)) {
            self.emit(Event::ShareLapsed);
        }
    }

    /// An attempt repeated its write.
    pub(super) fn wrote_again(&mut self, times: u32) {
        if let Some(share) = &mut self.share {
            share.bucket.owe(times);
        }
    }

    /// Whether a lease may start now.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        let Some(share) = &mut self.share else { return true };
        // After one refusal, the bucket is not asked again in this round, because it has not filled meanwhile.
        share.awaited = share.awaited || !share.bucket.take(now);
        !share.awaited
    }

    /// Before a round of starts.
    pub(super) fn open_share(&mut self) {
        if let Some(share) = &mut self.share {
            share.awaited = false;
        }
    }

    /// After a round of starts.
    pub(super) fn close_share(&mut self, now: Time) {
        if let Some(share) = &mut self.share
            && !share.awaited
        {
            share.bucket.rest(now);
        }
    }
}
