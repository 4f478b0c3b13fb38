use super::*;
use crate::kubectl::conditions::{Condition, Conditions};
use crate::kubectl::document;
use crate::kubectl::flags::Walk;
use crate::kubectl::questions::Found;
use proto::graph::v1beta1::{NodeState, OwnerStanding};
use proto::r#type::v1beta1::OwnerReference;

fn node(kind: &str, name: &str) -> Node {
    let (kind, namespace, name, uid) = (kind.to_owned(), "shop".to_owned(), name.to_owned(), format!("uid-{name}"));
    let object = ObjectRef { kind, namespace, name, uid, ..Default::default() };
    Node { r#ref: Some(object), state: NodeState::Live.into(), ..Default::default() }
}

fn edge_of(dependent: &str, owner: &str, controller: bool) -> Edge {
    Edge {
        owner_uid: format!("uid-{owner}"),
        dependent_uid: format!("uid-{dependent}"),
        reference: Some(OwnerReference { controller: Some(controller), ..Default::default() }),
        standing: OwnerStanding::Solid.into(),
        ..Default::default()
    }
}

fn world() -> (Node, Walked) {
    let found = |node: Node, depth, edges| Found { node, depth, edges };
    let all = vec![
        found(node("ReplicaSet", "new"), 1, vec![edge_of("new", "web", true)]),
        found(node("ReplicaSet", "old"), 1, vec![edge_of("old", "web", true)]),
        found(node("Pod", "a"), 2, vec![edge_of("a", "old", false), edge_of("a", "new", true)]),
        found(node("Pod", "b"), 2, vec![edge_of("b", "new", true)]),
    ];
    (node("Deployment", "web"), Walked { found: all, ..Walked::default() })
}

#[test]
fn each_object_is_drawn_once_below_its_controller() {
    let (root, walked) = world();
    let labels = [("app", "web"), ("example.com/tier", "front")].map(|(name, value)| (name.into(), value.into()));
    let read = Condition {
        ready: "True".into(),
        status: "Current".into(),
        created: Some(0),
        labels: labels.into(),
        ..Condition::default()
    };
    let conditions = Conditions::from([("uid-a".to_owned(), read)]);
    let narrow = Narrow::default();
    let walk = Walk { label_columns: vec!["example.com/tier".into()], show_labels: true, ..Walk::default() };
    let table = Table { conditions: Some(&conditions), up: false, wide: false, walk: &walk, narrow: &narrow };
    let shape = Shape::of(&root, &walked, Side::Dependents);
    let text = table.text_at(&shape.rows(&root, &|_| true, None), 90);
    insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
    NAMESPACE  NAME              READY  REASON  STATUS   GC  AGE  TIER   LABELS
    shop       Deployment/web    -      -       -        -   -    -      -
    shop       ├─ReplicaSet/new  -      -       -        -   -    -      -
    shop       │ ├─Pod/a         True   -       Current  -   90s  front  app=web,example.com/tier=front
    shop       │ └─Pod/b         -      -       -        -   -    -      -
    shop       └─ReplicaSet/old  -      -       -        -   -    -      -
    ");
}

#[test]
fn owners_say_what_each_reference_is_worth_and_cycles_end() {
    let (root, mut walked) = world();
    walked.found.truncate(1);
    walked.found[0].edges = vec![edge_of("web", "new", false), edge_of("new", "new", false)];
    walked.found[0].edges[0].standing = OwnerStanding::Dangling.into();
    let narrow = Narrow::default();
    let walk = Walk::default();
    let table = Table { conditions: None, up: true, wide: true, walk: &walk, narrow: &narrow };
    let text = table.text_at(&Shape::of(&root, &walked, Side::Owners).rows(&root, &|_| true, None), 0);
    insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
    NAMESPACE  NAME              GC  OWNER IS  EDGE      UID      FINALIZERS
    shop       Deployment/web    -   -         -         uid-web  -
    shop       └─ReplicaSet/new  -   dangling  ownerRef  uid-new  -
    ");
}

#[test]
fn the_document_keeps_its_fields() {
    let (root, mut walked) = world();
    walked.found.truncate(1);
    let value =
        document(&root, &[(Side::Dependents, walked)]).unwrap().with_incomplete(&["pods cannot be listed".to_owned()]);
    insta::assert_snapshot!(document::yaml(&value).unwrap());
}

#[test]
fn pictures_have_the_attributes_that_scripts_read() {
    let (root, walked) = world();
    let nodes = [&root, &walked.found[0].node];
    let edges = [&walked.found[0].edges[0]];
    insta::assert_snapshot!(format!("{}{}", picture::dot(&nodes, &edges), picture::mermaid(&nodes, &edges)));
}

#[test]
fn siblings_that_are_alike_stand_for_each_other_and_filters_say_what_they_hide() {
    let (root, mut walked) = world();
    let more = ["web-1", "web-2", "web-3", "web-4", "web-5"].map(|name| Found {
        node: node("ReplicaSet", name),
        depth: 1,
        edges: vec![edge_of(name, "web", true)],
    });
    walked.found.extend(more);
    let shape = Shape::of(&root, &walked, Side::Dependents);
    let same = |node: &Node| alike(node, None, &Walk::default());
    let told = |narrow: &Narrow| {
        let rows = shape.rows(&root, &|node| narrow.admits(node, None), Some(&same));
        let walk = Walk::default();
        let table = Table { conditions: None, up: false, wide: true, walk: &walk, narrow };
        anstream::adapter::strip_str(&table.text_at(&rows, 0)).to_string()
    };
    let kinds = |patterns: &[&str]| {
        Narrow::of_walk(&Walk { kinds: patterns.iter().map(|&text| text.to_owned()).collect(), ..Walk::default() })
    };
    insta::assert_snapshot!(told(&kinds(&[])), @r"
    NAMESPACE  NAME                          GC  EDGE        UID      FINALIZERS
    shop       Deployment/web                -   -           uid-web  -
    shop       ├─ReplicaSet/new              -   controller  uid-new  -
    shop       │ ├─Pod/a                     -   ownerRef    uid-a    -
    shop       │ └─Pod/b                     -   controller  uid-b    -
    shop       ├─ReplicaSet/old              -   controller  uid-old  -
    shop       └─ReplicaSet/web-* (5 alike)  -   controller  -        -
    ");
    insta::assert_snapshot!(told(&kinds(&["!pod"])), @r"
    NAMESPACE  NAME                          GC  EDGE        UID      FINALIZERS
    shop       Deployment/web                -   -           uid-web  -
    shop       ├─ReplicaSet/new              -   controller  uid-new  -
    -          │ └─… 2 hidden by --kinds     -   -           -        -
    shop       ├─ReplicaSet/old              -   controller  uid-old  -
    shop       └─ReplicaSet/web-* (5 alike)  -   controller  -        -
    ");
    let (kept, hidden) = shape.kept(&root, &|node| kinds(&["pod"]).admits(node, None));
    assert_eq!((kept, hidden), (["uid-a", "uid-b", "uid-new"].into(), 6), "what is above a Pod stays");
}

#[test]
fn owners_stand_above_and_dependents_below() {
    let (root, below) = world();
    let found = |kind: &str, name: &str, depth, of: &str| Found {
        node: node(kind, name),
        depth,
        edges: vec![edge_of(of, name, true)],
    };
    let owners =
        vec![found("App", "shop", 1, "web"), found("Team", "sales", 2, "shop"), found("User", "eve", 1, "web")];
    let sides = [(Side::Owners, Walked { found: owners, ..Walked::default() }), (Side::Dependents, below)];
    let parts = sides.each_ref().map(|(side, walked)| Shape::of(&root, walked, *side).rows(&root, &|_| true, None));
    let narrow = Narrow::default();
    let walk = Walk::default();
    let table = Table { conditions: None, up: true, wide: false, walk: &walk, narrow: &narrow };
    insta::assert_snapshot!(anstream::adapter::strip_str(&table.text_at(&joined(parts.into()), 0)).to_string(), @r"
    NAMESPACE  NAME              GC  OWNER IS
    shop       ┌─User/eve        -   solid
    shop       │ ┌─Team/sales    -   solid
    shop       ├─App/shop        -   solid
    shop       Deployment/web    -   -
    shop       ├─ReplicaSet/new  -   solid
    shop       │ ├─Pod/a         -   solid
    shop       │ └─Pod/b         -   solid
    shop       └─ReplicaSet/old  -   solid
    ");
    let document = document(&root, &sides).unwrap().with_incomplete(&[]);
    assert_eq!((&document["kind"], document["owners"].as_array().unwrap().len()), (&"Lineage".into(), 3));
    assert_eq!(document["dependents"].as_array().unwrap().len(), 4);
}
