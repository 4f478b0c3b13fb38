//! The concurrency of an executor. The limit follows the number of attempts that the API server answers at full speed.
//!
//! The speed is learned for each collection, because webhooks slow some of them down: the fastest answer of the last
//! one or two minutes counts. A round has as many answers as there may be attempts in progress. A round with a 429
//! halves the number. A round of mostly slow answers reduces it by a quarter. A round that used the whole number adds
//! one. Before the first slow round, the number doubles instead.
//!
//! Slow answers neither reduce the number below [`SHARE`], nor prevent its growth up to that. A slow server is slow for
//! all its clients, and other clients do not send less. Without this minimum a few busy clients would leave no capacity
//! for collection, and dependents would appear faster than they are collected. The server signals overload by its fair
//! queues and by 429.

use super::Session;
use crate::object::GroupResource;
use crate::time::Time;
use crate::work::Outcome;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// The minimum after slow answers: enough to keep an API server on two cores busy.
const SHARE: usize = 16;
/// The initial number: small enough to learn the speed of the server.
const FIRST: usize = 2;
/// Below [`SHARE`], the number doubles if no answer comes for this long, so that a distant or slow server does not
/// delay the growth.
const UNANSWERED: Duration = Duration::from_millis(20);
/// An answer is slow if it takes this many times as long as the fastest one, and [`SLOW_PLUS`] more.
const SLOW_TIMES: u32 = 3;
/// The time for which requests may wait for each other. A busy API server needs less processor time for each request if
/// many wait, and a client that no other client disturbs gets more done. Other clients wait as long.
const SLOW_PLUS: Duration = Duration::from_millis(30);
/// Minimum time for which the fastest answer counts. It counts for at most twice as long.
const FASTEST_COUNTS: Duration = Duration::from_mins(1);
/// Maximum number of collections with a learned speed.
const COLLECTIONS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    limit: usize,
    max: usize,
    /// No round was slow yet, so the number doubles.
    doubles: bool,
    round: Round,
    /// The time at which the number doubles if no answer comes before.
    grows_at: Option<Time>,
    fastest: BTreeMap<GroupResource, Fastest>,
}

/// The answers of a round.
#[derive(Debug, Default)]
struct Round {
    answers: usize,
    slow: usize,
    refused: bool,
    /// All allowed attempts were in progress.
    full: bool,
}

#[derive(Debug)]
struct Fastest {
    since: Time,
    now: Duration,
    before: Duration,
}

impl ConcurrencyLimit {
    pub(super) fn new(max: usize) -> ConcurrencyLimit {
        ConcurrencyLimit {
            limit: FIRST.min(max),
            max,
            doubles: true,
            round: Round::default(),
            grows_at: None,
            fastest: BTreeMap::new(),
        }
    }

    /// The number of allowed attempts.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// All allowed attempts are in progress.
    pub(super) fn filled(&mut self, now: Time) {
        self.round.full = true;
        if self.doubles && self.limit < SHARE.min(self.max) && self.round.answers == 0 {
            self.grows_at.get_or_insert(now + UNANSWERED);
        }
    }

    /// Doubles the number if it is due. True if it changed.
    pub(super) fn grow(&mut self, now: Time) -> bool {
        let is_due = self.grows_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.limit = (self.limit * 2).min(SHARE).min(self.max);
        }
        is_due
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.grows_at
    }

    /// Handles an answer. True if the limit changed.
    fn answered(&mut self, now: Time, collection: GroupResource, took: Duration, outcome: Outcome) -> bool {
        self.round.answers += 1;
        self.grows_at = None;
        self.round.refused |= outcome == Outcome::Throttled;
        let is_slow = self.is_slow(now, collection, took) || outcome == Outcome::Transient;
        self.round.slow += usize::from(is_slow);
        if self.round.answers < self.limit {
            return false;
        }
        let before = self.limit;
        let Round { answers, slow, refused, full } = core::mem::take(&mut self.round);
        let is_crowded = slow * 2 > answers;
        self.doubles &= !refused && !is_crowded;
        self.limit = match (refused, is_crowded && before >= SHARE, full) {
            (true, _, _) => before / 2,
            (false, true, _) => (before - before.div_ceil(4)).max(SHARE),
            (false, false, true) if self.doubles => before * 2,
            (false, false, true) => before + 1,
            (false, false, false) => before,
        };
        self.limit = self.limit.clamp(1, self.max);
        self.limit != before
    }

    fn is_slow(&mut self, now: Time, collection: GroupResource, took: Duration) -> bool {
        if self.fastest.len() == COLLECTIONS_MAX && !self.fastest.contains_key(&collection) {
            return false;
        }
        let fastest = self.fastest.entry(collection).or_insert(Fastest { since: now, now: took, before: took });
        if now.since(fastest.since) >= FASTEST_COUNTS {
            *fastest = Fastest { since: now, now: took, before: fastest.now };
        }
        fastest.now = fastest.now.min(took);
        took > fastest.now.min(fastest.before) * SLOW_TIMES + SLOW_PLUS
    }
}

impl Session {
    /// The number of allowed attempts.
    pub(super) fn concurrency(&self) -> usize {
        self.limit.as_ref().map_or_else(|| self.config.concurrency.most(), ConcurrencyLimit::limit)
    }

    /// Raises the limit if no answer comes.
    pub(super) fn grow(&mut self, now: Time) {
        if self.limit.as_mut().is_some_and(|limit| limit.grow(now)) {
            self.window_moved = true;
            self.send_window();
        }
    }

