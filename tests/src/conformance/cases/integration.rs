//! Upstream's integration tests: a real API server and the collector, no controllers.

use crate::conformance::step::Expect::{
    Absent, Alive, Component, Event, Finalizers, Forgotten, Owners, Present, Readiness, Terminating,
};
use crate::conformance::step::Step::{Break, Create, Define, Delete, Mend, Now, Patch, Stays, Undefine, Until};
use crate::conformance::step::{
    CONFIGMAP, Case, Kind, POD, Policy, RC, SECRET, VOLUME, WIDGET, case, missing, object, own_kind, to,
};
use serde_json::json;

const HOLD: &str = "example.com/hold";
const UNKNOWN: Kind = Kind { api_version: "unknown.example.com/v1", kind: "Thing", plural: "things", namespaced: true };
/// Its definition comes and goes.
const PASSING: Kind = own_kind("Passing", "passings");
/// Its definition breaks.
const FRAGILE: Kind = own_kind("Fragile", "fragiles");

pub(super) fn cases() -> Vec<Case> {
    [across_namespaces(), components(), background(), orphaning(), foreground(), custom(), vec![broken_kind()]]
        .into_iter()
        .flatten()
        .collect()
}

fn released() -> serde_json::Value {
    json!({ "metadata": { "finalizers": null } })
}

fn across_namespaces() -> Vec<Case> {
    let bad = || to("parent").kind(POD).named("invalid");
    let mut setup = vec![object(CONFIGMAP, "parent").in_b()];
    for local in ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"] {
        setup.push(object(SECRET, local).in_b().owned(to("parent")));
    }
    let unknown = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"];
    for (map, secret, single) in [("map0", "many0", "bad0"), ("map1", "many1", "bad1"), ("map2", "many2", "bad2")] {
        let with_many = |kind, local| {
            let many =
                unknown.into_iter().fold(object(kind, local), |object, name| object.owned(missing(UNKNOWN, name)));
            many.owned(bad())
        };
        setup.extend([with_many(CONFIGMAP, map), with_many(SECRET, secret), object(SECRET, single).owned(bad())]);
    }
    let steps = [
        Until(vec![Absent("bad0"), Absent("bad1"), Absent("bad2")]),
        Stays(vec![Alive("parent"), Alive("v0"), Alive("v5"), Alive("v9"), Alive("map0"), Alive("many2")]),
        Create(object(SECRET, "late").owned(bad())),
        Until(vec![Absent("late")]),
        Stays(vec![Alive("parent"), Alive("v3"), Alive("map1"), Alive("many1")]),
    ];
    vec![case(&["I1", "I2"], "invalid-children", setup, steps)]
}

fn components() -> Vec<Case> {
    let setup = [
        object(CONFIGMAP, "bravo"),
        object(CONFIGMAP, "charlie"),
        object(SECRET, "alpha").owned(to("bravo")).owned(to("charlie")),
        object(CONFIGMAP, "golf"),
        object(SECRET, "foxtrot").owned(to("golf")),
        object(CONFIGMAP, "delta").owned(to("foxtrot")),
        object(CONFIGMAP, "echo"),
    ];
    let (one, two) = (vec!["alpha", "bravo", "charlie"], vec!["delta", "foxtrot", "golf"]);
    let both = [one.clone(), two.clone()].concat();
    let drawn = [
        Component(vec!["bravo"], one),
        Component(vec!["nobody"], vec![]),
        Component(vec!["echo"], vec![]),
        Component(vec!["golf"], two.clone()),
        Component(vec!["delta"], two),
        Component(vec!["delta", "charlie"], both),
    ];
    vec![case(&["U60", "U61", "U62", "U63", "U64", "U65"], "components", setup, [Until(drawn.to_vec())])]
}

