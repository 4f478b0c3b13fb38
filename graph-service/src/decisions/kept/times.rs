//! When what is in the log happened, and what is known of what is not in it any more.

use super::{Kept, Record};
use crate::decisions::{DecisionLog, Extent, Missing, Most};
use prost::Message as _;
use prost_types::Timestamp;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::decision::v1beta1::{DecisionEvent, Position};
use std::cmp::Ordering;

/// Positions in a row that are looked at for one that has a time.
const TIMELESS_MAX: usize = 16;

/// How a log of this process ended.
#[derive(Clone, Debug)]
pub(in crate::decisions) struct Former {
    log_id: String,
    newest: u64,
    time: Option<Timestamp>,
}

impl Former {
    /// `None` where there is no log.
    pub(in crate::decisions) fn of(kept: &Kept) -> Option<Former> {
        let Extent { log_id, newest, .. } = kept.extent()?;
        Some(Former { log_id, newest, time: kept.time(newest) })
    }
}

impl Kept {
    /// Of what stands at a position that is in memory.
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
    /// The position before the first event that is kept and not older than this. Leaders' clocks may differ by what clocks of machines
    /// differ; what has no time is not passed over.
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
                // What was trimmed meanwhile is not kept.
                Err(Missing::Compacted(now)) => low = now.oldest.max(middle + 1),
                Err(missing) => return Err(missing),
            }
        }
        Ok(at(low - 1))
    }

    /// A loss with what is known of it: how many events a reader at `from` misses that goes on with what comes next, and when they were.
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
