use super::*;
use crate::kubectl::questions::Found;
use proto::r#type::v1alpha1::OwnerReference;

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
    let read = Condition { ready: "True".into(), status: "Current".into(), created: Some(0), ..Condition::default() };
    let conditions = Conditions::from([("uid-a".to_owned(), read)]);
    let text =
        table(&Shape::of(&root, &walked, false).rows(&root, &|_| true, None), Some(&conditions), false, false, 90);
    insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
    NAMESPACE  NAME              READY  REASON  STATUS   GC  AGE
    shop       Deployment/web    -      -       -        -   -
    shop       ├─ReplicaSet/new  -      -       -        -   -
    shop       │ ├─Pod/a         True   -       Current  -   90s
    shop       │ └─Pod/b         -      -       -        -   -
    shop       └─ReplicaSet/old  -      -       -        -   -
    ");
}

#[test]
fn owners_say_what_each_reference_is_worth_and_cycles_end() {
    let (root, mut walked) = world();
    walked.found.truncate(1);
    walked.found[0].edges = vec![edge_of("web", "new", false), edge_of("new", "new", false)];
    walked.found[0].edges[0].standing = OwnerStanding::Dangling.into();
    let text = table(&Shape::of(&root, &walked, true).rows(&root, &|_| true, None), None, true, true, 0);
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
    let value = document(&root, &walked, false).unwrap().with_incomplete(&["pods cannot be listed".to_owned()]);
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
    let shape = Shape::of(&root, &walked, false);
    let same = |node: &Node| alike(node, None);
    let told = |wanted: &Wanted| {
        let rows = shape.rows(&root, &|node| wanted.admits(node), Some(&same));
        anstream::adapter::strip_str(&table(&rows, None, false, true, 0)).to_string()
    };
    let globs = |patterns: &[&str]| Globs::of(&patterns.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
    insta::assert_snapshot!(told(&Wanted { kinds: Globs::default(), groups: Globs::default() }), @r"
    NAMESPACE  NAME                          GC  EDGE        UID      FINALIZERS
    shop       Deployment/web                -   -           uid-web  -
    shop       ├─ReplicaSet/new              -   controller  uid-new  -
    shop       │ ├─Pod/a                     -   ownerRef    uid-a    -
    shop       │ └─Pod/b                     -   controller  uid-b    -
    shop       ├─ReplicaSet/old              -   controller  uid-old  -
    shop       └─ReplicaSet/web-* (5 alike)  -   controller  -        -
    ");
    insta::assert_snapshot!(told(&Wanted { kinds: globs(&["!pod"]), groups: Globs::default() }), @r"
    NAMESPACE  NAME                                       GC  EDGE        UID      FINALIZERS
    shop       Deployment/web                             -   -           uid-web  -
    shop       ├─ReplicaSet/new                           -   controller  uid-new  -
    -          │ └─… 2 hidden by --kinds or --api-groups  -   -           -        -
    shop       ├─ReplicaSet/old                           -   controller  uid-old  -
    shop       └─ReplicaSet/web-* (5 alike)               -   controller  -        -
    ");
    let (kept, hidden) = shape.kept("uid-web", &|node| globs(&["pod"]).admits(&node.r#ref.as_ref().unwrap().kind));
    assert_eq!((kept.len(), hidden), (0, 9));
}
