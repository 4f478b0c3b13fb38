//! Compares the scan with prost and with the JSON reader, on generated and on broken input.

use super::generate::{Draw, odd};
use super::*;
use crate::metadata::tests::oracle::{self, PartialObjectMetadata, Time};
use engine::object::HOLD_ANNOTATION;
use prost::Message as _;
use serde_json::Value;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(super) fn seed() -> u64 {
    from_environment("SEED").unwrap_or(1)
}

/// Configurable: `ROUNDS=1000000 SEED=7 cargo test -p graph-service what_prost_reads`.
pub(super) fn rounds() -> usize {
    from_environment("ROUNDS").and_then(|rounds| rounds.try_into().ok()).unwrap_or(4_000)
}

/// The metadata of an object.
#[derive(Debug, Default, PartialEq)]
struct Known {
    texts: [String; 4],
    deletion_seconds: Option<i64>,
    hold: bool,
    ends: bool,
    owners: Vec<oracle::OwnerReference>,
    finalizers: Vec<String>,
}

/// Read by the scan.
fn scanned(object: &[u8]) -> Result<Known, Malformed> {
    let metadata = Metadata::scan(object)?;
    assert_eq!(metadata.owners().len(), metadata.owners().count());
    assert_eq!(metadata.finalizers().len(), metadata.finalizers().count());
    let owners = metadata.owners().map(|owner| {
        let owner = owner?;
        Ok(oracle::OwnerReference {
            kind: owner.kind.to_owned(),
            name: owner.name.to_owned(),
            uid: owner.uid.to_owned(),
            api_version: owner.api_version.to_owned(),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    });
    Ok(Known {
        texts: [metadata.name, metadata.namespace, metadata.uid, metadata.resource_version].map(str::to_owned),
        deletion_seconds: metadata.deletion_seconds,
        hold: metadata.hold,
        ends: metadata.ends_initial_events,
        owners: owners.collect::<Result<_, Malformed>>()?,
        finalizers: metadata.finalizers().map(|name| name.map(str::to_owned)).collect::<Result<_, Malformed>>()?,
    })
}

/// Read by prost. An empty time counts as absent.
fn expected(object: &[u8]) -> Result<Known, prost::DecodeError> {
    let Some(metadata) = PartialObjectMetadata::decode(object)?.metadata else { return Ok(Known::default()) };
    let mut deletion_seconds = None;
    for bytes in &metadata.deletion_timestamp {
        let time = Time::decode(&**bytes)?;
        if !bytes.is_empty() {
            deletion_seconds = Some(time.seconds.or(deletion_seconds).unwrap_or(0));
        }
    }
    let has = |wanted: &str| metadata.annotations.iter().any(|entry| entry.key == wanted.as_bytes());
    let (hold, ends) = (has(HOLD_ANNOTATION), has(INITIAL_EVENTS_END));
    Ok(Known {
        texts: [metadata.name, metadata.namespace, metadata.uid, metadata.resource_version],
        deletion_seconds,
        hold,
        ends,
        owners: metadata.owner_references,
        finalizers: metadata.finalizers,
    })
}

/// Checks that both read the same, or both refuse the bytes. Returns whether they accepted them.
fn agree(object: &[u8]) -> bool {
    match (scanned(object), expected(object)) {
        (Ok(scanned), Ok(expected)) => {
            assert_eq!(scanned, expected);
            true
        }
        (Err(_), Err(_)) => false,
        // Prost allows deeper nesting.
        (Err(Malformed::GroupsTooDeep), Ok(_)) => false,
        (scanned, expected) => panic!("{scanned:?} but {expected:?}"),
    }
}

/// The same for a whole frame.
fn agree_on_frame(frame: &[u8]) -> bool {
    let ours = event(Encoding::Protobuf, frame);
    let theirs = oracle::WatchEvent::decode(frame).ok().and_then(|event| {
        let raw = event.object.unwrap_or_default().raw;
        let unknown = oracle::Unknown::decode(raw.strip_prefix(b"k8s\0")?).ok()?;
        let names = unknown.type_meta.unwrap_or_default();
        let plain = unknown.content_encoding.is_empty() && matches!(&*unknown.content_type, "" | media::PROTOBUF);
        let wanted = names.kind == "PartialObjectMetadata" && names.api_version.starts_with("meta.k8s.io/");
        (plain && wanted).then_some((event.kind, unknown.raw?))
    });
    match ours {
        Ok(Event::Added(item) | Event::Modified(item) | Event::Deleted(item)) => {
            let (kind, raw) = theirs.expect("prost reads it too");
            assert!(matches!(&*kind, "ADDED" | "MODIFIED" | "DELETED"));
            let Item::Protobuf(metadata) = item else { panic!("it was protobuf") };
            assert_eq!(metadata.is_ok(), Metadata::scan(&raw).is_ok());
            agree(&raw)
        }
        Ok(Event::Bookmark { resource_version, ends_list }) => {
            let (kind, raw) = theirs.expect("prost reads it too");
            let metadata = PartialObjectMetadata::decode(&*raw).map(|object| object.metadata.unwrap_or_default());
            assert_eq!(kind, "BOOKMARK");
            // The owners of a bookmark are not read.
            if let Ok(metadata) = metadata {
                assert_eq!(ResourceVersion::parse(&metadata.resource_version), resource_version);
                assert_eq!(Metadata::scan(&raw).map(|metadata| metadata.ends_initial_events), Ok(ends_list));
            }
            true
        }
        Ok(Event::Error(_)) => true,
        Err(_) => {
            let read = theirs.filter(|(kind, _)| matches!(&**kind, "ADDED" | "MODIFIED" | "DELETED"));
            assert_eq!(read, None, "prost reads what the scan refuses");
            false
        }
    }
}

/// The same for a whole page.
fn agree_on_page(body: &[u8]) -> bool {
    let ours = page(Encoding::Protobuf, body);
    let theirs = body.strip_prefix(b"k8s\0").and_then(|body| {
        let unknown = oracle::Unknown::decode(body).ok()?;
        let names = unknown.type_meta.unwrap_or_default();
        let plain = unknown.content_encoding.is_empty() && matches!(&*unknown.content_type, "" | media::PROTOBUF);
        let wanted = names.kind == "PartialObjectMetadataList" && names.api_version.starts_with("meta.k8s.io/");
        let list = oracle::List::decode(&*unknown.raw?).ok()?;
        (plain && wanted).then_some((list.metadata?, list.items))
    });
    match (ours, theirs) {
        (Ok(page), Some((metadata, items))) => {
            assert_eq!(page.resource_version, metadata.resource_version);
            assert_eq!(page.continues.unwrap_or_default(), metadata.continues);
            let remaining = metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok());
            assert_eq!(page.remaining, remaining);
            assert_eq!(page.items.count(), items.len());
            for item in &items {
                agree(item);
            }
            true
        }
        (Err(_), None) => false,
        (ours, theirs) => panic!("{ours:?} but {theirs:?}"),
    }
}

type Check = fn(&[u8]) -> bool;

/// Changes a few bytes, or none.
fn mutate(draw: &mut Draw, bytes: &mut Vec<u8>) {
    for _ in 0..draw.below(5) {
        let at = draw.below(bytes.len().max(1));
        let byte = draw.number().to_le_bytes()[0];
        match draw.below(6) {
            0 if !bytes.is_empty() => bytes[at] = byte,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << (byte % 8),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            3 => bytes.insert(at, byte),
            4 => bytes.truncate(at),
            // Repeat a part.
            _ => {
                let end = (at + draw.below(40)).min(bytes.len());
                let part = bytes[at.min(end)..end].to_vec();
                bytes.splice(at.min(end)..at.min(end), part);
            }
        }
    }
}

fn checked(seed: u64, round: usize, bytes: &[u8], check: impl FnOnce() -> bool) -> bool {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    result.unwrap_or_else(|_| panic!("SEED={seed}, round {round}: {bytes:02x?}"))
}

#[test]
fn the_scan_reads_what_prost_reads_and_refuses_what_it_refuses() {
    let seed = seed();
    let mut draw = Draw::new(seed);
    let mut taken = [0; 4];
    for round in 0..rounds() {
        let json = odd(&mut draw);
        let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"][draw.below(4)];
        let line = serde_json::json!({ "type": kind, "object": json });
        let list = serde_json::json!({ "metadata": { "resourceVersion": "9", "continue": "t", "remainingItemCount": 7 }, "items": [json] });
        let forms: [(Vec<u8>, Check); 3] = [
            (oracle::object(&json), agree),
            (oracle::event(&line), agree_on_frame),
            (oracle::page(&list), agree_on_page),
        ];
        for (form, (mut bytes, check)) in forms.into_iter().enumerate() {
            mutate(&mut draw, &mut bytes);
            taken[form] += usize::from(checked(seed, round, &bytes, || check(&bytes)));
        }
        // Random bytes.
        let noise: Vec<u8> =
            (0..draw.below(60)).map(|_| draw.number().to_le_bytes()[0] & [0xff, 0x7f, 0x1f][draw.below(3)]).collect();
        taken[3] += usize::from(checked(seed, round, &noise, || {
            agree(&noise) | agree_on_frame(&noise) | agree_on_page(&noise)
        }));
    }
    assert!(taken.iter().all(|taken| *taken > 50), "SEED={seed}: much is refused, but not nearly all: {taken:?}");
}

#[test]
fn wherever_it_is_cut_off_nothing_wrong_is_read() {
    let mut draw = Draw::new(seed());
    for _ in 0..20 {
        let json = odd(&mut draw);
        let line = oracle::event(&serde_json::json!({ "type": "ADDED", "object": json }));
        let list = oracle::page(&serde_json::json!({ "metadata": { "resourceVersion": "9" }, "items": [json, json] }));
        for end in 0..line.len() {
            agree_on_frame(&line[..end]);
            event(Encoding::Protobuf, &line[..end]).unwrap_err();
        }
        for end in 0..list.len() {
            agree_on_page(&list[..end]);
            page(Encoding::Protobuf, &list[..end]).unwrap_err();
        }
        let object = oracle::object(&json);
        for end in 0..object.len() {
            agree(&object[..end]);
        }
    }
}

#[test]
fn both_encodings_give_the_same_objects_and_the_same_refusals() {
    let seed = seed();
    let mut draw = Draw::new(seed);
    let mut taken = 0;
    for namespaced in [Some(true), Some(false), None] {
        let (mut of_json, mut of_protobuf) = (Decoder::new(namespaced), Decoder::new(namespaced));
        for round in 0..2_000 {
            let json = odd(&mut draw);
            let text = json.to_string();
            let raw: &RawValue = serde_json::from_str(&text).unwrap();
            let (from_json, bytes) = (Item::Json(raw), oracle::object(&json));
            let from_protobuf = Item::Protobuf(Metadata::scan(&bytes));
            let object = of_json.object(&from_json);
            assert_eq!(object, of_protobuf.object(&from_protobuf), "SEED={seed}, round {round}: {json}");
            assert_eq!(from_json.resource_version(), from_protobuf.resource_version(), "{json}");
            taken += usize::from(object.is_ok());
        }
    }
    assert!(taken > 1_000, "SEED={seed}: {taken}");
}

#[test]
fn both_encodings_give_the_same_events_and_pages() {
    let mut draw = Draw::new(seed());
    for _ in 0..500 {
        let objects: Vec<Value> = (0..draw.below(4)).map(|_| odd(&mut draw)).collect();
        let mut list = serde_json::json!({ "kind": "PartialObjectMetadataList", "metadata": { "resourceVersion": "12" }, "items": objects });
        if draw.percent(50) {
            list["metadata"]["continue"] = "token".into();
            list["metadata"]["remainingItemCount"] = draw.below(100).into();
        }
        let (text, bytes) = (list.to_string(), oracle::page(&list));
        let (json, protobuf) =
            (page(Encoding::Json, text.as_bytes()).unwrap(), page(Encoding::Protobuf, &bytes).unwrap());
        assert_eq!(
            (&json.resource_version, &json.continues, json.remaining),
            (&protobuf.resource_version, &protobuf.continues, protobuf.remaining)
        );
        let mut decoder = Decoder::new(None);
        let json: Vec<_> = json.items.map(|item| decoder.object(&item)).collect();
        let protobuf: Vec<_> = protobuf.items.map(|item| decoder.object(&item)).collect();
        assert_eq!(json, protobuf);
        for object in objects {
            for kind in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "NEW", ""] {
                let line = serde_json::json!({ "type": kind, "object": object });
                let (text, frame) = (line.to_string(), oracle::event(&line));
                let (json, protobuf) = (event(Encoding::Json, text.as_bytes()), event(Encoding::Protobuf, &frame));
                let mut word = |event: Result<Event<'_>, String>| match event {
                    Ok(Event::Added(item)) => format!("added {:?}", decoder.object(&item)),
                    Ok(Event::Modified(item)) => format!("modified {:?}", decoder.object(&item)),
                    Ok(Event::Deleted(item)) => format!("deleted {:?}", decoder.object(&item)),
                    Ok(Event::Bookmark { resource_version, ends_list }) => format!("{resource_version} {ends_list}"),
                    Ok(Event::Error(status)) => format!("{status:?}"),
                    // In JSON, a bookmark without a version is refused for another reason.
                    Err(_) => "refused".to_owned(),
                };
                assert_eq!(word(json), word(protobuf), "{line}");
            }
        }
    }
}
