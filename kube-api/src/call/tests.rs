use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::access::Found;
use crate::client::Cluster;
use crate::lines::Lines;

const LONG: Duration = Duration::from_secs(30);
const LIMIT: usize = 64;

/// A server that reads one request head for each connection and sends these bytes. Then it closes the connection, or
/// keeps it open for ever.
struct Server {
    address: SocketAddr,
    task: JoinSet<()>,
}

impl Server {
    async fn start(answer: &'static str, then_close: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                if !then_close {
                    open.push(stream);
                }
            }
        });
        Server { address, task }
    }

    fn client(&self) -> Client {
        client(&format!("http://{}", self.address))
    }
}

fn client(url: &str) -> Client {
    Cluster::without_credentials(url.parse().unwrap()).unwrap().client
}

fn request() -> Request<Vec<u8>> {
    Request::delete("/api/v1/namespaces/default/configmaps/a").body(Vec::new()).unwrap()
}

#[tokio::test]
async fn a_refused_connection_is_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = call(&client(&format!("http://{address}")), request(), LIMIT, LONG).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent { .. }), "{error:?}");
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the API server cannot be reached: tcp connect error: Connection refused"),
        "{sentence}"
    );
}

#[tokio::test]
async fn credentials_that_cannot_be_got_are_named_and_nothing_is_sent() {
    // Prints an expired token, until it fails.
    const PLUGIN: &str = r#"if [ -e "$1" ]; then echo token; echo >&2; echo 'the device is not registered' >&2; exit 3; fi
        echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"}}'"#;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let marker = directory.path().join("broken");
    let arguments = ["-c", PLUGIN, "plugin", marker.to_str().unwrap()].map(str::to_owned).to_vec();
    config.auth_info.exec = serde_json::from_value(serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": arguments, "interactiveMode": "Never",
    }))
    .unwrap();
    let cluster = Cluster::build(Found::of(config), "test").unwrap();
    std::fs::write(&marker, "").unwrap();
    let error = call(&cluster.client, request(), LIMIT, LONG).await.unwrap_err();
    let CallError::NoCredentials { cause } = &error else { panic!("{error:?}") };
    assert_eq!(cause, "the kubeconfig's credential plugin ended with exit status: 3: the device is not registered");
    let nobody = tokio::time::timeout(Duration::from_millis(20), listener.accept()).await;
    assert!(nobody.is_err(), "nothing was sent");
}

#[tokio::test]
async fn what_happens_after_sending_is_ambiguous() {
    let short = Duration::from_millis(50);
    for (answer, then_close, within, part) in [
        ("", true, LONG, "connection closed before message completed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", true, LONG, "the answer ended early"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", true, LONG, "the answer ended early"),
        ("", false, short, "no data within 0.05 s"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false, short, "no data within 0.05 s"),
        ("this is not HTTP\r\n\r\n", true, LONG, "invalid HTTP version parsed"),
    ] {
        let server = Server::start(answer, then_close).await;
        let error = call(&server.client(), request(), LIMIT, within).await.unwrap_err();
        assert!(matches!(error, CallError::Ambiguous { .. }), "{answer:?}: {error:?}");
        assert!(error.to_string().contains(part), "{answer:?}: {error}");
        assert_eq!(server.task.len(), 1);
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_sent_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    // Loads no certificates of the machine; none is verified here.
    config.root_cert = Some(Vec::new());
    let mut plain = JoinSet::new();
    plain.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _closed = stream.read_to_end(&mut rest).await;
    });
    let cluster = Cluster::build(Found::of(config), "test").unwrap();
    let error = call(&cluster.client, request(), LIMIT, LONG).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent { .. }), "{error:?}");
}

#[tokio::test]
async fn a_whole_answer_comes_with_what_its_head_says() {
    let server = Server::start(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\nAudit-Id: x-1\r\nDate: Thu, 01 Jan 2026 12:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}",
        true,
    )
    .await;
    let answer = call(&server.client(), request(), LIMIT, LONG).await.unwrap();
    let expected = Answer {
        status: StatusCode::TOO_MANY_REQUESTS,
        content_type: "application/json".to_owned(),
        body: Bytes::from_static(b"{}"),
        retry_after: Some(Duration::from_secs(7)),
        audit_id: Some("x-1".to_owned()),
        date: Some("Thu, 01 Jan 2026 12:00:00 GMT".to_owned()),
    };
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn an_answer_over_the_limit_is_not_read_on() {
    let server = Server::start("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", true).await;
    assert!(call(&server.client(), request(), 10, LONG).await.is_ok());
    let error = call(&server.client(), request(), 9, LONG).await.unwrap_err();
    assert_eq!(error, CallError::TooLarge { limit_bytes: 9 });
}

async fn lines(answer: &'static str) -> Lines {
    let server = Server::start(answer, true).await;
    match open_stream(&server.client(), request(), LONG).await.unwrap() {
        Opened::Streaming { body, content_type } => {
            assert_eq!(content_type, "application/json");
            Lines::new(body, 8)
        }
        Opened::Refused(answer) => panic!("refused: {answer:?}"),
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_stream_gives_lines_until_it_ends_or_breaks() {
    for (body, expected, end) in [
        ("3\r\n{}\n\r\n5\r\n{1}\n{\r\n2\r\n}\n\r\n0\r\n\r\n", vec!["{}", "{1}", "{}"], None),
        ("3\r\n{}\n\r\n", vec!["{}"], Some("the answer ended early")),
        ("5\r\n{}\n{1\r\n0\r\n\r\n", vec!["{}"], Some("the stream ended inside a line")),
        ("a\r\n0123456789\r\n", vec![], Some("larger than 8 bytes")),
    ] {
        let answer: &'static str = String::leak(format!("{STREAM}{body}"));
        let mut lines = lines(answer).await;
        let mut seen = Vec::new();
        let last = loop {
            match lines.next().await {
                Ok(Some(line)) => seen.push(String::from_utf8(line.to_vec()).unwrap()),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        assert_eq!(seen, expected);
        match (&last, end) {
            (None, None) => {}
            (Some(last), Some(end)) => assert!(last.contains(end), "{last}"),
            (Some(_), None) | (None, Some(_)) => panic!("ended with {last:?}, not {end:?}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_is_an_answer() {
    let server =
        Server::start("HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", true).await;
    match open_stream(&server.client(), request(), LONG).await.unwrap() {
        Opened::Refused(answer) => assert_eq!((answer.status.as_u16(), &answer.body[..]), (410, &b"{}"[..])),
        Opened::Streaming { .. } => panic!("410 is no stream"),
    }
}
