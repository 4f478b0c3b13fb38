//! The common beginning of tests of our programs on the real API server.

use crate::controlplane::{Binaries, ControlPlane, apply, require};
use crate::load::{list, until};
use crate::service::{Programs, Service};
use anyhow::{Context as _, ensure};
use kube::Client;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// The collections of guards.
const GUARDS: [&str; 5] = ["pauses", "protections", "budgets", "approvals", "gates"];

/// Our programs, with their own control plane.
pub struct Stage {
    pub binaries: Binaries,
    pub programs: Programs,
    pub plane: ControlPlane,
    pub client: Client,
}

impl Stage {
    /// Returns `None` if the control plane cannot be built. See [`require`].
    pub async fn start() -> anyhow::Result<Option<Stage>> {
        let Some(binaries) = require() else { return Ok(None) };
        let programs = Programs::build()?;
        let plane = ControlPlane::start(&binaries).await?;
        let client = plane.client().await?;
        Ok(Some(Stage { binaries, programs, plane, client }))
    }

    /// Starts `ownergraph collect` with these additional flags, and waits until it is ready.
    pub async fn collect(&self, directory: &Path, more: &[&str]) -> anyhow::Result<Service> {
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let arguments = [&["collect", "--kubeconfig", &kubeconfig], more].concat();
        let mut service = Service::start(&self.programs, "ownergraph", "collect", directory, &arguments)?;
        service.ready().await?;
        Ok(service)
    }
}

/// Installs the definitions of guards, as `ownergraph crds | kubectl apply -f -` does, and waits until all are served.
pub async fn install_guards(programs: &Programs, kubectl: Command, client: &Client) -> anyhow::Result<()> {
    let definitions = Command::new(programs.path("ownergraph")).arg("crds").output().context("running ownergraph")?;
    ensure!(definitions.status.success(), "{}", String::from_utf8_lossy(&definitions.stderr));
    apply(kubectl, &definitions.stdout)?;
    for plural in GUARDS {
        let path = format!("/apis/ownergraph.dev/v1alpha1/{plural}");
        let ask = || async { Ok(list(client, &path).await.is_ok()) };
        until(&format!("{plural} are served"), SERVED_WITHIN, ask, |served| *served).await?;
    }
    Ok(())
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("plane", &self.plane).finish_non_exhaustive()
    }
}
