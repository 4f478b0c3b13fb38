//! Runs cases.

use super::step::{Case, Expect, Kind, Object, Policy, Reference, Runs, Space, Step, merge, replace};
use super::world::{Collector, World, ticks};
use crate::service::Service;
use anyhow::{Context, bail, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// The number of cases in flight. Each of them reads its objects several times per second.
const CASES_AT_ONCE: usize = 16;
const WITHIN: Duration = Duration::from_secs(90);
/// The time without a change after which a state counts as the end.
const QUIET: Duration = Duration::from_millis(1500);
/// The number of log lines of the collector in a failure.
const LOG_LINES_MAX: usize = 30;
/// The time limit of one case.
const CASE_WITHIN: Duration = Duration::from_secs(300);

/// The result of a run of cases.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The names of the successful runs.
    pub passed: Vec<String>,
    /// The names of the other runs, with the reason.
    pub failed: Vec<(String, String)>,
}

impl Outcome {
    /// Returns an error that names every failure.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        for (name, why) in &self.failed {
            let _ = write!(text, "\n{name}: {why}");
        }
        ensure!(
            self.failed.is_empty(),
            "{} of {} failed:{text}",
            self.failed.len(),
            self.failed.len() + self.passed.len()
        );
        Ok(())
    }
}

/// Runs every case in one world. Most cases run together under one collector. The others follow one by one.
pub async fn run(world: &Arc<World>, cases: Vec<Case>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (alone, together): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| case.runs == Runs::Alone);
    let (twice, mut live): (Vec<Case>, Vec<Case>) = together.into_iter().partition(|case| case.runs == Runs::Twice);
    live.extend(twice.iter().cloned());

    let mut early = Vec::new();
    for case in twice {
        let name = format!("{}-early", case.name);
        let mut run = Run::new(world, &name);
        match run.setup(&case).await {
            Ok(()) => early.push((name, run, case.steps)),
            Err(error) => outcome.failed.push((name, format!("{error:#}"))),
        }
    }
    let collector = Arc::new(world.collect("collector", &[]).await?);
    let places = Arc::new(Semaphore::new(CASES_AT_ONCE));
    let mut under_way = JoinSet::new();
    for (name, mut run, steps) in early {
        let (collector, places) = (Arc::clone(&collector), Arc::clone(&places));
        under_way.spawn(async move {
            let _place = places.acquire_owned().await;
            run.collector = Some(collector);
            (name, run.finish(steps).await)
        });
    }
    for case in live {
        let name = format!("{}-live", case.name);
        let mut run = Run::new(world, &name);
        let (collector, places) = (Arc::clone(&collector), Arc::clone(&places));
        under_way.spawn(async move {
            let _place = places.acquire_owned().await;
            run.collector = Some(collector);
            (name, run.live(case).await)
        });
    }
    while let Some(ended) = under_way.join_next().await {
        let (name, ended) = ended.context("a case panicked")?;
        outcome.add(name, ended);
    }
    drop(collector);
    for case in alone {
        let ended = run_alone(world, &case).await;
        outcome.add(case.name.to_owned(), ended);
    }
    Ok(outcome)
}

async fn run_alone(world: &Arc<World>, case: &Case) -> anyhow::Result<()> {
    let mut run = Run::new(world, case.name);
    run.setup(case).await?;
    run.collector = Some(Arc::new(world.collect(case.name, case.flags).await?));
    run.finish(case.steps.clone()).await
}

impl Outcome {
    fn add(&mut self, name: String, ended: anyhow::Result<()>) {
        match ended {
            Ok(()) => self.passed.push(name),
            Err(error) => self.failed.push((name, format!("{error:#}"))),
        }
    }
}

/// The facts about an object that a run created.
#[derive(Debug, Clone)]
struct Known {
    path: String,
    /// The object as created.
    object: Value,
}

/// One case in flight, in its own namespaces.
struct Run {
    world: Arc<World>,
    collector: Option<Arc<Collector>>,
    name: String,
    known: HashMap<&'static str, Known>,
    /// The uids of references to objects that never existed.
    invented: HashMap<&'static str, String>,
    canaries: usize,
}

impl Run {
    fn new(world: &Arc<World>, name: &str) -> Run {
        Run {
            world: Arc::clone(world),
            collector: None,
            name: name.to_owned(),
            known: HashMap::new(),
            invented: HashMap::new(),
            canaries: 0,
        }
    }

    async fn setup(&mut self, case: &Case) -> anyhow::Result<()> {
        for space in [Space::A, Space::B] {
            self.world.namespace(&self.space(space)).await?;
        }
        for step in &case.setup {
            self.step(step).await.with_context(|| format!("setup, {step:?}"))?;
        }
        Ok(())
    }

