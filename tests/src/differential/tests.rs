use super::beside::Compared;
use super::end::{Change, End, Held, Owner, State, Writes};
use super::execute::Course;
use super::generate;
use super::judge::{Judgement, judge};
use super::law::breaches;
use super::world::{Flaw, Kind, Object, Operation, Program, Reference, Slot, Step};
use proto::decision::v1beta1::GetParityResponse;
use proto::decision::v1beta1::disagreement::Class;
use proto::decision::v1beta1::get_parity_response::ClassCount;

/// Returns a program in which ConfigMap 0 owns ConfigMap 1.
fn family() -> Program {
    let object = |name: &str| Object { kind: Kind::ConfigMap, namespace: Some("a".to_owned()), name: name.to_owned() };
    let reference = Reference { owner: 0, flaw: Flaw::None, blocking: Some(true) };
    let create =
        |slot, references| Step { operation: Operation::Create { slot, references, finalizer: false }, pause_ms: 0 };
    Program {
        seed: 0,
        early: true,
        objects: vec![object("owner"), object("dependent")],
        build: vec![create(0, Vec::new()), create(1, vec![reference])],
        cycles: Vec::new(),
        phases: Vec::new(),
    }
}

fn alive(references: Vec<Held>) -> State {
    State { incarnation: 0, terminating: false, finalizers: Vec::new(), references }
}

fn to_owner() -> Held {
    let (api_version, kind, name) = ("v1".to_owned(), "ConfigMap".to_owned(), "owner".to_owned());
    Held { owner: Owner::Slot(0, 0), api_version, kind, name, blocking: Some(true) }
}

#[test]
fn a_seed_stands_for_one_program() {
    for seed in 0..50 {
        assert_eq!(generate(seed).to_string(), generate(seed).to_string());
    }
    assert_ne!(generate(1).to_string(), generate(2).to_string());
}

/// Returns a run with one quiet moment, at its end.
fn to(end: &End) -> Course {
    Course { ends: vec![end.clone()], ..Course::default() }
}

fn judged(ours: &End, upstream: [&End; 2]) -> Judgement {
    judge(&family(), &to(ours), &upstream.map(to))
}

#[test]
fn an_object_that_upstream_keeps_may_not_be_gone() {
    let both = End::from([(0, alive(Vec::new())), (1, alive(vec![to_owner()]))]);
    let gone = End::from([(0, alive(Vec::new()))]);
    assert_eq!(judged(&gone, [&both, &both]).different, [1]);
    assert!(judged(&both, [&both, &both]).is_good());
    let racy = judged(&gone, [&both, &gone]);
    assert!(racy.is_good() && racy.racy);
}

