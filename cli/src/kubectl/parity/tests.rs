use super::report::{parts, unknown};
use super::*;
use proto::decision::v1beta1::disagreement::{Class, Outcome};
use proto::decision::v1beta1::get_parity_response::{ClassCount, CollectionCount};
use proto::decision::v1beta1::{Disagreement, GetParityResponse, Phase};
use proto::graph::v1beta1::{Edge, OwnerStanding};
use proto::r#type::v1beta1::evidence::Source;
use proto::r#type::v1beta1::{Evidence, GroupResource, ObjectRef, OwnerReference, ResponseMeta};
use proto::work::v1beta1::ItemKind;

/// 2026-11-26 14:02:00 UTC.
const BEGIN: i64 = 1_795_701_720;
const HOSTILE: &str = "<script>alert('\"&')</script>\u{1b}[2J\u{202e}\n";

fn object(group: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        ..Default::default()
    }
}

fn owner(name: &str, standing: OwnerStanding) -> Edge {
    let reference = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let evidence = Evidence {
        source: Source::Watch.into(),
        group_resource: Some(GroupResource { group: "apps".into(), resource: "replicasets".into() }),
        resource_version: "4711".into(),
    };
    Edge {
        reference: Some(reference),
        standing: standing.into(),
        evidence: Some(evidence),
        owner: Some(object("apps", "ReplicaSet", name)),
        ..Default::default()
    }
}

