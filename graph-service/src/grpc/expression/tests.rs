use super::*;
use crate::grpc::small_world::reason;
use proptest::prelude::*;
use tonic_types::StatusExt as _;

static SUBJECT: Subject = Subject { name: "object", fields: &["kind", "owners", "count"] };

fn subject(owners: usize) -> Value {
    let owner =
        |number: usize| map([("name", Value::from(format!("o-{number}"))), ("index", Value::from(number as i64))]);
    map([("kind", Value::from("Pod")), ("owners", list((0..owners).map(owner))), ("count", Value::UInt(7))])
}

fn holds(text: &str) -> bool {
    let expression = Expression::of("cel", text, &SUBJECT).unwrap_or_else(|refused| panic!("{text}: {refused:?}"));
    expression.unwrap().is_true(subject(3))
}

#[test]
fn conditions_are_true_or_not() {
    for text in [
        r#"object.kind == "Pod""#,
        r#"object.kind in ["Pod", "Node"] && size(object.owners) == 3"#,
        r#"object.owners.exists(o, o.name == "o-2")"#,
        r#"object.owners.filter(o, o.name.endsWith("1")).size() == 1"#,
        r#"!object.kind.startsWith("N") ? object.count == 7u : false"#,
        r#"object.owners[0].name.contains("-") && has(object.kind)"#,
        "object.owners.map(o, o.index + 1) == [1, 2, 3]",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        r#"object.kind == "pod""#,
        "object.owners[7].name == 'o'",
        "object.count",
        "object.owners[0].nothing",
        "1/0 == 1",
    ] {
        assert!(!holds(text), "{text} is not true");
    }
    assert!(Expression::of("cel", "", &SUBJECT).unwrap().is_none());
}

#[test]
fn mistakes_are_told_with_their_place() {
    let long = format!("object.kind == '{}'", "x".repeat(BYTES_MAX));
    let deep = format!("{}1{} == 1", "[".repeat(60), "]".repeat(60));
    let long_way = format!("{}1 == 1", "1+".repeat(DEPTH_MAX));
    let wide = format!("{}1 == 1", "1+".repeat(SIGNS_MAX));
    for (text, place, about) in [
        ("object.kind ==", Some(("1", "15")), ""),
        ("object.kind == 'Pod' &&\n object.color == 1", Some(("2", "9")), "no field \"color\""),
        ("kind == 'Pod'", Some(("1", "1")), "no variable \"kind\""),
        ("object.kind.matches('P.*')", Some(("1", "13")), "no function \"matches\""),
        ("object.owners.all(a, object.owners.all(b, a == b))", Some(("1", "40")), "loop inside another"),
        ("Value{} == 1", Some(("1", "1")), "messages"),
        ("1 + 1", None, "no condition"),
        ("'x'", None, "no condition"),
        ("object.count == 1u ? true : size(object.owners)", None, "no condition"),
        (&long, None, "bytes"),
        (&deep, None, "recursion limit"),
        (&long_way, None, "nested deeper"),
        (&wide, None, "signs"),
    ] {
        let refused = Expression::of("include.cel", text, &SUBJECT).expect_err(text);
        assert_eq!((refused.code(), reason(&refused).as_str()), (tonic::Code::InvalidArgument, "EXPRESSION_INVALID"));
        let info = refused.get_error_details().error_info().unwrap().clone();
        assert_eq!(info.metadata["field"], "include.cel");
        if let Some((line, column)) = place {
            let at = (info.metadata["line"].as_str(), info.metadata["column"].as_str());
            assert_eq!(at, (line, column), "{text}: {refused:?}");
        }
        assert!(refused.message().contains(about), "{text}: {refused:?}");
    }
}

#[test]
fn the_worst_that_is_taken_ends_on_a_small_stack() {
    let longest = |unit: &str, end: &str| {
        let signs = unit.chars().filter(|sign| !sign.is_alphanumeric() && !sign.is_whitespace()).count();
        format!("{}{end}", unit.repeat((SIGNS_MAX - 8) / signs))
    };
    let worst = [
        longest("!", "true"),
        longest("-", "1 == 1"),
        longest("1+", "1 == 200"),
        longest("true ? ", "true : false"),
        longest("true?true:", "true"),
        longest("[", "1"),
        longest("(", "1"),
        longest("true || ", "false"),
        format!("object{}", ".kind".repeat(SIGNS_MAX - 8)),
        format!("object.owners.all(o, {} == 1)", longest("o.index+", "1")),
        format!("object.kind == 'x'{}", " || object.kind == 'y'".repeat(20)),
        format!("object.owners.map(o, object.owners{}) == []", "+object.owners".repeat(15)),
    ];
    let small = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let run = move || {
        for text in worst {
            if let Ok(Some(expression)) = Expression::of("cel", &text, &SUBJECT) {
                expression.is_true(subject(LIST_MAX));
            }
        }
    };
    small.spawn(run).unwrap().join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_text_is_an_expression_or_a_mistake(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("object"), Just(".kind"), Just(".owners"), Just(".all(o, "), Just(")"), Just("("), Just("["), Just("]"), Just("{"),
                Just("}"), Just("1"), Just("-"), Just("'"), Just("\""), Just("\\"), Just("\u{e9}"), Just("?"), Just(":"), Just(" "), Just("b'"),
                Just("0x"), Just("1e999"), Just("has("), Just("r'"), Just("\n"), Just("`"), Just("in"), Just("9223372036854775808"), Just("u"),
                Just("'''"), Just("\\u12"), Just("&&"), Just("=="), Just(","), Just("//"), Just("\0"), Just("\u{1f600}"),
            ],
            0..12,
        )
    ) {
        let text = parts.concat();
        if let Ok(Some(expression)) = Expression::of("cel", &text, &SUBJECT) {
            expression.is_true(subject(2));
        }
    }
}
