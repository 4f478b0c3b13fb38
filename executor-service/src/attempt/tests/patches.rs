use super::*;

fn remove(uids: &[&str], entries: Vec<OwnerReference>) -> WorkLease {
    let owner_uids = uids.iter().map(|uid| Uid::parse(uid).unwrap()).collect();
    lease(Action::RemoveOwnerReferences { owner_uids, entries, owner_checks: Vec::new() })
}

fn unsupported() -> Reply {
    status(415, "UnsupportedMediaType", json!({}))
}

fn patched(version: &str) -> Reply {
    reply(200, object(version, json!({})))
}

fn strategic() -> String {
    format!(
        r#"PATCH {PATH} strategic-merge {{"metadata":{{"ownerReferences":[{{"$patch":"delete","uid":"owner"}}],"uid":"{UID}"}}}}"#
    )
}

fn merge(version: &str, list: &str) -> String {
    format!(
        r#"PATCH {PATH} merge {{"metadata":{{"ownerReferences":{list},"resourceVersion":"{version}","uid":"{UID}"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn references_go_by_one_strategic_merge_patch() {
    let (report, asked) = play([patched("6")], remove(&["owner"], vec![])).await;
    assert_eq!(asked, [strategic()]);
    assert_eq!((report.outcome, observed_version(&report).as_deref()), (Outcome::Done, Some("6")));
    let (report, _) = play([patched("5")], remove(&["owner"], vec![])).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    let (report, _) = play([gone()], remove(&["owner"], vec![])).await;
    assert_eq!(report.outcome, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn an_immutable_uid_is_looked_at() {
    for (look, outcome) in [
        (gone(), Outcome::Gone),
        (reply(200, object("9", json!({"uid": "another"}))), Outcome::Replaced),
        (reply(200, with_owner("9")), Outcome::Invalid),
    ] {
        let (report, asked) = play([status(422, "Invalid", json!({})), look], remove(&["owner"], vec![])).await;
        assert_eq!((asked, report.outcome), (vec![strategic(), get_line()], outcome));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_strategic_merge_is_remembered_and_keeps_other_entries_as_written() {
    let mut other = written("other", None);
    other["controller"] = json!(false);
    let both = object("7", json!({"ownerReferences": [other, written("owner", Some(false))]}));
    let rest = r#"[{"apiVersion":"apps/v1","controller":false,"kind":"Deployment","name":"o","uid":"other"}]"#;
    let mut script =
        Script::new([unsupported(), reply(200, both), patched("8"), reply(200, with_owner("7")), patched("8")]);
    assert_eq!(script.run(remove(&["owner"], vec![])).await.outcome, Outcome::Done);
    assert_eq!(script.asked(), [strategic(), get_line(), merge("7", rest)]);
    assert_eq!(script.run(remove(&["owner"], vec![])).await.outcome, Outcome::Done);
    assert_eq!(script.asked(), [get_line(), merge("7", "null")]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_of_a_merge_begins_again_three_times_at_most() {
    let (report, asked) = play(
        [unsupported(), reply(200, with_owner("7")), conflict(), reply(200, with_owner("8")), patched("9")],
        remove(&["owner"], vec![]),
    )
    .await;
    assert_eq!(asked[2..], [merge("7", "null"), get_line(), merge("8", "null")]);
    assert_eq!(report.outcome, Outcome::Done);
    let mut replies = vec![unsupported(), reply(200, with_owner("6"))];
    for version in ["7", "8", "9", "10"] {
        replies.extend([conflict(), reply(200, with_owner(version))]);
    }
    let (report, _) = play(replies, remove(&["owner"], vec![])).await;
    assert_eq!((report.outcome, observed_version(&report).as_deref()), (Outcome::Conflict, Some("10")));
}

#[tokio::test(start_paused = true)]
async fn a_merge_with_nothing_left_to_remove_is_not_sent() {
    for (look, outcome) in [
        (reply(200, object("7", json!({}))), Outcome::Unchanged),
        (gone(), Outcome::Gone),
        (reply(200, object("7", json!({"uid": "another"}))), Outcome::Replaced),
    ] {
        let (report, asked) = play([unsupported(), look], remove(&["owner"], vec![])).await;
        assert_eq!((asked.len(), report.outcome), (2, outcome));
    }
}

#[tokio::test(start_paused = true)]
async fn single_entries_of_a_shared_uid_go_by_index_from_the_back() {
    let references =
        json!([written("owner", Some(true)), written("keep", None), written("owner", None), written("gone", None)]);
    let live = |version| object(version, json!({"ownerReferences": references}));
    let line = |version: &str| {
        format!(
            r#"PATCH {PATH} json [{{"op":"test","path":"/metadata/uid","value":"{UID}"}},{{"op":"test","path":"/metadata/resourceVersion","value":"{version}"}},{{"op":"remove","path":"/metadata/ownerReferences/3"}},{{"op":"remove","path":"/metadata/ownerReferences/2"}}]"#
        )
    };
    let item = || remove(&["gone"], vec![entry("owner", None)]);
    let (report, asked) = play([reply(200, live("7")), patched("8")], item()).await;
    assert_eq!((asked, report.outcome), (vec![get_line(), line("7")], Outcome::Done));
    let failed_test = || status(422, "Invalid", json!({}));
    let (report, asked) =
        play([reply(200, live("7")), failed_test(), reply(200, live("9")), patched("10")], item()).await;
    assert_eq!((asked[3].clone(), report.outcome), (line("9"), Outcome::Done));
    let (report, _) = play([reply(200, live("7")), failed_test(), reply(200, live("7"))], item()).await;
    assert_eq!(report.outcome, Outcome::Invalid);
}

#[tokio::test(start_paused = true)]
async fn after_an_ambiguous_attempt_the_references_are_looked_at_first() {
    let again = || WorkLease { previous_attempt_ambiguous: true, ..remove(&["owner"], vec![]) };
    let (report, asked) = play([reply(200, object("6", json!({})))], again()).await;
    assert_eq!((asked.len(), report.outcome), (1, Outcome::Unchanged));
    let (report, asked) = play([reply(200, with_owner("6")), patched("7")], again()).await;
    assert_eq!((asked, report.outcome), (vec![get_line(), strategic()], Outcome::Done));
}

fn blocking() -> WorkLease {
    let facts =
        Facts { owners: Box::new([entry("owner", Some(true)), entry("other", Some(true))]), ..Facts::default() };
    lease_on(Action::UnblockOwnerReferences { entries: vec![entry("owner", Some(true))] }, &facts)
}

fn blocked(version: &str) -> Value {
    object(version, json!({"ownerReferences": [written("owner", Some(true)), written("other", Some(true))]}))
}

#[tokio::test(start_paused = true)]
async fn unblocking_merges_the_complete_entry_at_the_version_that_was_read() {
    let unblocked =
        r#"{"apiVersion":"apps/v1","blockOwnerDeletion":false,"kind":"Deployment","name":"o","uid":"owner"}"#;
    let kept = r#"{"apiVersion":"apps/v1","blockOwnerDeletion":true,"kind":"Deployment","name":"o","uid":"other"}"#;
    let smp = format!(
        r#"PATCH {PATH} strategic-merge {{"metadata":{{"ownerReferences":[{unblocked}],"resourceVersion":"7","uid":"{UID}"}}}}"#
    );
    let (report, asked) = play([reply(200, blocked("7")), patched("8")], blocking()).await;
    assert_eq!((asked, report.outcome), (vec![get_line(), smp.clone()], Outcome::Done));
    let (report, asked) = play([reply(200, blocked("7")), unsupported(), patched("8")], blocking()).await;
    assert_eq!(
        (asked, report.outcome),
        (vec![get_line(), smp, merge("7", &format!("[{unblocked},{kept}]"))], Outcome::Done)
    );
}

#[tokio::test(start_paused = true)]
async fn unblocking_rests_on_the_facts() {
    let free = object("7", json!({"ownerReferences": [written("owner", Some(false)), written("other", Some(true))]}));
    let (report, _) = play([reply(200, free)], blocking()).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    let one = object("7", json!({"ownerReferences": [written("owner", Some(true))]}));
    let (report, _) = play([reply(200, one.clone())], blocking()).await;
    assert_eq!(report.outcome, Outcome::Conflict);
    let (report, asked) = play([reply(200, blocked("6")), conflict(), reply(200, one)], blocking()).await;
    assert_eq!((asked.len(), report.outcome), (3, Outcome::Conflict));
    let (report, asked) =
        play([reply(200, blocked("6")), conflict(), reply(200, blocked("7")), patched("8")], blocking()).await;
    assert_eq!((asked.len(), report.outcome), (4, Outcome::Done));
}

#[tokio::test(start_paused = true)]
async fn unblocking_one_of_two_entries_of_a_uid_goes_by_index() {
    let facts = Facts { owners: Box::new([entry("owner", None), entry("owner", Some(true))]), ..Facts::default() };
    let item = lease_on(Action::UnblockOwnerReferences { entries: vec![entry("owner", Some(true))] }, &facts);
    let live = object("7", json!({"ownerReferences": [written("owner", None), written("owner", Some(true))]}));
    let (report, asked) = play([reply(200, live), patched("8")], item).await;
    assert!(
        asked[1]
            .ends_with(r#"{"op":"replace","path":"/metadata/ownerReferences/1/blockOwnerDeletion","value":false}]"#),
        "{asked:?}"
    );
    assert_eq!(report.outcome, Outcome::Done);
}

fn finalizer() -> WorkLease {
    let mut lease = lease(Action::RemoveFinalizer { finalizer: Name::from("foregroundDeletion") });
    lease.item.preconditions.must_be_terminating = true;
    lease
}

fn finalized(version: &str, finalizers: Value) -> Reply {
    reply(200, object(version, json!({"finalizers": finalizers, "deletionTimestamp": "2026-11-21T09:17:20Z"})))
}

fn finalizer_drop() -> String {
    format!(
        r#"PATCH {PATH} strategic-merge {{"metadata":{{"$deleteFromPrimitiveList/finalizers":["foregroundDeletion"],"resourceVersion":"5","uid":"{UID}"}}}}"#
    )
}

fn finalizer_patch(version: &str, list: &str) -> String {
    format!(r#"PATCH {PATH} merge {{"metadata":{{"finalizers":{list},"resourceVersion":"{version}","uid":"{UID}"}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_goes_by_one_strategic_merge_patch() {
    let (report, asked) = play([finalized("6", json!(["b", "a"]))], finalizer()).await;
    assert_eq!((asked, report.outcome), (vec![finalizer_drop()], Outcome::Done));
    // With its last finalizer the object is deleted, too: the answer shows the last version.
    let (report, _) = play([patched("5")], finalizer()).await;
    assert_eq!((report.outcome, report.observed), (Outcome::Done, None));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_goes_and_the_others_stay_in_order() {
    let lost = [conflict(), unsupported(), finalized("6", json!(["b", "foregroundDeletion", "a"]))];
    for first in lost {
        let replies = [first, finalized("7", json!(["b", "foregroundDeletion", "a"])), patched("8")];
        let (report, asked) = play(replies, finalizer()).await;
        assert_eq!(asked, [finalizer_drop(), get_line(), finalizer_patch("7", r#"["b","a"]"#)]);
        assert_eq!(report.outcome, Outcome::Done);
    }
    let replies = [
        conflict(),
        finalized("7", json!(["foregroundDeletion"])),
        conflict(),
        finalized("8", json!(["foregroundDeletion"])),
        patched("9"),
    ];
    let (report, asked) = play(replies, finalizer()).await;
    assert_eq!(asked[2..], [finalizer_patch("7", "null"), get_line(), finalizer_patch("8", "null")]);
    assert_eq!(report.outcome, Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_only_removed_where_it_is_and_may_go() {
    for (look, outcome) in [
        (gone(), Outcome::Gone),
        (reply(200, object("7", json!({"uid": "another"}))), Outcome::Replaced),
        (finalized("7", json!(["a"])), Outcome::Unchanged),
        (reply(200, object("7", json!({"finalizers": ["foregroundDeletion"]}))), Outcome::Conflict),
        (finalized("5", json!(["foregroundDeletion"])), Outcome::AdmissionFailed),
    ] {
        let (report, asked) = play([conflict(), look], finalizer()).await;
        assert_eq!((asked, report.outcome), (vec![finalizer_drop(), get_line()], outcome));
    }
    let mine = || finalized("7", json!(["foregroundDeletion"]));
    let (report, _) = play([conflict(), mine(), conflict(), mine()], finalizer()).await;
    assert_eq!(report.outcome, Outcome::AdmissionFailed);
    for (write, outcome) in [(broken as fn() -> Reply, Outcome::Ambiguous), (gone, Outcome::Gone)] {
        let (report, _) = play([write()], finalizer()).await;
        assert_eq!(report.outcome, outcome);
        let (report, _) = play([conflict(), mine(), write()], finalizer()).await;
        assert_eq!(report.outcome, outcome);
    }
}
