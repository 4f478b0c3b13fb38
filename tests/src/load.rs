//! Creates thousands of objects at a real API server, and asks about them.

use anyhow::{Context, bail, ensure};
use http::{Method, Request};
use kube::Client;
use kube_api::path::collection_path;
use kube_api::{media, request};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// The number of requests in flight.
const IN_FLIGHT: usize = 24;
const ASK_EVERY: Duration = Duration::from_millis(50);
const ASK_SOON: Duration = Duration::from_millis(10);
const ASK_AT_FIRST: Duration = Duration::from_millis(200);
const ASK_SELDOM: Duration = Duration::from_secs(5);

/// Sends one request. Returns the answer as JSON. An error has the server's words.
pub async fn send(client: &Client, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    let request = request(method.clone(), path, media::JSON, body.unwrap_or(&Value::Null))?;
    client.request(request).await.with_context(|| format!("{method} {path}"))
}

/// Creates an object from JSON. Returns the answer.
pub async fn create(client: &Client, collection: &str, object: &Value) -> anyhow::Result<Value> {
    send(client, Method::POST, collection, Some(object)).await
}

/// Deletes an object with a policy: `Background`, `Foreground` or `Orphan`.
pub async fn delete(client: &Client, path: &str, policy: &str) -> anyhow::Result<()> {
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy });
    send(client, Method::DELETE, path, Some(&options)).await.map(|_| ())
}

/// Creates a namespace.
pub async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    create(client, "/api/v1/namespaces", &object).await.map(|_| ())
}

/// Returns the path of a namespace's ConfigMaps.
pub fn configmaps(namespace: &str) -> String {
    collection_path("", "v1", "configmaps", namespace)
}

/// Returns a ConfigMap with these references.
pub fn configmap(name: &str, owners: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "ownerReferences": owners } })
}

/// Returns a blocking reference to an object from an answer of the server.
pub fn reference_to(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}

/// Creates many objects in one collection, with a bounded number of requests in flight.
pub async fn create_all(client: &Client, collection: &str, objects: Vec<Value>) -> anyhow::Result<Vec<Value>> {
    let mut created = Vec::with_capacity(objects.len());
    let mut under_way: JoinSet<anyhow::Result<Value>> = JoinSet::new();
    for object in objects {
        if under_way.len() == IN_FLIGHT {
            created.push(under_way.join_next().await.context("something is under way")???);
        }
        let (client, collection) = (client.clone(), collection.to_owned());
        under_way.spawn(async move { create(&client, &collection, &object).await });
    }
    while let Some(done) = under_way.join_next().await {
        created.push(done??);
    }
    Ok(created)
}

/// Deletes many objects of one collection, with a bounded number of requests in flight.
pub async fn delete_all(client: &Client, collection: &str, names: Vec<String>) -> anyhow::Result<()> {
    let mut under_way: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for name in names {
        if under_way.len() == IN_FLIGHT {
            under_way.join_next().await.context("something is under way")???;
        }
        let (client, path) = (client.clone(), format!("{collection}/{name}"));
        under_way.spawn(async move { delete(&client, &path, "Background").await });
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}

/// Creates `owners` ConfigMaps named `PREFIX-N`, each with `dependents` named `PREFIX-N-M` that block its deletion.
/// Returns the names of the owners.
pub async fn families(
    client: &Client,
    namespace: &str,
    prefix: &str,
    owners: usize,
    dependents: usize,
) -> anyhow::Result<Vec<String>> {
    let collection = configmaps(namespace);
    let names: Vec<String> = (0..owners).map(|number| format!("{prefix}-{number}")).collect();
    let created = create_all(client, &collection, names.iter().map(|name| configmap(name, &[])).collect()).await?;
    let children = created.iter().flat_map(|owner| {
        let name = owner["metadata"]["name"].as_str().unwrap_or_default();
        let reference = reference_to(owner);
        (0..dependents).map(move |number| configmap(&format!("{name}-{number}"), std::slice::from_ref(&reference)))
    });
    create_all(client, &collection, children.collect()).await?;
    Ok(names)
}

/// Returns all objects of a collection.
pub async fn list(client: &Client, collection: impl Into<String>) -> anyhow::Result<Vec<Value>> {
    let collection = collection.into();
    let answer = send(client, Method::GET, &collection, None).await?;
    match answer["items"].as_array() {
        Some(items) => Ok(items.clone()),
        None => bail!("GET {collection} is no list"),
    }
}

/// Returns the object, or `None` if it does not exist.
pub async fn get(client: &Client, path: impl Into<String>) -> anyhow::Result<Option<Value>> {
    let path = path.into();
    match client.request::<Value>(Request::get(&path).body(Vec::new())?).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("GET {path}")),
    }
}

