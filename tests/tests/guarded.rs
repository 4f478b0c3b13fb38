//! Guards of all kinds, with our programs on a real API server: what each holds, what readers say, that the next leader
//! holds the same, and that the command that `why` prints releases it.

use anyhow::{Context, ensure};
use kube::Client;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{BypassGateRequest, Guard, ListGuardsRequest};
use proto::decision::v1beta1::ListDecisionsRequest;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::system_event::Kind;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::controlplane::ControlPlane;
use tests::load::{self, configmaps, create, delete, families, until};
use tests::process::{Directory, free_port};
use tests::service::{Programs, Service};
use tests::stage::{Stage, install_guards};
use tonic::transport::Channel;

mod plans;

const SOON: Duration = Duration::from_secs(60);
/// After this time, the executors of an earlier leader cannot write any more, so guards become effective.
const EFFECTIVE_WITHIN: Duration = Duration::from_secs(90);
const DEPENDENTS: usize = 5;

pub(super) struct World {
    plane: ControlPlane,
    programs: Programs,
    pub(super) client: Client,
    pub(super) directory: Directory,
    pub(super) address: String,
    leader: Service,
}

/// One guard for each kind: its plural, its rule, and how many of the dependents of a deleted owner it holds.
struct Case {
    kind: &'static str,
    plural: &'static str,
    rule: Value,
    holds: usize,
}

/// The name of a guard is also that of the namespace that it is about.
fn cases() -> [Case; 5] {
    let case = |kind, plural, rule, holds| Case { kind, plural, rule, holds };
    let gate = json!({
        "cel": { "expression": "!object.name.endsWith('-0')" },
        "failurePolicy": "Deny", "maxHoldSeconds": 600, "afterMaxHold": "Deny",
    });
    let budget = json!({ "maxObjects": 2, "windowSeconds": 3600, "onExceeded": "Approve" });
    [
        case("Pause", "pauses", json!({ "lifetimeSeconds": 3600 }), DEPENDENTS),
        case("Protection", "protections", json!({}), DEPENDENTS),
        case("Budget", "budgets", budget, DEPENDENTS - 2),
        case("Approval", "approvals", json!({ "moreThan": 2 }), DEPENDENTS),
        case("Gate", "gates", gate, 1),
    ]
}

impl Case {
    fn namespace(&self) -> &'static str {
        self.plural
    }

    fn name(&self) -> String {
        format!("{0}/{0}", self.plural)
    }
}

impl World {
    pub(super) async fn start() -> anyhow::Result<Option<World>> {
        let Some(stage) = Stage::start().await? else { return Ok(None) };
        let directory = Directory::create()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        install_guards(&stage.programs, stage.plane.kubectl(), &stage.client).await?;
        let leader = stage.collect(directory.path(), &["--elect", "--listen", &address]).await?;
        let Stage { plane, programs, client, .. } = stage;
        Ok(Some(World { plane, programs, client, directory, address, leader }))
    }

    /// Starts a second replica, kills the leader when the second one knows as much, and waits until it leads.
    async fn next_leader(&mut self) -> anyhow::Result<()> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let flags = ["collect", "--kubeconfig", &kubeconfig, "--elect", "--listen", &address];
        let mut next = Service::start(&self.programs, "ownergraph", "next", self.directory.path(), &flags)?;
        next.ready().await?;
        std::mem::swap(&mut self.leader, &mut next);
        self.address = address;
        next.process.kill()?;
        let leads = || self.leader.metric("ownergraph_leader ");
        until("the second replica leads", EFFECTIVE_WITHIN, leads, |is| *is == Some(1.0)).await?;
        Ok(())
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

