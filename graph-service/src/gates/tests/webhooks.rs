//! Engines behind HTTPS on loopback.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A request, and the place for its answer: the head after `HTTP/1.1 `, and the body.
type Received = (Value, tokio::sync::oneshot::Sender<(String, String)>);

/// An engine that a test answers for.
struct Engine {
    spec: Value,
    requests: mpsc::Receiver<Received>,
    _tasks: JoinSet<()>,
}

impl Engine {
    async fn start() -> Engine {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], secret)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(acceptor.clone(), stream, sender.clone()));
            }
        });
        let bundle = STANDARD.encode(authority.pem());
        let spec = json!({"webhook": {"url": format!("https://localhost:{port}/gate"), "caBundle": bundle}});
        Engine { spec, requests, _tasks: tasks }
    }

    /// Answers the next request.
    async fn answer(&mut self, head: &str, body: impl FnOnce(&Value) -> String) -> Value {
        let (request, reply) = self.requests.recv().await.unwrap();
        let body = body(&request);
        // Fails if the router no longer waits.
        let _gone = reply.send((head.to_owned(), body));
        request
    }
}

/// Serves one connection, request by request.
async fn serve(acceptor: TlsAcceptor, stream: tokio::net::TcpStream, requests: mpsc::Sender<Received>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let (reply, answer) = tokio::sync::oneshot::channel();
        requests.send((serde_json::from_slice(&body).unwrap(), reply)).await.unwrap();
        let Ok((head, body)) = answer.await else { return };
        let response = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// An answer with one response for each request.
fn each(request: &Value, response: impl Fn(&str) -> Value) -> String {
    let responses: Vec<Value> = request["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let uid = one["uid"].as_str().unwrap();
            let mut response = response(uid);
            if response.get("uid").is_none() {
                response["uid"] = json!(uid);
            }
            response
        })
        .collect();
    json!({"apiVersion": "ownergraph.dev/v1alpha1", "kind": "GateReview", "responses": responses}).to_string()
}

#[tokio::test]
async fn a_webhook_answers_batches_of_questions() {
    let mut engine = Engine::start().await;
    let (router, inbox, metrics) = router(&engine.spec);
    (1..=150).for_each(|number| router.ask(question(number)));
    let story = async {
        let respond = |uid: &str| match uid {
            "1" => json!({"allowed": false, "status": {"message": "frozen"}, "policy": "freeze", "validForSeconds": 5}),
            "2" => json!({"hold": {"againAfterSeconds": 30}}),
            "3" => json!({}),
            _ => json!({"allowed": true}),
        };
        let first = engine.answer("200 OK", |request| each(request, respond)).await;
        let second = engine.answer("200 OK", |request| each(request, respond)).await;
        [first, second]
    };
    let (found, requests) = tokio::join!(answered(&router, &inbox, 150), story);
    let mut sizes = requests.each_ref().map(|request| request["requests"].as_array().unwrap().len());
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100]);
    let asked = requests
        .iter()
        .find_map(|request| request["requests"].as_array().unwrap().iter().find(|one| one["uid"] == "1").cloned());
    let asked = asked.unwrap();
    assert_eq!((&asked["gate"], &asked["operation"]), (&json!("production"), &json!("DELETE")), "{asked}");
    assert_eq!(asked["root"]["kind"], "StatefulSet", "{asked}");
    assert_eq!(asked["object"]["name"], "data-1", "{asked}");
    let denied = &found[&1];
    assert_eq!((&denied.answer, denied.message.as_str(), denied.by.as_str()), (&Answer::Deny, "frozen", "freeze"));
    assert_eq!(denied.valid_for, Duration::from_secs(5));
    assert_eq!(found[&2].answer, Answer::Hold { again_after: Duration::from_secs(30) });
    assert_eq!(
        (&found[&3].answer, found[&3].message.as_str()),
        (&Answer::Failed, "the response has neither allowed nor hold")
    );
    assert_eq!(found[&4].answer, Answer::Allow);
    assert_eq!(metrics.open(), 0);
}

