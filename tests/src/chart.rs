//! The output of Helm for the chart. The tests build Helm from `tests/charttools/go.mod`, next to the control plane.

use crate::process;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod definitions;
mod rights;

pub use definitions::foreign_definitions;
pub use rights::{Right, Table, reduced, rights, spelt_out, table};

/// The default namespace of an installation.
pub const NAMESPACE: &str = "ownergraph";
const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";
/// The file next to the program that says from which versions it was built.
const STAMP: &str = "helm.built-from";

/// The top of the tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the workspace")
}

/// The values files with which the chart is tested.
pub fn value_files() -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root().join("deploy/chart/ci"))?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.push(root().join("deploy/chart/values-observe.yaml"));
    files.sort();
    ensure!(files.len() >= 10, "the chart's sets of values are gone: {files:?}");
    Ok(files)
}

/// The program of Helm.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
}

impl Helm {
    /// Builds Helm if it is missing. Returns `None` with a message if there is no Go toolchain. With `CI=true`, this is
    /// an error.
    pub fn require() -> anyhow::Result<Option<Helm>> {
        let directory = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let directory = root().join(directory).join("controlplane");
        let module = root().join("tests/charttools");
        let stamp = ["go.mod", "go.sum"].map(|name| fs::read_to_string(module.join(name)).context(name));
        let stamp = stamp.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
        fs::create_dir_all(&directory)?;
        let lock = File::create(directory.join("helm.lock"))?;
        lock.lock().context("waiting for another test to build Helm")?;
        let program = directory.join("helm");
        if program.is_file() && fs::read_to_string(directory.join(STAMP)).is_ok_and(|from| from == stamp) {
            return Ok(Some(Helm { program }));
        }
        if Command::new("go").arg("version").current_dir(&module).output().is_err() {
            ensure!(
                env::var_os("CI").is_none_or(|ci| ci != "true"),
                "with CI=true a skip is a failure: no `go` on PATH"
            );
            eprintln!("skipped: no `go` on PATH, with which Helm is built");
            return Ok(None);
        }
        build(&module, &program)?;
        fs::write(directory.join(STAMP), stamp)?;
        Ok(Some(Helm { program }))
    }

    /// Returns the objects that an installation with these flags creates, in the order of creation.
    pub fn template(&self, flags: &[&str]) -> anyhow::Result<String> {
        self.template_in(NAMESPACE, flags)
    }

    /// Returns these objects for another namespace.
    pub fn template_in(&self, namespace: &str, flags: &[&str]) -> anyhow::Result<String> {
        let output = self.run(&["template", "ownergraph", ".", "--namespace", namespace], flags)?;
        ensure!(output.status.success(), "helm template {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs Helm in the chart's directory.
    pub fn run(&self, command: &[&str], flags: &[&str]) -> anyhow::Result<Output> {
        let mut helm = Command::new(&self.program);
        helm.args(command).args(flags).current_dir(root().join("deploy/chart")).env("HELM_DEBUG", "false");
        helm.output().with_context(|| format!("running helm {command:?}"))
    }
}

fn build(module: &Path, program: &Path) -> anyhow::Result<()> {
    eprintln!("building Helm (a minute or two, the first time)");
    let log = program.with_extension("log");
    let output = File::create(&log)?;
    let part = program.with_extension("part");
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&part)
        .arg(PACKAGE)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("running go build")?;
    if !status.success() {
        bail!("go build {PACKAGE}: {status}; end of {}:\n{}", log.display(), process::tail(&log));
    }
    fs::rename(&part, program).with_context(|| format!("renaming {}", part.display()))
}

/// Parses the objects of a stream of YAML documents.
pub fn objects(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("reading what Helm rendered")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Returns the single object of this kind and name.
pub fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.with_context(|| format!("no {kind} {name} is rendered"))
}

/// Returns the Deployment of a component, under any name.
pub fn deployment<'a>(objects: &'a [Value], component: &str) -> anyhow::Result<&'a Value> {
    let is_its = |object: &&Value| {
        object["kind"] == "Deployment" && object["metadata"]["labels"]["app.kubernetes.io/component"] == component
    };
    objects.iter().find(is_its).with_context(|| format!("no Deployment of {component} is rendered"))
}

/// Returns the flags of a Deployment's container, with the variables that a pod of this name has.
pub fn arguments(objects: &[Value], component: &str, pod: &str) -> anyhow::Result<Vec<String>> {
    let deployment = deployment(objects, component)?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().context("a container without args")?;
    let text = |argument: &Value| {
        let text = argument.as_str().unwrap_or_default();
        text.replace("$(POD_NAME)", pod).replace("$(POD_IP)", "127.0.0.1")
    };
    let arguments: Vec<String> = arguments.iter().map(text).collect();
    ensure!(!arguments.iter().any(|argument| argument.contains("$(")), "a variable that no test knows: {arguments:?}");
    Ok(arguments)
}

/// Returns a pod of the Deployment's template.
pub fn pod(deployment: &Value, name: &str) -> Value {
    let template = &deployment["spec"]["template"];
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": { "name": name, "namespace": deployment["metadata"]["namespace"], "labels": template["metadata"]["labels"] },
    })
}
