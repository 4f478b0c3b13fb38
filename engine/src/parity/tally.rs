//! Counts by time and by collection.

use super::class::{CLASSES, Class, Outcome};
use crate::object::{GroupResource, ObjectRef};
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// The time of one bucket.
const BUCKET: Duration = Duration::from_secs(900);
/// Maximum number of buckets: seven days. The first bucket also has everything before.
const BUCKETS_MAX: usize = 672;
/// Maximum number of collections with numbers of their own.
const ROWS_MAX: usize = 512;
/// Maximum of each count that is added up, far above all true ones: no sum of a thousand times as many overflows.
const COUNT_MAX: u64 = 1 << 48;
/// Delays have a bucket for each power of two, from one millisecond to 70 minutes.
const DELAYS: usize = 23;

/// The numbers of a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counts {
    /// The other collector followed a decision.
    pub agreed: u64,
    /// The other collector did the same before this one decided.
    pub theirs_first: u64,
    /// Of the agreed ones, those that were reported as a disagreement before.
    pub late: u64,
    /// By [`Class`].
    pub ours_only: [u64; CLASSES],
    pub theirs_only: [u64; CLASSES],
    pub unattributed: u64,
    /// Decisions that ended before the other collector followed, because the facts changed.
    pub withdrawn: u64,
    /// Decisions beyond the bound on open ones.
    pub not_compared: u64,
    /// Changes that no request of the audit log belongs to, although there is a log. Facts attribute them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub without_request: u64,
    /// Agreed decisions, by the binary logarithm of their delay in milliseconds.
    delays: [u64; DELAYS],
}

impl Counts {
    pub(super) fn agree(&mut self, delay: Duration, late: bool) {
        self.agreed += 1;
        self.late += u64::from(late);
        let bits =
            u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.delays[bits.min(DELAYS - 1)] += 1;
    }

    pub(super) fn disagree(&mut self, outcome: Outcome, class: Class) {
        let by_class = match outcome {
            Outcome::OursOnly => &mut self.ours_only,
            Outcome::TheirsOnly => &mut self.theirs_only,
        };
        by_class[class as usize] += 1;
    }

    /// The delay that this share of the agreed decisions does not exceed, rounded up to a power of two. Zero without
    /// decisions.
    pub fn delay(&self, per_mille: u64) -> Duration {
        let total: u64 = self.delays.iter().sum();
        let mut left = (total * per_mille).div_ceil(1000);
        for (log, &count) in self.delays.iter().enumerate() {
            if left <= count && left > 0 {
                return Duration::from_millis(1 << log);
            }
            left = left.saturating_sub(count);
        }
        Duration::ZERO
    }

    /// All disagreements of a class.
    pub fn of(&self, class: Class) -> u64 {
        self.ours_only[class as usize] + self.theirs_only[class as usize]
    }

    /// Agreed decisions and disagreements that no intended difference explains: what both collectors could decide.
    pub fn comparable(&self) -> u64 {
        let unexplained = Class::ALL.into_iter().filter(|class| !class.is_intended()).map(|class| self.of(class));
        self.agreed + self.theirs_first + unexplained.sum::<u64>()
    }

    fn merge(&mut self, other: &Counts) {
        // Counts of earlier leaders come from the decision log, or from a recording.
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count).min(COUNT_MAX);
        add(&mut self.agreed, other.agreed);
        add(&mut self.theirs_first, other.theirs_first);
        add(&mut self.late, other.late);
        add(&mut self.unattributed, other.unattributed);
        add(&mut self.withdrawn, other.withdrawn);
        add(&mut self.not_compared, other.not_compared);
        add(&mut self.without_request, other.without_request);
        for (sums, counts) in [
            (&mut self.ours_only[..], &other.ours_only[..]),
            (&mut self.theirs_only, &other.theirs_only),
            (&mut self.delays, &other.delays),
        ] {
            sums.iter_mut().zip(counts).for_each(|(sum, &count)| add(sum, count));
        }
    }
}

/// The numbers of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub agreed: u64,
    pub ours_only: u64,
    pub theirs_only: u64,
    pub unattributed: u64,
    /// Of both kinds of disagreements, those of unknown class.
    pub unknown: u64,
}

impl Row {
    pub(super) fn disagree(&mut self, outcome: Outcome, class: Class) {
        match outcome {
            Outcome::OursOnly => self.ours_only += 1,
            Outcome::TheirsOnly => self.theirs_only += 1,
        }
        self.unknown += u64::from(class == Class::Unknown);
    }

