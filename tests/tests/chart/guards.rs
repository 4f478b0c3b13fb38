//! The definitions of guards at a real API server: the specs that it takes, and the specs that it refuses, with the
//! message that says what to write instead.

use super::site::SOON;
use super::{apply, plane_serves};
use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use std::fs;
use tests::chart::root;
use tests::controlplane::{ControlPlane, require};
use tests::load::{self, until};

const DEFINITIONS: [&str; 5] = ["pauses", "protections", "budgets", "approvals", "gates"];

/// Specs that the API server takes, without `reason`.
const GOOD: [(&str, &str); 24] = [
    ("pauses", "{lifetimeSeconds: 86400}"),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{}, {resources: [{group: apps, resource: deployments}]}]}}"),
    (
        "pauses",
        "{lifetimeSeconds: 1, scope: {targets: [{names: ['system:node', kube-root-ca.crt], namespaces: [shop]}]}}",
    ),
    ("protections", "{presets: [Helm, ArgoCD, OpenKruise, Karmada, Gardener, Crossplane]}"),
    ("protections", "{scope: {targets: [{}]}, lifetimeSeconds: 315360000}"),
    ("protections", "{scope: {targets: [{labelSelector: {matchLabels: {app.kubernetes.io/name: db, tier: ''}}}]}}"),
    (
        "protections",
        "{scope: {targets: [{namespaceSelector: {matchExpressions: [{key: env, operator: In, values: [prod, live]}, {key: x, operator: DoesNotExist}]}}]}}",
    ),
    (
        "protections",
        "{scope: {targets: [{owner: {group: apps, resource: deployments, namespace: shop, name: db, uid: u-1}}]}}",
    ),
    ("budgets", "{maxObjects: 1, windowSeconds: 1, onExceeded: Hold}"),
    ("budgets", "{maxPercent: 100, windowSeconds: 86400, onExceeded: Pause, pauseSeconds: 60}"),
    ("budgets", "{maxPercent: 1, windowSeconds: 300, onExceeded: Pause}"),
    ("budgets", "{maxObjects: 9, windowSeconds: 300, onExceeded: Approve, countFrom: '2026-01-01T12:00:00Z'}"),
    ("approvals", "{moreThan: 0}"),
    (
        "approvals",
        "{resources: [{resource: persistentvolumeclaims}, {group: apiextensions.k8s.io, resource: customresourcedefinitions}]}",
    ),
    (
        "approvals",
        "{moreThan: 100, approved: [{rootUID: u, digest: 00ff00ff00ff00ff, expireTime: '2026-01-01T12:00:00Z', by: jane, root: {group: apps, resource: deployments, namespace: shop, name: db}}]}",
    ),
    ("gates", "{cel: {expression: 'true'}, failurePolicy: Deny, maxHoldSeconds: 60, afterMaxHold: Deny}"),
    (
        "gates",
        "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 86400, afterMaxHold: Allow, rootsOnly: true, timeoutSeconds: 10}",
    ),
    (
        "gates",
        "{webhook: {url: 'https://policy.example/v1/decide?x=1'}, failurePolicy: Allow, maxHoldSeconds: 1, afterMaxHold: Allow}",
    ),
    (
        "gates",
        "{webhook: {url: 'https://10.0.0.1:8443/', caBundle: QUJD}, failurePolicy: Allow, maxHoldSeconds: 1, afterMaxHold: Deny}",
    ),
    ("gates", "{webhook: {url: 'https://[::1]/'}, failurePolicy: Allow, maxHoldSeconds: 1, afterMaxHold: Deny}"),
    (
        "gates",
        "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 1, afterMaxHold: Deny, observeOnly: true, bypass: {untilTime: '2026-01-01T12:00:00Z', reason: it hangs, by: jane}}",
    ),
    (
        "gates",
        "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 1, afterMaxHold: Deny, scope: {targets: [{namespaces: [prod]}]}}",
    ),
    ("budgets", "{maxObjects: 1000000000, windowSeconds: 1, onExceeded: Hold, scope: {}}"),
    ("approvals", "{moreThan: 1, scope: {targets: []}}"),
];

