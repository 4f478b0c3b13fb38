//! One bad type never stops the others.

use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tests::load::{self, configmaps, count, create, delete, families, get, longest_stall, until};
use tests::process::Directory;
use tests::service::Service;
use tests::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: usize = 1_000;
/// The delay that a broken kind may add to the collection of other kinds.
const DELAY_MAX: Duration = Duration::from_secs(5);

fn definition(versions: &[(&str, bool)], conversion: &Value) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version =
        |(name, storage): &(&str, bool)| json!({ "name": name, "served": true, "storage": storage, "schema": schema });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "brokens.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "conversion": conversion,
            "names": { "plural": "brokens", "singular": "broken", "kind": "Broken", "listKind": "BrokenList" },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Creates a kind whose objects are stored in a version that needs a conversion by a webhook. The webhook does not
/// exist.
async fn break_conversion(client: &Client, authority: &str) -> anyhow::Result<()> {
    create(client, DEFINITIONS, &definition(&[("v1", true)], &json!({ "strategy": "None" }))).await?;
    let collection = "/apis/example.com/v1/namespaces/default/brokens";
    let object = json!({ "apiVersion": "example.com/v1", "kind": "Broken", "metadata": { "name": "stored" } });
    let ask = || async { Ok(create(client, collection, &object).await.is_ok()) };
    until("an object is stored in v1", SOON, ask, |stored| *stored).await?;
    let webhook = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:1/convert", "caBundle": base64(authority) },
        },
    });
    let spec = definition(&[("v1", false), ("v2", true)], &webhook);
    let path = format!("{DEFINITIONS}/brokens.example.com");
    load::send(client, Method::PATCH, &path, Some(&json!({ "spec": spec["spec"] }))).await?;
    let list = "/apis/example.com/v2/brokens";
    let ask = || async { Ok(get(client, list).await.err().map(|error| format!("{error:#}"))) };
    until("the list fails", SOON, ask, |error| error.as_ref().is_some_and(|error| error.contains("conversion")))
        .await?;
    Ok(())
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| -> String {
        let bits = bytes.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
        let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize]);
        (0..4).map(|at| if at <= bytes.len() { digit(at) } else { '=' }).collect()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

/// Starts a collector where the owners of objects of a healthy kind are gone. Returns the longest time from its
/// readiness or the end of an object to the end of the next one.
async fn collect_others(stage: &Stage, directory: &Path) -> anyhow::Result<(Service, Duration)> {
    let (client, maps) = (&stage.client, configmaps("busy"));
    for owner in families(client, "busy", "o", 10, OBJECTS / 10).await? {
        delete(client, &format!("{maps}/{owner}"), "Background").await?;
    }
    let collector = stage.collect(directory, &[]).await?;
    let stall = longest_stall(client, &maps, 0, SOON).await?;
    Ok((collector, stall))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_conversion_webhook_holds_only_what_might_be_behind_it() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = stage.client.clone();
    let directory = Directory::create()?;
    load::namespace(&client, "busy").await?;
    let (collector, whole) = collect_others(&stage, directory.path()).await?;
    drop(collector);
    break_conversion(&client, stage.plane.ca()).await?;
    // The owner is in the namespace of the broken object, which may be its dependent.
    let held = configmaps("default");
    families(&client, "default", "held", 1, 0).await?;
    delete(&client, &format!("{held}/held-0"), "Foreground").await?;

    let (collector, took) = collect_others(&stage, directory.path()).await?;
    eprintln!(
        "none of {OBJECTS} objects of other kinds waited longer than {took:.2?}, {whole:.2?} without a broken kind"
    );
    ensure!(took < whole + DELAY_MAX, "others wait for a broken kind: {took:?}, and {whole:?} without one");
    let (_, body) = collector.get("/readyz?verbose").await?;
    let line =
        body.lines().find(|line| line.contains("brokens.example.com")).context("a line about the broken kind")?;
    ensure!(line.contains("failed") && line.contains("conversion"), "{line}");
    let says = |(_, body): &(u16, String)| body.contains("dependents_unseen");
    until("the held owner is said to be held", SOON, || collector.get("/readyz?verbose"), says).await?;
    ensure!(get(&client, format!("{held}/held-0")).await?.is_some(), "an owner that may have dependents there is held");

    // The repair of the type is one remedy.
    let path = format!("{DEFINITIONS}/brokens.example.com");
    let repaired = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    load::send(&client, Method::PATCH, &path, Some(&repaired)).await?;
    let gone = Duration::from_secs(60);
    until("the held owner goes", gone, || get(&client, format!("{held}/held-0")), Option::is_none).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_server_was_never_seen_holds_owners_in_deletion_until_its_apiservice_goes() -> anyhow::Result<()>
{
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": "v1.down.example.com" },
        "spec": { "group": "down.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "absent" } },
    });
    create(client, services, &service).await?;
    families(client, "default", "held", 1, 0).await?;
    families(client, "default", "beside", 1, 10).await?;
    let (directory, maps) = (Directory::create()?, configmaps("default"));
    let collector = stage.collect(directory.path(), &[]).await?;
    delete(client, &format!("{maps}/held-0"), "Foreground").await?;
    delete(client, &format!("{maps}/beside-0"), "Background").await?;
    until("what others own is gone", SOON, || count(client, &maps), |left| *left == 1).await?;
    let says = |(_, body): &(u16, String)| {
        body.contains("undiscovered: *.down.example.com") && body.contains("dependents_unseen 1")
    };
    until("the owner is said to be held", SOON, || collector.get("/readyz?verbose"), says).await?;
    ensure!(get(client, format!("{maps}/held-0")).await?.is_some(), "an owner that may have dependents there is held");

    // A flag of the administrator is another remedy. The removal of the APIService is a third one.
    drop(collector);
    families(client, "default", "released", 1, 0).await?;
    let released = stage.collect(directory.path(), &["--assume-no-dependents", "down.example.com/*"]).await?;
    until("the owner goes", SOON, || get(client, format!("{maps}/held-0")), Option::is_none).await?;
    drop(released);
    let collector = stage.collect(directory.path(), &[]).await?;
    delete(client, &format!("{maps}/released-0"), "Foreground").await?;
    until("the owner is said to be held", SOON, || collector.get("/readyz?verbose"), says).await?;
    delete(client, &format!("{services}/v1.down.example.com"), "Background").await?;
    until("the owner goes", SOON, || get(client, format!("{maps}/released-0")), Option::is_none).await?;
    Ok(())
}
