//! Events as the reader wants them: as they are, or as CloudEvents 1.0.

use prost::Message as _;
use proto::cloudevents::v1::CloudEvent;
use proto::cloudevents::v1::cloud_event::cloud_event_attribute_value::Attr;
use proto::cloudevents::v1::cloud_event::{CloudEventAttributeValue, Data};
use proto::decision::v1beta1::watch_decisions_response::Batch;
use proto::decision::v1beta1::{DecisionEvent, EventEncoding, Phase};
use proto::r#type::v1beta1::ObjectRef;

/// What the data of an event is.
const TYPE_URL: &str = "type.googleapis.com/ownergraph.decision.v1beta1.DecisionEvent";

pub(super) fn batch(events: Vec<DecisionEvent>, encoding: EventEncoding, cluster_uid: &str) -> Batch {
    match encoding {
        EventEncoding::Unspecified | EventEncoding::Native => Batch { events, cloud_events: Vec::new() },
        EventEncoding::Cloudevents => {
            let encode = |event| cloud_event(event, cluster_uid).encode_to_vec();
            Batch { events: Vec::new(), cloud_events: events.into_iter().map(encode).collect() }
        }
    }
}

/// The event with its whole self as data.
pub(super) fn cloud_event(event: DecisionEvent, cluster_uid: &str) -> CloudEvent {
    let phase = Phase::try_from(event.phase).unwrap_or_default().as_str_name();
    let phase = phase.strip_prefix("PHASE_").unwrap_or(phase).to_lowercase();
    let target = event.target.clone().unwrap_or_default();
    let text = |text: String| CloudEventAttributeValue { attr: Some(Attr::CeString(text)) };
    let mut attributes = std::collections::BTreeMap::from([
        ("subject".to_owned(), text(subject(&target))),
        ("partitionkey".to_owned(), text(target.uid)),
        ("datacontenttype".to_owned(), text("application/protobuf".to_owned())),
    ]);
    if let Some(time) = event.event_time {
        attributes.insert("time".to_owned(), CloudEventAttributeValue { attr: Some(Attr::CeTimestamp(time)) });
    }
    let id = match &event.position {
        Some(at) => {
            // So wide that the order of the texts is the order of the numbers.
            attributes.insert("sequence".to_owned(), text(format!("{:020}", at.sequence)));
            format!("{}/{}", at.log_id, at.sequence)
        }
        // A present state is no step of the log.
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
        r#type: format!("io.ownergraph.{what}.v1"),
        attributes,
        data: Some(Data::ProtoData(prost_types::Any { type_url: TYPE_URL.to_owned(), value: event.encode_to_vec() })),
    }
}

/// group/resource/namespace/name; a part that is empty is left empty.
fn subject(target: &ObjectRef) -> String {
    format!("{}/{}/{}/{}", target.group, target.resource, target.namespace, target.name)
}
