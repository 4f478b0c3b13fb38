//! Draws a world and a program from a seed.

use super::world::{Flaw, Kind, Object, Operation, Policy, Program, Reference, Slot, Step};
use crate::random::Random;

/// The number of phases of every program. It is fixed, so that all seeds of a run go through their phases together.
pub(super) const PHASES: usize = 6;

const KINDS: [(u64, Kind); 9] = [
    (8, Kind::ConfigMap),
    (4, Kind::Secret),
    (3, Kind::ServiceAccount),
    (4, Kind::ReplicationController),
    (3, Kind::Pod),
    (5, Kind::Widget),
    (3, Kind::ClusterRole),
    (2, Kind::PriorityClass),
    (3, Kind::Realm),
];
const BLOCKING: [(u64, Option<bool>); 3] = [(5, Some(true)), (2, Some(false)), (3, None)];
const POLICIES: [(u64, Option<Policy>); 4] =
    [(5, None), (5, Some(Policy::Background)), (7, Some(Policy::Foreground)), (4, Some(Policy::Orphan))];

/// The salt of the draws for references with unserved versions. They come from a separate generator, so worlds without
/// such references stay the same.
const VERSIONS_SALT: u64 = 0x7665_7273_696f_6e74;

/// Returns the program of a seed.
pub fn generate(seed: u64) -> Program {
    let mut draw = Random::new(seed, 0);
    let mut versions = Random::new(seed ^ VERSIONS_SALT, 0);
    let versions = versions.percent(20).then_some(versions);
    let early = draw.percent(50);
    let unknown_kinds = draw.percent(20);
    let shared_uids = draw.percent(15);
    let mut maker = Maker {
        seed,
        draw,
        unknown_kinds,
        shared_uids,
        versions,
        objects: Vec::new(),
        references: Vec::new(),
        deleted: Vec::new(),
    };
    let build = maker.build();
    let cycles = maker.cycles();
    // A calm program shows the whole effect of each operation. In the others, operations overtake the collector.
    let calm = maker.draw.percent(35);
    let phases = (0..PHASES).map(|_| maker.phase(calm)).collect();
    Program { seed, early, objects: maker.objects, build, cycles, phases }
}

struct Maker {
    seed: u64,
    draw: Random,
    /// Whether references may name an unknown kind. Upstream retries these forever, and all its retries share one rate,
    /// so only some worlds have them.
    unknown_kinds: bool,
    /// Whether an object may have two references with the same uid. Upstream takes both for one, and this changes
    /// everything that follows.
    shared_uids: bool,
    /// Decides which references name an unserved version. Upstream retries these forever too, so only some worlds have
    /// them.
    versions: Option<Random>,
    objects: Vec<Object>,
    /// The references so far: dependent and owner.
    references: Vec<(Slot, Slot)>,
    /// The objects that the program has deleted so far.
    deleted: Vec<Slot>,
}

impl Maker {
    fn build(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.draw.between(9, 18) {
            let operation = self.create();
            steps.push(Step { operation, pause_ms: 0 });
        }
        steps
    }

    fn cycles(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.draw.percent(50) {
            for _ in 0..self.draw.between(1, 4) {
                // The reference leads back from an owner to its dependent, or to a dependent of this dependent.
                let Some((dependent, owner)) = self.draw.pick(&self.references).copied() else { break };
                let grandchildren: Vec<Slot> =
                    self.references.iter().filter(|(_, of)| *of == dependent).map(|(child, _)| *child).collect();
                let end = if self.draw.percent(40) { self.draw.pick(&grandchildren).copied() } else { None };
                let reference = self.reference(owner, end.unwrap_or(dependent), Flaw::None);
                steps.push(Step { operation: Operation::AddReference { slot: owner, reference }, pause_ms: 0 });
            }
        }
        steps
    }

    fn create(&mut self) -> Operation {
        let slot = self.place();
        let count = self.draw.weighted(&[(18, 0), (40, 1), (28, 2), (14, 3)]);
        let references = self.references(slot, count);
        Operation::Create { slot, references, finalizer: self.draw.percent(18) }
    }

    /// Adds an object. Names repeat across kinds and namespaces, so that a wrong reference may lead to another object.
    fn place(&mut self) -> Slot {
        let kind = self.draw.weighted(&KINDS);
        let [a, b] = Program::namespaces(self.seed);
        let namespace = kind.is_namespaced().then(|| if self.draw.percent(70) { a } else { b });
        let first = self.draw.index(4);
        let name = (first..)
            .map(|number| match namespace {
                Some(_) => format!("o{number}"),
                None => format!("s{}-o{number}", self.seed),
            })
            .find(|name| {
                !self
                    .objects
                    .iter()
                    .any(|object| (object.kind, &object.namespace, &object.name) == (kind, &namespace, name))
            })
            .expect("there are more numbers than objects");
        self.objects.push(Object { kind, namespace, name });
        self.objects.len() - 1
    }

