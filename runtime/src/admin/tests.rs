use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::tasks::Jobs;

/// A service that is healthy until the test changes that.
#[derive(Default)]
struct Patient {
    ill: AtomicBool,
    no_graph: bool,
}

impl Probe for Patient {
    fn livez(&self) -> Result<(), String> {
        if self.ill.load(Ordering::Relaxed) { Err("the driver has not moved for 60 s".to_owned()) } else { Ok(()) }
    }

    fn readyz(&self) -> Readiness {
        let ready = !self.ill.load(Ordering::Relaxed);
        Readiness { ready, lines: vec!["pods synced".to_owned(), "nodes listing".to_owned()] }
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("leases", "Leases granted", counter);
        encode(&registry)
    }

    fn debug_graph(&self, uids: Vec<String>) -> Option<Result<String, String>> {
        if self.no_graph {
            None
        } else if uids.iter().any(|uid| uid == "nobody") {
            Some(Err("no object has the uid nobody".to_owned()))
        } else {
            Some(Ok(format!("digraph {{ {} }}", uids.join(" "))))
        }
    }
}

async fn ask(probe: Patient, method: Method, path: &str) -> (u16, String, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let answer = router(Arc::new(probe)).oneshot(request).await.unwrap();
    let content_type = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, content_type, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn routes() {
    let well = Patient::default;
    let ill = || Patient { ill: true.into(), ..Patient::default() };
    let no_graph = || Patient { no_graph: true, ..Patient::default() };
    let many = format!("/debug/graph?{}", "uid=a&".repeat(UIDS_MAX + 1));
    let cases: Vec<(Patient, &str, u16, &str, &str)> = vec![
        (well(), "/livez", 200, TEXT, "ok\n"),
        (ill(), "/livez", 503, TEXT, "the driver has not moved for 60 s\n"),
        (well(), "/readyz", 200, TEXT, "ok\n"),
        (well(), "/readyz?verbose", 200, TEXT, "pods synced\nnodes listing\nok\n"),
        (well(), "/readyz?verbose=true", 200, TEXT, "pods synced\nnodes listing\nok\n"),
        (ill(), "/readyz", 503, TEXT, "pods synced\nnodes listing\nnot ready\n"),
        (
            well(),
            "/metrics",
            200,
            PROMETHEUS_TEXT,
            "# HELP leases_total Leases granted.\n# TYPE leases_total counter\nleases_total 1\n",
        ),
        (well(), "/debug/graph", 200, GRAPHVIZ, "digraph {  }"),
        (well(), "/debug/graph?uid=a&uid=b%20c&x=y", 200, GRAPHVIZ, "digraph { a b c }"),
        (well(), "/debug/graph?uid=nobody", 404, TEXT, "no object has the uid nobody\n"),
        (well(), &many, 400, TEXT, "the request has 101 uids; at most 100 are allowed\n"),
        (no_graph(), "/debug/graph", 404, TEXT, "this service has no graph; ask the graph service\n"),
        (well(), "/", 404, TEXT, "not found; the paths are /livez, /readyz, /metrics and /debug/graph\n"),
        (well(), "/livez/", 404, TEXT, "not found; the paths are /livez, /readyz, /metrics and /debug/graph\n"),
    ];
    for (probe, path, status, content_type, body) in cases {
        let expected = (status, content_type.to_owned(), body.to_owned());
        assert_eq!(ask(probe, Method::GET, path).await, expected, "{path}");
    }
    assert_eq!(ask(well(), Method::POST, "/livez").await.0, 405);
}

#[tokio::test]
async fn openmetrics_is_for_those_who_ask_for_it() {
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let request = Request::builder().uri("/metrics").header(ACCEPT, accept).body(Body::empty()).unwrap();
    let answer = router(Arc::new(Patient::default())).oneshot(request).await.unwrap();
    assert_eq!(answer.headers()[CONTENT_TYPE], OPENMETRICS);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "# HELP leases Leases granted.\n# TYPE leases counter\nleases_total 1\n# EOF\n");
}

#[tokio::test]
async fn one_request_per_connection_and_none_with_a_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server: Jobs<(), ()> = Jobs::new(1);
    server.spawn((), async move { serve(listener, Arc::new(Patient::default())).await.unwrap() });
    for (request, first_line) in [
        ("GET /livez HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK"),
        ("GET /livez HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody", "HTTP/1.1 413 Payload Too Large"),
        ("garbage\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.lines().next().unwrap(), first_line);
    }
}
