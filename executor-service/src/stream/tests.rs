use super::*;
use runtime::tls::Caller;
use tonic_types::{ErrorDetails, StatusExt};

fn refused(reason: &str, metadata: &[(&str, &str)]) -> End {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    End::refused("a:1", &Status::with_error_details(Code::Unavailable, "said so", details), false)
}

#[test]
fn refusals_are_read_from_their_reasons() {
    let end = refused("NOT_LEADER", &[("leaderEndpoint", "b:2")]);
    assert_eq!((end.refusal, end.leader_endpoint.as_deref()), (Some(Refusal::NotLeader), Some("b:2")));
    assert_eq!(end.why, "a:1 refuses: said so (NOT_LEADER)");
    assert_eq!(refused("NOT_LEADER", &[("leaderEndpoint", "")]).leader_endpoint, None);
    let term = Term { election: Name::from("uid"), number: 7 };
    for (reason, metadata, expected) in [
        ("NO_LEADER", &[][..], Some(Refusal::NotLeader)),
        ("SESSION_SUPERSEDED", &[], Some(Refusal::Superseded)),
        ("SESSION_DRAINED", &[], Some(Refusal::Drained)),
        ("TERM_STALE", &[("electionUid", "uid"), ("termNumber", "7")], Some(Refusal::TermStale { known: term })),
        ("TERM_STALE", &[], None),
        (
            "PROTOCOL_UNSUPPORTED",
            &[("minVersion", "2"), ("maxVersion", "3")],
            Some(Refusal::ProtocolUnsupported { min: 2, max: 3 }),
        ),
        ("STREAM_PROTOCOL_VIOLATION", &[], Some(Refusal::OutOfTurn)),
        ("LIMIT_EXCEEDED", &[("limit", "5")], Some(Refusal::TooManySessions { max: 5 })),
        (
            "CLUSTER_MISMATCH",
            &[("ours", "x"), ("theirs", "y")],
            Some(Refusal::OtherCluster { ours: Name::from("x"), theirs: Name::from("y") }),
        ),
        ("SOMETHING_NEWER", &[], None),
    ] {
        assert_eq!(refused(reason, metadata).refusal, expected, "{reason}");
    }
}

#[test]
fn a_stranger_is_called_one() {
    let end = |code, heard| End::refused("a:1", &Status::new(code, "x"), heard);
    assert!(end(Code::Unimplemented, false).why.contains("is not a graph service"));
    assert!(end(Code::Internal, false).why.contains("does not answer as a gRPC service"));
    assert_eq!(end(Code::Internal, true).why, "a:1 ended the stream (Internal): x");
    assert_eq!(end(Code::Unavailable, false).refusal, None);
}

#[tokio::test]
async fn a_silent_peer_and_garbage_are_told_apart() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (ends, keeping) = open(Connector::network(Caller::plaintext()), Target::Address(address.clone()));
    let hello = StreamWorkRequest { message: None };
    ends.outbound.try_send(hello.clone()).unwrap();
    let garbage = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut peer, b"HTTP/1.1 400 Bad Request\r\n\r\nno such thing here")
            .await
            .unwrap();
        drop(peer);
        drop(listener);
    };
    let (end, ()) = futures::future::join(keeping, garbage).await;
    assert!(end.why.starts_with(&address), "{end:?}");
    let (ends, keeping) = open(Connector::network(Caller::plaintext()), Target::Address(address.clone()));
    ends.outbound.try_send(hello).unwrap();
    let end = keeping.await;
    assert!(end.why.starts_with(&format!("{address} cannot be reached: ")) && end.why.contains("refused"), "{end:?}");
}
