//! Guards of all kinds, with our programs on a real API server: what each holds, what readers say, and what releases it.

use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{Guard, ListGuardsRequest};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use tests::controlplane::ControlPlane;
use tests::load::{self, configmaps, create, delete, families, until};
use tests::process::{Directory, free_port};
use tests::service::{Programs, Service};
use tests::stage::Stage;

const SOON: Duration = Duration::from_secs(20);
/// After this time, the executors of an earlier leader cannot write any more, so guards become effective.
const EFFECTIVE_WITHIN: Duration = Duration::from_secs(90);
const DEPENDENTS: usize = 5;

pub(super) struct World {
    plane: ControlPlane,
    programs: Programs,
    pub(super) client: Client,
    pub(super) directory: Directory,
    pub(super) address: String,
    _service: Service,
}

impl World {
    pub(super) async fn start() -> anyhow::Result<Option<World>> {
        let Some(stage) = Stage::start().await? else { return Ok(None) };
        let directory = Directory::create()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let output = Command::new(stage.programs.path("ownergraph")).arg("crds").output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = directory.path().join("crds.yaml");
        std::fs::write(&file, output.stdout)?;
        let mut kubectl = Command::new(stage.binaries.program("kubectl"));
        kubectl.env("KUBECONFIG", stage.plane.kubeconfig()).env("KUBECACHEDIR", directory.path().join("cache"));
        let output = kubectl.args(["apply", "-f", &file.display().to_string()]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for plural in ["pauses", "protections", "budgets", "approvals", "gates"] {
            let path = format!("/apis/ownergraph.dev/v1alpha1/{plural}");
            let ask = || async { Ok(load::list(&stage.client, &path).await.is_ok()) };
            until(&format!("{plural} are served"), SOON, ask, |served| *served).await?;
        }
        let service = stage.collect(directory.path(), &["--listen", &address]).await?;
        let Stage { plane, programs, client, .. } = stage;
        Ok(Some(World { plane, programs, client, directory, address, _service: service }))
    }

    /// Creates a guard of a namespace, and waits until the service knows it.
    pub(super) async fn guard(&self, kind: &str, plural: &str, namespace: &str, rule: &Value) -> anyhow::Result<()> {
        let mut spec = json!({ "reason": "a test", "scope": { "targets": [{ "namespaces": [namespace] }] } });
        for (field, value) in rule.as_object().context("a rule is an object")? {
            spec[field] = value.clone();
        }
        let object = json!({
            "apiVersion": "ownergraph.dev/v1alpha1", "kind": kind, "metadata": { "name": namespace }, "spec": spec,
        });
        create(&self.client, &format!("/apis/ownergraph.dev/v1alpha1/{plural}"), &object).await?;
        let known = format!("{plural}/{namespace}");
        until(&format!("the service knows {known}"), SOON, || self.listed(&known), Option::is_some).await?;
        Ok(())
    }

    /// Fills a namespace with one owner and its dependents, and deletes the owner.
    pub(super) async fn cascade(&self, namespace: &str) -> anyhow::Result<String> {
        let maps = configmaps(namespace);
        for owner in families(&self.client, namespace, "o", 1, DEPENDENTS).await? {
            delete(&self.client, &format!("{maps}/{owner}"), "Background").await?;
        }
        Ok(maps)
    }

    pub(super) async fn listed(&self, name: &str) -> anyhow::Result<Option<Guard>> {
        let channel = tonic::transport::Endpoint::try_from(format!("http://{}", self.address))?.connect().await?;
        let request = ListGuardsRequest { page_size: 1000, ..Default::default() };
        let guards = AdminServiceClient::new(channel).list_guards(request).await?.into_inner().guards;
        Ok(guards.into_iter().find(|guard| guard.name == name))
    }

    /// Waits until a guard holds so many decisions.
    pub(super) async fn holds(&self, name: &str, items: u64) -> anyhow::Result<Guard> {
        let holds = |guard: &Option<Guard>| guard.as_ref().is_some_and(|guard| guard.held_items == items);
        let guard = until(&format!("{name} holds {items}"), SOON, || self.listed(name), holds).await?;
        guard.context("it was there")
    }

    fn why(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.path("ownergraph"));
        command.args(["why", &format!("configmap/{name}"), "-n", namespace, "--server", &self.address]);
        let output = command.env("KUBECONFIG", self.plane.kubeconfig()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn a_dependent(&self, maps: &str) -> anyhow::Result<String> {
        let left = load::list(&self.client, maps).await?;
        let owned = left.iter().find(|object| object["metadata"]["ownerReferences"].is_array());
        Ok(owned.context("no dependent is left")?["metadata"]["name"].as_str().context("no name")?.to_owned())
    }

    /// Waits until no dependent is left.
    pub(super) async fn gone(&self, maps: &str) -> anyhow::Result<()> {
        until("all dependents go", SOON, || dependents(&self.client, maps), |left| *left == 0).await?;
        Ok(())
    }

    async fn patch(&self, plural: &str, name: &str, spec: &Value) -> anyhow::Result<()> {
        let path = format!("/apis/ownergraph.dev/v1alpha1/{plural}/{name}");
        let body = serde_json::to_vec(&json!({ "spec": spec }))?;
        let request = http::Request::builder().method(Method::PATCH).uri(path);
        let request = request.header("content-type", "application/merge-patch+json").body(body)?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    fn in_an_hour() -> String {
        let later = k8s_openapi::jiff::Timestamp::now() + Duration::from_secs(3600);
        k8s_openapi::jiff::Timestamp::from_second(later.as_second()).map(|time| time.to_string()).unwrap_or_default()
    }
}

/// The number of objects with an owner.
async fn dependents(client: &Client, maps: &str) -> anyhow::Result<usize> {
    let left = load::list(client, maps).await?;
    Ok(left.iter().filter(|object| object["metadata"]["ownerReferences"].is_array()).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_guard_holds_says_so_and_is_released() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    for namespace in ["protected", "budgeted", "approved", "gated"] {
        load::namespace(&world.client, namespace).await?;
    }
    let five = DEPENDENTS as u64;

    world.guard("Protection", "protections", "protected", &json!({})).await?;
    let maps = world.cascade("protected").await?;
    world.holds("protections/protected", five).await?;
    let name = world.a_dependent(&maps).await?;
    let why = world.why("protected", &name)?;
    ensure!(why.contains("held by protections/protected: a test"), "{why}");

    let budget = json!({ "maxObjects": 2, "windowSeconds": 3600, "onExceeded": "Approve" });
    world.guard("Budget", "budgets", "budgeted", &budget).await?;
    let maps = world.cascade("budgeted").await?;
    let guard = world.holds("budgets/budgeted", five - 2).await?;
    ensure!(guard.budget.as_ref().is_some_and(|usage| usage.exceeded), "{guard:?}");
    // What is under way counts in the next window, too.
    until("two are gone", SOON, || dependents(&world.client, &maps), |left| *left == DEPENDENTS - 2).await?;
    let now = k8s_openapi::jiff::Timestamp::now();
    let now = k8s_openapi::jiff::Timestamp::from_second(now.as_second())?.to_string();
    world.patch("budgets", "budgeted", &json!({ "countFrom": now })).await?;
    world.holds("budgets/budgeted", five - 4).await?;
    let ask = || async { world.why("budgeted", &world.a_dependent(&maps).await?) };
    until("why names the budget", SOON, ask, |why| why.contains("held by budgets/budgeted: a test")).await?;

    world.guard("Approval", "approvals", "approved", &json!({ "moreThan": 2 })).await?;
    let maps = world.cascade("approved").await?;
    world.holds("approvals/approved", five).await?;
    // The objects wait while their cascade is being counted, too.
    let ask = || async {
        let usage = world.listed("approvals/approved").await?.and_then(|guard| guard.approval);
        Ok(usage.and_then(|usage| usage.waiting.into_iter().next()))
    };
    let cascade = until("a cascade waits", SOON, ask, Option::is_some).await?.context("it waited")?;
    let root = cascade.root.clone().context("no root")?;
    ensure!(cascade.objects == five && cascade.complete, "{cascade:?}");
    let entry = |digest: &str| {
        let resource = json!({ "group": "", "resource": "configmaps", "namespace": "approved", "name": root.name });
        json!({ "approved": [{
            "rootUID": root.uid, "root": resource, "digest": digest, "expireTime": World::in_an_hour(), "by": "jane",
        }] })
    };
    world.patch("approvals", "approved", &entry("0000000000000001")).await?;
    world.holds("approvals/approved", five).await?;
    world.patch("approvals", "approved", &entry(&cascade.digest)).await?;
    world.gone(&maps).await?;

    let gate = json!({
        "cel": { "expression": "!object.name.endsWith('-0')" },
        "failurePolicy": "Deny", "maxHoldSeconds": 60, "afterMaxHold": "Deny",
    });
    world.guard("Gate", "gates", "gated", &gate).await?;
    let maps = world.cascade("gated").await?;
    let guard = world.holds("gates/gated", 1).await?;
    ensure!(guard.gate.is_some_and(|usage| usage.denied == 1), "one is denied");
    let name = world.a_dependent(&maps).await?;
    ensure!(name.ends_with("-0"), "{name}");
    let bypass = json!({ "bypass": { "untilTime": World::in_an_hour(), "reason": "a test", "by": "jane" } });
    world.patch("gates", "gated", &bypass).await?;
    world.holds("gates/gated", 0).await?;

    let effective = |object: &Option<Value>| {
        object.as_ref().is_some_and(|object| object["status"]["state"] == "Effective" && object["status"]["held"] == 5)
    };
    let path = "/apis/ownergraph.dev/v1alpha1/protections/protected";
    let ask = || load::get(&world.client, path);
    let object = until("the protection is effective", EFFECTIVE_WITHIN, ask, effective).await?;
    eprintln!("{}", object.context("it was there")?["status"]);
    delete(&world.client, path, "Background").await?;
    world.gone(&configmaps("protected")).await
}
