//! Upstream's end-to-end tests. Controllers do not run here, so their objects are made with the references that they
//! would write.

use crate::conformance::step::Expect::{Absent, Alive, Owners, Terminating, Unblocked};
use crate::conformance::step::Step::{Create, Delete, Now, Patch, Stays, Until};
use crate::conformance::step::{
    CLUSTER_WIDGET, CONFIGMAP, CRONJOB, Case, DEPLOYMENT, JOB, Object, POD, Policy, RC, REPLICASET, Step, WIDGET, case,
    object, to,
};
use serde_json::json;

const TEN: [&str; 10] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"];

pub(super) fn cases() -> Vec<Case> {
    [replication_controllers(), deployments(), circles(), custom(), late()].into_iter().flatten().collect()
}

fn controller_with_pods() -> Vec<Object> {
    let pods = TEN.map(|pod| object(POD, pod).owned(to("rc").controller().blocking()));
    [object(RC, "rc")].into_iter().chain(pods).collect()
}

fn replication_controllers() -> Vec<Case> {
    let all_absent = || TEN.map(Absent).to_vec();
    let orphans = || TEN.iter().flat_map(|pod| [Alive(pod), Owners(pod, vec![])]).collect();
    let mut half = vec![object(RC, "simpletest"), object(RC, "staying")];
    for (number, pod) in TEN.into_iter().enumerate() {
        let pod = object(POD, pod).owned(to("simpletest").controller().blocking());
        half.push(if number % 2 == 0 { pod.owned(to("staying")) } else { pod });
    }
    let stay: Vec<_> = TEN.iter().step_by(2).flat_map(|pod| [Alive(pod), Owners(pod, vec!["staying"])]).collect();
    let go: Vec<_> = TEN.iter().skip(1).step_by(2).map(|pod| Absent(pod)).collect();
    vec![
        case(
            &["E1"],
            "rc-background",
            controller_with_pods(),
            [Delete("rc", Policy::Background), Until(all_absent()), Now(vec![Absent("rc")])],
        ),
        case(
            &["E2"],
            "rc-orphan",
            controller_with_pods(),
            [Delete("rc", Policy::Orphan), Until(vec![Absent("rc")]), Stays(orphans())],
        ),
        case(
            &["E3"],
            "rc-default",
            controller_with_pods(),
            [Delete("rc", Policy::Unset), Until(vec![Absent("rc")]), Stays(orphans())],
        ),
        case(
            &["E6"],
            "rc-foreground",
            controller_with_pods(),
            [Delete("rc", Policy::Foreground), Until(vec![Absent("rc")]), Now(all_absent())],
        ),
        case(
            &["E7"],
            "half-with-another-owner",
            half,
            [Delete("simpletest", Policy::Foreground), Until(vec![Absent("simpletest")]), Now(go), Stays(stay)],
        ),
    ]
}

fn deployments() -> Vec<Case> {
    let deployment = || {
        [
            object(DEPLOYMENT, "deployment"),
            object(REPLICASET, "rs").owned(to("deployment").controller().blocking()),
            object(POD, "pod-1").owned(to("rs").controller().blocking()),
            object(POD, "pod-2").owned(to("rs").controller().blocking()),
        ]
    };
    let gone = || vec![Absent("rs"), Absent("pod-1"), Absent("pod-2")];
    vec![
        case(
            &["E4"],
            "deployment-background",
            deployment(),
            [Delete("deployment", Policy::Background), Until(gone()), Now(vec![Absent("deployment")])],
        ),
        case(
            &["E4", "E6"],
            "deployment-foreground",
            deployment(),
            [Delete("deployment", Policy::Foreground), Until(vec![Absent("deployment")]), Now(gone())],
        ),
        case(
            &["E5"],
            "deployment-orphan",
            deployment(),
            [
                Delete("deployment", Policy::Orphan),
                Until(vec![Absent("deployment")]),
                Stays(vec![
                    Alive("rs"),
                    Owners("rs", vec![]),
                    Owners("pod-1", vec!["rs"]),
                    Owners("pod-2", vec!["rs"]),
                ]),
            ],
        ),
        // A Job would orphan by default; the collector says what it wants.
        case(
            &["E11"],
            "cronjob",
            [
                object(CRONJOB, "cronjob"),
                object(JOB, "job").owned(to("cronjob").controller().blocking()),
                object(POD, "pod").owned(to("job").controller().blocking()),
            ],
            [Delete("cronjob", Policy::Background), Until(vec![Absent("cronjob"), Absent("job"), Absent("pod")])],
        ),
    ]
}

