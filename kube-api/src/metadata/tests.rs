use super::*;

mod differential;
mod generate;
mod marks;
mod oracle;
mod protobuf;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn decode(text: &str) -> Result<Object, String> {
    Decoder::new(Some(true)).object(&Item::Json(&raw(text)))
}

#[test]
fn an_object_is_what_a_decision_can_rest_on() {
    let object = decode(
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{
            "name":"web","namespace":"shop","uid":"5c4a2d24-1c8d-4e5c-9d5b-0a8f5f0c7f11","resourceVersion":"77","generation":3,
            "labels":{"a":"b"},"annotations":{"x":"\"y\"","ownergraph.dev/hold":""},"deletionTimestamp":"2026-01-01T00:00:00Z",
            "finalizers":["orphan","example.com/\u0066oo"],"managedFields":[{"manager":"m"}],
            "ownerReferences":[
              {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"u1","controller":true,"blockOwnerDeletion":false},
              {"apiVersion":"v1","kind":"ConfigMap","name":"cm","uid":"u2","controller":null}]}}"#,
    )
    .unwrap();
    assert_eq!((&*object.namespace, &*object.name), ("shop", "web"));
    assert_eq!(object.uid.to_string(), "5c4a2d24-1c8d-4e5c-9d5b-0a8f5f0c7f11");
    assert_eq!(object.resource_version, ResourceVersion::parse("77"));
    assert!(object.facts.terminating && object.facts.hold);
    assert_eq!(object.facts.deletion_time.map(u32::from), Some(1_767_225_600));
    assert_eq!(object.facts.finalizers.iter().map(|name| &**name).collect::<Vec<_>>(), ["orphan", "example.com/foo"]);
    let [first, second] = &*object.facts.owners else { panic!("{object:?}") };
    assert_eq!((&*first.api_version, &*first.kind, &*first.name), ("apps/v1", "ReplicaSet", "rs"));
    assert_eq!((first.controller, first.block_owner_deletion), (Some(true), Some(false)));
    assert_eq!((second.controller, second.block_owner_deletion), (None, None));
}

#[test]
fn null_is_absent() {
    let object = decode(
        r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","deletionTimestamp":null,"annotations":null,
            "ownerReferences":null,"finalizers":null}}"#,
    )
    .unwrap();
    assert_eq!(object.facts, Facts::default());
}