fn background() -> Vec<Case> {
    vec![
        case(
            &["I3"],
            "cascading",
            [
                object(RC, "doomed"),
                object(RC, "remaining"),
                object(POD, "garbage").owned(to("doomed").controller()),
                object(POD, "shared").owned(to("doomed")).owned(to("remaining")),
                object(POD, "independent"),
            ],
            [
                Stays(vec![Alive("garbage"), Alive("shared")]),
                Delete("doomed", Policy::OrphanDependents(false)),
                Until(vec![Absent("doomed"), Absent("garbage"), Forgotten("doomed")]),
                Stays(vec![Alive("remaining"), Alive("independent"), Owners("shared", vec!["remaining"])]),
            ],
        ),
        case(
            &["I4"],
            "owner-never-existed",
            [object(POD, "child").owned(missing(RC, "nobody"))],
            [Until(vec![Absent("child")])],
        ),
        case(
            &["I15"],
            "cluster-scoped-owners",
            [
                object(VOLUME, "volume"),
                object(CONFIGMAP, "of-volume").owned(to("volume")),
                object(CONFIGMAP, "of-nothing").owned(missing(VOLUME, "no-volume")),
                object(CONFIGMAP, "of-unknown").owned(missing(UNKNOWN, "thing")),
            ],
            [
                Until(vec![Absent("of-nothing")]),
                Stays(vec![Alive("volume"), Alive("of-volume"), Alive("of-unknown")]),
                // A real server protects volumes with a finalizer that no controller in this test removes.
                Patch("volume", released()),
                Delete("volume", Policy::Background),
                Until(vec![Absent("volume"), Absent("of-volume")]),
            ],
        ),
    ]
}

fn orphaning() -> Vec<Case> {
    let with_pods = |rc: crate::conformance::step::Object| {
        [
            rc,
            object(POD, "p1").owned(to("rc").controller()),
            object(POD, "p2").owned(to("rc").blocking()),
            object(POD, "p3").owned(to("rc")),
        ]
    };
    let orphans = || vec![Alive("p1"), Owners("p1", vec![]), Owners("p2", vec![]), Owners("p3", vec![])];
    let kept = |ids, name, rc, policy| {
        let steps = [Delete("rc", policy), Until(vec![Absent("rc"), Forgotten("rc")]), Stays(orphans())];
        case(ids, name, with_pods(rc), steps)
    };
    let plain = || object(RC, "rc");
    let finalized = || object(RC, "rc").finalizer("orphan");
    vec![
        kept(&["I5"], "stress-default", plain(), Policy::Unset),
        kept(&["I5"], "stress-finalizer", finalized(), Policy::Unset),
        case(
            &["I5"],
            "stress-not-orphaned",
            with_pods(finalized()),
            [
                Delete("rc", Policy::OrphanDependents(false)),
                Until(vec![Absent("rc"), Absent("p1"), Absent("p2"), Absent("p3"), Forgotten("rc")]),
            ],
        ),
        kept(&["I5", "I6"], "stress-orphan-dependents", plain(), Policy::OrphanDependents(true)),
        kept(&["I5"], "stress-orphan-policy", plain(), Policy::Orphan),
    ]
}

fn foreground() -> Vec<Case> {
    vec![
        case(
            &["I7"],
            "solid-beside-waiting",
            [
                object(RC, "doomed"),
                object(RC, "remaining"),
                object(POD, "pod").owned(to("doomed").blocking()).owned(to("remaining")),
            ],
            [
                Delete("doomed", Policy::Foreground),
                Until(vec![Absent("doomed"), Owners("pod", vec!["remaining"])]),
                Stays(vec![Alive("pod"), Alive("remaining")]),
            ],
        ),
        case(
            &["I8"],
            "not-blocking",
            [
                object(RC, "rc"),
                object(POD, "unset").owned(to("rc")).finalizer(HOLD),
                object(POD, "false").owned(to("rc").not_blocking()).finalizer(HOLD),
            ],
            [
                Delete("rc", Policy::Foreground),
                Until(vec![Absent("rc"), Terminating("unset"), Terminating("false")]),
                Stays(vec![Finalizers("unset", vec![HOLD]), Finalizers("false", vec![HOLD])]),
                Patch("unset", released()),
                Patch("false", released()),
                Until(vec![Absent("unset"), Absent("false")]),
            ],
        ),
        case(
            &["I9"],
            "deleted-twice",
            [object(POD, "pod").finalizer("x/y")],
            [
                Delete("pod", Policy::Foreground),
                Until(vec![Terminating("pod"), Finalizers("pod", vec!["x/y"])]),
                Delete("pod", Policy::Foreground),
                Until(vec![Finalizers("pod", vec!["x/y"])]),
                Stays(vec![Terminating("pod"), Finalizers("pod", vec!["x/y"])]),
                Patch("pod", released()),
                Until(vec![Absent("pod")]),
            ],
        ),
        case(
            &["I10"],
            "blocking",
            [object(RC, "rc"), object(POD, "pod").owned(to("rc").blocking()).finalizer(HOLD)],
            [
                Delete("rc", Policy::Foreground),
                Until(vec![Terminating("rc"), Terminating("pod")]),
                Stays(vec![Finalizers("rc", vec!["foregroundDeletion"]), Present("pod")]),
                Patch("pod", released()),
                Until(vec![Absent("rc")]),
                Now(vec![Absent("pod")]),
            ],
        ),
    ]
}

