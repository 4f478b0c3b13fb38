//! Finds the programs of the control plane. A script builds them from `tests/controlplane/go.mod`, next to it, if they
//! are missing.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};

const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];
/// The exit code of the script if there is no toolchain.
const NO_TOOLCHAIN: i32 = 3;

/// The directory of etcd, kube-apiserver, kube-controller-manager and kubectl, all of one version.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Returns the program with this name (`etcd`, `kube-apiserver`, `kube-controller-manager`, `kubectl`).
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The reason why there is no control plane.
#[derive(Debug)]
pub enum Unavailable {
    /// This machine cannot build the programs, because it has no Go toolchain or an old one. The test passes without a
    /// run.
    NoToolchain(String),
    /// The build failed. The test fails.
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

/// Returns the programs, or `None` with a message on standard error if the test cannot run. With `CI=true`, this case
/// is a failure.
///
/// # Panics
/// The build fails, or `CI=true` and there is no Go toolchain.
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

/// Finds the programs in `target/controlplane`, and builds those that are missing or belong to another `go.mod` or
/// `go.sum`. A first build takes about four minutes on two cores. Only one test process builds at a time.
pub fn binaries() -> Result<Binaries, Unavailable> {
    let directory = target_directory().join("controlplane");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane/build.sh");
    // The output of the build goes to the output of the test.
    let built = Command::new(&script).arg(&directory).args(PROGRAMS).stderr(Stdio::inherit()).output();
    let built = built.with_context(|| format!("running {}", script.display())).map_err(Unavailable::Failed)?;
    match built.status.code() {
        Some(0) => Ok(Binaries { directory }),
        Some(NO_TOOLCHAIN) => Err(Unavailable::NoToolchain(String::from_utf8_lossy(&built.stdout).trim().to_owned())),
        Some(_) | None => Err(Unavailable::Failed(anyhow!("{}: {}", script.display(), built.status))),
    }
}

fn target_directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the workspace");
    workspace.join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// The function writes to the stream itself, because the harness hides `eprintln!` of a test that passes.
fn say(message: &str) {
    // If the write fails, nothing reads the stream.
    let _ = writeln!(io::stderr().lock(), "{message}");
}