fn circles() -> Vec<Case> {
    let close = |first: &'static str, last: &'static str| {
        let reference = json!({ "$reference": last, "blockOwnerDeletion": true });
        Patch(first, json!({ "metadata": { "ownerReferences": [reference] } }))
    };
    let ring = || {
        [
            object(POD, "pod-1"),
            object(POD, "pod-2").owned(to("pod-1").blocking()),
            object(POD, "pod-3").owned(to("pod-2").blocking()),
        ]
    };
    let all = || vec![Absent("pod-1"), Absent("pod-2"), Absent("pod-3")];
    let mut outside = case(
        &["E8"],
        "circle-with-a-tail",
        ring(),
        [
            Delete("pod-1", Policy::Foreground),
            // The tail is no part of the circle: it blocks, and what it blocks waits, up to where the deletion began.
            Until(vec![Terminating("tail")]),
            Stays(vec![Terminating("tail"), Terminating("pod-2"), Terminating("pod-1")]),
            Patch("tail", json!({ "metadata": { "finalizers": null } })),
            Until(all()),
        ],
    );
    outside.setup.push(close("pod-1", "pod-3"));
    outside.setup.push(Create(object(CONFIGMAP, "tail").owned(to("pod-2").blocking()).finalizer("example.com/hold")));
    let mut circle = case(&["E8"], "circle", ring(), [Delete("pod-1", Policy::Foreground), Until(all())]);
    circle.setup.push(close("pod-1", "pod-3"));
    let mut alive = case(
        &["E8"],
        "circle-that-lives",
        ring(),
        [Stays(vec![Owners("pod-1", vec!["pod-3"]), Alive("pod-2"), Alive("pod-3")])],
    );
    alive.setup.push(close("pod-1", "pod-3"));
    vec![circle, outside, alive]
}

fn custom() -> Vec<Case> {
    let family = || {
        [
            object(CLUSTER_WIDGET, "owner"),
            object(CLUSTER_WIDGET, "dependent").owned(to("owner").blocking()),
            object(CLUSTER_WIDGET, "canary"),
        ]
    };
    vec![
        case(
            &["E9"],
            "custom-cascade",
            family(),
            [
                Delete("owner", Policy::Background),
                Until(vec![Absent("dependent")]),
                Delete("canary", Policy::Foreground),
                Until(vec![Absent("canary")]),
            ],
        ),
        case(
            &["E9"],
            "custom-cascade-foreground",
            family(),
            [
                Delete("owner", Policy::Foreground),
                Until(vec![Absent("owner")]),
                Now(vec![Absent("dependent"), Alive("canary")]),
            ],
        ),
        case(
            &["E10"],
            "custom-orphan",
            family(),
            [
                Delete("owner", Policy::Orphan),
                Until(vec![Absent("owner")]),
                Stays(vec![Alive("dependent"), Owners("dependent", vec![])]),
            ],
        ),
    ]
}

/// Cases that upstream does not cover: dependents that come or change while their owner goes.
fn late() -> Vec<Case> {
    let steps: Vec<Step> = vec![
        Delete("owner", Policy::Foreground),
        Until(vec![Terminating("held")]),
        Create(object(WIDGET, "late").owned(to("owner").blocking())),
        Until(vec![Absent("late")]),
        Patch("held", json!({ "metadata": { "finalizers": null } })),
        Until(vec![Absent("owner")]),
        Now(vec![Absent("held")]),
    ];
    let setup = || {
        [
            object(CONFIGMAP, "owner"),
            object(CONFIGMAP, "held").owned(to("owner").blocking()).finalizer("example.com/hold"),
        ]
    };
    vec![
        case(&["E6"], "late-dependent-of-a-waiting-owner", setup(), steps),
        case(
            &["E7"],
            "unblocked-by-hand",
            setup(),
            [
                Delete("owner", Policy::Foreground),
                Until(vec![Terminating("held")]),
                Patch("held", json!({ "metadata": { "ownerReferences": [{ "$reference": "owner" }] } })),
                Until(vec![Absent("owner"), Unblocked("held")]),
                Patch("held", json!({ "metadata": { "finalizers": null } })),
                Until(vec![Absent("held")]),
            ],
        ),
        case(
            &["E2"],
            "foreground-then-orphan",
            setup(),
            [
                Delete("owner", Policy::Foreground),
                Until(vec![Terminating("held")]),
                Create(object(CONFIGMAP, "spared").owned(to("owner").blocking()).finalizer("example.com/hold")),
                Delete("owner", Policy::Orphan),
                Until(vec![Absent("owner"), Owners("held", vec![]), Owners("spared", vec![])]),
            ],
        ),
    ]
}
