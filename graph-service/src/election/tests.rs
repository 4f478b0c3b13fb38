use super::{Candidate, Election, LeaseOptions, Validity};
use crate::messages::Control;
use crate::messages::Leadership;
use crate::metrics::Metrics;
use engine::leader::Input;
use engine::work::Term;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use runtime::clock::Clock;
use runtime::metrics::Book;
use runtime::shutdown::Shutdown;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ownergraph";

/// One Lease and its versions.
#[derive(Default)]
struct Store {
    lease: Option<Value>,
    version: u64,
    forbidden: bool,
    /// The watchers of the Lease.
    watchers: Vec<Arc<Notify>>,
}

impl Store {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        if self.forbidden {
            return (StatusCode::FORBIDDEN, failure(403, "Forbidden", "leases is forbidden: no rule"));
        }
        if method == Method::GET {
            assert_eq!(path, PATH);
            return match &self.lease {
                Some(lease) => (StatusCode::OK, lease.clone()),
                None => (StatusCode::NOT_FOUND, failure(404, "NotFound", "not found")),
            };
        }
        let mut written: Value = serde_json::from_slice(body).unwrap();
        let present = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        let wanted = written["metadata"].get("resourceVersion").cloned();
        if present != wanted {
            return (StatusCode::CONFLICT, failure(409, "Conflict", "modified"));
        }
        self.version += 1;
        written["metadata"]["resourceVersion"] = json!(self.version.to_string());
        written["metadata"]["uid"] = json!("lease-uid");
        self.lease = Some(written.clone());
        self.watchers.iter().for_each(|watcher| watcher.notify_one());
        (StatusCode::OK, written)
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"name": "ownergraph", "group": "coordination.k8s.io", "kind": "leases"},
    })
}

