//! The variable `event` of expressions.

use crate::expression::{Activation, Element, Subject, Type, list, map};
use crate::grpc::filter::{self, NAME, NAMED};
use cel::objects::Value;
use proto::decision::v1beta1::DecisionEvent;
use proto::graph::v1beta1::reason::Code;
use proto::r#type::v1beta1::ObjectRef;

/// The variable `event`, with its fields.
pub(super) static EVENT: Subject = Subject {
    name: "event",
    fields: &[
        ("decision_id", Type::String),
        ("phase", Type::String),
        ("cause", Type::String),
        ("action", Type::String),
        ("target", Type::Object(NAMED.fields)),
        ("root", Type::Object(NAMED.fields)),
        ("cause_chain", Type::List(Element::Of(&NAME))),
        ("reasons", Type::List(Element::Of(&Type::String))),
        ("executor", Type::String),
        ("attempt", Type::Int),
        ("propagation_policy", Type::String),
        ("outcome", Type::String),
        ("http_status", Type::Int),
    ],
};

/// The values of an event and its target for expressions.
pub(super) fn activation(event: &DecisionEvent) -> Activation {
    let target = event.target.as_ref().map_or(Value::Null, filter::named);
    Activation::of([(&EVENT, value(event)), (&NAMED, target)])
}

fn value(event: &DecisionEvent) -> Value {
    let object = |object: Option<&ObjectRef>| object.map_or(Value::Null, filter::named);
    let outcome = event.report.as_ref().map_or("", |report| word(report.outcome().as_str_name(), "OUTCOME_"));
    let reason = |reason: i32| word(Code::try_from(reason).unwrap_or_default().as_str_name(), "CODE_");
    map([
        ("decision_id", Value::from(event.decision_id.clone())),
        ("phase", Value::from(word(event.phase().as_str_name(), "PHASE_"))),
        ("cause", Value::from(word(event.cause().as_str_name(), "CAUSE_"))),
        ("action", Value::from(word(event.kind().as_str_name(), "ITEM_KIND_"))),
        ("target", object(event.target.as_ref())),
        ("root", object(event.root.as_ref())),
        ("cause_chain", list(event.cause_chain.iter().map(filter::named))),
        ("reasons", list(event.reasons.iter().map(|of| Value::from(reason(of.code))))),
        ("executor", Value::from(event.executor.clone())),
        ("attempt", Value::Int(event.attempt.into())),
        ("propagation_policy", Value::from(word(event.propagation_policy().as_str_name(), "PROPAGATION_POLICY_"))),
        ("outcome", Value::from(outcome)),
        ("http_status", Value::Int(event.report.as_ref().map_or(0, |report| report.http_status.into()))),
    ])
}

/// The name of an enum value without its prefix; empty for `UNSPECIFIED`.
fn word(name: &'static str, prefix: &str) -> &'static str {
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => "",
        word => word,
    }
}
