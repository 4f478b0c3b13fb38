use super::*;
use crate::grpc::rights::Right;
use engine::work::Term;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use std::collections::BTreeMap;

fn leadership(holder: Option<&str>, endpoint: &str) -> Leadership {
    Leadership { holder: holder.map(str::to_owned), endpoint: endpoint.to_owned(), ..Leadership::default() }
}

#[test]
fn each_ending_has_its_code_and_reason() {
    let refused = Ending::Refused;
    let known = Term { election: "lease-uid".into(), number: 7 };
    type Case = (Ending, Code, &'static str, &'static [(&'static str, &'static str)], bool);
    let cases: [Case; 10] = [
        (
            refused(Refusal::NotLeader),
            Code::Unavailable,
            "NOT_LEADER",
            &[("leader", "replica-b"), ("leaderEndpoint", "10.0.0.1:7450")],
            true,
        ),
        (
            refused(Refusal::TermStale { known }),
            Code::Aborted,
            "TERM_STALE",
            &[("electionUid", "lease-uid"), ("termNumber", "7")],
            false,
        ),
        (
            refused(Refusal::OtherCluster { ours: "a".into(), theirs: "b".into() }),
            Code::FailedPrecondition,
            "CLUSTER_MISMATCH",
            &[("ours", "a"), ("theirs", "b")],
            false,
        ),
        (
            refused(Refusal::ProtocolUnsupported { min: 1, max: 2 }),
            Code::FailedPrecondition,
            "PROTOCOL_UNSUPPORTED",
            &[("minVersion", "1"), ("maxVersion", "2")],
            false,
        ),
        (refused(Refusal::Superseded), Code::Aborted, "SESSION_SUPERSEDED", &[], false),
        (refused(Refusal::Drained), Code::FailedPrecondition, "SESSION_DRAINED", &[], false),
        (refused(Refusal::OutOfTurn), Code::InvalidArgument, "STREAM_PROTOCOL_VIOLATION", &[], false),
        (
            refused(Refusal::TooManySessions { max: 9 }),
            Code::ResourceExhausted,
            "LIMIT_EXCEEDED",
            &[("limit", "9")],
            true,
        ),
        (
            Ending::LimitExceeded { what: "messages", max: 3 },
            Code::ResourceExhausted,
            "LIMIT_EXCEEDED",
            &[("limit", "3")],
            true,
        ),
        (
            Ending::Violation("field hello.window is missing".to_owned()),
            Code::InvalidArgument,
            "STREAM_PROTOCOL_VIOLATION",
            &[],
            false,
        ),
    ];
    for (ending, code, reason, metadata, retried) in cases {
        let status = ended(&ending, &leadership(Some("replica-b"), "10.0.0.1:7450"));
        assert_eq!(status.code(), code, "{ending:?}");
        let details = status.get_error_details();
        let info = details.error_info().expect("every error says why");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "ownergraph.dev"));
        for (key, value) in metadata {
            assert_eq!(info.metadata.get(*key).map(String::as_str), Some(*value), "{ending:?}");
        }
        assert_eq!(info.metadata.len(), metadata.len(), "{ending:?}");
        assert_eq!(details.retry_info().is_some(), retried, "{ending:?}");
        assert_eq!(status.metadata().contains_key("grpc-retry-pushback-ms"), retried, "{ending:?}");
    }
}

#[test]
fn without_a_leader_there_is_no_hint() {
    let ending = Ending::Refused(Refusal::NotLeader);
    let nobody = ended(&ending, &leadership(None, ""));
    assert_eq!(nobody.get_error_details().error_info().unwrap().reason, "NO_LEADER");
    let silent = ended(&ending, &leadership(Some("replica-b"), ""));
    let details = silent.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.metadata.len()), ("NOT_LEADER", 1));
}

#[test]
fn details_stay_small_whatever_the_peer_writes() {
    let long = "x".repeat(100_000);
    let statuses = [
        ended(&Ending::Violation(long.clone()), &leadership(None, "")),
        ended(&Ending::Refused(Refusal::NotLeader), &leadership(Some(&long), &long)),
        object_not_found(&long),
        bad_field("ref.uid", "is empty"),
    ];
    for status in statuses {
        assert!(status.message().len() + status.details().len() < 4096, "{}", status.message().len());
    }
}

/// The documented code of each reason, by its name without the prefix: the first word of its comment.
fn documented() -> BTreeMap<String, String> {
    const ENUM: i32 = 5;
    const VALUE: i32 = 2;
    let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
    let file = set.file.into_iter().find(|file| file.package() == "ownergraph.type.v1beta1").unwrap();
    let number = file.enum_type.iter().position(|of| of.name() == "ErrorReason").unwrap();
    let info = file.source_code_info.unwrap();
    let code = |place: usize| {
        let path = [ENUM, number as i32, VALUE, place as i32];
        let comment = info.location.iter().find(|at| at.path == path).unwrap().leading_comments().to_owned();
        comment.trim().split_once('.').unwrap().0.to_owned()
    };
    let values = file.enum_type[number].value.iter().enumerate().skip(1);
    values.map(|(place, value)| (value.name().trim_start_matches("ERROR_REASON_").to_owned(), code(place))).collect()
}

