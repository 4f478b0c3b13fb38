use super::*;
use proto::graph::v1beta1::Edge;
use proto::r#type::v1beta1::ObjectRef;

fn snapshot() -> Snapshot {
    let object = |name: &str| ObjectRef {
        group: "apps".into(),
        resource: "deployments".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        ..Default::default()
    };
    let live = Node {
        r#ref: Some(object("web")),
        state: NodeState::Live.into(),
        resource_version: "17".into(),
        finalizers: vec!["example.com/held".into()],
        owner_references: vec![OwnerReference { uid: "o".into(), controller: Some(false), ..Default::default() }],
        ..Default::default()
    };
    let going = Node {
        r#ref: Some(object("old")),
        state: NodeState::Terminating.into(),
        delete_time: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
        ..Default::default()
    };
    let gone = Node { r#ref: Some(object("gone")), state: NodeState::Gone.into(), ..Default::default() };
    let virtual_one = Node { r#ref: Some(object("claimed")), state: NodeState::Virtual.into(), ..Default::default() };
    let exported = Exported { nodes: vec![live, going, gone, virtual_one], ..Exported::default() };
    let mut header = Header::new("2026-01-02T03:04:05Z".into(), Default::default(), Default::default());
    header.server = "https://k8s".into();
    header.collections.insert(("apps".into(), "deployments".into()));
    Snapshot::of(header, &exported)
}

fn lines(snapshot: &Snapshot) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.zst");
    snapshot.write(&path).unwrap();
    assert_eq!(Snapshot::read(&path).unwrap(), *snapshot);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    fs::read(&path).unwrap()
}

fn refused(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.zst");
    fs::write(&path, bytes).unwrap();
    match Snapshot::read(&path).unwrap_err() {
        Problem::Other(error) => format!("{error:#}"),
        other @ (Problem::Refused(_) | Problem::TimedOut(_)) => panic!("{other:?}"),
    }
}

#[test]
fn what_is_there_comes_back_as_the_graph_had_it() {
    let snapshot = snapshot();
    lines(&snapshot);
    assert_eq!(
        snapshot.header.told(1_767_323_045 + 7_200),
        "snapshot of https://k8s, taken at 2026-01-02T03:04:05Z (120m ago): 2 objects of 1 collections"
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&snapshot.objects.values().collect::<Vec<_>>()).unwrap());
}

#[test]
fn damaged_cut_off_foreign_and_swollen_files_are_named() {
    let good = lines(&snapshot());
    let plain = zstd::decode_all(&good[..]).unwrap();
    let packed = |text: &[u8]| zstd::encode_all(text, 1).unwrap();
    let text = String::from_utf8(plain.clone()).unwrap();
    let cut = plain[..plain.len() - 20].to_vec();
    let fewer = text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    let swollen = [b"{\"a\":\"".to_vec(), vec![b'x'; 65 << 20]].concat();
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    let cases = [
        (b"{}".to_vec(), "the file is damaged, or is not a snapshot"),
        (packed(b""), "the file is empty"),
        (packed(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}\n"), "the file is a \"Pod\" of \"v1\", not a Snapshot"),
        (packed(b"hello\n"), "the file is not a snapshot"),
        (packed(text.replace("\"objects\":2", "\"objects\":9000000").as_bytes()), "the file has 9000000 objects"),
        (packed(&cut), "the file is damaged after 1 of 2 objects"),
        (packed(fewer.as_bytes()), "the file ends after 1 of 2 objects"),
        (packed(format!("{text}{{}}\n").as_bytes()), "the file continues after its 2 objects"),
        (packed(&swollen), "longer than 67108864 bytes"),
        (good[..good.len() - 3].to_vec(), "damaged"),
        (flipped, "damaged"),
    ];
    for (bytes, part) in cases {
        let said = refused(&bytes);
        assert!(said.contains("is not a usable snapshot") && said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_object_with_very_many_owners_keeps_all_of_them() {
    let reference = |number: usize| OwnerReference { uid: format!("o{number}"), ..Default::default() };
    let object = ObjectRef { uid: "fanin".into(), ..Default::default() };
    let node = Node {
        r#ref: Some(object),
        state: NodeState::Live.into(),
        owner_references: (0..100).map(reference).collect(),
        owner_count: 150,
        ..Default::default()
    };
    let edge =
        |number| Edge { dependent_uid: "fanin".into(), reference: Some(reference(number)), ..Default::default() };
    let exported = Exported { nodes: vec![node], edges: (0..150).map(edge).collect(), ..Exported::default() };
    let header = Header::new("2026-01-02T03:04:05Z".into(), Default::default(), Default::default());
    let snapshot = Snapshot::of(header, &exported);
    let metadata = &snapshot.objects.values().next().unwrap()[0];
    assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 150);
    assert_eq!(metadata["ownerReferences"][149]["uid"], "o149");
}