/// Specs that the API server refuses, without `reason`, each with a part of its message.
const BAD: [(&str, &str, &str); 47] = [
    ("pauses", "{}", "spec.lifetimeSeconds: Required value"),
    ("pauses", "{lifetimeSeconds: 0}", "should be greater than or equal to 1"),
    ("pauses", "{lifetimeSeconds: 86401}", "should be less than or equal to 86400"),
    ("pauses", "{lifetimeSeconds: 1h}", "spec.lifetimeSeconds"),
    ("pauses", "{lifetimeSeconds: 1, lifetime: 1h}", "unknown field \"spec.lifetime\""),
    ("pauses", "{lifetimeSeconds: 1, reason: ''}", "spec.reason"),
    ("pauses", "{lifetimeSeconds: 1, scope: {namespaces: [shop]}}", "unknown field \"spec.scope.namespaces\""),
    (
        "pauses",
        "{lifetimeSeconds: 1, scope: {targets: [{resources: [{resource: Deployment}]}]}}",
        "write the plural name in lower case",
    ),
    (
        "pauses",
        "{lifetimeSeconds: 1, scope: {targets: [{resources: [{resource: deployments.apps}]}]}}",
        "its API group in `group`",
    ),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{resources: [{resource: '*'}]}]}}", "leave out `resources`"),
    (
        "pauses",
        "{lifetimeSeconds: 1, scope: {targets: [{resources: [{group: apps}]}]}}",
        "resources[0].resource: Required value",
    ),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{namespaces: ['team-*']}]}}", "use `namespaceSelector`"),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{namespaces: ['']}]}}", "namespaces[0]"),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{names: ['db-*']}]}}", "without wildcards"),
    ("pauses", "{lifetimeSeconds: 1, scope: {targets: [{names: [shop/db]}]}}", "match by namespace, use `namespaces`"),
    ("protections", "{}", "give `scope.targets` or `presets`"),
    ("protections", "{scope: {targets: []}}", "write a target without conditions, `targets: [{}]`"),
    ("protections", "{presets: []}", "give `scope.targets` or `presets`"),
    ("protections", "{presets: [Flux]}", "supported values: \"Helm\", \"ArgoCD\""),
    ("protections", "{presets: [Helm, Helm]}", "Duplicate value"),
    ("protections", "{presets: [Helm], lifetimeSeconds: 315360001}", "should be less than or equal to 315360000"),
    (
        "protections",
        "{scope: {targets: [{labelSelector: {matchExpressions: [{key: a, operator: In}]}}]}}",
        "list `values` with the operators In and NotIn",
    ),
    (
        "protections",
        "{scope: {targets: [{labelSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]}}",
        "leave out `values` with Exists",
    ),
    (
        "protections",
        "{scope: {targets: [{labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]}}",
        "supported values: \"In\"",
    ),
    ("protections", "{scope: {targets: [{labelSelector: {matchLabels: {a: 'b c'}}}]}}", "should match"),
    ("protections", "{scope: {targets: [{labelSelector: 'a=b'}]}}", "labelSelector"),
    ("protections", "{scope: {targets: [{owner: {name: db}}]}}", "owner.resource: Required value"),
    ("budgets", "{windowSeconds: 60, onExceeded: Hold}", "give exactly one of `maxObjects` and `maxPercent`"),
    (
        "budgets",
        "{maxObjects: 1, maxPercent: 1, windowSeconds: 60, onExceeded: Hold}",
        "give exactly one of `maxObjects` and `maxPercent`",
    ),
    (
        "budgets",
        "{maxObjects: 0, windowSeconds: 60, onExceeded: Hold}",
        "to hold all deletions of a scope, create a Protection",
    ),
    ("budgets", "{maxPercent: 101, windowSeconds: 60, onExceeded: Hold}", "should be less than or equal to 100"),
    ("budgets", "{maxObjects: 1, onExceeded: Hold}", "spec.windowSeconds: Required value"),
    ("budgets", "{maxObjects: 1, windowSeconds: 60}", "spec.onExceeded: Required value"),
    ("budgets", "{maxObjects: 1, windowSeconds: 60, onExceeded: Hold, pauseSeconds: 1}", "set `onExceeded` to Pause"),
    ("budgets", "{maxObjects: 1, windowSeconds: 60, onExceeded: Hold, countFrom: yesterday}", "spec.countFrom"),
    ("approvals", "{}", "give `moreThan`, `resources` or both"),
    ("approvals", "{resources: []}", "give `moreThan`, `resources` or both"),
    ("approvals", "{moreThan: -1}", "should be greater than or equal to 0"),
    (
        "approvals",
        "{moreThan: 1, approved: [{rootUID: u, digest: '00FF00FF00FF00FF', expireTime: '2026-01-01T12:00:00Z'}]}",
        "16 hexadecimal digits",
    ),
    ("approvals", "{moreThan: 1, approved: [{rootUID: u, digest: 00ff00ff00ff00ff}]}", "expireTime: Required value"),
    (
        "gates",
        "{failurePolicy: Deny, maxHoldSeconds: 60, afterMaxHold: Deny}",
        "give exactly one of `cel`, `webhook` and `stream`",
    ),
    (
        "gates",
        "{stream: {}, cel: {expression: 'true'}, failurePolicy: Deny, maxHoldSeconds: 60, afterMaxHold: Deny}",
        "give exactly one of `cel`, `webhook` and `stream`",
    ),
    ("gates", "{stream: {}, maxHoldSeconds: 60, afterMaxHold: Deny}", "spec.failurePolicy: Required value"),
    ("gates", "{stream: {}, failurePolicy: Hold, afterMaxHold: Deny}", "spec.maxHoldSeconds: Required value"),
    ("gates", "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 60}", "spec.afterMaxHold: Required value"),
    (
        "gates",
        "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 60, afterMaxHold: Deny, timeoutSeconds: 11}",
        "less than or equal to 10",
    ),
    (
        "gates",
        "{stream: {}, failurePolicy: Hold, maxHoldSeconds: 60, afterMaxHold: Deny, bypass: {reason: now}}",
        "bypass.untilTime: Required value",
    ),
];

