//! What kubectl runs to complete a line of `kubectl ownergraph`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::kubectl_complete()
}
