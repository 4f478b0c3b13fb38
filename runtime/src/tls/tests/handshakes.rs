//! Successful and failed connections, and the messages at each end.

use super::*;

#[tokio::test]
async fn a_certificate_identifies_the_caller_and_no_certificate_identifies_none() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, caller) = both(&files, &authority).await;
    let met = meet(&server, &caller, HOST).await;
    assert_eq!(met.caller.unwrap(), "executor-1");
    let (peer, _) = met.server.unwrap();
    assert_eq!(peer.certificate().unwrap().groups, ["ownergraph:executors"]);
    let anonymous = files.call(&authority, None).await.unwrap();
    let met = meet(&server, &anonymous, HOST).await;
    assert_eq!(met.caller.unwrap(), "nobody");
    assert_eq!(met.server.unwrap().0, Peer::Tls(None));
}

#[tokio::test]
async fn a_caller_is_told_what_is_wrong_with_its_certificate_and_it_is_counted() {
    let (files, authority, foreign) = (Files::new(), Authority::new(), Authority::new());
    let server = files.serve(&authority, &authority.leaf(Leaf::server(HOST))).await.unwrap();
    let client = || Leaf::client("executor-1", "ownergraph:executors");
    for (signer, leaf, reason, part) in [
        (&authority, client().between(2001, 2002), "expired", "it has expired or is not valid yet"),
        (&authority, client().between(4001, 4002), "not_yet_valid", "it has expired or is not valid yet"),
        (&foreign, client(), "unknown_authority", "none of the authorities in the server's --client-ca has signed it"),
    ] {
        // A process starts only with a valid certificate; it becomes invalid after that.
        let caller = files.call(&authority, Some(&authority.leaf(client()))).await.unwrap();
        let bad = signer.leaf(leaf);
        caller.take_unchecked(&bad.certificate, &bad.key);
        let met = meet(&server, &caller, HOST).await;
        let told = met.caller.unwrap_err().to_string();
        assert!(told.starts_with(&format!("{ADDRESS} refuses the certificate in --tls-cert ")), "{told}");
        assert!(told.contains(part), "{told}");
        assert!(met.server.is_none());
        assert_eq!(refused(&server, reason), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_caller_is_told_what_is_wrong_with_the_servers_certificate() {
    let (files, authority, foreign) = (Files::new(), Authority::new(), Authority::new());
    let good = files.serve(&authority, &authority.leaf(Leaf::server(HOST))).await.unwrap();
    let caller = files.call(&authority, None).await.unwrap();
    let told = async |server: &ServerTls, host: &str| {
        let met = meet(server, &caller, host).await;
        assert!(met.server.is_none());
        met.caller.unwrap_err().to_string()
    };
    let name = told(&good, "other.test").await;
    assert_eq!(
        name,
        "the certificate of graph.test:7450 is not for other.test, but for DnsName(\"graph.test\"): use one of these names as the address, or set --tls-server-name to one of them"
    );
    let unknown = files.serve(&authority, &foreign.leaf(Leaf::server(HOST))).await.unwrap();
    let why = told(&unknown, HOST).await;
    assert!(why.contains("is signed by none of the authorities in --tls-ca /"), "{why}");
    let expired = authority.leaf(Leaf::server(HOST).between(2001, 2002));
    good.take_unchecked(&expired.certificate, &expired.key);
    let why = told(&good, HOST).await;
    assert!(why.starts_with("the certificate of graph.test:7450 has expired, on Jan  1"), "{why}");
    let early = authority.leaf(Leaf::server(HOST).between(4001, 4002));
    good.take_unchecked(&early.certificate, &early.key);
    let why = told(&good, HOST).await;
    assert!(why.starts_with("the certificate of graph.test:7450 is not valid before Jan  1"), "{why}");
    assert_eq!((refused(&good, "by_caller"), refused(&unknown, "by_caller")), (3, 1));
}

#[tokio::test]
async fn plaintext_and_tls_recognize_each_other() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, caller) = both(&files, &authority).await;
    let flags = Foreign { address_flag: "--sink", ca: ("--sink-ca", None), token: ("--sink-token-file", None) };
    let foreign = Caller::open_foreign(flags, false).await.unwrap();
    for (caller, remedy) in
        [(Caller::plaintext(), "--tls-ca FILE or an https:// address"), (foreign, "an https:// address")]
    {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let call = async {
            let mut stream = caller.secure(near, ADDRESS, HOST).await.unwrap();
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
            stream.read_u8().await.unwrap_err().to_string()
        };
        let (served, why) = tokio::join!(server.handshake(far, None, Protocol::Http2), call);
        assert!(served.is_none());
        assert_eq!(why, format!("graph.test:7450 uses TLS, but this connection is plaintext: set {remedy}"));
    }
    assert_eq!(refused(&server, "plaintext"), 2);

    let (near, mut far) = tokio::io::duplex(64 * 1024);
    far.write_all(b"\0\0\x12\x04\0\0\0\0\0 settings of HTTP/2").await.unwrap();
    let why = caller.secure(near, ADDRESS, HOST).await.unwrap_err().to_string();
    assert!(why.starts_with("graph.test:7450 does not use TLS: remove --tls-ca and https://"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_nothing_is_disconnected_in_time() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, caller) = both(&files, &authority).await;
    let (silent, far) = tokio::io::duplex(1024);
    assert!(server.handshake(far, None, Protocol::Http2).await.is_none());
    assert_eq!(refused(&server, "too_slow"), 1);
    drop(silent);
    let (near, far) = tokio::io::duplex(1024);
    drop(near);
    assert!(server.handshake(far, None, Protocol::Http2).await.is_none());
    assert_eq!(refused(&server, "closed"), 1);
    let (near, _silent) = tokio::io::duplex(1024);
    let why = caller.secure(near, ADDRESS, HOST).await.unwrap_err().to_string();
    assert_eq!(why, "graph.test:7450 did not complete the TLS handshake within 5 s");
}

#[tokio::test]
async fn a_caller_that_speaks_something_else_above_tls_is_turned_away() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, caller) = both(&files, &authority).await;
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (served, called) =
        tokio::join!(server.handshake(far, None, Protocol::Http1), caller.secure(near, ADDRESS, HOST));
    assert!(served.is_none());
    let why = called.unwrap_err().to_string();
    assert_eq!(why, "graph.test:7450 uses TLS, but not HTTP/2: it is not a graph service");
    assert_eq!(refused(&server, "incompatible"), 1);
}
