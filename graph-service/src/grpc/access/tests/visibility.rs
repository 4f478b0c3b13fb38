//! Answers to a tenant of one namespace, about a graph with two namespaces and cluster-scoped objects: they never
//! reveal hidden objects.

use super::*;
use crate::decisions::DecisionLog;
use crate::grpc::access::redact;
use crate::grpc::decisions::Decisions;
use crate::grpc::followers::Followers;
use crate::grpc::graph::Graph;
use crate::grpc::rights::Right;
use crate::grpc::small_world::{config, disagree, gated, reason, secrets, uid_of};
use crate::messages::Leadership;
use engine::leader::{Input, Leader, Mode};
use engine::object::{
    Access as Kinds, Backend, FOREGROUND_FINALIZER, Facts, GroupResource, Object, OwnerReference, ResourceVersion,
    ServedKind,
};
use engine::time::Time;
use engine::work::Term;
use futures::StreamExt as _;
use proto::decision::v1beta1::decision_service_server::DecisionService as _;
use proto::decision::v1beta1::{DecisionEvent, DecisionFilter, ListDisagreementsRequest, ListDisagreementsResponse};
use proto::graph::v1beta1::export_graph_response::Part;
use proto::graph::v1beta1::graph_service_server::GraphService as _;
use proto::graph::v1beta1::watch_dependents_response::Event;
use proto::graph::v1beta1::*;
use proto::r#type::v1beta1::{Consistency, ObjectFilter, ObjectRef};
use runtime::tasks::Tasks;
use tonic::{Code, Request};

/// A version that only the hidden root has.
const ROOT_VERSION: &str = "7654321";

fn object(namespace: &str, name: &str, version: &str, owners: &[(&str, &str)]) -> Object {
    let owner = |&(kind, name): &(&str, &str)| OwnerReference {
        api_version: "v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid_of(name),
        controller: None,
        block_owner_deletion: Some(true),
    };
    Object {
        marks: Default::default(),
        uid: uid_of(name),
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion::parse(version),
        facts: Facts { owners: owners.iter().map(owner).collect(), ..Facts::default() },
    }
}

fn terminating(mut object: Object) -> Object {
    object.facts.terminating = true;
    object.facts.finalizers = [FOREGROUND_FINALIZER.into()].into();
    object
}

/// `root` is cluster-scoped and owns a1 and b1. In `a`: a1 owns a2, and a3 waits for a4. In `b`: b1 owns b2, b3 names
/// a1 as its owner, b4 waits for b5. c1 and c2 in `b` own each other, and so do a5 and a6 in `a`.
fn inputs() -> Vec<Input> {
    let nodes = GroupResource { group: "".into(), resource: "nodes".into() };
    let kind = |collection: &GroupResource, kind: &str, namespaced: bool| {
        Input::KindServed(ServedKind {
            group_resource: collection.clone(),
            kind: kind.into(),
            version: "v1".into(),
            other_versions: Vec::new(),
            split: false,
            namespaced,
            access: Kinds::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Default::default(),
        })
    };
    let mut inputs = vec![kind(&secrets(), "Secret", true), kind(&nodes, "Node", false)];
    let (root, secret) = (("Node", "root"), |name| ("Secret", name));
    let all = [
        (nodes, vec![object("", "root", ROOT_VERSION, &[])], "9999999"),
        (
            secrets(),
            vec![
                object("a", "a1", "5", &[root]),
                object("a", "a2", "5", &[secret("a1")]),
                terminating(object("a", "a3", "5", &[])),
                object("a", "a4", "5", &[secret("a3"), root]),
                object("a", "a5", "5", &[secret("a6")]),
                object("a", "a6", "5", &[secret("a5")]),
                object("b", "b1", "5", &[root]),
                object("b", "b2", "5", &[secret("b1")]),
                object("b", "b3", "5", &[secret("a1")]),
                terminating(object("b", "b4", "5", &[])),
                object("b", "b5", "5", &[secret("b4")]),
                object("b", "c1", "5", &[secret("c2")]),
                object("b", "c2", "5", &[secret("c1")]),
            ],
            "10",
        ),
    ];
    for (collection, objects, position) in all {
        inputs.push(Input::ListBegun { collection: collection.clone(), selectors: 0 });
        inputs.extend(objects.into_iter().map(|object| Input::Listed { collection: collection.clone(), object }));
        inputs.push(Input::ListEnded { collection, resource_version: ResourceVersion::parse(position) });
    }
    inputs
}

