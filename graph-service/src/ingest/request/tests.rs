use super::*;
use http::Response;
use kube::Client;
use kube::client::Body;
use kube_api::media;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Clients of a server that answers `status` to requests that accept protobuf, and an empty list in JSON to others; and
/// the number of requests.
fn refusing(status: u16) -> (Clients, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let wants_protobuf = request.headers()[ACCEPT].to_str().unwrap().contains(media::PROTOBUF);
        let response = Response::builder().header("content-type", "application/json");
        let list = "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}\n";
        async move {
            Ok::<_, Infallible>(match wants_protobuf {
                true => response.status(status).body(Body::empty()).unwrap(),
                false => response.body(Body::from(list.as_bytes().to_vec())).unwrap(),
            })
        }
    });
    let client = Client::new(service, "default");
    (Clients { lists: client.clone(), watches: client.clone(), fresh: client }, asked)
}

#[tokio::test]
async fn a_server_that_refuses_protobuf_is_asked_for_json() {
    for status in [406, 415] {
        let (clients, _) = refusing(status);
        let answer = answer(&clients, "list things", "/things", media::METADATA_LIST_PROTOBUF).await.unwrap();
        assert_eq!(page(&answer).unwrap().resource_version, "7");
        let mut events = stream(&clients, "watch things", "/things", media::METADATA_PROTOBUF).await.unwrap();
        assert_eq!(events.encoding(), Encoding::Json);
        assert!(events.next().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn any_other_refusal_is_final() {
    for status in [400, 403, 404, 410, 429, 500] {
        let (clients, asked) = refusing(status);
        let failure = answer(&clients, "list things", "/things", media::METADATA_LIST_PROTOBUF).await.unwrap_err();
        assert_eq!((failure.status, asked.load(Ordering::Relaxed)), (Some(status), 1));
    }
}

#[test]
fn without_protobuf_there_is_nothing_less_to_ask_for() {
    for accept in [media::METADATA_PROTOBUF, media::METADATA_LIST_PROTOBUF] {
        let json = without_protobuf(accept).unwrap();
        assert!(json.starts_with("application/json;as=PartialObjectMetadata"), "{json}");
        assert_eq!(without_protobuf(json), None);
    }
    assert_eq!(without_protobuf(media::JSON), None);
}
