//! References that contradict the world or each other: upstream's unit tests of the collector, run to their end.

use crate::conformance::step::Expect::{Absent, Alive, Event, Owners};
use crate::conformance::step::Step::{Churn, Create, Delete, Patch, Stays, Until};
use crate::conformance::step::{
    AUTOSCALER, CLUSTER_WIDGET, CONFIGMAP, Case, DEPLOYMENT, Kind, NODE, POD, Policy, RC, ROLE, SECRET, WIDGET, case,
    missing, object, to,
};
use serde_json::json;

const WRONG_NAMESPACE: &str = "OwnerRefInvalidNamespace";
/// No server of our days has this group.
const OLD_DEPLOYMENT: Kind =
    Kind { api_version: "extensions/v1beta1", kind: "Deployment", plural: "deployments", namespaced: true };

pub(super) fn cases() -> Vec<Case> {
    [existence(), scopes(), versions(), wrong_kinds(), several_claims(), races()].into_iter().flatten().collect()
}

fn existence() -> Vec<Case> {
    vec![
        case(
            &["U2"],
            "one-missing-owner",
            [object(POD, "child").owned(missing(RC, "gone"))],
            [Until(vec![Absent("child")])],
        ),
        case(
            &["U11"],
            "missing-owners-shared",
            [
                object(POD, "first").owned(missing(RC, "one")),
                object(POD, "second").owned(missing(RC, "two")),
                object(POD, "third").owned(missing(RC, "one").controller()),
                object(POD, "fourth").owned(missing(RC, "three")),
            ],
            [Until(vec![Absent("first"), Absent("second"), Absent("third"), Absent("fourth")])],
        ),
    ]
}

fn scopes() -> Vec<Case> {
    vec![
        case(
            &["U20"],
            "cluster-owner",
            [object(NODE, "node"), object(POD, "child").owned(to("node"))],
            [
                Stays(vec![Alive("node"), Owners("child", vec!["node"])]),
                Delete("node", Policy::Background),
                Until(vec![Absent("node"), Absent("child")]),
            ],
        ),
        case(
            &["U21", "U22"],
            "owner-elsewhere",
            [object(CONFIGMAP, "owner").in_b(), object(CONFIGMAP, "child").owned(to("owner"))],
            [Until(vec![Absent("child"), Event("child", WRONG_NAMESPACE)]), Stays(vec![Alive("owner")])],
        ),
        case(
            &["U21", "U22"],
            "owner-elsewhere-and-another",
            [
                object(CONFIGMAP, "owner").in_b(),
                object(SECRET, "other"),
                object(CONFIGMAP, "child").owned(to("owner")).owned(to("other")),
            ],
            [Stays(vec![Alive("owner"), Alive("child"), Owners("child", vec!["other"])])],
        ),
        case(
            &["U23", "U24"],
            "cluster-child",
            [object(CONFIGMAP, "owner"), object(NODE, "child").owned(to("owner"))],
            [
                Until(vec![Event("child", WRONG_NAMESPACE)]),
                Stays(vec![Alive("owner"), Owners("child", vec!["owner"])]),
                Delete("owner", Policy::Background),
                Until(vec![Absent("owner")]),
                Stays(vec![Alive("child")]),
            ],
        ),
        case(
            &["U33"],
            "cluster-child-first-missing",
            [
                object(NODE, "bad").owned(missing(POD, "parent")),
                object(CONFIGMAP, "good").owned(missing(POD, "parent")),
            ],
            [Until(vec![Absent("good")]), Stays(vec![Alive("bad")])],
        ),
        case(
            &["U34"],
            "cluster-child-beside-good",
            [
                object(POD, "parent"),
                object(CLUSTER_WIDGET, "bad").owned(to("parent")),
                object(CONFIGMAP, "good").owned(to("parent")),
            ],
            [Stays(vec![Alive("parent"), Alive("bad"), Alive("good")])],
        ),
        case(
            &["U35"],
            "cluster-child-last-missing",
            [
                object(CONFIGMAP, "good").owned(missing(POD, "parent")),
                object(NODE, "bad").owned(missing(POD, "parent")),
            ],
            [Until(vec![Absent("good")]), Stays(vec![Alive("bad")])],
        ),
    ]
}

fn versions() -> Vec<Case> {
    let old = || to("owner").version("autoscaling/v1");
    vec![
        case(
            &["U25"],
            "other-served-version",
            [object(AUTOSCALER, "owner"), object(CONFIGMAP, "child").owned(old())],
            [
                Stays(vec![Alive("owner"), Owners("child", vec!["owner"])]),
                Delete("owner", Policy::Background),
                Until(vec![Absent("owner"), Absent("child")]),
            ],
        ),
        case(
            &["U26", "U27"],
            "group-not-served",
            [object(DEPLOYMENT, "owner"), object(CONFIGMAP, "child").owned(to("owner").kind(OLD_DEPLOYMENT))],
            [
                Stays(vec![Alive("owner"), Alive("child")]),
                Delete("owner", Policy::Background),
                Until(vec![Absent("owner")]),
                Stays(vec![Alive("child")]),
            ],
        ),
        // Upstream keeps such a child for ever; here an owner is found by group, kind and uid while any version is
        // served.
        case(
            &["U26"],
            "version-not-served",
            [object(AUTOSCALER, "owner"), object(CONFIGMAP, "child").owned(to("owner").version("autoscaling/v2beta1"))],
            [
                Stays(vec![Alive("owner"), Owners("child", vec!["owner"])]),
                Delete("owner", Policy::Background),
                Until(vec![Absent("owner"), Absent("child")]),
            ],
        ),
        case(
            &["U28"],
            "group-not-served-first",
            [
                object(CONFIGMAP, "unserved").owned(missing(OLD_DEPLOYMENT, "gone")),
                object(CONFIGMAP, "served").owned(missing(DEPLOYMENT, "gone")),
            ],
            [Until(vec![Absent("served")]), Stays(vec![Alive("unserved")])],
        ),
        case(
            &["U29"],
            "group-not-served-last",
            [
                object(CONFIGMAP, "served").owned(missing(DEPLOYMENT, "gone")),
                object(CONFIGMAP, "unserved").owned(missing(OLD_DEPLOYMENT, "gone")),
            ],
            [Until(vec![Absent("served")]), Stays(vec![Alive("unserved")])],
        ),
    ]
}

