use super::{
    Clock, DURATION_MAX, KINDS_MAX, LeaseError, Malformed, NAME_MAX_BYTES, Received, is_dns_subdomain, kinds,
    received_from_executor, received_from_leader,
};
use crate::graph::v1beta1::{Edge, Node};
use crate::strategy;
use crate::work::v1beta1 as wire;
use crate::work::v1beta1::{stream_work_request as request, stream_work_response as response};
use engine::evidence::{Presence, Proof};
use engine::object::{Facts, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::time::Time;
use engine::view::{EdgeView, NodeView, OwnerStanding, Reason, ReasonCode, Status, Undecided};
use engine::work::{
    ActionKind, CHECKS_MAX, LeaseId, MESSAGE_MAX_BYTES, Outcome, ReturnCause, RevokeMode, ToExecutor, ToLeader,
    WorkLease, WorkReport,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use prost::Message;
use std::time::{Duration, SystemTime};

/// One byte added, removed or changed.
#[derive(Clone, Debug)]
enum Mutation {
    Insert(Index, u8),
    Remove(Index),
    Replace(Index, u8),
    Truncate(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        any::<(Index, u8)>().prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        any::<Index>().prop_map(Mutation::Remove),
        any::<(Index, u8)>().prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        any::<Index>().prop_map(Mutation::Truncate),
    ]
}

fn mutate(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        match mutation {
            Mutation::Insert(at, byte) => bytes.insert(at.index(bytes.len() + 1), *byte),
            _ if bytes.is_empty() => {}
            Mutation::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
            Mutation::Replace(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Mutation::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

/// Reads `bytes` as both sides do. An accepted message survives another round trip unchanged.
fn read(bytes: &[u8]) {
    if let Ok(Ok(Some(message))) = wire::StreamWorkRequest::decode(bytes).map(received_from_executor) {
        assert_eq!(received_from_executor(message.clone().into()), Ok(Some(message)));
    }
    if let Ok(Ok(Some(received))) = wire::StreamWorkResponse::decode(bytes).map(received_from_leader) {
        let again = received_from_leader(received.message.clone().into());
        assert_eq!(again, Ok(Some(Received { message: received.message, unknown_actions: Vec::new() })));
    }
}

proptest! {
    #[test]
    fn what_executors_say_arrives(sent in strategy::to_leader()) {
        let bytes = wire::StreamWorkRequest::from(sent.clone()).encode_to_vec();
        let request = wire::StreamWorkRequest::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(received_from_executor(request), Ok(Some(sent)));
    }

    #[test]
    fn what_leaders_say_arrives(sent in strategy::to_executor()) {
        let bytes = wire::StreamWorkResponse::from(sent.clone()).encode_to_vec();
        let response = wire::StreamWorkResponse::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(
            received_from_leader(response),
            Ok(Some(Received { message: sent, unknown_actions: Vec::new() }))
        );
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn damaged_messages_are_read_without_panic(
        request in strategy::to_leader(),
        response in strategy::to_executor(),
        mutations in proptest::collection::vec(mutation(), 1..5),
    ) {
        read(&mutate(wire::StreamWorkRequest::from(request).encode_to_vec(), &mutations));
        read(&mutate(wire::StreamWorkResponse::from(response).encode_to_vec(), &mutations));
    }

    #[test]
    fn any_number_is_a_value_of_every_enum(number in any::<i32>()) {
        kinds(&[number]);
        let mut report = sample_report();
        report.outcome = number;
        prop_assert!(WorkReport::try_from(report).is_ok());
    }
}

fn sample<S: Strategy>(strategy: S) -> S::Value {
    strategy.new_tree(&mut TestRunner::deterministic()).unwrap().current()
}

/// The first encoded message of an executor that `pick` accepts.
fn sample_request<T>(pick: impl Fn(request::Message) -> Option<T>) -> T {
    let mut runner = TestRunner::deterministic();
    let mut requests = std::iter::repeat_with(|| {
        wire::StreamWorkRequest::from(strategy::to_leader().new_tree(&mut runner).unwrap().current())
    });
    requests.by_ref().take(1000).find_map(|request| pick(request.message?)).expect("one of a thousand is")
}

fn sample_report() -> wire::WorkReport {
    sample_request(|message| {
        if let request::Message::Reports(reports) = message { reports.reports.into_iter().next() } else { None }
    })
}

fn sample_hello() -> request::Hello {
    sample_request(|message| if let request::Message::Hello(hello) = message { Some(hello) } else { None })
}

fn sample_lease() -> wire::WorkLease {
    let mut lease = wire::WorkLease::from(sample(strategy::lease()));
    lease.lease_id = "3-14".into();
    let item = lease.item.as_mut().unwrap();
    item.preconditions = Some(wire::Preconditions {
        resource_version: "77".into(),
        facts_digest: vec![0, 0, 0, 0, 0, 0, 1, 2],
        must_be_terminating: false,
    });
    lease
}

#[test]
fn a_traceparent_that_is_none_costs_no_lease() {
    let mut lease = sample_lease();
    lease.traceparent = Some("0".repeat(4096));
    assert_eq!(WorkLease::try_from(lease).unwrap().traceparent, None);
}

fn with_action(action: Option<wire::work_item::Action>) -> wire::WorkLease {
    let mut lease = sample_lease();
    lease.item.as_mut().unwrap().action = action;
    lease
}

fn hello_error(change: impl FnOnce(&mut request::Hello)) -> Malformed {
    let mut hello = sample_hello();
    change(&mut hello);
    let request = wire::StreamWorkRequest { message: Some(request::Message::Hello(hello)) };
    received_from_executor(request).unwrap_err()
}

fn lease_error(change: impl FnOnce(&mut wire::WorkLease)) -> String {
    let mut lease = sample_lease();
    change(&mut lease);
    let grant = response::Message::Grant(response::Grant { leases: vec![sample_lease(), lease] });
    received_from_leader(wire::StreamWorkResponse { message: Some(grant) }).unwrap_err().to_string()
}

#[test]
fn a_fault_names_its_field() {
    let cases = [
        hello_error(|hello| hello.identity = None).to_string(),
        hello_error(|hello| hello.identity.as_mut().unwrap().executor.clear()).to_string(),
        hello_error(|hello| hello.cluster_uid = "u".repeat(NAME_MAX_BYTES + 1)).to_string(),
        hello_error(|hello| hello.kinds = vec![1; KINDS_MAX + 1]).to_string(),
        hello_error(|hello| hello.window = None).to_string(),
        hello_error(|hello| hello.held = vec![wire::HeldLease::default()]).to_string(),
        hello_error(|hello| hello.first_session = Some(wire::FirstSession::default())).to_string(),
        lease_error(|lease| lease.lease_id = "3".into()),
        lease_error(|lease| lease.term = None),
        lease_error(|lease| lease.term.as_mut().unwrap().election_uid.clear()),
        lease_error(|lease| lease.execution_limit = Some(prost_types::Duration::default())),
        lease_error(|lease| lease.execution_limit.as_mut().unwrap().seconds = -1),
        lease_error(|lease| lease.execution_limit.as_mut().unwrap().seconds = i64::MAX),
        lease_error(|lease| lease.execution_limit.as_mut().unwrap().nanos = 1_000_000_000),
        lease_error(|lease| lease.item = None),
        lease_error(|lease| lease.item.as_mut().unwrap().item_id = "-1".into()),
        lease_error(|lease| lease.item.as_mut().unwrap().target.as_mut().unwrap().uid.clear()),
        lease_error(|lease| {
            lease.item.as_mut().unwrap().preconditions.as_mut().unwrap().facts_digest = vec![1];
        }),
        lease_error(|lease| {
            lease.item.as_mut().unwrap().preconditions.as_mut().unwrap().resource_version.clear();
        }),
    ];
    let expected = [
        "field hello.identity is missing",
        "field hello.identity.executor is empty",
        "field hello.cluster_uid has 254 bytes, more than 253",
        "field hello.kinds has 101 entries, more than 100",
        "field hello.window is missing",
        "field hello.held[0].lease_id is not a lease id",
        "field hello.first_session.term is missing",
        "field grant.leases[1].lease_id is not a lease id",
        "field grant.leases[1].term is missing",
        "field grant.leases[1].term.election_uid is empty",
        "field grant.leases[1].execution_limit is zero",
        "field grant.leases[1].execution_limit is negative or not a duration",
        "field grant.leases[1].execution_limit is longer than 86400 s",
        "field grant.leases[1].execution_limit is negative or not a duration",
        "field grant.leases[1].item is missing",
        "field grant.leases[1].item.item_id is not a decimal number of 64 bits",
        "field grant.leases[1].item.target.uid is empty",
        "field grant.leases[1].item.preconditions.facts_digest is not 8 bytes long",
        "field grant.leases[1].item.preconditions.resource_version is empty",
    ];
    assert_eq!(cases.as_slice(), expected);
}

#[test]
fn a_write_without_preconditions_is_refused() {
    let finalizer = wire::RemoveFinalizer { finalizer: "orphan".into() };
    let mut lease = with_action(Some(wire::work_item::Action::RemoveFinalizer(finalizer)));
    lease.item.as_mut().unwrap().preconditions = None;
    let error = WorkLease::try_from(lease).unwrap_err().to_string();
    assert_eq!(error, "field item.preconditions is missing");
}

/// In an earlier release, field 8 of an item was an existence check.
#[test]
fn an_action_of_an_earlier_release_is_handed_back_and_named() {
    let mut bytes = with_action(None).encode_to_vec();
    bytes.extend([0x1a, 0x02, 0x42, 0x00]);
    let lease = wire::WorkLease::decode(&bytes[..]).unwrap();
    let id = LeaseId { term: 3, number: 14 };
    assert_eq!(WorkLease::try_from(lease), Err(LeaseError::UnknownAction { lease: id }));
}

#[test]
fn unknown_actions_are_named_and_the_rest_is_taken() {
    let delete = |propagation_policy, owner_checks| {
        with_action(Some(wire::work_item::Action::Delete(wire::DeleteObject { propagation_policy, owner_checks })))
    };
    let owner = sample_lease().item.unwrap().target;
    let unknown = [
        with_action(None),
        delete(0, Vec::new()),
        delete(99, Vec::new()),
        delete(1, vec![wire::OwnerCheck { r#ref: owner.clone(), want: 1 }]),
    ];
    let id = LeaseId { term: 3, number: 14 };
    for lease in &unknown {
        assert_eq!(WorkLease::try_from(lease.clone()), Err(LeaseError::UnknownAction { lease: id }));
    }

    let known = delete(1, vec![wire::OwnerCheck { r#ref: owner, want: 2 }]);
    let leases = unknown.into_iter().chain([known.clone()]).collect();
    let grant = response::Message::Grant(response::Grant { leases });
    let received = received_from_leader(wire::StreamWorkResponse { message: Some(grant) }).unwrap().unwrap();
    assert_eq!(received.message, ToExecutor::Grant { leases: vec![known.try_into().unwrap()] });
    assert_eq!(received.unknown_actions, [id; 4]);
}

#[test]
fn a_report_that_cannot_be_read_costs_its_own_lease_and_no_stream() {
    let mut crowded = sample_report();
    let check = wire::ExistenceCheck { r#ref: sample_lease().item.unwrap().target };
    let finding = wire::Finding { check: Some(check), ..wire::Finding::default() };
    crowded.findings = vec![finding; CHECKS_MAX + 1];
    let broken = wire::WorkReport { observed: Some(wire::Observed::default()), ..sample_report() };
    let whole = sample_report();
    let reports = vec![crowded, broken, whole.clone()];
    let message = request::Message::Reports(request::Reports { reports, returns: Vec::new() });
    let read = received_from_executor(wire::StreamWorkRequest { message: Some(message) });
    let Ok(Some(ToLeader::Reports { reports, .. })) = read else { panic!("{read:?}") };
    assert_eq!(reports[0].findings.len(), CHECKS_MAX);
    assert_eq!((reports[1].outcome, reports[1].lease), (Outcome::Ambiguous, reports[2].lease));
    assert!(reports[1].message.contains("observed"), "{}", reports[1].message);
    assert_eq!(Ok(reports[2].clone()), WorkReport::try_from(whole));
}

#[test]
fn unknown_values_of_a_newer_peer_have_a_meaning() {
    let mut report = sample_report();
    report.outcome = 99;
    assert_eq!(WorkReport::try_from(report).unwrap().outcome, Outcome::Transient);

    let returned = wire::WorkReturn { lease_id: "1-2".into(), cause: 3 };
    assert_eq!(engine::work::WorkReturn::try_from(returned).unwrap().cause, ReturnCause::NotStarted);

    let revoke = response::Revoke { lease_ids: vec!["1-2".into()], mode: 99, reason: String::new() };
    let revoke = wire::StreamWorkResponse { message: Some(response::Message::Revoke(revoke)) };
    let ToExecutor::Revoke { mode, .. } = received_from_leader(revoke).unwrap().unwrap().message else {
        panic!("no revoke");
    };
    assert_eq!(mode, RevokeMode::Stop);

    let results = vec![wire::ReportResult { lease_id: "1-2".into(), result: 5 }];
    let ack = wire::StreamWorkResponse { message: Some(response::Message::ReportAck(response::ReportAck { results })) };
    let ack = received_from_leader(ack).unwrap().unwrap().message;
    assert_eq!(ack, ToExecutor::ReportAck { results: Vec::new() });

    assert_eq!(kinds(&[0, 1, 4, 5, 99, -1]), [ActionKind::Delete, ActionKind::RemoveFinalizer]);
}

#[test]
fn unknown_messages_are_nothing() {
    // Field 15: a message of two bytes that no version knows.
    let bytes = [0x7a, 0x02, 0x08, 0x01];
    assert_eq!(received_from_executor(wire::StreamWorkRequest::decode(&bytes[..]).unwrap()), Ok(None));
    assert_eq!(received_from_leader(wire::StreamWorkResponse::decode(&bytes[..]).unwrap()), Ok(None));
}

#[test]
fn long_texts_are_cut_on_a_character() {
    let mut report = sample_report();
    report.message = "é".repeat(MESSAGE_MAX_BYTES);
    report.webhook = Some("x".repeat(10_000));
    let report = WorkReport::try_from(report).unwrap();
    assert_eq!(report.message, "é".repeat(MESSAGE_MAX_BYTES / 2));
    assert_eq!(report.webhook.unwrap().len(), NAME_MAX_BYTES);
}

#[test]
fn long_durations_are_shortened_when_sent() {
    let drain = ToLeader::Drain { reason: String::new(), deadline: Duration::MAX };
    let read = received_from_executor(drain.into()).unwrap();
    assert_eq!(read, Some(ToLeader::Drain { reason: String::new(), deadline: DURATION_MAX }));
}

#[test]
fn the_digest_is_big_endian() {
    let preconditions = engine::work::Preconditions {
        resource_version: ResourceVersion::parse("5"),
        facts_digest: 0x0102_0304_0506_0708,
        must_be_terminating: true,
    };
    assert_eq!(wire::Preconditions::from(preconditions).facts_digest, [1, 2, 3, 4, 5, 6, 7, 8]);
}

fn node(presence: Presence, terminating: bool) -> Node {
    let empty = || "".into();
    let object = ObjectRef {
        group: empty(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespace: "default".into(),
        name: "settings".into(),
        uid: Uid::parse("u1").unwrap(),
    };
    let facts = Facts { finalizers: ["foregroundDeletion".into()].into(), terminating, ..Facts::default() };
    NodeView {
        object,
        presence,
        facts,
        owners: 0,
        finalizers: 0,
        dependents: 3,
        blocking_dependents: usize::MAX,
        undecided: None,
        collecting: None,
    }
    .into()
}

#[test]
fn nodes_show_their_state() {
    use crate::graph::v1beta1::NodeState;
    let observed = Presence::Observed { resource_version: ResourceVersion::parse("5") };
    assert_eq!(node(observed.clone(), false).state(), NodeState::Live);
    assert_eq!(node(Presence::Virtual { unreadable: true }, false).state(), NodeState::Virtual);
    assert_eq!(node(Presence::Absent(Proof::ReadTwice), true).state(), NodeState::Gone);
    let terminating = node(observed, true);
    assert_eq!(terminating.state(), NodeState::Terminating);
    assert!(terminating.deleting_dependents && !terminating.orphaning_dependents);
    assert_eq!((terminating.dependent_count, terminating.blocking_dependent_count), (3, u32::MAX));
}

#[test]
fn status_tells_ages_and_causes() {
    let second = Duration::from_secs(1);
    let now = Time::ZERO + 10 * second;
    let view = Status {
        oldest_pending: Some(Time::ZERO + 4 * second),
        oldest_held: Some(Time::ZERO + 3 * second),
        undecided: vec![(Undecided::OwnerUnverified, 2)],
        stopped: Some("the store was restored".into()),
        observes: true,
        ..Status::default()
    };
    let meta = crate::r#type::v1beta1::ResponseMeta { cluster_uid: "c".into(), ..Default::default() };
    let clock = Clock { now, calendar: SystemTime::UNIX_EPOCH + 100 * second };
    let status = super::status(view, Vec::new(), clock, "", meta);
    assert_eq!(status.oldest_queued_age.unwrap().seconds, 7);
    assert_eq!(status.oldest_held_age.unwrap().seconds, 7);
    assert_eq!(status.undecided_counts.into_iter().collect::<Vec<_>>(), [("owner_unverified".into(), 2)]);
    assert_eq!(status.cluster_uid, "c");
    assert_eq!((status.grants_stopped.as_str(), status.observes), ("the store was restored", true));
    assert_eq!(clock.timestamp(Time::ZERO + 3 * second).seconds, 93);
}

#[test]
fn what_relays_texts_of_others_keeps_them_on_one_line() {
    let mut report = sample_report();
    let evil = "denied\r\n2026-01-01 ERROR \u{1b}[2J\u{202e}\u{e0041}".to_owned();
    report.message = evil.clone();
    report.status_reason = evil.clone();
    report.webhook = Some(evil.repeat(1000));
    let report = WorkReport::try_from(report).unwrap();
    let shown = r"denied\r\n2026-01-01 ERROR \u{1b}[2J\u{202e}\u{e0041}";
    assert_eq!((report.message.as_str(), report.status_reason.as_str()), (shown, shown));
    let webhook = report.webhook.unwrap();
    assert!(webhook.len() <= NAME_MAX_BYTES && !webhook.contains(char::is_control), "{webhook}");
}

#[test]
fn odd_times_and_counts_of_a_report_end_nothing() {
    let odd = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let read = |retry_after, execution_time, http_status| {
        let report = sample_report();
        WorkReport::try_from(wire::WorkReport { retry_after, execution_time, http_status, ..report }).unwrap()
    };
    let report = read(odd(1_000_000, 0), None, 429);
    assert_eq!((report.retry_after, report.execution_time), (Some(DURATION_MAX), Duration::ZERO));
    let report = read(odd(-1, 0), odd(-1, 0), 70_000);
    assert_eq!((report.retry_after, report.execution_time, report.http_status), (None, DURATION_MAX, u16::MAX));
    for longest in [odd(1, -1), odd(200_000, 0), odd(i64::MAX, 999_999_999)] {
        let report = read(None, longest, 0);
        assert_eq!(report.execution_time, DURATION_MAX);
        let again = WorkReport::try_from(wire::WorkReport::from(report.clone()));
        assert_eq!(again.unwrap(), report, "the executor sends the report again after a reconnect");
    }
}

#[test]
fn executors_have_names_as_pods_have() {
    for name in ["a", "executor-7", "a.b.c", "0"] {
        assert!(is_dns_subdomain(name), "{name}");
    }
    for name in ["", ".", "a.", ".a", "a..b", "-a", "a-", "A", "a_b", "a b", "a\n", "ö", "a.-b"] {
        assert!(!is_dns_subdomain(name), "{name:?}");
    }
}

#[test]
fn long_texts_are_cut_wherever_they_are_told() {
    let long: engine::object::Name = "x".repeat(100_000).as_str().into();
    let uid = Uid::parse(&long).unwrap();
    let [group, version, resource, kind, namespace, name] = [(); 6].map(|()| long.clone());
    let object = ObjectRef { group, version, resource, kind, namespace, name, uid: uid.clone() };
    let [api_version, kind, name] = [(); 3].map(|()| long.clone());
    let reference = OwnerReference { api_version, kind, name, uid, controller: None, block_owner_deletion: Some(true) };
    let edge = EdgeView {
        owner: object.clone(),
        dependent: object.uid.clone(),
        reference: reference.clone(),
        standing: OwnerStanding::Solid,
        presence: Presence::Virtual { unreadable: false },
    };
    assert!(Edge::from(edge).encoded_len() < 16 * 324 + 100);
    let reason = Reason {
        code: ReasonCode::FinalizerPresent,
        detail: long.to_string(),
        related: vec![object.clone()],
        count: 1,
        since: None,
        until: None,
    };
    let clock = Clock { now: Time::ZERO, calendar: SystemTime::UNIX_EPOCH };
    assert!(super::reason(reason, clock).encoded_len() < 1024 + 7 * 324 + 100);
}
