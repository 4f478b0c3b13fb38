//! `orphans` and `check`: findings about the references of the whole graph.

use super::columns::{Cell, columns};
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Asking, Check, Format, Orphans};
use super::naming::{by_type, lines_by_type, shown};
use super::narrow::Narrow;
use super::service::{Need, Service};
use super::session::Session;
use super::snapshot::Exported;
use super::tree::table::{is_wrong, standing};
use engine::object::in_group;
use proto::graph::v1beta1::{Edge, Node, NodeState, OwnerStanding};
use proto::r#type::v1beta1::ObjectRef;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const FORMATS: [Format; 5] = [Format::Table, Format::Wide, Format::Json, Format::Yaml, Format::Name];

pub(super) async fn orphans(flags: Orphans) -> Answered {
    let (mut session, mut all) = ask(flags.asking).await?;
    let narrow = Narrow::of(&flags.selectors, flags.ages);
    if !flags.dangling && !flags.lost_owner {
        narrow.retain(&mut session, &mut all.nodes, |node| Some(node)).await;
        if all.nodes.is_empty() && matches!(session.format, Format::Table | Format::Wide) {
            session.note(&format!("no objects {}", session.where_searched()));
        } else {
            write_counts(&session, &all)?;
        }
        return Ok(Ending::Fine);
    }
    let mut found =
        findings(&all, |edge| edge.standing() == OwnerStanding::Dangling && (flags.dangling || is_back(&all, edge)));
    narrow.retain(&mut session, &mut found, |(node, _)| Some(*node)).await;
    report(&session, Kind::OrphanList, &found)
}

pub(super) async fn check(flags: Check) -> Answered {
    let (mut session, all) = ask(flags.asking).await?;
    let mut found = findings(&all, |edge| is_wrong(edge.standing()));
    Narrow::of(&flags.selectors, flags.ages).retain(&mut session, &mut found, |(node, _)| Some(*node)).await;
    report(&session, Kind::ReferenceList, &found)
}

/// The graph, or one namespace of it.
async fn ask(asking: Asking) -> Result<(Session, Exported), Problem> {
    let mut session = Session::open(asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let all = service.export(session.include()).await?;
    session.lacks(&all.unsynced);
    Ok((session, all))
}

fn there(all: &Exported) -> impl Iterator<Item = &Node> {
    all.nodes.iter().filter(|node| matches!(node.state(), NodeState::Live | NodeState::Terminating))
}

/// The number of objects of each kind, and the number without owner.
fn unowned(all: &Exported) -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for node in there(all) {
        let object = node.r#ref.clone().unwrap_or_default();
        let count = counts.entry(in_group(&object.kind, &object.group)).or_default();
        count.0 += 1;
        count.1 += usize::from(node.owner_references.is_empty());
    }
    counts
}

