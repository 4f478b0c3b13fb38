//! Bad flags, bad files and bad peers. A program answers with one clear sentence and the right exit code, or retries
//! visibly. Nothing is lost.

use anyhow::{Context, ensure};
use sandbox::{Fault, FaultAnswer};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tests::embedded::Api;
use tests::load::{self, configmap, configmaps, create, delete, get, reference_to, until};
use tests::process::{Directory, Process, free_port};
use tests::service::{Programs, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(60);
/// The programs, their flags, and the exit code for a bad flag or file. The command line has 2 for findings.
const PROGRAMS: [(&str, &[&str], i32); 3] = [
    ("graph-service", &["--listen", "127.0.0.1:0"], 2),
    ("executor-service", &[], 2),
    ("ownergraph", &["collect", "--listen", "127.0.0.1:0"], 1),
];

/// Runs a program that must end by itself. Returns its exit code and its one line of output.
async fn run(
    programs: &Programs,
    program: &str,
    directory: &Path,
    arguments: &[&str],
) -> anyhow::Result<(i32, String)> {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let name = format!("{program}-{}", uuid::Uuid::new_v4());
    let mut process = Process::spawn(&name, directory, &programs.path(program), &arguments)?;
    let code = process.ended(SOON).await?;
    let output = process.output();
    let sentences: Vec<&str> =
        output.lines().filter(|line| !line.contains(" INFO ") && !line.contains(" WARN ")).collect();
    ensure!(sentences.len() == 1, "{program} {arguments:?} says one sentence: {output}");
    Ok((code, sentences[0].to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_or_flag_ends_the_start_with_one_sentence_that_names_it() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let rubbish = directory.path().join("rubbish");
    std::fs::write(&rubbish, "{ not: [yaml")?;
    let missing = directory.path().join("missing").display().to_string();
    let table: [(&[&str], &str); 4] = [
        (&["--kubeconfig", &missing], &missing),
        (&["--kubeconfig", &rubbish.display().to_string()], "rubbish"),
        (&["--kubeconfig", &directory.path().display().to_string()], &directory.path().display().to_string()),
        (&["--kubeconfig", &api.flag, "--context", "nowhere"], "nowhere"),
    ];
    for (program, first, bad) in PROGRAMS {
        for (flags, named) in table {
            let arguments = [first, flags, &["--admin-listen", "127.0.0.1:0"]].concat();
            let (code, sentence) = run(&programs, program, directory.path(), &arguments).await?;
            ensure!(code == bad && sentence.contains(named), "{program} {flags:?}: exit {code}, {sentence}");
        }
        let taken = TcpListener::bind("127.0.0.1:0").await?;
        let address = taken.local_addr()?.to_string();
        let arguments = [first, &["--kubeconfig", &api.flag, "--admin-listen", &address]].concat();
        let (code, sentence) = run(&programs, program, directory.path(), &arguments).await?;
        ensure!(code == 1 && sentence.contains(&address), "{program}, port in use: exit {code}, {sentence}");
    }
    Ok(())
}

/// Starts a program, and waits until `/readyz?verbose` answers 503 with this text. The program continues.
async fn waits_saying(
    programs: &Programs,
    program: &str,
    directory: &Path,
    flags: &[&str],
    says: &str,
) -> anyhow::Result<Service> {
    let name = format!("{program}-{}", uuid::Uuid::new_v4());
    let mut service = Service::start(programs, program, &name, directory, flags)?;
    let ask = || async { Ok(service.get("/readyz?verbose").await.unwrap_or_default()) };
    until(says, SOON, ask, |(code, body)| *code == 503 && body.contains(says)).await?;
    ensure!(service.process.exited()?.is_none(), "{program} goes on trying: {}", service.process.output());
    ensure!(service.get("/livez").await?.0 == 200, "waiting is not being stuck");
    Ok(service)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_cannot_be_used_is_waited_for_and_the_reason_shows() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let nobody = format!("127.0.0.1:{}", free_port()?);
    let unreachable = directory.path().join("unreachable");
    sandbox::write_kubeconfig(&unreachable, nobody.parse()?)?;
    // The server behind the https address has no TLS.
    let plain = std::fs::read_to_string(&api.kubeconfig)?.replace("http://", "https://");
    let https = directory.path().join("https");
    std::fs::write(&https, plain)?;
    for (program, first, _) in PROGRAMS {
        for (kubeconfig, says) in [(&unreachable, &*nobody), (&https, "https://")] {
            let kubeconfig = kubeconfig.display().to_string();
            let flags = [first, &["--kubeconfig", &kubeconfig]].concat();
            waits_saying(&programs, program, directory.path(), &flags, says).await?;
        }
        let unauthorized =
            FaultAnswer::Status { code: 401, reason: "Unauthorized", message: "Unauthorized".to_owned() };
        for (answer, says) in
            [(unauthorized, "401"), (FaultAnswer::forbidden(), "403"), (FaultAnswer::unavailable(), "503")]
        {
            let fault = api.server.inject(Fault::new(|_| true, answer));
            let flags = [first, &["--kubeconfig", &api.flag]].concat();
            let mut service = waits_saying(&programs, program, directory.path(), &flags, says).await?;
            api.server.lift(fault);
            if program != "executor-service" {
                service.ready().await.context("it goes on by itself once the server answers")?;
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_resource_that_cannot_be_listed_does_not_stop_the_others() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let secrets = |attempt: &sandbox::Attempt<'_>| attempt.path.ends_with("/secrets");
    let fault = api.server.inject(Fault::new(secrets, FaultAnswer::forbidden()));
    let flags = ["collect", "--kubeconfig", &api.flag];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    let (_, body) = collector.get("/readyz?verbose").await?;
    let line = body.lines().find(|line| line.contains(" secrets ")).context("a line about secrets")?;
    ensure!(line.contains("failed") && line.contains("403"), "{line}");
    let maps = configmaps("default");
    let owner = create(&api.client, &maps, &configmap("owner", &[])).await?;
    create(&api.client, &maps, &configmap("child", &[reference_to(&owner)])).await?;
    delete(&api.client, &format!("{maps}/owner"), "Background").await?;
    until("the child is gone", SOON, || get(&api.client, format!("{maps}/child")), Option::is_none).await?;
    api.server.lift(fault);
    let synced = |(_, body): &(u16, String)| body.lines().any(|line| line.contains(" secrets synced"));
    until("secrets are synced by themselves", Duration::from_secs(60), || collector.get("/readyz?verbose"), synced)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_finds_no_graph_service_says_so_and_goes_on_trying() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let nobody = format!("127.0.0.1:{}", free_port()?);
    let flags = ["--kubeconfig", &api.flag, "--graph", &nobody];
    let executor = waits_saying(&programs, "executor-service", directory.path(), &flags, &nobody).await?;
    let failures = executor.metric("ownergraph_executor_connect_failures_total").await?;
    ensure!(failures.is_some_and(|failures| failures >= 1.0), "connect failures in /metrics: {failures:?}");
    // The peer speaks another protocol.
    let api_server = api.address.to_string();
    let flags = ["--kubeconfig", &api.flag, "--graph", &api_server];
    waits_saying(&programs, "executor-service", directory.path(), &flags, &api_server).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_and_strangers_on_the_grpc_port_do_no_harm() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let flags = ["--kubeconfig", &api.flag, "--listen", &grpc];
    let mut graph = Service::start(&programs, "graph-service", "graph", directory.path(), &flags)?;
    graph.ready().await?;
    let rubbish: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &[0; 4096],
        &[0xff; 65536],
    ];
    for bytes in rubbish {
        let mut connection = TcpStream::connect(&grpc).await?;
        // The server may close the connection before the test has written everything.
        let _written = connection.write_all(bytes).await;
        let _read = tokio::time::timeout(SOON / 6, connection.read(&mut [0; 1024])).await;
    }
    let mut client =
        proto::work::v1beta1::work_service_client::WorkServiceClient::connect(format!("http://{grpc}")).await?;
    let mut hello = proto::work::v1beta1::stream_work_request::Hello {
        identity: Some(proto::work::v1beta1::ExecutorIdentity {
            executor: "x".to_owned(),
            incarnation: "y".to_owned(),
        }),
        min_protocol: 99,
        max_protocol: 100,
        kinds: vec![1],
        window: Some(proto::work::v1beta1::Window { max_outstanding: 1 }),
        ..Default::default()
    };
    let namespace = get(&api.client, "/api/v1/namespaces/kube-system").await?.context("kube-system is there")?;
    hello.cluster_uid = namespace["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let say = |hello| proto::work::v1beta1::StreamWorkRequest {
        message: Some(proto::work::v1beta1::stream_work_request::Message::Hello(hello)),
    };
    let mut refused = async |hello| -> anyhow::Result<String> {
        let answers = client.stream_work(tokio_stream_of(say(hello))).await;
        let status = match answers {
            Err(status) => status,
            Ok(mut answers) => match answers.get_mut().message().await {
                Err(status) => status,
                Ok(message) => anyhow::bail!("not refused: {message:?}"),
            },
        };
        Ok(format!("{:?} {}", status.code(), status.message()))
    };
    let answer = refused(hello.clone()).await?;
    ensure!(answer.contains("FailedPrecondition") && answer.contains("protocol"), "{answer}");
    hello.cluster_uid = "another".to_owned();
    let answer = refused(hello).await?;
    ensure!(answer.contains("FailedPrecondition") && answer.contains("another"), "{answer}");

    // Other clients are not affected. An executor connects and works, and a second one with its name replaces it.
    let flags = ["--kubeconfig", &api.flag, "--graph", &grpc, "--name", "same"];
    let mut first = Service::start(&programs, "executor-service", "first", directory.path(), &flags)?;
    first.ready().await?;
    let mut second = Service::start(&programs, "executor-service", "second", directory.path(), &flags)?;
    second.ready().await?;
    let code = first.process.ended(SOON).await?;
    ensure!(code == 1 && first.process.output().contains("same"), "exit {code}: {}", first.process.output());
    let maps = configmaps("default");
    let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never" });
    create(&api.client, &maps, &configmap("child", &[reference])).await?;
    until("the child is gone", SOON, || get(&api.client, format!("{maps}/child")), Option::is_none).await?;
    ensure!(!graph.process.output().contains("panicked"), "{}", graph.process.output());
    load::namespace(&api.client, "still-here").await?;
    Ok(())
}

/// Returns a request stream with one message. The stream then stays open.
fn tokio_stream_of<T: Send + 'static>(message: T) -> impl futures::Stream<Item = T> + Send + 'static {
    use futures::StreamExt;
    futures::stream::iter([message]).chain(futures::stream::pending())
}
