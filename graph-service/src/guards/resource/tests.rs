use super::*;
use engine::guard::{Approved, FailurePolicy, Limit, OnExceeded, Recorded, Rule, Spending};
use engine::object::{GroupResource, Name};
use engine::scope::{Filter, Labelled, Requirement, Test};
use proptest::prelude::*;
use serde_json::json;

/// 2026-01-01T12:00:00Z.
const NOON: Duration = Duration::from_secs(1_767_268_800);
const AT_NOON: Sight = Sight::Found { now: Some(NOON) };

fn object(spec: &Value, status: &Value) -> String {
    json!({
        "metadata": { "name": "g", "uid": "u", "resourceVersion": "7", "generation": 2, "creationTimestamp": "2026-01-01T12:00:00Z" },
        "spec": spec, "status": status,
    })
    .to_string()
}

fn standing(kind: GuardKind, spec: &Value, sight: Sight) -> Standing {
    match read(kind, &object(spec, &Value::Null), sight) {
        Ok(Seen::Standing(standing)) => *standing,
        other => panic!("{kind:?} {spec}: {other:?}"),
    }
}

fn guard(kind: GuardKind, spec: &Value) -> Guard {
    standing(kind, spec, AT_NOON).guard
}

/// The smallest spec of each kind.
fn least(kind: GuardKind) -> Value {
    match kind {
        GuardKind::Pause => json!({ "reason": "why", "lifetimeSeconds": 60 }),
        GuardKind::Protection => json!({ "reason": "why", "scope": { "targets": [{}] } }),
        GuardKind::Budget => json!({ "reason": "why", "maxObjects": 5, "windowSeconds": 60, "onExceeded": "Hold" }),
        GuardKind::Approval => json!({ "reason": "why", "moreThan": 10 }),
        GuardKind::Gate => json!({
            "reason": "why", "stream": {}, "failurePolicy": "Hold", "maxHoldSeconds": 60, "afterMaxHold": "Deny",
        }),
    }
}