struct World {
    graph: Graph,
    authenticator: Arc<Authenticator>,
    oracle: Oracle,
    reader: crate::driver::Reader,
    _tasks: Tasks,
}

/// A tenant of `a`, and an administrator.
fn world() -> World {
    let oracle = Oracle::default().shows("tenant", "a").shows("admin", "");
    let authenticator = oracle.authenticator();
    let mut leader = Leader::new(config(Mode::Observe), 7);
    for input in inputs() {
        leader.handle(Time::ZERO, input);
    }
    while leader.poll().is_some() {}
    let (_leadership, known) = tokio::sync::watch::channel(Leadership::default());
    let shared = gated(leader, DecisionLog::in_memory(), known, Some(Arc::clone(&authenticator)));
    let mut tasks = Tasks::new();
    let (writers, followers) = Followers::new();
    tasks.spawn_until_end("stream writers", writers.run());
    World { reader: shared.reader.clone(), graph: Graph::new(shared, followers), authenticator, oracle, _tasks: tasks }
}

impl World {
    fn visibility(&self, user: &str, verb: &'static str) -> Visibility {
        let right = Right { verb, resource: "graphobjects" };
        Visibility::of(Arc::clone(&self.authenticator), Arc::new(caller(user)), right)
    }

    /// A call as the guard passes it on.
    fn by<M>(&self, user: &str, verb: &'static str, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.extensions_mut().insert(self.visibility(user, verb));
        request
    }

    fn put(&self, object: Object) {
        self.reader.alter(|leader| leader.handle(Time::ZERO, Input::Seen { collection: secrets(), object }));
    }
}

fn uid(name: &str) -> ObjectRef {
    ObjectRef { uid: format!("uid-{name}"), ..ObjectRef::default() }
}

fn at(namespace: &str, name: &str) -> ObjectRef {
    let resource = if namespace.is_empty() { "nodes" } else { "secrets" };
    ObjectRef { resource: resource.into(), namespace: namespace.into(), name: name.into(), ..ObjectRef::default() }
}

fn within(namespaces: &[&str]) -> Vec<ObjectFilter> {
    vec![ObjectFilter { namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(), ..Default::default() }]
}

fn names<'a>(nodes: impl IntoIterator<Item = &'a Option<Node>>) -> Vec<String> {
    let name = |node: &Option<Node>| node.clone().unwrap().r#ref.unwrap().name;
    let mut names: Vec<String> = nodes.into_iter().map(name).collect();
    names.sort();
    names
}

/// The answer has nothing of namespace b, and nothing of the root beyond the tenant's own objects.
fn tells_nothing(answer: &impl std::fmt::Debug) {
    let text = format!("{answer:?}");
    for secret in ["uid-b", "uid-c", "\"b\"", "\"b1\"", ROOT_VERSION] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

fn why<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), reason(&status))
}

