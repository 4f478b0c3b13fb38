//! Requests to the API server, by verb and code.

use super::Labels;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use runtime::metrics::{Book, Label};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "other"];
/// The codes with a label of their own.
const CODES: [&str; 19] = [
    "200", "201", "202", "400", "401", "403", "404", "406", "409", "410", "415", "422", "429", "500", "502", "503",
    "504", "other", "none",
];

/// Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Family<Labels<2>, Counter>);

impl Requests {
    pub(super) fn register(book: &mut Book<'_>) -> Requests {
        Requests(book.put(
            "ownergraph_api_requests",
            [Label::of("verb", VERBS), Label::of("code", CODES)],
            (
                "Requests of the graph service to the API server, by verb and code; `code` is `none` without an answer",
                "Lists and watches, questions, the election Lease, events. Executors count the requests of collection.",
            ),
            Family::default(),
        ))
    }

    fn count(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or("none", |code| {
            let known = |text: &&&str| text.parse() == Ok(code);
            CODES.iter().find(known).copied().unwrap_or("other")
        });
        self.0.get_or_create(&[("verb", verb), ("code", code)]).inc();
    }
}

/// The client, with its requests counted.
pub(crate) fn counted(client: Client, requests: &Requests) -> Client {
    let namespace = client.default_namespace().to_owned();
    let requests = requests.clone();
    let counting = tower::service_fn(move |request: Request<Body>| {
        let (client, requests) = (client.clone(), requests.clone());
        let verb = verb(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        async move {
            let answer: Result<Response<Body>, kube::Error> = client.send(request).await;
            requests.count(verb, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
        }
    });
    Client::new(counting, namespace)
}

/// The verb of a request in the API server's rules.
fn verb(method: &Method, path: &str, query: &str) -> &'static str {
    match *method {
        Method::GET if query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")) => "watch",
        Method::GET if is_collection(path) => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn is_collection(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let before_version = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        Some(_) | None => return false,
    };
    let rest: Vec<&str> = parts.collect();
    match rest.get(before_version..) {
        Some(["namespaces", _, _]) | Some([_]) => true,
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_verbs_of_rules() {
        let get = |path: &str, query: &str| verb(&Method::GET, path, query);
        assert_eq!(get("/api/v1/pods", "limit=500"), "list");
        assert_eq!(get("/api/v1/pods", "allowWatchBookmarks=true&watch=true"), "watch");
        assert_eq!(get("/apis/apps/v1/namespaces/a/deployments", ""), "list");
        assert_eq!(get("/apis/apps/v1/namespaces/a/deployments/b", ""), "get");
        assert_eq!(get("/api/v1/namespaces", ""), "list");
        assert_eq!(get("/api/v1/namespaces/kube-system", ""), "get");
        for discovery in ["/api", "/apis", "/api/v1", "/apis/apps/v1", "/version"] {
            assert_eq!(get(discovery, ""), "get", "{discovery}");
        }
        assert_eq!(verb(&Method::POST, "/api/v1/namespaces/a/events", ""), "create");
    }

    #[tokio::test]
    async fn answers_are_counted_and_passed_on() {
        let mut registry = prometheus_client::registry::Registry::default();
        let requests = Requests::register(&mut Book::new(&mut registry));
        let server = tower::service_fn(|_request: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::builder().status(418).body(Body::empty()).expect("an answer"))
        });
        let client = counted(Client::new(server, "default"), &requests);
        let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
        assert_eq!(client.send(request).await.unwrap().status(), 418);
        let text = runtime::admin::encode(&registry);
        assert!(text.contains("ownergraph_api_requests_total{verb=\"list\",code=\"other\"} 1\n"), "{text}");
    }
}
