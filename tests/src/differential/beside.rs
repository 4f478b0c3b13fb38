//! Our collector in mode observe beside upstream's, on one control plane: users keep both busy, and our collector
//! compares itself with upstream.

use super::audit::{Audit, Feed};
use super::execute::{REQUESTS_PER_SECOND, SOON, crd, perform};
use super::generate;
use super::user::User;
use super::world::Program;
use crate::controlplane::{Binaries, CollectorOptions, ControlPlane, Options, UpstreamCollector, User as Account};
use crate::load::{delete, families, namespace, until};
use crate::process::{Directory, free_port};
use crate::proxy::{Lie, Proxy};
use crate::service::{Programs, Service};
use anyhow::ensure;
use futures::future::try_join_all;
use http::request::Parts;
use kube::Client;
use proto::decision::v1beta1::disagreement::Class;
use proto::decision::v1beta1::{DecisionEvent, GetParityRequest, GetParityResponse, ListDisagreementsRequest};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tonic::Code;

/// The user of all controllers of kube-controller-manager.
const UPSTREAM: &str = "system:kube-controller-manager";
/// Users pause this long between the phases of their programs.
const BETWEEN_PHASES: Duration = Duration::from_millis(1_500);
/// The objects of one spike of load.
const SPIKE: usize = 400;
const LEADS_WITHIN: Duration = Duration::from_secs(60);
/// Everything is compared this long after the last write: our collector waits for a change at most 600 s, the longer
/// the slower upstream is, and collections without changes report their position once a minute.
const COMPARED_WITHIN: Duration = Duration::from_secs(720);

/// Both collectors, on one control plane.
pub struct Beside<'a> {
    plane: ControlPlane,
    client: Client,
    programs: &'a Programs,
    upstream: Option<UpstreamCollector>,
    ours: Service,
    feed: Feed,
    flags: Vec<String>,
    grpc: String,
    directory: Directory,
    /// In front of the API server, for ours.
    proxy: Option<Proxy>,
    started: usize,
}

/// The result of a comparison.
#[derive(Debug)]
pub struct Compared {
    pub numbers: GetParityResponse,
    pub disagreements: Vec<DecisionEvent>,
}

impl fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("grpc", &self.grpc).finish_non_exhaustive()
    }
}

impl<'a> Beside<'a> {
    /// Starts a control plane with both collectors. Ours gets the audit log. `users` have all rights, and `flags` are
    /// further flags of ours.
    pub async fn start(
        binaries: &Binaries,
        programs: &'a Programs,
        audit: &Audit,
        users: &[&str],
        flags: &[String],
    ) -> anyhow::Result<Beside<'a>> {
        let directory = Directory::create()?;
        let mut feed = audit.set_up(directory.path())?;
        let all_rights = |name: &&str| Account { name: (*name).to_owned(), groups: vec!["system:masters".to_owned()] };
        let options = Options {
            apiserver_flags: feed.apiserver.clone(),
            users: [UPSTREAM].iter().chain(users).map(all_rights).collect(),
            ..Options::default()
        };
        let plane = ControlPlane::start_with(binaries, options).await?;
        feed.call_as_admin(&plane).await?;
        let client = plane.client().await?;
        crd(&client, "widgets", "Widget", "Namespaced").await?;
        crd(&client, "realms", "Realm", "Cluster").await?;
        let grpc = format!("127.0.0.1:{}", free_port()?);
        let upstream = Some(upstream(&plane).await?);
        let flags = [&feed.ours[..], flags].concat();
        let ours = observer(plane.kubeconfig(), programs, &directory, &grpc, &feed, &flags, 0).await?;
        Ok(Beside { plane, client, programs, upstream, ours, feed, flags, grpc, directory, proxy: None, started: 1 })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Ends upstream's collector, and starts it again.
    pub async fn restart_upstream(&mut self) -> anyhow::Result<()> {
        drop(self.upstream.take());
        self.upstream = Some(upstream(&self.plane).await?);
        Ok(())
    }

    /// Suspends upstream's collector, so that ours decides first.
    pub fn suspend_upstream(&self) -> anyhow::Result<()> {
        self.upstream.as_ref().map_or(Ok(()), |upstream| upstream.process().pause())
    }

    /// Ends the suspension.
    pub fn resume_upstream(&self) -> anyhow::Result<()> {
        self.upstream.as_ref().map_or(Ok(()), |upstream| upstream.process().resume())
    }

