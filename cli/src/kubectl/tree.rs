//! `tree` and `owners`: everything on one side of an object.

use super::columns::{Cell, columns, now, span};
use super::conditions::{self, Condition, Conditions};
use super::document::{self, Document, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Owners, Tree, Walk};
use super::globs::Globs;
use super::naming::{by_type, resolve_one, shown};
use super::picture;
use super::questions::{Walked, listing};
use super::service::{Need, Service};
use super::session::Session;
use proto::graph::v1alpha1::{Edge, Node, NodeState, OwnerStanding};
use proto::r#type::v1alpha1::ObjectRef;
use rows::{Row, Shape, What, flat, uid};

mod follow;
mod rows;
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

/// What can be followed.
const FOLLOWED: [Format; 4] = [Format::Tree, Format::Table, Format::Wide, Format::Ndjson];

impl From<Owners> for Tree {
    fn from(flags: Owners) -> Tree {
        Tree { object: flags.object, up: true, watch: false, walk: flags.walk, asking: flags.asking }
    }
}

pub(super) async fn run(flags: Tree) -> Answered {
    let mut session = Session::open(flags.asking.clone(), if flags.watch { &FOLLOWED } else { &FORMATS }).await?;
    let named = resolve_one(&mut session, &flags.object).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let reference = named.reference();
    let unknown =
        || Problem::sentence(format!("{} is not known; kubectl ownergraph why may say more", shown(&reference)));
    let root = service.get(&reference).await?.ok_or_else(unknown)?;
    let at = root.r#ref.clone().unwrap_or_default();
    if flags.watch {
        follow::follow(&mut session, &mut service, &at, &flags).await?;
        return Ok(Ending::Fine);
    }
    show(&mut session, &mut service, &at, &flags).await
}

/// The tree as it is now.
async fn show(session: &mut Session, service: &mut Service, at: &ObjectRef, flags: &Tree) -> Answered {
    let unknown = || Problem::sentence(format!("{} is not known any more", shown(at)));
    let root = service.get(at).await?.ok_or_else(unknown)?;
    let walked = match flags.up {
        true => service.owners(at, flags.walk.depth).await?,
        false => service.dependents(at, flags.walk.depth).await?,
    };
    let walked = walked.ok_or_else(unknown)?;
    if !walked.unsynced.is_empty() {
        session.missed(format!("not all is seen: {}", listing(&walked.unsynced)));
    }
    let wanted = Wanted::of(&flags.walk);
    let shape = Shape::of(&root, &walked, flags.up);
    let (kept, hidden) = shape.kept(uid(&root), &|node| wanted.admits(node));
    let found = walked.found.iter().filter(|found| kept.contains(uid(&found.node))).cloned().collect();
    let left = Walked { found, hidden, ..walked.clone() };
    let is_table = matches!(session.format, Format::Tree | Format::Table | Format::Wide);
    let conditions = if is_table && !flags.walk.no_status {
        let nodes: Vec<&Node> = std::iter::once(&root).chain(left.found.iter().map(|found| &found.node)).collect();
        Some(conditions::read(session, &nodes).await)
    } else {
        None
    };
    if matches!(session.format, Format::Tree | Format::Wide) {
        let same = |node: &Node| alike(node, conditions.as_ref());
        let fold: Option<&dyn Fn(&Node) -> String> = if flags.walk.no_fold || flags.up { None } else { Some(&same) };
        let rows = shape.rows(&root, &|node| wanted.admits(node), fold);
        session.print(&table(&rows, conditions.as_ref(), flags.up, session.format == Format::Wide, now()))?;
    } else {
        write(session, &root, &left, flags.up, conditions.as_ref())?;
        if hidden > 0 && session.format != Format::Table {
            session.note(&format!("{hidden} objects are hidden by --kinds or --api-groups"));
        }
    }
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
            session.print(&table(&flat(root, walked), conditions, up, session.format == Format::Wide, now()))
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
    Ok(document
        .with(field, schema.values(message, &found)?)
        .with("depthLimited", walked.depth_limited.into())
        .with("hidden", walked.hidden.into()))
}

