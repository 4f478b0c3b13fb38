use super::{bad_field, ended, object_not_found};
use crate::driver::Ending;
use crate::election::Leadership;
use engine::work::{Refusal, Term};
use tonic::Code;
use tonic_types::StatusExt;

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
