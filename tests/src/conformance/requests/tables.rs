//! The tables, in the order of upstream's tests of its server.

use super::{Ask, JSON, MERGE, Mark, Row, STRATEGIC, Table, Then, ask, delete, merge, patch, scheduled};
use crate::conformance::step::{CONFIGMAP, CRONJOB, DEPLOYMENT, EVENT, JOB, POD, RC, REPLICASET, WIDGET};
use http::Method;
use serde_json::{Value, json};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const FOREIGN: &str = "x.io/one";
const OTHER: &str = "x.io/two";

/// All rows of all tables.
pub fn all() -> Vec<Row> {
    [
        removal(),
        finalizers(),
        orphan_dependents(),
        policies(),
        defaults(),
        marks(),
        stored_state(),
        grace(),
        options(),
        preconditions(),
        updates(),
        references(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn held(finalizers: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": finalizers } })
}

fn removal() -> Vec<Row> {
    let mut table = Table::new("S1");
    let not_found = || delete(json!({})).fails(404, "NotFound");
    table.row(
        "a deleted object is gone",
        CONFIGMAP,
        json!({}),
        [delete(json!({})).gone().answers("Status"), not_found()],
    );
    table.pod(
        "a pod without a node is gone at once",
        json!({}),
        [delete(json!({})).gone().answers("Pod"), not_found()],
    );
    table.row("a custom object too", WIDGET, json!({}), [delete(json!({})).gone().answers("Status"), not_found()]);
    table.rows.push(Row {
        id: "S1",
        about: "what never was is not found".to_owned(),
        kind: CONFIGMAP,
        object: None,
        asks: vec![not_found()],
    });
    let mut table_2 = Table::new("S2");
    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "resourceVersion": "$version" } });
    table_2.pod("no grace, with a version", scheduled(), [delete(options).gone()]);
    let mut table_3 = Table::new("S3");
    let mut object = scheduled();
    merge(&mut object, &held(&[FOREIGN]));
    table_3.pod(
        "what waits without grace is no longer pending",
        object.clone(),
        [
            delete(json!({ "gracePeriodSeconds": 0 })).left(&[FOREIGN]).grace(Some(0)),
            delete(json!({ "propagationPolicy": "Orphan" })).left(&[FOREIGN, ORPHAN]).grace(Some(0)),
        ],
    );
    table_3.pod(
        "what waits with grace is",
        object,
        [
            delete(json!({})).left(&[FOREIGN]).grace(Some(30)).mark(Mark::New),
            delete(json!({ "propagationPolicy": "Orphan" })).left(&[FOREIGN]).grace(Some(30)).mark(Mark::Same),
        ],
    );
    [table.rows, table_2.rows, table_3.rows].concat()
}

fn finalizers() -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, kind) in [("S4", POD), ("S5", CONFIGMAP), ("S5", RC), ("S5", WIDGET)] {
        let mut table = Table::new(id);
        let counted = kind.kind != "ConfigMap";
        let mut marked = delete(json!({ "propagationPolicy": "Background" }));
        marked = marked.left(&[FOREIGN, OTHER]).grace(Some(0)).mark(Mark::New);
        marked.then.generation = Some(1).filter(|_| counted);
        let drop_first = json!({ "metadata": { "finalizers": [OTHER] } });
        let drop_all = json!({ "metadata": { "finalizers": null } });
        table.row(
            format!("foreign finalizers hold a {}", kind.kind),
            kind,
            held(&[FOREIGN, OTHER]),
            [
                marked,
                patch(MERGE, json!({ "metadata": { "labels": { "a": "b" } } }))
                    .left(&[FOREIGN, OTHER])
                    .mark(Mark::Same),
                patch(MERGE, drop_first).left(&[OTHER]).mark(Mark::Same),
                patch(MERGE, drop_all).gone().answers(kind.kind),
            ],
        );
        rows.extend(table.rows);
    }
    rows
}

