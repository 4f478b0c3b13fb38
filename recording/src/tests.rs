use super::*;
use engine::leader::StreamId;
use engine::leader::{Event, Mode, Policy};
use engine::marks::Marks;
use engine::object::{
    Access, Backend, Facts, GroupResource, Name, Object, OwnerReference, ResourceVersion, ServedKind, Uid,
};
use engine::parity::{Audited, AuditedVerb};
use engine::work::{Hello, Origin, Protocols, Term, ToLeader};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

mod damage;

const LIMITS: Limits = Limits { directory: 1 << 30, segment: 1 << 30 };

fn header() -> Header {
    Header {
        version: "0.1.0".to_owned(),
        recording: "20261126T080000Z".to_owned(),
        segment: 0,
        before: 0,
        origin: 1_795_000_000_000_000_000,
        seed: 7,
        config: Config {
            mode: Mode::Observe,
            cluster_uid: "cluster".into(),
            endpoint: "https://host.example:7450".to_owned(),
            session_ttl: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(5),
            execution_limit: Duration::from_secs(60),
            stale_after: Duration::from_secs(60),
            policy: Policy::default(),
            protocols: Protocols { oldest: 1, newest: 2 },
        },
        names: Names::Plain,
    }
}

fn collection(resource: &str) -> GroupResource {
    GroupResource { group: "".into(), resource: resource.into() }
}

fn object(name: &str, number: u128, owner: Option<&str>) -> Object {
    let uid = |name: &str| Uid::parse(&format!("{:032x}-uid", crc32fast::hash(name.as_bytes()))).unwrap();
    let owners = owner.map(|owner| OwnerReference {
        api_version: "v1".into(),
        kind: "Thing".into(),
        name: owner.into(),
        uid: uid(owner),
        controller: None,
        block_owner_deletion: None,
    });
    Object {
        uid: uid(name),
        namespace: "secretplace".into(),
        name: name.into(),
        resource_version: ResourceVersion::parse(&number.to_string()),
        facts: Facts { owners: owners.into_iter().collect(), ..Facts::default() },
        marks: Marks::default(),
    }
}

/// Rounds in which this many dependents of `secretowner` lose it.
fn story(dependents: usize) -> Vec<Round> {
    let mut at = Time::ZERO;
    let mut rounds = Vec::new();
    let mut round = |inputs: Vec<Input>| {
        at = at + Duration::from_millis(10);
        let calls = inputs.into_iter().map(Call::Input).chain([Call::Tick]).collect();
        rounds.push(Round { at, calls, unfinished: None });
    };
    let kinds = [("things", "Thing"), ("configmaps", "ConfigMap")];
    round(vec![Input::TermGained(Term { election: "e".into(), number: 1 })]);
    for (resource, kind) in kinds {
        let served = ServedKind {
            group_resource: collection(resource),
            kind: kind.into(),
            version: "v1".into(),
            other_versions: Vec::new(),
            split: false,
            namespaced: true,
            access: Access::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Vec::new(),
        };
        round(vec![
            Input::KindServed(served),
            Input::ListBegun { collection: collection(resource), selectors: 0 },
            Input::ListEnded { collection: collection(resource), resource_version: ResourceVersion::parse("100") },
        ]);
    }
    let owner = object("secretowner", 101, None);
    round(vec![Input::Seen { collection: collection("things"), object: owner.clone() }]);
    for number in 0..dependents {
        let object = object(&format!("secretname-{number}"), 102 + number as u128, Some("secretowner"));
        round(vec![Input::Seen { collection: collection("configmaps"), object }]);
    }
    let gone = Object { resource_version: ResourceVersion::parse("100000"), ..owner };
    round(vec![Input::Deleted { collection: collection("things"), object: gone }]);
    rounds
}

fn write(rounds: &[Round], limits: Limits) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(directory.path(), header(), limits).unwrap();
    for (number, round) in rounds.iter().enumerate() {
        assert!(!writer.round(round).unwrap(), "full");
        if number % 500 == 0 && limits.segment < LIMITS.segment {
            writer.flush().unwrap();
        }
    }
    writer.end(&Ended::Stopped).unwrap();
    directory
}

fn read(path: &Path) -> (Vec<Round>, End) {
    let mut reader = Reader::open(path).unwrap();
    let rounds = std::iter::from_fn(|| reader.round()).collect();
    (rounds, reader.end().cloned().unwrap())
}

fn decided(path: &Path) -> Vec<Name> {
    let mut replay = Replay::new(Reader::open(path).unwrap());
    let mut decided = Vec::new();
    while let Some(Step { events, .. }) = replay.step() {
        for event in events {
            if let Event::Decided { target, .. } = event {
                decided.push(target.name);
            }
        }
    }
    decided
}

