//! `tree` and `owners`: all objects on one side of an object, or on both sides.

use super::conditions;
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Owners, Tree};
use super::naming::{command_about, lines_by_type, resolve_one, shown};
use super::narrow::Narrow;
use super::picture;
use super::questions::Walked;
use super::service::{Need, Service};
use super::session::Session;
use proto::graph::v1beta1::list_dependents_response::Dependent;
use proto::graph::v1beta1::{Edge, Node};
use proto::r#type::v1beta1::ObjectRef;
use rows::{Row, Shape, above, flat, uid};
use serde_json::Value;
use table::{Table, alike, is_wrong};

mod follow;
mod rows;
pub(super) mod table;
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

/// Formats that can follow changes.
const FOLLOWED: [Format; 4] = [Format::Tree, Format::Table, Format::Wide, Format::Ndjson];

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Owners,
    Dependents,
}

impl Tree {
    fn sides(&self) -> &'static [Side] {
        match (self.both, self.up) {
            (true, _) => &[Side::Owners, Side::Dependents],
            (false, true) => &[Side::Owners],
            (false, false) => &[Side::Dependents],
        }
    }
}

impl From<Owners> for Tree {
    fn from(flags: Owners) -> Tree {
        Tree { object: flags.object, up: true, both: false, watch: false, walk: flags.walk, asking: flags.asking }
    }
}

pub(super) async fn run(flags: Tree) -> Answered {
    let mut session = Session::open(flags.asking.clone(), if flags.watch { &FOLLOWED } else { &FORMATS }).await?;
    if flags.watch && session.is_file() {
        return Err(Problem::sentence("a snapshot does not change: --watch needs a cluster"));
    }
    let named = resolve_one(&mut session, &flags.object).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let reference = named.reference();
    let unknown = || {
        Problem::sentence(format!(
            "{} is not known; {} may show more",
            shown(&reference),
            command_about("why", &reference)
        ))
    };
    let root = service.get(&reference).await?.ok_or_else(unknown)?;
    let at = root.r#ref.clone().unwrap_or_default();
    if flags.watch {
        follow::follow(&mut session, &mut service, &at, &flags).await?;
        return Ok(Ending::Fine);
    }
    show(&mut session, &mut service, &at, &flags).await
}

/// An object, and all objects on some of its sides.
struct Seen {
    root: Node,
    sides: Vec<(Side, Walked)>,
}

/// The tree as it is now.
async fn show(session: &mut Session, service: &mut Service, at: &ObjectRef, flags: &Tree) -> Answered {
    let seen = ask(session, service, at, flags).await?;
    let Seen { root, sides } = &seen;
    let narrow = Narrow::of_walk(&flags.walk);
    let read = if narrow.reads() { Some(conditions::read(session, &nodes(root, sides)).await) } else { None };
    let wanted = |node: &Node| narrow.admits(node, read.as_ref().and_then(|all| all.get(uid(node))));
    let shapes: Vec<Shape<'_>> = sides.iter().map(|(side, walked)| Shape::of(root, walked, *side)).collect();
    let left: Vec<(Side, Walked)> =
        shapes.iter().zip(sides).map(|(shape, side)| leave(shape, root, side, &wanted)).collect();
    let is_table = matches!(session.format, Format::Tree | Format::Table | Format::Wide);
    let conditions = match read {
        Some(ref read) if is_table && !flags.walk.no_status => Some(read.clone()),
        None if is_table && !flags.walk.no_status => Some(conditions::read(session, &nodes(root, &left)).await),
        Some(_) | None => None,
    };
    let hidden: usize = left.iter().map(|(_, walked)| walked.hidden).sum();
    if is_table {
        let same = |node: &Node| alike(node, conditions.as_ref(), &flags.walk);
        let mut parts = Vec::new();
        for (shape, (side, walked)) in shapes.iter().zip(&left) {
            let folds = *side == Side::Dependents && !flags.walk.no_fold;
            let fold: Option<&dyn Fn(&Node) -> String> = if folds { Some(&same) } else { None };
            let is_flat = session.format == Format::Table;
            parts.push(if is_flat { flat(root, walked) } else { shape.rows(root, &wanted, fold) });
        }
        let table = Table {
            conditions: conditions.as_ref(),
            up: left.iter().any(|(side, _)| *side == Side::Owners),
            wide: session.format == Format::Wide,
            walk: &flags.walk,
            narrow: &narrow,
        };
        session.print_table(&table.text(&joined(parts)))?;
    } else {
        write(session, root, &left)?;
        if hidden > 0 {
            session.note(&narrow.said(hidden));
        }
    }
    if sides.iter().any(|(_, walked)| walked.depth_limited) {
        session.note(&format!("there are more objects beyond depth {}", flags.walk.depth));
    }
    let owners = sides.iter().filter(|(side, _)| *side == Side::Owners).flat_map(|(_, walked)| &walked.found);
    let wrong = owners.flat_map(|found| &found.edges).any(|edge| is_wrong(edge.standing()));
    Ok(if wrong { Ending::Findings } else { Ending::Fine })
}

