//! A tree as text: its columns and words.

use super::rows::{Row, What, pattern};
use crate::kubectl::columns::{Cell, columns, now, span};
use crate::kubectl::conditions::{Condition, Conditions};
use crate::kubectl::flags::Walk;
use crate::kubectl::narrow::Narrow;
use proto::graph::v1beta1::{Collecting, Edge, Node, NodeState, OwnerStanding};
use proto::r#type::v1beta1::ObjectRef;

/// The content of the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'t> {
    /// The conditions, if their columns are shown.
    pub(super) conditions: Option<&'t Conditions>,
    /// Whether to show the standing of references.
    pub(super) up: bool,
    pub(super) wide: bool,
    /// The flags that name labels.
    pub(super) walk: &'t Walk,
    pub(super) narrow: &'t Narrow,
}

impl Table<'_> {
    pub(super) fn text(&self, rows: &[Row<'_>]) -> String {
        self.text_at(rows, now())
    }

    pub(super) fn text_at(&self, rows: &[Row<'_>], now: i64) -> String {
        let heads = self.heads();
        columns(&heads, &rows.iter().map(|row| self.row(row, heads.len(), now)).collect::<Vec<_>>())
    }

    fn heads(&self) -> Vec<String> {
        let mut heads = vec!["NAMESPACE", "NAME"];
        if self.conditions.is_some() {
            heads.extend(["READY", "REASON", "STATUS"]);
        }
        heads.push("GC");
        if self.up {
            heads.push("OWNER IS");
        }
        if self.conditions.is_some() {
            heads.push("AGE");
        }
        if self.wide {
            heads.extend(["EDGE", "UID", "FINALIZERS"]);
        }
        let mut heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
        // As in kubectl: the part of the label's name behind the slash.
        let short = |label: &String| label.rsplit('/').next().unwrap_or_default().to_uppercase();
        heads.extend(self.walk.label_columns.iter().map(short));
        heads.extend(self.walk.show_labels.then(|| "LABELS".to_owned()));
        heads
    }

    fn row(&self, row: &Row<'_>, width: usize, now: i64) -> Vec<Cell> {
        match &row.what {
            What::Object { node, edges } => {
                let object = node.r#ref.clone().unwrap_or_default();
                self.cells(format!("{}{}", row.branch, name(&object)), node, edges, (now, true))
            }
            What::Alike(group) => {
                let first = &group[0];
                let object = first.node.r#ref.clone().unwrap_or_default();
                let name = format!("{}{}/{} ({} alike)", row.branch, object.kind, pattern(&object.name), group.len());
                self.cells(name, &first.node, &first.edges, (now, false))
            }
            What::Hidden(count) => {
                let mut cells = vec![Cell::plain(""); width];
                cells[1] = Cell::plain(format!("{}{}", row.branch, self.narrow.said(*count)));
                cells
            }
        }
    }

    /// The cells for one object, or for several that are alike.
    fn cells(&self, name: String, node: &Node, edges: &[Edge], (now, is_one): (i64, bool)) -> Vec<Cell> {
        let object = node.r#ref.clone().unwrap_or_default();
        let none = Condition::default();
        let read = self.conditions.map(|all| all.get(&object.uid).unwrap_or(&none));
        let mut cells = vec![Cell::plain(object.namespace.as_str()), Cell::bold(name)];
        if let Some(read) = read {
            let (ready, reason) = (Cell::plain(read.ready.as_str()), Cell::plain(read.reason.as_str()));
            cells.extend([ready, reason, Cell::state(&read.status)]);
        }
        cells.push(Cell::state(&collecting(node)));
        if self.up {
            let standings = edges.iter().map(|edge| standing(edge.standing()));
            cells.push(Cell::state(standings.max_by_key(|of| rank(of)).unwrap_or("-")));
        }
        if let Some(read) = read {
            cells.push(Cell::plain(read.created.map(|at| span(now - at)).unwrap_or_default()));
        }
        if self.wide {
            let edge = edges.first().map(edge).unwrap_or_default();
            let uid = if is_one { object.uid } else { String::new() };
            cells.extend([Cell::plain(edge), Cell::plain(uid), Cell::plain(node.finalizers.join(","))]);
        }
        cells.extend(labels(self.walk, read).into_iter().map(Cell::plain));
        cells
    }
}

/// The values of the labels that the flags name, and all labels if these are shown.
fn labels(walk: &Walk, read: Option<&Condition>) -> Vec<String> {
    let all = read.map(|read| &read.labels);
    let value = |label: &String| all.and_then(|all| all.get(label)).cloned().unwrap_or_default();
    let pairs = || all.into_iter().flatten().map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>();
    walk.label_columns.iter().map(value).chain(walk.show_labels.then(|| pairs().join(","))).collect()
}

/// The text that is the same for siblings that may be folded.
pub(super) fn alike(node: &Node, conditions: Option<&Conditions>, walk: &Walk) -> String {
    let ObjectRef { group, kind, namespace, name, uid, .. } = node.r#ref.clone().unwrap_or_default();
    let name = pattern(&name);
    let read = conditions.and_then(|all| all.get(&uid));
    let (status, labels) = (read.map_or("", |read| read.status.as_str()), labels(walk, read).join(" "));
    format!("{kind}.{group}/{namespace}/{name} {status} {} {labels}", collecting(node))
}

pub(super) fn name(object: &ObjectRef) -> String {
    format!("{}/{}", object.kind, object.name)
}

/// The state that the collector sees.
pub(super) fn collecting(node: &Node) -> String {
    match node.state() {
        NodeState::Terminating if node.orphaning_dependents => "orphaning".to_owned(),
        NodeState::Terminating if node.deleting_dependents && node.blocking_dependent_count > 0 => {
            format!("blocked({})", node.blocking_dependent_count)
        }
        NodeState::Terminating => "deleting".to_owned(),
        NodeState::Virtual => "not seen".to_owned(),
        NodeState::Gone => "gone".to_owned(),
        NodeState::Live | NodeState::Unspecified => match node.collecting() {
            Collecting::Unspecified => "-",
            Collecting::Queued => "queued",
            Collecting::Held => "held",
            Collecting::Leased => "deleting",
        }
        .to_owned(),
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

/// A standing as one word.
pub(in crate::kubectl) fn standing(standing: OwnerStanding) -> &'static str {
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

/// Whether a reference of this standing is suspicious.
pub(in crate::kubectl) fn is_wrong(standing: OwnerStanding) -> bool {
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