    /// Ends upstream's collector.
    pub fn stop_upstream(&mut self) {
        drop(self.upstream.take());
    }

    /// Kills our collector, and starts it again. The counts begin at zero.
    pub async fn restart_ours(&mut self) -> anyhow::Result<()> {
        self.ours.process.kill()?;
        self.ours.process.ended(SOON).await?;
        let kubeconfig = self.proxy.as_ref().map_or(self.plane.kubeconfig(), Proxy::kubeconfig);
        let (programs, directory, grpc) = (self.programs, &self.directory, &self.grpc);
        self.ours = observer(kubeconfig, programs, directory, grpc, &self.feed, &self.flags, self.started).await?;
        self.started += 1;
        Ok(())
    }

    /// Stops our collector as a rolling update does.
    pub async fn stop_ours(&mut self) -> anyhow::Result<()> {
        self.ours.process.terminate()?;
        let code = self.ours.process.ended(SOON).await?;
        ensure!(code == 0, "our collector ended with {code}: {}", self.ours.process.log_tail());
        Ok(())
    }

    /// Kills our collector, and starts it again behind a proxy that gives these false answers.
    pub async fn restart_ours_behind(
        &mut self,
        choice: impl FnMut(&Parts) -> Option<Lie> + Send + 'static,
    ) -> anyhow::Result<()> {
        let proxy = Proxy::start(self.client.clone(), self.directory.path()).await?;
        proxy.lie(choice);
        self.proxy = Some(proxy);
        self.restart_ours().await
    }

    /// Runs the programs of these seeds side by side. `spike` adds the deletion of a large family.
    pub async fn churn(&self, seeds: impl IntoIterator<Item = u64>, spike: bool) -> anyhow::Result<()> {
        let programs: Vec<Program> = seeds.into_iter().map(generate).collect();
        let mut users: Vec<User<'_>> =
            programs.iter().map(|program| User::new(program, self.client.clone(), Duration::ZERO)).collect();
        try_join_all(users.iter().map(User::make_namespaces)).await?;
        let first = programs.first().map_or(0, |program| program.seed);
        let phases = programs.iter().map(|program| program.phases.len()).max().unwrap_or(0);
        let (churned, spiked) = tokio::join!(
            async {
                perform(&mut users, |program| &program.build).await?;
                perform(&mut users, |program| &program.cycles).await?;
                for phase in 0..phases {
                    // The collectors and the users take turns, as in a cluster that is not always busy.
                    tokio::time::sleep(BETWEEN_PHASES).await;
                    perform(&mut users, |program| program.phases.get(phase).map_or(&[], |steps| steps)).await?;
                }
                anyhow::Ok(())
            },
            async { if spike { self.spike(&format!("spike-{first}")).await } else { Ok(()) } }
        );
        churned.and(spiked)
    }

    async fn spike(&self, name: &str) -> anyhow::Result<()> {
        namespace(&self.client, name).await?;
        let owners = families(&self.client, name, "o", 4, SPIKE / 4).await?;
        let paths = owners.iter().map(|owner| format!("/api/v1/namespaces/{name}/configmaps/{owner}"));
        try_join_all(paths.map(|path| async move { delete(&self.client, &path, "Background").await })).await?;
        Ok(())
    }

    /// The comparison now, with all disagreements that are kept.
    pub async fn compared(&self) -> anyhow::Result<Compared> {
        let mut decisions = self.feed.decisions(&self.grpc).await?;
        let numbers = decisions.get_parity(GetParityRequest::default()).await?.into_inner();
        let mut request = ListDisagreementsRequest { page_size: 1000, ..Default::default() };
        let mut disagreements = Vec::new();
        loop {
            let page = decisions.list_disagreements(request.clone()).await?.into_inner();
            disagreements.extend(page.events);
            if page.next_page_token.is_empty() {
                return Ok(Compared { numbers, disagreements });
            }
            request.page_token = page.next_page_token;
        }
    }

    /// The comparison, once nothing waits for the facts of a change.
    pub async fn settled(&self) -> anyhow::Result<Compared> {
        // Open decisions and changes count as disagreements.
        let settled = |compared: &Compared| {
            let ours_only: u64 = compared.numbers.classes.iter().map(|of| of.ours_only).sum();
            compared.numbers.unsettled == 0 && compared.numbers.open <= ours_only
        };
        until("everything is compared", COMPARED_WITHIN, || self.compared(), settled).await
    }
}

