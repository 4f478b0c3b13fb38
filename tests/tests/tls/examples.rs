//! The example of a subscriber, over TLS.

use super::{HOSTS, Secured};
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::embedded::Api;
use tests::load::{configmaps, delete, families, until};
use tests::process::{Directory, Process, free_port};
use tests::service::Programs;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_subscriber_follows_over_tls_with_a_certificate() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let ours = Authority::new("ours")?;
    let server = Mounted::new(directory.path().join("graph"), &ours.sign("graph", &["graph.example"])?, &[&ours])?;
    let subscriber = Mounted::new(directory.path().join("subscriber"), &ours.sign("subscriber", &HOSTS)?, &[&ours])?;
    let grpc = format!("localhost:{}", free_port()?);
    let arguments = ["--kubeconfig", &api.flag, "--listen", &grpc.replace("localhost", "127.0.0.1")];
    let graph = Secured::start(&programs, "graph-service", "graph", directory.path(), (&server, &arguments))?;

    let https = format!("https://{grpc}");
    let (ca, certificate, key) = (subscriber.file("ca.crt"), subscriber.file("tls.crt"), subscriber.file("tls.key"));
    let flags = ["--server", &https, "--tls-ca", &ca, "--tls-cert", &certificate, "--tls-key", &key];
    let named = ["--tls-server-name", "graph.example"];
    let all: Vec<String> = flags.iter().chain(&named).map(|&flag| flag.to_owned()).collect();
    let follower = Process::spawn("subscriber", directory.path(), &programs.path("policy-subscriber"), &all)?;
    let owners = families(&api.client, "default", "o", 1, 3).await?;
    delete(&api.client, &format!("{}/{}", configmaps("default"), owners[0]), "Background").await?;
    let seen = || async { Ok(follower.output() + &graph.process.output()) };
    let proposed = |output: &String| output.contains("PHASE_PROPOSED");
    until("the subscriber sees what is proposed", SOON, seen, proposed).await.map(|_| ())
}