    async fn live(&mut self, case: Case) -> anyhow::Result<()> {
        self.setup(&case).await?;
        self.until_drawn().await?;
        self.finish(case.steps).await
    }

    /// Waits until the collector knows every dependent. Before that, the collector may treat an owner as one without
    /// dependents.
    async fn until_drawn(&self) -> anyhow::Result<()> {
        let Some(Collector::Ours(collector)) = self.collector.as_deref() else { return Ok(()) };
        let owned = self.known.values().filter(|known| known.object["metadata"]["ownerReferences"].is_array());
        let deadline = Instant::now() + WITHIN;
        let mut ticks = ticks();
        for known in owned {
            let uid = known.object["metadata"]["uid"].as_str().context("a created object has a uid")?;
            // The graph has no objects of ignored kinds.
            while known.object["kind"] != "Event"
                && !collector.get(&format!("/debug/graph?uid={uid}")).await?.1.contains(uid)
                && self.world.get(&known.path).await?.is_some()
            {
                ensure!(Instant::now() < deadline, "{} is not in the graph in {WITHIN:?}", known.path);
                ticks.tick().await;
            }
        }
        Ok(())
    }

    async fn finish(&mut self, steps: Vec<Step>) -> anyhow::Result<()> {
        let all = async {
            for (number, step) in steps.iter().enumerate() {
                self.step(step).await.with_context(|| format!("step {}, {step:?}", number + 1))?;
            }
            Ok(())
        };
        let ended = timeout(CASE_WITHIN, all).await.unwrap_or_else(|_| bail!("not over in {CASE_WITHIN:?}"));
        ended.map_err(|error| match self.log().as_str() {
            "" => error,
            log => anyhow::anyhow!("{error:#}\n{log}"),
        })
    }

    /// Returns the last log lines of the collector about this run.
    fn log(&self) -> String {
        let Some(Collector::Ours(collector)) = self.collector.as_deref() else { return String::new() };
        let text = std::fs::read_to_string(collector.process.log()).unwrap_or_default();
        let about: Vec<&str> = text.lines().filter(|line| line.contains(&self.name)).collect();
        about[about.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        let a = self.space(Space::A);
        match step {
            Step::Create(object) => self.create(object).await,
            Step::Patch(local, patch) => {
                let patch = self.resolve(patch)?;
                let path = &self.known(local)?.path;
                self.world.send(Method::PATCH, path, Some(&patch)).await.map(|_| ())
            }
            Step::Delete(local, policy) => self.delete(local, *policy).await,
            Step::Until(expected) => self.until(expected).await,
            Step::Now(expected) => match self.first_false(expected).await? {
                None => Ok(()),
                Some(why) => bail!(why),
            },
            Step::Stays(expected) => self.stays(expected).await,
            Step::Churn(local) => self.churn(local).await,
            Step::Define(kind) => self.world.define(*kind).await,
            Step::Undefine(kind) => self.world.undefine(*kind).await,
            Step::Break(kind) => self.world.break_kind(*kind, &a).await,
            Step::Mend(kind) => self.world.mend_kind(*kind, &a).await,
        }
    }

    async fn create(&mut self, object: &Object) -> anyhow::Result<()> {
        let mut body = object.kind.body();
        let namespace = self.space(object.space);
        merge(&mut body, &replace(&object.more, "$namespace", &namespace));
        body["metadata"]["name"] = json!(self.server_name(object.kind, object.name));
        let owners = object.owners.iter().map(|owner| self.reference(owner)).collect::<anyhow::Result<Vec<_>>>()?;
        if !owners.is_empty() {
            body["metadata"]["ownerReferences"] = Value::Array(owners);
        }
        if !object.finalizers.is_empty() {
            body["metadata"]["finalizers"] = json!(object.finalizers);
        }
        let collection = object.kind.collection(&namespace);
        let created = self.world.send(Method::POST, &collection, Some(&body)).await?;
        let name = created["metadata"]["name"].as_str().context("a created object has a name")?;
        self.known.insert(object.local, Known { path: format!("{collection}/{name}"), object: created });
        Ok(())
    }

    async fn delete(&self, local: &str, policy: Policy) -> anyhow::Result<()> {
        let path = &self.known(local)?.path;
        self.world.send(Method::DELETE, path, Some(&policy.options())).await.map(|_| ())
    }

    /// Writes a label as fast as the server answers, until the server answers that the object is gone.
    async fn churn(&self, local: &str) -> anyhow::Result<()> {
        let path = &self.known(local)?.path;
        let deadline = Instant::now() + WITHIN;
        for number in 0_u64.. {
            let patch = json!({ "metadata": { "labels": { "churn": number.to_string() } } });
            let answer = self.world.ask(Method::PATCH, path, "application/merge-patch+json", Some(&patch)).await?;
            if answer.status == StatusCode::NOT_FOUND {
                break;
            }
            ensure!(answer.status.is_success(), "PATCH {path} is answered {}", answer.status);
            ensure!(Instant::now() < deadline, "{local} is still there after {number} writes in {WITHIN:?}");
        }
        Ok(())
    }

    async fn until(&self, expected: &[Expect]) -> anyhow::Result<()> {
        let deadline = Instant::now() + WITHIN;
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            match self.first_false(expected).await? {
                None => return Ok(()),
                Some(why) => ensure!(Instant::now() < deadline, "not in {WITHIN:?}: {why}"),
            }
        }
    }

