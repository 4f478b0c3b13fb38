//! Marks in both encodings.

use super::differential::{rounds, seed};
use super::generate::Draw;
use super::*;
use engine::scope::{Labelled, Requirement, Test};
use engine::selectors::Selectors;
use std::collections::BTreeSet;

fn require(of: Labelled, key: &str, test: Test) -> Requirement {
    Requirement { of, key: key.into(), test }
}

fn selectors() -> Selectors {
    let mut selectors = Selectors::default();
    let word = |text: &str| vec![Name::from(text)];
    for requirement in [
        require(Labelled::Label, "tier", Test::In(word("gold"))),
        require(Labelled::Label, "tier", Test::NotIn(word("gold"))),
        require(Labelled::Annotation, "teams", Test::Lists("a".into())),
        require(Labelled::Annotation, "tier", Test::Exists),
    ] {
        selectors.want(&[requirement]).expect("room");
    }
    selectors
}

/// One field with a length, of fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 128).expect("short");
    [&[number << 3 | 2, length], bytes].concat()
}

fn entry(number: u8, key: &str, value: &str) -> Vec<u8> {
    field(number, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
}

#[test]
fn both_encodings_give_the_same_marks() {
    type Map<'t> = &'t [(&'t str, &'t str)];
    let cases: [(Map<'_>, Map<'_>, &[u16]); 5] = [
        (&[], &[], &[1]),
        (&[("tier", "gold"), ("x", "y")], &[("x", "gold")], &[0]),
        (&[("tier", "")], &[("teams", "b, a"), ("tier", "")], &[1, 2, 3]),
        (&[("teams", "a")], &[], &[1]),
        (&[("tier", "gold")], &[("teams", "b")], &[0]),
    ];
    let mut matcher = Matcher::new(selectors().table().clone());
    for (labels, annotations, expected) in cases {
        let map = |map: Map<'_>| map.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let (of_labels, of_annotations): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
            (map(labels), map(annotations));
        let json = serde_json::json!({ "metadata": { "labels": of_labels, "annotations": of_annotations } });
        let json = raw(&json.to_string());
        let labels = labels.iter().map(|(key, value)| entry(11, key, value));
        let metadata = labels.chain(annotations.iter().map(|(key, value)| entry(12, key, value)));
        let object = field(1, &metadata.collect::<Vec<_>>().concat());
        for item in [Item::Json(&json), Item::Protobuf(Metadata::scan(&object))] {
            let marks = item.marks(&mut matcher).expect("readable");
            assert_eq!(marks.numbers(), expected, "{item:?}");
        }
    }
}

#[test]
fn unreadable_labels_have_unknown_marks_and_leave_no_trace() {
    let mut matcher = Matcher::new(selectors().table().clone());
    let wrong = raw(r#"{"metadata":{"labels":{"tier":"gold"},"annotations":{"teams":7}}}"#);
    let error = Item::Json(&wrong).marks(&mut matcher).expect_err("a number is no text");
    assert!(error.contains("cannot read an object"), "{error}");
    let bare = raw(r#"{"metadata":{"labels":null,"annotations":{"x":null}}}"#);
    assert_eq!(Item::Json(&bare).marks(&mut matcher).expect("readable").numbers(), [1]);
    let mut idle = Matcher::new(Selectors::default().table().clone());
    assert_eq!(Item::Json(&wrong).marks(&mut idle), Ok(Marks::default()), "without selectors nothing is read");
}

const KEYS: [&str; 6] = ["a", "tier", "app/tier", "example.com/team", "example.com/\u{e9}quipe", ""];
const VALUES: [&[u8]; 9] = [
    b"",
    b"x",
    b"gold",
    b"y, x,x",
    b"a value of more than sixteen bytes",
    "\u{e9}".as_bytes(),
    b"\xff",
    b"x\xff",
    &[b'x'; 200],
];

/// A label or annotation.
type Entry<'t> = (Labelled, &'t str, &'t [u8]);

const MAPS: [Labelled; 2] = [Labelled::Label, Labelled::Annotation];

fn random_requirement(draw: &mut Draw) -> Requirement {
    let values = |draw: &mut Draw| {
        let readable = VALUES.iter().filter_map(|value| std::str::from_utf8(value).ok());
        readable.filter(|_| draw.percent(30)).map(Name::from).collect()
    };
    let test = match draw.below(7) {
        0..3 => Test::In(values(draw)),
        3 | 4 => Test::NotIn(values(draw)),
        5 => [Test::Exists, Test::DoesNotExist][draw.below(2)].clone(),
        _ => Test::Lists("x".into()),
    };
    require(MAPS[draw.below(2)], KEYS[draw.below(KEYS.len())], test)
}

/// Whether a requirement holds for the value of its key: the definition.
fn holds(test: &Test, value: Option<&str>) -> bool {
    let among = |values: &[Name]| value.is_some_and(|value| values.iter().any(|one| **one == *value));
    match test {
        Test::In(values) => among(values),
        Test::NotIn(values) => !among(values),
        Test::Exists => value.is_some(),
        Test::DoesNotExist => value.is_none(),
        Test::Lists(word) => value.is_some_and(|value| value.split(',').any(|one| one.trim() == &**word)),
    }
}

/// A field with a length, which sometimes takes more bytes than it needs.
fn any_field(draw: &mut Draw, number: u8, bytes: &[u8]) -> Vec<u8> {
    let (low, high) = ((bytes.len() % 128) as u8, (bytes.len() / 128) as u8);
    let length = if high > 0 || draw.percent(5) { vec![low | 0x80, high] } else { vec![low] };
    [&[number << 3 | 2], &*length, bytes].concat()
}

/// One entry of a map, in one of the forms that mean the same.
fn any_entry(draw: &mut Draw, (of, key, value): Entry<'_>) -> Vec<u8> {
    let (key, value) = (any_field(draw, 1, key.as_bytes()), any_field(draw, 2, value));
    let bytes = match draw.below(20) {
        0 => [value, key].concat(),
        1 => [any_field(draw, 1, b"tier"), any_field(draw, 2, b"gold"), key, value].concat(),
        2 => [key, any_field(draw, 3, b"unknown"), value].concat(),
        3 => [key, value, any_field(draw, 3, b"")].concat(),
        _ if value == [2 << 3 | 2, 0] && draw.percent(50) => key,
        _ => [key, value].concat(),
    };
    let entry = any_field(draw, [11, 12][usize::from(of == Labelled::Annotation)], &bytes);
    let other = if draw.percent(10) { any_field(draw, 14, b"finalizer") } else { vec![] };
    [entry, other].concat()
}

/// A JSON string, some of whose characters are escaped.
fn any_string(draw: &mut Draw, text: &str) -> String {
    let escaped = |char: char| format!("\\u{:04x}", u32::from(char));
    let chars = text.chars().map(|char| if draw.percent(10) { escaped(char) } else { char.to_string() });
    format!("\"{}\"", chars.collect::<String>())
}

/// Random entries, which repeat keys. Configurable, as the comparison with prost.
#[test]
fn marks_are_what_the_definition_says_in_both_encodings() {
    let seed = seed();
    let mut draw = Draw::new(seed);
    let (mut wanted, mut matcher) = (Vec::new(), Matcher::new(Selectors::default().table().clone()));
    let (mut marked, mut unreadable) = (0, 0);
    for round in 0..4 * rounds() {
        if round % 50 == 0 {
            let mut selectors = Selectors::default();
            wanted.clear();
            for _ in 0..=draw.below(8) {
                let all: Vec<_> = (0..=draw.below(2)).map(|_| random_requirement(&mut draw)).collect();
                wanted.push((selectors.want(&all).expect("room").0, all));
            }
            matcher = Matcher::new(selectors.table().clone());
        }
        let mut one = || (MAPS[draw.below(2)], KEYS[draw.below(KEYS.len())], VALUES[draw.below(VALUES.len())]);
        let entries: Vec<Entry<'_>> = [one(), one(), one(), one(), one(), one()][draw.below(7)..].to_vec();
        let expected = expected(&wanted, &entries);
        let fields: Vec<_> = entries.iter().map(|&entry| any_entry(&mut draw, entry)).collect();
        let (begin, end) = fields.split_at(draw.below(fields.len() + 1));
        let object = [begin, end].map(|fields| any_field(&mut draw, 1, &fields.concat())).concat();
        let mut check = |item: Item<'_>| {
            let marks = item.marks(&mut matcher).ok().map(|marks| marks.numbers().to_vec());
            assert_eq!(marks, expected, "SEED={seed}, round {round}: {wanted:?} of {entries:?} in {item:?}");
        };
        check(Item::Protobuf(Metadata::scan(&object)));
        if entries.iter().all(|entry| std::str::from_utf8(entry.2).is_ok()) {
            check(Item::Json(&raw(&any_json(&mut draw, &entries))));
        }
        *if expected.is_some() { &mut marked } else { &mut unreadable } += 1;
    }
    assert!(marked > unreadable && unreadable > rounds() / 10, "SEED={seed}: {marked} and {unreadable}");
}

/// The numbers of the selectors that match, by the definition. `None` if the value of a wanted key is not UTF-8.
fn expected(wanted: &[(u16, Vec<Requirement>)], entries: &[Entry<'_>]) -> Option<Vec<u16>> {
    let is_on = |one: &Requirement, entry: &Entry<'_>| one.of == entry.0 && *one.key == *entry.1;
    let text = |entry: &Entry<'_>| std::str::from_utf8(entry.2).ok().map(str::to_owned);
    let all = || wanted.iter().flat_map(|(_, all)| all);
    if entries.iter().any(|entry| text(entry).is_none() && all().any(|one| is_on(one, entry))) {
        return None;
    }
    let meets = |one: &Requirement| {
        let value = entries.iter().rfind(|entry| is_on(one, entry)).and_then(text);
        holds(&one.test, value.as_deref())
    };
    let met = wanted.iter().filter(|(_, all)| all.iter().all(meets)).map(|&(number, _)| number);
    Some(BTreeSet::from_iter(met).into_iter().collect())
}

fn any_json(draw: &mut Draw, entries: &[Entry<'_>]) -> String {
    let mut map = |of| {
        let mut one = |key: &str, value: &[u8]| {
            let value = std::str::from_utf8(value).expect("readable");
            let null = value.is_empty() && draw.percent(50);
            let value = if null { "null".to_owned() } else { any_string(draw, value) };
            format!("{}:{value}", any_string(draw, key))
        };
        let entries: Vec<String> =
            entries.iter().filter(|entry| entry.0 == of).map(|(_, key, value)| one(key, value)).collect();
        entries.join(",")
    };
    let (labels, annotations) = (map(Labelled::Label), map(Labelled::Annotation));
    format!(r#"{{"metadata":{{"labels":{{{labels}}},"annotations":{{{annotations}}}}}}}"#)
}