#[tokio::test]
async fn answers_that_are_not_usable_fail_with_the_reason() {
    let other = json!({"apiVersion": "v1", "kind": "Status"}).to_string();
    for (head, body, about) in [
        ("200 OK", "{".to_owned(), "the answer is not a GateReview"),
        ("200 OK", other, "the answer is a \"Status\" of \"v1\""),
        ("200 OK", " ".repeat(1024 * 1024 + 1), "the answer has more than 1048576 bytes"),
        ("503 Service Unavailable", String::new(), "answered 503 Service Unavailable"),
        (
            "307 Temporary Redirect\r\nlocation: https://elsewhere.example/",
            String::new(),
            "a redirect to https://elsewhere",
        ),
    ] {
        let mut engine = Engine::start().await;
        let (router, inbox, _) = router(&engine.spec);
        router.ask(question(1));
        let (found, _) = tokio::join!(answered(&router, &inbox, 1), engine.answer(head, |_| body));
        assert_eq!(found[&1].answer, Answer::Failed, "{head}");
        assert!(found[&1].message.contains(about), "{head}: {found:?}");
    }
}

#[tokio::test]
async fn responses_to_other_requests_are_counted() {
    let mut engine = Engine::start().await;
    let (router, inbox, metrics) = router(&engine.spec);
    (1..=2).for_each(|number| router.ask(question(number)));
    let wrong = |uid: &str| match uid {
        "1" => json!({"allowed": true, "uid": "99"}),
        _ => json!({"allowed": true}),
    };
    let (found, _) =
        tokio::join!(answered(&router, &inbox, 2), engine.answer("200 OK", |request| each(request, wrong)));
    assert_eq!(found[&1].message, "the answer has no response for this request");
    assert_eq!(found[&2].answer, Answer::Allow);
    router.ask(question(3));
    let twice = |request: &Value| {
        let mut body: Value = serde_json::from_str(&each(request, |_| json!({"allowed": true}))).unwrap();
        let first = body["responses"][0].clone();
        body["responses"].as_array_mut().unwrap().push(first);
        body.to_string()
    };
    let (found, _) = tokio::join!(answered(&router, &inbox, 1), engine.answer("200 OK", twice));
    assert_eq!(found[&3].answer, Answer::Allow);
    assert_eq!([Unmatched::Unknown, Unmatched::Twice].map(|cause| metrics.count(cause.as_str())), [1, 1]);
}

#[tokio::test]
async fn an_answer_to_a_question_that_has_ended_is_late_and_delays_no_other() {
    let mut engine = Engine::start().await;
    let (router, inbox, metrics) = router(&engine.spec);
    router.ask(question(1));
    let story = async {
        let (request, slow) = engine.requests.recv().await.unwrap();
        router.cancel(&GATE.into(), &[1]);
        router.ask(question(2));
        engine.answer("200 OK", |request| each(request, |_| json!({"allowed": true}))).await;
        slow.send(("200 OK".to_owned(), each(&request, |_| json!({"allowed": true})))).unwrap();
        router.ask(question(3));
        engine.answer("200 OK", |request| each(request, |_| json!({"allowed": false}))).await;
    };
    let (found, ()) = tokio::join!(answered(&router, &inbox, 2), story);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [2, 3]);
    let late = async {
        while metrics.count(Unmatched::Late.as_str()) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = router.clone().run() => panic!("the router ended: {ended:?}"),
        () = late => {}
    }
}

#[tokio::test]
async fn an_engine_of_an_unknown_authority_or_at_a_closed_port_is_not_asked() {
    let engine = Engine::start().await;
    let other = Engine::start().await;
    let mut spec = engine.spec.clone();
    spec["webhook"]["caBundle"] = other.spec["webhook"]["caBundle"].clone();
    let (strange, inbox, _) = router(&spec);
    strange.ask(question(1));
    let found = answered(&strange, &inbox, 1).await;
    assert_eq!(found[&1].answer, Answer::Failed);
    assert!(found[&1].message.contains("certificate"), "{found:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    spec["webhook"]["url"] = json!(format!("https://{}/", listener.local_addr().unwrap()));
    drop(listener);
    let (closed, inbox, _) = router(&spec);
    closed.ask(question(1));
    let found = answered(&closed, &inbox, 1).await;
    assert!(found[&1].message.contains("refused"), "{found:?}");
}
