//! The write rate of executors: shares of the configured limit, and slowed collections for which the API server has
//! pushed back.

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

/// Minimum time between two divisions of the write rate.
const DIVIDE_APART: Duration = Duration::from_millis(100);
/// Time between two regular checks of the shares.
const DIVIDE_EVERY: Duration = Duration::from_secs(1);
/// Time without work after which an executor loses its share.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Number of heartbeats for which a share is valid. Each heartbeat renews the share.
const SHARE_BEATS: u32 = 2;

/// Initial rate of a slowed collection in writes per second, if no rate was measured.
const START_MIN: u32 = 10;
/// Minimum rate of a slowed collection in writes per second.
const FLOOR: u32 = 1;
/// Time between two increases of the rate of a slowed collection. The rate doubles up to half of the rate before the
/// push-back. Above that, it grows by a tenth of that rate. At twice the rate before the push-back, the collection is
/// no longer slowed.
const RAISE_EVERY: Duration = Duration::from_secs(1);
const RAISE_PARTS: usize = 10;
/// Minimum increase of the rate in writes per second.
const RAISE_MIN: u32 = 2;
/// Minimum time between two checks of a slowed collection.
const PACE_MIN: Duration = Duration::from_millis(10);
/// Time between two checks of a slowed collection while no executor has room.
const PACE_IDLE: Duration = Duration::from_millis(100);
/// Time over which the writes of a collection are counted.
const METERED: Duration = Duration::from_secs(1);
/// Number of counted collections from which those without recent writes are forgotten.
const METERS_MAX: usize = 1024;

/// The state of the write rate.
#[derive(Debug, Default)]
pub(in crate::leader) struct Pacing {
    divided: Option<Time>,
    /// The time of the valid division timer; other timers are ignored.
    divide_at: Option<Time>,
    limits: BTreeMap<GroupResource, Limit>,
    meters: BTreeMap<GroupResource, Meter>,
}

/// A collection for which the API server has pushed back. The rate follows additive increase and multiplicative
/// decrease.
#[derive(Debug)]
struct Limit {
    bucket: Bucket,
    /// The time before which the collection receives no grants.
    quiet_until: Time,
    slowed_from: Rate,
    raise_at: Time,
    /// The time of the valid check timer; other timers are ignored.
    look_at: Time,
}

/// The number of answers in the last whole second and in the current second.
#[derive(Debug)]
struct Meter {
    since: Time,
    count: u32,
    last: u32,
}

impl Dispatcher {
    /// Sends the initial share to a session on a new stream. The executor writes only with a share.
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

    /// Gives shares to the sessions that are about to receive grants.
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

    /// Divides the write rate now, or as soon as [`DIVIDE_APART`] permits.
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

    /// Divides the write rate equally among the busy executors. If all executors are idle, it is divided among the
    /// executors that can receive grants.
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

    /// Counts an answer of the API server about this collection that is not a push-back.
    pub(in crate::leader) fn meter(&mut self, cx: &Context, collection: &GroupResource) {
        let now = cx.now;
        if self.pacing.meters.len() >= METERS_MAX {
            self.pacing.meters.retain(|_, meter| now.since(meter.since) < METERED * 2);
        }
        let meter = self.pacing.meters.entry(collection.clone()).or_insert(Meter { since: now, count: 0, last: 0 });
        meter.turn(now);
        meter.count = meter.count.saturating_add(1);
    }

    /// The number of collections whose answers are counted.
    #[cfg(test)]
    pub(in crate::leader) fn metered(&self) -> usize {
        self.pacing.meters.len()
    }

    /// Records a push-back of the API server. The collection receives no grants for `wait`, and half of its earlier
    /// rate afterwards.
    pub(in crate::leader) fn pushed_back(&mut self, cx: &mut Context, collection: &GroupResource, wait: Duration) {
        let now = cx.now;
        let quiet_until = now + wait;
        let measured = self.pacing.meters.get_mut(collection).map_or(0, |meter| {
            meter.turn(now);
            meter.last.max(meter.count)
        });
        let (limit, new) = match self.pacing.limits.get_mut(collection) {
            Some(limit) => {
                // If several requests were in transit at the first push-back, their push-backs count as one.
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
        self.revoke(cx, &recalled, RevokeMode::IfNotStarted, "the API server answers 429 (Too Many Requests)");
    }

    /// Releases the grants that the rate of a slowed collection permits.
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

    /// Returns the rate of a slowed collection.
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
