//! What a world may have beyond its usual faults: each peril is drawn from a stream of its own, so that switching one on or off changes
//! nothing else of a seed.

use super::kinds::{AGGREGATED, MIRROR};
use super::options::Options;
use crate::random::Random;

mod at_work;

pub(super) use at_work::{Member, Perilous, UNREADABLE, has_too_many, is_poisoned};

/// A kind of peril.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peril {
    /// A second group shows the objects of a kind, with their uids.
    Mirror,
    /// A member behind the API server's address answers from an older copy of the store.
    Member,
    /// Answers to questions come with a version that is no position.
    Foreign,
    /// Every request takes from half a second to ten.
    Slow,
    /// A webhook denies the deletion of one object for good, and that of all others for a while; every question about one owner fails.
    Poison,
    /// A controller puts removed references back.
    ReAdder,
    /// An object has more references than the collector takes.
    ManyReferences,
    /// An object waits for more owners than one report has findings, and they all stop waiting at once.
    ManyOwners,
    /// Processes are restarted between any two steps.
    Restart,
    /// Discovery does not show a group to a replica that starts, for a while.
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

/// The perils of one seed; what is off is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Perils {
    pub mirror: bool,
    /// The second group has a backend of its own.
    pub mirror_aggregated: bool,
    /// Chances in a thousand that a member begins to answer, at each look.
    pub member: u64,
    /// Of a hundred answers, so many are a member's.
    pub member_share: u64,
    /// Of a thousand answers, so many have no position.
    pub foreign: u64,
    /// What each request takes at least, in milliseconds.
    pub slow_ms: u64,
    pub poison: bool,
    /// How many references are put back, at most.
    pub readds: u64,
    pub many_references: u64,
    pub many_owners: u64,
    /// Restarts in a hundred thousand steps.
    pub restarts: u64,
    /// Of a hundred starts of a replica, at so many a group is not discovered.
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

    /// Each of them alone taken away.
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
    /// Whether a kind is behind an APIService with a backend of its own.
    pub(super) fn is_aggregated(&self, kind: usize) -> bool {
        (kind == AGGREGATED && self.aggregated) || (kind == MIRROR && self.perils.mirror_aggregated)
    }
}
