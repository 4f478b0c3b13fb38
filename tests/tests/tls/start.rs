//! Files and flags with which no program starts. The program prints one sentence, and its exit code is 2.

use super::HOSTS;
use anyhow::{Context, ensure};
use std::process::Command;
use tests::certificates::{Authority, Mounted, Signed};
use tests::process::Directory;
use tests::service::Programs;

#[test]
fn a_process_does_not_start_with_files_that_do_not_fit() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let ours = Authority::new("ours")?;
    let good = ours.sign("graph", &HOSTS)?;
    let mount = |name: &str, signed: &Signed| Mounted::new(directory.path().join(name), signed, &[&ours]);
    let expired = mount("expired", &ours.sign_between("graph", &HOSTS, 2001, 2002)?)?;
    let other = ours.sign("other", &HOSTS)?;
    let mixed = mount("mixed", &Signed { certificate: good.certificate.clone(), key: other.key })?;
    let good = mount("good", &good)?;
    let pair = |of: &Mounted| ["--tls-cert".to_owned(), of.file("tls.crt"), "--tls-key".to_owned(), of.file("tls.key")];
    let (ca, nowhere) = (good.file("ca.crt"), good.file("nowhere"));
    let with = |more: &[&str], of: &Mounted| {
        [&pair(of)[..], &more.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>()].concat()
    };
    let only = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
    let graph = "https://127.0.0.1:7450";
    for (program, arguments, part) in [
        ("graph-service", with(&[], &expired), "the certificate has expired, on Jan  1"),
        ("graph-service", with(&[], &mixed), "the key does not belong to the certificate in --tls-cert"),
        ("graph-service", with(&["--client-ca", &nowhere], &good), "the file does not exist"),
        ("graph-service", only(&["--tls-cert", &ca]), "--tls-cert needs --tls-key"),
        ("graph-service", only(&["--client-ca", &ca]), "--client-ca needs --tls-cert"),
        ("executor-service", with(&["--tls-ca", &ca], &expired), "the certificate has expired, on Jan  1"),
        ("executor-service", with(&[], &good), "--tls-cert needs TLS: set --tls-ca"),
        (
            "executor-service",
            only(&["--tls-ca", &ca, "--graph", "http://127.0.0.1:1"]),
            "is plaintext, and other flags need TLS",
        ),
        ("executor-service", only(&["--tls-server-name", "graph"]), "--tls-server-name needs TLS"),
        ("executor-service", only(&["--graph", graph, "--client-ca", &ca]), "--client-ca needs --tls-cert"),
        ("executor-service", only(&["--graph", "192.0.2.1:1", "--token-file", &ca]), "needs TLS or loopback"),
        ("executor-service", only(&["--token-file", &nowhere]), "the file does not exist"),
        ("executor-service", only(&["--token-file", &ca]), "the file does not contain exactly one token"),
    ] {
        let mut command = Command::new(programs.path(program));
        let output =
            command.args(&arguments).env("KUBECONFIG", &nowhere).output().with_context(|| program.to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{program} {arguments:?}: {:?} {said}", output.status);
        ensure!(said.contains(part) && said.lines().count() == 1, "{program} {arguments:?}: {said}");
    }
    Ok(())
}
