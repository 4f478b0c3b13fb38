//! Guards that the page creates and releases: which requests leave, and whose words come back.

use super::*;
use kube::client::Body as ApiBody;
use std::sync::Mutex;

const CREATE: &str = "/console/guards/create";
const RELEASE: &str = "/console/guards/release";
const PROTECTIONS: &str = "/apis/ownergraph.dev/v1alpha1/protections";
const REFUSED: &str = "Protection.ownergraph.dev \"bad\" is invalid: spec.reason: Required value";

/// The requests that reached the API server: method, path with query, and body.
type Requests = Arc<Mutex<Vec<(Method, String, String)>>>;

/// An API server that accepts and has every object, except one of the name `bad`.
fn api(seen: Requests) -> Client {
    let answered = tower::service_fn(move |request: Request<ApiBody>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
            seen.lock().unwrap().push((head.method, head.uri.to_string(), text.clone()));
            let sent: Value = serde_json::from_str(&text).unwrap_or_default();
            let (status, body) = if sent["metadata"]["name"] == "bad" {
                (422, json!({ "kind": "Status", "apiVersion": "v1", "code": 422, "message": REFUSED }))
            } else {
                let name = sent["metadata"]["name"].as_str().unwrap_or("known").to_owned();
                (200, json!({ "metadata": { "name": name, "uid": "u", "resourceVersion": "1" }, "spec": {} }))
            };
            let body = ApiBody::from(body.to_string().into_bytes());
            let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
            Ok::<_, Infallible>(answer.body(body).unwrap())
        }
    });
    Client::new(answered, "default")
}

async fn bench() -> (Bench, Requests) {
    let seen = Requests::default();
    (Bench::on(api(Arc::clone(&seen)), true).await, seen)
}

impl Bench {
    async fn act(&self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.send(self.request(Method::POST, path), body.to_string()).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap())
    }

    /// The last call of the graph service.
    fn called(&self) -> String {
        let calls = self.calls.lock().unwrap();
        calls.last().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
    }
}

fn manifest(kind: &str, name: &str) -> String {
    format!("apiVersion: ownergraph.dev/v1alpha1\nkind: {kind}\nmetadata:\n  name: {name}\n")
}

#[tokio::test]
async fn a_guard_is_checked_by_the_api_server_and_then_created() {
    let (bench, seen) = bench().await;
    let text = manifest("Protection", "keep");
    for (dry_run, options) in [(true, "&fieldValidation=Strict&dryRun=All"), (false, "&fieldValidation=Strict")] {
        let told = bench.act(CREATE, json!({ "manifest": text, "dryRun": dry_run })).await;
        assert_eq!(told, (200, json!({ "name": "protections/keep" })));
        let (method, uri, body) = seen.lock().unwrap().pop().unwrap();
        assert_eq!((method, uri), (Method::POST, format!("{PROTECTIONS}?fieldManager=kubectl-ownergraph{options}")));
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["metadata"], json!({ "name": "keep" }));
    }
    let (status, told) = bench.act(CREATE, json!({ "manifest": manifest("Protection", "bad"), "dryRun": true })).await;
    assert!(status == 502 && told["error"].as_str().unwrap().contains(REFUSED), "{status} {told}");
    let requests = seen.lock().unwrap().len();
    for (text, part) in [
        (manifest("Pause", "now"), "one of Protection, Budget, Approval, Gate"),
        (manifest("Protection", "keep").replace("ownergraph.dev/v1alpha1", "v1"), "must have ownergraph.dev/v1alpha1"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n".to_owned(), "kind \"Secret\""),
        ("x".repeat(400_000), "more than 327680 bytes"),
    ] {
        let (status, told) = bench.act(CREATE, json!({ "manifest": text, "dryRun": false })).await;
        assert!(status == 400 && told["error"].as_str().unwrap().contains(part), "{status} {told}");
    }
    assert_eq!(bench.act(CREATE, json!({ "manifest": text })).await.0, 400, "it says whether it only checks");
    assert_eq!(seen.lock().unwrap().len(), requests, "what is no guard of a person does not leave");
}

/// The right to update pauses and gates is enough: the graph service writes them.
#[tokio::test]
async fn pauses_and_gates_are_released_by_the_graph_service() {
    let (bench, seen) = bench().await;
    let told = bench.act(RELEASE, json!({ "name": "pauses/a" })).await;
    assert_eq!((told, &*bench.called()), ((200, json!({ "done": "pause/a deleted" })), "ResumeCollection"));
    let bypass = json!({ "name": "gates/b", "lifetimeSeconds": 600, "reason": "it hangs" });
    let told = bench.act(RELEASE, bypass).await;
    assert_eq!((told, &*bench.called()), ((200, json!({ "done": "gate/b bypassed for 10m" })), "BypassGate"));
    let left = seen.lock().unwrap().clone();
    assert!(left.iter().all(|(_, uri, _)| !uri.contains("/apis/ownergraph.dev/")), "{left:?}");
}

#[tokio::test]
async fn that_mode_observe_changes_no_guards_is_told() {
    let (bench, _) = bench().await;
    let pause = json!({ "namespaces": ["a"], "kinds": [], "reason": "r", "lifetimeSeconds": 60 });
    let told = bench.act("/console/guards/pause", pause).await;
    assert_eq!(told, (409, json!({ "error": "mode observe creates and changes no guards" })));
}

/// The graph service has no calls for them: the caller needs the rights of these requests.
#[tokio::test]
async fn protections_and_budgets_are_released_at_the_api_server() {
    let (bench, seen) = bench().await;
    for (name, method) in [("protections/a", Method::DELETE), ("budgets/b", Method::PATCH)] {
        seen.lock().unwrap().clear();
        let (status, told) = bench.act(RELEASE, json!({ "name": name })).await;
        assert_eq!(status, 200, "{name}: {told}");
        let left = seen.lock().unwrap().clone();
        let methods: Vec<&Method> =
            left.iter().filter(|(_, uri, _)| uri.contains(&format!("/{name}"))).map(|(method, ..)| method).collect();
        assert_eq!(methods, [&Method::GET, &method], "{left:?}");
    }
}
