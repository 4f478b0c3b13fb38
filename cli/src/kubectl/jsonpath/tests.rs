use super::*;
use serde_json::json;

fn filled(template: &str) -> Result<String, String> {
    let labels = json!({ "app.kubernetes.io/name": "web" });
    let value = json!({
        "kind": "Tree",
        "hidden": 3,
        "items": [
            { "name": "a", "ready": true, "meta": { "node-role": "x", "labels": labels, "tags": ["p", "q"] } },
            { "name": "b", "ready": false, "meta": { "node-role": "y" } },
        ],
    });
    Template::read(template).map(|template| template.fill(&value))
}

#[test]
fn templates_are_kubectls() {
    let cases = [
        ("{.kind}", "Tree"),
        ("{$.kind}{@.hidden}", "Tree3"),
        ("kind={.kind}, {.missing}hidden={ .hidden }", "kind=Tree, hidden=3"),
        ("{.items[*].name}", "a b"),
        ("{.items[0]['name','ready']}", "a true"),
        ("{.items[-1:].name} {.items[0:2].name}", "b a b"),
        ("{..name}", "a b"),
        ("{.items[0].meta.node-role}", "x"),
        (r"{.items[0].meta.labels.app\.kubernetes\.io/name}", "web"),
        ("{.items[0].meta.tags}", r#"["p","q"]"#),
        (r#"{.items[?(@.name=="b")].meta.node-role}"#, "y"),
        (r#"{.items[?(@.meta.node-role == 'x')].name}"#, "a"),
        ("{.items[?(@.meta.tags[0])].name}", "a"),
        ("{.items[?(@.ready==true)].name}", "a"),
        (r#"{range .items[*]}{.name}{"\t"}{.ready}{"\n"}{end}"#, "a\ttrue\nb\tfalse\n"),
        (r#"{range .items[*]}{range .meta.tags[*]}<{@}>{end}{'}'}{end}"#, "<p><q>}}"),
        ("plain", "plain"),
        ("", ""),
    ];
    for (template, expected) in cases {
        assert_eq!(filled(template).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn what_is_not_supported_is_said() {
    let cases = [
        ("{.items", "is not closed"),
        ("{range .items[*]}{.name}", "has no {end}"),
        ("{.name}{end}", "ends no {range …}"),
        ("{items}", "a text needs quotes"),
        ("{.items[*].name .kind}", "exactly one path"),
        ("{.items[}", "is not closed"),
        ("{.items[x]}", "is not a valid path"),
        (r#"{"\q"}"#, r"\q in a text is not supported"),
        (r#"{"a" .b}"#, "continues after"),
        ("{}", "is empty"),
        ("{range items}{end}", "begins with a dot"),
    ];
    for (template, part) in cases {
        let error = filled(template).unwrap_err();
        assert!(error.contains(part), "{template}: {error}");
    }
    let nested = "{range .items[*]}".repeat(20);
    assert!(filled(&nested).unwrap_err().contains("more than 16 deep"));
    assert!(filled(&"x".repeat(20_000)).unwrap_err().contains("16384 bytes"));
}
