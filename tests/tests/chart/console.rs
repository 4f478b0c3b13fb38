//! The console that the chart installs for the users of the cluster. It has no rights and no token.

use super::file_flag;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::process::Command;
use tests::chart::{self, Helm, root};
use tests::service::Programs;

const PAGE: &str = "--set=console.enabled=true,console.publicUrls[0]=https://console.example";

#[test]
fn the_console_is_installed_without_rights_and_without_a_token() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/console-values.yaml"));
    let objects = chart::objects(&helm.template(&[&values])?)?;
    let account = chart::object(&objects, "ServiceAccount", "console")?;
    assert_eq!(account["automountServiceAccountToken"], false);
    for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
        let subjects = binding["subjects"].as_array().context("a binding without subjects")?;
        ensure!(subjects.iter().all(|subject| subject["name"] != "console"), "the console has a role: {binding}");
    }

    let spec = &chart::deployment(&objects, "console")?["spec"]["template"]["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["automountServiceAccountToken"]),
        (&json!("console"), &json!(false))
    );
    let volumes = spec["volumes"].to_string();
    ensure!(!volumes.contains("serviceAccountToken"), "{volumes}");
    // Of the certificate of the graph service, the pod has the authority only.
    ensure!(volumes.matches("tls.key").count() == 2, "the key of the page alone, by its name and its path: {volumes}");

    let config =
        chart::object(&objects, "ConfigMap", "console")?["data"]["kubeconfig"].as_str().context("a kubeconfig")?;
    let config: Value = serde_saphyr::from_str(config)?;
    assert_eq!((&config["users"], &config["contexts"][0]["context"]["user"]), (&Value::Null, &json!("")));

    let policy = chart::object(&objects, "NetworkPolicy", "console")?;
    assert_eq!(policy["spec"]["ingress"][0]["from"].as_array().map(Vec::len), Some(1));
    let alone = chart::objects(&helm.template(&[PAGE])?)?;
    assert_eq!(chart::object(&alone, "NetworkPolicy", "console")?["spec"]["ingress"], json!([]));
    let graph = chart::object(&alone, "NetworkPolicy", "graph-service")?["spec"]["ingress"].to_string();
    ensure!(graph.contains(r#""app.kubernetes.io/component":"console""#), "{graph}");
    let without = chart::objects(&helm.template(&[])?)?;
    ensure!(chart::deployment(&without, "console").is_err(), "a console that nothing asked for");
    Ok(())
}

#[test]
fn a_console_that_would_let_everyone_in_is_refused() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    for (more, named) in [
        ("--set=console.publicUrls=null", "console.publicUrls names no address"),
        ("--set=tls.enabled=false", "console.enabled needs tls.enabled"),
        ("--set=access.apiServerTokens=false", "console.enabled needs access.apiServerTokens"),
        ("--set=console.publicUrls[0]=console.example", "/console/publicUrls/0"),
        ("--set=console.publicUrls[0]=https://a/b", "/console/publicUrls/0"),
        ("--set=console.apiServer=http://a", "/console/apiServer"),
    ] {
        let refused = helm.run(&["template", "ownergraph", "."], &[PAGE, more])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && said.contains(named), "{more}: {said}");
    }
    Ok(())
}

#[test]
fn the_program_takes_the_flags_of_the_console() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/console-values.yaml"));
    let program = Programs::build()?.path("ownergraph");
    for flags in [&[values.as_str()][..], &[PAGE]] {
        let flags = chart::arguments(&chart::objects(&helm.template(flags)?)?, "console", "console")?;
        // This machine has no such file: the program gets as far as that.
        let ran = Command::new(&program).args(&flags).env_clear().output()?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        ensure!(said.contains("/etc/ownergraph/cluster/kubeconfig"), "{flags:?}: {said}");
    }
    Ok(())
}
