//! Every outcome, with the body that kube-apiserver 1.36 sends for it, if it sends one.

use super::*;
use bytes::Bytes;
use engine::attempt::{Question, classify, failed};
use engine::object::{Name, Uid};
use engine::work::{MESSAGE_MAX_BYTES, Outcome};
use http::StatusCode;
use std::time::Duration;

fn config_map() -> ObjectRef {
    ObjectRef {
        group: Name::from(""),
        version: Name::from("v1"),
        resource: Name::from("configmaps"),
        kind: Name::from("ConfigMap"),
        namespace: Name::from("default"),
        name: Name::from("plain"),
        uid: Uid::parse("5f4522a0-1d50-46d8-a74d-5fa3e09244bf").unwrap(),
    }
}

fn answer(status: u16, content_type: &str, body: &str) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        content_type: content_type.to_owned(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        retry_after: None,
        audit_id: None,
        date: None,
    }
}

fn status(code: u16, reason: &str, message: &str, details: &str) -> Answer {
    let message = Value::from(message);
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":{message},"reason":"{reason}","details":{details},"code":{code}}}"#
    );
    answer(code, "application/json", &body)
}

const NAMED: &str = r#"{"name":"plain","kind":"configmaps"}"#;
const NOTHING: &str = "{}";

#[test]
fn every_answer_has_its_outcome() {
    let cases = [
        (
            answer(200, "application/json", r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#),
            Outcome::Done,
            None,
        ),
        (answer(202, "application/json", "{}"), Outcome::Done, None),
        (status(404, "NotFound", "configmaps \"plain\" not found", NAMED), Outcome::Gone, None),
        (
            status(404, "NotFound", "the server could not find the requested resource", NOTHING),
            Outcome::Transient,
            None,
        ),
        (answer(404, "text/plain; charset=utf-8", "404 page not found\n"), Outcome::Transient, None),
        (answer(404, "text/html", "<html>nginx</html>"), Outcome::Transient, None),
        (status(404, "NotFound", "not found", r#"{"name":"other","kind":"configmaps"}"#), Outcome::Transient, None),
        (
            status(404, "NotFound", "not found", r#"{"name":"plain","group":"apps","kind":"configmaps"}"#),
            Outcome::Transient,
            None,
        ),
        (
            status(404, "", "admission webhook \"w.example.com\" denied the request: because", NAMED),
            Outcome::AdmissionDenied,
            Some("w.example.com"),
        ),
        (
            status(
                409,
                "Conflict",
                "Operation cannot be fulfilled on ConfigMap \"plain\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (206). The object might have been modified",
                NAMED,
            ),
            Outcome::Conflict,
            None,
        ),
        (
            status(409, "", "admission webhook \"w.example.com\" denied the request: because", NOTHING),
            Outcome::Conflict,
            Some("w.example.com"),
        ),
        (status(401, "Unauthorized", "Unauthorized", NOTHING), Outcome::Unauthenticated, None),
        (
            status(
                403,
                "Forbidden",
                "configmaps \"plain\" is forbidden: User \"tenant\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"default\"",
                NAMED,
            ),
            Outcome::Forbidden,
            None,
        ),
        (
            status(403, "Forbidden", "admission webhook \"w.example.com\" denied the request: no", NOTHING),
            Outcome::AdmissionDenied,
            Some("w.example.com"),
        ),
        (
            status(400, "", "admission webhook \"w.example.com\" denied the request: because", NOTHING),
            Outcome::AdmissionDenied,
            Some("w.example.com"),
        ),
        (
            status(429, "", "admission webhook \"w.example.com\" denied the request: because", NOTHING),
            Outcome::AdmissionDenied,
            Some("w.example.com"),
        ),
        (
            status(
                422,
                "Invalid",
                "configmaps \"plain\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not today",
                NAMED,
            ),
            Outcome::AdmissionDenied,
            Some("keep"),
        ),
        (
            status(
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"dead.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=2s\": dial tcp 127.0.0.1:1: connect: connection refused",
                NOTHING,
            ),
            Outcome::AdmissionFailed,
            Some("dead.example.com"),
        ),
        (
            status(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", NOTHING),
            Outcome::Unsupported,
            None,
        ),
        (status(415, "UnsupportedMediaType", "415: Unsupported Media Type", NOTHING), Outcome::Unsupported, None),
        (status(400, "BadRequest", "unparsable", NOTHING), Outcome::Invalid, None),
        (
            status(
                422,
                "Invalid",
                "ConfigMap \"plain\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable",
                NAMED,
            ),
            Outcome::Invalid,
            None,
        ),
        (status(429, "TooManyRequests", "too many requests", NOTHING), Outcome::Throttled, None),
        (
            status(
                500,
                "InternalError",
                "Internal error occurred: conversion webhook for example.com/v1, Kind=A failed: Post \"https://x\": EOF",
                NOTHING,
            ),
            Outcome::Transient,
            None,
        ),
        (
            status(503, "ServiceUnavailable", "the server is currently unable to handle the request", NOTHING),
            Outcome::Transient,
            None,
        ),
        (
            status(504, "Timeout", "Timeout: request did not complete within requested timeout", NOTHING),
            Outcome::Transient,
            None,
        ),
        (status(410, "Expired", "too old", NOTHING), Outcome::Transient, None),
        (answer(302, "text/html", "elsewhere"), Outcome::Transient, None),
    ];
    for (answer, outcome, webhook) in cases {
        let reading = classify(&reply(&config_map(), &answer));
        assert_eq!((reading.outcome, reading.webhook.as_deref()), (outcome, webhook), "{answer:?}");
        assert_eq!(reading.http_status, answer.status.as_u16());
        assert_eq!(reading.message.is_empty(), answer.status.is_success(), "{answer:?}");
    }
}

#[test]
fn only_an_answer_that_may_have_been_a_write_is_ambiguous() {
    let not_sent = CallError::NotSent { cause: "connection refused".to_owned() };
    let broken = CallError::Ambiguous { cause: "reset".to_owned() };
    let large = CallError::TooLarge { limit_bytes: 1 };
    let nobody = CallError::NoCredentials { cause: "exec plugin failed".to_owned() };
    for (error, question, outcome) in [
        (&nobody, Question::Write, Outcome::Unauthenticated),
        (&not_sent, Question::Write, Outcome::Transient),
        (&not_sent, Question::Read, Outcome::Transient),
        (&broken, Question::Write, Outcome::Ambiguous),
        (&broken, Question::Read, Outcome::Transient),
        (&large, Question::Write, Outcome::Ambiguous),
        (&large, Question::Read, Outcome::Transient),
    ] {
        let reading = failed(question, &failure(error));
        assert_eq!((reading.outcome, reading.http_status), (outcome, 0), "{error:?} {question:?}");
        assert!(!reading.message.is_empty());
    }
}

#[test]
fn the_wait_comes_from_the_header_or_the_details_and_is_bounded() {
    let in_details = status(429, "TooManyRequests", "slow", r#"{"retryAfterSeconds":7}"#);
    let in_header = Answer { retry_after: Some(Duration::from_secs(2)), ..in_details.clone() };
    let absurd = Answer { retry_after: Some(Duration::MAX), ..in_details.clone() };
    for (answer, wait) in [(&in_details, 7), (&in_header, 2), (&absurd, 600)] {
        let reading = classify(&reply(&config_map(), answer));
        assert_eq!(reading.retry_after, Some(Duration::from_secs(wait)));
    }
}

#[test]
fn a_404_says_which_one_it_was_and_texts_are_clipped() {
    let page = answer(404, "text/plain", "404 page not found");
    let message = classify(&reply(&config_map(), &page)).message;
    assert!(message.contains("the API group is not served"), "{message}");
    let resource = status(404, "NotFound", "the server could not find the requested resource", NOTHING);
    let message = classify(&reply(&config_map(), &resource)).message;
    assert!(message.contains("the resource is not served"), "{message}");
    let long = status(500, "InternalError", &"ä".repeat(5000), NOTHING);
    assert!(classify(&reply(&config_map(), &long)).message.len() <= MESSAGE_MAX_BYTES);
}
