//! `tree` and `owners`: everything on one side of an object.

use super::columns::{Cell, columns, now, span};
use super::conditions::{self, Condition, Conditions};
use super::document::{self, Document, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Owners, Tree};
use super::naming::{by_type, resolve_one, shown};
use super::picture;
use super::questions::{Found, Walked, listing};
use super::service::{Need, Service};
use super::session::Session;
use proto::graph::v1alpha1::{Edge, Node, NodeState, OwnerStanding};
use proto::r#type::v1alpha1::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

const FORMATS: [Format; 9] = [
    Format::Tree,
    Format::Table,
    Format::Wide,
    Format::Json,
    Format::Yaml,
    Format::Name,
    Format::Dot,
    Format::Mermaid,
    Format::Ndjson,
];

impl From<Owners> for Tree {
    fn from(flags: Owners) -> Tree {
        Tree { object: flags.object, up: true, walk: flags.walk, asking: flags.asking }
    }
}

pub(super) async fn run(flags: Tree) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = resolve_one(&mut session, &flags.object).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let reference = named.reference();
    let unknown =
        || Problem::sentence(format!("{} is not known; kubectl ownergraph why may say more", shown(&reference)));
    let root = service.get(&reference).await?.ok_or_else(unknown)?;
    let at = root.r#ref.clone().unwrap_or_default();
    let walked = match flags.up {
        true => service.owners(&at, flags.walk.depth).await?,
        false => service.dependents(&at, flags.walk.depth).await?,
    };
    let walked = walked.ok_or_else(unknown)?;
    if !walked.unsynced.is_empty() {
        session.missed(format!("not all is seen: {}", listing(&walked.unsynced)));
    }
    let is_table = matches!(session.format, Format::Tree | Format::Table | Format::Wide);
    let conditions = if is_table && !flags.walk.no_status {
        let nodes: Vec<&Node> = std::iter::once(&root).chain(walked.found.iter().map(|found| &found.node)).collect();
        Some(conditions::read(&mut session, &nodes).await)
    } else {
        None
    };
    write(&session, &root, &walked, flags.up, conditions.as_ref())?;
    if walked.depth_limited {
        session.note(&format!("there is more below depth {}", flags.walk.depth));
    }
    let wrong = flags.up && walked.found.iter().flat_map(|found| &found.edges).any(|edge| is_wrong(edge.standing()));
    Ok(if wrong { Ending::Findings } else { Ending::Fine })
}

fn write(
    session: &Session,
    root: &Node,
    walked: &Walked,
    up: bool,
    conditions: Option<&Conditions>,
) -> Result<(), Problem> {
    let nodes: Vec<&Node> = std::iter::once(root).chain(walked.found.iter().map(|found| &found.node)).collect();
    let edges: Vec<&Edge> = walked.found.iter().flat_map(|found| &found.edges).collect();
    match session.format {
        Format::Tree | Format::Table | Format::Wide => {
            let rows = if session.format == Format::Table { flat(root, walked) } else { rows(root, walked, up) };
            session.print(&table(&rows, conditions, up, session.format == Format::Wide, now()))
        }
        Format::Json | Format::Yaml => session.print_document(document(root, walked, up)?),
        Format::Name => {
            let line = |node: &&Node| format!("{}\n", by_type(&node.r#ref.clone().unwrap_or_default()));
            session.print(&nodes.iter().map(line).collect::<String>())
        }
        Format::Dot => session.print(&picture::dot(&nodes, &edges)),
        Format::Mermaid => session.print(&picture::mermaid(&nodes, &edges)),
        Format::Ndjson => {
            let schema = Schema::load()?;
            let lines = nodes.iter().map(|node| schema.value("Node", *node).map(|value| document::line(&value)));
            session.print(&lines.collect::<Result<String, _>>()?)
        }
    }
}

fn document(root: &Node, walked: &Walked, up: bool) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let (kind, field, message) = match up {
        true => ("Owners", "owners", "ListOwnersResponse.Owner"),
        false => ("Tree", "dependents", "ListDependentsResponse.Dependent"),
    };
    // Both messages have the same fields.
    let found: Vec<proto::graph::v1alpha1::list_dependents_response::Dependent> = walked
        .found
        .iter()
        .map(|found| proto::graph::v1alpha1::list_dependents_response::Dependent {
            node: Some(found.node.clone()),
            depth: found.depth,
            edges: found.edges.clone(),
        })
        .collect();
    let document = Document::new(kind).with("root", schema.value("Node", root)?);
    Ok(document.with(field, schema.values(message, &found)?).with("depthLimited", walked.depth_limited.into()))
}

/// One line of the tree.
#[derive(Debug)]
struct Row<'w> {
    branch: String,
    node: &'w Node,
    edges: &'w [Edge],
}

