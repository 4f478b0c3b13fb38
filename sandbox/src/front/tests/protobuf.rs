use super::super::protobuf::{MAGIC, Wire, fields};
use super::*;

/// The fields of a message under `path`. Each step is a field number; the first occurrence is taken.
fn inside<'a>(mut message: &'a [u8], path: &[u64]) -> &'a [u8] {
    for step in path {
        let (_, wire) = fields(message).unwrap().into_iter().find(|(number, _)| number == step).unwrap();
        message = wire.bytes().unwrap();
    }
    message
}

fn text<'a>(message: &'a [u8], path: &[u64]) -> &'a str {
    std::str::from_utf8(inside(message, path)).unwrap()
}

fn count(message: &[u8], wanted: u64) -> usize {
    fields(message).unwrap().iter().filter(|(number, _)| *number == wanted).count()
}

fn number(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).unwrap().into_iter().find_map(|(number, wire)| match wire {
        Wire::Number(value) if number == wanted => Some(value),
        Wire::Number(_) | Wire::Bytes(_) => None,
    })
}

/// The content of an envelope, and its kind.
fn unwrapped(bytes: &[u8]) -> (&str, &[u8]) {
    let envelope = bytes.strip_prefix(MAGIC).unwrap();
    (text(envelope, &[1, 2]), inside(envelope, &[2]))
}

#[tokio::test(start_paused = true)]
async fn metadata_is_served_as_protobuf_to_those_who_want_it() {
    let http = Http::new();
    let owner = http.config_map("owner").await;
    let given = json!({ "metadata": {
        "name": "a", "annotations": { "k": "v" }, "finalizers": ["example.com/f", "example.com/g"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
            "controller": false }],
    } });
    http.post(CONFIG_MAPS, given).await;
    let path = format!("{CONFIG_MAPS}/a");
    http.delete(&path, json!({})).await;
    let stored = http.get(&path).await.json();

    let answer = http.accept(&path, PROTOBUF).await;
    assert_eq!(answer.content_type(), "application/vnd.kubernetes.protobuf");
    let (kind, object) = unwrapped(&answer.bytes);
    let metadata = inside(object, &[1]);
    assert_eq!((kind, text(metadata, &[1]), text(metadata, &[3])), ("PartialObjectMetadata", "a", "default"));
    assert_eq!(
        (text(metadata, &[5]), text(metadata, &[6])),
        (stored["metadata"]["uid"].as_str().unwrap(), stored["metadata"]["resourceVersion"].as_str().unwrap(),)
    );
    assert!(number(inside(metadata, &[9]), 1).unwrap() > 0, "it is terminating");
    assert_eq!((text(metadata, &[12, 1]), text(metadata, &[12, 2])), ("k", "v"));
    assert_eq!((count(metadata, 14), text(metadata, &[14])), (2, "example.com/f"));
    let reference = inside(metadata, &[13]);
    assert_eq!((text(reference, &[5]), text(reference, &[1]), text(reference, &[3])), ("v1", "ConfigMap", "owner"));
    assert_eq!((number(reference, 6), number(reference, 7)), (Some(0), None));

    let lists = PROTOBUF.replace("Metadata;", "MetadataList;");
    let answer = http.accept(&format!("{CONFIG_MAPS}?limit=1"), &lists).await;
    let (kind, list) = unwrapped(&answer.bytes);
    assert_eq!((kind, count(list, 2), text(list, &[2, 1, 1])), ("PartialObjectMetadataList", 1, "a"));
    assert!(!text(list, &[1, 3]).is_empty() && number(inside(list, &[1]), 4) == Some(1));

    let gone = http.send("DELETE", &format!("{CONFIG_MAPS}/owner"), &[("accept", PROTOBUF)], Body::empty()).await;
    let (kind, status) = unwrapped(&gone.bytes);
    assert_eq!((kind, text(status, &[2]), text(status, &[5, 1])), ("Status", "Success", "owner"));
    let missing = http.accept(&format!("{CONFIG_MAPS}/owner"), PROTOBUF).await;
    assert_eq!((missing.code, missing.content_type()), (404, "application/json"), "refusals are JSON");
}

#[tokio::test(start_paused = true)]
async fn watches_come_in_frames() {
    let http = Http::new();
    http.config_map("a").await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5";
    let answer = http.accept(&format!("{CONFIG_MAPS}?{query}"), PROTOBUF).await;
    assert_eq!(answer.content_type(), "application/vnd.kubernetes.protobuf;stream=watch");
    let mut rest: &[u8] = &answer.bytes;
    let mut events = Vec::new();
    while let Some((head, more)) = rest.split_first_chunk::<4>() {
        let (event, more) = more.split_at(u32::from_be_bytes(*head).try_into().unwrap());
        rest = more;
        let (kind, object) = unwrapped(inside(event, &[2, 1]));
        assert_eq!(kind, "PartialObjectMetadata");
        let annotated = count(inside(object, &[1]), 12) > 0;
        events.push((text(event, &[1]), text(object, &[1, 1]), if annotated { text(object, &[1, 12, 1]) } else { "" }));
    }
    // The last one comes shortly before the end.
    let expected = [("ADDED", "a", ""), ("BOOKMARK", "", "k8s.io/initial-events-end"), ("BOOKMARK", "", "")];
    assert_eq!((events, rest), (expected.to_vec(), &b""[..]));

    let version = http.config_map("b").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    http.config_map("c").await;
    http.server.compact();
    let late = http.accept(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}"), PROTOBUF).await;
    let (kind, status) = unwrapped(inside(&late.bytes[4..], &[2, 1]));
    assert_eq!((text(&late.bytes[4..], &[1]), kind, number(status, 6)), ("ERROR", "Status", Some(410)));
}

#[tokio::test(start_paused = true)]
async fn protobuf_can_be_switched_off() {
    let http = Http::new();
    http.config_map("a").await;
    http.server.speak_protobuf(false);
    let lists = PROTOBUF.replace("Metadata;", "MetadataList;");
    assert_eq!(http.accept(CONFIG_MAPS, &lists).await.json()["kind"], "PartialObjectMetadataList");
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    http.config_map("b").await;
    assert_eq!(watch.brief().await, "ADDED a");
}
