//! Gathers what a plan rests on, in steps.

use super::Leader;
use crate::coverage::Coverage;
use crate::graph::NodeId;
use crate::object::Uid;
use crate::plan::{Copied, Copy, PlanOptions, plan};
use crate::view::Plan;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A plan in the making: everything below the targets is copied, and the owners beside them.
#[derive(Debug)]
pub struct Planning {
    options: PlanOptions,
    /// To be copied with all their dependents.
    open: VecDeque<Uid>,
    seen: BTreeSet<Uid>,
    /// Owners, to be copied alone.
    beside: BTreeSet<Uid>,
    nodes: Vec<Copied>,
    cut: bool,
}

impl Planning {
    /// Nothing is looked at yet.
    pub fn new(options: PlanOptions) -> Planning {
        let open = options.targets.iter().chain(&options.assume_gone).cloned().collect();
        Planning { options, open, seen: BTreeSet::new(), beside: BTreeSet::new(), nodes: Vec::new(), cut: false }
    }

    /// Copies at most `budget` objects. True once there is nothing left to copy.
    pub fn step(&mut self, leader: &Leader, budget: usize) -> bool {
        for _ in 0..budget {
            if let Some(uid) = self.open.pop_front() {
                self.visit(leader, uid);
            } else if let Some(uid) = self.beside.pop_first() {
                if self.seen.insert(uid.clone()) {
                    let ids = leader.graph.by_uid(&uid);
                    self.nodes.extend(ids.iter().map(|&id| copied(leader, id, false)));
                }
            } else {
                return true;
            }
        }
        self.open.is_empty() && self.beside.is_empty()
    }

    fn visit(&mut self, leader: &Leader, uid: Uid) {
        if self.seen.contains(&uid) {
            return;
        }
        if self.seen.len() == self.options.max_objects {
            self.cut = true;
            self.open.clear();
            return;
        }
        self.seen.insert(uid.clone());
        for &id in leader.graph.by_uid(&uid) {
            let node = leader.graph.node(id);
            self.nodes.push(copied(leader, id, true));
            let room = (2 * self.options.max_objects).saturating_sub(self.open.len());
            self.cut |= node.dependent_count() > room;
            self.open.extend(node.dependents().take(room).map(|next| leader.graph.node(next).uid.clone()));
            for owner in node.owners().map(|owner| leader.graph.node(owner)) {
                // One that is in deletion already may have waited for this object alone.
                let waits = owner.facts().is_some_and(|facts| facts.deletes_dependents() || facts.orphans_dependents());
                match waits {
                    true => self.open.push_back(owner.uid.clone()),
                    false => {
                        self.beside.insert(owner.uid.clone());
                    }
                }
            }
        }
    }

    /// What becomes of the targets and of what hangs on them. The work is in proportion to the copy and needs no leader.
    pub fn finish(self, frame: Frame) -> Plan {
        let Frame { coverage, unseen, holds_invalid } = frame;
        let copy = Copy { coverage, nodes: self.nodes, holds_invalid, unseen };
        Plan { cut: self.cut, ..plan(copy, &self.options) }
    }
}

/// What a plan needs to know beside the objects.
#[derive(Debug)]
pub struct Frame {
    coverage: Coverage,
    unseen: Vec<crate::coverage::KindId>,
    holds_invalid: bool,
}

impl Leader {
    /// What a plan needs to know beside the objects; to be taken together with its last step.
    pub fn frame(&self) -> Frame {
        let unseen = self.coverage.served().filter(|(_, kind)| self.may_hide_dependents(kind)).map(|(id, _)| id);
        Frame {
            coverage: self.coverage.clone(),
            unseen: unseen.collect(),
            holds_invalid: self.config.policy.invalid_references == super::super::InvalidReferences::Hold,
        }
    }
}

fn copied(leader: &Leader, id: NodeId, whole: bool) -> Copied {
    let node = leader.graph.node(id);
    Copied {
        uid: node.uid.clone(),
        at: node.at.clone(),
        presence: node.presence.clone(),
        orphaned: leader.graph.is_orphaned(node),
        whole,
    }
}
