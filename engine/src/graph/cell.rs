//! The storage of a node: a cell of 64 bytes, the name of the object, and references to values that nodes share.

use super::texts::TextId;
use super::{NodeId, Proof};
use crate::object::{Facts, ResourceVersion};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The flags of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    /// The cell is in use.
    pub(super) const LIVE: Flags = Flags(1);
    /// A list or watch of its collection showed it, or a read while nothing newer was known.
    pub(super) const OBSERVED: Flags = Flags(1 << 1);
    /// A question about the node had no usable answer.
    pub(super) const UNREADABLE: Flags = Flags(1 << 2);
    /// [`Checked`] has more knowledge about it.
    pub(super) const CHECKED: Flags = Flags(1 << 3);
    pub(super) const TERMINATING: Flags = Flags(1 << 4);
    pub(super) const HOLD: Flags = Flags(1 << 5);
    /// The object has the `foregroundDeletion` finalizer.
    pub(super) const FOREGROUND: Flags = Flags(1 << 6);
    /// The object has the `orphan` finalizer.
    pub(super) const ORPHAN: Flags = Flags(1 << 7);
    /// Waits to be judged.
    pub(super) const DIRTY: Flags = Flags(1 << 8);
    /// Its uid is not in canonical form, and is stored separately.
    pub(super) const ODD_UID: Flags = Flags(1 << 9);
    /// Its resource version is not a number or very large, and is stored separately.
    pub(super) const ODD_VERSION: Flags = Flags(1 << 10);
    /// Its deletion timestamp is known.
    pub(super) const DELETION_TIME: Flags = Flags(1 << 11);
    /// The object has more references than the collector reads.
    pub(super) const EXCESS: Flags = Flags(1 << 12);

    pub(super) fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(super) fn set(&mut self, flags: Flags, to: bool) {
        if to { self.0 |= flags.0 } else { self.0 &= !flags.0 }
    }
}

/// The marks of a node whose labels are unknown, or whose set has no number of 16 bits.
pub(super) const UNKNOWN_MARKS: u16 = u16::MAX;

#[derive(Debug, Default)]
pub(super) struct Cell {
    /// The uid in canonical form. For a uid in another form, the first bytes hold the uid's number.
    pub(super) uid: [u8; 16],
    /// The version of an observed object, if it is a number.
    pub(super) version: u64,
    pub(super) owners: Owners,
    pub(super) name: TextId,
    /// Its kind and namespace.
    pub(super) place: u32,
    /// The number of its list of dependents plus one; 0 without dependents.
    pub(super) dependents: u32,
    /// The number of the node's list of finalizers plus one; 0 without finalizers.
    pub(super) finalizers: u32,
    /// The last list of its collection that showed it.
    pub(super) list: u32,
    /// The number of its set of marks plus one; 0 without marks, [`UNKNOWN_MARKS`] if they are unknown.
    pub(super) marks: u16,
    pub(super) flags: Flags,
}

/// The references of an observed object, in order: none or one in most cases.
#[derive(Debug, Default)]
pub(super) enum Owners {
    #[default]
    None,
    One(OwnerEdge),
    #[expect(clippy::box_collection, reason = "a vector would make every cell larger")]
    Many(Box<Vec<OwnerEdge>>),
}

/// A reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerEdge {
    pub(super) owner: NodeId,
    /// The index of this edge among the owner's dependents.
    pub(super) back: u32,
    pub(super) how: How,
}

/// The parts of a reference besides the name and uid of the owner: the number of its `apiVersion` and `kind`, and two
/// optional flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct How(u32);

/// A reference, as stored at its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct DependentEdge {
    pub(super) dependent: NodeId,
    /// The index of this edge among the dependent's owners. The highest bit says whether it blocks foreground deletion.
    slot: u32,
}

/// The references to a node: none or one in most cases.
#[derive(Debug, Default)]
pub(super) enum Dependents {
    #[default]
    None,
    One(DependentEdge),
    Many(Box<Crowd>),
}

#[derive(Debug)]
pub(super) struct Crowd {
    edges: Vec<DependentEdge>,
    /// The number of blocking ones.
    blocking: u32,
}

impl DependentEdge {
    const BLOCKS: u32 = 1 << 31;

