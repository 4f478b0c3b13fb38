use super::*;
use alloc::format;
use alloc::string::String;

fn names(values: &[&str]) -> Vec<Name> {
    values.iter().map(|&value| Name::from(value)).collect()
}

fn label(key: &str, test: Test) -> Requirement {
    Requirement { of: Labelled::Label, key: key.into(), test }
}

fn give(matcher: &mut Matcher, of: Labelled, key: &str, value: &str) {
    if matcher.may_want(key.as_bytes(), value.as_bytes())
        && let Some(key) = matcher.wants(of, key)
    {
        matcher.take(key, value);
    }
}

fn marks(matcher: &mut Matcher, labels: &[(&str, &str)]) -> Vec<u16> {
    labels.iter().for_each(|(key, value)| give(matcher, Labelled::Label, key, value));
    matcher.finish().numbers().to_vec()
}

#[test]
fn the_tests_are_those_of_kubernetes_selectors() {
    let (one, none) = (names(&["a", "b"]), Vec::new());
    let table = [
        (Test::In(one.clone()), None, false),
        (Test::In(one.clone()), Some("b"), true),
        (Test::In(one.clone()), Some("c"), false),
        (Test::In(one.clone()), Some(""), false),
        (Test::In(names(&[""])), Some(""), true),
        (Test::In(none), None, false),
        (Test::NotIn(one.clone()), None, true),
        (Test::NotIn(one.clone()), Some("a"), false),
        (Test::NotIn(one), Some("c"), true),
        (Test::Exists, None, false),
        (Test::Exists, Some(""), true),
        (Test::DoesNotExist, None, true),
        (Test::DoesNotExist, Some(""), false),
        (Test::Lists("x".into()), None, false),
        (Test::Lists("x".into()), Some("y, x ,z"), true),
        (Test::Lists("x".into()), Some("xy,yx"), false),
        (Test::Lists("x".into()), Some("x,y,x"), true),
    ];
    for (test, value, holds) in table {
        let mut selectors = Selectors::default();
        selectors.want(&[label("k", test.clone())]).expect("room");
        let mut matcher = Matcher::new(selectors.table().clone());
        let labels: Vec<(&str, &str)> = value.into_iter().map(|value| ("k", value)).collect();
        assert_eq!(!marks(&mut matcher, &labels).is_empty(), holds, "{test:?} of {value:?}");
    }
}

#[test]
fn all_requirements_of_a_selector_must_hold_and_objects_do_not_mix() {
    let mut selectors = Selectors::default();
    let both = [label("a", Test::Exists), label("b", Test::NotIn(names(&["1"])))];
    assert_eq!(selectors.want(&both), Ok((0, 1)));
    assert_eq!(selectors.want(&[label("a", Test::DoesNotExist)]), Ok((1, 2)));
    let annotation = Requirement { of: Labelled::Annotation, key: "a".into(), test: Test::Exists };
    assert_eq!(selectors.want(&[annotation]), Ok((2, 3)));
    let mut matcher = Matcher::new(selectors.table().clone());
    for _ in 0..2 {
        assert_eq!(marks(&mut matcher, &[]), [1]);
        assert_eq!(marks(&mut matcher, &[("a", "")]), [0]);
        assert_eq!(marks(&mut matcher, &[("a", ""), ("b", "1")]), []);
        assert_eq!(marks(&mut matcher, &[("b", "1"), ("a", ""), ("b", "2")]), [0], "the last value counts");
        give(&mut matcher, Labelled::Annotation, "a", "");
        assert_eq!(matcher.finish().numbers(), [1, 2]);
    }
}

#[test]
fn equal_conjunctions_share_a_number_and_old_numbers_stay() {
    let mut selectors = Selectors::default();
    let (one, other) = (label("a", Test::In(names(&["x", "y"]))), label("b", Test::Exists));
    let turned = label("a", Test::In(names(&["y", "x", "y"])));
    let known = selectors.want(&[one.clone(), other.clone()]);
    let old = selectors.table().clone();
    assert_eq!(selectors.want(&[other.clone(), turned, other.clone()]), known);
    assert_eq!(selectors.want(&[other]), Ok((1, 2)));
    assert_eq!((old.generation(), selectors.table().generation()), (1, 2), "a published table does not change");
    assert!(Table::default().is_empty() && !old.is_empty());
}

#[test]
fn the_number_of_selectors_and_requirements_is_bounded() {
    let mut selectors = Selectors::default();
    for number in 0..SELECTORS_MAX {
        selectors.want(&[label(&format!("k{number}"), Test::Exists)]).expect("room");
    }
    assert_eq!(selectors.want(&[label("more", Test::Exists)]), Err(TooMany));
    assert_eq!(selectors.want(&[label("k7", Test::Exists)]), Ok((7, 8)), "a known selector stays known");
    assert_eq!(selectors.table().generation(), 1000);
    let keys: Vec<String> = (0..=REQUIREMENTS_MAX).map(|number| format!("k{number}")).collect();
    let wide: Vec<Requirement> = keys.iter().map(|key| label(key, Test::Exists)).collect();
    assert_eq!(Selectors::default().want(&wide), Err(TooMany));
}

