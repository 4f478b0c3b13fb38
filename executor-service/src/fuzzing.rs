//! Fuzz entry points: one function for each reader of bytes from outside in this crate.

use crate::answer::{excerpt, reply};
use engine::attempt::classify;
use engine::object::{ObjectRef, Uid};
use engine::work::MESSAGE_MAX_BYTES;
use http::StatusCode;
use kube_api::{Answer, NotFound, classify_not_found, parse_object, parse_status};

/// Answers of the API server: the first byte selects status and content type.
pub fn answers(bytes: &[u8]) {
    let Some((&first, body)) = bytes.split_first() else { return };
    let codes = [200, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504];
    let types = ["application/json", "application/json; charset=utf-8", "text/plain", "text/html", ""];
    let first = usize::from(first);
    let answer = Answer {
        status: StatusCode::from_u16(codes[first % codes.len()]).unwrap_or_default(),
        content_type: types[first / codes.len() % types.len()].to_owned(),
        body: body.to_vec().into(),
        retry_after: None,
        audit_id: None,
        date: None,
    };
    let object = object();
    let reading = classify(&reply(&object, &answer));
    assert!(reading.message.len() <= MESSAGE_MAX_BYTES, "a message of {} bytes", reading.message.len());
    let _status = parse_status(&answer);
    let _excerpt = excerpt(&answer);
    let not_found = classify_not_found(&answer, &object.group, &object.resource, &object.name);
    if not_found == Some(NotFound::ThisObject) {
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "only a 404 can say that the object does not exist");
        assert!(body.windows(object.name.len()).any(|part| part == object.name.as_bytes()) || body.contains(&b'\\'));
    }
}

/// An object, as the executor reads it before a write.
pub fn objects(bytes: &[u8]) {
    let _object = parse_object(bytes);
}

fn object() -> ObjectRef {
    ObjectRef {
        group: "apps".into(),
        version: "v1".into(),
        resource: "replicasets".into(),
        kind: "ReplicaSet".into(),
        namespace: "default".into(),
        name: "web-7d9c".into(),
        uid: Uid::parse("11111111-1111-1111-1111-111111111111").expect("the text is not empty"),
    }
}