fn orphan_dependents() -> Vec<Row> {
    let mut table = Table::new("S6");
    let sets: [&[&'static str]; 4] = [&[FOREIGN, ORPHAN, OTHER], &[FOREIGN, OTHER], &[], &[ORPHAN]];
    for before in sets {
        for (said, orphan) in [("true", Some(true)), ("false", Some(false)), ("unset", None)] {
            for (kind, by_default) in [(CONFIGMAP, false), (RC, true)] {
                let carries = before.contains(&ORPHAN);
                let orphans = orphan.unwrap_or(carries || by_default);
                let mut after: Vec<&'static str> = before.to_vec();
                if !orphans {
                    after.retain(|&name| name != ORPHAN);
                } else if !carries {
                    after.push(ORPHAN);
                }
                let request = delete(json!({ "orphanDependents": orphan }));
                // The API server answers 202 only if the request says `false` and finalizers keep the object.
                let request =
                    if orphan == Some(false) && !after.is_empty() { Ask { code: 202, ..request } } else { request };
                let request = if after.is_empty() { request.gone() } else { request.left(&after).grace(Some(0)) };
                let about = format!("{} with {before:?}, orphanDependents {said}", kind.kind);
                table.row(about, kind, held(before), [request]);
            }
        }
    }
    for (kind, after) in [(CONFIGMAP, None), (RC, Some([ORPHAN]))] {
        let bare = Ask { body: None, ..delete(json!({})) };
        let request = match after {
            Some(after) => bare.left(&after),
            None => bare.gone(),
        };
        table.row(format!("{} without options", kind.kind), kind, json!({}), [request]);
    }
    table.rows
}

fn policies() -> Vec<Row> {
    let mut table = Table::new("S7");
    for existing in [None, Some(ORPHAN), Some(FOREGROUND)] {
        for policy in [Some("Foreground"), Some("Background"), Some("Orphan"), None] {
            for (kind, by_default) in [(CONFIGMAP, false), (RC, true), (WIDGET, false)] {
                let after = match policy {
                    Some("Foreground") => Some(FOREGROUND),
                    Some("Background") => None,
                    Some(_) => Some(ORPHAN),
                    None => existing.or(Some(ORPHAN).filter(|_| by_default)),
                };
                let request = delete(json!({ "propagationPolicy": policy }));
                let request = match after {
                    Some(finalizer) => request.left(&[finalizer]).mark(Mark::New),
                    None => request.gone(),
                };
                let about = format!("{} with {existing:?}, policy {policy:?}", kind.kind);
                table.row(about, kind, held(&existing.into_iter().collect::<Vec<_>>()), [request]);
            }
        }
    }
    let again = |policy: &str, after: &[&'static str]| delete(json!({ "propagationPolicy": policy })).left(after);
    let mut unchanged = again("Background", &[FOREIGN]);
    unchanged.then.written = Some(false);
    table.row(
        "a second DELETE changes the policy",
        CONFIGMAP,
        held(&[FOREIGN]),
        [
            again("Foreground", &[FOREIGN, FOREGROUND]),
            again("Orphan", &[FOREIGN, ORPHAN]),
            delete(json!({})).left(&[FOREIGN, ORPHAN]),
            again("Background", &[FOREIGN]),
            unchanged,
        ],
    );
    table.rows
}

fn defaults() -> Vec<Row> {
    let mut table = Table::new("S8");
    for kind in [RC, JOB] {
        table.row(format!("{} orphans", kind.kind), kind, json!({}), [delete(json!({})).left(&[ORPHAN])]);
    }
    for kind in [CRONJOB, DEPLOYMENT, REPLICASET, WIDGET] {
        table.row(format!("{} does not orphan", kind.kind), kind, json!({}), [delete(json!({})).gone()]);
    }
    let about = json!({ "involvedObject": { "namespace": "requests" } });
    for policy in ["Orphan", "Foreground"] {
        let request = delete(json!({ "propagationPolicy": policy })).gone();
        table.row(format!("Event knows no dependents, {policy}"), EVENT, about.clone(), [request]);
    }
    table.rows
}

fn marks() -> Vec<Row> {
    let mut table = Table::new("S9");
    let mut object = scheduled();
    merge(&mut object, &held(&[FOREIGN]));
    table.pod(
        "unset is set, future comes forward, past stays",
        object,
        [
            delete(json!({ "gracePeriodSeconds": 600 })).left(&[FOREIGN]).grace(Some(600)).mark(Mark::New),
            delete(json!({ "gracePeriodSeconds": 0 })).left(&[FOREIGN]).grace(Some(0)).mark(Mark::Earlier),
            delete(json!({ "gracePeriodSeconds": 0 })).left(&[FOREIGN]).grace(Some(0)).mark(Mark::Same),
        ],
    );
    table.row(
        "a second DELETE keeps the first one's mark",
        CONFIGMAP,
        held(&[FOREIGN]),
        [
            delete(json!({})).left(&[FOREIGN]).grace(Some(0)).mark(Mark::New),
            delete(json!({ "propagationPolicy": "Foreground" })).left(&[FOREIGN, FOREGROUND]).mark(Mark::Same),
        ],
    );
    table.rows
}

fn stored_state() -> Vec<Row> {
    let mut protected = Table::new("S10");
    protected.row(
        "a finalizer that was just added protects",
        CONFIGMAP,
        json!({}),
        [patch(MERGE, held(&[FOREIGN])).left(&[FOREIGN]), delete(json!({})).left(&[FOREIGN]).mark(Mark::New)],
    );
    let mut again = Table::new("S11");
    let create = Ask { collection: true, code: 201, ..ask(Method::POST, configmap(json!({}))) };
    let mut written = ask(Method::PUT, configmap(json!({ "uid": "$uid", "labels": { "row": "$name", "a": "b" } })));
    written.then.written = Some(true);
    again.row("the successor's uid is what counts", CONFIGMAP, json!({}), [delete(json!({})).gone(), create, written]);
    let other = json!({ "uid": "00000000-0000-4000-8000-000000000000" });
    let refused = ask(Method::PUT, configmap(other)).fails(409, "Conflict");
    again.row("and another uid does not", CONFIGMAP, json!({}), [refused]);
    [protected.rows, again.rows].concat()
}

fn configmap(more: Value) -> Value {
    let mut body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "$name" } });
    merge(&mut body["metadata"], &more);
    body
}