/// The smallest spec of a kind, with other fields. A field that is null is removed.
fn with(kind: GuardKind, changed: &Value) -> Value {
    let mut spec = least(kind);
    for (field, value) in changed.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

#[test]
fn the_smallest_spec_of_each_kind_is_read() {
    for kind in GuardKind::ALL {
        let guard = guard(kind, &least(kind));
        assert_eq!((guard.id.kind, &*guard.id.name, guard.generation), (kind, "g", 2));
        assert_eq!((guard.reason.as_str(), guard.problem.as_str()), ("why", ""), "{kind:?}");
        assert_eq!((guard.created, guard.elapsed), (NOON, Duration::ZERO));
        let pause = (kind == GuardKind::Pause).then_some(Duration::from_secs(60));
        assert_eq!(guard.lifetime, pause, "{kind:?}");
        assert_eq!(matches!(guard.rule, Rule::Hold), matches!(kind, GuardKind::Pause | GuardKind::Protection));
    }
}

#[test]
fn a_scope_has_all_conditions() {
    let scope = json!({ "targets": [{
        "resources": [{ "group": "apps", "resource": "deployments" }, { "resource": "pods" }],
        "namespaces": ["shop"], "names": ["db"],
        "labelSelector": {
            "matchLabels": { "app": "db" },
            "matchExpressions": [
                { "key": "example.org/tier", "operator": "NotIn", "values": ["test", ""] },
                { "key": "x", "operator": "Exists" }, { "key": "y", "operator": "DoesNotExist" },
            ],
        },
        "namespaceSelector": { "matchExpressions": [{ "key": "env", "operator": "In", "values": ["prod"] }] },
        "owner": { "group": "apps", "resource": "deployments", "namespace": "shop", "name": "db", "uid": "u-1" },
    }, {}] });
    let guard = guard(GuardKind::Pause, &with(GuardKind::Pause, &json!({ "scope": scope })));
    assert_eq!(guard.problem, "");
    let [target, any] = &guard.scope.targets[..] else { panic!("{:?}", guard.scope) };
    assert_eq!(*any, Filter::default());
    let resources: Vec<String> = target.resources.iter().map(ToString::to_string).collect();
    assert_eq!(resources, ["deployments.apps", "pods"]);
    assert_eq!((&target.namespaces[..], &target.names[..]), (&[Name::from("shop")][..], &[Name::from("db")][..]));
    let label = |key: &str, test| Requirement { of: Labelled::Label, key: key.into(), test };
    let expected = [
        label("app", Test::In(vec!["db".into()])),
        label("example.org/tier", Test::NotIn(vec!["test".into(), "".into()])),
        label("x", Test::Exists),
        label("y", Test::DoesNotExist),
    ];
    assert_eq!(target.marks, expected);
    assert_eq!(target.namespace_marks, [label("env", Test::In(vec!["prod".into()]))]);
    let owner = target.owner.as_ref().unwrap();
    assert_eq!(
        (owner.resource.to_string().as_str(), &*owner.namespace, &*owner.name),
        ("deployments.apps", "shop", "db")
    );
    assert_eq!(owner.uid, Uid::parse("u-1"));
}

#[test]
fn a_scope_that_cannot_be_read_is_everything_and_the_problem_names_the_field() {
    let many = |count: usize| vec![json!("a"); count];
    let expression = |expression: Value| json!([{ "labelSelector": { "matchExpressions": [expression] } }]);
    let labels: Map<String, Value> = (0..21).map(|at| (format!("k{at}"), json!("v"))).collect();
    let table = [
        (json!("all"), "spec.scope.targets: invalid type"),
        (json!([{ "cel": "true" }]), "spec.scope.targets[0].cel: unknown field"),
        (json!([{}, { "resources": [{ "group": "apps" }] }]), "spec.scope.targets[1].resources[0]: missing field"),
        (json!([{ "resources": [{ "resource": "" }] }]), "spec.scope.targets[0].resources[0].resource: is empty"),
        (json!([{ "resources": [{ "resource": "pods", "version": "v1" }] }]), "resources[0].version: unknown field"),
        (json!([{ "namespaces": many(101) }]), "targets[0].namespaces: has 101 entries, more than 100"),
        (json!([{ "names": many(101) }]), "targets[0].names: has 101 entries, more than 100"),
        (json!([{ "names": [7] }]), "targets[0].names[0]: invalid type"),
        (json!([{ "names": ["a".repeat(254)] }]), "targets[0].names[0]: has 254 bytes, more than 253"),
        (json!(vec![json!({}); 101]), "spec.scope.targets: has 101 entries, more than 100"),
        (json!([{ "labelSelector": { "matchLabels": { "a b": "c" } } }]), "labelSelector.matchLabels"),
        (json!([{ "labelSelector": { "matchLabels": { "a": "b c" } } }]), "labelSelector.matchLabels"),
        (json!([{ "labelSelector": { "matchLabels": labels } }]), "has 21 labels, more than 20"),
        (json!([{ "labelSelector": { "matchNames": {} } }]), "labelSelector.matchNames: unknown field"),
        (
            expression(json!({ "key": "a", "operator": "In" })),
            "matchExpressions[0]: the operators In and NotIn need values",
        ),
        (
            expression(json!({ "key": "a", "operator": "Exists", "values": ["b"] })),
            "matchExpressions[0]: the operators Exists",
        ),
        (expression(json!({ "key": "a", "operator": "Gt", "values": ["1"] })), "unknown variant `Gt`"),
        (expression(json!({ "key": "Org/a", "operator": "Exists" })), "\"Org/a\" is not the key of a label"),
        (expression(json!({ "key": "org/", "operator": "Exists" })), "is not the key of a label"),
        (expression(json!({ "key": "-a", "operator": "Exists" })), "is not the key of a label"),
        (json!([{ "namespaceSelector": "env=prod" }]), "targets[0].namespaceSelector: invalid type"),
        (json!([{ "owner": { "resource": "pods" } }]), "targets[0].owner: missing field `name`"),
        (json!([{ "owner": { "resource": "pods", "name": "a", "uid": "" } }]), "targets[0].owner.uid: is empty"),
    ];
    for (targets, expected) in table {
        for kind in GuardKind::ALL {
            let guard = guard(kind, &with(kind, &json!({ "scope": { "targets": targets } })));
            assert_eq!(guard.scope, Scope::default(), "{targets}");
            let whole = format!("so the {} covers everything", kind.as_str());
            assert!(guard.problem.contains(expected) && guard.problem.contains(&whole), "{targets}: {}", guard.problem);
        }
    }
}

#[test]
fn lifetimes_that_cannot_be_read_are_the_longest() {
    let table = [
        (json!(0), "spec.lifetimeSeconds: 0 is not from 1 to"),
        (json!("1h"), "spec.lifetimeSeconds: invalid type"),
        (json!(-1), "spec.lifetimeSeconds: invalid value"),
        (json!(315_360_001), "315360001 is not from 1 to"),
    ];
    for (lifetime, expected) in table {
        for kind in GuardKind::ALL {
            let guard = guard(kind, &with(kind, &json!({ "lifetimeSeconds": lifetime })));
            assert_eq!(guard.lifetime, (kind == GuardKind::Pause).then_some(LIFETIME_MAX), "{kind:?} {lifetime}");
            assert!(guard.problem.contains(expected), "{lifetime}: {}", guard.problem);
        }
    }
    let none = guard(GuardKind::Pause, &with(GuardKind::Pause, &json!({ "lifetimeSeconds": null })));
    assert_eq!(none.lifetime, Some(LIFETIME_MAX));
    assert!(none.problem.contains("spec.lifetimeSeconds: is missing"), "{}", none.problem);
    let long = guard(GuardKind::Budget, &with(GuardKind::Budget, &json!({ "lifetimeSeconds": DECADE })));
    assert_eq!((long.lifetime, long.problem.as_str()), (Some(Duration::from_secs(DECADE)), ""));
}

#[test]
fn the_calendar_of_the_api_server_counts_only_for_a_guard_that_was_found() {
    let spec = least(GuardKind::Pause);
    let elapsed = |sight| standing(GuardKind::Pause, &spec, sight).guard.elapsed.as_secs();
    let at = |second: u64| Some(NOON + Duration::from_secs(second));
    let found = |second| elapsed(Sight::Found { now: at(second) });
    assert_eq!((found(5), found(30), found(100)), (0, 20, 90), "ten seconds for a clock that is ahead");
    assert_eq!(elapsed(Sight::Found { now: Some(NOON - Duration::from_secs(9)) }), 0, "a clock that is behind");
    assert_eq!((elapsed(Sight::Found { now: None }), elapsed(Sight::Fresh { now: at(100) })), (0, 0));
}

#[test]
fn a_protection_covers_the_union_of_its_targets_and_presets() {
    let covers = |spec: Value| guard(GuardKind::Protection, &with(GuardKind::Protection, &spec));
    let all = ["Helm", "ArgoCD", "OpenKruise", "Karmada", "Gardener", "Crossplane"];
    let both = covers(json!({ "presets": all, "scope": { "targets": [{ "namespaces": ["shop"] }] } }));
    assert_eq!(both.problem, "");
    let shown: Vec<String> = both.scope.targets.iter().map(|target| target.to_string()).collect();
    assert_eq!(
        shown,
        [
            "in shop",
            "with annotation helm.sh/resource-policy=keep",
            "with annotation argocd.argoproj.io/sync-options listing Delete=false",
            "with policy.kruise.io/delete-protection in (Always,Cascading)",
            "with resourcetemplate.karmada.io/deletion-protected=Always",
            "projects.core.gardener.cloud,shoots.core.gardener.cloud,shootstates.core.gardener.cloud with annotation \
             confirmation.gardener.cloud/deletion!=true",
            "with crossplane.io/in-use=true",
        ]
    );
    let preset = covers(json!({ "presets": ["Helm"], "scope": null }));
    assert_eq!((preset.scope.targets.len(), preset.problem.as_str()), (1, ""));
    for (spec, expected) in [
        (json!({ "scope": null }), "spec.scope.targets and spec.presets: both are empty"),
        (json!({ "scope": { "targets": [] }, "presets": [] }), "both are empty"),
        (json!({ "presets": ["Flux"] }), "spec.presets[0]: unknown variant `Flux`"),
        (json!({ "presets": "Helm" }), "spec.presets: invalid type"),
        (json!({ "presets": vec!["Helm"; 7] }), "spec.presets: has 7 entries, more than 6"),
    ] {
        let guard = covers(spec.clone());
        assert_eq!((guard.scope, guard.rule), (Scope::default(), Rule::Hold), "{spec}");
        assert!(
            guard.problem.contains(expected) && guard.problem.contains("covers everything"),
            "{spec}: {}",
            guard.problem
        );
    }
}

#[test]
fn rules_are_read() {
    let rule = |kind, changed: Value| {
        let guard = guard(kind, &with(kind, &changed));
        assert_eq!(guard.problem, "", "{changed}");
        guard.rule
    };
    let budget = |changed| {
        let rule = rule(GuardKind::Budget, changed);
        let Rule::Budget(budget) = rule else { panic!("{rule:?}") };
        budget
    };
    let held = budget(json!({}));
    assert_eq!(
        (held.limit, held.window, held.on_exceeded),
        (Limit::Objects(5), Duration::from_secs(60), OnExceeded::Hold)
    );
    let share = budget(json!({ "maxObjects": null, "maxPercent": 30, "onExceeded": "Pause" }));
    assert_eq!((share.limit, share.on_exceeded), (Limit::Percent(30), OnExceeded::Pause(Duration::from_secs(3600))));
    let short = budget(json!({ "onExceeded": "Pause", "pauseSeconds": 9 }));
    assert_eq!(short.on_exceeded, OnExceeded::Pause(Duration::from_secs(9)));
    let counted = budget(json!({ "onExceeded": "Approve", "countFrom": "2026-01-01T11:59:00Z" }));
    assert_eq!((counted.on_exceeded, counted.count_from), (OnExceeded::Approve, NOON - Duration::from_secs(60)));

    let Rule::Approval(approval) =
        rule(GuardKind::Approval, json!({ "moreThan": null, "resources": [{ "resource": "namespaces" }] }))
    else {
        panic!("no approval")
    };
    assert_eq!((approval.more_than, approval.resources.len(), approval.approved.len()), (None, 1, 0));

    let Rule::Gate(gate) = rule(GuardKind::Gate, json!({})) else { panic!("no gate") };
    assert_eq!((gate.timeout, gate.max_hold), (Duration::from_secs(2), Duration::from_secs(60)));
    assert_eq!((gate.failure_policy, gate.allow_after_max_hold), (FailurePolicy::Hold, false));
    assert!(!gate.roots_only && !gate.observe_only && gate.bypass_until.is_zero());
    let changed = json!({
        "rootsOnly": true, "observeOnly": true, "timeoutSeconds": 10, "failurePolicy": "Deny", "afterMaxHold": "Allow",
    });
    let Rule::Gate(gate) = rule(GuardKind::Gate, changed) else { panic!("no gate") };
    assert!(gate.roots_only && gate.observe_only && gate.allow_after_max_hold);
    assert_eq!((gate.timeout.as_secs(), gate.failure_policy), (10, FailurePolicy::Deny));
}

#[test]
fn a_gate_has_one_policy_engine() {
    let engine = |changed: Value| {
        let Standing { guard, engine } = standing(GuardKind::Gate, &with(GuardKind::Gate, &changed), AT_NOON);
        engine.map_or(guard.problem, |engine| engine.as_str().to_owned())
    };
    assert_eq!(engine(json!({})), "stream");
    assert_eq!(engine(json!({ "stream": null, "cel": { "expression": "true" } })), "cel");
    let url = "https://policy.example:8443/decide?x=1";
    assert_eq!(engine(json!({ "stream": null, "webhook": { "url": url } })), "webhook");
    let problem = engine(json!({ "stream": null, "cel": { "expression": "object.kind ==" } }));
    assert!(problem.contains("spec.cel.expression"), "{problem}");
}

#[test]
fn a_rule_that_cannot_be_read_holds_its_scope() {
    use GuardKind::{Approval, Budget, Gate};
    let cel = |text: String| json!({ "stream": null, "cel": { "expression": text } });
    let hook = |url: &str| json!({ "stream": null, "webhook": { "url": url } });
    let table = [
        (Budget, json!({ "maxObjects": null }), "spec: exactly one of maxObjects and maxPercent"),
        (Budget, json!({ "maxPercent": 5 }), "spec: exactly one of maxObjects and maxPercent"),
        (Budget, json!({ "maxObjects": 0 }), "spec.maxObjects: 0 is not from 1 to"),
        (Budget, json!({ "maxObjects": null, "maxPercent": 101 }), "spec.maxPercent: 101 is not from 1 to 100"),
        (Budget, json!({ "windowSeconds": null }), "spec: missing field `windowSeconds`"),
        (Budget, json!({ "windowSeconds": 86401 }), "spec.windowSeconds: 86401 is not from 1 to 86400"),
        (Budget, json!({ "onExceeded": "Allow" }), "spec.onExceeded: unknown variant `Allow`"),
        (Budget, json!({ "pauseSeconds": 5 }), "spec.pauseSeconds: onExceeded is not Pause"),
        (Budget, json!({ "perNamespace": true }), "spec.perNamespace: unknown field"),
        (Approval, json!({ "moreThan": null }), "spec: moreThan or resources is needed"),
        (Approval, json!({ "moreThan": -1 }), "spec.moreThan: invalid value"),
        (Approval, json!({ "resources": [{}] }), "spec.resources[0]: missing field `resource`"),
        (Gate, json!({ "stream": null }), "spec has none of cel, webhook and stream"),
        (Gate, json!({ "cel": { "expression": "true" } }), "spec has cel and stream: keep one of them"),
        (Gate, cel(String::new()), "spec.cel.expression"),
        (Gate, cel("x".repeat(16385)), "spec.cel.expression"),
        (Gate, hook("http://policy.example/"), "spec.webhook.url"),
        (Gate, hook("policy.example"), "spec.webhook.url"),
        (Gate, hook("https://"), "spec.webhook.url"),
        (Gate, hook("https://jane@policy.example/"), "spec.webhook.url"),
        (Gate, hook(&format!("https://x/{}", "y".repeat(2048))), "spec.webhook.url"),
        (Gate, json!({ "stream": null, "webhook": { "url": "https://x/", "caBundle": "%" } }), "spec.webhook.caBundle"),
        (Gate, json!({ "failurePolicy": null }), "spec: missing field `failurePolicy`"),
        (Gate, json!({ "maxHoldSeconds": null }), "spec: missing field `maxHoldSeconds`"),
        (Gate, json!({ "afterMaxHold": "Hold" }), "spec.afterMaxHold: unknown variant `Hold`"),
        (Gate, json!({ "timeoutSeconds": 11 }), "spec.timeoutSeconds: 11 is not from 1 to 10"),
        (Gate, json!({ "observeOnly": "yes" }), "spec.observeOnly: invalid type"),
    ];
    for (kind, changed, expected) in table {
        let Standing { guard, engine } = standing(kind, &with(kind, &changed), AT_NOON);
        assert_eq!((&guard.rule, engine), (&Rule::Hold, None), "{changed}");
        let holds = format!("so the {} holds its scope", kind.as_str());
        assert!(guard.problem.contains(expected) && guard.problem.contains(&holds), "{changed}: {}", guard.problem);
    }
    for kind in [Budget, Approval, Gate] {
        let guard = guard(kind, &Value::Null);
        assert_eq!((&guard.rule, &guard.scope), (&Rule::Hold, &Scope::default()), "{kind:?}");
        assert!(guard.problem.contains("spec: is not an object"), "{}", guard.problem);
    }
}

#[test]
fn the_window_of_a_budget_in_its_status_counts() {
    let entry = |time: &str, count: i64| json!({ "sinceTime": time, "resource": "configmaps", "count": count });
    let noon = "2026-01-01T12:00:00Z";
    let other = json!({ "sinceTime": noon, "group": "apps", "resource": "replicasets", "count": 1 });
    let deletions = json!([entry(noon, 3), 7, entry("soon", 1), entry(noon, -1), other]);
    let recorded = json!({ "deletions": deletions, "exceededFrom": noon });
    let of = |kind| match read(kind, &object(&least(kind), &recorded), AT_NOON) {
        Ok(Seen::Standing(standing)) => (standing.guard.recorded, standing.guard.problem),
        other => panic!("{other:?}"),
    };
    let collection = |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
    let expected = [(collection("", "configmaps"), 3), (collection("apps", "replicasets"), 1)];
    let expected = expected.map(|(collection, count)| Spending { since: NOON, collection, count });
    let expected = Recorded { deletions: expected.to_vec(), exceeded_from: Some(NOON) };
    assert_eq!(of(GuardKind::Budget), (expected, String::new()));
    assert_eq!(of(GuardKind::Gate).0, Recorded::default());
}

/// An approval of 16 digits that ends an hour after noon.
fn entry(root: &str) -> Value {
    json!({ "rootUID": root, "digest": "00000000000000ff", "expireTime": "2026-01-01T13:00:00Z", "by": "jane" })
}

fn approvals(entries: &Value, status: &Value, sight: Sight) -> (Vec<Approved>, String) {
    let text = object(&with(GuardKind::Approval, &json!({ "approved": entries })), status);
    let Ok(Seen::Standing(standing)) = read(GuardKind::Approval, &text, sight) else { panic!("{text}") };
    let Rule::Approval(approval) = standing.guard.rule else { panic!("{text}") };
    (approval.approved, standing.guard.problem)
}

#[test]
fn approvals_count_until_their_end() {
    let status = json!({ "approved": [
        { "rootUID": "a", "digest": "00000000000000ff" }, { "rootUID": "b", "digest": "00000000000000fe" }, 7,
    ] });
    let mut over = entry("c");
    over["expireTime"] = json!("2026-01-01T12:00:09Z");
    let mut named = entry("b");
    named["root"] = json!({ "resource": "pods", "name": "p" });
    let (found, problem) = approvals(&json!([entry("a"), named, over]), &status, AT_NOON);
    let approved = |root: &str, accepted| Approved {
        root: Uid::parse(root).unwrap(),
        digest: 0xff,
        until: NOON + Duration::from_secs(3590),
        actor: "jane".to_owned(),
        accepted,
    };
    assert_eq!((found, problem.as_str()), (vec![approved("a", true), approved("b", false)], ""));
}

#[test]
fn a_permission_that_cannot_be_read_permits_nothing() {
    let changed = |field: &str, value: Value| {
        let mut entry = entry("a");
        entry[field] = value;
        json!([entry, entry_of_b()])
    };
    fn entry_of_b() -> Value {
        entry("b")
    }
    let table = [
        (changed("digest", json!("ff")), "spec.approved[0].digest: is not 16 hexadecimal digits"),
        (changed("digest", json!("00000000000000FF")), "spec.approved[0].digest: is not 16"),
        (changed("digest", json!("+0000000000000ff")), "spec.approved[0].digest: is not 16"),
        (changed("expireTime", json!("tomorrow")), "spec.approved[0].expireTime: is not a time such as"),
        (changed("expireTime", json!("1900-01-01T00:00:00Z")), "spec.approved[0].expireTime: is before 1970"),
        (changed("rootUID", json!("")), "spec.approved[0].rootUID: is empty"),
        (changed("namespace", json!("a")), "spec.approved[0].namespace: unknown field"),
    ];
    for (entries, expected) in table {
        let (found, problem) = approvals(&entries, &Value::Null, AT_NOON);
        let roots: Vec<String> = found.iter().map(|approved| approved.root.to_string()).collect();
        assert_eq!(roots, ["b"], "{entries}: the others count");
        assert!(problem.contains(expected) && problem.contains("so it approves nothing"), "{problem}");
    }
    for (entries, sight, expected) in [
        (json!("all"), AT_NOON, "spec.approved: invalid type"),
        (json!(vec![entry("a"); 101]), AT_NOON, "spec.approved: has 101 entries, more than 100"),
        (json!([entry("a")]), Sight::Fresh { now: None }, "the time of the API server is unknown"),
    ] {
        let (found, problem) = approvals(&entries, &Value::Null, sight);
        assert!(found.is_empty() && problem.contains(expected), "{problem}");
    }
    let budget = guard(GuardKind::Budget, &with(GuardKind::Budget, &json!({ "countFrom": "soon" })));
    assert!(matches!(&budget.rule, Rule::Budget(budget) if budget.count_from.is_zero()), "{:?}", budget.rule);
    let expected = "spec.countFrom: is not a time such as 2026-01-01T12:00:00Z, so all deletions of the window count";
    assert_eq!(budget.problem, expected);
}

#[test]
fn a_bypass_lasts_a_day_at_most() {
    let gate = |bypass: Value, sight| match standing(
        GuardKind::Gate,
        &with(GuardKind::Gate, &json!({ "bypass": bypass })),
        sight,
    )
    .guard
    {
        Guard { rule: Rule::Gate(gate), problem, .. } => {
            (gate.bypass_until.saturating_sub(NOON).as_secs(), format!("{}: {}", gate.bypass_by, gate.bypass), problem)
        }
        other => panic!("{other:?}"),
    };
    let until = |time: &str| json!({ "untilTime": time, "reason": "it hangs", "by": "jane" });
    assert_eq!(gate(until("2026-01-01T13:00:00Z"), AT_NOON), (3590, "jane: it hangs".to_owned(), String::new()));
    assert_eq!(gate(until("2026-01-01T11:00:00Z"), AT_NOON), (0, ": ".to_owned(), String::new()), "it is over");
    assert_eq!(gate(json!({ "untilTime": "2026-01-01T13:00:00Z", "reason": "why" }), AT_NOON).1, ": why");
    for (bypass, sight, expected) in [
        (until("2026-01-02T12:01:00Z"), AT_NOON, "spec.bypass.untilTime: is more than a day ahead"),
        (until("soon"), AT_NOON, "spec.bypass.untilTime: is not a time"),
        (json!({ "untilTime": "2026-01-01T13:00:00Z", "reason": " " }), AT_NOON, "spec.bypass.reason: is empty"),
        (json!({ "reason": "why" }), AT_NOON, "spec.bypass: missing field `untilTime`"),
        (json!(true), AT_NOON, "spec.bypass: invalid type"),
        (until("2026-01-01T13:00:00Z"), Sight::Fresh { now: None }, "the time of the API server is unknown"),
    ] {
        let (left, text, problem) = gate(bypass.clone(), sight);
        assert_eq!((left, text.as_str()), (0, ": "), "{bypass}");
        assert!(problem.contains(expected) && problem.contains("so it bypasses nothing"), "{bypass}: {problem}");
    }
}

#[test]
fn one_that_is_being_deleted_is_gone_and_another_object_is_refused() {
    let leaving = r#"{"metadata":{"name":"g","uid":"u","deletionTimestamp":"2026-01-01T12:00:00Z"}}"#;
    for kind in GuardKind::ALL {
        assert!(matches!(read(kind, leaving, AT_NOON), Ok(Seen::Leaving { name, .. }) if name == "g"));
        for bad in ["", "[]", "{}", r#"{"metadata":{"name":"g"}}"#, r#"{"metadata":{"uid":"u"}}"#] {
            let why = read(kind, bad, AT_NOON).unwrap_err();
            assert!(why.contains(kind.as_str()), "{bad}: {why}");
        }
    }
}

#[test]
fn a_problem_is_one_bounded_line() {
    let long = "x\n\u{1b}[31m".repeat(4000);
    let guard = guard(GuardKind::Gate, &json!({ "reason": long, "scope": { (long.as_str()): 1 }, (long.as_str()): 1 }));
    assert!(guard.problem.len() <= REASON_MAX_BYTES && guard.reason.len() <= REASON_MAX_BYTES);
    assert!(!guard.problem.contains(['\n', '\u{1b}']), "{}", guard.problem);
    assert!(guard.problem.contains("so the gate covers everything"), "{}", guard.problem);
    assert!(guard.problem.contains("so the gate holds its scope"), "{}", guard.problem);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}", spec in "\\PC{0,60}") {
        for kind in GuardKind::ALL {
            let _no_guard = read(kind, &text, AT_NOON);
            let _no_guard = read(kind, &format!(r#"{{"metadata":{{"name":"g","uid":"u"}},"spec":{spec}}}"#), AT_NOON);
        }
    }
}
