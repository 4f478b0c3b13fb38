//! Marks in both encodings.

use super::*;
use engine::scope::{Labelled, Requirement, Test};
use engine::selectors::Selectors;

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
