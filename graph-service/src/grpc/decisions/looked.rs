//! Shared decoded events: decoded, converted for expressions, and encoded once for all readers with the same view.

use super::encode;
use super::event::activation;
use crate::decisions::Logged;
use crate::expression::Activation;
use prost::bytes::{Bytes, BytesMut};
use proto::decision::v1beta1::{DecisionEvent, EventEncoding, EventView, Position};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum number of encoded bytes of shared events. Decoded and converted they take about ten times as much.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of shared events.
const EVENTS_MAX: usize = 2048;
/// Maximum number of shared whole batches. Each is below the largest message.
const BATCHES_MAX: usize = 16;

/// One event, and its converted forms.
#[derive(Debug)]
pub(in crate::grpc) struct Looked {
    event: DecisionEvent,
    activation: OnceLock<Activation>,
    native: OnceLock<Bytes>,
    basic: OnceLock<Bytes>,
    cloud: OnceLock<Bytes>,
    basic_cloud: OnceLock<Bytes>,
}

impl Looked {
    pub(in crate::grpc) fn of(event: DecisionEvent) -> Looked {
        Looked {
            event,
            activation: OnceLock::new(),
            native: OnceLock::new(),
            basic: OnceLock::new(),
            cloud: OnceLock::new(),
            basic_cloud: OnceLock::new(),
        }
    }

    pub(in crate::grpc) fn event(&self) -> &DecisionEvent {
        &self.event
    }

    pub(super) fn into_event(self) -> DecisionEvent {
        self.event
    }

    /// The values for expressions.
    pub(in crate::grpc) fn activation(&self) -> &Activation {
        self.activation.get_or_init(|| activation(&self.event))
    }

    /// The event as part of an encoded batch.
    pub(super) fn part(&self, encoding: EventEncoding, view: EventView, cluster_uid: &str) -> &Bytes {
        let basic = || {
            let mut event = self.event.clone();
            encode::shown(&mut event, EventView::Basic);
            event
        };
        match (encoding, view) {
            (EventEncoding::Cloudevents, EventView::Basic) => {
                self.basic_cloud.get_or_init(|| encode::cloud(basic(), cluster_uid))
            }
            (EventEncoding::Cloudevents, EventView::Unspecified | EventView::Full) => {
                self.cloud.get_or_init(|| encode::cloud(self.event.clone(), cluster_uid))
            }
            (EventEncoding::Unspecified | EventEncoding::Native, EventView::Basic) => {
                self.basic.get_or_init(|| encode::native(&basic()))
            }
            (EventEncoding::Unspecified | EventEncoding::Native, EventView::Unspecified | EventView::Full) => {
                self.native.get_or_init(|| encode::native(&self.event))
            }
        }
    }
}

/// The most recently read events, shared by all readers and bounded.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The log that the events belong to.
    log_id: String,
    events: BTreeMap<u64, (Arc<Looked>, usize)>,
    /// In the order of the first read.
    order: VecDeque<u64>,
    bytes: usize,
    /// The sequence of the first event, the number of events, and the batch.
    batches: VecDeque<(u64, usize, Bytes)>,
}

impl Recent {
    /// A batch of all these events.
    pub(super) fn batch(&self, log_id: &str, events: &[Logged]) -> Bytes {
        let Some(first) = events.first().map(|logged| logged.sequence) else { return Bytes::new() };
        let is_wanted = |(known, count, _): &&(u64, usize, Bytes)| *known == first && *count == events.len();
        if let Some((_, _, batch)) = self.of(log_id).batches.iter().find(is_wanted) {
            return batch.clone();
        }
        let mut batch = BytesMut::new();
        let mut at = Position { log_id: log_id.to_owned(), sequence: first };
        for logged in events {
            at.sequence = logged.sequence;
            encode::kept(&logged.bytes, &at, &mut batch);
        }
        let batch = batch.freeze();
        let mut kept = self.of(log_id);
        if kept.batches.len() == BATCHES_MAX {
            kept.batches.pop_front();
        }
        kept.batches.push_back((first, events.len(), batch.clone()));
        batch
    }

    /// The events, each decoded by the first reader.
    pub(super) fn look(&self, log_id: &str, events: &[Logged]) -> Vec<Arc<Looked>> {
        let found: Vec<Option<Arc<Looked>>> = {
            let kept = self.of(log_id);
            events.iter().map(|logged| Some(Arc::clone(&kept.events.get(&logged.sequence)?.0))).collect()
        };
        // If two concurrent readers decode one event, neither waits for the other.
        let decoded: Vec<Arc<Looked>> = found
            .iter()
            .zip(events)
            .map(|(found, logged)| found.clone().unwrap_or_else(|| Arc::new(Looked::of(logged.decode(log_id)))))
            .collect();
        if found.iter().any(Option::is_none) {
            let mut kept = self.of(log_id);
            for (logged, looked) in events.iter().zip(&decoded) {
                kept.keep(logged, looked);
            }
        }
        decoded
    }

    /// The shared events of this log. Those of another log are dropped.
    fn of(&self, log_id: &str) -> MutexGuard<'_, Kept> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.log_id != log_id {
            *kept = Kept { log_id: log_id.to_owned(), ..Kept::default() };
        }
        kept
    }
}

impl Kept {
    fn keep(&mut self, logged: &Logged, looked: &Arc<Looked>) {
        let size = logged.bytes.len();
        if size > BYTES_MAX || self.events.contains_key(&logged.sequence) {
            return;
        }
        while (self.bytes + size > BYTES_MAX || self.events.len() == EVENTS_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.events.remove(&oldest).map_or(0, |(_, size)| size);
        }
        self.bytes += size;
        self.order.push_back(logged.sequence);
        self.events.insert(logged.sequence, (Arc::clone(looked), size));
    }
}
