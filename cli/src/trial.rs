//! `ownergraph try`: creates objects on a cluster, deletes their owners, and waits until a running collector has
//! collected them.
//!
//! All objects carry one label with a value of this run. The command counts them by the label, and the user can remove
//! leftovers by it. The command deletes only the owners.

use crate::args::Try;
use crate::counted::counted;
use crate::failure::{Failure, sentence};
use crate::name::{command, quoted};
use anyhow::{Context as _, anyhow, ensure};
use http::Method;
use kube::Client;
use kube_api::path::{collection_path, query_value};
use kube_api::{AccessFlags, call, connect, media, request};
use runtime::version::user_agent;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

const LABEL: &str = "ownergraph.dev/try";
const DEPENDENTS_PER_OWNER: u32 = 100;
/// Maximum number of requests in flight.
const IN_FLIGHT: usize = 16;
/// Maximum size of a page of a list, which has the metadata of a thousand objects.
const ANSWER_MAX_BYTES: usize = 16 << 20;
const PAGE: u32 = 1_000;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of leftovers that an error names.
const NAMED_MAX: usize = 3;

pub(crate) async fn run(flags: Try) -> Result<(), Failure> {
    let cluster = connect(&flags.access.access(user_agent("ownergraph"))).await.map_err(Failure::usage)?;
    let run = Uuid::new_v4().simple().to_string();
    let trial = Trial {
        client: cluster.client,
        reach: reach(&flags.access),
        namespace: flags.namespace,
        run: run.get(..8).unwrap_or(&run).to_owned(),
    };
    // This line comes first, for a user who interrupts the command.
    let said = writeln!(anstream::stderr(), "note: {} removes all objects of this run", trial.removal());
    said.context("stderr cannot be written")?;
    let tried = trial.run(flags.objects, flags.timeout).await;
    let left = match tried {
        Ok(left) => left,
        Err(error) => {
            let cause = sentence(&error);
            // Where the list fails too, there may be objects.
            let is_clean = trial.names().await.is_ok_and(|names| names.is_empty());
            let advice = format!("; {} removes the objects that were created", trial.removal());
            return Err(Failure::Other(anyhow!("{cause}{}", if is_clean { "" } else { &advice })));
        }
    };
    if left.is_empty() {
        return Ok(());
    }
    let named = left.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(Failure::TimedOut(format!(
        "{} of {} ConfigMaps are still in namespace {} after {:?}, among them {named}; {} why configmap/NAME -n {} shows the reason, and {} removes them",
        left.len(),
        flags.objects + owners_of(flags.objects),
        trial.namespace,
        flags.timeout,
        command(),
        trial.namespace,
        trial.removal(),
    )))
}

/// The flags with which kubectl reaches the same cluster. It does not read our variables.
fn reach(access: &AccessFlags) -> String {
    let kubeconfig =
        access.kubeconfig.as_ref().map(|path| format!(" --kubeconfig {}", quoted(&path.to_string_lossy())));
    let context = access.context.as_ref().map(|name| format!(" --context {}", quoted(name)));
    [kubeconfig, context].into_iter().flatten().collect()
}

fn owners_of(objects: u32) -> u32 {
    objects.div_ceil(DEPENDENTS_PER_OWNER)
}

#[derive(Clone)]
struct Trial {
    client: Client,
    /// The flags of kubectl for this cluster, with a space before each.
    reach: String,
    namespace: String,
    /// The label's value, and part of every name.
    run: String,
}

impl Trial {
    /// The command that removes everything that a run created.
    fn removal(&self) -> String {
        format!("kubectl{} delete configmaps -n {} -l {LABEL}={}", self.reach, self.namespace, self.run)
    }

    /// Creates objects, deletes their owners, and waits. Returns the names of the objects that are left.
    async fn run(&self, objects: u32, within: Duration) -> anyhow::Result<Vec<String>> {
        let mut out = anstream::stdout();
        let began = Instant::now();
        let owners = self.make(objects).await?;
        let (made, of) = (counted(objects, "object"), counted(owners.len(), "owner"));
        writeln!(out, "created {made} with {of} in {:.1} s", began.elapsed().as_secs_f64())?;
        let began = Instant::now();
        self.delete(&owners).await?;
        let left = self.left(began + within).await?;
        if left.is_empty() {
            let took = began.elapsed().as_secs_f64();
            writeln!(out, "all {objects} objects were collected {took:.1} s after the first owner was deleted")?;
        }
        Ok(left)
    }

