//! Protobuf that is valid and that Kubernetes never sends, and invalid protobuf.

use super::*;
use crate::metadata::protobuf;
use crate::metadata::tests::oracle;
use serde_json::json;

/// A field of bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2, u8::try_from(value.len()).unwrap()], value.to_vec()].concat()
}

fn varint(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn object(metadata: &[u8]) -> Vec<u8> {
    field(1, metadata)
}

fn decode(bytes: &[u8]) -> Result<Object, String> {
    Decoder::new(Some(true)).object(&Item::Protobuf(Metadata::scan(bytes)))
}

/// The parts of a usable object's metadata.
fn parts() -> Vec<Vec<u8>> {
    let reference = |kind: &[u8], uid: &[u8]| {
        [field(5, b"v1"), field(1, kind), field(3, b"o"), field(4, uid), varint(7, 1)].concat()
    };
    vec![
        field(1, b"a"),
        field(3, b"n"),
        field(5, b"u"),
        field(6, b"7"),
        field(9, &varint(1, 5)),
        field(12, &[field(1, b"ownergraph.dev/hold"), field(2, b"")].concat()),
        field(12, &field(1, b"z")),
        field(13, &reference(b"Pod", b"u1")),
        field(13, &reference(b"Job", b"u2")),
        field(14, b"orphan"),
        field(14, b"x"),
    ]
}

#[test]
fn an_object_is_what_a_decision_can_rest_on() {
    let read = decode(&object(&parts().concat())).unwrap();
    assert_eq!((&*read.namespace, &*read.name, &*read.uid.to_string()), ("n", "a", "u"));
    assert_eq!(read.resource_version, ResourceVersion::parse("7"));
    assert!(read.facts.terminating && read.facts.hold);
    assert_eq!(read.facts.deletion_time.map(u32::from), Some(5));
    assert_eq!(read.facts.finalizers.iter().map(|name| &**name).collect::<Vec<_>>(), ["orphan", "x"]);
    let [first, second] = &*read.facts.owners else { panic!("{read:?}") };
    assert_eq!((&*first.api_version, &*first.kind, &*first.name, &*first.uid.to_string()), ("v1", "Pod", "o", "u1"));
    assert_eq!((first.controller, first.block_owner_deletion), (None, Some(true)));
    assert_eq!((&*second.kind, &*second.uid.to_string()), ("Job", "u2"));
}

#[test]
fn neither_order_nor_pieces_nor_unknown_fields_matter() {
    let parts = parts();
    let expected = decode(&object(&parts.concat())).unwrap();
    let backwards: Vec<u8> = parts[..7].iter().rev().chain(&parts[7..]).flatten().copied().collect();
    assert_eq!(decode(&object(&backwards)), Ok(expected.clone()));
    // One of each wire type, a group in a group, and one whose key has two bytes.
    let unknown: [&[u8]; 6] = [
        &[15 << 3, 0x96, 0x01],
        &[15 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8],
        &[15 << 3 | 2, 3, 1, 2, 3],
        &[15 << 3 | 3, 8, 1, 10 << 3 | 3, 10 << 3 | 2, 1, 7, 10 << 3 | 4, 15 << 3 | 4],
        &[15 << 3 | 5, 1, 2, 3, 4],
        &[0x82, 0x7d, 1, 0xff],
    ];
    for at in 0..=parts.len() {
        let (before, after) = (parts[..at].concat(), parts[at..].concat());
        assert_eq!(decode(&[object(&before), object(&after)].concat()), Ok(expected.clone()), "in two pieces, at {at}");
        for unknown in unknown {
            let within = object(&[&before[..], unknown, &after].concat());
            assert_eq!(decode(&within), Ok(expected.clone()), "{unknown:?} at {at}");
            let between = [object(&before), unknown.to_vec(), object(&after)].concat();
            assert_eq!(decode(&between), Ok(expected.clone()), "{unknown:?} between the pieces at {at}");
        }
    }
}

#[test]
fn of_what_stands_twice_the_last_counts_and_messages_are_put_together() {
    let twice = [parts().concat(), field(1, b"b"), field(6, b"8"), field(9, &varint(2, 1))].concat();
    let read = decode(&object(&twice)).unwrap();
    assert_eq!((&*read.name, read.resource_version), ("b", ResourceVersion::parse("8")));
    assert_eq!(read.facts.deletion_time.map(u32::from), Some(5), "the nanoseconds came in a second piece");
    let reference = [
        field(5, b"v1"),
        field(1, b"Pod"),
        field(1, b"Job"),
        field(3, b"o"),
        field(4, b"u1"),
        varint(6, 1),
        varint(6, 0),
    ];
    let read = decode(&object(&[parts()[..4].concat(), field(13, &reference.concat())].concat())).unwrap();
    assert_eq!((&*read.facts.owners[0].kind, read.facts.owners[0].controller), ("Job", Some(false)));
    // An event's object in two pieces, and a raw part that a later one replaces.
    let raw = oracle::enveloped("meta.k8s.io/v1", "PartialObjectMetadata", object(&parts().concat()));
    let long = |number: u8, value: &[u8]| {
        let mut bytes = Vec::new();
        prost::encoding::bytes::encode(number.into(), &value.to_vec(), &mut bytes);
        bytes
    };
    let frame = [
        field(2, &field(1, b"nonsense")),
        field(1, b"BOOKMARK"),
        field(1, b"ADDED"),
        long(2, &long(1, &raw)),
        field(2, b""),
    ];
    let frame = frame.concat();
    let Ok(Event::Added(item)) = event(Encoding::Protobuf, &frame) else { panic!("{frame:?}") };
    assert_eq!(item.resource_version(), Some(ResourceVersion::parse("7")));
}

#[test]
fn a_time_with_nothing_in_it_is_null() {
    let without = |time: &[u8]| decode(&object(&[parts()[..4].concat(), field(9, time)].concat())).unwrap().facts;
    assert!(!without(b"").terminating);
    let epoch = without(&varint(1, 0));
    assert!(epoch.terminating && epoch.deletion_time.is_none());
}

#[test]
fn what_is_no_text_is_refused() {
    for number in [1, 3, 5, 6, 14] {
        let broken = object(&[parts().concat(), field(number, b"\xff")].concat());
        assert!(decode(&broken).unwrap_err().contains("is not UTF-8"), "{number}");
        let not_the_last = object(&[field(number, b"\xc3"), parts().concat()].concat());
        decode(&not_the_last).unwrap_err();
    }
    for number in [1, 3, 4, 5] {
        let reference =
            [field(5, b"v1"), field(1, b"Pod"), field(3, b"o"), field(4, b"u1"), field(number, b"\x80")].concat();
        let broken = object(&[parts().concat(), field(13, &reference)].concat());
        assert!(decode(&broken).unwrap_err().contains("is not UTF-8"), "{number}");
        let item = Item::Protobuf(Metadata::scan(&broken));
        assert_eq!(item.resource_version(), Some(ResourceVersion::parse("7")), "how far the watch has come is known");
    }
    // The collector does not read these.
    let unread =
        [field(2, b"\xff"), field(11, &field(1, b"\xff")), field(12, &[field(1, b"\xff"), field(2, b"\xff")].concat())];
    decode(&object(&[parts().concat(), unread.concat()].concat())).unwrap();
}

#[test]
fn what_is_not_surely_an_object_is_refused() {
    let parts = parts();
    for (missing, why) in [(0, "no name"), (1, "no namespace"), (2, "no uid"), (3, "no resourceVersion")] {
        let mut rest = parts.clone();
        rest.remove(missing);
        assert!(decode(&object(&rest.concat())).unwrap_err().contains(why), "{why}");
    }
    for number in [1, 3, 4, 5] {
        let fields = [(5, b"v1"), (1, b"Po"), (3, b"oo"), (4, b"u1")].into_iter().filter(|(other, _)| *other != number);
        let reference: Vec<u8> = fields.flat_map(|(number, value)| field(number, value)).collect();
        let bad = object(&[parts.concat(), field(13, &reference)].concat());
        assert!(decode(&bad).unwrap_err().contains("an owner reference has no"), "{number}");
    }
    let number_of_ten_bytes = |last: u8| [vec![15 << 3], vec![0xff; 9], vec![last]].concat();
    assert!(Metadata::scan(&number_of_ten_bytes(1)).is_ok());
    let no_text = object(&[parts.concat(), field(12, &[field(1, b"k"), varint(2, 1)].concat())].concat());
    assert_eq!(Metadata::scan(&no_text).unwrap_err(), Malformed::UnexpectedWireType(2));
    assert_eq!(Metadata::scan(&number_of_ten_bytes(2)).unwrap_err(), Malformed::NumberTooLong);
    assert_eq!(Metadata::scan(&[15 << 3 | 3, 14 << 3 | 4]).unwrap_err(), Malformed::Group);
    let wrong: [&[u8]; 8] = [
        &[0x00, 0x00],
        &[0x0f],
        &[0x0c],
        &[0x0b, 0x14],
        &[0x08, 0x01],
        &[0x0a, 0x05, 0x0a],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ];
    for bytes in wrong {
        assert!(decode(bytes).unwrap_err().starts_with("cannot read an object: "), "{bytes:02x?}");
        decode(&object(bytes)).unwrap_err();
    }
    assert_eq!(Metadata::scan(&[0x7b; 200]).unwrap_err(), Malformed::GroupsTooDeep);
    assert_eq!(decode(b"").unwrap_err(), "object \"\" in namespace \"\": no name");
}

#[test]
fn a_page_must_be_a_list_of_metadata() {
    let list = [field(1, &field(2, b"9")), field(2, &object(&parts().concat()))].concat();
    let good = oracle::enveloped("meta.k8s.io/v1", "PartialObjectMetadataList", list.clone());
    assert_eq!(page(Encoding::Protobuf, &good).unwrap().items.count(), 1);
    let names = [field(1, b"meta.k8s.io/v1"), field(2, b"PartialObjectMetadataList")].concat();
    let envelope = |more: &[u8]| [b"k8s\0".to_vec(), field(1, &names), more.to_vec()].concat();
    let empty = field(2, &field(1, &field(2, b"9")));
    assert_eq!(page(Encoding::Protobuf, &envelope(&empty)).unwrap().items.count(), 0);
    let no_lists = [
        Vec::new(),
        b"k8s\0".to_vec(),
        b"{\"kind\":\"PodList\"}".to_vec(),
        good[..good.len() - 1].to_vec(),
        envelope(b""),
        envelope(&field(2, b"")),
        envelope(&[empty.clone(), field(3, b"gzip")].concat()),
        envelope(&[empty, field(4, b"application/json")].concat()),
        oracle::enveloped("v1", "PodList", list.clone()),
        oracle::enveloped("example.com/v1", "PartialObjectMetadataList", list),
        oracle::enveloped("v1", "Status", Vec::new()),
        oracle::enveloped("meta.k8s.io/v1", "PartialObjectMetadata", object(&parts().concat())),
    ];
    for body in no_lists {
        page(Encoding::Protobuf, &body).unwrap_err();
    }
}

#[test]
fn events_are_of_metadata_and_errors_are_statuses() {
    let frame = |kind: &str, api_version: &str, of: &str, raw: Vec<u8>| {
        let raw = oracle::enveloped(api_version, of, raw);
        let object = Some(oracle::RawExtension { raw });
        prost::Message::encode_to_vec(&oracle::WatchEvent { kind: kind.to_owned(), object })
    };
    let why = |frame: &[u8]| event(Encoding::Protobuf, frame).unwrap_err();
    assert!(why(&frame("ADDED", "v1", "Pod", object(&parts().concat()))).contains("is a watch event of kind \"Pod\""));
    assert!(why(&frame("NEW", "meta.k8s.io/v1", "PartialObjectMetadata", Vec::new())).contains("unknown type \"NEW\""));
    assert!(why(b"").contains("unknown type \"\""));
    assert!(why(&field(1, b"ADDED")).contains("does not begin with the prefix of Kubernetes protobuf"));
    assert!(
        why(&frame("BOOKMARK", "meta.k8s.io/v1", "PartialObjectMetadata", Vec::new()))
            .contains("without a resourceVersion")
    );

    let details =
        [field(1, b"n"), field(2, b"g"), field(3, b"k"), field(4, &field(1, b"why")), varint(5, 3), field(6, b"u")];
    let raw = [
        field(2, b"Failure"),
        field(3, b"too old"),
        field(4, b"Expired"),
        field(5, &details.concat()),
        vec![6 << 3, 0x9a, 3],
    ];
    let Ok(Event::Error(status)) = event(Encoding::Protobuf, &frame("ERROR", "v1", "Status", raw.concat())) else {
        panic!()
    };
    let expected = json!({ "status": "Failure", "message": "too old", "reason": "Expired", "code": 410, "details": {
        "name": "n", "group": "g", "kind": "k", "causes": [{ "reason": "why" }], "retryAfterSeconds": 3, "uid": "u" } });
    assert_eq!(status, serde_json::from_value(expected).unwrap());
    // In any case the watch is over.
    for raw in [b"\xff".to_vec(), vec![6 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]] {
        let Ok(Event::Error(status)) = event(Encoding::Protobuf, &frame("ERROR", "v1", "Status", raw)) else {
            panic!()
        };
        assert_eq!(status, Status::default());
    }
    assert_eq!(protobuf::status(b"404 page not found"), None);
}

#[test]
fn the_header_says_which() {
    for (content_type, encoding) in [
        ("application/vnd.kubernetes.protobuf", Some(Encoding::Protobuf)),
        ("application/vnd.kubernetes.protobuf;stream=watch", Some(Encoding::Protobuf)),
        ("Application/vnd.Kubernetes.protobuf ; x=y", Some(Encoding::Protobuf)),
        ("application/json", Some(Encoding::Json)),
        ("application/json;stream=watch", Some(Encoding::Json)),
        ("text/html", None),
        ("", None),
    ] {
        assert_eq!(Encoding::of(content_type), encoding, "{content_type}");
    }
}
