use super::*;
use crate::ingest::scripted::{Asked, Reply, Then, bookmark, event, object, ok, refuse, routed, word};
use crate::ingest::{self, Handle};
use runtime::tasks::Tasks;
use std::collections::BTreeSet as Set;
use std::sync::Mutex;
use tokio::time::timeout;

/// A server whose discovery and broken collections the test can change.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    /// `group/resource`; `/resource` for the core group.
    resources: Set<String>,
    broken: Set<String>,
    discovery_fails: bool,
    /// Lines that the next watch of the definitions delivers.
    definitions: Vec<String>,
}

impl World {
    fn serving(resources: &[&str]) -> World {
        let world = World::default();
        world.0.lock().unwrap().resources = resources.iter().map(ToString::to_string).collect();
        world
    }

    fn change(&self, change: impl FnOnce(&mut Served)) {
        change(&mut self.0.lock().unwrap());
    }

    fn add(&self, resource: &str) {
        self.0.lock().unwrap().resources.insert(resource.to_owned());
    }

    fn remove(&self, resource: &str) {
        self.0.lock().unwrap().resources.remove(resource);
    }

    fn answer(&self, uri: &str) -> Option<Reply> {
        let served = self.0.lock().unwrap();
        let path = uri.split('?').next().unwrap();
        if path == "/api" || path == "/apis" {
            if served.discovery_fails {
                return Some(refuse(503, "ServiceUnavailable"));
            }
            return Some(ok(&[&served.document(path == "/api")], Then::End));
        }
        let parts: Vec<&str> = path.split('/').collect();
        let name = match parts[1] {
            "api" => format!("/{}", parts[3]),
            _ => format!("{}/{}", parts[2], parts[4]),
        };
        if served.broken.contains(&name) {
            return Some(refuse(500, "InternalError"));
        }
        if !served.resources.contains(&name) {
            return Some(refuse(404, "NotFound"));
        }
        let mut lines = Vec::new();
        if name.ends_with("/customresourcedefinitions") {
            lines.extend(served.definitions.iter().cloned());
        } else {
            lines.push(event("ADDED", &object("a", 5)));
        }
        lines.push(bookmark(10, true));
        Some(Reply::Answer { status: 200, retry_after: None, lines, then: Then::Hang })
    }
}

impl Served {
    fn document(&self, core: bool) -> String {
        let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for name in &self.resources {
            let (group, resource) = name.split_once('/').unwrap();
            if group.is_empty() == core {
                groups.entry(group).or_default().push(format!(
                    r#"{{"resource":"{resource}","responseKind":{{"kind":"K"}},"scope":"Namespaced","verbs":["delete","get","list","watch"]}}"#
                ));
            }
        }
        let groups: Vec<String> = groups
            .into_iter()
            .map(|(group, resources)| {
                let resources = resources.join(",");
                format!(
                    r#"{{"metadata":{{"name":"{group}"}},"versions":[{{"version":"v1","freshness":"Current","resources":[{resources}]}}]}}"#
                )
            })
            .collect();
        format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{}]}}"#, groups.join(","))
    }
}

struct Running {
    handle: Handle,
    inputs: mpsc::Receiver<Input>,
    asked: Asked,
    tasks: Tasks,
    shutdown: Shutdown,
}

impl Running {
    fn start(world: &World) -> Running {
        let world = world.clone();
        let (clients, asked) = routed(move |uri| world.answer(uri));
        let (sender, inputs) = mpsc::channel(64);
        let (control, _orders) = mpsc::channel(64);
        let (shutdown, mut tasks) = (Shutdown::new(), Tasks::new());
        let outlets = Outlets { inputs: sender, control, gates: guards::tests::gates() };
        let ignored = BTreeSet::from([GroupResource { group: Arc::from(""), resource: Arc::from("events") }]);
        let handle = ingest::start(clients, Config { ignored, seed: 0 }, outlets, &shutdown, &mut tasks);
        Running { handle, inputs, asked, tasks, shutdown }
    }

    /// The inputs until nothing happens for `quiet`. Inputs of a list are prefixed with the collection.
    async fn words(&mut self, quiet: Duration) -> Vec<String> {
        let mut words = Vec::new();
        while let Ok(Some(input)) = timeout(quiet, self.inputs.recv()).await {
            let of_a_list = match &input {
                Input::ListBegun { collection, .. }
                | Input::Listed { collection, .. }
                | Input::ListEnded { collection, .. }
                | Input::ListFailed { collection, .. } => Some(collection.to_string()),
                Input::Seen { .. } | Input::Deleted { .. } | Input::Bookmark { .. } | Input::Unusable { .. } => None,
                Input::WatchLost { .. } | Input::WatchResumed { .. } | Input::Probed { .. } => None,
                Input::KindServed(_) | Input::KindUnserved(_) | Input::KindEmptied { .. } => None,
                Input::Undiscovered(_) => None,
                Input::Message { .. } | Input::StreamClosed { .. } => None,
                Input::GuardsListed { .. } | Input::GuardsFollowed { .. } | Input::GuardsLost { .. } => None,
                Input::GuardSeen(_) | Input::GuardGone { .. } | Input::GuardsRead { .. } => None,
                Input::GateAnswered(_) | Input::GateReopened { .. } => None,
                Input::Audited(_) | Input::ComparedBefore { .. } => None,
                Input::GateInvalidated { .. } | Input::GateNeedsTime { .. } => None,
                Input::Wrote { .. }
                | Input::TermGained(_)
                | Input::OpenAtTermStart(_)
                | Input::TermLost { .. }
                | Input::Withhold { .. }
                | Input::Stop => None,
            };
            words.push(match of_a_list {
                Some(collection) => format!("{collection} {}", word(&input)),
                None => word(&input),
            });
        }
        words
    }