    async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(tonic::transport::Endpoint::try_from(format!("http://{}", self.address))?.connect().await?)
    }

    pub(super) async fn listed(&self, name: &str) -> anyhow::Result<Option<Guard>> {
        let request = ListGuardsRequest { page_size: 1000, ..Default::default() };
        let guards = AdminServiceClient::new(self.channel().await?).list_guards(request).await?.into_inner().guards;
        Ok(guards.into_iter().find(|guard| guard.name == name))
    }

    /// Waits until a guard holds so many decisions.
    pub(super) async fn holds(&self, name: &str, items: u64) -> anyhow::Result<Guard> {
        let holds = |guard: &Option<Guard>| guard.as_ref().is_some_and(|guard| guard.held_items == items);
        let guard = until(&format!("{name} holds {items}"), SOON, || self.listed(name), holds).await?;
        guard.context("it was there")
    }

    /// Runs a command with the credentials of the control plane. Returns its success, and what it prints.
    fn command(&self, arguments: &[&str]) -> anyhow::Result<(bool, String, String)> {
        let mut command = Command::new(self.programs.path("ownergraph"));
        command.args(arguments).args(["--server", &self.address]).env("KUBECONFIG", self.plane.kubeconfig());
        let output = command.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    }

    /// Runs a command that succeeds. Returns its stdout.
    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let (is_fine, stdout, stderr) = self.command(arguments)?;
        ensure!(is_fine, "{arguments:?}: {stdout}{stderr}");
        Ok(stdout)
    }

    /// Runs a command that may fail. Returns all that it prints.
    fn says(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let (_, stdout, stderr) = self.command(arguments)?;
        Ok(stdout + &stderr)
    }

    fn why(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        self.says(&["why", &format!("configmap/{name}"), "-n", namespace])
    }

    /// Runs a line that a command has printed.
    fn run_printed(&self, line: &str) -> anyhow::Result<String> {
        let path = self.programs.path("ownergraph");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", line]).env("PATH", path.parent().unwrap_or(Path::new("/")));
        shell.env("OWNERGRAPH_SERVER", &self.address).env("KUBECONFIG", self.plane.kubeconfig());
        let output = shell.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {said}");
        Ok(said)
    }

    /// Releases what a guard holds as `why` says, until no dependent is left.
    async fn release(&self, case: &Case) -> anyhow::Result<()> {
        let maps = configmaps(case.namespace());
        for _ in 0..DEPENDENTS {
            let left = dependents(&self.client, &maps).await?;
            if left == 0 {
                break;
            }
            let why = self.why(case.namespace(), &self.a_dependent(&maps).await?)?;
            let line = why.lines().find_map(|line| line.trim().strip_prefix("release "));
            let line = line.with_context(|| format!("no command in: {why}"))?.trim();
            // At a terminal, the command asks for the name of the guard.
            let asks = ["pauses", "protections"].contains(&case.plural);
            eprintln!("{}", self.run_printed(&format!("{line}{}", if asks { " --yes" } else { "" }))?.trim());
            let ask = || async {
                let held = self.listed(&case.name()).await?.map_or(0, |guard| guard.held_items);
                Ok((dependents(&self.client, &maps).await?, held))
            };
            // A budget lets a part go, and holds the rest.
            let moved = |(now, held): &(usize, u64)| *now == 0 || (*now < left && *held == *now as u64);
            until(&format!("{line} releases all or a part"), SOON, ask, moved).await?;
        }
        self.gone(&maps).await
    }

    async fn a_dependent(&self, maps: &str) -> anyhow::Result<String> {
        left(&self.client, maps).await?.into_iter().next().context("no dependent is left")
    }

    /// Waits until no dependent is left.
    pub(super) async fn gone(&self, maps: &str) -> anyhow::Result<()> {
        until("all dependents go", SOON, || dependents(&self.client, maps), |left| *left == 0).await?;
        Ok(())
    }
}

/// The names of the dependents of deleted owners.
async fn left(client: &Client, maps: &str) -> anyhow::Result<Vec<String>> {
    let all = load::list(client, maps).await?;
    let names = all.iter().filter_map(|object| object["metadata"]["name"].as_str());
    Ok(names.filter(|name| name.starts_with("o-0-")).map(str::to_owned).collect())
}

