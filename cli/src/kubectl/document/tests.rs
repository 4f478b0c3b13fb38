use super::*;
use prost_reflect::{Kind as FieldKind, MessageDescriptor};
use std::collections::{BTreeMap, BTreeSet};

/// The messages from which documents are made, besides the fields that the commands add.
const PARTS: [&str; 12] = [
    "ownergraph.graph.v1beta1.Node",
    "ownergraph.graph.v1beta1.Edge",
    "ownergraph.graph.v1beta1.ListDependentsResponse.Dependent",
    "ownergraph.graph.v1beta1.ListOwnersResponse.Owner",
    "ownergraph.graph.v1beta1.ExplainObjectResponse",
    "ownergraph.graph.v1beta1.PreviewDeletionResponse",
    "ownergraph.graph.v1beta1.FindStuckObjectsResponse.Stuck",
    "ownergraph.graph.v1beta1.FindCyclesResponse.Cycle",
    "ownergraph.decision.v1beta1.DecisionEvent",
    "ownergraph.decision.v1beta1.GetParityResponse",
    "ownergraph.admin.v1beta1.Guard",
    "ownergraph.admin.v1beta1.Cascade",
];

#[test]
fn the_documentation_names_each_kind() {
    let page = include_str!("../../../../docs/queries.md");
    for kind in Kind::value_variants() {
        assert!(page.contains(&format!("\n| `{kind:?}` | ")), "docs/queries.md has no row for {kind:?}");
        assert_eq!(Document::new(*kind).item()["kind"], format!("{kind:?}"));
    }
}

/// Scripts rely on every one of these lines. New lines may be added; none may change or be removed.
#[test]
fn the_fields_of_all_documents_stay() {
    let pool = Schema::load().unwrap().0;
    let mut open: Vec<MessageDescriptor> = PARTS.map(|name| pool.get_message_by_name(name).unwrap()).to_vec();
    let (mut met, mut lines) = (BTreeSet::new(), BTreeMap::new());
    while let Some(message) = open.pop() {
        let of = message.full_name().to_owned();
        if !of.starts_with("ownergraph.") || !met.insert(of.clone()) {
            continue;
        }
        for field in message.fields() {
            let kind = field.kind();
            let kind = if let FieldKind::Message(inner) = kind {
                open.push(inner.clone());
                inner.full_name().to_owned()
            } else if let FieldKind::Enum(inner) = kind {
                let values: Vec<String> = inner.values().map(|value| value.name().to_owned()).collect();
                lines.insert(inner.full_name().to_owned(), values.join(" "));
                inner.full_name().to_owned()
            } else {
                format!("{kind:?}").to_lowercase()
            };
            let many = if field.is_list() { "[]" } else { "" };
            lines.insert(format!("{of}.{}", field.json_name()), format!("{kind}{many}"));
        }
    }
    let text: String = lines.iter().map(|(name, kind)| format!("{name}: {kind}\n")).collect();
    insta::assert_snapshot!(text);
}