#[test]
fn what_is_written_is_read_in_order_from_one_file_or_several() {
    let rounds = story(2_000);
    for segment in [1 << 30, 10_000] {
        let directory = write(&rounds, Limits { segment, ..LIMITS });
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files > 1, segment < 1 << 30, "{files} files");
        assert_eq!(read(directory.path()), (rounds.clone(), End::Ended(Ended::Stopped)));
        assert_eq!(decided(directory.path()).len(), 2_000);
    }
}

#[test]
fn an_event_takes_less_than_a_hundred_bytes() {
    let directory = write(&story(10_000), LIMITS);
    let bytes = fs::metadata(segment(directory.path(), &header().recording, 0)).unwrap().len();
    assert!(bytes < 10_000 * 100, "{bytes}");
}

#[test]
fn pseudonyms_leave_no_name_and_change_no_decision() {
    let mut rounds = story(50);
    let mut pseudonyms = Pseudonyms::new(&[7; 32]);
    rounds.iter_mut().for_each(|round| pseudonyms.round(round));
    let mut header = header();
    pseudonyms.header(&mut header);
    let text = format!("{rounds:?}{header:?}");
    for name in ["secretname", "secretowner", "secretplace", "host.example"] {
        assert!(!text.contains(name), "{name}");
    }
    let hidden = decided(write(&rounds, LIMITS).path());
    assert_eq!((hidden.len(), decided(write(&story(50), LIMITS).path()).len()), (50, 50));
    assert!(hidden.iter().all(|name| name.len() == 17 && name.starts_with('n')), "{hidden:?}");
}

#[test]
fn a_caller_has_a_pseudonym() {
    let hello = Hello {
        executor: "secretexecutor".into(),
        incarnation: "i".into(),
        min_protocol: 1,
        max_protocol: 2,
        kinds: Vec::new(),
        window: 1,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: "0.1.0".to_owned(),
        cluster_uid: "cluster".into(),
        origin: Origin::Caller("system:serviceaccount:secretplace:secretaccount".into()),
    };
    let input = Input::Message { stream: StreamId(1), message: ToLeader::Hello(hello) };
    let mut round = Round { at: Time::ZERO, calls: vec![Call::Input(input)], unfinished: Some(3) };
    Pseudonyms::new(&[1; 32]).round(&mut round);
    assert!(!format!("{round:?}").contains("secret"), "{round:?}");
    let (rounds, _) = read(write(std::slice::from_ref(&round), LIMITS).path());
    assert_eq!(rounds, [round]);
}

#[test]
fn a_request_of_the_audit_log_has_pseudonyms() {
    let input = Input::Audited(Box::new(Audited {
        verb: AuditedVerb::Delete,
        collection: GroupResource { group: "".into(), resource: "pods".into() },
        namespace: "secretplace".into(),
        name: "secretname".into(),
        uid: None,
        resource_version: None,
        at: Time::ZERO,
        user: "secretuser".into(),
        by_collector: true,
        status: 200,
        id: "secretid".into(),
    }));
    let mut round = Round { at: Time::ZERO, calls: vec![Call::Input(input)], unfinished: None };
    Pseudonyms::new(&[1; 32]).round(&mut round);
    assert!(!format!("{round:?}").contains("secret"), "{round:?}");
}

#[test]
fn a_directory_keeps_its_size_and_the_newest_recordings() {
    let directory = tempfile::tempdir().unwrap();
    // Whether the recording is full, and which ones were deleted for it.
    let record = |recording: &str, max: u64| {
        let header = Header { recording: recording.to_owned(), ..header() };
        let limits = Limits { directory: max, segment: 2_000 };
        let mut writer = Writer::create(directory.path(), header, limits).unwrap();
        let deleted: Vec<String> = writer.deleted().iter().map(|(recording, _)| recording.clone()).collect();
        let mut is_full = false;
        for round in story(3_000) {
            is_full = writer.round(&round).unwrap();
            writer.flush().unwrap();
            if is_full {
                break;
            }
        }
        writer.end(&if is_full { Ended::Full } else { Ended::Stopped }).unwrap();
        (is_full, deleted.join(" "))
    };
    let size =
        || -> u64 { fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum() };
    assert_eq!(record("1", 20_000), (true, String::new()));
    assert!(size() < 12_500, "it ends at half of the directory: {}", size());
    assert_eq!(record("2", 20_000), (true, String::new()), "the one before it stays");
    assert!(size() < 25_000, "{}", size());
    assert_eq!(record("3", 20_000), (true, "1".to_owned()));
    assert!(size() < 25_000, "{}", size());
    assert_eq!(record("4", 100_000_000), (false, String::new()));
    let error = Reader::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("has the recordings 2, 3, 4"), "{error}");
    assert_eq!(record("5", 20_000), (true, "2 3 4".to_owned()), "the last one is larger than the directory may be");
    assert_eq!(read(directory.path()).1, End::Ended(Ended::Full));
}
