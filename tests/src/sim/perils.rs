//! The perils of a world: faults beyond the usual ones. Each peril has its own stream of random numbers, so a peril
//! changes nothing else of a seed.

use super::kinds::{AGGREGATED, MIRROR};
use super::options::Options;
use crate::random::Random;

mod at_work;

pub(super) use at_work::{Member, Perilous, UNREADABLE, has_too_many, is_poisoned};

/// A kind of peril.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peril {
    /// A second group shows the objects of a kind with the same uids.
    Mirror,
    /// A member behind the address of the API server answers from an older copy of the store.
    Member,
    /// Answers to questions carry a version that is no position.
    Foreign,
    /// Every request takes from half a second to ten seconds.
    Slow,
    /// A webhook denies the deletion of one object for ever and of all others for a while. Every question about one
    /// owner fails.
    Poison,
    /// A controller puts removed references back.
    ReAdder,
    /// An object has more references than the collector reads.
    ManyReferences,
    /// An object waits for more owners than one report has room for, and all of them stop waiting at once.
    ManyOwners,
    /// Processes restart between any two steps.
    Restart,
    /// Discovery hides a group for a while from a replica that starts.
    Undiscovered,
}

impl Peril {
    pub const ALL: [Peril; 10] = [
        Peril::Mirror,
        Peril::Member,
        Peril::Foreign,
        Peril::Slow,
        Peril::Poison,
        Peril::ReAdder,
        Peril::ManyReferences,
        Peril::ManyOwners,
        Peril::Restart,
        Peril::Undiscovered,
    ];
    pub const fn as_str(self) -> &'static str {
        match self {
            Peril::Mirror => "mirror",
            Peril::Member => "member",
            Peril::Foreign => "foreign",
            Peril::Slow => "slow",
            Peril::Poison => "poison",
            Peril::ReAdder => "re-adder",
            Peril::ManyReferences => "many-references",
            Peril::ManyOwners => "many-owners",
            Peril::Restart => "restart",
            Peril::Undiscovered => "undiscovered",
        }
    }
}

/// The perils of one seed. The value is zero where a peril is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Perils {
    pub mirror: bool,
    /// The second group has its own backend.
    pub mirror_aggregated: bool,
    /// The chances per thousand that a member begins to answer, at each look.
    pub member: u64,
    /// The percentage of answers that come from a member.
    pub member_share: u64,
    /// The answers per thousand that have no position.
    pub foreign: u64,
    /// The minimum time of a request, in milliseconds.
    pub slow_ms: u64,
    pub poison: bool,
    /// The maximum number of references that the controller puts back.
    pub readds: u64,
    pub many_references: u64,
    pub many_owners: u64,
    /// The restarts per hundred thousand steps.
    pub restarts: u64,
    /// The percentage of starts of a replica at which discovery hides a group.
    pub undiscovered: u64,
}

impl Perils {
    pub(super) fn draw(seed: u64, on: &[Peril]) -> Perils {
        let mut perils = Perils::default();
        for &peril in on {
            let mut random = Random::new(seed, 100 + peril as u64);
            if !random.percent(20) {
                continue;
            }
            match peril {
                Peril::Mirror => {
                    perils.mirror = true;
                    perils.mirror_aggregated = random.once_in(3);
                }
                Peril::Member => {
                    perils.member = random.between(5, 100);
                    perils.member_share = [20, 50, 80][random.index(3)];
                }
                Peril::Foreign => perils.foreign = random.between(10, 300),
                Peril::Slow => perils.slow_ms = [500, 1_100, 2_000, 5_000, 10_000][random.index(5)],
                Peril::Poison => perils.poison = true,
                Peril::ReAdder => perils.readds = random.between(1, 30),
                Peril::ManyReferences if random.once_in(6) => perils.many_references = random.between(5_001, 20_000),
                Peril::ManyReferences => {}
                Peril::ManyOwners => perils.many_owners = random.between(51, 80),
                Peril::Restart => perils.restarts = random.between(10, 300),
                Peril::Undiscovered => perils.undiscovered = random.between(10, 60),
            }
        }
        perils
    }

    /// Returns one set for each peril that is on, without that peril.
    pub(super) fn simpler(&self) -> Vec<Perils> {
        let off: [fn(&mut Perils); 11] = [
            |perils| perils.mirror = false,
            |perils| perils.member = 0,
            |perils| perils.foreign = 0,
            |perils| perils.slow_ms = 0,
            |perils| perils.poison = false,
            |perils| perils.readds = 0,
            |perils| perils.many_references = 0,
            |perils| perils.many_owners = 0,
            |perils| perils.restarts = 0,
            |perils| perils.mirror_aggregated = false,
            |perils| perils.undiscovered = 0,
        ];
        let mut all = vec![Perils::default()];
        all.extend(off.iter().map(|change| {
            let mut simpler = self.clone();
            change(&mut simpler);
            simpler
        }));
        all
    }
}

impl Options {
    /// Returns whether the kind is behind an APIService with its own backend.
    pub(super) fn is_aggregated(&self, kind: usize) -> bool {
        (kind == AGGREGATED && self.aggregated) || (kind == MIRROR && self.perils.mirror_aggregated)
    }
}
