//! How fast executors write: shares of what the administrator allows, and collections for which the API server has pushed back.

use super::super::context::Context;
use super::super::{StreamId, Timer};
use super::Dispatcher;
use crate::lease::{Session, SessionId};
use crate::object::GroupResource;
use crate::pace::{Bucket, Rate};
use crate::queue::Blocker;
use crate::time::Time;
use crate::work::{LeaseId, RevokeMode, ToExecutor};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// Shares change no more often than this,
const DIVIDE_APART: Duration = Duration::from_millis(100);
/// and are looked at this often: who has had nothing to do for
const DIVIDE_EVERY: Duration = Duration::from_secs(1);
/// so long leaves its share to others.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// A share is good for so many heartbeats, and renewed with each.
const SHARE_BEATS: u32 = 2;

/// What a collection that was pushed back is slowed down from, if nothing was measured.
const START_MIN: u32 = 10;
/// It is never slower than this.
const FLOOR: u32 = 1;
/// Without more pushing back it gets faster this often: to twice as fast up to half of what it was slowed down from, from there by a
/// tenth of that; at twice that it is free.
const RAISE_EVERY: Duration = Duration::from_secs(1);
const RAISE_PARTS: usize = 10;
/// The smallest step up.
const RAISE_MIN: u32 = 2;
/// Two looks at a slowed collection are no closer.
const PACE_MIN: Duration = Duration::from_millis(10);
/// Between two looks where nobody has room.
const PACE_IDLE: Duration = Duration::from_millis(100);
/// Over this the writes of a collection are counted.
const METERED: Duration = Duration::from_secs(1);

/// Everything about pace that the leader remembers.
#[derive(Debug, Default)]
pub(in crate::leader) struct Pacing {
    divided: Option<Time>,
    /// The one timer that counts.
    divide_at: Option<Time>,
    limits: BTreeMap<GroupResource, Limit>,
    meters: BTreeMap<GroupResource, Meter>,
}

/// A collection for which the API server has pushed back: additive increase, multiplicative decrease.
#[derive(Debug)]
struct Limit {
    bucket: Bucket,
    /// Nothing is let go before.
    quiet_until: Time,
    slowed_from: Rate,
    raise_at: Time,
    /// The one timer that counts.
    look_at: Time,
}

/// Answers in the last whole second, and in the one under way.
#[derive(Debug)]
struct Meter {
    since: Time,
    count: u32,
    last: u32,
}

impl Dispatcher {
    /// A session on a new stream: it may not write before it has a share.
    pub(in crate::leader) fn welcome_share(&mut self, cx: &mut Context, session: SessionId, stream: StreamId) {
        if cx.cap().is_none() {
            return;
        }
        self.say_share(cx, stream, Rate::ZERO);
        if let Some(session) = self.leases.session_mut(session) {
            session.share = Some(Rate::ZERO);
        }
        self.divide_soon(cx);
    }