fn event(number: u64, outcome: Outcome, class: Class, name: &str) -> DecisionEvent {
    DecisionEvent {
        event_time: Some(prost_types::Timestamp { seconds: BEGIN + 60, nanos: 0 }),
        phase: Phase::Disagreed.into(),
        kind: ItemKind::Delete.into(),
        target: Some(object("", "Pod", name)),
        owners: vec![owner("web", OwnerStanding::Dangling), owner("spare", OwnerStanding::Solid)],
        owner_count: 3,
        watch_resource_version: "4712".into(),
        disagreement: Some(Disagreement {
            number,
            outcome: outcome.into(),
            class: class.into(),
            user: "system:serviceaccount:kube-system:generic-garbage-collector".into(),
            audit_id: "a-1".into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn report(name: &str) -> Report {
    let millis = |millis: i64| {
        let (seconds, rest) = (millis / 1000, i32::try_from(millis % 1000).unwrap());
        Some(prost_types::Duration { seconds, nanos: rest * 1_000_000 })
    };
    let collection = |resource: &str, agreed, theirs_only, unknown| CollectionCount {
        group_resource: Some(GroupResource { group: String::new(), resource: resource.into() }),
        agreed,
        theirs_only,
        unknown,
        ..Default::default()
    };
    let class = |class: Class, ours_only, theirs_only| ClassCount { class: class.into(), ours_only, theirs_only };
    Report {
        numbers: GetParityResponse {
            since: Some(prost_types::Timestamp { seconds: BEGIN, nanos: 0 }),
            agreed: 12_300,
            theirs_first: 40,
            late: 2,
            unattributed: 5,
            withdrawn: 1,
            classes: vec![class(Class::Unknown, 0, 1), class(Class::Timing, 2, 1), class(Class::Unproven, 0, 7)],
            comparable: 12_344,
            delay_p50: millis(128),
            delay_p99: millis(2_048),
            open: 3,
            unsettled: 1,
            wait: millis(30_000),
            collections: vec![
                collection("", 4, 0, 0),
                collection("configmaps", 12_000, 8, 0),
                collection("pods", 336, 1, 1),
            ],
            meta: Some(ResponseMeta { replica: "graph-0".into(), cluster_uid: "c-1".into(), ..Default::default() }),
            ..Default::default()
        },
        disagreements: vec![
            event(2, Outcome::TheirsOnly, Class::Unknown, name),
            event(1, Outcome::OursOnly, Class::Timing, "web-2"),
        ],
        narrowed: "in namespace shop".to_owned(),
        flags: " --class timing".to_owned(),
        now: BEGIN + 360,
    }
}

#[test]
fn the_three_numbers_come_first_and_the_evidence_last() {
    let text = table::text(&report("web-1"), table::SHORT, true);
    insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string());
    let text = table::text(&report("web-1"), 1, false);
    let text = anstream::adapter::strip_str(&text).to_string();
    assert!(text.contains("\nand 1 disagreement more: ownergraph parity --class timing -o wide\n"), "{text}");
    assert!(!text.contains("THEIRS ONLY"), "{text}");
}

#[test]
fn the_page_is_complete_in_itself() {
    let page = html::page(&report("web-1"));
    insta::assert_snapshot!(page.split_once("</style>").unwrap().1);
    for word in ["http:", "https:", "<script", "url(", "src=", "href=", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn text_of_a_cluster_stays_text() {
    let mut report = report(HOSTILE);
    report.narrowed = HOSTILE.to_owned();
    let event = &mut report.disagreements[0];
    event.watch_resource_version = HOSTILE.to_owned();
    event.owners[0].reference.as_mut().unwrap().api_version = HOSTILE.to_owned();
    event.owners[0].owner.as_mut().unwrap().kind = HOSTILE.to_owned();
    event.owners[0].evidence.as_mut().unwrap().resource_version = HOSTILE.to_owned();
    let found = event.disagreement.as_mut().unwrap();
    (found.user, found.audit_id) = (HOSTILE.to_owned(), HOSTILE.to_owned());
    let meta = report.numbers.meta.as_mut().unwrap();
    (meta.replica, meta.cluster_uid) = (HOSTILE.to_owned(), HOSTILE.to_owned());
    report.numbers.collections[1].group_resource.as_mut().unwrap().resource = HOSTILE.to_owned();
    let page = html::page(&report);
    assert!(!page.contains("<script") && !page.contains(['\u{1b}', '\u{202e}']), "{page}");
    let shown = r"&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;\u{1b}[2J\u{202e}\n";
    assert_eq!(page.matches(shown).count(), 13, "{page}");
    // Styles of this program are escape sequences too, and end with m.
    let text = table::text(&report, table::SHORT, true);
    assert!(text.contains(r"\u{1b}[2J\u{202e}\n") && !text.contains(['\u{202e}']), "{text}");
    let is_style = |rest: &str| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m');
    assert!(text.split("\u{1b}[").skip(1).all(is_style), "{text}");
}

#[test]
fn unknown_disagreements_of_earlier_leaders_are_named_with_the_command_that_lists_them() {
    let mut report = report("a");
    report.numbers.classes[0].ours_only = 2;
    report.disagreements.clear();
    let hint = "2 unknown disagreements of earlier leaders: ";
    let table = |report: &Report| table::text(report, table::SHORT, true);
    let text = table(&report);
    let (_, command) = text.split_once(hint).expect("a hint");
    let command = command.lines().next().unwrap();
    let found = crate::args::command().try_get_matches_from(command.split(' '));
    assert!(found.is_ok(), "{command}: {found:?}");
    assert!(html::page(&report).contains(hint));
    report.numbers.collections[2].unknown = 3;
    assert!(!table(&report).contains("earlier leaders") && !html::page(&report).contains("earlier leaders"));
}

#[test]
fn the_share_is_never_rounded_up_to_all() {
    let share = |agreed, comparable| {
        summary(&GetParityResponse { agreed, comparable, ..Default::default() }).split(',').next().unwrap().to_owned()
    };
    assert_eq!(share(999_999, 1_000_000), "99.99 % agreed");
    assert_eq!(share(3, 3), "100.00 % agreed");
    assert_eq!(share(u64::MAX, u64::MAX), "100.00 % agreed");
    assert_eq!(share(0, 0), "nothing compared yet");
}

#[test]
fn a_class_of_a_newer_service_is_no_intended_difference() {
    let mut numbers = report("a").numbers;
    let before = parts(&numbers);
    numbers.classes.push(ClassCount { class: 4711, ours_only: 5, theirs_only: 6 });
    let after = parts(&numbers);
    let grown: Vec<&str> =
        after.iter().zip(before).filter(|(now, then)| now.2 != then.2).map(|((word, ..), _)| *word).collect();
    assert_eq!(grown, ["of a class that this version does not know"]);
    assert_eq!(unknown(&numbers), 1);
}

#[test]
fn a_printed_command_repeats_the_flags_that_narrow_the_report() {
    let repeated = |since, classes: &[Class], outcomes: &[Outcome]| repeated(since, classes, outcomes);
    assert_eq!(repeated(None, &[], &[]), "");
    let all = repeated(Some(Duration::from_secs(5400)), &[Class::OwnChange, Class::Unknown], &[Outcome::OursOnly]);
    assert_eq!(all, " --since 5400s --class own_change,unknown --outcome ours_only");
    let line = format!("ownergraph parity{all} -o wide");
    let found = crate::args::command().try_get_matches_from(line.split(' '));
    assert!(found.is_ok(), "{line}: {found:?}");
}

#[test]
fn a_report_without_numbers_says_so() {
    let empty = Report::default();
    assert!(is_empty(&empty.numbers) && !is_empty(&report("a").numbers));
    assert!(!table::text(&empty, table::SHORT, true).contains('%'));
    assert!(html::page(&empty).contains("nothing has been compared yet"));
}

#[test]
fn a_document_has_the_numbers_and_the_disagreements() {
    let value = document(&report("web-1")).unwrap().with_incomplete(&[]);
    assert_eq!((&value["kind"], &value["comparable"]), (&"ParityReport".into(), &"12344".into()));
    assert_eq!(value["disagreements"][0]["disagreement"]["class"], "CLASS_UNKNOWN");
    let lines = lines(&report("web-1").disagreements).unwrap();
    assert_eq!(lines.lines().count(), 2);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["kind"], &first["event"]["phase"]), (&"DecisionEvent".into(), &"PHASE_DISAGREED".into()));
}

#[test]
fn no_number_of_a_service_is_too_large() {
    let mut report = report("a");
    let numbers = &mut report.numbers;
    (numbers.agreed, numbers.theirs_first) = (u64::MAX, u64::MAX);
    numbers.delay_p50 = Some(prost_types::Duration { seconds: i64::MAX, nanos: i32::MAX });
    numbers.classes.iter_mut().for_each(|count| (count.ours_only, count.theirs_only) = (u64::MAX, u64::MAX));
    (numbers.collections[0].ours_only, numbers.collections[0].theirs_only) = (u64::MAX, u64::MAX);
    report.disagreements[0].event_time = Some(prost_types::Timestamp { seconds: i64::MIN, nanos: 0 });
    assert!(html::page(&report).contains("18,446,744,073,709,551,615 unknown"));
    assert!(table::text(&report, table::SHORT, true).contains("18,446,744,073,709,551,615 unknown"));
}

#[test]
fn an_older_service_is_named_as_such() {
    let problem = Problem::from(tonic::Status::unimplemented("unknown"));
    assert!(problem.to_string().starts_with("this graph service does not know the call"), "{problem}");
}
