use std::convert::Infallible;

use http::Response;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use kube::client::Body;

use super::*;

fn cluster(status: u16, body: &'static str) -> Cluster {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/kube-system");
        assert!(request.headers().get(ACCEPT_ENCODING).is_none());
        let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        Ok::<_, Infallible>(answer.body(Body::from(body.as_bytes().to_vec())).unwrap())
    });
    Cluster::of_client(Client::new(service, "default"), "memory")
}

#[tokio::test]
async fn the_cluster_is_known_by_its_uid_or_the_reason_is_told() {
    let good = cluster(200, r#"{"kind":"PartialObjectMetadata","metadata":{"name":"kube-system","uid":"u-1"}}"#);
    assert_eq!(cluster_uid(&good.another_client().unwrap()).await.unwrap(), "u-1");
    for (status, body, sentence) in [
        (
            403,
            r#"{"kind":"Status","apiVersion":"v1","message":"namespaces is forbidden","reason":"Forbidden","code":403}"#,
            "the API server answers 403 to a read of namespace kube-system: namespaces is forbidden; these credentials need the right to get the namespace",
        ),
        (
            401,
            "no",
            "the API server answers 401 to a read of namespace kube-system: no explanation (application/json); it refuses these credentials",
        ),
        (200, r#"{"metadata":{}}"#, "the API server's namespace kube-system has no uid"),
        (200, "garbage", "the API server's namespace kube-system has no uid"),
    ] {
        assert_eq!(cluster_uid(&cluster(status, body).client).await.unwrap_err().to_string(), sentence);
    }
}

#[tokio::test]
async fn clients_are_independent_and_a_bad_user_agent_is_named() {
    let cluster = Cluster::without_credentials("http://127.0.0.1:1".parse().unwrap()).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.url.as_str()), ("anonymous", "http://127.0.0.1:1/"));
    cluster.another_client().unwrap();
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    let error = Cluster::build(Found::of(config), "line\nbreak").unwrap_err();
    assert_eq!(error.to_string(), "the user agent \"line\\nbreak\" is not usable: it is not a valid header value");
}

#[tokio::test]
async fn credentials_of_others_are_not_kept() {
    let url: Uri = "http://127.0.0.1:1".parse().unwrap();
    let mut own = Config::new(url.clone());
    own.auth_info.token = Some("own".to_owned().into());
    for (config, kept) in [(own, Some("Bearer own")), (Config::new(url), None)] {
        let (client, shown) = build_client(&config, None, Protocol::Http1).unwrap();
        let request = Request::get("/version").header(AUTHORIZATION, "Bearer other").body(Body::empty()).unwrap();
        client.send(request).await.unwrap_err();
        let noted = shown.authorization().lock().unwrap().clone();
        assert_eq!(noted.as_ref().map(|header| header.to_str().unwrap()), kept);
    }
}

#[test]
fn a_certificate_that_is_not_verified_is_logged_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_writer(Arc::new(file.reopen().unwrap())).finish();
    let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
    config.accept_invalid_certs = true;
    subscriber::with_default(lines, || {
        for _ in 0..3 {
            // The client's buffer needs a runtime.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { build_client(&config, None, Protocol::Http1).map(|_| ()) }).unwrap();
        }
    });
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("the certificate of the API server is not verified"), "{text}");
}
