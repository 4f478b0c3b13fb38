//! This executor's share of the writes that the leader allows all executors together, kept by this executor's own clock.

use super::{Event, Link, Session};
use crate::pace::{Bucket, Rate};
use crate::time::Time;
use core::time::Duration;

/// What is written where a share has run out and the leader has not said a new one.
const FALLBACK: u32 = 1;
/// The longest a share is good for, whatever the leader says.
const VALID_MAX: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Share {
    bucket: Bucket,
    /// When it runs out; `None` once it has, and the fallback is in force.
    until: Option<Time>,
    /// The leader of this session has not said anything about it: when it runs out, nobody limits this executor.
    carried: bool,
    /// A write is held back.
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

    /// A new session: its leader has not said anything yet.
    pub(super) fn carry_share(&mut self) {
        match &mut self.share {
            // Run out already: what limited it is over.
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
        // Between two streams nothing starts anyway.
        if matches!(self.link, Link::Active(_)) {
            self.emit(Event::ShareLapsed);
        }
    }

    /// An attempt sent its write more often than once.
    pub(super) fn wrote_again(&mut self, times: u32) {
        if let Some(share) = &mut self.share {
            share.bucket.owe(times);
        }
    }

    /// Whether a lease may start now.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        let Some(share) = &mut self.share else { return true };
        // What was held back once is not asked again in this round: the bucket has not filled meanwhile.
        share.awaited = share.awaited || !share.bucket.take(now);
        !share.awaited
    }

    /// Before a round of starts.
    pub(super) fn open_share(&mut self) {
        if let Some(share) = &mut self.share {
            share.awaited = false;
        }
    }

    /// After it.
    pub(super) fn close_share(&mut self, now: Time) {
        if let Some(share) = &mut self.share
            && !share.awaited
        {
            share.bucket.rest(now);
        }
    }
}
