//! `ownergraph demo`: an API server, a graph service and executors in this process. The demo deletes objects and shows
//! the consequences.
//!
//! * `api`: the requests of the demo itself to the API server
//! * `world`: the objects of the demo, and the expected end state
//! * `witness`: recorded events of the graph service
//! * `story`: the acts in order
//! * `narrate`, `summary`: the printed lines and numbers

mod api;
mod narrate;
mod story;
mod summary;
mod witness;
mod world;

use crate::args;
use crate::collect::election;
use crate::collector::{self, Executors, Setup};
use crate::failure::Failure;
use crate::kubectl::console;
use crate::kubectl::document::{Document, Kind};
use crate::kubectl::flags::{Connection, Form, Format};
use crate::kubectl::printer::Printer;
use anyhow::{Context as _, anyhow, bail};
use api::Api;
use engine::leader::{Mode, Policy};
use engine::object::GroupResource;
use engine::work::Protocols;
use kube_api::Cluster;
use narrate::Narrator;
use runtime::shutdown::Shutdown;
use runtime::tasks::Tasks;
use runtime::tls::Caller;
use runtime::{listen, telemetry};
use sandbox::Server;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use story::Story;
use summary::{ActSummary, Kept, Summary, ratio};
use tokio::net::TcpListener;
use tokio::time::Instant;
use world::{NO_OWNER, Stay, World};

/// The limit of objects listed for each reason to stay.
const KEPT_NAMED_MAX: usize = 3;

/// Tells the story, checks its end, and sums it up.
pub(crate) async fn run(flags: args::Demo) -> Result<(), Failure> {
    if let Some(level) = &flags.log_level {
        telemetry::init(flags.log_format, Some(level)).map_err(Failure::usage)?;
    }
    let mut output = flags.output.clone();
    if flags.json {
        output.form = Some(Form { format: Format::Json, template: None });
    }
    let printer = Printer::of(output, &[Format::Table, Format::Json, Format::Yaml]).map_err(Failure::usage)?;
    let is_told = printer.format == Format::Table;
    let mut narrator = if is_told { Narrator::aloud() } else { Narrator::silent() };
    let summary = Box::pin(perform(&flags, &mut narrator)).await?;
    if !is_told {
        let fields = serde_json::to_value(&summary).context("the summary has no JSON form")?;
        printer.print_document(Document::new(Kind::DemoSummary).with_fields(fields), &[])?;
    }
    match summary.problems.as_slice() {
        [] => Ok(()),
        [first, ..] => {
            Err(anyhow!("the state of {} objects is not as expected; the first: {first}", summary.problems.len())
                .into())
        }
    }
}

