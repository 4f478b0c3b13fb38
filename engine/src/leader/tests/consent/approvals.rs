//! Approvals: which cascades wait for one, and what an entry permits.

use super::*;
use crate::leader::consent::cascades::ROOTS_MAX;

#[test]
fn a_large_cascade_waits_for_an_approval_of_its_digest_and_a_small_one_does_not() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(3))));
    bench.delete_owner_of(3);
    assert_eq!(bench.carry_out(104), 3, "three are not more than three");
    bench.seen("things", object("things", "o2", 201));
    for number in 0..4 {
        bench.seen("configmaps", object("configmaps", &format!("e{number}"), 202).owned_by("things", "o2"));
    }
    bench.deleted("things", "o2", 203);
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 0);
    let needed = bench.events.iter().find_map(|event| match event {
        Event::ApprovalNeeded { root, extent, .. } => Some((root.uid.clone(), extent.clone())),
        _ => None,
    });
    let (root, extent) = needed.unwrap();
    assert_eq!((root.clone(), extent.objects), (uid("o2"), 4));
    let approved = |digest: u64, until: Duration| Approved {
        root: root.clone(),
        digest,
        until,
        actor: "jane".to_string(),
        accepted: false,
    };
    let with = |entry: Approved| Rule::Approval(Approval { approved: vec![entry], ..approval(3) });
    bench.guard(guard(GuardKind::Approval, 2, with(approved(extent.digest ^ 1, 2 * NOON))));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 0, "another digest");
    bench.guard(guard(GuardKind::Approval, 3, with(approved(extent.digest, NOON))));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 0, "an approval that has ended");
    assert_eq!(bench.first_reason("e0").0, ReasonCode::AwaitingApproval);
    bench.guard(guard(GuardKind::Approval, 4, with(approved(extent.digest, 2 * NOON))));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 4);
    bench.seen("configmaps", object("configmaps", "late", 204).owned_by("things", "o2"));
    bench.pass(Duration::from_millis(5));
    let names: Vec<&str> = bench.granted.iter().map(|lease| &*lease.item.target.name).collect();
    assert_eq!((names.len(), names.contains(&"late")), (4, false), "an object that joins was not approved");
    assert_eq!(bench.first_reason("late").0, ReasonCode::AwaitingApproval);
}

/// Returns the rule of an approval with one entry for the cascade of `o`.
fn approved(more_than: u64, digest: u64) -> Rule {
    Rule::Approval(Approval { approved: vec![approved_entry(digest)], ..approval(more_than) })
}

pub(super) fn approved_entry(digest: u64) -> Approved {
    Approved { root: uid("o"), digest, until: 2 * NOON, actor: "jane".to_string(), accepted: false }
}

fn digest_of_cascade(bench: &Bench) -> u64 {
    let needed = bench.events.iter().find_map(|event| match event {
        Event::ApprovalNeeded { extent, .. } => Some(extent.digest),
        _ => None,
    });
    needed.unwrap()
}

#[test]
fn each_of_two_approvals_needs_its_own_consent() {
    let mut bench = Bench::synced();
    let other = |version: u64, rule: Rule| {
        let id = GuardId { kind: GuardKind::Approval, name: "h".into() };
        Guard { id, uid: uid("uid-h"), ..guard(GuardKind::Approval, version, rule) }
    };
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(1))));
    bench.guard(other(1, Rule::Approval(approval(2))));
    bench.delete_owner_of(3);
    bench.pass(Duration::from_millis(5));
    let digest = digest_of_cascade(&bench);
    bench.guard(guard(GuardKind::Approval, 2, approved(1, digest)));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 0, "the other one has not been approved");
    bench.guard(other(2, approved(2, digest)));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 3);
}

/// An approved cascade of three objects, of which the window of the executor lets one go.
fn approved_in_part() -> Bench {
    let mut bench = Bench::without_executor();
    bench.hello(STREAM, Hello { window: 1, ..hello("e1", "i1") });
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(1))));
    bench.delete_owner_of(3);
    bench.pass(Duration::from_millis(5));
    let digest = digest_of_cascade(&bench);
    bench.guard(guard(GuardKind::Approval, 2, approved(1, digest)));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 1, "the window of the executor");
    bench
}

#[test]
fn an_approval_that_is_taken_back_permits_nothing_more() {
    let mut bench = approved_in_part();
    bench.guard(guard(GuardKind::Approval, 3, Rule::Approval(approval(1))));
    assert_eq!(bench.carry_out(104), 1);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.granted.len(), 0);
}

#[test]
fn an_object_that_joins_does_not_take_the_place_of_one_that_left_the_cascade() {
    let mut bench = approved_in_part();
    // Another owner adopts one of the two others, and an object joins.
    let first = bench.granted[0].item.target.name.clone();
    let other = ["d0", "d1", "d2"].into_iter().find(|name| *name != &*first).unwrap();
    bench.seen("things", object("things", "p", 201));
    bench.seen("configmaps", object("configmaps", other, 202).owned_by("things", "p"));
    bench.seen("configmaps", object("configmaps", "late", 203).owned_by("things", "o"));
    let mut gone = Vec::new();
    for at in 0..3 {
        gone.extend(bench.granted.iter().map(|lease| lease.item.target.name.to_string()));
        bench.carry_out(204 + at);
        bench.pass(Duration::from_secs(5));
    }
    assert!(gone.len() == 2 && !gone.contains(&"late".to_string()), "{gone:?}");
}

