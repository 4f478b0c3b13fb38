//! The examples of subscribers, over TLS.

use super::{HOSTS, Secured};
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::embedded::Api;
use tests::examples::{Example, fetched};
use tests::load::{configmaps, delete, families, until};
use tests::process::{Directory, Process, free_port};
use tests::service::Programs;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_subscribers_follow_over_tls_with_a_certificate() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
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
    let named = [&flags[..], &["--tls-server-name", "graph.example"]].concat();
    let mut examples = vec![("rust", Example::in_rust(&programs))];
    examples.extend(fetched(Example::in_python(directory.path()))?.map(|example| ("python", example)));
    examples.extend(fetched(Example::in_go(directory.path()))?.map(|example| ("go", example)));
    examples.extend(fetched(Example::in_typescript(directory.path()))?.map(|example| ("typescript", example)));
    let follow = |(language, example): &(&str, Example)| {
        let position = format!("{language}.json");
        let arguments = example.with(&[&named[..], &["--position", &position]].concat());
        Process::spawn(language, directory.path(), &example.program, &arguments)
    };
    let followers = examples.iter().map(follow).collect::<anyhow::Result<Vec<Process>>>()?;
    let owners = families(&api.client, "default", "o", 1, 3).await?;
    delete(&api.client, &format!("{}/{}", configmaps("default"), owners[0]), "Background").await?;
    for follower in &followers {
        let seen = || async { Ok(follower.output() + &graph.process.output()) };
        let proposed = |output: &String| output.contains("PHASE_PROPOSED");
        until("a subscriber sees what is proposed", SOON, seen, proposed).await?;
    }
    Ok(())
}