async fn ask(session: &mut Session, service: &mut Service, at: &ObjectRef, flags: &Tree) -> Result<Seen, Problem> {
    let unknown = || Problem::sentence(format!("{} is no longer known", shown(at)));
    let root = service.get(at).await?.ok_or_else(unknown)?;
    let mut sides = Vec::new();
    for side in flags.sides() {
        let walked = match side {
            Side::Owners => service.owners(at, flags.walk.depth).await?,
            Side::Dependents => service.dependents(at, flags.walk.depth).await?,
        };
        let walked = walked.ok_or_else(unknown)?;
        session.lacks(&walked.unsynced);
        if walked.redacted > 0 {
            session.missed(format!("{} more objects exist that you may not see", walked.redacted));
        }
        sides.push((*side, walked));
    }
    Ok(Seen { root, sides })
}

fn nodes<'s>(root: &'s Node, sides: &'s [(Side, Walked)]) -> Vec<&'s Node> {
    let found = sides.iter().flat_map(|(_, walked)| &walked.found);
    std::iter::once(root).chain(found.map(|found| &found.node)).collect()
}

/// Applies the filters to a side.
fn leave(
    shape: &Shape<'_>,
    root: &Node,
    (side, walked): &(Side, Walked),
    wanted: &impl Fn(&Node) -> bool,
) -> (Side, Walked) {
    let (kept, hidden) = shape.kept(root, wanted);
    let found = walked.found.iter().filter(|found| kept.contains(uid(&found.node))).cloned().collect();
    (*side, Walked { found, hidden, ..walked.clone() })
}

/// The lines of one side. For both sides, the first lines are above the object and the others below.
fn joined(mut parts: Vec<Vec<Row<'_>>>) -> Vec<Row<'_>> {
    let last = parts.pop().unwrap_or_default();
    parts.into_iter().flat_map(above).chain(last).collect()
}

fn write(session: &Session, root: &Node, sides: &[(Side, Walked)]) -> Result<(), Problem> {
    let nodes = nodes(root, sides);
    let edges: Vec<&Edge> = sides.iter().flat_map(|(_, walked)| &walked.found).flat_map(|found| &found.edges).collect();
    match session.format {
        Format::Dot => session.print(&picture::dot(&nodes, &edges)),
        Format::Mermaid => session.print(&picture::mermaid(&nodes, &edges)),
        Format::Name => session.print(&lines_by_type(nodes.iter().map(|node| node.r#ref.as_ref()))),
        Format::Ndjson => session.print(&Schema::load()?.lines("Node", nodes)?),
        Format::Json | Format::Yaml | Format::Tree | Format::Table | Format::Wide | Format::Html => {
            session.print_document(document(root, sides)?)
        }
    }
}

fn document(root: &Node, sides: &[(Side, Walked)]) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let kind = match sides {
        [(Side::Owners, _)] => Kind::Owners,
        [(Side::Dependents, _)] => Kind::Tree,
        _ => Kind::Lineage,
    };
    let mut document = Document::new(kind).with("root", schema.value("Node", root)?);
    for (side, walked) in sides {
        let (field, message) = match side {
            Side::Owners => ("owners", "ListOwnersResponse.Owner"),
            Side::Dependents => ("dependents", "ListDependentsResponse.Dependent"),
        };
        // Both messages have the same fields.
        let found: Vec<Dependent> = walked
            .found
            .iter()
            .map(|found| Dependent { node: Some(found.node.clone()), depth: found.depth, edges: found.edges.clone() })
            .collect();
        document = document.with(field, schema.values(message, &found)?);
    }
    let hidden: usize = sides.iter().map(|(_, walked)| walked.hidden).sum();
    let depth_limited = sides.iter().any(|(_, walked)| walked.depth_limited);
    Ok(document.with("depthLimited", Value::from(depth_limited)).with("hidden", Value::from(hidden)))
}
