use std::net::SocketAddr;

use http::Request;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::access::Found;
use crate::call::{CallError, call};
use crate::client::Cluster;

const YEAR: u64 = 31_557_600;

/// A self-signed certificate for 127.0.0.1 and `k8s.example`, valid from 2020 until 2040.
struct SelfSigned {
    key: KeyPair,
    der: CertificateDer<'static>,
}

impl SelfSigned {
    fn new(is_ca: IsCa, purposes: &[ExtendedKeyUsagePurpose]) -> SelfSigned {
        let mut params = CertificateParams::new(["k8s.example".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.is_ca = is_ca;
        params.extended_key_usages = purposes.to_vec();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2040, 1, 1));
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        SelfSigned { key, der }
    }

    fn authority() -> SelfSigned {
        SelfSigned::new(IsCa::Ca(BasicConstraints::Unconstrained), &[])
    }
}

fn config(bundle: &[&SelfSigned], server: &str) -> Config {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::new(server.parse().unwrap());
    config.root_cert = Some(bundle.iter().map(|known| known.der.to_vec()).collect());
    config
}

#[test]
fn an_authority_is_a_server_only_as_go_has_it() {
    let authority = SelfSigned::authority();
    let other = SelfSigned::authority();
    let ca = || IsCa::Ca(BasicConstraints::Unconstrained);
    let for_servers = SelfSigned::new(ca(), &[ExtendedKeyUsagePurpose::ServerAuth]);
    let for_all = SelfSigned::new(ca(), &[ExtendedKeyUsagePurpose::Any]);
    let for_clients = SelfSigned::new(ca(), &[ExtendedKeyUsagePurpose::ClientAuth]);
    let plain = SelfSigned::new(IsCa::ExplicitNoCa, &[]);
    for (what, bundle, shown, name, year, refused) in [
        ("its own authority", &[&authority][..], &authority, "127.0.0.1", 60, ""),
        ("its own authority, by name", &[&authority], &authority, "k8s.example", 60, ""),
        ("one of several", &[&other, &authority], &authority, "127.0.0.1", 60, ""),
        ("for servers", &[&for_servers], &for_servers, "127.0.0.1", 60, ""),
        ("for all purposes", &[&for_all], &for_all, "127.0.0.1", 60, ""),
        ("no authority, as rustls has it", &[&plain], &plain, "127.0.0.1", 60, ""),
        ("for clients only", &[&for_clients], &for_clients, "127.0.0.1", 60, "InvalidPurpose"),
        ("another name", &[&authority], &authority, "k9s.example", 60, "NotValidForName"),
        ("another address", &[&authority], &authority, "127.0.0.2", 60, "NotValidForName"),
        ("expired", &[&authority], &authority, "127.0.0.1", 71, "Expired"),
        ("not valid yet", &[&authority], &authority, "127.0.0.1", 49, "NotValidYet"),
        // The same subject and names, but another key.
        ("not in the bundle", &[&other], &authority, "127.0.0.1", 60, "UnknownIssuer"),
    ] {
        let verifier = Verifier::of(&config(bundle, "https://any")).unwrap().unwrap();
        let (name, now) =
            (ServerName::try_from(name).unwrap(), UnixTime::since_unix_epoch(Duration::from_secs(year * YEAR)));
        let verdict = verifier.verify_server_cert(&shown.der, &[], &name, &[], now);
        let said = verdict.as_ref().map_or_else(|error| format!("{error:?}"), |_| String::new());
        assert!(said.contains(refused) && said.is_empty() == refused.is_empty(), "{what}: {said}");
        // The judgement alone refuses as much: it does not rely on what webpki has checked before.
        if refused.is_empty() {
            continue;
        }
        let alone = verifier.bundle().accepts(&shown.der, &name, now).unwrap_err();
        assert!(format!("{alone:?}").contains(refused), "{what}: {alone:?}");
    }
}

#[test]
fn other_roots_are_not_touched() {
    let authority = SelfSigned::authority();
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 3] = [
        ("the system's roots", |config| config.root_cert = None),
        ("no roots", |config| config.root_cert = Some(Vec::new())),
        ("no verification", |config| config.accept_invalid_certs = true),
    ];
    for (what, change) in changes {
        let mut config = config(&[&authority], "https://any");
        change(&mut config);
        assert!(Verifier::of(&config).unwrap().is_none(), "{what}");
    }
}

#[test]
fn the_bundle_of_a_pod_is_read_again() {
    let (first, second) = (SelfSigned::authority(), SelfSigned::authority());
    let file = tempfile::NamedTempFile::new().unwrap();
    let pem = |of: &SelfSigned| {
        let mut params = CertificateParams::new(["pod".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&of.key).unwrap().pem()
    };
    std::fs::write(file.path(), pem(&first)).unwrap();
    let mut config = config(&[&first], "https://any");
    config.root_cert_file = Some(file.path().to_owned());
    let verifier = Verifier::of(&config).unwrap().unwrap();
    let count = || verifier.bundle().certificates.len();
    let make_old = || verifier.bundle.write().unwrap().1 = Instant::now().checked_sub(READ_AGAIN_AFTER).unwrap();
    std::fs::write(file.path(), pem(&first) + &pem(&second)).unwrap();
    assert_eq!(count(), 1, "it is not read at each connection");
    make_old();
    assert_eq!(count(), 2);
    std::fs::remove_file(file.path()).unwrap();
    make_old();
    assert_eq!(count(), 2, "what is known stays");
}

/// Serves one connection with the certificate, and the key, which may be another's.
async fn serve(shown: &SelfSigned, key: &KeyPair) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let signer = provider.key_provider.load_private_key(key).unwrap();
    let certified = rustls::sign::CertifiedKey::new(vec![shown.der.clone()], signer);
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    let address = listener.local_addr().unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let Ok(mut tls) = TlsAcceptor::from(Arc::new(config)).accept(tcp).await else { return };
        let mut head = [0; 4096];
        let _read = tls.read(&mut head).await;
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
        let _closed = tls.shutdown().await;
    });
    (address, task)
}

#[tokio::test]
async fn a_server_must_hold_the_key_of_the_certificate_that_it_shows() {
    let (authority, thief) = (SelfSigned::authority(), SelfSigned::authority());
    for (key, reached) in [(&authority.key, true), (&thief.key, false)] {
        let (address, _task) = serve(&authority, key).await;
        let cluster = Cluster::build(Found::of(config(&[&authority], &format!("https://{address}"))), "test").unwrap();
        let request = Request::get("/version").body(Vec::new()).unwrap();
        let answer = call(&cluster.client, request, 1024, Duration::from_secs(10)).await;
        match answer {
            Ok(answer) => assert!(reached && answer.body == "ok", "{answer:?}"),
            Err(CallError::NotSent { cause }) => assert!(!reached && cause.contains("BadSignature"), "{cause}"),
            Err(error) => panic!("{error:?}"),
        }
    }
}