fn flat<'w>(root: &'w Node, walked: &'w Walked) -> Vec<Row<'w>> {
    let row = |node, edges| Row { branch: String::new(), node, edges };
    let below = walked.found.iter().map(|found| row(&found.node, found.edges.as_slice()));
    std::iter::once(row(root, &[])).chain(below).collect()
}

/// Each object once, below the neighbour that is its controller, or else the first of those nearest to the root.
fn rows<'w>(root: &'w Node, walked: &'w Walked, up: bool) -> Vec<Row<'w>> {
    let mut depths: BTreeMap<&str, u32> = BTreeMap::from([(uid(root), 0)]);
    depths.extend(walked.found.iter().map(|found| (uid(&found.node), found.depth)));
    let mut below: BTreeMap<&str, Vec<&Found>> = BTreeMap::new();
    for found in &walked.found {
        let neighbour = |edge: &'w Edge| if up { edge.dependent_uid.as_str() } else { edge.owner_uid.as_str() };
        let nearer = |edge: &&'w Edge| depths.get(neighbour(edge)).is_some_and(|depth| depth + 1 == found.depth);
        let controls = |edge: &&&Edge| edge.reference.as_ref().is_some_and(|of| of.controller == Some(true));
        let near: Vec<&'w Edge> = found.edges.iter().filter(|edge| nearer(edge)).collect();
        let parent = near.iter().find(controls).or(near.first()).map_or(uid(root), |edge| neighbour(edge));
        below.entry(parent).or_default().push(found);
    }
    let mut rows = vec![Row { branch: String::new(), node: root, edges: &[] }];
    let mut met = BTreeSet::from([uid(root)]);
    // What is still to be drawn, with the lines to its left; a stack, because a chain may be deep.
    let mut open: Vec<(&Found, String, bool)> = Vec::new();
    let push = |open: &mut Vec<(&'w Found, String, bool)>, of: &str, left: &str| {
        let children = below.get(of).map(Vec::as_slice).unwrap_or_default();
        let last = children.len().saturating_sub(1);
        open.extend(children.iter().enumerate().rev().map(|(at, &found)| (found, left.to_owned(), at == last)));
    };
    push(&mut open, uid(root), "");
    while let Some((found, left, last)) = open.pop() {
        if met.insert(uid(&found.node)) {
            let branch = format!("{left}{}", if last { "└─" } else { "├─" });
            rows.push(Row { branch, node: &found.node, edges: &found.edges });
            push(&mut open, uid(&found.node), &format!("{left}{}", if last { "  " } else { "│ " }));
        }
    }
    rows
}

fn uid(node: &Node) -> &str {
    node.r#ref.as_ref().map_or("", |object| object.uid.as_str())
}