    /// Creates this number of objects, spread over their owners. Returns the owners' names.
    async fn make(&self, objects: u32) -> anyhow::Result<Vec<String>> {
        let owners = (0..owners_of(objects)).map(|owner| self.object(&format!("{owner}"), &[]));
        let owners = self.create_all(owners.collect()).await?;
        let references: Vec<Value> = owners
            .iter()
            .map(|owner| {
                let (name, uid) = (&owner.metadata.name, &owner.metadata.uid);
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true })
            })
            .collect();
        let dependents = (0..objects)
            .zip(references.iter().cycle())
            .map(|(object, reference)| self.object(&format!("of-{object}"), std::slice::from_ref(reference)));
        self.create_all(dependents.collect()).await?;
        Ok(owners.into_iter().map(|owner| owner.metadata.name).collect())
    }

    fn object(&self, name: &str, owners: &[Value]) -> Value {
        let name = format!("ownergraph-try-{}-{name}", self.run);
        let metadata = json!({ "name": name, "labels": { LABEL: self.run }, "ownerReferences": owners });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
    }

    async fn create_all(&self, objects: Vec<Value>) -> anyhow::Result<Vec<Object>> {
        let mut created = Vec::with_capacity(objects.len());
        let mut under_way = JoinSet::new();
        for object in objects {
            if under_way.len() == IN_FLIGHT {
                created.push(under_way.join_next().await.context("a request is in flight")???);
            }
            let trial = self.clone();
            under_way.spawn(async move { trial.send::<Object>(Method::POST, &trial.collection(), &object).await });
        }
        while let Some(done) = under_way.join_next().await {
            created.push(done??);
        }
        Ok(created)
    }

    async fn delete(&self, owners: &[String]) -> anyhow::Result<()> {
        for (number, owner) in owners.iter().enumerate() {
            let policy = if number % 2 == 0 { "Background" } else { "Foreground" };
            let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy });
            self.send::<Value>(Method::DELETE, &format!("{}/{owner}", self.collection()), &options).await?;
        }
        Ok(())
    }

    /// Waits until no object of this run is left, at most until `deadline`. Returns the names of those that are left.
    async fn left(&self, deadline: Instant) -> anyhow::Result<Vec<String>> {
        let mut ticks = interval(COUNT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A failed list is retried until the deadline.
            match self.names().await {
                Ok(left) if left.is_empty() => return Ok(left),
                listed if Instant::now() >= deadline => return listed,
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn names(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("{}?labelSelector={LABEL}%3D{}&limit={PAGE}{next}", self.collection(), self.run);
            let page: List = self.send(Method::GET, &path, &Value::Null).await?;
            names.extend(page.items.into_iter().flatten().map(|object| object.metadata.name));
            let Some(token) = page.metadata.continuation.filter(|token| !token.is_empty()) else { return Ok(names) };
            // The list cannot hold more objects than were created.
            ensure!(names.len() <= MADE_MAX, "the list of {} has no end", self.collection());
            next = format!("&continue={}", query_value(&token));
        }
    }

    fn collection(&self) -> String {
        collection_path("", "v1", "configmaps", &self.namespace)
    }

    async fn send<T: for<'de> Deserialize<'de>>(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<T> {
        let accept = if method == Method::GET { media::METADATA_LIST } else { media::JSON };
        let request = request(method.clone(), path, accept, body)?;
        let answer = call(&self.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await?;
        ensure!(answer.status.is_success(), "{method} {path}: {}", answer.refusal());
        serde_json::from_slice(&answer.body).with_context(|| format!("{method} {path}: reading the answer"))
    }
}

/// Objects and their owners.
const MADE_MAX: usize = 2 * crate::args::OBJECTS_MAX as usize;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    /// An API server writes `null` if there is none.
    items: Option<Vec<Object>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    continuation: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_empty_in_three_ways() {
        for text in [r#"{"items":null}"#, r#"{"items":[]}"#, r#"{"metadata":{"resourceVersion":"7"}}"#] {
            let list: List = serde_json::from_str(text).unwrap();
            assert_eq!(list.items.into_iter().flatten().count(), 0, "{text}");
            assert!(list.metadata.continuation.is_none());
        }
    }
}