async fn perform(flags: &args::Demo, narrator: &mut Narrator) -> anyhow::Result<Summary> {
    let started = Instant::now();
    narrator.opening(flags.executors)?;
    let server = Server::new(SEED);
    let listener = listen::bind("the demo's API server", "127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse().context("the API server has no address")?;
    let mut front = Tasks::new();
    let serving = server.clone();
    front.spawn_until_end("sandbox", async move { Ok(serving.serve(listener, std::future::pending()).await?) });

    let cluster = Cluster::without_credentials(url)?;
    let api = Api::new(cluster.another_client()?);
    let world =
        world::build(&api, &server, usize::try_from(flags.objects)?).await.context("building the application")?;
    narrator.built(world.built, started.elapsed())?;

    let (observer, ledger) = witness::witness();
    let ignored = ["events", "events.events.k8s.io"].map(graph_service::options::group_resource);
    let ignored: Vec<GroupResource> = ignored.into_iter().flatten().collect();
    // The console calls the graph service as commands do, and not through the pipes of the executors.
    let listener = match flags.console {
        true => Some(listen::bind("the demo's graph service", "127.0.0.1:0").await?),
        false => None,
    };
    let graph =
        listener.as_ref().map(TcpListener::local_addr).transpose().context("the graph service has no address")?;
    let shown = cluster.clone();
    let setup = Setup { listener, ..setup(flags, cluster, &ignored) };
    let shutdown = Shutdown::new();
    // Without a console, a signal ends the process at once.
    let stop = Shutdown::new();
    let signals = flags.console.then(|| stop.clone().on_signals());
    let mut story = Story { api: &api, server: &server, ledger, narrator, told: 0 };
    let end = || (world::problems(&world, &server), story::lists(&server), started.elapsed().as_secs_f64());
    let told = async {
        let executors = usize::try_from(flags.executors)?;
        let told = async {
            story.ready(executors, &ignored).await?;
            let lists = story::lists(&server);
            let told = async {
                let acts = tokio::select! {
                    acts = story.tell(&world) => acts?,
                    () = stop.requested() => bail!("a signal ended the demo before the end of its story"),
                };
                if graph.is_none() {
                    return Ok((acts, lists, None));
                }
                // The actions of the user in the console are no part of the story.
                let ended = end();
                story.narrator.stays()?;
                stop.requested().await;
                Ok((acts, lists, Some(ended)))
            };
            tokio::select! {
                told = told => told,
                failed = serve_console(shown, graph, !flags.no_browser) => Err(failed),
            }
        };
        let told = tokio::select! {
            told = told => told,
            // During the story, only a failure requests shutdown. The collector returns the failure.
            () = shutdown.requested() => bail!("the collector stopped"),
        };
        shutdown.request();
        told
    };
    let collected = Box::pin(collector::run(setup, Some(observer), shutdown.clone()));
    let (collected, told) = tokio::select! {
        both = async { tokio::join!(collected, Box::pin(told)) } => both,
        failed = failed(signals) => return Err(failed),
    };
    collected?;
    let (acts, lists_before, ended) = told?;
    let (problems, lists, seconds) = ended.unwrap_or_else(end);
    let outcome = Outcome { acts, problems, lists: lists - lists_before, seconds };
    let summary = summarize(flags, &world, outcome);
    narrator.summary(&summary)?;
    Ok(summary)
}

/// Waits for signals, if the demo does. A second signal ends the process. Ends only with an error.
async fn failed(signals: Option<impl Future<Output = anyhow::Result<()>>>) -> anyhow::Error {
    match signals {
        Some(signals) => signals.await.err().unwrap_or_else(|| anyhow!("signals cannot be waited for any more")),
        None => std::future::pending().await,
    }
}

/// Serves the console of a graph service, if there is one. Ends only with an error.
async fn serve_console(cluster: Cluster, graph: Option<SocketAddr>, browser: bool) -> anyhow::Error {
    let Some(graph) = graph else { return std::future::pending().await };
    match console::serve(cluster, Connection::to(graph), console::Start::here(browser)).await {
        Ok(()) => anyhow!("the console stopped"),
        Err(problem) => anyhow!("the console failed: {problem}"),
    }
}

/// Names and numbers of the demo's objects are the same every time.
const SEED: u64 = 1;

fn setup(flags: &args::Demo, cluster: Cluster, ignored: &[GroupResource]) -> Setup {
    Setup {
        cluster,
        graph: graph_service::Config {
            mode: Mode::Enforce,
            replica: "demo".to_owned(),
            advertise: String::new(),
            ignore: ignored.to_vec(),
            policy: Policy::default(),
            decision_log: None,
            protocols: Protocols::OURS,
            web_origins: Vec::new(),
            traces: None,
            record: None,
            flags: graph_service::Flags::default(),
        },
        election: election(false),
        admin: None,
        listener: None,
        tls: None,
        access: graph_service::Access::Open,
        audit: graph_service::AuditSources::default(),
        executors: Executors {
            count: flags.executors,
            concurrency: executor_service::ConcurrencyOptions::ALONE,
            prefix: "executor".to_owned(),
            far: false,
            caller: Caller::plaintext(),
        },
    }
}

/// The result of the story.
struct Outcome {
    acts: Vec<ActSummary>,
    problems: Vec<String>,
    lists: u64,
    seconds: f64,
}

fn summarize(flags: &args::Demo, world: &World, outcome: Outcome) -> Summary {
    let Outcome { acts, problems, lists, seconds } = outcome;
    let total = |of: fn(&ActSummary) -> usize| acts.iter().map(of).sum::<usize>();
    let requests: u64 = acts.iter().map(|act| act.requests).sum();
    Summary {
        verified: problems.is_empty(),
        problems,
        executors: flags.executors,
        built: world.built,
        deleted: total(|act| act.deleted),
        collected: total(|act| act.collected),
        changed: total(|act| act.changed),
        kept: world.stays.len(),
        requests,
        requests_per_object: ratio(requests as f64, total(ActSummary::handled) as f64),
        objects_per_second: acts.last().map_or(0.0, |cascade| cascade.objects_per_second),
        lists,
        seconds: ratio(seconds, 1.0),
        kept_because: kept_because(&world.stays),
        acts,
    }
}

/// The reasons in the order of their first use, with the most ordinary reason last.
fn kept_because(stays: &[Stay]) -> Vec<Kept> {
    let (unowned, others): (Vec<&Stay>, Vec<&Stay>) = stays.iter().partition(|stay| stay.why == NO_OWNER);
    let mut places = BTreeMap::new();
    let mut kept: Vec<Kept> = Vec::new();
    for stay in others.into_iter().chain(unowned) {
        let place = *places.entry(stay.why.as_str()).or_insert_with(|| {
            kept.push(Kept { count: 0, objects: Vec::new(), why: stay.why.clone() });
            kept.len() - 1
        });
        kept[place].count += 1;
        if kept[place].objects.len() < KEPT_NAMED_MAX {
            kept[place].objects.push(stay.thing.to_string());
        }
    }
    kept
}
