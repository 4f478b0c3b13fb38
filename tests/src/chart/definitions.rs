//! The definitions of the kinds that the chart uses and the API server does not have, as their projects publish them.

use super::root;
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The groups, each with the Go module and the folder of its definitions.
const PUBLISHED: [(&str, &str, &str); 3] = [
    ("cert-manager.io", "github.com/cert-manager/cert-manager", "deploy/crds"),
    ("gateway.networking.k8s.io", "sigs.k8s.io/gateway-api", "config/crd/standard"),
    ("monitoring.coreos.com", "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd"),
];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    path: String,
    dir: PathBuf,
}

/// Returns the definitions of all kinds of these objects that come from one of the projects.
pub fn foreign_definitions(objects: &[Value]) -> anyhow::Result<Vec<Value>> {
    let kind = |object: &Value| {
        let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
        let place = PUBLISHED.into_iter().find(|(known, ..)| *known == group)?;
        Some((place, object["kind"].as_str()?.to_lowercase()))
    };
    let kinds: BTreeSet<_> = objects.iter().filter_map(kind).collect();
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let directories = download()?;
    let read = |((group, module, folder), kind): &((&str, &str, &str), String)| {
        let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        let directory = directories.get(*module).with_context(|| format!("tests/definitions has no {module}"))?;
        let file = directory.join(folder).join(format!("{group}_{plural}.yaml"));
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", file.display()))
    };
    kinds.iter().map(read).collect()
}

/// Returns the directory of each module. Go checks that their content is that of `go.sum`.
fn download() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json"]).args(PUBLISHED.map(|(_, module, _)| module));
    let output = go.current_dir(root().join("tests/definitions")).output().context("running go")?;
    ensure!(
        output.status.success(),
        "go mod download: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let modules = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Module>();
    let modules = modules.map(|module| module.map(|module| (module.path, module.dir)));
    modules.collect::<Result<_, _>>().context("reading what go downloaded")
}
