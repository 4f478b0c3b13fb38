//! Which objects a watch is about: those below its root, or all. Kept up to date from what may have changed, in steps.
//!
//! An object belongs to the set at the smallest depth that one of its owners in the set gives it. One that loses its place is taken out with
//! everything that had its place through it, all of that first; then each is looked at again, because another owner may keep it in. Taken
//! out first, objects that own each other cannot keep each other in.

use engine::leader::Leader;
use engine::object::Uid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Dependents of one object that are listed under one hold of the graph.
const BELOW_STEP: usize = 1000;
/// Most work that may wait.
const WORK_MAX: usize = 1_000_000;

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Everything,
    Below { uid: Uid, max_depth: u32 },
}

/// An object of the set.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// `None` where it has lost its place, and may find another.
    depth: Option<u32>,
    /// A digest of how it was shown last; `None` where it was not.
    pub(super) shown: Option<u64>,
    /// The message that showed it first,
    pub(super) since: u64,
    /// and the one that did last.
    pub(super) at: u64,
    /// The reader may not see it.
    is_hidden: bool,
}

/// The set, and what has to be looked at.
#[derive(Debug)]
pub(super) struct Members {
    root: Root,
    known: BTreeMap<Uid, Member>,
    /// To be looked at before `later`: whatever had its place through something that lost its own.
    first: VecDeque<Work>,
    later: VecDeque<Work>,
    /// To be shown anew, or to be shown gone.
    touched: BTreeSet<Uid>,
    /// More than may be, or than may wait.
    pub(super) overflown: bool,
    members_max: usize,
    /// Members that the reader may not see.
    hidden: u32,
}

#[derive(Debug)]
enum Work {
    Look(Uid),
    /// The dependents of this one, below a place among them.
    Below(Uid, Option<usize>),
    /// The same, where this one lost its place.
    BelowLost(Uid, Option<usize>),
}

impl Members {
    pub(super) fn new(root: Root, members_max: usize) -> Members {
        let mut later = VecDeque::new();
        if let Root::Below { uid, .. } = &root {
            later.push_back(Work::Below(uid.clone(), None));
        }
        Members {
            root,
            known: BTreeMap::new(),
            first: VecDeque::new(),
            later,
            touched: BTreeSet::new(),
            overflown: false,
            members_max,
            hidden: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Uid, &Member)> {
        self.known.iter()
    }

    pub(super) fn get_mut(&mut self, uid: &Uid) -> Option<&mut Member> {
        self.known.get_mut(uid)
    }

    /// The depth of an object that belongs to the set.
    pub(super) fn depth(&self, uid: &Uid) -> Option<u32> {
        self.known.get(uid)?.depth
    }

    /// Notes whether the reader may see an object.
    pub(super) fn hide(&mut self, uid: &Uid, is_hidden: bool) {
        let Some(member) = self.known.get_mut(uid).filter(|member| member.is_hidden != is_hidden) else { return };
        member.is_hidden = is_hidden;
        self.hidden = if is_hidden { self.hidden.saturating_add(1) } else { self.hidden.saturating_sub(1) };
    }

    /// How many objects of the set the reader may not see.
    pub(super) fn hidden(&self) -> u32 {
        self.hidden
    }

    /// Whether a reference to this object leads into the set, or to its root.
    pub(super) fn leads_inside(&self, owner: &Uid) -> bool {
        match &self.root {
            Root::Everything => true,
            Root::Below { uid, .. } => owner == uid || self.depth(owner).is_some(),
        }
    }

    /// Has objects looked at.
    pub(super) fn note(&mut self, uids: impl IntoIterator<Item = Uid>) {
        self.later.extend(uids.into_iter().map(Work::Look));
        self.overflown |= self.later.len() > WORK_MAX;
    }

    /// Looks at up to `budget` objects. True once there is nothing left to look at.
    pub(super) fn step(&mut self, leader: &Leader, budget: usize) -> bool {
        let mut left = budget;
        while left > 0 && !self.overflown {
            let Some(work) = self.first.pop_front().or_else(|| self.later.pop_front()) else { return true };
            left = left.saturating_sub(match &work {
                Work::Look(_) => 1,
                // Only their names are taken.
                Work::Below(..) | Work::BelowLost(..) => BELOW_STEP / 10,
            });
            match work {
                Work::Look(uid) => self.look(leader, uid),
                Work::Below(uid, before) => {
                    let (below, next) = leader.dependents_of(&uid, before, BELOW_STEP);
                    self.later.extend(below.into_iter().map(Work::Look));
                    self.later.extend(next.map(|next| Work::Below(uid, Some(next))));
                }
                Work::BelowLost(uid, before) => {
                    let (below, next) = leader.dependents_of(&uid, before, BELOW_STEP);
                    self.first.extend(below.into_iter().map(Work::Look));
                    self.first.extend(next.map(|next| Work::BelowLost(uid, Some(next))));
                }
            }
            self.overflown |= self.known.len() > self.members_max || self.first.len() + self.later.len() > WORK_MAX;
        }
        self.overflown
    }

    /// What has to be shown anew, or shown gone; to be taken once there is nothing left to look at.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.touched)
    }

    /// Forgets an object that has no place in the set, as far as is known.
    pub(super) fn forget(&mut self, uid: &Uid) {
        if self.depth(uid).is_none() {
            self.known.remove(uid);
        }
    }

    fn look(&mut self, leader: &Leader, uid: Uid) {
        let before = self.depth(&uid);
        let now = self.depth_of(leader, &uid);
        let max_depth = match &self.root {
            Root::Everything => 0,
            Root::Below { max_depth, .. } => *max_depth,
        };
        match (before, now) {
            (None, None) => {}
            (Some(old), Some(new)) if new == old => {
                self.touched.insert(uid);
            }
            (Some(old), Some(new)) if new > old => self.lose(uid),
            (Some(_), None) => self.lose(uid),
            (None | Some(_), Some(new)) => {
                self.known.entry(uid.clone()).or_default().depth = Some(new);
                self.touched.insert(uid.clone());
                if new < max_depth {
                    self.later.push_back(Work::Below(uid, None));
                }
            }
        }
    }

    fn lose(&mut self, uid: Uid) {
        if let Some(member) = self.known.get_mut(&uid) {
            member.depth = None;
        }
        self.touched.insert(uid.clone());
        if self.root != Root::Everything {
            self.first.push_back(Work::BelowLost(uid.clone(), None));
            self.later.push_back(Work::Look(uid));
        }
    }

    fn depth_of(&self, leader: &Leader, uid: &Uid) -> Option<u32> {
        let owners = leader.owners_of(uid)?;
        match &self.root {
            Root::Everything => Some(0),
            // The root may be below itself.
            Root::Below { uid: root, .. } if root == uid => None,
            Root::Below { uid: root, max_depth } => {
                let through = |owner: &Uid| if owner == root { Some(1) } else { Some(self.depth(owner)? + 1) };
                owners.iter().filter_map(through).min().filter(|depth| depth <= max_depth)
            }
        }
    }
}
