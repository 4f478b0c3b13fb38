//! The API server as a caller with few rights can list it. A list or watch of all namespaces that is refused is sent
//! again for one namespace, in which a user of a shared cluster usually has rights.

use super::naming::Catalogue;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube_api::path::KUBE_SYSTEM;
use kube_api::{Cluster, media};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Stands for the uid of a cluster whose namespace kube-system cannot be read. Nothing in a graph depends on it.
const UNREADABLE: &str = "unreadable";

/// The collections that were listed in one namespace only.
#[derive(Clone, Debug, Default)]
pub(super) struct Narrowed(Arc<Mutex<BTreeSet<String>>>);

impl Narrowed {
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The same cluster, whose collections are read in `namespace` where reads of all namespaces are refused.
pub(super) fn narrowed(cluster: &Cluster, catalogue: &Catalogue, namespace: &str) -> (Cluster, Narrowed) {
    let of_all = catalogue.0.iter().filter(|served| served.namespaced);
    let places = of_all.map(|served| (served.collection(""), served.collection(namespace)));
    let places: Arc<BTreeMap<String, String>> = Arc::new(places.collect());
    let (client, narrowed) = (cluster.client.clone(), Narrowed::default());
    let met = narrowed.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, met) = (client.clone(), met.clone());
        let again = again(&request, &places);
        let identifies = request.method() == Method::GET && request.uri().path() == KUBE_SYSTEM;
        let path = request.uri().path().to_owned();
        async move {
            let answer = client.send(request).await?;
            if answer.status() != StatusCode::FORBIDDEN {
                return Ok(answer);
            }
            if identifies {
                return Ok(identity());
            }
            let Some(again) = again else { return Ok(answer) };
            let within = client.send(again).await?;
            if within.status().is_success() {
                met.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
            }
            Ok::<_, kube::Error>(within)
        }
    });
    let namespace = cluster.client.default_namespace().to_owned();
    (cluster.clone().through(Client::new(service, namespace)), narrowed)
}

/// The read of one namespace, for a read of a collection in all namespaces.
fn again(request: &Request<Body>, places: &BTreeMap<String, String>) -> Option<Request<Body>> {
    let place = places.get(request.uri().path()).filter(|_| request.method() == Method::GET)?;
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut again = Request::get(format!("{place}{query}")).body(Body::empty()).ok()?;
    again.headers_mut().clone_from(request.headers());
    Some(again)
}

fn identity() -> Response<Body> {
    let metadata = json!({ "name": "kube-system", "uid": UNREADABLE });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    let mut answer = Response::new(Body::from(object.to_string().into_bytes()));
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(media::JSON));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_all_namespaces_is_sent_again_for_one() {
        let places = BTreeMap::from([("/api/v1/pods".to_owned(), "/api/v1/namespaces/shop/pods".to_owned())]);
        let request =
            |method: Method, uri: &str| Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let uri = |request| again(&request, &places).map(|again| again.uri().to_string());
        let watch = request(Method::GET, "/api/v1/pods?watch=true&resourceVersion=7");
        let expected = "/api/v1/namespaces/shop/pods?watch=true&resourceVersion=7";
        assert_eq!(uri(watch).as_deref(), Some(expected));
        for (method, other) in [(Method::DELETE, "/api/v1/pods"), (Method::GET, "/api/v1/nodes")] {
            assert_eq!(uri(request(method, other)), None, "{other}");
        }
    }
}
