use super::*;
use crate::audit::tests::{counts, inlet, names};
use engine::leader::Input;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use runtime::tls::ServerFlags;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// A receiver with room for so many events.
fn receiver(room: usize, token: Option<TokenFile>) -> (Receiver, mpsc::Receiver<Input>) {
    let (inlet, inputs) = inlet(room);
    (Receiver::new(token, inlet, leading()), inputs)
}

/// This replica leads.
fn leading() -> watch::Receiver<Leadership> {
    watch::channel(Leadership { leading: true, ..Leadership::default() }).1
}

/// An EventList with the deletions of these pods.
fn list(names: &[&str]) -> String {
    let item = |name: &&str| {
        let of = json!({"resource": "pods", "namespace": "shop", "name": name});
        json!({"stage": "ResponseComplete", "verb": "delete", "auditID": name, "objectRef": of})
    };
    let items: Vec<_> = names.iter().map(item).collect();
    json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": items}).to_string()
}

fn post(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("/audit?timeout=30s").header(CONTENT_TYPE, JSON).body(Full::new(body.into())).unwrap()
}

/// The status and the text of the answer.
async fn ask(receiver: &Receiver, request: Request<Full<Bytes>>) -> (u16, String) {
    let answer = receiver.receive(request).await;
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

async fn token(directory: &Path) -> TokenFile {
    let path = directory.join("token");
    std::fs::write(&path, "secret\n").unwrap();
    TokenFile::open("--audit-webhook-token-file", &path).await.unwrap()
}

#[tokio::test]
async fn events_become_inputs() {
    let (receiver, mut inputs) = receiver(8, None);
    assert_eq!(ask(&receiver, post(list(&["a", "b"]))).await, (200, String::new()));
    assert_eq!(ask(&receiver, post(list(&["b", "c"]))).await, (200, String::new()), "one of them arrives again");
    assert_eq!(names(&mut inputs), ["a", "b", "c"]);
    assert_eq!(counts(&receiver.inlet), [3, 1, 0]);
}

#[tokio::test]
async fn a_bad_request_is_refused_with_a_reason() {
    let (receiver, mut inputs) = receiver(8, None);
    let get = Request::get("/").body(Full::default()).unwrap();
    let other = Request::post("/").header(CONTENT_TYPE, "text/plain").body(Full::default()).unwrap();
    let many = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": vec![0; EVENTS_MAX + 1]});
    let cases = [
        (get, 405, "only POST is supported"),
        (other, 400, "the content type is not application/json"),
        (post(""), 400, "the body is not JSON of audit.k8s.io/v1: EOF"),
        (
            post(r#"{"kind":"Pod","apiVersion":"v1"}"#),
            400,
            "kind \"Pod\" of \"v1\" is not EventList of audit.k8s.io/v1",
        ),
        (post(vec![b' '; BODY_MAX_BYTES + 1]), 413, "the body has more than 16777216 bytes"),
        (post(many.to_string()), 413, "the list has 4097 events; at most 4096 are allowed"),
    ];
    for (request, status, why) in cases {
        let (found, text) = ask(&receiver, request).await;
        assert_eq!(found, status, "{text}");
        assert!(text.starts_with(why), "{text}");
    }
    assert_eq!(names(&mut inputs), [""; 0]);
    assert_eq!(ask(&receiver, post(list(&["a"]))).await.0, 200);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_makes_the_sender_try_again() {
    let (inlet, mut inputs) = inlet(8);
    let (leadership, known) = watch::channel(Leadership::default());
    let receiver = Receiver::new(None, inlet, known);
    let answer = receiver.receive(post(list(&["a"]))).await;
    assert_eq!((answer.status(), &answer.headers()[RETRY_AFTER]), (StatusCode::SERVICE_UNAVAILABLE, &AGAIN_AFTER));
    leadership.send_modify(|known| known.leading = true);
    assert_eq!(ask(&receiver, post(list(&["a"]))).await, (200, String::new()));
    assert_eq!(names(&mut inputs), ["a"], "and it is new to the leader");
}

#[tokio::test]
async fn a_full_queue_makes_the_sender_try_again() {
    let (receiver, mut inputs) = receiver(2, None);
    let answer = receiver.receive(post(list(&["a", "b", "c"]))).await;
    assert_eq!((answer.status(), &answer.headers()[RETRY_AFTER]), (StatusCode::TOO_MANY_REQUESTS, &AGAIN_AFTER));
    assert_eq!(names(&mut inputs), [""; 0], "all events or none");
    assert_eq!(ask(&receiver, post(list(&["a", "b"]))).await.0, 200);
    assert_eq!(names(&mut inputs), ["a", "b"]);
    drop(inputs);
    assert_eq!(ask(&receiver, post(list(&["d"]))).await, (503, "the service is stopping\n".to_owned()));
}

#[tokio::test]
async fn a_bounded_number_of_bodies_is_read_at_once() {
    let (receiver, _inputs) = receiver(8, None);
    let places = receiver.bodies.try_acquire_many(BODIES_MAX as u32).unwrap();
    let answer = receiver.receive(post(list(&["a"]))).await;
    assert_eq!((answer.status(), &answer.headers()[RETRY_AFTER]), (StatusCode::SERVICE_UNAVAILABLE, &AGAIN_AFTER));
    drop(places);
    assert_eq!(ask(&receiver, post(list(&["a"]))).await.0, 200);
}

#[tokio::test]
async fn with_a_token_only_its_holder_sends_events() {
    let directory = tempfile::tempdir().unwrap();
    let (receiver, mut inputs) = receiver(8, Some(token(directory.path()).await));
    for (shown, expected) in
        [(None, 401), (Some("Bearer secre"), 401), (Some("secret"), 401), (Some("Bearer secret"), 200)]
    {
        let mut request = post(list(&["a"]));
        if let Some(shown) = shown {
            request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static(shown));
        }
        let (status, text) = ask(&receiver, request).await;
        assert_eq!(status, expected, "{shown:?}: {text}");
        assert!(!text.contains("secre"), "{text}");
    }
    assert_eq!(names(&mut inputs), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_is_refused_again_and_again_cannot_fill_the_log() {
    let (receiver, _inputs) = receiver(8, None);
    for body in ["a", "b", "c"] {
        assert_eq!(ask(&receiver, post(body)).await.0, 400);
    }
    assert_eq!(receiver.said.unsaid(StatusCode::BAD_REQUEST), None, "the log has a line of this status");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(receiver.said.unsaid(StatusCode::BAD_REQUEST), Some(3), "the next line says how many it stands for");
    assert_eq!(receiver.said.unsaid(StatusCode::METHOD_NOT_ALLOWED), Some(0));
}

/// The answer to one request on a connection.
async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let body = list(&["a"]);
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A peer that closes without the end of TLS has answered before.
    let _end = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_sender_of_a_large_refused_request_reads_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (inlet, _inputs) = inlet(8);
    let serving = serve(AuditWebhook { listener, token: None }, None, inlet, leading());
    let sending = async {
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: 15000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; 15_000_000]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::select! {
        answer = sending => answer,
        ended = serving => panic!("{ended:?}"),
    };
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("the content type is not application/json\n"), "{answer}");
}

#[tokio::test]
async fn plaintext_and_tls_reach_the_receiver() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("cert"), cert.pem()).unwrap();
    std::fs::write(path("key"), signing_key.serialize_pem()).unwrap();
    let flags = ServerFlags { tls_cert: Some(path("cert")), tls_key: Some(path("key")), client_ca: None };
    for tls in [None, ServerTls::open(&flags).await.unwrap()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (inlet, mut inputs) = inlet(8);
        let is_tls = tls.is_some();
        let serving = serve(AuditWebhook { listener, token: None }, tls, inlet, leading());
        let answer = async {
            match is_tls {
                false => send(stream).await,
                true => {
                    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
                    roots.add(cert.der().clone()).unwrap();
                    let config = tokio_rustls::rustls::ClientConfig::builder_with_provider(
                        tokio_rustls::rustls::crypto::ring::default_provider().into(),
                    )
                    .with_safe_default_protocol_versions()
                    .unwrap()
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
                    send(connector.connect("localhost".try_into().unwrap(), stream).await.unwrap()).await
                }
            }
        };
        let answer = tokio::select! {
            answer = answer => answer,
            ended = serving => panic!("{ended:?}"),
        };
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(names(&mut inputs), ["a"]);
    }
}
