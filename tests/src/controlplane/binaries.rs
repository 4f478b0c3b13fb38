//! Finds the control plane's programs, or builds them from `tests/controlplane/go.mod` with the Go toolchain.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::process;

/// Name of the program and the package it is built from.
const PROGRAMS: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

/// The packages whose variables hold the version; a build from modules knows none and would call itself v0.0.0-master.
const VERSION_PACKAGES: [&str; 2] = ["k8s.io/client-go/pkg/version", "k8s.io/component-base/version"];

/// Beside the programs: what they were built from. As content, because a fresh checkout has fresh modification times.
const STAMP: &str = "built-from";

/// Where etcd, kube-apiserver, kube-controller-manager and kubectl of one version are.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The program of that name (`etcd`, `kube-apiserver`, `kube-controller-manager`, `kubectl`).
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Why there is no control plane to test with.
#[derive(Debug)]
pub enum Unavailable {
    /// This machine cannot build it: no Go toolchain, or one that is too old. A reason to skip.
    NoToolchain(String),
    /// It should have been built and was not. A failure.
    Failed(anyhow::Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoToolchain(why) => formatter.write_str(why),
            Self::Failed(error) => write!(formatter, "{error:#}"),
        }
    }
}

/// The programs, or `None` after saying on standard error that the test is skipped and why. With `CI=true` a skip is a failure.
///
/// # Panics
/// When the build fails; without a Go toolchain where `CI=true`.
pub fn require() -> Option<Binaries> {
    match binaries() {
        Ok(binaries) => Some(binaries),
        Err(Unavailable::NoToolchain(why)) => {
            assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "with CI=true a skip is a failure: {why}");
            say(&format!("skipped: {why}"));
            None
        }
        Err(Unavailable::Failed(error)) => panic!("no control plane to test with: {error:#}"),
    }
}

/// Finds the programs in `target/controlplane`, and builds them first if they are missing or belong to another `go.mod` or `go.sum`.
/// A first build takes about four minutes on two cores. Test processes build one at a time.
pub fn binaries() -> Result<Binaries, Unavailable> {
    let directory = target_directory().join("controlplane");
    let inputs = Inputs::read().map_err(Unavailable::Failed)?;
    let lock = lock(&directory).map_err(Unavailable::Failed)?;
    if !inputs.are_built_in(&directory) {
        check_toolchain(&inputs.module)?;
        inputs.build_in(&directory).map_err(Unavailable::Failed)?;
    }
    drop(lock);
    Ok(Binaries { directory })
}

/// Everything that decides what the programs are, apart from the compiler.
struct Inputs {
    module: PathBuf,
    linker_flags: String,
    stamp: String,
}

impl Inputs {
    fn read() -> anyhow::Result<Self> {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane");
        let read = |name: &str| {
            let file = module.join(name);
            fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let linker_flags = linker_flags(&go_mod)?;
        let stamp = format!("{linker_flags}\n{go_mod}\n{go_sum}");
        Ok(Self { module, linker_flags, stamp })
    }

    fn are_built_in(&self, directory: &Path) -> bool {
        fs::read_to_string(directory.join(STAMP)).is_ok_and(|built_from| built_from == self.stamp)
            && PROGRAMS.iter().all(|(name, _)| directory.join(name).is_file())
    }

    fn build_in(&self, directory: &Path) -> anyhow::Result<()> {
        let log = directory.join("build.log");
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        say(&format!("building the control plane (minutes, the first time); output in {}", log.display()));
        for (name, package) in PROGRAMS {
            let part = directory.join(format!("{name}.part"));
            let status = Command::new("go")
                .args(["build", "-ldflags", &self.linker_flags, "-o"])
                .arg(&part)
                .arg(package)
                .current_dir(&self.module)
                .env("CGO_ENABLED", "0")
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?)
                .status()
                .context("running go build")?;
            if !status.success() {
                bail!(
                    "go build {package} in {}: {status}; end of {}:\n{}",
                    self.module.display(),
                    log.display(),
                    process::tail(&log)
                );
            }
            // A server that runs from the old file keeps it; a build that is interrupted leaves no half program.
            fs::rename(&part, directory.join(name)).with_context(|| format!("renaming {}", part.display()))?;
        }
        let stamp = directory.join(STAMP);
        fs::write(&stamp, &self.stamp).with_context(|| format!("writing {}", stamp.display()))
    }
}

/// Without symbols (a third of the size), with the version that `go.mod` requires.
fn linker_flags(go_mod: &str) -> anyhow::Result<String> {
    let version = go_mod
        .lines()
        .find_map(|line| {
            line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes v")?.split_whitespace().next()
        })
        .context("tests/controlplane/go.mod requires no k8s.io/kubernetes")?;
    let mut parts = version.split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        bail!("tests/controlplane/go.mod: {version:?} is no version of Kubernetes");
    };
    let values =
        [("gitVersion", format!("v{version}")), ("gitMajor", major.to_owned()), ("gitMinor", minor.to_owned())];
    let mut flags = "-s -w".to_owned();
    for package in VERSION_PACKAGES {
        for (variable, value) in &values {
            flags.push_str(&format!(" -X {package}.{variable}={value}"));
        }
    }
    Ok(flags)
}

/// Asked in the module's directory, where an old toolchain fetches the one that go.mod names or says that it will not.
fn check_toolchain(module: &Path) -> Result<(), Unavailable> {
    const NEEDED: &str =
        "these tests build a real Kubernetes API server and need the Go toolchain that tests/controlplane/go.mod names";
    let output = match Command::new("go").arg("version").current_dir(module).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unavailable::NoToolchain(format!("no `go` on PATH; {NEEDED}")));
        }
        Err(error) => return Err(Unavailable::NoToolchain(format!("`go version`: {error}; {NEEDED}"))),
    };
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Unavailable::NoToolchain(format!("`go version`: {why}; {NEEDED}")))
}

/// Held while looking and building, so that of several test processes one builds and the others wait for it.
fn lock(directory: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

fn target_directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the workspace");
    workspace.join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// Written to the stream itself: `eprintln!` in a test that passes is kept from the reader.
fn say(message: &str) {
    // Nobody reads it if it cannot be written.
    let _ = writeln!(io::stderr().lock(), "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_module_file() {
        for go_mod in ["require k8s.io/kubernetes v1.36.3\n", "require (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n"]
        {
            let flags = linker_flags(go_mod).unwrap();
            assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.36.3"), "{flags}");
            assert!(flags.ends_with("-X k8s.io/component-base/version.gitMinor=36"), "{flags}");
        }
        assert!(linker_flags("module controlplane\n").is_err());
    }
}
