//! The console as its page meets it: the program serves it, in front of a collector on a sandbox.

use crate::containers::{define, make};
use crate::process::{Http, Running, output, ownergraph, plugin, until};
use crate::questions::World;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{Method, Request, StatusCode};
use kube_api::Answer;
use serde_json::{Value, json};

/// A console, and what its page knows.
struct Console {
    process: Running,
    address: String,
    token: String,
    http: Http,
}

impl Console {
    async fn of(mut process: Running) -> Console {
        let link = process.said("#token=").await;
        let (address, token) = link.strip_prefix("http://").and_then(|link| link.split_once("/#token=")).unwrap();
        let http = Http::at(address);
        // As the page does with its address.
        let ticket = Request::post("/console/open").header("x-ownergraph-token", token);
        let opened = http.exchange(ticket.body(Vec::new()).unwrap()).await;
        let opened: Value = serde_json::from_slice(&opened.body).unwrap();
        let (address, token) = (address.to_owned(), opened["token"].as_str().unwrap().to_owned());
        Console { process, address, token, http }
    }

    async fn start(world: &World, more: &[&str]) -> Console {
        let way = ["--no-browser", "--kubeconfig", &world.cluster.kubeconfig, "--server", &world.server];
        Console::of(Running::of(plugin(&[&["console"], &way[..], more].concat()))).await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let own = format!("http://{}", self.address);
        Request::builder().method(method).uri(path).header("x-ownergraph-token", &self.token).header(ORIGIN, own)
    }

    async fn get(&self, path: &str) -> Answer {
        self.http.exchange(self.request(Method::GET, path).body(Vec::new()).unwrap()).await
    }

    async fn session(&self) -> Value {
        serde_json::from_slice(&self.get("/console/session").await.body).unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.request(Method::POST, path).body(body.to_string().into_bytes()).unwrap();
        let answer = self.http.exchange(request).await;
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap())
    }

    /// Calls a method with an empty message, and gives the answer with its trailers.
    async fn call(&self, method: &str) -> Answer {
        let request = self.request(Method::POST, &format!("/ownergraph.{method}"));
        let request = request.header(CONTENT_TYPE, "application/grpc-web+proto").body(vec![0; 5]).unwrap();
        self.http.exchange(request).await
    }
}

fn deletion(name: &str, uid: &Value, digest: &str) -> Value {
    json!({
        "group": "", "version": "v1", "resource": "configmaps", "namespace": "default", "name": name, "uid": uid,
        "policy": "Background", "digest": digest,
    })
}

async fn digest(world: &World, object: &str) -> String {
    let plan = world.ask(&["plan", "delete", object]).await;
    plan.stdout.lines().find_map(|line| line.strip_prefix("digest ")).unwrap().to_owned()
}

