//! Finds the control plane's programs, or has them built from `tests/controlplane/go.mod` by the script beside it.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};

const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];
/// How the script ends that finds no toolchain.
const NO_TOOLCHAIN: i32 = 3;

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

/// Finds the programs in `target/controlplane`, and builds those that are missing or belong to another `go.mod` or `go.sum`. A first
/// build takes about four minutes on two cores. Test processes build one at a time.
pub fn binaries() -> Result<Binaries, Unavailable> {
    let directory = target_directory().join("controlplane");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane/build.sh");
    // What it says while it builds goes where the test's own words go.
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

/// Written to the stream itself: `eprintln!` in a test that passes is kept from the reader.
fn say(message: &str) {
    // If the write fails, nothing reads the file.
    let _ = writeln!(io::stderr().lock(), "{message}");
}
