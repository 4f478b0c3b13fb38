use super::{graph, quote};
use engine::evidence::Presence;
use engine::object::{FOREGROUND_FINALIZER, Facts, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::view::NodeView;

fn uid(text: &str) -> Uid {
    Uid::parse(text).unwrap()
}

fn owner(name: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: name.into(),
        uid: uid(name),
        controller: None,
        block_owner_deletion: None,
    }
}

/// A pod whose uid is its name.
fn node(name: &str, owners: &[&str], dependents: usize) -> NodeView {
    NodeView {
        object: ObjectRef {
            group: "".into(),
            version: "v1".into(),
            resource: "pods".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: uid(name),
        },
        presence: Presence::Observed { resource_version: ResourceVersion::parse("7") },
        facts: Facts { owners: owners.iter().map(|name| owner(name)).collect(), ..Facts::default() },
        owners: 0,
        finalizers: 0,
        dependents,
        blocking_dependents: 0,
        undecided: None,
        collecting: None,
    }
}

/// The uids of the node statements and the edges, in the order they are written.
fn outline(text: &str) -> (Vec<String>, Vec<String>) {
    let unquoted = |line: &str| line.trim().trim_end_matches([' ', '[', ';']).replace('"', "");
    let nodes = text.lines().filter(|line| line.ends_with(" [")).map(unquoted).collect();
    let edges = text.lines().filter(|line| line.contains(" -> ")).map(unquoted).collect();
    (nodes, edges)
}

#[test]
fn draws_what_has_an_edge() {
    type Case = (&'static str, Vec<NodeView>, &'static [&'static str], &'static [&'static str]);
    let alpha = || node("alpha", &["bravo", "charlie"], 0);
    let cases: [Case; 6] = [
        ("nothing", vec![], &[], &[]),
        (
            "simple",
            vec![alpha(), node("bravo", &[], 1), node("charlie", &[], 1)],
            &["alpha", "bravo", "charlie"],
            &["alpha -> bravo", "alpha -> charlie"],
        ),
        (
            "missing owner",
            vec![alpha(), node("charlie", &[], 1)],
            &["alpha", "bravo", "charlie"],
            &["alpha -> bravo", "alpha -> charlie"],
        ),
        (
            "one missing owner of two dependents",
            vec![node("echo", &["bravo"], 0), node("delta", &["bravo"], 0)],
            &["bravo", "delta", "echo"],
            &["delta -> bravo", "echo -> bravo"],
        ),
        (
            "without edges left out",
            vec![alpha(), node("bravo", &[], 1), node("charlie", &[], 1), node("echo", &[], 0)],
            &["alpha", "bravo", "charlie"],
            &["alpha -> bravo", "alpha -> charlie"],
        ),
        (
            "two chains, sorted",
            vec![
                node("golf", &[], 1),
                node("foxtrot", &["golf"], 1),
                node("delta", &["foxtrot"], 0),
                node("charlie", &[], 1),
                node("bravo", &[], 1),
                alpha(),
            ],
            &["alpha", "bravo", "charlie", "delta", "foxtrot", "golf"],
            &["alpha -> bravo", "alpha -> charlie", "delta -> foxtrot", "foxtrot -> golf"],
        ),
    ];
    for (name, nodes, expected_nodes, expected_edges) in cases {
        let (drawn_nodes, drawn_edges) = outline(&graph(&nodes, None));
        assert_eq!(drawn_nodes, expected_nodes, "{name}");
        assert_eq!(drawn_edges, expected_edges, "{name}");
    }
}

#[test]
fn writes_opening_and_closing_lines_of_an_empty_graph() {
    assert_eq!(graph(&[], None), "strict digraph full {\n}\n");
}

#[test]
fn writes_attributes_in_the_order_of_upstream() {
    let mut pod = node("alpha", &["bravo"], 0);
    pod.facts.terminating = true;
    pod.facts.finalizers = [FOREGROUND_FINALIZER.into()].into();
    let expected = r#"strict digraph full {
  // Node definitions.
  "alpha" [
    label="uid=alpha\nnamespace=shop\nPod.v1/alpha\nbeingDeleted,deletingDependents\n"
    group=""
    version="v1"
    kind="Pod"
    namespace="shop"
    name="alpha"
    uid="alpha"
    missing="false"
    beingDeleted="true"
    deletingDependents="true"
    virtual="false"
  ];
  "bravo" [
    label="uid=bravo\nnamespace=\nReplicaSet.v1.apps/bravo\nmissingFromGraph\n"
    group="apps"
    version="v1"
    kind="ReplicaSet"
    namespace=""
    name="bravo"
    uid="bravo"
    missing="true"
    beingDeleted="false"
    deletingDependents="false"
    virtual="false"
  ];
  // Edge definitions.
  "alpha" -> "bravo";
}
"#;
    assert_eq!(graph(&[pod], None), expected);
}

#[test]
fn draws_the_best_known_of_several_nodes_with_one_uid() {
    let mut claimed = node("bravo", &[], 1);
    claimed.presence = Presence::Virtual { unreadable: false };
    claimed.object.kind = "Claimed".into();
    let text = graph(&[claimed.clone(), node("bravo", &[], 1), node("alpha", &["bravo"], 0)], None);
    assert!(text.contains(r#"kind="Pod""#) && !text.contains("Claimed"), "{text}");
    let alone = graph(&[claimed, node("alpha", &["bravo"], 0)], None);
    assert!(alone.contains(r#"virtual="true""#), "{alone}");
}

#[test]
fn says_where_it_was_cut() {
    let text = graph(&[node("alpha", &["bravo"], 0)], Some(1));
    assert!(text.starts_with("strict digraph full {\n  // Only the first 1 nodes"), "{text}");
}

#[test]
fn quotes_as_go_does() {
    for (text, quoted) in [
        ("", r#""""#),
        (r#"say "hi""#, r#""say \"hi\"""#),
        (r"back\slash", r#""back\\slash""#),
        ("two\nlines\tand\r", r#""two\nlines\tand\r""#),
        ("é, ñ, 🦀", r#""é, ñ, 🦀""#),
        ("\u{1}\u{7f}\u{2028}", r#""\x01\x7f\u2028""#),
    ] {
        assert_eq!(quote(text), quoted);
    }
}