/// Addresses of webhooks that the API server refuses.
const BAD_URLS: [&str; 6] = [
    "http://policy.example/",
    "policy.example",
    "https://",
    "https:///decide",
    "https://jane:secret@policy.example/",
    "ftp://x",
];

fn definition(plural: &str) -> anyhow::Result<Value> {
    let file = format!("deploy/crds/{plural}.yaml");
    let text = fs::read_to_string(root().join(&file)).with_context(|| format!("reading {file}"))?;
    serde_saphyr::from_str(&text).with_context(|| file)
}

/// The definitions have no common source, so that each can be applied alone. A difference between them is an error.
#[test]
fn the_scope_and_the_conditions_of_all_guards_are_the_same() -> anyhow::Result<()> {
    /// Removes the descriptions, which name the kind.
    fn bare(schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                if fields.get("description").is_some_and(Value::is_string) {
                    fields.remove("description");
                }
                fields.values_mut().for_each(bare);
            }
            Value::Array(items) => items.iter_mut().for_each(bare),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let common = |plural: &str| -> anyhow::Result<Value> {
        let mut definition = definition(plural)?;
        ensure!(definition["spec"]["names"]["categories"] == json!(["ownergraph"]), "{plural} has another category");
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        bare(schema);
        let mut common =
            json!({ "scope": schema["spec"]["properties"]["scope"], "reason": schema["spec"]["properties"]["reason"] });
        for field in ["state", "scope", "covers", "held", "expireTime", "message", "observedGeneration", "conditions"] {
            let there = schema["status"]["properties"][field].take();
            ensure!(!there.is_null(), "the status of {plural} has no {field}");
            common["status"][field] = there;
        }
        Ok(common)
    };
    let pauses = common("pauses")?;
    for plural in DEFINITIONS {
        assert_eq!(common(plural)?, pauses, "{plural}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_good_guards_and_says_what_is_wrong_with_bad_ones() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let plane = &ControlPlane::start(&binaries).await?;
    let definitions = DEFINITIONS.map(definition).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let warned = apply(plane, &definitions, &[])?;
    ensure!(!warned.contains("Warning"), "{warned}");
    plane_serves(plane, &definitions).await?;
    let client = plane.client().await?;
    let create = async |plural: &str, spec: &str| -> anyhow::Result<Value> {
        let mut spec: Value =
            serde_saphyr::from_str(spec).with_context(|| format!("the test has a wrong spec: {spec}"))?;
        if spec.get("reason").is_none() {
            spec["reason"] = json!("why");
        }
        let kind = definitions.iter().find(|known| known["spec"]["names"]["plural"] == plural);
        let kind = &kind.with_context(|| format!("no definition of {plural}"))?["spec"]["names"]["kind"];
        let object = json!({
            "apiVersion": "ownergraph.dev/v1alpha1", "kind": kind, "metadata": { "generateName": "guard-" }, "spec": spec,
        });
        let path = format!("/apis/ownergraph.dev/v1alpha1/{plural}?fieldValidation=Strict");
        load::send(&client, Method::POST, &path, Some(&object)).await
    };
    // Every replica of the API server checks with the schema after a moment.
    for plural in DEFINITIONS {
        let checks = async || Ok(create(plural, "{lifetimeSeconds: -1}").await.err().map(|error| format!("{error:#}")));
        until("the schema is in use", SOON, checks, |said| {
            said.as_ref().is_some_and(|said| said.contains("lifetimeSeconds"))
        })
        .await?;
    }
    let mut wrong: Vec<String> = Vec::new();
    for (plural, spec) in GOOD {
        match create(plural, spec).await {
            Ok(object) => {
                let status = &object["status"];
                let effective = &status["conditions"][0];
                if status["observedGeneration"] != 0 || effective["reason"] != "NotSeen" {
                    wrong.push(format!("{plural} {spec}: the status of a new guard is {status}"));
                }
            }
            Err(error) => wrong.push(format!("{plural} {spec}: refused: {error:#}")),
        }
    }
    let urls = BAD_URLS.map(|url| {
        (
            format!("{{webhook: {{url: '{url}'}}, failurePolicy: Deny, maxHoldSeconds: 1, afterMaxHold: Deny}}"),
            "with scheme https",
        )
    });
    let bad = BAD.iter().map(|&(plural, spec, part)| (plural, spec.to_owned(), part));
    for (plural, spec, part) in bad.chain(urls.into_iter().map(|(spec, part)| ("gates", spec, part))) {
        match create(plural, &spec).await {
            Ok(_) => wrong.push(format!("{plural} {spec}: taken, instead of: {part}")),
            Err(error) if format!("{error:#}").contains(part) => {}
            Err(error) => wrong.push(format!("{plural} {spec}: the message does not say {part}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    // kubectl keeps the kinds that it knew before the definitions were there.
    let cache = plane.directory().join("kinds");
    let shown =
        plane.kubectl().args(["get", "ownergraph", "--cache-dir"]).arg(cache).output().context("running kubectl")?;
    ensure!(shown.status.success(), "kubectl get ownergraph: {}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for column in ["STATE", "SCOPE", "COVERS", "HELD", "REASON", "EXPIRES", "AGE", "WINDOW", "FAILUREPOLICY"] {
        ensure!(shown.contains(column), "no column {column}:\n{shown}");
    }
    Ok(())
}
