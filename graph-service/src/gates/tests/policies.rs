//! Specs of gates, and policies as expressions.

use super::*;
use crate::gates::cel::{Cel, now};
use engine::object::GroupResource;
use std::time::SystemTime;

/// Tuesday, 2026-11-24, 22:30:00 UTC.
const TUESDAY_EVENING: u64 = 1_795_559_400;

fn evaluate(text: &str, question: &Question) -> Answered {
    let reply = Cel::read(text)
        .unwrap_or_else(|refused| panic!("{text}: {refused}"))
        .evaluate(question, now(SystemTime::UNIX_EPOCH + Duration::from_secs(TUESDAY_EVENING)));
    super::super::router::answered(&question.gate, reply)
}

fn cascade(objects: u64) -> Question {
    let root = object("namespaces", "Namespace", "shop");
    let pods = GroupResource { group: "apps".into(), resource: "deployments".into() };
    let cascade = Cascade { root, objects, totals: vec![(pods, objects)], digest: 1, complete: true };
    Question { cascade: Some(cascade), ..question(1) }
}

#[test]
fn specs_are_read_or_refused_by_field() {
    for (spec, about) in [
        (json!({}), "spec has none of cel, webhook and stream"),
        (json!({"stream": {}, "cel": {}}), "spec has cel and stream"),
        (json!({"cel": {}}), "spec.cel.expression is not a text"),
        (
            json!({"cel": {"expression": "object.kind == 'Pod' &&\n object.color == 1"}}),
            "spec.cel.expression, line 2, column 9: there is no field \"color\"",
        ),
        (json!({"cel": {"expression": "object"}}), "the type of the expression is object, not bool or string"),
        (json!({"cel": {"expression": "cascade.objects"}}), "is int, not bool or string"),
        (json!({"webhook": {"url": "http://policy.example/"}}), "is not https://"),
        (json!({"webhook": {"url": "/gate"}}), "is not a URL such as"),
        (json!({"webhook": {"url": "https://a:b@policy.example/"}}), "has credentials"),
        (
            json!({"webhook": {"url": "https://policy.example/", "caBundle": "?"}}),
            "spec.webhook.caBundle is not base64",
        ),
        (json!({"webhook": {"url": "https://policy.example/", "caBundle": "eA=="}}), "spec.webhook.caBundle"),
    ] {
        let refused = read(&spec).expect_err(&spec.to_string());
        assert!(refused.contains(about), "{spec}: {refused}");
    }
    let stream = read(&json!({"stream": {}})).unwrap();
    assert_eq!(stream.as_str(), "stream");
}

#[test]
fn three_policies_decide() {
    let held = Answer::Hold { again_after: Duration::from_secs(60) };
    let claims = r#"object.resource != "persistentvolumeclaims" ? "allow" : "hold""#;
    assert_eq!(evaluate(claims, &question(1)).answer, held);
    let pod = Question { target: object("pods", "Pod", "web"), ..question(1) };
    assert_eq!(evaluate(claims, &pod).answer, Answer::Allow);

    let window = |hour: u32| {
        let small = "cascade.complete && cascade.objects <= 500";
        format!(r#"({small}) || (now.weekday == 2 && now.hour >= {hour}) ? "allow" : "hold""#)
    };
    assert_eq!(evaluate(&window(23), &cascade(500)).answer, Answer::Allow);
    assert_eq!(evaluate(&window(23), &cascade(501)).answer, held);
    let mut uncounted = cascade(3);
    uncounted.cascade.as_mut().unwrap().complete = false;
    assert_eq!(evaluate(&window(23), &uncounted).answer, held);
    assert_eq!(evaluate(&window(22), &cascade(501)).answer, Answer::Allow);

    assert_eq!(evaluate("false", &question(1)).answer, Answer::Deny);
}

#[test]
fn expressions_see_the_question() {
    for text in [
        "gate == 'production' && action == 'DELETE' && object.namespace == 'shop' && object.name == 'data-1'",
        "chain.exists(owner, owner.kind == 'StatefulSet' && owner.group == 'apps') && root.name == 'data'",
        "cascade == null",
        "now.year == 2026 && now.month == 11 && now.day == 24 && now.minute == 30 && now.seconds == 1795559400",
    ] {
        let found = evaluate(text, &question(1));
        assert_eq!(found.answer, Answer::Allow, "{text}: {found:?}");
    }
    for text in [
        "root.kind == 'Namespace' && cascade.complete && 'deployments.apps' in cascade.totals",
        "cascade.totals['deployments.apps'] == 9 && size(cascade.totals) == 1",
    ] {
        let found = evaluate(text, &cascade(9));
        assert_eq!(found.answer, Answer::Allow, "{text}: {found:?}");
    }
}

#[test]
fn what_an_expression_cannot_answer_fails() {
    for (text, about) in [
        ("1 / 0 == 1", "the evaluation of the expression failed"),
        ("cascade.objects > 1", "the evaluation of the expression failed"),
        ("'maybe'", "the expression returned \"maybe\""),
    ] {
        let found = evaluate(text, &question(1));
        assert_eq!(found.answer, Answer::Failed, "{text}");
        assert!(found.message.contains(about), "{text}: {found:?}");
    }
}

#[tokio::test]
async fn expressions_are_evaluated_in_batches() {
    let (router, inbox, metrics) = router(&json!({"cel": {"expression": "object.name != 'data-7'"}}));
    (1..=250).for_each(|number| router.ask(question(number)));
    router.cancel(&GATE.into(), &[250]);
    let found = answered(&router, &inbox, 249).await;
    let denied = found.values().filter(|answered| answered.answer == Answer::Deny);
    assert_eq!(denied.map(|answered| answered.number).collect::<Vec<_>>(), [7]);
    assert_eq!(metrics.open(), 0);
}
