//! The reads, on a leader with a small graph.

use super::*;
use crate::decisions::DecisionLog;
use crate::grpc::followers::UNREAD_FOR;
use crate::grpc::small_world::{config, facts, reason, secret, shared, uid_of};
use crate::messages::Leadership;
use engine::guard::{Approval, Guard, GuardId, GuardKind, Recorded, Rule};
use engine::leader::{Input, Leader, Mode};
use engine::object::ResourceVersion;
use engine::time::Time;
use futures::StreamExt as _;
use proto::graph::v1beta1::export_graph_response::Part;
use proto::graph::v1beta1::preview_deletion_response::GuardEffect;
use proto::r#type::v1beta1::PropagationPolicy;
use runtime::tasks::Tasks;
use std::num::NonZeroU32;
use std::time::SystemTime;
use tokio::sync::watch;
use tonic::Code;
use tonic_types::StatusExt as _;

/// `root` with `children` direct dependents, each with one of its own; `gone` is deleted.
fn graph(children: usize) -> Graph {
    guarded_graph(children, None)
}

fn guarded_graph(children: usize, guard: Option<Guard>) -> Graph {
    let mut leader = Leader::new(config(Mode::Enforce), 7);
    let mut objects = vec![secret("root", &[]), secret("gone", &[])];
    for number in 0..children {
        objects.push(secret(&format!("child-{number:05}"), &["root"]));
        objects.push(secret(&format!("leaf-{number:05}"), &[&format!("child-{number:05}")]));
    }
    for input in facts(objects, "gone").into_iter().chain(guard.map(Input::GuardSeen)) {
        leader.handle(Time::ZERO, input);
    }
    while leader.poll().is_some() {}
    let (_leadership, known) = watch::channel(Leadership::default());
    // There are no followers.
    let (_writers, followers) = Followers::new();
    Graph::new(shared(leader, DecisionLog::in_memory(), known), followers)
}

fn by_uid(name: &str) -> Option<ObjectRef> {
    Some(ObjectRef { uid: format!("uid-{name}"), ..Default::default() })
}

fn by_address(name: &str) -> Option<ObjectRef> {
    let (resource, namespace, name) = ("secrets".to_owned(), "shop".to_owned(), name.to_owned());
    Some(ObjectRef { resource, namespace, name, ..Default::default() })
}

