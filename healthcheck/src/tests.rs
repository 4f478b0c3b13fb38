use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const WELL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const ILL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 31\r\n\r\n\nwaiting for \x1b[2Jthe API server";

struct Pki {
    ca: String,
    server: ServerConfig,
}

fn pki(name: &str) -> Pki {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let server = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    Pki { ca: authority.pem(), server }
}

/// Answers one request with `answer`, and returns the result of `ask`.
async fn asked(scheme: &str, server: Option<ServerConfig>, ca: Option<&str>, answer: &str) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{scheme}://localhost:{}/readyz", listener.local_addr().unwrap().port());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, ca.unwrap_or_default()).unwrap();
    let options = Options { url: url.parse().unwrap(), tls_ca: ca.map(|_| file) };
    let served = async {
        let (stream, _) = listener.accept().await.unwrap();
        match server {
            // Some tests break the handshake on purpose.
            Some(config) => match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                Ok(stream) => say(stream, answer).await,
                Err(_) => std::future::pending().await,
            },
            None => say(stream, answer).await,
        }
    };
    tokio::select! {
        asked = ask(&options) => asked.map_err(|error| format!("{error:#}")),
        () = served => unreachable!("it serves until it is left"),
    }
}

async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
    let mut request = [0; 1024];
    let read = stream.read(&mut request).await.unwrap();
    assert!(request[..read].starts_with(b"GET /readyz HTTP/1.1"));
    stream.write_all(answer.as_bytes()).await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn only_200_is_well_and_the_reason_is_the_first_line() {
    assert_eq!(asked("http", None, None, WELL).await, Ok(()));
    let why = asked("http", None, None, ILL).await.unwrap_err();
    assert!(why.ends_with("/readyz answers 503: waiting for [2Jthe API server"), "{why}");
    let why = asked("http", None, None, "HTTP/1.1 204 No Content\r\n\r\n").await.unwrap_err();
    assert!(why.ends_with("answers 204: no reason given"), "{why}");
}

#[tokio::test]
async fn a_certificate_has_to_be_of_the_authority_and_of_the_name() {
    let (ours, other, elsewhere) = (pki("localhost"), pki("localhost"), pki("elsewhere"));
    assert_eq!(asked("https", Some(ours.server), Some(&ours.ca), WELL).await, Ok(()));
    let why = asked("https", Some(other.server), Some(&ours.ca), WELL).await.unwrap_err();
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
    let why = asked("https", Some(elsewhere.server), Some(&elsewhere.ca), WELL).await.unwrap_err();
    assert!(why.contains("not valid for name \"localhost\""), "{why}");
}

#[tokio::test]
async fn without_an_authority_no_server_is_trusted() {
    let why = asked("https", None, None, WELL).await.unwrap_err();
    assert!(why.contains("needs --tls-ca"), "{why}");
    let why = asked("https", None, Some("no certificate"), WELL).await.unwrap_err();
    assert!(why.contains("ca.crt contains no certificate"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let why = asked("http", None, None, "").await.unwrap_err();
    assert!(why.ends_with("no answer within 3 s"), "{why}");
}

#[test]
fn the_flags_fit_together() {
    <Options as clap::CommandFactory>::command().debug_assert();
}
