//! The members of a watch: the dependents of its root, or all objects. Changes update the set in steps.
//!
//! An owner in the set gives its dependents a place: their depth is one more than that of the owner. An object takes
//! the smallest depth that its owners give it. When an object loses its place, all objects that had their place through
//! it are removed first. Then each is checked again, because another owner may keep it in the set. This order prevents
//! the members of a cycle from keeping each other in the set.

use engine::leader::Queries;
use engine::object::Uid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of dependents of one object to list under one lock of the graph.
const BELOW_STEP: usize = 1000;
/// Maximum number of waiting work entries.
const WORK_MAX: usize = 1_000_000;

/// The root of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Everything,
    Below { uid: Uid, max_depth: u32 },
}

/// An object of the set.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// `None` if the object has lost its place and may find another.
    depth: Option<u32>,
    /// A digest of the last shown state; `None` if it was not shown.
    pub(super) shown: Option<u64>,
    /// The message that first showed the object.
    pub(super) since: u64,
    /// The message that last showed it.
    pub(super) at: u64,
    /// The reader may not see the object.
    is_hidden: bool,
}

/// The set, and the objects to check.
#[derive(Debug)]
pub(super) struct Members {
    root: Root,
    known: BTreeMap<Uid, Member>,
    /// Work that comes before `later`: objects that had their place through an object that lost its own.
    first: VecDeque<Work>,
    later: VecDeque<Work>,
    /// Objects to show again, or to report as removed.
    touched: BTreeSet<Uid>,
    /// The set or its waiting work exceeds its bound.
    pub(super) overflown: bool,
    members_max: usize,
    /// Members that the reader may not see.
    hidden: u32,
}

#[derive(Debug)]
enum Work {
    Look(Uid),
    /// The dependents of an object, after an index among them.
    Below(Uid, Option<usize>),
    /// The dependents of an object that lost its place.
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

    /// The depth of an object in the set.
    pub(super) fn depth(&self, uid: &Uid) -> Option<u32> {
        self.known.get(uid)?.depth
    }

    /// Records whether the reader may see an object.
    pub(super) fn hide(&mut self, uid: &Uid, is_hidden: bool) {
        let Some(member) = self.known.get_mut(uid).filter(|member| member.is_hidden != is_hidden) else { return };
        member.is_hidden = is_hidden;
        self.hidden = if is_hidden { self.hidden.saturating_add(1) } else { self.hidden.saturating_sub(1) };
    }

    /// The number of hidden objects in the set.
    pub(super) fn hidden(&self) -> u32 {
        self.hidden
    }

    /// Whether the owner of a reference is in the set, or is its root.
    pub(super) fn leads_inside(&self, owner: &Uid) -> bool {
        match &self.root {
            Root::Everything => true,
            Root::Below { uid, .. } => owner == uid || self.depth(owner).is_some(),
        }
    }

    /// Queues objects to check.
    pub(super) fn note(&mut self, uids: impl IntoIterator<Item = Uid>) {
        self.later.extend(uids.into_iter().map(Work::Look));
        self.overflown |= self.later.len() > WORK_MAX;
    }

    /// Checks up to `budget` objects. Returns true if none is left.
    pub(super) fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        let mut left = budget;
        while left > 0 && !self.overflown {
            let Some(work) = self.first.pop_front().or_else(|| self.later.pop_front()) else { return true };
            left = left.saturating_sub(match &work {
                Work::Look(_) => 1,
                // Listing takes only names.
                Work::Below(..) | Work::BelowLost(..) => BELOW_STEP / 10,
            });
            match work {
                Work::Look(uid) => self.look(queries, uid),
                Work::Below(uid, before) => {
                    let (below, next) = queries.dependents_of(&uid, before, BELOW_STEP);
                    self.later.extend(below.into_iter().map(Work::Look));
                    self.later.extend(next.map(|next| Work::Below(uid, Some(next))));
                }
                Work::BelowLost(uid, before) => {
                    let (below, next) = queries.dependents_of(&uid, before, BELOW_STEP);
                    self.first.extend(below.into_iter().map(Work::Look));
                    self.first.extend(next.map(|next| Work::BelowLost(uid, Some(next))));
                }
            }
            self.overflown |= self.known.len() > self.members_max || self.first.len() + self.later.len() > WORK_MAX;
        }
        self.overflown
    }

    /// Takes the objects to show or to report as removed. Call this when no work is left.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Uid> {
        std::mem::take(&mut self.touched)
    }

    /// Forgets an object that has no place in the set.
    pub(super) fn forget(&mut self, uid: &Uid) {
        if self.depth(uid).is_none() {
            self.known.remove(uid);
        }
    }

    fn look(&mut self, queries: &Queries<'_>, uid: Uid) {
        let before = self.depth(&uid);
        let now = self.depth_of(queries, &uid);
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

    fn depth_of(&self, queries: &Queries<'_>, uid: &Uid) -> Option<u32> {
        let owners = queries.owners_of(uid)?;
        match &self.root {
            Root::Everything => Some(0),
            // The root may depend on itself.
            Root::Below { uid: root, .. } if root == uid => None,
            Root::Below { uid: root, max_depth } => {
                let through = |owner: &Uid| if owner == root { Some(1) } else { Some(self.depth(owner)? + 1) };
                owners.iter().filter_map(through).min().filter(|depth| depth <= max_depth)
            }
        }
    }
}