fn custom() -> Vec<Case> {
    let comes_and_goes = |owner, map| {
        [
            Define(PASSING),
            Create(object(PASSING, owner).named("instance")),
            Create(object(CONFIGMAP, map).owned(to(owner))),
            Stays(vec![Alive(owner), Alive(map)]),
            Undefine(PASSING),
            Until(vec![Absent(owner), Absent(map)]),
        ]
    };
    vec![
        case(
            &["I11"],
            "custom-owns-custom",
            [object(WIDGET, "owner"), object(WIDGET, "dependent").owned(to("owner").blocking())],
            [Delete("owner", Policy::Foreground), Until(vec![Absent("owner")]), Now(vec![Absent("dependent")])],
        ),
        case(
            &["I12"],
            "custom-owns-builtin",
            [
                object(WIDGET, "widget"),
                object(CONFIGMAP, "of-widget").owned(to("widget").blocking()),
                object(CONFIGMAP, "map"),
                object(WIDGET, "of-map").owned(to("map").blocking()),
            ],
            [
                Delete("widget", Policy::Foreground),
                Until(vec![Absent("widget")]),
                Now(vec![Absent("of-widget"), Alive("map"), Alive("of-map")]),
                Delete("map", Policy::Foreground),
                Until(vec![Absent("map")]),
                Now(vec![Absent("of-map")]),
            ],
        ),
        case(
            &["I13"],
            "definition-comes-and-goes",
            [],
            [comes_and_goes("first", "of-first"), comes_and_goes("second", "of-second")].into_iter().flatten(),
        )
        .live(),
    ]
}

/// Beyond upstream's: what depends on the broken kind is held and says so, and goes once the kind is mended.
fn broken_kind() -> Case {
    let setup = vec![
        Define(FRAGILE),
        Create(object(RC, "rc")),
        Create(object(POD, "pod").owned(to("rc").controller())),
        Create(object(CONFIGMAP, "held")),
        Create(object(FRAGILE, "hidden").owned(to("held").blocking())),
        Create(object(CONFIGMAP, "free").in_b()),
        Create(object(CONFIGMAP, "of-hidden").owned(to("hidden"))),
        Create(object(SECRET, "wrong").owned(to("free"))),
        Break(FRAGILE),
    ];
    let steps = vec![
        Delete("rc", Policy::Background),
        Until(vec![Absent("rc"), Absent("pod"), Readiness("fragiles")]),
        Until(vec![Absent("wrong"), Event("wrong", "OwnerRefInvalidNamespace")]),
        Delete("held", Policy::Foreground),
        Delete("free", Policy::Foreground),
        Until(vec![Absent("free")]),
        Stays(vec![Finalizers("held", vec!["foregroundDeletion"]), Alive("of-hidden")]),
        Mend(FRAGILE),
        Until(vec![Absent("held")]),
        Now(vec![Absent("hidden")]),
        Until(vec![Absent("of-hidden")]),
    ];
    Case { setup, ..case(&["I14"], "broken-kind", [], steps).alone(&[]) }
}
