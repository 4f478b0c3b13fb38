//! When the graph service is searched again.

use super::*;
use crate::kubectl::console::backend::AGAIN_AFTER;
use crate::kubectl::console::calls::forward;
use proto::decision::v1beta1::ListDecisionsRequest;
use sandbox::{RequestCount, Server};

/// Lets the time pass after which another attempt is allowed.
async fn pause() {
    tokio::time::pause();
    tokio::time::advance(AGAIN_AFTER).await;
    tokio::time::resume();
}

/// An API server in memory, and the cluster that it is.
async fn api() -> (Server, Cluster, JoinSet<()>) {
    let (server, mut served) = (Server::new(1), JoinSet::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let serving = server.clone();
    served.spawn(async move { serving.serve(listener, std::future::pending()).await.unwrap() });
    (server, Cluster::without_credentials(url).unwrap(), served)
}

fn lists(server: &Server) -> u64 {
    let is_list = |of: &RequestCount| matches!(of.verb, "LIST" | "WATCH");
    server.requests().into_iter().filter(|(of, _)| is_list(of)).map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_service_that_is_not_the_one_to_ask_is_searched_again_after_a_pause() {
    let bench = Bench::new(true).await;
    let connections = || bench.connections.load(Ordering::Relaxed);
    bench.send(bench.call(CALL), "").await;
    assert_eq!(connections(), 1);
    let elsewhere = bench.send(bench.call(ELSEWHERE), "").await;
    assert_eq!(elsewhere.headers()["grpc-status"], "14");
    bench.send(bench.call(CALL), "").await;
    assert_eq!(connections(), 1, "one attempt in {AGAIN_AFTER:?}");
    pause().await;
    for _ in 0..2 {
        let again = bench.send(bench.call(CALL), "").await;
        assert_eq!(again.headers().get("grpc-status"), None);
        assert_eq!(connections(), 2);
    }
}

#[tokio::test]
async fn the_time_limit_of_one_call_ends_the_connection_of_no_other() {
    let bench = Bench::new(true).await;
    bench.send(bench.call(CALL), "").await;
    let late = bench.send(bench.call(SILENT).header("grpc-timeout", "1n"), "").await;
    assert_eq!(late.headers()["grpc-status"], "4");
    pause().await;
    bench.send(bench.call(CALL), "").await;
    assert_eq!(bench.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_service_that_is_behind_is_not_left() {
    let bench = Bench::new(true).await;
    for _ in 0..3 {
        let behind = bench.send(bench.call(BEHIND), "").await;
        assert_eq!(behind.headers()["grpc-status"], "14");
        pause().await;
        bench.send(bench.call(CALL), "").await;
    }
    assert_eq!(bench.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_console_that_lists_the_cluster_itself_lists_it_once() {
    let (server, cluster, _served) = api().await;
    let backend = Backend::new(session(cluster, Connection::direct()), true);
    let mut service = backend.service().await.unwrap();
    let before = lists(&server);
    assert!(before > 0 && service.is_direct());
    // Nothing leads in this process.
    let refused = service.decisions.list_decisions(ListDecisionsRequest::default()).await.unwrap_err();
    assert_eq!(crate::remote::reason(&refused), Some(ErrorReason::NoLeader));
    let backend = Arc::new(backend);
    for _ in 0..2 {
        let path = "/ownergraph.decision.v1beta1.DecisionService/ListDecisions";
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, "application/grpc-web+proto".parse().unwrap())]);
        let answer = forward(Arc::clone(&backend), path, &headers, Bytes::from_static(&[0; 5])).await;
        assert_eq!(answer.headers()["grpc-status"], "14");
        pause().await;
    }
    assert!(backend.service().await.unwrap().is_direct());
    assert_eq!(lists(&server), before);
}

#[tokio::test]
async fn a_console_that_began_with_a_service_never_lists_the_cluster_itself() {
    let bench = Bench::new(true).await;
    let (server, cluster, _served) = api().await;
    let mut backend = Backend::new(session(cluster, Connection::to(bench.address)), true);
    assert!(!backend.service().await.unwrap().is_direct());
    let before = lists(&server);
    // The service is away, and no other one is found.
    backend.session.connection.server.clear();
    let call = Request::post(ELSEWHERE).header(CONTENT_TYPE, "application/grpc").version(http::Version::HTTP_2);
    backend.call(call.body(Body::empty()).unwrap()).await.unwrap();
    pause().await;
    let error = backend.service().await.unwrap_err().to_string();
    assert!(error.contains("no ownergraph service"), "{error}");
    assert!(lists(&server) - before <= 1, "the pods alone are listed");
}
