use super::*;

fn sight(uid: &str, owners: &[&str]) -> Sight {
    let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
    Sight { uid: uid.to_owned(), name: uid.to_owned(), owners, going: false }
}

fn stays(owners: &[&str]) -> Fate {
    Fate::Stays(owners.iter().map(|&owner| owner.to_owned()).collect())
}

/// Returns a family with an owner, one dependent that goes, and one that `keeper` holds.
fn family(policy: Policy) -> Oracle {
    let mut oracle = Oracle::default();
    oracle.family(1, policy, "owner".to_owned(), "owner");
    oracle.member(1, "child".to_owned(), "child", Fate::Goes, true);
    oracle.bystander(1, "keeper".to_owned(), "keeper", BTreeSet::new());
    oracle.member(1, "shared".to_owned(), "shared", stays(&["keeper"]), true);
    oracle
}

#[test]
fn a_cascade_as_it_should_be_settles_without_a_word() {
    let mut oracle = family(Policy::Foreground);
    let begun = Instant::now();
    let later = begun + Duration::from_secs(3);
    oracle.doom(1, begun);
    assert_eq!(oracle.pending(), 3);
    oracle.deleted(&sight("child", &["owner"]), begun);
    oracle.seen(&sight("shared", &["keeper"]), later);
    assert!(!oracle.is_settled(1));
    oracle.deleted(&sight("owner", &[]), later);
    assert!(oracle.is_settled(1));
    assert_eq!((oracle.pending(), oracle.longest_stall()), (0, Duration::from_secs(3)));
    assert!(oracle.violations().is_empty(), "{:?}", oracle.violations());
}

#[test]
fn whatever_must_not_happen_is_noticed() {
    let now = Instant::now();
    type Happens<'a> = (&'a str, &'a dyn Fn(&mut Oracle));
    let happens: [Happens<'_>; 7] = [
        ("deleted before its owner", &|oracle| oracle.deleted(&sight("child", &["owner"]), now)),
        ("must stay", &|oracle| oracle.deleted(&sight("keeper", &[]), now)),
        ("is being deleted and must stay", &|oracle| {
            oracle.seen(&Sight { going: true, ..sight("shared", &["owner", "keeper"]) }, now);
        }),
        ("lost a reference to a living owner", &|oracle| {
            oracle.doom(1, now);
            oracle.seen(&sight("shared", &["owner"]), now);
        }),
        ("lost a reference before its owner", &|oracle| oracle.seen(&sight("shared", &["keeper"]), now)),
        ("went before 2 objects", &|oracle| {
            oracle.doom(1, now);
            oracle.deleted(&sight("owner", &[]), now);
        }),
        ("as soon as it was there", &|oracle| {
            oracle.deleted(&sight("new", &[]), now);
            oracle.bystander(1, "new".to_owned(), "new", BTreeSet::new());
        }),
    ];
    for (says, happen) in happens {
        let mut oracle = family(Policy::Foreground);
        happen(&mut oracle);
        assert!(oracle.violations().iter().any(|why| why.contains(says)), "{says}: {:?}", oracle.violations());
    }
}

#[test]
fn a_dependent_that_came_late_may_be_gone_before_its_maker_knows_it() {
    let now = Instant::now();
    let mut oracle = family(Policy::Background);
    oracle.doom(1, now);
    oracle.deleted(&sight("late", &["owner"]), now);
    oracle.member(1, "late".to_owned(), "late", Fate::Goes, false);
    assert_eq!(oracle.pending(), 3);
    assert!(oracle.violations().is_empty(), "{:?}", oracle.violations());
}
