use super::*;
use proptest::prelude::*;

static OWNER: Type = Type::Object(&[("name", Type::String), ("index", Type::Int)]);
static SUBJECT: Subject = Subject {
    name: "object",
    fields: &[("kind", Type::String), ("owners", Type::List(Element::Of(&OWNER))), ("count", Type::Uint)],
};

fn subject(owners: usize) -> Activation {
    let owner =
        |number: usize| map([("name", Value::from(format!("o-{number}"))), ("index", Value::from(number as i64))]);
    let object =
        map([("kind", Value::from("Pod")), ("owners", list((0..owners).map(owner))), ("count", Value::UInt(7))]);
    Activation::of([(&SUBJECT, object)])
}

fn holds(text: &str) -> bool {
    let expression = Expression::of(text, &SUBJECT).unwrap_or_else(|refused| panic!("{text}: {refused:?}"));
    expression.unwrap().evaluate(&subject(3)) == Verdict::True
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
    for text in [r#"object.kind == "pod""#, "object.owners[7].name == 'o'", "1/0 == 1"] {
        assert!(!holds(text), "{text} is not true");
    }
    assert!(Expression::of("", &SUBJECT).unwrap().is_none());
}

#[test]
fn mistakes_are_told_with_their_place() {
    let long = format!("object.kind == '{}'", "x".repeat(BYTES_MAX));
    let deep = format!("{}1{} == 1", "[".repeat(60), "]".repeat(60));
    let long_way = format!("{}1 == 1", "1+".repeat(DEPTH_MAX));
    let wide = format!("{}1 == 1", "1+".repeat(SIGNS_MAX));
    // The value has 4^16 bytes.
    let chain = format!("size(['a']{}) > 0", ".map(s, s+s+s+s)".repeat(16));
    for (text, place, about) in [
        ("object.kind ==", Some((1, 15)), ""),
        ("object.kind == 'Pod' &&\n object.color == 1", Some((2, 9)), "no field \"color\""),
        ("kind == 'Pod'", Some((1, 1)), "no variable \"kind\", only object"),
        ("object.kind.matches('P.*')", Some((1, 13)), "no function \"matches\""),
        ("object.owners.all(a, object.owners.all(b, a == b))", Some((1, 40)), "nested loops"),
        (&chain, None, "a loop over the result of a loop"),
        ("object.owners.map(o, o).all(o, o.index == 1)", None, "a loop over the result of a loop"),
        ("[object.kind + 'x'].all(o, o == '')", None, "a loop over the result of a loop or of a sum"),
        ("size(object.owners + object.owners) == 1", Some((1, 13)), "+ does not accept list"),
        ("Value{} == 1", Some((1, 1)), "create messages"),
        ("1 + 1", Some((1, 1)), "not a condition"),
        ("'x'", Some((1, 1)), "not a condition"),
        ("object", Some((1, 1)), "not a condition: its type is object"),
        ("true &&\n object.count", Some((2, 9)), "&& does not accept bool and uint"),
        ("object.count", Some((1, 8)), "not a condition: its type is uint"),
        ("object.count == 1u ? true : size(object.owners)", Some((1, 8)), "not a condition"),
        ("object.count == 'x'", Some((1, 8)), "== does not accept uint and string"),
        ("object.kind < 7", Some((1, 8)), "< does not accept string and int"),
        ("object.count + 1 == 2", Some((1, 8)), "+ does not accept uint and int"),
        ("object.owners[0].nothing", Some((1, 18)), "no field \"nothing\""),
        ("object.owners.exists(o, o.nam == '')", Some((1, 27)), "no field \"nam\""),
        ("object.owners.exists(o, o.name)", Some((1, 27)), "does not accept"),
        ("object.owners['x'] == object.owners[0]", Some((1, 8)), "does not accept"),
        ("object['color'] == 1", Some((1, 9)), "no field \"color\""),
        ("object.kind.name == ''", Some((1, 13)), "string has no field"),
        ("has(object.owners[0].nam)", Some((1, 22)), "no field \"nam\""),
        ("size(object.count) == 1", Some((1, 13)), "size does not accept uint"),
        ("object.kind.contains(1)", Some((1, 8)), "contains does not accept string and int"),
        ("object.kind in [1, 2]", Some((1, 8)), "in does not accept string and list(int)"),
        ("[1, 'x'][0]", Some((1, 1)), "not a condition"),
        (&long, None, "bytes"),
        (&deep, None, "recursion limit"),
        (&long_way, None, "nested deeper"),
        (&wide, None, "signs"),
    ] {
        let refused = Expression::of(text, &SUBJECT).expect_err(text);
        assert!(place.is_none() || refused.at == place, "{text}: {refused:?}");
        assert!(refused.what.contains(about), "{text}: {refused:?}");
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
        format!("object.owners.map(o, o.name{}) == []", "+o.name".repeat(15)),
    ];
    let small = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let run = move || {
        for text in worst {
            if let Ok(Some(expression)) = Expression::of(&text, &SUBJECT) {
                expression.evaluate(&subject(LIST_MAX));
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
        if let Ok(Some(expression)) = Expression::of(&text, &SUBJECT) {
            expression.evaluate(&subject(2));
        }
    }
}

/// Expressions of all types, valid and invalid.
fn expressions() -> impl Strategy<Value = String> {
    let leaves = [
        "object",
        "object.kind",
        "object.count",
        "object.owners",
        "object.owners[0]",
        "object.owners[0].index",
        "o.name",
        "o",
        "object.owners[1].name",
        "1",
        "-2",
        "3u",
        "1.5",
        "'x'",
        "true",
        "false",
        "null",
        "[]",
        "[1, 2]",
        "[1, 'a']",
        "[[true], []]",
        "{}",
        "{'a': 1}",
        "{'a': true}['a']",
        "b'x'",
        "'kind'",
        "'1'",
    ];
    let leaf = proptest::sample::select(leaves.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let binary = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"];
        let function = ["size", "int", "uint", "double", "string", "type", "-", "!"];
        let method = ["contains", "startsWith", "endsWith"];
        let each = ["all", "exists", "exists_one", "map", "filter"];
        let select = |of: &[&'static str]| proptest::sample::select(of.to_vec());
        prop_oneof![
            4 => (inner.clone(), select(&binary), inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            2 => (select(&function), inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            1 => (inner.clone(), select(&method), inner.clone()).prop_map(|(a, f, b)| format!("{a}.{f}({b})")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            1 => (inner.clone(), select(&["kind", "name", "index"])).prop_map(|(a, field)| format!("{a}.{field}")),
            3 => (inner.clone(), select(&each), inner).prop_map(|(a, f, b)| format!("{a}.{f}(o, {b})")),
        ]
    })
}

fn is_of(value: &Value, found: &Type) -> bool {
    match (value, found) {
        (Value::Bool(_), Type::Bool)
        | (Value::Int(_), Type::Int)
        | (Value::UInt(_), Type::Uint)
        | (Value::Float(_), Type::Double)
        | (Value::String(_), Type::String)
        | (Value::Bytes(_), Type::Bytes)
        | (Value::Null, Type::Null | Type::Object(_))
        | (Value::Map(_), Type::Map | Type::Object(_))
        | (_, Type::Dyn | Type::Kind) => true,
        (Value::List(list), Type::List(element)) => list.iter().all(|value| is_of(value, element)),
        (_, _) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn what_is_taken_gives_what_the_checker_says(text in expressions()) {
        let Ok(expr) = read(&text) else { return Ok(()) };
        let variables = [(SUBJECT.name, Type::Object(SUBJECT.fields))];
        if check(&expr, &text, &variables).is_err() {
            return Ok(());
        }
        let Ok(found) = checker::found(&expr, &text, &variables) else { return Ok(()) };
        let evaluated = catch_unwind(AssertUnwindSafe(|| Value::resolve(&expr, &subject(2).0).ok()));
        if let Ok(Some(value)) = evaluated {
            prop_assert!(is_of(&value, &found), "{text} is said to be {found} and gives {value:?}");
            let taken = Expression::of(&text, &SUBJECT).is_ok();
            prop_assert!(!taken || matches!(value, Value::Bool(_)), "{text} is a condition and gives {value:?}");
        }
    }
}
