//! A client moves a child from one owner to another and deletes the first owner. The test covers every interleaving
//! with the steps of the collector.

use super::stories::orders;
use super::*;

/// The events of the test, each once. A watch shows a write after the write. The watches of two collections have no
/// common order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reparent,
    DeleteOld,
    ShowNew,
    ShowChild,
    ShowOldDeleted,
}

const STEPS: [Step; 5] = [Step::Reparent, Step::DeleteOld, Step::ShowNew, Step::ShowChild, Step::ShowOldDeleted];

/// The true state of the store.
struct Store {
    child: Object,
    /// True if the client adds the new owner beside the old one instead of replacing the old one.
    beside: bool,
    old_is_there: bool,
    version: u64,
}

impl Store {
    fn write_child(&mut self, owners: &[&str]) {
        self.version += 1;
        let child = object("configmaps", "child", self.version);
        // Two kinds have two watches that do not wait for each other.
        let kind = |owner: &str| if owner == "new" { "nodes" } else { "things" };
        self.child = owners.iter().fold(child, |child, owner| child.owned_by(kind(owner), owner));
    }

    fn sighting(&self) -> Sighting {
        let (uid, facts) = (self.child.uid.clone(), self.child.facts.clone());
        Sighting { uid, resource_version: self.child.resource_version.clone(), facts }
    }

    /// Carries out a lease as an executor does, and returns its report.
    fn execute(&mut self, lease: &WorkLease) -> WorkReport {
        let mut report = done(lease);
        match &lease.item.action {
            Action::Delete { .. } => {
                let version = &lease.item.preconditions.resource_version;
                assert_ne!(*version, self.child.resource_version, "the child is deleted");
                report.outcome = Outcome::Conflict;
                report.observed = Some(self.sighting());
            }
            Action::RemoveOwnerReferences { owner_uids, .. } => {
                assert_eq!(owner_uids[..], [uid("old")]);
                self.write_child(&["new"]);
                report.observed = Some(self.sighting());
            }
            Action::UnblockOwnerReferences { .. } | Action::RemoveFinalizer { .. } => panic!("{}", describe(lease)),
        }
        report
    }
}

fn act(bench: &mut Bench, store: &mut Store) {
    while !bench.granted.is_empty() {
        for lease in core::mem::take(&mut bench.granted) {
            let report = store.execute(&lease);
            bench.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
            bench.message(STREAM, ToLeader::Reports { reports: vec![report], returns: vec![] });
        }
    }
}

fn run(order: &[Step], beside: bool, acts: usize) {
    let mut bench = Bench::synced();
    let child = object("configmaps", "child", 102).owned_by("things", "old");
    let mut store = Store { child: child.clone(), beside, old_is_there: true, version: 102 };
    bench.seen("things", object("things", "old", 101));
    bench.seen("configmaps", child);
    for (at, step) in order.iter().enumerate() {
        match step {
            Step::Reparent => store.write_child(if store.beside { &["old", "new"] } else { &["new"] }),
            Step::DeleteOld => {
                store.version += 1;
                store.old_is_there = false;
            }
            Step::ShowNew => bench.seen("nodes", object("nodes", "new", 102)),
            Step::ShowChild => bench.seen("configmaps", store.child.clone()),
            Step::ShowOldDeleted => bench.deleted("things", "old", 105),
        }
        // Executors and timers are fast or slow.
        if acts & 1 << at != 0 {
            bench.pass(Duration::from_secs(1));
            act(&mut bench, &mut store);
        }
    }
    for _ in 0..30 {
        bench.pass(Duration::from_secs(1));
        act(&mut bench, &mut store);
    }
    let owners: Vec<&str> = store.child.facts.owners.iter().map(|owner| &*owner.name).collect();
    assert_eq!(owners, ["new"], "{order:?}");
}

#[test]
fn a_child_that_changes_its_owner_lives_whatever_comes_first() {
    let mut worlds = 0;
    for order in orders(STEPS.len()) {
        let order: Vec<Step> = order.into_iter().map(|at| STEPS[at]).collect();
        let at = |step: Step| order.iter().position(|&other| other == step);
        let causes = [
            (Step::Reparent, Step::DeleteOld),
            (Step::Reparent, Step::ShowChild),
            (Step::DeleteOld, Step::ShowOldDeleted),
        ];
        // The new owner existed before. Only the order of its watch matters.
        if causes.iter().any(|&(before, after)| at(before) > at(after)) {
            continue;
        }
        for beside in [false, true] {
            for acts in 0..1 << STEPS.len() {
                run(&order, beside, acts);
                worlds += 1;
            }
        }
    }
    assert_eq!(worlds, 15 * 2 * 32);
}
