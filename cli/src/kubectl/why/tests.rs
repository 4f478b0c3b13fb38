//! Tests of each state that an object can be in, as `why` shows it.

use super::*;
use proto::graph::v1beta1::OwnerStanding;
use proto::r#type::v1beta1::OwnerReference;

const NOW: i64 = 1_000_000;

fn object(kind: &str, name: &str) -> ObjectRef {
    let (kind, namespace, name, uid) = (kind.to_owned(), "shop".to_owned(), name.to_owned(), format!("uid-{name}"));
    ObjectRef { kind, namespace, name, uid, ..Default::default() }
}

fn at(seconds_ago: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: NOW - seconds_ago, nanos: 0 })
}

fn reason(code: Code, detail: &str, related: &[ObjectRef]) -> Reason {
    let related_count = related.len() as u64;
    Reason {
        code: code.into(),
        detail: detail.to_owned(),
        related: related.to_vec(),
        related_count,
        since: None,
        until: None,
    }
}

fn owner(standing: OwnerStanding) -> Edge {
    let reference = OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..Default::default() };
    let owner = Some(object("ReplicaSet", "web-7f9c"));
    Edge { reference: Some(reference), owner, standing: standing.into(), ..Default::default() }
}

/// A Pod with one owner.
fn pod(verdict: Verdict, standing: OwnerStanding, reasons: Vec<Reason>) -> ExplainObjectResponse {
    let node = Node { r#ref: Some(object("Pod", "web-2xk8q")), state: NodeState::Live.into(), ..Default::default() };
    ExplainObjectResponse {
        node: Some(node),
        verdict: verdict.into(),
        reasons,
        owners: vec![owner(standing)],
        ..Default::default()
    }
}

fn terminating(mut answer: ExplainObjectResponse, change: impl FnOnce(&mut Node)) -> ExplainObjectResponse {
    let node = answer.node.as_mut().unwrap();
    node.state = NodeState::Terminating.into();
    node.delete_time = at(600);
    change(node);
    answer.owners.clear();
    answer
}

fn work(executor: &str, started: Option<i64>) -> Option<PendingWork> {
    Some(PendingWork {
        action: "delete".to_owned(),
        decide_time: at(3),
        attempts: 1,
        executor: executor.to_owned(),
        start_time: started.and_then(at),
        retry_time: None,
    })
}

fn replica_set() -> [ObjectRef; 1] {
    [object("ReplicaSet", "web-7f9c")]
}

fn told(answer: &ExplainObjectResponse) -> String {
    text(answer, &[], &[], &[], NOW)
}

#[test]
fn kept_by_an_owner() {
    let reasons = vec![reason(Code::SolidOwner, "", &replica_set())];
    insta::assert_snapshot!(told(&pod(Verdict::Kept, OwnerStanding::Solid, reasons)));
}

#[test]
fn kept_without_owners() {
    let answer = ExplainObjectResponse { owners: vec![], ..pod(Verdict::Unowned, OwnerStanding::Solid, vec![]) };
    insta::assert_snapshot!(told(&answer));
}

#[test]
fn undecided_by_each_cause() {
    let rs = replica_set();
    let cases = [
        (OwnerStanding::Unverified, reason(Code::OwnerUnverified, "replicasets.apps is synced", &rs)),
        (OwnerStanding::KindUnresolved, reason(Code::OwnerKindUnresolved, "ReplicaSet.apps is not served", &rs)),
        (OwnerStanding::Unverified, reason(Code::CollectionUnsynced, "replicasets.apps is failed: 403", &rs)),
        (OwnerStanding::Unverified, reason(Code::OwnerUnreadable, "replicasets.apps is synced", &rs)),
    ];
    let texts = cases.map(|(standing, why)| told(&pod(Verdict::Undecided, standing, vec![why])));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn held() {
    let gone = || reason(Code::OwnersAbsent, "", &replica_set());
    let cases = [
        vec![reason(Code::HoldAnnotation, "ownergraph.dev/hold", &[])],
        vec![reason(Code::InvalidReference, "", &replica_set())],
        vec![reason(Code::Paused, "pauses/freeze: restoring from backup", &[]), gone()],
        vec![reason(Code::Paused, "cannot read Pause objects", &[]), gone()],
        vec![
            reason(Code::Protected, "protections/keep: dear", &[]),
            reason(Code::OverBudget, "budgets/few: calm (9 deletions in its window)", &[]),
            gone(),
        ],
    ];
    let texts = cases.map(|reasons| told(&pod(Verdict::Held, OwnerStanding::Dangling, reasons)));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn blocked_because_dependents_may_not_be_seen() {
    let unseen = reason(Code::CollectionUnsynced, "pods is stale", &[]);
    let answer = pod(Verdict::Blocked, OwnerStanding::Solid, vec![unseen]);
    insta::assert_snapshot!(told(&terminating(answer, |node| node.deleting_dependents = true)));
}

#[test]
fn queued_with_and_without_an_executor() {
    let gone = || reason(Code::OwnersAbsent, "DELETED seen at 881", &replica_set());
    let waits = || Reason { since: at(3), ..reason(Code::NoExecutor, "", &[]) };
    let queued = |reasons| ExplainObjectResponse {
        work: work("", None),
        ..pod(Verdict::Collectable, OwnerStanding::Dangling, reasons)
    };
    insta::assert_snapshot!(format!("{}\n{}", told(&queued(vec![gone()])), told(&queued(vec![waits(), gone()]))));
}

#[test]
fn leased() {
    let reasons = vec![reason(Code::OwnersAbsent, "DELETED seen at 881", &replica_set())];
    let answer = pod(Verdict::Collectable, OwnerStanding::Dangling, reasons);
    insta::assert_snapshot!(told(&ExplainObjectResponse { work: work("executor-2", Some(1)), ..answer }));
}

#[test]
fn terminating_by_a_finalizer() {
    let reasons = vec![reason(Code::FinalizerPresent, "backup.example.com/s3", &[])];
    insta::assert_snapshot!(told(&terminating(pod(Verdict::Blocked, OwnerStanding::Solid, reasons), |_| {})));
}

#[test]
fn waiting_in_foreground() {
    let many =
        Reason { related_count: 12, ..reason(Code::BlockingDependents, "", &[object("Pod", "a"), object("Pod", "b")]) };
    let answer = pod(Verdict::Blocked, OwnerStanding::Solid, vec![many]);
    insta::assert_snapshot!(told(&terminating(answer, |node| node.deleting_dependents = true)));
}

#[test]
fn orphaning() {
    let reasons = vec![reason(Code::DependentsToOrphan, "", &[object("Pod", "a")])];
    let answer = pod(Verdict::InProgress, OwnerStanding::Solid, reasons);
    insta::assert_snapshot!(told(&terminating(answer, |node| node.orphaning_dependents = true)));
}

#[test]
fn deleted_by_the_collector_and_by_another_client() {
    let departure = |by_us| Departure {
        time: at(180),
        by_us,
        reasons: if by_us { vec![reason(Code::OwnersAbsent, "DELETED seen at 881", &replica_set())] } else { vec![] },
    };
    let gone = |by_us| ExplainObjectResponse {
        departure: Some(departure(by_us)),
        owners: vec![],
        ..pod(Verdict::Gone, OwnerStanding::Solid, vec![])
    };
    insta::assert_snapshot!(format!("{}\n{}", told(&gone(true)), told(&gone(false))));
}

#[test]
fn never_seen() {
    let pod = object("Pod", "web-2xk8q");
    let there = Found::There { uid: "u".into(), resource_version: "1".into() };
    let all = [Found::Absent, there, Found::Unreadable("pods is forbidden".into())];
    insta::assert_snapshot!(all.map(|found| unknown_text(&pod, &found, false)).join("\n"));
}

#[test]
fn an_object_of_an_ignored_type_is_told_what_that_means() {
    let there = Found::There { uid: "u".into(), resource_version: "1".into() };
    let text = unknown_text(&object("Secret", "s"), &there, true);
    assert!(text.starts_with("Secret shop/s is not collected\n"), "{text}");
    assert!(text.contains("--ignore-resources") && text.contains("foregroundDeletion and orphan stay"), "{text}");
    assert_eq!(unknown_text(&object("Secret", "s"), &Found::Absent, true).lines().count(), 3);
}

#[test]
fn the_document_keeps_its_fields() {
    let reasons = vec![reason(Code::OwnersAbsent, "DELETED seen at 881", &replica_set())];
    let answer = pod(Verdict::Collectable, OwnerStanding::Dangling, reasons);
    let answer = ExplainObjectResponse { work: work("executor-2", Some(1)), ..answer };
    let fields = Schema::load().unwrap().value("ExplainObjectResponse", &answer).unwrap();
    let value = Document::new(Kind::Explanation).with_fields(fields).with_incomplete(&[]);
    insta::assert_snapshot!(crate::kubectl::document::json(&value).unwrap());
}

#[test]
fn a_state_that_may_need_action_is_a_finding() {
    assert_eq!(ending(Verdict::Blocked), Ending::Findings);
    assert_eq!(ending(Verdict::InProgress), Ending::Fine);
}

#[test]
fn owners_that_are_not_listed_are_counted() {
    let mut answer = pod(Verdict::Kept, OwnerStanding::Solid, vec![]);
    answer.node.as_mut().unwrap().owner_count = 4400;
    assert!(told(&answer).contains("and 4399 more; ownergraph owners pod/"), "{}", told(&answer));
}

/// The nearest owner stands in the reasons already, so a chain of one link adds nothing.
#[test]
fn a_chain_shows_the_root_that_decides_and_the_owners_between() {
    let kept_by = |of: &str, by: &str| ExplainObjectResponse {
        node: Some(Node { r#ref: Some(object("ConfigMap", of)), ..Default::default() }),
        verdict: Verdict::Kept.into(),
        reasons: vec![reason(Code::SolidOwner, "", &[object("ConfigMap", by)])],
        ..Default::default()
    };
    let root = ExplainObjectResponse {
        node: Some(Node { r#ref: Some(object("ConfigMap", "root")), ..Default::default() }),
        verdict: Verdict::Unowned.into(),
        ..Default::default()
    };
    assert_eq!(root_line(std::slice::from_ref(&root), NOW), None);
    let whole = [kept_by("a", "b"), kept_by("b", "root"), root];
    let words = "ConfigMap shop/root stays: it has no owners, so the collector never deletes it; through ConfigMap shop/a, ConfigMap shop/b";
    assert_eq!(root_line(&whole, NOW), Some(("root", words.to_owned())));
    let words = "ConfigMap shop/a, ConfigMap shop/b, and further owners";
    assert_eq!(root_line(&whole[..2], NOW), Some(("above", words.to_owned())));
    let text = text(&kept_by("leaf", "a"), &whole, &[], &[], NOW);
    assert!(text.contains("\n  root     ConfigMap shop/root stays"), "{text}");
}