    /// An attempt that started at `since` has ended, after this many requests.
    pub(super) fn learn(&mut self, now: Time, since: Time, collection: GroupResource, outcome: Outcome, calls: u32) {
        let Some(limit) = self.limit.as_mut().filter(|_| calls > 0) else { return };
        if limit.answered(now, collection, now.since(since) / calls, outcome) {
            self.window_moved = true;
            self.send_window();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Name;

    fn pods() -> GroupResource {
        GroupResource { group: Name::from(""), resource: Name::from("pods") }
    }

    /// Rounds of answers whose duration is `took` of the attempts in progress. Returns the limit after each.
    fn rounds(limit: &mut ConcurrencyLimit, count: usize, took: impl Fn(usize) -> Duration) -> alloc::vec::Vec<usize> {
        let mut now = Time::ZERO;
        let mut round = || {
            let under_way = limit.limit();
            limit.filled(now);
            for _ in 0..under_way {
                now = now + took(under_way) / u32::try_from(under_way).unwrap();
                limit.answered(now, pods(), took(under_way), Outcome::Done);
            }
            limit.limit()
        };
        (0..count).map(|_| round()).collect()
    }

    #[test]
    fn grows_to_its_bound_while_answers_take_no_longer() {
        let mut limit = ConcurrencyLimit::new(50);
        assert_eq!(rounds(&mut limit, 7, |_| Duration::from_millis(50)), [4, 8, 16, 32, 50, 50, 50]);
    }

    #[test]
    fn grows_to_a_share_while_nothing_is_answered() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut limit = ConcurrencyLimit::new(64);
        for (millis, wanted) in [(0, 2), (20, 4), (40, 8), (60, 16)] {
            assert_eq!((limit.grow(at(millis)), limit.limit()), (millis > 0, wanted));
            limit.filled(at(millis));
        }
        assert_eq!((limit.next_deadline(), limit.grow(at(10_000))), (None, false));
        let mut refused = ConcurrencyLimit::new(64);
        refused.filled(at(0));
        refused.answered(at(10), pods(), Duration::from_millis(10), Outcome::Throttled);
        refused.filled(at(10));
        assert!(!refused.grow(at(10_000)), "an answer has come");
        refused.answered(at(10), pods(), Duration::from_millis(10), Outcome::Done);
        refused.filled(at(20));
        assert!(!refused.grow(at(10_000)), "the server has refused one");
    }

    #[test]
    fn stays_if_a_server_is_busy_and_no_request_waits_long() {
        let mut limit = ConcurrencyLimit::new(64);
        // Two cores with two milliseconds of work for each request: more than two requests wait.
        let took = |under_way: usize| Duration::from_millis(1) * u32::try_from(under_way.max(2)).unwrap();
        let limits = rounds(&mut limit, 400, took);
        let settled = &limits[100..];
        assert!(settled.iter().all(|limit| (27..=37).contains(limit)), "{settled:?}");
        // Ten cores: no request waits that long.
        let took = |under_way: usize| Duration::from_micros(200) * u32::try_from(under_way.max(10)).unwrap();
        assert_eq!(rounds(&mut ConcurrencyLimit::new(64), 100, took)[5..], [64; 95]);
    }

    #[test]
    fn others_who_make_the_server_slow_leave_a_share() {
        let slow = |_: usize| Duration::from_millis(80);
        let fast = |_: usize| Duration::from_millis(4);
        let mut limit = ConcurrencyLimit::new(64);
        rounds(&mut limit, 6, fast);
        assert_eq!(rounds(&mut limit, 20, slow)[10..], [16; 10]);
        let mut begun = ConcurrencyLimit::new(64);
        rounds(&mut begun, 1, fast);
        assert_eq!(rounds(&mut begun, 20, slow)[15..], [16; 5]);
        let mut small = ConcurrencyLimit::new(3);
        rounds(&mut small, 3, fast);
        assert_eq!(rounds(&mut small, 20, slow)[10..], [3; 10]);
    }

    #[test]
    fn a_refusal_halves_it_and_idleness_leaves_it() {
        let mut limit = ConcurrencyLimit::new(64);
        rounds(&mut limit, 5, |_| Duration::from_millis(10));
        limit.answered(Time::ZERO, pods(), Duration::from_millis(10), Outcome::Throttled);
        for _ in 0..63 {
            limit.answered(Time::ZERO, pods(), Duration::from_millis(10), Outcome::Done);
        }
        assert_eq!(limit.limit(), 32);
        for _ in 0..1000 {
            limit.answered(Time::ZERO, pods(), Duration::from_millis(10), Outcome::Done);
        }
        assert_eq!(limit.limit(), 32, "it was never used up");
    }

    #[test]
    fn a_slow_collection_is_compared_with_itself() {
        let mut limit = ConcurrencyLimit::new(64);
        let hooked = GroupResource { group: Name::from("example.com"), resource: Name::from("hooked") };
        for _ in 0..200 {
            limit.filled(Time::ZERO);
            limit.answered(Time::ZERO, pods(), Duration::from_millis(1), Outcome::Done);
            limit.answered(Time::ZERO, hooked.clone(), Duration::from_millis(900), Outcome::Done);
        }
        assert_eq!(limit.limit(), 64);
    }

    #[test]
    fn what_was_fast_long_ago_is_forgotten() {
        let mut limit = ConcurrencyLimit::new(64);
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        assert!(!limit.is_slow(at(0), pods(), Duration::from_millis(1)));
        assert!(limit.is_slow(at(59), pods(), Duration::from_millis(40)));
        assert!(limit.is_slow(at(61), pods(), Duration::from_millis(40)), "of the minute before");
        assert!(!limit.is_slow(at(122), pods(), Duration::from_millis(40)));
    }
}