    async fn stop(self) {
        self.shutdown.request();
        self.tasks.run(&self.shutdown, Duration::from_secs(1)).await.unwrap();
    }
}

const MOMENT: Duration = Duration::from_millis(900);

#[tokio::test(start_paused = true)]
async fn served_kinds_are_collected_and_a_failing_one_stops_no_other() {
    let world = World::serving(&["/pods", "/events", "apps/deployments", "x.io/broken"]);
    world.change(|served| served.broken = Set::from(["x.io/broken".to_owned()]));
    let mut running = Running::start(&world);
    let words = running.words(MOMENT).await;
    assert!(words.contains(&"served events v1 Listed".to_owned()), "{words:?}");
    assert!(!words.iter().any(|word| word.starts_with("events ")), "ignored: {words:?}");
    for collection in ["pods", "deployments.apps"] {
        let of_it: Vec<&String> = words.iter().filter(|word| word.starts_with(&format!("{collection} "))).collect();
        let expected = ["begun", "listed a 5", "ended 10"].map(|word| format!("{collection} {word}"));
        assert_eq!(of_it, expected.iter().collect::<Vec<_>>());
    }
    assert!(words.contains(&"broken.x.io failed: list broken.x.io: the API server answers 500: because".to_owned()));
    let status = running.handle.status();
    assert!(status.discovered && status.problems.is_empty(), "{status:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_view_waits_for_the_definitions_and_for_nothing_beyond_them() {
    let world = World::serving(&[
        "/pods",
        "apiextensions.k8s.io/customresourcedefinitions",
        "apiregistration.k8s.io/apiservices",
    ]);
    let begun = Instant::now();
    let mut running = Running::start(&world);
    while !running.handle.status().discovered {
        let _nothing_yet = timeout(Duration::from_millis(1), running.inputs.recv()).await;
    }
    // Immediate answers take hardly any time here.
    assert!(begun.elapsed() < DEBOUNCE, "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn discovery_that_fails_changes_nothing_and_shows() {
    let world = World::serving(&["/pods", "batch/jobs"]);
    world.change(|served| served.discovery_fails = true);
    let mut running = Running::start(&world);
    assert!(running.words(Duration::from_secs(5)).await.is_empty());
    let status = running.handle.status();
    let error = "discovery at /api: the API server answers 503: because";
    assert!(!status.discovered && status.error.as_deref() == Some(error), "{status:?}");
    world.change(|served| served.discovery_fails = false);
    let words = running.words(Duration::from_secs(31)).await;
    assert!(words.contains(&"pods ended 10".to_owned()), "{words:?}");
    assert!(running.handle.status().problems.is_empty());
    world.change(|served| served.discovery_fails = true);
    let words = running.words(Duration::from_secs(40)).await;
    assert!(words.is_empty(), "{words:?}");
    assert!(running.handle.status().discovered && !running.handle.status().problems.is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_is_told_of_when_it_is_confirmed() {
    let world = World::serving(&["/pods", "batch/jobs", "apps/deployments"]);
    let mut running = Running::start(&world);
    running.words(MOMENT).await;
    world.remove("apps/deployments");
    world.add("/services");
    let words = running.words(Duration::from_secs(35)).await;
    assert!(words.contains(&"services ended 10".to_owned()), "{words:?}");
    assert_eq!(words.last().unwrap(), "unserved deployments.apps", "{words:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_relist_lists_anew() {
    let world = World::serving(&["/pods", "apps/deployments"]);
    let mut running = Running::start(&world);
    running.words(MOMENT).await;
    let pods = GroupResource { group: Arc::from(""), resource: Arc::from("pods") };
    let unknown = GroupResource { group: Arc::from(""), resource: Arc::from("unknown") };
    for _ in 0..3 {
        running.handle.relist(pods.clone(), "a test".to_owned());
    }
    running.handle.relist(unknown, "a test".to_owned());
    assert_eq!(running.words(MOMENT).await, ["pods begun", "pods listed a 5", "pods ended 10"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_established_definition_brings_its_kind_without_waiting_for_the_poll() {
    let world = World::serving(&["/pods", "apiextensions.k8s.io/customresourcedefinitions"]);
    let established = r#"{"metadata":{"name":"widgets.x.io","uid":"crd","resourceVersion":"9"},"spec":{"group":"x.io",
        "names":{"plural":"widgets","kind":"K"},"versions":[{"name":"v1","served":true}]},
        "status":{"conditions":[{"type":"Established","status":"True"}]}}"#
        .replace('\n', "");
    world.change(|served| served.definitions.push(event("ADDED", &established)));
    let mut running = Running::start(&world);
    let words = running.words(MOMENT).await;
    assert!(
        words.contains(&"pods ended 10".to_owned()) && !words.iter().any(|word| word.starts_with("widgets")),
        "{words:?}"
    );
    assert_eq!(words.first().unwrap(), "undiscovered [widgets.x.io]", "it counts before anything is served");
    let looks = |asked: &Asked| asked.lock().unwrap().iter().filter(|uri| *uri == "/apis").count();
    assert!(looks(&running.asked) >= 3, "discovery lags, and is looked at again");
    world.add("x.io/widgets");
    let words = running.words(Duration::from_millis(2_500)).await;
    assert_eq!(
        words,
        [
            "served widgets.x.io v1 Watched",
            "undiscovered []",
            "widgets.x.io begun",
            "widgets.x.io listed a 5",
            "widgets.x.io ended 10"
        ]
    );
    // The server restarts without its custom resources. The definition exists, so the kind does.
    world.remove("x.io/widgets");
    let words = running.words(Duration::from_secs(100)).await;
    assert!(!words.iter().any(|word| word.starts_with("unserved")), "{words:?}");
    running.stop().await;
}