fn denied() -> (Code, String) {
    (Code::PermissionDenied, "ACCESS_DENIED".to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_seen_is_as_what_is_not_there() {
    let world = world();
    let get = async |user: &str, object: ObjectRef| {
        let request = GetObjectRequest { r#ref: Some(object), ..Default::default() };
        world.graph.get_object(world.by(user, "get", request)).await.map(|answer| answer.into_inner().node)
    };
    for object in [uid("a1"), at("a", "a1"), ObjectRef { uid: "uid-a1".into(), ..at("a", "a1") }] {
        assert_eq!(names([&get("tenant", object).await.unwrap()]), ["a1"]);
    }
    for object in [at("b", "b1"), at("b", "nobody"), at("", "root"), at("", "nobody")] {
        assert_eq!(why(get("tenant", object.clone()).await), denied(), "{object:?}");
    }
    // Only the uid in the message differs.
    let text = |status: Status| format!("{:?} {}", status.code(), status.message().replace("uid-b1", "uid-x"));
    for place in [ObjectRef::default(), ObjectRef { namespace: "a".into(), ..ObjectRef::default() }, at("a", "a1")] {
        let [hidden, unknown] = ["uid-b1", "uid-x"].map(|uid| ObjectRef { uid: uid.into(), ..place.clone() });
        let (hidden, unknown) = (get("tenant", hidden).await.unwrap_err(), get("tenant", unknown).await.unwrap_err());
        assert_eq!(text(hidden), text(unknown), "{place:?}");
    }
    // Of a uid that is claimed in two namespaces, one.
    let b3 = get("admin", uid("b3")).await.unwrap();
    assert_eq!(names([&b3]), ["b3"]);
    assert_eq!(why(get("nobody", at("a", "a1")).await), denied());
    let batch = async |refs: Vec<ObjectRef>| {
        let request = BatchGetObjectsRequest { refs, ..Default::default() };
        world.graph.batch_get_objects(world.by("tenant", "get", request)).await.map(tonic::Response::into_inner)
    };
    assert_eq!(why(batch(vec![uid("a1"), uid("b1")]).await), denied());
    let in_a = |name: &str| ObjectRef { namespace: "a".into(), ..uid(name) };
    let answer = batch(vec![in_a("a1"), in_a("b1"), in_a("x")]).await.unwrap();
    assert_eq!((answer.nodes.len(), answer.missing), (1, vec![in_a("b1"), in_a("x")]));
}

#[tokio::test(start_paused = true)]
async fn walks_leave_out_and_count_and_filters_cannot_ask_about_the_rest() {
    let world = world();
    let below = async |user: &str, cel: &str| {
        let include = vec![ObjectFilter { cel: cel.to_owned(), ..Default::default() }];
        let request = ListDependentsRequest { r#ref: Some(uid("a1")), max_depth: 9, include, ..Default::default() };
        world.graph.list_dependents(world.by(user, "list", request)).await.unwrap().into_inner()
    };
    let all = below("admin", "").await;
    assert_eq!(
        (names(all.dependents.iter().map(|of| &of.node)), all.redacted_count),
        (vec!["a2".into(), "b3".into()], 0)
    );
    let seen = below("tenant", "").await;
    assert_eq!((names(seen.dependents.iter().map(|of| &of.node)), seen.redacted_count), (vec!["a2".into()], 1));
    tells_nothing(&seen);
    for cel in ["object.name == 'b3'", "object.name == 'x'"] {
        let asked = below("tenant", cel).await;
        assert_eq!((asked.dependents.len(), asked.filtered_count, asked.redacted_count), (0, 1, 1), "{cel}");
    }
    let above = async |user: &str, name: &str| {
        let request = ListOwnersRequest { r#ref: Some(uid(name)), max_depth: 9, ..Default::default() };
        world.graph.list_owners(world.by(user, "list", request)).await.map(tonic::Response::into_inner)
    };
    let seen = above("tenant", "a2").await.unwrap();
    assert_eq!((names(seen.owners.iter().map(|of| &of.node)), seen.redacted_count), (vec!["a1".into()], 1));
    tells_nothing(&seen);
    assert_eq!(above("admin", "a2").await.unwrap().owners.len(), 2);
    assert_eq!(why(above("tenant", "b2").await), denied());
    // Pages belong to their caller.
    let page = async |user: &str, token: &str| {
        let request = ListDependentsRequest {
            r#ref: Some(at("a", "a1")),
            max_depth: 9,
            page_size: 1,
            page_token: token.to_owned(),
            ..Default::default()
        };
        world.graph.list_dependents(world.by(user, "list", request)).await.map(tonic::Response::into_inner)
    };
    let token = page("admin", "").await.unwrap().next_page_token;
    assert_eq!(why(page("tenant", &token).await).1, "PAGE_TOKEN_EXPIRED");
    assert_eq!(names([&page("admin", &token).await.unwrap().dependents[0].node]), ["b3"]);
}

#[tokio::test(start_paused = true)]
async fn explanations_and_plans_speak_of_what_may_be_seen() {
    let world = world();
    let explain = async |user: &str, name: &str| {
        let request = ExplainObjectRequest { r#ref: Some(uid(name)), ..Default::default() };
        world.graph.explain_object(world.by(user, "get", request)).await.map(tonic::Response::into_inner)
    };
    let seen = explain("tenant", "a1").await.unwrap();
    assert_eq!((seen.verdict(), seen.redacted_count, seen.owners.len()), (Verdict::Kept, 1, 1));
    assert_eq!((seen.owners[0].standing(), seen.owners[0].evidence.clone()), (OwnerStanding::Solid, None));
    tells_nothing(&seen);
    let all = explain("admin", "a1").await.unwrap();
    assert!(format!("{all:?}").contains(ROOT_VERSION) && all.redacted_count == 0);
    assert_eq!(why(explain("tenant", "b1").await), denied());
    let preview = async |user: &str, targets: Vec<ObjectRef>| {
        let request = PreviewDeletionRequest { targets, ..Default::default() };
        world.graph.preview_deletion(world.by(user, "list", request)).await.map(tonic::Response::into_inner)
    };
    let all = preview("admin", vec![uid("a1")]).await.unwrap();
    let seen = preview("tenant", vec![uid("a1")]).await.unwrap();
    let count = |answer: &PreviewDeletionResponse| answer.totals.iter().map(|total| total.count).sum::<u64>();
    assert_eq!(seen.entries.len() + seen.redacted_count as usize, all.entries.len());
    assert_eq!((count(&seen), count(&all)), (seen.entries.len() as u64, all.entries.len() as u64));
    tells_nothing(&PreviewDeletionResponse { digest: String::new(), ..seen });
    assert_eq!(why(preview("tenant", vec![uid("b1")]).await), denied());
    assert_eq!(why(preview("tenant", vec![uid("x")]).await), denied());
    let in_a = |name: &str| ObjectRef { namespace: "a".into(), ..uid(name) };
    let missing = preview("tenant", vec![in_a("b1"), in_a("x")]).await.unwrap();
    assert_eq!((missing.entries.len(), missing.missing_uids.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn searches_need_all_namespaces_or_named_ones() {
    let world = world();
    let stuck = async |user: &str, include: Vec<ObjectFilter>| {
        let request = FindStuckObjectsRequest { include, min_age: Some(Default::default()), ..Default::default() };
        world.graph.find_stuck_objects(world.by(user, "list", request)).await.map(tonic::Response::into_inner)
    };
    let cycles = async |user: &str, include: Vec<ObjectFilter>| {
        let request = FindCyclesRequest { include, ..Default::default() };
        world.graph.find_cycles(world.by(user, "list", request)).await.map(tonic::Response::into_inner)
    };
    let export = async |user: &str, include: Vec<ObjectFilter>| {
        let request = ExportGraphRequest { include, ..Default::default() };
        let parts = world.graph.export_graph(world.by(user, "list", request)).await?.into_inner();
        Ok::<_, Status>(parts.map(|part| part.unwrap().part.unwrap()).collect::<Vec<Part>>().await)
    };
    let anything = || vec![ObjectFilter { cel: "true".to_owned(), ..Default::default() }];
    for include in
        [vec![], anything(), within(&["b"]), within(&["a", "b"]), within(&[""]), [within(&["a"]), anything()].concat()]
    {
        assert_eq!(why(stuck("tenant", include.clone()).await), denied(), "{include:?}");
        assert_eq!(why(cycles("tenant", include.clone()).await), denied(), "{include:?}");
        assert_eq!(why(export("tenant", include.clone()).await), denied(), "{include:?}");
    }
    let seen = stuck("tenant", within(&["a"])).await.unwrap();
    let found = names(seen.objects.iter().map(|of| &of.node));
    assert!(found.contains(&"a3".to_owned()) && found.iter().all(|name| name.starts_with('a')), "{found:?}");
    tells_nothing(&seen);
    let found = names(stuck("admin", vec![]).await.unwrap().objects.iter().map(|of| &of.node));
    assert!(found.contains(&"a3".to_owned()) && found.contains(&"b4".to_owned()), "{found:?}");
    let seen = cycles("tenant", within(&["a"])).await.unwrap();
    assert_eq!((seen.cycles.len(), seen.cycles[0].members.len(), seen.cycles[0].redacted_count), (1, 2, 0));
    tells_nothing(&seen);
    assert_eq!(cycles("admin", vec![]).await.unwrap().cycles.len(), 2);
    let seen = export("tenant", within(&["a"])).await.unwrap();
    let [Part::Header(head), .., Part::Footer(foot)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((head.node_estimate, head.edge_estimate, foot.node_count), (0, 0, 6));
    tells_nothing(&seen);
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_may_be_seen_and_begins_anew_when_that_changes() {
    let world = world();
    let open = async |request: WatchDependentsRequest| {
        world.graph.watch_dependents(world.by("tenant", "watch", request)).await.map(tonic::Response::into_inner)
    };
    assert_eq!(why(open(WatchDependentsRequest::default()).await.map(|_| ())), denied());
    let below = |token: Vec<u8>| WatchDependentsRequest {
        r#ref: Some(at("a", "a1")),
        max_depth: 9,
        resume_token: token,
        ..Default::default()
    };
    let mut watch = open(below(Vec::new())).await.unwrap();
    let (mut token, mut shown, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    let mut until_bookmark =
        async |watch: &mut futures::stream::BoxStream<'static, Result<WatchDependentsResponse, Status>>| {
            let mut resets = 0;
            loop {
                let message = watch.next().await.unwrap().unwrap();
                tells_nothing(&WatchDependentsResponse { meta: None, ..message.clone() });
                if !message.resume_token.is_empty() {
                    token = message.resume_token;
                }
                match message.event.unwrap() {
                    Event::Batch(batch) => shown.extend(names(batch.changes.iter().map(|change| &change.node))),
                    Event::Bookmark(bookmark) => {
                        hidden.push(bookmark.redacted_count);
                        return (std::mem::take(&mut shown), resets, token.clone());
                    }
                    Event::Reset(_) => resets += 1,
                    Event::GoingAway(_) => panic!("it is young"),
                }
            }
        };
    assert_eq!(until_bookmark(&mut watch).await.0, ["a2"]);
    world.put(object("b", "b9", "20", &[("Secret", "a1")]));
    world.put(object("a", "a9", "21", &[("Secret", "a1")]));
    let (changes, resets, token) = until_bookmark(&mut watch).await;
    assert!(changes.contains(&"a9".to_owned()) && resets == 0, "{changes:?}");
    assert_eq!(hidden, [1, 2]);
    drop(watch);
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The token of another caller is unknown.
    let _other = world.oracle.clone().shows("other", "a");
    for (user, is_known) in [("other", false), ("tenant", true)] {
        let request = world.by(user, "watch", below(token.clone()));
        let mut again = world.graph.watch_dependents(request).await.unwrap().into_inner();
        let first = again.next().await.unwrap().unwrap().event.unwrap();
        assert_eq!(matches!(first, Event::Batch(_)), is_known, "{user}: {first:?}");
        assert_eq!(matches!(first, Event::Reset(_)), !is_known, "{user}: {first:?}");
    }
    let request = world.by("tenant", "watch", below(Vec::new()));
    let visibility = request.extensions().get::<Visibility>().unwrap().clone();
    let mut watch = world.graph.watch_dependents(request).await.unwrap().into_inner();
    while !matches!(watch.next().await.unwrap().unwrap().event.unwrap(), Event::Bookmark(_)) {}
    // Now everything is visible.
    let _more = world.oracle.clone().shows("tenant", "");
    tokio::time::sleep(Duration::from_secs(11)).await;
    visibility.ask_again().await.unwrap();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(Event::Bookmark(bookmark)) if bookmark.snapshot_complete) {
        events.push(watch.next().await.unwrap().unwrap().event.unwrap());
    }
    assert!(events.iter().any(|event| matches!(event, Event::Reset(_))), "{events:?}");
    assert!(format!("{events:?}").contains("uid-b9"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn decisions_name_what_may_be_seen() {
    let world = world();
    let visibility = Visibility::of(
        Arc::clone(&world.authenticator),
        Arc::new(caller("tenant")),
        Right { verb: "watch", resource: "decisions" },
    );
    let named = |namespace: &str, name: &str| ObjectRef { namespace: namespace.into(), ..uid(name) };
    let event = |namespace: &str, name: &str| DecisionEvent {
        target: Some(named(namespace, name)),
        root: Some(named("", "root")),
        cause_chain: vec![named("a", "a1"), named("b", "b1"), named("", "root")],
        reasons: vec![Reason { detail: "because of b1".into(), related: vec![named("b", "b1")], ..Default::default() }],
        owners: vec![Edge { owner: Some(named("", "root")), evidence: Some(Default::default()), ..Default::default() }],
        ..Default::default()
    };
    let events = vec![event("a", "a2"), event("b", "b2"), event("", "x"), DecisionEvent::default()];
    visibility.require("a").await.unwrap();
    let [seen] = redact::events(&visibility, events.clone()).await.unwrap().try_into().unwrap();
    assert_eq!((seen.cause_chain.len(), seen.root.clone(), seen.redacted_count), (1, None, 3));
    assert_eq!((seen.reasons[0].detail.as_str(), seen.owners[0].evidence.clone()), ("", None));
    assert!(!format!("{seen:?}").contains("b1"));
    let admin = Visibility::of(
        Arc::clone(&world.authenticator),
        Arc::new(caller("admin")),
        Right { verb: "watch", resource: "decisions" },
    );
    admin.learn(["a"]).await.unwrap();
    assert_eq!(redact::events(&admin, events.clone()).await.unwrap(), events);
    assert_eq!(redact::events(&Visibility::default(), events.clone()).await.unwrap(), events);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_disagreements_names_what_may_be_seen() {
    let oracle = Oracle::default().shows("tenant", "a").shows("admin", "");
    let authenticator = oracle.authenticator();
    let root = object("", "root", "9999999", &[]);
    let nodes = GroupResource { group: "".into(), resource: "nodes".into() };
    let mut given = vec![Input::TermGained(Term { election: "election".into(), number: 1 })];
    given.extend(inputs());
    given.push(Input::Deleted { collection: nodes, object: root });
    let mut leader = Leader::new(config(Mode::Observe), 7);
    disagree(&mut leader, given);
    let (_leadership, known) = tokio::sync::watch::channel(Leadership::default());
    let shared = gated(leader, DecisionLog::in_memory(), known, Some(Arc::clone(&authenticator)));
    let service = Decisions::new(shared, Followers::new().1);
    let list = async |user: &str, targets: Vec<ObjectFilter>| {
        let include = vec![DecisionFilter { targets, ..Default::default() }];
        let mut request = Request::new(ListDisagreementsRequest { include, ..Default::default() });
        let right = Right { verb: "list", resource: "decisions" };
        let visibility = Visibility::of(Arc::clone(&authenticator), Arc::new(caller(user)), right);
        request.extensions_mut().insert(visibility);
        service.list_disagreements(request).await.map(tonic::Response::into_inner)
    };
    let targets = |answer: &ListDisagreementsResponse| {
        let mut targets: Vec<String> = answer.events.iter().map(|event| event.target.clone().unwrap().name).collect();
        targets.sort();
        targets
    };
    let all = list("admin", Vec::new()).await.unwrap();
    assert_eq!(targets(&all), ["a1", "a4", "b1", "b5"]);
    let seen = list("tenant", within(&["a"])).await.unwrap();
    assert_eq!(targets(&seen), ["a1", "a4"]);
    tells_nothing(&seen);
    let owners = seen.events.iter().flat_map(|event| &event.owners);
    let roots: Vec<_> = owners.filter(|edge| edge.owner_uid == "uid-root").collect();
    assert!(roots.len() == 2 && roots.iter().all(|edge| edge.evidence.is_none()), "{roots:?}");
    assert_eq!(why(list("tenant", Vec::new()).await), denied());
    assert_eq!(why(list("tenant", within(&["a", "b"])).await), denied());
}

#[tokio::test(start_paused = true)]
async fn labels_are_for_who_may_get_the_object_itself() {
    let world = world();
    let ask = async || {
        let read_mask = Some(prost_types::FieldMask { paths: vec!["labels".to_owned()] });
        let request = GetObjectRequest { r#ref: Some(uid("a1")), read_mask, ..Default::default() };
        world.graph.get_object(world.by("tenant", "get", request)).await.map(|answer| answer.into_inner().node.unwrap())
    };
    assert_eq!(why(ask().await), denied());
    let _more = world.oracle.clone().allows("tenant", "get", "secrets", "a");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(ask().await.unwrap().labels.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_did_not_pass_the_gate_is_answered_nothing() {
    let world = world();
    let request =
        GetObjectRequest { r#ref: Some(uid("a1")), consistency: Some(Consistency::default()), ..Default::default() };
    assert_eq!(why(world.graph.get_object(Request::new(request)).await).0, Code::Unauthenticated);
}
