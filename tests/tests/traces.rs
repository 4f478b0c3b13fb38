//! Traces in a receiver, from real processes and from a real API server that joins them.

use anyhow::Context as _;
use kube_api::{Access, connect};
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::controlplane::{ControlPlane, Options, require};
use tests::load::{configmap, configmaps, create, delete, get, namespace, reference_to, until};
use tests::otlp::{Collector, Taken};
use tests::process::{Directory, Process, free_port};
use tests::service::{Fleet, Programs, Service};

const NAMESPACE: &str = "traced";
const WITHIN: Duration = Duration::from_secs(60);
/// Longer than any stop takes.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const GRAPH: &str = "graph-service";
const EXECUTOR: &str = "executor-service";
const LOGGED: [&str; 4] =
    ["--log-format", "json", "--log-level", "info,graph_service::grpc=debug,executor_service=debug"];

/// A root, its dependents, and their dependents.
async fn chain(client: &kube::Client) -> anyhow::Result<()> {
    namespace(client, NAMESPACE).await?;
    let mut owners = Vec::new();
    for name in ["root", "middle", "leaf"] {
        let created = create(client, &configmaps(NAMESPACE), &configmap(name, &owners)).await?;
        owners = vec![reference_to(&created)];
    }
    Ok(())
}

async fn delete_root(client: &kube::Client) -> anyhow::Result<()> {
    let path = |name: &str| format!("{}/{name}", configmaps(NAMESPACE));
    delete(client, &path("root"), "Background").await?;
    until("the leaf is gone", WITHIN, || get(client, path("leaf")), Option::is_none).await.map(|_| ())
}

fn below<'a>(spans: &'a [Taken], parent: &'a Taken, name: &'a str) -> impl Iterator<Item = &'a Taken> {
    let of = move |taken: &&Taken| {
        taken.span.parent_span_id == parent.span.span_id
            && taken.span.trace_id == parent.span.trace_id
            && taken.span.name.starts_with(name)
    };
    spans.iter().filter(of)
}

fn child<'a>(spans: &'a [Taken], parent: &'a Taken, service: &str, name: &'a str) -> anyhow::Result<&'a Taken> {
    let found = below(spans, parent, name).next();
    let found = found.with_context(|| format!("{} has no {name} below it in {spans:#?}", parent.span.name))?;
    anyhow::ensure!(found.service == service, "{name} is of {}", found.service);
    Ok(found)
}

fn collected<'a>(spans: &'a [Taken], name: &str) -> Option<&'a Taken> {
    spans.iter().find(|taken| taken.span.name == "collect" && taken.attribute("ownergraph.object.name") == name)
}

/// Returns the request that deleted the object with this name.
fn deletion<'a>(spans: &'a [Taken], name: &str) -> Option<&'a Taken> {
    let ends = |taken: &&Taken| taken.attribute("url.path").ends_with(&format!("/{name}"));
    spans.iter().filter(|taken| taken.span.name == "DELETE" && taken.service == EXECUTOR).find(ends)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the ids of a span in the form of the log.
fn ids(taken: &Taken) -> (String, String) {
    (hex(&taken.span.trace_id), hex(&taken.span.span_id))
}

/// Returns the traces and spans of the log lines with this message.
fn logged(log: &str, message: &str) -> anyhow::Result<Vec<(String, String)>> {
    let lines = log.lines().filter(|line| line.contains(message)).map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> = lines.collect::<Result<_, _>>()?;
    let text = |line: &serde_json::Value, name: &str| line[name].as_str().map(str::to_owned);
    Ok(lines.iter().filter_map(|line| Some((text(line, "trace_id")?, text(line, "span_id")?))).collect())
}

