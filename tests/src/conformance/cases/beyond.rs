//! Cases that upstream's tests leave out, and that its rules or ours require.

use crate::conformance::step::Expect::{Absent, Alive, Event, Finalizers, Owners, Present, Readiness, Terminating};
use crate::conformance::step::Step::{Break, Create, Define, Delete, Mend, Now, Patch, Stays, Until};
use crate::conformance::step::{
    CLUSTER_WIDGET, CONFIGMAP, Case, EVENT, Kind, POD, Policy, RC, SECRET, WIDGET, case, missing, object, own_kind, to,
};
use serde_json::{Value, json};

const HOLD: &str = "example.com/hold";
/// Its definition breaks.
const SHAKY: Kind = own_kind("Shaky", "shakies");

pub(super) fn cases() -> Vec<Case> {
    [successors(), terminating(), orphans(), custom(), odd_kinds(), decided_by_an_administrator()]
        .into_iter()
        .flatten()
        .collect()
}

fn released() -> Value {
    json!({ "metadata": { "finalizers": null } })
}

fn successors() -> Vec<Case> {
    vec![
        case(
            &[],
            "owner-has-a-successor",
            [object(CONFIGMAP, "owner"), object(SECRET, "child").owned(to("owner").blocking())],
            [
                Delete("owner", Policy::Background),
                Create(object(CONFIGMAP, "successor").named("owner")),
                Create(object(SECRET, "of-successor").owned(to("successor"))),
                Until(vec![Absent("child")]),
                Stays(vec![Alive("successor"), Alive("of-successor")]),
            ],
        ),
        case(
            &[],
            "namesake-is-no-owner",
            [object(CONFIGMAP, "owner"), object(SECRET, "child").owned(missing(CONFIGMAP, "ghost").named("owner"))],
            [Until(vec![Absent("child")]), Stays(vec![Alive("owner")])],
        ),
        case(
            &[],
            "reference-added-late",
            [object(CONFIGMAP, "owner"), object(SECRET, "child"), object(SECRET, "other")],
            [
                Delete("owner", Policy::Background),
                Until(vec![Absent("owner")]),
                Stays(vec![Alive("child")]),
                Patch("child", json!({ "metadata": { "ownerReferences": [{ "$reference": "owner" }] } })),
                Until(vec![Absent("child")]),
                Stays(vec![Alive("other")]),
            ],
        ),
    ]
}

fn terminating() -> Vec<Case> {
    vec![
        case(
            &[],
            "terminating-owner-is-solid",
            [object(CONFIGMAP, "owner").finalizer(HOLD), object(SECRET, "child").owned(to("owner").blocking())],
            [
                Delete("owner", Policy::Background),
                Stays(vec![Terminating("owner"), Alive("child"), Owners("child", vec!["owner"])]),
                Patch("owner", released()),
                Until(vec![Absent("owner"), Absent("child")]),
            ],
        ),
        case(
            &[],
            "pod-with-grace",
            [
                object(RC, "rc"),
                object(POD, "pod").owned(to("rc").blocking()).with(json!({ "spec": { "nodeName": "nowhere" } })),
            ],
            [
                Delete("rc", Policy::Foreground),
                Until(vec![Terminating("pod")]),
                Stays(vec![Finalizers("rc", vec!["foregroundDeletion"]), Present("pod")]),
                Delete("pod", Policy::Force),
                Until(vec![Absent("rc")]),
                Now(vec![Absent("pod")]),
            ],
        ),
        case(
            &[],
            "foreground-through-three-levels",
            [
                object(CLUSTER_WIDGET, "root"),
                object(WIDGET, "left").owned(to("root").blocking()),
                object(CONFIGMAP, "right").in_b().owned(to("root").blocking()),
                object(SECRET, "leaf").owned(to("left").blocking()).finalizer(HOLD),
                object(SECRET, "other-leaf").in_b().owned(to("right").blocking()),
            ],
            [
                Delete("root", Policy::Foreground),
                Until(vec![Terminating("leaf"), Absent("right"), Absent("other-leaf")]),
                Stays(vec![Terminating("root"), Terminating("left"), Finalizers("left", vec!["foregroundDeletion"])]),
                Patch("leaf", released()),
                Until(vec![Absent("root")]),
                Now(vec![Absent("left"), Absent("leaf")]),
            ],
        ),
    ]
}