#[test]
fn an_attempt_that_failed_takes_nothing_from_an_approval() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(1))));
    bench.delete_owner_of(3);
    bench.pass(Duration::from_millis(5));
    let digest = digest_of_cascade(&bench);
    bench.guard(guard(GuardKind::Approval, 2, approved(1, digest)));
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 3);
    let failed = bench.granted.pop().unwrap();
    bench.report(&failed, Outcome::Transient);
    assert_eq!(bench.carry_out(104), 2);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.carry_out(105), 1);
}

#[test]
fn a_small_cascade_that_grows_beyond_an_approval_waits() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(3))));
    bench.delete_owner_of(3);
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 3, "three are not more than three");
    let last = bench.granted.pop();
    assert_eq!(bench.carry_out(104), 2);
    bench.seen("configmaps", object("configmaps", "late", 105).owned_by("things", "o"));
    bench.pass(Duration::from_millis(5));
    assert_eq!((bench.granted.len(), last.is_some()), (0, true), "the fourth is");
    assert_eq!(bench.first_reason("late").0, ReasonCode::AwaitingApproval);
}

#[test]
fn each_of_two_approvals_inherits_its_own_entry() {
    let mut bench = Bench::synced();
    let inherited = |more_than: u64| {
        let entry = Approved { accepted: true, ..approved_entry(7) };
        Rule::Approval(Approval { approved: vec![entry], ..approval(more_than) })
    };
    let id = GuardId { kind: GuardKind::Approval, name: "h".into() };
    bench.guard(guard(GuardKind::Approval, 1, inherited(1)));
    bench.guard(Guard { id, uid: uid("uid-h"), ..guard(GuardKind::Approval, 1, inherited(2)) });
    bench.delete_owner_of(3);
    bench.pass(Duration::from_millis(5));
    assert_eq!(bench.granted.len(), 3);
}

#[test]
fn an_entry_that_was_accepted_before_does_not_cover_what_joins() {
    for leads_anew in [false, true] {
        let mut bench = Bench::synced();
        let entry = |accepted: bool, digest: u64| match approved(1, digest) {
            Rule::Approval(mut approval) => {
                approval.approved[0].accepted = accepted;
                Rule::Approval(approval)
            }
            other => other,
        };
        if !leads_anew {
            bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(1))));
            bench.delete_owner_of(3);
            bench.pass(Duration::from_millis(5));
            let digest = digest_of_cascade(&bench);
            bench.guard(guard(GuardKind::Approval, 2, entry(false, digest)));
            bench.pass(Duration::from_millis(5));
            bench.guard(guard(GuardKind::Approval, 3, entry(true, digest)));
        } else {
            bench.guard(guard(GuardKind::Approval, 3, entry(true, 7)));
            bench.delete_owner_of(3);
        }
        bench.pass(Duration::from_millis(5));
        assert_eq!(bench.granted.len(), 3, "another digest counts after a change of leaders: {leads_anew}");
        bench.granted.pop();
        assert_eq!(bench.carry_out(104), 2);
        bench.seen("configmaps", object("configmaps", "late", 105).owned_by("things", "o"));
        bench.pass(Duration::from_millis(5));
        assert_eq!((bench.granted.len(), bench.first_reason("late").0), (0, ReasonCode::AwaitingApproval));
    }
}

#[test]
fn roots_beyond_the_bound_wait_for_room_and_go() {
    const ROOTS: usize = ROOTS_MAX + 500;
    let mut bench = Bench::without_executor();
    bench.hello(STREAM, Hello { window: 1_000, ..hello("e1", "i1") });
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(5))));
    for number in 0..ROOTS {
        let owner = format!("o{number}");
        bench.seen("things", object("things", &owner, 101));
        bench.seen("configmaps", object("configmaps", &format!("d{number}"), 102).owned_by("things", &owner));
    }
    for number in 0..ROOTS {
        bench.deleted("things", &format!("o{number}"), 200 + number as u64);
    }
    let mut gone = 0;
    for second in 0..40 {
        bench.pass(Duration::from_secs(1));
        gone += bench.carry_out(20_000 + second);
    }
    assert_eq!(gone, ROOTS);
}

#[test]
fn a_root_beyond_the_bound_says_that_it_waits_for_others() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(0))));
    for number in 0..=ROOTS_MAX {
        let owner = format!("o{number}");
        bench.seen("things", object("things", &owner, 101));
        bench.seen("configmaps", object("configmaps", &format!("d{number}"), 102).owned_by("things", &owner));
    }
    for number in 0..=ROOTS_MAX {
        bench.deleted("things", &format!("o{number}"), 200 + number as u64);
    }
    bench.pass(Duration::from_secs(5));
    let late = (0..=ROOTS_MAX).map(|number| bench.first_reason(&format!("d{number}")).1);
    let late: Vec<String> = late.filter(|why| why.contains("at most 4000 cascades")).collect();
    assert_eq!(late.len(), 1, "{late:?}");
}