async fn get(graph: &Graph, object: Option<ObjectRef>) -> Result<Node, Status> {
    let answer =
        graph.get_object(Request::new(GetObjectRequest { r#ref: object, ..Default::default() })).await?.into_inner();
    assert_eq!(answer.meta.unwrap().replica, "replica-a");
    Ok(answer.node.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_object_is_found_by_uid_and_by_address_also_for_a_while_after_it_went() {
    let graph = graph(2);
    for object in [by_uid("root"), by_address("root")] {
        let node = get(&graph, object).await.unwrap();
        assert_eq!((node.state(), node.dependent_count), (NodeState::Live, 2));
    }
    for object in [by_uid("gone"), by_address("gone")] {
        assert_eq!(get(&graph, object).await.unwrap().state(), NodeState::Gone);
    }
    let cases = [
        (by_uid("nobody"), Code::NotFound, "OBJECT_NOT_FOUND"),
        (by_address("nobody"), Code::NotFound, "OBJECT_NOT_FOUND"),
        (
            Some(ObjectRef { uid: "uid-root".into(), ..by_address("child-00000").unwrap() }),
            Code::FailedPrecondition,
            "UID_MISMATCH",
        ),
        (None, Code::InvalidArgument, "FIELD_INVALID"),
        (
            Some(ObjectRef { uid: "uid-nobody".into(), ..by_address("child-00000").unwrap() }),
            Code::FailedPrecondition,
            "UID_MISMATCH",
        ),
        (
            Some(ObjectRef { kind: "Pod".into(), resource: "secrets".into(), ..by_address("child-00000").unwrap() }),
            Code::InvalidArgument,
            "FIELD_INVALID",
        ),
        (Some(ObjectRef { kind: "Pod".into(), ..by_uid("root").unwrap() }), Code::FailedPrecondition, "UID_MISMATCH"),
        (
            Some(ObjectRef { namespace: "elsewhere".into(), ..by_uid("root").unwrap() }),
            Code::FailedPrecondition,
            "UID_MISMATCH",
        ),
        (
            Some(ObjectRef { resource: "unknowns".into(), ..by_address("x").unwrap() }),
            Code::InvalidArgument,
            "FIELD_INVALID",
        ),
    ];
    for (object, code, why) in cases {
        let refused = get(&graph, object).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, why), "{refused:?}");
    }
    let refs = vec![by_uid("root").unwrap(), by_uid("nobody").unwrap()];
    let batch = graph
        .batch_get_objects(Request::new(BatchGetObjectsRequest { refs, consistency: None }))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((batch.nodes.len(), batch.missing.len()), (1, 1));
    let refs = vec![by_uid("root").unwrap(); BATCH_MAX + 1];
    let refused =
        graph.batch_get_objects(Request::new(BatchGetObjectsRequest { refs, consistency: None })).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn pages_are_cut_from_what_page_one_found() {
    let graph = graph(150);
    let mut request =
        ListDependentsRequest { r#ref: by_uid("root"), max_depth: 5, page_size: 120, ..Default::default() };
    let mut names = Vec::new();
    loop {
        let page = graph.list_dependents(Request::new(request.clone())).await.unwrap().into_inner();
        names
            .extend(page.dependents.iter().map(|found| (found.depth, found.node.clone().unwrap().r#ref.unwrap().name)));
        assert!(page.dependents.iter().all(|found| found.edges.len() == 1 && !page.depth_limited));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(names.len(), 300);
    assert!(names.iter().map(|(depth, _)| depth).is_sorted(), "breadth first");
    assert!(names.chunks(120).all(|page| page.is_sorted()), "and by name in a page");
    let other = ListDependentsRequest { max_depth: 4, ..request.clone() };
    let refused = graph.list_dependents(Request::new(other)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "PAGE_TOKEN_MISMATCH"));
    let nonsense = ListDependentsRequest { page_token: "01zz".into(), ..request.clone() };
    let refused = graph.list_dependents(Request::new(nonsense)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "TOKEN_MALFORMED"));
    tokio::time::advance(Duration::from_secs(301)).await;
    let refused = graph.list_dependents(Request::new(request)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "PAGE_TOKEN_EXPIRED"));
}

#[tokio::test(start_paused = true)]
async fn filters_cut_the_answer_and_not_the_walk() {
    let graph = graph(3);
    let filter = ObjectFilter { uids: vec!["uid-leaf-00001".to_owned()], ..Default::default() };
    let request = ListDependentsRequest {
        r#ref: by_uid("root"),
        max_depth: 9,
        include: vec![filter.clone()],
        ..Default::default()
    };
    let page = graph.list_dependents(Request::new(request.clone())).await.unwrap().into_inner();
    assert_eq!((page.dependents.len(), page.filtered_count), (1, 5));
    let request = ListDependentsRequest { include: vec![], exclude: vec![filter], max_depth: 1, ..request };
    let page = graph.list_dependents(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((page.dependents.len(), page.depth_limited), (3, true));
    let request = ListOwnersRequest { r#ref: by_uid("leaf-00000"), max_depth: 9, ..Default::default() };
    let owners = graph.list_owners(Request::new(request)).await.unwrap().into_inner().owners;
    assert_eq!(owners.iter().map(|owner| owner.depth).collect::<Vec<_>>(), [1, 2]);
    let request = ListOwnersRequest { r#ref: by_uid("root"), max_depth: 65, ..Default::default() };
    assert_eq!(graph.list_owners(Request::new(request)).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn explanations_and_previews_come_from_the_judge() {
    let graph = graph(2);
    let explain = async |object| {
        graph
            .explain_object(Request::new(ExplainObjectRequest { r#ref: object, consistency: None }))
            .await
            .unwrap()
            .into_inner()
    };
    let kept = explain(by_uid("child-00000")).await;
    assert_eq!((kept.verdict(), kept.reasons[0].code()), (Verdict::Kept, reason::Code::SolidOwner));
    assert_eq!(kept.owners[0].standing(), OwnerStanding::Solid);
    let gone = explain(by_uid("gone")).await;
    assert_eq!((gone.verdict(), gone.departure.map(|departure| departure.by_us)), (Verdict::Gone, Some(false)));
    let request = PreviewDeletionRequest {
        targets: vec![by_uid("root").unwrap()],
        propagation_policy: PropagationPolicy::Foreground.into(),
        page_size: 2,
        ..Default::default()
    };
    let page = graph.preview_deletion(Request::new(request.clone())).await.unwrap().into_inner();
    assert_eq!((page.entries.len(), page.totals.len(), page.totals[0].count), (2, 1, 5));
    let request = PreviewDeletionRequest { page_token: page.next_page_token, ..request };
    let second = graph.preview_deletion(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((second.entries.len(), second.totals.len(), second.digest), (2, 0, page.digest));
    let none = graph.preview_deletion(Request::new(PreviewDeletionRequest::default())).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_preview_names_the_guards_and_the_digest_that_an_approval_needs() {
    let guard = Guard {
        id: GuardId { kind: GuardKind::Approval, name: "large".into() },
        uid: uid_of("large"),
        resource_version: ResourceVersion::parse("9"),
        generation: 1,
        scope: Default::default(),
        reason: "look first".to_owned(),
        actor: String::new(),
        created: Duration::ZERO,
        lifetime: None,
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        rule: Rule::Approval(Approval { more_than: Some(1), resources: vec![], approved: vec![] }),
    };
    let graph = guarded_graph(2, Some(guard));
    let request = PreviewDeletionRequest { targets: vec![by_uid("root").unwrap()], page_size: 2, ..Default::default() };
    let page = graph.preview_deletion(Request::new(request.clone())).await.unwrap().into_inner();
    let [guard] = page.guards.as_slice() else { panic!("{:?}", page.guards) };
    assert_eq!((guard.guard.as_str(), guard.effect()), ("approvals/large", GuardEffect::AwaitsApproval));
    assert_eq!((guard.count, guard.reason.as_str(), guard.more), (4, "look first", false));
    assert_eq!(guard.root.clone().unwrap_or_default().name, "root");
    assert_eq!((guard.cascade_digest.len(), guard.cascade_digest == page.digest), (16, false));
    let request = PreviewDeletionRequest { page_token: page.next_page_token, ..request };
    let second = graph.preview_deletion(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(second.guards, []);
}

/// Runs the writers of streams while the graph is asked.
fn followed(graph: Graph) -> (Graph, Tasks) {
    let (writers, followers) = Followers::new();
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("stream writers", writers.run());
    (Graph { followers, ..graph }, tasks)
}

async fn exported(graph: Graph) -> Vec<ExportGraphResponse> {
    let (graph, _tasks) = followed(graph);
    let export = graph.export_graph(Request::new(ExportGraphRequest::default())).await.unwrap().into_inner();
    export.map(Result::unwrap).collect().await
}

#[tokio::test(start_paused = true)]
async fn an_unread_export_ends_and_a_caller_has_a_share_of_all_exports() {
    let (graph, _tasks) = followed(graph(700));
    let open = || graph.export_graph(Request::new(ExportGraphRequest::default()));
    let mut unread = open().await.unwrap().into_inner();
    let mut others = Vec::new();
    let refused = loop {
        match open().await {
            Ok(export) => others.push(export),
            Err(refused) => break refused,
        }
        assert!(others.len() < 1000, "there is no limit");
    };
    assert_eq!(reason(&refused), "LIMIT_EXCEEDED");
    tokio::time::sleep(UNREAD_FOR * 2).await;
    while let Some(part) = unread.next().await {
        if let Err(slow) = part {
            return assert_eq!(reason(&slow), "SLOW_CONSUMER");
        }
    }
    panic!("the export waited for its reader");
}

#[tokio::test(start_paused = true)]
async fn an_export_has_everything_between_its_header_and_its_footer() {
    let parts: Vec<Part> = exported(graph(700)).await.into_iter().map(|part| part.part.unwrap()).collect();
    let [Part::Header(header), chunks @ .., Part::Footer(footer)] = &parts[..] else { panic!("{}", parts.len()) };
    let nodes = |part: &Part| match part {
        Part::Chunk(chunk) => chunk.nodes.len() as u64,
        Part::Header(_) | Part::Footer(_) => panic!("in the middle"),
    };
    assert_eq!((chunks.iter().map(nodes).sum::<u64>(), footer.node_count, footer.edge_count), (1401, 1401, 1400));
    assert_eq!(header.node_estimate, 1401);
}

#[tokio::test(start_paused = true)]
async fn searches_answer_in_pages_too() {
    let graph = graph(1);
    let stuck = graph.find_stuck_objects(Request::new(FindStuckObjectsRequest::default())).await.unwrap().into_inner();
    assert!(stuck.objects.is_empty() && stuck.next_page_token.is_empty());
    let cycles = graph.find_cycles(Request::new(FindCyclesRequest::default())).await.unwrap().into_inner();
    assert!(cycles.cycles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_old_stuck_object_is_found_among_more_young_ones_than_one_search_returns() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as u32;
    let terminating = |name: &str, age: u32| {
        let mut object = secret(name, &[]);
        object.facts.terminating = true;
        object.facts.finalizers = ["example.com/hold".into()].into();
        object.facts.deletion_time = NonZeroU32::new(now - age);
        object
    };
    let young = (0..=searches::FOUND_MAX).map(|number| terminating(&format!("young-{number}"), 1));
    let graph = graph_of(young.chain([terminating("old", 3600), secret("gone", &[])]).collect());
    let stuck = graph.find_stuck_objects(Request::new(FindStuckObjectsRequest::default())).await.unwrap().into_inner();
    let names: Vec<String> = stuck.objects.into_iter().map(|stuck| stuck.node.unwrap().r#ref.unwrap().name).collect();
    assert_eq!(names, ["old"]);
}

/// `fanin-0` and `fanin-1`, each with this many owners.
fn fanin(owners: usize) -> Graph {
    let names: Vec<String> = (0..owners).map(|number| format!("owner-{number:05}-{}", "n".repeat(40))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut objects: Vec<_> = names.iter().map(|name| secret(name, &[])).collect();
    objects.extend([secret("fanin-0", &names), secret("fanin-1", &names), secret("gone", &[])]);
    graph_of(objects)
}

const MIB: usize = 1024 * 1024;

#[tokio::test(start_paused = true)]
async fn an_object_with_thousands_of_references_makes_no_large_answer() {
    let graph = fanin(4400);
    let node = get(&graph, by_uid("fanin-0")).await.unwrap();
    assert_eq!((node.owner_count, node.owner_references.len()), (4400, 100));
    // A repeated uid is answered once.
    let refs = vec![by_uid("fanin-0").unwrap(); BATCH_MAX];
    let request = BatchGetObjectsRequest { refs, consistency: None };
    let batch = graph.batch_get_objects(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((batch.nodes.len(), batch.missing.len(), batch.not_answered.len()), (1, 0, 0));
    let request = ExplainObjectRequest { r#ref: by_uid("fanin-0"), consistency: None };
    let explained = graph.explain_object(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((explained.owners.len(), explained.node.as_ref().unwrap().owner_count), (100, 4400));
    assert!(explained.encoded_len() < MIB);
    // The reference of the walk is shown, at any position among the others.
    let last = format!("owner-04399-{}", "n".repeat(40));
    let request = ListDependentsRequest { r#ref: by_uid(&last), ..Default::default() };
    let page = graph.list_dependents(Request::new(request)).await.unwrap().into_inner();
    let edges = page.dependents.iter().map(|found| (found.edges.len(), found.edges[0].owner_uid.clone()));
    assert_eq!(edges.collect::<Vec<_>>(), vec![(1, format!("uid-{last}")); 2]);
    let parts = exported(graph).await;
    assert!(parts.iter().all(|part| part.encoded_len() < MIB), "chunks end");
    let Some(Part::Footer(footer)) = parts.last().unwrap().part else { panic!("no footer") };
    assert_eq!((footer.node_count, footer.edge_count), (4402, 8800));
}

#[tokio::test(start_paused = true)]
async fn all_references_of_an_object_are_listed_in_pages() {
    let graph = fanin(4400);
    let mut request = ListOwnersRequest { r#ref: by_uid("fanin-0"), page_size: 1000, ..Default::default() };
    let mut owners = BTreeSet::new();
    loop {
        let page = graph.list_owners(Request::new(request.clone())).await.unwrap().into_inner();
        assert!(page.encoded_len() < MIB);
        owners.extend(page.owners.into_iter().map(|owner| owner.edges[0].owner_uid.clone()));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(owners.len(), 4400);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_an_answer_is_named_and_asked_for_again() {
    let graph = wide(200);
    let refs: Vec<ObjectRef> = (0..200).map(|number| by_uid(&format!("wide-{number}")).unwrap()).collect();
    let (mut asked, mut answered, mut calls) = (refs, Vec::new(), 0);
    while !asked.is_empty() {
        let request = BatchGetObjectsRequest { refs: asked, consistency: None };
        let batch = graph.batch_get_objects(Request::new(request)).await.unwrap().into_inner();
        assert!(batch.encoded_len() < 2 * MIB && !batch.nodes.is_empty());
        answered.extend(batch.nodes.into_iter().map(|node| node.r#ref.unwrap().uid));
        (asked, calls) = (batch.not_answered, calls + 1);
    }
    let all: Vec<String> = (0..200).map(|number| format!("uid-wide-{number}")).collect();
    assert_eq!((answered, calls > 1), (all, true));
}

#[tokio::test(start_paused = true)]
async fn labels_are_told_to_who_asks_for_them_and_fields_that_are_not_asked_for_are_left_out() {
    let graph = graph(1);
    let ask = async |name: &str, paths: &[&str]| {
        let read_mask = Some(prost_types::FieldMask { paths: paths.iter().map(ToString::to_string).collect() });
        let request = GetObjectRequest { r#ref: by_uid(name), consistency: None, read_mask };
        graph.get_object(Request::new(request)).await.map(|answer| answer.into_inner().node.unwrap())
    };
    let whole = ask("root", &[]).await.unwrap();
    assert!(whole.labels.is_empty() && whole.r#ref.is_some());
    let some = ask("root", &["labels", "dependent_count"]).await.unwrap();
    assert_eq!((some.labels.get("name").map(String::as_str), some.dependent_count), (Some("root"), 1));
    assert_eq!((some.r#ref, some.resource_version.as_str(), some.annotations.len()), (None, "", 0));
    assert!(ask("gone", &["labels", "state"]).await.unwrap().labels.is_empty());
    let refused = ask("root", &["spec"]).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "FIELD_INVALID"));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_bounded_in_bytes() {
    let graph = graph(1);
    let refused = |answer: Result<(), Status>| {
        let status = answer.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELD_INVALID"), "{status:?}");
    };
    let long = ObjectRef { uid: "u".repeat(UID_MAX_BYTES + 1), ..Default::default() };
    let many = vec![ObjectRef { name: "n".repeat(2000), ..by_uid("root").unwrap() }; BATCH_MAX];
    for refs in [vec![long.clone()], many, vec![by_uid("root").unwrap(); BATCH_MAX + 1]] {
        let request = BatchGetObjectsRequest { refs, consistency: None };
        refused(graph.batch_get_objects(Request::new(request)).await.map(|_| ()));
    }
    refused(get(&graph, Some(long.clone())).await.map(|_| ()));
    let root = by_uid("root").unwrap();
    for (targets, assume_gone_uids) in [
        (vec![long.clone()], vec![]),
        (vec![root.clone(); TARGETS_MAX + 1], vec![]),
        (vec![root.clone()], vec![long.uid.clone()]),
        (vec![root.clone()], vec![root.uid.clone(); TARGETS_MAX + 1]),
    ] {
        let request = PreviewDeletionRequest { targets, assume_gone_uids, ..Default::default() };
        refused(graph.preview_deletion(Request::new(request)).await.map(|_| ()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_what_it_has_to_have_is_refused_by_the_name_of_the_field() {
    let graph = graph(1);
    let field = |answer: Result<(), Status>| {
        let details = answer.unwrap_err().get_error_details();
        details.bad_request().unwrap().field_violations[0].field.clone()
    };
    let missing = [
        field(graph.get_object(Request::new(GetObjectRequest::default())).await.map(|_| ())),
        field(graph.batch_get_objects(Request::new(BatchGetObjectsRequest::default())).await.map(|_| ())),
        field(graph.list_dependents(Request::new(ListDependentsRequest::default())).await.map(|_| ())),
        field(graph.list_owners(Request::new(ListOwnersRequest::default())).await.map(|_| ())),
        field(graph.explain_object(Request::new(ExplainObjectRequest::default())).await.map(|_| ())),
        field(graph.preview_deletion(Request::new(PreviewDeletionRequest::default())).await.map(|_| ())),
    ];
    assert_eq!(missing, ["ref", "refs", "ref", "ref", "ref", "targets"]);
}

#[tokio::test(start_paused = true)]
async fn a_large_cycle_is_told_in_part_with_its_size() {
    let names: Vec<String> = (0..500).map(|number| format!("ring-{number:03}")).collect();
    let mut objects: Vec<_> = (0..500)
        .map(|number| secret(&names[number], &[&names[(number + 1) % 500], &names[(number + 7) % 500]]))
        .collect();
    objects.push(secret("gone", &[]));
    let graph = graph_of(objects);
    let found = graph.find_cycles(Request::new(FindCyclesRequest::default())).await.unwrap().into_inner().cycles;
    let sizes: Vec<_> =
        found.iter().map(|of| (of.members.len(), of.member_count, of.edges.len(), of.edge_count)).collect();
    assert_eq!(sizes, [(100, 500, 100, 1000)]);
}

fn graph_of(objects: Vec<engine::object::Object>) -> Graph {
    let mut leader = Leader::new(config(Mode::Enforce), 7);
    for input in facts(objects, "gone") {
        leader.handle(Time::ZERO, input);
    }
    while leader.poll().is_some() {}
    let (_leadership, known) = watch::channel(Leadership::default());
    let (_writers, followers) = Followers::new();
    Graph::new(shared(leader, DecisionLog::in_memory(), known), followers)
}

/// This many objects, each with a hundred references.
fn wide(count: usize) -> Graph {
    let names: Vec<String> = (0..100).map(|number| format!("owner-{number:05}-{}", "n".repeat(40))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut objects: Vec<_> = (0..count).map(|number| secret(&format!("wide-{number}"), &names)).collect();
    objects.push(secret("gone", &[]));
    graph_of(objects)
}
