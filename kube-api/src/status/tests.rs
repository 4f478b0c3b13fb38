use bytes::Bytes;
use engine::jitter::Rng;

use super::*;

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

fn status_body(reason: &str, code: u16, details: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"m","reason":"{reason}","details":{details},"code":{code}}}"#
    )
}

#[test]
fn the_kinds_of_404_are_told_apart() {
    let json = "application/json";
    let this = r#"{"name":"web","group":"apps","kind":"deployments"}"#;
    let cases: Vec<(Answer, Option<NotFound>)> = vec![
        (answer(404, json, &status_body("NotFound", 404, this)), Some(NotFound::ThisObject)),
        (
            answer(404, "application/json; charset=utf-8", &status_body("NotFound", 404, this)),
            Some(NotFound::ThisObject),
        ),
        (answer(404, json, &status_body("NotFound", 404, "{}")), Some(NotFound::Resource)),
        (answer(404, json, &status_body("NotFound", 404, "null")), Some(NotFound::Resource)),
        (answer(404, "text/plain; charset=utf-8", "404 page not found\n"), Some(NotFound::Group)),
        // Nearly this object: another name, group, resource, reason or code.
        (answer(404, json, &status_body("NotFound", 404, &this.replace("web", "db"))), Some(NotFound::Other)),
        (answer(404, json, &status_body("NotFound", 404, &this.replace("apps", ""))), Some(NotFound::Other)),
        (
            answer(404, json, &status_body("NotFound", 404, &this.replace("deployments", "Deployment"))),
            Some(NotFound::Other),
        ),
        (answer(404, json, &status_body("Gone", 404, this)), Some(NotFound::Other)),
        (answer(404, json, &status_body("NotFound", 410, this)), Some(NotFound::Other)),
        (answer(404, json, &status_body("", 404, "{}")), Some(NotFound::Other)),
        // Not a Status, or not declared as one.
        (answer(404, json, "{}"), Some(NotFound::Other)),
        (answer(404, json, r#"{"kind":"Status","apiVersion":"v1"}"#), Some(NotFound::Other)),
        (answer(404, json, r#"{"kind":"Pod","apiVersion":"v1","reason":"NotFound"}"#), Some(NotFound::Other)),
        (answer(404, "text/html", &status_body("NotFound", 404, this)), Some(NotFound::Other)),
        (answer(404, "text/html", "<h1>404 page not found</h1>"), Some(NotFound::Other)),
        (answer(404, "text/plain", "default backend - 404"), Some(NotFound::Other)),
        (answer(404, "", ""), Some(NotFound::Other)),
        // Not a 404.
        (answer(200, json, &status_body("NotFound", 404, this)), None),
        (answer(503, "text/plain", "404 page not found"), None),
    ];
    for (answer, expected) in cases {
        assert_eq!(classify_not_found(&answer, "apps", "deployments", "web"), expected, "{answer:?}");
    }
}

#[test]
fn the_core_group_is_the_empty_one() {
    let details = r#"{"name":"a","kind":"configmaps"}"#;
    let answer = answer(404, "application/json", &status_body("NotFound", 404, details));
    assert_eq!(classify_not_found(&answer, "", "configmaps", "a"), Some(NotFound::ThisObject));
    assert_eq!(classify_not_found(&answer, "apps", "configmaps", "a"), Some(NotFound::Other));
}

#[test]
fn a_status_is_read_with_all_that_counts() {
    let details = r#"{"name":"a","kind":"pods","uid":"u","causes":[{"reason":"FieldValueInvalid","message":"no","field":"spec"}],"retryAfterSeconds":3}"#;
    let status = parse_status(&answer(429, "application/json", &status_body("TooManyRequests", 429, details))).unwrap();
    let expected = StatusDetails {
        name: "a".to_owned(),
        group: String::new(),
        kind: "pods".to_owned(),
        uid: "u".to_owned(),
        causes: vec![StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: "no".to_owned(),
            field: "spec".to_owned(),
        }],
        retry_after_seconds: 3,
    };
    assert_eq!((status.code, status.details), (429, Some(expected)));
    assert_eq!(parse_status(&answer(500, "application/json", "{\"kind\":")), None);
    let deep = "[".repeat(100_000);
    assert_eq!(parse_status(&answer(500, "application/json", &deep)), None);
}

/// Answers that are nearly the one about this object: a few random changes to it.
#[test]
fn no_damaged_answer_panics_or_names_an_object_that_it_does_not_name() {
    let good = status_body("NotFound", 404, r#"{"name":"web","group":"apps","kind":"deployments"}"#);
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Rng::new(seed);
    let mut draw = |below: usize| usize::try_from(random.next() >> 33).unwrap() % below;
    for round in 0..20_000 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes[at] = u8::try_from(draw(256)).unwrap(),
                1 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 | 2 => bytes.insert(at, b"{}[]\",:\\0n"[draw(10)]),
                _ => bytes.truncate(at + 1),
            }
        }
        let answer = Answer { body: Bytes::from(bytes.clone()), ..answer(404, "application/json", "") };
        parse_status(&answer);
        if classify_not_found(&answer, "apps", "deployments", "web") == Some(NotFound::ThisObject) {
            // Broken characters in unused text change nothing.
            let said: serde_json::Value = serde_json::from_str(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
            let details = &said["details"];
            let names = (&details["name"], &details["group"], &details["kind"]);
            let shown = || format!("SEED={seed}, round {round}: {}", String::from_utf8_lossy(&bytes));
            assert_eq!(names, (&"web".into(), &"apps".into(), &"deployments".into()), "{}", shown());
            assert_eq!(said["reason"], "NotFound", "{}", shown());
            // The answer's status is 404. The body may omit its code, and must not contradict it.
            assert!(said["code"].is_null() || said["code"] == 0 || said["code"] == 404, "{}", shown());
        }
    }
}