fn has_joined(spans: &[Taken]) -> bool {
    let answered = |name| deletion(spans, name).is_some_and(|sent| below(spans, sent, "DELETE ").next().is_some());
    let is_over = spans.iter().any(|taken| taken.span.name == "cascade");
    let reports = spans.iter().filter(|taken| taken.span.name == "report").count();
    is_over && answered("middle") && answered("leaf") && reports >= 2
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deletion_is_one_trace_across_three_processes() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let (collector, files) = (Collector::start().await?, Directory::create()?);
    let config = files.path().join("tracing.yaml");
    let endpoint = collector.address();
    // The API server records a span only if it trusts the caller and the caller records.
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {endpoint}\nsamplingRatePerMillion: 0\n"
    );
    fs::write(&config, text)?;
    let apiserver_flags = vec![format!("--tracing-config-file={}", config.display())];
    let plane = ControlPlane::start_with(&binaries, Options { apiserver_flags, ..Options::default() }).await?;
    let client = plane.client().await?;
    chain(&client).await?;
    let endpoint = collector.endpoint();
    let flags = [&["--otlp-endpoint", &endpoint, "--trace-sample", "1"], &LOGGED[..]].concat();
    let mut fleet = Fleet::start_with(&Programs::build()?, plane.kubeconfig(), &flags).await?;
    fleet.add_executor_with("executor", &flags)?;
    fleet.executors[0].ready().await?;
    delete_root(&client).await?;
    let spans = collector.until(WITHIN, has_joined).await?;

    let named_root =
        |taken: &&Taken| taken.span.name == "cascade" && taken.attribute("ownergraph.object.name") == "root";
    let cascade = spans.iter().find(named_root).context("the cascade")?;
    assert!(cascade.span.parent_span_id.is_empty());
    assert_eq!(cascade.attribute("ownergraph.cause"), "owner_gone");
    assert_eq!(cascade.attribute("ownergraph.objects"), "2");
    let mut above = cascade;
    for name in ["middle", "leaf"] {
        let collect = collected(&spans, name).with_context(|| format!("{name} was collected"))?;
        assert_eq!(collect.span.trace_id, cascade.span.trace_id, "{name} is part of the cascade");
        assert_eq!(collect.span.parent_span_id, above.span.span_id, "{name} stands below its owner");
        assert_eq!(collect.attribute("ownergraph.outcome"), "gone");
        let mut last = collect.span.start_time_unix_nano;
        for step in ["decide", "queue", "lease", "confirm"] {
            let step = child(&spans, collect, GRAPH, step)?;
            assert!(step.span.start_time_unix_nano >= last, "{} comes after what was before", step.span.name);
            last = step.span.start_time_unix_nano;
        }
        let lease = child(&spans, collect, GRAPH, "lease")?;
        assert_eq!(lease.attribute("ownergraph.executor"), "executor");
        child(&spans, lease, EXECUTOR, "wait")?;
        child(&spans, lease, EXECUTOR, "report")?;
        let execute = child(&spans, lease, EXECUTOR, "execute")?;
        assert_eq!(execute.attribute("ownergraph.outcome"), "done");
        let logged = logged(&fleet.executors[0].process.output(), "attempt ended")?;
        assert!(logged.contains(&ids(execute)), "{name}: {logged:?}");
        let request = child(&spans, execute, EXECUTOR, "DELETE")?;
        assert_eq!(request.attribute("http.response.status_code"), "200");
        let served = below(&spans, request, "DELETE ").next().context("the API server has joined")?;
        assert!(![GRAPH, EXECUTOR].contains(&served.service.as_str()), "{} is the third process", served.service);
        above = collect;
    }
    Ok(())
}

