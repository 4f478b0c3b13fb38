//! `path`: how one object depends on another.

use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{DEPTH_MAX, Format, Path};
use super::naming::{resolve, shown};
use super::picture;
use super::questions::Walked;
use super::service::{Need, Service};
use super::session::Session;
use super::tree::table::standing;
use proto::graph::v1beta1::{Edge, Node};
use std::collections::{BTreeMap, VecDeque};

const FORMATS: [Format; 5] = [Format::Tree, Format::Json, Format::Yaml, Format::Dot, Format::Mermaid];

pub(super) async fn run(flags: Path) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = resolve(&mut session, &flags.objects).await?;
    let [first, second] = named.as_slice() else {
        return Err(Problem::sentence("name exactly two objects, each as TYPE/NAME"));
    };
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let mut ends = Vec::new();
    for object in [first.reference(), second.reference()] {
        let node = service.get(&object).await?;
        ends.push(node.ok_or_else(|| Problem::sentence(format!("{} is not known", shown(&object))))?);
    }
    let mut found = None;
    for (from, to) in [(0, 1), (1, 0)] {
        let at = ends[from].r#ref.clone().unwrap_or_default();
        let walked = service.owners(&at, DEPTH_MAX).await?.unwrap_or_default();
        session.lacks(&walked.unsynced);
        found = shortest(&ends[from], &ends[to], &walked);
        if found.is_some() {
            break;
        }
    }
    let Some((nodes, edges)) = found else {
        session.note(&format!(
            "neither object depends on the other: {}, {}",
            shown(&first.reference()),
            shown(&second.reference())
        ));
        return Ok(Ending::Fine);
    };
    match session.format {
        Format::Dot => {
            session.print(&picture::dot(&nodes.iter().collect::<Vec<_>>(), &edges.iter().collect::<Vec<_>>()))?
        }
        Format::Mermaid => {
            session.print(&picture::mermaid(&nodes.iter().collect::<Vec<_>>(), &edges.iter().collect::<Vec<_>>()))?;
        }
        Format::Json | Format::Yaml => {
            let schema = Schema::load()?;
            let document = Document::new(Kind::Path).with("nodes", schema.values("Node", &nodes)?);
            session.print_document(document.with("edges", schema.values("Edge", &edges)?))?;
        }
        Format::Tree | Format::Table | Format::Wide | Format::Name | Format::Ndjson | Format::Html => {
            session.print(&lines(&nodes, &edges))?
        }
    }
    Ok(Ending::Fine)
}

/// A shortest path along references from an object to one of its owners. It begins with the dependent.
fn shortest(from: &Node, to: &Node, walked: &Walked) -> Option<(Vec<Node>, Vec<Edge>)> {
    let uid = |node: &Node| node.r#ref.clone().unwrap_or_default().uid;
    let mut above: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
    for edge in walked.found.iter().flat_map(|found| &found.edges) {
        above.entry(&edge.dependent_uid).or_default().push(edge);
    }
    let (start, end) = (uid(from), uid(to));
    let mut came_by: BTreeMap<&str, &Edge> = BTreeMap::new();
    let mut open = VecDeque::from([start.as_str()]);
    while let Some(at) = open.pop_front() {
        for edge in above.get(at).into_iter().flatten() {
            let owner = edge.owner_uid.as_str();
            if owner != start && !came_by.contains_key(owner) {
                came_by.insert(owner, edge);
                open.push_back(owner);
            }
        }
    }
    let mut edges = Vec::new();
    let mut at = end.as_str();
    while at != start {
        let edge = came_by.get(at)?;
        edges.push((*edge).clone());
        at = &edge.dependent_uid;
    }
    edges.reverse();
    let node = |wanted: &str| walked.found.iter().map(|found| &found.node).find(|node| uid(node) == wanted).cloned();
    let nodes = std::iter::once(Some(from.clone())).chain(edges.iter().map(|edge| node(&edge.owner_uid)));
    Some((nodes.collect::<Option<_>>()?, edges))
}

fn lines(nodes: &[Node], edges: &[Edge]) -> String {
    let name = |node: &Node| shown(&node.r#ref.clone().unwrap_or_default());
    let Some((first, owners)) = nodes.split_first() else { return String::new() };
    let mut text = format!("{}\n", name(first));
    for (depth, (node, edge)) in owners.iter().zip(edges).enumerate() {
        let left = "  ".repeat(depth);
        text.push_str(&format!("{left}└─ is owned by {} ({})\n", name(node), standing(edge.standing())));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::questions::Found;
    use super::*;
    use proto::r#type::v1beta1::ObjectRef;

    fn node(name: &str) -> Node {
        let object = ObjectRef { kind: "Pod".into(), name: name.into(), uid: name.into(), ..Default::default() };
        Node { r#ref: Some(object), ..Default::default() }
    }

    #[test]
    fn the_shortest_way_is_shown() {
        let edge =
            |from: &str, to: &str| Edge { dependent_uid: from.into(), owner_uid: to.into(), ..Default::default() };
        let found = |name: &str, edges| Found { node: node(name), depth: 1, edges };
        let walked = Walked {
            found: vec![
                found("b", vec![edge("a", "b"), edge("c", "b")]),
                found("c", vec![edge("b", "c")]),
                found("d", vec![edge("c", "d"), edge("b", "d")]),
            ],
            ..Walked::default()
        };
        let (nodes, edges) = shortest(&node("a"), &node("d"), &walked).unwrap();
        assert_eq!(lines(&nodes, &edges), "Pod a\n└─ is owned by Pod b (-)\n  └─ is owned by Pod d (-)\n");
        assert_eq!(shortest(&node("a"), &node("z"), &walked), None);
    }
}