fn wrong_kinds() -> Vec<Case> {
    let (bad, good) = (
        || object(CONFIGMAP, "bad").owned(to("parent").kind(SECRET)),
        || object(CONFIGMAP, "good").owned(to("parent")),
    );
    let kept = || [Until(vec![Absent("bad")]), Stays(vec![Alive("parent"), Owners("good", vec!["parent"])])];
    vec![
        case(&["U30"], "wrong-kind-first", [object(DEPLOYMENT, "parent"), bad(), good()], kept()),
        case(
            &["U31"],
            "wrong-kind-of-a-dying-owner",
            [object(DEPLOYMENT, "parent"), bad(), good()],
            [
                Until(vec![Absent("bad")]),
                Stays(vec![Alive("good")]),
                Delete("parent", Policy::Background),
                Until(vec![Absent("parent"), Absent("good")]),
            ],
        ),
        case(&["U32"], "wrong-kind-last", [object(DEPLOYMENT, "parent"), good(), bad()], kept()),
        case(
            &["U30"],
            "wrong-name",
            [object(DEPLOYMENT, "parent"), object(CONFIGMAP, "bad").owned(to("parent").named("nobody")), good()],
            kept(),
        ),
        case(
            &["U30"],
            "right-and-wrong-in-one-object",
            [
                object(DEPLOYMENT, "parent"),
                object(CONFIGMAP, "both").owned(to("parent").kind(SECRET)).owned(to("parent")),
            ],
            [Stays(vec![Alive("parent"), Owners("both", vec!["parent"])])],
        ),
    ]
}

/// Upstream tries one claim after the other; here each is a node of its own.
fn several_claims() -> Vec<Case> {
    let gone = |names: &[&'static str]| [Until(names.iter().map(|name| Absent(name)).collect())];
    vec![
        case(
            &["U37", "U38", "U40", "U45", "U46", "U51"],
            "claims-in-one-namespace",
            [
                object(CONFIGMAP, "by-version").owned(missing(AUTOSCALER, "x").version("autoscaling/v1")),
                object(CONFIGMAP, "by-other-version").owned(missing(AUTOSCALER, "x")),
                object(CONFIGMAP, "by-kind").owned(missing(SECRET, "x")),
                object(CONFIGMAP, "by-kind-again").owned(missing(SECRET, "x")),
                object(CONFIGMAP, "by-name").owned(missing(SECRET, "x").named("y")),
            ],
            gone(&["by-version", "by-other-version", "by-kind", "by-kind-again", "by-name"]),
        ),
        case(
            &["U39", "U49", "U50"],
            "claims-in-two-namespaces",
            [
                object(CONFIGMAP, "here").owned(missing(SECRET, "x")),
                object(CONFIGMAP, "there").in_b().owned(missing(SECRET, "x")),
                object(SECRET, "unrelated"),
                object(CONFIGMAP, "bystander").owned(to("unrelated")),
            ],
            [Until(vec![Absent("here"), Absent("there")]), Stays(vec![Alive("bystander")])],
        ),
        case(
            &["U41", "U42", "U43", "U44", "U47", "U48"],
            "claims-by-cluster-child",
            [
                object(CONFIGMAP, "here").owned(missing(NODE, "x")),
                object(CONFIGMAP, "there").in_b().owned(missing(NODE, "x")),
                object(CLUSTER_WIDGET, "kind").owned(missing(CLUSTER_WIDGET, "x")),
                object(CLUSTER_WIDGET, "name").owned(missing(NODE, "x").named("y")),
                object(CLUSTER_WIDGET, "never").owned(missing(WIDGET, "x")),
            ],
            [Until(vec![Absent("here"), Absent("there"), Absent("kind"), Absent("name")]), Stays(vec![Alive("never")])],
        ),
    ]
}

fn races() -> Vec<Case> {
    vec![
        case(
            &["U36"],
            "references-change-under-way",
            [object(ROLE, "role"), object(CONFIGMAP, "parent"), object(CONFIGMAP, "child").owned(to("parent"))],
            [
                Patch("child", json!({ "metadata": { "ownerReferences": [{ "$reference": "role" }] } })),
                Delete("parent", Policy::Background),
                Until(vec![Absent("parent")]),
                Stays(vec![Owners("child", vec!["role"])]),
                Delete("role", Policy::Background),
                Churn("child"),
            ],
        )
        .live(),
        case(
            &["U36"],
            "written-to-while-it-goes",
            [object(CONFIGMAP, "parent"), object(CONFIGMAP, "child").owned(to("parent"))],
            [
                Delete("parent", Policy::Background),
                Churn("child"),
                Create(object(CONFIGMAP, "parent-again").named("parent")),
                Stays(vec![Alive("parent-again")]),
            ],
        )
        .live(),
    ]
}
