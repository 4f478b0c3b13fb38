//! Invalid files at the start, and invalid combinations of flags.

use super::*;
use http::HeaderValue;
use std::sync::Mutex;

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_with_its_flag() {
    let authority = Authority::new();
    let files = Files::new();
    let good = authority.leaf(Leaf::server(HOST));
    let expired = authority.leaf(Leaf::server(HOST).between(2001, 2002));
    let early = authority.leaf(Leaf::server(HOST).between(4001, 4002));
    let other = authority.leaf(Leaf::server(HOST));
    let large = "#".repeat(4 * 1024 * 1024 + 1);
    for (flag, file, text, part) in [
        ("--tls-cert", "server.crt", "", "the file has no certificate"),
        ("--tls-cert", "server.crt", &good.key, "the file has no certificate"),
        ("--tls-cert", "server.crt", "-----BEGIN CERTIFICATE-----\nMII", "the file is not PEM"),
        (
            "--tls-cert",
            "server.crt",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            "cannot be read",
        ),
        ("--tls-cert", "server.crt", &large, "the file has more than"),
        ("--tls-key", "server.key", "", "the file has no private key"),
        ("--tls-key", "server.key", &other.key, "the key does not belong to the certificate in --tls-cert"),
        ("--client-ca", "client-ca.crt", "\n", "the file has no certificate"),
        ("--client-ca", "client-ca.crt", &good.key, "the file has no certificate"),
    ] {
        let flags = files.server_flags(&authority, &good);
        let path = files.write(file, text);
        let error = ServerTls::open(&flags).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{flag} {} is not usable: ", path.display())), "{error}");
        assert!(error.contains(part), "{part}: {error}");
    }
    for (signed, part) in [
        (&expired, "is not usable: the certificate has expired, on Jan  1"),
        (&early, "is not usable: the certificate is not valid before Jan  1"),
    ] {
        let error = files.serve(&authority, signed).await.unwrap_err().to_string();
        assert!(error.starts_with("--tls-cert ") && error.contains(part), "{error}");
        let error = files.call(&authority, Some(signed)).await.unwrap_err().to_string();
        assert!(error.starts_with("--tls-cert ") && error.contains(part), "{error}");
    }
    let mut flags = files.server_flags(&authority, &good);
    ServerTls::open(&flags).await.unwrap();
    flags.tls_cert = Some(files.path().join("nowhere"));
    assert!(ServerTls::open(&flags).await.unwrap_err().to_string().contains("the file does not exist"));
    flags.tls_cert = Some(files.path().to_owned());
    assert!(ServerTls::open(&flags).await.unwrap_err().to_string().contains("directory"));
    assert!(ServerTls::open(&ServerFlags::default()).await.unwrap().is_none());
}

#[tokio::test]
async fn flags_that_make_no_sense_together_are_refused() {
    let one = || Some("x".into());
    let (cert, key, ca, token) = (one(), one(), one(), one());
    for (flags, part) in [
        (ServerFlags { tls_cert: cert.clone(), ..ServerFlags::default() }, "--tls-cert needs --tls-key"),
        (ServerFlags { tls_key: key.clone(), ..ServerFlags::default() }, "--tls-key needs --tls-cert"),
        (ServerFlags { client_ca: ca.clone(), ..ServerFlags::default() }, "--client-ca needs --tls-cert"),
    ] {
        assert!(flags.check().unwrap_err().to_string().starts_with(part));
    }
    let check = |flags: &CallerFlags, address: &str, name| {
        flags.check("--graph", &[address.to_owned()], ("--tls-server-name", name)).map_err(|error| error.to_string())
    };
    let tls = CallerFlags { tls_ca: ca, token_file: token, ..CallerFlags::default() };
    let pair = CallerFlags { tls_cert: cert, tls_key: key, ..CallerFlags::default() };
    check(&tls, "a:1", Some("b")).unwrap();
    check(&pair, "https://a:1", None).unwrap();
    assert!(check(&tls, "http://a:1", None).unwrap_err().starts_with("--graph http://a:1 is plaintext"));
    assert!(check(&pair, "a:1", None).unwrap_err().starts_with("--tls-cert needs TLS: set --tls-ca"));
    assert!(check(&CallerFlags::default(), "a:1", Some("b")).unwrap_err().starts_with("--tls-server-name needs TLS"));
    let bad = Caller::open(&CallerFlags::default(), true, ("--server-name", Some("a b"))).await.unwrap_err();
    assert_eq!(bad.to_string(), "--server-name \"a b\" is neither a host name nor an IP address");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_read_anew_and_a_bad_one_changes_nothing() {
    let files = Files::new();
    let path = files.write("token", "one\n");
    let flags = CallerFlags { token_file: Some(path), ..CallerFlags::default() };
    let caller = Caller::open(&flags, false, ("--tls-server-name", None)).await.unwrap();
    let shown = || async { caller.authorization().await.unwrap().to_str().unwrap().to_owned() };
    assert_eq!(shown().await, "Bearer one");
    assert!(caller.authorization().await.unwrap().is_sensitive());
    files.write("token", "two");
    assert_eq!(shown().await, "Bearer one", "it was read a moment ago");
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(shown().await, "Bearer two");
    for bad in ["", "two words", "\u{1}"] {
        files.write("token", bad);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(shown().await, "Bearer two");
        let refused = Caller::open(&flags, false, ("--tls-server-name", None)).await.unwrap_err().to_string();
        assert!(refused.starts_with("--token-file "), "{refused}");
    }
    files.write("token", "three");
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(shown().await, "Bearer three");
    assert!(Caller::plaintext().authorization().await.is_none());
}

#[tokio::test]
async fn a_token_in_memory_is_sent_as_it_is_now_and_over_tls_only() {
    let header = |text: &'static str| Some(HeaderValue::from_static(text));
    let shared = Arc::new(Mutex::new(header("Bearer one")));
    let authority = Authority::new();
    let held = Held {
        authorities: Some((("ConfigMap", "a/b".to_owned()), authority.pem().into_bytes())),
        authorization: Some(Arc::clone(&shared)),
        ..Held::default()
    };
    let open = async |held, is_tls| {
        Caller::open_with(&CallerFlags::default(), held, is_tls, ("--server-name", None)).await.unwrap()
    };
    assert!(!open(held.clone(), false).await.has_token());
    let caller = open(held.clone(), true).await;
    for now in [header("Bearer one"), header("Bearer two"), None] {
        shared.lock().unwrap().clone_from(&now);
        assert_eq!(caller.authorization().await, now);
    }
    let files = Files::new();
    let named = files.serve(&authority, &authority.leaf(Leaf::server(HOST))).await.unwrap();
    assert!(meet(&named, &caller, HOST).await.caller.is_ok());
    let another = files.serve(&authority, &authority.leaf(Leaf::server("other.test"))).await.unwrap();
    assert!(meet(&another, &caller, HOST).await.caller.is_err());
    let foreign = Authority::new();
    let foreign = files.serve(&foreign, &foreign.leaf(Leaf::server(HOST))).await.unwrap();
    let refused = meet(&foreign, &caller, HOST).await.caller.unwrap_err().to_string();
    assert!(refused.contains("none of the authorities in ConfigMap a/b"), "{refused}");
}