#[test]
fn garbage_that_both_leave_is_unfinished() {
    let left = End::from([(1, alive(vec![to_owner()]))]);
    let judgement = judged(&left, [&left, &left]);
    assert!(judgement.different.is_empty());
    assert_eq!(judgement.unfinished.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_terminating_object_may_keep_the_references_of_any_order_of_deletions() {
    let held = |references: Vec<Held>| {
        End::from([(
            1,
            State { terminating: true, finalizers: vec!["example.com/held".to_owned()], ..alive(references) },
        )])
    };
    let other = |number: u64| Held { owner: Owner::Unknown(number.to_string()), ..to_owner() };
    let (all, one) = (held(vec![to_owner(), other(1), other(2)]), held(vec![to_owner()]));
    let between = held(vec![to_owner(), other(1)]);
    assert!(judged(&between, [&all, &one]).is_good());
    assert_eq!(judged(&between, [&all, &all]).different, [1]);
    assert_eq!(judged(&held(vec![other(1)]), [&all, &one]).different, [1]);
}

#[test]
fn a_deletion_that_no_rule_asks_for_is_a_breach() {
    let write = |slot, state| Change { revision: 0, slot, state };
    let begun = [write(0, Some(alive(Vec::new()))), write(1, Some(alive(vec![to_owner()])))];
    let is_breach = |rest: &[Change], by_user: &[usize]| {
        let changes = [&begun[..], rest].concat();
        let gone = by_user.iter().map(|&slot| (slot, 0)).collect();
        let by_user = Writes { removed: gone, ..Writes::default() };
        !breaches(&family(), &Course { changes, by_user, ..Course::default() }).is_empty()
    };
    assert!(is_breach(&[write(1, None)], &[]), "its owner exists");
    assert!(!is_breach(&[write(1, None)], &[1]), "a user deleted it");
    assert!(!is_breach(&[write(0, None), write(1, None)], &[0]), "its owner was gone");
    assert!(is_breach(&[write(1, Some(alive(Vec::new())))], &[]), "it lost an owner that exists");
    let terminating =
        |finalizer: &str| State { terminating: true, finalizers: vec![finalizer.to_owned()], ..alive(Vec::new()) };
    let by_user = |state| Change { revision: 7, slot: 0, state: Some(state) };
    let with = |change: Change, rest: &[Change]| {
        let changes = [&begun[..], &[change], rest].concat();
        let by_user = Writes { revisions: [7].into(), ..Writes::default() };
        breaches(&family(), &Course { changes, by_user, ..Course::default() })
    };
    let free = write(1, Some(alive(Vec::new())));
    let orphans = by_user(terminating("orphan"));
    assert!(!with(orphans.clone(), &[write(1, None)]).is_empty(), "its owner orphans");
    assert!(!with(orphans.clone(), &[write(0, None)]).is_empty(), "it still has a dependent");
    assert!(with(orphans, &[free, write(0, None)]).is_empty());
    let waits = by_user(terminating("foregroundDeletion"));
    assert!(with(waits.clone(), &[write(1, None), write(0, None)]).is_empty());
    assert!(!with(waits, &[write(0, None)]).is_empty(), "it is blocked");
}

/// Returns a program that only creates objects of these kinds, with these references between them.
fn world(kinds: &[Kind], references: &[(Slot, Slot)]) -> Program {
    let namespace = |kind: Kind| kind.is_namespaced().then(|| "a".to_owned());
    let object = |(at, &kind): (usize, &Kind)| Object { kind, namespace: namespace(kind), name: format!("o{at}") };
    let of = |slot: Slot| references.iter().filter(move |(dependent, _)| *dependent == slot);
    let reference = |(_, owner): &(Slot, Slot)| Reference { owner: *owner, flaw: Flaw::None, blocking: Some(true) };
    let create = |slot| Operation::Create { slot, references: of(slot).map(reference).collect(), finalizer: false };
    Program {
        objects: kinds.iter().enumerate().map(object).collect(),
        build: (0..kinds.len()).map(|slot| Step { operation: create(slot), pause_ms: 0 }).collect(),
        ..family()
    }
}

/// Returns a reference to the first incarnation of an object.
fn to_slot(program: &Program, slot: Slot, blocking: Option<bool>) -> Held {
    let Object { kind, name, .. } = &program.objects[slot];
    let (api_version, kind, name) = (kind.api_version().to_owned(), kind.name().to_owned(), name.clone());
    Held { owner: Owner::Slot(slot, 0), api_version, kind, name, blocking }
}

fn terminating(finalizers: &[&str], references: Vec<Held>) -> State {
    let finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect();
    State { terminating: true, finalizers, ..alive(references) }
}

const HELD: &str = "example.com/held";
const FOREGROUND: &str = "foregroundDeletion";

/// Seeds 38 and 118.
#[test]
fn a_dependent_may_lose_its_last_owner_if_the_owner_began_to_orphan() {
    let write = |revision, slot, state| Change { revision, slot, state };
    let is_breach = |begun: &[Change]| {
        let waits = write(8, 0, Some(terminating(&[FOREGROUND], Vec::new())));
        let family = [write(1, 0, Some(alive(Vec::new()))), write(2, 1, Some(alive(vec![to_owner()])))];
        let changes = [&family[..], begun, &[waits, write(9, 1, Some(alive(Vec::new())))]].concat();
        let by_user = Writes { revisions: [1, 2, 7, 8].into(), ..Writes::default() };
        !breaches(&self::family(), &Course { changes, by_user, ..Course::default() }).is_empty()
    };
    assert!(!is_breach(&[write(7, 0, Some(terminating(&["orphan"], Vec::new())))]));
    assert!(is_breach(&[]), "the owner was only ever in foreground deletion");
}

/// Seeds 88 and 403: a user removes the reference to a solid owner while the collector removes the reference beside it.
#[test]
fn a_user_and_the_collector_may_remove_two_references_at_the_same_time() {
    let program = world(&[Kind::Secret; 3], &[(2, 0), (2, 1)]);
    let to = |slot| to_slot(&program, slot, Some(false));
    let write = |revision, slot, state| Change { revision, slot, state };
    let changes = vec![
        write(1, 0, Some(alive(Vec::new()))),
        write(2, 1, Some(alive(Vec::new()))),
        write(3, 2, Some(alive(vec![to(0), to(1)]))),
        write(4, 0, Some(terminating(&[HELD, FOREGROUND], Vec::new()))),
        write(5, 2, Some(alive(vec![to(0)]))),
        write(7, 2, Some(alive(Vec::new()))),
    ];
    let by_user = Writes { revisions: (1..=5).collect(), ..Writes::default() };
    let course = Course { changes, by_user, ..Course::default() };
    assert!(breaches(&program, &course).is_empty());
    let later = Course { quiet_at: vec![5], ..course.clone() };
    assert!(!breaches(&program, &later).is_empty(), "the collector knew of the user's write");
    let mut waits = Course { quiet_at: vec![4], ..course.clone() };
    waits.changes.insert(4, write(5, 1, Some(terminating(&[HELD, FOREGROUND], Vec::new()))));
    waits.changes[5].revision = 6;
    waits.by_user.revisions.insert(6);
    assert!(breaches(&program, &waits).is_empty(), "the owner was solid at the last quiet moment");
    let mut alone = course;
    alone.changes.remove(4);
    alone.changes[2] = write(3, 2, Some(alive(vec![to(0)])));
    assert!(!breaches(&program, &alone).is_empty(), "no other owner was ever solid");
}

/// Seed 47: upstream unblocks a dependent that closes no cycle. So it misses the moment for a deletion in foreground.
#[test]
fn an_object_goes_in_foreground_where_upstream_unblocks_it_in_vain() {
    let kinds = [Kind::Realm, Kind::Realm, Kind::ConfigMap];
    let program = world(&kinds, &[(0, 1), (1, 0), (2, 1)]);
    let to = |slot, blocking| to_slot(&program, slot, blocking);
    let ours = End::from([(1, terminating(&[HELD, FOREGROUND], vec![to(0, None)]))]);
    let upstream =
        |blocking| End::from([(1, terminating(&[HELD], vec![to(0, blocking)])), (2, alive(vec![to(1, Some(true))]))]);
    let judged = |upstream: &End| judge(&program, &self::to(&ours), &[self::to(upstream), self::to(upstream)]);
    let on_purpose = judged(&upstream(Some(false)));
    assert!(on_purpose.different.is_empty() && on_purpose.on_purpose.len() == 2, "{on_purpose:?}");
    assert_eq!(judged(&upstream(None)).different, [1, 2], "no client rewrote a flag");
}

/// Seed 185: two owners go at once. The speed of the collector decides whether it sees the first one gone before the
/// second one goes.
#[test]
fn two_owners_that_go_at_once_may_leave_either_reference() {
    let kinds = [Kind::ConfigMap, Kind::ConfigMap, Kind::ConfigMap, Kind::Secret];
    let program = world(&kinds, &[(1, 0), (2, 0), (3, 1), (3, 2)]);
    let to = |slot| to_slot(&program, slot, Some(true));
    let held = |owners: &[Slot]| State {
        finalizers: vec![HELD.to_owned()],
        ..alive(owners.iter().map(|&at| to(at)).collect())
    };
    let begun = |with: &[Slot]| {
        let owners = with.iter().map(|&slot| (slot, alive(vec![to(0)])));
        owners.chain([(0, alive(Vec::new())), (3, held(&[1, 2]))]).collect::<End>()
    };
    let at_the_end = |owners: &[Slot]| End::from([(3, State { terminating: true, ..held(owners) })]);
    let judged = |begun: &End, ours: &[Slot], changes: &[Change]| {
        let course = |end| Course { ends: vec![begun.clone(), end], ..Course::default() };
        let ours = Course { changes: changes.to_vec(), ..course(at_the_end(ours)) };
        judge(&program, &ours, &[course(at_the_end(&[1, 2])), course(at_the_end(&[1, 2]))])
    };
    let both = begun(&[1, 2]);
    let raced = judged(&both, &[1], &[]);
    assert!(raced.is_good() && raced.raced == [3], "{raced:?}");
    let with_one = |owners: &[Slot]| {
        let mut end = at_the_end(owners);
        end.extend(both.iter().filter(|(slot, _)| matches!(slot, 0 | 2)).map(|(&slot, state)| (slot, state.clone())));
        Course { ends: vec![both.clone(), end], ..Course::default() }
    };
    let one = judge(&program, &with_one(&[1]), &[with_one(&[1, 2]), with_one(&[1, 2])]);
    assert_eq!(one.different, [3], "only one of the two owners went");
    // The end is the same, but no rule asks for the deletion that leads to it.
    let change = |(&slot, state): (&Slot, &State)| Change { revision: 0, slot, state: Some(state.clone()) };
    let deleted = Change { revision: 1, slot: 3, state: Some(State { terminating: true, ..held(&[1]) }) };
    let changes: Vec<Change> = both.iter().map(change).chain([deleted]).collect();
    let wrong = judged(&both, &[1], &changes);
    assert!(wrong.different == [3] && wrong.breaches.contains_key(&3), "{wrong:?}");
}

/// Seed 8: a user adds a reference to a terminating dependent while the owner goes. The owner may be gone before a
/// collector sees the reference.
#[test]
fn an_owner_that_goes_while_it_is_added_may_leave_its_reference() {
    let program = world(&[Kind::ConfigMap, Kind::ConfigMap], &[(1, 0)]);
    let held = |owners: &[Slot]| State {
        terminating: true,
        finalizers: vec![HELD.to_owned()],
        ..alive(owners.iter().map(|&at| to_slot(&program, at, Some(true))).collect())
    };
    let dependent = |owners: &[Slot]| (1, held(owners));
    let course = |ends: [End; 2], given: u64, left: &[Slot]| {
        let write = |revision, slot, state| Change { revision, slot, state };
        let begun = [write(1, 0, Some(alive(Vec::new()))), write(2, 1, Some(held(&[])))];
        let gone = write(11, 0, None);
        let mut changes = [&begun[..], &[gone, write(given, 1, Some(held(&[0])))]].concat();
        changes.extend(left.is_empty().then(|| write(given + 1, 1, Some(held(&[])))));
        let by_user = Writes { revisions: [1, 2, given].into(), removed: [(0, 0)].into(), ..Writes::default() };
        Course { ends: ends.to_vec(), quiet_at: vec![10, 20], changes, by_user, ..Course::default() }
    };
    let judged = |owner_before: bool| {
        let before = |owner: bool| owner.then(|| (0, alive(Vec::new()))).into_iter().chain([dependent(&[])]).collect();
        let run = |left: &[Slot]| course([before(owner_before), End::from([dependent(left)])], 12, left);
        judge(&program, &run(&[]), &[run(&[0]), run(&[0])])
    };
    let raced = judged(true);
    assert!(raced.is_good() && raced.raced == [1], "{raced:?}");
    assert_eq!(judged(false).different, [1], "its owner was gone at the first quiet moment");
}

/// Seed 258: two owners go at once, as in seed 185. The reference that is left keeps an owner in foreground deletion
/// waiting.
#[test]
fn an_owner_that_waits_for_a_raced_object_races_too() {
    let kinds = [Kind::Realm, Kind::Realm, Kind::Pod];
    let program = world(&kinds, &[(2, 0), (2, 1)]);
    let to = |slot| to_slot(&program, slot, Some(true));
    let begun = End::from([(0, alive(Vec::new())), (1, alive(Vec::new())), (2, alive(vec![to(0), to(1)]))]);
    let waits = || terminating(&[HELD, FOREGROUND], Vec::new());
    let ours = End::from([(0, waits()), (2, terminating(&[HELD], vec![to(0)]))]);
    let upstream = End::from([(0, waits()), (1, waits()), (2, terminating(&[HELD], vec![to(0), to(1)]))]);
    let course = |end: &End| Course { ends: vec![begun.clone(), end.clone()], ..Course::default() };
    let raced = judge(&program, &course(&ours), &[course(&upstream), course(&upstream)]);
    assert!(raced.is_good() && raced.raced == [1, 2], "{raced:?}");
}

#[test]
fn a_state_before_a_quiet_moment_excuses_no_write_after_it() {
    let write = |revision, slot, state| Change { revision, slot, state };
    let changes = vec![
        write(1, 0, Some(alive(Vec::new()))),
        write(2, 1, Some(alive(vec![to_owner()]))),
        write(3, 0, Some(terminating(&[HELD, FOREGROUND], Vec::new()))),
        write(4, 0, Some(terminating(&[HELD], Vec::new()))),
        write(6, 1, None),
    ];
    let by_user = Writes { revisions: [1, 2, 3, 4].into(), deleted: [(0, 0)].into(), ..Writes::default() };
    let course = Course { changes, by_user, ..Course::default() };
    assert!(breaches(&family(), &course).is_empty(), "its owner waited a moment ago");
    assert!(!breaches(&family(), &Course { quiet_at: vec![4], ..course }).is_empty());
}

#[test]
fn an_object_goes_after_its_dependents_where_an_owner_waits() {
    let kinds = [Kind::ConfigMap; 3];
    let program = world(&kinds, &[(1, 0), (2, 1)]);
    let to = |slot| to_slot(&program, slot, Some(true));
    let write = |revision, slot, state| Change { revision, slot, state };
    let changes = vec![
        write(1, 0, Some(alive(Vec::new()))),
        write(2, 1, Some(alive(vec![to(0)]))),
        write(3, 2, Some(alive(vec![to(1)]))),
        write(4, 0, Some(terminating(&[FOREGROUND], Vec::new()))),
    ];
    let is_breach = |quiet_at: u64, rest: &[Change]| {
        let by_user = Writes { revisions: [1, 2, 3, 4].into(), ..Writes::default() };
        let course =
            Course { changes: [&changes, rest].concat(), quiet_at: vec![quiet_at], by_user, ..Course::default() };
        !breaches(&program, &course).is_empty()
    };
    assert!(is_breach(3, &[write(5, 1, None)]));
    assert!(!is_breach(2, &[write(5, 1, None)]), "the collector may not have seen the dependent yet");
    let marked = write(5, 1, Some(terminating(&[FOREGROUND], vec![to(0)])));
    assert!(!is_breach(3, &[marked, write(6, 2, None), write(7, 1, None), write(8, 0, None)]));
}

/// Seed 297: an object blocks its own foreground deletion, and another object blocks it too.
#[test]
fn a_cycle_is_ended_also_where_another_object_blocks() {
    let program = world(&[Kind::Realm, Kind::Realm], &[(0, 0), (1, 0)]);
    let to = |blocking| to_slot(&program, 0, blocking);
    let end = |itself, other| {
        End::from([(0, terminating(&[HELD, FOREGROUND], vec![to(itself)])), (1, terminating(&[HELD], vec![to(other)]))])
    };
    let upstream = self::to(&end(Some(true), Some(true)));
    let judged = |ours: &End| judge(&program, &self::to(ours), &[upstream.clone(), upstream.clone()]);
    let on_purpose = judged(&end(Some(false), Some(true)));
    assert!(on_purpose.is_good() && on_purpose.on_purpose.contains_key(&0), "{on_purpose:?}");
    assert_eq!(judged(&end(Some(true), Some(false))).different, [1], "that reference closes no cycle");
}

/// Seed 226: upstream puts off a late dependent of an owner in foreground deletion. Meanwhile a user gives the
/// dependent a finalizer.
#[test]
fn an_object_that_upstream_puts_off_has_raced() {
    let program = world(&[Kind::ConfigMap, Kind::ConfigMap], &[(1, 0)]);
    let dependent = |waits: bool| {
        let owner = if waits { terminating(&[HELD, FOREGROUND], Vec::new()) } else { alive(Vec::new()) };
        End::from([(0, owner), (1, alive(vec![to_slot(&program, 0, None)]))])
    };
    let held = End::from([(1, terminating(&[HELD], vec![to_slot(&program, 0, None)]))]);
    let judged = |before: End| {
        let upstream = Course { ends: vec![before, held.clone()], ..Course::default() };
        judge(&program, &to(&End::new()), &[upstream.clone(), upstream])
    };
    assert_eq!(judged(dependent(true)).raced, [1]);
    assert_eq!(judged(dependent(false)).different, [1], "there was no work to put off");
}

#[test]
fn an_unknown_disagreement_counts_although_the_list_has_dropped_it() {
    let count = |class: Class| ClassCount { class: class.into(), ours_only: 1, theirs_only: 1000 };
    let explained = |classes: &[Class]| {
        let classes = classes.iter().copied().map(count).collect();
        Compared { numbers: GetParityResponse { classes, ..Default::default() }, disagreements: Vec::new() }
            .ensure_explained()
            .is_ok()
    };
    assert!(explained(&[Class::Timing, Class::OwnChange]));
    assert!(!explained(&[Class::Unknown, Class::OwnChange]));
}