/// Which kinds are to be seen.
#[derive(Debug)]
struct Wanted {
    kinds: Globs,
    groups: Globs,
}

impl Wanted {
    fn of(flags: &Walk) -> Wanted {
        Wanted { kinds: Globs::of(&flags.kinds), groups: Globs::of(&flags.api_groups) }
    }

    fn admits(&self, node: &Node) -> bool {
        let object = node.r#ref.clone().unwrap_or_default();
        let group = if object.group.is_empty() { "core" } else { &object.group };
        self.kinds.admits(&object.kind) && self.groups.admits(group)
    }
}

/// The same for siblings that may stand for each other.
fn alike(node: &Node, conditions: Option<&Conditions>) -> String {
    let ObjectRef { group, kind, namespace, name, uid, .. } = node.r#ref.clone().unwrap_or_default();
    let name = rows::pattern(&name);
    let status = conditions.and_then(|all| all.get(&uid)).map_or("", |read| read.status.as_str());
    format!("{kind}.{group}/{namespace}/{name} {status}")
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
    let cells = |row: &Row<'_>| match &row.what {
        What::Object { node, edges } => {
            let object = node.r#ref.clone().unwrap_or_default();
            let name = format!("{}{}", row.branch, name(&object));
            cells(Shown { name, node, edges, read: conditions.map(|all| all.get(&object.uid)) }, up, wide, now)
        }
        What::Alike(group) => {
            let first = &group[0];
            let object = first.node.r#ref.clone().unwrap_or_default();
            let name = format!("{}{}/{} ({} alike)", row.branch, object.kind, rows::pattern(&object.name), group.len());
            let read = conditions.map(|all| all.get(&object.uid));
            let mut cells = cells(Shown { name, node: &first.node, edges: &first.edges, read }, up, wide, now);
            if wide && let Some(uid) = cells.iter_mut().rev().nth(1) {
                *uid = Cell::plain("");
            }
            cells
        }
        What::Hidden(count) => {
            let name = format!("{}… {count} hidden by --kinds or --api-groups", row.branch);
            let mut cells = vec![Cell::plain(""); heads.len()];
            cells[1] = Cell::plain(name);
            cells
        }
    };
    columns(&heads, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// What one line tells.
struct Shown<'w> {
    name: String,
    node: &'w Node,
    edges: &'w [Edge],
    /// Where such columns are wanted: what was read, if it could be.
    read: Option<Option<&'w Condition>>,
}

fn cells(shown: Shown<'_>, up: bool, wide: bool, now: i64) -> Vec<Cell> {
    let object = shown.node.r#ref.clone().unwrap_or_default();
    let none = Condition::default();
    let read = shown.read.map(|read| read.unwrap_or(&none));
    let mut cells = vec![Cell::plain(object.namespace.as_str()), Cell::bold(shown.name)];
    if let Some(read) = read {
        let (ready, reason) = (Cell::plain(read.ready.as_str()), Cell::plain(read.reason.as_str()));
        cells.extend([ready, reason, Cell::state(&read.status)]);
    }
    cells.push(Cell::state(&collecting(shown.node)));
    if up {
        let standings = shown.edges.iter().map(|edge| standing(edge.standing()));
        cells.push(Cell::state(standings.max_by_key(|of| rank(of)).unwrap_or("-")));
    }
    if let Some(read) = read {
        cells.push(Cell::plain(read.created.map(|at| span(now - at)).unwrap_or_default()));
    }
    if wide {
        let edge = shown.edges.first().map(edge).unwrap_or_default();
        cells.extend([Cell::plain(edge), Cell::plain(object.uid), Cell::plain(shown.node.finalizers.join(","))]);
    }
    cells
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
