//! `ownergraph`. All of it is in the library, which `kubectl-ownergraph` shares.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    cli::ownergraph().await
}