fn grace() -> Vec<Row> {
    let mut table = Table::new("S13");
    let mut object = scheduled();
    merge(&mut object, &held(&[FOREIGN]));
    for existing in [-1, 0, 1, 2] {
        for requested in [-1, 0, 1, 2] {
            let positive = |seconds: i64| if seconds < 0 { 1 } else { seconds };
            let first = positive(existing);
            let second = first.min(positive(requested));
            let mark = if second < first { None } else { Some(Mark::Same) };
            let mut shortened = delete(json!({ "gracePeriodSeconds": requested })).left(&[FOREIGN]).grace(Some(second));
            shortened.then.mark = mark;
            table.pod(
                format!("{existing} s, then {requested} s"),
                object.clone(),
                [
                    delete(json!({ "gracePeriodSeconds": existing }))
                        .left(&[FOREIGN])
                        .grace(Some(first))
                        .mark(Mark::New),
                    shortened,
                ],
            );
        }
    }
    table.pod(
        "nothing holds what has no grace",
        scheduled(),
        [
            delete(json!({})).left(&[]).grace(Some(30)).answers("Pod"),
            delete(json!({ "gracePeriodSeconds": 0 })).gone().answers("Pod"),
        ],
    );
    let own = json!({ "spec": { "nodeName": "nowhere", "terminationGracePeriodSeconds": 7 } });
    table.pod("a pod's own grace", own, [delete(json!({})).left(&[]).grace(Some(7))]);
    table.rows
}