#[test]
fn equal_sets_of_consecutive_objects_share_one_allocation() {
    let mut selectors = Selectors::default();
    selectors.want(&[label("a", Test::Exists)]).expect("room");
    let mut matcher = Matcher::new(selectors.table().clone());
    let mut next = || {
        give(&mut matcher, Labelled::Label, "a", "");
        matcher.finish()
    };
    let (one, other) = (next(), next());
    assert!(core::ptr::eq(one.numbers(), other.numbers()), "{one:?} {other:?}");
    assert!(one.has(0) && !one.has(1));
    assert_eq!(size_of::<Marks>(), 2 * size_of::<usize>());
}

/// The definition of a selector, without an index.
fn plainly(requirements: &[Requirement], labels: &[(&str, &str)]) -> bool {
    requirements.iter().all(|Requirement { key, test, .. }| {
        let value = labels.iter().rev().find(|(of, _)| **of == **key).map(|(_, value)| *value);
        let among = |values: &[Name]| value.is_some_and(|value| values.iter().any(|one| **one == *value));
        match test {
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Lists(word) => value.is_some_and(|value| value.split(',').any(|one| one.trim() == &**word)),
        }
    })
}

/// Random selectors and labels, in tables that grow.
#[test]
fn a_matcher_finds_what_the_definition_says() {
    let mut rng = crate::jitter::Rng::new(41);
    let mut draw = |below: u64| rng.next() % below;
    let (keys, values) = (["a", "b", "c"], ["", "x", "y", "x,y", "y, x,x"]);
    for world in 0..300 {
        let mut selectors = Selectors::default();
        let mut wanted: Vec<(u16, Vec<Requirement>)> = Vec::new();
        for _ in 0..=draw(8) {
            let mut one = || {
                let some = names(&values[draw(5) as usize..]);
                let test = match draw(5) {
                    0 => Test::In(some),
                    1 => Test::NotIn(some),
                    2 => Test::Exists,
                    3 => Test::DoesNotExist,
                    _ => Test::Lists(["x", "y"][draw(2) as usize].into()),
                };
                label(keys[draw(3) as usize], test)
            };
            let requirements: Vec<Requirement> = [one(), one(), one()].into_iter().collect();
            let requirements = requirements[draw(3) as usize..].to_vec();
            let (number, _) = selectors.want(&requirements).expect("room");
            wanted.push((number, requirements));
            let mut matcher = Matcher::new(selectors.table().clone());
            for _ in 0..10 {
                let count = draw(5);
                let labels: Vec<(&str, &str)> =
                    (0..count).map(|_| (keys[draw(3) as usize], values[draw(5) as usize])).collect();
                let mut expected: Vec<u16> =
                    wanted.iter().filter(|(_, all)| plainly(all, &labels)).map(|&(number, _)| number).collect();
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(marks(&mut matcher, &labels), expected, "world {world}: {wanted:?} of {labels:?}");
            }
        }
    }
}

#[test]
fn a_table_of_any_size_finds_its_texts_and_no_others() {
    let mut texts = Texts::<usize>::default();
    assert_eq!(texts.get(b"key-0"), None);
    for number in 0..3000 {
        *texts.entry(&format!("key-{number}").into()) = number;
        *texts.entry(&format!("{number}/a-longer-key").into()) = number;
    }
    for number in 0..3000 {
        assert_eq!(texts.get(format!("key-{number}").as_bytes()), Some(&number));
        assert_eq!(texts.get(format!("{number}/a-longer-key").as_bytes()), Some(&number));
        assert_eq!(texts.get(format!("key-{number}-").as_bytes()), None);
        for text in [format!("key-{number}"), format!("{number}/a-longer-key")] {
            let hash = number_of(text.as_bytes());
            let (slot, _) = texts.place(hash, text.as_bytes());
            let looks = slot.wrapping_sub(texts.home(hash)) % texts.slots.len();
            assert!(looks < 20, "{text} is found after {looks} looks");
        }
        assert_eq!(texts.get(format!("x{number}/a-longer-key").as_bytes()), None);
    }
}

#[test]
fn a_matcher_rejects_most_labels_without_a_search_even_with_all_selectors() {
    let mut selectors = Selectors::default();
    for number in 0..SELECTORS_MAX {
        let key = format!("example.com/key-{}", number % 10);
        selectors.want(&[label(&key, Test::In(names(&[&format!("value-{number}")])))]).expect("room");
    }
    let matcher = Matcher::new(selectors.table().clone());
    let searched = |key: &str, value: &str| usize::from(matcher.may_want(key.as_bytes(), value.as_bytes()));
    let of_key: usize = (0..1000).map(|number| searched("example.com/key-7", &format!("other-{number}"))).sum();
    let of_others: usize = (0..1000).map(|number| searched(&format!("key-{number}"), "value-7")).sum();
    assert!(of_key < 150 && of_others < 50, "{of_key} and {of_others} of 1000");
}
