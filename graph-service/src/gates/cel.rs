//! Policies as expressions of the Common Expression Language.
//!
//! [`crate::expression`] bounds the cost of an expression, so an evaluation takes at most milliseconds.

use super::Reply;
use crate::expression::{Activation, Element, Expression, Fields, Type, list, map};
use cel::objects::{Key, Map, Value};
use engine::guard::{Answer, Question};
use engine::object::ObjectRef;
use k8s_openapi::jiff::Zoned;
use k8s_openapi::jiff::tz::TimeZone;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A question that an expression holds is asked again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

const OBJECT: Fields = &[
    ("group", Type::String),
    ("version", Type::String),
    ("resource", Type::String),
    ("kind", Type::String),
    ("namespace", Type::String),
    ("name", Type::String),
    ("uid", Type::String),
];
static AN_OBJECT: Type = Type::Object(OBJECT);

/// The variables of an expression.
const VARIABLES: &[(&str, Type)] = &[
    ("gate", Type::String),
    ("action", Type::String),
    ("object", Type::Object(OBJECT)),
    ("chain", Type::List(Element::Of(&AN_OBJECT))),
    ("root", Type::Object(OBJECT)),
    ("cascade", Type::Object(&[("objects", Type::Int), ("totals", Type::Map), ("complete", Type::Bool)])),
    (
        "now",
        Type::Object(&[
            ("year", Type::Int),
            ("month", Type::Int),
            ("day", Type::Int),
            ("weekday", Type::Int),
            ("hour", Type::Int),
            ("minute", Type::Int),
            ("seconds", Type::Int),
        ]),
    ),
];

/// A policy as an expression.
#[derive(Clone, Debug)]
pub(crate) struct Cel {
    text: Arc<str>,
    expression: Expression,
}

impl PartialEq for Cel {
    fn eq(&self, other: &Cel) -> bool {
        self.text == other.text
    }
}

impl Cel {
    pub(super) fn read(text: &str) -> Result<Cel, String> {
        let expression = Expression::with(text, VARIABLES, &[Type::Bool, Type::String])
            .map_err(|mistake| format!("spec.cel.expression, {mistake}"))?;
        Ok(Cel { text: text.into(), expression })
    }

    /// Evaluates the expression for each question, away from the tasks of the service.
    pub(super) async fn answer(self, questions: Vec<Arc<Question>>) -> Result<Vec<Reply>, String> {
        let evaluate = move || {
            let now = now(SystemTime::now());
            questions.iter().map(|question| self.evaluate(question, now.clone())).collect()
        };
        tokio::task::spawn_blocking(evaluate).await.map_err(|error| format!("the evaluation failed: {error}"))
    }

    pub(super) fn evaluate(&self, question: &Question, now: Value) -> Reply {
        let of = |answer, message: &str| Reply::new(question.number, answer, "cel", message, Duration::ZERO);
        match self.expression.value(&activation(question, now)) {
            Some(Value::Bool(true)) => of(Answer::Allow, ""),
            Some(Value::Bool(false)) => of(Answer::Deny, "the expression is false"),
            Some(Value::String(word)) => match word.as_str() {
                "allow" => of(Answer::Allow, ""),
                "deny" => of(Answer::Deny, "the expression denies"),
                "hold" => of(Answer::Hold { again_after: AGAIN_AFTER }, "the expression holds"),
                other => {
                    let why = format!("the expression returned {other:?}, and neither allow, deny nor hold");
                    Reply::failed(question.number, &why)
                }
            },
            Some(_) | None => {
                let why = "the evaluation of the expression failed: for example a missing key or a division by zero";
                Reply::failed(question.number, why)
            }
        }
    }
}

fn activation(question: &Question, now: Value) -> Activation {
    let root = question.cascade.as_ref().map(|cascade| &cascade.root).or(question.chain.last());
    let cascade = question.cascade.as_ref().map_or(Value::Null, |cascade| {
        let totals = cascade.totals.iter();
        let totals = totals.map(|(collection, count)| (Key::from(collection.to_string()), int(*count)));
        map([
            ("objects", int(cascade.objects)),
            ("totals", Value::Map(Map { map: Arc::new(totals.collect::<HashMap<Key, Value>>()) })),
            ("complete", Value::Bool(cascade.complete)),
        ])
    });
    Activation::with([
        ("gate", Value::from(question.gate.to_string())),
        ("action", Value::from(super::review::operation(question.action))),
        ("object", object(&question.target)),
        ("chain", list(question.chain.iter().map(object))),
        ("root", root.map_or(Value::Null, object)),
        ("cascade", cascade),
        ("now", now),
    ])
}

fn object(object: &ObjectRef) -> Value {
    let text = |part: &dyn ToString| Value::from(part.to_string());
    map([
        ("group", text(&object.group)),
        ("version", text(&object.version)),
        ("resource", text(&object.resource)),
        ("kind", text(&object.kind)),
        ("namespace", text(&object.namespace)),
        ("name", text(&object.name)),
        ("uid", text(&object.uid)),
    ])
}

fn int(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A time in UTC, as expressions see it. Weekdays count from 0, a Sunday.
pub(super) fn now(time: SystemTime) -> Value {
    let zoned = Zoned::try_from(time).unwrap_or_default().with_time_zone(TimeZone::UTC);
    map([
        ("year", Value::Int(zoned.year().into())),
        ("month", Value::Int(zoned.month().into())),
        ("day", Value::Int(zoned.day().into())),
        ("weekday", Value::Int(zoned.weekday().to_sunday_zero_offset().into())),
        ("hour", Value::Int(zoned.hour().into())),
        ("minute", Value::Int(zoned.minute().into())),
        ("seconds", Value::Int(zoned.timestamp().as_second())),
    ])
}
