//! Callers that the services refuse, the errors that they get, and the traces of the refusals in counts and log.

use super::{HOSTS, Secured, caller, flags};
use anyhow::{Context, ensure};
use executor_service::dial;
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use runtime::cause::innermost;
use runtime::tls::Caller;
use std::error::Error;
use std::process::Command;
use tests::certificates::{Authority, Mounted, Signed};
use tests::embedded::Api;
use tests::process::{Directory, free_port};
use tests::service::Programs;
use tonic::Code;

/// The number of attempts of each caller.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_peer_is_refused_counted_and_told_why() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let (ours, foreign) = (Authority::new("ours")?, Authority::new("foreign")?);
    let mount = |name: &str, signed: &Signed, trusted: &[&Authority]| {
        Mounted::new(directory.path().join(name), signed, trusted)
    };
    let server = mount("graph", &ours.sign("graph", &HOSTS)?, &[&ours])?;
    let asker = mount("asker", &ours.sign("asker", &[])?, &[&ours])?;
    let stranger = mount("stranger", &foreign.sign("stranger", &[])?, &[&ours])?;
    let mistrustful = mount("mistrustful", &ours.sign("mistrustful", &[])?, &[&foreign])?;

    let grpc = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["--kubeconfig", &api.flag, "--listen", &grpc];
    let mut graph = Secured::start(&programs, "graph-service", "graph", directory.path(), (&server, &arguments))?;
    graph.ready(&asker).await?;

    let unnamed = flags(&asker);
    let misnamed = Caller::open(&unnamed, true, ("--tls-server-name", Some("graph.example"))).await?;
    let cases = [
        (
            caller(&stranger).await?,
            "unknown_authority",
            "none of the authorities in the server's --client-ca has signed it",
        ),
        (caller(&mistrustful).await?, "by_caller", "is signed by none of the authorities in --tls-ca"),
        (misnamed, "by_caller", "is not for graph.example"),
        (Caller::plaintext(), "plaintext", "uses TLS, but this connection is plaintext: set --tls-ca FILE"),
    ];
    for (caller, _, part) in &cases {
        for _ in 0..TRIES {
            let told = ask(caller, &grpc).await.expect_err(part);
            ensure!(told.contains(part), "{part}: {told}");
        }
    }
    ask(&caller(&asker).await?, &grpc).await.map_err(anyhow::Error::msg)?;

    let log = graph.process.output();
    for reason in ["unknown_authority", "by_caller", "plaintext"] {
        let tries = TRIES * cases.iter().filter(|(_, of, _)| *of == reason).count();
        let line = format!("ownergraph_tls_handshakes_refused_total{{reason=\"{reason}\"}}");
        let counted = graph.metric(&line, &asker).await?;
        // A channel that breaks at once may retry once by itself.
        ensure!(counted >= tries as f64, "{reason}: {counted} of {tries}");
        let said = log.lines().filter(|line| line.contains("refused a TLS connection") && line.contains(reason));
        ensure!(said.count() == 1, "{reason} is said once: {log}");
    }
    the_admin_server_tells_strangers_little(&graph, &asker).await?;
    the_command_line_says_what_to_do(&programs, &grpc, &asker, &mistrustful)
}

/// The error is text for a person.
async fn ask(caller: &Caller, grpc: &str) -> Result<(), String> {
    let channel = dial(caller, grpc, None).await?;
    let asked = AdminServiceClient::new(channel).get_status(GetStatusRequest {}).await;
    asked.map(|_| ()).map_err(|status| {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        status.source().map_or_else(|| status.to_string(), innermost)
    })
}

async fn the_admin_server_tells_strangers_little(graph: &Secured, asker: &Mounted) -> anyhow::Result<()> {
    for path in ["/metrics", "/readyz?verbose", "/debug/graph", "/elsewhere"] {
        let (status, body) = graph.get(path, asker, false).await?;
        ensure!(status == 401 && body.contains("certificate"), "{path}: {status} {body}");
    }
    for path in ["/livez", "/readyz"] {
        let answer = graph.get(path, asker, false).await?;
        ensure!(answer == (200, "ok\n".to_owned()), "{path}: {answer:?}");
    }
    let (status, body) = graph.get("/readyz?verbose", asker, true).await?;
    ensure!(status == 200 && body.lines().count() > 1, "{status} {body}");
    Ok(())
}

fn the_command_line_says_what_to_do(
    programs: &Programs,
    grpc: &str,
    asker: &Mounted,
    mistrustful: &Mounted,
) -> anyhow::Result<()> {
    let https = format!("https://{grpc}");
    let (ca, foreign) = (asker.file("ca.crt"), mistrustful.file("ca.crt"));
    let (certificate, key) = (asker.file("tls.crt"), asker.file("tls.key"));
    let known = ["--tls-cert", &certificate, "--tls-key", &key];
    for (code, arguments, part) in [
        (0, [&["--server", grpc, "--tls-ca", &ca], &known[..]].concat(), "LEADER"),
        (0, [&["--server", &https, "--tls-ca", &ca], &known[..]].concat(), "LEADER"),
        (1, vec!["--server", grpc, "--tls-ca", &foreign], "set --tls-ca to the file with the authority that signed it"),
        (1, vec!["--server", grpc], "uses TLS, but this connection is plaintext: set --tls-ca FILE"),
        (1, vec!["--server", grpc, "--tls-ca", &key], "the file has no certificate"),
        (1, vec!["--server", grpc, "--tls-cert", &certificate], "--tls-cert needs --tls-key"),
        (1, vec!["--server", "192.0.2.1:1", "--token-file", &key, "--insecure"], "needs TLS or loopback"),
    ] {
        let mut command = Command::new(programs.path("ownergraph"));
        let output = command.arg("status").args(&arguments).output().context("running ownergraph status")?;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.code() == Some(code), "{arguments:?}: {:?} {said}", output.status);
        ensure!(said.to_uppercase().contains(&part.to_uppercase()), "{arguments:?}: {said}");
    }
    Ok(())
}
