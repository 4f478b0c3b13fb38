//! Requests to a server in this process.

use super::*;
use axum::body::Body;
use axum::extract::Request as Asked;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

fn flags() -> Sink {
    Sink { sink_in_flight: 4, ..Sink::default() }
}

/// The headers of the requests.
type Seen = Arc<Mutex<Vec<HeaderMap>>>;

/// Answers every request with the response that its body names.
async fn server(seen: Seen) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/decisions", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(move |request: Asked| {
        seen.lock().unwrap().push(request.headers().clone());
        async move {
            assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/decisions"));
            let body = request.into_body().collect().await.unwrap().to_bytes();
            answer(std::str::from_utf8(&body).unwrap())
        }
    });
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, task)
}

fn answer(wanted: &str) -> Response {
    match wanted {
        "busy" => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "3")]).into_response(),
        "moved" => (StatusCode::FOUND, [(LOCATION, "https://elsewhere.example")]).into_response(),
        "flood" => {
            let endless = futures::stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 16])));
            (StatusCode::BAD_REQUEST, Body::from_stream(endless)).into_response()
        }
        "drip" => {
            let one = futures::stream::iter([Ok::<_, Infallible>(Bytes::from("x"))]);
            (StatusCode::OK, Body::from_stream(one.chain(futures::stream::pending()))).into_response()
        }
        status => {
            let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
            (status, format!("no\n{}", "x".repeat(9000))).into_response()
        }
    }
}

#[tokio::test]
async fn an_answer_decides_and_its_body_costs_little() {
    let seen = Seen::default();
    let (url, _task) = server(Arc::clone(&seen)).await;
    let post = Post::open(&flags(), &url).await.unwrap();
    let why = |answer: &Answer| match answer {
        Answer::Accepted => String::new(),
        Answer::Refused(why) | Answer::Again { why, .. } => why.clone(),
    };
    for accepted in ["200", "202", "204", "drip"] {
        assert_eq!(post.clone().send(accepted.into()).await, Answer::Accepted, "{accepted}");
    }
    for refused in ["400", "413", "415", "422", "flood"] {
        let answer = post.clone().send(refused.into()).await;
        assert!(matches!(answer, Answer::Refused(_)), "{refused}: {answer:?}");
        assert!(why(&answer).len() < 400 && !why(&answer).contains('\n'), "{answer:?}");
    }
    for (wanted, seconds, all) in [
        ("401", None, true),
        ("403", None, true),
        ("404", None, true),
        ("410", None, true),
        ("moved", None, true),
        ("busy", Some(3), true),
        ("408", None, false),
        ("425", None, false),
        ("500", None, false),
        ("503", None, false),
    ] {
        match post.clone().send(wanted.into()).await {
            Answer::Again { after, everyone, .. } => {
                assert_eq!((after, everyone), (seconds.map(Duration::from_secs), all), "{wanted}");
            }
            other @ (Answer::Accepted | Answer::Refused(_)) => panic!("{wanted}: {other:?}"),
        }
    }
    let moved = post.clone().send("moved".into()).await;
    assert!(why(&moved).contains("redirects to https://elsewhere.example"), "{moved:?}");
    let headers = seen.lock().unwrap()[0].clone();
    assert_eq!(headers[CONTENT_TYPE], STRUCTURED);
    assert!(headers[USER_AGENT].to_str().unwrap().starts_with("ownergraph-sink/"), "{headers:?}");
    assert!(headers.get(AUTHORIZATION).is_none());
}

#[tokio::test]
async fn the_token_is_sent_and_a_receiver_that_is_away_is_asked_again() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let seen = Seen::default();
    let (url, task) = server(Arc::clone(&seen)).await;
    let flags = Sink { sink_token_file: Some(token), ..flags() };
    let post = Post::open(&flags, &url).await.unwrap();
    assert_eq!(post.clone().send("200".into()).await, Answer::Accepted);
    assert_eq!(seen.lock().unwrap()[0][AUTHORIZATION], "Bearer secret");
    drop(task);
    let away = Post::open(&flags, "http://127.0.0.1:1/").await.unwrap().send("200".into()).await;
    assert!(matches!(&away, Answer::Again { everyone: true, after: None, why } if why.contains("refused")), "{away:?}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_at_the_start() {
    let file = Some(PathBuf::from("/nonexistent"));
    let plain = flags();
    let token = Sink { sink_token_file: file.clone(), ..flags() };
    let ca = Sink { sink_ca: file, ..flags() };
    for (flags, url, words) in [
        (&plain, "receiver", "neither http:// nor https://"),
        (&plain, "/decisions", "is not a URL such as"),
        (&plain, "ftp://receiver.example", "neither http:// nor https://"),
        (&plain, "https://user:word@receiver.example/", "--sink-token-file"),
        (&token, "http://receiver.example/", "could read the token"),
        (&token, "http://127.0.0.1:9/", "--sink-token-file /nonexistent is not usable: the file does not exist"),
        (&ca, "http://receiver.example/", "--sink-ca needs TLS"),
        (&ca, "https://receiver.example/", "--sink-ca /nonexistent is not usable: the file does not exist"),
    ] {
        let why = Post::open(flags, url).await.unwrap_err().to_string();
        assert!(why.contains(words), "{url}: {why}");
    }
}

#[test]
fn a_delay_is_seconds_or_a_date() {
    let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
    let delay = retry_after(&soon).unwrap();
    assert!((85..=90).contains(&delay.as_secs()), "{delay:?}");
    assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
    assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    assert_eq!(retry_after("soon"), None);
}