fn table(rows: &[Row<'_>], conditions: Option<&Conditions>, up: bool, wide: bool, now: i64) -> String {
    let mut heads = vec!["NAMESPACE", "NAME"];
    if conditions.is_some() {
        heads.extend(["READY", "REASON", "STATUS"]);
    }
    heads.push("GC");
    if up {
        heads.push("OWNER IS");
    }
    if conditions.is_some() {
        heads.push("AGE");
    }
    if wide {
        heads.extend(["EDGE", "UID", "FINALIZERS"]);
    }
    let none = Condition::default();
    let cells = |row: &Row<'_>| {
        let object = row.node.r#ref.clone().unwrap_or_default();
        let read = conditions.map(|all| all.get(&object.uid).unwrap_or(&none));
        let mut cells =
            vec![Cell::plain(object.namespace.as_str()), Cell::bold(format!("{}{}", row.branch, name(&object)))];
        if let Some(read) = read {
            cells.extend([
                Cell::plain(read.ready.as_str()),
                Cell::plain(read.reason.as_str()),
                Cell::state(&read.status),
            ]);
        }
        cells.push(Cell::state(&collecting(row.node)));
        if up {
            cells.push(Cell::state(
                row.edges.iter().map(|edge| standing(edge.standing())).max_by_key(|of| rank(of)).unwrap_or("-"),
            ));
        }
        if let Some(read) = read {
            cells.push(Cell::plain(read.created.map(|at| span(now - at)).unwrap_or_default()));
        }
        if wide {
            let edge = row.edges.first().map(edge).unwrap_or_default();
            cells.extend([Cell::plain(edge), Cell::plain(object.uid), Cell::plain(row.node.finalizers.join(","))]);
        }
        cells
    };
    columns(&heads, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn name(object: &ObjectRef) -> String {
    format!("{}/{}", object.kind, object.name)
}

/// The state that the collector sees.
fn collecting(node: &Node) -> String {
    match node.state() {
        NodeState::Terminating if node.orphaning_dependents => "orphaning".to_owned(),
        NodeState::Terminating if node.deleting_dependents && node.blocking_dependent_count > 0 => {
            format!("blocked({})", node.blocking_dependent_count)
        }
        NodeState::Terminating => "deleting".to_owned(),
        NodeState::Virtual => "not seen".to_owned(),
        NodeState::Gone => "gone".to_owned(),
        NodeState::Live | NodeState::Unspecified => "-".to_owned(),
    }
}

fn edge(edge: &Edge) -> String {
    let reference = edge.reference.clone().unwrap_or_default();
    let mut words = Vec::new();
    if reference.controller == Some(true) {
        words.push("controller");
    }
    if reference.block_owner_deletion == Some(true) {
        words.push("blocking");
    }
    if words.is_empty() { "ownerRef".to_owned() } else { words.join(",") }
}

/// A standing in a word.
pub(super) fn standing(standing: OwnerStanding) -> &'static str {
    match standing {
        OwnerStanding::Unspecified => "-",
        OwnerStanding::Solid => "solid",
        OwnerStanding::Dangling => "dangling",
        OwnerStanding::Waiting => "waiting",
        OwnerStanding::Unverified => "unverified",
        OwnerStanding::InvalidScope => "invalid scope",
        OwnerStanding::WrongNamespace => "wrong namespace",
        OwnerStanding::KindUnresolved => "kind not served",
        OwnerStanding::CoordinatesMismatch => "other kind or name",
        OwnerStanding::Orphaning => "orphaning",
    }
}

fn rank(word: &str) -> u8 {
    match word {
        "-" => 0,
        "solid" => 1,
        "waiting" | "orphaning" => 2,
        _ => 3,
    }
}

/// Whether somebody should look at a reference of this standing.
pub(super) fn is_wrong(standing: OwnerStanding) -> bool {
    match standing {
        OwnerStanding::Unspecified | OwnerStanding::Solid | OwnerStanding::Waiting | OwnerStanding::Orphaning => false,
        OwnerStanding::Dangling
        | OwnerStanding::Unverified
        | OwnerStanding::InvalidScope
        | OwnerStanding::WrongNamespace
        | OwnerStanding::KindUnresolved
        | OwnerStanding::CoordinatesMismatch => true,
    }
}
