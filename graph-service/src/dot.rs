//! The graph as DOT text, with the attributes that upstream's collector writes (`/debug/controllers/…/graph`), so that
//! old scripts still parse it.

use engine::evidence::Presence;
use engine::object::OwnerReference;
use engine::view::NodeView;
use runtime::visible::is_harmless;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// Draws nodes and references as a `strict digraph`: nodes by uid, edges from dependent to owner, both sorted.
///
/// Leaves out nodes with neither owners nor dependents. Draws an owner that is not among `nodes` once, as missing. If
/// references disagree about a uid, draws the best-known node. `cut_at` is the maximum number of nodes, if the graph
/// has more.
pub(crate) fn graph(nodes: &[NodeView], cut_at: Option<usize>) -> String {
    let (vertices, edges) = collect(nodes);
    let mut text = String::from("strict digraph full {\n");
    if let Some(max) = cut_at {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  // Only the first {max} nodes are drawn; ask for a part with ?uid=.");
    }
    if !vertices.is_empty() {
        text.push_str("  // Node definitions.\n");
    }
    for (uid, vertex) in &vertices {
        vertex.write(uid, &mut text);
    }
    if !edges.is_empty() {
        text.push_str("  // Edge definitions.\n");
    }
    for (from, to) in &edges {
        let _ = writeln!(text, "  {} -> {};", quote(from), quote(to));
    }
    text.push_str("}\n");
    text
}

/// One node statement. The attributes have group and version in separate fields.
struct Vertex {
    group: String,
    version: String,
    kind: String,
    namespace: String,
    name: String,
    missing: bool,
    being_deleted: bool,
    deleting_dependents: bool,
    is_virtual: bool,
}

type Vertices = BTreeMap<String, Vertex>;
type Edges = BTreeSet<(String, String)>;

fn collect(nodes: &[NodeView]) -> (Vertices, Edges) {
    let mut vertices = Vertices::new();
    let mut edges = Edges::new();
    for node in nodes.iter().filter(|node| node.dependents > 0 || !node.facts.owners.is_empty()) {
        let uid = node.object.uid.to_string();
        for owner in &node.facts.owners {
            edges.insert((uid.clone(), owner.uid.to_string()));
        }
        match vertices.entry(uid) {
            Entry::Vacant(place) => {
                place.insert(Vertex::known(node));
            }
            Entry::Occupied(mut place) if place.get().doubt() > Vertex::known(node).doubt() => {
                place.insert(Vertex::known(node));
            }
            Entry::Occupied(_) => {}
        }
    }
    for owner in nodes.iter().flat_map(|node| &node.facts.owners) {
        vertices.entry(owner.uid.to_string()).or_insert_with(|| Vertex::missing(owner));
    }
    (vertices, edges)
}

impl Vertex {
    fn known(node: &NodeView) -> Vertex {
        Vertex {
            group: node.object.group.to_string(),
            version: node.object.version.to_string(),
            kind: node.object.kind.to_string(),
            namespace: node.object.namespace.to_string(),
            name: node.object.name.to_string(),
            missing: matches!(node.presence, Presence::Absent(_)),
            being_deleted: node.facts.terminating,
            deleting_dependents: node.facts.deletes_dependents(),
            is_virtual: matches!(node.presence, Presence::Virtual { .. } | Presence::Read { .. }),
        }
    }

    /// An owner that the selection does not hold, as its reference describes it.
    fn missing(owner: &OwnerReference) -> Vertex {
        Vertex {
            group: owner.group().to_owned(),
            version: owner.version().to_owned(),
            kind: owner.kind.to_string(),
            namespace: String::new(),
            name: owner.name.to_string(),
            missing: true,
            being_deleted: false,
            deleting_dependents: false,
            is_virtual: false,
        }
    }

    /// The rank of a node. A lower rank means that the node is better known.
    fn doubt(&self) -> u8 {
        u8::from(self.missing) * 2 + u8::from(self.is_virtual)
    }

    fn label(&self, uid: &str) -> String {
        let mut label = format!("uid={uid}\nnamespace={}\n{}.{}", self.namespace, self.kind, self.version);
        if !self.group.is_empty() {
            label.push('.');
            label.push_str(&self.group);
        }
        label.push('/');
        label.push_str(&self.name);
        label.push('\n');
        let flags: Vec<&str> = [
            (self.being_deleted, "beingDeleted"),
            (self.deleting_dependents, "deletingDependents"),
            (self.is_virtual, "virtual"),
            (self.missing, "missingFromGraph"),
        ]
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .collect();
        if !flags.is_empty() {
            label.push_str(&flags.join(","));
            label.push('\n');
        }
        label
    }

    fn write(&self, uid: &str, text: &mut String) {
        let flag = |set: bool| if set { "true" } else { "false" };
        let label = self.label(uid);
        let attributes: [(&str, &str); 11] = [
            ("label", &label),
            ("group", &self.group),
            ("version", &self.version),
            ("kind", &self.kind),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", uid),
            ("missing", flag(self.missing)),
            ("beingDeleted", flag(self.being_deleted)),
            ("deletingDependents", flag(self.deleting_dependents)),
            ("virtual", flag(self.is_virtual)),
        ];
        let _ = writeln!(text, "  {} [", quote(uid));
        for (key, value) in attributes {
            let _ = writeln!(text, "    {key}={}", quote(value));
        }
        text.push_str("  ];\n");
    }
}

/// Quotes as Go's `%q` does: printable characters stay, also beyond ASCII.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            ' ' => quoted.push(' '),
            _ if !is_harmless(character) || character.is_whitespace() => {
                let _ = match u32::from(character) {
                    code @ ..0x80 => write!(quoted, "\\x{code:02x}"),
                    code @ ..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                    code => write!(quoted, "\\U{code:08x}"),
                };
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
