//! Writes whose connection opens late: the state at that time decides, not the state when they were created.

use super::*;
use futures::FutureExt;
use http::Uri;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_api::gated;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

const LEASES: usize = 40;
const ANSWER: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#;

/// One end of a connection in memory.
struct Pipe(DuplexStream);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Reads requests with their bodies, counts them, and answers each.
async fn serve(mut end: DuplexStream, received: Arc<AtomicUsize>) {
    let mut bytes = Vec::new();
    while end.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        while let Some(length) = request_length(&bytes).filter(|&length| bytes.len() >= length) {
            bytes.drain(..length);
            received.fetch_add(1, Ordering::Relaxed);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            let answer = format!("{head}: {}\r\n\r\n{ANSWER}", ANSWER.len());
            let _gone = end.write_all(answer.as_bytes()).await;
        }
    }
}

/// Head and body of the first request, where the head is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Some(head.len() + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap()))
}

/// Attempts at an API server whose connections take five seconds to open, and the number of requests it has received.
fn slow_to_connect() -> (Attempts, Clock, Arc<AtomicUsize>) {
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    // The connector keeps the jobs, and the client keeps the connector.
    let servers = Arc::new(Mutex::new(Jobs::new(2 * LEASES)));
    let connector = tower::service_fn(move |_: Uri| {
        let (counter, servers) = (Arc::clone(&counter), Arc::clone(&servers));
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let (near, far) = tokio::io::duplex(64 * 1024);
            servers.lock().unwrap().spawn((), serve(far, counter));
            Ok::<_, io::Error>(TokioIo::new(Pipe(near)))
        }
        .boxed()
    });
    let http: HttpClient<_, kube_api::Gated> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let base = kube::client::middleware::BaseUriLayer::new(Uri::from_static("http://api"));
    let service = tower::ServiceBuilder::new().layer(base).map_request(gated).service(http);
    let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
    let server = Server::new(vec![kube::Client::new(service, "default")], true, metrics);
    let clock = Clock::start();
    (Attempts::new(server, clock, LEASES), clock, received)
}

/// Starts all leases. After a second they are cancelled, or the session ends, or nothing happens.
async fn play(end: Time, cancels: bool) -> (Vec<Outcome>, usize, Duration) {
    let (mut attempts, clock, received) = slow_to_connect();
    attempts.set_writes_end(end);
    for number in 0..LEASES {
        let id = LeaseId { term: 3, number: number as u64 };
        attempts.start(WorkLease { id, ..delete(vec![]) }, None);
    }
    let early = tokio::time::timeout(Duration::from_secs(1), attempts.next()).await;
    assert!(early.is_err(), "{early:?}");
    if cancels {
        (0..LEASES).for_each(|number| attempts.cancel(LeaseId { term: 3, number: number as u64 }));
    }
    let mut outcomes = Vec::new();
    for _ in 0..LEASES {
        outcomes.push(attempts.next().await.report.outcome);
    }
    let took = clock.now().since_origin();
    tokio::time::sleep(Duration::from_secs(60)).await;
    (outcomes, received.load(Ordering::Relaxed), took)
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_connection_when_the_brake_is_pressed_never_leaves() {
    let late = Time::from_origin(Duration::from_secs(3600));
    let (outcomes, received, took) = play(late, true).await;
    assert_eq!((outcomes, received), (vec![Outcome::Abandoned; LEASES], 0));
    assert!(took < Duration::from_millis(1_100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_connection_beyond_the_session_never_leaves() {
    let (outcomes, received, took) = play(Time::from_origin(Duration::from_secs(3)), false).await;
    assert_eq!((outcomes, received), (vec![Outcome::Abandoned; LEASES], 0));
    assert!(took < Duration::from_millis(5_100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_connection_leaves_when_it_comes() {
    let (outcomes, received, took) = play(Time::from_origin(Duration::from_secs(3600)), false).await;
    assert_eq!((outcomes, received), (vec![Outcome::Done; LEASES], LEASES));
    assert!(took < Duration::from_millis(5_100), "{took:?}");
}
