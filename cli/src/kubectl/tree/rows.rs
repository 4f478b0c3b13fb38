//! The lines of a tree: the position of each object, the hidden objects, and the folded siblings.

use super::Side;
use crate::kubectl::questions::{Found, Walked};
use proto::graph::v1beta1::{Edge, Node, NodeState};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of siblings that are folded.
const FOLD_MIN: usize = 5;

/// One line of the tree.
#[derive(Debug)]
pub(super) struct Row<'w> {
    /// The lines to the left of the name.
    pub(super) branch: String,
    pub(super) what: What<'w>,
}

#[derive(Debug)]
pub(super) enum What<'w> {
    Object {
        node: &'w Node,
        edges: &'w [Edge],
    },
    /// Siblings that are alike, at least [`FOLD_MIN`].
    Alike(Vec<&'w Found>),
    /// Objects that a filter hides, with all below them.
    Hidden(usize),
}

/// The root, and then all objects of the walk.
pub(super) fn flat<'w>(root: &'w Node, walked: &'w Walked) -> Vec<Row<'w>> {
    let row = |node, edges| Row { branch: String::new(), what: What::Object { node, edges } };
    let below = walked.found.iter().map(|found| row(&found.node, found.edges.as_slice()));
    let hidden = (walked.hidden > 0).then(|| Row { branch: String::new(), what: What::Hidden(walked.hidden) });
    std::iter::once(row(root, &[])).chain(below).chain(hidden).collect()
}

/// The lines below an object, reversed to lines above it. The object itself is left out.
pub(super) fn above<'w>(rows: Vec<Row<'w>>) -> Vec<Row<'w>> {
    let upside_down = |row: Row<'w>| Row { branch: row.branch.replace('└', "┌"), ..row };
    let mut lines = rows.into_iter();
    let _object = lines.next();
    lines.rev().map(upside_down).collect()
}

/// The parent of each object in the tree.
#[derive(Debug)]
pub(super) struct Shape<'w> {
    below: BTreeMap<&'w str, Vec<&'w Found>>,
}