#[test]
fn what_is_not_surely_an_object_is_refused() {
    let cases = [
        (r#"{"metadata":{"namespace":"n","uid":"u","resourceVersion":"1"}}"#, "no name"),
        (r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}"#, "no uid"),
        (r#"{"metadata":{"name":"a","namespace":"n","uid":"","resourceVersion":"1"}}"#, "no uid"),
        (r#"{"metadata":{"name":"a","namespace":"n","uid":"u"}}"#, "no resourceVersion"),
        (r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#, "no namespace"),
        (r#"{"metadata":{"name":"a","namespace":"n","uid":7,"resourceVersion":"1"}}"#, "cannot read an object"),
        (
            r#"{"metadata":{"name":"a","name":"b","namespace":"n","uid":"u","resourceVersion":"1"}}"#,
            "cannot read an object",
        ),
        (
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","finalizers":"x"}}"#,
            "cannot read an object",
        ),
        ("{}", "cannot read an object"),
        ("null", "cannot read an object"),
        ("[]", "cannot read an object"),
    ];
    for (text, why) in cases {
        assert!(decode(text).unwrap_err().contains(why), "{text}: {:?}", decode(text));
    }
    let cluster_scoped = Decoder::new(Some(false))
        .object(&Item::Json(&raw(r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}"#)));
    assert!(cluster_scoped.unwrap_err().contains("cluster-scoped"));
}

#[test]
fn one_bad_reference_makes_the_object_unusable() {
    let good = r#"{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1"}"#;
    let bad = [
        r#"{"apiVersion":"v1","kind":"Pod","name":"p","uid":""}"#,
        r#"{"apiVersion":"v1","kind":"Pod","name":"p"}"#,
        r#"{"apiVersion":"v1","kind":"","name":"p","uid":"u"}"#,
        r#"{"apiVersion":"","kind":"Pod","name":"p","uid":"u"}"#,
        r#"{"apiVersion":"v1","kind":"Pod","name":"","uid":"u"}"#,
        "null",
    ];
    for bad in bad {
        let object = format!(
            r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","ownerReferences":[{good},{bad}]}}}}"#
        );
        decode(&object).unwrap_err();
    }
}

#[test]
fn names_are_shared() {
    let mut decoder = Decoder::new(Some(true));
    let mut object = |name: &str| {
        let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"1"}}}}"#);
        decoder.object(&Item::Json(&raw(&text))).unwrap()
    };
    assert!(Arc::ptr_eq(&object("a").namespace, &object("b").namespace));
    for number in 0..2 * NAMES_MAX {
        decoder.shared(&number.to_string());
        assert!(decoder.names.len() <= NAMES_MAX);
    }
}

#[test]
fn a_page_must_be_a_list() {
    let list =
        page(Encoding::Json, br#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t"},"items":null}"#)
            .unwrap();
    assert_eq!((list.resource_version.as_str(), list.continues.as_deref(), list.items.count()), ("9", Some("t"), 0));
    let no_lists: [&[u8]; 7] = [
        br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":{}}"#,
        b"",
        b"{}",
        br#"{"kind":"Status","metadata":{},"items":[]}"#,
        br#"{"kind":"PodList","items":[]}"#,
        br#"{"kind":"PodList","metadata":{"resourceVersion":"9"}}"#,
        br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]"#,
    ];
    for body in no_lists {
        page(Encoding::Json, body).unwrap_err();
    }
}

#[test]
fn a_bookmark_says_whether_it_ends_the_list() {
    for (annotations, expected) in [
        (r#""annotations":{"k8s.io/initial-events-end":"true"},"#, true),
        (r#""annotations":{"other":"true"},"#, false),
        (r#""annotations":null,"#, false),
        ("", false),
    ] {
        let line = format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{{annotations}"resourceVersion":"5"}}}}}}"#);
        let Ok(Event::Bookmark { ends_list, .. }) = event(Encoding::Json, line.as_bytes()) else { panic!("{line}") };
        assert_eq!(ends_list, expected, "{line}");
    }
    event(Encoding::Json, br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":""}}}"#).unwrap_err();
    event(Encoding::Json, br#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).unwrap_err();
}

/// Checks that the object has exactly the values of the text.
fn agrees_with_a_naive_reader(object: &Object, item: &RawValue) {
    let value: serde_json::Value = serde_json::from_str(item.get()).unwrap();
    let metadata = &value["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&(*object.name).into(), &(*object.namespace).into()));
    assert_eq!(metadata["uid"], object.uid.to_string());
    assert_eq!(metadata["resourceVersion"], object.resource_version.to_string());
    let length = |value: &serde_json::Value| value.as_array().map_or(0, Vec::len);
    assert_eq!(length(&metadata["ownerReferences"]), object.facts.owners.len());
    assert_eq!(length(&metadata["finalizers"]), object.facts.finalizers.len());
    for (at, owner) in object.facts.owners.iter().enumerate() {
        let said = &metadata["ownerReferences"][at];
        assert_eq!((&said["kind"], &said["name"]), (&(*owner.kind).into(), &(*owner.name).into()));
        assert_eq!((&said["uid"], &said["apiVersion"]), (&owner.uid.to_string().into(), &(*owner.api_version).into()));
        assert_eq!(said["controller"].as_bool(), owner.controller);
        assert_eq!(said["blockOwnerDeletion"].as_bool(), owner.block_owner_deletion);
    }
}

/// Bytes that are almost valid: a valid line with a few random changes.
#[test]
fn arbitrary_bytes_never_panic() {
    let good = br#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p\u00e9","uid":"u1","controller":true}],"finalizers":["orphan"]}}}"#;
    let list = br#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t"},"items":[{"metadata":{"name":"a"}},7,null]}"#;
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut decoder = Decoder::new(Some(true));
    for round in 0..20_000 {
        let mut bytes = if draw(2) == 0 { good.to_vec() } else { list.to_vec() };
        for _ in 0..=draw(6) {
            let at = draw(bytes.len().max(1));
            match draw(4) {
                0 => bytes[at] = u8::try_from(draw(256)).unwrap(),
                1 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 | 2 => bytes.insert(at, b"{}[]\",:\\0n"[draw(10)]),
                _ => bytes.truncate(at + 1),
            }
        }
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let items = match (event(Encoding::Json, &bytes), page(Encoding::Json, &bytes)) {
                (Ok(Event::Added(item) | Event::Modified(item) | Event::Deleted(item)), _) => vec![item],
                (_, Ok(page)) => page.items.collect(),
                _ => Vec::new(),
            };
            for item in items {
                item.resource_version();
                if let Ok(object) = decoder.object(&item) {
                    assert!(!object.name.is_empty() && !object.namespace.is_empty());
                    agrees_with_a_naive_reader(&object, item.json().unwrap());
                }
            }
        }));
        assert!(checked.is_ok(), "SEED={seed}, round {round}: {:?}", String::from_utf8_lossy(&bytes));
    }
}