    /// Those who are about to be granted something need a share.
    pub(in crate::leader) fn shares_for<'a>(
        &mut self,
        cx: &mut Context,
        sessions: impl Iterator<Item = &'a SessionId>,
    ) {
        let mut lacking = sessions.filter_map(|&id| self.leases.session(id)).map(|session| session.share);
        if cx.cap().is_some() && lacking.any(|share| share.is_none_or(|share| share == Rate::ZERO)) {
            self.divide_soon(cx);
        }
    }

    pub(in crate::leader) fn renew_share(&mut self, cx: &mut Context, id: SessionId) {
        let Some((stream, share)) = self.leases.session(id).and_then(|session| Some((session.stream?, session.share?)))
        else {
            return;
        };
        self.say_share(cx, stream, share);
    }

    /// Divides anew now, or as soon as that is allowed again.
    pub(in crate::leader) fn divide_soon(&mut self, cx: &mut Context) {
        if cx.cap().is_none() {
            return;
        }
        let at = self.pacing.divided.map_or(cx.now, |divided| divided + DIVIDE_APART);
        if at <= cx.now {
            self.divide(cx);
        } else if self.pacing.divide_at.is_none_or(|known| at < known) {
            self.divide_later(cx, at);
        }
    }

    pub(in crate::leader) fn divide_due(&mut self, cx: &mut Context) {
        if self.pacing.divide_at.is_some_and(|at| at <= cx.now) {
            self.pacing.divide_at = None;
            self.divide(cx);
        }
    }

    pub(in crate::leader) fn divide_later(&mut self, cx: &mut Context, at: Time) {
        self.pacing.divide_at = Some(at);
        cx.timers.set(at, Timer::Divide);
    }

    /// Equal shares for all who have something to do, or, where nobody has, for all who might get something.
    pub(in crate::leader) fn divide(&mut self, cx: &mut Context) {
        let Some(cap) = cx.cap() else { return };
        let now = cx.now;
        self.pacing.divided = Some(now);
        let connected: Vec<SessionId> =
            self.leases.sessions().filter(|(_, session)| session.stream.is_some()).map(|(id, _)| id).collect();
        for &id in &connected {
            if let Some(session) = self.leases.session_mut(id).filter(|session| !session.leases.is_empty()) {
                session.busy_until = now + IDLE_AFTER;
            }
        }
        let may = |session: &&Session| !session.draining && session.window > 0;
        let takers = || connected.iter().filter_map(|&id| Some((id, self.leases.session(id).filter(may)?)));
        let mut takers_of: Vec<SessionId> =
            takers().filter(|(_, session)| now < session.busy_until).map(|(id, _)| id).collect();
        if takers_of.is_empty() {
            takers_of = takers().map(|(id, _)| id).collect();
        }
        let share = cap.divided(takers_of.len());
        for &id in &connected {
            let share = if takers_of.binary_search(&id).is_ok() { share } else { Rate::ZERO };
            let Some(session) = self.leases.session_mut(id).filter(|session| session.share != Some(share)) else {
                continue;
            };
            session.share = Some(share);
            self.renew_share(cx, id);
        }
        if !connected.is_empty() && self.pacing.divide_at.is_none() {
            self.divide_later(cx, now + DIVIDE_EVERY);
        }
    }

    pub(in crate::leader) fn say_share(&mut self, cx: &mut Context, stream: StreamId, share: Rate) {
        let valid_for = cx.config.heartbeat_interval * SHARE_BEATS;
        cx.send(stream, ToExecutor::Throttle { max_writes_per_second: share, valid_for });
    }

    /// The API server has answered something about this collection, other than that it was too much.
    pub(in crate::leader) fn meter(&mut self, cx: &Context, collection: &GroupResource) {
        let now = cx.now;
        let meter = self.pacing.meters.entry(collection.clone()).or_insert(Meter { since: now, count: 0, last: 0 });
        meter.turn(now);
        meter.count = meter.count.saturating_add(1);
    }

    /// The API server pushes back: nothing more of this collection for `wait`, and half as much as before after that.
    pub(in crate::leader) fn pushed_back(&mut self, cx: &mut Context, collection: &GroupResource, wait: Duration) {
        let now = cx.now;
        let quiet_until = now + wait;
        let measured = self.pacing.meters.get_mut(collection).map_or(0, |meter| {
            meter.turn(now);
            meter.last.max(meter.count)
        });
        let (limit, new) = match self.pacing.limits.get_mut(collection) {
            Some(limit) => {
                // All that was under way when it began is one pushing back.
                if now >= limit.quiet_until {
                    let slower = limit.bucket.rate().divided(2).max(Rate::per_second(FLOOR));
                    limit.bucket.set_rate(now, slower);
                }
                limit.quiet_until = limit.quiet_until.max(quiet_until);
                (limit, false)
            }
            None => {
                let slowed_from = Rate::per_second(measured.max(START_MIN));
                let bucket = Bucket::new(now, slowed_from.divided(2));
                let limit = Limit { bucket, quiet_until, slowed_from, raise_at: quiet_until, look_at: quiet_until };
                (self.pacing.limits.entry(collection.clone()).or_insert(limit), true)
            }
        };
        limit.bucket.hold_until(limit.quiet_until);
        limit.raise_at = limit.quiet_until + RAISE_EVERY;
        limit.look_at = limit.quiet_until;
        cx.timers.set(limit.look_at, Timer::Pace(collection.clone()));
        if new {
            self.queue.raise(now, Blocker::Throttled { collection: collection.clone() });
        }
        let unstarted: Vec<LeaseId> = self.leases.unstarted();
        let of_it = |id: &LeaseId| {
            let target = self.leases.get(*id).and_then(|lease| self.queue.get(&lease.target));
            target.is_some_and(|item| item.draft.target.group_resource() == *collection)
        };
        let recalled: Vec<LeaseId> = unstarted.into_iter().filter(of_it).collect();
        self.revoke(cx, &recalled, RevokeMode::IfNotStarted, "the API server pushes back");
    }

    /// Lets go what a slowed collection's pace allows.
    pub(in crate::leader) fn pace_due(&mut self, cx: &mut Context, collection: GroupResource) {
        let now = cx.now;
        let Some(limit) = self.pacing.limits.get_mut(&collection).filter(|limit| limit.look_at <= now) else {
            return;
        };
        let blocker = Blocker::Throttled { collection: collection.clone() };
        if now >= limit.raise_at {
            let faster = limit.faster();
            if faster >= limit.slowed_from.plus(limit.slowed_from) {
                self.pacing.limits.remove(&collection);
                return self.queue.lift(&blocker);
            }
            limit.bucket.set_rate(now, faster);
            limit.raise_at = now + RAISE_EVERY;
        }
        let room = self.leases.sessions().any(|(_, session)| session.room() > 0);
        let behind = if room { self.queue.behind(&blocker) } else { 0 };
        let mut released = 0;
        while released < behind && limit.bucket.take(now) {
            released += 1;
        }
        if released == behind {
            limit.bucket.rest(now);
        }
        let next = if released < behind { limit.bucket.next() } else { Some(now + PACE_IDLE) };
        limit.look_at = next.map_or(limit.raise_at, |next| next.min(limit.raise_at)).max(now + PACE_MIN);
        cx.timers.set(limit.look_at, Timer::Pace(collection));
        self.queue.release(&blocker, released);
    }

    /// What is let go of a slowed collection.
    pub(in crate::leader) fn pace_of(&self, collection: &GroupResource) -> Option<Rate> {
        self.pacing.limits.get(collection).map(|limit| limit.bucket.rate())
    }
}

impl Limit {
    fn faster(&self) -> Rate {
        let rate = self.bucket.rate();
        let step = if rate < self.slowed_from.divided(2) { rate } else { self.slowed_from.divided(RAISE_PARTS) };
        rate.plus(step.max(Rate::per_second(RAISE_MIN)))
    }
}

impl Meter {
    fn turn(&mut self, now: Time) {
        let age = now.since(self.since);
        if age >= METERED {
            self.last = if age < METERED * 2 { self.count } else { 0 };
            (self.since, self.count) = (now, 0);
        }
    }
}