impl<'w> Shape<'w> {
    /// Each object is below the neighbour that is its controller, or else below the first of those nearest to the root.
    pub(super) fn of(root: &'w Node, walked: &'w Walked, side: Side) -> Shape<'w> {
        let mut depths: BTreeMap<&str, u32> = BTreeMap::from([(uid(root), 0)]);
        depths.extend(walked.found.iter().map(|found| (uid(&found.node), found.depth)));
        let mut below: BTreeMap<&str, Vec<&Found>> = BTreeMap::new();
        for found in &walked.found {
            let neighbour = |edge: &'w Edge| match side {
                Side::Owners => edge.dependent_uid.as_str(),
                Side::Dependents => edge.owner_uid.as_str(),
            };
            let nearer = |edge: &&'w Edge| depths.get(neighbour(edge)).is_some_and(|depth| depth + 1 == found.depth);
            let controls = |edge: &&&Edge| edge.reference.as_ref().is_some_and(|of| of.controller == Some(true));
            let near: Vec<&'w Edge> = found.edges.iter().filter(|edge| nearer(edge)).collect();
            let parent = near.iter().find(controls).or(near.first()).map_or(uid(root), |edge| neighbour(edge));
            below.entry(parent).or_default().push(found);
        }
        Shape { below }
    }

    fn children(&self, of: &str) -> &[&'w Found] {
        self.below.get(of).map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of objects at and below an object. No object is below itself.
    fn size(&self, of: &'w Found) -> usize {
        let (mut open, mut met) = (vec![of], BTreeSet::new());
        while let Some(found) = open.pop() {
            if met.insert(uid(&found.node)) {
                open.extend(self.children(uid(&found.node)));
            }
        }
        met.len()
    }

    /// The objects that a filter keeps, and the number that it hides. All objects above a kept object are kept too.
    pub(super) fn kept(&self, root: &'w Node, wanted: &impl Fn(&Node) -> bool) -> (BTreeSet<&'w str>, usize) {
        // Each object comes after the one that it is below, so that the reverse order goes from the leaves up.
        let (mut order, mut open, mut met) = (Vec::new(), vec![uid(root)], BTreeSet::from([uid(root)]));
        while let Some(at) = open.pop() {
            for found in self.children(at) {
                if met.insert(uid(&found.node)) {
                    order.push((at, &found.node));
                    open.push(uid(&found.node));
                }
            }
        }
        let mut kept = BTreeSet::new();
        for (parent, node) in order.iter().rev() {
            if kept.contains(uid(node)) || wanted(node) {
                kept.extend([uid(node), *parent]);
            }
        }
        kept.remove(uid(root));
        let hidden = order.len() - kept.len();
        (kept, hidden)
    }

    /// The lines. `alike` returns the same text for siblings that may be folded.
    pub(super) fn rows(
        &self,
        root: &'w Node,
        wanted: &impl Fn(&Node) -> bool,
        alike: Option<&dyn Fn(&Node) -> String>,
    ) -> Vec<Row<'w>> {
        let (kept, _) = self.kept(root, wanted);
        let wanted = |node: &Node| kept.contains(uid(node));
        let mut rows = vec![Row { branch: String::new(), what: What::Object { node: root, edges: &[] } }];
        let mut met = BTreeSet::from([uid(root)]);
        // The entries that must still be drawn, with the lines to their left. This is a stack, because a chain may be
        // deep.
        let mut open: Vec<(What<'w>, String, bool)> = Vec::new();
        let push = |open: &mut Vec<_>, of: &str, left: &str| {
            let below = self.lines_below(of, &wanted, alike);
            let last = below.len().saturating_sub(1);
            open.extend(below.into_iter().enumerate().rev().map(|(at, what)| (what, left.to_owned(), at == last)));
        };
        push(&mut open, uid(root), "");
        while let Some((what, left, last)) = open.pop() {
            let branch = format!("{left}{}", if last { "└─" } else { "├─" });
            if let What::Object { node, .. } = &what {
                if !met.insert(uid(node)) {
                    continue;
                }
                push(&mut open, uid(node), &format!("{left}{}", if last { "  " } else { "│ " }));
            }
            rows.push(Row { branch, what });
        }
        rows
    }

    fn lines_below(
        &self,
        of: &str,
        wanted: &impl Fn(&Node) -> bool,
        alike: Option<&dyn Fn(&Node) -> String>,
    ) -> Vec<What<'w>> {
        let (shown, cut): (Vec<&Found>, Vec<&Found>) = self.children(of).iter().partition(|found| wanted(&found.node));
        let mut groups: BTreeMap<String, Vec<&Found>> = BTreeMap::new();
        for found in &shown {
            let folds = found.node.state() == NodeState::Live && self.children(uid(&found.node)).is_empty();
            if let Some(alike) = alike.filter(|_| folds) {
                groups.entry(alike(&found.node)).or_default().push(found);
            }
        }
        groups.retain(|_, group| group.len() >= FOLD_MIN);
        let folded: BTreeSet<&str> = groups.values().flatten().map(|found| uid(&found.node)).collect();
        let object = |found: &'w Found| What::Object { node: &found.node, edges: &found.edges };
        let mut lines: Vec<What<'w>> =
            shown.into_iter().filter(|found| !folded.contains(uid(&found.node))).map(object).collect();
        lines.extend(groups.into_values().map(What::Alike));
        let hidden: usize = cut.into_iter().map(|found| self.size(found)).sum();
        lines.extend((hidden > 0).then_some(What::Hidden(hidden)));
        lines
    }
}

/// The common part of the names of siblings that one controller created, up to the last dash: `web-*`.
pub(super) fn pattern(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((start, _)) => format!("{start}-*"),
        None => name.to_owned(),
    }
}

pub(super) fn uid(node: &Node) -> &str {
    node.r#ref.as_ref().map_or("", |object| object.uid.as_str())
}
