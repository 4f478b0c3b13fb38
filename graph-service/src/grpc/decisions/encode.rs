//! Encodes events: as DecisionEvent, or as CloudEvents 1.0.

use crate::decisions::{FRAME_BYTES, Most};
use engine::object::Uid;
use prost::Message as _;
use prost::bytes::{Bytes, BytesMut};
use prost::encoding::{self, WireType};
use proto::cloudevents::v1::CloudEvent;
use proto::cloudevents::v1::cloud_event::cloud_event_attribute_value::Attr;
use proto::cloudevents::v1::cloud_event::{CloudEventAttributeValue, Data};
use proto::decision::v1beta1::{Cause, DecisionEvent, EventView, Phase, Position};
use proto::r#type::v1beta1::ObjectRef;
use runtime::traces::{span_of, trace_of};

/// Type URL of the data of a CloudEvent.
const TYPE_URL: &str = "type.googleapis.com/ownergraph.decision.v1beta1.DecisionEvent";
/// Schema URI of the data of a CloudEvent.
const SCHEMA: &str = "https://ownergraph.dev/proto/ownergraph.decision.v1beta1.DecisionEvent";

/// Maximum size of the events of one message, in their kept form. An idle reader costs this much memory. CloudEvents
/// repeat the target and are at most twice as large.
pub(super) const BATCH_MAX_BYTES: usize = 256 * 1024;

/// The bounds of one read of the log for one message.
pub(super) fn most(events: usize) -> Most {
    Most { events, bytes: BATCH_MAX_BYTES }
}

/// Splits events that are not in the log into messages.
pub(super) fn parts(events: Vec<DecisionEvent>) -> impl Iterator<Item = Vec<DecisionEvent>> {
    let mut events = events.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![events.next()?];
        let mut bytes = part[0].encoded_len();
        while let Some(next) =
            events.next_if(|next| bytes + next.encoded_len() <= BATCH_MAX_BYTES - part.len() * FRAME_BYTES)
        {
            bytes += next.encoded_len();
            part.push(next);
        }
        Some(part)
    })
}

/// Removes the fields that the reader does not want.
pub(super) fn shown(event: &mut DecisionEvent, view: EventView) {
    match view {
        EventView::Unspecified | EventView::Full => {}
        EventView::Basic => {
            (event.reasons, event.owners, event.cause_chain) = Default::default();
            event.preconditions = None;
        }
    }
}

/// Field numbers of the protocol.
const EVENTS_OF_BATCH: u32 = 1;
const CLOUD_EVENTS_OF_BATCH: u32 = 2;
const POSITION_OF_EVENT: u32 = 1;
/// Field of the batch in a message of a stream.
pub(super) const BATCH: u32 = 1;

/// Adds an encoded event to an encoded batch. The position comes last, because the order of fields is free.
pub(super) fn kept(event: &[u8], at: &Position, batch: &mut BytesMut) {
    let position = encoding::message::encoded_len(POSITION_OF_EVENT, at);
    encoding::encode_key(EVENTS_OF_BATCH, WireType::LengthDelimited, batch);
    encoding::encode_varint((event.len() + position) as u64, batch);
    batch.extend_from_slice(event);
    encoding::message::encode(POSITION_OF_EVENT, at, batch);
}

/// An event as part of an encoded batch.
pub(super) fn native(event: &DecisionEvent) -> Bytes {
    let mut part = BytesMut::new();
    encoding::message::encode(EVENTS_OF_BATCH, event, &mut part);
    part.freeze()
}

/// An event as a CloudEvent in an encoded batch.
pub(super) fn cloud(event: DecisionEvent, cluster_uid: &str) -> Bytes {
    let mut part = BytesMut::new();
    encoding::bytes::encode(CLOUD_EVENTS_OF_BATCH, &cloud_event(event, cluster_uid).encode_to_vec(), &mut part);
    part.freeze()
}

/// The CloudEvent with the whole event as its data.
pub(super) fn cloud_event(event: DecisionEvent, cluster_uid: &str) -> CloudEvent {
    let phase = Phase::try_from(event.phase).unwrap_or_default().as_str_name();
    let phase = phase.strip_prefix("PHASE_").unwrap_or(phase).to_lowercase();
    let target = event.target.clone().unwrap_or_default();
    let text = |text: String| CloudEventAttributeValue { attr: Some(Attr::CeString(text)) };
    let mut attributes = std::collections::BTreeMap::from([
        ("subject".to_owned(), text(subject(&target))),
        ("partitionkey".to_owned(), text(target.uid)),
        ("datacontenttype".to_owned(), text("application/protobuf".to_owned())),
        ("dataschema".to_owned(), CloudEventAttributeValue { attr: Some(Attr::CeUri(SCHEMA.to_owned())) }),
    ]);
    if let Some(traceparent) = traceparent(&event) {
        attributes.insert("traceparent".to_owned(), text(traceparent));
    }
    if let Some(time) = event.event_time {
        attributes.insert("time".to_owned(), CloudEventAttributeValue { attr: Some(Attr::CeTimestamp(time)) });
    }
    let id = match &event.position {
        Some(at) => {
            // Zero-padded, so that the order of texts is the order of numbers.
            attributes.insert("sequence".to_owned(), text(format!("{:020}", at.sequence)));
            format!("{}/{}", at.log_id, at.sequence)
        }
        // An open decision that is reported by its current state has no position in the log.
        None => format!("open/{}/{phase}/{}", event.decision_id, event.attempt),
    };
    let what = match &event.system {
        Some(_) => "system".to_owned(),
        None => format!("decision.{phase}"),
    };
    CloudEvent {
        id,
        source: format!("/clusters/{cluster_uid}/gc"),
        spec_version: "1.0".to_owned(),
        r#type: format!("dev.ownergraph.{what}.v1beta1"),
        attributes,
        data: Some(Data::ProtoData(prost_types::Any { type_url: TYPE_URL.to_owned(), value: event.encode_to_vec() })),
    }
}

/// The `traceparent` of an event. The trace id comes from the uid of the root of the cascade, the span id from the
/// delivery of the decision. The flag does not claim that the trace is recorded.
fn traceparent(event: &DecisionEvent) -> Option<String> {
    let root = match &event.root {
        Some(root) => root,
        // No chain is available.
        None if event.cause() == Cause::Unspecified || event.truncated || event.redacted_count > 0 => return None,
        None => event.target.as_ref()?,
    };
    let trace = trace_of(&Uid::parse(&root.uid)?);
    let span = span_of(&(&event.decision_id, event.attempt));
    Some(format!("00-{trace}-{span}-00"))
}

/// The subject as group/resource/namespace/name, with empty parts left empty.
fn subject(target: &ObjectRef) -> String {
    format!("{}/{}/{}/{}", target.group, target.resource, target.namespace, target.name)
}
