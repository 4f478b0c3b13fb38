use super::*;
use crate::kubectl::columns::Widths;
use proto::cloudevents::v1::cloud_event::CloudEventAttributeValue;
use proto::decision::v1beta1::Attempt;
use proto::graph::v1beta1::Edge;
use proto::r#type::v1beta1::ObjectRef;
use proto::work::v1beta1::{ItemKind, Outcome};

fn event(phase: Phase) -> DecisionEvent {
    let object = |kind: &str, name: &str| ObjectRef {
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        ..Default::default()
    };
    DecisionEvent {
        position: Some(Position { log_id: "log".into(), sequence: 881 }),
        event_time: Some(prost_types::Timestamp { seconds: 1_000_000, nanos: 0 }),
        decision_id: "d-1".into(),
        phase: phase.into(),
        cause: Cause::OwnersGone.into(),
        kind: ItemKind::Delete.into(),
        target: Some(object("Pod", "web-1")),
        root: Some(object("Deployment", "web")),
        ..Default::default()
    }
}

fn report(outcome: Outcome, http_status: u32, message: &str) -> Option<Attempt> {
    Some(Attempt { outcome: outcome.into(), http_status, message: message.into(), api_calls: 1, ..Attempt::default() })
}

#[test]
fn each_step_is_a_line() {
    let done = DecisionEvent { report: report(Outcome::Done, 200, ""), ..event(Phase::Succeeded) };
    let failed =
        DecisionEvent { report: report(Outcome::Forbidden, 403, "pods is\nforbidden"), ..event(Phase::Failed) };
    let gap = Gap { first_missing: event(Phase::Held).position, reason: "COMPACTED".into(), ..Default::default() };
    let lines = [Record::of(event(Phase::Proposed)), Record::of(done), Record::of(failed), Record::Gap(gap)];
    let rows = lines.iter().filter_map(|record| match line(record, false) {
        Line::Row(row) => Some(row),
        Line::Across(text) => {
            assert_eq!(
                text,
                "-- the log no longer keeps events from 881 on: they are lost; the open decisions follow --\n"
            );
            None
        }
    });
    let shown = |rows: Vec<Vec<Cell>>, wide| {
        let mut widths = Widths::default();
        let rows = [vec![heading(wide)], rows].concat();
        rows.iter().for_each(|row| widths.widen(row));
        rows.iter().map(|row| widths.row(row)).collect::<String>()
    };
    insta::assert_snapshot!(shown(rows.collect(), false));
    let wide = DecisionEvent { executor: "executor-1".into(), ..event(Phase::Leased) };
    let Line::Row(wide) = line(&Record::of(wide), true) else { panic!("a decision is a row") };
    insta::assert_snapshot!(shown(vec![wide], true));
}

#[test]
fn lines_of_json_keep_their_fields() {
    let schema = Schema::load().unwrap();
    let attribute = |attr| CloudEventAttributeValue { attr: Some(attr) };
    let data = event(Phase::Succeeded);
    let cloud = CloudEvent {
        id: "log/881".into(),
        source: "/clusters/c/gc".into(),
        spec_version: "1.0".into(),
        r#type: "dev.ownergraph.decision.succeeded.v1beta1".into(),
        attributes: [
            ("time".to_owned(), attribute(Attr::CeTimestamp(prost_types::Timestamp { seconds: 5, nanos: 0 }))),
            ("subject".to_owned(), attribute(Attr::CeString("/pods/shop/web-1".into()))),
            ("datacontenttype".to_owned(), attribute(Attr::CeString("application/protobuf".into()))),
        ]
        .into(),
        data: Some(Data::ProtoData(prost_types::Any { type_url: String::new(), value: data.encode_to_vec() })),
    };
    let gap = Gap { reason: "LOG_REPLACED".into(), ..Default::default() };
    let records = [Record::of(event(Phase::Leased)), Record::Cloud(Box::new(cloud)), Record::Gap(gap)];
    let values = records.map(|record| record.item(&schema).unwrap());
    insta::assert_snapshot!(serde_json::to_string_pretty(&values).unwrap());
}

#[test]
fn a_wrong_reference_is_no_owner_that_went() {
    let owner =
        ObjectRef { kind: "Deployment".into(), namespace: "lab".into(), name: "web".into(), ..Default::default() };
    let edge =
        |standing: OwnerStanding| Edge { owner: Some(owner.clone()), standing: standing.into(), ..Default::default() };
    let of =
        |edges: &[Edge], root| cause_words(&DecisionEvent { owners: edges.to_vec(), root, ..event(Phase::Proposed) });
    let wrong = edge(OwnerStanding::WrongNamespace);
    assert_eq!(of(std::slice::from_ref(&wrong), None), "no owner Deployment lab/web (wrong namespace)");
    assert_eq!(of(&[edge(OwnerStanding::Dangling)], None), "owners gone");
    let root = event(Phase::Proposed).root;
    assert_eq!(of(&[wrong], root), "owners gone; it began with Deployment shop/web");
}
