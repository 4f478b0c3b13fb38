//! Streams of callers whose rights end.

use super::guard::{AGAIN_EVERY, AGAIN_SOON, GuardLayer, SILENT_FOR};
use super::*;
use crate::grpc::connection::Link;
use crate::grpc::small_world::reason;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use runtime::tls::{Peer, PeerCertificate};
use std::convert::Infallible;
use tokio::sync::mpsc;
use tonic::Code;
use tonic::body::Body;
use tower::{Layer as _, ServiceExt as _};

const WATCH: &str = "/ownergraph.decision.v1beta1.DecisionService/WatchDecisions";
const WORK: &str = "/ownergraph.work.v1beta1.WorkService/StreamWork";

/// A stream without its own end, and whether its other end exists.
struct Opened {
    body: Body,
    messages: mpsc::Sender<Bytes>,
    at: Instant,
}

impl Opened {
    /// The status at the end of the stream, and its duration.
    async fn ended(mut self) -> (Status, Duration) {
        let frame = self.body.frame().await.unwrap().unwrap();
        let status = Status::from_header_map(frame.trailers_ref().expect("no message was sent")).unwrap();
        assert!(self.body.frame().await.is_none());
        assert!(self.messages.is_closed(), "the handler is told");
        (status, self.at.elapsed())
    }
}

/// Calls a service whose handler requires `namespace`, if given.
async fn open(authenticator: &Arc<Authenticator>, path: &str, token: &str, namespace: Option<&'static str>) -> Opened {
    open_by(authenticator, path, Some(token), link(Peer::Tls(None), false), namespace).await
}

fn link(peer: Peer, within: bool) -> Link {
    Link { cut: Default::default(), peer, within }
}

async fn open_by(
    authenticator: &Arc<Authenticator>,
    path: &str,
    token: Option<&str>,
    link: Link,
    namespace: Option<&'static str>,
) -> Opened {
    let (messages, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        async move {
            let visibility = request.extensions().get::<Visibility>().unwrap().clone();
            if let Some(namespace) = namespace {
                visibility.require(namespace).await.unwrap();
            }
            let frames = futures::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<Bytes>| {
                receiver.recv().await.map(|bytes| (Ok::<_, Status>(Frame::data(bytes)), receiver))
            });
            Ok::<_, Infallible>(Response::new(Body::new(StreamBody::new(Box::pin(frames)))))
        }
    });
    let mut request = Request::builder().uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(link);
    let answer = GuardLayer(Some(Arc::clone(authenticator))).layer(service).oneshot(request).await.unwrap();
    assert!(answer.headers().get("grpc-status").is_none(), "{answer:?}");
    Opened { body: answer.into_body(), messages, at: Instant::now() }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_caller_loses_the_right_or_the_token() {
    let oracle = Oracle::default().knows("eve").shows("eve", "shop").knows("executor").allows(
        "executor",
        "lease",
        "workitems",
        "",
    );
    let authenticator = oracle.authenticator();
    let mut watch = open(&authenticator, WATCH, "eve", Some("shop")).await;
    watch.messages.send(Bytes::from_static(b"message")).await.unwrap();
    assert_eq!(watch.body.frame().await.unwrap().unwrap().into_data().unwrap(), "message");
    let work = open(&authenticator, WORK, "executor", None).await;
    oracle.forget_rights("eve");
    oracle.forget_user("executor");
    let (denied, after) = watch.ended().await;
    assert_eq!(
        (denied.code(), reason(&denied).as_str(), after),
        (Code::PermissionDenied, "ACCESS_DENIED", AGAIN_EVERY)
    );
    assert!(
        denied.message().contains("\"eve\" may not watch decisions.ownergraph.dev in namespace \"shop\""),
        "{denied:?}"
    );
    let (unknown, after) = work.ended().await;
    assert_eq!(
        (unknown.code(), reason(&unknown).as_str(), after),
        (Code::Unauthenticated, "CREDENTIALS_INVALID", AGAIN_EVERY)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_outlives_a_short_silence_of_the_api_server_and_not_a_long_one() {
    let oracle = Oracle::default().knows("eve").shows("eve", "shop");
    let authenticator = oracle.authenticator();
    let mut watch = open(&authenticator, WATCH, "eve", Some("shop")).await;
    oracle.silence(true);
    let silent = tokio::time::timeout(AGAIN_EVERY + SILENT_FOR / 2, watch.body.frame()).await;
    assert!(silent.is_err(), "{silent:?}");
    oracle.silence(false);
    let heard = tokio::time::timeout(AGAIN_EVERY, watch.body.frame()).await;
    assert!(heard.is_err(), "{heard:?}");
    oracle.silence(true);
    let (status, after) = watch.ended().await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "REVIEW_UNAVAILABLE"));
    let latest = 3 * AGAIN_EVERY + 2 * SILENT_FOR + 2 * AGAIN_SOON;
    assert!(after > 2 * AGAIN_EVERY + SILENT_FOR && after < latest, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_certificate_it_came_by() {
    let authenticator = Oracle::default().allows("executor", "lease", "workitems", "").authenticator();
    let not_after = Instant::now() + Duration::from_secs(90);
    let certificate = PeerCertificate { user: "executor".to_owned(), groups: Vec::new(), not_after };
    let work = open_by(&authenticator, WORK, None, link(Peer::Tls(Some(Arc::new(certificate))), false), None).await;
    let (ended, after) = work.ended().await;
    assert_eq!((ended.code(), reason(&ended).as_str()), (Code::Unauthenticated, "CREDENTIALS_INVALID"));
    assert!(after >= Duration::from_secs(90) && after < Duration::from_secs(90) + AGAIN_SOON, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn pipes_of_this_process_need_nothing() {
    let authenticator = Oracle::default().authenticator();
    let mut work = open_by(&authenticator, WORK, None, link(Peer::Plaintext, true), Some("anywhere")).await;
    assert!(tokio::time::timeout(2 * AGAIN_EVERY, work.body.frame()).await.is_err());
}
