//! Converts spans for OpenTelemetry's exporter.

use super::context::Context;
use super::counts::Service;
use super::span::{Span, Value};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::SystemTime;
use tokio::time::Instant;

/// The semantic conventions of the attribute names.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// One instant on both clocks. Spans are measured with the monotonic clock and converted to the system clock when they
/// are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dates {
    now: Instant,
    calendar: SystemTime,
}

impl Dates {
    pub(super) fn now() -> Dates {
        Dates { now: Instant::now(), calendar: SystemTime::now() }
    }

    fn date(self, at: Instant) -> SystemTime {
        let past = self.now.saturating_duration_since(at);
        let date = self.calendar.checked_sub(past).unwrap_or(SystemTime::UNIX_EPOCH);
        date + at.saturating_duration_since(self.now)
    }
}

/// The resource of a service's spans. `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` override the service's own
/// values.
pub(super) fn resource(service: &Service) -> Resource {
    let own = [
        KeyValue::new("service.name", service.name),
        KeyValue::new("service.namespace", "ownergraph"),
        KeyValue::new("service.version", service.version),
        KeyValue::new("service.instance.id", service.instance.clone()),
    ];
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    Resource::builder_empty()
        .with_schema_url(own, SCHEMA)
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())])
        .with_attributes(name.map(|name| KeyValue::new("service.name", name)))
        .build()
}

pub(super) fn scope(service: &Service) -> InstrumentationScope {
    InstrumentationScope::builder("ownergraph").with_version(service.version).with_schema_url(SCHEMA).build()
}

pub(super) fn data(span: Span, dates: Dates, scope: &InstrumentationScope) -> SpanData {
    let Context { trace, span: id } = span.context;
    SpanData {
        span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: span.parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: false,
        span_kind: span.kind,
        name: span.name,
        start_time: dates.date(span.start),
        end_time: dates.date(span.end.max(span.start)),
        attributes: span.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn attribute(name: &'static str, value: Value) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
        Value::Flag(flag) => KeyValue::new(name, flag),
    }
}