    async fn stays(&mut self, expected: &[Expect]) -> anyhow::Result<()> {
        self.until(expected).await?;
        self.canaries += 1;
        // When this object is gone, the collector has handled all earlier events in this namespace.
        let path = format!("{}/canary-{}", crate::load::configmaps(&self.space(Space::A)), self.canaries);
        let owner =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": Uuid::new_v4().to_string() });
        let name = format!("canary-{}", self.canaries);
        let canary = crate::load::configmap(&name, &[owner]);
        let collection = crate::load::configmaps(&self.space(Space::A));
        self.world.send(Method::POST, &collection, Some(&canary)).await?;
        let deadline = Instant::now() + WITHIN;
        let mut ticks = ticks();
        while self.world.get(&path).await?.is_some() {
            ensure!(Instant::now() < deadline, "an object without an owner was not collected in {WITHIN:?}");
            ticks.tick().await;
        }
        let deadline = Instant::now() + QUIET;
        while Instant::now() < deadline {
            ticks.tick().await;
            if let Some(why) = self.first_false(expected).await? {
                bail!("it was so, and did not stay so: {why}");
            }
        }
        Ok(())
    }

    /// Returns the differences from the expectation as text, or `None` without differences.
    async fn first_false(&self, expected: &[Expect]) -> anyhow::Result<Option<String>> {
        for expect in expected {
            let (holds, seen) = self.look(expect).await?;
            if !holds {
                return Ok(Some(format!("{expect:?}, but {seen}")));
            }
        }
        Ok(None)
    }