#[tokio::test]
async fn the_page_asks_and_deletes_with_the_credentials_of_the_command_line() {
    let world = World::with("enforce").await;
    let console = Console::start(&world, &[]).await;
    let page = console.get("/").await;
    assert!(page.content_type.starts_with("text/html"), "{page:?}");

    let session = console.session().await;
    assert_eq!(session["user"], "system:anonymous");
    assert_eq!(session["canWrite"], true);
    assert_eq!(session["service"], json!({ "address": world.server, "mode": "service" }));
    assert!(session["time"].as_str().unwrap().ends_with('Z'), "{session}");
    let asked = json!({ "verb": "delete", "group": "", "resource": "configmaps", "namespace": "default", "name": "" });
    assert_eq!(console.post("/console/access", asked).await, (200, json!({ "allowed": true, "reason": "" })));

    let status = console.call("admin.v1beta1.AdminService/GetStatus").await;
    assert_eq!((status.status, status.content_type.as_str()), (StatusCode::OK, "application/grpc-web+proto"));
    let text = String::from_utf8_lossy(&status.body);
    assert!(text.contains("grpc-status:0"), "{text}");

    let uid = world.api().get("root").await.unwrap()["metadata"]["uid"].take();
    let shown = digest(&world, "cm/root").await;
    let (code, said) = console.post("/console/delete", deletion("root", &uid, "0123456789abcdef")).await;
    assert_eq!((code, &said["digest"], &said["currentDigest"]), (409, &json!("0123456789abcdef"), &json!(shown)));
    assert!(said["error"].as_str().unwrap().contains("nothing was deleted"), "{said}");
    let other = json!("6f1c2d1e-0000-0000-0000-000000000000");
    for (name, uid, code, part) in [
        ("root", &other, 409, "is another object now"),
        ("none", &uid, 409, "does not exist"),
        ("../root", &uid, 400, "are not the namespace and the name"),
    ] {
        let (is, said) = console.post("/console/delete", deletion(name, uid, &shown)).await;
        assert!(is == code && said["error"].as_str().unwrap().contains(part), "{name}: {is} {said}");
    }
    let mut unknown = deletion("root", &uid, &shown);
    unknown["version"] = json!("v9");
    assert_eq!(console.post("/console/delete", unknown).await.0, 400);
    assert!(world.api().get("root").await.is_some());

    let deleted = console.post("/console/delete", deletion("root", &uid, &shown)).await;
    assert_eq!(deleted, (200, json!({ "accepted": true })));
    for name in ["root", "first", "leaf"] {
        until("the cascade is collected", async || world.api().get(name).await.is_none()).await;
    }
    assert_eq!(console.process.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn the_page_creates_releases_and_approves_guards() {
    let world = World::with("enforce").await;
    define(&world).await;
    let console = Console::start(&world, &[]).await;
    let pause = json!({ "namespaces": ["default"], "kinds": ["configmaps"], "reason": "why", "lifetimeSeconds": 600 });
    let (code, made) = console.post("/console/guards/pause", pause.clone()).await;
    assert_eq!(code, 200, "{made}");
    let name = made["name"].as_str().unwrap();
    assert!(name.starts_with("pauses/"), "{made}");
    for (field, value, part) in [
        ("kinds", json!(["No Kind"]), "is no kind"),
        ("lifetimeSeconds", json!(90_000), "to 24h"),
        ("lifetimeSeconds", json!(-1), "not what the path takes"),
        ("reason", json!(""), "reason"),
    ] {
        let mut wrong = pause.clone();
        wrong[field] = value;
        let (code, said) = console.post("/console/guards/pause", wrong).await;
        assert!(code == 400 && said["error"].as_str().unwrap().contains(part), "{field}: {code} {said}");
    }
    let released = console.post("/console/guards/release", json!({ "name": name })).await;
    assert_eq!(released.0, 200, "{released:?}");
    assert!(!world.ask(&["status"]).await.stdout.contains(name.trim_start_matches("pauses/")));
    let uid = world.api().get("root").await.unwrap()["metadata"]["uid"].take();
    let owner = json!({ "group": "", "resource": "configmaps", "namespace": "default", "name": "root", "uid": uid });
    let mut cascade = pause.clone();
    (cascade["namespaces"], cascade["kinds"], cascade["owner"]) = (json!([]), json!([]), owner);
    let (code, below) = console.post("/console/guards/pause", cascade.clone()).await;
    assert_eq!(code, 200, "{below}");
    let status = world.ask(&["status"]).await.stdout;
    assert!(status.contains("below configmaps default/root"), "{status}");
    until("the cascade is paused", async || world.ask(&["plan", "delete", "cm/root"]).await.stdout.contains("held"))
        .await;
    let shown = digest(&world, "cm/root").await;
    let (code, said) = console.post("/console/delete", deletion("root", &cascade["owner"]["uid"], &shown)).await;
    assert!(code == 409 && said["error"].as_str().unwrap().ends_with("held; nothing was deleted"), "{code} {said}");
    let released = console.post("/console/guards/release", json!({ "name": below["name"] })).await;
    assert_eq!(released.0, 200, "{released:?}");
    cascade["owner"]["uid"] = json!("another");
    let (_, said) = console.post("/console/guards/pause", cascade).await;
    assert!(said["error"].as_str().unwrap().contains("does not exist"), "{said}");
    assert_eq!(console.post("/console/guards/release", json!({ "name": "pods/a" })).await.0, 400);

    let spec = json!({ "reason": "ask", "scope": { "targets": [{ "names": ["first"] }] }, "moreThan": 0 });
    let metadata = json!({ "name": "large" });
    let approval =
        json!({ "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Approval", "metadata": metadata, "spec": spec });
    make(world.api(), "/apis/ownergraph.dev/v1alpha1/approvals", approval).await;
    until("the approval is known", async || world.ask(&["status"]).await.stdout.contains("approval/large")).await;
    world.api().delete("root").await;
    let mut waiting = Value::Null;
    until("the cascade waits", async || {
        let listed: Value = serde_json::from_str(&world.ask(&["approve", "-o", "json"]).await.stdout).unwrap();
        waiting = listed["items"][0].clone();
        waiting["digest"].as_str().is_some_and(|digest| !digest.is_empty())
    })
    .await;
    let root = json!({ "group": "", "kind": "ConfigMap", "namespace": "default", "name": "root" });
    let consent = |approval: &str, digest: &Value| json!({ "approval": approval, "root": root, "digest": digest });
    for wrong in [consent("approvals/large", &json!("00")), consent("approvals/other", &waiting["digest"])] {
        let (code, said) = console.post("/console/guards/approve", wrong).await;
        assert!(code == 409 && said["error"].as_str().unwrap().contains("nothing was approved"), "{code} {said}");
    }
    let (code, said) = console.post("/console/guards/approve", consent("approvals/large", &waiting["digest"])).await;
    assert_eq!(code, 200, "{said}");
    until("the approved cascade is collected", async || world.api().get("leaf").await.is_none()).await;
}

#[tokio::test]
async fn the_page_creates_guards_from_manifests() {
    let world = World::with("enforce").await;
    define(&world).await;
    let console = Console::start(&world, &[]).await;
    let gate = "kind: Gate\nmetadata: {name: g}\nspec:\n  reason: ask\n  stream: {}\n  failurePolicy: Deny\n";
    let gate = format!("apiVersion: ownergraph.dev/v1alpha1\n{gate}  maxHoldSeconds: 60\n  afterMaxHold: Deny\n");
    let create = |dry: bool| console.post("/console/guards/create", json!({ "manifest": gate, "dryRun": dry }));
    let is_there = async || world.ask(&["status"]).await.stdout.contains("gate/g");
    let made = (200, json!({ "name": "gates/g" }));
    assert_eq!(create(true).await, made);
    assert_eq!(world.ask(&["gates", "-o", "name"]).await.stdout, "", "a dry run creates nothing");
    assert_eq!(create(false).await, made);
    until("the gate is known", is_there).await;
    let (code, said) = create(false).await;
    assert!(code == 502 && said["error"].as_str().unwrap().contains("already exists"), "{code} {said}");
    let bypass = json!({ "name": "gates/g", "lifetimeSeconds": 600, "reason": "it hangs" });
    let (code, said) = console.post("/console/guards/release", bypass).await;
    assert_eq!((code, said), (200, json!({ "done": "gate/g bypassed for 10m" })));
    until("the gate is bypassed", async || world.ask(&["gates", "-o", "wide"]).await.stdout.contains("it hangs")).await;
}

#[tokio::test]
async fn without_a_graph_service_and_from_a_file_the_page_only_reads() {
    let world = World::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("world.zst");
    let path = path.to_str().unwrap();
    assert_eq!(world.ask(&["export", "--snapshot", path]).await.code, Some(0));
    let direct = ["console", "--no-browser", "--direct", "--kubeconfig", &world.cluster.kubeconfig];
    for (flags, mode) in [(&direct[..], "direct"), (&["console", "--no-browser", "--from-file", path], "snapshot")] {
        let console = Console::of(Running::of(plugin(flags))).await;
        let session = console.session().await;
        assert_eq!((&session["canWrite"], &session["service"]["mode"]), (&json!(false), &json!(mode)), "{session}");
        let (code, said) = console.post("/console/guards/release", json!({ "name": "pauses/a" })).await;
        assert!(code == 403 && said["error"].as_str().unwrap().contains("only reads"), "{said}");
        let seen = console.call("graph.v1beta1.GraphService/ListCoverage").await;
        assert!(String::from_utf8_lossy(&seen.body).contains("grpc-status:0"), "{seen:?}");
    }
}

#[tokio::test]
async fn a_port_that_is_in_use_or_a_service_that_does_not_answer_ends_the_command() {
    let world = World::start().await;
    let console = Console::start(&world, &[]).await;
    let port = console.address.rsplit_once(':').unwrap().1;
    let second = world.ask(&["console", "--no-browser", "--port", port]).await;
    assert!(second.code == Some(1) && second.stderr.contains("cannot listen on --port"), "{}", second.stderr);
    let nowhere = ["console", "--no-browser", "--server", "127.0.0.1:1", "--kubeconfig", &world.cluster.kubeconfig];
    let nowhere = output(&mut plugin(&nowhere)).await;
    assert!(nowhere.status.code() == Some(1) && nowhere.stdout.is_empty(), "{nowhere:?}");
}

#[tokio::test]
async fn the_demo_and_the_sandbox_serve_a_console_until_they_are_stopped() {
    let mut demo =
        Console::of(Running::of(ownergraph(&["demo", "--console", "--no-browser", "--objects", "20"]))).await;
    demo.process.said("The console goes on until Ctrl-C").await;
    let session = demo.session().await;
    assert_eq!((&session["service"]["mode"], &session["canWrite"]), (&json!("service"), &json!(true)));
    assert_eq!(demo.process.terminate().await.code(), Some(0));
    let console = Console::of(Running::of(ownergraph(&["sandbox", "--console", "--no-browser"]))).await;
    let session = console.session().await;
    assert_eq!((&session["service"]["mode"], &session["canWrite"]), (&json!("direct"), &json!(false)));
    assert_eq!(console.process.terminate().await.code(), Some(0));
}
