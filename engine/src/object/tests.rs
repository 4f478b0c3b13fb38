use super::*;

fn reference(number: usize, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: name.into(),
        uid: Uid::parse(&alloc::format!("u{number}")).unwrap(),
        controller: None,
        block_owner_deletion: None,
    }
}

fn facts(owners: Vec<OwnerReference>) -> Facts {
    Facts { owners: owners.into(), ..Facts::default() }
}

#[test]
fn equal_references_count_once_in_their_order() {
    let (one, two) = (reference(2, "a"), reference(1, "a"));
    let blocking = OwnerReference { block_owner_deletion: Some(true), ..one.clone() };
    let mut bounded = facts(alloc::vec![one.clone(), two.clone(), one.clone(), blocking.clone(), two.clone()]);
    bounded.bound();
    assert_eq!(*bounded.owners, [one, two, blocking]);
    assert_eq!(bounded.excess, None);
}

#[test]
fn too_many_references_leave_their_number_and_a_digest() {
    let most: Vec<OwnerReference> = (0..REFERENCES_MAX).map(|number| reference(number, "a")).collect();
    let (mut at_most, repeated) = (facts(most.clone()), [&most[..], &most[..]].concat());
    at_most.bound();
    let mut twice = facts(repeated);
    twice.bound();
    assert_eq!((at_most.owners.len(), &at_most), (REFERENCES_MAX, &twice), "duplicates are no excess");
    for more in [reference(REFERENCES_MAX, "a"), reference(0, "another")] {
        let all = facts([&most[..], core::slice::from_ref(&more)].concat());
        let mut bounded = all.clone();
        bounded.bound();
        assert_eq!((bounded.owners.len(), bounded.excess.map(|excess| excess.count)), (0, Some(5001)));
        assert_eq!(bounded.digest(), all.digest());
        let mut other = facts([core::slice::from_ref(&more), &most[..]].concat());
        other.bound();
        assert_ne!(bounded.digest(), other.digest());
        let mut again = bounded.clone();
        again.bound();
        assert_eq!(again, bounded);
    }
    let mut long = facts((0..3000).map(|number| reference(number, &"n".repeat(200))).collect());
    long.bound();
    assert_eq!(long.excess.map(|excess| excess.count), Some(3000), "what no message can carry");
}

#[test]
fn references_that_share_a_uid_are_told_apart_from_those_that_do_not() {
    let owners = [reference(1, "a"), reference(2, "a"), reference(1, "b"), reference(3, "a")];
    assert_eq!(sharing_uid(&owners, &[0, 1, 3]), (alloc::vec![0], alloc::vec![1, 3]));
}

#[test]
fn only_the_canonical_spelling_of_a_uid_is_packed() {
    let canonical = "0f8fad5b-d9cb-469f-a165-70867728950e";
    for text in [canonical, "0F8FAD5B-D9CB-469F-A165-70867728950E", "0f8fad5bd9cb469fa16570867728950e", "x", "-", "ü"]
    {
        assert_eq!(alloc::format!("{}", Uid::parse(text).unwrap()), text);
    }
    assert_ne!(Uid::parse(canonical), Uid::parse(&canonical.to_uppercase()));
    for at in 0..canonical.len() {
        for other in ' '..='~' {
            let text = alloc::format!("{}{other}{}", &canonical[..at], &canonical[at + 1..]);
            assert_eq!(alloc::format!("{}", Uid::parse(&text).unwrap()), text);
            assert_eq!(Uid::parse(&text) == Uid::parse(canonical), text == canonical, "{text}");
        }
    }
    assert_eq!(Uid::parse(""), None);
}

#[test]
fn versions_are_ordered_by_number_and_only_where_they_are_numbers() {
    let order = |a: &str, b: &str| ResourceVersion::parse(a).compare(&ResourceVersion::parse(b));
    assert_eq!(order("9", "10"), Some(Ordering::Less));
    assert_eq!(order("340282366920938463463374607431768211455", "99"), Some(Ordering::Greater));
    for opaque in ["010", "", "-1", "+1", "a7", "1.5", "340282366920938463463374607431768211456"] {
        assert!(!ResourceVersion::parse(opaque).is_ordered(), "{opaque}");
        assert_eq!(order(opaque, "10"), None, "{opaque}");
        assert_eq!(order(opaque, opaque), Some(Ordering::Equal), "{opaque}");
    }
}

#[test]
fn the_digest_covers_what_a_decision_rests_on_and_nothing_else() {
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        uid: Uid::parse("u1").unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let base = Facts { owners: [owner.clone()].into(), ..Facts::default() };
    let foreign = Facts { finalizers: ["example.com/backup".into()].into(), ..base.clone() };
    assert_eq!(base.digest(), foreign.digest());
    let different = [
        Facts::default(),
        Facts { terminating: true, ..base.clone() },
        Facts { hold: true, ..base.clone() },
        Facts { finalizers: [ORPHAN_FINALIZER.into()].into(), ..base.clone() },
        Facts { finalizers: [FOREGROUND_FINALIZER.into()].into(), ..base.clone() },
        Facts {
            owners: [OwnerReference { block_owner_deletion: Some(false), ..owner.clone() }].into(),
            ..base.clone()
        },
        Facts { owners: [OwnerReference { controller: None, ..owner.clone() }].into(), ..base.clone() },
        Facts {
            owners: [OwnerReference { name: "we".into(), kind: "Deploymentb".into(), ..owner }].into(),
            ..base.clone()
        },
    ];
    for facts in &different {
        assert_ne!(facts.digest(), base.digest(), "{facts:?}");
    }
}

#[test]
fn clipping_keeps_characters_whole() {
    assert_eq!(clip("abcü", 4), "abc");
    assert_eq!(clip("abc", 10), "abc");
}

/// Sorting by an order that is not total panics.
#[test]
fn versions_are_sorted_whatever_they_are() {
    let texts = ["abc", "7", "", "0", "12", "007", "99999999999999999999999999999999999999999999", "7"];
    let versions = texts.map(ResourceVersion::parse);
    for (one, other) in versions.iter().flat_map(|one| versions.iter().map(move |other| (one, other))) {
        assert_eq!(one.furthest_first(other), other.furthest_first(one).reverse(), "{one} {other}");
        for third in versions.iter().filter(|third| other.furthest_first(third).is_le()) {
            let follows = one.furthest_first(other).is_gt() || one.furthest_first(third).is_le();
            assert!(follows, "{one} {other} {third}");
        }
    }
    let mut sorted = versions.clone();
    sorted.sort_by(ResourceVersion::furthest_first);
    assert_eq!(sorted[0], ResourceVersion::parse("12"));
}