/// Repeats a question until the answer is the wanted one.
pub async fn until<T: Debug, F: Future<Output = anyhow::Result<T>>>(
    what: &str,
    within: Duration,
    ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    until_every(ASK_EVERY, what, within, ask, wanted).await
}

/// Repeats a question as [`until`] does, with the shorter interval that benchmarks need.
pub async fn until_soon<T: Debug, F: Future<Output = anyhow::Result<T>>>(
    what: &str,
    within: Duration,
    ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    until_every(ASK_SOON, what, within, ask, wanted).await
}

async fn until_every<T: Debug, F: Future<Output = anyhow::Result<T>>>(
    every: Duration,
    what: &str,
    within: Duration,
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        let answer = ask().await?;
        if wanted(&answer) {
            return Ok(answer);
        }
        let mut shown = format!("{answer:?}");
        shown.truncate(shown.floor_char_boundary(2000));
        ensure!(Instant::now() < deadline, "not in {within:?}: {what}; last: {shown}");
    }
}

/// Returns the longest time without a change of the number of objects, until this many are left. Unlike the time of the
/// whole, this time does not depend on the speed of the machine.
pub async fn longest_stall(
    client: &Client,
    collection: &str,
    wanted: usize,
    within: Duration,
) -> anyhow::Result<Duration> {
    let (mut before, mut since, mut longest) = (usize::MAX, Instant::now(), Duration::ZERO);
    let begun = Instant::now();
    let mut looks = interval(ASK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while before > wanted {
        ensure!(begun.elapsed() < within, "{before} objects are left after {within:?}, and {wanted} should be");
        looks.tick().await;
        let left = count(client, collection).await?;
        // A slow answer counts too.
        longest = longest.max(since.elapsed());
        if left != before {
            (before, since) = (left, Instant::now());
        }
    }
    Ok(longest)
}

/// Waits until at most this many objects of a collection are left, for benchmarks. The next count follows after a third
/// of the estimated remaining time: counting a hundred thousand objects costs the API server ten milliseconds, so
/// twenty counts a second would take a fifth of a CPU from the contenders.
pub async fn until_left(client: &Client, collection: &str, wanted: usize, within: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    let first = count(client, collection).await?;
    let mut left = first;
    while left > wanted {
        let elapsed = begun.elapsed();
        ensure!(elapsed < within, "not in {within:?}: {wanted} left of {first} in {collection}; last: {left}");
        let wait = match first.saturating_sub(left) {
            0 => ASK_AT_FIRST,
            gone => elapsed.mul_f64((left - wanted) as f64 / gone as f64) / 3,
        };
        sleep(wait.clamp(ASK_SOON, ASK_SELDOM)).await;
        left = count(client, collection).await?;
    }
    Ok(())
}

/// Returns the number of objects in a collection, without their bodies.
pub async fn count(client: &Client, collection: &str) -> anyhow::Result<usize> {
    let answer = send(client, Method::GET, &format!("{collection}?limit=1"), None).await?;
    let shown = answer["items"].as_array().map_or(0, Vec::len);
    let rest = answer["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(shown + usize::try_from(rest)?)
}
