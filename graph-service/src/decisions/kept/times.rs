//! The times of logged events, and the knowledge about events that are no longer kept.

use super::{Kept, Record};
use crate::decisions::{DecisionLog, Extent, Missing, Most};
use prost::Message as _;
use prost_types::Timestamp;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::decision::v1beta1::{DecisionEvent, Position};
use std::cmp::Ordering;

/// Maximum number of consecutive positions to search for an event with a time.
const TIMELESS_MAX: usize = 16;

/// How a log of this process ended.
#[derive(Clone, Debug)]
pub(in crate::decisions) struct Former {
    log_id: String,
    newest: u64,
    time: Option<Timestamp>,
}

impl Former {
    /// `None` if there is no log.
    pub(in crate::decisions) fn of(kept: &Kept) -> Option<Former> {
        let Extent { log_id, newest, .. } = kept.extent()?;
        Some(Former { log_id, newest, time: kept.time(newest) })
    }
}

impl Kept {
    /// The time of the record at a position in memory.
    fn time(&self, sequence: u64) -> Option<Timestamp> {
        let index = usize::try_from(sequence.checked_sub(self.oldest)?).ok()?;
        self.records.get(index).and_then(time)
    }
}

fn time(record: &Record) -> Option<Timestamp> {
    match record {
        Record::Event(bytes) => DecisionEvent::decode(bytes.clone()).ok()?.event_time,
        Record::Loss(bytes) => Gap::decode(bytes.clone()).ok()?.until,
    }
}

fn order(a: &Timestamp, b: &Timestamp) -> Ordering {
    (a.seconds, a.nanos).cmp(&(b.seconds, b.nanos))
}

impl DecisionLog {
    /// The position before the first kept event that is not older than `wanted`. Events carry the clock of their
    /// leader, so positions are only as exact as the machines' clocks. An event without a time counts as not older.
    pub(crate) async fn before(&self, wanted: &Timestamp, extent: &Extent) -> Result<Position, Missing> {
        let at = |sequence: u64| Position { log_id: extent.log_id.clone(), sequence };
        let (mut low, mut high) = (extent.oldest, extent.newest + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let some = Most { events: TIMELESS_MAX, bytes: usize::MAX };
            match self.records(&at(middle - 1), some).await {
                Ok(records) => {
                    let timed = (middle..high).zip(&records).find_map(|(at, record)| Some((at, time(record)?)));
                    match timed {
                        Some((sequence, time)) if order(&time, wanted) == Ordering::Less => low = sequence + 1,
                        Some(_) | None => high = middle,
                    }
                }
                // Events that were trimmed meanwhile are no longer kept.
                Err(Missing::Compacted(now)) => low = now.oldest.max(middle + 1),
                Err(missing) => return Err(missing),
            }
        }
        Ok(at(low - 1))
    }

    /// Completes the gap: the number of events that a reader at `from` misses, and their times.
    pub(crate) fn known_of(&self, from: &Position, gap: Gap) -> Gap {
        let kept = self.kept();
        if from.log_id == kept.log_id {
            let newest = kept.newest();
            return Gap { lost: newest.saturating_sub(from.sequence), until: kept.time(newest), ..gap };
        }
        match &kept.former {
            Some(former) if former.log_id == from.log_id => {
                Gap { lost: former.newest.saturating_sub(from.sequence), until: former.time, ..gap }
            }
            Some(_) | None => Gap { until: kept.begun, ..gap },
        }
    }
}
