//! Spans as OTLP writes them.

use super::counts::Service;
use super::span::{Kind, Span, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as WireValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as WireSpan, Status};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The conventions that names of attributes follow where they have one.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Flag of W3C: the trace is recorded.
const SAMPLED: u32 = 1;

/// A moment on both clocks. Spans are timed by the one that never jumps, and dated by the other when they are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dates {
    now: Instant,
    calendar: SystemTime,
}

impl Dates {
    pub(super) fn now() -> Dates {
        Dates { now: Instant::now(), calendar: SystemTime::now() }
    }

    fn nanos(self, at: Instant) -> u64 {
        let since_epoch = self.calendar.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let date =
            since_epoch.saturating_sub(self.now.saturating_duration_since(at)) + at.saturating_duration_since(self.now);
        u64::try_from(date.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One batch of one service.
pub(super) fn request(service: &Service, spans: &[Span], dates: Dates) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "ownergraph".to_owned(),
        version: service.version.to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = spans.iter().map(|span| encode(span, dates)).collect();
    let scopes = vec![ScopeSpans { scope: Some(scope), spans, schema_url: SCHEMA.to_owned() }];
    let resource = Resource { attributes: describe(service), ..Resource::default() };
    let resources = ResourceSpans { resource: Some(resource), scope_spans: scopes, schema_url: SCHEMA.to_owned() };
    ExportTraceServiceRequest { resource_spans: vec![resources] }
}

fn describe(service: &Service) -> Vec<KeyValue> {
    vec![
        pair("service.name", &Value::from(service.name)),
        pair("service.namespace", &Value::from("ownergraph")),
        pair("service.version", &Value::from(service.version)),
        pair("service.instance.id", &Value::from(service.instance.clone())),
    ]
}

fn encode(span: &Span, dates: Dates) -> WireSpan {
    let failed = |why: &String| Status { message: why.clone(), code: StatusCode::Error.into() };
    WireSpan {
        trace_id: span.context.trace.bytes().to_vec(),
        span_id: span.context.span.bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED,
        name: span.name.to_string(),
        kind: kind(span.kind).into(),
        start_time_unix_nano: dates.nanos(span.start),
        end_time_unix_nano: dates.nanos(span.end.max(span.start)),
        attributes: span.attributes.iter().map(|(name, value)| pair(name, value)).collect(),
        status: span.failure.as_ref().map(failed),
        ..WireSpan::default()
    }
}

fn kind(kind: Kind) -> SpanKind {
    match kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
        Kind::Producer => SpanKind::Producer,
        Kind::Consumer => SpanKind::Consumer,
    }
}

fn pair(name: &str, value: &Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => WireValue::StringValue(text.to_string()),
        Value::Number(number) => WireValue::IntValue(*number),
        Value::Flag(flag) => WireValue::BoolValue(*flag),
    };
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
