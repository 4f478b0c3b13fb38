//! The graph as Graphviz and Mermaid text. The DOT has the node attributes that kube-controller-manager's collector
//! writes.

use super::naming::shown;
use proto::graph::v1beta1::{Edge, Node, NodeState};
use runtime::visible::line;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Draws edges from dependent to owner, the direction of references.
pub(super) fn dot(nodes: &[&Node], edges: &[&Edge]) -> String {
    let mut text = String::from("strict digraph full {\n");
    for node in nodes {
        let object = node.r#ref.clone().unwrap_or_default();
        let is = |state: NodeState| if node.state() == state { "true" } else { "false" };
        let label = format!("{}\n{}", shown(&object), object.uid);
        let attributes: [(&str, &str); 11] = [
            ("label", &label),
            ("group", &object.group),
            ("version", &object.version),
            ("kind", &object.kind),
            ("namespace", &object.namespace),
            ("name", &object.name),
            ("uid", &object.uid),
            ("missing", is(NodeState::Gone)),
            ("beingDeleted", is(NodeState::Terminating)),
            ("deletingDependents", if node.deleting_dependents { "true" } else { "false" }),
            ("virtual", is(NodeState::Virtual)),
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {} [", quoted(&object.uid));
        for (name, value) in attributes {
            let _ = writeln!(text, "    {name}={}", quoted(value));
        }
        text.push_str("  ];\n");
    }
    for (from, to) in pairs(edges) {
        let _ = writeln!(text, "  {} -> {};", quoted(from), quoted(to));
    }
    text.push_str("}\n");
    text
}

/// A flow chart from owner to dependent.
pub(super) fn mermaid(nodes: &[&Node], edges: &[&Edge]) -> String {
    let mut text = String::from("flowchart TD\n");
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let object = node.r#ref.clone().unwrap_or_default();
        let id = ids.len();
        let label = shown(&object).replace('"', "#quot;");
        let _ = writeln!(text, "  n{id}[\"{label}\"]");
        ids.insert(object.uid, id);
    }
    for (from, to) in pairs(edges) {
        if let (Some(dependent), Some(owner)) = (ids.get(from), ids.get(to)) {
            let _ = writeln!(text, "  n{owner} --> n{dependent}");
        }
    }
    text
}

fn pairs<'e>(edges: &[&'e Edge]) -> BTreeSet<(&'e str, &'e str)> {
    edges.iter().map(|edge| (edge.dependent_uid.as_str(), edge.owner_uid.as_str())).collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", line(&text.replace('\\', "\\\\").replace('"', "\\\"")))
}