fn options() -> Vec<Row> {
    let mut table = Table::new("S14");
    let good =
        json!({ "gracePeriodSeconds": 4, "propagationPolicy": "Background", "preconditions": { "uid": "$uid" } });
    let all = |request: Ask| Ask { collection: true, ..request };
    table.row("valid options", CONFIGMAP, json!({}), [delete(good.clone()).gone()]);
    let bad: [(Value, u16, &'static str); 8] = [
        (json!({ "kind": "Pod" }), 400, "BadRequest"),
        (json!({ "propagationPolicy": 5 }), 400, "BadRequest"),
        (json!({ "gracePeriodSeconds": "1" }), 400, "BadRequest"),
        (json!({ "orphanDependents": "yes" }), 400, "BadRequest"),
        (json!({ "preconditions": [] }), 400, "BadRequest"),
        (json!({ "propagationPolicy": "Huh" }), 422, "Invalid"),
        (json!({ "dryRun": ["Some"] }), 422, "Invalid"),
        (json!({ "orphanDependents": true, "propagationPolicy": "Orphan" }), 422, "Invalid"),
    ];
    for (options, code, reason) in bad {
        let mut kept = delete(options.clone()).fails(code, reason);
        kept.then.there = Some(true);
        let collection = all(kept.clone());
        table.row(format!("{options}"), CONFIGMAP, json!({}), [kept, collection]);
    }
    let good = json!({ "gracePeriodSeconds": 4, "propagationPolicy": "Background" });
    table.row("a collection with valid options", CONFIGMAP, json!({}), [all(delete(good)).gone()]);
    let mut dry = delete(json!({ "dryRun": ["All"] }));
    dry.then = Then { there: Some(true), written: Some(false), mark: Some(Mark::None), ..Then::default() };
    table.row("a dry run changes nothing", CONFIGMAP, json!({}), [dry]);
    table.rows
}

/// Of the order of checks that a DELETE goes through: guards that the collector relies on.
fn preconditions() -> Vec<Row> {
    let mut table = Table::new("guard");
    let guard = |guard: Value| delete(json!({ "preconditions": guard }));
    let mut uid = guard(json!({ "uid": "00000000-0000-4000-8000-000000000000" })).fails(409, "Conflict");
    uid.then.there = Some(true);
    let mut version = guard(json!({ "uid": "$uid", "resourceVersion": "1" })).fails(409, "Conflict");
    version.then.there = Some(true);
    for kind in [CONFIGMAP, WIDGET, POD] {
        let both = guard(json!({ "uid": "$uid", "resourceVersion": "$version" })).gone();
        let about = format!("preconditions of a {}", kind.kind);
        table.row(about, kind, json!({}), [uid.clone(), version.clone(), both]);
    }
    table.rows
}

fn updates() -> Vec<Row> {
    let mut table = Table::new("guard");
    let metadata = |fields: Value| json!({ "metadata": fields });
    let other = metadata(json!({ "uid": "00000000-0000-4000-8000-000000000000" }));
    let stale = metadata(json!({ "resourceVersion": "1", "labels": { "a": "b" } }));
    let mut nothing = patch(MERGE, metadata(json!({ "labels": { "row": "$name" } })));
    nothing.then.written = Some(false);
    for kind in [CONFIGMAP, WIDGET] {
        table.row(
            format!("patches of a {}", kind.kind),
            kind,
            json!({}),
            [
                patch(MERGE, stale.clone()).fails(409, "Conflict"),
                patch(MERGE, other.clone()).fails(422, "Invalid"),
                nothing.clone(),
                patch("application/vnd.unknown+json", json!({})).fails(415, "UnsupportedMediaType"),
            ],
        );
    }
    table.row(
        "a strategic merge with another uid",
        CONFIGMAP,
        json!({}),
        [patch(STRATEGIC, other).fails(422, "Invalid")],
    );
    let absent = |kind, content_type, code, reason| Row {
        id: "guard",
        about: format!("a {content_type} of a missing {kind:?}"),
        kind,
        object: None,
        asks: vec![patch(content_type, json!({})).fails(code, reason)],
    };
    table.rows.extend([
        absent(CONFIGMAP, STRATEGIC, 404, "NotFound"),
        absent(CONFIGMAP, MERGE, 404, "NotFound"),
        absent(WIDGET, STRATEGIC, 415, "UnsupportedMediaType"),
        absent(WIDGET, MERGE, 404, "NotFound"),
    ]);
    table.row(
        "nothing is added to what is going",
        CONFIGMAP,
        held(&[FOREIGN]),
        [
            delete(json!({})).left(&[FOREIGN]),
            patch(MERGE, held(&[FOREIGN, OTHER])).fails(422, "Invalid"),
            patch(MERGE, held(&[FOREIGN, FOREGROUND])).fails(422, "Invalid"),
            patch(MERGE, metadata(json!({ "deletionTimestamp": null }))).left(&[FOREIGN]).mark(Mark::Same),
        ],
    );
    table.row(
        "one of the two finalizers",
        CONFIGMAP,
        json!({}),
        [
            patch(MERGE, held(&[ORPHAN, FOREGROUND])).fails(422, "Invalid"),
            patch(MERGE, held(&[ORPHAN])).left(&[ORPHAN]),
        ],
    );
    table.rows
}

fn owners(entries: Value) -> Value {
    json!({ "metadata": { "ownerReferences": entries } })
}

fn entry(uid: &str, more: Value) -> Value {
    let mut entry = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid });
    merge(&mut entry, &more);
    entry
}