async fn dependents(client: &Client, maps: &str) -> anyhow::Result<usize> {
    Ok(left(client, maps).await?.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_guard_holds_says_so_outlives_its_leader_and_is_released() -> anyhow::Result<()> {
    let Some(mut world) = World::start().await? else { return Ok(()) };
    let cases = cases();
    for case in &cases {
        load::namespace(&world.client, case.namespace()).await?;
        world.guard(case.kind, case.plural, case.namespace(), &case.rule).await?;
        // This owner stays, for plans.
        families(&world.client, case.namespace(), "kept", 1, DEPENDENTS).await?;
    }
    for case in &cases {
        world.effective(case).await?;
        let asked = Instant::now();
        world.cascade(case.namespace()).await?;
        world.holds(&case.name(), case.holds as u64).await?;
        eprintln!("{} holds {} objects {:?} after their owner's deletion", case.name(), case.holds, asked.elapsed());
    }
    world.approves_nothing_but_the_digest(&cases[3]).await?;
    for case in &cases {
        world.is_shown(case).await?;
    }
    world.next_leader().await?;
    for case in &cases {
        world.holds(&case.name(), case.holds as u64).await?;
        let left = dependents(&world.client, &configmaps(case.namespace())).await?;
        ensure!(left == case.holds, "{}: {left} objects are left after the change of leaders", case.name());
        world.is_shown(case).await?;
    }
    for case in &cases {
        world.release(case).await?;
    }
    Ok(())
}

impl World {
    async fn effective(&self, case: &Case) -> anyhow::Result<()> {
        let path = format!("/apis/ownergraph.dev/v1alpha1/{0}/{0}", case.plural);
        let ask = || load::get(&self.client, &path);
        let is = |object: &Option<Value>| object.as_ref().is_some_and(|it| it["status"]["state"] == "Effective");
        until(&format!("{} is effective", case.name()), EFFECTIVE_WITHIN, ask, is).await?;
        Ok(())
    }

    /// An entry with another digest approves nothing.
    async fn approves_nothing_but_the_digest(&self, case: &Case) -> anyhow::Result<()> {
        // The objects wait while their cascade is being counted, too.
        let ask = || async {
            let usage = self.listed(&case.name()).await?.and_then(|guard| guard.approval);
            Ok(usage.and_then(|usage| usage.waiting.into_iter().next()))
        };
        let cascade = until("a cascade waits", SOON, ask, Option::is_some).await?.context("it waited")?;
        ensure!(cascade.objects == DEPENDENTS as u64 && cascade.complete, "{cascade:?}");
        let digest = if cascade.digest.starts_with('0') { "1" } else { "0" }.to_owned() + &cascade.digest[1..];
        let root = cascade.root.context("no root")?.name;
        let said =
            self.says(&["approve", &format!("configmap/{root}"), "-n", case.namespace(), "--digest", &digest])?;
        ensure!(said.contains("digest"), "{said}");
        self.holds(&case.name(), case.holds as u64).await?;
        Ok(())
    }

    /// Each reader names the guard: `why`, `plan`, `queue`, `stuck`, `status`, an Event, the status of the resource and
    /// a metric.
    async fn is_shown(&self, case: &Case) -> anyhow::Result<()> {
        let (namespace, name) = (case.namespace(), case.name());
        // Names for people are singular.
        let singular = format!("{}/{}", case.kind.to_lowercase(), case.plural);
        let held = format!("configmap/{}", self.a_dependent(&configmaps(namespace)).await?);
        let commands: [&[&str]; 5] = [
            &["why", &held, "-n", namespace],
            &["plan", "delete", "configmap/kept-0", "-n", namespace],
            &["queue", "-A"],
            &["stuck", "-A", "--older-than", "0s"],
            &["status"],
        ];
        for arguments in commands {
            let ask = || std::future::ready(self.says(arguments));
            let named = |said: &String| said.contains(&name) || said.contains(&singular);
            until(&format!("{arguments:?} names {name}"), SOON, ask, named).await?;
        }
        let ask = || load::list(&self.client, "/api/v1/events");
        let told = |events: &Vec<Value>| {
            events.iter().any(|event| event["message"].as_str().is_some_and(|message| message.contains(&singular)))
        };
        until(&format!("an Event names {name}"), SOON, ask, told).await?;
        let path = format!("/apis/ownergraph.dev/v1alpha1/{name}");
        let ask = || load::get(&self.client, &path);
        let counted = |object: &Option<Value>| object.as_ref().is_some_and(|it| it["status"]["held"] == case.holds);
        until(&format!("the status of {name} counts"), SOON, ask, counted).await?;
        let series = format!("ownergraph_guards_held_items{{kind=\"{}\"}}", case.kind.to_lowercase());
        let ask = || self.leader.metric(&series);
        until(&series, SOON, ask, |value| *value == Some(case.holds as f64)).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_bypasses_a_gate_for_a_caller() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    let [.., case] = cases();
    load::namespace(&world.client, case.namespace()).await?;
    world.guard(case.kind, case.plural, case.namespace(), &case.rule).await?;
    let maps = world.cascade(case.namespace()).await?;
    world.holds(&case.name(), case.holds as u64).await?;
    let ttl = Some(prost_types::Duration { seconds: 3600, nanos: 0 });
    let request = BypassGateRequest { name: case.name(), ttl, reason: "a test".to_owned() };
    let bypassed = AdminServiceClient::new(world.channel().await?).bypass_gate(request).await?.into_inner().gate;
    let bypass = bypassed.and_then(|guard| guard.gate?.bypass).context("the answer has no bypass")?;
    ensure!(bypass.reason == "a test" && bypass.expire_time.is_some(), "{bypass:?}");
    world.gone(&maps).await?;
    let path = format!("/apis/ownergraph.dev/v1alpha1/{}", case.name());
    let object = load::get(&world.client, &path).await?.context("no gate")?;
    ensure!(object["spec"]["bypass"]["reason"] == "a test" && object["metadata"]["generation"] == 2, "{object}");
    let ask = || async {
        let request = ListDecisionsRequest { page_size: 1000, ..Default::default() };
        let events =
            DecisionServiceClient::new(world.channel().await?).list_decisions(request).await?.into_inner().events;
        Ok(events.into_iter().filter_map(|event| event.system).find(|system| system.kind() == Kind::GateBypassed))
    };
    let told = until("the log says that the gate is bypassed", SOON, ask, Option::is_some).await?.context("it did")?;
    ensure!(told.guard == case.name() && told.reason.ends_with(": a test"), "{told:?}");
    Ok(())
}