fn write_counts(session: &Session, all: &Exported) -> Result<(), Problem> {
    let counts = unowned(all);
    match session.format {
        Format::Json | Format::Yaml => {
            let kinds: Vec<Value> = counts
                .iter()
                .map(|(kind, (all, without))| json!({ "kind": kind, "objects": all, "withoutOwner": without }))
                .collect();
            session.print_document(Document::list(Kind::OrphanCountList, Value::from(kinds)))
        }
        Format::Name => session.print(&lines_by_type(without(all).map(|node| node.r#ref.as_ref()))),
        Format::Wide => session.print_table(&objects(all)),
        Format::Table | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            let row = |(kind, (all, without)): (&String, &(usize, usize))| {
                vec![Cell::bold(kind.as_str()), Cell::plain(all.to_string()), Cell::plain(without.to_string())]
            };
            session.print_table(&columns(
                &["KIND", "OBJECTS", "WITHOUT OWNER"],
                &counts.iter().map(row).collect::<Vec<_>>(),
            ))
        }
    }
}

/// The objects without owner.
fn without(all: &Exported) -> impl Iterator<Item = &Node> {
    there(all).filter(|node| node.owner_references.is_empty())
}

fn objects(all: &Exported) -> String {
    let row = |node: &Node| {
        let object = node.r#ref.clone().unwrap_or_default();
        let name = Cell::bold(format!("{}/{}", object.kind, object.name));
        vec![Cell::plain(object.namespace), name, Cell::plain(object.uid)]
    };
    let mut rows: Vec<&Node> = without(all).collect();
    rows.sort_by_key(|node| address(node.r#ref.as_ref()));
    columns(&["NAMESPACE", "NAME", "UID"], &rows.into_iter().map(row).collect::<Vec<_>>())
}

/// A suspicious reference, and its dependent.
type Finding<'a> = (&'a Node, &'a Edge);

fn findings<'a>(all: &'a Exported, wanted: impl Fn(&Edge) -> bool) -> Vec<Finding<'a>> {
    let by_uid: BTreeMap<&str, &Node> =
        all.nodes.iter().filter_map(|node| Some((node.r#ref.as_ref()?.uid.as_str(), node))).collect();
    let found = all.edges.iter().filter(|edge| wanted(edge));
    let mut found: Vec<Finding<'a>> =
        found.filter_map(|edge| Some((*by_uid.get(edge.dependent_uid.as_str())?, edge))).collect();
    found.sort_by_key(|(node, edge)| (address(node.r#ref.as_ref()), edge.owner_uid.clone()));
    found
}

/// Whether an object with the owner's name exists again, with another uid.
fn is_back(all: &Exported, edge: &Edge) -> bool {
    let owner = address(edge.owner.as_ref());
    there(all).any(|node| address(node.r#ref.as_ref()) == owner)
}

fn address(object: Option<&ObjectRef>) -> (String, String, String, String) {
    let object = object.cloned().unwrap_or_default();
    (object.group, object.kind, object.namespace, object.name)
}

fn report(session: &Session, kind: Kind, found: &[Finding<'_>]) -> Answered {
    match session.format {
        Format::Json | Format::Yaml => {
            let schema = Schema::load()?;
            let value = |(node, edge): &Finding<'_>| {
                Ok(json!({ "node": schema.value("Node", *node)?, "edge": schema.value("Edge", *edge)? }))
            };
            let findings = found.iter().map(value).collect::<Result<Vec<Value>, Problem>>()?;
            session.print_document(Document::list(kind, Value::from(findings)))?;
        }
        Format::Name => {
            let names: BTreeSet<String> = found
                .iter()
                .map(|(node, _)| format!("{}\n", by_type(&node.r#ref.clone().unwrap_or_default())))
                .collect();
            session.print(&names.into_iter().collect::<String>())?;
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            if !found.is_empty() {
                session.print_table(&table(found))?;
            }
        }
    }
    if found.is_empty() {
        session.note(&format!("no findings {}", session.where_searched()));
        return Ok(Ending::Fine);
    }
    Ok(Ending::Findings)
}

fn table(found: &[Finding<'_>]) -> String {
    let row = |(node, edge): &Finding<'_>| {
        let object = node.r#ref.clone().unwrap_or_default();
        let reference = edge.reference.clone().unwrap_or_default();
        let owner = edge.owner.as_ref().map_or_else(|| format!("{} {}", reference.kind, reference.name), shown);
        vec![
            Cell::plain(object.namespace.as_str()),
            Cell::bold(format!("{}/{}", object.kind, object.name)),
            Cell::plain(owner),
            Cell::state(standing(edge.standing())),
            Cell::plain(edge.owner_uid.as_str()),
        ]
    };
    columns(&["NAMESPACE", "NAME", "OWNER", "OWNER IS", "OWNER UID"], &found.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::r#type::v1beta1::OwnerReference;

    fn object(name: &str, uid: &str) -> ObjectRef {
        let (kind, namespace) = ("ConfigMap".to_owned(), "shop".to_owned());
        ObjectRef { kind, namespace, name: name.to_owned(), uid: uid.to_owned(), ..Default::default() }
    }

    fn node(name: &str, uid: &str, owned: bool) -> Node {
        let owner_references = if owned { vec![OwnerReference::default()] } else { vec![] };
        Node { r#ref: Some(object(name, uid)), state: NodeState::Live.into(), owner_references, ..Default::default() }
    }

    #[test]
    fn counts_findings_and_lost_owners_come_from_one_export() {
        let edge = |dependent: &str, owner: ObjectRef, standing: OwnerStanding| Edge {
            dependent_uid: dependent.to_owned(),
            owner_uid: owner.uid.clone(),
            owner: Some(owner),
            standing: standing.into(),
            ..Default::default()
        };
        let all = Exported {
            nodes: vec![node("owner", "new", false), node("a", "a", true), node("b", "b", true)],
            edges: vec![
                edge("a", object("owner", "old"), OwnerStanding::Dangling),
                edge("b", object("other", "gone"), OwnerStanding::Dangling),
                edge("b", object("owner", "new"), OwnerStanding::Solid),
            ],
            ..Exported::default()
        };
        assert_eq!(unowned(&all), BTreeMap::from([("ConfigMap".to_owned(), (3, 1))]));
        let listed = anstream::adapter::strip_str(&objects(&all)).to_string();
        assert_eq!(listed, "NAMESPACE  NAME             UID\nshop       ConfigMap/owner  new\n");
        assert_eq!(findings(&all, |edge| is_wrong(edge.standing())).len(), 2);
        let lost = findings(&all, |edge| edge.standing() == OwnerStanding::Dangling && is_back(&all, edge));
        let text = anstream::adapter::strip_str(&table(&lost)).to_string();
        insta::assert_snapshot!(text, @r"
        NAMESPACE  NAME         OWNER                 OWNER IS  OWNER UID
        shop       ConfigMap/a  ConfigMap shop/owner  dangling  old
        ");
    }
}