fn references() -> Vec<Row> {
    let mut remove = Table::new("U12");
    let with = |then: Value, request: Ask| Ask { then: Then { owners: Some(then), ..Then::default() }, ..request };
    let three = || owners(json!([entry("1", json!({})), entry("2", json!({})), entry("3", json!({}))]));
    let gone = |uids: &[&str]| {
        let entries: Value = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid })).collect();
        patch(STRATEGIC, owners(entries))
    };
    remove.row(
        "references go by uid",
        CONFIGMAP,
        three(),
        [
            with(json!([entry("1", json!({}))]), gone(&["2", "3"])),
            with(json!([entry("1", json!({}))]), gone(&["2", "4"])),
            with(Value::Null, gone(&["1"])),
        ],
    );
    remove.row("custom objects do not take it", WIDGET, three(), [gone(&["2"]).fails(415, "UnsupportedMediaType")]);
    let list = patch(MERGE, owners(json!([entry("3", json!({}))])));
    let none = patch(MERGE, owners(Value::Null));
    remove.row(
        "but take a list",
        WIDGET,
        three(),
        [with(json!([entry("3", json!({}))]), list), with(Value::Null, none)],
    );
    let shared =
        owners(json!([entry("1", json!({ "name": "a" })), entry("1", json!({ "name": "b" })), entry("2", json!({}))]));
    remove.row(
        "entries that share a uid go together",
        CONFIGMAP,
        shared,
        [with(json!([entry("2", json!({}))]), gone(&["1"]))],
    );

    let mut unblock = Table::new("U13");
    let (blocking, not) = (json!({ "blockOwnerDeletion": true }), json!({ "blockOwnerDeletion": false }));
    let mixed = owners(json!([entry("1", blocking), entry("2", not.clone()), entry("3", json!({}))]));
    let freed = json!([entry("1", not.clone()), entry("2", not.clone()), entry("3", json!({}))]);
    let request = patch(STRATEGIC, owners(json!([entry("1", not)])));
    unblock.row("one entry is unblocked", CONFIGMAP, mixed, [with(freed, request)]);

    let mut valid = Table::new("guard");
    let refused = |entries: Value| patch(MERGE, owners(entries)).fails(422, "Invalid");
    let controller = || json!({ "controller": true });
    valid.row(
        "references are checked",
        CONFIGMAP,
        json!({}),
        [
            refused(json!([entry("", json!({}))])),
            refused(json!([entry("1", json!({ "name": "" }))])),
            refused(json!([entry("1", json!({ "kind": "" }))])),
            refused(json!([entry("1", json!({ "apiVersion": "" }))])),
            refused(json!([entry("1", json!({ "apiVersion": "a/b/c" }))])),
            refused(json!([entry("1", json!({ "kind": "Event" }))])),
            refused(json!([entry("1", controller()), entry("2", controller())])),
            with(
                json!([entry("1", json!({}))]),
                patch(MERGE, owners(json!([entry("1", json!({})), entry("1", json!({}))]))),
            ),
        ],
    );
    let json_patch = json!([{ "op": "test", "path": "/metadata/uid", "value": "$uid" },
        { "op": "remove", "path": "/metadata/ownerReferences/1" }]);
    let request = Ask { content_type: "application/json-patch+json", ..patch(JSON, json_patch) };
    let left = json!([entry("1", json!({})), entry("3", json!({}))]);
    valid.row("an entry goes by its index", WIDGET, three(), [with(left, request)]);
    [remove.rows, unblock.rows, valid.rows].concat()
}