impl Compared {
    /// Disagreements that nothing explains.
    pub fn unknown(&self) -> Vec<&DecisionEvent> {
        self.of(Class::Unknown)
    }

    pub fn of(&self, class: Class) -> Vec<&DecisionEvent> {
        let of = |event: &&DecisionEvent| event.disagreement.as_ref().is_some_and(|found| found.class() == class);
        self.disagreements.iter().filter(of).collect()
    }

    /// Fails if nothing explains a disagreement. The numbers also count those that the list has dropped.
    pub fn ensure_explained(&self) -> anyhow::Result<()> {
        let unknown = self.numbers.classes.iter().filter(|of| of.class() == Class::Unknown);
        let counted: u64 = unknown.map(|of| of.ours_only + of.theirs_only).sum();
        let listed = self.unknown().len();
        ensure!(
            counted == 0 && listed == 0,
            "nothing explains {counted} disagreements, of which the list has {listed}:\n{self}"
        );
        Ok(())
    }

    /// The share of equal decisions among those that both could make, in percent.
    pub fn agreed(&self) -> f64 {
        let agreed = self.numbers.agreed + self.numbers.theirs_first;
        100.0 * agreed as f64 / self.numbers.comparable.max(1) as f64
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GetParityResponse { agreed, theirs_first, late, unattributed, withdrawn, comparable, open, .. } =
            &self.numbers;
        writeln!(
            f,
            "{:.3} % of {comparable} agreed: {agreed} ({late} late), {theirs_first} theirs first",
            self.agreed()
        )?;
        writeln!(f, "{unattributed} unattributed, {withdrawn} withdrawn, {open} open")?;
        for of in &self.numbers.classes {
            writeln!(f, "{:?}: {} ours only, {} theirs only", of.class(), of.ours_only, of.theirs_only)?;
        }
        for event in &self.disagreements {
            let found = event.disagreement.clone().unwrap_or_default();
            let target = event.target.clone().unwrap_or_default();
            let owners = event.owners.iter().map(|edge| {
                let owner = edge.owner.clone().unwrap_or_default();
                format!("{}/{} {:?}", owner.kind, owner.name, edge.standing())
            });
            let (outcome, class, action, decided) = (found.outcome(), found.class(), event.kind(), found.decided());
            writeln!(
                f,
                "{outcome:?} {class:?}: {action:?} of {} {}/{} at {}, decided {decided:?}, owners [{}] {}",
                target.kind,
                target.namespace,
                target.name,
                event.watch_resource_version,
                owners.collect::<Vec<_>>().join(", "),
                found.user,
            )?;
        }
        Ok(())
    }
}

/// Starts upstream's collector with its usual user.
async fn upstream(plane: &ControlPlane) -> anyhow::Result<UpstreamCollector> {
    let kubeconfig = Some(plane.kubeconfig_of(UPSTREAM)?);
    let requests_per_second = Some(REQUESTS_PER_SECOND);
    plane.start_upstream_collector(&CollectorOptions { kubeconfig, requests_per_second, ..Default::default() }).await
}

async fn observer(
    kubeconfig: &Path,
    programs: &Programs,
    directory: &Directory,
    grpc: &str,
    feed: &Feed,
    flags: &[String],
    number: usize,
) -> anyhow::Result<Service> {
    let kubeconfig = kubeconfig.display().to_string();
    let mut arguments = vec!["--kubeconfig", &kubeconfig, "--mode", "observe", "--listen", grpc];
    arguments.extend(flags.iter().map(String::as_str));
    let mut service =
        Service::start(programs, "graph-service", &format!("observer-{number}"), directory.path(), &arguments)?;
    feed.ready(&mut service).await?;
    // The Lease of a killed predecessor has to expire.
    until("our collector leads", LEADS_WITHIN, || numbers(feed, grpc), Option::is_some).await?;
    Ok(service)
}

/// The numbers of the comparison; `None` while our collector does not lead.
async fn numbers(feed: &Feed, grpc: &str) -> anyhow::Result<Option<GetParityResponse>> {
    let mut decisions = feed.decisions(grpc).await?;
    match decisions.get_parity(GetParityRequest::default()).await {
        Ok(numbers) => Ok(Some(numbers.into_inner())),
        Err(status) if status.code() == Code::Unavailable => Ok(None),
        Err(status) => Err(status.into()),
    }
}