    fn references(&mut self, slot: Slot, count: usize) -> Vec<Reference> {
        let mut references: Vec<Reference> = Vec::new();
        for _ in 0..count {
            let Some(owner) = self.owner_for(slot) else { continue };
            if references.iter().any(|reference| reference.owner == owner) {
                continue;
            }
            let flaw = self.flaw(owner);
            references.push(self.reference(slot, owner, flaw));
            if flaw == Flaw::None && self.shared_uids && self.draw.percent(15) {
                // The second entry has the same uid and a wrong name.
                references.push(self.reference(slot, owner, Flaw::WrongName));
            }
        }
        references
    }

    /// Returns an owner for the object. A few owners may not own it, because of their scope or namespace.
    fn owner_for(&mut self, slot: Slot) -> Option<Slot> {
        let object = self.objects[slot].clone();
        let may_own = |owner: &Object| owner.namespace.is_none() || owner.namespace == object.namespace;
        let wrong = self.draw.percent(9);
        let candidates: Vec<Slot> =
            (0..self.objects.len()).filter(|&at| at != slot && may_own(&self.objects[at]) != wrong).collect();
        // Objects that already have dependents are more likely, so that some owners have many.
        let owners: Vec<Slot> =
            candidates.iter().copied().filter(|at| self.references.iter().any(|(_, owner)| owner == at)).collect();
        if self.draw.percent(55) && !owners.is_empty() {
            self.draw.pick(&owners).copied()
        } else {
            self.draw.pick(&candidates).copied()
        }
    }

    fn flaw(&mut self, owner: Slot) -> Flaw {
        if self.unknown_kinds && self.draw.percent(15) {
            return Flaw::UnknownKind;
        }
        let kind = self.objects[owner].kind;
        let others: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|&other| other != kind && other.is_namespaced() == kind.is_namespaced())
            .collect();
        let other = self.draw.pick(&others).copied().unwrap_or(kind);
        let flaw = self.draw.weighted(&[
            (88, Flaw::None),
            (4, Flaw::WrongName),
            (4, Flaw::WrongKind(other)),
            (4, Flaw::UnknownUid),
        ]);
        let unserved = flaw == Flaw::None && self.versions.as_mut().is_some_and(|draw| draw.percent(15));
        if unserved { Flaw::UnservedVersion } else { flaw }
    }

    fn reference(&mut self, slot: Slot, owner: Slot, flaw: Flaw) -> Reference {
        self.references.push((slot, owner));
        Reference { owner, flaw, blocking: self.draw.weighted(&BLOCKING) }
    }

    fn phase(&mut self, calm: bool) -> Vec<Step> {
        let count = if calm { 1 } else { self.draw.between(1, 5) };
        (0..count)
            .map(|_| {
                let operation = self.operation();
                let longest = self.draw.weighted(&[(60, 0), (25, 50), (15, 400)]);
                let pause_ms = if calm { 0 } else { self.draw.between(0, longest) };
                Step { operation, pause_ms }
            })
            .collect()
    }

    fn operation(&mut self) -> Operation {
        let slot = self.draw.index(self.objects.len());
        let (dependent, owner) = self.draw.pick(&self.references).copied().unwrap_or((slot, slot));
        match self.draw.index(100) {
            0..=47 => {
                let slot = if self.draw.percent(75) { owner } else { slot };
                // The program deletes few objects twice.
                let again = self.deleted.contains(&slot) && !self.draw.percent(25);
                let rest: Vec<Slot> = (0..self.objects.len()).filter(|at| !self.deleted.contains(at)).collect();
                let slot = if again { self.draw.pick(&rest).copied().unwrap_or(slot) } else { slot };
                self.deleted.push(slot);
                Operation::Delete { slot, policy: self.draw.weighted(&POLICIES) }
            }
            48..=57 => Operation::RemoveFinalizer { slot },
            58..=62 => Operation::AddFinalizer { slot: dependent },
            63..=74 => self.add_reference(slot),
            75..=82 => Operation::RemoveReferences { slot: dependent, owner },
            83..=88 => Operation::SetBlocking { slot: dependent, owner, blocking: self.draw.weighted(&BLOCKING) },
            89..=95 => self.create(),
            _ => {
                let count = self.draw.index(2);
                let references = self.references(slot, count);
                Operation::Create { slot, references, finalizer: false }
            }
        }
    }

    fn add_reference(&mut self, slot: Slot) -> Operation {
        match self.owner_for(slot) {
            Some(owner) => {
                let flaw = self.flaw(owner);
                Operation::AddReference { slot, reference: self.reference(slot, owner, flaw) }
            }
            None => Operation::Delete { slot, policy: None },
        }
    }
}