    pub(super) fn take_back(&mut self, class: Class) {
        self.ours_only = self.ours_only.saturating_sub(1);
        self.unknown = self.unknown.saturating_sub(u64::from(class == Class::Unknown));
    }
}

#[derive(Debug)]
pub(super) struct Tally {
    since: Time,
    /// The counts of earlier leaders, each at most [`COUNT_MAX`]. The log has no delays.
    earlier: Counts,
    buckets: VecDeque<(Time, Counts)>,
    rows: BTreeMap<GroupResource, Row>,
}

impl Tally {
    pub(super) fn new(now: Time) -> Tally {
        Tally { since: now, earlier: Counts::default(), buckets: VecDeque::new(), rows: BTreeMap::new() }
    }

    /// Counts on from the counts of earlier leaders. Returns what it takes of them.
    pub(super) fn inherit(&mut self, earlier: &Counts) -> Counts {
        self.earlier = Counts::default();
        self.earlier.merge(earlier);
        self.earlier.clone()
    }

    pub(super) fn add(&mut self, now: Time, count: impl FnOnce(&mut Counts)) {
        if self.buckets.back().is_none_or(|(begun, _)| now.since(*begun) >= BUCKET) {
            self.buckets.push_back((now, Counts::default()));
        }
        if self.buckets.len() > BUCKETS_MAX
            && let Some((begun, oldest)) = self.buckets.pop_front()
            && let Some(first) = self.buckets.front_mut()
        {
            first.0 = begun;
            first.1.merge(&oldest);
        }
        if let Some((_, counts)) = self.buckets.back_mut() {
            count(counts);
        }
    }

    /// Takes one back of this number, which was counted at that time.
    pub(super) fn take_back(&mut self, at: Time, number: impl Fn(&mut Counts) -> &mut u64) {
        if let Some((_, counts)) = self.buckets.iter_mut().rev().find(|(begun, _)| *begun <= at) {
            let count = number(counts);
            *count = count.saturating_sub(1);
        }
    }

    /// Counts for the collection of an object. Collections beyond the bound count together, without a name.
    pub(super) fn row(&mut self, target: &ObjectRef, count: impl FnOnce(&mut Row)) {
        let mut collection = target.group_resource();
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&collection) {
            collection = GroupResource { group: "".into(), resource: "".into() };
        }
        count(self.rows.entry(collection).or_default());
    }

    pub(super) fn rows(&self) -> Vec<(GroupResource, Row)> {
        self.rows.iter().map(|(collection, row)| (collection.clone(), *row)).collect()
    }

    /// The beginning and the numbers of the buckets that the window touches.
    pub(super) fn of(&self, now: Time, window: Option<Duration>) -> (Time, Counts) {
        let touches = |begun: Time| window.is_none_or(|window| now.since(begun) < window.saturating_add(BUCKET));
        let mut counts = if window.is_none() { self.earlier.clone() } else { Counts::default() };
        // The window begins within the term, and its first bucket may begin before it.
        let back = window.map(|window| Time::from_origin(now.since_origin().saturating_sub(window)));
        let mut since = back.map_or(self.since, |back| back.max(self.since));
        for (begun, bucket) in self.buckets.iter().filter(|(begun, _)| touches(*begun)) {
            since = since.min(*begun);
            counts.merge(bucket);
        }
        (since, counts)
    }

    /// The delay that 99 % of the agreed decisions of the last two buckets do not exceed.
    pub(super) fn slowest(&self) -> Duration {
        let recent = self.buckets.iter().rev().take(2);
        recent.map(|(_, counts)| counts.delay(990)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_counts_of_earlier_leaders_can_be_added_up() {
        let most = u64::MAX;
        let forged = Counts {
            agreed: most,
            theirs_first: most,
            ours_only: [most; CLASSES],
            theirs_only: [most; CLASSES],
            delays: [most; DELAYS],
            ..Counts::default()
        };
        let mut tally = Tally::new(Time::ZERO);
        tally.inherit(&forged);
        tally.add(Time::ZERO, |counts| counts.agree(Duration::ZERO, false));
        let (_, counts) = tally.of(Time::ZERO, None);
        assert_eq!((counts.of(Class::Unknown), counts.comparable()), (2 * COUNT_MAX, 8 * COUNT_MAX));
        assert_eq!(counts.delay(1000), Duration::from_millis(1 << (DELAYS - 1)));
    }
}