    pub(super) fn new(dependent: NodeId, slot: usize, blocks: bool) -> DependentEdge {
        let slot =
            u32::try_from(slot).ok().filter(|slot| slot & Self::BLOCKS == 0).expect("fewer than 2^31 references");
        DependentEdge { dependent, slot: slot | if blocks { Self::BLOCKS } else { 0 } }
    }

    pub(super) fn slot(self) -> usize {
        (self.slot & !Self::BLOCKS) as usize
    }

    pub(super) fn blocks(self) -> bool {
        self.slot & Self::BLOCKS != 0
    }
}

impl Dependents {
    pub(super) fn as_slice(&self) -> &[DependentEdge] {
        match self {
            Dependents::None => &[],
            Dependents::One(edge) => core::slice::from_ref(edge),
            Dependents::Many(crowd) => &crowd.edges,
        }
    }

    pub(super) fn blocking(&self) -> usize {
        match self {
            Dependents::None => 0,
            Dependents::One(edge) => usize::from(edge.blocks()),
            Dependents::Many(crowd) => crowd.blocking as usize,
        }
    }

    pub(super) fn push(&mut self, edge: DependentEdge) {
        match self {
            Dependents::None => *self = Dependents::One(edge),
            Dependents::One(first) => {
                let edges = alloc::vec![*first, edge];
                let blocking = edges.iter().map(|edge| u32::from(edge.blocks())).sum();
                *self = Dependents::Many(Box::new(Crowd { edges, blocking }));
            }
            Dependents::Many(crowd) => {
                crowd.edges.push(edge);
                crowd.blocking += u32::from(edge.blocks());
            }
        }
    }

    /// Removes the edge at an index, and puts the last one there.
    pub(super) fn swap_remove(&mut self, at: usize) {
        match self {
            Dependents::None | Dependents::One(_) => *self = Dependents::None,
            Dependents::Many(crowd) => {
                let edge = crowd.edges.swap_remove(at);
                crowd.blocking -= u32::from(edge.blocks());
            }
        }
    }
}

/// The knowledge about an unobserved node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Checked {
    Read { facts: Facts, position: ResourceVersion },
    Absent(Proof),
}

impl Cell {
    /// The number of a uid that is not in canonical form.
    pub(super) fn odd_uid(&self) -> Option<u32> {
        let [a, b, c, d, ..] = self.uid;
        self.flags.has(Flags::ODD_UID).then_some(u32::from_le_bytes([a, b, c, d]))
    }
}

/// The bytes of a cell whose uid has this number.
pub(super) fn odd_uid_bytes(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Owners {
    pub(super) fn as_slice(&self) -> &[OwnerEdge] {
        match self {
            Owners::None => &[],
            Owners::One(edge) => core::slice::from_ref(edge),
            Owners::Many(edges) => edges,
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [OwnerEdge] {
        match self {
            Owners::None => &mut [],
            Owners::One(edge) => core::slice::from_mut(edge),
            Owners::Many(edges) => edges,
        }
    }

    pub(super) fn push(&mut self, edge: OwnerEdge) {
        match self {
            Owners::None => *self = Owners::One(edge),
            Owners::One(first) => *self = Owners::Many(Box::new(alloc::vec![*first, edge])),
            Owners::Many(edges) => edges.push(edge),
        }
    }
}

impl How {
    pub(super) fn new(kind: u32, controller: Option<bool>, blocks: Option<bool>) -> How {
        assert!(kind < 1 << 28, "fewer than 2^28 kinds and versions are referred to");
        let bits = |flag: Option<bool>| flag.map_or(0, |flag| 1 + u32::from(flag));
        How((kind << 4) | (bits(controller) << 2) | bits(blocks))
    }

    pub(super) fn kind(self) -> u32 {
        self.0 >> 4
    }

    pub(super) fn controller(self) -> Option<bool> {
        flag(self.0 >> 2)
    }

    pub(super) fn blocks(self) -> Option<bool> {
        flag(self.0)
    }
}

fn flag(bits: u32) -> Option<bool> {
    match bits & 3 {
        0 => None,
        bits => Some(bits == 2),
    }
}

const _: () = assert!(size_of::<Cell>() == 64, "the memory of a node has a budget");
