//! `kubectl ownergraph`: the questions of `ownergraph`, as a plugin of kubectl.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    cli::kubectl_plugin().await
}
