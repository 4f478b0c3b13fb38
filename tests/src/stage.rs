//! The common beginning of tests of our programs on the real API server.

use crate::controlplane::{Binaries, ControlPlane, require};
use crate::service::{Programs, Service};
use kube::Client;
use std::path::Path;

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

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("plane", &self.plane).finish_non_exhaustive()
    }
}