fn client(store: &Arc<Mutex<Store>>) -> Client {
    let store = Arc::clone(store);
    let service = tower::service_fn(move |request: Request<Body>| {
        let store = Arc::clone(&store);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let (status, answer) = store.lock().unwrap().answer(&head.method, head.uri.path(), &body);
            let response = Response::builder().status(status).header("content-type", "application/json");
            Ok::<_, std::io::Error>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(service, "default")
}

struct Replica {
    reached: watch::Sender<Option<Term>>,
    orders: mpsc::Receiver<Control>,
    leadership: watch::Receiver<Leadership>,
    release: Shutdown,
    validity: Validity,
    election: Election,
}

fn replica(name: &str, store: &Arc<Mutex<Store>>) -> Replica {
    let (control, orders) = mpsc::channel(8);
    let (known, leadership) = watch::channel(Leadership::default());
    let options = LeaseOptions {
        namespace: "kube-system".to_owned(),
        name: "ownergraph".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let (changes, reached) = (Arc::new(Notify::new()), watch::Sender::new(None));
    store.lock().unwrap().watchers.push(Arc::clone(&changes));
    let candidate = Candidate {
        client: client(store),
        options,
        identity: name.to_owned(),
        endpoint: format!("{name}:7450"),
        changes,
        reached: reached.subscribe(),
    };
    let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
    let (validity, clock) = (Validity::default(), Clock::start());
    let election = Election::new(candidate, control, known, validity.clone(), metrics, clock, 1).unwrap();
    Replica { reached, orders, leadership, release: Shutdown::new(), validity, election }
}

/// The next order other than a write notice.
async fn about_terms(orders: &mut mpsc::Receiver<Control>) -> Option<Control> {
    loop {
        match orders.recv().await {
            Some(Control::Input(Input::Wrote { .. })) => {}
            order => return order,
        }
    }
}

/// The address of the leader in the order that ends a term.
fn end_of_term(order: Option<Control>) -> String {
    let Some(Control::Input(Input::TermLost { leader_endpoint })) = order else { panic!("{order:?}") };
    leader_endpoint
}

/// Runs an election beside a story, to the end of both.
async fn beside(election: Election, release: Shutdown, story: impl Future<Output = ()>) {
    let all = async { tokio::join!(election.run(release), story) };
    let (ended, ()) = tokio::time::timeout(Duration::from_secs(600), Box::pin(all)).await.expect("it ends");
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_names_the_replica_that_took_it() {
    let store = Arc::new(Mutex::new(Store::default()));
    let mut old = replica("old", &store);
    let release = old.release.clone();
    let story = async {
        let order = about_terms(&mut old.orders).await;
        assert!(matches!(order, Some(Control::Input(Input::TermGained(_)))), "{order:?}");
        {
            let mut store = store.lock().unwrap();
            store.version += 1;
            let version = json!(store.version.to_string());
            let lease = store.lease.as_mut().unwrap();
            lease["metadata"]["resourceVersion"] = version;
            lease["metadata"]["annotations"][super::lease::ENDPOINT_ANNOTATION] = json!("new:7450");
            lease["spec"]["holderIdentity"] = json!("new");
            lease["spec"]["leaseTransitions"] = json!(7);
        }
        assert_eq!(end_of_term(about_terms(&mut old.orders).await), "new:7450");
        release.request();
        // The driver ends before the election does.
        drop(old.orders);
    };
    beside(old.election, old.release, story).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_in_a_term_that_the_decision_log_has_passed_takes_a_later_one() {
    let store = Arc::new(Mutex::new(Store::default()));
    let mut only = replica("only", &store);
    let release = only.release.clone();
    let story = async {
        let Some(Control::Input(Input::TermGained(term))) = about_terms(&mut only.orders).await else {
            panic!("no term")
        };
        let later = Term { number: term.number + 6, ..term };
        only.reached.send_replace(Some(later.clone()));
        assert_eq!(end_of_term(about_terms(&mut only.orders).await), "");
        let order = about_terms(&mut only.orders).await;
        assert!(
            matches!(&order, Some(Control::Input(Input::TermGained(term))) if term.number == later.number + 1),
            "{order:?}"
        );
        release.request();
        drop(only.orders);
    };
    beside(only.election, only.release, story).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_hands_over_on_release() {
    let store = Arc::new(Mutex::new(Store::default()));
    let mut first = replica("first", &store);
    let mut second = replica("second", &store);
    let (first_release, second_release) = (first.release.clone(), second.release.clone());
    let (first_leads, now_the_second) = tokio::sync::oneshot::channel();
    let story = async {
        let order = first.orders.recv().await;
        let Some(Control::Input(Input::Wrote { collection, resource_version })) = order else { panic!("{order:?}") };
        assert_eq!((&*collection.resource, resource_version.is_ordered()), ("leases", true), "before the term");
        let order = about_terms(&mut first.orders).await;
        let Some(Control::Input(Input::TermGained(term))) = order else { panic!("{order:?}") };
        assert_eq!((&*term.election, term.number), ("lease-uid", 1));
        first_leads.send(()).unwrap();
        let holder = |known: &Leadership| known.holder.as_deref() == Some("first");
        let hint = second.leadership.wait_for(holder).await.unwrap().endpoint.clone();
        assert_eq!(hint, "first:7450");
        assert_eq!(end_of_term(about_terms(&mut second.orders).await), "first:7450", "the driver knows the leader");
        let spec = store.lock().unwrap().lease.clone().unwrap()["spec"].clone();
        for stamp in ["acquireTime", "renewTime"] {
            let stamp = spec[stamp].as_str().unwrap();
            assert!(stamp.ends_with('Z') && stamp.len() == "2026-01-02T03:04:05.000000Z".len(), "{stamp}");
        }
        let begun = tokio::time::Instant::now();
        first.release.request();
        let order = about_terms(&mut second.orders).await;
        let Some(Control::Input(Input::TermGained(term))) = order else { panic!("{order:?}") };
        assert_eq!(term.number, 2);
        assert!(
            begun.elapsed() < Duration::from_millis(100),
            "a released Lease is taken at once: {:?}",
            begun.elapsed()
        );
        // The driver ends before the election does.
        drop(second.orders);
        second.release.request();
    };
    let second_election = second.election;
    let second = async {
        now_the_second.await.unwrap();
        second_election.run(second_release).await.unwrap();
    };
    let first = async { first.election.run(first_release).await.unwrap() };
    let all = async { tokio::join!(first, second, story) };
    tokio::time::timeout(Duration::from_secs(600), Box::pin(all)).await.expect("it ends");
    assert_eq!(store.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_may_not_be_used_is_a_visible_problem_until_it_may() {
    let store = Arc::new(Mutex::new(Store { forbidden: true, ..Store::default() }));
    let mut one = replica("one", &store);
    let release = one.release.clone();
    let story = async {
        let problem = one.leadership.wait_for(|known| known.problem.is_some()).await.unwrap().problem.clone().unwrap();
        assert!(problem.contains("403") && problem.contains("no rule"), "{problem}");
        store.lock().unwrap().forbidden = false;
        one.leadership.wait_for(|known| known.leading && known.problem.is_none()).await.unwrap();
        store.lock().unwrap().forbidden = true;
        let mut orders = Vec::new();
        while orders.len() < 2 {
            orders.push(about_terms(&mut one.orders).await);
        }
        assert!(matches!(orders[1], Some(Control::Input(Input::TermLost { .. }))), "{orders:?}");
        one.release.request();
    };
    beside(one.election, release, story).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_took_the_term_for_over_is_told_of_it_again_once_the_lease_is_renewed() {
    let store = Arc::new(Mutex::new(Store::default()));
    let mut only = replica("only", &store);
    let release = only.release.clone();
    let story = async {
        let Some(Control::Input(Input::TermGained(term))) = about_terms(&mut only.orders).await else {
            panic!("no term")
        };
        // As if the notice of the last renewal came when the one before expired.
        only.validity.set(Some(engine::time::Time::ZERO), Clock::start());
        let order = tokio::time::timeout(Duration::from_secs(10), about_terms(&mut only.orders)).await.unwrap();
        assert!(matches!(&order, Some(Control::Input(Input::TermGained(again))) if *again == term), "{order:?}");
        let nothing = tokio::time::timeout(Duration::from_secs(60), about_terms(&mut only.orders)).await;
        assert!(nothing.is_err(), "once: {nothing:?}");
        release.request();
        drop(only.orders);
    };
    let election = async { only.election.run(only.release.clone()).await.unwrap() };
    tokio::join!(election, story);
}
