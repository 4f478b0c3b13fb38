//! The examples of clients of the decision log, built as a user builds a copy of them.

use crate::chart::root;
use crate::service::Programs;
use anyhow::{Context, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories of an example that are not in the tree. The copy does not have them, so that it begins as a user does.
const NOT_IN_THE_TREE: [&str; 3] = ["dist", "generated", "node_modules"];

/// How to start an example. The flags of the subscriber follow the arguments.
#[derive(Clone, Debug)]
pub struct Example {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Example {
    pub fn in_rust(programs: &Programs) -> Example {
        Example { program: programs.path("policy-subscriber"), arguments: Vec::new() }
    }

    pub fn in_python(scratch: &Path) -> anyhow::Result<Example> {
        let example = copy("policy-subscriber-python", scratch)?;
        let environment = example.join("venv");
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let python = environment.join("bin/python").display().to_string();
        let requirements = example.join("requirements.txt");
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))?;
        let generated = example.join("generated");
        fs::create_dir(&generated)?;
        let (protos, out) = (root().join("proto"), generated.display().to_string());
        let mut protoc = Command::new(&python);
        protoc.args(["-m", "grpc_tools.protoc", "--python_out", &out, "--grpc_python_out", &out, "-I"]).arg(&protos);
        run(protoc.args(protos_below(&protos)?))?;
        let script = example.join("subscriber.py").display().to_string();
        let arguments = vec![format!("PYTHONPATH={out}"), python, script];
        Ok(Example { program: "/usr/bin/env".into(), arguments })
    }

    pub fn in_go(scratch: &Path) -> anyhow::Result<Example> {
        go("policy-subscriber-go", scratch)
    }

    /// The policy engine, after the tests of its rules.
    pub fn engine_in_go(scratch: &Path) -> anyhow::Result<Example> {
        let built = go("policy-engine-go", scratch)?;
        let directory = scratch.join("examples/policy-engine-go");
        run(Command::new("go").args(["test", "."]).current_dir(directory).env("CGO_ENABLED", "0"))?;
        Ok(built)
    }

    pub fn in_typescript(scratch: &Path) -> anyhow::Result<Example> {
        let example = npm_install("policy-subscriber-typescript", scratch)?;
        generate(&example)?;
        run(Command::new("npm").args(["run", "--silent", "build"]).current_dir(&example))?;
        let script = example.join("dist/src/subscriber.js").display().to_string();
        Ok(Example { program: "/usr/bin/env".into(), arguments: vec!["node".to_owned(), script] })
    }

    /// Builds the web page. Returns the directory of its files.
    pub fn in_a_browser(scratch: &Path) -> anyhow::Result<PathBuf> {
        let example = npm_install("decisions-in-a-browser", scratch)?;
        generate(&example)?;
        run(Command::new("npm").args(["run", "--silent", "build"]).current_dir(&example))?;
        Ok(example.join("dist"))
    }

    /// Returns the arguments before these flags, and the flags.
    pub fn with(&self, flags: &[&str]) -> Vec<String> {
        self.arguments.iter().cloned().chain(flags.iter().map(|&flag| flag.to_owned())).collect()
    }
}

/// Returns `None` if an example cannot be built, for example because its packages cannot be fetched. This is a failure
/// in CI only, because the example in Rust shows the same.
pub fn fetched<T>(of: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match of {
        Err(error) if std::env::var_os("CI").is_none() => {
            tracing::warn!("not run: {error:#}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Builds OPA into `target/opa`, if it is missing or belongs to another `go.mod` or `go.sum`.
pub fn opa() -> anyhow::Result<PathBuf> {
    let directory = root().join("target/opa");
    run(Command::new(root().join("examples/opa/build.sh")).arg(&directory))?;
    Ok(directory.canonicalize()?.join("opa"))
}

fn go(name: &str, scratch: &Path) -> anyhow::Result<Example> {
    let example = copy(name, scratch)?;
    generate(&example)?;
    let program = example.join("program");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(&example);
    run(go.env("CGO_ENABLED", "0"))?;
    Ok(Example { program, arguments: Vec::new() })
}

/// Copies an example next to the `.proto` files, and installs its packages from `package-lock.json`.
fn npm_install(name: &str, scratch: &Path) -> anyhow::Result<PathBuf> {
    let example = copy(name, scratch)?;
    run(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&example))?;
    Ok(example)
}

/// Generates the code of the API with `buf.gen.yaml` of the example.
fn generate(example: &Path) -> anyhow::Result<()> {
    let directory = root().join("target/buf");
    run(Command::new(root().join("tests/buf/build.sh")).arg(&directory))?;
    run(Command::new(directory.canonicalize()?.join("buf")).arg("generate").current_dir(example))
}

fn copy(name: &str, scratch: &Path) -> anyhow::Result<PathBuf> {
    let examples = scratch.join("examples");
    let protos = scratch.join("proto");
    if !protos.exists() {
        symlink(root().canonicalize()?.join("proto"), &protos)?;
    }
    let example = examples.join(name);
    copy_below(&root().join("examples").join(name), &example)?;
    Ok(example)
}

fn copy_below(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if NOT_IN_THE_TREE.iter().any(|not| name == *not) {
            continue;
        }
        if from.is_dir() {
            copy_below(&from, &to.join(name))?;
        } else {
            fs::copy(&from, to.join(name)).with_context(|| format!("copying {}", from.display()))?;
        }
    }
    Ok(())
}

fn protos_below(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(protos_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(found)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said).trim());
    Ok(())
}
