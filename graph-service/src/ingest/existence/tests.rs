use super::*;
use crate::ingest::scripted::{Reply, Then, object, ok, page, refuse, server_in};
use engine::leader::ProbeId;
use engine::object::GroupResource;
use kube_api::metadata::Encoding;
use std::sync::Arc;

fn probe(by: CheckBy, name: &str) -> (Probe, Named) {
    let named = Named { name: Arc::from(name), by };
    let probe = Probe {
        id: ProbeId(1),
        collection: GroupResource { group: Arc::from("apps"), resource: Arc::from("things") },
        kind: Arc::from("Thing"),
        version: Arc::from("v1"),
        namespace: Some(Arc::from("ns")),
        limit: None,
        object: Some(named.clone()),
        fresh: false,
    };
    (probe, named)
}

/// The result for the object `a`: its version, or none, and the position of the answer. The same in every encoding.
async fn ask(by: CheckBy, reply: Reply) -> Result<(Option<String>, String), String> {
    let mut answers = Vec::new();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let (probe, named) = probe(by, "a");
        let (clients, _) = server_in(encoding, vec![reply.clone()]);
        let found = answer(&clients, &probe, &named).await.map_err(|failure| failure.sentence);
        answers.push(found.map(|found| {
            let object = found.objects.first().map(|object| object.resource_version.to_string());
            (object, found.resource_version.to_string())
        }));
    }
    assert_eq!(answers[0].as_ref().ok(), answers[1].as_ref().ok());
    answers.remove(0)
}

fn json(text: &str) -> Reply {
    ok(&[text], Then::End)
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_name_shows_it_or_shows_that_it_is_not_there() {
    let there = json(&page(9, "", &[object("a", 5)]));
    assert_eq!(ask(CheckBy::List, there).await, Ok((Some("5".to_owned()), "9".to_owned())));
    assert_eq!(ask(CheckBy::List, json(&page(9, "", &[]))).await, Ok((None, "9".to_owned())));
    let whole = r#"{"kind":"ThingList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9"},"items":null}"#;
    assert_eq!(ask(CheckBy::List, json(whole)).await, Ok((None, "9".to_owned())), "a server that sends objects whole");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_list_of_the_kind_says_nothing() {
    let list = |kind: &str, version: &str| {
        format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{"resourceVersion":"9"}},"items":[]}}"#)
    };
    let page_with =
        |extra: &str| page(9, "", &[]).replace("\"resourceVersion\"", &format!("{extra}\"resourceVersion\""));
    let cases = [
        json(&list("GadgetList", "apps/v1")),
        json(&list("ThingList", "other.test/v1")),
        json(&list("ThingList", "v1")),
        Reply::Bytes {
            content_type: "application/json",
            bytes: list("PartialObjectMetadataList", "other.test/v1").into_bytes(),
        },
        json(&list("List", "v1")),
        json(&list("Status", "v1")),
        json("<html>"),
        json(&page(9, "", &[object("b", 5)])),
        json(&page(9, "", &[object("a", 5), object("a", 6)])),
        json(&page(9, "t", &[])),
        json(&page_with("\"remainingItemCount\":3,")),
        refuse(404, "NotFound"),
        refuse(429, "TooManyRequests"),
        refuse(500, "InternalError"),
        Reply::Unreachable,
        Reply::Bytes { content_type: media::PROTOBUF, bytes: page(9, "", &[]).into_bytes() },
        Reply::Bytes { content_type: "text/html", bytes: page(9, "", &[]).into_bytes() },
    ];
    for reply in cases {
        assert!(ask(CheckBy::List, reply.clone()).await.is_err(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_finds_nothing_only_by_a_status_that_names_the_object() {
    let status = |details: &str| Reply::Answer {
        status: 404,
        retry_after: None,
        lines: vec![format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{details}}}"#
        )],
        then: Then::End,
    };
    let named = status(r#"{"name":"a","group":"apps","kind":"things"}"#);
    assert_eq!(ask(CheckBy::Read, named).await, Ok((None, String::new())));
    let there = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
        "metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5"}}"#;
    assert_eq!(ask(CheckBy::Read, json(there)).await, Ok((Some("5".to_owned()), "5".to_owned())));
    let whole = there.replace("PartialObjectMetadata", "Thing").replace("meta.k8s.io/v1", "apps/v1");
    assert_eq!(ask(CheckBy::Read, json(&whole)).await, Ok((Some("5".to_owned()), "5".to_owned())));
    let cases = [
        status(r#"{"name":"b","group":"apps","kind":"things"}"#),
        status(r#"{"name":"a","group":"","kind":"things"}"#),
        status("{}"),
        refuse(404, "NotFound"),
        json(&there.replace("\"a\"", "\"b\"")),
        json(&there.replace("PartialObjectMetadata", "Gadget").replace("meta.k8s.io/v1", "apps/v1")),
        json(&there.replace("PartialObjectMetadata", "Thing").replace("meta.k8s.io/v1", "other.test/v1")),
        Reply::Bytes { content_type: "", bytes: there.replace("\"u\"", "\"another\"").into_bytes() },
        Reply::Bytes { content_type: "text/html", bytes: there.as_bytes().to_vec() },
        Reply::Bytes { content_type: media::PROTOBUF, bytes: there.as_bytes().to_vec() },
        json("{}"),
        refuse(403, "Forbidden"),
    ];
    for reply in cases {
        assert!(ask(CheckBy::Read, reply.clone()).await.is_err(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_asked_for_as_it_was_written_or_not_at_all() {
    let asked = |by, name: &str| {
        let (probe, named) = probe(by, name);
        uri(&probe, &named)
    };
    let base = "/apis/apps/v1/namespaces/ns/things";
    assert_eq!(
        asked(CheckBy::List, "a,b=c\\ ä"),
        Some(format!("{base}?fieldSelector=metadata.name%3Da%5C%2Cb%5C%3Dc%5C%5C%20%C3%A4"))
    );
    assert_eq!(asked(CheckBy::Read, "a b:c"), Some(format!("{base}/a%20b%3Ac")));
    for name in ["", ".", "..", "a/b", "a%2Fb"] {
        assert_eq!(asked(CheckBy::Read, name), None, "{name}");
    }
    assert_eq!(asked(CheckBy::List, ""), None);
    assert_eq!(asked(CheckBy::List, &"a".repeat(60_000)), None);
}