    async fn look(&self, expect: &Expect) -> anyhow::Result<(bool, String)> {
        let only_ours = matches!(expect, Expect::Readiness(_) | Expect::Forgotten(_) | Expect::Component(..));
        if only_ours && matches!(self.collector.as_deref(), Some(Collector::Upstream(_))) {
            return Ok((true, String::new()));
        }
        let local = match expect {
            Expect::Readiness(word) => {
                let (_, body) = self.collector()?.get("/readyz?verbose").await?;
                return Ok((body.contains(word), body));
            }
            Expect::Forgotten(local) => {
                let uid = self.uid(local)?;
                let (_, body) = self.collector()?.get(&format!("/debug/graph?uid={uid}")).await?;
                return Ok((!body.contains(uid), body));
            }
            Expect::Component(asked, drawn) => return self.look_at_component(asked, drawn).await,
            Expect::Event(local, reason) => return self.look_for_event(local, reason).await,
            Expect::Absent(local)
            | Expect::Present(local)
            | Expect::Alive(local)
            | Expect::Terminating(local)
            | Expect::Unblocked(local)
            | Expect::Owners(local, _)
            | Expect::Finalizers(local, _) => local,
        };
        let known = self.known(local)?;
        let found = self.world.get(&known.path).await?;
        // Another object with this name does not count.
        let found = found.filter(|found| found["metadata"]["uid"] == known.object["metadata"]["uid"]);
        let Some(found) = found else { return Ok((matches!(expect, Expect::Absent(_)), format!("{local} is gone"))) };
        let metadata = &found["metadata"];
        let references = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let holds = match expect {
            Expect::Absent(_) => false,
            Expect::Present(_) => true,
            Expect::Alive(_) => metadata["deletionTimestamp"].is_null(),
            Expect::Terminating(_) => !metadata["deletionTimestamp"].is_null(),
            Expect::Unblocked(_) => references.iter().all(|reference| reference["blockOwnerDeletion"] != true),
            Expect::Owners(_, owners) => {
                let uids = owners.iter().map(|owner| self.uid(owner)).collect::<anyhow::Result<Vec<_>>>()?;
                references.len() == uids.len() && references.iter().zip(uids).all(|(has, uid)| has["uid"] == uid)
            }
            Expect::Finalizers(_, finalizers) => {
                let has = metadata["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
                has == finalizers.as_slice()
            }
            Expect::Readiness(_) | Expect::Forgotten(_) | Expect::Component(..) | Expect::Event(..) => false,
        };
        Ok((holds, format!("{local} is {metadata}")))
    }

    async fn look_at_component(&self, asked: &[&str], drawn: &[&str]) -> anyhow::Result<(bool, String)> {
        // An object that the case does not know has no uid.
        let uid = |local: &&str| self.uid(local).unwrap_or("nobody");
        let query: Vec<String> = asked.iter().map(|local| format!("uid={}", uid(local))).collect();
        let (_, body) = self.collector()?.get(&format!("/debug/graph?{}", query.join("&"))).await?;
        let nodes: BTreeSet<&str> = body.lines().filter_map(|line| line.strip_suffix("\" [")).collect();
        let nodes: BTreeSet<&str> = nodes.iter().map(|line| line.trim().trim_start_matches('"')).collect();
        let wanted: BTreeSet<&str> = drawn.iter().map(uid).collect();
        Ok((nodes == wanted, format!("{wanted:?} are wanted, and drawn is {body}")))
    }

    async fn look_for_event(&self, local: &str, reason: &str) -> anyhow::Result<(bool, String)> {
        let known = self.known(local)?;
        let namespace = known.object["metadata"]["namespace"].as_str().unwrap_or("default");
        let list = self.world.get(&format!("/api/v1/namespaces/{namespace}/events")).await?.unwrap_or_default();
        let events = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let about = |event: &&Value| event["involvedObject"]["uid"] == known.object["metadata"]["uid"];
        let of_it: Vec<&Value> = events.iter().filter(about).collect();
        let holds = of_it.iter().any(|event| event["reason"] == reason && event["type"] == "Warning");
        Ok((holds, format!("the events about it are {of_it:?}")))
    }

    fn collector(&self) -> anyhow::Result<&Service> {
        match self.collector.as_deref().context("no collector runs yet")? {
            Collector::Ours(service) => Ok(service),
            Collector::Upstream(_) => bail!("only ours says that"),
        }
    }

    fn space(&self, space: Space) -> String {
        match space {
            Space::A => format!("{}-a", self.name),
            Space::B => format!("{}-b", self.name),
        }
    }

    /// The name of a cluster-scoped object contains the name of the run, so that runs do not meet.
    fn server_name(&self, kind: Kind, name: &str) -> String {
        if kind.namespaced { name.to_owned() } else { format!("{}-{name}", self.name) }
    }

    fn known(&self, local: &str) -> anyhow::Result<&Known> {
        self.known.get(local).with_context(|| format!("the case has not created {local:?}"))
    }

    fn uid(&self, local: &str) -> anyhow::Result<&str> {
        self.known(local)?.object["metadata"]["uid"].as_str().with_context(|| format!("{local} has no uid"))
    }

    fn reference(&mut self, reference: &Reference) -> anyhow::Result<Value> {
        let known = self.known.get(reference.uid_of).map(|known| known.object.clone());
        let known = match known {
            Some(object) => object,
            None => {
                let uid = self.invented.entry(reference.uid_of).or_insert_with(|| Uuid::new_v4().to_string());
                let kind = reference.kind.context("a reference to nothing says of which kind")?;
                json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "uid": uid } })
            }
        };
        let mut value = json!({
            "apiVersion": known["apiVersion"], "kind": known["kind"],
            "name": known["metadata"]["name"], "uid": known["metadata"]["uid"],
        });
        if let Some(kind) = reference.kind {
            value["apiVersion"] = json!(kind.api_version);
            value["kind"] = json!(kind.kind);
        }
        if let Some(version) = reference.api_version {
            value["apiVersion"] = json!(version);
        }
        if let Some(name) = reference.name {
            value["name"] = json!(reference.kind.map_or_else(|| name.to_owned(), |kind| self.server_name(kind, name)));
        }
        if let Some(block) = reference.block {
            value["blockOwnerDeletion"] = json!(block);
        }
        if let Some(controller) = reference.controller {
            value["controller"] = json!(controller);
        }
        Ok(value)
    }

    /// Returns the patch with a reference in place of each `{"$reference": LOCAL, …}`.
    fn resolve(&mut self, patch: &Value) -> anyhow::Result<Value> {
        Ok(match patch {
            Value::Object(fields) => match fields.get("$reference").and_then(Value::as_str) {
                Some(local) => {
                    let local = *self.known.get_key_value(local).with_context(|| format!("no object {local:?}"))?.0;
                    let mut reference = self.reference(&super::step::to(local))?;
                    let mut more = fields.clone();
                    more.remove("$reference");
                    merge(&mut reference, &Value::Object(more));
                    reference
                }
                None => {
                    let fields = fields.iter().map(|(name, value)| Ok((name.clone(), self.resolve(value)?)));
                    Value::Object(fields.collect::<anyhow::Result<_>>()?)
                }
            },
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.resolve(item)).collect::<anyhow::Result<_>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => patch.clone(),
        })
    }
}