/// Starts a control plane in memory. Returns it with a client.
async fn sandbox(programs: &Programs, directory: &Path) -> anyhow::Result<(Process, PathBuf, kube::Client)> {
    let kubeconfig = directory.join("kubeconfig");
    let listen = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["sandbox", "--listen", &listen, "--write-kubeconfig", &kubeconfig.display().to_string()];
    let process = Process::spawn("sandbox", directory, &programs.path("ownergraph"), &arguments.map(str::to_owned))?;
    let written = || async { Ok(kubeconfig.exists()) };
    until("the sandbox is ready", WITHIN, written, |written| *written).await?;
    let access = Access { kubeconfig: Some(kubeconfig.clone()), ..Access::default() };
    Ok((process, kubeconfig, connect(&access).await?.client))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_but_the_calls_of_a_caller_that_records() -> anyhow::Result<()> {
    let (programs, directory, collector) = (Programs::build()?, Directory::create()?, Collector::start().await?);
    let (_sandbox, kubeconfig, client) = sandbox(&programs, directory.path()).await?;
    chain(&client).await?;
    let endpoint = collector.endpoint();
    let flags = [&["--otlp-endpoint", &endpoint, "--trace-sample", "0"], &LOGGED[..]].concat();
    let mut fleet = Fleet::start_with(&programs, &kubeconfig, &flags).await?;
    fleet.add_executor_with("executor", &flags)?;
    fleet.executors[0].ready().await?;
    delete_root(&client).await?;
    let channel = executor_service::endpoint(fleet.grpc()).map_err(anyhow::Error::msg)?.connect().await?;
    let mut admin = AdminServiceClient::new(channel);
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    for traceparent in [None, Some(format!("{caller}-00")), Some(format!("{caller}-01"))] {
        let mut request = tonic::Request::new(GetStatusRequest::default());
        if let Some(text) = traceparent {
            request.metadata_mut().insert("traceparent", text.parse()?);
        }
        admin.get_status(request).await?;
    }
    // A stopping process sends its remaining spans.
    for service in fleet.executors.iter_mut().chain([&mut fleet.graph]) {
        service.process.terminate()?;
        assert_eq!(service.process.ended(STOPPED_WITHIN).await?, 0, "{}", service.process.output());
    }
    let spans = collector.spans();
    assert_eq!(spans.len(), 1, "{spans:#?}");
    let call = &spans[0];
    assert_eq!(call.span.name, "ownergraph.admin.v1beta1.AdminService/GetStatus");
    assert_eq!((call.service.as_str(), call.attribute("rpc.grpc.status_code").as_str()), (GRAPH, "0"));
    assert_eq!(format!("00-{}-{}", hex(&call.span.trace_id), hex(&call.span.parent_span_id)), caller);
    assert_eq!(logged(&fleet.graph.process.output(), "call ended")?, [ids(call)], "other calls have no ids");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_opentelemetry_say_where_and_how_traces_are_sent() -> anyhow::Result<()> {
    let (programs, directory, collector) = (Programs::build()?, Directory::create()?, Collector::start().await?);
    let (_sandbox, kubeconfig, client) = sandbox(&programs, directory.path()).await?;
    chain(&client).await?;
    let (program, kubeconfig) = (programs.path("ownergraph").display().to_string(), kubeconfig.display().to_string());
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT={}", collector.endpoint());
    let variables = [
        &endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS=api-key=secret,tenant=shop",
        "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
        "OTEL_EXPORTER_OTLP_TIMEOUT=5000",
        "OTEL_TRACES_SAMPLER=always_on",
        "OTEL_SERVICE_NAME=garbage-collector",
    ];
    let collect = [&program, "collect", "--kubeconfig", &kubeconfig, "--executors", "1", "--listen", "127.0.0.1:0"];
    let command = [&variables[..], &collect, &["--admin-listen", "127.0.0.1:0"]].concat();
    let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
    let mut process = Process::spawn("collect", directory.path(), Path::new("env"), &command)?;
    delete_root(&client).await?;
    let names = ["collect", "execute"];
    let both = |spans: &[Taken]| names.iter().all(|name| spans.iter().any(|taken| taken.span.name == *name));
    for taken in collector.until(WITHIN, both).await? {
        assert_eq!(taken.service, "garbage-collector");
        let header = |name| taken.headers.get(name).and_then(|value| value.to_str().ok());
        let headers = ["api-key", "tenant", "grpc-encoding"].map(header);
        assert_eq!(headers, [Some("secret"), Some("shop"), Some("gzip")]);
    }
    process.terminate()?;
    assert_eq!(process.ended(STOPPED_WITHIN).await?, 0, "{}", process.output());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_stops_nothing_and_is_named_once() -> anyhow::Result<()> {
    let (programs, directory) = (Programs::build()?, Directory::create()?);
    let (_sandbox, kubeconfig, client) = sandbox(&programs, directory.path()).await?;
    chain(&client).await?;
    let (kubeconfig, away) = (kubeconfig.display().to_string(), format!("http://127.0.0.1:{}", free_port()?));
    let arguments =
        ["collect", "--kubeconfig", &kubeconfig, "--executors", "1", "--otlp-endpoint", &away, "--trace-sample", "1"];
    let mut service = Service::start(&programs, "ownergraph", "collect", directory.path(), &arguments)?;
    service.ready().await?;
    delete_root(&client).await?;
    let warning = "cannot send spans to the trace collector";
    let warned = || async { Ok(service.process.output().matches(warning).count()) };
    // Both services of this process have spans to send.
    until("both have said so", WITHIN, warned, |lines| *lines >= 2).await?;
    service.process.terminate()?;
    assert_eq!(service.process.ended(STOPPED_WITHIN).await?, 0, "{}", service.process.output());
    let log = service.process.output();
    assert_eq!(log.matches(warning).count(), 2, "{log}");
    assert!(log.contains(&away), "{log}");
    Ok(())
}