fn orphans() -> Vec<Case> {
    vec![
        // Upstream deletes a dependent that comes after its owner's orphans were freed; here it loses the reference,
        // not its life.
        case(
            &[],
            "orphan-that-comes-late",
            [object(CONFIGMAP, "owner").finalizer(HOLD), object(SECRET, "child").owned(to("owner"))],
            [
                Delete("owner", Policy::Orphan),
                Until(vec![Finalizers("owner", vec![HOLD]), Owners("child", vec![])]),
                Create(object(SECRET, "late").owned(to("owner"))),
                Patch("owner", released()),
                Until(vec![Absent("owner"), Owners("late", vec![])]),
                Stays(vec![Alive("late"), Alive("child")]),
            ],
        ),
        // With upstream the child lives or goes, by which patch is faster.
        case(
            &[],
            "orphan-beside-a-dead-owner",
            [
                object(CONFIGMAP, "owner"),
                object(CONFIGMAP, "other"),
                object(SECRET, "child").owned(to("owner")).owned(missing(CONFIGMAP, "gone")),
                object(SECRET, "kept").owned(to("owner")).owned(to("other")),
            ],
            [
                Delete("owner", Policy::Orphan),
                Until(vec![Absent("owner"), Owners("child", vec![]), Owners("kept", vec!["other"])]),
                Stays(vec![Alive("child"), Alive("kept")]),
            ],
        ),
        case(
            &[],
            "orphan-in-another-namespace",
            [
                object(CLUSTER_WIDGET, "owner"),
                object(CONFIGMAP, "here").owned(to("owner").blocking()),
                object(CONFIGMAP, "there").in_b().owned(to("owner")),
                object(WIDGET, "custom").owned(to("owner")),
            ],
            [
                Delete("owner", Policy::Orphan),
                Until(vec![Absent("owner")]),
                Stays(vec![Owners("here", vec![]), Owners("there", vec![]), Owners("custom", vec![])]),
            ],
        ),
    ]
}

/// Custom objects take no strategic merge patch, so each of these goes another way.
fn custom() -> Vec<Case> {
    let ring = json!([{ "$reference": "last", "blockOwnerDeletion": true }]);
    let mut circle = case(
        &[],
        "custom-circle",
        [
            object(WIDGET, "first"),
            object(WIDGET, "middle").owned(to("first").blocking()),
            object(WIDGET, "last").owned(to("middle").blocking()),
        ],
        [Delete("first", Policy::Foreground), Until(vec![Absent("first"), Absent("middle"), Absent("last")])],
    );
    circle.setup.push(Patch("first", json!({ "metadata": { "ownerReferences": ring } })));
    vec![
        case(
            &[],
            "custom-loses-one-owner",
            [
                object(WIDGET, "alive"),
                object(WIDGET, "child")
                    .owned(missing(WIDGET, "gone"))
                    .owned(to("alive"))
                    .owned(missing(SECRET, "none")),
            ],
            [Until(vec![Owners("child", vec!["alive"])]), Stays(vec![Alive("child"), Alive("alive")])],
        ),
        circle,
    ]
}

fn odd_kinds() -> Vec<Case> {
    vec![case(
        &[],
        "events-are-ignored",
        [
            object(EVENT, "event")
                .owned(missing(CONFIGMAP, "gone"))
                .with(json!({ "involvedObject": { "namespace": "$namespace" } })),
            object(CONFIGMAP, "map").owned(missing(CONFIGMAP, "gone")),
        ],
        [Until(vec![Absent("map")]), Stays(vec![Alive("event")])],
    )]
}

fn decided_by_an_administrator() -> Vec<Case> {
    let copied = case(
        &[],
        "copied-reference-is-held",
        [
            object(CONFIGMAP, "owner"),
            object(SECRET, "original").owned(to("owner")),
            object(SECRET, "copy").in_b().owned(to("owner")),
            object(SECRET, "dangling").in_b().owned(missing(CONFIGMAP, "nobody")),
        ],
        [
            Until(vec![Absent("dangling"), Event("copy", "OwnerRefInvalidNamespace")]),
            Stays(vec![Alive("copy"), Alive("original"), Owners("copy", vec!["owner"])]),
            Delete("owner", Policy::Background),
            // No object has that uid any more.
            Until(vec![Absent("original"), Absent("copy")]),
        ],
    );
    let unseen = case(
        &[],
        "unseen-collection-is-assumed-empty",
        [],
        [
            Delete("owner", Policy::Foreground),
            Until(vec![Absent("owner"), Readiness("shakies")]),
            Stays(vec![Alive("of-hidden")]),
            Mend(SHAKY),
            // The object exists, and goes as upstream lets an object go that it never saw: in background, without its
            // owner.
            Until(vec![Absent("hidden"), Absent("of-hidden")]),
        ],
    );
    let setup = vec![
        Define(SHAKY),
        Create(object(CONFIGMAP, "owner")),
        Create(object(SHAKY, "hidden").owned(to("owner").blocking())),
        Create(object(CONFIGMAP, "of-hidden").owned(to("hidden"))),
        Break(SHAKY),
    ];
    vec![
        copied.alone(&["--invalid-references", "hold"]),
        Case { setup, ..unseen.alone(&["--assume-no-dependents", "conformance.example.com/shakies"]) },
    ]
}