#[test]
fn each_error_has_the_code_that_is_documented_for_its_reason() {
    let at = || Position { log_id: "log".to_owned(), sequence: 7 };
    let term = || Term { election: "election".into(), number: 7 };
    let extent = Extent { log_id: "log".to_owned(), oldest: 1, in_memory: 1, newest: 2 };
    let gap = Gap { next: Some(at()), ..Gap::default() };
    let right = Right { verb: "get", resource: "graphobjects" };
    let other = || ("a".into(), "b".into());
    let refusals = [
        Refusal::NotLeader,
        Refusal::TermStale { known: term() },
        Refusal::OtherCluster { ours: other().0, theirs: other().1 },
        Refusal::ProtocolUnsupported { min: 1, max: 2 },
        Refusal::Superseded,
        Refusal::Drained,
        Refusal::NameTaken,
        Refusal::Untrusted { retry_in: Duration::from_secs(1) },
        Refusal::OutOfTurn,
        Refusal::TooManySessions { max: 1 },
    ];
    let leads = leadership(Some("b"), "");
    let mut sent: Vec<Status> = refusals.iter().map(|refusal| refused(refusal, &leads)).collect();
    sent.extend([
        ended(&Ending::LimitExceeded { what: "messages", max: 1 }, &leads),
        ended(&Ending::Violation("none".to_owned()), &leads),
        ended(&Ending::Mismatch { executor: "a".into(), pod: "b".into() }, &leads),
        too_slow(Duration::from_secs(1)),
        streams_exceeded("streams", 1, "a"),
        object_not_found("a"),
        object_not_found_at("Pod", "a", "b"),
        uid_mismatch("no", "a"),
        traversal_limit(1),
        token_malformed("a"),
        token_from_other_cluster("a", "b", "c"),
        token_from_other_history("a"),
        replica_behind("a", "b", "c", ""),
        collection_unsynced("a"),
        not_comparable("a"),
        api_server_refuses("a"),
        of_transport(Code::Unimplemented, ""),
        of_transport(Code::OutOfRange, ""),
        of_transport(Code::Internal, ""),
        stopping(),
        expression_invalid("a", &Mistake { what: "b".to_owned(), at: Some((1, 2)) }),
        page_token_expired(),
        page_token_mismatch(),
        decision_not_found("a"),
        position_compacted(&extent),
        position_not_written(&gap),
        log_unavailable("a"),
        slow_consumer(Some(&at())),
        slow_watcher(),
        slow_status_reader(),
        bundle::busy(),
        slow_export_reader(),
        bad_field("a", "b"),
        duration("a", prost_types::Duration { seconds: -1, nanos: 0 }).unwrap_err(),
        credentials_missing("a"),
        credentials_invalid("a", "b"),
        token_for_other_audience("a"),
        access_denied("a", right, "b"),
        name_denied("a", right, "b"),
        not_joined(NotJoined::NotFound, "a"),
        not_joined(NotJoined::OtherTransport, "a"),
        not_joined(NotJoined::TooMany, "a"),
        path_denied("a", "/metrics"),
        object_denied("a", "apps", "deployments", "b"),
        review_unavailable("a"),
        not_grpc(),
        method_unknown(),
        pause_not_found("a"),
        pause(&press::Failure::NotInstalled, "a"),
        pause(&press::Failure::Observes, "a"),
        pause(&press::Failure::Refused("a".to_owned()), "a"),
        not_leader(&leadership(None, "")),
        not_observing(),
    ]);
    let mut documented = documented();
    // Any code: the library itself ended the call.
    documented.remove("CALL_FAILED");
    let mut unsent: Vec<String> = documented.keys().cloned().collect();
    for status in sent {
        let details = status.get_error_details();
        let reason = details.error_info().expect("every error says why").reason.clone();
        let code = documented.get(&reason).unwrap_or_else(|| panic!("{reason} is not documented"));
        let name = format!("{:?}", status.code());
        assert_eq!(name.to_uppercase(), code.replace('_', ""), "{reason}");
        let is_argument = status.code() == Code::InvalidArgument && reason != "NOT_GRPC";
        assert_eq!(details.bad_request().is_some(), is_argument, "{reason}");
        unsent.retain(|other| *other != reason);
    }
    assert_eq!(unsent, [""; 0], "documented, and never sent");
}
